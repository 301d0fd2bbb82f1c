"""The other side of the data plane's tests: the IPsec of the Linux kernel that this runs under.

    python3 xfrm.py FOLDER

Reads FOLDER/cases.json. For each case one network namespace opens the packet and another, with the
same association, protects the same inner packet under the next sequence number. Writes what came out
to FOLDER/answers.json.
"""

import ctypes
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

SEAL, OPEN = "seal", "open"
CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x1001
UDP_ENCAP, ESP_IN_UDP = 100, 2
# Networks behind the two ends.
INNER = {SEAL: "10.1.0.0/16", OPEN: "10.2.0.0/16"}
ENCRYPTION = {
    "NULL": "enc ecb(cipher_null) ''",
    "AES-CBC": "enc cbc(aes) {key}",
    "AES-CTR": "enc rfc3686(ctr(aes)) {key}",
    "AES-CCM": "aead rfc4309(ccm(aes)) {key} {icv}",
    "AES-GCM": "aead rfc4106(gcm(aes)) {key} 128",
    "AES-NULL-GMAC": "aead rfc4543(gcm(aes)) {key} 128",
    "CHACHA20-POLY1305": "aead rfc7539esp(chacha20,poly1305) {key} 128",
}
INTEGRITY = {
    "HMAC-SHA1-96": "hmac(sha1) {key} 96",
    "SHA2-256-128": "hmac(sha256) {key} 128",
    "SHA2-384-192": "hmac(sha384) {key} 192",
    "SHA2-512-256": "hmac(sha512) {key} 256",
    "AES-XCBC-96": "xcbc(aes) {key} 96",
}
SECONDS = 5


def shell(text):
    subprocess.run(["sh", "-ec", text], check=True)


def batch(namespace, lines):
    """Runs several commands of `ip` at once."""
    done = subprocess.run(["ip", "-n", namespace, "-batch", "-"], input="\n".join(lines) + "\n", text=True,
                          capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{done.stderr}\n" + "\n".join(lines))


class Namespace:
    """One end: an interface to the network outside and one to the network behind."""

    def __init__(self, name):
        self.name = name
        subprocess.run(["ip", "netns", "add", name], check=True)
        self.enter()
        self.outside, self.inside = tun("outside"), tun("inside")
        shell("""
          for at in all default outside inside; do
            echo 0 >/proc/sys/net/ipv4/conf/$at/rp_filter
            echo 0 >/proc/sys/net/ipv6/conf/$at/accept_dad
          done
          echo 1 >/proc/sys/net/ipv4/ip_forward
        """)
        own, other = ("1", "2") if name == SEAL else ("2", "1")
        far = INNER[OPEN if name == SEAL else SEAL]
        batch(name, [
            "link set lo up",
            "link set outside mtu 9000 up",
            "link set inside mtu 9000 up",
            f"addr add 192.0.2.{own}/24 dev outside",
            f"addr add 2001:db8::{own}/64 dev outside nodad",
            f"route add {far} dev outside",
            f"route add {INNER[name]} dev inside",
        ])
        # Opens ESP in UDP, of both families.
        self.encapsulated = [encapsulated(family) for family in (socket.AF_INET, socket.AF_INET6)]
        self.raw = {
            False: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP),
            True: socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_UDP),
        }
        self.ready = {
            False: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW),
            True: socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW),
        }

    def enter(self):
        with open(f"/run/netns/{self.name}") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    def use(self, case):
        """Installs the association and policies of a case, alone."""
        source, destination, mode = case["source"], case["destination"], mode_of(case)
        sealing = self.name == SEAL
        algorithms = []
        if case["integrity"]:
            name, key, bits = INTEGRITY[case["integrity"]].split()
            algorithms += ["auth-trunc", name, "0x" + case["integrity_key"], bits]
        if case["encryption"]:
            words = ENCRYPTION[case["encryption"]].format(
                key="0x" + case["encryption_key"], icv=8 * case["encryption_icv"])
            algorithms.append(words)
        flags = ["align4"] if case["protocol"] == "ah" and not case["v6"] else []
        # An inner packet of another family than the outer one.
        flags += ["af-unspec"] if case["tunnel"] else []
        flags += ["esn"] if case["esn"] else []
        state = [f"xfrm state add src {source} dst {destination} proto {case['protocol']} spi {case['spi']}",
                 f"mode {mode} replay-window 64"]
        # The packet to be opened is the next one; the one to be made is the one after that.
        number = case["lower"] if sealing else case["lower"] - 1
        state.append(f"replay-oseq {number}" if sealing else f"replay-seq {number}")
        if case["esn"]:
            state.append(f"replay-oseq-hi {case['upper']}" if sealing else f"replay-seq-hi {case['upper']}")
        state += [f"flag {' '.join(flags)}"] if flags else []
        state += algorithms
        state += ["encap espinudp 4500 4500 0.0.0.0"] if case["udp"] else []
        template = f"tmpl src {source} dst {destination} proto {case['protocol']} mode {mode}"
        ends = f"src {INNER[SEAL]} dst {INNER[OPEN]}" if case["tunnel"] else f"src {source} dst {destination}"
        directions = ["out"] if sealing else ["in", "fwd"]
        policies = [f"xfrm policy add {ends} dir {way} priority 2 {template}" for way in directions]
        if case["udp"] and not sealing:
            # What carries protected packets is itself not protected.
            policies.append(f"xfrm policy add src {source} dst {destination} proto udp dport 4500 dir in priority 1")
        batch(self.name, ["xfrm state flush", "xfrm policy flush", " ".join(state), *policies])

    def counters(self):
        self.enter()
        rows = [line.split() for line in Path("/proc/net/xfrm_stat").read_text().splitlines()]
        return {name: int(value) for name, value in rows if value != "0"}


def mode_of(case):
    return "tunnel" if case["tunnel"] else "transport"


def tun(name):
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN_NO_PI))
    return descriptor


def encapsulated(family):
    port = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        port.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    port.setsockopt(socket.IPPROTO_UDP, UDP_ENCAP, ESP_IN_UDP)
    port.bind(("", 4500))
    return port


def drain(descriptor):
    try:
        while True:
            os.read(descriptor, 65536)
    except BlockingIOError:
        pass


def wanted(descriptor, accept):
    """The first packet that is not noise (router solicitations and the like)."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if select.select([descriptor], [], [], 0.2)[0]:
            packet = os.read(descriptor, 65536)
            if accept(packet):
                return packet
    return b""


def from_to(source, destination):
    """Accepts packets between two addresses."""
    ends = [socket.inet_pton(socket.AF_INET6 if ":" in end else socket.AF_INET, end) for end in (source, destination)]
    both = b"".join(ends)
    at = 8 if len(both) == 32 else 12
    return lambda packet: packet[at:at + len(both)] == both


def opened(end, case):
    """What the kernel makes of our packet. In transport mode over IPv6: from the UDP header on."""
    outer = bytes.fromhex(case["outer"])
    inner = bytes.fromhex(case["inner"])
    if case["tunnel"]:
        drain(end.inside)
        os.write(end.outside, outer)
        return wanted(end.inside, lambda packet: packet[12:20] == inner[12:20])
    raw = end.raw[case["v6"]]
    raw.setblocking(False)
    drain(raw.fileno())
    os.write(end.outside, outer)
    ports = bytes(inner[40:44] if case["v6"] else inner[20:24])
    at = 0 if case["v6"] else 20
    return wanted(raw.fileno(), lambda packet: packet[at:at + 4] == ports)


def sealed(end, case):
    """The kernel's own packet around the same inner one."""
    inner = bytes.fromhex(case["inner"])
    drain(end.outside)
    if case["tunnel"]:
        os.write(end.inside, inner)
    else:
        end.ready[case["v6"]].sendto(inner, (case["destination"], 0))
    return wanted(end.outside, from_to(case["source"], case["destination"]))


def answer(ends, case):
    for end in ends.values():
        end.use(case)
    result = {"opened": opened(ends[OPEN], case).hex(), "fresh": sealed(ends[SEAL], case).hex()}
    if not all(result.values()):
        result["counters"] = {name: end.counters() for name, end in ends.items()}
    return result


def main(folder):
    # A kernel without modules has all of it built in.
    if Path("/proc/modules").exists():
        subprocess.run(["modprobe", "-a", "tun", "xfrm_user", "esp4", "esp6", "ah4", "ah6"], check=True)
    Path("/run/netns").mkdir(exist_ok=True)
    ends = {name: Namespace(name) for name in (SEAL, OPEN)}
    cases = json.loads((Path(folder) / "cases.json").read_text())
    answers = [answer(ends, case) for case in cases]
    (Path(folder) / "answers.json").write_text(json.dumps(answers))
    print(f"{len(answers)} cases under Linux {os.uname().release}")


if __name__ == "__main__":
    main(sys.argv[1])
