"""What benchmarks on testbeds share: one command on every host, what came of it, and how they end."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

from hosts.cluster import Unavailable

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = 3  # exit code
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


class Failed(Exception):
    """A run came to nothing; the text says why in one line."""


def import_models():
    """benchmarks/models.py; takes a second, and PyTorch."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import models
    return models


def outputs_of(started, limit):
    """What processes with PIPES printed, when all have ended well within `limit` seconds."""
    outputs = []
    until = time.monotonic() + limit
    try:
        for process in started:
            output, errors = process.communicate(timeout=max(1, until - time.monotonic()))
            if process.returncode != 0:
                raise Failed(f"exit code {process.returncode}: {errors.strip()[-400:]}")
            outputs.append(output)
    except subprocess.TimeoutExpired:
        raise Failed(f"no end within {limit} s") from None
    finally:
        for process in started:
            process.kill()
    return outputs


def outputs_on(cluster, command, limit, environment=None, pinned=True):
    """What the command printed on every host. Hosts have a core each as far as there are any."""
    cores = sorted(os.sched_getaffinity(0))
    return outputs_of([host.start(command, {"OMP_NUM_THREADS": "1", **(environment or {})},
                                  core=cores[host.index % len(cores)] if pinned else None, **PIPES)
                       for host in cluster.hosts], limit)


def ranks_of(outputs):
    """The last JSON object of each output, in the order of ranks."""
    objects = [[line for line in output.splitlines() if line.startswith("{")] for output in outputs]
    return sorted((json.loads(lines[-1]) for lines in objects), key=lambda rank: rank["rank"])


def write_whole(path, result):
    """As JSON; who is interrupted leaves no half of it."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result))
    partial.rename(path)


@contextlib.contextmanager
def complaints_of(program):
    """What keeps the program from its results ends it, with one line and an exit code."""
    try:
        yield
    except (Unavailable, ImportError) as error:
        text, code = error, ENVIRONMENT
    except Failed as error:
        text, code = error, 1
    except KeyboardInterrupt:
        text, code = "interrupted; start it again", 130
    else:
        return
    print(f"{program}: {text}", file=sys.stderr)
    sys.exit(code)
