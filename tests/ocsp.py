"""OCSP and revocation lists for the world outside: plain HTTP, addresses in certificates, staples; OpenSSL asks."""

import base64
import re
import ssl
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


    def addresses(self, certificate):
        """Paths of the list that a certificate names, and of the delta list to it."""
        text = openssl("x509", "-in", certificate, "-noout", "-text")
        paths = []
        for extension in ("CRL Distribution Points", "Freshest CRL"):
            _, _, rest = text.partition(f"X509v3 {extension}")
            paths.append(re.search(r"URI:" + re.escape(self.url) + r"(/crl/\S+\.crl)", rest).group(1))
        return paths

    def fetch(self, path, out):
        """A list as it is now, as PEM."""
        status, headers, body = self.get(path)
        equal((status, headers["content-type"]), (200, "application/pkix-crl"))
        openssl("crl", "-inform", "DER", "-in", save(out.with_suffix(".der"), body), "-out", out)
        return out

    def verify(self, certificate, *lists, authority="devices", code=0):
        """What OpenSSL says of a certificate by these lists."""
        text = "".join(file.read_text() for file in lists)
        file = save(self.suite.folder / "lists.pem", text.encode())
        return openssl("verify", "-crl_check", "-extended_crl", "-use_deltas", "-CAfile", self.site.root, "-untrusted",
                       self.pki / f"{authority}-ca.pem", "-CRLfile", file, certificate, code=code)


def save(file, content):
    file.write_bytes(content)
    return file


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
    (shard, delta), other_shard, number = world.addresses(device), None, 18
    # Chance may put the second camera on the list of the first.
    while other_shard in (None, shard):
        second = Camera(site, f"camera-{number}").start()
        identity = second.folder / "identity.pem"
        wait_for(identity.exists, "the second camera's certificate", 20)
        other = leaf(identity, suite.folder / "other.pem")
        other_shard, number = world.addresses(other)[0], number + 1
    server = leaf(site.data / "keys/server.pem", suite.folder / "server.pem")

    with suite.case("certificates say where the list, the delta list, the responder and the issuer are"):
        for certificate, authority in ((device, "devices"), (server, "services")):
            text = openssl("x509", "-in", certificate, "-noout", "-text")
            contains(text, f"CA Issuers - URI:{world.url}/ca/{authority}.cer")
            status, headers, body = world.get(f"/ca/{authority}.cer")
            equal((status, headers["content-type"]), (200, "application/pkix-cert"))
            issuer = save(suite.folder / f"{authority}.cer", body)
            openssl("x509", "-inform", "DER", "-in", issuer, "-out", suite.folder / f"{authority}-issuer.pem")
            verified = openssl("verify", "-CAfile", site.root, "-untrusted", suite.folder / f"{authority}-issuer.pem", certificate)
            contains(verified, "OK")
            contains(text, f"OCSP - URI:{world.url}/ocsp")
            named, changes = world.addresses(certificate)
            assert re.fullmatch(rf"/crl/{authority}-\d{{3}}\.crl", named), named
            equal(changes, named.replace(".crl", "-delta.crl"))

    base = world.fetch(shard, suite.folder / "base.pem")
    with suite.case("OpenSSL believes a shard about the certificates that name it, and about no others"):
        world.verify(device, base)
        world.verify(device, base, world.fetch(delta, suite.folder / "delta.pem"))
        theirs = world.fetch(other_shard, suite.folder / "other-shard.pem")
        world.verify(other, theirs)
        contains(world.verify(other, base, code=2), "ifferent CRL scope")
        contains(world.verify(device, theirs, code=2), "ifferent CRL scope")
        everybody = world.fetch("/crl/devices.crl", suite.folder / "everybody.pem")
        for certificate in (device, other):
            world.verify(certificate, everybody)
        world.verify(server, world.fetch(world.addresses(server)[0], suite.folder / "server-shard.pem"), authority="services")
        tls = ssl.create_default_context(cafile=site.root)
        for path in (shard, delta):
            with urllib.request.urlopen(f"https://localhost:{site.enrolment}{path}", timeout=10, context=tls) as answer:
                equal((answer.headers["content-type"], answer.read()), ("application/pkix-crl", world.get(path)[2]))
        for path in ("/crl/devices-999.crl", "/crl/devices-7.crl", "/crl/root-delta.crl", "/crl/nobody.crl"):
            equal(world.get(path)[0], 404, path)

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
        lists = [world.fetch(path, suite.folder / f"{name}.pem") for name, path in
                 (("shard", shard), ("delta", delta), ("everybody-then", "/crl/devices.crl"), ("changes", "/crl/devices-delta.crl"))]
        for known in ([lists[0]], [base, lists[1]], [lists[2]], [everybody, lists[3]]):
            contains(world.verify(device, *known, code=2), "certificate revoked")
        world.verify(device, base)
        contains(world.verify(device, theirs, code=2), "ifferent CRL scope")
        world.verify(other, world.fetch(other_shard, suite.folder / "other-shard.pem"))
        equal(world.get(other_shard)[2], theirs.with_suffix(".der").read_bytes(), "the list of another shard")
        rows = site.ask("pki", "list")["certificates"]
        old = next(row["serial"] for row in rows if row["holder"] == "localhost" and row["revoked"] is None)
        site.ask("pki", "revoke", "--serial", old, "--reason", "key-compromise")
        contains(world.ask("services", server), f"{server}: revoked")

        def renewed():
            said = world.staple(site.portal)
            return "Cert Status: good" in said and old.upper() not in said

        wait_for(renewed, "a staple about another certificate", 20)

    with suite.case("responders' certificates are in metrics, and a restart keeps them"):
        def expiry(kind, start):
            address = f"http://127.0.0.1:{site.metrics}/metrics"
            with urllib.request.urlopen(address, timeout=10) as answer:
                lines = answer.read().decode().splitlines()
            label = kind.replace("revocation_", "")
            return [line for line in lines if line.startswith(f'cordon_{kind}_expires_seconds{{{label}="{start}')]

        equal(len(expiry("certificate", "ocsp-")), 3)
        for authority in ("users", "devices", "services"):
            # Its list and delta list; of its shards, and of their delta lists, the first to end.
            equal(len(expiry("revocation_list", authority)), 4, authority)
        issued = lambda: sum("OCSP" in row["holder"] for row in site.ask("pki", "list")["certificates"])
        before = issued()
        camera.stop()
        site.stop()
        site.start()
        equal(issued(), before, "certificates of responders")
        contains(world.ask("devices", device), "revoked")
        contains(world.verify(device, world.fetch(shard, suite.folder / "again.pem"), code=2), "certificate revoked")
        site.stop()
        site.verify_audit()
