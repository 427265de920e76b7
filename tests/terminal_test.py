"""What a person sees at terminals of 80 and 40 columns: nothing is wider, and it looks as it did.

    terminal_test.py AUTODIST [--update]     --update writes what it looks like now
"""

import fcntl
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios

AUTODIST = os.path.abspath(sys.argv[1])
UPDATE = "--update" in sys.argv
GOLDENS = pathlib.Path(__file__).resolve().parent / "testdata/terminal"

# By name: the command, and whether it says the same every time.
COMMANDS = {
    "help": (["--help"], True),
    "train-help": (["train", "--help"], True),
    "bench-help": (["bench", "--help"], True),
    "plan": (["plan", "bert-small", "--builder", "PSLoadBalancing", "--no-history"], True),
    "simulate": (["simulate", "bert-small", "--builder", "PS", "--cluster", "local:4"], True),
    "inspect": (["inspect", "digits"], True),
    "place": (["place", "generated:cells:1", "--devices", "4", "--evaluations", "200"], True),
    "compare": (["compare", "predicted.json", "predicted.json"], True),
    "refused": (["plan", "bert-smal", "--clustr", "local:4"], True),
    "explain": (["explain", "digits", "--budget", "5"], False),
    "doctor": (["doctor"], False),
    "train": (["train", "digits", "--builder", "PS", "--steps", "12", "--no-history"], False),
}


def seen(words, columns, folder, fails=False):
    """All that the terminal gets."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    # The demo's machine has no history, and the processes of a job find no other terminal.
    env = {**os.environ, "AUTODIST_HISTORY": folder, "TERM": "xterm"}
    process = subprocess.Popen([AUTODIST, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=folder)
    got = b""
    # Our end of theirs stays open: where the last one closes, a kernel may drop what nobody has read.
    while True:
        ended = process.poll() is not None
        if select.select([ours], [], [], 0.1)[0]:
            got += os.read(ours, 65536)
        elif ended:
            break
    os.close(theirs)
    os.close(ours)
    assert (process.wait() != 0) == fails, f"{words}: exit code {process.returncode}: {got.decode()[-500:]}"
    return got.decode().replace("\r\n", "\n")


def check(name, words, is_steady, columns, folder):
    text = seen(words, columns, folder, fails=name == "refused")
    shown = re.sub(r"\033\[K", "", text)
    for line in shown.split("\n"):
        for state in line.split("\r"):  # one after the other in the same place
            # A word may be longer: paths and names are not broken. Nor is an error, for what it says to type.
            fits = len(state) <= columns or len(state.split()) <= 1 or name == "refused"
            assert fits, f"{name} at {columns} columns: {len(state)} of them: {state!r}"
    if not is_steady:
        return
    shown = shown.replace("\r", "")
    golden = GOLDENS / f"{name}-{columns}.txt"
    if UPDATE:
        golden.write_text(shown)
    expected = golden.read_text()
    if shown != expected:
        for number, (now, before) in enumerate(zip(shown.split("\n"), expected.split("\n")), 1):
            assert now == before, (f"{golden.name}, line {number}:\n  now    {now}\n  before {before}\n"
                                   f"look at it; if it should be so: tests/terminal_test.py AUTODIST --update")
        raise AssertionError(f"{golden.name}: {len(shown)} characters, before {len(expected)}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([AUTODIST, "simulate", "bert-small", "--builder", "PS", "--trace", "predicted.json"],
                       capture_output=True, check=True, cwd=folder)
        for columns in (80, 40):
            for name, (words, is_steady) in COMMANDS.items():
                check(name, words, is_steady, columns, folder)
                print(f"{name} at {columns} columns: fits")
        progress = re.findall(r"\rstep +\d+/12  loss", seen(*COMMANDS["train"][:1], 40, folder))
        assert len(progress) == 12, f"{len(progress)} lines of progress in one place, of 12 steps"
        # An error takes the place of the line of progress.
        broken = seen(["train", "digits", "--cluster", "local:1", "--optimizer", "sgd:lr=1e6", "--steps", "50",
                       "--no-history"], 40, folder, fails=True)
        assert "\rstep" in broken and re.search(r"\r\033\[Kautodist: .*finite", broken), broken
        # Where there is no terminal, lines are as long as they are.
        plain = subprocess.run([AUTODIST, *COMMANDS["plan"][0]], capture_output=True, text=True, check=True, cwd=folder)
        assert max(map(len, plain.stdout.split("\n"))) > 80
    print("terminals: all as they should be")


main()
