"""The archive of keys: what the site keeps, who gets it, and what it is good for."""

import contextlib
import json
import os
import sqlite3

from tests.harness import Site, contains, cordon, cordon_json, equal
from tests.requests import REQUEST, STAFF, enrol, openssl


def run(suite):
    folder = suite.folder / "recovery"
    folder.mkdir()
    key, recovery = folder / "recovery.key", folder / "recovery.pem"
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key,
            "-subj", "/CN=Key recovery", "-days", "3650", "-out", recovery)
    site = Site(suite)
    plain = site.config.read_text()

    def start(approvals, certificates=recovery):
        site.config.write_text(f'{plain}\n[registration]\napprovals = "{approvals}"\nrecovery = "{certificates}"\n')
        site.start()

    with suite.case("a site without a key to encrypt to does not start, and says which file is to be looked at"):
        signs = folder / "signs.pem"
        openssl("req", "-x509", "-newkey", "ed25519", "-nodes", "-keyout", folder / "signs.key", "-subj", "/CN=x", "-out", signs)
        both, pipe = folder / "both.pem", folder / "pipe"
        both.write_text(recovery.read_text() + key.read_text())
        os.mkfifo(pipe)
        for wrong in (folder / "absent.pem", key, signs, both, pipe):
            site.config.write_text(f'{plain}\n[registration]\nrecovery = "{wrong}"\n')
            refused = cordon("up", *site.arguments(), "--log", "off", code=1).stderr
            contains(refused, str(wrong))
    start("direct")
    site.people()
    people = enrol(site, *STAFF)

    def give(*command, by, code=0):
        person = people[by]
        proof = ("--as", person.p12, "--as-password-file", person.p12.with_name(f"{person.p12.name}.password"))
        return cordon(*REQUEST, *command, *site.arguments(), *proof, "--json", "--log", "off", code=code)

    def done(*command, by):
        return json.loads(give(*command, by=by).stdout)

    def events(action):
        entries = cordon_json("audit", "show", site.data / "audit" / "log", "--last", 5000)["entries"]
        found = [entry["leaf"]["event"] for entry in entries]
        return [event for event in found if event["action"] == action]

    mail = site.folder / "mail.p12"
    with suite.case("a key for mail that the centre makes is archived, one that signs is not, and the answer and the log say so"):
        made = site.ask("pki", "issue-user", "--uid", "officer-2", "--profile", "mail-encryption", "--out", mail)
        equal(made["archived"], True)
        login = site.ask("pki", "issue-user", "--uid", "officer-2", "--out", site.folder / "login.p12")
        equal(login["archived"], False)
        serial = made["serial"]
        archived = [event["details"] for event in events("certificate.issue") if "archived_sha256" in event["details"]]
        equal([details["serial"] for details in archived], [serial])
        secret = ("-passin", f"file:{mail}.password")
        certificate = folder / "mail.pem"
        certificate.write_text(openssl("pkcs12", "-in", mail, *secret, "-nokeys", "-clcerts"))
        (folder / "letter").write_text("to officer-2\n")
        openssl("cms", "-encrypt", "-in", folder / "letter", "-out", folder / "sealed", "-aes256", certificate)
    site.stop()
    start("required")
    new = ("new", "recover-key", "--serial", serial, "--reason", "card broken, mail of two years", "--submit")
    out = folder / "recovered.cms"
    with suite.case("two registrars give it out, one does not, nor an administrator; without a file for it nothing is used up"):
        asked = done(*new, by="clerk")
        one = done("approve", asked["id"], "--seen", asked["version"], by="registrar-1")
        carry = ("carry-out", asked["id"], "--seen")
        contains(give(*carry, one["version"], "--out", out, by="clerk", code=1).stderr, "wrong-state")
        contains(give("approve", asked["id"], "--seen", one["version"], by="keeper-1", code=1).stderr, "role-missing")
        two = done("approve", asked["id"], "--seen", one["version"], by="registrar-2")
        contains(give(*carry, two["version"], by="clerk", code=2).stderr, "given once")
        given = done(*carry, two["version"], "--out", out, by="clerk")
        assert "envelope_hex" not in given, given
        equal(out.stat().st_mode & 0o777, 0o600)
        contains(give(*carry, given["version"], "--out", folder / "again", by="clerk", code=1).stderr, "wrong-state")
    with suite.case("OpenSSL opens it with the recovery key, and reads the mail of before with what is in it; nobody else does"):
        plain_key = folder / "plain.der"
        opened = ("cms", "-decrypt", "-inform", "DER", "-in", out, "-binary")
        openssl(*opened, "-inkey", key, "-recip", recovery, "-out", plain_key)
        public = openssl("pkey", "-inform", "DER", "-in", plain_key, "-pubout")
        equal(public, openssl("x509", "-in", certificate, "-noout", "-pubkey"))
        again = folder / "again.p12"
        openssl("pkey", "-inform", "DER", "-in", plain_key, "-out", folder / "plain.pem")
        openssl("pkcs12", "-export", "-inkey", folder / "plain.pem", "-in", certificate, "-passout", "pass:again", "-out", again)
        openssl("pkcs12", "-in", again, "-passin", "pass:again", "-noout")
        read = ("cms", "-decrypt", "-in", folder / "sealed", "-recip", certificate)
        contains(openssl(*read, "-inkey", plain_key, "-keyform", "DER"), "to officer-2")
        openssl(*opened, "-inkey", folder / "signs.key", "-recip", signs, "-out", folder / "no.der", code=4)
        database = (site.data / "registry.sqlite").read_bytes() + (site.data / "registry.sqlite-wal").read_bytes()
        assert plain_key.read_bytes()[36:68] not in database, "the key is on the site's disk"
    with suite.case("what is not archived is not asked for, and a revoked certificate's key is"):
        for what in (login["serial"], "0a"):
            refused = json.loads(give("new", "recover-key", "--serial", what, "--reason", "x", by="clerk", code=1).stderr)
            contains(refused["error"], "certificate")
        revoke = ("new", "revoke", "--serial", serial, "--cause", "superseded", "--reason", "new key", "--submit")
        asked = done(*revoke, by="clerk")
        one = done("approve", asked["id"], "--seen", asked["version"], by="registrar-1")
        two = done("approve", asked["id"], "--seen", one["version"], by="registrar-2")
        done("carry-out", asked["id"], "--seen", two["version"], by="clerk")
        done(*new, by="clerk")
    with suite.case("the log alone says who recovered what and who approved it"):
        report = json.loads(cordon("pki", "audit", "--data", site.data, "--json", "--log", "off", code=1).stdout)["report"]
        equal(report["acts"], {"recover-key": 1, "revoke": 1})
        (event,) = events("request.recover-key")
        equal((event["details"]["approvers"], event["details"]["result"]), ("registrar-1 registrar-2", serial))
        equal([gap for gap in report["gaps"] if "without a request" not in gap["what"]], [])
    with suite.case("a key that somebody with the disk put in the place of another, or took away, is found by the log and does not leave"):
        site.stop()
        start("direct")
        other = site.ask("pki", "issue-user", "--uid", "clerk", "--profile", "mail-encryption", "--out", folder / "other.p12")
        site.stop()
        with contextlib.closing(sqlite3.connect(site.data / "registry.sqlite")) as book:
            kept = book.execute("SELECT authority, serial, envelope FROM archived_keys").fetchall()
            (true_one,) = [envelope for _, of, envelope in kept if of == serial]
            book.execute(
                "UPDATE archived_keys SET envelope = (SELECT envelope FROM archived_keys WHERE serial = ?) WHERE serial = ?",
                (other["serial"], serial),
            )
            book.execute("DELETE FROM archived_keys WHERE serial = ?", (other["serial"],))
            book.commit()
        refused = cordon("up", *site.arguments(), "--log", "off", code=1, timeout=120).stderr
        contains(refused, "was changed by something else than this program")
        report = json.loads(cordon("pki", "audit", "--data", site.data, "--json", "--log", "off", code=1).stdout)["report"]
        found = [gap["what"] for gap in report["gaps"] if "without a request" not in gap["what"]]
        equal(sorted(found), sorted([
            f"the archived key of certificate {serial} is another than its event says",
            f"the archived key of certificate {other['serial']} is not in the registry's book any more",
        ]))
        with contextlib.closing(sqlite3.connect(site.data / "registry.sqlite")) as book:
            book.execute("DELETE FROM archived_keys")
            book.executemany("INSERT INTO archived_keys VALUES (?, ?, ?)", kept)
            book.commit()
        start("required")
        (waiting,) = [request for request in site.ask(*REQUEST, "list")["requests"] if request["act"] == "recover-key"]
        one = done("approve", waiting["id"], "--seen", waiting["version"], by="registrar-1")
        two = done("approve", waiting["id"], "--seen", one["version"], by="registrar-2")
        carry_out = ("carry-out", waiting["id"], "--seen", two["version"], "--out", folder / "swapped.cms")
        done(*carry_out, by="clerk")
        equal((folder / "swapped.cms").read_bytes(), true_one)
    site.verify_audit()
