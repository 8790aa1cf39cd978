"""What nexar is measured beside: programs that do the same (peers), and what the machine could do at best (limits).

A competitor is one entry: how it is compiled, how its ranks are started on a cluster's hosts, and what it measures. Its
program is built on measured.hpp and prints that header's lines. A limit is one more entry, with kind "limit".
"""
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile

from builds import FOLDER
from hosts import Failed, Process
from measure import ON_REQUEST, OPERATIONS

EVERY = (*OPERATIONS, *ON_REQUEST)
COMPILE_SECONDS = 120
FLAGS = ("-std=c++20", "-O2")
# A process of one host: with the host's own name, so that no launcher takes two hosts for one.
NAMED = 'echo "$0" >/proc/sys/kernel/hostname && exec "$@"'


def host_name(host):
    return f"bench{host}"


class Job:
    """One start of a competitor's program: on these hosts so many ranks each, in a folder of its own."""

    def __init__(self, cluster, ranks, folder):
        self.cluster, self.ranks, self.folder = cluster, ranks, pathlib.Path(folder)

    @property
    def size(self):
        return len(self.cluster.hosts) * self.ranks

    def address(self, host):
        return self.cluster.network.address(host)

    def agent(self):
        """A program that a launcher calls as it would call ssh: AGENT [-OPTION]... ADDRESS COMMAND..."""
        cases = "\n".join(f"{self.address(host)}) network=/proc/{os.getpid()}/fd/{self.cluster.network.namespace(host)}; "
                          f"name={host_name(host)} ;;" for host in self.cluster.hosts)
        file = self.folder / "agent"
        file.write_text(f"""#!/bin/sh
while case $1 in -*) true ;; *) false ;; esac; do shift; done
case $1 in
{cases}
*) echo "no host has the address $1" >&2; exit 1 ;;
esac
shift
exec nsenter --net=$network unshare --uts sh -c 'echo "$0" >/proc/sys/kernel/hostname; eval "exec $*"' $name "$@"
""")
        file.chmod(0o755)
        return file

    def launcher(self, command, environment):
        """A launcher at the first host. All that it starts, on whichever host, ends with it."""
        alone = ["unshare", "--uts", "--pid", "--fork", "--kill-child=KILL", "sh", "-c", NAMED,
                 host_name(self.cluster.hosts[0])]
        return [Process(self.cluster.hosts[0], [*alone, *command], environment)]


def oversubscribed(job):
    """Processes that wait do it in loops, and yield to others only when configured to."""
    return job.size > len(os.sched_getaffinity(0))


def open_mpi(job, command):
    """TCP between hosts over their cables, shared memory within one."""
    hosts = ",".join(f"{job.address(host)}:{job.ranks}" for host in job.cluster.hosts)
    settings = {"plm_rsh_agent": job.agent(), "plm_rsh_no_tree_spawn": 1, "pml": "ob1", "btl": "tcp,vader,self",
                "btl_tcp_if_include": "eth0", "oob_tcp_if_include": "eth0", "orte_tmpdir_base": job.folder,
                "mpi_yield_when_idle": int(oversubscribed(job))}
    mca = [word for name, value in settings.items() for word in ("--mca", name, str(value))]
    launch = ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "--leave-session-attached", *mca, "--host", hosts,
              "-np", str(job.size)]
    return job.launcher([*launch, *command], {})


def mpich(job, command):
    """TCP between hosts over their cables, shared memory within one."""
    hosts = ",".join(f"{job.address(host)}:{job.ranks}" for host in job.cluster.hosts)
    launch = ["mpiexec.mpich", "-launcher", "ssh", "-launcher-exec", job.agent(), "-iface", "eth0", "-hosts", hosts,
              "-n", str(job.size)]
    # Both of its network layers: Debian's is built with the one or the other.
    environment = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}
    if oversubscribed(job):
        environment["MPIR_CVAR_POLLS_BEFORE_YIELD"] = "1"
    return job.launcher([*launch, *command], environment)


def direct(job, command):
    """The ranks themselves; the environment says which one it is, and where the others are."""
    hosts = [host for host in job.cluster.hosts for _ in range(job.ranks)]
    common = {"BENCH_SIZE": str(job.size), "BENCH_ADDRESSES": ",".join(map(job.address, hosts)),
              "BENCH_FOLDER": str(job.folder)}
    return [Process(host, command, {**common, "BENCH_RANK": str(rank), "BENCH_ADDRESS": job.address(host)})
            for rank, host in enumerate(hosts)]


class Competitor:
    """name, kind ("peer" or "limit"), source in this folder, compiler and libraries, launch(job, command) -> processes,
    packages: Debian's, which it needs, version: a command that prints it, suits(topology): whether it can run there."""

    memory = ("ordinary",)

    def __init__(self, name, kind, source, compiler, launch, packages=(), libraries=(), version=None, operations=EVERY,
                 suits=lambda topology: True):
        self.name, self.kind, self.source, self.compiler, self.launch = name, kind, source, compiler, launch
        self.packages, self.libraries, self.version = packages, libraries, version
        self.operations, self.suits = operations, suits
        self.program, self.started = None, None  # until it is compiled, until it is started first

    def compile_command(self, program):
        return [self.compiler, *FLAGS, str(FOLDER / self.source), "-o", str(program), *self.libraries]

    def compile(self, folder):
        """Whether it could be: what it needs may be missing."""
        if not shutil.which(self.compiler):
            return False
        program = pathlib.Path(folder) / self.name.replace(" ", "-")
        done = subprocess.run(self.compile_command(program), capture_output=True, text=True, timeout=COMPILE_SECONDS)
        if done.returncode == 0:
            self.program = program
        elif "file not found" not in done.stderr and "No such file" not in done.stderr:
            raise Failed(f"{self.name} does not compile:\n{done.stderr[-2000:]}")
        return self.program is not None

    def run(self, cluster, ranks, arguments, seconds):
        """What rank 0 printed."""
        with tempfile.TemporaryDirectory(prefix="nexar-peer.") as folder:
            processes = self.launch(Job(cluster, ranks, folder), [str(self.program), *arguments])
            self.started = self.started or started(processes[0], {folder: "FOLDER", str(self.program.parent): "PROGRAMS"})
            return cluster.launch(processes, seconds)

    def describe(self):
        done = subprocess.run(self.version, capture_output=True, text=True) if self.version and self.program else None
        return {"name": self.name, "kind": self.kind, "present": self.program is not None,
                "version": done.stdout.strip().split("\n")[0] if done else None,
                "compiled": self.compile_command(self.name.replace(" ", "-")), "started": self.started}


class Limit(Competitor):
    """A program of tests/bench that the build has made, with the TLS library that nexar has."""

    def __init__(self, name, *arguments):
        super().__init__(name, "limit", "raw_stream.cpp", "", lambda job, command: direct(job, [command[0], *arguments,
                         *command[1:]]), operations=("all_reduce", *ON_REQUEST),
                         suits=lambda topology: topology.hosts > 1 and topology.ranks == 1)

    def compile(self, folder):
        program = FOLDER.parents[1] / "build/release/tests/bench/raw_stream"
        self.program = program if program.exists() else None
        return self.program is not None

    def compile_command(self, program):
        return ["cmake", "--build", "--preset", "bench"]


def started(process, folders):
    """How to start it by hand: its command, and the environment that it adds, without the names that pass."""
    text = shlex.join([*(f"{name}={value}" for name, value in process.environment.items()), *map(str, process.command)])
    for folder, name in folders.items():
        text = text.replace(folder, name)
    return text


def package_version(package):
    return ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", package]


COMPETITORS = (
    Competitor("Open MPI", "peer", "mpi_bench.cpp", "mpicxx.openmpi", open_mpi, packages=("openmpi-bin", "libopenmpi-dev"),
               version=package_version("libopenmpi-dev")),
    Competitor("MPICH", "peer", "mpi_bench.cpp", "mpicxx.mpich", mpich, packages=("mpich", "libmpich-dev"),
               version=package_version("libmpich-dev")),
    Competitor("Gloo", "peer", "gloo_bench.cpp", "g++", direct, packages=("g++", "libgloo-dev"),
               libraries=("-lgloo", "-lpthread"), version=package_version("libgloo-dev")),
    Limit("raw TCP", "tcp"),
    Limit("raw TLS", "tls"),
)


def chosen(names):
    """Of the list, by its names, kinds or "all"; None for a name that is not there."""
    wanted = {name.strip().lower() for name in names.split(",")}
    known = {word for each in COMPETITORS for word in words_of(each)}
    if wanted - known:
        return None
    return [each for each in COMPETITORS if wanted & words_of(each)]


def words_of(competitor):
    return {"all", competitor.name.lower(), competitor.name.lower().replace(" ", "-"), competitor.kind + "s"}


def advice(missing):
    """How the missing ones come here."""
    if all(each.kind == "limit" for each in missing):
        return shlex.join(missing[0].compile_command(""))
    packages = sorted({package for each in missing for package in each.packages})
    return f"apt-get install {' '.join(packages)}"
