"""What is promised where hosts fail and strangers knock, on namespaces for hosts.

    reliability_test.py AUTODIST

A worker is killed, frozen, cut off for a while; the wire is searched for what must not be on it;
strangers send a byte per second, or announce 2^63 bytes. Exit code 77 (skipped, says why) where the
machine makes no namespaces.
"""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from hosts.cluster import Unavailable, cluster_of  # noqa: E402

HEARTBEAT = 1.0
MISSED = 3
SLACK = 1.5  # of a busy machine: for a process to be scheduled, and to end
PEERS_LOST, INFEASIBLE = 5, 4  # exit codes
LISTENING = "0A"


class Job:
    """`autodist train digits`, a rank on each of the first hosts."""

    def __init__(self, cluster, ranks, steps, *extra, keys=None, join_seconds=30,
                 plan=("--builder", "PSLoadBalancing")):
        spec = cluster.folder / f"job-{ranks}.yml"
        nodes = "".join(f"  - address: {host.address}\n    slots: 1\n" + "    chief: true\n"
                        * (host.index == 0) for host in cluster.hosts[:ranks])
        spec.write_text("nodes:\n" + nodes)
        command = [sys.argv[1], "train", "digits", "--batch", "30", "--cluster", spec, *plan,
                   "--steps", steps, "--join-timeout", join_seconds, *extra]
        self.lines, self.errors = [[] for _ in range(ranks)], [[] for _ in range(ranks)]
        self.processes, self.readers = [], []
        for host in cluster.hosts[:ranks]:
            environment = {"AUTODIST_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
            if keys and host.index in keys:
                environment["AUTODIST_KEY_FILE"] = str(keys[host.index])
            process = host.start(command, environment, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
            self.processes.append(process)
            for stream, kept in ((process.stdout, self.lines), (process.stderr, self.errors)):
                reader = threading.Thread(target=kept[host.index].extend, args=(stream,), daemon=True)
                reader.start()
                self.readers.append(reader)

    def wait_for_steps(self):
        """Until the chief has shown a step."""
        self.until(lambda: any(line.startswith("step") for line in self.errors[0]), 60)

    def until(self, condition, limit):
        end = time.monotonic() + limit
        while not condition():
            assert self.processes[0].poll() is None, self.errors[0]
            assert time.monotonic() < end, ("nothing came", self.errors)
            time.sleep(0.02)

    def said(self, rank, text, limit=30):
        """The complaint of a rank, as soon as it is there: a busy machine takes longer to end."""
        end = time.monotonic() + limit
        while True:
            found = [line.strip() for line in self.errors[rank]
                     if line.startswith("autodist: ") and text in line]
            if found:
                return found[-1]
            assert time.monotonic() < end, self.errors[rank]
            time.sleep(0.01)

    def ended(self, rank, limit=60):
        """Exit code and last complaint."""
        code = self.processes[rank].wait(timeout=limit)
        for reader in self.readers[2 * rank : 2 * rank + 2]:
            reader.join(timeout=5)
        return code, (self.errors[rank] or [""])[-1].strip()

    def result(self):
        code, complaint = self.ended(0, 240)
        assert code == 0, (code, complaint)
        return json.loads(self.lines[0][-1])

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def job(*arguments, **options):
    started = Job(*arguments, **options)
    try:
        yield started
    finally:
        started.stop()


def a_killed_worker_is_noticed_within_a_second(cluster):
    with job(cluster, 3, 1000000) as training:
        training.wait_for_steps()
        began = time.monotonic()
        training.processes[2].kill()
        for rank in (0, 1):
            complaint = training.said(rank, "rank 2 (10.77.0.3")
            took = time.monotonic() - began
            assert took < 1 + SLACK, took
            print(f"killed: rank {rank} says so after {took:.2f} s: {complaint}")
        assert [training.ended(rank)[0] for rank in (0, 1)] == [PEERS_LOST] * 2


def a_frozen_worker_is_named_within_three_heartbeats(cluster):
    with job(cluster, 3, 1000000) as training:
        training.wait_for_steps()
        training.processes[1].send_signal(signal.SIGSTOP)
        began = time.monotonic()
        complaint = training.said(0, "rank 1 (10.77.0.2")
        took = time.monotonic() - began
        assert "last heard: " in complaint and ", step " in complaint, complaint
        assert took < (MISSED + 1) * HEARTBEAT + SLACK, took
        print(f"frozen: named after {took:.1f} s: {complaint}")
        assert training.ended(0)[0] == PEERS_LOST


def losses_with(cluster, disturb):
    """Of 400 steps on two hosts; disturb(training) runs once they are under way."""
    log = cluster.folder / "log"
    with job(cluster, 2, 400, "--json", "--log", log) as training:
        # The chief's lines are a step late.
        training.until(lambda: log.exists() and log.read_text().count("\n") > 5, 90)
        disturb(training)
        training.result()
        said = [line.strip() for line in training.errors[0] if "rank 1 (" in line]
    losses = [json.loads(line)["loss"] for line in log.read_text().splitlines()]
    log.unlink()
    assert len(losses) > 390
    return losses, said


def what_passes_changes_nothing(cluster):
    host = cluster.hosts[1]

    def without_a_network(seconds):
        def disturb(_):
            host.cut_off()
            time.sleep(seconds)
            host.reconnect()
        return disturb

    def in_one_direction(_):
        host.mute()
        time.sleep(2.5)
        host.unmute()

    def paused(training):
        training.processes[1].send_signal(signal.SIGSTOP)
        time.sleep(6)
        training.processes[1].send_signal(signal.SIGCONT)

    undisturbed, said = losses_with(cluster, lambda _: None)
    assert not said, said
    for what, disturb, is_said in (("a blackhole of 1 s", without_a_network(1), False),
                                   ("a hole of 2.5 s in one direction", in_one_direction, False),
                                   ("a blackhole of 5 s", without_a_network(5), True),
                                   ("a pause of 6 s", paused, True)):
        losses, said = losses_with(cluster, disturb)
        assert losses == undisturbed, what
        if is_said:
            assert any("silent for 3." in line or "silent for 4." in line for line in said), said
            assert any("is heard again, after " in line for line in said), said
        print(f"{what}: {len(losses)} losses, the same with and without it: {said}")


def a_silence_that_lasts_ends_the_job(cluster):
    with job(cluster, 2, 1000000, "--silence-timeout", 6) as training:
        training.wait_for_steps()
        began = time.monotonic()
        cluster.hosts[1].cut_off()
        warning = training.said(0, "rank 1 (10.77.0.2")
        assert "waiting for it until 6" in warning, warning
        code, complaint = training.ended(0)
        took = time.monotonic() - began
        cluster.hosts[1].reconnect()
        assert code == PEERS_LOST and "rank 1 (10.77.0.2" in complaint, (code, complaint)
        assert "--silence-timeout" in complaint and 6 < took < 7 + 2 * SLACK, (took, complaint)
        print(f"cut off for good: ended after {took:.1f} s: {complaint}")


CAPTURE = """
import socket, sys
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
tap.bind((sys.argv[1], 0))
print("ready", flush=True)
with open(sys.argv[2], "wb") as out:
    while True:
        out.write(tap.recv(1 << 16)); out.flush()
"""


def captured(cluster, *extra):
    """Every byte that host 1's cable carries during a short training."""
    path = cluster.folder / "capture"
    tap = subprocess.Popen(["ip", "netns", "exec", cluster.hub, sys.executable, "-c", CAPTURE,
                            cluster.hosts[1].port, path], stdout=subprocess.PIPE, text=True)
    try:
        assert tap.stdout.readline() == "ready\n"
        with job(cluster, 2, 20, "--json", *extra) as training:
            training.result()
        time.sleep(0.2)
    finally:
        tap.kill()
        tap.wait()
    return path.read_bytes()


def the_wire_shows_nothing_in_clear_text(cluster):
    # Each of 6 bytes at least: four are met by chance in one of a hundred captures of 46 MB.
    planted = {"the job's key": cluster.key_file.read_bytes(), "a frame's opening": b"ADFW\x04\x00",
               "the hello": b"ADHI\x04\x00", "a rank's address": cluster.hosts[1].address.encode()}
    assert min(map(len, planted.values())) >= 6
    clear = captured(cluster, "--encrypt", "off")
    for what, pattern in planted.items():
        assert pattern in clear, f"{what} is not on the wire without encryption: no test"
    secret = captured(cluster)
    assert len(secret) > 100000, "next to nothing was captured"
    for what, pattern in planted.items():
        assert pattern not in secret, f"{what} is on the wire in clear text"
    print(f"{len(secret)} bytes captured, nothing in clear text")


def a_library_in_clear_text_is_refused(cluster):
    library = "AllReduce:algorithm=library"
    version = json.loads(subprocess.run([sys.argv[1], "version", "--json"], check=True, text=True,
                                        capture_output=True).stdout)
    has_library = version["library_all_reduces"]
    if not has_library:
        print("LEFT OUT: in clear text, as this build has no Gloo")
    spec, strategy = cluster.cluster_file(), cluster.folder / "library.strategy"
    subprocess.run([sys.argv[1], "plan", "digits", "--cluster", spec, "--builder", library, "--encrypt",
                    "off", "-o", strategy], check=True, stdout=subprocess.DEVNULL)
    for plan, ranks in ((("--builder", library), 2), (("--strategy", strategy), 3)):
        with job(cluster, ranks, 10, plan=plan) as training:
            for rank in range(ranks):
                code, complaint = training.ended(rank)
                assert code == INFEASIBLE and "--encrypt off" in complaint, (code, complaint)
            print(f"{plan[0]}: {complaint}")
        if has_library:
            with job(cluster, ranks, 10, "--json", "--encrypt", "off", plan=plan) as training:
                training.result()

    # The same search, with and without: for GPUs, as on cores that compute a search has no use for them here.
    spec = cluster.folder / "gpus.yml"
    spec.write_text("nodes:\n"
                    "  - {address: 10.77.0.1, gpus: [0], chief: true, network_bandwidth: 10}\n"
                    "  - {address: 10.77.0.2, gpus: [0], network_bandwidth: 10, ssh_config: a}\n"
                    "ssh: {a: {username: me}}\n")
    for encrypt, collectives in (("off", has_library), ("auto", False)):
        shown = subprocess.run([sys.argv[1], "plan", "digits", "--cluster", spec, "--budget",
                                "40", "--no-history", "--encrypt", encrypt], check=True, text=True,
                               capture_output=True).stdout
        assert (" and 0 library collectives" not in shown) == collectives, (encrypt, shown)


def another_key_does_not_get_in(cluster):
    other = cluster.folder / "other-key"
    other.write_text("ab" * 32)
    with job(cluster, 2, 10, keys={1: other}, join_seconds=5) as training:
        code, complaint = training.ended(0)
        assert code == PEERS_LOST and "rank 1 did not join" in complaint, \
            (code, complaint)
        assert training.ended(1)[0] != 0


def listeners(process):
    """Addresses and ports where a process's host listens."""
    found = set()
    for table, width in (("tcp", 8), ("tcp6", 32)):
        for line in pathlib.Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state != LISTENING:
                continue
            address, port = local.split(":")
            assert len(address) == width
            raw = bytes.fromhex(address[-8:])[::-1]
            mapped = width == 8 or address[:24] == "0000000000000000FFFF0000"
            found.add((".".join(map(str, raw)) if mapped else address, int(port, 16)))
    return found


def it_listens_on_the_chosen_address_only(cluster):
    with job(cluster, 2, 1000000) as training:
        training.wait_for_steps()
        for host, process in zip(cluster.hosts, training.processes):
            found = listeners(process)
            assert found and {address for address, _ in found} == {host.address}, found
            print(f"rank {host.index} listens on {sorted(found)}")


STRANGER = """
import socket, sys, time
how, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
end = socket.create_connection((address, port), 5)
end.settimeout(0.05)
greeting = b"\\xff" + bytes(8) + b"\\x7f\\x03\\x00" + b"NULL".ljust(20, b"\\0") + b"\\0" + bytes(31)
ready = b"\\x04\\x1c\\x05READY\\x0bSocket-Type\\x00\\x00\\x00\\x04PUSH"
huge = b"\\x02" + (2**63 - 1).to_bytes(8, "big") + bytes(64)
pieces = [greeting[i:i + 1] for i in range(64)] if how == "slow" else [greeting, ready, huge]
began = time.monotonic()
for piece in pieces + [b""] * 400:
    try:
        if piece: end.sendall(piece)
        for _ in range(20 if how == "slow" else 4):
            try:
                if end.recv(4096) == b"": raise ConnectionError
            except TimeoutError:
                pass
    except ConnectionError:
        print(f"{time.monotonic() - began:.1f}"); sys.exit(0)
    if time.monotonic() - began > 25: sys.exit("never cut off")
sys.exit("never cut off")
"""


def strangers_are_cut_off(cluster, *extra):
    with job(cluster, 2, 1000000, *extra) as training:
        training.wait_for_steps()
        knocks = []
        for how in ("slow", "huge"):
            for address, port in sorted(listeners(training.processes[1])):
                knocks.append((how, cluster.hosts[2].start(
                    [sys.executable, "-c", STRANGER, how, address, port], stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True)))
        assert knocks
        for how, knock in knocks:
            output, errors = knock.communicate(timeout=60)
            assert knock.returncode == 0, (how, errors)
            print(f"stranger ({how}) {' '.join(extra)}: cut off after {output.strip()} s")
        before = len(training.errors[0])
        training.until(lambda: len(training.errors[0]) > before, 20)
        for process in training.processes:
            process.send_signal(signal.SIGTERM)
        code, complaint = training.ended(0)
        assert code == 0, (code, complaint)


def main():
    try:
        with cluster_of([None] * 3) as cluster:
            it_listens_on_the_chosen_address_only(cluster)
            the_wire_shows_nothing_in_clear_text(cluster)
            a_library_in_clear_text_is_refused(cluster)
            another_key_does_not_get_in(cluster)
            strangers_are_cut_off(cluster)
            strangers_are_cut_off(cluster, "--encrypt", "off")
            a_killed_worker_is_noticed_within_a_second(cluster)
            a_frozen_worker_is_named_within_three_heartbeats(cluster)
            what_passes_changes_nothing(cluster)
            a_silence_that_lasts_ends_the_job(cluster)
    except Unavailable as error:
        print(f"SKIPPED: {error}")
        sys.exit(77)


if __name__ == "__main__":
    main()
