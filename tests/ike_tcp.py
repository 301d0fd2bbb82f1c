"""IKE and ESP over TCP (RFC 9329) where UDP is dropped: fallback, new keys, broken connections, hostile clients.

strongSwan has no TCP encapsulation, and libreswan takes ESP out of TCP by the kernel, which Debian's has not (`ike_kernel` has one that does). So
two daemons of ours here, and the framing once more below, apart from ours.
"""

import contextlib
import json
import re
import subprocess
import sys
import time

from tests.harness import ROOT, equal, wait_for
from tests.ike_check import check, has
from tests.ike_lab import INSIDE, OURS, THEIRS, Daemon, Lab, connection, mirrored
from tests.ike_recovery import pings

# Below all others in order, as an attacker may choose.
CROWDED = "1.*.1"
ATTACKER, MOVED = "10.207.0.66", "10.207.0.9"
LISTEN = "[path]\ntcp_port = 4500"
TCP = 'transport = "tcp"'
NO_UDP = "meta l4proto udp counter drop"

# Runs as a client in its namespace, and has the framing of its own.
STRANGER = """
import json, socket, struct, sys, time
sys.path.insert(0, sys.argv[1])
from tests.spoof import first_message
server, own = sys.argv[2], sys.argv[3]

def frame(content):
    return struct.pack("!H", 2 + len(content)) + content

def connect():
    return socket.create_connection((server, 4500), 5, source_address=(own, 0))

def exactly(stream, count):
    parts = b""
    while len(parts) < count:
        part = stream.recv(count - len(parts))
        if not part:
            raise EOFError(parts)
        parts += part
    return parts

def answer(stream):
    length, = struct.unpack("!H", exactly(stream, 2))
    content = exactly(stream, length - 2)
    assert content[:4] == bytes(4), content[:8]
    return content[4:]

def is_closed(stream):
    stream.settimeout(5)
    try:
        return stream.recv(100) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False

found = {}
message = first_message(1)
for name, pieces in (("at once", 10000), ("byte by byte", 1)):
    with connect() as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.settimeout(5)
        sent = b"IKETCP" + frame(b"") + frame(bytes([255])) + frame(bytes(4) + message)
        for at in range(0, len(sent), pieces):
            stream.sendall(sent[at:at + pieces])
        reply = answer(stream)
        # An IKE_SA_INIT response with our SPI, a new one, and its own length (RFC 7296, section 3.1).
        right = reply[:8] == message[:8] and reply[8:16] != bytes(8) and reply[18] == 34 and reply[19] == 0x20
        found[name] = right and int.from_bytes(reply[24:28], "big") == len(reply)
    message = first_message(pieces + 1)
for name, bad in (("no prefix", frame(bytes(4) + message)), ("HTTP", b"GET / HTTP/1.1\\r\\n\\r\\n"),
                  ("length 0", b"IKETCP" + bytes(2)), ("length 1", b"IKETCP" + bytes([0, 1])),
                  ("length 3", b"IKETCP" + frame(b"x")), ("length 5", b"IKETCP" + frame(b"xyz"))):
    with connect() as stream:
        stream.sendall(bad)
        found[name] = is_closed(stream)
with connect() as stream:
    # ESP of nobody is dropped, and the connection goes on.
    stream.settimeout(5)
    stream.sendall(b"IKETCP" + frame(bytes([1, 2, 3, 4]) + bytes(60)) + frame(bytes(4) + first_message(99)))
    found["ESP of nobody"] = answer(stream)[18] == 34
with connect() as stream:
    stream.sendall(b"IKETCP" + struct.pack("!H", 65535))
    stream.settimeout(8)
    started = time.monotonic()
    found["half a frame"] = stream.recv(1) == b"" and 3 < time.monotonic() - started < 8
print(json.dumps(found))
"""

# A thousand connections at once, again and again: silent, garbage, half frames, first messages. A star in the own address is
# another network for each.
CROWD = """
import os, socket, sys, time
sys.path.insert(0, sys.argv[1])
from tests.spoof import first_message
server, own, end = sys.argv[2], sys.argv[3], time.monotonic() + float(sys.argv[4])
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))
held, number = [], 0
print("ready", flush=True)
while time.monotonic() < end:
    number += 1
    stream = socket.socket()
    stream.bind((own.replace("*", f"{number // 256 % 4}.{number % 256}"), 0))
    stream.setblocking(False)
    try:
        stream.connect((server, 4500))
    except BlockingIOError:
        pass
    held.append(stream)
    if len(held) > 50:
        one = held[-50]
        try:
            message = first_message(number)
            one.send((b"", os.urandom(900), b"IKETCP" + b"\\xff\\xff" + os.urandom(900),
                      b"IKETCP" + (6 + len(message)).to_bytes(2, "big") + bytes(4) + message)[number % 4])
        except OSError:
            pass
    if len(held) >= 1000:
        held.pop(0).close()
    time.sleep(0.001)
print(number, flush=True)
"""

# Says something five times, and whether its connection lasts as long as a handshake takes.
SPEAKER = """
import select, socket, sys, time
sys.path.insert(0, sys.argv[1])
from tests.spoof import first_message
for number in range(5):
    with socket.create_connection((sys.argv[2], 4500), 5) as stream:
        message = first_message(number)
        stream.sendall(b"IKETCP" + (6 + len(message)).to_bytes(2, "big") + bytes(4) + message)
        end, state = time.monotonic() + 0.3, "open"
        while (left := end - time.monotonic()) > 0:
            try:
                if select.select([stream], [], [], left)[0] and not stream.recv(4096):
                    raise ConnectionResetError
            except ConnectionError:
                state = "closed"
                break
        print(state)
"""


@contextlib.contextmanager
def rules(lab, name, text, hook="input"):
    """Rules of nftables on the server's cable while the block runs."""
    device = {"input": "iifname", "output": "oifname"}[hook]
    table = f"table inet {name} {{ chain cut {{ type filter hook {hook} priority 0; {device} cable {text}; }}; }}"
    lab.network.run("server", "nft", table)
    try:
        yield
    finally:
        lab.network.run("server", "nft", "delete", "table", "inet", name)


def reset_connections(lab, seconds=0.4):
    """Breaks TCP connections as a middlebox does: both sides see them reset."""
    with rules(lab, "middlebox", "tcp dport 4500 reject with tcp reset"):
        time.sleep(seconds)


def transports(daemon):
    return [sa["transport"] for sa in daemon.sas()]


def over_tcp(suite, lab):
    short = "lifetime = 8"
    ours = connection(suite=None, extra='transport = "udp-then-tcp"\nfallback_after = 1', child="lifetime = 4")
    theirs = mirrored(suite=None, extra=short, child="lifetime = 5")
    other, one = Daemon(lab, "server", theirs, LISTEN), Daemon(lab, "client", ours)
    with rules(lab, "noudp", NO_UDP), other, one:
        with suite.case("where UDP is dropped, a tunnel comes up over TCP after the time that the file says"):
            one.up(seconds=6)
            one.says("no answer over UDP, trying TCP")
            equal((transports(one), transports(other)), (["tcp"], ["tcp"]), "transports")
            assert " over TCP" in one.tell("status").stdout
            lab.ping()
            lab.ping("server", INSIDE["client"])
        with suite.case("10 MB each way come over TCP as they were sent, while keys are replaced"):
            before = [daemon.ike()["counters"] for daemon in (one, other)]
            rekeyed = lambda: all(
                daemon.counter("child_rekeys") > old["child_rekeys"] and daemon.counter("ike_rekeys") > old["ike_rekeys"]
                for daemon, old in zip((one, other), before)
            )
            sent, end = 0, time.monotonic() + 40
            with pings(lab.network.command("client"), 1.0):
                while sent < 10 or not rekeyed():
                    assert time.monotonic() < end, f"new keys: {before} {one.ike()['counters']}"
                    lab.stream(5)
                    lab.stream(5, "server", "client")
                    sent += 5
            print(f"      {sent} MB each way")
            equal(one.counter("established"), 1, "IKE SAs that came up")
        with suite.case("a connection that is reset is opened anew within 3 s, and the IKE SA goes on"):
            established = one.counter("established"), other.counter("established")
            for _ in range(3):
                with pings(lab.network.command("client"), 3.0):
                    time.sleep(0.5)
                    reset_connections(lab)
                    time.sleep(2.5)
            lab.stream(2, "server", "client")
            equal((one.counter("established"), other.counter("established")), established, "IKE SAs that came up")
            assert one.ike()["counters"]["tcp"]["reopened"] >= 3, one.ike()["counters"]
            wait_for(lambda: other.ike()["counters"]["tcp"]["open"] == 1, lambda: f"one connection: {other.ike()['counters']}", 60)
            metrics = one.tell("status", "--format", "prometheus").stdout
            assert re.search(r"^cordon_vpn_tcp_reopened_total [3-9]", metrics, re.MULTILINE), metrics
        with suite.case("a tunnel over TCP is closed on both sides with its connection, and comes again"):
            one.tell("down", "peer")
            wait_for(lambda: not one.sas() and not other.sas(), lambda: f"{one.sas()} {other.sas()}")
            wait_for(lambda: other.ike()["counters"]["tcp"]["open"] == 0, lambda: str(other.ike()["counters"]))
            one.tell("connect", "peer")
            one.up(seconds=6)
            lab.ping()
    with suite.case("where UDP passes, udp-then-tcp uses it"):
        for daemon in (other, one):
            (daemon.folder / "log").unlink()
        with other, one:
            one.up()
            equal((transports(one), one.ike()["counters"]["tcp"]["open"]), (["udp"], 0), "transports")
            lab.ping()


def exchange(lab, new, old):
    """Another address of the client's."""
    lab.network.run("client", "sysctl", "-w", "net.ipv4.conf.cable.promote_secondaries=1")
    lab.network.run("client", "ip", "address", "add", f"{new}/24", "dev", "cable")
    lab.network.run("client", "ip", "address", "delete", f"{old}/24", "dev", "cable")


def moves(suite, lab):
    for mobike in ("true", "false"):
        ours = connection(suite=None, extra=f"{TCP}\nmobike = {mobike}")
        theirs = mirrored(suite=None, extra=f"mobike = {mobike}")
        with suite.case(f"a tunnel over TCP follows its host to another address, MOBIKE {mobike}"):
            with Daemon(lab, "server", theirs, LISTEN) as other, Daemon(lab, "client", ours) as one:
                spi = one.up().sas()[0]["spi"]
                with pings(lab.network.command("client"), 4.0):
                    time.sleep(0.5)
                    exchange(lab, MOVED, OURS)
                    wait_for(lambda: other.sas()[0]["remote"].startswith(f"{MOVED}:"), lambda: other.log()[-2000:], 5)
                    time.sleep(2)
                equal((one.sas()[0]["spi"], transports(one)), (spi, ["tcp"]), "the IKE SA")
                wait_for(lambda: other.ike()["counters"]["tcp"]["open"] == 1, lambda: str(other.ike()["counters"]["tcp"]), 5)
            exchange(lab, OURS, MOVED)


def networks(suite, lab):
    """A host goes from one network to another, of which some drop UDP (RFC 9329, section 7.1)."""
    ours = connection(suite=None, extra='transport = "udp-then-tcp"\nfallback_after = 1')
    other, one = Daemon(lab, "server", mirrored(suite=None), LISTEN), Daemon(lab, "client", ours)
    spi = lambda: one.sas()[0]["spi"]

    def goes_on(transport, address, gap, meanwhile=lambda: None):
        """On both sides, while pings go on; nothing is made anew."""
        before = spi()
        with pings(lab.network.command("client"), gap):
            time.sleep(0.5)
            meanwhile()
            exchange(lab, address, MOVED if address == OURS else OURS)
            state = lambda: f"{one.sas()} {other.sas()} {one.log()[-2000:]}"
            wait_for(lambda: other.sas()[0]["remote"].startswith(f"{address}:"), state, 8)
            wait_for(lambda: transports(one) == transports(other) == [transport], state, 8)
            time.sleep(1)
        equal((spi(), one.counter("established")), (before, 1), "the IKE SA")
        lab.stream(2)
        lab.stream(2, "server", "client")
        used = int(transport == "tcp")
        wait_for(lambda: other.ike()["counters"]["tcp"]["open"] == used, lambda: str(other.ike()["counters"]["tcp"]), 8)
        equal(one.ike()["counters"]["tcp"]["open"], used, "connections of ours")

    with other, one:
        one.up()
        equal(transports(one), ["udp"], "where UDP passes")
        with contextlib.ExitStack() as stack:
            without_udp = rules(lab, "noudp", NO_UDP)
            with suite.case("a tunnel over UDP goes on in a network that drops it, over TCP, as the same IKE SA"):
                # A second until the address is looked at, and one without an answer.
                goes_on("tcp", MOVED, 4.0, lambda: stack.enter_context(without_udp))
                one.says("no answer over UDP, trying TCP")
            with suite.case("it goes on over another connection in the next such network, where UDP is tried first again"):
                goes_on("tcp", OURS, 4.0)
                equal(one.log().count("no answer over UDP, trying TCP"), 2, "times that UDP was tried")
        with suite.case("it goes back to UDP in a network that lets it through"):
            goes_on("udp", MOVED, 3.0)
        with suite.case("it goes on over TCP where UDP reaches the gateway and its answers are dropped"):
            with contextlib.ExitStack() as stack:
                goes_on("tcp", OURS, 4.0, lambda: stack.enter_context(rules(lab, "noanswers", NO_UDP, "output")))
        with suite.case("new keys and the end of the tunnel after it has changed its transport"):
            for daemon, peer in ((one, other), (other, one)):
                daemon.tell("rekey", "peer")
                wait_for(lambda: len(peer.sas()) == 1 and len(peer.children()) == 1, peer.log)
                lab.ping()
            one.tell("down", "peer")
            wait_for(lambda: not one.sas() and not other.sas(), lambda: f"{one.sas()} {other.sas()}")
    with suite.case("a peer without MOBIKE stays on TCP where it may use either, and goes on over another connection"):
        extra = "mobike = false"
        ours = connection(suite=None, extra=f'transport = "udp-then-tcp"\nfallback_after = 1\n{extra}')
        other, one = Daemon(lab, "server", mirrored(suite=None, extra=extra), LISTEN), Daemon(lab, "client", ours)
        with rules(lab, "noudp", NO_UDP), other, one:
            one.up(seconds=6)
            goes_on("tcp", MOVED, 4.0)
        exchange(lab, OURS, MOVED)


def ipv6(suite, lab):
    outside = {"server": "fd07::1", "client": "fd07::2"}
    for side, address in outside.items():
        lab.network.run(side, "ip", "address", "add", f"{address}/64", "dev", "cable", "nodad")
    ours = connection(suite=None, remote=outside["server"], extra=f"{TCP}\ntcp_port = 443")
    several = f'addresses = ["{INSIDE["server"]}/32"]\nworkers = 2'
    other = Daemon(lab, "server", mirrored(suite=None), '[path]\nlisten = "::"\ntcp_port = 443', several)
    with suite.case("over IPv6, to another port, and to a gateway with two workers"):
        with other, Daemon(lab, "client", ours, '[path]\nlisten = "::"') as one:
            one.up()
            equal(other.sas()[0]["local"], "[fd07::1]:443", "the gateway's end")
            lab.stream(3)
            lab.stream(3, "server", "client")


def strangers(suite, lab):
    lab.network.run("client", "ip", "address", "add", f"{ATTACKER}/24", "dev", "cable")
    ours, theirs = connection(suite=None, extra=TCP), mirrored(suite=None)
    with Daemon(lab, "server", theirs, LISTEN) as other:
        with suite.case("the framing of RFC 9329 is answered, and what is none of it ends the connection"):
            line = [sys.executable, "-c", STRANGER, ROOT, THEIRS, ATTACKER]
            found = json.loads(lab.network.run("client", *line, timeout=60).stdout)
            equal(found, dict.fromkeys(found, True), "what a stranger found")
            assert len(found) == 10, found
            counted = other.ike()["counters"]["tcp"]
            assert counted["malformed"] == 6 and counted["dropped"] == 1, counted
        with suite.case("a thousand connections of a stranger hinder no honest peer"):
            with Daemon(lab, "client", ours) as one:
                one.up()
                line = lab.network.command("client", sys.executable, "-c", CROWD, ROOT, THEIRS, ATTACKER, "14")
                crowd = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
                suite.finally_do(crowd.kill)
                equal(crowd.stdout.readline(), "ready\n", "the crowd")
                time.sleep(3)
                with pings(lab.network.command("client"), 1.0):
                    lab.stream(3)
                    time.sleep(2)
                for _ in range(2):
                    one.tell("down", "peer")
                    wait_for(lambda: not one.sas(), "closed")
                    started = time.monotonic()
                    one.tell("connect", "peer")
                    one.up(seconds=10)
                    took = time.monotonic() - started
                    print(f"      a handshake among them: {took:.2f} s")
                    assert took < 5, took
                lab.ping()
                made = int(crowd.communicate(timeout=60)[0])
                assert made > 1000, made
                counted = other.ike()["counters"]["tcp"]
                assert counted["accepted"] > 1000 and counted["displaced"] > 500, counted
                # Those of one network, and the honest one.
                assert counted["open"] <= 34, counted


def many_networks(suite, lab):
    ours, theirs = connection(suite=None, extra=TCP), mirrored(suite=None)
    with suite.case("connections of more networks than there are places hinder no honest peer"):
        lab.network.run("client", "ip", "route", "add", "local", "1.0.0.0/14", "dev", "lo")
        lab.network.run("server", "ip", "route", "add", "1.0.0.0/14", "via", OURS)
        with Daemon(lab, "server", theirs, LISTEN) as other:
            line = lab.network.command("client", sys.executable, "-c", CROWD, ROOT, THEIRS, CROWDED, "20")
            crowd = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
            suite.finally_do(crowd.kill)
            equal(crowd.stdout.readline(), "ready\n", "the crowd")
            time.sleep(2)
            line = [sys.executable, "-c", SPEAKER, ROOT, THEIRS]
            equal(lab.network.run("client", *line, timeout=60).stdout.split(), ["open"] * 5, "who began a handshake")
            with Daemon(lab, "client", ours) as one:
                one.up(seconds=15)
            counted = other.ike()["counters"]["tcp"]
            assert counted["displaced"] > 100, counted
            crowd.kill()
            crowd.wait()


def initiator(suite, lab):
    with suite.case("an initiator begins each connection with the prefix and a first message"):
        program = """
import socket, struct
with socket.create_server(("0.0.0.0", 4443)) as listener:
    print("ready", flush=True)
    spis = []
    for _ in range(2):
        stream, _ = listener.accept()
        def exactly(count):
            parts = b""
            while len(parts) < count:
                parts += stream.recv(count - len(parts)) or exit("closed")
            return parts
        assert exactly(6) == b"IKETCP"
        length, = struct.unpack("!H", exactly(2))
        content = exactly(length - 2)
        assert content[:4] == bytes(4) and content[22] == 34 and content[23] == 8, content[:32]
        assert int.from_bytes(content[28:32], "big") == len(content) - 4
        spis.append(content[4:12])
        # Nothing else comes until there is an answer: TCP repeats by itself.
        stream.settimeout(3)
        try:
            print(stream.recv(1))
        except TimeoutError:
            print("silent", flush=True)
        stream.close()
    print(spis[0] == spis[1], flush=True)
"""
        line = lab.network.command("server", sys.executable, "-c", program)
        peer = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        suite.finally_do(peer.kill)
        equal(peer.stdout.readline(), "ready\n", "a peer")
        with Daemon(lab, "client", connection(suite=None, extra=f"{TCP}\ntcp_port = 4443")):
            # The second connection goes on with the same handshake, whose request it repeats.
            equal(peer.communicate(timeout=30)[0], "silent\nsilent\nTrue\n", "what the peer saw")


def mistakes(suite, lab):
    with suite.case("mistakes about TCP are named"):
        cases = [
            (connection(extra=TCP), 'backend = "kernel"', 'is for backend = "user"'),
            (connection(extra=TCP), '[path]\nencapsulation = "native"', 'encapsulation = "native" of [path] leaves no TCP'),
            (connection(extra=TCP, remote=None, start="none"), "", "for a connection that is started here"),
            (connection(extra='transport = "udp-then-tcp"\nfallback_after = 90'), "", "from 1 to 30 seconds"),
            (connection(extra='transport = "sctp"'), "", "udp-then-tcp"),
            (connection(extra="", local=None, other=None, child='mode = "transport"'), f"{LISTEN}\nlisten = \"10.207.0.2\"",
             "transport mode and TCP"),
        ]
        for text, top, words in cases:
            has(check(Daemon(lab, "client", text, top), 1), words)
        line = [sys.executable, "-c", "import socket; s = socket.create_server(('0.0.0.0', 4500)); print('ready', flush=True); input()"]
        taken = subprocess.Popen(lab.network.command("client", *line), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        suite.finally_do(taken.kill)
        equal(taken.stdout.readline(), "ready\n", "a listener")
        has(check(Daemon(lab, "client", connection(), LISTEN), 1), "TCP port 4500", "in use")


def others(suite, lab):
    for part in (mistakes, initiator, over_tcp, ipv6, moves, strangers, many_networks):
        part(suite, lab)


# The first waits most of its time.
PARTS = {"networks": networks, "others": others}


def run(suite):
    lab = Lab(suite)
    for part in [suite.part] if suite.part else PARTS:
        PARTS[part](suite, lab)
