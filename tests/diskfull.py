"""A full disk at the centre, then at the camera: a clear error, nothing acknowledged lost, and
everything goes on when there is room again, without a restart."""

import hashlib
import os
import signal

from tests.harness import Camera, Site, equal, jpeg, run as command, wait_for

SIZE = 600_000


def small_disk(suite, name, megabytes):
    """A file system of a few megabytes; needs root."""
    folder = suite.folder / name
    folder.mkdir()
    assert os.geteuid() == 0, "mounting a small file system needs root"
    command("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", folder)
    suite.finally_do(command, "umount", "--lazy", folder)
    return folder


def fill(folder):
    """Takes all room that is left and returns the file that holds it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                pass
    return filler


def pictures(camera, names):
    hashes = set()
    for name in names:
        picture = jpeg(name.encode(), SIZE)
        hashes.add(hashlib.sha256(picture).hexdigest())
        camera.drop(name, picture, plate=name.upper())
    return hashes


def stored(reviewer):
    rows = reviewer.get("/api/v1/violations")["rows"]
    details = [reviewer.get(f"/api/v1/violations/{row['id']}") for row in rows]
    return sorted(medium["sha256"] for detail in details for medium in detail["media"])


def centre(suite):
    disk = small_disk(suite, "centre-disk", 40)
    site = Site(suite, "centre", data=disk / "data").start()
    reviewer = site.people()["reviewer-3"]
    camera = Camera(site).start()
    sent = pictures(camera, ["a1", "a2"])
    camera.drain()
    with suite.case("centre: a full disk is named in the log, and no receipt is given"):
        receipts = len(camera.receipts())
        filler = fill(disk)
        sent |= pictures(camera, ["b1", "b2", "b3"])
        wait_for(lambda: "full" in site.log_text() or "space" in site.log_text(), "the log to name the disk")
        equal(len(camera.receipts()), receipts, "receipts")
        assert site.process.running(), site.process.tail()
    with suite.case("centre: with room again everything arrives, without a restart"):
        filler.unlink()
        camera.drain(120)
        equal(stored(reviewer), sorted(sent), "pictures")
        equal(reviewer.get("/api/v1/cameras")[0]["gaps"], [], "gaps")
    with suite.case("centre: the audit log holds"):
        camera.stop()
        site.stop()
        site.verify_audit()


def field(suite):
    disk = small_disk(suite, "camera-disk", 12)
    site = Site(suite, "field").start()
    reviewer = site.people()["reviewer-3"]
    camera = Camera(site, folder=disk / "camera").start()
    sent = pictures(camera, ["c1", "c2"])
    camera.drain()
    with suite.case("camera: a full disk is named in the log, and the pictures stay"):
        # Room for the pictures themselves but not for their blocks.
        sent |= pictures_without_room(camera, disk)
        wait_for(lambda: "full" in log(camera) or "space" in log(camera), "the log to name the disk")
        assert camera.process.running(), camera.process.tail()
        assert list(camera.incoming.glob("*.jpg")), "the pictures are gone"
    with suite.case("camera: with room again everything is delivered"):
        (disk / "filler").unlink()
        camera.drain(120)
        equal(stored(reviewer), sorted(sent), "pictures")
        equal(reviewer.get("/api/v1/cameras")[0]["gaps"], [], "gaps")


def pictures_without_room(camera, disk):
    camera.process.child.send_signal(signal.SIGSTOP)
    sent = pictures(camera, ["d1", "d2"])
    fill(disk)
    camera.process.child.send_signal(signal.SIGCONT)
    return sent


def log(camera):
    return camera.log.read_text(errors="replace")


def run(suite):
    centre(suite)
    field(suite)
