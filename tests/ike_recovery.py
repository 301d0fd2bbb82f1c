"""How soon a tunnel carries packets again: after a crash, after a NAT in front of the peer forgot it, and with new keys."""

import contextlib
import re
import subprocess
import sys

from tests.harness import equal, run as execute, wait_for
from tests.ike_lab import ESP, IKE, INSIDE, Daemon, Lab, connection, mirrored
from tests.ike_pair import NETS, OURS, THEIRS, Charon
from tests.namespaces import OUTSIDE

# Nobody asks whether the other is alive in the time that these tests take.
QUIET = "liveness = 600"
BEHIND = "10.208.0.2"

# Keeps the protected packets that a host sends, until its input says where from to repeat them.
REPEAT = """
import select, socket, sys
cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
cable.bind(("cable", 0))
print("ready", flush=True)
kept = []
while True:
    ready, _, _ = select.select([cable, sys.stdin], [], [])
    if sys.stdin in ready:
        break
    frame, address = cable.recvfrom(65536)
    # IPv4 without options, UDP to port 4500, and no IKE message.
    esp = frame[23:24] == b"\\x11" and frame[36:38] == b"\\x11\\x94" and frame[42:46] != bytes(4)
    if address[2] == socket.PACKET_OUTGOING and esp and len(frame) > 60:
        kept.append(frame[42:])
again = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
again.bind((sys.argv[1], 7777))
for payload in kept:
    again.sendto(payload, (sys.argv[2], 4500))
print(len(kept), flush=True)
"""


@contextlib.contextmanager
def pings(command, gap):
    """Pings twenty times a second while the block runs; the longest time without an answer is at most `gap` s."""
    line = [*command, "ping", "-n", "-D", "-i", "0.05", "-W", "1", INSIDE["server"]]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    found = {}
    try:
        yield found
    finally:
        process.terminate()
        output = process.communicate(timeout=10)[0]
    times = [float(time) for time in re.findall(r"^\[([\d.]+)\].*bytes from", output, re.MULTILINE)]
    assert len(times) > 20, output[-500:]
    found["gap"] = max(later - earlier for earlier, later in zip(times, times[1:]))
    print(f"      longest time without an answer: {found['gap']:.2f} s")
    assert found["gap"] <= gap, found


def crashes(suite, lab):
    text, theirs = connection(suite=None), mirrored(suite=None)
    with suite.case("after a gateway's crash and restart, packets pass again within 3 s"):
        with contextlib.ExitStack() as stack:
            other = Daemon(lab, "server", theirs, 'crash_secret = "crash.secret"').start()
            stack.callback(lambda: other.process.kill())
            stack.enter_context(Daemon(lab, "client", text)).up()
            command = lab.network.command("client")
            for _ in range(3):
                with pings(command, 3.0):
                    execute("sleep", "1")
                    other.process.kill()
                    (other.folder / "log").unlink()
                    other.start().up()
                    execute("sleep", "2")
    with suite.case("after a camera's crash and restart, packets pass again within 3 s"):
        with contextlib.ExitStack() as stack:
            stack.enter_context(Daemon(lab, "server", theirs))
            ours = Daemon(lab, "client", text).start()
            stack.callback(lambda: ours.process.kill())
            ours.up()
            with pings(lab.network.command("client"), 3.0):
                execute("sleep", "1")
                ours.process.kill()
                (ours.folder / "log").unlink()
                ours.start().up()
                execute("sleep", "2")


class Translator:
    """A host behind the client, whose UDP ports the client translates without remembering anything."""

    def __init__(self, suite, lab):
        self.lab, self.client = lab, lab.network.names["client"]
        self.inner = f"{self.client}-inner"
        execute("ip", "netns", "add", self.inner)
        suite.finally_do(execute, "ip", "netns", "delete", self.inner)
        link = ["type", "veth", "peer", "name", "downlink", "netns", self.client]
        execute("ip", "-n", self.inner, "link", "add", "uplink", *link)
        for name, link, address in [(self.inner, "uplink", BEHIND), (self.client, "downlink", "10.208.0.1")]:
            execute("ip", "-n", name, "address", "add", f"{address}/24", "dev", link)
            execute("ip", "-n", name, "link", "set", link, "up")
        execute("ip", "-n", self.inner, "route", "add", "default", "via", "10.208.0.1")
        lab.network.run("client", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

    def command(self, *command):
        return ["ip", "netns", "exec", self.inner, *command]

    def map(self, base):
        """From now on ports 500 and 4500 of the inner host are `base` and the next one, and no others."""
        rules = "add table ip t; delete table ip t; add table ip t;"
        rules += " add chain ip t out { type filter hook postrouting priority 0; };"
        rules += " add chain ip t in { type filter hook prerouting priority -300; };"
        for port, place in ((500, base), (4500, base + 1)):
            rules += f' add rule ip t out oifname "cable" ip saddr {BEHIND} udp sport {port}'
            rules += f" udp sport set {place} ip saddr set {OUTSIDE['client']};"
            rules += f' add rule ip t in iifname "cable" udp dport {place} udp dport set {port} ip daddr set {BEHIND};'
        self.lab.network.run("client", "nft", rules)


def translated(suite, lab):
    nat = Translator(suite, lab)
    nat.map(5000)
    where = lambda daemon: daemon.sas()[0]["remote"]
    for mobike in ("true", "false"):
        extra = f"{QUIET}\nmobike = {mobike}"
        ours = Daemon(lab, "client", connection(suite=None, extra=extra), namespace=nat.inner)
        other = Daemon(lab, "server", mirrored(suite=None, extra=extra))
        nat.map(5000)
        with other, ours:
            ours.up()
            with suite.case(f"a changed mapping is followed within 1 s, MOBIKE {mobike}"):
                with pings(nat.command(), 1.0):
                    for base in (6000, 7000, 5000):
                        execute("sleep", "1.5")
                        nat.map(base)
                        wait_for(lambda: where(other).endswith(f":{base + 1}"), lambda: other.log()[-2000:], 2)
            with suite.case(f"repeated packets from elsewhere move nothing, MOBIKE {mobike}"):
                before = where(other)
                line = lab.network.command("client", sys.executable, "-c", REPEAT, OUTSIDE["client"], OUTSIDE["server"])
                repeater = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                suite.finally_do(repeater.kill)
                equal(repeater.stdout.readline(), "ready\n", "repeater")
                execute(*nat.command("ping", "-c", "25", "-i", "0.05", INSIDE["server"]))
                kept = int(repeater.communicate("now\n", timeout=20)[0])
                assert kept >= 20, kept
                execute(*nat.command("ping", "-c", "5", "-i", "0.2", INSIDE["server"]))
                equal(where(other), before, "where packets go")


# Times that keys are replaced, with so many seconds between, and seconds between two echo requests.
TURNS, BETWEEN, EVERY = 6, 0.7, 0.005


def lost(lab, rekey):
    """Echo requests without an answer while keys are replaced: of the Child SA, of the IKE SA, and so on."""
    count = int((TURNS + 1) * BETWEEN / EVERY)
    line = lab.network.command("client", *f"ping -n -q -i {EVERY} -c {count} -W 2 {INSIDE['server']}".split())
    flow = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    for turn in range(TURNS):
        execute("sleep", str(BETWEEN))
        rekey("ike" if turn % 2 else "child")
    text = flow.communicate(timeout=60)[0]
    sent, received = map(int, re.search(r"(\d+) packets transmitted, (\d+) received", text).groups())
    assert sent == count, text
    return sent - received


def by_charon(charon):
    return lambda what: charon.control("--rekey", *{"child": ["--child", "net"], "ike": ["--ike", "peer"]}[what])


def new_keys(suite, lab):
    found = {}
    with suite.case("new keys lose no packet between two daemons of ours"):
        with Daemon(lab, "server", mirrored(suite=None)), Daemon(lab, "client", connection(suite=None)) as ours:
            ours.up()
            found["two of ours"] = lost(lab, lambda _: ours.tell("rekey", "peer"))
            assert ours.counter("child_rekeys") >= TURNS - 1, ours.ike()["counters"]
            equal(found["two of ours"], 0, "lost packets")
    lab.network.run("server", "ip", "address", "add", f"{INSIDE['server']}/32", "dev", "lo")
    with suite.case("beside strongSwan new keys lose not more packets than between two strongSwans"):
        with lab.charon() as charon, Daemon(lab, "client", connection()) as ours:
            ours.up()
            found["ours, replaced by us"] = lost(lab, lambda _: ours.tell("rekey", "peer"))
            found["ours, replaced by strongSwan"] = lost(lab, by_charon(charon))
        lab.network.run("client", "ip", "address", "add", f"{INSIDE['client']}/32", "dev", "lo")
        names = {"local_id": "ours.example.org", "remote_id": "theirs.example.org", "theirs": OURS, "ours": THEIRS}
        with lab.charon() as charon:
            other = Charon(lab, IKE, ESP, None, side="client", local=NETS["ours"], remote=NETS["theirs"], **names)
            try:
                other.control("--initiate", "--child", "net", "--timeout", "20")
                found["two strongSwans"] = lost(lab, by_charon(charon))
            finally:
                other.stop()
        lab.network.run("client", "ip", "address", "delete", f"{INSIDE['client']}/32", "dev", "lo")
        print(f"      lost packets: {found}")
        for who in ("ours, replaced by us", "ours, replaced by strongSwan"):
            assert found[who] <= found["two strongSwans"], found
    lab.network.run("server", "ip", "address", "delete", f"{INSIDE['server']}/32", "dev", "lo")


def run(suite):
    lab = Lab(suite)
    lab.network.run("server", "ip", "address", "delete", f"{INSIDE['server']}/32", "dev", "lo")
    new_keys(suite, lab)
    translated(suite, lab)
    crashes(suite, lab)
