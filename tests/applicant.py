"""A person who has only a password asks for a certificate in Chromium: it comes back, is corrected, approved, made, and opens the portal."""

import json
import re
import urllib.parse

from playwright.sync_api import sync_playwright

from tests.harness import Site, contains, cordon, equal, run as command
from tests.portal import Portal, launch, log_in, visit
from tests.request_pages import SCREENSHOTS, Forms, accessible, press, signature, tab_to, type_into
from tests.requests import enrol, make_csr, openssl

STAFF = [
    ("registrar-1", "registrar", 4), ("registrar-2", "registrar", 4), ("registrar-3", "registrar", 4),
    ("keeper-1", "administrator", 4),
]


def newcomer(site, uid, clearance, roles=("officer",)):
    """Somebody in the directory with a password and nothing else."""
    person = {
        "uid": uid, "name": f"Example {uid}", "email": f"{uid}@example.org", "organisation": "LEA-EU",
        "clearance": clearance, "roles": list(roles), "units": ["traffic"],
    }
    file = site.folder / f"{uid}.jsonl"
    file.write_text(json.dumps(person) + "\n")
    site.ask("directory", "import", file)
    password = f"correct horse battery {uid[-1]}"
    cordon("directory", "password", "--uid", uid, *site.arguments(), "--log", "off", input=f"{password}\n")
    return password


def tag(page):
    return page.locator("h1 .tag").first.inner_text()


def fields(page):
    """What a form of the page is sent with, by a program in the place of the browser."""
    token = re.search(r'name="token" value="([0-9a-f]+)"', page.content()).group(1)

    def post(path, **sent):
        answer = page.request.post(path, form={"token": token, **sent}, max_redirects=0)
        return answer.status, answer.text()

    return post


def run(suite):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    site = Site(suite).start()
    people = enrol(site, *STAFF)
    passwords = {uid: newcomer(site, uid, clearance) for uid, clearance in (("officer-9", 3), ("officer-8", 1))}
    site.stop()
    site.config.write_text(site.config.read_text() + '\n[registration]\napprovals = "required"\n')
    site.start()
    forms = {uid: Forms(people[uid]) for uid in ("registrar-1", "registrar-2", "registrar-3")}

    def send_by(uid, path, **sent):
        answer = forms[uid].post(path, **sent)
        equal(answer.status, 303, answer.text[:3000])

    def approve(uid, path, seen):
        statement = people[uid].request("GET", f"{path}/statement?seen={seen}").body
        send_by(uid, f"{path}/approvals", seen=seen, signature=signature(site, people[uid], statement))

    with sync_playwright() as playwright:
        browser = launch(playwright)
        portal = Portal(site, browser)
        page = portal.context(accept_downloads=True).new_page()
        other = portal.context().new_page()
        csr = make_csr(site.folder, "officer-9", "/CN=officer-9")
        with suite.case("with a password only, somebody asks for a certificate, by keyboard"):
            log_in(page, site, "officer-9", passwords["officer-9"])
            press(page, "My certificates")
            contains(page.locator("main").inner_text(), "You have none yet")
            accessible(page)
            press(page, "Ask for a certificate")
            choices = page.get_by_label("What it is for").inner_text()
            contains(choices, "mail-signing")
            # Those of administrators, of accounts in Windows and of keys that the site makes are not among them.
            assert not re.search("administrator|smart-card|mail-encryption|centre", choices), choices
            accessible(page)
            page.screenshot(path=SCREENSHOTS / "apply.png", full_page=True)
            type_into(page, "Certification request", csr.read_text())
            type_into(page, "Why", "new officer")
            press(page, "Hand in")
            equal(tag(page), "submitted")
            # One more than for a request of somebody who showed a certificate.
            contains(page.locator("main").inner_text(), "3 approvals of registrars")
            accessible(page)
        own = urllib.parse.urlsplit(page.url).path
        ident = own.rsplit("/", 1)[1]
        theirs = f"/requests/{ident}"
        with suite.case("it comes back with a reason, which the applicant sees, and is corrected, by keyboard"):
            send_by("registrar-1", f"{theirs}/steps", seen=2, step="return", reason="which unit?")
            page.reload()
            contains(page.locator("main").inner_text(), "It came back to you: “which unit?”")
            accessible(page)
            press(page, "Change the content")
            equal(page.get_by_label("Certification request").input_value().strip(), csr.read_text().strip())
            accessible(page)
            type_into(page, "Why", "new officer, unit traffic")
            press(page, "Save")
            press(page, "Hand in")
            equal(tag(page), "submitted")
        with suite.case("nobody else sees or changes it, whatever they send; an applicant asks for nothing but an own certificate"):
            log_in(other, site, "officer-8", passwords["officer-8"])
            visit(other, "/certificates/new")
            send = fields(other)
            nowhere = other.request.get("/nowhere")
            for rest in ("", "/edit", "/certificate"):
                answer = other.request.get(own + rest)
                equal((answer.status, answer.text()), (404, nowhere.text()), rest)
            for rest, sent in (("/edit", {"csr": csr.read_text(), "reason": "x"}), ("/steps", {"step": "withdraw"}), ("/steps", {"step": "carry-out"})):
                equal(send(own + rest, seen=5, **sent)[0], 404, f"{rest} {sent}")
            for path in ("/requests", "/requests/new", theirs, f"{theirs}/statement?seen=5"):
                equal(other.request.get(path).status, 404, path)
            equal(send("/requests", act="person", name="officer-8", roles="administrator", reason="x", submit="yes")[0], 404)
            mine = make_csr(site.folder, "officer-8", "/CN=officer-8")
            # Fields of the registrars' form count for nothing here.
            forged = {"act": "person", "holder": "person", "name": "officer-9", "clearance": "4", "roles": "administrator"}
            status, _ = send("/certificates", csr=mine.read_text(), reason="x", submit="yes", **forged)
            equal(status, 303)
            waiting = site.ask("registry", "request", "list")["requests"]
            (found,) = [request for request in waiting if request["requester"] == "officer-8"]
            equal((found["act"], found["subject"]), ("issue", "officer-8"))
            act = site.ask("registry", "request", "show", found["id"])["request"]["act"]
            equal((act["clearance"], act["profile"]), (1, "user"))
            weak = make_csr(site.folder, "weak", "/CN=x", "-newkey", "rsa:1024").read_text()
            for sent, why in (
                ({"csr": "no PEM"}, "certif"), ({"csr": weak}, "key-size"), ({"csr": mine.read_text(), "profile": "administrator"}, ""),
                ({"csr": mine.read_text(), "profile": "device"}, ""), ({"csr": mine.read_text(), "profile": "user-centre-key"}, "not a profile"), ({"csr": mine.read_text(), "reason": " "}, "reason"),
                ({"csr": make_csr(site.folder, "chief", "/CN=x/UID=officer-9").read_text()}, "other-subject"),
            ):
                status, text = send("/certificates", **{"reason": "x", "submit": "yes", **sent})
                equal(status, 400, f"{sent}: {text[:2000]}")
                contains(text, why)
        with suite.case("three registrars approve, who see that a password is all that was shown; the applicant has the certificate made and takes it, by keyboard"):
            seen = people["registrar-1"].request("GET", theirs).text
            contains(seen, "a password and nothing else")
            contains(seen, "CN=Example officer-9")
            approve("registrar-1", theirs, 5)
            approve("registrar-2", theirs, 6)
            # What two of three approved is not made.
            equal(fields(page)(f"{own}/steps", seen=7, step="carry-out")[0], 400)
            approve("registrar-3", theirs, 7)
            page.reload()
            equal(tag(page), "approved")
            press(page, "Make the certificate")
            equal(tag(page), "issued")
            accessible(page)
            tab_to(page, "Download the certificate")
            with page.expect_download() as download:
                page.keyboard.press("Enter")
            pem = site.folder / download.value.suggested_filename
            download.value.save_as(pem)
            shown = page.locator(".command").inner_text()
            line = shown.replace("NAME", "officer-9") + " -passout pass:secret"
            command("sh", "-c", f"cd {site.folder} && {line}")
        with suite.case("the certificate opens the portal in a browser, and its owner sees it there; revoked, it opens nothing"):
            context = portal.context(p12=site.folder / "officer-9.p12", passphrase="secret")
            inside = context.new_page()
            visit(inside, "/certificates")
            text = inside.locator("main").inner_text()
            contains(text, "secret (3)")
            contains(text, "valid")
            contains(text, ident)
            accessible(inside)
            serial = openssl("x509", "-in", pem, "-noout", "-serial").strip().split("=")[1].lower()
            ask = forms["registrar-1"].post("/requests", act="revoke", serial=serial, cause="key-compromise", emergency="yes",
                                            reason="card stolen", submit="yes")
            path = ask.headers["location"]
            approve("registrar-2", path, 2)
            send_by("registrar-1", f"{path}/steps", seen=3, step="carry-out")
            visit(inside, "/certificates", 403)
            context.close()
            # A revocation ends what the person has open; the password itself goes on.
            visit(page, "/certificates", 403)
            log_in(page, site, "officer-9", passwords["officer-9"])
            visit(page, "/certificates")
            contains(page.locator("main").inner_text(), "revoked (key-compromise)")
        with suite.case("the browser complained about nothing, and each page and step is an event"):
            equal(portal.complaints, [], "complaints")
        browser.close()
    site.verify_audit()
    shown = json.loads(cordon("audit", "show", site.data / "audit" / "log", "--last", 5000, "--json", "--log", "off").stdout)
    found = [entry["leaf"]["event"] for entry in shown["entries"]]
    applied = [event for event in found if event["action"] == "registry.apply"]
    assert {"officer-8", "officer-9"} <= {event["actor"]["id"] for event in applied}, applied[:3]
    site.stop()
