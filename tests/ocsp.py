"""OCSP and revocation lists for the world outside: plain HTTP, addresses in certificates, staples; OpenSSL asks."""

import base64
import urllib.error
import urllib.parse
import urllib.request

from tests.harness import Camera, Site, contains, equal, free_port, jpeg, wait_for
from tests.harness import run as execute


def openssl(*command, code=0, **options):
    done = execute("openssl", *command, code=code, **options)
    return done.stdout + done.stderr


class World:
    def __init__(self, suite):
        self.suite, self.port = suite, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.site = Site(suite, settings=f'public = "127.0.0.1:{self.port}"\n[site]\npublic_url = "{self.url}"\n')
        self.site.start()
        self.pki = self.site.data / "pki"

    def ask(self, authority, certificate, *options, code=0, also=(), nonce=False):
        """What OpenSSL's client finds out about a certificate; it verifies the response."""
        issuer = self.pki / f"{authority}-ca.pem"
        # OpenSSL wants the hash before the certificate that it is for.
        command = ["ocsp", *options, "-url", f"{self.url}/ocsp", "-issuer", issuer, "-cert", certificate]
        # The delegate's certificate comes in the response, its issuer is known here.
        for more in also:
            command += ["-cert", more]
        command += ["-CAfile", self.site.root, "-verify_other", issuer, "-nonce" if nonce else "-no_nonce"]
        return openssl(*command, code=code)

    def get(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def staple(self, port, name="localhost"):
        command = ["s_client", "-connect", f"127.0.0.1:{port}", "-servername", name, "-status", "-CAfile", self.site.root]
        return openssl(*command, code=None, input="", timeout=20)


def leaf(identity, out):
    """The certificate alone of a file that also has a key."""
    text = identity.read_text()
    start, end = text.index("-----BEGIN CERTIFICATE"), text.index("-----END CERTIFICATE-----")
    out.write_text(text[start:end] + "-----END CERTIFICATE-----\n")
    return out


def run(suite):
    world = World(suite)
    site = world.site
    camera = Camera(site).start()
    camera.drop("first", jpeg(b"first"))
    camera.drain()
    device = leaf(camera.folder / "identity.pem", suite.folder / "device.pem")
    second = Camera(site, "camera-18").start()
    identity = second.folder / "identity.pem"
    wait_for(identity.exists, "the second camera's certificate", 20)
    other = leaf(identity, suite.folder / "other.pem")
    server = leaf(site.data / "keys/server.pem", suite.folder / "server.pem")

    with suite.case("certificates say where the list and the responder are"):
        for certificate, authority in ((device, "devices"), (server, "services")):
            text = openssl("x509", "-in", certificate, "-noout", "-text")
            contains(text, f"URI:{world.url}/crl/{authority}.crl")
            contains(text, f"OCSP - URI:{world.url}/ocsp")

    with suite.case("OpenSSL asks about a device and a server, with SHA-1 and SHA-256, and believes the answers"):
        for certificate, authority in ((device, "devices"), (server, "services")):
            for options in ((), ("-sha256",)):
                said = world.ask(authority, certificate, *options)
                contains(said, "Response verify OK")
                contains(said, f"{certificate}: good")
        listed = world.get("/crl/devices.crl")
        equal(listed[0], 200)
        file = suite.folder / "devices.crl"
        file.write_bytes(listed[2])
        contains(openssl("crl", "-inform", "DER", "-in", file, "-noout", "-CAfile", world.pki / "devices-ca.pem"), "verify OK")

    with suite.case("OpenSSL's nonce is repeated, and two certificates are answered in one response"):
        said = world.ask("devices", device, also=[other], nonce=True)
        contains(said, "Response verify OK")
        assert "nonce" not in said.lower(), said
        for certificate in (device, other):
            contains(said, f"{certificate}: good")

    with suite.case("the same by GET, with how long caches may keep it"):
        request = suite.folder / "request.der"
        openssl("ocsp", "-issuer", world.pki / "devices-ca.pem", "-cert", device, "-no_nonce", "-reqout", request)
        path = urllib.parse.quote(base64.b64encode(request.read_bytes()).decode(), safe="")
        status, headers, body = world.get(f"/ocsp/{path}")
        equal((status, headers["content-type"]), (200, "application/ocsp-response"))
        contains(headers["cache-control"], "max-age=")
        response = suite.folder / "response.der"
        response.write_bytes(body)
        said = openssl("ocsp", "-respin", response, "-text", "-noverify")
        contains(said, "Cert Status: good")

    with suite.case("nothing is said about what this site has not issued, and there is nothing but lists and OCSP"):
        foreign = suite.folder / "foreign.pem"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x",
                "-keyout", suite.folder / "foreign.key", "-out", foreign)
        contains(world.ask("devices", foreign, code=1), "unauthorized")
        equal(world.get("/.well-known/est/cacerts")[0], 404)
        equal(world.get("/healthz")[0], 404)

    with suite.case("every TLS listener staples the response about its certificate"):
        for port in (site.portal, site.intake, site.enrolment):
            said = world.staple(port)
            contains(said, "OCSP Response Status: successful")
            contains(said, "Cert Status: good")

    with suite.case("a revocation counts with the next request, and the server has another certificate and staple"):
        site.ask("pki", "revoke", "--device", "camera-17", "--reason", "key-compromise")
        said = world.ask("devices", device)
        contains(said, f"{device}: revoked")
        contains(said, "Reason: keyCompromise")
        rows = site.ask("pki", "list")["certificates"]
        old = next(row["serial"] for row in rows if row["holder"] == "localhost" and row["revoked"] is None)
        site.ask("pki", "revoke", "--serial", old, "--reason", "key-compromise")
        contains(world.ask("services", server), f"{server}: revoked")

        def renewed():
            said = world.staple(site.portal)
            return "Cert Status: good" in said and old.upper() not in said

        wait_for(renewed, "a staple about another certificate", 20)

    with suite.case("responders' certificates are in metrics, and a restart keeps them"):
        def expiry():
            address = f"http://127.0.0.1:{site.metrics}/metrics"
            with urllib.request.urlopen(address, timeout=10) as answer:
                lines = answer.read().decode().splitlines()
            return [line for line in lines if line.startswith('cordon_certificate_expires_seconds{certificate="ocsp-')]

        equal(len(expiry()), 3)
        issued = lambda: sum("OCSP" in row["holder"] for row in site.ask("pki", "list")["certificates"])
        before = issued()
        camera.stop()
        site.stop()
        site.start()
        equal(issued(), before, "certificates of responders")
        contains(world.ask("devices", device), "revoked")
        site.stop()
        site.verify_audit()
