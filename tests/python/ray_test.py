"""Ranks as Ray actors, on two raylets of this machine: the losses of a local job, also after losses.

    ray_test.py AUTODIST
"""

import ast
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import comparing

comparing.skip_without_torch()
try:
    import ray
    from ray.cluster_utils import Cluster
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

import autodist
import autodist.ray

STEPS = 30


def train(folder, cluster="", loses=(), fails=False):
    """Returns the rank, where it began, and the sums of the parameters."""
    import os
    import pathlib
    import signal

    import autodist
    import torch

    folder = pathlib.Path(folder)
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    x, y = torch.randn(STEPS, 16, 8), torch.randn(STEPS, 16, 1)
    ad = autodist.AutoDist(cluster, builder="PS")
    loss = lambda m, x, y: torch.nn.functional.mse_loss(m(x), y)
    with ad.distribute(model, loss, torch.optim.Adam(model.parameters(), lr=0.01), (x[0], y[0])) as step:
        begun = step.resume(folder)
        for at in range(begun, STEPS):
            if fails and ad.rank == 1 and at == 5:
                raise KeyError("no such sample")
            mark = folder / f"lost-{ad.rank}-{at}"
            if (ad.rank, at) in loses and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            step(x[at], y[at])
            if at % 5 == 4:
                step.save(folder)
    return ad.rank, begun, [each.double().sum().item().hex() for each in model.parameters()]


def jobs_are_those_of_local_ranks(folder):
    wanted = train_locally(folder / "local")
    for losses in ((), ((1, 12),), ((0, 7), (3, 21))):
        place = folder / f"ray-{len(losses)}-{losses[0][0] if losses else ''}"
        place.mkdir()
        results = autodist.ray.run(train, 4, arguments=(str(place), "", losses))
        assert [rank for rank, _, _ in results] == [0, 1, 2, 3], results
        assert results[0][2] == wanted[2], (losses, results, wanted)
        assert all(begun == (losses[-1][1] // 5 * 5 if losses else 0) for _, begun, _ in results), results
        print(f"{len(losses)} losses: the parameters of a local job")


def train_locally(folder):
    """In processes with one thread each, as Ray's actors have; what rank 0 returns."""
    folder.mkdir()
    script = folder / "local.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})\n"
                      f"import ray_test\nresult = ray_test.train({str(folder)!r}, 'local:4')\n"
                      "print(result) if result[0] == 0 else None\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=200,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done
    return ast.literal_eval(done.stdout)


def errors_are_the_functions_own(folder):
    began = time.monotonic()
    comparing.raised(KeyError, "no such sample", autodist.ray.run, train, 2, arguments=(str(folder), "", (), True))
    assert time.monotonic() - began < 60
    comparing.refused("ray: no room for 9 ranks of 1 CPU each within 2 s; the cluster has 6 CPU", autodist.ray.run,
                      train, 9, arguments=(str(folder),), wait=2)
    print("what the function raises comes out; ranks that have no room are refused")


def programs_are_ranks(folder):
    program = ["sh", "-c", "echo rank $AUTODIST_RANK of $AUTODIST_SIZE; test $AUTODIST_RANK -lt 2"]
    words = [sys.executable, "-m", "autodist.ray", "--ranks", "2", "--", *program]
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0 and "rank 1 of 2" in done.stdout, done
    words[words.index("2")] = "3"
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, env=environment)
    line = "autodist: ray: rank 2: sh ended with exit code 1; its own lines above say why."
    assert done.returncode == 1 and line in done.stderr, done
    words[-len(program) - 2:] = ["1", "--", "sh", "-c", "exit 200"]  # which is no signal's
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 200 and "sh ended with exit code 200" in done.stderr, done
    assert "starting again" not in done.stderr, done
    train_program = [sys.executable, "-m", "autodist.ray", "--ranks", "2", "--", pathlib.Path(sys.argv[1]), "train",
                     "digits", "--builder", "PS", "--steps", "20", "--save", folder / "saved"]
    done = subprocess.run(train_program, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0 and (folder / "saved" / "step-20").exists(), done
    print("programs are ranks, too")


def a_machine_goes(cluster, second, folder):
    """With its two ranks; the other one has room for three."""
    def kill_when_it_trains():
        while not (folder / "step-5").exists():
            time.sleep(0.05)
        cluster.remove_node(second)

    killer = threading.Thread(target=kill_when_it_trains, daemon=True)
    killer.start()
    results = autodist.ray.run(slow, 4, arguments=(str(folder),), min_ranks=2, wait=8, strategy="SPREAD")
    killer.join()
    assert len(results) == 3 and results[0][1] >= 5, results
    print("a machine goes: the job goes on with the ranks that Ray has room for")


def slow(folder):
    import time

    import autodist

    run = autodist.Session.run

    def slowly(self, *batch):
        time.sleep(0.2)
        return run(self, *batch)

    autodist.Session.run = slowly
    return train(folder)


def main():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 3})
    second = cluster.add_node(num_cpus=3)
    ray.init(address=cluster.address)
    try:
        with tempfile.TemporaryDirectory() as name:
            for part in (jobs_are_those_of_local_ranks, errors_are_the_functions_own, programs_are_ranks):
                folder = pathlib.Path(name) / part.__name__
                folder.mkdir()
                part(folder)
            folder = pathlib.Path(name) / "machine"
            folder.mkdir()
            a_machine_goes(cluster, second, folder)
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
