"""Throughput and delay of an OpenVPN tunnel by data cipher, beside the published figures.

Server and client run in two network namespaces on this machine, joined by a veth pair; both
daemons, both ends of iperf3 and whatever else runs share its processors. All ciphers take turns in
each round, and ratios are made within a round, so that a slow minute hits all alike. Settings are
OpenVPN's defaults but for the cipher: UDP, HMAC-SHA256 where the cipher does not authenticate.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.measure import Usage, machine  # noqa: E402
from tests.harness import run  # noqa: E402
from tests.namespaces import OUTSIDE, Network, OpenVpn  # noqa: E402

BASE = "AES-128-CBC"
# Mbit/s and ms from Machnik, Uruena, Niemiec, Stoianov, "Performance evaluation of INDECT security
# architecture", Table III: two Pentium 4 at 3.06 GHz, gigabit Ethernet, OpenSSL 0.9.8v.
PUBLISHED = {
    "INDECT-128-CBC": (78.3, 0.154), "INDECT-192-CBC": (72.6, 0.156), "INDECT-320-CBC": (68.7, 0.153),
    "AES-128-CBC": (125, 0.153), "AES-192-CBC": (123, 0.156), "AES-256-CBC": (119, 0.155),
    "DES-CBC": (126, 0.153), "DES-EDE-CBC": (116, 0.155), "DES-EDE3-CBC": (118, 0.158),
    "DESX-CBC": (121, 0.153), "IDEA-CBC": (122, 0.151), "RC2-CBC": (119, 0.157),
    "RC2-40-CBC": (120, 0.157), "RC2-64-CBC": (124, 0.152), "BF-CBC": (124, 0.152),
    "CAST5-CBC": (123, 0.156),
}
CIPHERS = [*PUBLISHED, "INDECT-256-CBC", "INDECT-128-VH-CBC", "AES-128-GCM", "AES-256-GCM", "CHACHA20-POLY1305"]
# Tunnel addresses.
SERVER, CLIENT = "10.208.0.1", "10.208.0.2"


def providers(cipher):
    if cipher.startswith("INDECT"):
        return ["default", "cordon_ibc_openvpn"]
    return ["legacy", "default"]


def make_keys(folder):
    """One throw-away key and certificate for both ends, which know each other's fingerprint."""
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-days", "2", "-subj", "/CN=bench", "-keyout", folder / "key.pem", "-out", folder / "cert.pem")
    (folder / "key.pem").chmod(0o600)
    shown = run("openssl", "x509", "-in", folder / "cert.pem", "-noout", "-fingerprint", "-sha256").stdout
    return shown.strip().split("=", 1)[1]


def make_modules(folder, library):
    """A module folder with the provider under OpenVPN's name and with OpenSSL's own modules."""
    own = re.search(r'"(.*)"', run("openssl", "version", "-m").stdout).group(1)
    folder.mkdir()
    for module in Path(own).glob("*.so"):
        (folder / module.name).symlink_to(module)
    shutil.copy(library, folder / "cordon_ibc_openvpn.so")
    return folder


def accepted(modules):
    """The ciphers that this OpenVPN lists."""
    environment = {**os.environ, "OPENSSL_MODULES": str(modules)}
    lists = [
        run("openvpn", "--show-ciphers", "--providers", *names, env=environment).stdout
        for names in (["legacy", "default"], ["default", "cordon_ibc_openvpn"])
    ]
    return {line.split()[0].upper() for text in lists for line in text.splitlines() if "bit key" in line}


class Tunnel:
    """A tunnel with one cipher, as a context manager."""

    def __init__(self, network, folder, modules, fingerprint, cipher):
        self.network, self.folder, self.modules = network, folder, modules
        common = [
            "dev tun", "proto udp", "port 1194", "topology subnet", "verb 3", "mssfix 1300",
            "cert cert.pem", "key key.pem", "tls-version-min 1.3", "disable-dco",
            f"peer-fingerprint {fingerprint}", f"data-ciphers {cipher}",
            f"providers {' '.join(providers(cipher))}",
        ]
        sides = {
            "server": ["tls-server", "dh none", f"ifconfig {SERVER} 255.255.255.0"],
            "client": ["tls-client", "nobind", f"remote {OUTSIDE['server']}", f"ifconfig {CLIENT} 255.255.255.0"],
        }
        self.daemons = []
        self.configs = {}
        for side, lines in sides.items():
            config = folder / f"{side}.conf"
            config.write_text("\n".join(common + lines) + "\n")
            self.configs[side] = config
            (folder / f"{side}.log").unlink(missing_ok=True)

    def __enter__(self):
        try:
            for side, config in self.configs.items():
                log = self.folder / f"{side}.log"
                self.daemons.append(OpenVpn(self.network, side, config, log, self.modules))
            for daemon in self.daemons:
                daemon.up(20)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in self.daemons:
            with contextlib.suppress(AssertionError):
                daemon.stop()

    def delay(self, count=20):
        """Median round trip in ms."""
        out = self.network.run("client", "ping", "-c", count, "-i", "0.05", "-W", "2", SERVER).stdout
        return statistics.median(float(ms) for ms in re.findall(r"time=([\d.]+)", out))

    def throughput(self, seconds):
        """Mbit/s from client to server, and processor seconds of both daemons for a gigabyte."""
        command = self.network.command("server", "iperf3", "-s", "-1", "--forceflush", "-B", SERVER)
        sink = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            sink.stdout.readline()
            usage = Usage([daemon.process.child.pid for daemon in self.daemons])
            done = self.network.run("client", "iperf3", "-c", SERVER, "-t", seconds, "-O", 1, "-J",
                                    timeout=seconds + 30)
            end = json.loads(done.stdout)["end"]
            # The warm-up second counts neither for the rate nor for the bytes, but for the processor.
            used = usage.used() * seconds / (seconds + 1)
            received = end["sum_received"]
            return received["bits_per_second"] / 1e6, used / received["bytes"] * 1e9
        finally:
            sink.terminate()
            sink.wait()
            sink.stdout.close()


def measure(arguments, folder):
    modules = make_modules(folder / "modules", arguments.provider)
    fingerprint = make_keys(folder)
    known = accepted(modules)
    results = {c: {"mbit": [], "cpu": [], "ms": [], "error": None} for c in arguments.ciphers}
    network = Network()
    try:
        network.create()
        for number in range(arguments.rounds):
            for cipher, result in results.items():
                if cipher not in known:
                    result["error"] = "OpenVPN does not list it"
                if result["error"]:
                    continue
                try:
                    with Tunnel(network, folder, modules, fingerprint, cipher) as tunnel:
                        delay = tunnel.delay()
                        rate, processor = tunnel.throughput(arguments.seconds)
                except AssertionError as error:
                    result["error"] = str(error).splitlines()[0]
                    continue
                result["mbit"].append(rate)
                result["cpu"].append(processor)
                result["ms"].append(delay)
                print(f"round {number + 1}  {cipher:<18} {rate:7.0f} Mbit/s  {processor:6.1f} s/GB  {delay:.3f} ms", file=sys.stderr)
    finally:
        network.remove()
    return results


def summary(results):
    """One row for each cipher."""
    rows = []
    base = results.get(BASE, {"mbit": [], "cpu": []})

    def ratio(one, other):
        # Pairs of one round; without all rounds of both there are none.
        return round(statistics.median(a / b for a, b in zip(one, other)), 3) if one and len(one) == len(other) else None

    published_base = PUBLISHED[BASE][0]
    for cipher, result in results.items():
        rates, published = result["mbit"], PUBLISHED.get(cipher)
        rows.append({
            "cipher": cipher,
            "mbit_per_s": round(statistics.median(rates), 1) if rates else None,
            "spread_mbit_per_s": [round(min(rates), 1), round(max(rates), 1)] if rates else None,
            "ping_ms": round(statistics.median(result["ms"]), 3) if rates else None,
            "ratio": ratio(rates, base["mbit"]),
            "daemons_cpu_s_per_gb": round(statistics.median(result["cpu"]), 2) if rates else None,
            # Of the base to this one, so that more is better here, too.
            "cpu_ratio": ratio(base["cpu"], result["cpu"]),
            "published_mbit_per_s": published and published[0],
            "published_ping_ms": published and published[1],
            "published_ratio": published and round(published[0] / published_base, 3),
            "rounds": len(rates),
            "error": result["error"],
        })
    return rows


def print_table(rows):
    def cell(value, digits, width):
        return " " * (width - 1) + "-" if value is None else f"{value:{width}.{digits}f}"

    print(f"{'':<18} |             measured here                  |   published (Table III)")
    print(f"{'cipher':<18} | Mbit/s  ratio  cpu s/GB  ratio  ping ms  | Mbit/s  ratio  ping ms")
    for row in rows:
        measured = "  ".join([
            cell(row["mbit_per_s"], 0, 6), cell(row["ratio"], 2, 5), cell(row["daemons_cpu_s_per_gb"], 1, 8),
            cell(row["cpu_ratio"], 2, 5), cell(row["ping_ms"], 3, 7),
        ])
        published = "  ".join([
            cell(row["published_mbit_per_s"], 1, 6), cell(row["published_ratio"], 2, 5),
            cell(row["published_ping_ms"], 3, 7),
        ])
        print(f"{row['cipher']:<18} | {measured}  | {published}  {row['error'] or ''}".rstrip())
    print(f"""
ratio: to {BASE} in the same round, median of the rounds; more is better.
cpu: processor time of both daemons for 10^9 bytes. Everything shares this machine's processors and
caches: other work shows in all columns, so quote figures of an idle one.
IBC is a research cipher, not secure.""")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4, help="of throughput measurement, after 1 s of warm-up")
    parser.add_argument("--ciphers", nargs="+", default=CIPHERS, metavar="NAME")
    parser.add_argument("--provider", type=Path, default=ROOT / "target/release/libibc_provider.so")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.seconds < 1:
        parser.error("at least one round of one second")
    # An interrupt of either kind unwinds, so that daemons and namespaces go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="cordon-bench-") as folder:
        rows = summary(measure(arguments, Path(folder)))
    if arguments.json:
        about = machine() | {"openvpn": run("openvpn", "--version", code=None).stdout.split()[1]}
        print(json.dumps({"base": BASE, "seconds": arguments.seconds, "machine": about, "rows": rows}))
    else:
        print_table(rows)
    return 0 if any(row["rounds"] for row in rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
