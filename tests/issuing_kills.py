"""SIGKILL of the site at random moments while certificates are issued and revoked in every way: log and book agree.

    python -m tests.issuing_kills --times 200 [--seed N]
"""

import argparse
import base64
import collections
import configparser
import contextlib
import hashlib
import json
import random
import socket
import sqlite3
import sys
import threading
import time

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs7

from tests import acme_client, authority_keys, scep
from tests.harness import CORDON, Process, Site, cordon, cordon_json, equal, free_port, request, wait_for
from tests.harness import run as execute
from tests.kill import DURING_START
from tests.requests import enrol, make_csr
from tests.runner import Suite, finish, run_suite

# Kills in the default suite; the long run is asked for by name.
FEW = 8
# Each renews eight certificates a day.
PEOPLE = [f"officer-{number}" for number in range(100, 140)]
# What a client is told, or not, by a site that was killed.
LOST = (OSError, AssertionError, ValueError, KeyError, IndexError, AttributeError)
UNEXPLAINED = ("ordered it, without a request", "gave an invitation, without a request", "put it in force, without a request")
# Certificates of these come by direct orders, CMP and SCEP.
PROFILE = "vpn device"


class Refused(AssertionError):
    """The site has answered, and not what was asked for."""


class Work:
    """Certificates that clients got, and revocations that were acknowledged."""

    def __init__(self, site, public, staff):
        self.site, self.public, self.staff = site, public, staff
        self.stopping = threading.Event()
        self.lock, self.commands = threading.Lock(), threading.Lock()
        self.number = 0
        # By way, what was acknowledged.
        self.certificates = collections.defaultdict(list)
        self.revoked, self.cameras, self.profiles = [], [], []
        self.failures = collections.Counter()

    def next(self, kind):
        with self.lock:
            self.number += 1
            return f"{kind}-{self.number}"

    def got(self, way, certificate):
        serial = certificate if isinstance(certificate, str) else f"{certificate.serial_number:x}"
        with self.lock:
            self.certificates[way].append(serial.lower().zfill(2))

    def order(self, **order):
        """Asks the site as a command does, by its socket."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(30)
            control.connect(str(self.site.data / "control.sock"))
            control.sendall(json.dumps(order).encode() + b"\n")
            control.shutdown(socket.SHUT_WR)
            answer = json.loads(b"".join(iter(lambda: control.recv(65536), b"")))
        if "done" not in answer:
            raise Refused(answer)
        return answer["done"]

    def invite(self, kind, name, renewals=0, names=(), cmp=False):
        order = {"holder": {kind: name}, "clearance": None, "unit": None, "hours": 1, "renewals": renewals, "names": names}
        return self.order(do="invite", order=order, cmp=cmp)["code"]

    def folder(self, name):
        folder = self.site.folder / "clients" / name
        folder.mkdir(parents=True)
        return folder

    def start(self):
        """Starts a thread for each way, and one that revokes."""
        ways = [self.direct, self.est, self.person, self.cmp, self.scep, self.acme, self.approved, self.revoke, self.revoke_devices,
            self.change_profile]
        self.threads = [threading.Thread(target=self.repeat, args=(way,), daemon=True) for way in ways]
        for thread in self.threads:
            thread.start()

    def repeat(self, way):
        while not self.stopping.is_set():
            try:
                way()
            except LOST as error:
                with self.lock:
                    self.failures[f"{way.__name__}: {str(error)[:150]}"] += 1
                time.sleep(0.2)

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()

    def direct(self):
        self.got("direct order", authority_keys.issue(self.site.data / "control.sock", self.next("tunnel"), authority_keys.request()))

    def est(self, name=None, code=None, way="EST"):
        """A first certificate by a code, and two renewals."""
        if name is None:
            name = self.next("camera")
            with self.lock:
                self.cameras.append(name)
        code = code or self.order(do="code", device=name, clearance=1, hours=1)["code"]
        folder, login = self.folder(self.next("est")), {"Authorization": "Basic " + base64.b64encode(f"{name}:{code}".encode()).decode()}
        identity = None
        for step in ("first", "renewal", "renewal"):
            key = acme_client.new_key()
            body = base64.b64encode(scep.csr(key, name))
            path = "simpleenroll" if identity is None else "simplereenroll"
            headers = {"Content-Type": "application/pkcs10", **(login if identity is None else {})}
            answer = request(self.site.enrolment, "POST", f"/.well-known/est/{path}", self.site.root, identity, body, headers, seconds=20)
            if answer.status != 200:
                raise Refused(answer.text)
            issued, = pkcs7.load_der_pkcs7_certificates(base64.b64decode(answer.body))
            self.got(f"{way}, {step}", issued)
            identity = argparse.Namespace(cert=folder / f"{step}.pem", key=folder / f"{step}.key")
            identity.cert.write_bytes(issued.public_bytes(Encoding.PEM) + (self.site.data / "pki/devices-ca.pem").read_bytes())
            identity.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    def person(self):
        uid = random.choice(PEOPLE)
        self.est(uid, self.invite("uid", uid, renewals=5), "a person by EST")

    def cmp(self):
        """OpenSSL's client: a first certificate, a renewal, and that revoked."""
        name = self.next("phone")
        folder, code = self.folder(name), self.invite("device", name, cmp=True)
        server = ("-server", f"http://127.0.0.1:{self.public}/.well-known/cmp", "-trusted", self.site.root)
        old = None
        for step in ("ir", "kur"):
            make_csr(folder, step, f"/CN={name}")
            key, out = folder / f"{step}.key", folder / f"{step}.pem"
            who = ("-ref", name, "-secret", f"pass:{code}") if old is None else ("-cert", old[0], "-key", old[1])
            execute("openssl", "cmp", "-config", "", "-batch", "-cmd", step, *server, *who, "-newkey", key, "-subject", f"/CN={name}", "-certout", out,
                "-msg_timeout", "20", timeout=60)
            issued = x509.load_pem_x509_certificate(out.read_bytes())
            self.got(f"CMP, {step}", issued)
            old = (out, key)
        execute("openssl", "cmp", "-config", "", "-batch", "-cmd", "rr", *server, "-cert", old[0], "-key", old[1], "-oldcert", old[0], "-revreason", "1",
            "-msg_timeout", "20", timeout=60)
        with self.lock:
            self.revoked.append(f"{issued.serial_number:x}")
        self.got("CMP, rr", issued)

    def scep(self):
        name = self.next("router")
        client = scep.Client(f"http://127.0.0.1:{self.public}/scep", name).enrolled(self.invite("device", name))
        self.got("SCEP, first", client.certificate)
        answer = client.renew()
        if answer.status != "0":
            raise Refused(answer.text)
        self.got("SCEP, renewal", answer.certificate)

    def acme(self):
        name = f"{self.next('web')}.police.example"
        settings = configparser.ConfigParser()
        settings.read_string("[x]\n" + self.invite("server", name, renewals=3))
        client = acme_client.Attacker(self.site)
        equal(client.register(settings["x"]["eab-kid"], settings["x"]["eab-hmac-key"]).status, 201)
        for step in ("first", "renewal"):
            chain = client.certificate(acme_client.new_key(), name)
            if not isinstance(chain, str):
                raise Refused(chain.body)
            self.got(f"ACME, {step}", x509.load_pem_x509_certificate(chain.encode()))

    def approved(self):
        """A request of one person, approved by another."""
        name = self.next("sensor")
        folder = self.folder(name)
        csr = make_csr(folder, name, f"/CN={name}")

        def give(*command, by):
            person = self.staff[by]
            proof = ("--as", person.p12, "--as-password-file", person.p12.with_name(f"{person.p12.name}.password"))
            # Where no site runs, a command opens the folder itself.
            with self.commands:
                return json.loads(cordon("registry", "request", *command, *self.site.arguments(), *proof, "--json", "--log", "off").stdout)

        asked = give("new", "issue", "--device", name, "--csr", csr, "--clearance", "1", "--reason", "new sensor", "--submit", by="clerk")
        both = give("approve", asked["id"], "--seen", asked["version"], by="registrar-1")
        issued = give("carry-out", asked["id"], "--seen", both["version"], "--out", folder / "issued.pem", by="clerk")
        self.got("approved request", issued["serial"])

    def change_profile(self):
        """Another file of a profile by which others get certificates meanwhile."""
        text = next(one["text"] for one in cordon_json("pki", "profile", "list")["profiles"] if one["name"] == PROFILE)
        changed = f"days = {random.randint(100, 900)}\n" + text
        done = self.order(do="put-profile", definition=changed)
        with self.lock:
            self.profiles.append(done["sha256"])
        time.sleep(0.1)

    def revoke(self):
        with self.lock:
            known = [serial for way, serials in self.certificates.items() for serial in serials if way.startswith(("direct", "SCEP"))]
        serial = random.choice(known)
        self.order(do="revoke", whose={"serial": serial}, reason="superseded")
        with self.lock:
            self.revoked.append(serial)

    def revoke_devices(self):
        """Whole devices, in a few of which a renewal is under way."""
        time.sleep(0.3)
        with self.lock:
            camera = self.cameras[-1]
        self.order(do="revoke", whose={"device": camera}, reason="key-compromise")


def list_numbers(site):
    """Numbers of the revocation lists, by file."""
    numbers = {}
    for file in (site.data / "pki/crl").rglob("*.crl"):
        content = file.read_bytes()
        read = x509.load_pem_x509_crl if content.startswith(b"-----") else x509.load_der_x509_crl
        numbers[file.name] = read(content).extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    return numbers


def restart(site, work, dice):
    """Kills the site and starts it anew; that start may be killed too."""
    site.process.kill()
    command = [CORDON, "up", *site.arguments(), "--json"]
    # A command that found no site has the folder for itself.
    with work.commands:
        if dice.random() < DURING_START:
            site.process = Process(command, site.log)
            time.sleep(dice.uniform(0.0, 1.0))
            site.process.kill()
        site.process = Process(command, site.log)
        site.process.answer(120)


def shake(site, work, times, dice):
    """Kills the site so many times; numbers of lists never fall."""
    highest = {}
    for number in range(times):
        time.sleep(dice.uniform(0.05, 1.5))
        restart(site, work, dice)
        for name, found in list_numbers(site).items():
            assert found >= highest.get(name, 0), f"number of list {name} fell from {highest[name]} to {found}"
            highest[name] = found
        if (number + 1) % 20 == 0:
            print(f"        {number + 1} kills", flush=True)
    assert highest, "no revocation list"


def events(site):
    shown = cordon_json("audit", "show", site.data / "audit" / "log", "--last", 1_000_000)
    return [event for entry in shown["entries"] if (event := entry["leaf"]["event"])["role"] == "registry"]


def effective(events, action):
    """Authorities and serial numbers in events of an action that took effect by the log alone; and how many did not."""
    found, lost = [], 0
    for event in events:
        details = event.get("details", {})
        if event["action"] == "registry.open":
            kept = [one for one in found if one[0] <= details["transaction"]]
            lost += len(found) - len(kept)
            found = kept
        elif event["action"] == action and event["outcome"] == "ok":
            found.append((details["transaction"], event["resource"].split("/")[1], details["serial"]))
    return [one[1:] for one in found], lost


def check(suite, site, work):
    recorded = events(site)
    lost = 0
    for action, table in (("certificate.issue", "issued"), ("certificate.revoke", "revoked")):
        with suite.case(f"the book's {table} certificates are those of the log's events, each once"):
            with contextlib.closing(sqlite3.connect(site.data / "registry.sqlite")) as book:
                rows = book.execute(f"SELECT authority, serial FROM {table}").fetchall()
            told, without = effective(recorded, action)
            equal(len(told), len(set(told)), f"different certificates in {action}")
            equal(set(told) ^ set(rows), set(), f"what is in one of log and book only, of {action}")
            lost += without
            serials = {serial for _, serial in rows}
            wanted = {"issued": [one for way in work.certificates.values() for one in way], "revoked": work.revoked}[table]
            missing = {serial for serial in wanted if serial not in serials and f"0{serial}" not in serials}
            equal(missing, set(), f"acknowledged and not {table}")
            print(f"        {len(rows)} {table}, {len(wanted)} acknowledged", flush=True)
    with suite.case("the profile in the book is the last that the log says took effect, and every change that was acknowledged is there"):
        changes = []
        for event in recorded:
            details = event.get("details", {})
            if event["action"] == "registry.open":
                changes = [one for one in changes if one[0] <= details["transaction"]]
            elif event["action"] == "profile.change":
                changes.append((details["transaction"], details["sha256"]))
        with contextlib.closing(sqlite3.connect(site.data / "registry.sqlite")) as book:
            (text,), = book.execute("SELECT definition FROM profiles").fetchall()
        equal(hashlib.sha256(text.encode()).hexdigest(), changes[-1][1])
        equal(set(work.profiles) - {sha256 for _, sha256 in changes}, set(), "acknowledged changes without effect")
        print(f"        {len(changes)} changes of a profile, {len(work.profiles)} acknowledged", flush=True)
    opened = sum(event["action"] == "registry.open" for event in recorded)
    print(f"        {opened} starts after a kill, {lost} events without effect", flush=True)
    with suite.case("`pki audit` finds no other gap than direct orders and invitations"):
        report = json.loads(cordon("pki", "audit", "--data", site.data, "--json", "--log", "off", code=1).stdout)["report"]
        gaps = [gap["what"] for gap in report["gaps"] if not any(known in gap["what"] for known in UNEXPLAINED)]
        equal(gaps, [])
        assert report["certificates"]["request"] >= 1, report["certificates"]


def shaken(suite, times, seed):
    print(f"        seed {seed}; repeat with: python -m tests.issuing_kills --times {times} --seed {seed}")
    dice = random.Random(seed)
    public = free_port()
    enrolment = '[enrolment]\nscep = "http"\ncmp = "http"\nacme = true\n'
    site = Site(suite, settings=f'public = "127.0.0.1:{public}"\n[site]\npublic_url = "http://127.0.0.1:{public}"\n{enrolment}').start()
    staff = enrol(site, ("clerk", "officer", 4), ("registrar-1", "registrar", 4))
    lines = [{"uid": uid, "name": f"Test {uid}", "email": f"{uid}@example.org", "organisation": "LEA-EU", "clearance": 1, "roles": ["officer"],
              "units": ["traffic"]} for uid in PEOPLE]
    (site.folder / "people.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    site.ask("directory", "import", site.folder / "people.jsonl")
    work = Work(site, public, staff)
    suite.finally_do(work.stopping.set)
    ways = 13
    with suite.case("certificates come by every way"):
        work.start()
        try:
            wait_for(lambda: len(work.certificates) >= ways and work.revoked and work.profiles, lambda: f"all ways: {work.certificates.keys()}, {work.failures}", 120)
        except AssertionError:
            work.stop()
            raise
    with suite.case(f"{times} kills while certificates are issued and revoked; numbers of lists never fall"):
        shake(site, work, times, dice)
        work.stop()
        counts = ", ".join(f"{way} {len(found)}" for way, found in sorted(work.certificates.items()))
        print(f"        {counts}; {len(work.revoked)} revocations", flush=True)
        broken = [failure for failure in work.failures if "database" in failure]
        equal(broken, [], "failures of the registry")
    site.stop()
    check(suite, site, work)
    with suite.case("the audit log verifies with all journals"):
        site.verify_audit()


def run(suite):
    shaken(suite, FEW, random.randrange(1 << 32))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=FEW)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = random.randrange(1 << 32) if args.seed is None else args.seed
    suite = Suite("issuing_kills")
    run_suite(suite, lambda suite: shaken(suite, args.times, seed), limit=300 + 15 * args.times)
    return finish([suite])


if __name__ == "__main__":
    sys.exit(main())
