"""The portal in a browser: contexts with people's certificates, and steps that many cases take."""

import os
import re

from tests.harness import equal

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")


def launch(playwright):
    """Headless Chromium that talks to nobody but the pages it is told to open."""
    return playwright.chromium.launch(
        executable_path=CHROMIUM,
        args=["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
              "--disable-background-networking", "--disable-component-update", "--disable-sync"],
    )


class Portal:
    """Browser contexts for the people of a site; remembers what the browser complains about."""

    def __init__(self, site, browser):
        self.site, self.browser = site, browser
        self.origin = f"https://localhost:{site.portal}"
        self.complaints = []

    def context(self, uid=None, p12=None, passphrase=None, **options):
        """A context with the certificate of a person of the demo, with that of a file, or with none."""
        certificate = []
        if uid:
            people = self.site.data / "people"
            p12, passphrase = people / f"{uid}.p12", (people / f"{uid}.password").read_text().strip()
        if p12:
            certificate = [{"origin": self.origin, "pfxPath": str(p12), "passphrase": passphrase}]
        # The private root is in no browser's store; that the chain leads to it is tested elsewhere.
        context = self.browser.new_context(
            client_certificates=certificate, ignore_https_errors=True, base_url=self.origin, **options
        )
        context.set_default_timeout(15_000)
        context.on("console", lambda message: self.complain(message.type, message.text, message.location["url"]))
        context.on("weberror", lambda error: self.complain("error", str(error.error)))
        return context

    def complain(self, kind, text, address=""):
        # A page that answers 403 is reported as well, and is what some cases are about.
        expected = re.search(r"status of 40[03459]", text)
        # A picture opened by itself is shown on a page of the browser's own making, whose styles
        # our policy does not let through; the picture is there all the same.
        expected = expected or re.search(r"/(thumbnail|media/\d+)$", address)
        # What the test itself evaluates in a page is refused by our policy, and reported without
        # an address; a page's own breach names its page.
        expected = expected or (not address and "'script-src' was not explicitly set" in text)
        if kind in ("error", "warning") and not expected:
            self.complaints.append(f"{address}: {text}")


def visit(page, path, status=200):
    answer = page.goto(path)
    equal(answer.status, status, f"status of {path}")
    return page


def log_in(page, site, uid, password=None):
    visit(page, "/login")
    password = password or (site.data / "people" / f"{uid}.password").read_text().strip()
    page.get_by_label("User name").fill(uid)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
