"""Foreign applications: who sees and opens them, and how they log people in.

    python -m tests services
"""

import re
import shutil
import sqlite3
import sys

from tests.harness import PEOPLE, Site, contains, cordon, equal
from tests.runner import main

ADMINISTRATOR = ("administrator-4", 4, ["administrator"])


def tiles(person, path="/"):
    """Identifiers of the services that a page shows to somebody."""
    answer = person.request("GET", path)
    equal(answer.status, 200, f"status of {path}")
    return re.findall(r'href="/services/([a-z0-9-]+)"', answer.text)


def add(site, name, by=None, level=1, roles=("officer",), more=(), code=0):
    """Registers a service; the JSON answer, or the message of a refusal."""
    words = ["service", "add", "--id", name, "--name", name.title(), "--address", f"https://{name}.example.org/start", "--owner", "IT department", "--level", level]
    words += [part for role in roles for part in ("--role", role)] + list(more)
    if code == 0:
        return site.ask(*words, by=by)
    signed = by.signs() if by else []
    return cordon(*words, *site.arguments(), *signed, code=code).stderr


def registry(suite, site, people):
    officer, reviewer, administrator = people["officer-2"], people["reviewer-3"], people["administrator-4"]
    with suite.case("tiles are those that the rules open to each person"):
        contains(officer.request("GET", "/").text, "No application of others is open to you now.")
        add(site, "wiki")
        add(site, "press", more=["--unit", "press"])
        add(site, "desk", roles=["reviewer", "auditor"], level=1)
        add(site, "vault", by=administrator, level=3, roles=["officer", "reviewer"])
        equal(tiles(officer), ["wiki"], "the officer's tiles")
        equal(tiles(reviewer), ["desk", "vault", "wiki"], "the reviewer's tiles")
        equal(tiles(people["auditor-1"]), ["desk"], "the auditor's tiles")
        equal(tiles(administrator), [], "the administrator's tiles")
        equal(tiles(reviewer, "/services?q=VAU"), ["vault"], "tiles that a search finds")
    with suite.case("opening leads to the address, and a refusal says why"):
        opened = officer.request("GET", "/services/wiki")
        equal((opened.status, opened.headers["location"]), (303, "https://wiki.example.org/start"), "answer")
        for name, reason, rule in (
            ("vault", "its level is above your clearance", "service-above-clearance"),
            ("press", "it is for units that you do not work for", "service-of-other-units"),
            ("desk", "no rule permits it for your roles", None),
        ):
            refused = officer.request("GET", f"/services/{name}")
            equal(refused.status, 403, f"status of {name}")
            contains(refused.text, reason)
            assert rule is None or f"<code>{rule}</code>" in refused.text, refused.text
            assert "location" not in refused.headers
        equal(officer.request("GET", "/services/none").status, 404, "status of an unknown service")
        equal(officer.request("GET", "/services/WIKI").status, 404, "status of another spelling")
    with suite.case("a change takes effect at the next request"):
        site.ask("service", "change", "wiki", "--level", "3", by=administrator)
        equal(tiles(officer), [], "tiles")
        equal(officer.request("GET", "/services/wiki").status, 403, "status")
        site.ask("service", "change", "wiki", "--level", "1", by=administrator)
        equal(tiles(officer), ["wiki"], "tiles")
        shown = site.ask("service", "show", "wiki")
        equal((shown["revision"], shown["level"]), (3, 1), "revision and level")
        site.ask("service", "remove", "desk")
        equal(tiles(people["auditor-1"]), [], "tiles")
    with suite.case("an officer and the console write no service that is not theirs to write"):
        refused = add(site, "mine", by=officer, code=1)
        contains(refused, "officer-2 may not service.write service/mine: no rule permits it for your roles")
        contains(add(site, "secret", level=3, code=1), "a service of level 3 or more is registered by a person")
        lower = cordon("service", "change", "vault", "--level", "0", *site.arguments(), code=1)
        contains(lower.stderr, "a service of level 3 or more is registered by a person")
        raised = cordon("service", "change", "wiki", "--level", "4", *site.arguments(), code=1)
        contains(raised.stderr, "a service of level 3 or more is registered by a person")
        removed = cordon("service", "remove", "vault", *site.arguments(), code=1)
        contains(removed.stderr, "a service of level 3 or more is registered by a person")
        equal([one["id"] for one in site.ask("service", "list")["services"]], ["press", "vault", "wiki"], "services")
    with suite.case("unusable records are refused with the field"):
        for words, message in (
            (["--address", "http://wiki.example.org/"], "address: must be an https:// address"),
            (["--address", "https://wiki.example.org\\@evil.example/"], "address: must be an https:// address"),
            (["--name", "Wi\u202eki"], "name: must have 1 to 64 characters"),
            (["--redirect", "http://wiki.example.org/callback", "--secret-out", suite.folder / "none.secret"], "redirects: must be https:// addresses"),
            (["--redirect", "https://wiki.example.org/callback"], "key: must be given"),
        ):
            contains(cordon("service", "change", "wiki", *words, *site.arguments(), code=1).stderr, message)
        contains(add(site, "wiki", code=1), "there is a service wiki already")
        contains(add(site, "Wiki", code=1), "id: must be 1 to 32 small letters")
        contains(cordon("service", "change", "wiki", *site.arguments(), code=1).stderr, "nothing of the service wiki is to change")
        contains(cordon("service", "show", "none", *site.arguments(), code=1).stderr, "there is no service none")
        assert not (suite.folder / "none.secret").exists()


def stored(suite, site):
    with suite.case("services survive a restart, and a record changed from outside stops the site"):
        site.stop()
        site.start()
        equal([one["id"] for one in site.ask("service", "list")["services"]], ["press", "vault", "wiki"], "services")
        site.stop()
        copy = suite.folder / "changed"
        shutil.copytree(site.data, copy)
        with sqlite3.connect(copy / "directory.sqlite") as database:
            changed = database.execute("""UPDATE services SET record = replace(record, '"level":3', '"level":0') WHERE id = 'vault'""")
            equal(changed.rowcount, 1, "changed rows")
        refused = cordon("service", "list", "--data", copy, "--config", site.config, code=1)
        contains(refused.stderr, "the database was changed by something else than this program")
        site.start()
    with suite.case("each change and each opening is in the log, which verifies"):
        site.verify_audit()
        actions = [row.split("</code>")[0] for row in site.log_pages()]
        for action in ("service.add", "service.change", "service.remove", "service.open", "service.write"):
            assert action in actions, (action, sorted(set(actions)))


class LoggedSite(Site):
    """A site whose log an auditor reads."""

    def log_pages(self):
        auditor, rows, path = self.auditor, [], "/audit"
        while path:
            text = auditor.request("GET", path).text
            rows += text.split("<td><code>")[1:]
            older = re.search(r'href="(/audit\?before=\d+)" rel="next"', text)
            path = older and older[1]
        return rows


def run(suite):
    site = LoggedSite(suite).start()
    people = site.people([*PEOPLE, ADMINISTRATOR])
    site.auditor = people["auditor-1"]
    registry(suite, site, people)
    stored(suite, site)
    site.stop()


if __name__ == "__main__":
    sys.exit(main([sys.modules[__name__]]))
