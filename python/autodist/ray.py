"""Ranks as Ray actors: Ray places and starts them, and starts them again after a loss.

In a Ray program::

    import autodist.ray

    def train(folder):
        ad = autodist.AutoDist()  # this actor's rank
        with ad.distribute(…) as step:
            begin = step.resume(folder)
            …

    autodist.ray.run(train, ranks=8, arguments=("/shared/ckpt",))

Programs that are not Ray's: ``python3 -m autodist.ray --ranks 8 -- python3 train.py``.
"""

import argparse
import os
import secrets
import signal
import socket
import subprocess
import sys
import time

from ._errors import Error, MachineError, PeersLostError, TimeoutError, UsageError

try:
    import ray
except ModuleNotFoundError as error:
    if __name__ != "__main__" or error.name != "ray":
        raise
    print("autodist: ray: this Python has no Ray. pip install ray.", file=sys.stderr)
    sys.exit(MachineError.code)

__all__ = ["run"]

_START = 300.0  # seconds, for actors that have their room to answer
_SMALLER = 5.0  # seconds, for room for fewer ranks
_OTHERS = 10.0  # seconds, for the others to say what ended the job


def run(function, ranks, *, arguments=(), cpus=1, gpus=0, min_ranks=None, restarts=3, wait=120.0,
        strategy="PACK"):
    """Call a function on every rank of a job; Ray must have been initialised, or is here.

    ``autodist.AutoDist()`` in it, without a cluster, is this job. When a rank is lost all are
    started again, in new actors where Ray has room for them; the function begins at its beginning
    and is to call :meth:`Session.resume`, on a folder that all machines see.

    Parameters
    ----------
    function : callable
        ``function(*arguments)``; Ray's serialisation takes it to the actors.
    ranks : int
        How many, 1 or more; each is an actor.
    arguments : tuple
        The same for every rank, as Ray serialises them.
    cpus, gpus : float
        Of each rank, at most one GPU; Ray limits the threads of an actor to its CPUs. A rank
        computes on one GPU, or on the part of one that Ray gives it.
    min_ranks : int, optional
        After a loss so many suffice, where Ray has no room for all. By default all are needed.
    restarts : int
        So many losses are made good; with the next one the job is over.
    wait : float
        Seconds for Ray to find room for the ranks.
    strategy : str
        Of Ray's placement group: ``'PACK'``, ``'SPREAD'``, ``'STRICT_PACK'``, ``'STRICT_SPREAD'``.

    Returns
    -------
    list
        What the function returned, by rank.

    Raises
    ------
    UsageError
        For numbers out of range, and where Ray has no room for the ranks.
    PeersLostError
        For a loss after the last restart.
    Exception
        What the function raised, as Ray hands it over.
    """
    if ranks < 1 or (min_ranks is not None and not 1 <= min_ranks <= ranks):
        raise UsageError(f"ray: ranks={ranks}, min_ranks={min_ranks}: 1 <= min_ranks <= ranks expected. Give as many.")
    if not 0 <= gpus <= 1 or cpus < 0 or cpus + gpus == 0:
        raise UsageError(
            f"ray: cpus={cpus}, gpus={gpus}: a rank computes on one GPU, or a part of it, or on CPUs; "
            "at most one GPU, and something, expected"
        )
    if restarts < 0:
        raise UsageError(f"ray: restarts={restarts}: 0 or more expected. Give 3, say.")
    if not ray.is_initialized():
        ray.init()
    least = ranks if min_ranks is None else min_ranks
    for losses in range(restarts + 1):
        job = _Job(ranks, ranks if losses == 0 else least, {"CPU": cpus, "GPU": gpus}, wait, strategy)
        try:
            return job.call(function, arguments)
        except _Lost as lost:
            if losses == restarts:
                raise PeersLostError(f"ray: {lost}; given up after {restarts} restarts. The ranks' lines say why.") from None
            print(f"autodist: {lost}; starting again ({losses + 1} of {restarts})", file=sys.stderr)
        finally:
            job.end()


class _Lost(Exception):
    """A rank that is gone, in words."""


class _ProgramEnded(Error):
    """A rank's program ended with an exit code of its own, which is this one's."""

    def __init__(self, message, code=Error.code):  # a copy gets its own by its attributes
        super().__init__(message)
        self.code = code


class _Job:
    """One start of all ranks."""

    def __init__(self, ranks, least, resources, wait, strategy):
        resources = {name: number for name, number in resources.items() if number}
        self._gpus = "GPU" in resources
        self._group = _room_for(ranks, least, resources, wait, strategy)
        scheduling = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        self._actors = [
            ray.remote(_Rank).options(
                num_cpus=resources.get("CPU", 0), num_gpus=resources.get("GPU", 0),
                scheduling_strategy=scheduling(self._group, placement_group_bundle_index=bundle),
            ).remote()
            for bundle in range(self._group.bundle_count)
        ]

    def call(self, function, arguments):
        """What the function returns on each rank."""
        try:
            hosts = self._number_by_host()
            chief = ray.get(self._actors[0].address_to_meet.remote(), timeout=_START)
        except ray.exceptions.RayError as error:
            raise _Lost(f"a rank is lost before it began: {_words_of(error)}") from None
        key = secrets.token_hex(32)
        calls = [actor.call.remote(rank, len(self._actors), chief, key, hosts, function, arguments)
                 for rank, actor in enumerate(self._actors)]
        numbers = {call: rank for rank, call in enumerate(calls)}
        failures = {}
        pending, end = calls, None
        while pending and (end is None or time.monotonic() < end):
            done, pending = ray.wait(pending, timeout=None if end is None else max(0, end - time.monotonic()))
            for call in done:
                try:
                    ray.get(call)
                except Exception as error:  # the actor's, or the function's
                    failures[numbers[call]] = error
                    end = end or time.monotonic() + _OTHERS
        if failures:
            _raise_worst(failures)
        return ray.get(calls)

    def _number_by_host(self):
        """Ranks of one host have numbers in a row; returns the job's resource specification."""
        addresses = ray.get([actor.address.remote() for actor in self._actors], timeout=_START)
        order = list(dict.fromkeys(addresses))
        pairs = sorted(zip(addresses, self._actors), key=lambda pair: order.index(pair[0]))
        self._actors = [actor for _, actor in pairs]
        lines = ["nodes:"]
        for host in order:
            slots = addresses.count(host)
            gpus = f", gpus: {list(range(slots))}" if self._gpus else ""
            chief = ", chief: true" if host == order[0] else ""
            lines.append(f"- {{address: '{host}', slots: {slots}{gpus}{chief}}}")
        return "\n".join(lines) + "\n"

    def end(self):
        """Nothing is left: actors, and with them what they started."""
        for actor in self._actors:
            ray.kill(actor)
        ray.util.remove_placement_group(self._group)


def _room_for(ranks, least, resources, wait, strategy):
    for number in range(ranks, least - 1, -1):  # Ray has had its time to find room after the first
        group = ray.util.placement_group([resources] * number, strategy=strategy)
        if group.wait(timeout_seconds=wait if number == ranks else min(wait, _SMALLER)):
            return group
        ray.util.remove_placement_group(group)
    wanted = ", ".join(f"{number:g} {name}" for name, number in resources.items())
    raise UsageError(
        f"ray: no room for {least} ranks of {wanted} each within {wait:g} s; the cluster has "
        f"{_resources(ray.cluster_resources())}, of which {_resources(ray.available_resources())} "
        "are free. Ask for fewer ranks, or give wait= more."
    )


def _resources(of):
    return ", ".join(f"{of.get(name, 0):g} {name}" for name in ("CPU", "GPU") if of.get(name)) or "none"


def _raise_worst(failures):
    """An error of the function itself rather than that others are lost; a rank rather than both."""
    lost = []
    for rank, error in sorted(failures.items()):
        cause = getattr(error, "cause", error)
        of_function = isinstance(error, ray.exceptions.RayTaskError)
        if isinstance(error, ray.exceptions.RayError) and not of_function:
            lost.insert(0, f"rank {rank} is lost: {_words_of(error)}")
        elif isinstance(cause, (PeersLostError, TimeoutError, MachineError)):
            lost.append(f"rank {rank}: {cause}")
        elif isinstance(cause, _ProgramEnded):
            raise cause
        else:
            raise error
    raise _Lost(lost[0])


def _words_of(error):
    """Ray ends with a sentence that says it, and goes on about what the cause may be."""
    return str(error).strip().splitlines()[-1].split(". ")[0].strip()


class _Rank:
    """An actor: one rank, of one start."""

    def address(self):
        return ray.util.get_node_ip_address()

    def address_to_meet(self):
        """Where rank 0 will listen."""
        address = self.address()
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as free:
            free.bind((address, 0))
            port = free.getsockname()[1]
        return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"

    def call(self, rank, size, chief, key, hosts, function, arguments):
        os.environ.update({
            "AUTODIST_RANK": str(rank), "AUTODIST_SIZE": str(size), "AUTODIST_CHIEF": chief,
            "AUTODIST_ADDRESS": self.address(), "AUTODIST_KEY_FILE": _in_memory("key", key),
            "AUTODIST_CLUSTER": _in_memory("hosts", hosts),
        })
        # Ray's own handler raises SystemExit in the function, which would look like its own end. A
        # node that is taken away is a loss.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
        try:
            return function(*arguments)
        except SystemExit as end:  # which Ray takes for the actor's own end
            if end.code not in (None, 0):
                raise RuntimeError(f"rank {rank} ended with {end.code}") from None
            return None


def _in_memory(name, text):
    """A file without a place in any file system, while this process lives."""
    descriptor = os.memfd_create(name)
    os.write(descriptor, text.encode())
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def _program(words):
    """A program as a rank; it, and what it has started, dies with the actor."""
    program = subprocess.Popen(words, start_new_session=True)
    # A shell that reads from us until we are gone, however that comes.
    guardian = subprocess.Popen(["sh", "-c", f"cat >/dev/null; kill -s KILL -- -{program.pid}"],
                                stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    code = program.wait()
    guardian.kill()
    guardian.wait()
    by_signal = -code if code < 0 else code - 128  # a shell says so of what it ran
    if 0 < by_signal < signal.NSIG:
        raise PeersLostError(f"{words[0]} ended with signal {by_signal}")
    if code in (PeersLostError.code, TimeoutError.code):
        raise PeersLostError(f"{words[0]} ended with exit code {code}")
    if code:
        raise _ProgramEnded(
            f"ray: rank {os.environ['AUTODIST_RANK']}: {words[0]} ended with exit code {code}; its "
            "own lines above say why.", code
        )


def _main():
    parser = argparse.ArgumentParser(prog="python3 -m autodist.ray", description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--cpus", type=float, default=1, help="of each rank (default 1)")
    parser.add_argument("--gpus", type=float, default=0, help="of each rank (default 0)")
    parser.add_argument("--min-ranks", type=int, help="after a loss (default: all)")
    parser.add_argument("--restarts", type=int, default=3, help="after losses (default 3)")
    parser.add_argument("--wait", type=float, default=120, help="seconds for room (default 120)")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="and its words, behind --")
    asked = parser.parse_args()
    words = asked.program[1:] if asked.program[:1] == ["--"] else asked.program
    if not words:
        parser.error("a program behind -- expected")
    try:
        run(_program, asked.ranks, arguments=(words,), cpus=asked.cpus, gpus=asked.gpus,
            min_ranks=asked.min_ranks, restarts=asked.restarts, wait=asked.wait)
    except Error as error:
        print(f"autodist: {error}", file=sys.stderr)
        sys.exit(error.code)


if __name__ == "__main__":
    from autodist.ray import _main as _main_of_module  # what actors import by name

    _main_of_module()
