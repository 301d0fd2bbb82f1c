"""Tunnels compared in turn: see scripts/bench-vpn."""

import argparse
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

from scripts.measure import Usage, machine  # noqa: E402
from scripts.vpn_peers import PEERS, versions  # noqa: E402
from tests.namespaces import Network  # noqa: E402

DATAGRAMS = ROOT / "target/release/examples/datagrams"
OURS, OTHERS = "cordon-aes256gcm", ["wireguard-go", "gotatun", "boringtun", "fastd", "openvpn", "strongswan"]
PING_SIZES = [56, 512, 1400]
LOSS = 0.01
# What is measured: name, unit, whether more is better.
MEASURES = {
    "tcp_up": ("Mbit/s", True),
    "tcp_down": ("Mbit/s", True),
    "tcp_up_4": ("Mbit/s", True),
    "cpu_up": ("s/GB", False),
    "packets": ("packet/s", True),
    "cpu_packet": ("us/packet", False),
    **{f"ping_{size}": ("us", False) for size in PING_SIZES},
    "rss": ("MB", False),
}
# What the comparison has to show: measure, of ours, against, at least (for times: at most).
AIMS = [
    ("tcp_up", OURS, "wireguard-go", 4.0),
    ("cpu_up", OURS, "wireguard-go", 0.25),
    ("cpu_up", OURS, "cordon-null", 1.25),
    ("packets", OURS, "best", 3.0),
    ("ping_56", OURS, "best", 1.0),
    ("tcp_up", "cordon-aes128cbc-sha256", "cordon-aes128gcm", 0.5),
]
MAX_RSS = 12


def tcp(tunnel, seconds, *words):
    """Mbit/s of iperf3, and processor seconds of the tunnel's processes for 10^9 bytes."""
    server = tunnel.address["server"]
    sink = subprocess.Popen(tunnel.network.command("server", "iperf3", "-s", "-1", "--forceflush", "-B", server),
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        sink.stdout.readline()
        usage = Usage(tunnel.pids())
        done = tunnel.network.run("client", "iperf3", "-c", server, "-t", seconds, "-J", "-C", "cubic", *words,
                                  timeout=seconds + 30)
        received = json.loads(done.stdout)["end"]["sum_received"]
        return received["bits_per_second"] / 1e6, usage.used() / received["bytes"] * 1e9
    finally:
        sink.terminate()
        sink.wait()
        sink.stdout.close()


def offered(tunnel, rate):
    """Sends 64-byte datagrams at a rate for a second: sent, received, processor microseconds for each."""
    address = f"{tunnel.address['server']}:9000"
    sink = subprocess.Popen(tunnel.network.command("server", DATAGRAMS, "receive", address), text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        sink.stdout.readline()
        usage = Usage(tunnel.pids())
        done = tunnel.network.run("client", DATAGRAMS, "send", address, "--size", 64, "--rate", rate, "--seconds", 1)
        sent = int(done.stdout)
        received = int(sink.communicate(timeout=20)[0])
        return sent, received, usage.used() / max(received, 1) * 1e6
    finally:
        sink.kill()
        sink.wait()


def packet_rate(tunnel):
    """The largest rate found with less than 1 % loss, and what a packet costs at it."""
    rate, best, cost, step = 15_000, 0, None, 2.0
    while step > 1.05:
        sent, received, microseconds = offered(tunnel, int(rate * step))
        # A source that cannot keep up has found the machine's limit, not the tunnel's.
        kept = sent >= 0.97 * rate * step
        if kept and received >= sent * (1 - LOSS):
            rate = rate * step
            best, cost = received, microseconds
        else:
            step = step ** 0.5
    return best, cost


def delay(tunnel, size):
    """Average round trip in microseconds, one packet at a time as fast as they come back."""
    done = tunnel.network.run("client", "ping", "-q", "-f", "-c", 2000, "-s", size, tunnel.address["server"])
    return float(re.search(r"= [\d.]+/([\d.]+)/", done.stdout).group(1)) * 1000


def measure(tunnel, seconds):
    """One round of one tunnel."""
    values = {}
    values["tcp_up"], values["cpu_up"] = tcp(tunnel, seconds)
    values["tcp_down"], _ = tcp(tunnel, seconds, "-R")
    values["tcp_up_4"], _ = tcp(tunnel, seconds, "-P", 4)
    values["packets"], values["cpu_packet"] = packet_rate(tunnel)
    for size in PING_SIZES:
        values[f"ping_{size}"] = delay(tunnel, size)
    values["rss"] = Usage(tunnel.pids()).resident()
    return values


def run_rounds(arguments, folder):
    rounds = {name: [] for name in arguments.peers}
    errors = {}
    network = Network()
    try:
        network.create()
        for number in range(arguments.rounds):
            for name in arguments.peers:
                if name in errors:
                    continue
                start = time.monotonic()
                try:
                    with PEERS[name](network, folder) as tunnel:
                        values = measure(tunnel, arguments.seconds)
                except (AssertionError, OSError) as error:
                    errors[name] = str(error).splitlines()[0]
                    print(f"round {number + 1}  {name:<24} {error}", file=sys.stderr)
                    continue
                rounds[name].append(values)
                print(f"round {number + 1}  {name:<24} {values['tcp_up']:7.0f} Mbit/s {values['packets']:8.0f} packet/s "
                      f"{values['ping_56']:5.0f} us   ({time.monotonic() - start:.0f} s)", file=sys.stderr)
    finally:
        network.remove()
    return rounds, errors


def median(rounds, name, what):
    values = [row[what] for row in rounds.get(name, []) if row[what] is not None]
    return statistics.median(values) if values else None


def summary(rounds, errors):
    rows = []
    for name, values in rounds.items():
        row = {"tunnel": name, "rounds": len(values), "error": errors.get(name)}
        for what in MEASURES:
            numbers = [value[what] for value in values if value[what] is not None]
            row[what] = statistics.median(numbers) if numbers else None
            row[f"{what}_spread"] = [min(numbers), max(numbers)] if numbers else None
        for base in ("plain", "cordon-null"):
            ours, theirs = row["tcp_up"], median(rounds, base, "tcp_up")
            row[f"ratio_to_{base}"] = ours / theirs if ours and theirs else None
        rows.append(row)
    return rows


def aims(rounds):
    """What was to be reached, and what was; without both sides of a comparison there is none."""
    shown = []
    for what, one, other, bound in AIMS:
        ours = median(rounds, one, what)
        more = MEASURES[what][1]
        if other == "best":
            values = [value for peer in OTHERS if (value := median(rounds, peer, what))]
            theirs = (max if more else min)(values) if values else None
        else:
            theirs = median(rounds, other, what)
        if not ours or not theirs:
            continue
        ratio = ours / theirs
        shown.append({
            "what": f"{what} of {one} to {'the best peer' if other == 'best' else other}",
            "ratio": ratio, "bound": f"{'>=' if more else '<='} {bound}",
            "reached": ratio >= bound if more else ratio <= bound,
        })
    memory = median(rounds, OURS, "rss")
    if memory:
        shown.append({"what": f"memory of {OURS}, MB an end", "ratio": memory, "bound": f"<= {MAX_RSS}",
                      "reached": memory <= MAX_RSS})
    return shown


def print_table(rows, reached):
    def cell(value, digits, width):
        return " " * (width - 1) + "-" if value is None else f"{value:{width}.{digits}f}"

    print(f"{'':<24} |   TCP, Mbit/s, median    | CPU   | 64-byte datagrams   | ping -f, us average | RSS  | ratio of TCP up")
    print(f"{'tunnel':<24} |     up    down    up x4  | s/GB  | packet/s  us/packet |   56    512   1400   | MB   | plain   null")
    for row in rows:
        print(
            f"{row['tunnel']:<24} | {cell(row['tcp_up'], 0, 7)} {cell(row['tcp_down'], 0, 7)} {cell(row['tcp_up_4'], 0, 7)}  |"
            f" {cell(row['cpu_up'], 2, 5)} | {cell(row['packets'], 0, 8)}  {cell(row['cpu_packet'], 2, 9)} |"
            f" {cell(row['ping_56'], 0, 5)} {cell(row['ping_512'], 0, 5)} {cell(row['ping_1400'], 0, 6)}    |"
            f" {cell(row['rss'], 0, 4)} | {cell(row['ratio_to_plain'], 3, 5)}  {cell(row['ratio_to_cordon-null'], 2, 5)}"
            f"  {row['error'] or ''}".rstrip())
    print("""
Medians of the rounds; tunnels took turns within each. CPU: processor time of both ends' processes, for
10^9 bytes or for a packet. RSS: the larger end after its load. Everything shares this machine's processors.
cordon-null neither encrypts nor authenticates: it is the limit of the packet path.""")
    for aim in reached:
        print(f"{'reached' if aim['reached'] else 'MISSED ':<8} {aim['ratio']:6.2f} {aim['bound']:<8} {aim['what']}")


def main():
    parser = argparse.ArgumentParser(description="Compares tunnels in turn on this machine.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of each TCP measurement")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS), metavar="NAME",
                        help=f"of {', '.join(PEERS)}")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.seconds < 1:
        parser.error("at least one round of one second")
    # An interrupt of either kind unwinds, so that daemons and namespaces go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="cordon-bench-") as folder:
        rounds, errors = run_rounds(arguments, Path(folder))
    rows, reached = summary(rounds, errors), aims(rounds)
    if arguments.json:
        print(json.dumps({"machine": machine() | versions(), "seconds": arguments.seconds, "rows": rows, "aims": reached,
                          "rounds": rounds}))
    else:
        print_table(rows, reached)
    return 1 if errors or not all(aim["reached"] for aim in reached) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
