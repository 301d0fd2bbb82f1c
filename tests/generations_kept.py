"""Generations over the years: one that waits and one that is dropped, an authority that has expired, a database that was changed."""

import json
import re
import sqlite3

from tests import ceremony
from tests.harness import Camera, Site, contains, cordon, equal, jpeg, wait_for
from tests.harness import run as execute
from tests.years import Clock, http

# The authorities live ten years.
LATE, OVER = 9 * 365, 10 * 365 + 30


def refused(site, *command, **options):
    """The error of a command about this site, as machines read it."""
    done = cordon(*command, *site.arguments(), "--json", "--log", "off", code=1, **{**site.options, **options})
    equal(done.stdout, "")
    error = json.loads(done.stderr)
    equal(sorted(error), ["error", "exit_code", "to_do"])
    equal(error["exit_code"], 1)
    return error


def states(site, kind):
    listed = site.ask("pki", "authorities", "--kind", kind)["authorities"]
    return {one["name"]: one["state"] for one in listed}


def dropped(suite):
    site = Site(suite, "dropped").start()
    root = ("--root-passphrase-file", site.data / "passphrase")
    with suite.case("while a generation waits there is no other one, and what to do is said; one that is dropped makes room"):
        site.ask("pki", "new-authority", "users", *root)
        for command in (("new-authority", "users", *root), ("request-authorities", "--new", "users", "--out", site.folder / "requests")):
            error = refused(site, "pki", *command)
            contains(error["error"], "users-g2 waits to be put to use")
            contains(error["to_do"], "cordon pki drop-authority users-g2")
        equal(site.ask("pki", "drop-authority", "users-g2"), {"dropped": "users-g2"})
        assert not (site.data / "pki" / "users-g2-ca.key").exists()
        contains(refused(site, "pki", "activate-authority", "users-g2")["error"], "not one that waits")
        contains(refused(site, "pki", "drop-authority", "users")["error"], "it issues")
        site.ask("pki", "new-authority", "users", *root)
        equal(states(site, "users"), {"users": "issuing", "users-g2": "retired", "users-g3": "ready"})
        site.ask("pki", "activate-authority", "users-g3")
        equal(site.people()["officer-2"].request("GET", "/").status, 200)
        site.stop()
        site.verify_audit()
    return site


def changed(suite, site):
    """Somebody writes to the database of a site that does not run."""
    root = ("--root-passphrase-file", site.data / "passphrase")
    database = site.data / "registry.sqlite"

    def write(*statements):
        with sqlite3.connect(database) as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()

    def by_hand(generation):
        write(
            "UPDATE authorities SET state = 'retired' WHERE kind = 'users' AND state = 'issuing'",
            f"UPDATE authorities SET state = 'issuing' WHERE kind = 'users' AND generation = {generation}",
        )

    site.config.write_text(site.config.read_text() + '\n[registration]\napprovals = "required"\n')
    with suite.case("an authority that was put to use in the database, without its approvals, stops the start; so does one of before"):
        site.ask("pki", "new-authority", "users", *root)
        for generation in (4, 1):
            by_hand(generation)
            error = refused(site, "up")
            contains(error["error"], "was changed by something else than this program")
            contains(error["to_do"], "newest copy of the data folder")
        by_hand(3)
        write("UPDATE authorities SET state = 'ready' WHERE kind = 'users' AND generation = 4")
    with suite.case("two generations that issue stop the start"):
        write("DROP INDEX authorities_issuing", "UPDATE authorities SET state = 'issuing' WHERE kind = 'users' AND generation = 4")
        contains(refused(site, "up")["error"], "it says that both users-g3 and users-g4 issue")
        write(
            "UPDATE authorities SET state = 'ready' WHERE kind = 'users' AND generation = 4",
            "CREATE UNIQUE INDEX authorities_issuing ON authorities (kind) WHERE state = 'issuing'",
        )
        site.start()
        site.stop()
    with suite.case("a person may let the site go on with an older database, which is in the log"):
        by_hand(1)
        refused(site, "up")
        site.ask("audit", "accept-loss", "--reason", "an older copy of the database")
        site.start()
        equal(states(site, "users")["users"], "issuing")
        site.stop()
        site.verify_audit()


def many(suite):
    """More generations of services than a camera takes lists of, all of them within a day."""
    site = Site(suite, "many").start()
    camera = Camera(site).start()
    server = site.data / "keys" / "server.pem"

    def delivered(name):
        camera.drop(name, jpeg(name.encode()))
        camera.drain()

    with suite.case("eight roll-overs of the services authority in a row: a camera goes on, and the site's own certificates follow"):
        delivered("first")
        for number in range(2, 10):
            site.ask("pki", "new-authority", "services", "--root-passphrase-file", site.data / "passphrase")
            site.ask("pki", "activate-authority", f"services-g{number}")
        shown = lambda: execute("openssl", "x509", "-in", server, "-noout", "-issuer").stdout
        # Cameras are told of five, of which the fifth generation is the oldest.
        wait_for(lambda: re.search(r"services CA G[5-9]", shown()), shown, 20)
        listed = site.ask("pki", "authorities", "--kind", "services")["authorities"]
        equal([one["needed"] for one in listed], [True] * 9)
        delivered("last")
        camera.stop()
        camera.start()
        delivered("after a restart")
        camera.stop()
        site.stop()


def expired(suite):
    clock = Clock(suite.folder)
    site = Site(suite, "expired")
    site.options = {"env": clock.environment()}
    key, away = site.data / "pki" / "root.key", suite.folder / "root.key"
    site.start()
    site.stop()
    key.rename(away)
    clock.set(LATE)
    site.start()
    with suite.case("an authority that ends soon is a warning, which names the generation that waits once there is one"):
        contains(http(site, "/healthz")[1], "cordon pki new-authority services")
        away.rename(key)
        made = site.ask("pki", "new-authority", "services", "--root-passphrase-file", site.data / "passphrase")
        equal(made, {"authority": "services-g2"})
        key.rename(away)
        contains(http(site, "/healthz")[1], "put services-g2 to use, `cordon pki activate-authority services-g2`")
    site.stop()
    clock.set(OVER)
    with suite.case("where the authorities have expired, the commands work that lead out of it, the site running or not"):
        listed = site.ask("pki", "authorities")["authorities"]
        equal({one["name"]: one["expired"] for one in listed}, {"users": True, "devices": True, "services": True, "services-g2": False})
        out = suite.folder / "requests"
        equal(len(site.ask("pki", "request-authorities", "--new", "users", "--out", out)["requests"]), 1)
        site.start()
        status, text = http(site, "/healthz")
        equal(status, 503)
        contains(text, "certificate services-ca expired on")
        equal(site.ask("pki", "activate-authority", "services-g2"), {"issuing": "services-g2", "former": "services"})
        wait_for(lambda: "certificate server expired" not in http(site, "/healthz")[1], lambda: http(site, "/healthz")[1], 30)
        site.stop()
    with suite.case("the root's key renews those that issue, at the next start, also while another generation waits"):
        away.rename(key)
        site.ask("pki", "new-authority", "devices", "--root-passphrase-file", site.data / "passphrase")
        site.start()
        listed = {one["name"]: one for one in site.ask("pki", "authorities")["authorities"]}
        equal([listed[name]["expired"] for name in ("users", "devices", "devices-g2")], [False] * 3)
        equal(http(site, "/healthz")[0], 200)
        site.stop()
    with suite.case("a generation whose certificate begins later stops no start, and is put to use from then on"):
        # The root's list and the latest time that was known would be ahead, too, which is another matter.
        known = {path: path.read_bytes() for path in (site.data / "pki" / "crl" / "root.crl", site.data / "last-time") if path.exists()}
        clock.set(OVER + 400)
        made = site.ask("pki", "new-authority", "users", "--root-passphrase-file", site.data / "passphrase")
        equal(made, {"authority": "users-g2"})
        clock.set(OVER + 1)
        for path, content in known.items():
            path.write_bytes(content)
        site.start()
        contains(http(site, "/healthz")[1], "users-g2 authority waits to be put to use, and is not used before")
        contains(refused(site, "pki", "activate-authority", "users-g2")["error"], "its certificate is valid from")
        site.stop()


def installed_twice(suite):
    site, root = Site(suite, "elsewhere"), ceremony.Root(suite.folder)
    ceremony.requests(suite, site, root)
    made = json.loads(root.hold(root.first).stdout)
    install = ("pki", "install-authorities", root.number(1), "--root-sha256", made["root_sha256"])
    with suite.case("authorities that are installed twice before the first start are refused, and what to do is said"):
        site.ask(*install)
        error = refused(site, *install)
        contains(error["error"], f"{site.data} has its authorities of a ceremony, and was not started yet")
        contains(error["to_do"], f"cordon up --data {site.data}")
        site.start()
        site.stop()


def run(suite):
    installed_twice(suite)
    changed(suite, dropped(suite))
    many(suite)
    expired(suite)
