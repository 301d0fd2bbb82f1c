"""Routers that enrol over SCEP with strongSwan's client, and messages that no honest client sends."""

import concurrent.futures
import json
import os
import shutil
import sqlite3

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs7

from tests.cmp_message import octets, oid, sequence
from tests.harness import ROOT, Site, contains, cordon, cordon_json, equal, free_port
from tests.harness import run as execute
from tests.requests import enrol, openssl
from tests.scep_message import (CIPHERS, DER, DES3, PKCS_REQ, RENEWAL_REQ, SHA1, Answer, ask, csr, encrypt, envelope, message, new_key,
                                self_signed)

PATH = "scep"
OAEP = sequence(oid("1.2.840.113549.1.1.7"), sequence())
UNREADABLE = ("badMessageCheck", "cannot be read, or is not proven")


class Client:
    """Whoever has a key, and signs and encrypts as told. `certificate` is the signer's: its own word until it has another."""

    def __init__(self, url, name):
        self.url, self.name, self.key = url, name, new_key()
        self.certificate = self_signed(self.key, name)
        _, body = ask(url, "GetCACert")
        self.authority, = (one for one in pkcs7.load_der_pkcs7_certificates(body) if "SCEP" in one.subject.rfc4514_string())

    def send(self, content, by_get=False, **options):
        """The answer to a message over what is encrypted already."""
        signer = {"key": self.key, "certificate": self.certificate, **options}
        status, body = ask(self.url, "PKIOperation", message(content, signer.pop("key"), signer.pop("certificate"), **signer), by_get)
        equal(status, 200, body)
        return Answer(body, self.key)

    def enrol(self, code, request=None, bits=256, **options):
        request = csr(self.key, self.name, code) if request is None else request
        return self.send(encrypt(request, self.authority, bits), **options)

    def renew(self, key=None, name=None, challenge=None, **options):
        key = key or new_key()
        request = csr(key, name or self.name, challenge)
        return self.send(encrypt(request, self.authority), kind=RENEWAL_REQ, **options)

    def enrolled(self, code):
        answer = self.enrol(code)
        equal(answer.status, "0", answer.text)
        self.certificate = answer.certificate
        return self


def refused(answer, failure, part):
    equal(answer.status, "2")
    equal(answer.failure, failure, answer.text)
    contains(answer.text, part)


def events(site):
    shown = cordon_json("audit", "show", site.data / "audit" / "log", "--last", 1_000_000)
    return [entry["leaf"]["event"] for entry in shown["entries"]]


def rows(site, query):
    with sqlite3.connect(site.data / "registry.sqlite") as database:
        return database.execute(query).fetchall()


def run(suite):
    public = free_port()
    site = Site(suite, settings=f'public = "127.0.0.1:{public}"\n').start()
    url = f"http://127.0.0.1:{public}/{PATH}"
    number = iter(range(1000))

    def invite(device, *options, whom="--device"):
        out = site.folder / f"code-{next(number)}"
        site.ask("registry", "invite", whom, device, *options, "--out", out)
        return out.read_text().strip()

    with suite.case("nothing speaks SCEP unless the configuration says so; the switch is an event"):
        equal(ask(url, "GetCACaps")[0], 404)
        site.stop()
        site.config.write_text(site.config.read_text() + '\n[enrolment]\nscep = "http"\n')
        site.start()
        site.stop()
        changes = [event["details"]["new"] for event in events(site) if event["resource"] == "settings/enrolment.scep"]
        equal(changes, ["http"])
        site.start()

    with suite.case("capabilities and certificates say what is spoken: AES and SHA-256, and an RSA key that is no authority's"):
        equal(ask(url, "GetCACaps")[1].split(), b"AES POSTPKIOperation Renewal SCEPStandard SHA-256 SHA-384 SHA-512".split())
        certificates = pkcs7.load_der_pkcs7_certificates(ask(url, "GetCACert")[1])
        equal(len(certificates), 5)
        mine = site.folder / "ra.pem"
        mine.write_bytes(Client(url, "x").authority.public_bytes(serialization.Encoding.PEM))
        shown = openssl("x509", "-in", mine, "-noout", "-text")
        for part in ("Digital Signature, Key Encipherment", "3072 bit", "CMC Registration Authority"):
            contains(shown, part)
        contains(openssl("verify", "-CAfile", site.root, "-untrusted", site.data / "pki/services-ca.pem", mine), "OK")
        contains((site.data / "keys/scep.key").read_text(), "ENCRYPTED")
        for operation in ("GetNextCACert", "", "PKIOperation"):
            equal(ask(url, operation)[0], 400)
        equal(ask(url, "GetCACert", b"0")[0], 400)
        equal(ask(f"http://127.0.0.1:{public}/cgi-bin/pkiclient.exe", "GetCACaps")[0], 200)

    with suite.case("micromdm's client, which signs with SHA-1 and encrypts with DES, is refused for that and reads why"):
        fingerprint = openssl("x509", "-in", mine, "-noout", "-fingerprint", "-sha256").strip().split("=")[1].replace(":", "").lower()
        code, own = invite("router-1"), site.folder / "micromdm"
        own.mkdir()
        shown = execute("scepclient", "-server-url", url, "-private-key", own / "client.key", "-certificate", own / "client.pem", "-cn", "router-1",
                        "-keySize", "2048", "-ca-fingerprint", fingerprint, "-challenge", code, code=1, timeout=60, cwd=own)
        contains(shown.stdout + shown.stderr, "badAlg")
        equal(rows(site, "SELECT count(*) FROM issued WHERE holder_id = 'router-1'"), [(0,)])

    with suite.case("the libraries of that client, told SHA-256 and AES, enrol a router and renew by what they got"):
        name, folder = "router-11", str(own)
        client = (ROOT / "target/peers/micromdm", url, folder, name, fingerprint)
        contains(execute(*client, "wrong", code=1, timeout=60).stderr, "refused")
        serials = []
        for challenge in ((invite(name),), ()):
            execute(*client, *challenge, timeout=60)
            contains(openssl("verify", "-CAfile", site.root, "-untrusted", site.data / "pki/devices-ca.pem", own / f"{name}.pem"), "OK")
            serials.append(openssl("x509", "-in", own / f"{name}.pem", "-noout", "-serial"))
        equal(len(set(serials)), 2)
        site.ask("pki", "revoke", "--serial", serials[1].strip().split("=")[1].lower(), "--reason", "superseded")
        contains(execute(*client, code=1, timeout=60).stderr, "refused")

    def strongswan(folder, name, *options, code=0):
        done = execute("pki", "--scep", "--url", url, "--dn", f"CN={name}", "--cacert-enc", mine, "--cacert-sig", mine,
                       "--cacert", site.root, "--cacert", site.data / "pki/services-ca.pem", "--cacert", site.data / "pki/devices-ca.pem",
                       "--outform", "pem", *options, code=code, timeout=60)
        if code == 0:
            (folder / f"{name}.pem").write_text(done.stdout[done.stdout.index("-----BEGIN"):])
        return done.stdout + done.stderr

    with suite.case("strongSwan's client enrols another, and renews by the certificate that it has"):
        folder = site.folder
        openssl("genrsa", "-traditional", "-out", folder / "old.key", "2048")
        openssl("genrsa", "-traditional", "-out", folder / "new.key", "3072")
        strongswan(folder, "router-2", "--in", folder / "old.key", "--password", invite("router-2"))
        shutil.move(folder / "router-2.pem", folder / "old.pem")
        contains(openssl("verify", "-CAfile", site.root, "-untrusted", site.data / "pki/devices-ca.pem", folder / "old.pem"), "OK")
        strongswan(folder, "router-2", "--in", folder / "new.key", "--cert", folder / "old.pem", "--key", folder / "old.key")
        equal(openssl("x509", "-in", folder / "router-2.pem", "-noout", "-pubkey"), openssl("pkey", "-in", folder / "new.key", "-pubout"))

    with suite.case("a camera enrols by its one-time code, a person by her invitation, and both renew"):
        site.ask("registry", "code", "--device", "camera-5", "--out", site.folder / "camera-5")
        settings = (site.folder / "camera-5/camera.toml").read_text()
        code_file = next(path for path in (site.folder / "camera-5").rglob("*code*") if path.is_file())
        camera = Client(url, "camera-5").enrolled(code_file.read_text().strip())
        contains(settings, "camera-5")
        equal(camera.renew().status, "0")
        person = {"uid": "officer-2", "name": "Test officer-2", "email": "officer-2@example.org", "organisation": "LEA-EU", "clearance": 2,
                  "roles": ["officer"], "units": ["traffic"]}
        (site.folder / "people.jsonl").write_text(json.dumps(person) + "\n")
        site.ask("directory", "import", site.folder / "people.jsonl")
        officer = Client(url, "officer-2").enrolled(invite("officer-2", "--renewals", "1", whom="--uid"))
        contains(officer.certificate.subject.rfc4514_string(), "Test officer-2")
        equal(officer.renew().status, "0")

    with suite.case("answers have the request's nonce, transaction and cipher; by GET as by POST; the same key gets the same certificate"):
        code = invite("router-3")
        client = Client(url, "router-3")
        seen = []
        for bits, by_get in ((128, False), (192, True), (256, False)):
            nonce = os.urandom(16)
            answer = client.enrol(code, bits=bits, by_get=by_get, nonce=nonce, transaction=f"T-{bits}")
            equal((answer.status, answer.recipient_nonce, answer.transaction, answer.bits), ("0", nonce, f"T-{bits}", bits))
            seen.append(answer.certificate.serial_number)
        equal(len(set(seen)), 1)
        equal(rows(site, "SELECT count(*) FROM issued WHERE holder_id = 'router-3'"), [(1,)])

    with suite.case("a wrong, used or expired code, and a key of others or a weak one: each its own refusal, and nothing is issued"):
        before = rows(site, "SELECT count(*) FROM issued")
        refused(Client(url, "router-3").enrol(code), "badRequest", "used for another key")
        refused(Client(url, "router-9").enrol(code), "badMessageCheck", "unknown device or person")
        refused(Client(url, "router-3").enrol("wrong"), "badMessageCheck", "unknown device or person")
        fresh = invite("router-4")
        reusing = Client(url, "router-4")
        reusing.key, reusing.certificate = client.key, client.certificate
        refused(reusing.enrol(fresh), "badRequest", "has a certificate already")
        refused(Client(url, "router-4").enrol(None), "badRequest", "challenge password")
        for key in (new_key(1024), rsa.generate_private_key(3, 2048)):
            weak = Client(url, "router-4")
            weak.key, weak.certificate = key, self_signed(key)
            status, body = ask(url, "PKIOperation", message(encrypt(csr(key, "router-4", fresh), weak.authority), key, weak.certificate))
            refused(Answer(body, key), "badAlg", "RSA key of 2048")
        elliptic = ec.generate_private_key(ec.SECP256R1())
        one = Client(url, "router-4")
        one.key, one.certificate = elliptic, self_signed(elliptic)
        refused(one.enrol(fresh), "badAlg", "RSA key of 2048")
        roca = (ROOT / "crates/pki/tests/data/roca-2048.csr").read_bytes()
        refused(Client(url, "router-4").enrol(fresh, roca), *UNREADABLE)
        own = Client(url, "router-4")
        changed = bytearray(csr(own.key, "router-4", fresh))
        changed[-1] ^= 1
        refused(own.enrol(fresh, bytes(changed)), "badMessageCheck", "prove")
        equal(rows(site, "SELECT count(*) FROM issued"), before)
        equal(own.enrol(fresh).status, "0")

    with suite.case("messages that are signed or encrypted otherwise than is spoken here are refused"):
        code, one = invite("router-5"), Client(url, "router-5")
        request = csr(one.key, one.name, code)
        good = encrypt(request, one.authority)
        stranger = self_signed(new_key(3072), "SCEP registration authority")
        for answer, failure, part in (
            (one.send(good, digest=SHA1), "badAlg", "SHA-256"),
            (one.send(good, signed=b"another"), "badMessageCheck", "another content"),
            (one.send(good, signature=bytes(256)), "badMessageCheck", "does not hold"),
            (one.send(good, kind="20"), "badRequest", "PKCSReq or RenewalReq"),
            (one.send(good, kind="22"), "badRequest", "PKCSReq or RenewalReq"),
            (one.send(encrypt(request, one.authority, cipher=DES3)), "badAlg", "AES"),
            (one.send(encrypt(request, one.authority, key_algorithm=OAEP)), "badAlg", "AES"),
            (one.send(encrypt(request, stranger)), "badMessageCheck", "GetCACert"),
        ):
            refused(answer, failure, part)
        nonce = message(good, one.key, one.certificate, nonce=b"1")
        for body in (b"", b"0", b"\x30\x80", good, nonce, message(good, one.key, one.certificate, kind=None),
                     message(good, one.key, one.certificate, transaction="x" * 129), message(good, one.key, one.certificate) + b"0"):
            equal(ask(url, "PKIOperation", body)[0], 400, body[:20])
        equal(ask(url, "PKIOperation", bytes(24 * 1024 + 1))[0], 413)

    with suite.case("nobody learns from an answer whether what somebody else has encrypted can be read, and few may try"):
        victim = Client(url, "router-5")
        theirs = csr(victim.key, victim.name, code)
        captured = encrypt(theirs, victim.authority)
        thief = camera
        answers = [
            thief.send(captured, key=thief.key, certificate=self_signed(thief.key)), thief.send(captured, kind=RENEWAL_REQ),
            thief.send(encrypt(csr(victim.key, "camera-5"), thief.authority)[:-1] + b"\0", kind=RENEWAL_REQ),
            thief.send(envelope(os.urandom(384), bytes(16), bytes(64), thief.authority, CIPHERS[32])),
            thief.send(envelope(bytes(384), bytes(16), bytes(64), thief.authority, CIPHERS[16])),
            thief.send(encrypt(bytes(16), thief.authority)), thief.send(encrypt(bytes(15) + b"\x11", thief.authority, padded=False)),
        ]
        for answer in answers:
            refused(answer, *UNREADABLE)
        equal(len({answer.text for answer in answers}), 1)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            texts = list(pool.map(lambda _: thief.send(captured, certificate=self_signed(thief.key)).text, range(24)))
        assert any("too many messages" in text for text in texts)
        refused(victim.enrol(code), "badRequest", "too many messages")
        site.stop()
        site.start()
        equal(victim.enrol(code).status, "0")

    with suite.case("renewals take a good certificate of ours, in its own name, and no challenge password"):
        client = Client(url, "router-6").enrolled(invite("router-6"))
        refused(client.renew(name="router-3"), *UNREADABLE)
        refused(client.renew(challenge="any"), *UNREADABLE)
        equal(client.renew(client.key, challenge="of before").status, "0")
        refused(Client(url, "router-6").renew(), "badCertId", "")
        second = new_key()
        renewed = client.renew(second)
        equal(renewed.status, "0")
        equal(client.renew(second).certificate, renewed.certificate)
        site.ask("registry", "suspend", "--device", "router-6")
        refused(client.renew(), "badRequest", "suspended")
        site.ask("registry", "resume", "--device", "router-6")
        site.ask("pki", "revoke", "--device", "router-6", "--reason", "key-compromise")
        refused(client.renew(), "badCertId", "revoked")

    with suite.case("a renewal that is kept on its way, or sent again, ends nothing that its sender has got since"):
        client = Client(url, "router-10").enrolled(invite("router-10"))
        kept = message(encrypt(csr(new_key(), client.name), client.authority), client.key, client.certificate, kind=RENEWAL_REQ)
        later = new_key()
        renewed = client.renew(later).certificate
        numbers = {Answer(ask(url, "PKIOperation", kept)[1], client.key).certificate.serial_number for _ in range(3)}
        equal(len(numbers), 1)
        again = client.renew(later).certificate
        equal(again, renewed, "the certificate of the same key")
        client.key, client.certificate = later, renewed
        equal(client.renew().status, "0")
        equal(rows(site, "SELECT count(*) FROM issued WHERE holder_id = 'router-10' AND superseded_at IS NULL"), [(3,)])
        refused(Answer(ask(url, "PKIOperation", kept)[1], new_key()), "badRequest", "superseded")

    with suite.case("where approvals are required, a router enrols by an approved invitation"):
        staff = enrol(site, ("clerk", "officer", 1), ("registrar-1", "registrar", 4))
        ordered = invite("router-8")
        site.stop()
        site.config.write_text(site.config.read_text() + '\n[registration]\napprovals = "required"\n')
        site.start()

        def give(*command, by):
            proof = ("--as", staff[by].p12, "--as-password-file", staff[by].p12.with_name(f"{by}.p12.password"))
            return json.loads(cordon("registry", "request", *command, *site.arguments(), *proof, "--json", "--log", "off").stdout)

        asked = give("new", "invite", "--device", "router-7", "--reason", "new router", "--submit", by="clerk")
        approved = give("approve", asked["id"], "--seen", asked["version"], by="registrar-1")
        out = site.folder / "approved.code"
        give("carry-out", asked["id"], "--seen", approved["version"], "--out", out, by="clerk")
        Client(url, "router-7").enrolled(out.read_text().strip())
        refused(Client(url, "router-8").enrol(ordered), "badRequest", "nobody approved")

    with suite.case("the log has every act and every refusal by its code; it explains every certificate, but for those that were ordered"):
        site.stop()
        site.verify_audit()
        of_scep = [event for event in events(site) if event.get("details", {}).get("protocol") == "scep"]
        ways = {(event["action"], event["outcome"], event["details"].get("origin")) for event in of_scep}
        for way in (("certificate.issue", "ok", "invitation"), ("certificate.issue", "ok", "renewal"), ("certificate.issue", "ok", "enrolment"),
                    ("enrolment.enrol", "deny", None), ("enrolment.renew", "deny", None)):
            assert way in ways, (way, ways)
        codes = {event["details"].get("code") for event in of_scep if event["outcome"] == "deny"}
        for code in ("code-used", "wrong-code", "unauthorised", "scep-no-challenge", "scep-signer-key", "key-in-use"):
            assert code in codes, (code, codes)
        audit = cordon("pki", "audit", *site.arguments(), "--json", "--log", "off", code=None)
        gaps = [gap["what"] for gap in json.loads(audit.stdout)["report"]["gaps"]]
        equal([gap for gap in gaps if "without a request" not in gap], [])
