"""Who relies on the site's certificates hears of revocations: of each kind of certificate, at each relying party.

    python -m tests.relying_parties --full      # a hundred revocations in the place of ten

Inside of Cordon within five seconds; nginx, Apache, curl, OpenSSL and strongSwan within what lists and responses say of themselves.
"""

import argparse
import contextlib
import json
import re
import shutil
import sys
import threading
import time

from tests.ceremony import KINDS
from tests.device import Device
from tests.harness import Camera, Person, Process, contains, equal, free_port, jpeg, run as execute, wait_for
from tests.relying_lab import WITHIN, Apache, Nginx, World, lifetime, took
from tests.relying_tunnels import GATEWAY, Client, Gateway, Guard, Sessions, StrongSwan
from tests.runner import Suite, finish, run_suite

# Revocations of devices and of people that are timed.
FEW, MANY = 10, 100
HOUR = 3600


def portal(person):
    """Whether somebody is let in at the portal."""
    return person.request("GET", "/api/v1/violations").status == 200


def intake(device):
    """Whether the intake takes a block of a device: one of a byte, which is announced only."""
    return device.create(1).status == 201


def leaf(file, out):
    """The first certificate of a file."""
    out.write_text(re.search(r"-----BEGIN CERTIFICATE.*?-----END CERTIFICATE-----\n", file.read_text(), re.S)[0])
    return out


def curl(world, *options):
    """Whether curl gets a page of the portal, and says of the server's certificate."""
    command = ["curl", "-s", "-S", "--cacert", world.site.root, *options, f"https://localhost:{world.site.portal}/"]
    done = execute(*command, code=None)
    return done.returncode == 0, done.stderr


class Parties:
    """Everybody who relies on certificates of devices and people."""

    def __init__(self, suite):
        self.suite, self.world = suite, World(suite)
        self.site = self.world.site
        self.people = self.site.people()
        self.nginx, self.apache = Nginx(self.world), Apache(self.world)
        self.folder = suite.folder / "gateway"
        self.site.ask("vpn", "gateway-certificate", "--name", GATEWAY, "--out", self.folder)

    @contextlib.contextmanager
    def case(self, title):
        """One case, which ends the tunnels that it began."""
        with self.suite.case(title):
            try:
                yield
            finally:
                while self.world.tunnels:
                    self.world.tunnels.pop().end()

    def device(self, name):
        device = Device(self.site, name)
        equal(device.enrol(), 200, "status of an enrolment")
        device.key.chmod(0o600)
        return device


def user(parties):
    world, site = parties.world, parties.site
    officer, other = parties.people["officer-2"], parties.people["reviewer-3"]
    with parties.case("a person's revocation: portal, OCSP, nginx, Apache, lists"):
        before = world.lists("root", "users")
        for server in (parties.nginx, parties.apache):
            assert server.lets_in(officer.cert, officer.key), server.log.read_text()[-2000:]
        assert portal(officer)
        said = world.ocsp("users", officer.cert)
        contains(said, ": good")
        assert lifetime(("This Update", "Next Update"), said) <= 12 * HOUR, said
        began = world.revoke("--uid", "officer-2")
        took("the portal's refusal", lambda: not portal(officer), WITHIN, began)
        contains(world.ocsp("users", officer.cert), ": revoked")
        assert not parties.apache.lets_in(officer.cert, officer.key)
        # Nginx has the lists of before, and others are as good as they say: a day.
        assert parties.nginx.lets_in(officer.cert, officer.key)
        for name in KINDS:
            shown = execute("openssl", "crl", "-inform", "DER", "-noout", "-lastupdate", "-nextupdate", input=world.list(f"{name}.crl"), text=False)
            assert lifetime(("lastUpdate", "nextUpdate"), shown.stdout.decode()) <= 24 * HOUR, shown
        verify = ["openssl", "verify", "-crl_check_all", "-CAfile", site.root, "-untrusted", world.pki / "users-ca.pem"]
        execute(*verify, "-CRLfile", before, officer.cert)
        stale = execute(*verify, "-attime", int(time.time()) + 25 * HOUR, "-CRLfile", before, other.cert, code=2)
        contains(stale.stderr, "CRL has expired")
        contains(execute(*verify, "-CRLfile", world.lists("root", "users"), officer.cert, code=2).stderr, "certificate revoked")
        parties.nginx.fetch()
        parties.nginx.reload()
        assert not parties.nginx.lets_in(officer.cert, officer.key)
        for server in (parties.nginx, parties.apache):
            assert server.lets_in(other.cert, other.key), server.log.read_text()[-2000:]
        assert portal(other)


def device(parties):
    """One device at every door that devices have; strongSwan keeps a response as long as it says."""
    suite, world, site = parties.suite, parties.world, parties.site
    with parties.case("a device's revocation: intake, cordon vpn up, OpenVPN, OCSP, nginx, Apache"):
        car = parties.device("car-1")
        gateway = Gateway(world, parties.folder)
        guard, near = Guard(world, "near", "car-1"), Client(world, [car])
        remote = Guard(world, "remote", "car-1", number=1, source=("--crl-url", f"{world.url}/crl"))
        wait_for(lambda: gateway.peers() == {"car-1"}, lambda: gateway.text()[-3000:] + near.text()[-3000:], 20)
        assert intake(car) and guard.is_up() and remote.is_up()
        for server in (parties.nginx, parties.apache):
            assert server.lets_in(car.chain, car.key), server.log.read_text()[-2000:]
        contains(world.ocsp("devices", car.cert), ": good")
        began = world.revoke("--device", "car-1")
        took("the intake's refusal", lambda: not intake(car), WITHIN, began)
        took("the end of the tunnel", lambda: not gateway.peers(), WITHIN, began)
        for one in (guard, remote):
            began = world.revoke("--device", one.device)
            took(f"the end of OpenVPN's session ({one.name})", one.has_ended, WITHIN, began)
        contains(world.ocsp("devices", car.cert), ": revoked")
        assert not parties.apache.lets_in(car.chain, car.key)
        parties.nginx.fetch()
        parties.nginx.reload()
        assert not parties.nginx.lets_in(car.chain, car.key)
    with parties.case("a device's revocation: strongSwan's revocation plugin, as it is"):
        car = parties.device("car-2")
        charon = StrongSwan(world, parties.folder)
        near = Client(world, [car], strongswan=True)
        wait_for(lambda: charon.certified("car-2"), lambda: charon.log()[-4000:] + near.text()[-2000:], 20)
        contains(charon.log(), "certificate status is good")
        # It may not have charon's last message yet: charon hears of it all the same.
        near.end()
        wait_for(lambda: not charon.certified("car-2"), charon.sas, 10)
        world.revoke("--device", "car-2")
        # It keeps good responses, as long as they say of themselves: until then, or until it is told to forget them.
        near = Client(world, [car], strongswan=True)
        wait_for(lambda: charon.certified("car-2"), lambda: charon.log()[-4000:], 20)
        near.end()
        wait_for(lambda: not charon.certified("car-2"), charon.sas, 10)
        charon.control("--flush-certs")
        Client(world, [car], strongswan=True)
        wait_for(lambda: "certificate was revoked on" in charon.log(), lambda: charon.log()[-4000:], 20)
        assert not charon.certified("car-2"), charon.sas()


def learned(camera, serial):
    """Whether a camera has a list that names this certificate."""
    for file in (camera.folder / "spool" / "revocation").glob("*.crl"):
        text = execute("openssl", "crl", "-inform", "DER", "-in", file, "-noout", "-text").stdout
        if serial.upper() in text:
            return True
    return False


def services(parties):
    suite, world, site = parties.suite, parties.world, parties.site
    camera = parties.camera = Camera(site).start()
    camera.drop("first", jpeg(b"first"))
    camera.drain()
    for title, holder in (("the centre's server", "localhost"), ("the receipt signer", "Acquisition Centre")):
        with parties.case(f"revocation of {title}: a camera in contact"), Pictures(camera):
            # It has a connection for long, whose lists are from its beginning.
            time.sleep(3)
            old = world.serial(holder)
            began = world.revoke("--serial", old)
            took("the camera's knowledge", lambda: learned(camera, old), WITHIN, began)
    camera.drain()
    with parties.case("revocation of the centre's server: curl by lists and by staple"):
        before, own = world.lists(), leaf(site.data / "keys/server.pem", suite.folder / "server-before.pem")
        for options in (["--crlfile", before], ["--cert-status"]):
            assert curl(world, *options)[0], options
        old = world.serial("localhost")
        world.revoke("--serial", old)
        contains(world.ocsp("services", own), ": revoked")
        wait_for(lambda: curl(world, "--crlfile", world.lists())[0] and curl(world, "--cert-status")[0], "another certificate of the server", 20)
        verify = ["openssl", "verify", "-crl_check_all", "-CAfile", site.root, "-untrusted", world.pki / "services-ca.pem", "-CRLfile"]
        contains(execute(*verify, world.lists("root", "services"), own, code=2).stderr, "certificate revoked")
    with parties.case("revocation of the receipt signer: OpenSSL by lists"):
        receipt = camera.receipts()[0]
        trusted = suite.folder / "root-and-lists.pem"
        trusted.write_text(world.authorities.read_text() + world.lists("root", "services").read_text())
        verify = ["openssl", "cms", "-verify", "-binary", "-inform", "DER", "-in", receipt, "-CAfile", trusted,
                  "-purpose", "any", "-crl_check_all"]
        contains(execute(*verify, code=None).stderr, "certificate revoked")
    camera.stop()
    with parties.case("revocation of a gateway: cordon vpn up at the other side"):
        car = parties.device("car-3")
        Gateway(world, parties.folder)
        near = Client(world, [car])
        wait_for(lambda: near.peers() == {GATEWAY}, lambda: near.text()[-3000:], 20)
        began = world.revoke("--gateway", GATEWAY)
        took("the end of the tunnel", lambda: not near.peers(), WITHIN, began)
    # The name has another certificate from here on.
    site.ask("registry", "readmit", "--gateway", GATEWAY)
    shutil.rmtree(parties.folder)
    site.ask("vpn", "gateway-certificate", "--name", GATEWAY, "--out", parties.folder)


class Pictures(threading.Thread):
    """A camera that has something to send all the time."""

    def __init__(self, camera):
        super().__init__(daemon=True)
        self.camera, self.enough = camera, threading.Event()

    def __enter__(self):
        self.start()

    def __exit__(self, *_):
        self.enough.set()
        self.join()

    def run(self):
        number = 0
        while not self.enough.wait(0.3):
            number += 1
            self.camera.drop(f"{self.name}-{number}", jpeg(f"{self.name} {number}".encode()))


class Thief:
    """OpenSSL's responder with the stolen key of the site's: everything is good."""

    def __init__(self, parties, certificates):
        self.world, self.folder = parties.world, parties.suite.folder / "thief"
        self.folder.mkdir()
        data = parties.site.data
        self.cert, self.key = leaf(data / "keys/ocsp-devices.pem", self.folder / "signer.pem"), self.folder / "signer.key"
        execute("openssl", "pkey", "-in", data / "keys/ocsp-devices.key", "-passin", f"file:{data}/passphrase", "-out", self.key)
        lines = ""
        for one in certificates:
            shown = execute("openssl", "x509", "-in", one, "-noout", "-serial").stdout.strip().split("=")[1]
            lines += f"V\t350101000000Z\t\t{shown}\tunknown\t/CN=x\n"
        (self.folder / "index").write_text(lines)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = ["openssl", "ocsp", "-index", self.folder / "index", "-CA", self.world.pki / "devices-ca.pem", "-rsigner", self.cert,
                   "-rkey", self.key, "-port", f"{self.port}", "-ndays", "1"]
        self.process = Process(command, self.folder / "log")
        parties.suite.finally_do(self.process.kill)

    def says(self, certificate):
        issuer = self.world.pki / "devices-ca.pem"
        done = execute("openssl", "ocsp", "-url", self.url, "-issuer", issuer, "-cert", certificate, "-CAfile", self.world.site.root,
                       "-verify_other", issuer, "-no_nonce", code=None)
        return done.stdout + done.stderr


def ocsp_signer(parties):
    suite, world = parties.suite, parties.world
    with parties.case("revocation of an OCSP signer: cordon vpn up takes no response of it, and the site has another"):
        car = parties.device("car-4")
        thief = Thief(parties, [car.cert])
        wait_for(lambda: "good" in thief.says(car.cert), lambda: thief.says(car.cert), 10)
        holder = re.search(r"CN ?= ?([^,\n]+)", execute("openssl", "x509", "-in", thief.cert, "-noout", "-subject").stdout)[1].strip()
        demand = f'ocsp = "required"\nocsp_responder = "{thief.url}"'
        gateway = Gateway(world, parties.folder, demand)
        near = Client(world, [car])
        wait_for(lambda: gateway.peers() == {"car-4"}, lambda: gateway.text()[-3000:], 20)
        near.end()
        old = world.serial(holder)
        began = world.revoke("--serial", old)
        another = lambda: world.serial(holder) not in (None, old)
        took("another signer at the site", another, WITHIN, began)
        contains(world.ocsp("devices", car.cert), ": good")
        gateway.takes_new_lists()
        Client(world, [car])
        wait_for(lambda: "nobody who may has signed the answer" in gateway.text(), gateway.text, 10)
        equal(gateway.peers(), set(), "peers by responses of a revoked signer")
    with parties.case("revocation of an OCSP signer: OpenSSL believes the former until it ends, which is a week at most"):
        contains(thief.says(car.cert), ": good")
        shown = execute("openssl", "x509", "-in", thief.cert, "-noout", "-startdate", "-enddate").stdout
        assert lifetime(("notBefore", "notAfter"), shown) <= 7 * 24 * HOUR + 600, shown
        verify = ["openssl", "verify", "-crl_check_all", "-CAfile", world.site.root, "-untrusted", world.pki / "devices-ca.pem", "-purpose", "any"]
        contains(execute(*verify, "-CRLfile", world.lists("root", "devices"), thief.cert, code=2).stderr, "certificate revoked")
        thief.process.kill()


def authorities(parties):
    suite, world, site = parties.suite, parties.world, parties.site
    with parties.case("revocation of the devices authority: intake, cordon vpn up, OpenVPN, OCSP, nginx, Apache"):
        car = parties.device("car-5")
        gateway = Gateway(world, parties.folder)
        guard, near = Guard(world, "near", "car-5"), Client(world, [car])
        remote = Guard(world, "remote", "car-5", number=1, source=("--crl-url", f"{world.url}/crl"))
        wait_for(lambda: gateway.peers() == {"car-5"}, lambda: gateway.text()[-3000:], 20)
        assert intake(car) and guard.is_up() and remote.is_up() and parties.apache.lets_in(car.chain, car.key)
        began = world.revoke_authority("devices")
        took("the intake's refusal", lambda: not intake(car), WITHIN, began)
        took("the end of the tunnel", lambda: not gateway.peers(), WITHIN, began)
        for one in (guard, remote):
            took(f"the end of OpenVPN's session ({one.name})", one.has_ended, WITHIN, began)
        said = world.ocsp("devices", car.cert)
        contains(said, ": revoked")
        contains(said, "cACompromise")
        assert not parties.apache.lets_in(car.chain, car.key)
        parties.nginx.fetch()
        parties.nginx.reload()
        assert not parties.nginx.lets_in(car.chain, car.key)
    with parties.case("revocation of the devices authority: strongSwan"):
        charon = StrongSwan(world, parties.folder)
        Client(world, [car], strongswan=True)
        wait_for(lambda: "certificate was revoked on" in charon.log(), lambda: charon.log()[-4000:], 20)
        assert not charon.certified("car-5"), charon.sas()
    with parties.case("revocation of the services authority: a camera sends nothing, curl by lists"):
        camera = parties.camera
        before = len(camera.receipts())
        camera.start()
        assert curl(world, "--crlfile", world.lists())[0]
        world.revoke_authority("services")
        contains(curl(world, "--crlfile", world.lists())[1], "revoked")
        wait_for(lambda: "revocation reason: cACompromise" in curl(world, "--cert-status")[1], "a staple that says so", 10)
        camera.drop("last", jpeg(b"last"))
        wait_for(lambda: "revoked" in camera.log.read_text(errors="replace"), lambda: camera.log.read_text()[-2000:], 30)
        equal(len(camera.receipts()), before, "receipts")
        camera.stop()
    with parties.case("revocation of the users authority: portal, nginx, Apache"):
        reviewer = parties.people["reviewer-3"]
        assert portal(reviewer)
        began = world.revoke_authority("users")
        took("the portal's refusal", lambda: not portal(reviewer), WITHIN, began)
        assert not parties.apache.lets_in(reviewer.cert, reviewer.key)
        parties.nginx.fetch()
        parties.nginx.reload()
        assert not parties.nginx.lets_in(reviewer.cert, reviewer.key)


def summary(what, seconds):
    """Prints how long revocations took, and holds their 99th percentile against the bound."""
    ordered = sorted(seconds)
    late = ordered[max(0, -(-len(ordered) * 99 // 100) - 1)]
    middle = ordered[len(ordered) // 2]
    print(f"        {what}: {len(ordered)} revocations, median {middle:.2f} s, 99th percentile {late:.2f} s, last {ordered[-1]:.2f} s", flush=True)
    assert late <= WITHIN, f"{what}: 99th percentile {late:.2f} s"


def officers(site, number):
    """People with certificates."""
    file = site.folder / "many.jsonl"
    common = {"organisation": "LEA-EU", "clearance": 1, "roles": ["officer"], "units": ["traffic"]}
    names = [f"many-officer-{n}" for n in range(number)]
    file.write_text("".join(json.dumps({"uid": uid, "name": uid, "email": f"{uid}@example.org", **common}) + "\n" for uid in names))
    site.ask("directory", "import", file)
    people = []
    for uid in names:
        p12 = site.folder / f"{uid}.p12"
        site.ask("pki", "issue-user", "--uid", uid, "--out", p12)
        people.append(Person(site, p12, p12.with_name(f"{uid}.p12.password"), site.folder))
    return people


def many(parties, number):
    world, site = parties.world, parties.site
    with parties.case(f"{number} revocations of devices, each until intake, gateway and OpenVPN have refused it"):
        names = [f"many-{n}" for n in range(number)]
        sessions = Sessions(world, names)
        devices = [parties.device(name) for name in names]
        gateway = Gateway(world, parties.folder)
        Client(world, devices)
        wait_for(lambda: gateway.peers() == set(names), lambda: f"{gateway.peers()}: {gateway.text()[-2000:]}", 30 + number)
        sessions.are_up()
        taken = {"intake": [], "cordon vpn up": [], "OpenVPN": []}
        for one in devices:
            assert intake(one) and not sessions.ended(one.name)
            began, left = world.revoke("--device", one.name), dict(zip(taken, (
                lambda: not intake(one), lambda: one.name not in gateway.peers(), lambda: sessions.ended(one.name)
            )))
            while left:
                for door in [door for door, refuses in left.items() if refuses()]:
                    del left[door]
                    taken[door].append(time.monotonic() - began)
                assert time.monotonic() - began < 60, f"{one.name} is still let in: {left}"
        for door, seconds in taken.items():
            summary(door, seconds)
    with parties.case(f"{number} revocations of people at the portal"):
        taken = []
        for person in officers(site, number):
            assert portal(person)
            began = world.revoke("--uid", person.uid)
            wait_for(lambda: not portal(person), f"the refusal of {person.uid}", 60, 0.02)
            taken.append(time.monotonic() - began)
        summary("portal", taken)


def run(suite, number=FEW):
    parties = Parties(suite)
    user(parties)
    device(parties)
    many(parties, number)
    services(parties)
    ocsp_signer(parties)
    authorities(parties)
    parties.site.stop()
    parties.site.verify_audit()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help=f"{MANY} revocations in the place of {FEW}")
    number = MANY if parser.parse_args().full else FEW
    suite = Suite("relying_parties")
    run_suite(suite, lambda suite: run(suite, number), limit=1800)
    return finish([suite])


if __name__ == "__main__":
    sys.exit(main())
