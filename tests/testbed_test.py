"""tools/testbed: hosts that reach each other at the rate that was asked for, and nothing that stays.

    testbed_test.py TESTBED

Exit code 77 (skipped, says why) where the machine makes no namespaces.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

from killed import processes_with
from running import wait_until

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from hosts import goodput  # noqa: E402
from hosts.cluster import Unavailable, cluster_of, rate_of  # noqa: E402


def namespaces(pid):
    return [name for name in os.listdir("/run/netns") if name.startswith(f"autodist-{pid}-")]


def testbed(command, *options):
    return subprocess.run([sys.argv[1], *options, "--", *command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=60)


def ranks_find_their_places():
    done = testbed(["sh", "-c", 'echo "$AUTODIST_RANK of $AUTODIST_SIZE, $AUTODIST_CHIEF {rank} '
                    '{address} $RANK/$WORLD_SIZE"; test -s "$AUTODIST_KEY_FILE"; cat {cluster}'],
                   "--hosts", "3")
    assert done.returncode == 0, done.stdout
    for rank in range(3):
        line = (f"[rank {rank}] {rank} of 3, 10.77.0.1:7700 {rank} 10.77.0.{rank + 1} {rank}/3")
        assert line in done.stdout.splitlines(), done.stdout
    assert done.stdout.count("address:") == 9, done.stdout


def a_failure_is_the_exit_code_and_stops_the_others():
    began = time.monotonic()
    done = testbed(["sh", "-c", "test {rank} = 0 && exec sleep 60; exit 4"])
    assert done.returncode == 4, done
    assert time.monotonic() - began < 20


def rates_hold_in_both_directions():
    for _ in range(5):  # what else runs here spoils one try, a wrong rate all of them
        with cluster_of(["100mbit", "100mbit"]) as cluster:
            carried = 8 * goodput.measure(*cluster.hosts, seconds=1).bytes_per_s
        if 0.75 * rate_of("100mbit") < carried < 1.02 * rate_of("100mbit"):
            break
    else:
        raise AssertionError(carried)
    print(f"100 Mbit/s carry {carried / 1e6:.0f} of payload each way")


def an_idle_link_has_nothing_in_store():
    """200 KB take as long as the rate says, also where nothing was sent before."""
    receive = ("import socket\nend = socket.create_server(('10.77.0.1', 5000)).accept()[0]\n"
               "while True:\n size = 200000\n while size: size -= len(end.recv(size)) or exit()\n end.sendall(b'k')")
    send = ("import socket, time\nwhile True:\n try: end = socket.create_connection(('10.77.0.1', 5000)); break\n"
            " except OSError: time.sleep(0.02)\nfor _ in range(20):\n"
            " time.sleep(0.02); began = time.perf_counter(); end.sendall(bytes(200000)); end.recv(1)\n"
            " print(time.perf_counter() - began)")
    for rate in ("100mbit", "500mbit"):
        with cluster_of([rate] * 2) as cluster:
            receiver = cluster.hosts[0].start([sys.executable, "-c", receive])
            done = cluster.hosts[1].run([sys.executable, "-c", send], stdout=subprocess.PIPE, text=True)
            receiver.wait()
        took = sorted(float(line) for line in done.stdout.split())[10]
        whole = 8 * 200000 / rate_of(rate)
        assert took > 0.8 * whole, (rate, took, whole)
        print(f"{rate}: 200 KB over an idle link take {1e3 * took:.1f} ms, {1e3 * whole:.1f} by its rate")


def clusters_do_not_meet():
    with cluster_of([None, None]) as one:
        script = "import socket; socket.create_server(('10.77.0.1', 5000)).accept()"
        listener = one.hosts[0].start([sys.executable, "-c", script])
        other = testbed([sys.executable, "-c", "import socket; socket.create_connection("
                         "('10.77.0.1', 5000), 1)"])
        assert other.returncode != 0 and "refused" in other.stdout, other.stdout
        listener.kill()
        listener.wait()


def a_blackhole_is_silent_and_ends():
    with cluster_of([None, None]) as cluster:
        first, second = cluster.hosts
        first.cut_off()

        def probe(seconds):
            script = (f"import socket; s = socket.socket(); s.settimeout({seconds})\n"
                      "try: s.connect(('10.77.0.1', 5000))\nexcept OSError as e: print(repr(e))")
            return second.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True).stdout

        silent = probe(0.5)
        assert "timed out" in silent.lower(), silent
        first.reconnect()
        # The kernel asks once per second for the address of a neighbour that was silent.
        found = probe(5)
        assert "refused" in found, found


def nothing_stays(end):
    """Neither namespaces nor processes, however the testbed ends."""
    mark = f"{os.getpid()}-{end.name}"
    process = subprocess.Popen([sys.argv[1], "--", "sh", "-c", "echo up; exec sleep 987"],
                               stdout=subprocess.PIPE, text=True, env={**os.environ, "AUTODIST_TEST_MARK": mark})
    for _ in range(2):
        process.stdout.readline()
    assert len(namespaces(process.pid)) == 3
    process.send_signal(end)
    process.wait()

    def left():
        return namespaces(process.pid) + list(processes_with(f"AUTODIST_TEST_MARK={mark}"))

    wait_until(lambda: not left(), 30, every=0.1, said=lambda: f"left after {end.name}: {left()}")


def main():
    try:
        with cluster_of([None]):
            pass
    except Unavailable as error:
        print(f"SKIPPED: {error}")
        sys.exit(77)
    ranks_find_their_places()
    a_failure_is_the_exit_code_and_stops_the_others()
    rates_hold_in_both_directions()
    an_idle_link_has_nothing_in_store()
    clusters_do_not_meet()
    a_blackhole_is_silent_and_ends()
    for end in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        nothing_stays(end)
    print("all taken down")


if __name__ == "__main__":
    main()
