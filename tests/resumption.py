"""TLS sessions that OpenSSL takes up again: always, and never past a suspension."""

import concurrent.futures
import contextlib
import http.client
import socket
import ssl

from tests.device import Device
from tests.harness import Site, contains, equal, tls_context

CONNECTIONS = 200
AT_ONCE = 8


class Client:
    """A client that keeps one session and resumes it for every connection."""

    def __init__(self, site, port, path, identity, version):
        self.port, self.path = port, path
        self.context = tls_context(site.root, identity)
        self.context.maximum_version = version
        self.session = None

    def ask(self):
        """Status and text of an answer, and whether the session was resumed."""
        with (contextlib.closing(socket.create_connection(("localhost", self.port), timeout=30)) as plain,
              self.context.wrap_socket(plain, server_hostname="localhost", session=self.session) as secured):
            secured.sendall(f"GET {self.path} HTTP/1.1\r\nHost: localhost\r\n"
                            "Tus-Resumable: 1.0.0\r\nConnection: close\r\n\r\n".encode())
            answer = http.client.HTTPResponse(secured)
            answer.begin()
            text = answer.read().decode(errors="replace")
            # With TLS 1.3 tickets come after the handshake, so before the answer.
            self.session = self.session or secured.session
            return answer.status, text, secured.session_reused


def run(suite):
    site = Site(suite).start()
    device = Device(site, "camera-40")
    equal(device.enrol(), 200, "status of the enrolment")
    person = site.people()["reviewer-3"]
    doors = [
        ("intake", site.intake, f"/intake/v1/blocks/{'0' * 64}/receipt", 404, device, ["--device", device.name]),
        ("portal", site.portal, "/api/v1/violations", 200, person, ["--uid", person.uid]),
    ]
    for name, port, path, good, identity, holder in doors:
        clients = []
        for version in [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2]:
            client = Client(site, port, path, identity, version)
            clients.append(client)
            with suite.case(f"{name}, {version.name}: {CONNECTIONS} connections resume one session, {AT_ONCE} at once"):
                status, _, resumed = client.ask()
                equal((status, resumed), (good, False), "first answer")
                with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
                    answers = list(threads.map(lambda _: client.ask(), range(CONNECTIONS)))
                equal({(status, resumed) for status, _, resumed in answers}, {(good, True)}, "answers")
        with suite.case(f"{name}: whoever is suspended resumes the session and is refused"):
            site.ask("registry", "suspend", *holder)
            for client in clients:
                status, text, resumed = client.ask()
                equal((status, resumed), (403, True), "answer")
                contains(text, "suspended")
            site.ask("registry", "resume", *holder)
            for client in clients:
                status, _, resumed = client.ask()
                equal((status, resumed), (good, True), "answer afterwards")
    with suite.case("the site stops"):
        site.stop()
