"""A machine that only serves (`role: server`): it owns variables, and computes nothing.

    servers_test.py AUTODIST

Three ranks on this machine, started by hand, of a cluster whose third is a server. What they train has the bits of
two ranks without it, and all of them end with the job.
"""

import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile
import time

import comparing
from ports import free_port
from running import SECONDS, run, wait_until

comparing.skip_without_torch()

CLUSTER = """nodes:
- {address: 10.99.0.1, chief: true}
- {address: 10.99.0.2}
- {address: 10.99.0.3, role: server}
"""
PROGRAM = """
import sys, autodist, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
data = torch.randn(30, 16, 8), torch.randn(30, 16, 1)
loss_fn = lambda m, x, y: torch.nn.functional.mse_loss(m(x), y)
ad = autodist.AutoDist(sys.argv[1], builder="BytePS:partition_bytes=64")
with ad.distribute(model, loss_fn, torch.optim.Adam(model.parameters()), (data[0][0], data[1][0])) as step:
    print(f"rank {ad.rank} has {len(step.rows_of(16))} rows", flush=True)
    step.resume(sys.argv[2])
    for i in range(step.step, 30):
        step.snapshot()
        step(data[0][i], data[1][i])
        if i % 10 == 9:
            step.save(sys.argv[2], wait=False)
    score = step.evaluate(lambda m: loss_fn(m, data[0][0], data[1][0]))
    try:
        step.change_plan("AllReduce")
    except autodist.UsageError as error:
        print(error)
    print("trained", step.step, float(score).hex())
"""


STEPS = """
import sys, autodist, torch
torch.manual_seed(0)
first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
model = torch.nn.ModuleList([first, second])
x, y = torch.randn(8, 4), torch.randn(8, 4)
mse = torch.nn.functional.mse_loss
ad = autodist.AutoDist(sys.argv[1], builder="PS")
steps = ad.distribute_steps(
    one=autodist.TrainingStep(model, lambda m, x, y: mse(m[0](x), y), torch.optim.SGD(first.parameters(), lr=0.1), (x, y),
                              trains=["0"]),
    two=autodist.TrainingStep(model, lambda m, x, y: mse(m[1](x), y), torch.optim.SGD(second.parameters(), lr=0.1), (x, y),
                              trains=["1"]))
with steps:
    for _ in range(5):
        steps["one"](x, y)
        steps["two"](x, y)
    print("trained", steps.step)
"""
ENDLESS = """
import pathlib, sys, autodist, torch
model, data = torch.nn.Linear(4, 1), (torch.randn(8, 4), torch.randn(8, 1))
ad = autodist.AutoDist(sys.argv[1], builder="PS")
with ad.distribute(model, lambda m, x, y: torch.nn.functional.mse_loss(m(x), y),
                   torch.optim.SGD(model.parameters(), lr=1e-3), data) as step:
    while True:
        step(*data)
        if step.step == 20:
            pathlib.Path(sys.argv[2]).touch()
"""


class Job:
    """The same command at every rank."""

    def __init__(self, folder, command, ranks=3):
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        key = folder / "key"
        key.write_text(secrets.token_hex(32))
        key.chmod(0o600)
        self.ranks = []
        for rank in reversed(range(ranks)):
            environment = {**os.environ, "AUTODIST_RANK": str(rank), "AUTODIST_SIZE": str(ranks), "OMP_NUM_THREADS": "1",
                           "AUTODIST_CHIEF": f"127.0.0.1:{port}", "AUTODIST_KEY_FILE": str(key)}
            self.ranks.insert(0, subprocess.Popen([str(word) for word in command], env=environment, text=True,
                                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE))

    def ended(self, code=0):
        said = [each.communicate(timeout=SECONDS) for each in self.ranks]
        codes = [each.returncode for each in self.ranks]
        assert codes == [code] * len(codes), (codes, said)
        return said


def train(autodist, cluster, *more):
    return [autodist, "train", "digits", "--cluster", cluster, "--batch", "64", "--optimizer", "adam:lr=1e-3", *more]


def model_of(folder, step):
    return [(folder / f"step-{step}" / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")]


def bits_are_those_without_it(autodist, folder, cluster):
    alone = folder / "alone"
    run(train(autodist, "local:2", "--builder", "PS", "--steps", 60, "--save", alone),
        env={**os.environ, "OMP_NUM_THREADS": "1"})
    for builder in ("PS", "BytePS", "PartitionedPS", "AllReduce", "auto"):
        saved = folder / builder
        for steps in (40, 60) if builder == "PS" else (60,):
            more = ["--resume", saved] if saved.exists() else []
            said = Job(folder, train(autodist, cluster, "--builder", builder, "--no-trials", "--steps", steps,
                                     *(["--budget", 8] if builder == "auto" else []), "--save", saved, *more)).ended()
            assert said[2] == ("", ""), said
        assert model_of(saved, 60) == model_of(alone, 60), builder
    print("two ranks and a server train what two ranks do, to the last bit")


def trials_are_of_plans_with_it(autodist, folder, cluster):
    said = Job(folder, train(autodist, cluster, "--builder", "auto", "--budget", 8, "--trials", 2, "--steps", 20)).ended()
    assert "done after step 20" in said[0][0], said
    said = Job(folder, train(autodist, cluster, "--builder", "auto", "--budget", 8, "--steps", 3000)).ended()
    assert "done after step 3000" in said[0][0], said
    print("trials before the training include it, and those during the training are left out")


def a_signal_to_it_ends_the_job(autodist, folder, cluster):
    log = folder / "log.jsonl"
    job = Job(folder, train(autodist, cluster, "--builder", "PS", "--steps", 1000000, "--log", log, "--save", folder / "saved"))
    wait_until(lambda: log.exists() and log.read_text().count("\n") >= 20)
    job.ranks[2].send_signal(signal.SIGTERM)
    said = job.ended()
    assert "interrupted after step" in said[0][0], said
    assert list((folder / "saved").glob("step-*")), said
    print("a signal to a server ends the job in order")


def programs_serve_in_their_first_step(_, folder, cluster):
    script = folder / "script.py"
    script.write_text(PROGRAM)
    said = Job(folder, [sys.executable, script, cluster, folder / "saved"]).ended()
    assert "trained 30 " in said[0][0] and said[0][0].count("which keep the plan that they began with") == 1, said
    assert said[2][0] == "rank 2 has 0 rows\n", said
    print("a program's loop serves in its first step, and ends with the job")


def jobs_of_several_steps_end(_, folder, cluster):
    script = folder / "steps.py"
    script.write_text(STEPS)
    began = time.monotonic()
    said = Job(folder, [sys.executable, script, cluster]).ended()
    assert "trained 10" in said[0][0] and said[2] == ("", ""), said
    assert time.monotonic() - began < 60, said
    print("a server of a job with several steps ends with it")


def a_signal_to_a_programs_server_ends_the_job(_, folder, cluster):
    script = folder / "endless.py"
    script.write_text(ENDLESS)
    job = Job(folder, [sys.executable, script, cluster, folder / "begun"])
    wait_until(lambda: (folder / "begun").exists())
    job.ranks[2].send_signal(signal.SIGTERM)
    said = job.ended()
    assert "stopped by a signal to rank 2 after step" in said[0][1], said
    print("so does a signal to a server of a program")


def main(autodist):
    with tempfile.TemporaryDirectory(prefix="autodist-servers-") as name:
        cluster = pathlib.Path(name) / "cluster.yml"
        cluster.write_text(CLUSTER)
        for part in (bits_are_those_without_it, trials_are_of_plans_with_it, a_signal_to_it_ends_the_job,
                     programs_serve_in_their_first_step, jobs_of_several_steps_end,
                     a_signal_to_a_programs_server_ends_the_job):
            folder = pathlib.Path(name) / part.__name__
            folder.mkdir()
            part(autodist, folder, cluster)


main(sys.argv[1])
