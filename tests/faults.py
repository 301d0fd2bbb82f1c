"""Site and camera under load with faults at random: SIGKILL, errors of the disk, a full disk, no more files, and
clocks that jump by up to forty days, on either side.

    python -m tests faults                             some, in a minute
    python -m tests.faults --full                      a thousand kills
    python -m tests.faults --times 100 --seed 7        as many rounds, with one sequence of dice

Whatever is done is written down in `acts.log` of the suite's folder, whatever call fails in `failures.log`.
Afterwards every picture is at the centre, receipted, or still waiting at the camera; the log verifies, the index
fits, and no picture lies anywhere in the clear.
"""

import argparse
import collections
import hashlib
import json
import mmap
import os
import random
import struct
import sys
import threading
import time
import urllib.error
import urllib.request

from tests import harness
from tests.harness import CORDON, ROOT, Camera, Process, Site, cordon_json, equal, jpeg, wait_for
from tests.kill import receipted
from tests.runner import Suite, finish, run_suite
from tests.years import library

# Rounds in the default suite, each with at least one kill.
FEW = 8
FULL = 1000
# Bytes of a picture: more than one part of an upload.
SIZE = 300_000
# Stands in every picture; nothing but the watched folder may hold it.
MARKER = b"in the clear: "
DAY = 86_400
# Reasons for which the centre sets blocks apart when a clock is wrong; all of them can be released.
CLOCK_REASONS = {"captured-after-sealing", "from-the-future", "signed-outside-validity"}
KINDS = {"open": 1, "read": 2, "write": 4, "sync": 8, "rename": 16, "remove": 32, "look": 64}
EIO, ENOSPC, EMFILE = 1, 2, 4
# Name, failures per million calls, kinds of calls, errors.
WEATHER = [
    ("some errors", 2_000, 127, EIO | ENOSPC | EMFILE),
    ("many errors", 50_000, 127, EIO | ENOSPC | EMFILE),
    ("reads fail", 100_000, KINDS["read"] | KINDS["look"], EIO),
    ("writes fail", 200_000, KINDS["write"] | KINDS["sync"], EIO),
    ("names fail", 300_000, KINDS["rename"] | KINDS["remove"] | KINDS["look"], EIO | ENOSPC),
    ("the disk is full", 1_000_000, KINDS["open"] | KINDS["write"] | KINDS["rename"], ENOSPC),
    ("the disk is gone", 1_000_000, 127, EIO),
    ("no more files", 1_000_000, KINDS["open"], EMFILE),
]


def build(folder):
    library = folder / "faults.so"
    source = ROOT / "tests" / "faults.c"
    harness.run("cc", "-O2", "-Wall", "-shared", "-fPIC", "-o", library, source)
    return library


class Side:
    """What is done to one of the two: its faults, its clock, its process."""

    def __init__(self, suite, name, shim, victim):
        self.name, self.folder = name, suite.folder
        self.clock = suite.folder / f"{name}.clock"
        self.days = 0
        self.set_clock(0)
        control = suite.folder / f"{name}.control"
        control.write_bytes(bytes(16))
        with control.open("r+b") as file:
            self.control = mmap.mmap(file.fileno(), 16)
        self.environment = {
            **os.environ,
            "LD_PRELOAD": f"{shim} {library()}",
            "FAKETIME_TIMESTAMP_FILE": str(self.clock),
            # Seconds; a process follows a jump that late.
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "FAULTS_FOLDER": str(victim),
            "FAULTS_CONTROL": str(control),
            "FAULTS_LOG": str(suite.folder / "failures.log"),
        }

    def set_clock(self, days):
        part = self.clock.with_suffix(".part")
        part.write_text(f"{days:+.3f}d\n")
        part.rename(self.clock)
        self.days = days

    def set_weather(self, weather, number):
        _, per_million, kinds, errors = weather
        self.control[:] = struct.pack("=4I", per_million, kinds, errors, number)

    def clear(self):
        self.control[:] = bytes(16)


class Feeder(threading.Thread):
    """Drops pictures until told to stop, dated by the camera's clock; remembers the SHA-256 of each."""

    def __init__(self, camera, side, seed):
        super().__init__(daemon=True)
        self.camera, self.side, self.dice = camera, side, random.Random(seed)
        self.hashes = {}
        self.stopping = threading.Event()

    def run(self):
        number = 0
        while not self.stopping.is_set():
            # Not faster than the pair can work off.
            if len(self.camera.waiting()) > 12:
                time.sleep(0.05)
                continue
            number += 1
            picture = jpeg(MARKER + str(number).encode(), SIZE)
            name = f"p{number:06}"
            self.hashes[hashlib.sha256(picture).hexdigest()] = name
            facts = harness.violation(plate=f"F {number:06}")
            at = time.gmtime(time.time() + self.side.days * DAY)
            facts["captured_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", at)
            for extension, content in (("jpg", picture), ("json", json.dumps(facts).encode())):
                part = self.camera.folder / f"{name}.{extension}.part"
                part.write_bytes(content)
                part.rename(self.camera.incoming / f"{name}.{extension}")
            time.sleep(self.dice.uniform(0.0, 0.15))

    def stop(self):
        self.stopping.set()
        self.join()


class Soak:
    def __init__(self, suite, seed):
        self.suite, self.dice = suite, random.Random(seed)
        self.done = collections.Counter()
        self.acts = (suite.folder / "acts.log").open("w", buffering=1)
        self.began = time.monotonic()
        shim = build(suite.folder)
        self.site = Site(suite)
        self.sides = {
            "site": Side(suite, "site", shim, self.site.data),
            "camera": Side(suite, "camera", shim, self.site.folder / "camera-17"),
        }
        self.site.options = {"env": self.sides["site"].environment}
        self.site.start()
        self.reviewer = self.site.people()["reviewer-3"]
        self.colleague = self.site.reviewer()
        self.camera = Camera(self.site)
        self.start_camera()
        wait_for((self.camera.folder / "identity.pem").exists, "the camera to enrol")
        self.feeder = Feeder(self.camera, self.sides["camera"], seed)
        self.feeder.start()
        suite.finally_do(self.feeder.stopping.set)

    def act(self, text):
        days = " ".join(f"{name} {side.days:+.1f} d" for name, side in self.sides.items())
        self.acts.write(f"{time.monotonic() - self.began:9.2f} {text} ({days})\n")

    def environment(self, name):
        return {**self.sides[name].environment, "FAULTS_SEED": str(self.dice.randrange(1 << 32))}

    def process(self, name):
        return (self.site if name == "site" else self.camera).process

    def start_camera(self):
        command = [CORDON, "camera", "run", "--config", self.camera.config]
        self.camera.process = Process(command, self.camera.log, env=self.environment("camera"))

    def start_site(self):
        """Starts the site; while its disk fails it may refuse, but must say why."""
        command = [CORDON, "up", *self.site.arguments(), "--json"]
        self.site.process = Process(command, self.site.log, env=self.environment("site"))

    def start(self, name):
        self.act(f"start {name}")
        self.start_site() if name == "site" else self.start_camera()

    def kill(self, name):
        self.act(f"kill {name}")
        self.process(name).kill()
        self.done["kills"] += 1

    def jump(self, name):
        # Mostly back to the right time: with clocks far apart the two do not even talk.
        days = self.dice.choice([0] * 6 + [-40, 40, self.dice.uniform(-40, 40)])
        self.sides[name].set_clock(days)
        self.act(f"clock of {name}")
        self.done["jumps"] += 1

    def ended_by_itself(self, name):
        """Whether the process of `name` is gone, which a disk that fails may do to it, and a crash must not."""
        process = self.process(name)
        if process.running():
            return False
        code = process.child.returncode
        self.act(f"{name} ended with {code}")
        assert code is not None and code > 0, f"{name} ended with {code}\n{process.tail()}"
        process.close()
        self.done[f"{name} ended"] += 1
        return True

    def round(self, number):
        dice = self.dice
        for name, side in self.sides.items():
            if dice.random() < 0.3:
                self.jump(name)
            if dice.random() < 0.6:
                weather = dice.choice(WEATHER)
                side.set_weather(weather, number)
                self.act(f"{weather[0]} for {name}")
                self.done[weather[0]] += 1
        time.sleep(dice.uniform(0.05, 1.5))
        victims = dice.choice([["site"], ["camera"], ["site", "camera"]])
        for name in victims:
            self.kill(name)
            if dice.random() < 0.2:
                self.jump(name)
            if dice.random() < 0.3:
                # The start repairs what was left, with the faults still there, and may be killed.
                self.start(name)
                time.sleep(dice.uniform(0.0, 1.0))
                if not self.ended_by_itself(name):
                    self.kill(name)
        for side in self.sides.values():
            if dice.random() < 0.9:
                side.clear()
        for name in self.sides:
            if name in victims or self.ended_by_itself(name):
                self.start(name)
        if dice.random() < 0.8:
            # Mostly there is time to get to work; else the next kill falls into the start.
            self.up(10)

    def up(self, seconds):
        """Waits until the site answers, if it does."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process("site").running():
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{self.site.metrics}/healthz", timeout=2).close()
            except urllib.error.HTTPError:
                return None
            except OSError:
                time.sleep(0.05)

    def calm(self):
        """Ends all faults and waits until both are up."""
        for name, side in self.sides.items():
            side.clear()
            side.set_clock(0)
        self.act("calm")
        for name in self.sides:
            # A process that a fault is about to end may take a moment to do so.
            time.sleep(1.5)
            if self.ended_by_itself(name):
                self.start(name)
        wait_for(self.site_answers, lambda: f"the site to answer\n{self.site.process.tail()}", 60)

    def site_answers(self):
        try:
            return self.reviewer.request("GET", "/api/v1/cameras").status == 200
        except OSError:
            assert self.site.process.running(), self.site.process.tail()
            return False

    def clean(self):
        """Releases what the centre set apart because of a clock; anything else there is a fault."""
        for row in self.site.ask("evidence", "quarantine", "list")["blocks"]:
            assert row["reason"] in CLOCK_REASONS, row
            except_for = [part for reason in CLOCK_REASONS for part in ("--except", reason)]
            release = ("evidence", "quarantine", "release", row["block_sha256"], "--reason", "a clock was wrong")
            self.site.ask(*release, *except_for, by=self.reviewer)
            self.site.ask("evidence", "quarantine", "confirm", row["block_sha256"], by=self.colleague)
            self.done["released"] += 1


def in_the_clear(folder, except_for):
    """Files below `folder` that hold a picture."""
    found = []
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if os.path.join(at, name) != str(except_for)]
        for name in names:
            path = os.path.join(at, name)
            if os.path.isfile(path) and os.path.getsize(path):
                with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    if content.find(MARKER) >= 0:
                        found.append(path)
    return found


def check(suite, soak):
    site, camera, feeder = soak.site, soak.camera, soak.feeder
    with suite.case("both recover by themselves once there are no faults, and the spool drains"):
        soak.calm()
        soak.clean()
        camera.drain(120)
        soak.clean()
        equal(list((camera.folder / "rejected").glob("*")), [], "rejected pictures")
        equal(list((camera.folder / "spool" / "damaged").glob("*")), [], "blocks set aside")
    with suite.case("every picture is at the centre exactly once, byte for byte"):
        rows = soak.reviewer.violations()
        details = [soak.reviewer.get(f"/api/v1/violations/{row['id']}") for row in rows]
        stored = collections.Counter(medium["sha256"] for detail in details for medium in detail["media"])
        missing = [name for sha256, name in feeder.hashes.items() if sha256 not in stored]
        equal(missing[:20], [], f"{len(missing)} pictures are missing, the first")
        twice = [feeder.hashes.get(sha256) for sha256, count in stored.items() if count > 1]
        equal(twice[:20], [], f"{len(twice)} pictures are there twice, the first")
        equal(len(stored), len(feeder.hashes), "pictures")
        for detail in random.sample(details, min(20, len(details))):
            (medium,) = detail["media"]
            content = soak.reviewer.request("GET", f"/api/v1/violations/{detail['id']}/media/0")
            equal(hashlib.sha256(content.body).hexdigest(), medium["sha256"], "picture as it is shown")
    with suite.case("every receipt that the camera holds names a block in the archive"):
        blocks = set(receipted(camera, any_verdict=True))
        assert blocks <= {detail["block_sha256"] for detail in details}, "a receipted block is not there"
        (row,) = soak.reviewer.get("/api/v1/cameras")
        equal((row["gaps"], row["quarantined"], row["dropped"]), ([], 0, 0), "gaps, quarantine, losses")
    with suite.case("no picture lies anywhere in the clear, not even after the end"):
        equal(soak.process("camera").stop(), 0, "exit code of the camera")
        site.stop()
        equal(in_the_clear(suite.folder, camera.incoming), [], "files")
    with suite.case("the audit log verifies with all journals, and the index fits"):
        report = site.verify_audit()
        assert report["events"] >= len(feeder.hashes), report
        found = cordon_json("site", "check", "--data", site.data)
        equal((found["fits"], found["differences"]), (True, []))
        assert found["at_rest"]["state"] in ("encrypted", "plain", "unknown"), found


def soaked(suite, times, seed):
    print(f"        seed {seed}; repeat with: python -m tests.faults --times {times} --seed {seed}", flush=True)
    soak = Soak(suite, seed)
    with suite.case(f"{times} kills, errors and clocks between them"):
        while soak.done["kills"] < times:
            soak.done["rounds"] += 1
            soak.round(soak.done["rounds"])
            if soak.done["rounds"] % 20 == 0:
                # Now and then there is time to work off what waits.
                soak.calm()
                time.sleep(2)
                soak.clean()
                print(f"        {dict(soak.done)}, {len(soak.feeder.hashes)} pictures", flush=True)
    soak.feeder.stop()
    check(suite, soak)
    failures = sum(1 for _ in (suite.folder / "failures.log").open(errors="replace"))
    print(f"        {dict(soak.done)}, {failures} calls failed, {len(soak.feeder.hashes)} pictures", flush=True)


def run(suite):
    soaked(suite, FEW, random.randrange(1 << 32))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=FEW, help="kills")
    parser.add_argument("--full", action="store_true", help=f"{FULL} kills")
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    times = FULL if args.full else args.times
    seed = random.randrange(1 << 32) if args.seed is None else args.seed
    suite = Suite("faults")
    run_suite(suite, lambda suite: soaked(suite, times, seed), limit=300 + 15 * times)
    return finish([suite])


if __name__ == "__main__":
    sys.exit(main())
