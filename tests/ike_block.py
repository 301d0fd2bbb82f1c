"""What passes in the clear while a tunnel's daemon is absent, starting, running, killed, ended, replaced.

Both sides have a route over the cable to the other's network, so without the tunnel packets would go in the
clear, as the last case shows. Every state gets 10 000 packets from each side; a capture on the cable counts.
"""

import contextlib
import subprocess
import sys

from tests.harness import CORDON, contains, equal, wait_for
from tests.ike_lab import INSIDE, Daemon, Lab, connection, mirrored
from tests.namespaces import OUTSIDE

PACKETS = 10_000

# Counts packets on the cable with an address of the protected networks, until its input ends.
CAPTURE = """
import select, socket, sys
cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
cable.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
cable.bind(("cable", 0))
print("ready", flush=True)
count, ends = 0, False
while True:
    ready, _, _ = select.select([cable] + ([] if ends else [sys.stdin]), [], [], 0.3)
    if cable in ready:
        frame = cable.recv(65536)
        inner = frame[12:14] == b"\\x08\\x00" and b"\\x0a\\x05" in (frame[26:28], frame[30:32])
        count += inner
    elif ends:
        break
    if sys.stdin in ready:
        ends = True
print(count, flush=True)
"""

# Sends packets to an address as fast as it may, for at least some seconds; says how many were let go.
FLOOD = """
import socket, sys, time
address, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sent = tried = 0
end = time.monotonic() + seconds
while tried < count or time.monotonic() < end:
    try:
        out.sendto(b"in the clear" + bytes(20), (address, 9))
        sent += 1
    except OSError:
        pass
    tried += 1
    if tried >= count:
        time.sleep(0.001)
print(sent, flush=True)
"""

# Writes packets with a forged inner source onto the cable, past this host's own rules.
FORGE = """
import socket, struct, sys
source, target, mac = sys.argv[1:4]
cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
cable.bind(("cable", 0))
def sum16(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
addresses = socket.inet_aton(source) + socket.inet_aton(target)
payload = struct.pack("!HHHH", 4242, 4242, 16, 0) + b"forgery!"
head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 1, 0, 64, 17, 0) + addresses
head = head[:10] + struct.pack("!H", sum16(head)) + head[12:]
own = open("/sys/class/net/cable/address").read().strip()
frame = bytes.fromhex((mac + own).replace(":", "")) + b"\\x08\\x00" + head + payload
for _ in range(int(sys.argv[4])):
    cable.send(frame)
"""

# Counts datagrams on port 4242 until nothing comes for two seconds.
LISTEN = """
import socket
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(("0.0.0.0", 4242))
own.settimeout(2)
print("ready", flush=True)
count = 0
try:
    while True:
        own.recv(2048)
        count += 1
except TimeoutError:
    print(count, flush=True)
"""


# Has the name of an interface's lock as another user, until its input ends.
SQUAT = """
import os, socket, sys
os.setuid(65534)
lock = socket.socket(socket.AF_UNIX)
lock.bind("\\0cordon/vpn/tunnel0")
lock.listen()
print("ready", flush=True)
sys.stdin.readline()
"""


class Clear(Lab):
    """Two networks with a cable between them, over which each would reach the other."""

    def __init__(self, suite):
        super().__init__(suite)
        for side, other in (("client", "server"), ("server", "client")):
            network = INSIDE[other].rsplit(".", 1)[0] + ".0/24"
            self.network.run(side, "ip", "route", "add", network, "via", OUTSIDE[other], "metric", "5000")

    def python(self, side, program, *arguments, **options):
        command = self.network.command(side, sys.executable, "-c", program, *map(str, arguments))
        options = {"stdout": subprocess.PIPE, "text": True} | options
        return subprocess.Popen(command, **options)

    @contextlib.contextmanager
    def clear(self, expected=0, seconds=0.0):
        """Floods from both sides while the block runs; counts what the cable shows in the clear."""
        capture = self.python("server", CAPTURE, stdin=subprocess.PIPE)
        floods = []
        try:
            equal(capture.stdout.readline(), "ready\n", "capture")
            for side, other in (("client", "server"), ("server", "client")):
                floods.append(self.python(side, FLOOD, INSIDE[other], PACKETS, seconds))
            yield
            for flood in floods:
                flood.communicate(timeout=60)
            found = int(capture.communicate(timeout=60)[0])
        finally:
            for process in (capture, *floods):
                process.kill()
        if expected is not None:
            equal(found, expected, "packets in the clear")
        self.found = found

    def mac(self, side):
        return self.network.run(side, "cat", "/sys/class/net/cable/address").stdout.strip()

    def forged(self):
        """Sends forged packets from the client's place on the cable; says how many a program got."""
        listener = self.python("server", LISTEN)
        try:
            equal(listener.stdout.readline(), "ready\n", "listener")
            command = [sys.executable, "-c", FORGE, "10.5.1.77", INSIDE["server"], self.mac("server"), 1000]
            self.network.run("client", *command)
            return int(listener.communicate(timeout=30)[0])
        finally:
            listener.kill()


def run_in(lab, daemon, *order, code=0):
    """A command in a daemon's namespace."""
    return lab.network.run(daemon.side, CORDON, "vpn", order[0], "--config", daemon.file, *order[1:], code=code)


def fresh(daemon):
    """A daemon that is to start, also one that ran before: what its log said then does not count."""
    (daemon.folder / "log").unlink(missing_ok=True)
    return daemon


def start(daemon):
    return fresh(daemon).start()


def run(suite):
    lab = Clear(suite)
    child = "lifetime = 2"
    ours = Daemon(lab, "client", connection(suite=None, child=child))
    theirs = Daemon(lab, "server", mirrored(suite=None, child=child))
    both = (ours, theirs)
    for daemon in both:
        # Whichever process it has by then.
        suite.finally_do(lambda daemon=daemon: daemon.process and daemon.process.kill())

    with suite.case("without a firewall, packets go in the clear: the test can fail"):
        with lab.clear(expected=None):
            pass
        assert lab.found >= PACKETS, lab.found
        # What a full socket buffer leaves of a thousand.
        assert lab.forged() > 100, "forged packets arrive"

    with suite.case("block holds packets back before there is a daemon"):
        for daemon in both:
            contains(run_in(lab, daemon, "block").stdout, "held back")
        with lab.clear():
            pass
        equal(lab.forged(), 0, "forged packets that arrived")

    with suite.case("nothing goes in the clear while the rules are replaced fifty times"):
        with lab.clear(seconds=4):
            for _ in range(50):
                run_in(lab, ours, "block")

    with suite.case("nothing goes in the clear while both start"):
        with lab.clear(seconds=3):
            start(theirs)
            start(ours)
            ours.up()

    with suite.case("nothing goes in the clear while keys are replaced, and packets do arrive"):
        with lab.clear(seconds=6):
            pass
        assert ours.counter("child_rekeys") >= 2, ours.counter("child_rekeys")
        lab.ping(source=INSIDE["client"])
        equal(lab.forged(), 0, "forged packets that arrived")

    with suite.case("nothing goes in the clear after kill -9 of both"):
        for daemon in both:
            daemon.process.kill()
        wait_for(lambda: "tunnel0" not in lab.network.run("client", "ip", "link").stdout, "the interface's end")
        with lab.clear(seconds=2):
            pass
        equal(lab.forged(), 0, "forged packets that arrived")

    with suite.case("nothing goes in the clear while daemons end and others take their place"):
        with lab.clear(seconds=4):
            for daemon in reversed(both):
                start(daemon)
            ours.up()
            for daemon in both:
                equal(daemon.process.stop(), 0, "exit code")
            daemon.says("still held back")
            for daemon in reversed(both):
                start(daemon)
            ours.up()

    with suite.case("reload changes what is held back only after it was taken over"):
        ours.write(connection(suite=None, child=child, other="10.5.2.0/25"))
        ours.tell("reload")
        rules = lab.network.run("client", "nft", "list", "ruleset").stdout
        contains(rules, "10.5.2.0/25")
        ours.write(connection(suite=None, child=child, other="10.5.2.0/33"))
        ours.tell("reload", code=1)
        equal(lab.network.run("client", "nft", "list", "ruleset").stdout.count("10.5.2.0/25"), 1)
        ours.write(connection(suite=None, child=child))
        ours.tell("reload")
        ours.up()

    with suite.case("nothing goes in the clear after an orderly end"):
        for daemon in both:
            equal(daemon.process.stop(), 0, "exit code")
        with lab.clear(seconds=1):
            pass

    with suite.case("unblock is what lets packets go in the clear again, also after a `block` that was killed"):
        for daemon in both:
            # The table that is there while another is replaced, as a killed command leaves it.
            table = lab.network.run(daemon.side, "nft", "list", "table", "inet", "cordon_tunnel0").stdout
            lab.network.run(daemon.side, "nft", table.replace("cordon_tunnel0", "cordon_tunnel0_next", 1))
        for daemon in both:
            contains(run_in(lab, daemon, "unblock").stdout, "may leave in the clear")
            run_in(lab, daemon, "unblock")
        with lab.clear(expected=None):
            pass
        assert lab.found >= PACKETS, lab.found

    with suite.case("another configuration of the same interface takes nothing away: refused, without a trace"):
        other = Daemon(lab, "client", connection(suite=None, remote="10.207.0.9", other="10.5.9.0/24"))
        # Without a tunnel that runs, only the table says whose it is.
        run_in(lab, ours, "block")
        rules = lab.network.run("client", "nft", "list", "ruleset").stdout
        for order in ("block", "unblock", "up", "check"):
            done = run_in(lab, other, order, code=1)
            contains(done.stdout + done.stderr, str(ours.file)[-60:])
        equal(lab.network.run("client", "nft", "list", "ruleset").stdout, rules, "the rules")
        assert not (other.folder / "control.sock").exists(), "a socket of a refused start"
        # The same file from another place, and an edited one, are the same tunnel.
        lab.network.run("client", CORDON, "vpn", "block", "--config", "vpn.toml", cwd=ours.folder)
        start(theirs)
        with fresh(ours):
            ours.up()
            rules = lab.network.run("client", "nft", "list", "ruleset").stdout
            socket = (ours.folder / "control.sock").stat().st_ino
            contains(run_in(lab, other, "up", code=1).stderr, str(ours.process.child.pid))
            # The same file, changed meanwhile, and another with the socket of the one that runs.
            ours.write(connection(suite=None, other="10.5.9.0/24"))
            contains(run_in(lab, ours, "up", code=1).stderr, "belongs to a tunnel that runs")
            other.file.write_text(other.file.read_text().replace("tunnel0", "tunnel1").replace("control.sock", str(ours.folder / "control.sock")))
            contains(run_in(lab, other, "up", code=1).stderr, "another program listens")
            contains(run_in(lab, other, "check", code=1).stdout, "another tunnel answers")
            equal(lab.network.run("client", "nft", "list", "ruleset").stdout, rules, "the rules")
            equal((ours.folder / "control.sock").stat().st_ino, socket, "the socket of the tunnel that runs")
            lab.ping(source=INSIDE["client"])
        equal(theirs.process.stop(), 0, "exit code")
        run_in(lab, theirs, "unblock")
        assert "cordon_" not in lab.network.run("client", "nft", "list", "tables").stdout, "tables after `unblock --interface`"
        # One that an earlier version left says nothing: the next start takes it over.
        lab.network.run("client", "nft", "add table inet cordon_tunnel0")
        ours.write(connection(suite=None, child=child))
        run_in(lab, ours, "block")
        contains(lab.network.run("client", "nft", "list", "table", "inet", "cordon_tunnel0").stdout, "10.5.2.0/24")
        run_in(lab, ours, "unblock")

    with suite.case("a file in the place of the status socket stays, and so does a lock of another user"):
        precious = ours.folder / "precious"
        precious.write_text("precious")
        ours.file.write_text(ours.file.read_text().replace("control.sock", "precious"))
        contains(run_in(lab, ours, "check", code=1).stdout, "is no socket")
        contains(run_in(lab, ours, "up", code=1).stderr, "is no socket")
        equal(precious.read_text(), "precious", "a file that `status` names")
        assert "cordon_" not in lab.network.run("client", "nft", "list", "tables").stdout, "tables of a refused start"
        ours.write(connection(suite=None, child=child))
        with lab.python("client", SQUAT, stdin=subprocess.PIPE) as squatter:
            equal(squatter.stdout.readline(), "ready\n", "a lock of nobody's")
            with fresh(ours):
                ours.says("another user holds the lock")
            squatter.communicate("\n", timeout=10)

    with suite.case("a host without nftables refuses to start, or says what is missing"):
        command = ["env", "PATH=/nowhere", CORDON, "vpn", "block", "--config", ours.file]
        done = cordon_without_nft(lab, command)
        assert done.returncode == 1 and "install nftables" in done.stderr, done.stderr
        ours.write('[firewall]\nenforce = "off"\n' + connection(suite=None))
        contains(run_in(lab, ours, "block", code=1).stderr, "asks for no firewall")


def cordon_without_nft(lab, command):
    """Runs a command where the folders with `nft` are empty."""
    hide = "for d in /usr/sbin /sbin /usr/local/sbin; do [ -L $d ] || mount -t tmpfs tmpfs $d; done; exec \"$@\""
    return lab.network.run("client", "/usr/bin/unshare", "-m", "/bin/sh", "-c", hide, "sh", *command, code=None)
