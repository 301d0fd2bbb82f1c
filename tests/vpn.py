"""`cordon vpn static` in two network namespaces: packets, streams, new keys, and what goes wrong."""

import itertools
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.harness import CORDON, Process, contains, cordon, cordon_json, equal, run as run_command, wait_for
from tests.namespaces import OUTSIDE, Network

INSIDE = {"server": "10.8.0.1", "client": "10.8.0.2"}
INSIDE_V6 = {"server": "fd08::1", "client": "fd08::2"}
OUTSIDE_V6 = {"server": "fd07::1", "client": "fd07::2"}
OTHER = {"server": "client", "client": "server"}
SPIS = {"server": 0x1001, "client": 0x1002}
# What goes through each suite's tunnel; builds without optimisation are slow at CBC.
MEGABYTES = 20

# Each suite's sizes of encryption key and integrity key, in bytes.
SUITES = {
    ("aes-256-gcm", None): (36, 0),
    ("chacha20-poly1305", None): (36, 0),
    ("aes-128-cbc", "hmac-sha2-256-128"): (16, 32),
    ("null", "hmac-sha2-256-128"): (0, 32),
    (None, "hmac-sha2-256-128"): (0, 32),
}

# Protocol, mode, what carries it, and the IP protocol that is then seen outside.
MODES = [
    ("esp", "tunnel", "none", 50),
    ("ah", "tunnel", "none", 51),
    ("esp", "transport", "udp", 17),
    ("esp", "transport", "none", 50),
    ("ah", "transport", "none", 51),
]

# Says which IP protocols and which DSCP are seen on the cable, until it is told to end.
WATCH = """
import signal, socket, sys
seen = set()
def end(*_):
    print(sorted(seen), flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3)) as cable:
    cable.bind(("cable", 0))
    print("ready", flush=True)
    while True:
        packet = cable.recv(2000)
        if packet[0] >> 4 == 4:
            seen.add((packet[9], packet[1] >> 2))
        elif packet[0] >> 4 == 6 and packet[6] != 58 and packet[24] != 255:
            seen.add((packet[6], ((packet[0] & 15) << 2) | packet[1] >> 6))
"""

# Takes connections and sends the SHA-256 of what came in.
SINK = """
import hashlib, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.create_server((sys.argv[1], 5001), family=family) as listener:
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        digest = hashlib.sha256()
        while part := connection.recv(1 << 20):
            digest.update(part)
        connection.sendall(digest.hexdigest().encode())
        connection.close()
"""
SOURCE = """
import hashlib, os, socket, sys
digest, block = hashlib.sha256(), os.urandom(1 << 20)
with socket.create_connection((sys.argv[1], 5001), 30) as connection:
    for _ in range(int(sys.argv[2])):
        connection.sendall(block)
        digest.update(block)
    connection.shutdown(socket.SHUT_WR)
    print(connection.recv(100).decode() == digest.hexdigest())
"""


class Tunnel:
    """The two ends of a tunnel with fresh keys."""

    def __init__(self, network, folder):
        self.network, self.folder = network, folder
        self.ends = {}
        self.starts = 0

    def configure(self, encryption, integrity, spis=SPIS, sa="", path="", top="", interface="", outside=OUTSIDE):
        """Writes both files; `sa`, `path`, `top`, `interface` are further lines of these sections."""
        sizes = SUITES[encryption, integrity]
        keys = {side: [secrets.token_hex(size) for size in sizes] for side in spis}

        def entry(side):
            cipher, mac = keys[side]
            parts = [f"spi = {spis[side]}"]
            parts += [f'encryption_key = "{cipher}"'] if cipher else []
            parts += [f'integrity_key = "{mac}"'] if mac else []
            return "{ " + ", ".join(parts) + " }"

        for side, other in OTHER.items():
            algorithms = [f'encryption = "{encryption}"'] if encryption else []
            algorithms += [f'integrity = "{integrity}"'] if integrity else []
            addresses = f'addresses = ["{INSIDE[side]}/24", "{INSIDE_V6[side]}/64"]'
            file = self.config(side)
            file.touch(mode=0o600)
            file.write_text(f"""
status = "{self.socket(side)}"
{top.replace("SIDE", side)}
[interface]
name = "tunnel0"
{"" if "transport" in sa else addresses}
{interface}
[path]
local = "{outside[side]}"
remote = "{outside[other]}"
{path}
[sa]
sequence_numbers = "{self.folder}/numbers-{side}"
{chr(10).join(algorithms)}
{sa}
outbound = {entry(side)}
inbound = {entry(other)}
""")

    def config(self, side):
        return self.folder / f"{side}.toml"

    def socket(self, side):
        return self.folder / f"{side}.sock"

    def start(self):
        # What a failed case left.
        self.kill()
        self.starts += 1
        for side in OTHER:
            command = self.network.command(side, CORDON, "vpn", "static", "--config", self.config(side))
            self.ends[side] = Process(command, self.folder / f"{side}-{self.starts}.log")
        for end in self.ends.values():
            wait_for(lambda: "tunnel up" in end.tail(), lambda: f"the tunnel:\n{end.tail()}")

    def status(self, side):
        return cordon_json("vpn", "status", "--socket", self.socket(side))

    def outbound(self, side):
        """The SPIs of what a side sends."""
        state = self.status(side)
        return {sa["spi"] for sa in state["associations"] if sa["direction"] == "out"}

    def stop(self):
        codes = [end.stop() for end in self.ends.values()]
        self.ends = {}
        return codes

    def kill(self):
        for end in self.ends.values():
            end.kill()


def ping(network, address, size=56, count=3):
    return network.run("client", "ping", "-n", "-c", count, "-i", "0.1", "-W", "2", "-s", size, address, code=None)


def send(network, megabytes, address=INSIDE["server"]):
    """Sends random bytes through the tunnel; true when their hash came back."""
    done = network.run("client", "python3", "-c", SOURCE, address, megabytes)
    return done.stdout.strip() == "True"


class Sink:
    """What receives streams on the server, for the length of a `with`."""

    def __init__(self, network, folder, address=INSIDE["server"]):
        self.process = Process(network.command("server", "python3", "-c", SINK, address), folder / "sink.log")

    def __enter__(self):
        equal(self.process.child.stdout.readline(), b"ready\n", "the sink")

    def __exit__(self, *_):
        self.process.kill()


class Watch:
    """Pairs of IP protocol and DSCP on the client's cable; `end` gives what was seen."""

    def __init__(self, network, folder):
        command = network.command("client", "python3", "-c", WATCH)
        self.process = Process(command, folder / "watch.log")
        equal(self.process.child.stdout.readline(), b"ready\n", "the watch")

    def end(self):
        self.process.child.terminate()
        text = self.process.child.stdout.read().decode()
        self.process.kill()
        return text.strip()


def suites(suite, network, tunnel):
    for encryption, integrity in SUITES:
        if not encryption:
            continue
        name = "+".join(filter(None, [encryption, integrity]))
        with suite.case(f"{name}: every size of packet, both families, a stream of {MEGABYTES} MB"):
            tunnel.configure(encryption, integrity)
            tunnel.start()
            for size in (0, 56, 1400, 3000, 9000):
                equal(ping(network, INSIDE["server"], size).returncode, 0, f"ping of {size} bytes")
                equal(ping(network, INSIDE_V6["server"], size).returncode, 0, f"IPv6 ping of {size} bytes")
            with Sink(network, suite.folder):
                assert send(network, MEGABYTES), "what arrived is not what was sent"
            server = tunnel.status("server")
            assert server["received"]["bytes"] > MEGABYTES * 1_000_000
            equal(server["inbound_drops"], [], "drops")
            equal(tunnel.stop(), [0, 0], "exit codes")


def modes(suite, network, tunnel):
    for (protocol, mode, carrier, number), outside in itertools.product(MODES, (OUTSIDE, OUTSIDE_V6)):
        family = 6 if outside is OUTSIDE_V6 else 4
        with suite.case(f"{protocol}, {mode} mode, carried by {carrier}, IPv{family}: nothing else outside"):
            algorithms = ("aes-256-gcm", None) if protocol == "esp" else (None, "hmac-sha2-256-128")
            sa = f'protocol = "{protocol}"\nmode = "{mode}"'
            tunnel.configure(*algorithms, sa=sa, path=f'encapsulation = "{carrier}"', outside=outside)
            tunnel.start()
            address = INSIDE["server"] if mode == "tunnel" else outside["server"]
            watch = Watch(network, suite.folder)
            for size in (56, 1300):
                equal(ping(network, address, size).returncode, 0, f"ping of {size} bytes")
            with Sink(network, suite.folder, address):
                assert send(network, 5, address), "what arrived is not what was sent"
            equal(watch.end(), f"[({number}, 0)]", "protocol and DSCP outside")
            state = tunnel.status("server")
            # The kernel looks for routers on every new interface; in transport mode nothing allows it to.
            drops = {drop["cause"] for drop in state["inbound_drops"] + state["outbound_drops"]}
            equal(drops - {"no_policy"}, set(), "causes of drops")
            equal(tunnel.stop(), [0, 0], "exit codes")
            rules = network.run("server", "ip", f"-{family}", "rule").stdout
            assert "1723" not in rules, f"rules are left:\n{rules}"

    for outside in (OUTSIDE, OUTSIDE_V6):
        family = 6 if outside is OUTSIDE_V6 else 4
        with suite.case(f"ICMP errors about native ESP, IPv{family}, do not end the tunnel"):
            tunnel.configure("aes-256-gcm", None, path='encapsulation = "none"', outside=outside)
            tunnel.start()
            # Without a raw socket at the other end its kernel refuses the protocol.
            tunnel.ends["server"].stop()
            assert ping(network, INSIDE["server"]).returncode != 0, "somebody answers"
            assert tunnel.status("client")["io"]["receive_errors"] > 0, "no error came"
            equal(tunnel.ends["client"].running(), True, "the client runs")
            tunnel.stop()

    with suite.case("strict reverse-path filtering is named when transport mode starts"):
        tunnel.configure("aes-256-gcm", None, sa='mode = "transport"')
        for value in (1, 0):
            network.run("client", "sysctl", "-qw", f"net.ipv4.conf.cable.rp_filter={value}")
            tunnel.start()
            equal("rp_filter = 1" in tunnel.ends["client"].tail(), value == 1, "a warning")
            equal(tunnel.stop(), [0, 0], "exit codes")

    with suite.case("transport mode that is killed leaves the peer unreachable, and starts again"):
        tunnel.configure("aes-256-gcm", None, sa='mode = "transport"')
        tunnel.start()
        equal(ping(network, OUTSIDE["server"]).returncode, 0, "ping")
        tunnel.kill()
        done = ping(network, OUTSIDE["server"], count=1)
        assert done.returncode != 0, "a packet went out in the clear"
        tunnel.start()
        equal(ping(network, OUTSIDE["server"]).returncode, 0, "ping")
        equal(tunnel.stop(), [0, 0], "exit codes")
        assert ping(network, OUTSIDE["server"], count=1).returncode != 0, "a packet goes in the clear after the end"
        for side in OTHER:
            network.run(side, CORDON, "vpn", "unblock", "--config", tunnel.config(side))
        equal(ping(network, OUTSIDE["server"]).returncode, 0, "ping without a tunnel")


# Prints SPI and sequence number of each ESP packet in UDP that this side sends, until its input ends.
NUMBERS = """
import select, socket, sys
cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
cable.bind(("cable", 0))
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    if not select.select([cable], [], [], 0.1)[0]:
        continue
    frame, address = cable.recvfrom(65536)
    if address[2] == socket.PACKET_OUTGOING and frame[12:14] == b"\\x08\\x00" and frame[23] == 17:
        print(frame[42:46].hex(), int.from_bytes(frame[46:50], "big"), flush=True)
"""


def restarts(suite, network, tunnel):
    with suite.case("no sequence number is used twice under a key, whatever ends the program"):
        tunnel.configure("aes-256-gcm", None)
        command = network.command("client", sys.executable, "-c", NUMBERS)
        watch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            equal(watch.stdout.readline(), "ready\n", "capture")
            for ending in (tunnel.kill, tunnel.stop, tunnel.kill, tunnel.kill):
                tunnel.start()
                equal(ping(network, INSIDE["server"]).returncode, 0, "ping")
                ending()
            seen = watch.communicate("\n", timeout=20)[0].splitlines()
        finally:
            watch.kill()
        assert len(seen) >= 8, seen
        equal(len(set(seen)), len(seen), "different numbers among those sent")

    with suite.case("used numbers that cannot be read are no new beginning"):
        folder = tunnel.folder / "numbers-client"
        for file in folder.iterdir():
            if file.suffix != ".lock":
                file.write_text("rubbish")
        done = network.run("client", CORDON, "vpn", "static", "--config", tunnel.config("client"), code=1)
        contains(done.stderr, "cannot be read")
        tunnel.configure("aes-256-gcm", None)


def path(suite, network, tunnel):
    for name, lines in (("in UDP", ""), ("without UDP", 'encapsulation = "none"')):
        with suite.case(f"a path that takes less than it did, {name}"):
            tunnel.configure("aes-256-gcm", None, path=lines)
            tunnel.start()
            try:
                for side in OTHER:
                    network.run(side, "ip", "link", "set", "cable", "mtu", "1300")
                with Sink(network, suite.folder):
                    assert send(network, 2), "what arrived is not what was sent"
                contains(tunnel.ends["client"].tail(), "the path's MTU changed")
                equal(tunnel.stop(), [0, 0], "exit codes")
            finally:
                for side in OTHER:
                    network.run(side, "ip", "link", "set", "cable", "mtu", "1500")

    # What the kernel itself sends through the tunnel has DSCP 0.
    for lines, expected in (("", "[(17, 0)]"), ('dscp = "copy"', "(17, 46)"), ("dscp = 10", "[(17, 10)]")):
        with suite.case(f"outer DSCP with {lines or 'nothing'} configured"):
            tunnel.configure("aes-256-gcm", None, path=lines)
            tunnel.start()
            watch = Watch(network, suite.folder)
            marked = ["ping", "-n", "-c", "2", "-i", "0.1", "-W", "2", "-Q", "0xb8", INSIDE["server"]]
            network.run("client", *marked)
            contains(watch.end(), expected)
            equal(tunnel.stop(), [0, 0], "exit codes")


def rekeying(suite, network, tunnel):
    with suite.case("new keys at one end long after the other, in both orders: no packet is lost"):
        tunnel.configure("aes-256-gcm", None)
        tunnel.start()
        for generation, first in enumerate(["server", "client", "server"], 1):
            count = 300
            command = ["ping", "-n", "-q", "-c", count, "-i", "0.01", "-W", "2", INSIDE["server"]]
            pings = Process(network.command("client", *command), suite.folder / "ping.log")
            time.sleep(0.3)
            spis = {side: 0x3000 + 2 * generation + index for index, side in enumerate(OTHER)}
            tunnel.configure("aes-256-gcm", None, spis)
            for side in (first, OTHER[first]):
                os.kill(tunnel.ends[side].child.pid, signal.SIGHUP)
                time.sleep(1)
            text = pings.child.stdout.read().decode()
            pings.kill()
            contains(text, f"{count} packets transmitted, {count} received")
            for side in OTHER:
                found = tunnel.outbound(side)
                equal(found, {f"{spis[side]:08x}"}, f"outbound SPI of the {side}")
        equal([tunnel.status(side)["inbound_drops"] for side in OTHER], [[], []], "drops")

    with suite.case("the same file again is refused: its nonces would repeat"):
        os.kill(tunnel.ends["client"].child.pid, signal.SIGHUP)
        end = tunnel.ends["client"]
        wait_for(lambda: "was used before" in end.tail(), lambda: end.tail())
        equal(ping(network, INSIDE["server"]).returncode, 0, "ping")
        equal(tunnel.stop(), [0, 0], "exit codes")


def busy_workers(pid):
    """How many of a process's workers have worked for more than a tick."""
    busy = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        name, times = (task / "comm").read_text(), (task / "stat").read_text().rpartition(")")[2].split()
        busy += name.startswith("vpn-worker") and int(times[11]) + int(times[12]) > 1
    return busy


def several_workers(suite, network, tunnel):
    with suite.case("three workers: a stream and pings over four changes of keys, both directions shared out"):
        interface = "workers = 3"
        tunnel.configure("aes-256-gcm", None, interface=interface)
        tunnel.start()
        command = ["ping", "-n", "-q", "-c", 300, "-i", "0.01", "-W", "2", INSIDE["client"]]
        pings = Process(network.command("server", *command), suite.folder / "ping.log")
        with Sink(network, suite.folder):
            for generation in range(1, 5):
                assert send(network, MEGABYTES), "what arrived is not what was sent"
                spis = {side: 0x5000 + 2 * generation + index for index, side in enumerate(OTHER)}
                tunnel.configure("aes-256-gcm", None, spis, interface=interface)
                for side in OTHER:
                    os.kill(tunnel.ends[side].child.pid, signal.SIGHUP)
                wait_for(lambda: tunnel.outbound("client") == {f"{spis['client']:08x}"}, "the new keys")
            assert send(network, MEGABYTES), "what arrived is not what was sent"
        contains(pings.child.stdout.read().decode(), "300 packets transmitted, 300 received")
        pings.kill()
        for side in OTHER:
            state = tunnel.status(side)
            equal((state["workers"], state["inbound_drops"]), (3, []), "workers and drops")
            busy = busy_workers(tunnel.ends[side].child.pid)
            assert busy >= 2, f"{busy} worker of the {side} did it all"
        equal(tunnel.stop(), [0, 0], "exit codes")

    with suite.case("several workers where there can be only one are refused"):
        for lines in ({"path": 'encapsulation = "none"'}, {"top": 'backend = "kernel"'}):
            tunnel.configure("aes-256-gcm", None, interface="workers = 2", **lines)
            done = cordon("vpn", "static", "--config", tunnel.config("client"), code=1)
            contains(done.stderr, "[interface] workers")


def looking_inside(suite, network, tunnel):
    with suite.case("figures for Prometheus, by command and over HTTP"):
        tunnel.configure("aes-256-gcm", None, top='metrics = { listen = "127.0.0.1:9400" }')
        tunnel.start()
        equal(ping(network, INSIDE["server"]).returncode, 0, "ping")
        fetch = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9400/metrics').read().decode())"
        over_http = network.run("client", "python3", "-c", fetch).stdout
        by_command = cordon("vpn", "status", "--socket", tunnel.socket("client"), "--format", "prometheus").stdout
        for text in (over_http, by_command):
            contains(text, 'cordon_vpn_packets_total{interface="tunnel0",direction="out"} ')
            contains(text, 'cordon_vpn_drops_total{interface="tunnel0",direction="in",cause="integrity_failed"} 0')
            contains(text, 'cordon_vpn_sa_bytes_total{interface="tunnel0",spi="00001002",direction="out"} ')
        equal(tunnel.stop(), [0, 0], "exit codes")

    with suite.case("a capture holds what the tunnel carried, and says so loudly"):
        files = {side: suite.folder / f"{side}.pcapng" for side in OTHER}
        tunnel.configure("aes-256-gcm", None, top=f'debug = {{ capture = "{suite.folder}/SIDE.pcapng" }}')
        tunnel.start()
        contains(tunnel.ends["client"].tail(), "IN THE CLEAR")
        equal(ping(network, INSIDE["server"], count=2).returncode, 0, "ping")
        equal(tunnel.stop(), [0, 0], "exit codes")
        for side, file in files.items():
            equal(file.stat().st_mode & 0o777, 0o600, "mode")
            equal(echoes(file), [8, 0, 8, 0], f"ICMP types that the {side} saw")

    with suite.case("a build for use does not let keys out"):
        output = suite.folder / "esp_sa"
        done = cordon("vpn", "export-keys", "--config", tunnel.config("client"), "--output", output, code=1)
        contains(done.stderr, "does not let keys out")
        assert not output.exists()


def echoes(file):
    """Types of the ICMP messages in a capture, read by scapy."""
    script = "import sys; from scapy.all import ICMP, rdpcap; " \
        "print([p[ICMP].type for p in rdpcap(sys.argv[1]) if ICMP in p])"
    return [int(part) for part in run_command(sys.executable, "-c", script, file).stdout.strip("[] \n").split(",")]


def hostile(suite, network, tunnel):
    with suite.case("noise, keepalives and IKE on the port are counted, and the tunnel goes on"):
        tunnel.configure("aes-256-gcm", None)
        tunnel.start()
        packets = [b"\xff", b"\0\0\0\0 not IKE", b"\0\0\x10\x02" + bytes(60), b"x" * 100, b"\0\0\x10\x02"]
        noise = f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for packet in {packets!r}:
    s.sendto(packet, ({OUTSIDE["server"]!r}, 4500))
"""
        network.run("client", "python3", "-c", noise)
        equal(ping(network, INSIDE["server"]).returncode, 0, "ping")
        state = tunnel.status("server")
        drops = {drop["cause"]: drop["packets"] for drop in state["inbound_drops"]}
        equal((state["io"]["keepalives"], state["io"]["ike"]), (1, 1), "keepalives and IKE")
        equal(drops, {"bad_sequence": 1, "unknown_spi": 1, "truncated": 1}, "drops")

    with suite.case("new keys at both ends while packets flow"):
        before = tunnel.outbound("client")
        tunnel.configure("aes-256-gcm", None, {"server": 0x2001, "client": 0x2002})
        for end in tunnel.ends.values():
            os.kill(end.child.pid, signal.SIGHUP)
        wait_for(lambda: ping(network, INSIDE["server"], count=1).returncode == 0, "a ping under new keys")
        wait_for(lambda: tunnel.outbound("client") != before, "the client to send with new keys")
        after = tunnel.outbound("client")
        equal((before, after), ({"00001002"}, {"00002002"}), "outbound SPI")

    with suite.case("keys that cannot be used leave the tunnel as it is"):
        text = tunnel.config("client").read_text()
        tunnel.config("client").write_text(text.replace("aes-256-gcm", "rot13"))
        end = tunnel.ends["client"]
        os.kill(end.child.pid, signal.SIGHUP)
        wait_for(lambda: "keys stay as they are" in end.tail(), lambda: end.tail())
        equal(ping(network, INSIDE["server"]).returncode, 0, "ping")
        equal(tunnel.stop(), [0, 0], "exit codes")


def mistakes(suite, network, tunnel):
    with suite.case("mistakes: two lines, exit code 1"):
        tunnel.configure("aes-256-gcm", None)
        path = tunnel.config("client")
        good = path.read_text()

        def refused(*expected):
            done = network.run("client", CORDON, "vpn", "static", "--config", path, "--log", "off", code=1)
            equal(len(done.stderr.strip().splitlines()), 2, f"lines of {done.stderr!r}")
            for part in expected:
                contains(done.stderr, part)

        path.chmod(0o644)
        refused("others may read it", "chmod 600")
        path.chmod(0o600)
        path.write_text(good.replace("aes-256-gcm", "aes-512-gcm"))
        refused("aes-512-gcm", "one of")
        path.write_text(good.replace(OUTSIDE["client"], "10.99.0.9"))
        refused("UDP socket on 10.99.0.9:4500")
        path.write_text('metrics = { listen = "192.0.2.99:9400" }\n' + good)
        refused("metrics on 192.0.2.99:9400")
        path.unlink()
        refused("client.toml")
        done = cordon("vpn", "status", "--socket", tunnel.folder / "nothing.sock", code=1)
        contains(done.stderr, "no tunnel answers")


def can_ipsec(network, mode):
    """Whether the kernel that the tests run under has what a mode needs."""
    key = "0x" + secrets.token_hex(36)
    state = ["src", "198.51.100.1", "dst", "198.51.100.2", "proto", "esp", "spi", "0x9999"]
    probes = [["xfrm", "state", "add", *state, "mode", mode, "aead", "rfc4106(gcm(aes))", key, "128"]]
    undo = [["xfrm", "state", "delete", *state]]
    if mode == "tunnel":
        probes.append(["link", "add", "probe", "type", "xfrm", "dev", "lo", "if_id", "9999"])
        undo.append(["link", "delete", "probe"])
    able = all(network.run("client", "ip", *probe, code=None).returncode == 0 for probe in probes)
    for command in undo:
        network.run("client", "ip", *command, code=None)
    return able


def kernel(suite, network, tunnel):
    # tests/kernel/vpn.py says more, in an emulator with a kernel that can.
    for mode in ("tunnel", "transport"):
        able = can_ipsec(network, mode)
        answer = "carries packets" if able else "says that this kernel cannot and leaves nothing"
        with suite.case(f'backend = "kernel" in {mode} mode {answer}'):
            tunnel.configure("aes-256-gcm", None, sa=f'mode = "{mode}"', top='backend = "kernel"')
            if able:
                tunnel.start()
                address = INSIDE["server"] if mode == "tunnel" else OUTSIDE["server"]
                equal(ping(network, address).returncode, 0, "ping")
                equal(tunnel.stop(), [0, 0], "exit codes")
            else:
                command = [CORDON, "vpn", "static", "--config", tunnel.config("client"), "--log", "off"]
                done = network.run("client", *command, code=1)
                equal(len(done.stderr.strip().splitlines()), 2, f"lines of {done.stderr!r}")
                contains(done.stderr, "this kernel has no")
                contains(done.stderr, "without `backend`")
            for table in ("state", "policy"):
                equal(network.run("client", "ip", "xfrm", table, code=None).stdout, "", f"xfrm {table}")
            assert "tunnel0" not in network.run("client", "ip", "link").stdout


def run(suite):
    network = Network()
    suite.finally_do(network.remove)
    network.create()
    tunnel = Tunnel(network, suite.folder)
    suite.finally_do(tunnel.kill)
    for side, address in OUTSIDE_V6.items():
        network.run(side, "ip", "address", "add", f"{address}/64", "dev", "cable", "nodad")
    suites(suite, network, tunnel)
    modes(suite, network, tunnel)
    restarts(suite, network, tunnel)
    path(suite, network, tunnel)
    rekeying(suite, network, tunnel)
    several_workers(suite, network, tunnel)
    looking_inside(suite, network, tunnel)
    hostile(suite, network, tunnel)
    kernel(suite, network, tunnel)
    mistakes(suite, network, tunnel)
