"""A network that falls in two: only the side with the process that started the job goes on, and nothing is mixed when it
is whole again.

    partitions_test.py AUTODIST

Network namespaces with an sshd each stand for machines, whose cables are moved to another switch while a job trains. Needs
root. Exit code 77 (skipped, says why) where something is missing.
"""

import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import launch_over_ssh as over_ssh
from killed import Training, state_of
from running import SECONDS, wait_until

STEPS = 400
SILENCE = 4  # the least that may be asked for


@contextlib.contextmanager
def apart(machines, away):
    """These machines reach each other, and nobody else; nobody is told."""
    move(machines, away, "other")
    try:
        yield
    finally:
        move(machines, away, "switch")


def move(machines, away, switch):
    for machine in away:
        port = f"port{machines.index(machine)}"
        over_ssh.run(["ip", "-n", over_ssh.switch_of_this_test(), "link", "set", port, "master", switch, "up"])


@contextlib.contextmanager
def muted(machine):
    """What it sends vanishes; it hears the others."""
    device = over_ssh.device_of(machine)
    over_ssh.run(["tc", "-n", machine.name, "qdisc", "replace", "dev", device, "root", "blackhole"])
    try:
        yield
    finally:
        over_ssh.run(["tc", "-n", machine.name, "qdisc", "delete", "dev", device, "root"])


class Job(Training):
    def __init__(self, autodist, machines, environment, place, *more, under=()):
        place.mkdir()
        self.cluster = over_ssh.cluster_file(place / "cluster.yml", machines, 1)
        self.saved, self.log, self.said_in = place / "saved", place / "log.jsonl", place / "stderr"
        command = [autodist, *under, "train", "digits", "--cluster", self.cluster, "--builder", "PS", "--batch", "48", "--steps",
                   STEPS, "--optimizer", "adam:lr=1e-3", "--log", self.log, "--save", self.saved, "--checkpoint-every", 20,
                   "--silence-timeout", SILENCE, *more]
        with open(self.said_in, "w", encoding="utf-8") as said:
            self.process = subprocess.Popen(machines[0].inside(command), env=environment, cwd=place, stdout=said,
                                            stderr=said)

    def ended(self):
        try:
            assert self.process.wait(timeout=SECONDS) == 0, (self.process.returncode, self.said())
        finally:
            self.process.kill()
        last = [json.loads(line)["step"] for line in self.log.read_text().splitlines()][-1]
        assert last == STEPS - 1, last
        return state_of(self.saved, STEPS)


def a_short_one_changes_nothing(autodist, machines, environment, folder, wanted):
    job = Job(autodist, machines[:3], environment, folder)
    job.until(lambda: job.steps() > 50)
    with apart(machines, machines[2:3]):
        time.sleep(SILENCE / 4)  # what TCP sends again after a longer one may come too late
    assert job.ended() == wanted and "starting again" not in job.said(), job.said()
    print("a partition that is shorter than the limit: the job waits, the same bytes")


def those_apart_end_by_themselves(autodist, machines, environment, folder, wanted, away, how, *more, starts=1):
    """That the others are away is noticed at so many starts."""
    job = Job(autodist, machines[:3], environment, folder, "--restarts", 9, *more)
    job.until(lambda: job.steps() > 50)
    with how:
        job.until(lambda: job.said().count("starting again") >= starts)
        job.until(lambda: not any(over_ssh.ranks_in(machine) for machine in away))  # while nobody can tell them to
    assert job.ended() == wanted, job.said()
    again = re.search(r"training again (.*) after the loss was noticed", job.said())
    assert again and not any(over_ssh.ranks_in(machine) for machine in away), job.said()
    assert "the job goes on without" not in job.said(), job.said()
    print(f"{folder.name}: those apart end by themselves; healed, training again {again[1]} after the loss was noticed, "
          "the same bytes")


def the_arbiters_side_goes_on(autodist, machines, environment, folder):
    """Two and two: the half with who started the job goes on, the other one ends, though it is as large."""
    job = Job(autodist, machines, environment, folder, "--restarts", 9, "--min-ranks", 2)
    job.until(lambda: job.steps() > 50)
    with apart(machines, machines[2:]):
        job.until(lambda: not any(over_ssh.ranks_in(machine) for machine in machines[2:]))
        job.until(lambda: "training again" in job.said())
    job.ended()
    said = re.search(r"the job goes on without .*, with 2 of 4 ranks", job.said())
    assert said and not any(over_ssh.ranks_in(machine) for machine in machines[1:]), job.said()
    print(f"two and two: {said[0]}; the others end by themselves, and are not taken in again")


def nowhere(machine):
    """Whether some of its routes lead there."""
    return "blackhole" in over_ssh.run(["ip", "-n", machine.name, "route"], stdout=subprocess.PIPE, text=True).stdout


def chaos_cuts_machines_off(autodist, machines, environment, folder, wanted, seconds):
    faults = folder.with_suffix(".jsonl")
    job = Job(autodist, machines[:3], environment, folder, "--restarts", 9,
              under=["chaos", "--kill-every", 0.2, "--partition", seconds, "--faults", 2, "--seed", 3, "--log", faults, "--"])
    cut_sides = set()

    def all_sides_were_cut():
        cut_sides.update(machine.name for machine in machines[:3] if nowhere(machine))
        return len(cut_sides) == 3

    job.until(all_sides_were_cut)
    assert job.ended() == wanted, job.said()
    killed, cut = (json.loads(line) for line in faults.read_text().splitlines())
    assert "is killed" in killed["fault"] and re.fullmatch(r"10\.77\.\S+ is cut off for .*", cut["fault"]), (killed, cut)
    assert cut["training_again_seconds"] > seconds, cut
    # Once after the kill. While the machine is away starts fail.
    assert (job.said().count("starting again") > 1) == (seconds > SILENCE), job.said()
    wait_until(lambda: not any(map(nowhere, machines)), every=0.1, said=lambda: list(map(nowhere, machines)))
    print(f"chaos: {cut['fault']}, training again after {cut['training_again_seconds']:.1f} s, the same bytes")


def main(autodist):
    over_ssh.skip_without_namespaces()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with over_ssh.some_machines(folder, 4) as machines:
            over_ssh.run(["ip", "-n", over_ssh.switch_of_this_test(), "link", "add", "other", "type", "bridge"])
            over_ssh.run(["ip", "-n", over_ssh.switch_of_this_test(), "link", "set", "other", "up"])
            environment = over_ssh.ssh_with_known_hosts(folder, machines, machines)
            over_ssh.wait_for_sshd(machines, environment)
            job = [pathlib.Path(autodist).resolve(), machines, environment]
            wanted = Job(job[0], machines[:3], environment, folder / "clean").ended()
            a_short_one_changes_nothing(*job, folder / "short", wanted)
            those_apart_end_by_themselves(*job, folder / "two and one", wanted, machines[2:3],
                                          apart(machines, machines[2:3]))
            those_apart_end_by_themselves(*job, folder / "one way", wanted, machines[2:3], muted(machines[2]))
            # The arbiter is in the minority: it takes itself for the one without a network, and neither goes on alone,
            # though one rank were enough, nor do the two that reach each other.
            those_apart_end_by_themselves(*job, folder / "one and two", wanted, machines[1:3],
                                          apart(machines, machines[1:3]), "--min-ranks", 1, starts=4)
            the_arbiters_side_goes_on(*job, folder / "half")
            for seconds in (SILENCE / 4, 2 * SILENCE):
                chaos_cuts_machines_off(*job, folder / f"chaos {seconds:g}", wanted, seconds)


main(sys.argv[1])
