"""`cordon id enrol`: a person makes a key on their own computer and enrols it, and other programs use what it writes."""

import json
import re
import socket
import subprocess
import threading

from tests.harness import CORDON, Person, Site, contains, cordon, equal, free_port, run as execute
from tests.requests import enrol, make_csr, openssl


class Cut:
    """Passes bytes on to the enrolment listener, and breaks the connection after so many bytes of its answers."""

    def __init__(self, suite, target, most):
        self.port, self.target, self.most = free_port(), target, most
        self.listener = socket.create_server(("127.0.0.1", self.port))
        suite.finally_do(self.listener.close)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.connection, args=(client,), daemon=True).start()

    def connection(self, client):
        server = socket.create_connection(("127.0.0.1", self.target))

        def up():
            while part := client.recv(65536):
                server.sendall(part)

        threading.Thread(target=lambda: ignore(up), daemon=True).start()
        left = self.most

        def down():
            nonlocal left
            while left > 0 and (part := server.recv(65536)):
                client.sendall(part[:left])
                left -= len(part)

        ignore(down)
        for side in (client, server):
            # The other thread waits for one of them: closing alone would not end the connection.
            ignore(lambda side=side: side.shutdown(socket.SHUT_RDWR))
            side.close()


def ignore(function):
    try:
        function()
    except OSError:
        pass


def run(suite):
    site = Site(suite).start()
    site.people()
    enrol(site, ("registrar-1", "registrar", 4), ("registrar-2", "registrar", 4), ("keeper-1", "administrator", 4))

    def invitation(uid, name=None, *options):
        out = site.folder / f"{name or uid}.invitation"
        answer = site.ask("registry", "invite", "--uid", uid, "--complete", *options, "--out", out)
        assert "code" not in answer, answer
        equal(out.stat().st_mode & 0o777, 0o600, "mode of the invitation")
        return out

    def take(file, folder, *options, code=0, **more):
        """`cordon id enrol` into a folder of the person's computer: its answer, or what it says to a mistake."""
        line = ("id", "enrol", file, "--out", site.folder / folder, *options, "--json", "--log", "off")
        done = cordon(*line, code=code, **more)
        return json.loads(done.stdout) if code == 0 else json.loads(done.stderr)

    def spki(pem):
        return openssl("x509", "-in", pem, "-noout", "-pubkey")

    with suite.case("a person enrols with one file: OpenSSL reads key and certificate, and curl opens the portal with them"):
        file = invitation("officer-2")
        said = execute(CORDON, "id", "enrol", file, "--legacy", cwd=site.folder)
        contains(said.stdout, "officer-2 is certified until")
        contains(said.stderr, "made the key")
        mine = site.folder / "officer-2"
        for name, mode in (("key.pem", 0o600), ("password", 0o600), ("officer-2.p12", 0o600), ("officer-2-legacy.p12", 0o600)):
            equal((mine / name).stat().st_mode & 0o777, mode, name)
        assert "ENCRYPTED PRIVATE KEY" in (mine / "key.pem").read_text()
        equal((mine / "root.pem").read_text(), site.root.read_text(), "the root")
        contains(openssl("verify", "-CAfile", site.root, "-untrusted", mine / "certificate.pem", mine / "certificate.pem"), "OK")
        public = openssl("pkey", "-in", mine / "key.pem", "-passin", f"file:{mine / 'password'}", "-pubout")
        equal(spki(mine / "certificate.pem"), public)
        for name, algorithms in (("officer-2", ("AES-256-CBC", "hmacWithSHA256", "MAC: sha256")), ("officer-2-legacy", ("pbeWithSHA1And3-KeyTripleDES-CBC", "MAC: sha1"))):
            read = subprocess.run(["openssl", "pkcs12", "-info", "-in", mine / f"{name}.p12", "-passin", f"file:{mine / 'password'}", "-noenc"], capture_output=True, text=True)
            equal(read.returncode, 0, read.stderr)
            for part in algorithms:
                contains(read.stderr, part)
            equal(read.stdout.count("BEGIN CERTIFICATE"), 2)
            (site.folder / "both.pem").write_text(read.stdout)
            key = openssl("pkey", "-in", site.folder / "both.pem", "-pubout")
            equal(key, public)
            shown = execute("curl", "--silent", "--fail", "--cacert", site.root, "--cert", site.folder / "both.pem", f"https://localhost:{site.portal}/api/v1/violations")
            equal(json.loads(shown.stdout)["rows"], [])
        again = take(file, "officer-2")
        equal((again["uid"], again["resumed"], again["legacy_pkcs12"]), ("officer-2", True, None))

    with suite.case("a new invitation gets a new certificate in a new folder, and never the revoked one of an earlier invitation"):
        old = again["serial"]
        site.ask("pki", "revoke", "--serial", old, "--reason", "key-compromise")
        file = invitation("officer-2", "renewed")
        said = take(file, "officer-2", code=1)
        contains(said["error"], "is not from this invitation")
        contains(said["to_do"], "--out")
        assert take(file, "renewed")["serial"] != old

    with suite.case("no site, and an answer that is lost on its way: the next run uses the same key and gets the same certificate"):
        file = invitation("reviewer-3")
        text = file.read_text()
        dead = site.folder / "dead.invitation"
        dead.write_text(text.replace(f":{site.enrolment}", f":{free_port()}"))
        contains(take(dead, "reviewer-3", code=1)["error"], "cannot reach localhost:")
        key = (site.folder / "reviewer-3" / "key.pem").read_text()
        # Later and later: in the handshakes, in the authorities, and in the answer with the certificate.
        before = [one["serial"] for one in site.ask("pki", "list")["certificates"]]
        broken, lost = site.folder / "broken.invitation", []
        for most in range(500, 20_000, 700):
            cut = Cut(suite, site.enrolment, most)
            broken.write_text(text.replace(f":{site.enrolment}", f":{cut.port}"))
            line = ("id", "enrol", broken, "--out", site.folder / "reviewer-3", "--json", "--log", "off")
            if cordon(*line, code=None).returncode == 0:
                break
            issued = [one["serial"] for one in site.ask("pki", "list")["certificates"] if one["holder"] == "Test reviewer-3"]
            lost = lost or [serial for serial in issued if serial not in before]
        done = take(file, "reviewer-3")
        equal(done["resumed"], True)
        equal((site.folder / "reviewer-3" / "key.pem").read_text(), key, "the key")
        equal([done["serial"]], lost, "the certificate whose answer was lost")

    with suite.case("a wrong, used or foreign code, a damaged file and a held person are refused, each with the next step"):
        said = take(file, "thief", code=1)
        contains(said["error"], "401")
        contains(said["to_do"], "another person may have enrolled as you")
        fresh = invitation("auditor-1")
        good = fresh.read_text()
        code = re.search(r'code = "(.*)"', good).group(1)
        for change, part in (
            (good.replace(code, "WRONGWRONGWRONGWRONG"), "401"),
            (good.replace("auditor-1", "officer-2"), "401"),
            (good.replace("version = 1", "version = 9"), "version 9"),
            (good.replace("code =", "kode ="), "not an invitation"),
            (good[: len(good) // 2], "not an invitation"),
        ):
            (site.folder / "bad.invitation").write_text(change)
            contains(take(site.folder / "bad.invitation", "bad", "--password-file", write_password(site), code=1)["error"], part)
            for left in (site.folder / "bad").glob("*"):
                left.unlink()
        site.ask("registry", "suspend", "--uid", "auditor-1")
        said = take(fresh, "auditor-1", code=1)
        contains(said["error"], "403")
        site.ask("registry", "resume", "--uid", "auditor-1")
        equal(take(fresh, "auditor-1")["uid"], "auditor-1")

    with suite.case("a site with another root than the invitation's gets no code"):
        other = Site(suite, "other").start()
        fresh = invitation("officer-2", "second")
        text = fresh.read_text()
        foreign = site.folder / "foreign.invitation"
        foreign.write_text(text.replace(f":{site.enrolment}", f":{other.enrolment}"))
        said = take(foreign, "foreign", code=1)
        contains(said["error"], "does not have the root with fingerprint")
        assert not (site.folder / "foreign" / "root.pem").exists()
        # One whose fetched root was verified before is not exchanged either.
        take(fresh, "second")
        (site.folder / "second" / "root.pem").write_bytes(other.root.read_bytes())
        contains(take(fresh, "second", code=1)["error"], "has the fingerprint")
        other.stop()

    with suite.case("a code alone works with user id, address and root beside it, and not without"):
        out = site.folder / "bare.code"
        site.ask("registry", "invite", "--uid", "officer-2", "--out", out)
        equal(take(out, "bare", code=2)["error"], "the file has a code alone")
        at = ("--uid", "officer-2", "--site", f"localhost:{site.enrolment}")
        equal(take(out, "bare", *at, code=2)["error"], "nothing names the site's root")
        contains(take(out, "bare", *at, "--root-fingerprint", "12:34", code=1)["error"], "not a SHA-256 fingerprint")
        printed = openssl("x509", "-in", site.root, "-noout", "-fingerprint", "-sha256").strip().split("=")[1]
        contains(take(out, "bare", *at, "--root-fingerprint", printed.replace(printed[:2], "00", 1), code=1)["error"], "does not have the root")
        equal(take(out, "bare", *at, "--root-fingerprint", printed)["uid"], "officer-2")
        cordon("registry", "invite", "--device", "phone-1", "--complete", "--out", site.folder / "no", *site.arguments(), code=2)

    with suite.case("a request by `id request` is certified, and `id install` takes that certificate and no other"):
        made = json.loads(cordon("id", "request", "--uid", "officer-2", "--out", site.folder / "own", "--json", "--log", "off").stdout)
        contains(openssl("req", "-in", made["request"], "-noout", "-verify", "-subject"), "officer-2")
        shown = cordon("id", "request", "--uid", "officer-2", "--out", site.folder / "own", "--log", "off").stdout
        contains(shown, made["key_sha256"])
        contains(shown, "resumed")
        (site.folder / "own").chmod(0o755)
        contains(cordon("id", "request", "--uid", "officer-2", "--out", site.folder / "own", "--log", "off", code=1).stderr, "other accounts can use")
        (site.folder / "own").chmod(0o700)
        code = site.folder / "own.code"
        site.ask("registry", "invite", "--uid", "officer-2", "--out", code)
        from tests.enrolment import Client

        client = Client(site)
        leaf = client.certificate(client.enrol("officer-2", code.read_text().strip(), made["request"]), "leaf")
        chain = site.folder / "chain.pem"
        chain.write_text(leaf.read_text() + (site.data / "pki/users-ca.pem").read_text())
        install = ("id", "install", "--uid", "officer-2", "--root", site.root, "--json", "--log", "off", "--certificate")
        for wrong, part in ((site.folder / "bare" / "certificate.pem", "another key"), (leaf, "not acceptable"), (site.root, "another key")):
            contains(cordon(*install, wrong, "--out", site.folder / "own", code=1).stderr, part)
        contains(cordon(*install, chain, "--out", site.folder / "nothing", code=1).stderr, "no key")
        printed = openssl("x509", "-in", site.root, "-noout", "-fingerprint", "-sha256").strip().split("=")[1]
        wrong = printed.replace(printed[:2], "00" if printed[:2] != "00" else "01", 1)
        left = sorted(entry.name for entry in (site.folder / "own").iterdir())
        for fingerprint in (wrong, "", "12:34"):
            contains(cordon(*install, chain, "--out", site.folder / "own", "--root-fingerprint", fingerprint, code=1).stderr, "the root has the fingerprint")
            equal(sorted(entry.name for entry in (site.folder / "own").iterdir()), left)
        assert not (site.folder / "own" / "certificate.pem").exists()
        equal(json.loads(cordon(*install, chain, "--out", site.folder / "own", "--root-fingerprint", printed).stdout)["uid"], "officer-2")
        person = Person(site, site.folder / "own" / "officer-2.p12", site.folder / "own" / "password", site.folder)
        equal(person.get("/api/v1/violations")["rows"], [])

    with suite.case("with approvals on: an approved invitation, and the registrar who enrolled so approves with that key"):
        people = {uid: Person(site, site.folder / f"{uid}.p12", site.folder / f"{uid}.p12.password", site.folder) for uid in ("registrar-1", "registrar-2", "keeper-1")}
        newcomer = {"uid": "registrar-9", "name": "Ninth Registrar", "email": "r9@example.org", "organisation": "LEA-EU", "clearance": 4, "roles": ["registrar"], "units": ["traffic"]}
        (site.folder / "r9.jsonl").write_text(json.dumps(newcomer) + "\n")
        site.ask("directory", "import", site.folder / "r9.jsonl")
        site.stop()
        site.config.write_text(site.config.read_text() + '\n[registration]\napprovals = "required"\n')
        site.start()

        def give(*command, by, code=0):
            return cordon("registry", "request", *command, *site.arguments(), *by.signs(), "--json", "--log", "off", code=code)

        def done(*command, by):
            return json.loads(give(*command, by=by).stdout)

        asked = done("new", "invite", "--uid", "registrar-9", "--reason", "new registrar", "--submit", by=people["keeper-1"])
        one = done("approve", asked["id"], "--seen", asked["version"], by=people["registrar-1"])
        two = done("approve", asked["id"], "--seen", one["version"], by=people["registrar-2"])
        out = site.folder / "registrar-9.invitation"
        done("carry-out", asked["id"], "--seen", two["version"], "--complete", "--out", out, by=people["keeper-1"])
        equal(take(out, "registrar-9")["uid"], "registrar-9")
        mine = site.folder / "registrar-9"
        ninth = Person(site, mine / "registrar-9.p12", mine / "password", site.folder)
        csr = make_csr(site.folder, "third", "/CN=x")
        asked = done("new", "issue", "--uid", "officer-2", "--csr", csr, "--clearance", "0", "--reason", "login", "--submit", by=people["keeper-1"])
        wrong = give("carry-out", asked["id"], "--seen", asked["version"], "--complete", "--out", site.folder / "x", by=people["keeper-1"], code=2)
        contains(wrong.stderr, "--complete is for invitations of people")
        equal(done("approve", asked["id"], "--seen", asked["version"], by=ninth)["state"], "approved")
    site.verify_audit()
    site.stop()


def write_password(site):
    file = site.folder / "my password"
    file.write_text("correct horse battery\n")
    return file
