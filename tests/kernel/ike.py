"""`cordon vpn up` where Linux has ESP: with charon over the kernel's IPsec.

    python3 tests/kernel/machine.py FOLDER /usr/bin/python3 tests/kernel/ike.py target/debug/cordon [WORD...]

Runs under a kernel that has IPsec; makes two network namespaces of its own. With words, only the cases
whose names have one of them.
"""

import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from daemons import (
    INSIDE, LINUX, OURS, Charon, Daemon, Program, address_on_loopback, carries, nothing_is_left, padded_sizes, run_cases,
)
from vpn import inside, network, output, wait_for

GCM = 'esp = [{ encryption = ["aes-128-gcm"], groups = ["x25519"], extended_sequence = %s }]'
CBC = 'esp = [{ encryption = ["aes-256-cbc"], integrity = ["hmac-sha2-256-128"], groups = ["x25519"], extended_sequence = %s }]'
ALGORITHMS = {
    "AES-GCM": ("aes128gcm16-x25519", GCM),
    "AES-CBC with SHA-2": ("aes256-sha256-x25519", CBC),
    "ChaCha20-Poly1305": ("chacha20poly1305-x25519", GCM.replace("aes-128-gcm", "chacha20-poly1305")),
    "AES-CCM-8": ("aes128ccm8-x25519", GCM.replace("aes-128-gcm", "aes-128-ccm-8")),
    "AES-CCM": ("aes256ccm16-x25519", GCM.replace("aes-128-gcm", "aes-256-ccm")),
    "AES-CTR": ("aes256ctr-sha256-x25519", CBC.replace("aes-256-cbc", "aes-256-ctr")),
    "AES-GMAC": ("aes256gmac-x25519", GCM.replace("aes-128-gcm", "aes-256-gmac")),
    "NULL with SHA-2": ("null-sha256-x25519", CBC.replace("aes-256-cbc", "null")),
    "AES-CBC with SHA-512": ("aes128-sha512-x25519", CBC.replace("aes-256-cbc", "aes-128-cbc").replace("256-128", "512-256")),
    "AES-CBC with SHA-1": ("aes256-sha1-x25519", CBC.replace("hmac-sha2-256-128", "hmac-sha1-96")),
    "AES-XCBC": ("aes128-aesxcbc-x25519", CBC.replace("aes-256-cbc", "aes-128-cbc").replace("hmac-sha2-256-128", "aes-xcbc-96")),
    "AES-GCM with 192 bits": ("aes192gcm16-x25519", GCM.replace("aes-128-gcm", "aes-192-gcm")),
}
CASES = [
    ("tunnel", "udp", "AES-GCM", False, OURS),
    ("tunnel", "native", "AES-GCM", True, LINUX),
    ("transport", "native", "AES-CBC with SHA-2", False, OURS),
    ("transport", "auto", "ChaCha20-Poly1305", True, LINUX),
    ("transport", "udp", "AES-GCM", False, OURS),
    ("tunnel", "udp", "AES-CCM-8", True, OURS),
    ("transport", "native", "AES-CCM", False, LINUX),
    ("tunnel", "native", "AES-CTR", True, LINUX),
    ("tunnel", "udp", "AES-GMAC", True, OURS),
    ("transport", "native", "AES-GMAC", False, LINUX),
    ("tunnel", "udp", "AES-GCM with 192 bits", False, LINUX),
    ("tunnel", "udp", "NULL with SHA-2", True, OURS),
    ("tunnel", "native", "AES-CBC with SHA-512", True, LINUX),
    ("transport", "native", "AES-CBC with SHA-1", False, OURS),
    ("tunnel", "udp", "AES-XCBC", True, OURS),
    ("transport", "native", "AES-XCBC", False, LINUX),
]


def beside_charon(mode, encapsulation, algorithm, esn, by, folder):
    """Ours in user space; charon has the kernel's IPsec."""
    theirs, ours = ALGORITHMS[algorithm]
    theirs += "-esn" if esn else ""
    line = ours % ("true" if esn else "false")
    with address_on_loopback(mode), Charon(folder, mode, encapsulation, theirs) as charon:
        with Daemon(OURS, folder, mode, encapsulation, line, starts=by == OURS) as daemon:
            if by == LINUX:
                charon.initiate()
            child = daemon.up()
            assert (child["mode"], child["in_udp"]) == (mode, encapsulation == "udp"), child
            carries(mode)
            charon.rekey("child")
            charon.rekey("ike")
            wait_for("new keys", lambda: daemon.counters()["ike_rekeys"] == 1)
            carries(mode)
            # Those that count here are the kernel's own.
            table = output(LINUX, "ip", "-s", "xfrm", "state")
            assert ("espinudp" in table) == (encapsulation == "udp"), table
    nothing_is_left(OURS)


def padding(folder):
    """Each pads what it sends; the other takes the padding."""
    with address_on_loopback(), Charon(folder, child="tfc_padding = 1100"):
        with Daemon(OURS, folder, esp=GCM % "false", starts=True, child="tfc_padding = 1200") as daemon:
            daemon.up()
            ours, theirs = padded_sizes()
            # The same algorithms, so the rest is the same.
            assert len(ours) == len(theirs) == 1 and max(ours) - max(theirs) == 100, (ours, theirs)
            carries()
    nothing_is_left(OURS)


# Ours and strongSwan's `start`: its traps are the kernel's.
STARTS = [("none", "trap"), ("trap", "trap"), ("start", "trap"), ("trap", "start"), ("start", "start")]
# Time after which nothing may change any more: the side that is not to act has waited for the other (10 s).
SETTLED = 13


def starting(ours, theirs, folder):
    """Packets of both sides at once, and whoever starts: one IKE SA with one Child SA stays."""
    with address_on_loopback(), Charon(folder, child=f"start_action = {theirs}") as charon:
        with Daemon(OURS, folder, esp=GCM % "false", starts=ours) as daemon:
            sides = [(LINUX, OURS), (OURS, LINUX)] if ours != "none" else [(LINUX, OURS)]
            line = lambda side, other: inside(side, "ping", "-n", "-q", "-c", 5, "-i", "0.3", "-W", 2, INSIDE[other])
            flows = [Program(line(*ends), folder / f"pings-{ends[0]}") for ends in sides]
            for flow in flows:
                flow.process.wait(60)
            daemon.up()
            time.sleep(SETTLED)
            carries()
            count = daemon.counters()["established"]
            assert count <= 2, f"{count} IKE SAs came up: {daemon.log()[-3000:]}"
            time.sleep(3)
            assert daemon.counters()["established"] == count, daemon.log()[-3000:]
            table = charon.control("--list-sas")
            there = (len(daemon.status()["ike"]["sas"]), len(daemon.children()), table.count("ESTABLISHED"), table.count("INSTALLED"))
            assert there == (1, 1, 1, 1), f"{there}\n{table}\n{daemon.log()[-3000:]}"
    nothing_is_left(OURS)


def main():
    network()
    name = lambda case: "beside charon: " + " ".join(map(str, case))
    cases = [(name(case), partial(beside_charon, *case)) for case in CASES]
    cases.append(("beside charon: traffic-flow padding both ways", padding))
    for ours, theirs in STARTS:
        cases.append((f"beside charon: we have start = {ours} and it has {theirs}", partial(starting, ours, theirs)))
    return run_cases(cases)


if __name__ == "__main__":
    sys.exit(main())
