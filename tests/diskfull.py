"""Full disks, on small file systems of their own: nothing acknowledged is lost, and all recovers."""

import json
import os
import subprocess
import time

from tests.device import Device
from tests.harness import Camera, Site, contains, cordon, equal, jpeg, wait_for

MEBIBYTE = 1024 * 1024
PICTURE = 300_000
# Bytes that a camera's blocks leave free on its disk.
RESERVE = 64 * 1024


class Disk:
    """A tmpfs of a few mebibytes; needs the right to mount, as root has."""

    def __init__(self, suite, folder, mebibytes):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        options = ["-t", "tmpfs", "-o", f"size={mebibytes}m", "cordon-tests", str(folder)]
        done = subprocess.run(["mount", *options], capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(
                f"cannot mount a small disk: {done.stderr.strip()}; run as root, or below "
                "`unshare --user --map-root-user --mount`"
            )
        suite.finally_do(self.unmount)

    def unmount(self):
        # Whatever still has a file open there is about to be ended.
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def free(self):
        status = os.statvfs(self.folder)
        return status.f_bavail * status.f_frsize

    def fill(self, leave=0):
        """Takes all room but `leave` bytes."""
        with (self.folder / "filler").open("ab") as filler:
            while (room := self.free() - leave) > 0:
                filler.write(bytes(min(room, MEBIBYTE)))
                filler.flush()

    def empty(self):
        (self.folder / "filler").unlink()


def run(suite):
    disk = Disk(suite, suite.folder / "disk", 24)
    site = Site(suite, data=disk.folder / "data").start()
    reviewer = site.people()["reviewer-3"]
    device = Device(site, "camera-18")
    device.enrol()
    camera = Camera(site).start()
    state = State(suite, site, disk, reviewer, camera)
    with suite.case("before the disk is full"):
        state.deliver(2)
        camera.drain()
        state.check()
    full_while_running(suite, site, disk, state, device)
    full_at_start(suite, site, disk, state)
    camera_full(suite, site, state)
    with suite.case("everything ends in order, and the audit log holds"):
        site.stop()
        site.verify_audit()


class State:
    """What was put into the camera's folder, which must all come out at the centre, once."""

    def __init__(self, suite, site, disk, reviewer, camera):
        self.site, self.reviewer, self.camera = site, reviewer, camera
        self.plates = []

    def deliver(self, count, camera=None):
        camera = camera or self.camera
        for _ in range(count):
            plate = f"FULL {len(self.plates):03}"
            camera.drop(plate.replace(" ", "-"), jpeg(plate.encode(), PICTURE), plate=plate)
            self.plates.append(plate)

    def check(self):
        rows = self.reviewer.violations()
        equal(sorted(row["plate"] for row in rows), self.plates, "plates at the centre")
        for row in self.reviewer.get("/api/v1/cameras"):
            equal((row["gaps"], row["dropped"], row["quarantined"]), ([], 0, 0), f"gaps, losses of {row['device']}")


def full_while_running(suite, site, disk, state, device):
    camera = state.camera
    for leave in (0, 100_000):
        with suite.case(f"the centre's disk has {leave} bytes left: refused with the reason, nothing is lost"):
            disk.fill(leave)
            before = len(site.log_text())
            receipts = len(camera.receipts())
            state.deliver(4)
            wait_for(lambda: len(camera.blocks()) == 4, "the camera to seal")
            heard = len(camera.log.read_text())
            refused = "507 Insufficient Storage"
            wait_for(lambda: refused in camera.log.read_text()[heard:], lambda: camera.log.read_text()[-2000:])
            if not leave:
                answer = device.create(1000)
                equal((answer.status, answer.json()["code"]), (507, "disk-full"), answer.text)
                # Without an audit event nothing is shown.
                answer = state.reviewer.request("GET", "/api/v1/violations")
                equal((answer.status, answer.json()["code"]), (507, "disk-full"), answer.text)
                page = state.reviewer.request("GET", "/violations")
                assert page.status >= 500, (page.status, page.text)
                contains(page.text, "<h1>")
            assert site.process.running(), site.log_text()[-2000:]
            equal(len(camera.blocks()) + len(camera.receipts()) - receipts, 4, "blocks kept or receipted")
            wait_for(lambda: "disk full" in site.log_text()[before:], lambda: site.log_text()[before:], 15)
        with suite.case("all is receipted once there is room again, without a restart"):
            disk.empty()
            camera.drain()
            state.check()
            site.verify_audit()


def full_at_start(suite, site, disk, state):
    with suite.case("a site on a full disk starts, or says why not and what to do"):
        disk.fill()
        site.process.kill()
        try:
            site.start()
        except AssertionError:
            lines = [line for line in site.log_text().splitlines() if line.startswith('{"error":')]
            equal(len(lines), 1, f"number of lines of {lines}")
            failed = json.loads(lines[0])
            contains(failed["error"].lower(), "full" if "disk is full" in failed["error"] else "no space left")
            contains(failed["to_do"], "make room on the disk")
        state.deliver(2)
    with suite.case("and runs as before once there is room"):
        disk.empty()
        if site.process.running():
            site.stop()
        site.start()
        state.camera.drain()
        state.check()
    with suite.case("the offline verifier needs no room"):
        disk.fill()
        cordon("audit", "verify", site.data / "audit/log", "--journals", site.data / "audit/journal")
        disk.empty()


def camera_full(suite, site, state):
    camera = Camera(site, "camera-19")
    spool = Disk(suite, camera.folder / "spool", 3)
    with suite.case("the camera's disk is full: pictures stay where they are, and the log says why"):
        camera.start()
        state.deliver(1, camera)
        camera.drain()
        site.stop()
        state.deliver(15, camera)
        wait_for(lambda: "disk is full" in camera.log.read_text(), lambda: camera.log.read_text()[-2000:])
        wait_for(lambda: spool.free() < PICTURE + RESERVE, "the spool to fill")
        assert camera.process.running(), camera.log.read_text()[-2000:]
        equal(len(camera.blocks()) + len(list(camera.incoming.glob("*.jpg"))), 15, "pictures sealed or waiting")
        assert len(camera.blocks()) >= 5, camera.blocks()
    with suite.case("not even a receipt fits: nothing is lost"):
        spool.fill()
        site.start()
        waiting = len(camera.waiting())
        # The centre has taken them by now; the camera cannot know.
        time.sleep(3)
        equal(len(camera.waiting()) + len(camera.receipts()), 16, f"pictures or receipts ({waiting} waiting)")
    with suite.case("all is receipted once there is room again, without a restart"):
        spool.empty()
        camera.drain(90)
        state.check()
        equal(len(camera.receipts()), 16)
    with suite.case("a camera killed with a full disk comes back"):
        site.stop()
        spool.fill(leave=2 * PICTURE)
        state.deliver(4, camera)
        wait_for(lambda: spool.free() < PICTURE + RESERVE, "the spool to fill")
        camera.process.kill()
        spool.fill()
        camera.start()
        spool.empty()
        if not camera.process.running():
            camera.start()
        site.start()
        camera.drain(90)
        state.check()
        camera.stop()
        state.camera.stop()
