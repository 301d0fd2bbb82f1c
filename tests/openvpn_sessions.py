"""OpenVPN's layers, carriers and tokens, and how long a session outlives a revocation; run by `openvpn`."""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time

from tests.harness import CORDON, ROOT, Process, cordon_json, contains, equal, wait_for
from tests.harness import run as execute
from tests.namespaces import OUTSIDE

INSIDE = "10.8.0.1"
OUTSIDE6 = {"server": "fd00:207::1", "client": "fd00:207::2"}
SOFTHSM = "/usr/lib/softhsm/libsofthsm2.so"
PIN = "2468"
# What is demanded: seconds after which a revoked device moves no packet any more.
LIMIT = 5.0
# One that connects again as soon as it can.
EAGER = ["--connect-retry", "1", "1", "--hand-window", "5"]
ETHERTYPE = 0x88B5

# Prints each datagram's time of arrival, as the system counts it.
ARRIVALS = """
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
    receiver.bind((sys.argv[1], 5002))
    print("ready", flush=True)
    while True:
        receiver.recv(100)
        print(time.monotonic(), flush=True)
"""
SENDER = """
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    while True:
        try:
            sender.sendto(b"still here", (sys.argv[1], 5002))
        except OSError:
            pass
        time.sleep(0.05)
"""
# Sends a frame of no protocol to everybody, or waits for one and prints what is in it.
FRAME = """
import socket, sys
interface, kind, action = sys.argv[1], int(sys.argv[2]), sys.argv[3]
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(kind)) as frames:
    frames.bind((interface, kind))
    frames.settimeout(10)
    if action == "send":
        frames.send(b"\\xff" * 6 + b"\\x02\\0\\0\\0\\0\\1" + kind.to_bytes(2, "big") + sys.argv[4].encode())
    else:
        print("ready", flush=True)
        print(frames.recv(2000)[14:].rstrip(b"\\0").decode(), flush=True)
"""


class Guard:
    """`cordon vpn openvpn-guard` beside a server."""

    def __init__(self, lab, out, *source):
        source = source or ("--data", lab.site.data)
        log = lab.suite.folder / f"{out.name}-guard-{random.randrange(1 << 32):08x}.log"
        self.process = Process([CORDON, "vpn", "openvpn-guard", "--config", out / "server.conf", *source, "--log", "info"], log)
        lab.suite.finally_do(self.end)
        lab.daemons.append(self)

    def text(self):
        return self.process.log.read_text(errors="replace")

    def says(self, words, seconds=10):
        wait_for(lambda: words in self.text(), lambda: f"{words!r}:\n{self.process.tail()}", seconds)

    def end(self):
        self.process.kill()


class Traffic:
    """Datagrams from the client through the tunnel, and when each came out at the server."""

    def __init__(self, lab):
        command = lab.network.command("server", "python3", "-c", ARRIVALS, INSIDE)
        self.receiver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        equal(self.receiver.stdout.readline(), "ready\n", "receiver")
        self.sender = subprocess.Popen(lab.network.command("client", "python3", "-c", SENDER, INSIDE))
        assert float(self.receiver.stdout.readline()) > 0

    def stop(self):
        """Ends both; returns all times of arrival."""
        for process in (self.sender, self.receiver):
            process.kill()
            process.wait()
        times = [float(line) for line in self.receiver.stdout.read().split()]
        self.receiver.stdout.close()
        return times


def guarded(lab, *extra, source=(), **options):
    """A server with its guard, and a client that is connected."""
    out, _ = lab.profile(extra=extra, **options)
    server, guard, client = lab.daemon("server", out), Guard(lab, out, *source), lab.daemon("client", out, EAGER)
    server.up()
    client.up()
    return out, server, guard, client


def stop(*daemons):
    for daemon in daemons:
        equal(daemon.stop(), 0, "exit code of openvpn")


def device_of(out):
    return next(out.glob("*.ovpn")).stem


def both_ways(lab, client, address=INSIDE):
    """A file each way, to an address of the server and back to the client's."""
    lab.transfer(500_000, address=address)
    lab.transfer(500_000, "client", "server", address=client)


def inner_address(lab, interface):
    shown = lab.network.run("client", "ip", "-4", "-o", "address", "show", "dev", interface).stdout
    return re.search(r"inet ([0-9.]+)/", shown).group(1)


def frame(lab, source, sink, interfaces):
    """An Ethernet frame that is no IP packet goes through the tunnel."""
    waiting = lab.network.command(sink, "python3", "-c", FRAME, interfaces[sink], str(ETHERTYPE), "wait")
    receiver = subprocess.Popen(waiting, stdout=subprocess.PIPE, text=True)
    try:
        equal(receiver.stdout.readline(), "ready\n", "receiver of frames")
        text = f"from {source}"
        lab.network.run(source, "python3", "-c", FRAME, interfaces[source], ETHERTYPE, "send", text)
        equal(receiver.stdout.readline(), f"{text}\n", "frame")
    finally:
        receiver.kill()
        receiver.wait()
        receiver.stdout.close()


def carriers(lab):
    for side, address in OUTSIDE6.items():
        lab.network.run(side, "ip", "address", "add", f"{address}/64", "dev", "cable", "nodad")
    with lab.case("TCP over IPv6 carries Ethernet frames, and files both ways"):
        out, server, _, client = guarded(lab, "--transport", "tcp", "--dev", "tap", server=OUTSIDE6["server"])
        contains(server.text(), "TCPv6_SERVER link local")
        contains(server.text(), "tls-crypt-v2")
        both_ways(lab, inner_address(lab, "tap0"))
        for source, sink in (("client", "server"), ("server", "client")):
            frame(lab, source, sink, {"client": "tap0", "server": "tap0"})
        stop(client, server)
    with lab.case("a server that listens on IPv6 takes IPv4 too, and devices join its bridge"):
        for command in (
            ["link", "add", "br0", "type", "bridge"], ["address", "add", "10.9.0.1/24", "dev", "br0"],
            ["link", "set", "br0", "up"], ["tuntap", "add", "dev", "tap-cordon", "mode", "tap"],
            ["link", "set", "tap-cordon", "master", "br0", "up"],
        ):
            lab.network.run("server", "ip", *command)
        out, server, _, client = guarded(
            lab, "--ipv6", "--dev", "tap", "--network", "10.9.0.0/24", "--bridge-gateway", "10.9.0.1",
            "--bridge-pool", "10.9.0.100-10.9.0.109",
        )
        contains(server.text(), "UDPv6 link local (bound): [AF_INET6][undef]")
        address = inner_address(lab, "tap0")
        assert 100 <= int(address.split(".")[3]) <= 109, address
        both_ways(lab, address, "10.9.0.1")
        frame(lab, "client", "server", {"client": "tap0", "server": "br0"})
        stop(client, server)
        lab.network.run("server", "ip", "link", "delete", "br0")
    with lab.case("TCP over IPv4 carries IP packets, and files both ways"):
        out, server, _, client = guarded(lab, "--transport", "tcp")
        contains(server.text(), "TCPv4_SERVER link local (bound): [AF_INET]")
        both_ways(lab, inner_address(lab, "tun0"))
        stop(client, server)


def measured(lab, act, what):
    """Does `act` while packets flow; checks that none comes out of the tunnel soon after."""
    traffic = Traffic(lab)
    before = time.monotonic()
    act()
    # Past the limit, and past the five seconds that OpenVPN itself waits.
    time.sleep(LIMIT + 2)
    last = traffic.stop()[-1] - before
    print(f"  {what}: the last packet came {last:.2f} s after the command began")
    assert last < LIMIT, f"{what}: packets for {last:.2f} s"


def revoke(lab, device):
    return lambda: lab.site.ask("pki", "revoke", "--device", device)


def revocation(lab):
    with lab.case("revocation ends the session of a device within 5 s, and its keys open nothing any more"):
        out, server, guard, client = guarded(lab)
        device = device_of(out)
        measured(lab, revoke(lab, device), "revocation")
        contains(guard.text(), "session ended")
        # Whether its control-channel key, its certificate or the guard is first: it is out.
        wait_for(lambda: device in (out / "refused-devices.txt").read_text().split(), lambda: "a refused name", 10)
        server.says("TLS CRYPT V2 VERIFY SCRIPT ERROR")
        accepted = server.text().count("Peer Connection Initiated")
        time.sleep(3)
        equal(server.text().count("Peer Connection Initiated"), accepted, "connections after the revocation")
        client.end()
        stop(server)
    with lab.case("a revoked device that does not leave is cut off within 5 s"):
        out, server, guard, client = guarded(lab)
        # It hears nothing of the server any more, and goes on sending.
        deaf = ["add table inet deaf", "add chain inet deaf in { type filter hook input priority 0; }", "add rule inet deaf in iif cable drop"]
        measured(lab, lambda: (lab.network.run("client", "nft", "; ".join(deaf)), revoke(lab, device_of(out))()), "deaf client")
        lab.network.run("client", "nft", "delete", "table", "inet", "deaf")
        client.end()
        stop(server)
    with lab.case("a suspended device is out within 5 s, and back once it is resumed"):
        out, server, guard, client = guarded(lab)
        device = device_of(out)
        measured(lab, lambda: lab.site.ask("registry", "suspend", "--device", device), "suspension")
        lab.site.ask("registry", "resume", "--device", device)
        wait_for(lambda: lab.network.run("client", "ping", "-c1", "-W1", INSIDE, code=None).returncode == 0, lambda: client.text()[-2000:], 45)
        client.end()
        stop(server)
    with lab.case("a guard elsewhere follows the published lists, over TCP as well"):
        lists = f"http://127.0.0.1:{lab.public}/crl"
        out, server, guard, client = guarded(lab, "--transport", "tcp", source=("--crl-url", lists))
        measured(lab, revoke(lab, device_of(out)), "revocation by published lists")
        server.says("certificate revoked")
        client.end()
        stop(server)


def guard_gone(lab):
    with lab.case("without a guard nobody gets in, and with one that is killed everybody is out until it is back"):
        out, _ = lab.profile(extra=())
        server, client = lab.daemon("server", out), lab.daemon("client", out, EAGER)
        server.says("Need hold release from management interface")
        guard = Guard(lab, out)
        client.up()
        guard.process.child.send_signal(signal.SIGKILL)
        guard.process.child.wait()
        server.says("Triggering management signal")
        wait_for(lambda: client.text().count("process restarting") >= 1, lambda: client.text()[-2000:], 20)
        equal(lab.network.run("client", "ping", "-c1", "-W1", INSIDE, code=None).returncode, 1, "ping without a guard")
        Guard(lab, out)
        wait_for(lambda: client.text().count(client.DONE) >= 2, lambda: client.text()[-2000:], 60)
        lab.network.run("client", "ping", "-c1", "-W5", INSIDE)
        stop(client, server)


def strangers(lab):
    with lab.case("who has no control-channel key of the server's gets no answer at all"):
        out, _ = lab.profile()
        other, _ = lab.profile()
        ours = next(out.glob("*.ovpn"))
        own = ours.read_text()
        tag = re.compile(r"<tls-crypt-v2>.*</tls-crypt-v2>\n", re.S)
        server = lab.daemon("server", out)
        server.up()
        foreign = tag.search(next(other.glob("*.ovpn")).read_text()).group(0)
        for text in (tag.sub("", own), tag.sub(lambda _: foreign, own)):
            ours.write_text(text)
            client = lab.daemon("client", out, ["--connect-retry-max", "1", "--hand-window", "3"])
            client.says("TLS key negotiation failed")
            assert "TLS: Initial packet" not in client.text(), client.text()[-2000:]
            client.end()
        assert "VERIFY" not in server.text(), server.text()[-2000:]
        stop(server)
    with lab.case("the real openvpn makes keys for our server, and the server refuses those that name nobody"):
        key = lab.suite.folder / "theirs.key"
        execute("openvpn", "--tls-crypt-v2", out / "tls-crypt-v2.key", "--genkey", "tls-crypt-v2-client", key)
        ours.write_text(tag.sub(lambda _: f"<tls-crypt-v2>\n{key.read_text()}</tls-crypt-v2>\n", own))
        server = lab.daemon("server", out)
        server.up()
        client = lab.daemon("client", out, ["--connect-retry-max", "1", "--hand-window", "3"])
        server.says("TLS CRYPT V2 VERIFY SCRIPT ERROR")
        client.end()
        stop(server)


class Card:
    """A SoftHSM token with a device's key; OpenVPN asks for its PIN on a management socket."""

    def __init__(self, lab):
        self.folder = lab.suite.folder / "card"
        (self.folder / "tokens").mkdir(parents=True)
        config = self.folder / "softhsm2.conf"
        config.write_text(f"directories.tokendir = {self.folder}/tokens\nobjectstore.backend = file\nlog.level = ERROR\n")
        os.environ["SOFTHSM2_CONF"] = str(config)
        execute("softhsm2-util", "--init-token", "--free", "--label", "cameras", "--so-pin", "13579", "--pin", PIN)
        key, self.csr = self.folder / "key.pem", self.folder / "camera-card.csr"
        execute("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
        execute("openssl", "req", "-new", "-key", key, "-subj", "/CN=camera-card", "-out", self.csr)
        execute("softhsm2-util", "--import", key, "--token", "cameras", "--label", "camera-card", "--id", "01", "--pin", PIN)
        key.unlink()
        slot = execute("softhsm2-util", "--show-slots").stdout
        self.serial = re.search(r"Serial number:\s+(\S+)", slot).group(1)
        self.id = rf"SoftHSM\x20project/SoftHSM\x20v2/{self.serial}/cameras/01"

    def store(self, certificate):
        der = self.folder / "camera-card.der"
        execute("openssl", "x509", "-in", certificate, "-outform", "DER", "-out", der)
        execute(
            "pkcs11-tool", "--module", SOFTHSM, "--token-label", "cameras", "--login", "--pin", PIN, "--write-object", der,
            "--type", "cert", "--label", "camera-card", "--id", "01",
        )


def enter_pin(path, pin):
    """Answers OpenVPN's question for a PIN."""
    with socket.socket(socket.AF_UNIX) as management:
        # The file is there a moment before OpenVPN listens.
        wait_for(lambda: management.connect_ex(str(path)) == 0, lambda: "a management socket", 20)
        management.settimeout(20)
        said = ""
        while "Need 'cameras token' password" not in said:
            part = management.recv(4096).decode()
            assert part, said
            said += part
        management.sendall(f'password "cameras token" "{pin}"\n'.encode())
        # It asks for more only when the PIN was wrong.
        management.settimeout(3)
        try:
            while part := management.recv(4096).decode():
                said += part
        except TimeoutError:
            pass
        return said


def tokens(lab):
    args = ["vpn", "openvpn-profile", *lab.site.arguments()]
    with lab.case("a device's key stays on its token, and moves data both ways"):
        card = Card(lab)
        out, _ = lab.profile()
        next(out.glob("*.ovpn")).unlink()
        execute(
            CORDON, *args, "--out", out, "--device", "camera-card", "--csr", card.csr, "--pkcs11-provider", SOFTHSM,
            "--pkcs11-id", card.id,
        )
        profile = (out / "camera-card.ovpn").read_text()
        assert "<key>" not in profile and "<cert>" not in profile
        card.store(out / "camera-card.pem")
        # The name that the profile has is the one that OpenVPN finds.
        contains(execute("openvpn", "--show-pkcs11-ids", SOFTHSM).stdout, f"Serialized id:  {card.id}\n")
        server = lab.daemon("server", out)
        server.up()
        asking = ["--management", card.folder / "pin.sock", "unix", "--management-query-passwords"]
        client = lab.daemon("client", out, asking)
        enter_pin(card.folder / "pin.sock", PIN)
        client.up()
        both_ways(lab, inner_address(lab, "tun0"))
        contains(server.text(), "VERIFY OK: depth=0")
        client.end()
        stop(server)
    with lab.case("without the token OpenVPN asks for it, and says which certificate a token does not have"):
        shutil.move(card.folder / "tokens", card.folder / "pulled")
        (card.folder / "tokens").mkdir()
        for name, words in (("/cameras/01", "token-insertion-request"), ("/cameras/02", "Cannot load certificate")):
            if name == "/cameras/02":
                # It is in its place again, and has no such certificate.
                shutil.rmtree(card.folder / "tokens")
                shutil.move(card.folder / "pulled", card.folder / "tokens")
            (out / "camera-card.ovpn").write_text(profile.replace("/cameras/01", name))
            client = lab.daemon("client", out)
            client.says(words)
            contains((ROOT / "docs/openvpn.md").read_text(), words)
            client.end()


def careless(lab):
    """Orders and files that cannot be meant."""
    base = [CORDON, "vpn", "openvpn-profile", *lab.site.arguments()]
    new = [*base, "--server", OUTSIDE["server"], "--device", "camera-x", "--out", lab.suite.folder / "careless"]
    issued = len(lab.site.ask("pki", "list")["certificates"])
    with lab.case("settings that do not go together are refused before anything is issued"):
        bridge = ["--bridge-gateway", "10.8.0.1", "--bridge-pool", "10.8.0.10-10.8.0.20"]
        for wrong, words in (
            (bridge, "a bridge carries Ethernet frames"),
            (["--dev", "tap", *bridge[:2]], "--bridge-pool"),
            (["--dev", "tap", "--bridge-gateway", "10.9.0.1", *bridge[2:]], "10.9.0.1 is no host of the network 10.8.0.0/24"),
            (["--transport", "sctp"], "choose udp or tcp"),
            (["--dev", "tup"], "choose tun (IP packets) or tap"),
            (["--device", "../../camera"], "is not a device name"),
            (["--csr", "x.csr"], "--pkcs11-id"),
            (["--csr", "missing.csr", "--pkcs11-provider", SOFTHSM, "--pkcs11-id", "a/b/1/c/01"], "missing.csr"),
            (["--csr", "x", "--pkcs11-provider", SOFTHSM, "--pkcs11-id", "pkcs11:id=%01;pin-value=1"], "a PIN is a secret"),
            (["--csr", "x", "--pkcs11-provider", SOFTHSM, "--pkcs11-id", "a", "--device", "camera-y"], "the request of one device"),
        ):
            contains(execute(*new, *wrong, code=None).stderr, words)
        assert not (lab.suite.folder / "careless").exists() or not list((lab.suite.folder / "careless").iterdir())
    with lab.case("a control-channel key that others can read makes no keys for devices"):
        out, _ = lab.profile(extra=())
        (out / "tls-crypt-v2.key").chmod(0o644)
        add = [*base, "--out", out, "--device", "camera-x"]
        contains(execute(*add, code=1).stderr, "others may read it (mode 644): chmod 600")
        (out / "tls-crypt-v2.key").chmod(0o600)
        (out / "tls-crypt-v2.key").write_text("-----BEGIN OpenVPN tls-crypt-v2 server key-----\n")
        contains(execute(*add, code=1).stderr, "is damaged")
        equal(len(lab.site.ask("pki", "list")["certificates"]), issued + 2, "certificates: those of the folder")
    with lab.case("a guard refuses a server whose key others can read, or that lets devices in without it"):
        guard = [CORDON, "vpn", "openvpn-guard", "--data", lab.site.data, "--config", out / "server.conf"]
        (out / "server.conf").chmod(0o640)
        contains(execute(*guard, code=1).stderr, "others may read it (mode 640): chmod 600")
        (out / "server.conf").chmod(0o600)
        text = (out / "server.conf").read_text()
        (out / "server.conf").write_text(text.replace("management-client-auth\n", ""))
        contains(execute(*guard, code=1).stderr, "has no line `management-client-auth`")
        contains(execute(*guard[:3], "--config", out / "server.conf", "--crl-url", "https://x/crl", code=1).stderr, "management-client-auth")
        (out / "server.conf").write_text(text)
        contains(execute(*guard[:3], "--config", out / "server.conf", "--crl-url", "https://x/crl", code=1).stderr, "http://")


def run(lab):
    carriers(lab)
    strangers(lab)
    tokens(lab)
    careless(lab)
    guard_gone(lab)
    revocation(lab)
