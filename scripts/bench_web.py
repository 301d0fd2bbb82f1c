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


def measured(folder, stack):
    suite = Folder(folder)
    stack.callback(lambda: [end() for end in suite.ends])
    site = Site(suite).start()
    person = site.people()["reviewer-3"]
    camera = Camera(site).start()
    camera.drop("one", jpeg(b"bench", 200_000))
    wait_for(lambda: person.violations(), "the violation of a camera")
    camera.stop()
    site.stop()
    index = site.data / "centre" / "centre.sqlite"
    fill(index, options.size, 0)
    site.start()
    people = suite.folder / "people.pem"
    # The authority of people comes with their certificates, the root with the site.
    people.write_text(person.cert.read_text() + site.root.read_text())
    ours = Server("Cordon", site.portal, site.root, [site.process.child.pid])
    flask = stack.enter_context(Flask(suite.folder / "flask", people, index))
    peers = {clients: [stack.enter_context(kind(suite.folder / f"{kind.name}-{clients}", people, clients))
                       for kind in (Nginx, Apache)] for clients in (True, False)}
    cases = [("list", server, lambda server=server: (pages(server, person, "/violations", options.requests), 0))
             for server in (ours, flask)]
    for clients, word in ((True, "certificate"), (False, "no certificate")):
        for resumed, kind in ((False, "new"), (True, "resumed")):
            for server in [ours, *peers[clients]]:
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


def main():
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        results = measured(folder, stack)
    failed = []
    for case, servers in results.items():
        for name, entry in servers.items():
            entry["median"] = statistics.median(entry["ms"])
            entry["range"] = [min(entry["ms"]), max(entry["ms"])]
            done = options.requests * options.rounds
            note = f", {entry['reused']} of {done} resumed" if case.startswith("resumed") else ""
            if not options.json:
                low, high = entry["range"]
                print(f"{case:<24} {name:<24} {entry['median']:6.2f} ms ({low:.2f} to {high:.2f}){note}")
    ratio = lambda case, ours, theirs: results[case][theirs]["median"] / results[case][ours]["median"]  # noqa: E731
    for case, ours, theirs, least in AIMS:
        value = ratio(case, ours, theirs)
        line = f"{case}: {theirs} costs {value:.2f} times {ours} (aim: at least {least})"
        print(line, file=sys.stderr)
        if value < least:
            failed.append(line)
    dearer = results["new, certificate"]["Cordon"]["median"] / results["new, no certificate"]["Cordon"]["median"]
    line = f"new: with a certificate {dearer:.2f} times as dear as without (aim: at most {CERTIFICATE})"
    print(line, file=sys.stderr)
    if dearer > CERTIFICATE:
        failed.append(line)
    if options.json:
        print(json.dumps({"machine": machine(), "binary": options.binary, "size": options.size, "results": results}))
    if failed:
        sys.exit("missed: " + "; ".join(failed))


main()
