"""Measures the three gains of README.md's first table. Runs without and with Unisono alternate.

    sudo env PATH="$PATH" python3 examples/gains/measure.py [ROUNDS]

Needs root, a CPU controller of control groups (version 1 or 2), NumPy, MPICH's mpicc and mpiexec, and unisono on
PATH. ROUNDS is 9 if left out. At its end it removes what it made on the host: control groups and two network
namespaces.
"""

import contextlib
import json
import os
import re
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
POLICY = HERE.parent / "policies/three-classes.toml"
GROUPS = Path("/sys/fs/cgroup")
NETS = ("unisono-gains-a", "unisono-gains-b")
LINK = ("gains0", "gains1")
SERVER = "10.1.0.2"  # the policy's class "video" has its servers in 10.1.0.0/16
# for each class: the port of its server, and the number of connections to it
CLASSES = {"video": (554, 1), "office": (443, 1), "rest": (8000, 8)}
SECONDS = 5


def run(*command, **options):
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, capture_output=True, text=True, **options).stdout


def seconds(*command, **options):
    return float(re.search(r": ([\d.]+) s", run(*command, **options))[1])


def make_group(name, processors=None):
    """Makes a control group with a high CPU weight, so that other programs of the host hardly disturb it.

    Its quota is `processors` processors, as with `docker run --cpus`; None: no quota.
    """
    quota = (processors or 0) * 100_000
    if (GROUPS / "cpu").is_dir():
        group = GROUPS / "cpu" / name
        values = {"cpu.shares": "200000", "cpu.cfs_quota_us": str(quota or -1)}
    else:
        (GROUPS / "cgroup.subtree_control").write_text("+cpu")
        group = GROUPS / name
        values = {"cpu.weight": "10000", "cpu.max": f"{quota or 'max'} 100000"}
    group.mkdir(exist_ok=True)
    for file, value in values.items():
        (group / file).write_text(value)
    return group


def in_group(group, *command):
    """Runs a command in a control group, and returns the seconds that the command says it took."""
    return seconds(*command, preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())))


def make_link():
    for net in NETS:
        run("ip", "netns", "add", net)
    ends = [("name", device, "netns", net) for device, net in zip(LINK, NETS)]
    run("ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1])
    for number, (net, device) in enumerate(zip(NETS, LINK), 1):
        run("ip", "-n", net, "address", "add", f"10.1.0.{number}/24", "dev", device)
        run("ip", "-n", net, "link", "set", device, "up")


def send(port, connections):
    """Opens `connections` connections to a server, and sends as much as they take until the server ends."""
    selector = selectors.DefaultSelector()
    for _ in range(connections):
        connection = socket.create_connection((SERVER, port))
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_WRITE)
    data = bytes(65536)
    with contextlib.suppress(ConnectionError):
        while True:
            for key, _ in selector.select():
                key.fileobj.send(data)


def receive():
    """Prints what the port of each class receives, in Mbit/s.

    Begins to count a second after it accepted the last connection, when the connections have found their rates.
    """
    selector, got, senders = selectors.DefaultSelector(), dict.fromkeys(CLASSES, 0), 0
    for name, (port, _) in CLASSES.items():
        selector.register(socket.create_server((SERVER, port)), selectors.EVENT_READ, (name, True))
    print("ready", flush=True)
    begin = None
    while begin is None or time.monotonic() < begin + SECONDS:
        for key, _ in selector.select(timeout=0.1):
            name, is_server = key.data
            if is_server:
                selector.register(key.fileobj.accept()[0], selectors.EVENT_READ, (name, False))
                senders += 1
                if senders == sum(count for _, count in CLASSES.values()):
                    begin = time.monotonic() + 1
            elif not (length := len(key.fileobj.recv(1 << 20))):
                selector.unregister(key.fileobj)
            elif begin is not None and time.monotonic() >= begin:
                got[name] += length
    print(json.dumps({name: length * 8e-6 / SECONDS for name, length in got.items()}))


def in_net(net, *arguments):
    """Starts this file as a program in a network namespace."""
    command = ["ip", "netns", "exec", net, sys.executable, __file__, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def rates():
    """Returns what each class gets of the link while all classes send, in Mbit/s."""
    server = in_net(NETS[1], "receive")
    server.stdout.readline()
    clients = [in_net(NETS[0], "send", port, count) for port, count in CLASSES.values()]
    found = json.loads(server.communicate()[0])
    for client in clients:
        client.wait()
    return found


def link_in_turns(rounds):
    """Returns the rates of each round without and with the policy, on a link of 100 Mbit/s."""
    found = []
    make_link()
    a, device = NETS[0], LINK[0]
    try:
        for _ in range(rounds):
            plain_link = "root tbf rate 100mbit burst 32k limit 200k"
            run("tc", "-n", a, "qdisc", "add", "dev", device, *plain_link.split())
            plain = rates()
            run("tc", "-n", a, "qdisc", "del", "dev", device, "root")
            run("ip", "netns", "exec", a, "unisono", "queue", "apply", POLICY, "--dev", device)
            found.append((plain, rates()))
            run("ip", "netns", "exec", a, "unisono", "queue", "clear", "--dev", device)
    finally:
        for net in NETS:
            run("ip", "netns", "del", net)
    return found


def told(name, unit, pairs):
    """Prints the medians, each with a confidence interval of about 95 % (from 7 rounds on)."""
    skip = 1 if len(pairs) >= 9 else 0

    def middle(values):
        values = sorted(values)
        return f"{statistics.median(values):.3g} ({values[skip]:.3g} to {values[-1 - skip]:.3g})"

    before, after = zip(*pairs)
    factor = middle([one / other for one, other in pairs])
    words = f"{middle(before)} {unit} before, {middle(after)} after, factor {factor}, n = {len(pairs)}"
    print(f"{name}: {words}", flush=True)


def in_turns(group, rounds, command, *remedy):
    """Returns the seconds of each round without and with the remedy, which replaces the None in `command`."""
    filled = lambda words: [word for part in command for word in (words if part is None else [part])]
    pairs = [(in_group(group, *filled([])), in_group(group, *filled(remedy))) for _ in range(rounds)]
    group.rmdir()
    return pairs


def main(rounds):
    matrices = [None, sys.executable, HERE / "matrices.py"]
    group = make_group("unisono-gains-quota", processors=1)
    told("matrices", "s", in_turns(group, rounds, matrices, "unisono", "fit", "--quiet", "--"))
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "ring")
        run("mpicc", "-O2", "-o", program, HERE / "ring.c")
        ranks = 2 * (os.cpu_count() or 1)
        ring = ["mpiexec", "-n", ranks, None, program]
        told("ring", "s", in_turns(make_group("unisono-gains"), rounds, ring, "unisono", "mpi", "--"))
    both = link_in_turns(rounds)
    for name in CLASSES:
        told(f"the link, {name}", "Mbit/s", [(plain[name], shared[name]) for plain, shared in both])


match sys.argv[1:]:
    case ["receive"]:
        receive()
    case ["send", port, count]:
        send(int(port), int(count))
    case []:
        main(rounds=9)
    case [count] if count.isdecimal() and int(count) > 0:
        main(int(count))
    case ["-h" | "--help"]:
        print(__doc__)
    case _:
        sys.exit("measure.py: expected at most a number of rounds; see --help")
