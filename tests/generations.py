"""Another generation of authorities takes over while people log in and devices renew: nobody is refused, and both are followed.

    python -m tests.generations --times 40 [--seed N]     SIGKILL of the site around each step of it
"""

import argparse
import base64
import itertools
import json
import random
import re
import socket
import sys
import threading
import time
import urllib.request

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs7

from tests import acme_client, ceremony, scep
from tests.harness import Camera, Site, contains, cordon, equal, free_port, jpeg, request, wait_for
from tests.harness import run as execute
from tests.requests import enrol
from tests.runner import Suite, finish, run_suite

STAFF = [("clerk", "registrar", 4), ("admin-1", "administrator", 4), ("admin-2", "administrator", 4), ("officer-1", "officer", 3)]
DEVICES = 24
# A certificate renews itself so often in a day.
RENEWALS = 8
FEW = 4


def openssl(*command, code=0, **options):
    done = execute("openssl", *command, code=code, **options)
    return done.stdout + done.stderr


class Device:
    """A device that only opens tunnels: certified by order, renewed over EST."""

    def __init__(self, site, name):
        self.site, self.name, self.folder = site, name, site.folder / name
        self.folder.mkdir()
        self.former, self.number = [], 0
        key, csr = self.new_key()
        line = json.dumps({"do": "openvpn", "device": {"name": name, "csr": csr.hex()}}).encode() + b"\n"
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(site.data / "control.sock"))
            control.sendall(line)
            control.shutdown(socket.SHUT_WR)
            answer = json.loads(b"".join(iter(lambda: control.recv(65536), b"")))
        self.keep(key, answer["done"]["chain_pem"].split("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n")

    def new_key(self):
        key = acme_client.new_key()
        return key, scep.csr(key, self.name)

    def keep(self, key, pem):
        self.number += 1
        identity = argparse.Namespace(cert=self.folder / f"{self.number}.pem", key=self.folder / f"{self.number}.key")
        identity.cert.write_text(pem)
        identity.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self.former.append(identity)

    @property
    def identity(self):
        return self.former[-1]

    def renew(self):
        key, csr = self.new_key()
        headers = {"Content-Type": "application/pkcs10"}
        path = "/.well-known/est/simplereenroll"
        answer = request(self.site.enrolment, "POST", path, self.site.root, self.identity, base64.b64encode(csr), headers)
        assert answer.status == 200, answer.text
        issued, = pkcs7.load_der_pkcs7_certificates(base64.b64decode(answer.body))
        self.keep(key, issued.public_bytes(Encoding.PEM).decode())


class Load:
    """Logins and renewals, one after the other in each thread, until it is stopped."""

    def __init__(self, *works):
        self.stopping, self.failures, self.done = threading.Event(), [], 0
        self.threads = [threading.Thread(target=self.go_on, args=(work,)) for work in works]

    def go_on(self, work):
        while not self.stopping.is_set():
            try:
                work()
                self.done += 1
            except Exception as error:  # Whatever it is, somebody was refused.
                self.failures.append(repr(error))
                self.stopping.wait(0.2)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


class World:
    """A site whose root is elsewhere, with people and devices, and lists for the world outside."""

    def __init__(self, suite):
        self.suite = suite
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        settings = f'public = "127.0.0.1:{self.port}"\n[site]\npublic_url = "{self.url}"\n'
        self.site = site = Site(suite, settings=settings)
        self.root = ceremony.Root(suite.folder)
        ceremony.requests(suite, site, self.root)
        made = json.loads(self.root.hold(self.root.first).stdout)
        self.fingerprint = made["root_sha256"]
        site.ask("pki", "install-authorities", self.root.number(1), "--root-sha256", self.fingerprint)
        site.start()
        self.people = enrol(site, *STAFF)
        self.devices = [Device(site, f"phone-{number}") for number in range(DEVICES)]
        self.camera = Camera(site).start()
        self.pki = site.data / "pki"

    def require_approvals(self):
        self.site.stop()
        self.site.config.write_text(self.site.config.read_text() + '\n[registration]\napprovals = "required"\n')
        self.site.start()

    def give(self, *command, by, code=0):
        person = self.people[by]
        proof = ("--as", person.p12, "--as-password-file", person.p12.with_name(f"{person.p12.name}.password"))
        return cordon("registry", "request", *command, *self.site.arguments(), *proof, "--json", "--log", "off", code=code)

    def done(self, *command, by):
        return json.loads(self.give(*command, by=by).stdout)

    def authorities(self):
        """State of each authority, by name."""
        listed = self.site.ask("pki", "authorities")["authorities"]
        return {one["name"]: one["state"] for one in listed}

    def issuer(self, certificate):
        return openssl("x509", "-in", certificate, "-noout", "-issuer", "-nameopt", "RFC2253,sep_comma_plus").strip()

    def is_by(self, certificate, authority):
        """Whether OpenSSL finds the path of a certificate over this authority."""
        command = ["verify", "-x509_strict", "-CAfile", self.site.root, "-untrusted", self.pki / f"{authority}-ca.pem", certificate]
        return execute("openssl", *command, code=None).returncode == 0

    def status(self, certificate, authority):
        """What OpenSSL's client finds out about a certificate; it verifies the response."""
        issuer = self.pki / f"{authority}-ca.pem"
        command = ["ocsp", "-url", f"{self.url}/ocsp", "-issuer", issuer, "-cert", certificate, "-CAfile", self.site.root]
        answer = openssl(*command, "-verify_other", issuer, "-no_nonce")
        contains(answer, "Response verify OK")
        return re.search(r": (good|revoked|unknown)", answer)[1]

    def by_list(self, certificate, authority, code=0):
        """What OpenSSL says of a certificate by the list that it names."""
        text = openssl("x509", "-in", certificate, "-noout", "-text")
        _, _, rest = text.partition("X509v3 CRL Distribution Points")
        address = re.search(r"URI:(\S+)", rest)[1]
        contains(address, f"/crl/{authority}-")
        der = self.suite.folder / "list.der"
        execute("curl", "-sf", "-o", der, address)
        pem = self.suite.folder / "list.pem"
        openssl("crl", "-inform", "DER", "-in", der, "-out", pem)
        command = ["verify", "-crl_check", "-extended_crl", "-CAfile", self.site.root, "-untrusted", self.pki / f"{authority}-ca.pem"]
        return openssl(*command, "-CRLfile", pem, certificate, code=code)


def take_over(world, kinds):
    """From the requests to the installed authorities; gives their names."""
    suite, site, root = world.suite, world.site, world.root
    out = suite.folder / f"next-{kinds[0]}"
    names = [f"{kind}-g2" for kind in kinds]
    new = [word for kind in kinds for word in ("--new", kind)]
    site.ask("pki", "request-authorities", *new, "--out", out)
    equal(sorted(path.name for path in out.iterdir()), sorted(f"{name}-ca.csr" for name in names))
    for name in names:
        (root.home / f"{name}-ca.csr").write_bytes((out / f"{name}-ca.csr").read_bytes())
    acts = [
        f'do = "certify-authority"\nkind = "{kind}"\ngeneration = 2\nrequest = "{kind}-g2-ca.csr"\nhighest_clearance = 4\nyears = 10\n'
        for kind in kinds
    ]
    number = len(list((root.folder / "ceremonies").iterdir())) + 1
    root.hold(root.later(*acts))
    installed = site.ask("pki", "install-authorities", root.number(number))
    equal(sorted(installed["ready"]), sorted(names))
    return names


def approved(world, name):
    """The act that puts an authority to use, asked for by one and approved by two others."""
    asked = world.done("new", "authority", "--name", name, "--reason", "the first one ends", "--submit", by="clerk")
    ident = asked["id"]
    equal(asked["approvals_needed"], 2)
    contains(world.give("approve", ident, "--seen", asked["version"], by="clerk", code=1).stderr, "refused")
    one = world.done("approve", ident, "--seen", asked["version"], by="admin-1")
    contains(world.give("carry-out", ident, "--seen", one["version"], by="clerk", code=1).stderr, "wrong-state")
    both = world.done("approve", ident, "--seen", one["version"], by="admin-2")
    equal(world.done("carry-out", ident, "--seen", both["version"], by="clerk")["state"], "issued")


def rolled_over(suite, world):
    site, people, devices = world.site, world.people, world.devices
    officer = people["officer-1"]

    def login():
        equal(officer.request("GET", "/").status, 200)

    def renewals(part, most):
        """Renews one device after the other, each at most so often."""
        turns = itertools.cycle(part)

        def work():
            device = next(turns)
            if len(device.former) <= most:
                device.renew()
            time.sleep(0.02)

        return work

    half = len(devices) // 2
    with suite.case("without its approvals no generation is put to use"):
        with Load(login, renewals(devices[:half], 2), renewals(devices[half:], 2)) as load:
            names = take_over(world, ["devices", "users"])
            before = world.authorities()
            equal({name: before[name] for name in names}, dict.fromkeys(names, "ready"))
            refused = cordon("pki", "activate-authority", names[0], *site.arguments(), code=1).stderr
            contains(refused, "without approvals")
            contains(refused, "cordon registry request new authority")
            equal(world.authorities(), before)
            time.sleep(0.5)
        equal(load.failures, [])
    with suite.case("the devices and the users authority are rolled over under load, and nobody is refused"):
        first = [device.identity for device in devices]
        most = RENEWALS - 1
        with Load(login, login, renewals(devices[:half], most), renewals(devices[half:], most)) as load:
            world.camera.drop("during", jpeg(b"during"))
            for name in names:
                approved(world, name)
            count = load.done
            wait_for(lambda: load.done > count + 40, lambda: load.failures, 30)
        certificates = sum(len(device.former) for device in devices)
        print(f"        {load.done} logins and renewals, {certificates} certificates of {len(devices)} devices", flush=True)
        equal(load.failures, [])
        equal([world.authorities()[name] for name in ("devices", "devices-g2", "users", "users-g2")], ["retired", "issuing"] * 2)
    with suite.case("holders have one of the new generation by their own renewal, and OpenSSL finds both paths"):
        for device, old in zip(devices, first):
            device.renew()
            assert world.is_by(device.identity.cert, "devices-g2"), world.issuer(device.identity.cert)
            assert world.is_by(old.cert, "devices"), world.issuer(old.cert)
            assert not world.is_by(old.cert, "devices-g2")
    return first


def followed(suite, world, first):
    site, devices, officer = world.site, world.devices, world.people["officer-1"]
    new = devices[0].identity
    with suite.case("a camera of the first generation delivers, and the portal knows it; so do people of the first"):
        world.camera.drop("after", jpeg(b"after"))
        world.camera.drain()
        equal(officer.request("GET", "/").status, 200)
    with suite.case("OCSP, by the delegate of each generation, and the lists that certificates name say that both are good"):
        for certificate, authority in ((officer.cert, "users"), (new.cert, "devices-g2")):
            equal(world.status(certificate, authority), "good")
            world.by_list(certificate, authority)
    with suite.case("browsers are told the names of both generations, so that they offer certificates of either"):
        shown = openssl("s_client", "-connect", f"127.0.0.1:{site.portal}", "-CAfile", site.root, code=None, input="", timeout=20)
        for name in ("LEA-EU users CA", "LEA-EU users CA G2", "LEA-EU root CA"):
            assert re.search(rf"CN ?= ?{name}$", shown, re.MULTILINE), (name, shown)
    with suite.case("EST and the files for cameras and gateways have all generations"):
        answer = request(site.enrolment, "GET", "/.well-known/est/cacerts", site.root)
        held = pkcs7.load_der_pkcs7_certificates(base64.b64decode(answer.body))
        equal(len(held), 1 + 3 + 2)
        listed = site.ask("pki", "authorities", "--kind", "devices", "--out", suite.folder / "devices-ca.pem")
        equal(len(listed["authorities"]), 2)
        equal((suite.folder / "devices-ca.pem").read_text().count("BEGIN CERTIFICATE"), 2)
    serial = openssl("x509", "-in", officer.cert, "-noout", "-serial").split("=")[1].strip().lower()
    other = openssl("x509", "-in", new.cert, "-noout", "-serial").split("=")[1].strip().lower()
    with suite.case("a revocation under the first generation is followed after the roll-over, and one under the second"):
        for one, who in ((serial, "officer-1"), (other, devices[0].name)):
            asked = world.done("new", "revoke", "--serial", one, "--cause", "key-compromise", "--emergency", "--reason", "stolen", "--submit", by="clerk")
            by = "registrar-1"
            voted = world.done("approve", asked["id"], "--seen", asked["version"], by=by)
            world.done("carry-out", asked["id"], "--seen", voted["version"], by="clerk")
        equal(officer.request("GET", "/api/v1/violations").status, 403)
        answer = request(site.enrolment, "POST", "/.well-known/est/simplereenroll", site.root, new, b"", {"Content-Type": "application/pkcs10"})
        equal(answer.status, 403, answer.text)
        for certificate, authority in ((officer.cert, "users"), (new.cert, "devices-g2")):
            equal(world.status(certificate, authority), "revoked")
            contains(world.by_list(certificate, authority, code=2), "certificate revoked")
        equal(world.status(devices[1].identity.cert, "devices-g2"), "good")
        # One of each authority is on no list of another.
        for name, there in (("users", serial), ("devices-g2", other)):
            for authority in ("users", "users-g2", "devices", "devices-g2"):
                text = openssl("crl", "-inform", "DER", "-in", world.pki / "crl" / f"{authority}.crl", "-noout", "-text").lower()
                equal(there in text, authority == name, f"{there} on the list of {authority}")


def proved(suite, world):
    site = world.site
    with suite.case("the log alone shows that all of it came about as the rules say, over both generations"):
        done = cordon("pki", "audit", "--data", site.data, "--config", site.config, "--json", code=None)
        report = json.loads(done.stdout)["report"]
        equal(report["acts"].get("add-authority"), 2)
        # People and devices were enrolled by order and invitation, before approvals were required.
        direct = ("ordered it, without a request", "gave an invitation, without a request")
        rest = [gap for gap in report["gaps"] if not any(known in gap["what"] for known in direct)]
        equal(rest, [])
        assert report["certificates"]["renewal"] > 20, report["certificates"]
        site.verify_audit()


def stolen(suite, world):
    """The services authority is replaced and revoked: what the site itself shows is of the new one, without a restart."""
    site, root = world.site, world.root
    server = site.data / "keys" / "server.pem"
    with suite.case("a services authority that was stolen is followed by another, and revoked; the site and its cameras go on"):
        name, = take_over(world, ["services"])
        approved(world, name)
        assert "services CA G2" not in world.issuer(server)
        (root.home / "services-ca.pem").write_bytes((world.pki / "services-ca.pem").read_bytes())
        number = len(list((root.folder / "ceremonies").iterdir())) + 1
        root.hold(root.later('do = "revoke-authority"\ncertificate = "services-ca.pem"\nreason = "ca-compromise"\n'))
        site.ask("pki", "install-authorities", root.number(number))
        wait_for(lambda: "services CA G2" in world.issuer(server), lambda: world.issuer(server), 20)
        assert world.is_by(server, name), world.issuer(server)
        equal(world.status(server, name), "good")
        world.camera.drop("stolen", jpeg(b"stolen"))
        world.camera.drain()
        equal(world.people["clerk"].request("GET", "/").status, 200)
        wait_for(lambda: "problem" not in health(site), lambda: health(site), 20)
        equal(world.authorities()["services-g2"], "issuing")


def health(site):
    with urllib.request.urlopen(f"http://127.0.0.1:{site.metrics}/healthz", timeout=10) as answer:
        return answer.read().decode()


def crossed(suite):
    """Two roots of one name certify each other: OpenSSL finds the path from either to what the other certified."""
    folder = suite.folder / "roots"
    folder.mkdir()
    roots = []
    for which in ("old", "new"):
        home = folder / which
        home.mkdir()
        root = ceremony.Root(home)
        site = Site(suite, f"under-{which}")
        site.ask("pki", "request-authorities", "--out", home / "requests")
        for kind in ceremony.KINDS:
            (root.home / f"{kind}-ca.csr").write_bytes((home / "requests" / f"{kind}-ca.csr").read_bytes())
        root.hold(root.first)
        roots.append(root)
    with suite.case("two roots of one name certify each other, and OpenSSL accepts what either certified by the other"):
        for own, other in (roots, roots[::-1]):
            (own.home / "other-root.pem").write_bytes((other.number(1) / "root.pem").read_bytes())
            own.hold(own.later('do = "cross-certify"\ncertificate = "other-root.pem"\nyears = 10\n'))
            cross, = own.number(2).glob("cross-*.pem")
            authority = other.number(1) / "devices-ca.pem"
            command = ["openssl", "verify", "-x509_strict", "-CAfile", own.number(1) / "root.pem"]
            assert execute(*command, authority, code=None).returncode != 0, "without the cross certificate"
            execute(*command, "-untrusted", cross, authority)
            fingerprint = json.loads((own.number(1) / "transcript.json").read_text())["root"]
            cordon("pki", "ceremony", "check", own.folder, "--root-sha256", fingerprint)
    with suite.case("what is no other root of the same name is refused, and nothing is signed"):
        own, other = roots
        for name, source in (("own", own.number(1) / "root.pem"), ("authority", other.number(1) / "users-ca.pem")):
            (own.home / "other-root.pem").write_bytes(source.read_bytes())
            own.hold(own.later('do = "cross-certify"\ncertificate = "other-root.pem"\nyears = 10\n'), code=1)
        equal(sorted(path.name for path in (own.folder / "ceremonies").iterdir()), ["0001", "0002"])


def shake(suite, site, rng, most):
    """So many kills around steps of roll-overs; their number."""
    root = site.folder / "root-passphrase"
    root.write_bytes((site.data / "passphrase").read_bytes())

    def names():
        return {one["name"]: one["state"] for one in site.ask("pki", "authorities")["authorities"]}

    def order(command):
        # Whether it was carried out, or the site had gone by then, is for what follows to see.
        cordon(*command, *site.arguments(), "--log", "off", code=None, timeout=30)

    killed, states = 0, names()
    while killed < most:
        ready = [name for name, state in states.items() if state == "ready"]
        make = ["new-authority", rng.choice(["users", "devices", "services"]), "--root-passphrase-file", root]
        end = rng.choice(["activate-authority"] * 3 + ["drop-authority"])
        step = ["pki", *([end, ready[0]] if ready else make)]
        thread = threading.Thread(target=order, args=(step,))
        thread.start()
        time.sleep(rng.uniform(0, 0.8))
        site.process.kill()
        killed += 1
        thread.join()
        site.start()
        states = names()
        for kind in ("users", "devices", "services"):
            issuing = [name for name, state in states.items() if state == "issuing" and name.split("-")[0] == kind]
            equal(len(issuing), 1, f"issuing of {states}")
        site.ask("registry", "code", "--device", f"device-{killed}", "--out", site.folder / f"device-{killed}")
    print(f"        {killed} kills: {states}", flush=True)
    return killed


def kill_around(suite, times, seed):
    """Steps of roll-overs, with SIGKILL somewhere in or after each."""
    print(f"        python -m tests.generations --times {times} --seed {seed}", flush=True)
    rng, killed, number = random.Random(seed), 0, 0
    while killed < times:
        number += 1
        site = Site(suite, f"killed-{number}").start()
        with suite.case("kills around the steps of roll-overs leave one generation of each kind that issues"):
            killed += shake(suite, site, rng, times - killed)
        with suite.case("after them people log in with certificates of whichever generation, and the log holds"):
            people = site.people()
            equal(people["officer-2"].request("GET", "/").status, 200)
            audit = json.loads(cordon("pki", "audit", "--data", site.data, "--json", code=None).stdout)["report"]
            orders = ("ordered it, without a request", "issue, without a request")
            rest = [gap for gap in audit["gaps"] if not gap["what"].endswith(orders)]
            equal(rest, [])
            site.stop()
            site.verify_audit()
        if suite.failed:
            break


def run(suite):
    world = World(suite)
    world.people |= enrol(world.site, ("registrar-1", "registrar", 4))
    world.require_approvals()
    first = rolled_over(suite, world)
    followed(suite, world, first)
    proved(suite, world)
    stolen(suite, world)
    world.camera.stop()
    world.site.stop()
    crossed(suite)
    kill_around(suite, FEW, 7)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=FEW)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = random.randrange(1 << 32) if args.seed is None else args.seed
    suite = Suite("generations")
    run_suite(suite, lambda suite: kill_around(suite, args.times, seed), limit=300 + 15 * args.times)
    return finish([suite])


if __name__ == "__main__":
    sys.exit(main())
