"""A cluster on one machine: network namespaces for hosts, shaped links, a hub between them.

Each host has one interface, eth0, with a cable to a bridge in a namespace of its own. A host's
egress and the hub's port towards it are both shaped, so a rate holds for what it sends and for what
it receives. Names carry this process's id, addresses are private to the hub: any number of clusters
may stand side by side.

A watchdog takes everything down when this process ends, however it ends: it waits for the end of a
pipe that only this process holds.
"""

import contextlib
import ctypes
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import tempfile

NETWORK = "10.77.0"
CHIEF_PORT = 7700
PEER_PORT = 7701  # of other systems' rendezvous
# A shaper's bucket fills while the link idles, and what it holds passes at once then, as on no real
# link: so it is small, though large enough for timers that are a little late, and for two frames.
BURST_SECONDS = 0.0005
LEAST_BURST = 4000  # bytes
# Packets that segmentation offload makes, of the bucket, with room for headers: the shaper would
# divide larger ones into frames, which takes a core at 500 Mbit/s.
PACKET_SHARE = 0.8
LARGEST_PACKET = 65536
QUEUE_SECONDS = 0.05

WATCHDOG = """
trap '' INT TERM HUP
cat > /dev/null
for name in $NAMES; do
  [ -e /run/netns/$name ] || continue
  for _ in 1 2 3; do
    pids=$(ip netns pids $name 2> /dev/null)
    [ -z "$pids" ] && break
    kill -9 $pids 2> /dev/null
    sleep 0.05
  done
  ip netns del $name
done
rm -rf "$FOLDER"
"""


class Unavailable(Exception):
    """This machine cannot have namespaces or shaped links; the text says why."""


def rate_of(text):
    """Bits per second of tc's notation: 250mbit, 1gbit, 12500kbit."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(k|m|g)?bit", text)
    if not match:
        raise ValueError(f"rate '{text}': a number with kbit, mbit or gbit expected")
    return float(match[1]) * {None: 1, "k": 1e3, "m": 1e6, "g": 1e9}[match[2]]


def die_with_parent():
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)


class Host:
    def __init__(self, cluster, index, name):
        self.cluster, self.index, self.name = cluster, index, name
        self.address = f"{NETWORK}.{index + 1}"
        self.port = f"p{index}"  # the hub's end of its cable

    def variables(self):
        """What a rank on this host finds in its environment: AutoDist's, and torch.distributed's."""
        chief = self.cluster.hosts[0].address
        size = len(self.cluster.hosts)
        return {
            "AUTODIST_RANK": str(self.index), "AUTODIST_SIZE": str(size),
            "AUTODIST_CHIEF": f"{chief}:{CHIEF_PORT}", "AUTODIST_ADDRESS": self.address,
            "AUTODIST_KEY_FILE": str(self.cluster.key_file),
            "RANK": str(self.index), "WORLD_SIZE": str(size), "MASTER_ADDR": chief,
            "MASTER_PORT": str(PEER_PORT), "GLOO_SOCKET_IFNAME": "eth0",
        }

    def start(self, command, environment=None, core=None, **options):
        """A process on this host, which dies with us. With `core` it may use that one alone."""
        words = ["ip", "netns", "exec", self.name]
        if core is not None:
            words += ["taskset", "--cpu-list", str(core)]
        merged = {**os.environ, **self.variables(), **(environment or {})}
        return subprocess.Popen(words + [str(word) for word in command], env=merged,
                                preexec_fn=die_with_parent, **options)

    def run(self, command, **options):
        return subprocess.run(["ip", "netns", "exec", self.name] + [str(w) for w in command],
                              check=True, **options)

    def shape(self, rate):
        """Both directions of this host's cable, from now on."""
        bits = rate_of(rate)
        burst = int(max(bits / 8 * BURST_SECONDS, LEAST_BURST))
        limit = int(max(bits / 8 * QUEUE_SECONDS, LARGEST_PACKET)) + burst
        shaper = ["root", "tbf", "rate", f"{int(bits)}bit", "burst", str(burst), "limit", str(limit)]
        largest = str(min(int(burst * PACKET_SHARE), LARGEST_PACKET))
        ip_tool(["ip", "-n", self.name, "link", "set", "eth0", "gso_max_size", largest])
        ip_tool(["tc", "-n", self.name, "qdisc", "replace", "dev", "eth0"] + shaper)
        ip_tool(["tc", "-n", self.cluster.hub, "qdisc", "replace", "dev", self.port] + shaper)

    def cut_off(self):
        """Nothing passes any more, and nobody is told: a blackhole in both directions."""
        ip_tool(["bridge", "-n", self.cluster.hub, "link", "set", "dev", self.port, "state", "0"])

    def mute(self):
        """What this host sends vanishes, and nobody is told; it still hears the others."""
        ip_tool(["tc", "-n", self.name, "qdisc", "replace", "dev", "eth0", "root", "blackhole"])

    def unmute(self):
        ip_tool(["tc", "-n", self.name, "qdisc", "delete", "dev", "eth0", "root"])

    def reconnect(self):
        ip_tool(["bridge", "-n", self.cluster.hub, "link", "set", "dev", self.port, "state", "3"])


def ip_tool(command):
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()}")


class Cluster:
    """`rates`: one of tc's notation per host; None leaves a host's link as fast as the machine is."""

    def __init__(self, rates):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="autodist-testbed-"))
        self.key_file = self.folder / "key"
        self.key_file.touch(mode=0o600)
        self.key_file.write_text(secrets.token_hex(32))
        self.hub = f"autodist-{os.getpid()}-hub"
        self.rates = list(rates)
        self.hosts = [Host(self, i, f"autodist-{os.getpid()}-{i}") for i in range(len(rates))]
        self.watchdog = None
        try:
            self.build(rates)
        except BaseException:
            self.close()
            raise

    def build(self, rates):
        if os.geteuid() != 0:
            raise Unavailable("namespaces need root")
        for tool in ("ip", "tc", "bridge"):
            if shutil.which(tool) is None:
                raise Unavailable(f"no {tool} (Debian: iproute2)")
        names = [self.hub] + [host.name for host in self.hosts]
        for name in names:
            if os.path.exists(f"/run/netns/{name}"):
                raise Unavailable(f"the namespace {name} exists already, and is not ours")
        self.watchdog = subprocess.Popen(
            ["sh", "-c", WATCHDOG], stdin=subprocess.PIPE, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "NAMES": " ".join(names), "FOLDER": str(self.folder)})
        for name in names:
            ip_tool(["ip", "netns", "add", name])
        ip_tool(["ip", "-n", self.hub, "link", "add", "switch", "type", "bridge"])
        ip_tool(["ip", "-n", self.hub, "link", "set", "switch", "up"])
        for host, rate in zip(self.hosts, rates):
            self.connect(host, rate)

    def connect(self, host, rate):
        ip_tool(["ip", "-n", self.hub, "link", "add", host.port, "type", "veth", "peer", "name",
                 "eth0", "netns", host.name])
        ip_tool(["ip", "-n", self.hub, "link", "set", host.port, "master", "switch"])
        ip_tool(["ip", "-n", self.hub, "link", "set", host.port, "up"])
        ip_tool(["ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0"])
        for device in ("lo", "eth0"):
            ip_tool(["ip", "-n", host.name, "link", "set", device, "up"])
        if rate is not None:
            host.shape(rate)

    def bandwidth(self, index):
        rate = self.rates[index]
        return "" if rate is None else f"    network_bandwidth: {rate_of(rate) / 1e9:g}\n"

    def cluster_file(self):
        """A resource specification with one rank per host, and the rates that were asked for."""
        path = self.folder / "cluster.yml"
        nodes = "".join(f"  - address: {host.address}\n" + ("    chief: true\n" * (host.index == 0))
                        + "    slots: 1\n" + self.bandwidth(host.index) for host in self.hosts)
        path.write_text("nodes:\n" + nodes)
        return path

    def close(self):
        if self.watchdog is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        self.watchdog.stdin.close()
        self.watchdog.wait()
        self.watchdog = None


@contextlib.contextmanager
def cluster_of(rates):
    cluster = Cluster(rates)
    try:
        yield cluster
    finally:
        cluster.close()
