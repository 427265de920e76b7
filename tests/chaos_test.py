"""`autodist chaos` harms a job's ranks, and says how it came back.

    chaos_test.py AUTODIST
"""

import json
import pathlib
import re
import sys
import tempfile

from running import run

STEPS = 1500  # longer than its faults take to come, on a fast machine, too


def chaos(autodist, folder, *words, code=0):
    return run([autodist, "chaos", "--log", folder / "faults.jsonl", *words], code, cwd=folder)


def train(*more, ranks=3):
    return ["train", "digits", "--cluster", f"local:{ranks}", "--builder", "PS", "--batch", "64", "--steps", STEPS,
            "--optimizer", "adam:lr=1e-3", "--save", "saved", "--checkpoint-every", 20, *more]


def faults_of(folder):
    return [json.loads(line) for line in (folder / "faults.jsonl").read_text().splitlines()]


def killed_again_and_again(autodist, folder):
    done = chaos(autodist, folder, "--kill-every", 1, "--faults", 3, "--seed", 4, "--", *train("--json"))
    faults = faults_of(folder)
    assert len(faults) == 3 and all(re.fullmatch(r"rank \d \(pid \d+\) is killed", each["fault"]) for each in faults)
    assert all(0 < each["training_again_seconds"] < 60 for each in faults), faults
    told = re.search(r"chaos: 3 faults, training again after 3 of them: after \S+ \w+ in the median .*; (\d+) steps",
                     done.stderr)
    assert told and int(told[1]) == sum(each["steps_again"] for each in faults), (done.stderr, faults)
    (folder / "clean").mkdir()
    clean = run([autodist, *train("--json")], cwd=folder / "clean")
    assert json.loads(done.stdout)["loss"] == json.loads(clean.stdout)["loss"], (done.stdout, clean.stdout)
    print("killed three times, with the loss of a job that nobody harmed:", done.stderr.strip().splitlines()[-1])


def halted(autodist, folder):
    """The second fault: a rank that neither works nor ends."""
    done = chaos(autodist, folder, "--kill-every", 0.5, "--halt", "--faults", 2, "--",
                 *train("--silence-timeout", 6))
    kinds = [each["fault"].rsplit(" ", 1)[1] for each in faults_of(folder)]
    assert kinds == ["killed", "halted"], (kinds, done.stderr)
    print("a rank that is halted:", done.stderr.strip().splitlines()[-1])


def programs(autodist, folder):
    done = chaos(autodist, folder, "--kill-every", 1, "--faults", 1, "--", "run", "--cluster", "local:2", "--restarts",
                 "2", "--", autodist, *train(ranks=2))
    assert len(faults_of(folder)) == 1 and "chaos: 1 fault, training again after 1 of them" in done.stderr, done.stderr
    print("the same of a program of one's own")


def what_is_refused(autodist, folder):
    for words, said in ((["--", "plan", "digits"], "chaos: 'plan' behind --, train, run or supervise expected"),
                        (["--kill-every", "-1", "--", "train", "digits"], "--kill-every"),
                        ([], "job is required"),
                        (["--partition", 1, "--", "train", "digits", "--cluster", "local:2"], "all ranks are on this machine"),
                        (["--", "train", "digits", "--faults", "often"], "--faults often: autodist chaos writes it")):
        done = chaos(autodist, folder, *words, code=2)
        assert said in done.stderr and len(done.stderr.splitlines()) == 1, (words, done.stderr)
    print("what is no job is refused")


def main(autodist):
    with tempfile.TemporaryDirectory(prefix="autodist-chaos-") as name:
        for part in (killed_again_and_again, halted, programs, what_is_refused):
            folder = pathlib.Path(name) / part.__name__
            folder.mkdir()
            part(pathlib.Path(autodist).resolve(), folder)


main(sys.argv[1])
