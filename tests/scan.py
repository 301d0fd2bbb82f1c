"""The intake with a real clamd that knows one signature of our own."""

import hashlib
import json
import socket

from tests.harness import Camera, Process, Site, contains, cordon_json, equal, free_port, jpeg, wait_for
from tests.harness import run as run_command

SIGNATURE = "Cordon.Test.Picture"
# The scanner takes no more than this, as operators set it; the default is 100 MB.
STREAM_LIMIT = 2_000_000


class Scanner:
    """clamd with a database that holds the hash of one picture."""

    def __init__(self, suite, infected):
        self.suite = suite
        self.folder = suite.folder / "clamd"
        database = self.folder / "database"
        database.mkdir(parents=True)
        digest = hashlib.sha256(infected).hexdigest()
        (database / "own.hsb").write_text(f"{digest}:{len(infected)}:{SIGNATURE}\n")
        self.socket = self.folder / "clamd.sock"
        self.port = free_port()
        self.config = self.folder / "clamd.conf"
        self.config.write_text(
            f"Foreground yes\nLocalSocket {self.socket}\nTCPSocket {self.port}\nTCPAddr 127.0.0.1\n"
            f"DatabaseDirectory {database}\nTemporaryDirectory {self.folder}\nStreamMaxLength {STREAM_LIMIT}\n"
        )
        self.process = None
        suite.finally_do(self.kill)

    def start(self):
        self.process = Process(["clamd", "--config-file", self.config], self.folder / "clamd.log")

        def answers():
            assert self.process.running(), self.process.tail()
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=2) as probe:
                    probe.sendall(b"zPING\0")
                    return probe.recv(16) == b"PONG\0"
            except OSError:
                return False

        wait_for(answers, self.process.tail, 60)
        return self

    def kill(self):
        if self.process:
            self.process.kill()


def run(suite):
    infected = jpeg(b"the infected one", 30_000)
    scanner = Scanner(suite, infected)
    site = Site(suite, settings=f'[intake]\nclamd = "{scanner.socket}"\n')
    with suite.case("a real clamd starts with our own database"):
        scanner.start()
    site.start()
    reviewer = site.people()["reviewer-3"]
    camera = Camera(site).start()

    def plates():
        return sorted(row["plate"] for row in reviewer.get("/api/v1/violations")["rows"])

    def deliver(name, picture):
        camera.drop(name, picture, plate=name)
        camera.drain()

    def reasons():
        entries = cordon_json("audit", "show", site.data / "audit/log", "--last", 100)["entries"]
        events = [entry["leaf"]["event"] for entry in entries]
        return [event.get("reason") for event in events if event["action"] == "evidence.quarantine"]

    with suite.case("a clean picture is accepted"):
        deliver("CLEAN 1", jpeg(b"clean", 30_000))
        equal(plates(), ["CLEAN 1"])
    with suite.case("an infected one is quarantined as malware, and kept"):
        deliver("SICK 1", infected)
        equal(plates(), ["CLEAN 1"])
        equal(reasons(), ["malware"])
        kept = [path for path in (site.data / "centre/quarantine").rglob("*") if path.is_file()]
        equal(len(kept), 1, "files in quarantine")
        equal(receipts(camera)[-1]["reason"], "malware")
    with suite.case("the camera's page counts it"):
        equal([row["quarantined"] for row in reviewer.get("/api/v1/cameras")], [1])
    with suite.case("without the scanner pictures wait, and the log says why"):
        scanner.kill()
        camera.drop("WAITS 1", jpeg(b"waits", 30_000), plate="WAITS 1")
        camera.drop("SICK 2", infected, plate="SICK 2")
        wait_for(lambda: "clamd" in site.log_text(), site.log_text, 30)
        contains(site.log_text(), "block waits, trying again soon")
        equal(len(camera.blocks()), 2, "blocks that the camera keeps")
        equal(plates(), ["CLEAN 1"])
    with suite.case("they are settled once it is back"):
        scanner.start()
        camera.drain()
        equal(plates(), ["CLEAN 1", "WAITS 1"])
        equal(reasons(), ["malware", "malware"])
    with suite.case("what the scanner is too small for is not accepted, but kept"):
        deliver("LARGE 1", jpeg(b"large", 2 * STREAM_LIMIT))
        equal(receipts(camera)[-1]["reason"], "not-scanned")
        equal(reasons(), ["malware", "malware", "not-scanned"])
    with suite.case("a scanner over TCP with a higher limit does as well"):
        site.stop()
        scanner.kill()
        text = scanner.config.read_text()
        scanner.config.write_text(text.replace(f"Length {STREAM_LIMIT}", f"Length {10 * STREAM_LIMIT}"))
        scanner.start()
        address = f'clamd = "127.0.0.1:{scanner.port}"'
        site.config.write_text(site.config.read_text().replace(f'clamd = "{scanner.socket}"', address))
        site.start()
        deliver("LARGE 2", jpeg(b"large", 2 * STREAM_LIMIT))
        equal(plates(), ["CLEAN 1", "LARGE 2", "WAITS 1"])
        deliver("SICK 3", infected)
        equal(reasons(), ["malware", "malware", "not-scanned", "malware"])
    with suite.case("everything ends in order, and the audit log holds"):
        camera.stop()
        site.stop()
        site.verify_audit()


def receipts(camera):
    """The contents of the camera's receipts, oldest first, checked by openssl."""
    root = camera.folder / "root.pem"
    found = []
    for file in camera.receipts():
        verify = ["openssl", "cms", "-verify", "-cades", "-binary", "-inform", "DER", "-in", file]
        found.append(json.loads(run_command(*verify, "-CAfile", root, "-purpose", "any").stdout))
    return found
