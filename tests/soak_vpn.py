"""Full rate in both directions through `cordon vpn static`, with new keys every few seconds.

    CORDON=target/release/cordon .venv/bin/python -m tests.soak_vpn --seconds 1800

Every byte is compared with what was sent. It fails if one is lost or wrong, if a gateway dropped a packet
for its keys, or if a gateway's memory grows.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.harness import Process, equal
from tests.namespaces import Network
from tests.vpn import INSIDE, OTHER, Tunnel

# What is sent again and again; not a power of two, so that no lost packet leaves the pattern as it was.
PATTERN = 1_048_583
# Memory may grow by this much after the first tenth of the run, in KiB.
GROWTH = 1024

COMMON = f"""
import random, socket, sys, time
pattern = random.Random(4).randbytes({PATTERN})
twice = pattern * 2
"""
# Compares what comes in and says how much it was.
SINK = COMMON + """
with socket.create_server((sys.argv[1], 5001)) as listener:
    print("ready", flush=True)
    connection, _ = listener.accept()
    buffer = bytearray(1 << 20)
    view, total = memoryview(buffer), 0
    while count := connection.recv_into(buffer):
        at = total % len(pattern)
        if bytes(view[:count]) != twice[at:at + count]:
            sys.exit(f"wrong byte in {count} bytes from {total} on")
        total += count
    connection.sendall(str(total).encode())
    print(total, flush=True)
"""
SOURCE = COMMON + """
end, total = time.monotonic() + float(sys.argv[2]), 0
with socket.create_connection((sys.argv[1], 5001), 30) as connection:
    while time.monotonic() < end:
        connection.sendall(pattern)
        total += len(pattern)
    connection.shutdown(socket.SHUT_WR)
    answer = connection.recv(100).decode()
    if answer != str(total):
        sys.exit(f"sent {total}, the other end has {answer!r}")
    print(total, flush=True)
"""


def resident(process):
    """KiB of memory of a process."""
    for line in Path(f"/proc/{process.child.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("a gateway has ended")


def new_keys(tunnel, generation, pause):
    """New keys at both ends, one after the other, in an order that changes."""
    spis = {"server": 0x1000 + 2 * generation, "client": 0x1001 + 2 * generation}
    tunnel.configure("aes-256-gcm", None, spis)
    sides = list(OTHER)
    random.shuffle(sides)
    os.kill(tunnel.ends[sides[0]].child.pid, signal.SIGHUP)
    time.sleep(pause)
    os.kill(tunnel.ends[sides[1]].child.pid, signal.SIGHUP)


def start_streams(network, folder, seconds):
    sinks, sources = {}, {}
    for side in OTHER:
        command = network.command(side, sys.executable, "-c", SINK, INSIDE[side])
        sinks[side] = Process(command, folder / f"sink-{side}.log")
        equal(sinks[side].child.stdout.readline().strip(), b"ready")
    for side, other in OTHER.items():
        command = network.command(side, sys.executable, "-c", SOURCE, INSIDE[other], str(seconds))
        sources[side] = Process(command, folder / f"source-{side}.log")
    return sinks, sources


def soak(network, tunnel, folder, options):
    tunnel.configure("aes-256-gcm", None)
    tunnel.start()
    sinks, sources = start_streams(network, folder, options.seconds)
    begun = time.monotonic()
    next_keys, generation, samples = begun + options.every, 0x100, []
    next_line = begun
    while any(source.running() for source in sources.values()):
        now = time.monotonic()
        if now > begun + options.seconds + 60:
            raise AssertionError("the streams do not end")
        samples.append((now - begun, {side: resident(tunnel.ends[side]) for side in OTHER}))
        if now >= next_line:
            next_line = now + max(options.seconds / 20, 5)
            print(f"{now - begun:7.0f} s  RSS in KiB {samples[-1][1]}  {generation - 0x100} new keys", flush=True)
        if now >= next_keys and now < begun + options.seconds:
            next_keys = now + options.every
            generation += 1
            new_keys(tunnel, generation, random.uniform(0, 1))
        time.sleep(0.5)
    report(tunnel, sources, sinks, samples, options)


def report(tunnel, sources, sinks, samples, options):
    for side, source in sources.items():
        text = source.child.stdout.read().strip()
        equal(source.child.wait(30), 0, f"exit code of the source at {side}: {source.tail()}")
        equal(sinks[OTHER[side]].child.wait(30), 0, f"the sink at {OTHER[side]}: {sinks[OTHER[side]].tail()}")
        rate = int(text) * 8 / options.seconds / 1e9
        print(f"{side}: {int(text) / 1e9:.1f} GB sent and compared, {rate:.2f} Gbit/s")
    for side in OTHER:
        state = tunnel.status(side)
        drops = {drop["cause"]: drop["packets"] for drop in state["inbound_drops"] + state["outbound_drops"]}
        print(f"{side}: drops {drops}, worker {state['worker_cpu_seconds']:.1f} s")
        equal({cause: drops.get(cause, 0) for cause in ("unknown_spi", "integrity_failed", "no_outbound_sa")},
              {"unknown_spi": 0, "integrity_failed": 0, "no_outbound_sa": 0}, f"drops at {side}")
        warm = [rss[side] for at, rss in samples if at <= options.seconds / 10]
        later = [rss[side] for at, rss in samples if at > options.seconds / 10]
        print(f"{side}: RSS {max(warm)} KiB in the first tenth, at most {max(later)} later")
        assert max(later) <= max(warm) + GROWTH, f"memory at {side} grew"


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.soak_vpn", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--every", type=float, default=5, help="seconds between new keys")
    options = parser.parse_args()
    # SIGTERM must clean up as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    network = Network()
    with tempfile.TemporaryDirectory(prefix="cordon-soak-") as folder:
        tunnel = Tunnel(network, Path(folder))
        try:
            soak(network.create(), tunnel, Path(folder), options)
        finally:
            tunnel.kill()
            network.remove()
    print("soak passed")


if __name__ == "__main__":
    main()
