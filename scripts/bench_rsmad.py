"""The two published tables of RSMAD, on this machine: see scripts/bench-rsmad."""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.vpn_peers import Cordon, Plain  # noqa: E402
from tests.harness import CORDON, LAB, Process, run, wait_for  # noqa: E402
from tests.namespaces import Network  # noqa: E402

FILES, FILE_BYTES = 500, 640_000
FTP = ROOT / ".venv/bin/python"
# Mbit/s from Sokol, Gajewski, Gajewska, Staszkiwicz, "Security and Performance Analysis of IPsec-based VPNs in
# RSMAD", tables I and II: ZyXEL ZyWALL 2 Plus gateways, FTP. Tunnel mode, tests I and II, transport mode, tests I and II.
PUBLISHED = {
    ("esp", "SHA-1", "DES"): (18.80, 21.44, 19.24, 21.93),
    ("esp", "SHA-1", "3DES"): (17.12, 19.36, 17.98, 19.89),
    ("esp", "SHA-1", "AES-128"): (18.48, 20.64, 18.99, 21.12),
    ("esp", "SHA-1", "AES-256"): (18.00, 20.32, 18.49, 20.89),
    ("esp", "MD5", "DES"): (18.56, 21.36, 19.01, 21.86),
    ("esp", "MD5", "3DES"): (16.64, 19.60, 17.03, 20.20),
    ("esp", "MD5", "AES-128"): (18.08, 20.88, 18.60, 21.34),
    ("esp", "MD5", "AES-256"): (17.92, 20.24, 18.49, 20.74),
    ("ah", "SHA-1", "-"): (21.28, 22.48, 21.88, 22.99),
    ("ah", "MD5", "-"): (21.04, 22.08, 21.60, 22.68),
}
MODERN = [
    ("esp", "-", "AES-128-GCM"), ("esp", "-", "AES-256-GCM"), ("esp", "-", "ChaCha20"),
    ("esp", "SHA-256", "AES-128"), ("ah", "SHA-256", "-"),
]
# Our names, and bytes of key.
CIPHERS = {
    "DES": ("des-cbc", 8), "3DES": ("3des-cbc", 24), "AES-128": ("aes-128-cbc", 16), "AES-256": ("aes-256-cbc", 32),
    "AES-128-GCM": ("aes-128-gcm", 20), "AES-256-GCM": ("aes-256-gcm", 36), "ChaCha20": ("chacha20-poly1305", 36),
    "-": (None, 0),
}
HASHES = {"SHA-1": ("hmac-sha1-96", 20), "MD5": ("hmac-md5-96", 16), "SHA-256": ("hmac-sha2-256-128", 32), "-": (None, 0)}
MODES = ["tunnel", "transport"]
# Mbit/s of the published gateways: what a small file costs more depends on what a large one costs.
LINK = 24
NAMES = {"upload": "Our own uploader, folder to receipt", "ftp": "FTP"}
# A server that waits for nothing between its replies; those of C wait for a delayed acknowledgement.
SERVER = """
import logging, sys, warnings
warnings.simplefilter("ignore")
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer
logging.basicConfig(level=logging.ERROR)
authorizer = DummyAuthorizer()
authorizer.add_anonymous(sys.argv[2], perm="elrw")
class Handler(FTPHandler):
    pass
Handler.authorizer = authorizer
FTPServer((sys.argv[1], 21), Handler).serve_forever()
"""


def tunnel(network, folder, row, mode, encapsulation):
    protocol, digest, cipher = row
    (encryption, cipher_key), (integrity, digest_key) = CIPHERS[cipher], HASHES[digest]
    name = re.sub(r"\W", "", f"{protocol}{digest}{cipher}{mode}")
    return Cordon(network, folder, name, encryption, integrity, (cipher_key, digest_key), mode, protocol,
                  "none" if protocol == "ah" else encapsulation)


def transfer(tunnel, names, source):
    """Mbit/s of files sent by FTP in one session, from the client's side to the server's."""
    store = tunnel.folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir()
    address = tunnel.address["server"]
    server = Process(tunnel.network.command("server", FTP, "-c", SERVER, address, store), tunnel.folder / "ftp.log")
    try:
        # Asks only whether somebody listens: the first connection would be counted.
        wait_for(lambda: ":21 " in tunnel.network.run("server", "ss", "-Hltn").stdout, server.tail)
        start = time.monotonic()
        tunnel.network.run("client", "curl", "-sS", "--ftp-pasv", "-T", "{" + ",".join(names) + "}", f"ftp://{address}/",
                           cwd=source, timeout=600)
        seconds = time.monotonic() - start
    finally:
        server.kill()
    size = sum((source / name).stat().st_size for name in names)
    arrived = sum(path.stat().st_size for path in store.iterdir())
    assert arrived == size, f"{arrived} of {size} bytes arrived"
    return size * 8 / seconds / 1e6


def draw(folder):
    """500 pictures of the size that the cameras of the literature send, and one file as large as all of them."""
    run(LAB, "draw", "--out", folder, "--count", FILES, timeout=600)
    pictures = sorted(path.name for path in folder.glob("*.jpg"))
    for name in pictures:
        os.truncate(folder / name, FILE_BYTES)
    with open(folder / "one.mp4", "wb") as one:
        for name in pictures:
            one.write((folder / name).read_bytes())
    return pictures


def measure(arguments, folder):
    source = folder / "source"
    names = draw(source)
    tests = {"I": names, "II": ["one.mp4"]}
    rows = [*PUBLISHED, *MODERN]
    if arguments.rows:
        rows = [row for row in rows if "/".join(row) in arguments.rows]
    results, uploads = {}, {}
    network = Network()
    try:
        network.create()
        for number in range(arguments.rounds):
            for mode in MODES:
                for row in [None, *rows]:
                    way = Plain(network, folder) if row is None else tunnel(network, folder, row, mode, arguments.encapsulation)
                    label = "no protection" if row is None else "/".join(row)
                    with way as at:
                        rates = {test: transfer(at, files, source) for test, files in tests.items()}
                    for test, rate in rates.items():
                        results.setdefault((row, mode, test), []).append(rate)
                    print(f"round {number + 1}  {mode:<9} {label:<22} I {rates['I']:7.0f}  II {rates['II']:7.0f} Mbit/s", file=sys.stderr)
        if not arguments.no_upload:
            uploads["this machine"] = {"upload": upload(network, folder, source, names)}
        if not arguments.no_link:
            with slow(network):
                with tunnel(network, folder, ("esp", "-", "AES-256-GCM"), "tunnel", "udp") as at:
                    ftp = {test: transfer(at, files, source) for test, files in tests.items()}
                uploads[f"{LINK} Mbit/s"] = {"ftp": ftp, "upload": upload(network, folder, source, names)}
    finally:
        network.remove()
    return rows, {key: statistics.median(values) for key, values in results.items()}, uploads


@contextlib.contextmanager
def slow(network):
    """Lets the cable carry no more than the published gateways did."""
    def limit(*words):
        for side in ("client", "server"):
            network.run(side, "tc", "qdisc", *words)

    limit("add", "dev", "cable", "root", "tbf", "rate", f"{LINK}mbit", "burst", "32k", "latency", "50ms")
    try:
        yield
    finally:
        limit("delete", "dev", "cable", "root")


def upload(network, folder, source, names):
    """Mbit/s from folder to receipt by our own uploader, through an AES-256-GCM tunnel."""
    folder = Path(tempfile.mkdtemp(dir=folder))
    with Cordon(network, folder, "upload", "aes-256-gcm") as tunnel:
        address = tunnel.address["server"]
        config = folder / "cordon.toml"
        config.write_text(
            f'[site]\nnames = ["{address}"]\n[listen]\nportal = "{address}:8443"\nintake = "{address}:8444"\n'
            f'enrolment = "{address}:8445"\nmetrics = "127.0.0.1:9100"\n')
        site = Process(network.command("server", CORDON, "up", "--data", folder / "site", "--config", config, "--json"),
                       folder / "site.log")
        tunnel.processes.append(site)
        site.answer()
        camera = folder / "camera"
        network.run("server", CORDON, "registry", "code", "--data", folder / "site", "--config", config,
                    "--device", "camera-17", "--out", camera)
        (camera / "incoming").mkdir()
        agent = Process(network.command("client", CORDON, "camera", "run", "--config", camera / "camera.toml"), folder / "camera.log")
        tunnel.processes.insert(0, agent)
        wait_for(lambda: (camera / "identity.pem").exists(), agent.tail)
        receipts, done, rates = camera / "spool/receipts", 0, {}
        fact = (source / names[0]).with_suffix(".json")
        for test, files in {"I": names, "II": ["one.mp4"]}.items():
            stage = camera / f"stage-{test}"
            stage.mkdir()
            for name in files:
                shutil.copy(source / name, stage / name)
                shutil.copy(fact, (stage / name).with_suffix(".json"))
            size = sum((source / name).stat().st_size for name in files)
            done += len(files)
            start = time.monotonic()
            for path in sorted(stage.iterdir()):
                path.rename(camera / "incoming" / path.name)
            wait_for(lambda: receipts.exists() and len(list(receipts.iterdir())) >= done, agent.tail, 300, 0.01)
            rates[test] = size * 8 / (time.monotonic() - start) / 1e6
        return rates


def penalty(one, two):
    """How much slower many small files are than a large one, in percent."""
    return 100 * (1 - one / two)


def table(rows, results):
    entries = []
    for row in rows:
        published = PUBLISHED.get(row)
        for at, mode in enumerate(MODES):
            one, two = results[row, mode, "I"], results[row, mode, "II"]
            plain = {test: results[None, mode, test] for test in ("I", "II")}
            theirs = published and published[2 * at:2 * at + 2]
            entries.append({
                "protocol": row[0], "hash": row[1], "cipher": row[2], "mode": mode,
                "files_mbit_per_s": round(one, 1), "file_mbit_per_s": round(two, 1),
                "files_ratio_to_plain": round(one / plain["I"], 3), "file_ratio_to_plain": round(two / plain["II"], 3),
                "small_file_penalty_percent": round(penalty(one, two), 1),
                "published_files_mbit_per_s": theirs and theirs[0], "published_file_mbit_per_s": theirs and theirs[1],
                "published_small_file_penalty_percent": theirs and round(penalty(*theirs), 1),
            })
    return entries


def print_tables(entries, results, uploads):
    for mode, number in (("tunnel", "I"), ("transport", "II")):
        print(f"\n{mode.capitalize()} mode (published table {number}); Mbit/s: 500 files of 640 KB, one file of 320 MB")
        print(f"{'':<25} |       measured here            |      published (24 Mbit/s gateways)")
        print(f"{'protocol/hash/cipher':<25} |  files   file   small files    |  files   file   small files")
        plain = [results[None, mode, test] for test in ("I", "II")]
        print(f"{'no protection':<25} | {plain[0]:6.0f} {plain[1]:6.0f}   {-penalty(*plain):+6.1f} %       |")
        for entry in entries:
            if entry["mode"] != mode:
                continue
            name = "/".join((entry["protocol"], entry["hash"], entry["cipher"]))
            line = (f"{name:<25} | {entry['files_mbit_per_s']:6.0f} {entry['file_mbit_per_s']:6.0f}   "
                    f"{-entry['small_file_penalty_percent']:+6.1f} %       |")
            if entry["published_files_mbit_per_s"]:
                line += (f" {entry['published_files_mbit_per_s']:6.2f} {entry['published_file_mbit_per_s']:6.2f}   "
                         f"{-entry['published_small_file_penalty_percent']:+6.1f} %")
            print(line)
    for link, rates in uploads.items():
        for kind, rate in rates.items():
            print(f"\n{NAMES[kind]}, AES-256-GCM tunnel, link: {link}: files {rate['I']:.1f}, file {rate['II']:.1f} Mbit/s, "
                  f"small files {-penalty(rate['I'], rate['II']):+.1f} %")
    print("""
Everything shares this machine's processors. DES, 3DES, MD5 are broken or old and exist in laboratory
builds only, to repeat the table.""")


def main():
    parser = argparse.ArgumentParser(description="Repeats the published tables of RSMAD on this machine.")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--encapsulation", choices=["none", "udp"], default="none",
                        help="of ESP: none as published (IP protocol 50), udp as we prefer it")
    parser.add_argument("--rows", nargs="+", metavar="PROTOCOL/HASH/CIPHER", help="only these, such as esp/SHA-1/AES-128")
    parser.add_argument("--no-upload", action="store_true", help="leave out our own uploader")
    parser.add_argument("--no-link", action="store_true", help=f"leave out the link of {LINK} Mbit/s, which takes eight minutes")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    # An interrupt of either kind unwinds, so that daemons and namespaces go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Memory, so that no disk is measured; our own uploader waits for the disk on purpose.
    with tempfile.TemporaryDirectory(prefix="cordon-bench-", dir="/dev/shm") as folder:
        rows, results, uploads = measure(arguments, Path(folder))
    entries = table(rows, results)
    if arguments.json:
        plain = {f"{mode}_{test}": round(results[None, mode, test], 1) for mode in MODES for test in ("I", "II")}
        print(json.dumps({"plain": plain, "rows": entries, "upload": uploads}))
    else:
        print_tables(entries, results, uploads)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
