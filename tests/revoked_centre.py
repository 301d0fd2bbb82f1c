"""The centre's own certificates are revoked while a camera runs: the site goes on with others, a thief of the keys does not."""

import shutil
import time

from tests.harness import Camera, Site, contains, cordon_json, equal, jpeg, wait_for

# How long a camera that must not do something is watched.
WATCH = 5


def serial(site, holder):
    """Serial number of the newest valid certificate of a service."""
    rows = [row for row in site.ask("pki", "list")["certificates"] if row["holder"] == holder]
    return next(row["serial"] for row in rows if row["revoked"] is None)


def revoke(site, holder):
    """Revokes a service's certificate and waits until the site has another."""
    old = serial(site, holder)
    equal(site.ask("pki", "revoke", "--serial", old, "--reason", "key-compromise")["revoked"], [old])
    wait_for(lambda: valid(site, holder) not in (None, old), f"another certificate of {holder}", 20)
    return old


def valid(site, holder):
    try:
        return serial(site, holder)
    except StopIteration:
        return None


def keeps(camera, says, blocks=1):
    """The camera says so, and keeps its blocks for a while that is long enough to lose them."""
    wait_for(lambda: says in camera.log.read_text(), lambda: f"{says!r} in {camera.log.read_text()[-2000:]}", 30)
    receipts = len(camera.receipts())
    end = time.monotonic() + WATCH
    while time.monotonic() < end:
        equal(len(camera.blocks()), blocks, "blocks in the spool")
        time.sleep(0.2)
    equal(len(camera.receipts()), receipts, "receipts")


def run(suite):
    site = Site(suite).start()
    camera = Camera(site).start()
    camera.drop("first", jpeg(b"first"))
    camera.drain()
    site.stop()
    # What somebody who was at the machine has: keys, lists and databases of that moment.
    stolen = suite.folder / "stolen"
    shutil.copytree(site.data, stolen, symlinks=True)
    site.start()

    with suite.case("after the receipt signer's revocation the site signs with another, and the camera takes it"):
        revoke(site, "Acquisition Centre")
        camera.drop("second", jpeg(b"second"))
        camera.drain()

    with suite.case("after the server's revocation the camera changes to the new certificate"):
        revoke(site, "localhost")
        camera.drop("third", jpeg(b"third"))
        camera.drain()
        contains(site.log_text(), 'certificate="server"')

    with suite.case("after the revocation of the role for trust bundles and of a sealing certificate as well"):
        revoke(site, "Trust Bundle")
        sealing = "Acquisition Centre sealing "
        old = serial(site, sealing + "1")
        site.ask("pki", "revoke", "--serial", old, "--reason", "key-compromise")
        wait_for(lambda: valid(site, sealing + "2"), "another sealing certificate", 20)
        # Known from the next contact on; a new process makes one.
        camera.stop()
        before = camera.log.read_text().count("trust bundle in force")
        camera.start()
        wait_for(lambda: camera.log.read_text().count("trust bundle in force") > before, "the bundle", 30)
        camera.drop("fourth", jpeg(b"fourth"))
        camera.drain()

    site.stop()
    thief = Site(suite, "thief", data=stolen)
    thief.config.write_text(site.config.read_text())

    with suite.case("a thief of the server's key, with the lists of before, gets no block"):
        thief.start()
        camera.drop("fifth", jpeg(b"fifth"))
        wait_for(lambda: len(camera.blocks()) == 1, "the block in the spool")
        keeps(camera, "invalid peer certificate: Revoked")
        # Nor after a restart, which has no lists but those on the disk.
        camera.stop()
        camera.log.write_text("")
        camera.start()
        keeps(camera, "invalid peer certificate: Revoked")
        thief.stop()

    with suite.case("a thief of the receipt signer's key gives receipts for nothing"):
        for file in (site.data / "keys").glob("server.*"):
            shutil.copy(file, stolen / "keys")
        shutil.copy(site.data / "passphrase", stolen)
        thief.start()
        keeps(camera, "receipt not accepted, block kept")
        thief.stop()

    with suite.case("the real site gets what was kept"):
        site.start()
        camera.drain()
        camera.stop()
        site.stop()
        site.verify_audit()

    with suite.case("events of the intake say where the blocks came from"):
        shown = cordon_json("audit", "show", site.data / "audit" / "log", "--last", 1_000)
        events = [entry["leaf"]["event"] for entry in shown["entries"]]
        received = [event for event in events if event["action"] == "evidence.receive"]
        equal({event["details"].get("address") for event in received}, {"127.0.0.1"})
