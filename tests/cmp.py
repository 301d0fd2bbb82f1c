"""Enrolment, renewal and revocation over CMP with OpenSSL's client, and messages that no honest client sends."""

import json
import sqlite3
import time

from tests.cmp_message import (CERT_CONF, PKI_CONF, P10CR, Answer, Secret, explicit, integer, message, octets, oid, post, read, sequence)
from tests.harness import ROOT, Site, contains, cordon, cordon_json, equal, free_port
from tests.harness import run as execute
from tests.requests import enrol, make_csr, openssl

PATH = ".well-known/cmp"
PEOPLE = [("officer-2", 2), ("reviewer-3", 3), ("auditor-1", 1), ("clerk-5", 1)]


class Client:
    """OpenSSL's client; `answer` is what it printed last."""

    def __init__(self, site, public):
        self.site, self.folder = site, site.folder
        self.tls = ("-server", f"https://localhost:{site.enrolment}/{PATH}", "-tls_used", "-tls_trusted", site.root)
        self.plain = ("-server", f"http://127.0.0.1:{public}/{PATH}")
        self.url = f"http://127.0.0.1:{public}/{PATH}"

    def key(self, name, *kind):
        return make_csr(self.folder, name, f"/CN={name}", *kind).with_suffix(".key")

    def ask(self, command, *options, where=None, code=0):
        """One transaction; gives the new certificate's file."""
        out = self.folder / f"new-{len(list(self.folder.glob('new-*')))}.pem"
        line = ("openssl", "cmp", "-config", "", "-batch", "-cmd", command, *(where or self.tls), "-trusted", self.site.root)
        given = () if command == "rr" else ("-certout", out)
        done = execute(*line, *given, *options, code=code, timeout=20)
        self.answer = done.stdout + done.stderr
        return out

    def refused(self, failure, command, *options, part="", where=None):
        self.ask(command, *options, where=where, code=1)
        contains(self.answer, f"PKIFailureInfo: {failure}")
        contains(self.answer, part)

    def send(self, body, secret, **options):
        """Sends a message of our own making and reads the answer."""
        status, answer = post(self.url, message(body, secret, **options))
        equal(status, 200, answer)
        return Answer(answer)

    def invite(self, *whom, **options):
        out = self.folder / f"code-{len(list(self.folder.glob('code-*')))}"
        self.site.ask("registry", "invite", *whom, "--cmp", "--out", out, **options)
        return out.read_text().strip()


def by_code(name, code):
    return ("-ref", name, "-secret", f"pass:{code}")


def by_certificate(cert, key):
    return ("-cert", cert, "-key", key)


def subject(cert):
    return openssl("x509", "-in", cert, "-noout", "-subject", "-nameopt", "RFC2253")


def sealed(site):
    with sqlite3.connect(site.data / "registry.sqlite") as database:
        return database.execute("SELECT count(*) FROM invitations WHERE sealed IS NOT NULL").fetchone()[0]


def events(site):
    shown = cordon_json("audit", "show", site.data / "audit" / "log", "--last", 1_000_000)
    return [entry["leaf"]["event"] for entry in shown["entries"]]


def run(suite):
    public = free_port()
    site = Site(suite, settings=f'public = "127.0.0.1:{public}"\n').start()
    people = [
        {"uid": uid, "name": f"Test {uid}", "email": f"{uid}@example.org", "organisation": "LEA-EU", "clearance": clearance,
         "roles": ["officer"], "units": ["traffic"]}
        for uid, clearance in PEOPLE
    ]
    (site.folder / "people.jsonl").write_text("".join(json.dumps(person) + "\n" for person in people))
    site.ask("directory", "import", site.folder / "people.jsonl")
    staff = enrol(site, ("clerk", "officer", 1), ("registrar-1", "registrar", 4))
    client = Client(site, public)
    p10 = lambda name: explicit(P10CR, der_of(client.folder / f"{name}.csr"))

    def der_of(csr):
        der = csr.with_suffix(".der")
        openssl("req", "-in", csr, "-outform", "DER", "-out", der)
        return der.read_bytes()

    with suite.case("nothing speaks CMP and no code is kept unless the configuration says so"):
        equal(post(client.url, b"0")[0], 404)
        refused = cordon("registry", "invite", "--uid", "officer-2", "--cmp", "--out", site.folder / "no", *site.arguments(), "--log", "off", code=1)
        contains(refused.stderr, "enrolment.cmp")
        site.stop()
        site.config.write_text(site.config.read_text() + '\n[enrolment]\ncmp = "http"\n')
        site.start()

    with suite.case("ir: a person's key is certified by her code, as invited; the code is kept until it is confirmed and not longer"):
        code = client.invite("--uid", "officer-2", "--unit", "traffic", "--renewals", "2")
        equal(sealed(site), 1)
        assert code.encode() not in (site.data / "registry.sqlite").read_bytes() + (site.data / "registry.sqlite-wal").read_bytes()
        mine = client.key("mine")
        chief = ("-subject", "/CN=The Chief/UID=chief-1/OU=homicide")
        first = client.ask("ir", *by_code("officer-2", code), "-newkey", mine, *chief, "-cacertsout", site.folder / "trust.pem",
                           "-chainout", site.folder / "chain.pem")
        for part in ("UID=officer-2", "OU=traffic", "CN=Test officer-2"):
            contains(subject(first), part)
        equal(openssl("x509", "-in", first, "-noout", "-pubkey"), openssl("pkey", "-in", mine, "-pubout"))
        contains(openssl("verify", "-CAfile", site.root, "-untrusted", site.data / "pki/users-ca.pem", first), "OK")
        equal(openssl("x509", "-in", site.folder / "trust.pem"), openssl("x509", "-in", site.root), "the root that comes along")
        equal(sealed(site), 0)
        client.refused("badMessageCheck", "ir", *by_code("officer-2", code), "-newkey", client.key("other"), *chief, part="wrong, used")

    with suite.case("kur and cr: the certificate renews itself, as often as was agreed to"):
        second, third = client.key("second"), client.key("third")
        renewed = client.ask("kur", *by_certificate(first, mine), "-newkey", second, "-implicit_confirm")
        contains(subject(renewed), "UID=officer-2")
        # The first use of the new certificate ends the former one.
        again = client.ask("cr", *by_certificate(renewed, second), "-newkey", third, "-subject", "/CN=x", where=client.plain)
        client.refused("notAuthorized", "kur", *by_certificate(first, mine), "-newkey", client.key("late"), part="superseded")
        client.refused("notAuthorized", "kur", *by_certificate(again, third), "-newkey", client.key("late"), part="2 renewals were approved")

    with suite.case("p10cr: by a code for a tunnel device over plain HTTP, and by its certificate"):
        code = client.invite("--device", "phone-1")
        phone_key = client.key("phone-1")
        phone = client.ask("p10cr", *by_code("phone-1", code), "-csr", site.folder / "phone-1.csr", where=client.plain)
        contains(subject(phone), "CN=phone-1")
        equal(sealed(site), 0)
        new_csr = make_csr(site.folder, "phone-new", "/CN=phone-1")
        newer = client.ask("p10cr", *by_certificate(phone, phone_key), "-csr", new_csr)
        equal(openssl("x509", "-in", newer, "-noout", "-pubkey"), openssl("pkey", "-in", new_csr.with_suffix(".key"), "-pubout"))
        client.refused("badCertTemplate", "p10cr", *by_certificate(newer, new_csr.with_suffix(".key")), "-csr", make_csr(site.folder, "posing", "/CN=phone-9"),
                       part="phone-9")

    with suite.case("wrong code, missing and false proof, weak, vulnerable and certified keys are refused, each in its own words"):
        code = client.invite("--uid", "reviewer-3")
        hers, saved = client.key("hers"), site.folder / "saved.der"
        good, named = by_code("reviewer-3", code), ("-subject", "/CN=x")
        client.refused("badMessageCheck", "ir", *by_code("reviewer-3", "guess"), "-newkey", hers, *named, "-reqout", saved, part="wrong, used")
        client.refused("badMessageCheck", "ir", *by_code("nobody", code), "-newkey", hers, *named)
        for proof in ("-1", "0"):
            client.refused("badPOP", "ir", *good, "-newkey", hers, *named, "-popo", proof)
        # The body of that honest request, with another last byte of its proof.
        body = bytearray(read(read(saved.read_bytes())[0][1])[1][2])
        body[-1] ^= 1
        equal(client.send(bytes(body), Secret("reviewer-3", code)).failure, "badPOP")
        client.refused("badCertTemplate", "ir", *good, "-newkey", client.key("weak", "-newkey", "rsa:1024"), *named, part="unusable key")
        vulnerable = explicit(P10CR, (ROOT / "crates/pki/tests/data/roca-2048.csr").read_bytes())
        equal(client.send(vulnerable, Secret("reviewer-3", code)).failure, "badCertTemplate")
        client.refused("duplicateCertReq", "ir", *good, "-newkey", mine, *named, part="has a certificate already")
        client.refused("wrongIntegrity", "kur", *good, "-newkey", hers, "-oldcert", first)
        client.refused("wrongIntegrity", "ir", *by_certificate(again, third), "-newkey", hers, *named)

    with suite.case("a replay, an old or future time, and a key derived a billion times are refused at once"):
        secret, name = Secret("reviewer-3", code), "hers"
        transaction, nonce = b"t" * 16, b"n" * 16
        for ahead in (-400, 400):
            equal(client.send(p10(name), secret, ahead=ahead).failure, "badTime")
        began = time.monotonic()
        for count in (10**9, 10_001, 0):
            equal(client.send(p10(name), Secret("reviewer-3", code, iterations=count)).failure, "badAlg")
            equal(client.send(p10(name), Secret("reviewer-3", code, iterations=count, pbmac1=True) if count < 10**6 and count
                              else Secret("reviewer-3", code, iterations=count)).failure, "badAlg")
        assert time.monotonic() - began < 2
        equal(client.send(p10(name), secret, version=1).failure, "unsupportedVersion")
        equal(client.send(p10(name), secret, nonce=b"short").failure, "badSenderNonce")
        equal(client.send(p10(name), secret, transaction=b"short").failure, "badDataFormat")
        taken = client.send(p10(name), secret, transaction=transaction, nonce=nonce)
        equal((taken.kind, taken.failure), (3, None))
        equal(client.send(p10(name), secret, transaction=transaction).failure, "transactionIdInUse")
        equal(client.send(p10(name), secret, nonce=nonce).failure, "badSenderNonce")
        equal(client.send(p10("other"), secret).failure, "notAuthorized")
        # Also after a restart.
        site.stop()
        site.start()
        equal(client.send(p10(name), secret, transaction=transaction).failure, "transactionIdInUse")
        equal(post(client.url, b"\x30\x03\x02\x01\x02")[0], 400)
        equal(post(client.url, message(p10(name), secret) + b"\0")[0], 400)
        equal(post(client.url, b"\x30" * 30_000)[0], 413)
        equal(post(client.url, message(p10(name), secret), "text/plain")[0], 415)
        equal(post(f"{client.url}/pkcs10", message(p10(name), secret, transaction=transaction))[0], 200)
        equal(post(f"{client.url}/other", b"")[0], 404)

    with suite.case("PBMAC1, a lost answer, a confirmation of something else, and a certificate that its holder rejects"):
        secret = Secret("reviewer-3", code, pbmac1=True)
        one = client.send(p10("hers"), secret)
        contains(one.algorithm, oid("1.2.840.113549.1.5.14"))
        again_sent = client.send(p10("hers"), secret, transaction=b"c" * 16)
        certificate = lambda answer: read(read(answer.body)[0][1])[-1][2]
        equal(certificate(one), certificate(again_sent), "the certificate after a lost answer")

        def confirm(digest, *status, answers=again_sent.nonce):
            status = sequence(sequence(octets(digest), integer(-1), *status))
            return client.send(explicit(CERT_CONF, status), secret, transaction=b"c" * 16, answers=answers)

        rejection = sequence(integer(2))
        equal(confirm(b"x" * 32, rejection, answers=b"y" * 16).failure, "badRecipientNonce")
        equal(sealed(site), 1)
        equal(confirm(b"x" * 32, rejection).kind, PKI_CONF)
        equal(confirm(b"x" * 32, rejection).failure, "badRequest")
        equal(sealed(site), 0)
        code = client.invite("--uid", "auditor-1")
        secret = Secret("auditor-1", code)
        again_sent = client.send(p10("other"), secret, transaction=b"c" * 16)
        equal(confirm(b"x" * 48, answers=again_sent.nonce).failure, "badCertId")

    with suite.case("messages by one code and wrong codes for one name have their bounds, whether anybody has the name or not"):
        taken = [client.send(p10("other"), secret).failure for _ in range(20)]
        equal(taken, [None] * 19 + ["systemUnavail"])
        for name in ("auditor-1", "nobody-2"):
            guesses = [client.send(p10("other"), Secret(name, "guess", iterations=1)).failure for _ in range(11)]
            equal(guesses, ["badMessageCheck"] * 10 + ["systemUnavail"])

    with suite.case("neither another's certificate nor another's key renews or revokes; a level that somebody writes into the database is not granted"):
        both = by_certificate(newer, new_csr.with_suffix(".key"))
        client.refused("badCertId", "kur", *both, "-newkey", client.key("thief"), "-oldcert", again)
        client.refused("badCertId", "rr", *both, "-oldcert", again)
        client.refused("badCertId", "rr", *both, "-oldcert", phone)
        stranger = site.folder / "stranger.pem"
        ca = site.folder / "ca.pem"
        openssl("req", "-x509", "-key", client.key("ca"), "-subj", "/CN=Devices", "-out", ca)
        client.key("stranger")
        openssl("x509", "-req", "-in", site.folder / "stranger.csr", "-CA", ca, "-CAkey", site.folder / "ca.key", "-out", stranger)
        client.refused("signerNotTrusted", "kur", *by_certificate(stranger, site.folder / "stranger.key"), "-newkey", client.key("thief"))
        code = client.invite("--device", "phone-2")
        with sqlite3.connect(site.data / "registry.sqlite") as database:
            before = database.execute("SELECT clearance FROM invitations WHERE holder_id = 'phone-2'").fetchone()
            database.execute("UPDATE invitations SET clearance = 4 WHERE holder_id = 'phone-2'")
        client.key("phone-2")
        by = ("p10cr", *by_code("phone-2", code), "-csr", site.folder / "phone-2.csr")
        client.refused("systemFailure", *by, part="registry failed")
        with sqlite3.connect(site.data / "registry.sqlite") as database:
            database.execute("UPDATE invitations SET clearance = ? WHERE holder_id = 'phone-2'", before)
        client.ask(*by)

    with suite.case("a suspended device gets nothing; rr revokes the very certificate, and then nothing is had by it"):
        site.ask("registry", "suspend", "--device", "phone-1")
        client.refused("notAuthorized", "kur", *both, "-newkey", client.key("phone-third"), part="is suspended")
        site.ask("registry", "resume", "--device", "phone-1")
        client.refused("badRequest", "rr", *both, "-oldcert", newer, "-revreason", "6")
        client.ask("rr", *both, "-oldcert", newer, "-revreason", "1")
        crl = site.folder / "devices.crl"
        execute("curl", "--silent", "--fail", "--output", crl, f"http://127.0.0.1:{public}/crl/devices.crl")
        serial = openssl("x509", "-in", newer, "-noout", "-serial").strip().split("=")[1]
        contains(openssl("crl", "-inform", "DER", "-in", crl, "-noout", "-text"), serial)
        for command in ("kur", "rr"):
            given = ("-newkey", client.key("phone-third")) if command == "kur" else ("-oldcert", newer)
            client.refused("certRevoked", command, *both, *given)

    with suite.case("where approvals are required, an approved invitation enrols, and nobody revokes by message alone"):
        site.stop()
        site.config.write_text(site.config.read_text() + '\n[registration]\napprovals = "required"\n')
        site.start()

        def give(*command, by):
            proof = ("--as", staff[by].p12, "--as-password-file", staff[by].p12.with_name(f"{by}.p12.password"))
            return json.loads(cordon("registry", "request", *command, *site.arguments(), *proof, "--json", "--log", "off").stdout)

        asked = give("new", "invite", "--uid", "clerk-5", "--reason", "new clerk", "--submit", by="clerk")
        approved = give("approve", asked["id"], "--seen", asked["version"], by="registrar-1")
        out = site.folder / "approved.code"
        give("carry-out", asked["id"], "--seen", approved["version"], "--cmp", "--out", out, by="clerk")
        fifth = client.key("fifth")
        mine = client.ask("ir", *by_code("clerk-5", out.read_text().strip()), "-newkey", fifth, "-subject", "/CN=x")
        contains(subject(mine), "UID=clerk-5")
        client.refused("notAuthorized", "rr", *by_certificate(mine, fifth), "-oldcert", mine, part="on approved requests only")

    with suite.case("the log has every act and every refusal, as for EST"):
        site.stop()
        site.verify_audit()
        mine = [event for event in events(site) if event.get("details", {}).get("protocol") == "cmp"]
        ways = {(event["action"], event["outcome"], event["details"].get("origin")) for event in mine}
        for way in (
            ("certificate.issue", "ok", "invitation"), ("certificate.issue", "ok", "renewal"), ("certificate.revoke", "ok", None),
            ("certificate.supersede", "ok", None),
        ):
            assert way in ways, (way, ways)
        codes = {event["details"].get("code") for event in mine if event["outcome"] == "deny"}
        # Of one address ten refusals of an action are recorded in ten minutes.
        for refused in ("wrong-code", "not-proven", "key-size", "no-renewals-left", "certificate-superseded", "cmp-other-certificate",
                        "approval-required"):
            assert refused in codes, (refused, codes)
