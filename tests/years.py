"""A site and a camera live for years: the clock of all their processes is moved on, nobody lays a hand on them.

`python -m tests years` lives fifteen months in steps of six weeks, `python -m tests.years --full` five years in
steps of a month. The programs are those that are installed; libfaketime moves the wall clock and leaves the
monotonic one alone.
"""

import datetime
import json
import os
import re
import sys
import urllib.error
import urllib.request

from tests.harness import HEALTHY_DIRECT, Camera, Site, contains, cordon_json, equal, jpeg, violation, wait_for
from tests.runner import Suite, finish, run_suite
from tests.years_tunnel import Tunnel, library


class Clock:
    """The wall clock of the processes that get its environment."""

    def __init__(self, folder):
        self.file = folder / "clock"
        self.days = 0
        self.set(0)

    def set(self, days):
        part = self.file.with_suffix(".part")
        part.write_text(f"{days:+}d\n")
        part.rename(self.file)
        self.days = days

    def now(self):
        return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=self.days)

    def environment(self):
        return {
            **os.environ,
            "LD_PRELOAD": library(),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }


def http(site, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{site.metrics}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metric(site, line):
    text = http(site, "/metrics")[1]
    found = re.search(rf"^{re.escape(line)} (-?\d+)$", text, re.MULTILINE)
    assert found, f"no {line} in {text[:2000]}"
    return int(found[1])


def drop(camera, clock, name):
    """A picture of today."""
    facts = violation()
    facts["captured_at"] = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    for extension, content in (("jpg", jpeg(name.encode())), ("json", json.dumps(facts).encode())):
        part = camera.folder / f"{name}.{extension}.part"
        part.write_bytes(content)
        part.rename(camera.incoming / f"{name}.{extension}")


def serials(site, holder):
    rows = site.ask("pki", "list")["certificates"]
    return {row["serial"] for row in rows if row["holder"].startswith(holder)}


def live(suite, days, step):
    """Lives so many days in steps and checks after each that all is well."""
    clock = Clock(suite.folder)
    site = Site(suite)
    site.options = {"env": clock.environment()}
    site.start()
    camera = Camera(site).start()
    drop(camera, clock, "day-0")
    camera.drain()
    tunnel = Tunnel(suite, site, camera, clock)
    pictures, first = 1, {name: serials(site, name) for name in ("localhost", "Acquisition", "camera-17", "Trust")}
    with suite.case(f"{days} days in steps of {step}: every picture has its receipt, nothing is quarantined"):
        for day in range(step, days + 1, step):
            clock.set(day)
            drop(camera, clock, f"day-{day}")
            pictures += 1
            camera.drain(90)
            assert site.process.running() and camera.process.running(), f"dead on day {day}"
            wait_for(lambda: http(site, "/healthz") == HEALTHY_DIRECT, lambda: f"health: {http(site, '/healthz')}", 20)
            tunnel.check()
        equal(metric(site, "cordon_centre_blocks_quarantined_total"), 0, "blocks in quarantine")
        equal(metric(site, "cordon_centre_blocks_accepted_total"), pictures, "archived blocks")
        equal(len(camera.receipts()), pictures, "receipts")
    return clock, site, camera, tunnel, first


def run(suite, days=450, step=45):
    clock, site, camera, tunnel, first = live(suite, days, step)

    with suite.case("gateway, camera's tunnel daemon and both ends of OpenVPN have renewed certificates"):
        tunnel.renewed(days)

    with suite.case("every certificate of the site and the camera's was renewed without a hand"):
        for holder, before in first.items():
            now = serials(site, holder)
            assert len(now - before) >= days // 365, f"{holder}: {before} became {now}"
        for name in ("server", "receipts", "trust-bundle", "sealing"):
            left = metric(site, f'cordon_certificate_expires_seconds{{certificate="{name}"}}')
            assert 90 * 86400 < left < 366 * 86400, f"{name} has {left} s left"
        for name in ("root", "users", "devices", "services"):
            assert metric(site, f'cordon_revocation_list_expires_seconds{{list="{name}"}}') > 0, name
        left = metric(site, 'cordon_certificate_expires_seconds{certificate="services-ca"}')
        assert 0 < left < (3650 - clock.days + 2) * 86400, left

    with suite.case("the camera seals to the newest recipient by the site's bundle"):
        sealing = sorted((site.data / "keys").glob("sealing-*.pem"))
        assert len(sealing) > days // 365, sealing
        contains(camera.log.read_text(), "trust bundle in force")
        assert "has expired" not in camera.log.read_text(), "sealed to an expired recipient"

    with suite.case("the first picture opens with its former key, and a restart changes nothing"):
        tunnel.end()
        site.stop()
        camera.stop()
        site.start()
        camera.start()
        drop(camera, clock, "after-restart")
        camera.drain()
        equal(http(site, "/healthz"), HEALTHY_DIRECT)
        rows = [event for event in events(site) if event["action"] == "evidence.receive"]
        out = site.folder / "package"
        oldest = "v-" + rows[0]["resource"].removeprefix("block/")[:16]
        site.ask("evidence", "export", oldest, "--out", out, by=site.reviewer())
        trust = site.folder / "trust.json"
        trust.write_text(json.dumps(site.ask("evidence", "trust")))
        cordon_json("evidence", "check", out, "--trust", trust, env=clock.environment())
        site.verify_audit()
    with suite.case("a clock before the making of the site stops nothing and loses nothing"):
        days = clock.days
        site.stop()
        clock.set(-30)
        site.start()
        status, text = http(site, "/healthz")
        equal(status, 503)
        contains(text, "the clock says")
        drop(camera, clock, "before-the-making")
        clock.set(days)
        camera.drain(90)
        wait_for(lambda: http(site, "/healthz") == HEALTHY_DIRECT, lambda: f"health: {http(site, '/healthz')}", 20)
    camera.stop()
    site.stop()


def events(site):
    shown = cordon_json("audit", "show", site.data / "audit" / "log", "--last", 1_000_000)
    return [entry["leaf"]["event"] for entry in shown["entries"]]


def full(suite):
    run(suite, 5 * 365 + 1, 30)


if __name__ == "__main__":
    suite = Suite("years")
    run_suite(suite, full if "--full" in sys.argv else run, limit=1800)
    sys.exit(finish([suite]))
