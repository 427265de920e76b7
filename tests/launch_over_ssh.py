"""Jobs whose ranks are started over a real sshd and by a real mpirun give the losses of local ones.

    launch_over_ssh.py AUTODIST CASE_JOB

Two network namespaces with a cable between them stand for two machines; each has an sshd of the
test's own with its own keys. Needs root. Exit code 77 (skipped, says why) where something is missing.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from running import wait_until

SPECIFICATIONS = pathlib.Path(__file__).parent / "testdata/resource_specs/autodist"
PORTS = (2222, 12345)  # the second is in AutoDist's specifications
TRAINING = ["train", "digits", "--steps", "12", "--batch", "32", "--json", "--builder", "PS"]
# It chooses OpenBLAS's kernels, and so the bits, and is not carried to other machines: no rank has it.
os.environ.pop("OPENBLAS_CORETYPE", None)


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


def run(command, **options):
    return subprocess.run([str(word) for word in command], check=True, **options)


def result_of(command, **options):
    """The JSON that a training prints last."""
    output = run(command, stdout=subprocess.PIPE, text=True, timeout=120, **options).stdout
    return json.loads(output.strip().splitlines()[-1])


def losses(result):
    return result["loss"], result["ranks"]


class Machine:
    """A network namespace with an sshd."""

    def __init__(self, name, address, folder, keys):
        self.name, self.address, self.folder, self.keys = name, address, folder, keys
        self.wide_address = f"fd09::{address.rsplit('.', 1)[1]}"
        self.sshd = None

    def inside(self, command):
        return ["ip", "netns", "exec", self.name] + [str(word) for word in command]

    def start_sshd(self):
        config = self.folder / f"sshd-{self.name}.conf"
        config.write_text(f"""\
Port {PORTS[0]}
Port {PORTS[1]}
ListenAddress {self.address}
HostKey {self.keys / 'host'}
AuthorizedKeysFile {self.keys / 'user.pub'}
PidFile {self.folder / (self.name + '.pid')}
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
""")
        # As a service manager would: sshd insists on this folder.
        pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.sshd = subprocess.Popen(self.inside(["/usr/sbin/sshd", "-D", "-e", "-f", config]),
                                     stderr=subprocess.DEVNULL)

    def stop(self):
        if self.sshd is not None:
            self.sshd.terminate()
            self.sshd.wait()
        subprocess.run(["ip", "netns", "del", self.name], check=False, stderr=subprocess.DEVNULL)


def processes_in(machine):
    found = run(["ip", "netns", "pids", machine.name], stdout=subprocess.PIPE, text=True)
    return [int(each) for each in found.stdout.split()]


def command_of(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def ranks_in(machine):
    """The processes there of a job that trains digits."""
    return [pid for pid in processes_in(machine) if b"digits" in command_of(pid)]


def switch_of_this_test():
    """The namespace with the switch, to which the i-th machine's cable goes by port<i>."""
    return f"autodist-{os.getpid()}-switch"


def device_of(machine):
    return f"ad{os.getpid() % 100000}{int(machine.name.rsplit('-', 1)[1]) - 1}"


def connect(machines, switch):
    """Makes the namespaces, and a cable from each to a switch in one of its own."""
    run(["ip", "netns", "add", switch])
    run(["ip", "-n", switch, "link", "add", "switch", "type", "bridge"])
    run(["ip", "-n", switch, "link", "set", "switch", "up"])
    for i, machine in enumerate(machines):
        end, port = device_of(machine), f"port{i}"
        run(["ip", "netns", "add", machine.name])
        run(["ip", "link", "add", end, "type", "veth", "peer", "name", port, "netns", switch])
        run(["ip", "-n", switch, "link", "set", port, "master", "switch", "up"])
        run(["ip", "link", "set", end, "netns", machine.name])
        run(machine.inside(["ip", "address", "add", f"{machine.address}/24", "dev", end]))
        run(machine.inside(["ip", "address", "add", f"{machine.wide_address}/64", "dev", end,
                            "nodad"]))
        run(machine.inside(["ip", "link", "set", end, "up"]))
        run(machine.inside(["ip", "link", "set", "lo", "up"]))


@contextlib.contextmanager
def some_machines(folder, count=2):
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    for name in ("host", "user"):
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / name])
    tag = os.getpid()
    machines = [Machine(f"autodist-{tag}-{i}", f"10.77.{tag % 250}.{i}", folder, keys)
                for i in range(1, count + 1)]
    switch = switch_of_this_test()
    try:
        try:
            connect(machines, switch)
        except subprocess.CalledProcessError as error:
            # In a chroot, say, or in a container without the right to.
            skip(f"this machine makes no network namespaces: {' '.join(error.cmd)}")
        for machine in machines:
            machine.start_sshd()
        yield machines
    finally:
        for machine in machines:
            machine.stop()
        subprocess.run(["ip", "netns", "del", switch], check=False, stderr=subprocess.DEVNULL)


def cluster_file(path, machines, slots, extra="", spares=()):
    nodes = "".join(f"""\
  - address: {machine.address}
    slots: {slots}
    {'chief: true' if i == 0 else 'ssh_config: test'}
    spare: {'true' if machine in spares else 'false'}
""" for i, machine in enumerate([*machines, *spares]))
    path.write_text(f"""\
nodes:
{nodes}ssh:
  test:
    port: 2222
    key_file: {machines[0].keys / 'user'}
    shared_envs: {{NOTE: "$HOME here"}}
{extra}""")
    return path


def ssh_with_known_hosts(folder, machines, known):
    """A folder for PATH whose ssh knows the hosts in `known`, and nothing of the user's own."""
    hosts = folder / f"known-{len(known)}"
    key = (machines[0].keys / "host.pub").read_text().split()
    hosts.write_text("".join(f"[{machine.address}]:{port} {key[0]} {key[1]}\n"
                             for machine in known for port in PORTS))
    tools = folder / f"path-{len(known)}"
    tools.mkdir()
    ssh = tools / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F none '
                   f'-o UserKnownHostsFile={hosts} -o GlobalKnownHostsFile=/dev/null "$@"\n')
    ssh.chmod(0o755)
    return dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}")


def wait_for_sshd(machines, environment):
    for machine in machines[1:]:
        probe = machines[0].inside(["ssh", "-p", "2222", "-i", machines[0].keys / "user", "-o",
                                    "BatchMode=yes", machine.address, "true"])
        try:
            wait_until(lambda: subprocess.run(probe, env=environment, stderr=subprocess.DEVNULL).returncode == 0,
                       30, every=0.1)
        except AssertionError:
            skip("an sshd of the test's own does not let us in")


def skip_without_namespaces():
    if os.geteuid() != 0:
        skip("namespaces need root")
    for tool in ("ip", "ssh", "ssh-keygen", "/usr/sbin/sshd"):
        if shutil.which(tool) is None:
            skip(f"no {tool}")


def same_losses_over_ssh(autodist, machines, folder, environment):
    for slots in (1, 2):
        cluster = cluster_file(folder / f"c{slots}.yml", machines, slots)
        chief = machines[0].inside([autodist] + TRAINING + ["--cluster", cluster])
        remote = result_of(chief, env=environment, cwd=folder)
        local = result_of([autodist] + TRAINING + ["--cluster", f"local:{2 * slots}"])
        assert losses(remote) == losses(local), (losses(remote), losses(local))
        print(f"{2 * slots} ranks over ssh: loss {remote['loss']}, as locally")


def autodists_cases_over_ssh(autodist, case_job, machines, folder, environment):
    """A part of AutoDist's matrix, on its ten resource specifications but for their addresses.

    They name root's own key and port 12345: the machines listen there too, and see a folder of the
    test's in the place of root's.
    """
    theirs = {"10.20.41.57": machines[0].address, "10.20.41.146": machines[1].address}
    home = pathlib.Path("/root/.ssh")
    home.mkdir(mode=0o700, exist_ok=True)
    keys = folder / "roots-keys"
    keys.mkdir(mode=0o700)
    shutil.copy(machines[0].keys / "user", keys / "id_rsa")
    trials = [(0, "c0", "PS"), (1, "c2", "AllReduce:algorithm=hierarchical"),
              (2, "c5", "Parallax"), (3, "c1", "PartitionedPS"),
              (4, "c3", "PSLoadBalancing:local_proxy_variable=true"), (5, "c7", "PSLoadBalancing"),
              (6, "c4", "AllReduce:all_reduce_spec=RING"), (7, "c1", "AllReduce"),
              (8, "c6", "PartitionedAR"), (9, "c7", "AllReduce:algorithm=library")]
    version = run([autodist, "version", "--json"], stdout=subprocess.PIPE, text=True).stdout
    for number, case, builder in trials:
        if "library" in builder and not json.loads(version)["library_all_reduces"]:
            print(f"LEFT OUT: {builder}: this build has no Gloo")
            continue
        text = (SPECIFICATIONS / f"r{number}.yml").read_text()
        for old, new in theirs.items():
            text = text.replace(old, new)
        path = folder / f"r{number}.yml"
        path.write_text(text)
        command = machines[0].inside(["unshare", "-m", "sh", "-c",
                                      f'mount --bind {keys} {home} && exec "$@"', "sh", case_job,
                                      path, case, builder])
        line = run(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True,
                   timeout=120).stdout.strip()
        found = re.search(r"moved (\S+) difference (\S+)", line)
        assert found, line
        assert float(found[2]) <= 1e-9 * float(found[1]), line
        print(f"{builder} on r{number}: {line}")


def ranks_started_by_hand_meet(autodist, machines, folder):
    """Where the chief's name is its loopback's on its own machine, as on Debian; and over IPv6."""
    key = folder / "key"
    key.write_text("0123456789abcdef" * 4)
    local = losses(result_of([autodist] + TRAINING + ["--cluster", "local:2"]))
    for name, addresses, chiefs in (
            ("name", [machine.address for machine in machines],
             ["127.0.1.1:4711", f"{machines[0].address}:4711"]),
            ("wide", [machine.wide_address for machine in machines],
             [f"[{machines[0].wide_address}]:4712"] * 2)):
        cluster = folder / f"{name}.yml"
        cluster.write_text(f"nodes:\n  - address: '{addresses[0]}'\n    chief: true\n"
                           f"  - address: '{addresses[1]}'\n    ssh_config: none\nssh:\n  none: {{}}\n")
        ranks = []
        for rank, (machine, chief) in enumerate(zip(machines, chiefs)):
            place = {"AUTODIST_RANK": str(rank), "AUTODIST_SIZE": "2", "AUTODIST_CHIEF": chief,
                     "AUTODIST_KEY_FILE": str(key)}
            ranks.append(subprocess.Popen(
                [str(word) for word in machine.inside([autodist] + TRAINING
                                                      + ["--cluster", cluster])],
                env={**os.environ, **place}, stdout=subprocess.PIPE, text=True))
        output = ranks[0].communicate(timeout=120)[0]
        assert [rank.wait(timeout=60) for rank in ranks] == [0, 0], (name, output)
        assert losses(json.loads(output.strip().splitlines()[-1])) == local, output
        print(f"ranks started by hand, the chief at {chiefs[0]}: as locally")


def own_program_over_ssh(autodist, machines, folder, environment):
    cluster = cluster_file(folder / "own.yml", machines, 1)
    logs = folder / "logs"
    script = 'echo "$AUTODIST_RANK of $AUTODIST_SIZE in $PWD, $NOTE, $1"'
    command = machines[0].inside([autodist, "run", "--cluster", cluster, "--logs", logs, "--", "sh",
                                  "-c", script, "sh", "it's $this"])
    output = run(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True).stdout
    home = os.path.expanduser("~root")
    assert f"[rank 0] 0 of 2 in {folder}, , it's $this" in output, output
    assert f"[rank 1] 1 of 2 in {folder}, {home} here, it's $this" in output, output
    assert "1 of 2" in (logs / "rank-1.log").read_text()
    shown = run(command[:-6] + ["--dry-run"] + command[-6:], env=environment, cwd=folder,
                stdout=subprocess.PIPE, text=True).stdout
    assert "'ssh'" in shown and "(the job's key)" in shown, shown


def doctor_measures_the_link(autodist, machines, folder, environment):
    cluster = cluster_file(folder / "doctor.yml", machines, 1)
    doctor = machines[0].inside([autodist, "doctor", "--cluster", cluster, "--measure", "--json"])
    output = subprocess.run(doctor, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True,
                            timeout=120).stdout  # its exit code is of the machine's health
    link, = json.loads(output)["links"]
    assert (link["from"], link["to"]) == tuple(machine.address for machine in machines), link
    assert link["bytes_per_second"] > 1e6 and 0 < link["round_trip_seconds"] < 1, link
    calibration = (folder / "doctor.calibration.yml").read_text()
    assert "goodput:" in calibration and "sum_gb_per_s:" in calibration, calibration
    print(f"the doctor measured {8e-9 * link['bytes_per_second']:.2f} Gbit/s over ssh's ranks")

    machines[1].sshd.terminate()
    machines[1].sshd.wait()
    sick = subprocess.run(doctor[:-1], env=environment, cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120)
    assert sick.returncode == 3 and re.search(r"^bad +links ", sick.stdout, re.M), sick
    assert machines[1].address in sick.stderr, sick.stderr
    machines[1].start_sshd()
    wait_for_sshd(machines, environment)


def complaint_of(command, **options):
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             timeout=60, **options)
    return process.returncode, process.stderr.strip().splitlines()[-1]


def what_goes_wrong_is_said(autodist, machines, folder, environment):
    cluster = cluster_file(folder / "bad.yml", machines, 1)
    stranger = ssh_with_known_hosts(folder, machines, [])
    chief = machines[0].inside([autodist] + TRAINING + ["--cluster", cluster])
    code, line = complaint_of(chief, env=stranger, cwd=folder)
    assert code == 3 and "Host key verification failed" in line, (code, line)

    elsewhere = machines[1].inside([autodist] + TRAINING + ["--cluster", cluster])
    code, line = complaint_of(elsewhere, env=environment, cwd=folder)
    assert code == 2 and f"not the cluster's chief, {machines[0].address}" in line, (code, line)

    fails = machines[0].inside([autodist, "run", "--cluster", cluster, "--", "sh", "-c",
                                'test "$AUTODIST_RANK" = 0 && sleep 60; exit 4'])
    began = time.monotonic()
    code, line = complaint_of(fails, env=environment, cwd=folder)
    assert code == 4 and f"rank 1 (on {machines[1].address}) ended with exit code 4" in line, line
    assert time.monotonic() - began < 20


def nothing_is_left_when_the_chief_dies(autodist, machines, folder, environment):
    """The key that no list of processes shows, and the remote rank that ends with its chief."""
    cluster = cluster_file(folder / "kill.yml", machines, 1)
    mark = f"{folder}/kill.yml"
    command = machines[0].inside([autodist, "train", "digits", "--steps", "1000000", "--batch", "32",
                                  "--cluster", cluster])
    job = subprocess.Popen(command, env=environment, cwd=folder, stderr=subprocess.PIPE, text=True)
    for line in job.stderr:
        if re.search(r"step +\d+/", line):
            break

    def ranks():
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if words[0].endswith(b"autodist-torch") and mark.encode() in words:
                    found.append(int(entry.name))
                if words[0].endswith(b"autodist") and b"train" in words and mark.encode() in words:
                    found.append(int(entry.name))
        return found

    assert len(ranks()) == 3, ranks()  # and who would start them again
    job.kill()
    job.wait()
    wait_until(lambda: not ranks(), 30, every=0.1, said=lambda: f"still running: {ranks()}")
    print("who started the chief was killed: nothing is left")


def same_losses_by_mpirun(autodist):
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        print("SKIPPED in part: no mpirun")
        return
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    for ranks in (2, 4):
        launched = result_of([mpirun, *as_root, "--oversubscribe", "-n", ranks, autodist] + TRAINING)
        local = result_of([autodist] + TRAINING + ["--cluster", f"local:{ranks}"])
        assert losses(launched) == losses(local), (losses(launched), losses(local))
        print(f"{ranks} ranks of mpirun: loss {launched['loss']}, as locally")


def main():
    autodist = pathlib.Path(sys.argv[1]).resolve()
    same_losses_by_mpirun(autodist)
    skip_without_namespaces()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with some_machines(folder) as machines:
            environment = ssh_with_known_hosts(folder, machines, machines)
            wait_for_sshd(machines, environment)
            same_losses_over_ssh(autodist, machines, folder, environment)
            autodists_cases_over_ssh(autodist, pathlib.Path(sys.argv[2]).resolve(), machines,
                                     folder, environment)
            ranks_started_by_hand_meet(autodist, machines, folder)
            own_program_over_ssh(autodist, machines, folder, environment)
            doctor_measures_the_link(autodist, machines, folder, environment)
            what_goes_wrong_is_said(autodist, machines, folder, environment)
            nothing_is_left_when_the_chief_dies(autodist, machines, folder, environment)


if __name__ == "__main__":
    main()
