"""What a run leaves behind: a trace that Perfetto draws as it is meant, and no secret anywhere.

    outputs_test.py AUTODIST

Two ranks train with a planted job key, a planted path of an ssh key and planted variables in the
environment and in the cluster file. All that they write and print is then searched for these. The
trace must have one process per rank with named tracks, no two rows of a track at a time, waits that
end, and arrows from contributions to installations.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from ports import free_port

KEY = "5ec2e7" * 10 + "abcd"
SECRETS = {"the job's key": KEY, "the path of the ssh key": "planted-ssh-identity",
           "the cluster's variable": "planted-shared-value", "the environment's variable": "planted-token",
           "the user": "planted-user"}
CLUSTER = """
nodes:
  - address: 127.0.0.1
    slots: 2
    chief: true
    ssh_config: conf
ssh:
  conf:
    username: planted-user
    key_file: /keys/planted-ssh-identity
    shared_envs: {SHARED_TOKEN: planted-shared-value}
"""
ROUNDING = 0.002  # µs: times of rows have nanoseconds
STEPS = 30


def train(autodist, folder):
    """Trains, and returns what both ranks printed."""
    (folder / "cluster.yml").write_text(CLUSTER)
    key = folder / "planted-ssh-identity.key"
    key.write_text(KEY)
    environment = {**os.environ, "AUTODIST_SIZE": "2", "AUTODIST_CHIEF": f"127.0.0.1:{free_port()}",
                   "AUTODIST_KEY_FILE": str(key), "MY_TOKEN": "planted-token", "OMP_NUM_THREADS": "1"}
    out = folder / "out"
    out.mkdir()
    command = [autodist, "train", "digits", "--cluster", folder / "cluster.yml", "--builder", "PSLoadBalancing",
               "--steps", str(STEPS), "--batch", "32", "--encrypt", "on", "--trace", out / "trace.json",
               "--log", out / "log.jsonl", "--tensorboard", out / "board", "--report", out / "report.html",
               "--save", out / "model"]
    ranks = [subprocess.Popen(command, env={**environment, "AUTODIST_RANK": str(rank)}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) for rank in range(2)]
    said = [process.communicate(timeout=240)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], said
    return out, said


def hold_no_secret(out, said):
    files = [path for path in sorted(out.rglob("*")) if path.is_file()]
    names = {path.name for path in files}
    assert {"trace.json", "log.jsonl", "report.html"} <= names, names
    for what, secret in SECRETS.items():
        for path in files:
            assert secret.encode() not in path.read_bytes(), f"{what} is in {path.name}"
            # As it would stand in a file that was not read as text.
            if secret is KEY:
                assert bytes.fromhex(KEY) not in path.read_bytes(), f"{what} is in {path.name}"
        for rank, text in enumerate(said):
            assert secret not in text, f"rank {rank} prints {what}"
    print(f"{len(files)} files and what was printed hold none of {len(SECRETS)} secrets")


def rows_of(events):
    tracks = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event))
    return {track: sorted(rows, key=lambda row: row[:2]) for track, rows in tracks.items()}


def check_tracks(events, tracks):
    named = {(event["pid"], event["tid"]): event["args"]["name"] for event in events
             if event["ph"] == "M" and event["name"] == "thread_name"}
    assert {pid for pid, _ in tracks} == {0, 1}, "a process per rank expected"
    for track, rows in tracks.items():
        assert track in named, f"track {track} has no name"
        for before, after in zip(rows, rows[1:]):
            assert before[1] <= after[0] + ROUNDING, f"{named[track]}: {before[2]} and {after[2]} overlap"
    for pid in (0, 1):
        names = [name for (rank, _), name in named.items() if rank == pid]
        assert len(names) == len(set(names)), names
        assert "compute" in names and "compute (2)" not in names, names


def check_waits(events):
    waiting = {}
    for event in events:
        if event["ph"] == "b":
            waiting[event["id"]] = event
        elif event["ph"] == "e":
            begun = waiting.pop(event["id"])
            assert begun["ts"] <= event["ts"] and begun["pid"] == event["pid"], (begun, event)
    assert not waiting, f"{len(waiting)} waits never end"


def check_arrows(events, tracks):
    """Each begins in the row of a contribution and ends in the row of an installation of that rank."""
    def row_at(event):
        return [row for start, end, row in tracks[event["pid"], event["tid"]]
                if start - ROUNDING <= event["ts"] <= end + ROUNDING and row["ts"] == event["ts"]]

    begun, arrows = {}, 0
    for event in events:
        if event["ph"] == "s":
            assert event["id"] not in begun, f"two arrows are called {event['id']}"
            begun[event["id"]] = event
            assert any(row["cat"] == "contribute" for row in row_at(event)), event
        elif event["ph"] == "f":
            start = begun[event["id"]]
            assert start["pid"] == event["pid"] and start["ts"] <= event["ts"], (start, event)
            assert event["bp"] == "e" and any(row["cat"] == "install" for row in row_at(event)), event
            arrows += 1
    assert arrows >= STEPS, f"{arrows} arrows in {STEPS} steps"
    return arrows


def main():
    with tempfile.TemporaryDirectory(prefix="outputs-") as folder:
        out, said = train(sys.argv[1], pathlib.Path(folder))
        hold_no_secret(out, said)
        events = json.loads((out / "trace.json").read_text())["traceEvents"]
        tracks = rows_of(events)
        check_tracks(events, tracks)
        check_waits(events)
        arrows = check_arrows(events, tracks)
        print(f"{len(events)} events on {len(tracks)} tracks, {arrows} arrows: nothing overlaps")


main()
