"""The portal in headless Chromium, with real client certificates."""

import re
import time
import zipfile

from playwright.sync_api import sync_playwright

from tests import export
from tests.harness import ROOT, Site, contains, cordon, cordon_json, equal, wait_for
from tests.harness import run as run_command
from tests.portal import Portal, launch, log_in, visit
from tests.request_pages import accessible

SCREENSHOTS = ROOT / "target" / "screenshots"
# Numbers 5 and 10 are of level 3, the other even ones of level 2.
VIOLATIONS = 12
# A revocation must reach open pages within this many seconds.
REVOKED_WITHIN = 5


def run(suite):
    site = Site(suite).start("demo", "--violations", VIOLATIONS)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        portal = Portal(site, browser)
        key_store(suite, site)
        ids = reviewer(suite, site, portal)
        officer(suite, portal, ids)
        auditor(suite, portal, ids)
        nobody(suite, portal, ids)
        polish(suite, portal, ids)
        plain(suite, portal, ids)
        keyboard(suite, portal)
        screenshots(suite, portal, ids)
        revocation(suite, site, portal, ids)
        disabling(suite, site, portal)
        with suite.case("the browser complained about nothing: policy, scripts, missing files"):
            equal(portal.complaints, [], "complaints")
        browser.close()
    with suite.case("the audit log holds what the people did"):
        site.verify_audit()
        entries = cordon_json("audit", "show", site.data / "audit/log", "--last", 5000)["entries"]
        actions = {entry["leaf"]["event"]["action"] for entry in entries}
        for action in ("evidence.view", "evidence.open-medium", "evidence.review", "evidence.export", "session.start"):
            assert action in actions, sorted(actions)
        site.stop()


def key_store(suite, site):
    """NSS keeps the certificates of Chromium and Firefox on Linux."""
    with suite.case("the file of a person imports into a browser's key store, and is good for a login"):
        folder = suite.folder / "nss"
        folder.mkdir()
        store = ["-d", f"sql:{folder}"]
        run_command("certutil", "-N", "--empty-password", *store)
        p12 = site.data / "people" / "officer-2.p12"
        run_command("pk12util", "-i", p12, "-w", p12.with_suffix(".password"), *store)
        run_command("certutil", "-A", "-n", "root", "-t", "CT,C,C", "-i", site.data / "pki/root.pem", *store)
        (name,) = re.findall(r"^(.*\S)\s+u,u,u$", run_command("certutil", "-L", *store).stdout, re.M)
        contains(name, "Example Officer")
        contains(run_command("certutil", "-V", "-n", name, "-u", "C", *store).stdout, "certificate is valid")
        contains(run_command("certutil", "-K", *store).stdout, name)


def listed(page):
    """The violations on the page, as (id, level)."""
    found = []
    for card in page.locator("li.violation").all():
        address = card.locator("a").get_attribute("href")
        level = re.search(r"level-(\d)", card.locator("[class*=level-]").get_attribute("class"))
        found.append((address.rsplit("/", 1)[1], int(level.group(1))))
    return found


def loaded(page, condition):
    """Waits for pictures. Asked anew from outside each time: a page's own polling would be an
    evaluation that its policy refuses."""
    wait_for(lambda: page.evaluate(condition), condition)


def picture_is_shown(page):
    image = page.locator("figure img").first
    image.scroll_into_view_if_needed()
    loaded(page, "document.querySelector('figure img').complete")
    equal(image.evaluate("image => image.naturalWidth"), 1920, "width of the picture")


def reviewer(suite, site, portal):
    ids = {}
    context = portal.context("reviewer-3", accept_downloads=True)
    page = context.new_page()
    with suite.case("the certificate logs the reviewer in, who sees all levels with thumbnails"):
        visit(page, "/violations")
        contains(page.locator(".person").inner_text(), "Example Reviewer")
        found = listed(page)
        equal(len(found), VIOLATIONS)
        for name, level in found:
            ids.setdefault(level, []).append(name)
        equal({level: len(names) for level, names in ids.items()}, {1: 5, 2: 5, 3: 2}, "violations by level")
        for image in page.locator("li.violation img").all():
            image.scroll_into_view_if_needed()
        loaded(page, "[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    with suite.case("filters narrow the list"):
        plate = page.locator("li.violation .plate").first.inner_text()
        page.get_by_label("Plate").fill(plate)
        page.get_by_role("button", name="Search").click()
        equal({text for text in page.locator("li.violation .plate").all_inner_texts()}, {plate})
        visit(page, "/violations?state=accepted")
        equal(listed(page), [])
        visit(page, "/violations?speed=99999")
    with suite.case("the reviewer accepts a level-3 violation with a reason"):
        visit(page, f"/violations/{ids[3][0]}")
        picture_is_shown(page)
        page.get_by_label("Reason").fill("Plate and speed are <b>readable</b> & right")
        page.get_by_role("button", name="Accept").click()
        contains(page.locator("main").inner_text(), "Plate and speed are <b>readable</b> & right")
        equal(page.locator("h1 .tag.accepted").count(), 1, "number of tags in the title")
    with suite.case("a decision without a reason is not taken"):
        visit(page, f"/violations/{ids[3][1]}")
        page.get_by_role("button", name="Reject").click()
        equal(page.locator("textarea:invalid").count(), 1, "fields that are complained about")
    with suite.case("the exported package verifies"):
        visit(page, f"/violations/{ids[3][0]}")
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Download the package").click()
        file = suite.folder / waiting.value.suggested_filename
        waiting.value.save_as(file)
        package = suite.folder / "downloaded"
        with zipfile.ZipFile(file) as archive:
            archive.extractall(package)
        (folder,) = package.iterdir()
        export.Checks(site, suite.folder).accepted(folder)
        equal(cordon("audit", "verify", site.data / "audit/log").returncode, 0)
    context.close()
    return ids


def refused_page(page, path, rule):
    """The path answers 403 and says why."""
    visit(page, path, 403)
    text = page.locator("main").inner_text()
    contains(text, rule)
    return text


def officer(suite, portal, ids):
    context = portal.context("officer-2")
    page = context.new_page()
    with suite.case("an officer of clearance 2 sees a level-2 violation with its picture"):
        visit(page, f"/violations/{ids[2][0]}")
        picture_is_shown(page)
    with suite.case("a level-3 violation is refused with the reason and the rule"):
        text = refused_page(page, f"/violations/{ids[3][0]}", "no-read-up")
        contains(text, "above your clearance")
        for part in ("thumbnail", "media/0"):
            equal(page.goto(f"/violations/{ids[3][0]}/{part}").status, 403, f"status of its {part}")
        for path in (f"/api/v1/violations/{ids[3][0]}", f"/api/v1/violations/{ids[3][0]}/media/0"):
            answer = page.goto(path)
            equal((answer.status, answer.json()["code"]), (403, "no-read-up"))
    with suite.case("the list hides it and says that something is hidden"):
        visit(page, "/violations")
        equal(sorted(listed(page)), sorted((name, level) for level in (1, 2) for name in ids[level]))
        contains(page.locator(".note").inner_text(), "2 are not shown")
    with suite.case("an officer may neither decide nor export"):
        visit(page, f"/violations/{ids[2][0]}")
        equal(page.locator("main form").count(), 0, "number of forms")
        answer = page.goto(f"/api/v1/violations/{ids[2][0]}/reviews")
        equal(answer.status, 405)
    with suite.case("an unknown violation is not found"):
        visit(page, "/violations/v-0000000000000000", 404)
    with suite.case("the audit log is the auditors'"):
        visit(page, "/audit", 403)
    context.close()


def auditor(suite, portal, ids):
    context = portal.context("auditor-1")
    page = context.new_page()
    with suite.case("an auditor sees the log, with refusals and their rule"):
        visit(page, "/audit")
        text = page.locator("main").inner_text()
        for part in ("no-read-up", "evidence.view", "deny", "permit"):
            contains(text, part)
        page.get_by_text("Signed checkpoint").click()
        contains(page.locator("pre").inner_text(), "cordon.example.org/audit")
    with suite.case("an auditor turns the log's pages"):
        person = portal.site.demo_person("auditor-1")
        for _ in range(100):
            equal(person.request("GET", "/audit").status, 200)
        visit(page, "/audit")
        newest = page.locator("td.n").first.inner_text()
        page.get_by_text("Older").click()
        contains(page.url, "before=")
        equal(int(newest) - int(page.locator("td.n").first.inner_text()), 100)
    with suite.case("an auditor sees no evidence"):
        for path in ("/violations", f"/violations/{ids[1][0]}", f"/violations/{ids[1][0]}/media/0"):
            visit(page, path, 403)
        visit(page, "/cameras")
        contains(page.locator("main").inner_text(), "camera-17")
    context.close()


def nobody(suite, portal, ids):
    site = portal.site
    context = portal.context()
    page = context.new_page()
    with suite.case("without a certificate there is the login page, and nothing else"):
        for path in ("/", "/violations", f"/violations/{ids[1][0]}", "/audit", "/cameras"):
            page.goto(path)
            equal(page.url, f"{portal.origin}/login", f"address after {path}")
        equal(page.goto("/api/v1/violations").status, 403)
    with suite.case("a wrong password is refused without saying what was wrong"):
        log_in(page, site, "officer-2", "wrong password")
        unknown = page.locator("[role=alert]").inner_text()
        log_in(page, site, "officer-9", "wrong password")
        equal(page.locator("[role=alert]").inner_text(), unknown, "message for an unknown name")
    with suite.case("a password login is capped at level 1"):
        log_in(page, site, "officer-2")
        equal(page.url, f"{portal.origin}/")
        visit(page, "/violations")
        equal(sorted(listed(page)), sorted((name, 1) for name in ids[1]))
        visit(page, f"/violations/{ids[1][0]}")
        picture_is_shown(page)
        refused_page(page, f"/violations/{ids[2][0]}", "no-read-up")
    with suite.case("the session's cookie is for this host, TLS and no script"):
        (cookie,) = context.cookies()
        equal((cookie["name"], cookie["secure"], cookie["httpOnly"], cookie["sameSite"]),
              ("__Host-cordon", True, True, "Strict"))
    with suite.case("logging out ends the session, also for a copy of its cookie"):
        page.goto("/")
        copy = context.cookies()
        page.get_by_role("button", name="Log out").click()
        context.add_cookies(copy)
        page.goto("/violations")
        equal(page.url, f"{portal.origin}/login")
    context.close()


def polish(suite, portal, ids):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    context = portal.context("reviewer-3", locale="pl-PL")
    page = context.new_page()
    with suite.case("a Polish browser gets Polish pages, and the choice of English stays"):
        for path, title in (("/", "Przegląd"), ("/violations", "Naruszenia"), ("/cameras", "Kamery"), ("/certificates", "Moje certyfikaty")):
            visit(page, path)
            equal(page.locator("html").get_attribute("lang"), "pl", path)
            equal(page.locator("h1").inner_text(), title)
            accessible(page)
        visit(page, f"/violations/{ids[3][0]}")
        contains(page.locator("main").inner_text(), "Kto co zrobił")
        accessible(page)
        page.screenshot(path=SCREENSHOTS / "violation-pl.png", full_page=True)
        page.get_by_role("button", name="English").click()
        equal(page.url, f"{portal.origin}/violations/{ids[3][0]}")
        contains(page.locator("main").inner_text(), "Who did what")
        visit(page, "/")
        equal(page.locator("html").get_attribute("lang"), "en")
    context.close()


def plain(suite, portal, ids):
    context = portal.context("reviewer-3", java_script_enabled=False)
    page = context.new_page()
    with suite.case("everything works without JavaScript"):
        visit(page, "/")
        page.get_by_role("link", name="Violations", exact=True).click()
        page.locator(f'a[href="/violations/{ids[2][1]}"]').click()
        page.get_by_label("Reason").fill("not readable")
        page.get_by_role("button", name="Reject").click()
        equal(page.locator("h1 .tag.rejected").count(), 1, "number of tags in the title")
        answer = page.goto("/violations")
        policy = answer.headers["content-security-policy"]
        contains(policy, "default-src 'none'")
        assert "unsafe" not in policy, policy
    context.close()


def focused(page):
    return page.evaluate("""() => {
        const at = document.activeElement, style = getComputedStyle(at);
        return {text: (at.name || at.innerText || '').trim().split('\\n')[0], ring: style.outlineStyle,
                href: at.getAttribute('href') || ''};
    }""")


def keyboard(suite, portal):
    context = portal.context("reviewer-3")
    page = context.new_page()
    with suite.case("the keyboard reaches every control in reading order, and shows where it is"):
        visit(page, "/violations")
        order = []
        for _ in range(60):
            page.keyboard.press("Tab")
            at = focused(page)
            equal(at["ring"], "solid", f"outline of {at['text']!r}")
            order.append(at["text"] or at["href"])
            if at["href"].startswith("/violations/v-"):
                break
        wanted = ["Skip to content", "Cordon", "Overview", "Violations", "Cameras", "from", "to", "plate", "place",
                  "device", "speed", "state", "Search", "Clear"]
        positions = [order.index(name) for name in wanted]
        equal(positions, sorted(positions), f"order of {order};")
        page.keyboard.press("Enter")
        page.wait_for_url("**/violations/v-*")
    with suite.case("the first key skips to the content"):
        visit(page, "/")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.querySelector('main').contains(document.activeElement)"), focused(page)
    context.close()


def screenshots(suite, portal, ids):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    pages = [
        ("login", None, "/login", 200), ("overview", "reviewer-3", "/", 200),
        ("violations", "officer-2", "/violations", 200), ("violation", "reviewer-3", f"/violations/{ids[3][0]}", 200),
        ("cameras", "reviewer-3", "/cameras", 200), ("audit", "auditor-1", "/audit", 200),
        ("refused", "officer-2", f"/violations/{ids[3][0]}", 403),
    ]
    for name, uid, path, status in pages:
        with suite.case(f"{name}: light and dark, wide and narrow"):
            context = portal.context(uid)
            page = context.new_page()
            for width, height in ((1440, 900), (390, 844)):
                page.set_viewport_size({"width": width, "height": height})
                for scheme in ("light", "dark"):
                    page.emulate_media(color_scheme=scheme)
                    visit(page, path, status)
                    for image in page.locator("img").all():
                        image.scroll_into_view_if_needed()
                    loaded(page, "[...document.images].every(image => image.complete)")
                    beyond = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                    assert beyond <= 0, f"{beyond} pixels wider than the window of {width}"
                    size = "wide" if width > 1000 else "narrow"
                    page.screenshot(path=SCREENSHOTS / f"{name}-{scheme}-{size}.png", full_page=True)
            context.close()


def revocation(suite, site, portal, ids):
    context = portal.context("officer-2")
    page = context.new_page()
    paths = ["/", "/violations", f"/violations/{ids[1][0]}", f"/violations/{ids[1][0]}/thumbnail",
             f"/violations/{ids[1][0]}/media/0", "/cameras", "/api/v1/violations"]
    with suite.case(f"a revoked certificate opens nothing within {REVOKED_WITHIN} s, on open pages too"):
        for path in paths:
            visit(page, path)
        started = time.monotonic()
        site.ask("pki", "revoke", "--uid", "officer-2", "--reason", "key-compromise")
        revoked = time.monotonic()
        while page.goto("/violations").status == 200:
            assert time.monotonic() - started < REVOKED_WITHIN, "the page still opens"
        seconds = time.monotonic() - started
        for path in paths:
            equal(page.goto(path).status, 403, f"status of {path}")
        print(f"        refused {seconds:.2f} s after the command began, {time.monotonic() - revoked:.2f} s "
              f"after it ended all {len(paths)} addresses are", flush=True)
        visit(page, "/violations", 403)
        contains(page.locator("main").inner_text(), "revoked")
        page.screenshot(path=SCREENSHOTS / "revoked.png")
    with suite.case("a new connection with it is refused as well"):
        fresh = portal.context("officer-2")
        try:
            equal(fresh.new_page().goto("/violations").status, 403)
        except Exception as error:
            assert "ERR_" in str(error), error
        fresh.close()
    context.close()


def disabling(suite, site, portal):
    context = portal.context()
    page = context.new_page()
    with suite.case("a disabled person's password session ends"):
        log_in(page, site, "reviewer-3")
        visit(page, "/violations")
        started = time.monotonic()
        site.ask("directory", "disable", "--uid", "reviewer-3")
        answer = page.goto("/violations")
        assert answer.status == 403 or page.url.endswith("/login"), (answer.status, page.url)
        print(f"        refused {time.monotonic() - started:.2f} s after the command began", flush=True)
        page.goto("/violations")
        equal(page.url, f"{portal.origin}/login", "address of the next request")
        log_in(page, site, "reviewer-3")
        equal(page.locator("[role=alert]").count(), 1, "number of refusals")
    with suite.case("and so does the person's certificate"):
        other = portal.context("reviewer-3")
        equal(other.new_page().goto("/violations").status, 403)
        other.close()
    context.close()
