"""What people's pages cost while violations grow; see scripts/bench-site."""

import argparse
import http.client
import json
import os
import statistics
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
parser.add_argument("--binary", default="target/release/cordon")
parser.add_argument("--requests", type=int, default=60, help="per page and round")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
options = parser.parse_args()
os.environ["CORDON"] = options.binary

from scripts.index_rows import Folder, fill  # noqa: E402
from scripts.measure import Usage, machine  # noqa: E402
from tests.harness import Camera, Site, jpeg, tls_context, wait_for  # noqa: E402


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
