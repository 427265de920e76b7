"""What a full disk does to trainings and logs: it is said, and the training goes on.

    full_disk_test.py AUTODIST

Runs itself again in a mount namespace of its own, where a folder is a small tmpfs. Exit code 77 where that is not
allowed.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from running import SECONDS, run, wait_until

DISK = 4 << 20
INSIDE = "AUTODIST_FULL_DISK_TEST"


def fill(disk):
    """A file that leaves room for nothing."""
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        for size in (4096, 512, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return ballast


def complaints(text, part):
    return [line for line in text.splitlines() if line.startswith("autodist: ") and part in line]


def training_goes_on(autodist, disk):
    """The first checkpoints do not fit; then there is room again, and the last one is written."""
    ballast = fill(disk)
    command = [autodist, "train", "digits", "--cluster", "local:2", "--builder", "PS", "--steps", "3000",
               "--checkpoint-every", "50", "--save", disk / "model", "--json"]
    # Taken by the check at the start; the training begins with no room at all.
    ballast.unlink()
    (disk / "model").mkdir()
    (disk / "model" / ".lock").write_text("x" * 200)
    ballast = fill(disk)
    process = subprocess.Popen([str(each) for each in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
    said = []
    for line in process.stderr:
        said.append(line)
        if "no checkpoint of step 50" not in line:
            continue
        assert "No space left on device" in line and "the training goes on" in line, line
        # Nothing stays of it; the next one may be tried at this moment.
        wait_until(lambda: [each.name for each in (disk / "model").iterdir()] == [".lock"], every=0,
                   said=lambda: list((disk / "model").iterdir()))
        ballast.unlink()
    out = process.stdout.read()
    assert process.wait(timeout=SECONDS) == 0, (process.returncode, said, out)
    assert ballast.exists() is False, said
    assert (disk / "model" / "step-3000" / "manifest.json").exists(), list((disk / "model").iterdir())
    assert not (disk / "model" / ".lock").exists()
    print("a checkpoint that does not fit is a warning; the next one is tried")


def last_one_is_missing(autodist, disk):
    (disk / "last").mkdir()
    (disk / "last" / ".lock").write_text("x" * 200)
    ballast = fill(disk)
    done = run([autodist, "train", "digits", "--cluster", "local:2", "--builder", "PS", "--steps", "30", "--save",
                disk / "last", "--json"], 6)
    assert '"steps":30' in done.stdout, done.stdout
    assert len(complaints(done.stderr, "no checkpoint of step 30: ")) == 1, done.stderr
    assert list((disk / "last").iterdir()) == []
    ballast.unlink()
    print("a last checkpoint that does not fit is exit code 6")


def logs(autodist, disk):
    ballast = fill(disk)
    done = run([autodist, "train", "digits", "--cluster", "local:1", "--steps", "5", "--log", disk / "log.jsonl",
                "--tensorboard", disk, "--json"], 6)
    for option in ("--log", "--tensorboard"):
        assert len(complaints(done.stderr, f"{option} ")) == 2, done.stderr  # once, and at the end
    assert '"steps":5' in done.stdout, done.stdout
    done = run([autodist, "train", "digits", "--cluster", "local:2", "--builder", "PS", "--steps", "5", "--trace",
                disk / "trace.json", "--report", disk / "page.html"], 6)
    assert "done after step 5" in done.stdout and "report: " not in done.stdout, done.stdout
    for option in ("--trace", "--report"):
        assert len(complaints(done.stderr, f"{option} {disk}")) == 1, done.stderr
    assert not [each for each in disk.iterdir() if "trace" in each.name or "page" in each.name], list(disk.iterdir())
    done = run([autodist, "run", "--cluster", "local:2", "--logs", disk, "--", "/bin/sh", "-c", "echo a; echo b"], 6)
    assert len(done.stdout.splitlines()) == 4, done.stdout
    assert len(complaints(done.stderr, "rank-")) == 2, done.stderr
    ballast.unlink()
    print("logs that are cut short are said once, and exit code 6")


def main(autodist):
    if INSIDE not in os.environ:
        probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True)
        if probe.returncode != 0:
            print(f"SKIPPED: no mount namespace: {probe.stderr.strip()}")
            sys.exit(77)
        sys.exit(subprocess.run(["unshare", "-m", sys.executable, __file__, autodist],
                                env={**os.environ, INSIDE: "1"}).returncode)
    with tempfile.TemporaryDirectory(prefix="autodist-disk-") as folder:
        disk = pathlib.Path(folder) / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(disk)],
                                 capture_output=True, text=True)
        if mounted.returncode != 0:
            print(f"SKIPPED: no tmpfs can be mounted: {mounted.stderr.strip()}")
            sys.exit(77)
        try:
            logs(autodist, disk)
            last_one_is_missing(autodist, disk)
            training_goes_on(autodist, disk)
        finally:
            subprocess.run(["umount", str(disk)], check=True)


main(sys.argv[1])
