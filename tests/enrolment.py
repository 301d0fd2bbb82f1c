"""A person enrols and renews over EST with curl and OpenSSL, by an order and by an approved request."""

import base64
import json

from tests.harness import Site, contains, cordon, equal, run as execute
from tests.requests import enrol, make_csr, openssl

EST = "/.well-known/est"


class Client:
    def __init__(self, site):
        self.site, self.folder = site, site.folder

    def curl(self, path, *options):
        """Status and body of an answer of the enrolment listener."""
        body = self.folder / "answer"
        url = f"https://localhost:{self.site.enrolment}{EST}/{path}"
        command = ["curl", "--silent", "--cacert", self.site.root, "--output", body, "--write-out", "%{http_code}", *options, url]
        status = int(execute(*command).stdout)
        return status, body.read_bytes()

    def post(self, path, csr, *options):
        text = self.folder / "request.b64"
        openssl("req", "-in", csr, "-outform", "DER", "-out", self.folder / "request.der")
        openssl("base64", "-in", self.folder / "request.der", "-out", text)
        return self.curl(path, "--header", "Content-Type: application/pkcs10", "--data-binary", f"@{text}", *options)

    def enrol(self, uid, code, csr, path="simpleenroll"):
        return self.post(path, csr, "--user", f"{uid}:{code}")

    def certificate(self, answer, name):
        """The certificate of an answer, as a PEM file."""
        status, body = answer
        equal(status, 200, body.decode(errors="replace"))
        der, out = self.folder / "answer.p7", self.folder / f"{name}.pem"
        der.write_bytes(base64.b64decode(body))
        openssl("pkcs7", "-inform", "DER", "-in", der, "-print_certs", "-out", out)
        return out

    def invite(self, uid, *options):
        out = self.folder / f"code-{len(list(self.folder.glob('code-*')))}"
        answer = self.site.ask("registry", "invite", "--uid", uid, *options, "--out", out)
        assert "code" not in answer, answer
        equal(out.stat().st_mode & 0o777, 0o600, "mode of the code's file")
        return out.read_text().strip()


def refused(answer, status, part):
    equal(answer[0], status, answer[1].decode(errors="replace"))
    contains(answer[1].decode(), part)


def run(suite):
    site = Site(suite).start()
    people = site.people()
    staff = enrol(site, ("registrar-1", "registrar", 4), ("clerk", "officer", 4))
    client = Client(site)
    root_and_users = ("-CAfile", site.root, "-untrusted", site.data / "pki/users-ca.pem")

    with suite.case("curl and OpenSSL enrol a person: names, level and unit are the invitation's, the key is the person's"):
        code = client.invite("officer-2", "--unit", "traffic", "--renewals", "1")
        csr = make_csr(site.folder, "mine", "/CN=The Chief/UID=chief-1/OU=homicide")
        mine = client.certificate(client.enrol("officer-2", code, csr), "mine")
        subject = openssl("x509", "-in", mine, "-noout", "-subject", "-nameopt", "RFC2253")
        for part in ("UID=officer-2", "OU=traffic", "CN=Test officer-2"):
            contains(subject, part)
        assert "chief" not in subject.lower() and "homicide" not in subject, subject
        contains(openssl("verify", *root_and_users, mine), "OK")
        key = site.folder / "mine.key"
        equal(openssl("x509", "-in", mine, "-noout", "-pubkey"), openssl("pkey", "-in", key, "-pubout"))
        again = client.certificate(client.enrol("officer-2", code, csr), "again")
        equal(again.read_text(), mine.read_text(), "the certificate after a lost answer")

    with suite.case("a code that was used, a wrong one, weak, foreign and unproven keys are refused"):
        other = make_csr(site.folder, "other", "/CN=x")
        refused(client.enrol("officer-2", code, other), 401, "was used for another key")
        fresh = client.invite("reviewer-3")
        refused(client.enrol("reviewer-3", fresh, csr), 400, "has a certificate already")
        refused(client.enrol("reviewer-3", "guess", other), 401, "unknown device or person")
        refused(client.enrol("officer-2", fresh, other), 401, "unknown device or person")
        weak = make_csr(site.folder, "weak", "/CN=x", "-newkey", "rsa:1024")
        refused(client.enrol("reviewer-3", fresh, weak), 400, "unusable key")
        refused(client.enrol("reviewer-3", fresh, other, "serverkeygen"), 400, "made by its owner")
        site.ask("directory", "disable", "--uid", "reviewer-3")
        refused(client.enrol("reviewer-3", fresh, other), 403, "is disabled")
        site.ask("directory", "enable", "--uid", "reviewer-3")
        client.certificate(client.enrol("reviewer-3", fresh, other), "reviewer")

    with suite.case("a file that cannot be written voids no code, and names that exist answer as others do"):
        kept = client.invite("clerk")
        (site.folder / "dangling").symlink_to("/nonexistent/x")
        for out in ("/nonexistent/x", site.folder / "dangling"):
            cordon("registry", "invite", "--uid", "clerk", "--out", out, *site.arguments(), "--log", "off", code=1)
        answers = [[client.enrol(name, "guess", other) for _ in range(12)] for name in ("clerk", "nobody")]
        equal(answers[0], answers[1], "answers to wrong codes")
        equal([status for status, _ in answers[0]][9:], [401, 429, 429])
        client.certificate(client.enrol("clerk", kept, make_csr(site.folder, "second", "/CN=x")), "second")

    with suite.case("the certificate renews itself as often as was agreed to, and no password does"):
        login = ("--cert", mine, "--key", key)
        renewed = client.certificate(client.post("simplereenroll", make_csr(site.folder, "next", "/CN=x"), *login), "next")
        contains(openssl("x509", "-in", renewed, "-noout", "-subject", "-nameopt", "RFC2253"), "UID=officer-2")
        login = ("--cert", renewed, "--key", site.folder / "next.key")
        third = make_csr(site.folder, "third", "/CN=x")
        refused(client.post("simplereenroll", third, *login), 403, "renewals were approved")
        refused(client.post("simplereenroll", third), 403, "TLS handshake")
        person = people["reviewer-3"]
        ordered = ("--cert", person.cert, "--key", person.key)
        refused(client.post("simplereenroll", third, *ordered), 403, "did not come by an invitation")

    with suite.case("csrattrs is read by OpenSSL; a key is made here for a tunnel device, and fits its certificate"):
        status, body = client.curl("csrattrs")
        equal(status, 200)
        (site.folder / "attributes.der").write_bytes(base64.b64decode(body))
        contains(openssl("asn1parse", "-inform", "DER", "-in", site.folder / "attributes.der"), "prime256v1")
        out = site.folder / "phone.code"
        site.ask("registry", "invite", "--device", "phone-1", "--out", out)
        status, body = client.enrol("phone-1", out.read_text().strip(), third, "serverkeygen")
        equal(status, 200, body.decode())
        parts = [part.split("\r\n\r\n", 1)[1] for part in body.decode().split("--cordon-part")[1:3]]
        for name, part in zip(("phone.p8", "phone.p7"), parts):
            (site.folder / name).write_bytes(base64.b64decode(part))
        made = openssl("pkey", "-inform", "DER", "-in", site.folder / "phone.p8", "-pubout")
        openssl("pkcs7", "-inform", "DER", "-in", site.folder / "phone.p7", "-print_certs", "-out", site.folder / "phone.pem")
        equal(openssl("x509", "-in", site.folder / "phone.pem", "-noout", "-pubkey"), made)
        assert "Non Repudiation" not in openssl("x509", "-in", site.folder / "phone.pem", "-noout", "-text")

    with suite.case("where approvals are required an approved request gives the code, and the log explains the certificate"):
        site.stop()
        site.config.write_text(site.config.read_text() + '\n[registration]\napprovals = "required"\n')
        site.start()
        direct = ("registry", "invite", "--uid", "auditor-1", "--out", site.folder / "no", *site.arguments())
        contains(cordon(*direct, "--log", "off", code=1).stderr, "request new invite")

        def give(*command, by, code=0):
            proof = ("--as", staff[by].p12, "--as-password-file", staff[by].p12.with_name(f"{by}.p12.password"))
            return cordon("registry", "request", *command, *site.arguments(), *proof, "--json", "--log", "off", code=code)

        new = ("new", "invite", "--uid", "auditor-1", "--unit", "traffic", "--reason", "new auditor", "--submit")
        asked = json.loads(give(*new, by="clerk").stdout)
        approved = json.loads(give("approve", asked["id"], "--seen", asked["version"], by="registrar-1").stdout)
        equal(approved["state"], "approved")
        seen = ("carry-out", asked["id"], "--seen", approved["version"])
        contains(give(*seen, by="clerk", code=2).stderr, "--out")
        give(*seen, "--out", "/nonexistent/x", by="clerk", code=1)
        out = site.folder / "approved.code"
        done = json.loads(give(*seen, "--out", out, by="clerk").stdout)
        equal((done["state"], "code" in done), ("issued", False))
        approved_key = make_csr(site.folder, "auditor", "/CN=x")
        client.certificate(client.enrol("auditor-1", out.read_text().strip(), approved_key), "auditor")
        report = json.loads(cordon("pki", "audit", "--data", site.data, "--json", "--log", "off", code=1).stdout)["report"]
        equal(report["certificates"]["invitation"], 7)
        gaps = [gap["what"] for gap in report["gaps"]]
        assert all("without a request" in what for what in gaps), gaps
        assert not any("auditor-1: " in what and "invitation" in what for what in gaps), gaps
        # Four codes and a renewal by order, and the staff's two.
        equal(sum("gave an invitation" in what for what in gaps), 7)
    site.verify_audit()
