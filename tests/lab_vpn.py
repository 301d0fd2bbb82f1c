"""A laboratory build gives Wireshark its keys, and tshark reads what was captured outside.

    cargo build -p cordon --features lab
    CORDON=target/debug/cordon .venv/bin/python -m tests.lab_vpn

Needs tshark and tcpdump. Apart from the other suites because a build for use refuses this.
"""

import importlib
import os
import signal
import sys
import time

from tests.harness import Process, cordon, equal, run as run_command
from tests.namespaces import Network
from tests.runner import main
from tests.vpn import INSIDE, Tunnel, ping

# Suites, and whether sequence numbers have 64 bits; tshark 4.0 cannot check the integrity of those.
SUITES = [
    ("aes-256-gcm", None, False),
    ("aes-256-gcm", None, True),
    ("aes-128-cbc", "hmac-sha2-256-128", False),
    ("null", "hmac-sha2-256-128", False),
]


def read(capture, keys, check):
    """ICMP type and whether the integrity value is right, of each packet."""
    fields = ["-T", "fields", "-e", "icmp.type", "-e", "esp.icv_good"]
    options = ["-o", "esp.enable_encryption_decode:TRUE", "-o", f"esp.enable_authentication_check:{check}"]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(keys)}
    lines = run_command("tshark", "-r", capture, *options, *fields, env=environment).stdout.splitlines()
    return [line.split("\t") for line in lines if line.strip()]


def run(suite):
    network = Network()
    suite.finally_do(network.remove)
    network.create()
    tunnel = Tunnel(network, suite.folder)
    suite.finally_do(tunnel.kill)
    for encryption, integrity, extended in SUITES:
        name = f"{encryption} {integrity or ''} extended={extended}"
        with suite.case(f"tshark reads {name}"):
            folder = suite.folder / name.replace(" ", "-")
            keys = folder / "wireshark"
            keys.mkdir(parents=True)
            tunnel.configure(encryption, integrity, sa=f"extended_sequence = {str(extended).lower()}")
            cordon("vpn", "export-keys", "--config", tunnel.config("client"), "--output", keys / "esp_sa")
            equal((keys / "esp_sa").stat().st_mode & 0o777, 0o600, "mode")
            tunnel.start()
            capture = folder / "outside.pcap"
            command = ["tcpdump", "--immediate-mode", "-U", "-Z", "root", "-i", "cable", "-w", capture, "udp"]
            watch = Process(network.command("client", *command), folder / "tcpdump.log")
            time.sleep(1)
            equal(ping(network, INSIDE["server"], count=2).returncode, 0, "ping")
            time.sleep(1)
            watch.child.send_signal(signal.SIGINT)
            watch.child.wait(10)
            watch.kill()
            tunnel.stop()
            found = [fields for fields in read(capture, folder, str(not extended).upper()) if fields[0]]
            equal([kind for kind, *_ in found], ["8", "0", "8", "0"], "ICMP types")
            if not extended:
                equal({good for _, good in found}, {"1"}, "integrity values")


if __name__ == "__main__":
    sys.exit(main([importlib.import_module("tests.lab_vpn")]))
