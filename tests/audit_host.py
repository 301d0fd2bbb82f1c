"""The audit host: it mirrors a site's log, notices what is done to it, and a person closes its alarms."""

import json
import random
import shutil
import time
import urllib.error
import urllib.request

from tests.harness import CORDON, Process, Site, contains, cordon, cordon_json, equal, free_port, wait_for

# Seconds of silence before an alarm: the shortest that the settings take.
SILENT_AFTER = 15
KILLS = 12


class Host:
    """`cordon run audit` on a data folder."""

    def __init__(self, suite):
        self.folder = suite.folder / "audit-host"
        self.folder.mkdir()
        self.data, self.config = self.folder / "data", self.folder / "run.toml"
        self.listen, self.metrics = free_port(), free_port()
        self.peer = cordon_json("peer", "show", "--data", self.data)["peer"]
        self.process = None
        suite.finally_do(self.end)

    def configure(self, sources):
        lines = [
            "[audit]", f'data = "{self.data}"', 'origin = "audit.example.org/log"', f'listen = "127.0.0.1:{self.listen}"',
            f'metrics = "127.0.0.1:{self.metrics}"', f"silent_after_seconds = {SILENT_AFTER}",
        ]
        for name, key, peer in sources:
            lines += ["[[audit.sources]]", f'name = "{name}"', f'log_key = "{key}"', f'peer = "{peer}"']
        self.config.write_text("\n".join(lines) + "\n")

    def start(self):
        line = [CORDON, "run", "audit", "--config", self.config, "--json"]
        self.process = Process(line, self.folder / "host.log")
        return self.process.answer(60)

    def stop(self):
        equal(self.process.stop(), 0, "exit code of the audit host")

    def end(self):
        if self.process and self.process.running():
            self.process.kill()

    def ask(self, *words):
        return cordon_json("audit", *words, "--data", self.data)

    def alarms(self, *words):
        return self.ask("alarms", *words)["alarms"]

    def size(self):
        return self.ask("sources")["sources"][0]["size"]

    def mirror(self):
        return self.data / "sources" / "headquarters" / "log"


def http(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def checkpoint(folder):
    try:
        return (folder / "checkpoint").read_bytes()
    except FileNotFoundError:
        return None


def import_people(site, first, number):
    """Some events of the site."""
    lines = []
    for index in range(first, first + number):
        person = {
            "uid": f"officer-{index}", "name": f"Officer {index}", "email": f"o{index}@example.org",
            "organisation": "LEA-EU", "clearance": 1, "roles": ["officer"], "units": ["traffic"],
        }
        lines.append(json.dumps(person))
    file = site.folder / f"people-{first}.jsonl"
    file.write_text("\n".join(lines) + "\n")
    site.ask("directory", "import", file)


def run(suite):
    host = Host(suite)
    site = Site(suite).start()
    log = site.data / "audit" / "log"
    key = site.data / "audit" / "log.vkey"
    site.stop()
    own = cordon_json("peer", "show", "--data", site.data)["peer"]
    stranger = cordon_json("peer", "show", "--data", suite.folder / "stranger")["peer"]

    def mirrored():
        """Waits until the mirror is the log, byte for byte at its checkpoint."""
        wait_for(lambda: checkpoint(host.mirror()) == checkpoint(log), lambda: host.ask("sources"), 30)

    def connect(address=None, peer=None):
        section = f'[audit_host]\naddress = "{address or f"127.0.0.1:{host.listen}"}"\npeer = "{peer or host.peer}"\n'
        plain = site.config.read_text().split("[audit_host]")[0]
        site.config.write_text(plain + section)

    with suite.case("settings that make no sense are refused with their line, and a name that leaves the folder too"):
        equal(host.peer, cordon_json("peer", "show", "--data", host.data)["peer"], "key of the host")
        host.configure([("headquarters", "no key", own)])
        contains(cordon("run", "audit", "--config", host.config, code=1).stderr, "log_key of headquarters")
        host.configure([("../headquarters", key.read_text().strip(), own)])
        contains(cordon("run", "audit", "--config", host.config, code=1).stderr, "the name")
        host.config.write_text(host.config.read_text() + 'colour = "red"\n')
        contains(cordon("run", "audit", "--config", host.config, code=2).stderr, "colour")
        connect(peer="sha256/AAAA")
        contains(cordon("config", "check", site.config, code=2).stderr, "cordon peer show")

    host.configure([("headquarters", key.read_text().strip(), own)])
    host.start()
    connect()

    with suite.case("the log is on the audit host as it grows, and proves itself there with the site's own key"):
        site.start()
        import_people(site, 0, 5)
        mirrored()
        report = cordon_json("audit", "verify", host.mirror(), "--key", key)
        equal(report["events"], site.verify_audit()["events"], "events of the mirror")
        equal(host.alarms(), [], "alarms")
        equal(http(site.metrics, "/healthz")[1].count("audit host"), 0, "lines about the audit host")
        contains(http(site.metrics, "/metrics")[1], "cordon_audit_host_waiting 0")
        contains(http(host.metrics, "/metrics")[1], 'cordon_audit_host_entries{source="headquarters"}')

    with suite.case("a site goes on without its audit host, says so, and sends what waited"):
        host.process.kill()
        import_people(site, 10, 5)
        wait_for(lambda: "the audit host has not confirmed the log" in http(site.metrics, "/healthz")[1], lambda: http(site.metrics, "/healthz"), 90)
        equal(http(site.metrics, "/healthz")[0], 503, "health")
        host.start()
        mirrored()
        wait_for(lambda: "audit host" not in http(site.metrics, "/healthz")[1], lambda: http(site.metrics, "/healthz"), 30)

    with suite.case("an event that the catalogue marks as an alert is an alarm until a person closes it with a reason"):
        site.stop()
        cordon("audit", "accept-clock", *site.arguments(), "--reason", "battery was replaced")
        site.start()
        alarm = wait_for(lambda: [a for a in host.alarms() if a["kind"] == "clock.accept"], lambda: host.ask("sources"))[0]
        contains(alarm["about"], "battery was replaced")
        status, text = http(host.metrics, "/healthz")
        equal(status, 503, "health of the host")
        contains(text, f"alarm {alarm['number']} of headquarters: clock.accept")
        number = str(alarm["number"])
        contains(cordon("audit", "close-alarm", "--data", host.data, number, "--reason", "ok", code=1).stderr, "reason has 2 characters")
        closed = host.ask("close-alarm", number, "--reason", "battery of the server, ticket 17")["alarm"]["closed"]
        contains(closed["by"], "unix:0")
        equal([a for a in host.alarms() if a["kind"] == "clock.accept"], [], "open alarms")
        contains(cordon("audit", "close-alarm", "--data", host.data, number, "--reason", "once more", code=1).stderr, "closed already")
        own_log = cordon_json("audit", "show", host.data / "audit" / "log")["entries"]
        assert any(e["leaf"]["event"]["action"] == "alarm.close" for e in own_log), own_log

    with suite.case("a source that falls silent is an alarm within its time, also after its return"):
        site.process.kill()
        start = time.monotonic()
        wait_for(lambda: [a for a in host.alarms() if a["kind"] == "silent"], lambda: host.ask("sources"), 30)
        assert time.monotonic() - start >= SILENT_AFTER - 6, "too early"
        site.start()
        mirrored()
        wait_for(lambda: not host.ask("sources")["sources"][0]["is_silent"], lambda: host.ask("sources"))
        assert [a for a in host.alarms() if a["kind"] == "silent"], "the alarm is gone without a person"

    with suite.case("whatever is killed in whichever moment, the mirror is the log"):
        for kill in range(KILLS):
            import_people(site, 1000 + 20 * kill, 20)
            time.sleep(random.uniform(0, 0.6))
            if kill % 2:
                host.process.kill()
                host.start()
            else:
                site.process.kill()
                site.start()
        mirrored()
        cordon_json("audit", "verify", host.mirror(), "--key", key)
        cordon_json("audit", "verify", host.data / "audit" / "log", "--journals", host.data / "audit" / "journal")

    with suite.case("another key is a stranger on both sides"):
        site.stop()
        size = host.size()
        connect(peer=stranger)
        site.start()
        import_people(site, 5000, 1)
        contains(wait_for(lambda: site.log_text() if "does not get the log" in site.log_text() else None, "a refusal"), "127.0.0.1")
        equal(host.size(), size, "size of the mirror")
        site.stop()
        connect()

    with suite.case("a site whose whole folder is put back is found out by the audit host, and says so itself"):
        older = suite.folder / "older"
        shutil.copytree(site.data, older, symlinks=True)
        site.start()
        import_people(site, 6000, 3)
        mirrored()
        proof = checkpoint(host.mirror())
        site.stop()
        shutil.rmtree(site.data)
        older.rename(site.data)
        site.start()
        # The log is shorter at first, or another one at once.
        kinds = wait_for(lambda: {a["kind"] for a in host.alarms()} & {"set-back", "forked"}, lambda: host.alarms(), 30)
        assert kinds, host.alarms()
        wait_for(lambda: "the audit host refuses this log" in http(site.metrics, "/healthz")[1], lambda: http(site.metrics, "/healthz"), 30)
        import_people(site, 7000, 30)
        wait_for(lambda: [a for a in host.alarms() if a["kind"] == "forked"], lambda: host.alarms(), 30)
        equal(checkpoint(host.mirror()), proof, "checkpoint of the mirror")
        cordon_json("audit", "verify", host.mirror(), "--key", key)
        site.stop()

    with suite.case("a mirror that lost entries is refused and reported, and a lost log of its own keeps the audit host from starting"):
        host.stop()
        shutil.rmtree(host.data / "sources")
        host.start()
        assert [a for a in host.alarms() if a["kind"] == "mirror"], host.alarms()
        contains(http(host.metrics, "/healthz")[1], "the source headquarters is not mirrored")
        host.stop()
        shutil.rmtree(host.data / "audit" / "log")
        contains(cordon("run", "audit", "--config", host.config, code=1).stderr, "the audit log is gone")
