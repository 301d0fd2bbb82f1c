"""Hostile peers of a site: stolen certificates, silent connections, unread streams, sessions, insiders."""

import contextlib
import http.client
import json
import os
import socket
import struct
import time

from tests.device import FILES, Device
from tests.harness import Site, contains, cordon_json, equal, jpeg, request, tls_context
from tests.harness import run as run_command

REENROL = "/.well-known/est/simplereenroll"
# An honest client waits less than this, in seconds, whatever the hostile ones do.
SOON = 1.0
# The same where the machine decrypts a film for a hostile reader meanwhile.
BUSY = 5.0


def run(suite):
    site = Site(suite).start()
    people = site.people()
    stolen_certificate(suite, site)
    states(suite, site)
    silent_connections(suite, site)
    unread_streams(suite, site, people)
    sessions(suite, site)
    insiders(suite, site, people)
    with suite.case("the audit log and all journals hold"):
        site.verify_audit()
    with suite.case("the site stops"):
        site.stop()


def enrolled(site, name):
    device = Device(site, name)
    equal(device.enrol(), 200, "status of the enrolment")
    return device


def csr(device, key=None):
    """A certification request in base64, for a new key unless one is given."""
    if key is None:
        key = device.folder / f"key-{time.monotonic_ns()}"
        run_command("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
    der = device.folder / "again.csr"
    subject = f"/CN={device.name}"
    run_command("openssl", "req", "-new", "-key", key, "-subj", subject, "-outform", "DER", "-out", der)
    return run_command("openssl", "base64", "-in", der).stdout.encode()


def stolen_certificate(suite, site):
    thief = enrolled(site, "camera-30")
    headers = {"Content-Type": "application/pkcs10"}

    def renew(connection, body):
        connection.request("POST", REENROL, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    with suite.case("1010 renewals, then the device is revoked: the stolen certificate opens nothing"):
        equal(thief.create(10).status, 201, "status before")
        context = tls_context(thief.root, thief)
        connection = http.client.HTTPSConnection("localhost", site.enrolment, context=context, timeout=30)
        body = csr(thief, thief.key)
        for _ in range(1010):
            equal(renew(connection, body), 200, "status of a renewal")
        connection.close()
        site.ask("pki", "revoke", "--device", thief.name, "--reason", "key-compromise")
        equal(thief.create(10).status, 403, "status of an upload")
        answer = request(site.enrolment, "POST", REENROL, thief.root, thief, body, headers)
        equal(answer.status, 403, "status of a renewal")

    with suite.case("renewals with new keys are bounded, and the one that is used ends the one before"):
        device = enrolled(site, "camera-31")
        equal(device.create(10).status, 201, "status before")
        statuses = []
        for _ in range(9):
            answer = request(site.enrolment, "POST", REENROL, device.root, device, csr(device), headers)
            statuses.append(answer.status)
        equal(statuses, [200] * 8 + [429], "statuses")
        equal(device.create(10).status, 201, "status while no new one is used")


def states(suite, site):
    device = enrolled(site, "camera-32")
    with suite.case("a suspended device is refused until it is resumed, a retired one for good"):
        equal(device.create(10).status, 201, "status before")
        site.ask("registry", "suspend", "--device", device.name)
        answer = device.create(10)
        equal(answer.status, 403, "status while suspended")
        contains(answer.text, "holder-suspended")
        equal(device.request("OPTIONS", FILES).status, 403, "status of a question about the protocol")
        site.ask("registry", "resume", "--device", device.name)
        equal(device.create(10).status, 201, "status after")
        site.ask("registry", "retire", "--device", device.name)
        equal(device.create(10).status, 403, "status when retired")
        states = {h["holder"]: h["state"] for h in site.ask("registry", "list")["holders"]}
        equal(states[device.name], "retired")
        equal(states["camera-30"], "revoked")


def connect(port, number):
    """A connection from one of some hundred loopback networks."""
    connection = socket.socket()
    connection.settimeout(5)
    connection.bind((f"127.{20 + number % 3}.{number % 150}.{1 + number % 200}", 0))
    connection.connect(("127.0.0.1", port))
    return connection


def silent_connections(suite, site):
    said = [b"", b"\x16\x03\x01\x02\x00\x01", b"\x16"]
    for name, port, path in [("portal", site.portal, "/login"),
                             ("enrolment", site.enrolment, "/.well-known/est/cacerts")]:
        with suite.case(f"1200 silent connections keep nobody from the {name}"), contextlib.ExitStack() as held:
            slowest = 0
            for number in range(1200):
                connection = held.enter_context(contextlib.closing(connect(port, number)))
                connection.send(said[number % 3])
                if number % 150 == 149:
                    began = time.monotonic()
                    equal(request(port, "GET", path, site.root, seconds=20).status, 200, "status")
                    slowest = max(slowest, time.monotonic() - began)
            assert slowest < SOON, f"an honest client waited {slowest:.2f} s"
            print(f"        the slowest answer took {slowest * 1000:.0f} ms", flush=True)
    with suite.case("a host that opens a thousand connections is turned away beyond its rate, and others are not"):
        turned_away, slowest = 0, 0
        for number in range(1000):
            connection = socket.create_connection(("127.0.0.1", site.portal), 5, ("127.77.0.1", 0))
            if number % 100 == 99:
                began = time.monotonic()
                equal(request(site.portal, "GET", "/login", site.root, seconds=20).status, 200, "status")
                slowest = max(slowest, time.monotonic() - began)
                connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    turned_away += connection.recv(1) == b""
            connection.close()
        assert turned_away >= 3, f"{turned_away} of ten were turned away at once"
        assert slowest < SOON, f"an honest client waited {slowest:.2f} s"
    with suite.case("metrics and log say that connections were ended"):
        answer = http.client.HTTPConnection("localhost", site.metrics, timeout=10)
        answer.request("GET", "/metrics")
        text = answer.getresponse().read().decode()
        answer.close()
        contains(text, 'reason="shed"')
        contains(text, 'reason="too-fast"')
        contains(site.log_text(), "a share of connections is used up")


class Unread:
    """An HTTP/2 connection that opens streams and reads nothing (RFC 9113, RFC 7541)."""

    def __init__(self, site, person):
        context = tls_context(site.root, person)
        context.set_alpn_protocols(["h2"])
        raw = socket.create_connection(("localhost", site.portal), timeout=20)
        # A small buffer, so that the server cannot put much into the kernel's.
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket = context.wrap_socket(raw, server_hostname="localhost")
        equal(self.socket.selected_alpn_protocol(), "h2", "protocol")
        # INITIAL_WINDOW_SIZE 1: an answer may have one byte.
        settings = struct.pack(">HI", 4, 1)
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(4, 0, 0, settings))
        self.stream = 1

    @staticmethod
    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def open(self, path):
        def text(value):
            return bytes([len(value)]) + value.encode()

        fields = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", path)]
        block = b"".join(b"\0" + text(name) + text(value) for name, value in fields)
        with contextlib.suppress(OSError):
            self.socket.sendall(self.frame(1, 0x5, self.stream, block))
        self.stream += 2

    def close(self):
        self.socket.close()


def unread_streams(suite, site, people):
    camera = enrolled(site, "camera-33")
    with suite.case("one officer with hundreds of unread streams of one film stops neither intake nor enrolment"):
        film, _ = camera.seal(jpeg(b"a film", 3_000_000))
        equal(camera.verdict(film.read_bytes())["verdict"], "accepted", "verdict")
        officer = people["officer-2"]
        violation = officer.violations()[0]["id"]
        held = []
        try:
            for _ in range(12):
                held.append(Unread(site, officer))
                for _ in range(60):
                    held[-1].open(f"/api/v1/violations/{violation}/media/0")
            time.sleep(2)
            waits = {}

            def timed(name, act):
                began = time.monotonic()
                act()
                waits[name] = time.monotonic() - began

            def intake():
                block, _ = camera.seal(jpeg(b"while streams are held", 20_000))
                equal(camera.verdict(block.read_bytes())["verdict"], "accepted", "verdict")

            timed("intake", intake)
            timed("enrolment", lambda: enrolled(site, "camera-34"))
            timed("another reader", lambda: people["reviewer-3"].get(f"/api/v1/violations/{violation}"))
            shown = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in waits.items())
            print(f"        {shown}", flush=True)
            assert max(waits.values()) < BUSY, shown
        finally:
            for connection in held:
                connection.close()


def log_in(site, uid, password):
    """The session's cookie."""
    body = f"uid={uid}&password={password}"
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"https://localhost:{site.portal}"}
    answer = request(site.portal, "POST", "/login", site.root, None, body, headers)
    equal(answer.status, 303, f"status of the login of {uid}")
    return answer.headers["set-cookie"].split(";")[0]


def sessions(suite, site):
    uid, password = "officer-2", "a-long-pass-phrase"

    def set_password(word):
        site.ask("directory", "password", "--uid", uid, input=f"{word}\n")

    def status(cookie):
        return request(site.portal, "GET", "/violations", site.root, None, None, {"Cookie": cookie}).status

    def line(**change):
        person = {"uid": uid, "name": f"Test {uid}", "email": f"{uid}@example.org", "organisation": "LEA-EU",
                  "clearance": 2, "roles": ["officer"], "units": ["traffic"], **change}
        return json.dumps(person)

    def imported(*options, **change):
        return site.ask("directory", "import", "-", *options, input=line(**change) + "\n")

    set_password(password)
    for what, act, undo in [
        ("another password", lambda: set_password("another-pass-phrase"), lambda: set_password(password)),
        ("a lower clearance", lambda: imported(clearance=1), imported),
        ("disabling", lambda: site.ask("directory", "disable", "--uid", uid),
         lambda: site.ask("directory", "enable", "--uid", uid)),
        ("suspension", lambda: site.ask("registry", "suspend", "--uid", uid),
         lambda: site.ask("registry", "resume", "--uid", uid)),
    ]:
        with suite.case(f"{what} ends the password sessions at once and for good"):
            cookie = log_in(site, uid, password)
            equal(status(cookie), 200, "status before")
            act()
            equal(status(cookie), 403, "status after")
            undo()
            assert status(cookie) in (303, 403), "the session came back"

    with suite.case("a session nobody used meanwhile does not come back either"):
        cookie = log_in(site, uid, password)
        site.ask("directory", "disable", "--uid", uid)
        site.ask("directory", "enable", "--uid", uid)
        equal(status(cookie), 403, "status after")

    with suite.case("an import leaves a disabled person disabled unless told otherwise"):
        site.ask("directory", "disable", "--uid", uid)
        equal(imported(active=True)["kept_disabled"], [uid])
        imported("--enable", active=True)
        log_in(site, uid, password)


def insiders(suite, site, people):
    with suite.case("events name the Unix user, old and new values, terms and addresses"):
        reviewer = people["reviewer-3"]
        reviewer.get("/api/v1/violations?plate=ZZ+777")
        violation = reviewer.violations()[0]["id"]
        equal(reviewer.request("GET", f"/violations/{violation}/thumbnail").status, 200, "status")
        entries = cordon_json("audit", "show", site.data / "audit" / "log", "--last", 5000)["entries"]
        events = [entry["leaf"]["event"] for entry in entries]

        def some(action, **details):
            found = [e for e in events if e["action"] == action
                     and all(e.get("details", {}).get(k.replace("__", ".")) == v for k, v in details.items())]
            assert found, f"no event {action} with {details}"
            return found[-1]

        equal(some("evidence.list", search__plate="ZZ 777")["details"]["address"], "127.0.0.1", "address")
        equal(some("evidence.view", thumbnail=True)["actor"]["id"], "reviewer-3", "actor")
        me = f"unix:{os.getuid()}"
        for event in [some("directory.change", clearance__old="2", clearance__new="1"), some("directory.password"),
                      some("directory.disable"), some("directory.enable"), some("device.revoke", old="enrolled"),
                      some("person.suspend"), some("enrolment.invite")]:
            equal(event["actor"]["id"], me, f"actor of {event['action']}")
