"""Honest uploads and pages beside one attacker at a time: their slowest against those of a quiet site.

    python -m tests.beside [--samples N] [--only NAME]

Every attacker runs in a process of its own, and only while a processor has nothing else to do: its own computing would be
elsewhere. The quiet value is measured again before each attack. Beside the times: what the site's memory grows by, and the
attacker's processor time.
"""

import argparse
import http.client
import multiprocessing
import os
import selectors
import signal
import socket
import sys
import time

from tests.device import Device, FILES, TUS
from tests.harness import Site, equal, jpeg, request, tls_context
from tests.hostile_site import Unread, connect
from tests.runner import Suite, finish, run_suite

# The 99th percentile beside an attacker, against the quiet one, and a floor in seconds under which a difference is that of
# two cores which the attacker's kernel work shares with the site's.
FACTOR, FLOOR = 2.0, 0.030
# MiB that one attacker may make the site grow by. Guessed passwords take most: each check of one needs memory on purpose.
GROWTH = 192


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def processor(pid):
    """Seconds of processor time that a process has taken."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as status:
        fields = status.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


class Honest:
    """A camera that uploads blocks sealed beforehand, and a reviewer who looks at the list."""

    def __init__(self, site, people, blocks):
        self.camera = Device(site, "camera-90")
        equal(self.camera.enrol(), 200, "status of the enrolment")
        self.reviewer = people["reviewer-3"]
        picture = jpeg(b"honest", 60_000)
        self.blocks = [self.camera.seal(picture)[0] for _ in range(blocks)]
        self.next = 0

    def upload(self):
        block = self.blocks[self.next].read_bytes()
        self.next += 1
        began = time.monotonic()
        location = self.camera.upload(block)
        while (answer := self.camera.request("GET", f"{location}/receipt")).status == 202:
            time.sleep(0.005)
        took = time.monotonic() - began
        equal(answer.status, 200, "status of the receipt")
        return took

    def page(self):
        began = time.monotonic()
        equal(self.reviewer.request("GET", "/violations").status, 200, "status of the list")
        return time.monotonic() - began

    def measure(self, samples):
        """Seconds of so many uploads and pages in turns."""
        uploads, pages = [], []
        for _ in range(samples):
            uploads.append(self.upload())
            pages.append(self.page())
        return uploads, pages


# A client's first record up to the length of its message.
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01"


# Attackers: functions that go on until their process is ended.

def forever(act):
    while True:
        try:
            act()
        except (OSError, http.client.HTTPException, AssertionError):
            time.sleep(0.01)


def silent(site, people, thief):
    """Holds as many silent connections to every listener as it gets, and makes those that end again."""
    ports = [site.portal, site.intake, site.enrolment]
    held, number = selectors.DefaultSelector(), 0
    while True:
        while len(held.get_map()) < 1024:
            number += 1
            try:
                connection = connect(ports[number % 3], number)
                connection.send(HALF_A_HELLO)
                held.register(connection, selectors.EVENT_READ)
            except OSError:
                time.sleep(0.005)
        for key, _ in held.select(1):
            held.unregister(key.fileobj)
            key.fileobj.close()


def connections(site, people, thief):
    """Makes silent connections to every listener as fast as they go, and holds the newest."""
    ports = [site.portal, site.intake, site.enrolment]
    held, number = [], 0
    while True:
        number += 1
        try:
            held.append(connect(ports[number % 3], number))
            held[-1].send(HALF_A_HELLO)
        except OSError:
            time.sleep(0.005)
        if len(held) > 1024:
            held.pop(0).close()


def handshakes(site, people, thief):
    """Makes TLS connections with a stolen camera's certificate and ends them again."""
    def act():
        connection = thief.connection()
        connection.connect()
        connection.close()
    forever(act)


def unread(site, people, thief):
    """Opens streams of a medium as an officer of clearance 2 and reads none."""
    officer = people["officer-2"]
    violation = officer.violations()[-1]["id"]
    def act():
        held = [Unread(site, officer) for _ in range(8)]
        for connection in held:
            for _ in range(60):
                connection.open(f"/api/v1/violations/{violation}/media/0")
        time.sleep(3)
        for connection in held:
            connection.close()
    forever(act)


def searches(site, people, thief):
    """Asks for searches as an officer, on connections that stay open, as fast as answers come."""
    officer = people["officer-2"]
    def act():
        connection = http.client.HTTPSConnection("localhost", site.portal, context=tls_context(site.root, officer))
        for number in range(1000):
            connection.request("GET", f"/api/v1/violations?place=A4+km+{number}&plate=A{number % 10}")
            connection.getresponse().read()
    forever(act)


def passwords(site, people, thief):
    """Guesses passwords of a person who exists and of some who do not."""
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"https://localhost:{site.portal}"}
    number = 0
    def act():
        nonlocal number
        number += 1
        uid = "reviewer-3" if number % 2 else f"nobody-{number}"
        request(site.portal, "POST", "/login", site.root, None, f"uid={uid}&password=guess-{number}", headers)
    forever(act)


def garbage(site, people, thief):
    """Uploads blocks of noise as a stolen camera, as fast as they are taken."""
    noise = os.urandom(256_000)
    def act():
        connection = thief.connection()
        for _ in range(100):
            connection.request("POST", FILES, None, {**TUS, "Upload-Length": str(len(noise))})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 201:
                time.sleep(0.01)
                continue
            fixed = {**TUS, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
            connection.request("PATCH", answer.headers["Location"], noise, fixed)
            connection.getresponse().read()
    forever(act)


def codes(site, people, thief):
    """Guesses one-time codes at the enrolment."""
    headers = {"Content-Type": "application/pkcs10", "Authorization": "Basic Y2FtZXJhLTkxOmd1ZXNzLWd1ZXNzLWd1ZXNz"}
    def act():
        request(site.enrolment, "POST", "/.well-known/est/simpleenroll", site.root, None, b"bm9pc2U=", headers)
    forever(act)


ATTACKERS = [silent, connections, handshakes, unread, searches, passwords, garbage, codes]


def begin(attack, *arguments):
    def low():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        # Another host than the honest ones.
        connect_from = socket.create_connection
        def create_connection(address, timeout=None, source_address=None, **more):
            return connect_from(("127.0.0.1", address[1]), timeout, source_address or ("127.66.0.1", 0), **more)
        socket.create_connection = create_connection
        attack(*arguments)
    process = multiprocessing.get_context("fork").Process(target=low, daemon=True)
    process.start()
    return process


def run(suite, samples=100, only=None):
    attackers = [attack for attack in ATTACKERS if only in (None, attack.__name__)]
    # The quota of a camera is another suite's subject, and so is the share of a network: both are here one host's.
    site = Site(suite).start()
    people = site.people()
    thief = Device(site, "camera-91")
    equal(thief.enrol(), 200, "status of the enrolment")
    film, _ = thief.seal(jpeg(b"a film", 3_000_000))
    equal(thief.verdict(film.read_bytes())["verdict"], "accepted", "verdict")
    honest = Honest(site, people, 2 * samples * len(attackers) + 5)
    for _ in range(5):
        honest.upload()
        honest.page()
    quiet, beside = ([], []), {}
    for attack in attackers:
        for kept, more in zip(quiet, honest.measure(samples)):
            kept.extend(more)
        memory = resident(site.process.child.pid)
        process = begin(attack, site, people, thief)
        try:
            time.sleep(2)
            began, computed = time.monotonic(), processor(process.pid)
            beside[attack.__name__] = honest.measure(samples)
            assert process.is_alive(), f"the attacker {attack.__name__} ended"
            share = (processor(process.pid) - computed) / (time.monotonic() - began)
        finally:
            process.kill()
            process.join()
        beside[attack.__name__] += (resident(site.process.child.pid) - memory, share)
        time.sleep(1)
    # The quiet value is that of all quiet times: one alone has too few samples for a 99th percentile.
    for name, (uploads, pages, growth, share) in beside.items():
        with suite.case(f"uploads and pages beside: {name}"):
            shown, slow = [], []
            for what, before, busy in (("upload", quiet[0], uploads), ("page", quiet[1], pages)):
                one, two = percentile(before, 0.99), percentile(busy, 0.99)
                shown.append(f"{what} p99 {one * 1000:.0f} to {two * 1000:.0f} ms "
                             f"(median {percentile(before, 0.5) * 1000:.0f} to {percentile(busy, 0.5) * 1000:.0f})")
                if two > max(FACTOR * one, one + FLOOR):
                    slow.append(what)
            print(f"        {', '.join(shown)}, {growth:+.0f} MiB; the attacker took {share:.0%} of a processor", flush=True)
            assert not slow, slow
            assert growth <= GROWTH, f"the site grew by {growth:.0f} MiB"
    with suite.case("the audit log and all journals hold"):
        site.verify_audit()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--samples", type=int, default=100)
    arguments.add_argument("--only", choices=[attack.__name__ for attack in ATTACKERS])
    chosen = arguments.parse_args()
    chosen_suite = Suite("beside")
    run_suite(chosen_suite, lambda suite: run(suite, chosen.samples, chosen.only), 3600)
    sys.exit(finish([chosen_suite]))
