"""Three people in Chromium: a request goes back, is corrected, approved twice, and its certificate opens the portal."""

import concurrent.futures
import importlib.resources
import json
import re
import subprocess
import urllib.parse

from playwright.sync_api import sync_playwright

from tests.harness import ROOT, Site, contains, cordon, cordon_json, equal
from tests.portal import Portal, launch, visit
from tests.profiles import PATROL
from tests.requests import enrol, make_csr, openssl

STAFF = [
    ("registrar-1", "registrar", 4), ("registrar-2", "registrar", 4), ("registrar-3", "registrar", 4),
    ("registrar-0", "registrar", 0), ("keeper-1", "administrator", 4), ("keeper-2", "administrator", 4),
    ("officer-0", "officer", 0), ("auditor-4", "auditor", 4),
]
SCREENSHOTS = ROOT / "target" / "screenshots"
# Tab is pressed so often at most: no page has more controls.
MOST_CONTROLS = 120

# Text that differs too little from what is behind it (WCAG 2, 1.4.3), fields without a label, and headings that skip a level.
PROBLEMS = """() => {
    const found = [];
    const parse = color => (color.match(/[\\d.]+/g) || []).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = at => {
        for (; at; at = at.parentElement) {
            const color = parse(getComputedStyle(at).backgroundColor);
            if (color.length === 3 || color[3] === 1) return color;
        }
        return [255, 255, 255];
    };
    for (const at of document.body.querySelectorAll('*')) {
        const own = [...at.childNodes].some(node => node.nodeType === 3 && node.data.trim());
        const value = ['INPUT', 'SELECT', 'TEXTAREA', 'BUTTON'].includes(at.tagName);
        if (!(own || value) || !at.getClientRects().length) continue;
        const style = getComputedStyle(at), size = parseFloat(style.fontSize);
        const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
        const pair = [light(parse(style.color)), light(behind(at))].sort((a, b) => b - a);
        const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
        if (ratio < (large ? 3 : 4.5)) found.push(`contrast ${ratio.toFixed(2)}: ${at.outerHTML.slice(0, 80)}`);
    }
    for (const at of document.querySelectorAll('input:not([type=hidden]), select, textarea'))
        if (![...at.labels].some(label => label.innerText.trim())) found.push(`no label: ${at.outerHTML}`);
    for (const at of document.querySelectorAll('a, button'))
        if (!(at.innerText.trim() || at.querySelector('img[alt]'))) found.push(`no name: ${at.outerHTML}`);
    let last = 0;
    for (const at of document.querySelectorAll('h1, h2, h3, h4')) {
        const level = Number(at.tagName[1]);
        if (level > last + 1) found.push(`heading skips to ${at.outerHTML}`);
        last = level;
    }
    return found;
}"""


# Rules of WCAG 2 and best practices (axe-core), as the package for Playwright brings them.
AXE = importlib.resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
# What axe-core finds, but for what it calls minor or moderate.
SERIOUS = """async () => {
    const found = await axe.run(document, {resultTypes: ['violations']});
    if (found.passes.length < 10) return ['axe-core has hardly looked'];
    return found.violations.filter(one => ['serious', 'critical'].includes(one.impact))
        .flatMap(one => one.nodes.map(node => `${one.id} (${one.impact}): ${node.html.slice(0, 120)}`));
}"""


def accessible(page):
    page.evaluate(AXE)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        equal(page.evaluate(PROBLEMS), [], f"barriers on {page.url}, {scheme}")
        equal(page.evaluate(SERIOUS), [], f"findings of axe-core on {page.url}, {scheme}")
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        beyond = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert beyond <= 0, f"{page.url} is {beyond} pixels wider than a window of {width}"


def tab_to(page, name):
    """Presses Tab until the control with this label or text has the focus."""
    seen = []
    for _ in range(MOST_CONTROLS):
        page.keyboard.press("Tab")
        at = page.evaluate("""() => {
            const at = document.activeElement, label = at.labels && at.labels[0];
            return {text: ((label || at).innerText || '').trim().split('\\n')[0], ring: getComputedStyle(at).outlineStyle};
        }""")
        seen.append(at["text"])
        if at["text"].startswith(name):
            equal(at["ring"], "solid", f"outline of {name!r}")
            return
    raise AssertionError(f"Tab does not reach {name!r} on {page.url}: {seen}")


def press(page, name, key="Enter"):
    tab_to(page, name)
    with page.expect_navigation():
        page.keyboard.press(key)


def type_into(page, name, text):
    tab_to(page, name)
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def state(page):
    return page.locator("h1 .tag").nth(1).inner_text()


def sign(person, page, folder):
    """Downloads what is signed and signs it by the command on the page, with the person's file in its place."""
    tab_to(page, "Download what is signed")
    with page.expect_download() as waiting:
        page.keyboard.press("Enter")
    file = folder / waiting.value.suggested_filename
    waiting.value.save_as(file)
    command = page.locator(".command").inner_text()
    password = person.p12.with_name(f"{person.p12.name}.password")
    # The command asks for the password at a terminal; here is none.
    command = command.replace("ME.p12", f"{person.p12} -passin file:{password}")
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True)
    equal(done.returncode, 0, f"{command}: {done.stderr}")
    return file, done.stdout


class Forms:
    """What a person's browser sends, without the browser's own checks."""

    def __init__(self, person):
        self.person = person
        page = person.request("GET", "/requests/new?act=issue").text
        self.token = re.search(r'name="token" value="([0-9a-f]+)"', page).group(1)

    def post(self, path, token=None, **fields):
        fields = {"token": self.token if token is None else token, **fields}
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.person.request("POST", path, urllib.parse.urlencode(fields).encode(), kind)


def run(suite):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    site = Site(suite).start()
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
    with sync_playwright() as playwright:
        browser = launch(playwright)
        portal = Portal(site, browser)
        pages = {}
        for uid, person in people.items():
            context = portal.context(p12=person.p12, passphrase=person.password, accept_downloads=True)
            pages[uid] = context.new_page()
        walk(suite, site, portal, people, pages)
        invitation(suite, pages)
        other_acts(suite, site, people)
        two_editors(suite, pages)
        strangers(suite, portal, people, pages)
        attacks(suite, site, people, pages)
        with suite.case("the browser complained about nothing: policy, scripts, missing files"):
            equal(portal.complaints, [], "complaints")
        browser.close()
    with suite.case("every step is an event with certificate, address, old and new, and the approvals stand by themselves"):
        recorded(site)
    site.stop()


def walk(suite, site, portal, people, pages):
    applicant, one, two = pages["registrar-1"], pages["registrar-2"], pages["registrar-3"]
    csr = make_csr(site.folder, "officer-9", "/CN=anything")
    with suite.case("the applicant asks for a certificate, by keyboard"):
        visit(applicant, "/")
        press(applicant, "Requests")
        accessible(applicant)
        press(applicant, "New request")
        accessible(applicant)
        press(applicant, "A certificate for a key")
        applicant.screenshot(path=SCREENSHOTS / "request-new.png", full_page=True)
        accessible(applicant)
        type_into(applicant, "User id or name", "officer-9")
        type_into(applicant, "Certification request", csr.read_text())
        type_into(applicant, "Why", "new officer")
        press(applicant, "Hand in")
        equal(state(applicant), "submitted")
        contains(applicant.locator("main").inner_text(), "You cannot approve it")
        accessible(applicant)
    path = urllib.parse.urlsplit(applicant.url).path
    with suite.case("a registrar finds it in the queue and returns it with a reason, by keyboard"):
        visit(one, "/requests")
        press(one, path.rsplit("/", 1)[1])
        text = one.locator("main").inner_text()
        for part in ("officer-9", "new officer", "secret (3)", "0 of 2", "2 approvals of registrars, cleared for secret"):
            contains(text, part)
        accessible(one)
        type_into(one, "Reason for the requester", "which unit?")
        press(one, "Return")
        equal(state(one), "returned")
    with suite.case("the applicant corrects it and hands it in again, by keyboard"):
        applicant.reload()
        contains(applicant.locator("main").inner_text(), "which unit?")
        press(applicant, "Change the content")
        accessible(applicant)
        type_into(applicant, "Why", "new officer, unit traffic")
        press(applicant, "Save")
        text = applicant.locator(".history").inner_text()
        contains(text, "new officer, unit traffic")
        press(applicant, "Hand in")
        equal(state(applicant), "submitted")
    with suite.case("two registrars sign what they downloaded, by keyboard and by the command that the page shows"):
        for page, uid, after in ((one, "registrar-2", "submitted"), (two, "registrar-3", "approved")):
            visit(page, path)
            page.screenshot(path=SCREENSHOTS / f"request-{uid}.png", full_page=True)
            file, signature = sign(people[uid], page, site.folder)
            statement = json.loads(file.read_bytes())
            equal((statement["requester"], statement["reason"]), ("registrar-1", "new officer, unit traffic"))
            type_into(page, "Signature in base64", signature)
            press(page, "Approve")
            equal(state(page), after)
            accessible(page)
    with suite.case("the applicant has it carried out and takes the certificate, by keyboard"):
        applicant.reload()
        press(applicant, "Carry out")
        equal(state(applicant), "issued")
        tab_to(applicant, "Download the certificate")
        with applicant.expect_download() as waiting:
            applicant.keyboard.press("Enter")
        pem = site.folder / "officer-9.pem"
        waiting.value.save_as(pem)
        equal(openssl("x509", "-in", pem, "-noout", "-pubkey"), openssl("pkey", "-in", site.folder / "officer-9.key", "-pubout"))
    with suite.case("the owner of the key logs in with the certificate"):
        p12 = site.folder / "officer-9.p12"
        openssl("pkcs12", "-export", "-inkey", site.folder / "officer-9.key", "-in", pem, "-out", p12, "-passout", "pass:secret")
        context = portal.context(p12=p12, passphrase="secret")
        page = context.new_page()
        visit(page, "/violations")
        contains(page.locator(".person").inner_text(), "Ninth Officer")
        context.close()
    with suite.case("the subject's page has the certificate and the request"):
        visit(two, "/requests/about/officer-9")
        text = two.locator("main").inner_text()
        for part in ("Ninth Officer", "valid", path.rsplit("/", 1)[1], "secret (3)"):
            contains(text, part)
        accessible(two)


def invitation(suite, pages):
    applicant, one = pages["registrar-1"], pages["registrar-2"]
    with suite.case("a server is invited by a form, by keyboard; the form has it all when it is changed"):
        visit(applicant, "/requests/new")
        press(applicant, "A code by which a person, a server")
        accessible(applicant)
        applicant.get_by_label("Kind").select_option("server")
        type_into(applicant, "User id or name", "www.police.example")
        type_into(applicant, "Further names of a server", "web.police.example")
        type_into(applicant, "Hours that the code is valid", "48")
        type_into(applicant, "Renewals of the certificate", "2")
        type_into(applicant, "Why", "new web server")
        press(applicant, "Hand in")
        equal(state(applicant), "submitted")
        accessible(applicant)
        path = urllib.parse.urlsplit(applicant.url).path
        visit(one, path)
        text = one.locator("main").inner_text()
        for part in ("network server", "www.police.example, web.police.example", "48", "unclassified (0)"):
            contains(text, part)
        visit(one, f"{path}/edit")
        accessible(one)
        for label, value in (("User id or name", "www.police.example"), ("Further names", "web.police.example"),
                             ("Hours that", "48"), ("Renewals of", "2"), ("Kind", "server")):
            equal(one.get_by_label(label).input_value(), value)
    with suite.case("pages of administrators: home, people of a request, a new profile"):
        keeper = pages["keeper-1"]
        for address in ("/", "/requests", "/requests/new", "/requests/new?act=profile", "/requests/new?act=person", path):
            visit(keeper, address)
            accessible(keeper)


def serial_of(site):
    return openssl("x509", "-in", site.folder / "officer-9.pem", "-noout", "-serial").strip().split("=")[1]


def signature(site, person, statement):
    file, signed = site.folder / "statement", site.folder / "signature"
    file.write_bytes(statement)
    openssl("dgst", "-sha256", "-sign", person.key, "-out", signed, file)
    return openssl("base64", "-in", signed)


def other_acts(suite, site, people):
    """What else the portal has forms for, to its end."""
    forms = {uid: Forms(people[uid]) for uid in ("registrar-1", "registrar-2", "registrar-3", "keeper-1", "keeper-2")}

    def ask(**fields):
        answer = forms["registrar-1"].post("/requests", submit="yes", **fields)
        equal(answer.status, 303, answer.text[:3000])
        return answer.headers["location"]

    def approve(path, uid, seen):
        statement = people[uid].request("GET", f"{path}/statement?seen={seen}").body
        answer = forms[uid].post(f"{path}/approvals", seen=seen, signature=signature(site, people[uid], statement))
        equal(answer.status, 303, answer.text[:3000])

    def carry_out(path, seen):
        equal(forms["registrar-1"].post(f"{path}/steps", seen=seen, step="carry-out").status, 303)

    def shown(path):
        return people["registrar-1"].request("GET", path).text

    def facts():
        return people["registrar-1"].request("GET", "/requests/about/officer-9").text

    with suite.case("rights of a person change with two administrators, and the page has old and new values"):
        path = ask(act="person", name="officer-9", clearance=2, roles="officer, reviewer", units="traffic, northern roads",
                   reason="moved")
        for part in ("<td>secret (3)</td><td>confidential (2)</td>", "<td>traffic</td><td>northern roads, traffic</td>"):
            contains(shown(path), part)
        approve(path, "keeper-1", 2)
        approve(path, "keeper-2", 3)
        carry_out(path, 4)
        contains(facts(), "<dd>northern roads, traffic</dd>")
        contains(facts(), "<dd>confidential (2)</dd>")
    with suite.case("a person is suspended and resumed, with what is so now beside what is to be"):
        suspend = {"act": "holder", "holder": "person", "name": "officer-9", "cause": "unspecified"}
        for change, now in (("suspend", "enrolled"), ("resume", "suspended")):
            path = ask(**suspend, change=change, reason="inquiry")
            contains(shown(path), f"<td>{now}</td><td>{change}</td>")
            approve(path, "registrar-2", 2)
            approve(path, "registrar-3", 3)
            carry_out(path, 4)
        contains(facts(), "enrolled")
    with suite.case("a profile is put in force by two administrators, who see the file before and after"):
        text = PATROL.replace("\n", "\r\n")
        path = ask(act="profile", definition=text, reason="patrols")
        for part in ("patrol-login", "highest_clearance = 2", "confidential (2)"):
            contains(shown(path), part)
        contains(people["keeper-1"].request("GET", f"{path}/edit").text, "highest_clearance = 2")
        approve(path, "keeper-1", 2)
        equal(forms["registrar-2"].post(f"{path}/approvals", seen=3, signature="AA==").status >= 400, True)
        approve(path, "keeper-2", 3)
        carry_out(path, 4)
        (found,) = [one for one in site.ask("pki", "profile", "list")["profiles"] if one["name"] == "patrol-login"]
        equal(found["text"], PATROL)
        narrower = ask(act="profile", definition=text.replace("days = 30", "days = 20"), reason="shorter")
        for part in ("days = 30", "days = 20"):
            contains(shown(narrower), part)
        for bad in ("", "name = 1", PATROL.replace("clientAuth", "serverAuth")):
            refused = forms["registrar-1"].post("/requests", submit="yes", act="profile", definition=bad, reason="x")
            assert refused.status == 400, refused.text[:3000]
    with suite.case("another generation of an authority is put to use by two administrators, who see which certificate it has"):
        absent = forms["registrar-1"].post("/requests", submit="yes", act="authority", name="devices-g2", reason="x")
        equal(absent.status, 400, absent.text[:3000])
        site.ask("pki", "new-authority", "devices", "--root-passphrase-file", site.data / "passphrase")
        path = ask(act="authority", name="devices-g2", reason="the first one ends in two years")
        own = openssl("x509", "-in", site.data / "pki" / "devices-g2-ca.pem", "-noout", "-fingerprint", "-sha256")
        contains(shown(path), own.strip().split("=")[1].replace(":", "").lower())
        contains(people["keeper-1"].request("GET", f"{path}/edit").text, 'value="devices-g2"')
        approve(path, "keeper-1", 2)
        equal(forms["registrar-1"].post(f"{path}/steps", seen=3, step="carry-out").status, 400)
        approve(path, "keeper-2", 3)
        carry_out(path, 4)
        issuing = [one["name"] for one in site.ask("pki", "authorities")["authorities"] if one["state"] == "issuing"]
        equal(sorted(issuing), ["devices-g2", "services", "users"])
    with suite.case("an emergency revokes after one approval, and waits for the second"):
        revoke = {"act": "revoke", "serial": serial_of(site), "cause": "key-compromise", "emergency": "yes"}
        path = ask(**revoke, reason="card stolen")
        contains(shown(path), "another approval after it was carried out")
        approve(path, "registrar-2", 2)
        carry_out(path, 3)
        contains(shown(path), "<td>revoked (key-compromise)</td>")
        contains(people["registrar-3"].request("GET", "/requests").text, path)
        approve(path, "registrar-3", 4)
        assert path not in people["registrar-3"].request("GET", "/requests").text
        contains(facts(), "revoked (key-compromise)")
        again = forms["registrar-1"].post("/requests", submit="yes", **revoke, reason="once more")
        contains(again.text, "already-revoked")


def two_editors(suite, pages):
    applicant, one, two = pages["registrar-1"], pages["registrar-2"], pages["registrar-3"]
    with suite.case("the second of two who edit sees by keyboard what changed, and decides anew"):
        visit(applicant, "/requests/new?act=holder&holder=person&name=officer-9")
        type_into(applicant, "Why", "long leave")
        press(applicant, "Hand in")
        path = urllib.parse.urlsplit(applicant.url).path
        for page in (one, two):
            visit(page, f"{path}/edit")
            accessible(page)
        type_into(one, "Why", "leave of a year")
        press(one, "Save")
        type_into(two, "Why", "leave of two years")
        press(two, "Save")
        text = two.get_by_role("alert").inner_text()
        for part in ("You saw version 2", "registrar-2 made the step", "long leave", "leave of a year"):
            contains(text, part)
        equal(two.get_by_label("Why").input_value(), "leave of two years")
        two.screenshot(path=SCREENSHOTS / "request-conflict.png", full_page=True)
        accessible(two)
        press(two, "Save")
        contains(two.locator(".history").inner_text(), "leave of two years")
        applicant.reload()
        press(applicant, "Withdraw")
        equal(state(applicant), "withdrawn")


def strangers(suite, portal, people, pages):
    with suite.case("for officers and auditors there are no such pages, and no way to them"):
        for uid in ("officer-0", "auditor-4"):
            page = pages[uid]
            visit(page, "/nowhere", 404)
            nothing = page.locator("main").inner_text()
            for path in ("/requests", "/requests/new?act=person", "/requests/about/officer-9", "/requests/0123456789ab"):
                visit(page, path, 404)
                equal(page.locator("main").inner_text(), nothing)
            visit(page, "/cameras")
            equal(page.get_by_role("link", name="Requests").count(), 0)
            for path in ("/requests", "/requests/0123456789ab/steps", "/requests/0123456789ab/approvals"):
                answer = people[uid].request("POST", path, b"token=x&act=person")
                equal(answer.status, 404, f"status of POST {path}")
    with suite.case("a registrar sees requests and no evidence"):
        visit(pages["registrar-1"], "/violations", 403)
    with suite.case("nobody is asked to log in, like everywhere"):
        context = portal.context()
        page = context.new_page()
        page.goto("/requests")
        equal(page.url, f"{portal.origin}/login")
        context.close()


def attacks(suite, site, people, pages):
    """Forms as no page makes them."""
    applicant, one, two = (Forms(people[uid]) for uid in ("registrar-1", "registrar-2", "registrar-3"))

    def begin(forms, camera, **fields):
        csr = make_csr(site.folder, camera, f"/CN={camera}").read_text()
        form = {"act": "issue", "holder": "device", "name": camera, "clearance": 3, "csr": csr, "reason": "new camera", **fields}
        return forms.post("/requests", submit="yes", **form)

    def waiting():
        return len(site.ask("registry", "request", "list")["requests"])

    def shown(ident):
        return site.ask("registry", "request", "show", ident)

    with suite.case("forms that are forged, foreign or too large begin nothing"):
        before = waiting()
        equal(begin(applicant, "camera-1", token="").status, 403)
        equal(begin(applicant, "camera-1", token=one.token).status, 403)
        equal(begin(applicant, "camera-1", padding="x" * 100_000).status, 413)
        large = begin(applicant, "camera-1", csr="-----BEGIN CERTIFICATE REQUEST-----\n" + "A" * 30_000)
        equal(large.status, 400)
        pem = make_csr(site.folder, "camera-1", "/CN=camera-1").read_text().splitlines()
        pem[-2] = pem[-2][:-6] + ("AAAA" if pem[-2][-6:-2] != "AAAA" else "BBBB") + pem[-2][-2:]
        forged = begin(applicant, "camera-1", csr="\n".join(pem) + "\n")
        equal(forged.status, 400)
        contains(forged.text, "csr-refused")
        equal(begin(applicant, "camera-1", csr="").status, 400)
        equal(begin(applicant, "camera-1", clearance=9).status, 400)
        equal(begin(applicant, "camera-1", act="add-authority").status, 400)
        equal(begin(applicant, "camera-1", reason="x" * 1001).status, 400)
        for name in ("camera-7", "../camera-1", "<b>", ""):
            equal(begin(applicant, "camera-1", name=name).status, 400, f"answer to the name {name!r}")
        person = {"act": "person", "name": "registrar-1", "roles": "registrar, chief", "reason": "more"}
        equal(applicant.post("/requests", **person).status, 400)
        equal(waiting(), before)
    with suite.case("of two who edit, the second is told by whom and shown what changed, and keeps what was typed"):
        answer = begin(applicant, "camera-2")
        equal(answer.status, 303)
        path = answer.headers["location"]
        ident = path.rsplit("/", 1)[1]
        csr = (site.folder / "camera-2.csr").read_text()
        form = {"act": "issue", "holder": "device", "name": "camera-2", "clearance": 3, "csr": csr, "seen": 2}
        equal(one.post(f"{path}/edit", **form, reason="northern road").status, 303)
        late = two.post(f"{path}/edit", **form, reason="southern road")
        equal(late.status, 409)
        for part in ("You saw version 2; version 3 is current", "registrar-2 made the step", "northern road",
                     "southern road</textarea>", 'name="seen" value="3"'):
            contains(late.text, part)
        equal(two.post(f"{path}/steps", seen=2, step="refuse", reason="no").status, 409)
        equal(two.person.request("GET", f"{path}/statement?seen=2").status, 409)
    with suite.case("steps of others, unknown steps and reading change nothing"):
        for step in ("submit", "withdraw", "carry-out"):
            equal(two.post(f"{path}/steps", seen=3, step=step).status, 400, step)
        equal(two.post(f"{path}/steps", seen=3, step="approve").status, 400)
        equal(two.post(f"{path}/steps", seen=3, step="return", reason=" ").status, 400)
        equal(two.post(f"{path}/approvals", seen=3).status, 400)
        for method in ("GET", "PUT", "DELETE"):
            equal(two.person.request(method, f"{path}/steps").status, 404)
            equal(two.person.request(method, f"{path}/approvals").status, 404)
        equal(shown(ident)["version"], 3)
    with suite.case("nobody approves what they wrote, twice, by another's signature, or what another version said"):
        approve = f"{path}/approvals"
        statement = applicant.person.request("GET", f"{path}/statement?seen=3").body
        own = applicant.post(approve, seen=3, signature=signature(site, applicant.person, statement))
        contains(own.text, "own-request")
        editor = one.post(approve, seen=3, signature=signature(site, one.person, statement))
        contains(editor.text, "own-request")
        foreign = two.post(approve, seen=3, signature=signature(site, one.person, statement))
        contains(foreign.text, "bad-signature")
        low = Forms(people["registrar-0"])
        contains(low.person.request("GET", path).text, "You cannot approve it: registrar-0 is cleared for unclassified")
        contains(low.post(approve, seen=3, signature=signature(site, low.person, statement)).text, "above-approver")
        keeper = Forms(people["keeper-1"])
        contains(keeper.post(approve, seen=3, signature=signature(site, keeper.person, statement)).text, "role-missing")
        former = statement.replace(b"northern road", b"new camera")
        contains(two.post(approve, seen=3, signature=signature(site, two.person, former)).text, "bad-signature")
        good = signature(site, two.person, statement)
        equal(two.post(approve, seen=2, signature=good).status, 409)
        equal(shown(ident)["version"], 3)
        equal(two.post(approve, seen=3, signature=good).status, 303)
        contains(two.post(approve, seen=4, signature=good).text, "approved-twice")
        contains(one.post(approve, seen=4, signature=good).text, "own-request")
        equal(len(shown(ident)["request"]["state"]["approvals"]), 1)
    with suite.case("what one approval of two is for is not carried out, and editing ends the approval"):
        contains(applicant.post(f"{path}/steps", seen=4, step="carry-out").text, "wrong-state")
        equal(two.person.request("GET", f"{path}/certificate").status, 404)
        edited = one.post(f"{path}/edit", **{**form, "seen": 4}, reason="eastern road")
        equal(edited.status, 303)
        equal(shown(ident)["request"]["state"]["approvals"], [])
        replayed = two.post(f"{path}/approvals", seen=5, signature=good)
        contains(replayed.text, "bad-signature")
        equal(applicant.post(f"{path}/steps", seen=5, step="withdraw").status, 303)
    with suite.case("of many who press at once one is heard: one approval each, one certificate"):
        # As long as a browser lets it be, which counts one for each end of a line and sends two.
        lines = "road\r\n" * 200
        ident = begin(applicant, "camera-3", reason=lines).headers["location"].rsplit("/", 1)[1]
        path = f"/requests/{ident}"

        def at_once(posts):
            with concurrent.futures.ThreadPoolExecutor(len(posts)) as pool:
                return sorted(answer.status for answer in pool.map(lambda post: post(), posts))

        for forms, seen in ((one, 2), (two, 3)):
            statement = forms.person.request("GET", f"{path}/statement?seen={seen}").body
            good = signature(site, forms.person, statement)
            posts = [lambda: forms.post(f"{path}/approvals", seen=seen, signature=good)] * 6
            equal(at_once(posts), [303] + [409] * 5)
        posts = [lambda forms=forms: forms.post(f"{path}/steps", seen=4, step="carry-out") for forms in (applicant, one, two)]
        answers = at_once(posts)
        equal((answers.count(303), len(answers)), (1, 3), f"answers {answers}")
        issued = cordon_json("pki", "list", *site.arguments())["certificates"]
        equal([record["holder"] for record in issued].count("camera-3"), 1)
        equal(shown(ident)["version"], 5)
    with suite.case("a registrar gives neither herself nor others rights: those are administrators' to approve"):
        form = {"act": "person", "name": "registrar-1", "roles": "registrar, administrator", "reason": "more"}
        answer = applicant.post("/requests", submit="yes", **form)
        path = answer.headers["location"]
        for forms in (one, two):
            statement = forms.person.request("GET", f"{path}/statement?seen=2").body
            refused = forms.post(f"{path}/approvals", seen=2, signature=signature(site, forms.person, statement))
            contains(refused.text, "role-missing")
        contains(applicant.post(f"{path}/steps", seen=2, step="carry-out").text, "wrong-state")
        equal(applicant.post(f"{path}/steps", seen=2, step="withdraw").status, 303)


def recorded(site):
    site.verify_audit()
    entries = cordon_json("audit", "show", site.data / "audit/log", "--last", 5000)["entries"]
    events = [entry["leaf"]["event"] for entry in entries]
    steps = [event for event in events if event["action"].startswith("request.")]
    actions = {event["action"] for event in steps}
    for step in ("draft", "submit", "return", "edit", "approve", "issue", "withdraw"):
        assert f"request.{step}" in actions, sorted(actions)
    for event in steps:
        contains(event["details"]["login"], "certificate ")
        equal(event["details"]["address"], "127.0.0.1", event["action"])
    edits = [event["details"] for event in steps if event["action"] == "request.edit"]
    contains([(edit["old_why"], edit["why"]) for edit in edits], ("new officer", "new officer, unit traffic"))
    refused = [event for event in events if event["action"] == "registry.request" and event["outcome"] == "deny"]
    equal({event["actor"]["id"] for event in refused}, {"officer-0", "auditor-4"})
    # The orders that made the people stand in it as well, hence 1.
    report = json.loads(cordon("pki", "audit", "--data", site.data, "--json", "--log", "off", code=1).stdout)["report"]
    equal(report["certificates"]["request"], 2)
    equal(report["acts"], {"add-authority": 1, "change-holder": 2, "change-person": 1, "change-profile": 1, "issue": 2, "revoke": 1})
