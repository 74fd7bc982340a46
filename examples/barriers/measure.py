"""Measures MPI_Barrier of ranks on several hosts: the MPI's own, along the links, and in simulated switches.

    sudo env PATH="$PATH" python3 examples/barriers/measure.py [--ranks 8,64,256] [--each 1] [--rounds 3] [--out FILE]

Each host is a network namespace of this machine, at a random network of switches that `unisono tree deploy --serve`
simulates. `--each` ranks run on each host. A round starts each of the three jobs once:

- mpich: the program as it is. MPICH sends its messages by UCX over TCP;
- tree: `unisono mpi --tree`, from host to host, because the helpers of the switches refuse the user `nobody`;
- switches: the same command as root, whom the helpers serve.

Needs root, MPICH's mpicc and mpiexec, ip, setpriv, clang, libbpf-dev, and unisono on PATH (UNISONO names another).
Prints medians, least and greatest of all rounds, and per rank and barrier the processor time, the context switches
and the frames of a host, which depend less on other load. FILE gets the single figures as lines of JSON. At its end
it removes what it made.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
UNISONO = os.environ.get("UNISONO") or shutil.which("unisono")
MPICC = shutil.which("mpicc.mpich") or "mpicc"
MPIEXEC = shutil.which("mpiexec.mpich") or "mpiexec"
JOBS = ("mpich", "tree", "switches")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")
DEPLOY_TIMEOUT = 120
MEASURED = re.compile(r"barrier ([\d.]+) us, processor ([\d.]+) us, switches ([\d.]+), frames ([\d.]+), n (\d+)")
FIGURES = ("barrier_us", "processor_us", "switches", "frames", "n")


def address(node):
    return f"10.0.{(node + 1) // 256}.{(node + 1) % 256}"


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def make_network(scratch, hosts):
    """Writes a random network with four hosts for each switch of 8 ports, and returns its path."""
    path = scratch / f"network-{hosts}.json"
    switches = max(2, hosts // 4)
    run(UNISONO, "tree", "generate", "--switches", switches, "--nodes", hosts, "--members", hosts, "--out", path)
    network = json.loads(path.read_text())
    network["node_names"] = [address(node) for node in range(hosts)]
    path.write_text(json.dumps(network))
    return path


@contextlib.contextmanager
def deployed(network, scratch):
    """Runs the switches of a network, and yields the prefix of the namespaces' names."""
    command = [UNISONO, "tree", "deploy", network, "--serve", "--names", "--for", "24h"]
    with (scratch / "deploy").open("w+") as log:
        deployment = subprocess.Popen([str(word) for word in command], stderr=log, stdout=log)
        try:
            end = time.monotonic() + DEPLOY_TIMEOUT
            while " up in " not in (scratch / "deploy").read_text():
                if deployment.poll() is not None or time.monotonic() > end:
                    raise SystemExit("the switches do not start: " + (scratch / "deploy").read_text())
                time.sleep(0.05)
            yield f"unisono-{deployment.pid}"
        finally:
            deployment.send_signal(signal.SIGINT)
            deployment.wait()


def make_programs(scratch):
    """Compiles the program, and copies what the user nobody has to read."""
    run(MPICC, "-O2", "-o", scratch / "barriers", HERE / "barriers.c")
    for name in ("unisono", "libunisono.so"):
        shutil.copy(Path(UNISONO).with_name(name), scratch / name)


def make_shell(scratch, prefix):
    """Writes the script that stands for ssh: it gives each host its namespace and its name."""
    shell = scratch / "shell"
    shell.write_text(
        "#!/bin/sh\n"
        'while [ "${1#-}" != "$1" ]; do shift; done\n'
        "node=$(echo $1 | awk -F. '{ print $3 * 256 + $4 - 1 }'); shift\n"
        f'exec ip netns exec {prefix}-n$node unshare --uts sh -c "hostname node$node; $*"\n'
    )
    shell.chmod(0o755)
    return shell


def command_of(job, scratch, prefix, network, ranks, each):
    """Returns the command of a job: mpiexec in the namespace of the first host."""
    shell = make_shell(scratch, prefix)
    hosts = ",".join(f"{address(host)}:{each}" for host in range(ranks // each))
    command = ["ip", "netns", "exec", f"{prefix}-n0", MPIEXEC, "-launcher", "ssh", "-launcher-exec", shell]
    command += ["-localhost", address(0), "-hosts", hosts, "-n", ranks]
    if job == "tree":
        command += NOBODY
    if job != "mpich":
        command += [scratch / "unisono", "mpi", "--tree", network, "--"]
    return [str(word) for word in command] + [str(scratch / "barriers")]


def measure(job, scratch, prefix, network, ranks, arguments):
    """Runs a job, and returns its figures, or the reason why there are none."""
    device = run("ip", "-n", f"{prefix}-n0", "-o", "link", "show", "type", "veth").split()[1].split("@")[0]
    # otherwise UCX finds that the hosts are one machine, and uses its memory
    environment = dict(os.environ, UCX_TLS="tcp,self", UCX_NET_DEVICES=device, HOME=str(scratch))
    command = command_of(job, scratch, prefix, network, ranks, arguments.each)
    command += [str(arguments.seconds), "3"]
    try:
        ended = subprocess.run(
            command, env=environment, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=arguments.timeout,
        )
    except subprocess.TimeoutExpired:
        return [], f"no result after {arguments.timeout} s"
    said = ended.stdout + ended.stderr
    refused = [line for line in said.splitlines() if line.startswith("unisono: barriers between hosts")]
    found = MEASURED.findall(ended.stdout)
    # the job of the tree has to be refused by the switches, and no other
    if any("left to the program's MPI" in line for line in refused) or bool(refused) != (job == "tree"):
        return [], "; ".join(refused) or "the switches served a job that they should refuse"
    if "done" not in ended.stdout.split():
        return [], said[-500:]
    return [dict(zip(FIGURES, map(float, values), strict=True)) for values in found], None


def table(ranks, figures):
    stock = statistics.median(figure["barrier_us"] for figure in figures["mpich"]) if figures["mpich"] else None
    for job in JOBS:
        if not (all_of := figures[job]):
            continue
        times = [figure["barrier_us"] for figure in all_of]
        processor, switches, frames = (
            statistics.median(figure[name] for figure in all_of) for name in FIGURES[1:4]
        )
        ratio = f"{statistics.median(times) / stock:.2f} of mpich" if stock else ""
        print(
            f"{ranks:5} ranks  {job:9} {statistics.median(times):10.1f} us ({min(times):.1f} to {max(times):.1f}, "
            f"n {len(times)})  processor {processor:.1f} us a rank, {switches:.1f} context switches, "
            f"{frames:.1f} frames  {ratio}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="8,64,256", help="sizes of jobs")
    parser.add_argument("--each", type=int, default=1, help="ranks on each host")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="the time of a measurement; a job makes three")
    parser.add_argument("--timeout", type=float, default=300, help="seconds until a job is given up")
    parser.add_argument("--out", type=Path, help="file of the figures, as lines of JSON")
    arguments = parser.parse_args()
    if not UNISONO:
        raise SystemExit("no unisono on PATH; name it in UNISONO")
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as files:
        scratch = Path(directory)
        scratch.chmod(0o777)  # the user nobody has its cache there
        make_programs(scratch)
        out = files.enter_context(arguments.out.open("a")) if arguments.out else None
        for ranks in map(int, arguments.ranks.split(",")):
            network = make_network(scratch, ranks // arguments.each)
            figures = {job: [] for job in JOBS}
            with deployed(network, scratch) as prefix:
                for number in range(arguments.rounds):
                    for job in JOBS if number % 2 == 0 else reversed(JOBS):
                        found, why = measure(job, scratch, prefix, network, ranks, arguments)
                        figures[job] += found
                        if why:
                            print(f"{ranks:5} ranks  {job:9} failed: {why}", flush=True)
                        if out:
                            row = {"ranks": ranks, "each": arguments.each, "job": job, "round": number}
                            print(json.dumps(row | {"figures": found, "failed": why}), file=out, flush=True)
            table(ranks, figures)


main()
