"""Hostile strings in everything that strangers and file systems control: no queue stops, and no line of a log is forged."""

import time
import base64
import contextlib
import fcntl
import hashlib
import json
import re
import sqlite3
import urllib.error
import urllib.parse
import urllib.request

from tests.harness import CORDON, Camera, Site, contains, cordon, equal, jpeg, request, run as run_command, wait_for
from tests.ike_lab import Authority, Daemon, Lab, certificate_auth, connection, mirrored
from tests.insiders import events

# What would be the beginning of a line of its own, if a string could begin one.
FORGED = "FORGED"
# Characters that end lines, move the cursor, reorder a line or are not seen.
BREAKS = [
    "\n", "\r", "\r\n", "\t", "\v", "\f", "\x01", "\x07", "\b", "\x1b[2K", "\x1b]0;title\x07", "\x1c", "\x1e", "\x1f", "\x7f", "\x80", "\x85",
    "\x9b2J", "\x9d", "\xad", "\u061c", "\u070f", "\u180e", "\u200b", "\u200c", "\u200d", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a",
    "\u202b", "\u202d", "\u202e", "\u2060", "\u2061", "\u2064", "\u2066", "\u2067", "\u2068", "\u2069", "\u206a", "\u206f", "\ufeff", "\ufff9",
    "\ufffb", "\U000110bd", "\U0001bca0", "\U0001d173", "\U000e0001", "\U000e0041",
]
# And what looks like an escape, like JSON, like a record or like markup.
PLAIN = [
    "\\u{85}", "\\n", "\\", "%0a", "&#10;", '"},{"action":"evidence.view"', "'; DROP TABLE people; --", "<script>", "${jndi:x}", "\u3164", "\ufe0f",
]
HOSTILE = [f"a{c}{FORGED}" for c in BREAKS] + [f"a{text}" for text in PLAIN]
INVISIBLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\U000110bd\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
# The beginning of each line of a log.
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z +(ERROR|WARN|INFO|DEBUG|TRACE) ")
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def lines_are_whole(name, text, stamped=False):
    """No line has an invisible character or was begun by a string."""
    found = INVISIBLE.search(text)
    assert not found, f"{name}: {found[0]!r} in {text[max(0, found.start() - 200):found.end() + 50]!r}"
    forged = [line for line in text.split("\n") if line.startswith(FORGED) or stamped and line and not STAMP.match(line)]
    equal(forged, [], f"forged lines of {name}")


def canonical(value):
    """RFC 8785 for what events have: keys in ASCII, whole numbers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


class Journal:
    """A journal on disk, to which records are added as earlier versions wrote them."""

    def __init__(self, folder, role):
        self.role = role
        self.file = max(folder.glob("*.journal"))
        content = self.file.read_bytes()
        equal(content[:8], b"CORDONJ1", "kind of journal")
        self.seq, self.prev = int.from_bytes(content[8:16], "big") - 1, content[16:48]
        at = 48
        while at < len(content):
            end = at + 4 + int.from_bytes(content[at:at + 4], "big")
            self.seq, self.prev = self.seq + 1, content[end:end + 32]
            at = end + 32

    def add(self, action, actor, resource, text):
        event = {
            "action": action, "actor": {"id": actor, "kind": "device"}, "at": "2026-11-21T09:00:00.123Z", "details": {"name": text},
            "outcome": "fail", "reason": text, "resource": resource, "role": self.role, "v": 1,
        }
        self.seq += 1
        leaf = canonical({"event": event, "prev": self.prev.hex(), "role": self.role, "seq": self.seq})
        self.prev = hashlib.sha256(leaf).digest()
        with self.file.open("ab") as file:
            file.write(len(leaf).to_bytes(4, "big") + leaf + self.prev)
        return self.seq, self.prev.hex()


def is_free(lock):
    """Tells whether no process holds the lock of a journal; one that ends gives it up with its children."""
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def add_all(journal, action, actor, resource):
    """Adds a record for each hostile string; gives hash and text by number."""
    return {seq: (digest, text) for text in HOSTILE for seq, digest in [journal.add(action, actor, resource, text)]}


def check_taken(found, added, action):
    """Each record is in the log: as it is, or marked with its number, its hash and the reason."""
    by_number = {event["details"]["journal_seq"]: event for event in found}
    for seq, (digest, text) in added.items():
        event = by_number[seq]
        if INVISIBLE.search(text) or "\n" in text:
            equal(event["action"], "journal.refused", f"action of {text!r}")
            contains(event["reason"], "control or format character")
            assert FORGED in event["details"]["record"], event
        else:
            equal((event["action"], event["reason"]), (action, text), "event")
        if action.startswith("camera."):
            equal(event["details"]["journal_sha256"], digest, f"hash of {text!r}")


def camera(suite, site):
    agent = Camera(site)
    text = agent.config.read_text()
    agent.config.write_text(text.replace("[watch]\n", "[watch]\npair_wait_secs = 1\n"))
    pictures = iter(range(1000))

    def sentinel(count):
        """A command arrives in the site's log after everything before it."""
        cordon("camera", "accept-log", "--config", agent.config)

        def there():
            agent.drop(f"picture-{next(pictures)}", jpeg(b"a picture", 1_000))
            return len(events(site, "camera.accept-log")) >= count

        wait_for(there, lambda: agent.log.read_text()[-3000:], 60, pause=1)

    def status(code):
        return cordon("camera", "status", "--config", agent.config, code=code).stdout

    agent.start()
    with suite.case("a camera's journal moves on whatever files are called"):
        for number, text in enumerate(HOSTILE):
            name = text.replace("/", "") if number % 2 else f"{text}.jpg"
            (agent.incoming / name).write_bytes(b"no picture")
        with open(agent.incoming.as_posix().encode() + b"/a\xff\xed\xa0\x80\n.jpg", "wb") as file:
            file.write(b"no picture")
        wait_for(lambda: agent.log.read_text().count("source rejected") >= 25, agent.log.read_text, 60)
        sentinel(1)
        rejected = events(site, "camera.reject")
        names = [event["details"]["name"] for event in rejected]
        assert any("\\u{" in name for name in names) and not any(INVISIBLE.search(name) for name in names), names
    with suite.case("records that an earlier version wrote do not stop it: each is marked, and what comes after it is taken"):
        agent.stop()
        lock = agent.folder / "spool" / "journal" / "lock"
        wait_for(lambda: is_free(lock), "the end of the agent's children")
        journal = Journal(agent.folder / "spool" / "journal", "camera")
        added = add_all(journal, "camera.reject", "camera-17", "camera/camera-17")
        agent.start()
        # A command that has the journal meanwhile would stop the start.
        wait_for(lambda: not is_free(lock), "the agent's journal")
        sentinel(2)
        check_taken(events(site, "journal.refused", "camera.reject"), added, "camera.reject")
        # Ends with 1 for the sources that were set aside, and not for the journal.
        assert "does not move" not in status(1)
    with suite.case("a file in the inbox of commands that is none is marked"):
        inbox = agent.folder / "spool" / "journal" / "commands"
        inbox.mkdir(exist_ok=True)
        (inbox / "0.json").write_bytes(HOSTILE[0].encode() + b"\xff")
        sentinel(3)
        marked = [event for event in events(site, "journal.refused") if event["details"].get("file") == "0.json"]
        equal([event["details"]["content"] for event in marked], ["a\\u{a}FORGED\\x{ff}"], "content")
    with suite.case("no line of the camera's log or of its commands is forged"):
        lines_are_whole("the camera's log", agent.log.read_text(errors="replace"), stamped=True)
        lines_are_whole("status", status(1))
        lines_are_whole("damaged", cordon("camera", "damaged", "--config", agent.config, code=None).stdout)
    agent.stop()
    return agent


def listeners(suite, site):
    with suite.case("no line of the site's log is forged by names at login, at EST, or by addresses and headers"):
        for text in HOSTILE:
            quoted = urllib.parse.quote(text, safe="")
            form = f"uid={quoted}&password=guess"
            request(site.portal, "POST", "/login", site.root, None, form, FORM)
            plain = text.encode("latin-1", "replace").replace(b"\n", b"%0a").replace(b"\r", b"%0d").decode("latin-1")
            agent = re.sub(r"[\x00-\x1f\x7f]", "?", plain)
            for port in (site.portal, site.enrolment):
                request(port, "GET", f"/{quoted}?{quoted}", site.root, None, None, {"User-Agent": agent})
            user = base64.b64encode(f"{text}:guess-guess-guess".encode()).decode()
            headers = {"Content-Type": "application/pkcs10", "Authorization": f"Basic {user}"}
            request(site.enrolment, "POST", "/.well-known/est/simpleenroll", site.root, None, b"bm9pc2U=", headers)
        lines_are_whole("the site's log", site.log_text().split("}\n", 1)[-1])


def tunnels(suite, site):
    lab = Lab(suite)
    good = Authority(suite.folder / "good")
    good.issue("theirs")
    good.issue("ours")
    trust = f'trust = {{ anchors = ["{good.folder}/ca.pem"] }}\n'
    audit = f'audit = {{ folder = "journal", site = "{site.data}" }}\n'
    gateway = Daemon(lab, "server", mirrored(auth=certificate_auth(good.folder, "theirs"), suite=None), audit + trust)
    ups = lambda: len(events(site, "tunnel.up"))

    def good_tunnel():
        before = ups()
        one = connection(auth=certificate_auth(good.folder), suite=None)
        with Daemon(lab, "client", one, trust) as ours:
            ours.up()
            wait_for(lambda: ups() > before, gateway.log, 30)

    with gateway:
        with suite.case("strangers' certificates do not stop a gateway's journal"):
            batches = 8
            for batch in range(batches):
                text = ""
                # Each kind of character is in the first batch: events about strangers are bounded.
                for number in range(batch, len(HOSTILE), batches):
                    name = HOSTILE[number]
                    stranger = Authority(suite.folder / f"stranger{number}", name)
                    stranger.issue_for("ours", ["ours.example.org"])
                    auth = certificate_auth(stranger.folder)
                    text += connection(f"peer{number}", auth=auth, suite=None, local=f"10.6.{number}.0/24")
                    # The same string as an IKE identity.
                    opaque = f"keyid:0x{name.encode().hex()}"
                    text += connection(f"id{number}", local_id=opaque, suite=None, local=f"10.7.{number}.0/24", other=f"10.8.{number}.0/24")
                failed = "negotiation of ike failed"
                before = gateway.log().count(failed)
                with Daemon(lab, "client", text, trust):
                    # The gateway bounds what it says of strangers, so only the first batch is sure to be seen.
                    if batch == 0:
                        wait_for(lambda: gateway.log().count(failed) > before, gateway.log, 30)
                    time.sleep(2)
            good_tunnel()
            reasons = [event["reason"] for event in events(site, "tunnel.refuse")]
            # Subjects by RFC 4514 and beyond it, and IKE identities: not all, as strangers' events are bounded.
            for escape in ("CN=a\\0", "CN=a\\u{", "KEY_ID:a\\"):
                assert any(escape in reason for reason in reasons), (escape, reasons)
        with suite.case("status of a daemon whose journal moves says so"):
            contains(gateway.tell("status").stdout, "the central log has them up to")
    with suite.case("records that an earlier version wrote do not stop it: each is marked, and what comes after it is taken"):
        journal = Journal(gateway.folder / "journal", "gateway")
        added = add_all(journal, "tunnel.refuse", "CN=stranger", "tunnel/peer")
        with gateway:
            good_tunnel()
            check_taken(events(site, "journal.refused", "tunnel.refuse"), added, "tunnel.refuse")
            lines_are_whole("explain", gateway.tell("explain").stdout)
            lines_are_whole("status", gateway.tell("status").stdout)
    with suite.case("no line of the gateway's log is forged"):
        lines_are_whole("the gateway's log", gateway.log(), stamped=True)


def silent(suite, site, agent):
    """Journals whose newest record is older than it may be."""
    health = lambda: plain(f"http://127.0.0.1:{site.metrics}/healthz")
    both = ["camera/camera-17", "tunnel/journal"]
    with suite.case("a journal that does not move is in health, metrics and status, and once in the log"):
        equal(health()[0], 200, "health before")
        site.stop()
        with contextlib.closing(sqlite3.connect(site.data / "centre" / "centre.sqlite")) as database, database:
            database.execute("UPDATE journals SET moved_at = moved_at - 96 * 3600 * 1000")
        site.start()
        wait_for(lambda: len(events(site, "journal.silent")) == 2, site.log_text, 30)
        equal(sorted(event["resource"] for event in events(site, "journal.silent")), both, "silent journals")
        code, text = health()
        equal(code, 503, "health")
        for source in both:
            contains(text, source)
        contains(plain(f"http://127.0.0.1:{site.metrics}/metrics")[1], "cordon_centre_silent_journals 2")
        status = run_command(CORDON, "site", "status", "--data", site.data, code=None)
        for source in both:
            contains(status.stdout + status.stderr, source)
        equal(len(events(site, "journal.silent")), 2, "events after another look")
    with suite.case("a journal that moves again is not reported any more"):
        agent.start()
        before = len(events(site, "camera.start"))
        agent.drop("again", jpeg(b"a picture", 1_000))
        wait_for(lambda: len(events(site, "camera.start")) > before, agent.log.read_text, 60)
        status = run_command(CORDON, "site", "status", "--data", site.data, code=None)
        assert "camera/camera-17" not in status.stdout + status.stderr, status
        contains(health()[1], "tunnel/journal")
        agent.stop()


def plain(address):
    """Status and text of an answer by plain HTTP."""
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def run(suite):
    site = Site(suite, "site").start()
    agent = camera(suite, site)
    listeners(suite, site)
    tunnels(suite, site)
    silent(suite, site, agent)
    with suite.case("the log shows every event on one line, and verifies"):
        shown = run_command(CORDON, "audit", "show", site.data / "audit" / "log", "--last", 1_000_000).stdout
        lines_are_whole("audit show", shown)
        as_json = run_command(CORDON, "audit", "show", site.data / "audit" / "log", "--last", 1_000_000, "--json").stdout
        lines_are_whole("audit show --json", as_json)
        site.stop()
        site.verify_audit()
