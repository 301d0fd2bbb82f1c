"""`cordon vpn up` with the IPsec of a Linux kernel: libreswan and OpenIKED over it, and our own daemon on it.

CORDON_GUEST names a root made by `scripts/ipsec-guest DIR`, whose kernel runs as an ordinary process. The cases are
in tests/kernel: what they print is shown here.
"""

import os
import subprocess
import sys
import tempfile

from tests.harness import CORDON, ROOT, contains, run as execute
from tests.namespaces import Network

GUEST = os.environ.get("CORDON_GUEST")
SCRIPTS = {
    "peers.py": "our daemon, libreswan and OpenIKED",
    "ike.py": "our daemon and strongSwan over the kernel's IPsec",
    "plane.py": "our daemon on the kernel's IPsec",
    "vpn.py": "manual keys in the kernel's IPsec",
}
# Seconds for one script, and for all; other work on the machine makes them slow, and OpenIKED takes ten minutes to miss a peer.
PATIENCE = 3600
LIMIT = 4 * PATIENCE
ESP = "src 192.0.2.7 dst 192.0.2.8 proto esp spi 0x1001 mode tunnel aead rfc4106(gcm(aes)) 0x" + "07" * 20 + " 128"

CONFIG = """
backend = "kernel"
status = "control.sock"
[interface]
name = "tunnel0"
[[connection]]
name = "peer"
remote = "10.207.0.1"
local_id = "ours.example.org"
remote_id = "theirs.example.org"
psk_file = "psk"
[[connection.child]]
name = "net"
local = ["10.5.1.0/24"]
remote = ["10.5.2.0/24"]
"""


def script(suite, name):
    """Shows the lines of a script's cases; each counts."""
    # The guest has a /dev of its own, and so no /dev/shm of this machine.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        line = [sys.executable, ROOT / "tests/kernel/machine.py", folder, "/usr/bin/python3",
                ROOT / "tests/kernel" / name, CORDON]
        environment = dict(os.environ, CORDON_KERNEL_SECONDS=str(PATIENCE))
        done = subprocess.run([str(part) for part in line], capture_output=True, text=True, env=environment)
    results = [text for text in done.stdout.splitlines() if text.startswith(("ok  ", "FAILED  "))]
    for text in results:
        with suite.case(text.split("  ")[1]):
            assert text.startswith("ok"), done.stdout[-20_000:] + done.stderr
    with suite.case(f"{SCRIPTS[name]}: all {len(results)} cases came to their end"):
        assert done.returncode == 0 and results, done.stdout[-4000:] + done.stderr


def without_ipsec(suite):
    """A kernel that has none says so, and nothing is left."""
    network = Network()
    suite.finally_do(network.remove)
    network.create()
    if network.run("client", "ip", "xfrm", "state", "add", *ESP.split(), code=None).returncode == 0:
        print("        not run: the kernel's IPsec where there is none, as this kernel has it", flush=True)
        return
    with suite.case('backend = "kernel" on a kernel without IPsec ends and says so'):
        file = suite.folder / "vpn.toml"
        file.write_text(CONFIG)
        secret = suite.folder / "psk"
        secret.touch(mode=0o600)
        secret.write_text("a secret for this test only")
        done = network.run("client", CORDON, "vpn", "up", "--config", file, code=1)
        contains(done.stderr, "this kernel has no ")
        contains(done.stderr, "to do: ")
        links = execute("ip", "-n", network.names["client"], "link").stdout
        assert "tunnel0" not in links, links


def run(suite):
    without_ipsec(suite)
    if not GUEST:
        print("        not run: libreswan, OpenIKED and Linux's IPsec, as CORDON_GUEST names no root"
              " (scripts/ipsec-guest DIR)", flush=True)
        return
    for name in SCRIPTS:
        script(suite, name)
