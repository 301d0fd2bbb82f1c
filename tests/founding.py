"""A site is founded by four people with keys of their own: `cordon pki audit` is content then, and stays so."""

import base64
import hashlib
import json
import random
import shutil
import sqlite3
import subprocess
import time
import urllib.request

from tests.harness import CORDON, HEALTHY_DIRECT, Person, Site, contains, cordon, equal, request, run as execute
from tests.requests import make_csr, openssl

PEOPLE = [("admin-1", "administrator"), ("admin-2", "administrator"), ("registrar-1", "registrar"), ("registrar-2", "registrar")]


def requests(folder, people=PEOPLE):
    """Each person's key and certification request, on their own computer."""
    for uid, _ in people:
        if not (folder / uid).exists():
            cordon("id", "request", "--uid", uid, "--out", folder / uid, "--log", "off")


def health(site):
    with urllib.request.urlopen(f"http://127.0.0.1:{site.metrics}/healthz", timeout=10) as answer:
        return answer.status, answer.read().decode()


def founding(folder, people=PEOPLE, name="founding.toml", organisation="Police of Example"):
    lines = [f'organisation = "{organisation}"', 'country = "PL"', 'names = ["localhost", "127.0.0.1"]']
    for uid, role in people:
        lines += ["[[people]]", f'uid = "{uid}"', f'name = "Example {uid}"', f'email = "{uid}@example.org"', f'role = "{role}"', f'request = "{uid}/request.pem"']
    file = folder / name
    file.write_text("\n".join(lines) + "\n")
    return file


def found(site, file, out=None, **options):
    out = out or site.folder / "founded"
    return cordon("site", "found", *site.arguments(), "--from", file, "--out", out, "--json", "--log", "off", **options)


def key_of(folder, uid):
    """The fingerprint that the person compares, from OpenSSL."""
    public = openssl("req", "-in", folder / uid / "request.pem", "-noout", "-pubkey")
    return hashlib.sha256(base64.b64decode("".join(public.strip().splitlines()[1:-1]))).hexdigest()


def audit(site, code=0):
    return json.loads(cordon("pki", "audit", *site.arguments(), "--json", "--log", "off", code=code).stdout)["report"]


class Founded(Site):
    """A founded site with its people."""

    def __init__(self, suite, name="site", people=PEOPLE):
        super().__init__(suite, name)
        listen = self.config.read_text()
        self.config.unlink()
        requests(self.folder, people)
        answer = json.loads(found(self, founding(self.folder, people)).stdout)
        equal([one["uid"] for one in answer["people"]], [uid for uid, _ in people])
        for one in answer["people"]:
            equal(one["key_sha256"], key_of(self.folder, one["uid"]), one["uid"])
        contains(self.config.read_text(), 'approvals = "required"')
        self.config.write_text(self.config.read_text() + listen)

    def installed(self, uid):
        """The person, who puts the certificate beside the key."""
        mine, founded = self.folder / uid, self.folder / "founded"
        cordon("id", "install", "--uid", uid, "--out", mine, "--certificate", founded / f"{uid}.pem", "--root", founded / "root.pem", "--log", "off")
        return Person(self, mine / f"{uid}.p12", mine / "password", self.folder)


def run(suite):
    with suite.case("four people found a site: the transcript is the first event, and `pki audit` ends with 0"):
        site = Founded(suite)
        report = audit(site)
        equal((report["certificates"]["founding"], report["gaps"]), (4, []))
        shown = json.loads(cordon("audit", "show", site.data / "audit/log", "--last", 5000, "--json", "--log", "off").stdout)
        first = shown["entries"][0]["leaf"]["event"]
        equal((first["action"], first["role"]), ("site.found", "site"))
        transcript = json.loads(first["details"]["transcript"])
        equal([person["uid"] for person in transcript["people"]], [uid for uid, _ in PEOPLE])
        printed = openssl("x509", "-in", site.folder / "founded/root.pem", "-noout", "-fingerprint", "-sha256").strip().split("=")[1]
        equal(transcript["root_sha256"], printed.replace(":", "").lower())
        # The same again changes nothing, and gives the same certificates.
        before = (site.folder / "founded/admin-1.pem").read_text()
        found(site, site.folder / "founding.toml")
        equal((site.folder / "founded/admin-1.pem").read_text(), before)
        # A file with other content stays.
        foreign = site.folder / "foreign"
        foreign.mkdir()
        for name in ("root.pem", "admin-2.pem"):
            (foreign / name).write_text("mine")
            contains(found(site, site.folder / "founding.toml", out=foreign, code=1).stderr, "exists with other content")
            equal((foreign / name).read_text(), "mine")
            (foreign / name).unlink()
        found(site, site.folder / "founding.toml", out=foreign)
        equal((foreign / "admin-2.pem").read_text(), (site.folder / "founded/admin-2.pem").read_text())
        equal(audit(site)["certificates"]["founding"], 4)
    site.start()
    people = {uid: site.installed(uid) for uid, _ in PEOPLE}
    with suite.case("a site without approvals says so at its start, in /healthz and on every page; a founded one does not"):
        direct = Site(suite, "direct").start()
        person = direct.people()["officer-2"]
        sentence = "For laboratories only"
        for page in ("/", "/violations", "/nowhere"):
            contains(person.request("GET", page).text, sentence)
            assert sentence not in people["admin-1"].request("GET", page).text, page
        contains(request(direct.portal, "GET", "/login", direct.root).text, sentence)
        contains(person.request("GET", "/", headers={"Accept-Language": "pl"}).text, "Tylko do celów laboratoryjnych")
        equal(health(direct), HEALTHY_DIRECT)
        equal(health(site), (200, "ok\n"))
        contains(direct.log_text(), "need no approvals")
        assert "need no approvals" not in site.log_text()
        direct.stop()

    with suite.case("they approve with the keys that they made: an officer enrols, and the audit still ends with 0"):

        def done(*command, by, code=0):
            line = ("registry", "request", *command, *site.arguments(), *people[by].signs(), "--json", "--log", "off")
            shown = cordon(*line, code=code)
            return json.loads(shown.stdout or shown.stderr)

        refused = cordon("pki", "issue-user", "--uid", "admin-1", "--out", site.folder / "no.p12", *site.arguments(), "--log", "off", code=1)
        contains(refused.stderr, "without approvals")
        officer = {"uid": "officer-9", "name": "Ninth Officer", "email": "officer-9@example.org", "organisation": "Police of Example", "clearance": 0}
        (site.folder / "officer-9.jsonl").write_text(json.dumps(officer) + "\n")
        site.ask("directory", "import", site.folder / "officer-9.jsonl", by=people["admin-1"])
        asked = done("new", "person", "--uid", "officer-9", "--clearance", "2", "--role", "officer", "--unit", "traffic", "--reason", "new officer", "--submit", by="registrar-1")
        for approver in ("admin-1", "admin-2"):
            if asked["state"] == "submitted":
                asked = done("approve", asked["id"], "--seen", asked["version"], by=approver)
        done("carry-out", asked["id"], "--seen", asked["version"], by="registrar-1")
        asked = done("new", "invite", "--uid", "officer-9", "--reason", "new officer", "--submit", by="admin-1")
        for approver in ("registrar-1", "registrar-2"):
            if asked["state"] == "submitted":
                asked = done("approve", asked["id"], "--seen", asked["version"], by=approver)
        invitation = site.folder / "officer-9.invitation"
        done("carry-out", asked["id"], "--seen", asked["version"], "--complete", "--out", invitation, by="admin-1")
        mine = site.folder / "officer-9"
        cordon("id", "enrol", invitation, "--out", mine, "--log", "off")
        person = Person(site, mine / "officer-9.p12", mine / "password", site.folder)
        equal(person.get("/api/v1/violations")["rows"], [])
        report = audit(site)
        equal((report["gaps"], report["certificates"]["founding"]), ([], 4))
        assert report["approvals"] >= 2, report
        site.verify_audit()
    site.stop()

    with suite.case("one key or person for two, too few, a foreign field, a bad request and a bad name found nothing"):
        other = Site(suite, "refused")
        other.config.unlink()
        requests(other.folder)
        good = founding(other.folder)

        def refused(change, part):
            bad = other.folder / "bad.toml"
            bad.write_text(change(good.read_text()))
            shown = found(other, bad, code=1).stderr
            contains(shown, part)
            assert not other.data.exists(), shown

        refused(lambda text: text.replace('"admin-2/request.pem"', '"admin-1/request.pem"'), "one key for admin-1 and admin-2")
        refused(lambda text: text.replace('uid = "admin-2"', 'uid = "Admin-1"'), "names Admin-1 twice")
        refused(lambda text: text.replace('"registrar"', '"administrator"', 1), "names 1 of role registrar")
        refused(lambda text: text.replace("country =", "land ="), "land")
        refused(lambda text: text.replace('"admin-2/request.pem"', '"nowhere.pem"'), "nowhere.pem")
        refused(lambda text: text.replace("admin-2@example.org", "nowhere"), "email")
        refused(lambda text: text.replace('role = "registrar"', 'role = "officer"'), "officer")
        forged = other.folder / "forged.der"
        openssl("req", "-in", other.folder / "admin-2/request.pem", "-outform", "DER", "-out", forged)
        content = bytearray(forged.read_bytes())
        content[-3] ^= 1
        forged.write_bytes(content)
        refused(lambda text: text.replace('"admin-2/request.pem"', '"forged.der"'), "certification request of admin-2 is refused")
        # The key of admin-1 in another form would be another fingerprint.
        plain, short = other.folder / "plain.key", other.folder / "short.key"
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", plain)
        openssl("ec", "-in", plain, "-conv_form", "compressed", "-out", short)
        openssl("req", "-new", "-key", short, "-subj", "/CN=admin-2", "-out", other.folder / "short.csr")
        refused(lambda text: text.replace('"admin-2/request.pem"', '"short.csr"'), "certification request of admin-2 is refused")
        for root in ("root", "ROOT"):
            refused(lambda text, root=root: text.replace('uid = "admin-2"', f'uid = "{root}"'), "is the root certificate")
        make_csr(other.folder, "weak", "/CN=admin-2", "-newkey", "rsa:1024")
        refused(lambda text: text.replace('"admin-2/request.pem"', '"weak.csr"'), "certification request of admin-2 is refused")

    with suite.case("a site that exists, another folder and another configuration are not founded over"):
        plain = Site(suite, "plain").start()
        plain.stop()
        requests(plain.folder)
        plain.config.write_text(plain.config.read_text() + '[site]\norganisation = "Police of Example"\ncountry = "PL"\nnames = ["localhost", "127.0.0.1"]\n[registration]\napprovals = "required"\n')
        contains(found(plain, founding(plain.folder), code=1).stderr, "was not founded")
        contains(found(site, founding(site.folder, name="again.toml", organisation="Other"), code=1).stderr, "says otherwise than the founding")
        changed = site.folder / "renamed.toml"
        changed.write_text((site.folder / "founding.toml").read_text().replace("Example admin-1", "Example Chief"))
        contains(found(site, changed, code=1).stderr, "founded with other content")
        other.data.mkdir()
        (other.data / "notes").write_text("mine")
        contains(found(other, good, code=1).stderr, "is not empty")
        equal([entry.name for entry in other.data.iterdir()], ["notes"])

    with suite.case("answers from a terminal found a site as a file does, and no answer founds none"):
        talk = Site(suite, "talk")
        talk.config.unlink()
        requests(talk.folder)
        answers = ["Police of Example", "PL", "localhost 127.0.0.1"]
        for uid, role in PEOPLE:
            answers += [uid, f"Example {uid}", f"{uid}@example.org", f"{talk.folder}/{uid}/request.pem"]
            answers += [""] if uid.endswith("-2") else []
        line = [CORDON, "site", "found", *talk.arguments(), "--out", talk.folder / "founded", "--log", "off"]
        execute(*line, input="\n".join(answers) + "\n", code=1)
        execute(*line, input="\n".join([*answers, "no"]) + "\n", code=2)
        assert not talk.data.exists()
        asked = execute(*line, input="\n".join([*answers, "yes"]) + "\n")
        before, answer = asked.stderr.split("Type yes")[0], asked.stdout
        for uid, _ in PEOPLE:
            contains(before, f"{uid}  key {key_of(talk.folder, uid)}")
            contains(answer, f"{uid}, key {key_of(talk.folder, uid)}")
        equal(audit(talk)["gaps"], [])

    with suite.case("kill -9 at any moment leaves nothing, or a site that the same command completes"):
        states = set()
        slow = Site(suite, "kills")
        slow.config.unlink()
        requests(slow.folder)
        file = founding(slow.folder)
        started = time.monotonic()
        found(slow, file)
        whole = time.monotonic() - started
        for number in range(14):
            shutil.rmtree(slow.data)
            shutil.rmtree(slow.folder / "founded", ignore_errors=True)
            slow.config.unlink(missing_ok=True)
            line = [CORDON, "site", "found", *slow.arguments(), "--from", file, "--out", slow.folder / "founded", "--log", "off"]
            child = subprocess.Popen([str(part) for part in line], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(whole * (number + random.random()) / 14)
            child.kill()
            child.wait()
            mark = slow.data / "founding"
            states.add((slow.data.exists(), mark.exists(), (slow.data / "pki").exists(), (slow.data / "directory.sqlite").exists()))
            if mark.exists():
                contains(cordon("up", *slow.arguments(), "--log", "off", code=1).stderr, "is not complete")
            found(slow, file)
            assert not mark.exists()
            report = audit(slow)
            equal((report["gaps"], report["certificates"]["founding"]), ([], 4), f"after kill {number}")
        assert len(states) >= 3, states
        # A kill in the transaction that made the index: its journal has to be undone before anyone reads the file.
        shutil.rmtree(slow.data / "centre")
        (slow.data / "centre").mkdir()
        other = sqlite3.connect(slow.folder / "other.sqlite", isolation_level=None)
        other.executescript("PRAGMA cache_size = 1; BEGIN; CREATE TABLE t (x)")
        for _ in range(200):
            other.execute("INSERT INTO t VALUES (randomblob(4000))")
        for end in ("", "-journal"):
            shutil.copy(slow.folder / f"other.sqlite{end}", slow.data / "centre" / f"centre.sqlite{end}")
        other.close()
        found(slow, file)
        equal(audit(slow)["gaps"], [])

    with suite.case("a founder who is not in the transcript, forced into the book, is named by the audit"):
        site.start()
        site.stop()
        forged = site.folder / "forged"
        shutil.copytree(site.data, forged)
        with sqlite3.connect(forged / "registry.sqlite") as book:
            row = book.execute("SELECT serial FROM issued WHERE uid = 'admin-2'").fetchone()
            book.execute("UPDATE issued SET uid = 'chief-1', holder_id = 'chief-1', holder = 'chief-1' WHERE serial = ?", row)
        line = ("--data", forged, "--config", site.config)
        report = json.loads(cordon("pki", "audit", *line, "--json", "--log", "off", code=1).stdout)["report"]
        assert any("rows of the registry's book" in gap["what"] for gap in report["gaps"]), report
        contains(cordon("up", *line, "--log", "off", code=1).stderr, "changed by something else")
        # The directory alone makes no founder either: the entry of a founder is another person's.
        shutil.rmtree(forged)
        shutil.copytree(site.data, forged)
        with sqlite3.connect(forged / "directory.sqlite") as book:
            book.execute("UPDATE people SET uid = 'chief-1' WHERE uid = 'admin-2'")
        contains(cordon("up", *line, "--log", "off", code=1).stderr, "changed by something else")
        equal(audit(site)["gaps"], [])
