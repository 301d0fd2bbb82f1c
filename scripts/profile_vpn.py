"""Where the processor's time for one TCP stream goes: see scripts/profile-vpn."""

import argparse
import collections
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.measure import Usage  # noqa: E402
from scripts.vpn_peers import PEERS  # noqa: E402
from tests.harness import run  # noqa: E402
from tests.namespaces import Network  # noqa: E402

OURS, NULL, OTHER = "cordon-aes256gcm", "cordon-null", "wireguard-go"
KERNEL = ["kernel: copies", "kernel: TUN", "kernel: UDP and IP", "kernel: rest"]
PROGRAM = ["cipher", "inner checksums", "moving bytes", "headers, policy, window"]
PEER = "iperf3, both ends"
# Samples a second; odd, so that it does not beat with timers.
RATE = 4999


def place(frames):
    """The row of one sample: its innermost frame first, each with its function and file."""
    function, file = frames[0]
    callers = " ".join(name for name, _ in frames)
    if "kernel" in file or file.startswith("["):
        # Filling a datagram and emptying one, in whatever call.
        if "copy_from_iter" in function or "copy_to_iter" in function:
            return KERNEL[0]
        if "tun_chr" in callers:
            return KERNEL[1]
        return KERNEL[2] if re.search("sendm|sendto|recvm|recvfrom", callers) else KERNEL[3]
    if re.search("kernels::|aes|gcm|chacha|poly1305", function, re.I):
        return PROGRAM[0]
    if "checksum" in function:
        return PROGRAM[1]
    return PROGRAM[2] if re.search("mem(move|cpy|set)", function) else PROGRAM[3]


def shares(recording):
    """Parts of a process's time by row."""
    text = run("perf", "script", "-i", recording, "-F", "ip,sym,dso").stdout
    rows, frames = collections.Counter(), []
    for line in [*text.splitlines(), ""]:
        found = re.match(r"\s*[0-9a-f]+ (.*) \((.*)\)$", line)
        if found:
            frames.append(found.groups())
        elif frames:
            rows[place(frames)] += 1
            frames = []
    return {row: count / rows.total() for row, count in rows.items()}


def measure(tunnel, seconds, folder):
    """Processor seconds for 10^9 bytes of one stream: by row, and the rate in Mbit/s."""
    server = tunnel.address["server"]
    sink = subprocess.Popen(tunnel.network.command("server", "iperf3", "-s", "-1", "--forceflush", "-B", server),
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    recorders = {}
    try:
        sink.stdout.readline()
        ends = sorted(tunnel.pids())
        for pid in ends:
            words = ["-q", "-e", "cpu-clock", "-F", RATE, "-g", "-p", pid, "-o", folder / f"{pid}.data"]
            recorders[pid] = subprocess.Popen(["perf", "record", *map(str, words)])
        time.sleep(0.5)
        usages = {pid: Usage([pid]) for pid in ends}
        done = tunnel.network.run("client", "iperf3", "-c", server, "-t", seconds, "-J", "-C", "cubic", timeout=seconds + 30)
        used = {pid: usage.used() for pid, usage in usages.items()}
    finally:
        for recorder in recorders.values():
            recorder.send_signal(signal.SIGINT)
        for recorder in recorders.values():
            recorder.wait()
        sink.terminate()
        sink.wait()
        sink.stdout.close()
    end = json.loads(done.stdout)["end"]
    gigabytes = end["sum_received"]["bytes"] / 1e9
    rows = collections.Counter()
    for pid in ends:
        for row, share in shares(folder / f"{pid}.data").items():
            rows[row] += share * used[pid] / gigabytes
    iperf = end["cpu_utilization_percent"]
    rows[PEER] = (iperf["host_total"] + iperf["remote_total"]) / 100 * end["sum_sent"]["seconds"] / gigabytes
    return rows, end["sum_received"]["bits_per_second"] / 1e6


def print_table(rounds):
    def value(name, row):
        return statistics.median(rows[row] for rows, _ in rounds[name])

    def total(name, rows):
        return statistics.median(sum(measured[row] for row in rows) for measured, _ in rounds[name])

    print(f"{'s for 10^9 bytes':<26}" + "".join(f"{name:>20}" for name in rounds))
    for row in [*PROGRAM, *KERNEL]:
        print(f"{row:<26}" + "".join(f"{value(name, row):20.3f}" for name in rounds))
    everything = {name: total(name, [*PROGRAM, *KERNEL]) for name in rounds}
    print(f"{'the tunnel, both ends':<26}" + "".join(f"{everything[name]:20.3f}" for name in rounds))
    print(f"{PEER:<26}" + "".join(f"{value(name, PEER):20.3f}" for name in rounds))
    rates = {name: statistics.median(rate for _, rate in rounds[name]) for name in rounds}
    print(f"{'Mbit/s':<26}" + "".join(f"{rates[name]:20.0f}" for name in rounds))
    print()
    if OURS in rounds and NULL in rounds:
        cipher = value(OURS, PROGRAM[0])
        print(f"time of {NULL} over {OURS}: {everything[NULL] / everything[OURS]:.2f}; "
              f"if the cipher were all that they differ in: {everything[NULL] / (everything[NULL] + cipher):.2f}")
    if OURS in rounds and OTHER in rounds:
        kernel = total(OURS, KERNEL)
        print(f"time of {OTHER} over {OURS}: {everything[OTHER] / everything[OURS]:.2f}; "
              f"if nothing were left of us but kernel and cipher: {everything[OTHER] / (kernel + value(OURS, PROGRAM[0])):.2f}")


def main():
    parser = argparse.ArgumentParser(description="Shows where the processor's time for one TCP stream goes.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--peers", nargs="+", default=[OURS, NULL, OTHER], choices=[*PEERS], metavar="NAME")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.seconds < 1:
        parser.error("at least one round of one second")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rounds = {name: [] for name in arguments.peers}
    network = Network()
    with tempfile.TemporaryDirectory(prefix="cordon-profile-") as folder:
        try:
            network.create()
            for _ in range(arguments.rounds):
                for name in arguments.peers:
                    with PEERS[name](network, Path(folder)) as tunnel:
                        rounds[name].append(measure(tunnel, arguments.seconds, Path(folder)))
        finally:
            network.remove()
    print_table(rounds)


if __name__ == "__main__":
    main()
