"""Three people by command line: a request goes back, is corrected, approved twice and becomes a certificate."""

import base64
import contextlib
import json
import secrets
import sqlite3
import subprocess

from tests.harness import Person, Site, contains, cordon, cordon_json, equal, run as execute

REQUEST = ("registry", "request")
STAFF = [
    ("clerk", "officer", 4), ("registrar-1", "registrar", 4), ("registrar-2", "registrar", 4),
    ("keeper-1", "administrator", 4), ("keeper-2", "administrator", 4),
]


def openssl(*arguments, code=0):
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True)
    equal(done.returncode, code, f"openssl {arguments[0]}: {done.stderr}")
    return done.stdout


def make_csr(folder, name, subject, *options):
    key, csr = folder / f"{name}.key", folder / f"{name}.csr"
    kind = options or ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
    openssl("req", "-new", *kind, "-nodes", "-keyout", key, "-subj", subject, "-out", csr)
    return csr


def run(suite):
    site = Site(suite).start()
    site.people()
    people = enrol(site, *STAFF)
    officer = {
        "uid": "officer-9", "name": "Ninth Officer", "email": "officer-9@example.org", "organisation": "LEA-EU",
        "clearance": 3, "roles": ["officer"], "units": ["traffic"],
    }
    (site.folder / "officer-9.jsonl").write_text(json.dumps(officer) + "\n")
    site.ask("directory", "import", site.folder / "officer-9.jsonl")
    site.stop()
    site.config.write_text(site.config.read_text() + '\n[registration]\napprovals = "required"\n')
    site.start()

    def give(*command, by, code=0):
        person = people[by]
        proof = ("--as", person.p12, "--as-password-file", person.p12.with_name(f"{person.p12.name}.password"))
        return cordon(*REQUEST, *command, *site.arguments(), *proof, "--json", "--log", "off", code=code)

    def done(*command, by):
        return json.loads(give(*command, by=by).stdout)

    def waiting():
        return [request["id"] for request in site.ask(*REQUEST, "list")["requests"]]

    with suite.case("where approvals are required no direct order is carried out, and the answer says what to do"):
        for order in (
            ("pki", "issue-user", "--uid", "officer-9", "--out", site.folder / "no.p12"),
            ("pki", "revoke", "--uid", "officer-2", "--reason", "key-compromise"),
            ("registry", "suspend", "--uid", "officer-2"),
            ("vpn", "gateway-certificate", "--name", "vpn.example.org", "--out", site.folder / "no"),
        ):
            refused = cordon(*order, *site.arguments(), "--log", "off", code=1).stderr
            contains(refused, "without approvals")
            contains(refused, "on request yet" if order[0] == "vpn" else "cordon registry request new")
        raised = site.folder / "raised.jsonl"
        raised.write_text(json.dumps({**officer, "clearance": 4}) + "\n")
        refused = cordon("directory", "import", raised, *site.arguments(), "--log", "off", code=1).stderr
        contains(refused, "on an approved request only")

    csr = make_csr(site.folder, "officer-9", "/CN=anything")
    with suite.case("a request is nobody's without a certificate, and weak keys and false proofs are refused"):
        new = ("new", "issue", "--uid", "officer-9", "--csr", csr, "--reason", "new officer")
        refused = cordon(*REQUEST, *new, *site.arguments(), "--log", "off", code=1).stderr
        contains(refused, "needs a certificate")
        weak = make_csr(site.folder, "weak", "/CN=x", "-newkey", "rsa:1024")
        contains(give(*new[:5], weak, *new[6:], by="clerk", code=1).stderr, "refused (key-size)")
        forged = site.folder / "forged.csr"
        openssl("req", "-in", csr, "-outform", "DER", "-out", forged)
        content = bytearray(forged.read_bytes())
        content[-1] ^= 1
        forged.write_bytes(content)
        contains(give(*new[:5], forged, *new[6:], by="clerk", code=1).stderr, "csr-refused")

    with suite.case("asked, returned, corrected, approved by two, carried out: the owner's key has a certificate"):
        asked = done(*new, "--submit", by="clerk")
        ident, seen = asked["id"], asked["version"]
        equal((asked["state"], asked["approvals_needed"]), ("submitted", 2))
        contains(give("approve", ident, "--seen", seen, by="clerk", code=1).stderr, "role-missing")
        back = done("return", ident, "--seen", seen, "--reason", "which unit?", by="registrar-1")
        equal(back["state"], "returned")
        late = give("refuse", ident, "--seen", seen, "--reason", "no", by="registrar-2", code=1).stderr
        contains(json.loads(late)["error"], 'registrar-1 made the step "return"')
        fixed = ("issue", "--uid", "officer-9", "--csr", csr, "--reason", "new officer, unit traffic")
        edited = done("edit", ident, "--seen", back["version"], *fixed, by="clerk")
        again = done("submit", ident, "--seen", edited["version"], by="clerk")
        one = done("approve", ident, "--seen", again["version"], by="registrar-1")
        equal(one["state"], "submitted")
        contains(give("carry-out", ident, "--seen", one["version"], by="clerk", code=1).stderr, "wrong-state")
        both = done("approve", ident, "--seen", one["version"], by="registrar-2")
        equal(both["state"], "approved")
        out = site.folder / "officer-9.pem"
        issued = done("carry-out", ident, "--seen", both["version"], "--out", out, by="clerk")
        equal(issued["state"], "issued")
        key = openssl("pkey", "-in", site.folder / "officer-9.key", "-pubout")
        equal(openssl("x509", "-in", out, "-noout", "-pubkey"), key)
        contains(openssl("x509", "-in", out, "-noout", "-subject"), "officer-9")
        equal(waiting(), [])

    with suite.case("what was signed is checked by OpenSSL and by `verify`, and a changed word is found"):
        folder = site.folder / "export"
        cordon(*REQUEST, "export", ident, "--out", folder, *site.arguments(), "--log", "off")
        root = site.data / "pki" / "root.pem"
        for stem in ("1-registrar-1", "2-registrar-2"):
            public = folder / f"{stem}.pub"
            public.write_text(openssl("x509", "-in", folder / f"{stem}.pem", "-noout", "-pubkey"))
            check = ("dgst", "-sha256", "-verify", public, "-signature", folder / f"{stem}.sig")
            contains(openssl(*check, folder / "statement.json"), "Verified OK")
            openssl("verify", "-CAfile", root, "-untrusted", folder / "authorities.pem", folder / f"{stem}.pem")
        checked = cordon_json(*REQUEST, "verify", folder, "--root", root)
        equal(checked["approvers"], ["registrar-1", "registrar-2"])
        content = (folder / "request.json").read_text()
        (folder / "request.json").write_text(content.replace("unit traffic", "unit narcotics"))
        contains(cordon(*REQUEST, "verify", folder, "--root", root, code=1).stderr, "statement.json")
        stripped = json.loads(content)
        stripped["state"]["approvals"] = []
        (folder / "request.json").write_text(json.dumps(stripped))
        contains(cordon(*REQUEST, "verify", folder, "--root", root, code=1).stderr, "nobody has signed it")

    with suite.case("an emergency is carried out after one approval, and waits for the second"):
        serial = issued["serial"]
        new = ("new", "revoke", "--serial", serial, "--cause", "key-compromise", "--emergency", "--reason", "card stolen")
        asked = done(*new, "--submit", by="clerk")
        one = done("approve", asked["id"], "--seen", asked["version"], by="registrar-1")
        revoked = done("carry-out", asked["id"], "--seen", one["version"], by="clerk")
        equal(revoked["state"], "issued")
        certificates = cordon_json("pki", "list", *site.arguments())["certificates"]
        (found,) = [record for record in certificates if record["serial"] == serial]
        equal(found["revoked"]["reason"], "key-compromise")
        equal(waiting(), [asked["id"]])
        done("approve", asked["id"], "--seen", revoked["version"], by="registrar-2")
        equal(waiting(), [])

    with suite.case("rights of a person change on request, with old and new values in the log"):
        new = ("new", "person", "--uid", "officer-9", "--clearance", "2", "--reason", "moved", "--submit")
        asked = done(*new, by="clerk")
        one = done("approve", asked["id"], "--seen", asked["version"], by="keeper-1")
        two = done("approve", asked["id"], "--seen", one["version"], by="keeper-2")
        done("carry-out", asked["id"], "--seen", two["version"], by="clerk")
        everybody = cordon_json("directory", "list", *site.arguments())["people"]
        (found,) = [person for person in everybody if person["uid"] == "officer-9"]
        equal((found["clearance"], found["roles"]), (2, ["officer"]))

    with suite.case("no level makes a certificate of an approver, or of who becomes one, cheaper than two approvals"):
        low = make_csr(site.folder, "low", "/CN=anything")

        def one_approval(*new):
            asked = done("new", *new, "--reason", "helpdesk", "--submit", by="clerk")
            shown = cordon(*REQUEST, "show", asked["id"], *site.arguments(), "--log", "off").stdout
            contains(shown, "2 needed")
            approver = "keeper-1" if new[0] == "person" else "registrar-1"
            one = done("approve", asked["id"], "--seen", asked["version"], by=approver)
            equal(one["state"], "submitted")
            out = () if new[0] == "person" else ("--out", site.folder / "never")
            refused = give("carry-out", asked["id"], "--seen", one["version"], *out, by="clerk", code=1).stderr
            contains(refused, "wrong-state")

        for uid in ("keeper-2", "registrar-2"):
            one_approval("issue", "--uid", uid, "--csr", low, "--clearance", 0)
            one_approval("invite", "--uid", uid, "--clearance", 0)
        one_approval("person", "--uid", "officer-9", "--clearance", 0, "--role", "officer", "--role", "registrar")
        # What was signed for an officer is not carried out for whom the officer is by then.
        asked = done("new", "invite", "--uid", "officer-9", "--reason", "helpdesk", "--submit", by="clerk")
        one = done("approve", asked["id"], "--seen", asked["version"], by="registrar-1")
        equal(one["state"], "approved")
        moved = done("new", "person", "--uid", "officer-9", "--role", "auditor", "--reason", "moved", "--submit", by="clerk")
        moved = done("approve", moved["id"], "--seen", moved["version"], by="keeper-1")
        done("carry-out", moved["id"], "--seen", moved["version"], by="clerk")
        never = ("--out", site.folder / "never")
        contains(give("carry-out", asked["id"], "--seen", one["version"], *never, by="clerk", code=1).stderr, "other-rights")
    with suite.case("what was approved for one name is not made for another that an import brings meanwhile"):
        asked = done("new", "issue", "--uid", "officer-9", "--csr", low, "--clearance", 0, "--reason", "login", "--submit", by="clerk")
        one = done("approve", asked["id"], "--seen", asked["version"], by="registrar-1")
        equal(one["state"], "approved")
        renamed = {**officer, "name": "The Chief", "email": "chief@example.org", "clearance": 2, "roles": ["auditor"]}
        (site.folder / "renamed.jsonl").write_text(json.dumps(renamed) + "\n")
        site.ask("directory", "import", site.folder / "renamed.jsonl")
        contains(give("carry-out", asked["id"], "--seen", one["version"], *never, by="clerk", code=1).stderr, "other-names")
        renamed.update(name=officer["name"], email=officer["email"])
        (site.folder / "renamed.jsonl").write_text(json.dumps(renamed) + "\n")
        site.ask("directory", "import", site.folder / "renamed.jsonl")
        shown = cordon(*REQUEST, "show", asked["id"], *site.arguments(), "--log", "off").stdout
        contains(shown, "CN=Ninth Officer")
    site.verify_audit()
    completeness(suite, site, certificate=out)


def completeness(suite, site, certificate):
    """What the log alone shows, and what a certificate from beside it or a cut book does."""

    def audit(*source, code=1):
        done = cordon("pki", "audit", *source, "--json", "--log", "off", code=code)
        return json.loads(done.stdout)["report"]

    in_site = ("--data", site.data)
    with suite.case("the log alone explains every certificate but those of direct orders and invitations, which it names"):
        report = audit(*in_site)
        equal((report["certificates"]["request"], report["approvals"]), (1, 14))
        equal(report["acts"], {"change-person": 2, "issue": 1, "revoke": 1})
        direct = report["certificates"]["order"] + report["certificates"]["invitation"]
        equal(len(report["gaps"]), direct, f"gaps {report['gaps']}")
        assert all("without a request" in gap["what"] for gap in report["gaps"]), report["gaps"]
        contains(cordon("pki", "audit", *in_site, "--log", "off", code=1).stderr, "do not fit the rules")
    with suite.case("a certificate that an authority's key made elsewhere, or that the book lost, is found"):
        site.stop()
        pki, folder = site.data / "pki", site.folder
        secret = f"file:{site.data / 'passphrase'}"
        csr = make_csr(folder, "ghost", "/CN=Ghost Officer/UID=ghost-1")
        ghost = folder / "ghost.pem"
        ca = ("-CA", pki / "users-ca.pem", "-CAkey", pki / "users-ca.key", "-passin", secret, "-CAcreateserial")
        openssl("x509", "-req", "-in", csr, *ca, "-CAserial", folder / "serial", "-days", "30", "-out", ghost)
        authorities = folder / "authorities.pem"
        authorities.write_text("".join((pki / f"{kind}-ca.pem").read_text() for kind in ("users", "devices", "services")))
        outside = ("--audit-log", site.data / "audit/log", "--key", site.data / "audit/log.vkey")
        outside += ("--root", pki / "root.pem", "--authorities", authorities)
        known = audit(*outside, "--certificates", certificate)
        seen = audit(*outside, "--certificates", ghost)
        (found,) = [gap["what"] for gap in seen["gaps"] if gap not in known["gaps"]]
        contains(found, "in no event of the log")
        with contextlib.closing(sqlite3.connect(site.data / "registry.sqlite")) as book:
            book.execute("DELETE FROM revoked WHERE serial IN (SELECT serial FROM issued WHERE uid = 'officer-9')")
            book.execute("DELETE FROM issued WHERE uid = 'officer-9'")
            book.commit()
        lost = [gap["what"] for gap in audit(*in_site)["gaps"] if "without a request" not in gap["what"]]
        (rows,) = [what for what in lost if "rows of the registry's book" in what]
        contains(rows, "somebody else changed some")
        lost.remove(rows)
        equal(["was revoked" in what for what in sorted(lost)], [False, True], f"gaps {lost}")
        assert all("not in the registry's book" in what for what in lost), lost
        refused = cordon("up", *site.arguments(), "--log", "off", code=1).stderr
        contains(refused, "was changed by something else than this program")


def enrol(site, *staff):
    """People with certificates for keys of their own, each with user id, role and clearance, while orders are enough."""
    people = {}
    runs = site.process is not None and site.process.running()
    if not runs:
        site.start()
    for uid, role, clearance in staff:
        person = {
            "uid": uid, "name": f"Example {uid}", "email": f"{uid}@example.org", "organisation": "LEA-EU",
            "clearance": clearance, "roles": [role], "units": ["traffic"],
        }
        file = site.folder / f"{uid}.jsonl"
        file.write_text(json.dumps(person) + "\n")
        site.ask("directory", "import", file)
        people[uid] = own_key(site, uid, role)
    if not runs:
        site.stop()
    return people


def own_key(site, uid, role):
    """Has a key certified over EST that the person made."""
    folder, profile = site.folder, "administrator" if role == "administrator" else "user"
    code, made, p12 = folder / f"{uid}.code", folder / f"{uid}.made.key", folder / f"{uid}.p12"
    site.ask("registry", "invite", "--uid", uid, "--profile", profile, "--out", code)
    csr, body, pem = folder / f"{uid}.made.b64", folder / f"{uid}.made.p7", folder / f"{uid}.made.pem"
    openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", made, "-subj", "/CN=x",
            "-outform", "DER", "-out", folder / "made.der")
    openssl("base64", "-in", folder / "made.der", "-out", csr)
    url = f"https://localhost:{site.enrolment}/.well-known/est/simpleenroll"
    answer = execute("curl", "-s", "-S", "--fail-with-body", "--cacert", site.root, "--user", f"{uid}:{code.read_text().strip()}", "--header",
                     "Content-Type: application/pkcs10", "--data-binary", f"@{csr}", url)
    body.write_bytes(base64.b64decode(answer.stdout))
    openssl("pkcs7", "-inform", "DER", "-in", body, "-print_certs", "-out", pem)
    password = p12.with_name(f"{p12.name}.password")
    password.write_text(f"{secrets.token_hex(16)}\n")
    password.chmod(0o600)
    openssl("pkcs12", "-export", "-inkey", made, "-in", pem, "-certfile", site.data / "pki" / "users-ca.pem", "-out", p12,
            "-passout", f"file:{password}")
    p12.chmod(0o600)
    return Person(site, p12, password, folder)
