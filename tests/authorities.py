"""Acts of the root's key and of the clock, from end to end: authorities renewed after years, a clock that was ahead.

And a camera whose certificate ended while it was off.
"""

import datetime
import json
import shutil

from tests.harness import HEALTHY_DIRECT, Camera, Site, contains, cordon, cordon_json, equal, run as execute, wait_for
from tests.years import Clock, drop, events, http, metric, serials

YEARS_8 = 8 * 365 + 60


def renewed_authorities(suite):
    clock = Clock(suite.folder)
    site = Site(suite, "authorities")
    site.options = {"env": clock.environment()}
    site.start()
    site.stop()
    key, safe = site.data / "pki/root.key", suite.folder / "safe.key"
    key.rename(safe)
    clock.set(YEARS_8)
    site.start()
    camera = Camera(site).start()
    drop(camera, clock, "before")
    camera.drain()
    with suite.case("two years before their end the site asks for authorities to be renewed, and works on"):
        status, text = http(site, "/healthz")
        equal(status, 200)
        for kind in ("users", "devices", "services"):
            contains(text, f"warning: certificate {kind}-ca expires on")
    order = ["pki", "renew-authorities", *site.arguments(), "--root-passphrase-file"]
    with suite.case("without the root's key, or with a wrong passphrase, nothing is renewed"):
        before = {file.name: file.read_bytes() for file in (site.data / "pki").glob("*-ca.pem")}
        done = cordon(*order, site.data / "passphrase", code=1, **site.options)
        contains(done.stderr, "put root.key back")
        shutil.copy(safe, key)
        wrong = suite.folder / "wrong"
        wrong.write_text("not the passphrase\n")
        done = cordon(*order, wrong, code=1, **site.options)
        contains(done.stderr, "check its passphrase")
        assert "can be read by others" not in done.stderr, done.stderr
        equal({file.name: file.read_bytes() for file in (site.data / "pki").glob("*-ca.pem")}, before)
    with suite.case("renewed authorities have name and key of before, and count after a restart"):
        cordon(*order, site.data / "passphrase", **site.options)
        key.unlink()
        site.stop()
        site.start()
        wait_for(lambda: "devices-ca" not in http(site, "/healthz")[1], lambda: http(site, "/healthz"), 20)
        left = metric(site, 'cordon_certificate_expires_seconds{certificate="devices-ca"}')
        assert left > 9 * 365 * 86400, left
        for name, old in before.items():
            former = suite.folder / f"former-{name}"
            former.write_bytes(old)
            new = site.data / "pki" / name
            shown = [execute("openssl", "x509", "-in", file, "-noout", "-subject", "-pubkey").stdout for file in (former, new)]
            equal(*shown, f"subject and key of {name}")
            assert former.read_bytes() != new.read_bytes(), name
    with suite.case("cameras with certificates of before go on, and new ones are let in; nobody laid a hand on them"):
        drop(camera, clock, "after")
        camera.drain()
        other = Camera(site, "camera-18").start()
        drop(other, clock, "other")
        other.drain()
        other.stop()
        camera.stop()
        equal(metric(site, "cordon_centre_blocks_quarantined_total"), 0, "blocks in quarantine")
    with suite.case("a package of before and one of after both hold against the same root"):
        received = [event for event in events(site) if event["action"] == "evidence.receive"]
        trust = suite.folder / "trust.json"
        trust.write_text(json.dumps(site.ask("evidence", "trust")))
        reviewer = site.reviewer()
        for number, event in enumerate((received[0], received[-1])):
            out = suite.folder / f"package-{number}"
            site.ask("evidence", "export", "v-" + event["resource"].removeprefix("block/")[:16], "--out", out, by=reviewer)
            cordon_json("evidence", "check", out, "--trust", trust, env=clock.environment())
    with suite.case("the renewals are events of whoever ordered them, before they took effect"):
        renewals = [event for event in events(site) if event["action"] == "authority.renew"]
        # Each attempt is recorded, also those that failed.
        equal({event["resource"] for event in renewals}, {f"authority/{kind}" for kind in ("users", "devices", "services")})
        assert all(event["actor"]["id"].startswith("unix:") for event in renewals), renewals[0]
        site.stop()
        site.verify_audit()


def accepted_clock(suite):
    folder = suite.folder / "ahead-clock"
    folder.mkdir()
    clock = Clock(folder)
    site = Site(suite, "ahead")
    site.options = {"env": clock.environment()}
    # Ahead for so long that the site renewed what it has.
    clock.set(300)
    site.start()
    clock.set(600)
    wait_for(lambda: len(serials(site, "localhost")) == 2, "another server's certificate", 20)
    site.stop()
    ahead = clock.now().astimezone(datetime.timezone.utc)
    (site.data / "last-time").write_text(ahead.strftime("%Y-%m-%dT%H:%M:%SZ"))
    clock.set(301)
    site.start()
    with suite.case("a clock that was ahead and is right now stops nothing, and nothing is issued by it"):
        status, text = http(site, "/healthz")
        equal(status, 503)
        contains(text, "the clock says")
        before = serials(site, "")
        issue = ["vpn", "gateway-certificate", *site.arguments(), "--name", "gateway.example.org", "--out", folder / "gateway"]
        cordon(*issue, code=1, **site.options)
        equal(serials(site, ""), before, "certificates")
    accept = ["audit", "accept-clock", *site.arguments(), "--reason", "clock was most of a year ahead"]
    with suite.case("it is accepted on a stopped site only"):
        done = cordon(*accept, code=1, **site.options)
        contains(done.stderr, "audit log")
        site.stop()
        cordon(*accept, **site.options)
    with suite.case("from then on the site works with certificates of today, and a camera is let in"):
        site.start()
        wait_for(lambda: http(site, "/healthz") == HEALTHY_DIRECT, lambda: http(site, "/healthz"), 30)
        end = execute("openssl", "x509", "-in", site.data / "keys/server.pem", "-noout", "-startdate").stdout
        start = datetime.datetime.strptime(end.strip(), "notBefore=%b %d %H:%M:%S %Y GMT")
        assert start < clock.now().replace(tzinfo=None), f"the server's certificate begins on {start}"
        camera = Camera(site).start()
        drop(camera, clock, "picture")
        camera.drain()
        camera.stop()
    with suite.case("the acceptance is an event with person and reason"):
        accepted = [event for event in events(site) if event["action"] == "clock.accept"]
        equal(len(accepted), 1)
        equal(accepted[0]["reason"], "clock was most of a year ahead")
        assert accepted[0]["actor"]["id"].startswith("unix:")
        site.stop()


def expired_camera(suite):
    folder = suite.folder / "off"
    folder.mkdir()
    clock = Clock(folder)
    site = Site(suite, "grace")
    site.options = {"env": clock.environment()}
    site.start()
    cameras = [Camera(site, name).start() for name in ("camera-17", "camera-18")]
    for camera in cameras:
        drop(camera, clock, "first")
        camera.drain()
        camera.stop()
    early, late = cameras
    with suite.case("a camera that was off when its certificate ended renews by itself, and its pictures wait for that"):
        clock.set(365 + 80)
        drop(early, clock, "second")
        early.start()
        early.drain(90)
        early.stop()
        equal(metric(site, "cordon_centre_blocks_quarantined_total"), 0, "blocks in quarantine")
        renewed = [event for event in events(site) if event["action"] == "enrolment.renew-expired"]
        equal([event["resource"] for event in renewed], ["device/camera-17"])
        equal(renewed[0]["details"]["days_expired"], 80)
    with suite.case("after the grace it takes a code"):
        clock.set(365 + 92)
        late.start()
        wait_for(lambda: "certificate not renewed" in late.log.read_text(), late.log.read_text, 30)
        late.stop()
        again = site.folder / "again"
        site.ask("registry", "code", "--device", "camera-18", "--out", again)
        (late.folder / "code").write_bytes((again / "code").read_bytes())
        late.start()
        drop(late, clock, "third")
        late.drain(90)
        late.stop()
        equal(metric(site, "cordon_centre_blocks_quarantined_total"), 0, "blocks in quarantine")
    site.stop()
    site.verify_audit()


def run(suite):
    renewed_authorities(suite)
    accepted_clock(suite)
    expired_camera(suite)
