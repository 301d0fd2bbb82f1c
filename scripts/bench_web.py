"""The portal beside web servers; see scripts/bench-web."""

import argparse
import contextlib
import http.client
import json
import os
import socket
import statistics
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=1_000_000, help="violations in the index")
parser.add_argument("--binary", default="target/release/cordon")
parser.add_argument("--requests", type=int, default=200, help="pages, and connections, in a round")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--pages", action="store_true", help="the portal's pages instead, at 10000 violations and at --size, without peers")
parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
options = parser.parse_args()
os.environ["CORDON"] = options.binary

from scripts.index_rows import Folder, fill  # noqa: E402
from scripts.measure import Usage, machine  # noqa: E402
from scripts.web_peers import Apache, Flask, Nginx  # noqa: E402
from tests.harness import Camera, Site, jpeg, tls_context, wait_for  # noqa: E402

STYLE = "/assets/style.css"
# What has to come out: the case, the case beside it, and the least ratio of the latter's processor time to the former's.
AIMS = [
    ("list", "Cordon", "nginx, gunicorn, Flask", 1.0),
    ("new, certificate", "Cordon", "Apache", 2.0),
    ("resumed, certificate", "Cordon", "nginx", 1.0),
]
# Dearer than without a client's certificate at most by this.
CERTIFICATE = 1.25
# The portal's pages: where they are, and milliseconds that one may take.
PAGES = {
    "thumbnail": ("/violations/{shown}/thumbnail", 3),
    "detail": ("/violations/{shown}", 6),
    "list": ("/violations", 5),
    "search": ("/violations?plate=KR+00", 8),
    "start": ("/", 6),
    "cameras": ("/cameras", 6),
}
# From how many violations on a page is not to grow, and what counts as growth: more than measurements differ by.
FEW, GROWTH = 10_000, 1.5


class Server:
    """Where something is asked, and whose processor time counts."""

    def __init__(self, name, port, root, pids):
        self.name, self.port, self.root, self.pids = name, port, root, pids


def answer_of(connection, path):
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, (path, answer.status, body[:300])
    return body


def pages(server, person, path, count):
    """Milliseconds of processor time for a page over a kept connection."""
    connection = http.client.HTTPSConnection("localhost", server.port, context=tls_context(server.root, person), timeout=60)
    answer_of(connection, path)
    usage = Usage(server.pids)
    for _ in range(count):
        answer_of(connection, path)
    used = usage.used() / count * 1000
    connection.close()
    return used


def connections(server, person, count, resumed):
    """Milliseconds of processor time for a connection with one small file, and how many were resumed."""
    context = tls_context(server.root, person)
    request = f"GET {STYLE} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    session, reused = None, 0

    def once():
        nonlocal session, reused
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        with context.wrap_socket(plain, server_hostname="localhost", session=session if resumed else None) as secure:
            secure.sendall(request)
            body = b""
            while part := secure.recv(65536):
                body += part
            assert body.startswith(b"HTTP/1.1 200 "), body[:300]
            reused += secure.session_reused
            # Of the last connection, whose tickets have come with the answer.
            session = secure.session

    once()
    reused = 0
    usage = Usage(server.pids)
    for _ in range(count):
        once()
    # What servers do after the last byte counts as well.
    time.sleep(0.2)
    return usage.used() / count * 1000, reused


def filled(folder, stack, size):
    """A site with so many violations, one of its people, its folder, and the violation of which there are media."""
    suite = Folder(folder)
    stack.callback(lambda: [end() for end in suite.ends])
    site = Site(suite).start()
    person = site.people()["reviewer-3"]
    camera = Camera(site).start()
    camera.drop("one", jpeg(b"bench", 200_000))
    shown = wait_for(lambda: person.violations(), "the violation of a camera")[0]["id"]
    camera.stop()
    site.stop()
    fill(site.data / "centre" / "centre.sqlite", size, 0)
    site.start()
    return suite, site, person, shown


def ours(site):
    return Server("Cordon", site.portal, site.root, [site.process.child.pid])


def grown(folder, stack):
    """The portal's pages over few violations and over many, in turn."""
    sites = {}
    for size in (FEW, options.size):
        place = os.path.join(folder, str(size))
        os.mkdir(place)
        sites[size] = filled(place, stack, size)
    results = {}
    for _ in range(options.rounds):
        for page, (path, _) in PAGES.items():
            for size, (_, site, person, shown) in sites.items():
                used = pages(ours(site), person, path.format(shown=shown), options.requests)
                results.setdefault(page, {}).setdefault(f"{size} violations", {"ms": []})["ms"].append(used)
    return results


def measured(folder, stack):
    suite, site, person, _ = filled(folder, stack, options.size)
    index = site.data / "centre" / "centre.sqlite"
    people = suite.folder / "people.pem"
    # The authority of people comes with their certificates, the root with the site.
    people.write_text(person.cert.read_text() + site.root.read_text())
    portal = ours(site)
    flask = stack.enter_context(Flask(suite.folder / "flask", people, index))
    peers = {clients: [stack.enter_context(kind(suite.folder / f"{kind.name}-{clients}", people, clients))
                       for kind in (Nginx, Apache)] for clients in (True, False)}
    cases = [("list", server, lambda server=server: (pages(server, person, "/violations", options.requests), 0))
             for server in (portal, flask)]
    for clients, word in ((True, "certificate"), (False, "no certificate")):
        for resumed, kind in ((False, "new"), (True, "resumed")):
            for server in [portal, *peers[clients]]:
                who = person if clients else None
                cases.append((f"{kind}, {word}", server,
                              lambda server=server, who=who, resumed=resumed: connections(server, who, options.requests, resumed)))
    results = {}
    for _ in range(options.rounds):
        for case, server, work in cases:
            used, reused = work()
            entry = results.setdefault(case, {}).setdefault(server.name, {"ms": [], "reused": 0})
            entry["ms"].append(used)
            entry["reused"] += reused
    return results


def aims_beside(results):
    """What was to come out beside web servers: a line for each, and whether it did."""
    def ratio(one, other):
        return one["median"] / other["median"]

    for case, one, theirs, least in AIMS:
        value = ratio(results[case][theirs], results[case][one])
        yield f"{case}: {theirs} costs {value:.2f} times {one} (aim: at least {least})", value >= least
    value = ratio(results["new, certificate"]["Cordon"], results["new, no certificate"]["Cordon"])
    yield f"new: with a certificate {value:.2f} times as dear as without (aim: at most {CERTIFICATE})", value <= CERTIFICATE


def aims_of_pages(results):
    """What was to come out for the portal's pages: a line for each, and whether it did."""
    for page, (_, most) in PAGES.items():
        few, many = (entry["median"] for entry in results[page].values())
        yield f"{page}: {many:.2f} ms (aim: at most {most})", many <= most
        yield f"{page}: grew by {many / few:.2f} (aim: at most {GROWTH})", many / few <= GROWTH


def main():
    work, aims = (grown, aims_of_pages) if options.pages else (measured, aims_beside)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        results = work(folder, stack)
    for case, servers in results.items():
        for name, entry in servers.items():
            entry["median"] = statistics.median(entry["ms"])
            entry["range"] = low, high = min(entry["ms"]), max(entry["ms"])
            done = options.requests * options.rounds
            note = f", {entry['reused']} of {done} resumed" if case.startswith("resumed") else ""
            if not options.json:
                print(f"{case:<24} {name:<24} {entry['median']:6.2f} ms ({low:.2f} to {high:.2f}){note}")
    missed = []
    for line, reached in aims(results):
        print(line, file=sys.stderr)
        missed += [] if reached else [line]
    if options.json:
        print(json.dumps({"machine": machine(), "binary": options.binary, "size": options.size, "results": results}))
    if missed:
        sys.exit("missed: " + "; ".join(missed))


main()
