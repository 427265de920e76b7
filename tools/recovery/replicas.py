"""The loop of loop.py under torchft: the survivor goes on alone, and the lost replica copies its state from it.

    replicas.py job FOLDER STEPS            a lighthouse and two replicas; one that ends is started again
    replicas.py replica NUMBER FOLDER STEPS

Each replica leaves its process in FOLDER/pid-NUMBER, a line per step in which both take part in FOLDER/steps, and
one per step that it makes alone in FOLDER/alone: the process, the step, its loss, and when it was done.

Gradients go through Manager.allreduce: with PyTorch 2.13 torchft's wrapper of DDP (0.2.0) ends the survivor, too, with
an AssertionError. Time limits are shorter than its defaults (a heartbeat of 5 s, stragglers of 60 s).
"""

import datetime
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import torch
from loop import batch, loss_of, new_model

LIGHTHOUSE = ["--min_replicas", "1", "--heartbeat_timeout_ms", "1000", "--join_timeout_ms", "1000",
              "--quorum_tick_ms", "50"]
LIMIT = datetime.timedelta(seconds=10)
LOOK = 0.02  # seconds


def replica(number, folder, steps):
    import torchft
    model = new_model()
    adam = torch.optim.Adam(model.parameters())
    (folder / f"pid-{number}").write_text(str(os.getpid()))
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def load(state):
        model.load_state_dict(state["model"])
        adam.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=LIMIT), load_state_dict=load, min_replica_size=1, timeout=LIMIT,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": adam.state_dict()},
        replica_id=f"replica_{number}", store_addr="127.0.0.1", store_port=store.port, rank=0, world_size=1,
        hostname="127.0.0.1")
    optimizer = torchft.Optimizer(manager, adam)
    while (step := manager.current_step()) < steps:
        x, y = (each.chunk(2)[number] for each in batch(step))
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        for work in [manager.allreduce(each.grad) for each in model.parameters()]:
            work.wait()
        optimizer.step()
        value = loss.item()
        both = manager.num_participants() == 2
        with open(folder / ("steps" if both else "alone"), "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {step} {value.hex()} {time.time()}\n")


def job(folder, steps):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    lighthouse = subprocess.Popen([pathlib.Path(sys.executable).parent / "torchft_lighthouse", "--bind", address,
                                   *LIGHTHOUSE])

    def start(number):
        return subprocess.Popen([sys.executable, __file__, "replica", str(number), folder, str(steps)],
                                env={**os.environ, "TORCHFT_LIGHTHOUSE": f"http://{address}"})

    replicas = [start(0), start(1)]
    try:
        while True:
            for number, process in enumerate(replicas):
                if process.poll() is not None:
                    replicas[number] = start(number)
            time.sleep(LOOK)
    finally:
        for process in (*replicas, lighthouse):
            process.kill()


if sys.argv[1] == "job":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    job(sys.argv[2], int(sys.argv[3]))
else:
    replica(int(sys.argv[2]), pathlib.Path(sys.argv[3]), int(sys.argv[4]))
