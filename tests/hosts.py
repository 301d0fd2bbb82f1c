"""A site on two hosts: registry and directory on one, centre and portal on the other, and the way between them."""

import concurrent.futures
import json
import random
import time
import urllib.parse

from tests.audit_host import Host as AuditHost, checkpoint
from tests.insiders import events
from tests.harness import CORDON, Camera, Process, Site, contains, cordon, cordon_json, equal, free_port, jpeg, request, wait_for

KILLS = 10


class Centre:
    """`cordon run centre portal` on a data folder."""

    def __init__(self, suite):
        self.suite = suite
        self.folder = suite.folder / "centre"
        self.folder.mkdir()
        self.data, self.config, self.log = self.folder / "data", self.folder / "cordon.toml", self.folder / "centre.log"
        self.portal, self.intake, self.metrics = (free_port() for _ in range(3))
        self.peer = cordon_json("peer", "show", "--data", self.data)["peer"]
        self.process = None
        suite.finally_do(self.end)

    def configure(self, address, peer):
        self.config.write_text(
            '[site]\nlog_origin = "centre.example.org/audit"\n'
            f'[listen]\nportal = "127.0.0.1:{self.portal}"\nintake = "127.0.0.1:{self.intake}"\nmetrics = "127.0.0.1:{self.metrics}"\n'
            f'[registry_host]\naddress = "{address}"\npeer = "{peer}"\n'
        )

    def start(self, wait=True):
        line = [CORDON, "run", "centre", "portal", "--data", self.data, "--config", self.config, "--json"]
        self.process = Process(line, self.log)
        if wait:
            self.process.answer(60)

    def stop(self):
        equal(self.process.stop(), 0, "exit code of the centre's host")

    def end(self):
        if self.process and self.process.running():
            self.process.kill()


def page(person):
    """The status of a person's list of violations; 0 while nobody listens."""
    try:
        return person.request("GET", "/api/v1/violations").status
    except (OSError, EOFError):
        return 0


def health(port):
    import urllib.error
    import urllib.request
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return ""


def run(suite):
    centre = Centre(suite)
    peers = free_port()
    hosts = (f'[hosts]\nlisten = "127.0.0.1:{peers}"\n[[hosts.peers]]\nname = "centre"\npeer = "{centre.peer}"\n'
             f'names = ["localhost", "127.0.0.1"]\nintake = "localhost:{centre.intake}"\n')
    site = Site(suite, "registry", hosts)
    own = cordon_json("peer", "show", "--data", site.data)["peer"]
    stranger = cordon_json("peer", "show", "--data", suite.folder / "stranger")["peer"]
    centre.configure(f"127.0.0.1:{peers}", own)

    with suite.case("roles that do not go together, and settings that lack the other host, are refused"):
        contains(cordon("run", "registry", "--data", site.data, "--config", site.config, code=2).stderr, "do not run together")
        contains(cordon("run", "centre", "portal", "--data", site.folder / "other", "--config", site.config, code=1).stderr, "names no host with a registry")
        contains(cordon("run", "registry", "directory", "--data", suite.folder / "plain", "--config", centre.config, code=1).stderr, "the registry of this site is on")
        contains(cordon("up", "--data", suite.folder / "plain", "--config", centre.config, code=1).stderr, "cordon run centre portal")
        contains(cordon("up", "--data", suite.folder / "whole", "--config", site.config, code=1).stderr, "remove [hosts]")

    with suite.case("the centre's host waits for the registry's, and nothing listens before that"):
        centre.start(wait=False)
        wait_for(lambda: "waiting for the registry's host" in centre.log.read_text(), centre.log.read_text, 30)
        equal(centre.process.running(), True, "runs")
        site.start("run", "registry", "directory")
        centre.process.answer(60)

    # People ask the portal, which is the centre's.
    site.portal = centre.portal
    people = site.people([("reviewer-4", 4, ["reviewer"]), ("officer-1", 1, ["officer"])])
    reviewer = people["reviewer-4"]

    with suite.case("a camera enrols with the registry, and its evidence is at the centre for those who may see it"):
        camera = Camera(site).start()
        camera.drop("first", jpeg(b"first"), plate="HOST 1", classification=2)
        camera.drain()
        equal([row["plate"] for row in reviewer.violations()], ["HOST 1"], "plates")
        equal(people["officer-1"].violations(), [], "what the officer of level 1 sees")
        equal(cordon_json("audit", "verify", centre.data / "audit" / "log", "--journals", centre.data / "audit" / "journal")["origin"],
              "centre.example.org/audit", "the centre's own log")

    with suite.case("a stranger's key, a foreign host's name and the centre's own folder without its settings are refused"):
        other = suite.folder / "strange.toml"
        other.write_text(centre.config.read_text().replace(own, stranger))
        strange = Process([CORDON, "run", "centre", "portal", "--data", suite.folder / "stranger", "--config", other], suite.folder / "stranger.log")
        wait_for(lambda: "waiting for the registry's host" in (suite.folder / "stranger.log").read_text(), strange.tail, 30)
        strange.kill()
        equal((suite.folder / "stranger" / "centre").exists(), False, "a centre of the stranger")
        contains(cordon("evidence", "rebuild-index", "--data", centre.data, code=1).stderr, "registry_host.address")
        whole = suite.folder / "whole.toml"
        whole.write_text(centre.config.read_text().split("[registry_host]")[0])
        contains(cordon("up", "--data", centre.data, "--config", whole, code=1).stderr, "it has no registry")
        equal((centre.data / "registry.sqlite").exists(), False, "a registry on the centre's host")

    with suite.case("a person who is disabled is refused at the next request, and admitted once enabled"):
        equal(page(people["officer-1"]), 200, "before")
        site.ask("directory", "disable", "--uid", "officer-1")
        equal(page(people["officer-1"]), 403, "disabled")
        site.ask("directory", "enable", "--uid", "officer-1")
        equal(page(people["officer-1"]), 200, "enabled")

    with suite.case("guesses of passwords at the portal are in the registry's log, and keep no camera out"):
        guess = urllib.parse.urlencode({"uid": "reviewer-4", "password": "a wrong password"})
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        with concurrent.futures.ThreadPoolExecutor(16) as guesses:
            answers = [guesses.submit(request, centre.portal, "POST", "/login", site.root, None, guess, form) for _ in range(32)]
            camera.drop("beside", jpeg(b"beside"), plate="BESIDE 1")
            camera.drain(30)
        equal([answer.result().status for answer in answers if answer.result().status < 400], [], "logins by guesses")
        refused = events(site, "session.refuse")
        equal({event["resource"] for event in refused}, {"hosts"}, "objects of the refusals in the registry's log")

    with suite.case("a lost announcement of sealing keys is made again"):
        (site.data / "recipients.json").unlink()
        wait_for((site.data / "recipients.json").exists, centre.log.read_text, 30)

    with suite.case("a device that is revoked sends nothing more"):
        second = Camera(site, "camera-18").start()
        second.drop("a", jpeg(b"a"))
        second.drain()
        site.ask("pki", "revoke", "--device", "camera-18", "--reason", "key-compromise")
        second.drop("b", jpeg(b"b"))
        wait_for(lambda: "revoked" in second.log.read_text(), lambda: second.log.read_text()[-1500:], 30)
        equal(len(second.receipts()), 1, "receipts of the revoked camera")
        second.stop()

    with suite.case("the portal has the registry's pages: a registrar finds and begins requests, others do not"):
        registrar = site.people([("registrar-1", 2, ["registrar"])])["registrar-1"]
        shown = registrar.request("GET", "/requests")
        equal(shown.status, 200, shown.text[-300:])
        menu = [f'href="{path}"' for path in ("/violations", "/cameras", "/certificates", "/requests")]
        equal([part for part in menu if part not in shown.text], [], "entries of the menu that are missing")
        equal(registrar.request("GET", "/requests/new").status, 200, "a new request")
        foreign = registrar.request("POST", "/requests/new", "act=issue", {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "cross-site"})
        equal(foreign.status, 403, "a form of another site")
        equal(reviewer.request("GET", "/requests").status, 404, "a reviewer")
        equal(reviewer.request("GET", "/certificates").status, 200, "own certificates")
        contains(reviewer.request("GET", "/certificates", headers={"Accept-Language": "pl"}).text, 'lang="pl"')
        # Who reaches the portal cannot name somebody else.
        named = reviewer.request("GET", "/requests", headers={"Cordon-Chain": "AAAA", "Cordon-From": "192.0.2.1"})
        equal(named.status, 404, "a reviewer who names another person")

    with suite.case("commands about evidence are given at the centre's host, and others at the registry's"):
        arguments = ["--data", centre.data, "--config", centre.config]
        violation = next(row["id"] for row in reviewer.violations() if row["plate"] == "HOST 1")
        out = suite.folder / "package"
        cordon_json("evidence", "export", violation, "--out", out, *arguments, *reviewer.signs())
        trust = suite.folder / "trust.json"
        trust.write_text(cordon("evidence", "trust", *arguments, "--json").stdout)
        cordon("evidence", "check", out, "--trust", trust)
        contains(cordon("pki", "list", *arguments, code=1).stderr, "the registry of this site is on")
        contains(cordon("evidence", "trust", *site.arguments(), code=1).stderr, "the centre of this site is on another host")
        equal(cordon_json("evidence", "quarantine", "list", *arguments, *reviewer.signs())["blocks"], [], "quarantine")

    with suite.case("without the registry's host nobody is admitted, health says so, and it recovers by itself"):
        site.process.kill()
        equal(page(reviewer), 503, "a page without the registry")
        camera.drop("late", jpeg(b"late"))
        wait_for(lambda: "the registry's host" in health(centre.metrics), lambda: health(centre.metrics), 30)
        time.sleep(2)
        equal(len(camera.waiting()) > 0, True, "the picture waits")
        site.start("run", "registry", "directory")
        wait_for(lambda: page(reviewer) == 200, lambda: page(reviewer), 30)
        camera.drain()
        wait_for(lambda: "the registry's host" not in health(centre.metrics), lambda: health(centre.metrics), 30)

    with suite.case(f"either host is killed at {KILLS} random moments while a camera sends: nothing acknowledged is lost"):
        dice = random.Random(20)
        for number in range(KILLS):
            camera.drop(f"kill-{number}", jpeg(b"kill %d" % number, 200_000), plate=f"K {number}")
            time.sleep(dice.random() * 0.8)
            if number % 2:
                site.process.kill()
                site.start("run", "registry", "directory")
            else:
                centre.process.kill()
                centre.start()
        camera.drain(120)
        wait_for(lambda: page(reviewer) == 200, lambda: page(reviewer), 30)
        plates = [row["plate"] for row in reviewer.violations()]
        for number in range(KILLS):
            equal(plates.count(f"K {number}"), 1, f"violations with the plate K {number}")
        camera.stop()

    with suite.case("an audit host mirrors the logs of both hosts"):
        host = AuditHost(suite)
        centre.stop()
        site.stop()
        sources = [("registry", site, own), ("centre", centre, centre.peer)]
        host.configure([(name, (of.data / "audit" / "log.vkey").read_text().strip(), peer) for name, of, peer in sources])
        host.start()
        for _, of, _ in sources:
            of.config.write_text(of.config.read_text() + f'[audit_host]\naddress = "127.0.0.1:{host.listen}"\npeer = "{host.peer}"\n')
        site.start("run", "registry", "directory")
        centre.start()
        for name, of, _ in sources:
            mirror = host.data / "sources" / name / "log"
            wait_for(lambda: checkpoint(mirror) == checkpoint(of.data / "audit" / "log") is not None, lambda: host.ask("sources"), 30)
            cordon("audit", "verify", mirror, "--key", of.data / "audit" / "log.vkey")
        # While the hosts were killed, the camera may have had no answer about trust, which its journal says.
        equal([alarm for alarm in host.alarms() if not alarm["kind"].startswith("camera.")], [], "alarms")
        host.stop()

    with suite.case("both end in order, and both logs prove themselves"):
        centre.stop()
        site.stop()
        for data in (site.data, centre.data):
            cordon_json("audit", "verify", data / "audit" / "log", "--journals", data / "audit" / "journal")
