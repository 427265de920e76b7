"""A machine goes and does not come back: a spare takes its place, or the job goes on without it.

    lost_machines_test.py AUTODIST

Network namespaces with an sshd each stand for machines. One of them loses its ranks and its sshd while a job trains.
Needs root. Exit code 77 (skipped, says why) where something is missing.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import launch_over_ssh as over_ssh
from killed import state_of
from running import SECONDS, run, wait_until

STEPS = 400


def goes_away(machine):
    machine.sshd.kill()
    machine.sshd.wait()
    for pid in over_ssh.processes_in(machine):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def trained(autodist, machines, environment, place, cluster, *, lost, under=(), more=(), code=0):
    """What a job says that loses a machine after some steps."""
    place.mkdir()
    log = place / "log.jsonl"
    train = [autodist, "train", "digits", "--cluster", cluster, "--builder", "PS", "--batch", "64", "--steps", STEPS,
             "--optimizer", "adam:lr=1e-3", "--log", log, "--save", place / "saved", "--checkpoint-every", 20]
    command = [*under, *train, *more]
    said_in = place / "stderr"
    with open(said_in, "w", encoding="utf-8") as said:
        job = subprocess.Popen(machines[0].inside(command), env=environment, cwd=place, stdout=said, stderr=said)
    wait_until(lambda: job.poll() is not None or log.exists() and log.read_text().count("\n") >= 50,
               said=said_in.read_text)
    assert job.poll() is None, said_in.read_text()
    goes_away(lost)
    try:
        assert job.wait(timeout=SECONDS) == code, (job.returncode, said_in.read_text())
    finally:
        job.kill()
        lost.start_sshd()
        over_ssh.wait_for_sshd(machines, environment)
    return said_in.read_text()


def a_spare_takes_its_place(autodist, machines, folder, environment):
    chief, second, spare = machines
    cluster = over_ssh.cluster_file(folder / "spare.yml", [chief, second], 1, spares=[spare])
    place = folder / "spare"
    said = trained(autodist, machines, environment, place, cluster, lost=second)
    assert f"{second.address} could not be used at 2 starts in a row: {spare.address}, a spare, takes its place" in said
    again = re.search(r"training again (.*) after the loss was noticed, from step (\d+)", said)
    assert again and int(again[2]) >= 40, said
    clean = [autodist, "train", "digits", "--cluster", cluster, "--builder", "PS", "--batch", "64", "--steps", STEPS,
             "--optimizer", "adam:lr=1e-3", "--save", folder / "clean"]
    over_ssh.run(chief.inside(clean), env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                 timeout=SECONDS)
    assert state_of(place / "saved", STEPS) == state_of(folder / "clean", STEPS)
    print(f"a spare: training again {again[1]} after the loss was noticed; the bytes of a job that lost nothing")


def a_name_that_is_gone(autodist, machines, folder, environment):
    """As where a cloud deletes a machine with its name; here it never had one. Refused before the job begins, as a
    machine that does not answer is."""
    cluster = folder / "name.yml"
    cluster.write_text(over_ssh.cluster_file(cluster, machines[:2], 1).read_text().replace(
        machines[1].address, "nobody.invalid"))
    for command in (["train", "digits", "--cluster", cluster], ["run", "--cluster", cluster, "--", "true"]):
        done = run(machines[0].inside([autodist, *command]), 3, env=environment, cwd=folder)
        assert "node nobody.invalid: " in done.stderr, done
    spare = folder / "spare-without.yml"
    spare.write_text(f"nodes:\n- {{address: {machines[0].address}, chief: true}}\n"
                     f"- {{address: {machines[1].address}, spare: true}}\n")
    done = run(machines[0].inside([autodist, "train", "digits", "--cluster", spare]), 2, env=environment, cwd=folder)
    assert f"node {machines[1].address} is another machine and names no ssh group" in done.stderr, done
    print("a name that nobody knows is a machine that cannot be used; a spare is looked at beforehand")


def it_goes_on_with_fewer(autodist, machines, folder, environment):
    cluster = over_ssh.cluster_file(folder / "fewer.yml", machines, 1)
    said = trained(autodist, machines, environment, folder / "fewer", cluster, lost=machines[2],
                   more=["--min-ranks", 2])
    assert f"{machines[2].address} could not be used at 2 starts in a row: the job goes on without it, with 2 of 3 " \
           "ranks" in said, said
    again = re.search(r"training again .* from step (\d+)", said)
    assert again and int(again[1]) >= 40 and state_of(folder / "fewer" / "saved", STEPS), said
    print("with 2 of 3 ranks it goes on from its checkpoint")


def a_program_goes_on_with_fewer(autodist, machines, folder, environment):
    """Of `autodist run`, which starts the ranks itself; what they are is their own affair."""
    cluster = over_ssh.cluster_file(folder / "run.yml", machines[:2], 1)
    under = [autodist, "run", "--cluster", cluster, "--restarts", 2, "--min-ranks", 1, "--logs", folder / "logs", "--"]
    said = trained(autodist, machines, environment, folder / "run", cluster, lost=machines[1], under=under)
    assert f"{machines[1].address} could not be used at 2 starts in a row: the job goes on without it, with 1 of 2 " \
           "ranks" in said, said
    state_of(folder / "run" / "saved", STEPS)
    print("a program of one's own goes on with the rank that is left")


def without_leave_it_gives_up(autodist, machines, folder, environment):
    cluster = over_ssh.cluster_file(folder / "all.yml", machines[:2], 1)
    said = trained(autodist, machines, environment, folder / "all", cluster, lost=machines[1], more=["--restarts", 2],
                   code=3)
    assert "given up: 2 starts in a row got no further" in said, said
    assert f"--min-ranks 1 lets the job go on without {machines[1].address}" in said, said
    assert "to go on from " in said, said
    refused = run([autodist, "train", "digits", "--cluster", "local:2", "--min-ranks", "3"], 2)
    assert "--min-ranks 3: the job has 2 ranks" in refused.stderr, refused
    print("where all ranks are wanted it gives up, and says what would let it go on")


def chaos_reaches_every_machine(autodist, machines, folder, environment):
    cluster = over_ssh.cluster_file(folder / "chaos.yml", machines[:2], 1)
    command = [autodist, "chaos", "--kill-every", 0.6, "--halt", "--faults", 3, "--log", folder / "faults.jsonl", "--",
               "train", "digits", "--cluster", cluster, "--builder", "PS", "--batch", "64", "--steps", 4 * STEPS,
               "--silence-timeout", 6, "--save", folder / "chaos", "--checkpoint-every", 20]
    done = run(machines[0].inside(command), env=environment, cwd=folder)
    faults = (folder / "faults.jsonl").read_text()
    assert faults.count("fault") == 3 and f"rank 1 (on {machines[1].address}) is halted" in faults, (faults, done.stderr)
    wait_until(lambda: not over_ssh.ranks_in(machines[1]), every=0.1)  # what was halted, too
    print("chaos kills and halts ranks of other machines, too:", done.stderr.strip().splitlines()[-1])


def main(autodist):
    over_ssh.skip_without_namespaces()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with over_ssh.some_machines(folder, 3) as machines:
            environment = over_ssh.ssh_with_known_hosts(folder, machines, machines)
            over_ssh.wait_for_sshd(machines, environment)
            for part in (a_spare_takes_its_place, a_name_that_is_gone, it_goes_on_with_fewer, a_program_goes_on_with_fewer,
                         without_leave_it_gives_up, chaos_reaches_every_machine):
                part(pathlib.Path(autodist).resolve(), machines, folder, environment)


main(sys.argv[1])
