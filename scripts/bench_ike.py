"""Handshakes of IKE responders compared: see scripts/bench-ike."""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.measure import machine  # noqa: E402
from tests import ike_pair  # noqa: E402
from tests.runner import Suite  # noqa: E402
from tests.spoof import SPOOFER, cpu, first_message, resident  # noqa: E402

# Name, kind of certificate, IKE proposal, and whether charon 5.9 has it.
KINDS = [
    ("P-256, X25519", "ecdsa", "aes128gcm16-prfsha256-x25519", True),
    ("RSA-2048, X25519", "rsa", "aes128gcm16-prfsha256-x25519", True),
    ("RSA-2048, MODP-2048", "rsa", "aes128gcm16-prfsha256-modp2048", True),
    ("RSA-4096, X25519", "rsa4096", "aes128gcm16-prfsha256-x25519", True),
    ("RSA-4096, MODP-2048", "rsa4096", "aes128gcm16-prfsha256-modp2048", True),
    ("P-256, X25519 + ML-KEM-768", "ecdsa", "aes128gcm16-prfsha256-x25519-ke1_mlkem768", False),
]
ESP = "aes128gcm16-x25519"
# Kind of certificate and bits of its key, where the signature is most of a handshake.
RSA_BITS = {"rsa": 2048, "rsa4096": 4096}
SPOOFED = 100_000


class Ours:
    """Our responder, on charon's side of the network."""

    def __init__(self, lab, ike, pki, extra=()):
        # With the authority between, where there is one.
        parts = [pki / name for name in ("theirs.pem", "issuing.pem") if (pki / name).exists()]
        chain = pki / "theirs-chain.pem"
        chain.write_text("".join(part.read_text() for part in parts))
        files = ["--cert", chain, "--key", pki / "theirs.key", "--ca", pki / "ca.pem"]
        line = [ike_pair.PEER, "--local", ike_pair.THEIRS, "--remote", ike_pair.OURS, "--local-id", "theirs.example.org"]
        line += ["--remote-id", "ours.example.org", "--ike", ike, "--esp", ESP, *files]
        line += ["--local-ts", ike_pair.NETS["theirs"], "--remote-ts", ike_pair.NETS["ours"]]
        # Whoever measures comes more often than a peer may.
        line += ["--often", "yes", *extra]
        line = lab.network.command("server", *(str(part) for part in line))
        # What it says is not read in time to matter, so it goes nowhere.
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        time.sleep(0.5)

    def stop(self):
        self.process.terminate()
        self.process.wait(10)
        self.process.stdin.close()


def measure(lab, responder, ike, pki, count):
    """Seconds of processor time for one handshake, the end of the tunnel included, and by the clock."""
    peer = ike_pair.Peer(lab, ike, ESP, pki)
    try:
        # The first one loads what is loaded once.
        peer.tell("storm 3")
        peer.expect("storm-over", 1, 30)
        before, start = cpu(responder.process.pid), time.monotonic()
        peer.tell(f"storm {count}")
        peer.expect("storm-over", 2, 600)
        return (cpu(responder.process.pid) - before) / count, (time.monotonic() - start) / count
    finally:
        peer.stop()


def signature(bits):
    """Seconds of processor time that OpenSSL takes for one RSA signature."""
    line = ["openssl", "speed", "-mr", "-seconds", "1", f"rsa{bits}"]
    said = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    result = next(line for line in said.splitlines() if line.startswith("+F2:"))
    return 1 / float(result.split(":")[3])


def flood(lab, pki):
    """KiB of our responder before and after spoofed first messages from many networks; and one handshake
    of an honest peer meanwhile."""
    ike = KINDS[0][2]
    responder = Ours(lab, ike, pki)
    try:
        honest = ike_pair.Peer(lab, ike, ESP, pki)
        before, used = resident(responder.process.pid), cpu(responder.process.pid)
        command = lab.network.command("client", sys.executable, "-c", SPOOFER, ike_pair.THEIRS)
        spoofer = subprocess.Popen(command, stdin=subprocess.PIPE)
        for number in range(SPOOFED):
            # 172.16.0.0/12: no answer finds its way.
            sender = socket.inet_aton("172.16.0.0")[:1] + (0x100000 + number * 10 % 0x100000).to_bytes(3, "big")
            message = first_message(number)
            spoofer.stdin.write(sender + len(message).to_bytes(2, "big") + message)
            if number == SPOOFED // 2:
                honest.tell("storm 1")
        spoofer.stdin.close()
        spoofer.wait()
        honest.expect("storm-over", 1, 60)
        honest.stop()
        time.sleep(1)
        after, spent = resident(responder.process.pid), cpu(responder.process.pid) - used
        return {"messages": SPOOFED, "kib_before": before, "kib_after": after, "cpu_seconds": round(spent, 2),
                "honest_handshake": True}
    finally:
        responder.stop()


def rounds(lab, arguments):
    results = []
    for name, kind, ike, both in KINDS:
        pki, found, signatures = lab.pki(kind), {"ours": [], "charon": []}, []
        for _ in range(arguments.rounds):
            if kind in RSA_BITS:
                signatures.append(signature(RSA_BITS[kind]))
            responder = Ours(lab, ike, pki)
            try:
                found["ours"].append(measure(lab, responder, ike, pki, arguments.count))
            finally:
                responder.stop()
            if both:
                responder = ike_pair.Charon(lab, ike, ESP, pki, level=0)
                try:
                    found["charon"].append(measure(lab, responder, ike, pki, arguments.count))
                finally:
                    responder.stop()
        entry = {"kind": name}
        for who, values in found.items():
            if values:
                seconds = [value[0] for value in values]
                entry[who] = {
                    "cpu_ms": round(1000 * statistics.median(seconds), 3),
                    "cpu_ms_all": [round(1000 * second, 3) for second in seconds],
                    "per_second_of_one_core": round(1 / max(statistics.median(seconds), 1e-6)),
                    "connection_ms": round(1000 * statistics.median(value[1] for value in values), 2),
                }
        if both:
            entry["ratio"] = round(entry["charon"]["cpu_ms"] / max(entry["ours"]["cpu_ms"], 1e-3), 2)
        if signatures:
            handshakes = [value[0] for value in found["ours"]]
            ratios = [handshake / alone for handshake, alone in zip(handshakes, signatures)]
            entry["signature_ms"] = round(1000 * statistics.median(signatures), 3)
            entry["in_signatures"] = [round(value, 2) for value in (statistics.median(ratios), min(ratios), max(ratios))]
        results.append(entry)
    return results


def show(results, flood_result):
    print("responder, processor time for one handshake (median) | ours | charon | ratio of rates")
    for entry in results:
        charon = entry.get("charon")
        theirs = f"{charon['cpu_ms']} ms, {charon['per_second_of_one_core']}/s" if charon else "does not have it"
        ours = f"{entry['ours']['cpu_ms']} ms, {entry['ours']['per_second_of_one_core']}/s"
        print(f"{entry['kind']} | {ours} | {theirs} | {entry.get('ratio', '')}")
    print("our handshakes in signatures of OpenSSL's with the same key (median, least, greatest): " + "; ".join(
        f"{entry['kind']} {entry['in_signatures']}" for entry in results if "in_signatures" in entry))
    print("connection time by the clock, initiator ours (ms): " + ", ".join(
        f"{entry['kind']} {entry['ours']['connection_ms']}" for entry in results))
    print(f"{flood_result['messages']} spoofed first messages: {flood_result['kib_before']} KiB before, "
          f"{flood_result['kib_after']} KiB after, {flood_result['cpu_seconds']} s of processor time")


def main():
    parser = argparse.ArgumentParser(description="Compares IKE responders.")
    parser.add_argument("--count", type=int, default=200, help="handshakes of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    suite = Suite("bench-ike")
    try:
        lab = ike_pair.Lab(suite)
        results = rounds(lab, arguments)
        flood_result = flood(lab, lab.pki("ecdsa"))
    finally:
        suite.close()
    if arguments.json:
        print(json.dumps({"machine": machine(), "handshakes": results, "spoofed": flood_result}))
    else:
        show(results, flood_result)


if __name__ == "__main__":
    main()
