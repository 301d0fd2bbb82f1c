"""`cordon vpn static` in two network namespaces: packets, streams, new keys, and what goes wrong."""

import os
import secrets
import signal

from tests.harness import CORDON, Process, contains, cordon, cordon_json, equal, wait_for
from tests.namespaces import OUTSIDE, Network

INSIDE = {"server": "10.8.0.1", "client": "10.8.0.2"}
INSIDE_V6 = {"server": "fd08::1", "client": "fd08::2"}
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
}

# Takes connections and sends the SHA-256 of what came in.
SINK = """
import hashlib, socket, sys
with socket.create_server((sys.argv[1], 5001), family=socket.AF_INET) as listener:
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

    def configure(self, encryption, integrity, spis=SPIS):
        sizes = SUITES[encryption, integrity]
        keys = {side: [secrets.token_hex(size) for size in sizes] for side in spis}

        def entry(side):
            cipher, mac = keys[side]
            parts = [f"spi = {spis[side]}"]
            parts += [f'encryption_key = "{cipher}"'] if cipher else []
            parts += [f'integrity_key = "{mac}"'] if mac else []
            return "{ " + ", ".join(parts) + " }"

        for side, other in OTHER.items():
            algorithm = f'integrity = "{integrity}"' if integrity else ""
            path = self.config(side)
            path.touch(mode=0o600)
            path.write_text(f"""
status = "{self.socket(side)}"
[interface]
name = "tunnel0"
addresses = ["{INSIDE[side]}/24", "{INSIDE_V6[side]}/64"]
[path]
local = "{OUTSIDE[side]}:4500"
remote = "{OUTSIDE[other]}:4500"
[sa]
encryption = "{encryption}"
{algorithm}
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

    def stop(self):
        codes = [end.stop() for end in self.ends.values()]
        self.ends = {}
        return codes

    def kill(self):
        for end in self.ends.values():
            end.kill()


def ping(network, address, size=56, count=3):
    return network.run("client", "ping", "-n", "-c", count, "-i", "0.1", "-W", "2", "-s", size, address, code=None)


def send(network, megabytes):
    """Sends random bytes through the tunnel; true when their hash came back."""
    done = network.run("client", "python3", "-c", SOURCE, INSIDE["server"], megabytes)
    return done.stdout.strip() == "True"


def suites(suite, network, tunnel):
    for encryption, integrity in SUITES:
        name = "+".join(filter(None, [encryption, integrity]))
        with suite.case(f"{name}: every size of packet, both families, a stream of {MEGABYTES} MB"):
            tunnel.configure(encryption, integrity)
            tunnel.start()
            for size in (0, 56, 1400, 3000, 9000):
                equal(ping(network, INSIDE["server"], size).returncode, 0, f"ping of {size} bytes")
                equal(ping(network, INSIDE_V6["server"], size).returncode, 0, f"IPv6 ping of {size} bytes")
            sink = Process(network.command("server", "python3", "-c", SINK, INSIDE["server"]), suite.folder / "sink.log")
            try:
                sink.child.stdout.readline()
                assert send(network, MEGABYTES), "what arrived is not what was sent"
            finally:
                sink.kill()
            server = tunnel.status("server")
            assert server["received"]["bytes"] > MEGABYTES * 1_000_000
            equal(server["inbound_drops"], [], "drops")
            equal(tunnel.stop(), [0, 0], "exit codes")


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
        before = tunnel.status("client")["associations"]
        tunnel.configure("aes-256-gcm", None, {"server": 0x2001, "client": 0x2002})
        for end in tunnel.ends.values():
            os.kill(end.child.pid, signal.SIGHUP)
        wait_for(lambda: ping(network, INSIDE["server"], count=1).returncode == 0, "a ping under new keys")
        after = tunnel.status("client")["associations"]
        outbound = lambda state: {sa["spi"] for sa in state if sa["direction"] == "out"}
        equal((outbound(before), outbound(after)), ({"00001002"}, {"00002002"}), "outbound SPI")

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
        path.unlink()
        refused("client.toml")
        done = cordon("vpn", "status", "--socket", tunnel.folder / "nothing.sock", code=1)
        contains(done.stderr, "no tunnel answers")


def run(suite):
    network = Network()
    suite.finally_do(network.remove)
    network.create()
    tunnel = Tunnel(network, suite.folder)
    suite.finally_do(tunnel.kill)
    suites(suite, network, tunnel)
    hostile(suite, network, tunnel)
    mistakes(suite, network, tunnel)
