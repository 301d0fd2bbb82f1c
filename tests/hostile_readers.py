"""Readers who go away, who read slowly, who were revoked meanwhile, and strangers with long forms: what they take, they take from themselves."""

import contextlib
import re
import socket
import struct
import threading
import time

from tests import harness
from tests.device import Device
from tests.harness import Site, contains, equal, jpeg, request, tls_context, wait_for

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# An honest reader waits less than this, in seconds.
SOON = 5.0


def run(suite):
    harness.PEOPLE.append(("reviewer-4", 3, ["officer", "reviewer"]))
    site = Site(suite).start()
    people = site.people()
    camera = Device(site, "camera-17")
    equal(camera.enrol(), 200, "status of the enrolment")
    film, _ = camera.seal(jpeg(b"film", 40_000_000), classification=2)
    equal(camera.verdict(film.read_bytes())["verdict"], "accepted", "verdict")
    picture, _ = camera.seal(jpeg(b"picture", 2_000), classification=2)
    equal(camera.verdict(picture.read_bytes())["verdict"], "accepted", "verdict")
    reader = people["reviewer-3"]
    shown = {row["id"]: reader.get(f"/api/v1/violations/{row['id']}")["media"][0]["size"] for row in reader.violations()}
    large, small = max(shown, key=shown.get), min(shown, key=shown.get)
    forms(suite, site)
    parameters(suite, people)
    gone(suite, site, people, small)
    exports(suite, site, people, large, small)
    revoked(suite, site, people, large)


def memory(site):
    """Resident memory of the site, in MiB."""
    with open(f"/proc/{site.process.child.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


class Http2:
    """Just enough of HTTP/2 to open streams and to leave them."""

    def __init__(self, site, person=None, source="127.0.0.1"):
        context = tls_context(site.root, person)
        context.set_alpn_protocols(["h2"])
        raw = socket.create_connection(("127.0.0.1", site.portal), 20, (source, 0))
        self.socket = context.wrap_socket(raw, server_hostname="localhost")
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(4, 0, 0))
        self.stream = -1

    @staticmethod
    def frame(kind, flags, stream, content=b""):
        return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content

    def opening(self, method, path, last=True):
        """The frame that opens the next stream: header fields as literals without Huffman code (RFC 7541, section 6.2.2)."""
        self.stream += 2
        fields = {":method": method, ":scheme": "https", ":authority": "localhost", ":path": path}
        if not last:
            fields["content-type"] = FORM["Content-Type"]
        text = lambda value: bytes([len(value)]) + value.encode()
        block = b"".join(b"\0" + text(name) + text(value) for name, value in fields.items())
        return self.frame(1, 5 if last else 4, self.stream, block)

    def leaving(self, stream):
        return self.frame(3, 0, stream, struct.pack(">I", 8))

    def close(self):
        self.socket.close()


def forms(suite, site):
    with suite.case("a stranger's form is read to 16 KiB, and no long name comes back"):
        answer = request(site.portal, "POST", "/login", site.root, body="uid=" + "a" * 20_000 + "&password=b", headers=FORM)
        equal(answer.status, 413)
        answer = request(site.portal, "POST", "/login", site.root, body="uid=" + "<" * 10_000 + "&password=b", headers=FORM)
        equal(answer.status, 403)
        assert len(answer.body) < 10_000, len(answer.body)
    with suite.case("strangers' forms that never end take little memory"):
        before, connections = memory(site), []
        part = b"uid=" + b"a" * 12_000
        for number in range(24):
            with contextlib.suppress(OSError):
                one = Http2(site, source=f"127.77.0.{1 + number % 4}")
                connections.append(one)
                for _ in range(40):
                    one.socket.sendall(one.opening("POST", "/login", last=False) + one.frame(0, 0, one.stream, part))
        time.sleep(1)
        grown = memory(site) - before
        print(f"        {len(connections)} connections, 40 forms each: {grown:.0f} MiB more")
        assert grown < 60, grown
        for one in connections:
            one.close()


def parameters(suite, people):
    with suite.case("a last day beyond all years is no date, a place in the log beyond all places is none"):
        answer = people["officer-2"].request("GET", "/violations?to=9999-12-31")
        equal(answer.status, 400)
        contains(answer.text, "too late")
        equal(people["officer-2"].request("GET", "/audit?before=18446744073709551615").status, 403)


def gone(suite, site, people, violation):
    """Clients that ask and leave at once, over and over."""
    officer, other = people["officer-2"], people["reviewer-3"]
    path, stop, sent = f"/violations/{violation}/thumbnail", threading.Event(), [0]

    def attack():
        while not stop.is_set():
            with contextlib.suppress(OSError):
                one = Http2(site, officer)
                while not stop.is_set():
                    opened = b"".join(one.opening("GET", path) for _ in range(8))
                    first = one.stream - 14
                    one.socket.sendall(opened)
                    time.sleep(0.006)
                    one.socket.sendall(b"".join(one.leaving(first + 2 * number) for number in range(8)))
                    sent[0] += 8

    def looks():
        began = time.monotonic()
        equal(other.request("GET", f"/api/v1/violations/{violation}").status, 200)
        return time.monotonic() - began

    with suite.case("who asks and leaves, over and over, keeps nobody from the same violation, then or afterwards"):
        attacker = threading.Thread(target=attack)
        attacker.start()
        try:
            time.sleep(5)
            during = looks()
        finally:
            stop.set()
            attacker.join()
        after = looks()
        print(f"        {sent[0]} requests left; another waited {during:.2f} s meanwhile, {after:.2f} s afterwards")
        assert sent[0] > 500, sent
        assert max(during, after) < SOON, (during, after)


def slow(site, person, method, path, body="", headers=None):
    """A request whose answer is read by whoever gets the connection."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    raw.settimeout(20)
    raw.connect(("127.0.0.1", site.portal))
    connection = tls_context(site.root, person).wrap_socket(raw, server_hostname="localhost")
    fields = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return connection


def exports(suite, site, people, large, small):
    headers = FORM | {"Origin": f"https://localhost:{site.portal}"}

    def token(person, violation):
        page = person.request("GET", f"/violations/{violation}").text
        return f'token={re.search(r"""name="token" value="([0-9a-f]+)" """.strip(), page)[1]}'

    def export(person, violation):
        return person.request("POST", f"/violations/{violation}/export", token(person, violation), headers)

    with suite.case("a package that is read slowly keeps its reader from another one, and nobody else"):
        reader, other = people["reviewer-3"], people["reviewer-4"]
        held = slow(site, reader, "POST", f"/violations/{large}/export", token(reader, large), headers)
        contains(held.recv(64).decode(errors="replace"), "200 OK")
        refused = export(reader, small)
        assert refused.status in (429, 503), refused.status
        contains(refused.text, "under way")
        began = time.monotonic()
        equal(export(other, small).status, 200)
        assert time.monotonic() - began < SOON
        held.close()
        wait_for(lambda: export(reader, small).status == 200, "a package for who has none under way", 60)


def revoked(suite, site, people, violation):
    with suite.case("a film that is under way ends soon after its reader's certificate is revoked"):
        reader = people["officer-2"]
        size = reader.get(f"/api/v1/violations/{violation}")["media"][0]["size"]
        for path in (f"/api/v1/violations/{violation}/media/0", f"/violations/{violation}/media/0"):
            whole = reader.request("GET", path)
            equal((whole.status, len(whole.body)), (200, size))
        readers = [slow(site, reader, "GET", path) for path in (f"/api/v1/violations/{violation}/media/0", f"/violations/{violation}/media/0")]
        for one in readers:
            contains(one.recv(64).decode(errors="replace"), "200 OK")
        site.ask("pki", "revoke", "--uid", "officer-2", "--reason", "key-compromise")
        time.sleep(2.5)
        for one in readers:
            got = 0
            with contextlib.suppress(OSError):
                while part := one.recv(1 << 20):
                    got += len(part)
            # What was in buffers on the way is theirs.
            assert got < size / 2, (got, size)
            one.close()
