"""`cordon vpn static` with the kernel's IPsec at one end and our own data plane at the other.

    python3 tests/kernel/machine.py FOLDER /usr/bin/python3 tests/kernel/vpn.py target/debug/cordon

Runs under a kernel that has IPsec; makes two network namespaces of its own and removes them.
"""

import contextlib
import ctypes
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

CORDON = Path(sys.argv[1]).resolve()
OURS, LINUX = "ours", "linux"
OTHER = {OURS: LINUX, LINUX: OURS}
OUTSIDE = {4: {OURS: "192.0.2.1", LINUX: "192.0.2.2"}, 6: {OURS: "2001:db8::1", LINUX: "2001:db8::2"}}
INSIDE = {4: {OURS: "10.8.0.1", LINUX: "10.8.0.2"}, 6: {OURS: "fd08::1", LINUX: "fd08::2"}}
# Key lengths of encryption and integrity, in bytes.
SUITES = {
    ("aes-256-gcm", None): (36, 0),
    ("chacha20-poly1305", None): (36, 0),
    ("aes-128-cbc", "hmac-sha2-256-128"): (16, 32),
    ("null", "hmac-sha2-512-256"): (0, 64),
    ("aes-128-cbc", "aes-xcbc-96"): (16, 16),
    (None, "hmac-sha2-256-128"): (0, 32),
    ("aes-256-ccm", None): (35, 0),
    ("aes-128-ccm-8", None): (19, 0),
    ("aes-256-ctr", "hmac-sha2-256-128"): (36, 32),
    ("aes-256-gmac", None): (36, 0),
    ("aes-192-gcm", None): (28, 0),
}
# Suite, mode, carrier, address family outside, 64-bit sequence numbers.
CASES = [
    (("aes-256-gcm", None), "tunnel", "udp", 4, "true"),
    (("aes-128-cbc", "hmac-sha2-256-128"), "tunnel", "udp", 6, "true"),
    (("chacha20-poly1305", None), "tunnel", "none", 4, "true"),
    ((None, "hmac-sha2-256-128"), "tunnel", "none", 4, "true"),
    (("aes-256-gcm", None), "transport", "udp", 4, "true"),
    (("null", "hmac-sha2-512-256"), "transport", "none", 6, "false"),
    (("aes-128-cbc", "aes-xcbc-96"), "tunnel", "udp", 4, "true"),
    ((None, "hmac-sha2-256-128"), "transport", "none", 4, "true"),
    (("aes-256-ccm", None), "tunnel", "udp", 4, "true"),
    (("aes-128-ccm-8", None), "transport", "none", 6, "false"),
    (("aes-256-ctr", "hmac-sha2-256-128"), "tunnel", "none", 6, "true"),
    (("aes-256-gmac", None), "tunnel", "udp", 4, "true"),
    (("aes-192-gcm", None), "tunnel", "none", 4, "true"),
]
SECONDS = 30
CLONE_NEWNET = 0x40000000
KILOBYTES = 200

def shell(text):
    subprocess.run(["sh", "-ec", text], check=True)


def inside(side, *command):
    return ["ip", "netns", "exec", side, *map(str, command)]


def output(side, *command):
    done = subprocess.run(inside(side, *command), capture_output=True, text=True)
    assert done.returncode == 0, f"{side}: {command}: {done.stdout}{done.stderr}"
    return done.stdout


def wait_for(what, probe, seconds=None):
    seconds = seconds or SECONDS
    end = time.monotonic() + seconds
    while not probe():
        assert time.monotonic() < end, f"not within {seconds} s: {what() if callable(what) else what}"
        time.sleep(0.1)


def enter(namespace):
    with open(namespace) as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


@contextlib.contextmanager
def network_of(side):
    """Sockets that are opened inside belong to that side."""
    enter(f"/run/netns/{side}")
    try:
        yield
    finally:
        enter(f"/proc/{os.getppid()}/ns/net")


def stream(source, sink, address):
    """Sends random bytes over TCP and compares what arrives."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    data = os.urandom(KILOBYTES * 1024)
    with contextlib.ExitStack() as stack:
        with network_of(sink):
            listener = stack.enter_context(socket.create_server((address, 5001), family=family))
        with network_of(source):
            sending = stack.enter_context(socket.create_connection((address, 5001), SECONDS))
        receiving = stack.enter_context(listener.accept()[0])
        receiving.settimeout(SECONDS)

        def send():
            sending.sendall(data)
            sending.shutdown(socket.SHUT_WR)
        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        arrived = b""
        while part := receiving.recv(65536):
            arrived += part
        thread.join()
    assert arrived == data, f"{len(arrived)} other bytes arrived"


class Tunnel:
    """One case: both ends' files and processes."""

    def __init__(self, case, folder):
        self.suite, self.mode, self.carrier, self.family, self.extended = case
        self.folder = folder
        self.spi = 0x1000
        self.processes = {}
        self.configure()

    def configure(self):
        """New keys and SPIs for both ends."""
        sizes = SUITES[self.suite]
        entries = {}
        for side in OTHER:
            self.spi += 1
            keys = zip(("encryption_key", "integrity_key"), sizes)
            parts = [f'{name} = "{secrets.token_hex(size)}"' for name, size in keys if size]
            entries[side] = "{ " + ", ".join([f"spi = {self.spi}", *parts]) + " }"
        encryption, integrity = self.suite
        algorithms = [f'encryption = "{encryption}"'] if encryption else ['protocol = "ah"']
        algorithms += [f'integrity = "{integrity}"'] if integrity else []
        for side, other in OTHER.items():
            addresses = f'addresses = ["{INSIDE[4][side]}/24", "{INSIDE[6][side]}/64"]'
            file = self.file(side)
            file.touch(mode=0o600)
            file.write_text("\n".join([
                f'status = "{self.folder}/{side}.sock"',
                'backend = "kernel"' if side == LINUX else "",
                "[firewall]",
                'enforce = "off"',
                "[interface]",
                'name = "tunnel0"',
                addresses if self.mode == "tunnel" else "",
                "[path]",
                f'local = "{OUTSIDE[self.family][side]}"',
                f'remote = "{OUTSIDE[self.family][other]}"',
                f'encapsulation = "{self.carrier}"',
                "[sa]",
                f'sequence_numbers = "{self.folder}/numbers-{side}"',
                *algorithms,
                f'mode = "{self.mode}"',
                f"extended_sequence = {self.extended}",
                f"outbound = {entries[side]}",
                f"inbound = {entries[other]}",
                "[rekey]",
                "switch_after = 2.0",
                "drain = 1.0",
            ]))

    def file(self, side):
        return self.folder / f"{side}.toml"

    def log(self, side):
        return (self.folder / f"{side}.log").read_text()

    def start(self):
        for side in OTHER:
            command = inside(side, CORDON, "vpn", "static", "--config", self.file(side))
            with open(self.folder / f"{side}.log", "w") as log:
                self.processes[side] = subprocess.Popen(command, stdout=log, stderr=log)
        for side, process in self.processes.items():
            def up():
                assert process.poll() is None, f"{side} ended:\n{self.log(side)}"
                return "tunnel up" in self.log(side)
            wait_for(f"{side} is up", up)

    def status(self, side):
        # As `cordon vpn status` asks; starting it here takes a second each time.
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(SECONDS)
            asking.connect(f"{self.folder}/{side}.sock")
            answer = b""
            while part := asking.recv(65536):
                answer += part
        return json.loads(answer)

    def spis(self, side):
        """The associations of one end, by direction."""
        found = {"in": [], "out": []}
        for sa in self.status(side)["associations"]:
            found[sa["direction"]].append(sa["spi"])
        return found

    def carry(self):
        """Packets of all sizes and a stream in each direction."""
        families = (4, 6) if self.mode == "tunnel" else (self.family,)
        for family in families:
            addresses = INSIDE[family] if self.mode == "tunnel" else OUTSIDE[family]
            output(OURS, "ping", "-n", "-q", "-c", 2, "-i", "0.1", "-W", 5, "-s", 1200, addresses[LINUX])
            for side, other in OTHER.items():
                stream(other, side, addresses[side])

    def rekey(self):
        """New keys under traffic: no ping is lost, and the old associations go.

        The pings outlast `switch_after`: without a packet under the new key the old one stays.
        """
        addresses = INSIDE[4] if self.mode == "tunnel" else OUTSIDE[self.family]
        before = {side: self.spis(side) for side in OTHER}
        ping = subprocess.Popen(inside(OURS, "ping", "-n", "-q", "-c", 60, "-i", "0.1", addresses[LINUX]),
                                stdout=subprocess.PIPE, text=True)
        self.configure()
        for process in self.processes.values():
            process.send_signal(signal.SIGHUP)
            time.sleep(0.5)

        def over():
            state = {side: self.spis(side) for side in OTHER}
            return all(len(spis) == 1 and spis != before[side][way]
                       for side in OTHER for way, spis in state[side].items())
        wait_for("only the new keys are left", over)
        text = ping.communicate()[0]
        assert " 0% packet loss" in text, f"{text}\n{self.log(LINUX)}"

    def check_status(self):
        state = self.status(LINUX)
        for way in ("sent", "received"):
            assert state[way]["bytes"] > KILOBYTES * 1024, state
        assert state["offload"] == "kernel" and state["inbound_drops"] == [], state
        if (self.mode, self.carrier) == ("tunnel", "none"):
            # Exactly as the kernel tells others.
            table = output(LINUX, "ip", "-s", "xfrm", "state")
            for sa in state["associations"]:
                assert f"spi 0x{sa['spi']}" in table, table

    def stop(self):
        for process in self.processes.values():
            process.terminate()
        codes = [process.wait(SECONDS) for process in self.processes.values()]
        assert codes == [0, 0], f"{codes}\n{self.log(OURS)}\n{self.log(LINUX)}"
        for table in ("state", "policy"):
            left = output(LINUX, "ip", "xfrm", table)
            # Somebody else's is not touched.
            assert left.count("198.51.100.7") >= 1 and "192.0.2" not in left and "2001:db8" not in left, left
        assert "tunnel0" not in output(LINUX, "ip", "link")

    def kill(self):
        for process in self.processes.values():
            process.kill()
            process.wait()


def cable():
    """Two network namespaces and a cable between them."""
    # A kernel without modules has all of it built in.
    shell("[ ! -e /proc/modules ] || modprobe -a tun veth; mkdir -p /run/netns")
    for side in OTHER:
        shell(f"ip netns add {side}; ip -n {side} link set lo up")
    shell(f"ip -n {OURS} link add cable type veth peer name cable netns {LINUX}")
    for side in OTHER:
        shell(f"""
          ip -n {side} addr add {OUTSIDE[4][side]}/24 dev cable
          ip -n {side} addr add {OUTSIDE[6][side]}/64 dev cable nodad
          ip -n {side} link set cable up
        """)


def network():
    """The same, with Linux's IPsec."""
    shell("[ ! -e /proc/modules ] || modprobe -a xfrm_user xfrm_interface esp4 esp6 ah4 ah6")
    cable()
    # Somebody else's: it must be there afterwards.
    shell(f"""
      ip -n {LINUX} xfrm state add src 198.51.100.7 dst 198.51.100.8 proto esp spi 0x1001 mode tunnel \\
        enc 'cbc(aes)' 0x{secrets.token_hex(16)} auth 'hmac(sha256)' 0x{secrets.token_hex(32)}
      ip -n {LINUX} xfrm policy add src 198.51.100.7 dst 198.51.100.8 dir out priority 17230 action allow
    """)


def replayed(tunnel):
    """A packet sent again is dropped and counted: plain ESP, recorded on our cable."""
    with contextlib.ExitStack() as stack:
        everything = socket.htons(3)
        with network_of(OURS):
            cable = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, everything))
        cable.bind(("cable", 0))
        cable.settimeout(SECONDS)
        output(OURS, "ping", "-n", "-q", "-c", 1, INSIDE[4][LINUX])
        outward = socket.inet_aton(OUTSIDE[4][OURS]) + socket.inet_aton(OUTSIDE[4][LINUX])
        while True:
            frame = cable.recv(2000)
            if frame[23] == 50 and frame[26:34] == outward:
                break
        cable.send(frame)
        cable.send(frame[:-1] + bytes([frame[-1] ^ 1]))
        changed = bytearray(frame)
        # The sequence number is new to the window, so that the integrity value decides.
        number = int.from_bytes(frame[38:42], "big") + 500
        changed[38:42] = number.to_bytes(4, "big")
        cable.send(changed)
    expected = {"replay_duplicate": 2, "integrity_failed": 1}
    drops = lambda: {drop["cause"]: drop["packets"] for drop in tunnel.status(LINUX)["inbound_drops"]}
    wait_for(f"{expected}", lambda: drops() == expected)


def refusals(folder):
    """What is in use is refused, and nothing is left of the attempt."""
    tunnel = Tunnel(CASES[2], folder)
    taken = f"src {OUTSIDE[4][OURS]} dst {OUTSIDE[4][LINUX]} proto esp spi 0x1001"
    key = f"aead 'rfc4106(gcm(aes))' 0x{secrets.token_hex(20)} 128"
    shell(f"ip -n {LINUX} xfrm state add {taken} mode tunnel {key}")
    done = subprocess.run(inside(LINUX, CORDON, "vpn", "static", "--config", tunnel.file(LINUX)),
                          capture_output=True, text=True)
    assert done.returncode == 1 and "association 00001001 is there already" in done.stderr, done
    shell(f"ip -n {LINUX} xfrm state delete {taken}")
    left = output(LINUX, "ip", "xfrm", "policy") + output(LINUX, "ip", "link")
    assert "192.0.2" not in left and "tunnel0" not in left, left


def main():
    network()
    for number, case in enumerate(CASES):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            tunnel = Tunnel(case, Path(folder))
            try:
                tunnel.start()
                tunnel.carry()
                tunnel.check_status()
                if number in (0, 4):
                    tunnel.rekey()
                if number == 2:
                    replayed(tunnel)
                tunnel.stop()
            except BaseException:
                for side in OTHER:
                    print(f"{case}\n{side}:\n{tunnel.log(side)}")
                for table in ("state", "policy"):
                    print(subprocess.run(inside(LINUX, "ip", "-s", "xfrm", table), capture_output=True, text=True).stdout)
                print(subprocess.run(inside(LINUX, "cat", "/proc/net/xfrm_stat"), capture_output=True, text=True).stdout)
                raise
            finally:
                tunnel.kill()
        print(f"ok  {' '.join(str(part) for part in case)}  {time.monotonic() - began:.1f} s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        refusals(Path(folder))
    print("ok  what is in use is refused", flush=True)


if __name__ == "__main__":
    main()
