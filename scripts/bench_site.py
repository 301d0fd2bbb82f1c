"""What people's pages cost while violations grow; see scripts/bench-site."""

import argparse
import http.client
import json
import os
import random
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
parser.add_argument("--binary", default="target/release/cordon")
parser.add_argument("--requests", type=int, default=60, help="per page and round")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
options = parser.parse_args()
os.environ["CORDON"] = options.binary

from scripts.measure import Usage, machine  # noqa: E402
from tests.harness import Camera, Site, jpeg, tls_context, wait_for  # noqa: E402

# Rows as the intake writes them; triggers count, and the next start makes the entries of the search.
AUDIENCES = [(unit, level) for unit in ("traffic", "harbour", "border") for level in range(4)]


class Folder:
    """Where the site lives, and what ends with it."""

    def __init__(self, folder):
        self.folder, self.ends = Path(folder), []

    def finally_do(self, end):
        self.ends.append(end)


def fill(index, rows, first):
    """Adds rows `first` to `rows` to the index."""
    db = sqlite3.connect(index)
    db.execute("PRAGMA synchronous = OFF")
    for unit, level in AUDIENCES:
        db.execute("INSERT INTO audiences (unit, classification) VALUES (?, ?) ON CONFLICT DO NOTHING", (unit, level))
    db.execute("INSERT INTO violation_groups (audience, state) SELECT id, 'open' FROM audiences WHERE true ON CONFLICT DO NOTHING")
    groups = [row[0] for row in db.execute("SELECT id FROM violation_groups WHERE state = 'open'")]
    numbers = random.Random(first)
    now = int(time.time() * 1000)
    for i in range(first, rows):
        name, device, number, at = f"{i:064x}", f"camera-{100 + i % 50}", i // 50 + 1, now - 3_600_000 - i * 1000
        db.execute("INSERT INTO blocks VALUES (?, ?, 1, ?, 'accepted', '', ?, ?, ?, x'00')", (name, device, at, number, name, 1))
        db.execute("INSERT INTO chain VALUES (?, ?, ?, ?, ?)", (device, number, name, name, name))
        db.execute(
            "INSERT INTO violations VALUES (?, ?, ?, ?, ?, ?, ?, 'speeding', ?, 0, 0, ?, 90, ?, 1, ?)",
            (at << 15, f"v-{i:016x}", name, device, groups[i % len(groups)], number, at, f"A{i % 7} km {i % 41}",
             100 + i % 90, f"KR {numbers.randrange(10**7):07d}", "x" * 900),
        )
    db.execute("DELETE FROM violation_text_version")
    db.commit()
    db.close()


def measure(site, person, path):
    """Milliseconds of processor time per request: one figure for each round."""
    connection = http.client.HTTPSConnection("localhost", site.portal, context=tls_context(site.root, person), timeout=60)

    def ask():
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, answer.status, body[:300])

    ask()
    rounds = []
    for _ in range(options.rounds):
        usage = Usage([site.process.child.pid])
        for _ in range(options.requests):
            ask()
        rounds.append(usage.used() / options.requests * 1000)
    connection.close()
    return rounds


def main():
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        suite = Folder(folder)
        try:
            run(suite, results)
        finally:
            for end in suite.ends:
                end()
    if options.json:
        print(json.dumps({"machine": machine(), "binary": options.binary, "sizes": results}))


def run(suite, results):
    site = Site(suite).start()
    person = site.people()["reviewer-3"]
    camera = Camera(site).start()
    camera.drop("one", jpeg(b"bench", 200_000))
    wait_for(lambda: person.violations(), "the violation of a camera")
    camera.stop()
    shown = person.violations()[0]["id"]
    pages = {
        "thumbnail": f"/violations/{shown}/thumbnail", "detail": f"/violations/{shown}", "list": "/violations",
        "search": "/violations?plate=KR+00", "start": "/", "cameras": "/cameras",
    }
    done = 0
    for size in options.sizes:
        site.stop()
        fill(site.data / "centre" / "centre.sqlite", size, done)
        done = size
        begun = time.monotonic()
        site.start()
        results[size] = {"start_seconds": time.monotonic() - begun}
        for name, path in pages.items():
            rounds = measure(site, person, path)
            results[size][name] = {"median": statistics.median(rounds), "range": [min(rounds), max(rounds)]}
            if not options.json:
                spread = f"({min(rounds):.2f} to {max(rounds):.2f})"
                print(f"{size:>8} {name:<10} {statistics.median(rounds):7.2f} ms  {spread}", flush=True)


main()
