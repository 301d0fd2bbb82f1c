"""SIGKILL of site or camera at random moments under load: nothing receipted is lost or doubled.

    python -m tests.kill --times 200 [--seed N]
"""

import argparse
import hashlib
import json
import random
import re
import sys
import threading
import time

from tests import harness
from tests.harness import CORDON, Camera, Process, Site, contains, equal, jpeg, wait_for
from tests.runner import Suite, finish, run_suite

# Kills in the default suite; the long run is asked for by name.
FEW = 12
# Share of the site's starts that are killed too.
DURING_START = 0.25
# Bytes of a picture: three parts of an upload, so that kills also fall between parts.
SIZE = 600_000


class Feeder(threading.Thread):
    """Drops pictures until told to stop; remembers the SHA-256 of each."""

    def __init__(self, camera, seed):
        super().__init__(daemon=True)
        self.camera = camera
        self.random = random.Random(seed)
        self.hashes = set()
        self.stopping = threading.Event()

    def run(self):
        number = 0
        while not self.stopping.is_set():
            # Not faster than the pair can work off: a full spool is another suite's subject.
            if len(self.camera.waiting()) > 12:
                time.sleep(0.05)
                continue
            number += 1
            picture = jpeg(f"picture {number}".encode(), SIZE)
            self.hashes.add(hashlib.sha256(picture).hexdigest())
            self.camera.drop(f"p{number:06}", picture, plate=f"K {number:06}")
            time.sleep(self.random.uniform(0.0, 0.1))

    def stop(self):
        self.stopping.set()
        self.join()


def restart_site(site, dice):
    site.process.kill()
    # A killed process's ports are free at once; only its sockets linger on the clients' side.
    command = [CORDON, "up", *site.arguments(), "--json"]
    if dice.random() < DURING_START:
        # The start itself repairs what the last kill left, and may be killed as well.
        site.process = Process(command, site.log)
        time.sleep(dice.uniform(0.0, 1.0))
        site.process.kill()
    site.process = Process(command, site.log)
    site.process.answer(120)


def shake(site, camera, times, seed):
    """Kills one or the other, or both, at random moments."""
    dice = random.Random(seed)
    for number in range(times):
        time.sleep(dice.uniform(0.05, 1.2))
        victim = dice.choice(["site", "camera", "both"])
        if victim in ("camera", "both"):
            camera.process.kill()
        if victim in ("site", "both"):
            restart_site(site, dice)
        if victim in ("camera", "both"):
            camera.start()
        if (number + 1) % 20 == 0:
            print(f"        {number + 1} kills", flush=True)


def receipted(camera, any_verdict=False):
    """Block hashes of all receipts that the camera has verified and kept."""
    blocks = []
    for receipt in camera.receipts():
        text = harness.run("openssl", "cms", "-verify", "-noverify", "-inform", "DER", "-in", receipt)
        content = json.loads(text.stdout)
        if not any_verdict:
            equal(content["verdict"], "accepted", f"verdict of {receipt.name}")
        blocks.append(content["block_sha256"])
    return blocks


def check(suite, site, camera, feeder, reviewer):
    with suite.case("the spool drains"):
        camera.drain(180)
        camera.stop()
    with suite.case("every picture is in the centre exactly once"):
        rows = reviewer.violations()
        ids = [row["id"] for row in rows]
        equal(len(ids), len(set(ids)), "number of different violations")
        details = [reviewer.get(f"/api/v1/violations/{id}") for id in ids]
        stored = [medium["sha256"] for detail in details for medium in detail["media"]]
        equal(sorted(stored), sorted(feeder.hashes), "pictures in the centre")
        print(f"        {len(ids)} violations, {len(feeder.hashes)} pictures, {len(camera.receipts())} receipts", flush=True)
    with suite.case("every receipt's block is archived, and none has two receipts"):
        blocks = receipted(camera)
        equal(len(blocks), len(set(blocks)), "number of different receipts")
        equal(sorted(blocks), sorted(d["block_sha256"] for d in details), "receipted blocks")
    with suite.case("no gap, nothing in quarantine"):
        [row] = reviewer.get("/api/v1/cameras")
        equal(row["gaps"], [], "gaps")
        equal(row["quarantined"], 0, "blocks in quarantine")
        equal(row["dropped"], 0, "blocks declared lost")
    with suite.case("the audit log verifies with all journals"):
        site.stop()
        report = site.verify_audit()
        assert report["events"] >= len(feeder.hashes)


def shaken(suite, times, seed):
    print(f"        seed {seed}; repeat with: python -m tests.kill --times {times} --seed {seed}")
    site = Site(suite).start()
    reviewer = site.people()["reviewer-3"]
    camera = Camera(site)
    # All of them are compared in the end; a camera keeps 10 000 unless told.
    text = camera.config.read_text()
    contains(text, "[spool]\n")
    camera.config.write_text(text.replace("[spool]\n", "[spool]\nmax_receipts = 1000000\n"))
    camera.start()
    wait_for((camera.folder / "identity.pem").exists, "the camera to enrol")
    feeder = Feeder(camera, seed)
    feeder.start()
    suite.finally_do(feeder.stopping.set)
    with suite.case(f"{times} kills under load"):
        shake(site, camera, times, seed)
        assert re.search(r"taking up", site.log_text()) or times < 50, "no restart found work"
        feeder.stop()
    check(suite, site, camera, feeder, reviewer)


def run(suite):
    shaken(suite, FEW, random.randrange(1 << 32))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=FEW)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = random.randrange(1 << 32) if args.seed is None else args.seed
    suite = Suite("kill")
    run_suite(suite, lambda suite: shaken(suite, args.times, seed), limit=120 + 10 * args.times)
    return finish([suite])


if __name__ == "__main__":
    sys.exit(main())
