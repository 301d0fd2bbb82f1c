"""Cordon's own use of /dev/uio0, by interrupt and by polling, in the emulator of accelerator.py.

    python accelerated.py CORDON vpn|site interrupt|polling

`cordon vpn up` has it as its accelerator, or a site with everything in it. Ends with a line of JSON: requests and interrupts that the
device counts of itself meanwhile (/run/share/user.counts).
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import vpn
from daemons import INSIDE, LINUX, OURS, Daemon
from vpn import output, shell, stream, wait_for

CORDON, SERVICE, COMPLETION = sys.argv[1:4]
COUNTS = Path("/run/share/user.counts")
# An emulator is slow, above all beside other work.
SECONDS = vpn.SECONDS = 300
DEADLINE = 60_000
# Bytes from which on a message goes to the device: packets of a stream, and none of IKE's.
FROM = 256
VIOLATIONS = 2


def section():
    return f'accelerator = {{ uio = "/dev/uio0", from = {FROM}, completion = "{COMPLETION}", deadline_ms = {DEADLINE} }}\n'


def counts():
    """What the device counts, once it has nothing more to write: it does so when it is idle."""
    last = None
    while (now := json.loads(COUNTS.read_text())) != last:
        last = now
        time.sleep(1)
    return now


def tunnel(folder):
    """A stream each way through the device: the requests that it must have had, and what the daemon says of it."""
    vpn.cable()
    try:
        with Daemon(LINUX, folder) as theirs, Daemon(OURS, folder, top=section(), starts=True) as ours:
            ours.up()
            theirs.up()
            for source, sink in ((OURS, LINUX), (LINUX, OURS)):
                output(source, "ping", "-n", "-q", "-c", 2, "-W", 60, "-s", 1000, "-I", INSIDE[source], INSIDE[sink])
                stream(source, sink, INSIDE[sink])
            # Once is enough: each question starts a program.
            state = ours.status()["accelerator"]
    finally:
        for side in (OURS, LINUX):
            shell(f"ip netns delete {side}")
    assert (state["state"], state["reason"]) == ("in-use", None), state
    did = {one["operation"]: one["device"] for one in state["operations"] if one["device"]}
    # As many packets of a stream as its bytes need, each way.
    least = vpn.KILOBYTES * 1024 // 1500
    assert set(did) == {"AES-GCM seal", "AES-GCM open"} and min(did.values()) >= least, did
    assert state["checked"] == sum(did.values()), state
    return sum(did.values())


def site(folder):
    """A camera's pictures in a site that opens them and signs with the device: the requests that it must have had."""
    config = folder / "cordon.toml"
    config.write_text(f'{section()}[keys]\nleaf = "rsa-2048"\n')
    line = [CORDON, "demo", "--data", folder / "data", "--config", config, "--violations", VIOLATIONS, "--once", "--json"]
    done = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=4 * SECONDS)
    assert done.returncode == 0, done
    assert json.loads(done.stdout.splitlines()[-1])["receipts"] == VIOLATIONS, done.stdout
    assert "accelerator: " not in done.stderr, done.stderr
    # A signature under each receipt, a handshake before it, a chunk of each picture.
    return 3 * VIOLATIONS


def main():
    wait_for("the device's counts", COUNTS.exists)
    before = counts()
    with tempfile.TemporaryDirectory() as folder:
        least = {"vpn": tunnel, "site": site}[SERVICE](Path(folder))
    after = counts()
    requests, interrupts = (after[name] - before[name] for name in ("requests", "interrupts"))
    # Keys are requests as well.
    assert requests >= least, (requests, least)
    assert {"interrupt": requests >= interrupts > 0, "polling": interrupts == 0}[COMPLETION], after
    print(json.dumps({"requests": requests, "interrupts": interrupts}))


if __name__ == "__main__":
    main()
