"""Certificate profiles: those built in as OpenSSL sees and uses them, and one that two administrators put in force."""

import contextlib
import json
import os
import sqlite3

from tests.authorities import http
from tests.enrolment import Client
from tests.harness import Site, contains, cordon, cordon_json, equal
from tests.requests import REQUEST, enrol, make_csr, openssl

STAFF = [
    ("clerk", "officer", 4), ("registrar-1", "registrar", 4), ("registrar-2", "registrar", 4),
    ("keeper-1", "administrator", 4), ("keeper-2", "administrator", 4),
]
ACCOUNT = ("--principal", "officer-9@police.example", "--sid", "S-1-5-21-3623811015-3361044348-30300820-1104")
# Fields of the published user profile, country and organisation of the person rather than of the site.
PUBLISHED = {"C=FR", "O=LEA-FR", "CN=Ninth Officer", "GN=Ninth", "SN=Officer", "UID=officer-9", "emailAddress=officer-9@police.example"}
PATROL = """name = "patrol-login"
issuer = "users"
clearance = "optional"
highest_clearance = 2
days = 30
[names]
uid = "required"
email = "optional"
[key_usage]
ecdsa = ["digitalSignature"]
[extended_key_usage]
purposes = ["clientAuth"]
"""


def purposes(certificate):
    """What OpenSSL takes a certificate for."""
    text = openssl("x509", "-in", certificate, "-noout", "-purpose")
    lines = [line.split(" : ") for line in text.splitlines() if " : " in line]
    return {name for name, answer in lines if answer.startswith("Yes")}


def subject(certificate):
    """Attributes of the subject."""
    text = openssl("x509", "-in", certificate, "-noout", "-subject", "-nameopt", "sep_multiline")
    return {line.strip() for line in text.splitlines()[1:]}


def extensions(certificate):
    return openssl("x509", "-in", certificate, "-noout", "-text")


def run(suite):
    site = Site(suite).start()
    site.people()
    staff = enrol(site, *STAFF)
    folder, client = site.folder, Client(site)
    officer = {
        "uid": "officer-9", "name": "Ninth Officer", "email": "officer-9@police.example", "organisation": "LEA-FR",
        "country": "FR", "given_name": "Ninth", "surname": "Officer", "clearance": 3, "roles": ["officer"], "units": ["traffic"],
    }
    (folder / "officer-9.jsonl").write_text(json.dumps(officer) + "\n")
    site.ask("directory", "import", folder / "officer-9.jsonl")
    root = site.data / "pki" / "root.pem"
    authorities = folder / "authorities.pem"
    authorities.write_text("".join((site.data / "pki" / f"{kind}-ca.pem").read_text() for kind in ("users", "services")))

    def give(*command, by, code=0):
        person = staff[by]
        proof = ("--as", person.p12, "--as-password-file", person.p12.with_name(f"{person.p12.name}.password"))
        return cordon(*REQUEST, *command, *site.arguments(), *proof, "--json", "--log", "off", code=code)

    def approved(*new, by=("registrar-1",)):
        asked = json.loads(give("new", *new, "--reason", "needed", "--submit", by="clerk").stdout)
        for approver in by:
            asked = json.loads(give("approve", asked["id"], "--seen", asked["version"], by=approver).stdout)
        return asked

    def issued(name, *new):
        """A certificate for a key that OpenSSL makes, on an approved request."""
        csr, out = make_csr(folder, name, "/CN=tsa.police.example"), folder / f"{name}.pem"
        # A certificate of an officer who is cleared for level 3 needs two, whatever its own level.
        done = approved("issue", *new, "--csr", csr, by=("registrar-1", "registrar-2"))
        give("carry-out", done["id"], "--seen", done["version"], "--out", out, by="clerk")
        return out

    with suite.case("a key that the site made signs nothing that its owner could not deny, and one for mail decrypts only"):
        text = extensions(site.certified("officer-9").cert)
        contains(text, "Digital Signature, Key Agreement")
        assert "Non Repudiation" not in text, text
        p12 = folder / "mail.p12"
        site.ask("pki", "issue-user", "--uid", "officer-9", "--profile", "mail-encryption", "--out", p12)
        certificate = folder / "mail.pem"
        secret = ("-passin", f"file:{p12}.password")
        certificate.write_text(openssl("pkcs12", "-in", p12, *secret, "-nokeys", "-clcerts"))
        can = purposes(certificate)
        # OpenSSL 3.0 knows encryption of mail by RSA only; that it encrypts to this key all the same is shown below.
        assert not can & {"S/MIME signing", "SSL client", "SSL server"}, can
        (folder / "key.pem").write_text(openssl("pkcs12", "-in", p12, *secret, "-nocerts", "-noenc"))
        equal(subject(certificate), PUBLISHED)
        (folder / "letter").write_text("to officer-9\n")
        openssl("cms", "-encrypt", "-in", folder / "letter", "-out", folder / "sealed", "-aes256", certificate)
        contains(openssl("cms", "-decrypt", "-in", folder / "sealed", "-inkey", folder / "key.pem", "-recip", certificate), "to officer-9")
        refused = cordon("pki", "issue-user", "--uid", "officer-9", "--profile", "mail-signing", "--out", folder / "no.p12",
                         *site.arguments(), "--log", "off", code=1).stderr
        contains(refused, "made by their owners")

    with suite.case("an invited person has a key of her own certified for signing mail, and OpenSSL verifies what it signs"):
        out = folder / "mail.code"
        site.ask("registry", "invite", "--uid", "officer-9", "--profile", "mail-signing", "--out", out)
        csr = make_csr(folder, "sign", "/CN=x")
        certificate = client.certificate(client.enrol("officer-9", out.read_text().strip(), csr), "sign")
        can = purposes(certificate)
        assert "S/MIME signing" in can and not can & {"S/MIME encryption", "SSL client"}, can
        equal(subject(certificate), PUBLISHED)
        text = extensions(certificate)
        contains(text, "email:officer-9@police.example")
        # What strangers see says nothing of clearance.
        assert "X509v3 Subject Directory Attributes" not in text, text
        openssl("cms", "-sign", "-in", folder / "letter", "-text", "-signer", certificate, "-inkey", folder / "sign.key",
                "-certfile", authorities, "-out", folder / "signed")
        openssl("cms", "-verify", "-in", folder / "signed", "-CAfile", root, "-text", "-out", folder / "back")

    with suite.case("a card for Windows has the account that was approved, in both places"):
        give("new", "issue", "--uid", "officer-9", "--csr", csr, "--profile", "smart-card-logon", "--reason", "card", by="clerk", code=1)
        card = issued("card", "--uid", "officer-9", "--profile", "smart-card-logon", *ACCOUNT)
        equal(subject(card), PUBLISHED)
        # Whose entry names no country is of the site's.
        contains(subject(staff["clerk"].cert), "C=EU")
        text = extensions(card)
        contains(text, "UPN::officer-9@police.example")
        contains(text, "1.3.6.1.4.1.311.25.2")
        contains(text, "S-1-5-21-3623811015-3361044348-30300820-1104")
        contains(text, "Microsoft Smartcard Login")
        for wrong in ("S-1-5-18", "S-1-5-21-1-2-3-500"):
            account = ("--principal", "officer-9@police.example", "--sid", wrong)
            refused = give("new", "issue", "--uid", "officer-9", "--csr", csr, "--profile", "smart-card-logon", *account,
                           "--reason", "card", by="clerk", code=1).stderr
            contains(refused, "no account of a Windows domain")

    with suite.case("OpenSSL makes and verifies time stamps with the profile for that, and with no other"):
        tsa = issued("tsa", "--server", "tsa.police.example", "--profile", "time-stamping")
        config, serial = folder / "tsa.conf", folder / "tsa.serial"
        config.write_text(
            f"[tsa]\ndefault_tsa = one\n[one]\nserial = {serial}\ndefault_policy = 1.2.3.4\nsigner_digest = sha256\n"
            "digests = sha256\nordering = yes\ness_cert_id_alg = sha256\n")
        query, reply = folder / "stamp.tsq", folder / "stamp.tsr"
        openssl("ts", "-query", "-data", folder / "letter", "-sha256", "-cert", "-out", query)
        make = ("ts", "-reply", "-config", config, "-queryfile", query, "-out", reply)
        openssl(*make, "-signer", tsa, "-inkey", folder / "tsa.key", "-chain", authorities)
        contains(openssl("ts", "-verify", "-queryfile", query, "-in", reply, "-CAfile", root, "-untrusted", authorities), "Verification: OK")
        openssl(*make, "-signer", staff["clerk"].cert, "-inkey", staff["clerk"].key, code=1)

    with suite.case("a profile with a mistake is refused with place, value and what to do, before anybody is asked"):
        file = folder / "patrol.toml"
        for line, changed, words in (
            ('"clientAuth"', '"serverAuth"', 'extended_key_usage.purposes = "serverAuth": is no purpose of certificates of users'),
            ("days = 30", "days = 0", "days = 0: is no lifetime of a certificate"),
            ('uid = "required"', "", "names.uid: a person is known by the user id"),
            ("days", "day", "line 5, column 1: unknown field"),
        ):
            file.write_text(PATROL.replace(line, changed))
            refused = cordon("pki", "profile", "check", file, code=1).stderr
            contains(refused, words)
            contains(refused, str(file))
            contains(refused, "to do: ")
            failed = give("new", "profile", "--file", file, "--reason", "patrols", by="clerk", code=1).stderr
            contains(json.loads(failed)["error"], words)
        file.write_text(PATROL)
        equal(cordon_json("pki", "profile", "check", file)["purposes"], ["clientAuth"])

    with suite.case("what is seen otherwise than it is read is refused, and what has no end is not read"):
        file.write_text(PATROL.replace("days = 30", "# \u202e03 = syad\ndays = 30"))
        contains(cordon("pki", "profile", "check", file, code=1).stderr, "line 5, column 3 = U+202E: is not seen")
        pipe = folder / "pipe"
        os.mkfifo(pipe)
        for endless in ("/dev/zero", pipe, folder):
            for command in (
                ("pki", "profile", "check", endless), ("pki", "show", endless), ("pki", "profile", "put", endless, *site.arguments()),
                ("audit", "verify", site.data / "audit/log", "--key", endless), ("audit", "verify", site.data / "audit/log", "--since", endless),
                (*REQUEST, "new", "issue", "--uid", "officer-9", "--csr", endless, "--reason", "x", *site.arguments()),
                ("pki", "audit", "--data", site.data, "--certificates", endless),
            ):
                refused = cordon(*command, "--log", "off", code=1, timeout=20).stderr
                contains(refused, "no regular file")
        file.write_text(PATROL)

    other = folder / "night.toml"
    other.write_text(PATROL.replace("patrol-login", "night-login"))
    site.ask("pki", "profile", "put", other)
    site.stop()
    site.config.write_text(site.config.read_text() + '\n[registration]\napprovals = "required"\n')
    site.start()
    with suite.case("what an order put in force waits where approvals are required, and is approved there"):
        contains(http(site, "/healthz")[1], 'nothing is issued by the profile "night-login": it was put in force by an order')
        contains(cordon("pki", "profile", "list", *site.arguments(), "--log", "off").stdout, "NOT IN FORCE")
        night = ("--uid", "officer-9", "--csr", make_csr(folder, "night", "/CN=x"), "--profile", "night-login", "--reason", "night")
        refused = give("new", "issue", *night, by="clerk", code=1).stderr
        contains(refused, "have it approved with `cordon registry request new profile`")
        asked = approved("profile", "--file", other, by=("keeper-1", "keeper-2"))
        give("carry-out", asked["id"], "--seen", asked["version"], by="clerk")
        give("new", "issue", *night, by="clerk")
        equal(http(site, "/healthz")[1], "ok\n")

    with suite.case("where approvals are required two administrators put a profile in force, and nobody alone"):
        contains(cordon("pki", "profile", "put", file, *site.arguments(), "--log", "off", code=1).stderr, "without approvals")
        asked = approved("profile", "--file", file, by=("keeper-1",))
        contains(give("carry-out", asked["id"], "--seen", asked["version"], by="clerk", code=1).stderr, "wrong-state")
        contains(give("approve", asked["id"], "--seen", asked["version"], by="registrar-1", code=1).stderr, "role-missing")
        both = json.loads(give("approve", asked["id"], "--seen", asked["version"], by="keeper-2").stdout)
        give("carry-out", asked["id"], "--seen", both["version"], by="clerk")
        (found,) = [one for one in site.ask("pki", "profile", "list")["profiles"] if one["name"] == "patrol-login"]
        equal((found["request"], found["text"]), (asked["id"], PATROL))

    with suite.case("certificates follow it from then on, after a restart too, and above its bound nothing is approved"):
        site.stop()
        site.start()
        login = issued("login", "--uid", "officer-9", "--profile", "patrol-login", "--clearance", 2)
        equal(purposes(login) & {"SSL client", "S/MIME signing"}, {"SSL client"})
        days = openssl("x509", "-in", login, "-noout", "-checkend", str(31 * 86400), code=1)
        contains(days, "will expire")
        above = ("new", "issue", "--uid", "officer-9", "--csr", make_csr(folder, "above", "/CN=x"), "--profile", "patrol-login")
        contains(give(*above, "--clearance", 3, "--reason", "more", by="clerk", code=1).stderr, "above-authority")

    with suite.case("a request that was approved before its profile changed is not carried out, and the way on is said"):
        csr = make_csr(folder, "late", "/CN=x")
        late = approved("issue", "--uid", "officer-9", "--csr", csr, "--profile", "patrol-login", "--clearance", 2,
                        by=("registrar-1", "registrar-2"))
        file.write_text(PATROL.replace("days = 30", "days = 20"))
        changed = approved("profile", "--file", file, by=("keeper-1", "keeper-2"))
        give("carry-out", changed["id"], "--seen", changed["version"], by="clerk")
        out = ("--out", folder / "late.pem")
        refused = give("carry-out", late["id"], "--seen", late["version"], *out, by="clerk", code=1).stderr
        contains(refused, "return the request and have it approved anew")
        back = json.loads(give("return", late["id"], "--seen", late["version"], "--reason", "see the profile", by="registrar-1").stdout)
        again = json.loads(give("submit", late["id"], "--seen", back["version"], by="clerk").stdout)
        for registrar in ("registrar-1", "registrar-2"):
            again = json.loads(give("approve", late["id"], "--seen", again["version"], by=registrar).stdout)
        give("carry-out", late["id"], "--seen", again["version"], *out, by="clerk")
        contains(openssl("x509", "-in", folder / "late.pem", "-noout", "-checkend", str(21 * 86400), code=1), "will expire")

    with suite.case("a file that was taken out of the database, or put back to an older one, stops the start and says what to do"):
        site.stop()
        book = site.data / "registry.sqlite"
        with contextlib.closing(sqlite3.connect(book)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        kept = book.read_bytes()
        for change in (
            "DELETE FROM profiles WHERE name = 'patrol-login'",
            "UPDATE profiles SET definition = replace(definition, 'days = 20', 'days = 30') WHERE name = 'patrol-login'",
        ):
            with contextlib.closing(sqlite3.connect(book)) as database, database:
                database.execute(change)
            refused = cordon("up", *site.arguments(), "--log", "off", code=1, timeout=120).stderr
            contains(refused, "patrol-login")
            contains(refused, "bring back the newest copy of the data folder")
            for beside in site.data.glob("registry.sqlite-*"):
                beside.unlink()
            book.write_bytes(kept)
        site.start()

    with suite.case("the log alone explains what came by requests, and which profile was in force"):
        done = cordon("pki", "audit", "--data", site.data, "--config", site.config, "--json", "--log", "off", code=1)
        report = json.loads(done.stdout)["report"]
        equal(report["acts"], {"change-profile": 3, "issue": 4})
        assert all("without a request" in gap["what"] for gap in report["gaps"]), report["gaps"]
    site.verify_audit()
