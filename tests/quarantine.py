"""Blocks that were set apart: what waits, who decides, and what becomes of it, on the running program."""

import glob
import os
import re
import urllib.request

from tests.device import Device
from tests.harness import Site, contains, cordon, equal, jpeg

OLD = "2024-02-03T04:05:06Z"


def metric(site, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{site.metrics}/metrics", timeout=10) as answer:
        return int(re.search(rf"^{name} (\d+)$", answer.read().decode(), re.MULTILINE)[1])


def run(suite):
    site = Site(suite).start()
    people = site.people()
    device = Device(site, "camera-17")
    equal(device.enrol(), 200)
    blocks = []
    for name in ("tunnel", "test"):
        block, sealed = device.seal(jpeg(name.encode()), name=name, captured_at=OLD)
        equal(device.verdict(block.read_bytes())["reason"], "too-old")
        blocks.append(sealed["block_sha256"])
    quarantine = ["evidence", "quarantine"]

    one, other = people["reviewer-3"], site.reviewer()

    def refused(*arguments, says, by=one):
        proof = by.signs() if by else []
        done = cordon(*quarantine, *arguments, *site.arguments(), *proof, "--log", "off", code=1)
        contains(done.stderr, says)

    with suite.case("what waits is listed, counted, and shown with what stands against it"):
        rows = site.ask(*quarantine, "list")["blocks"]
        equal([row["block_sha256"] for row in rows], blocks)
        equal(metric(site, "cordon_centre_quarantine_blocks"), 2)
        assert metric(site, "cordon_centre_quarantine_bytes") == sum(row["size"] for row in rows)
        equal(site.ask(*quarantine, "show", blocks[0], by=one)["code"], "too-old")
        equal(people["officer-2"].violations(), [])

    with suite.case("nothing leaves without a reason and what is excepted being stated"):
        refused("release", blocks[0], "--reason", "late", says="too-old")
        refused("release", blocks[0], "--reason", "late", "--except", "malware", says="cannot be excepted")
        refused("release", "0" * 64, "--reason", "late", says="no block")
        cordon(*quarantine, "release", blocks[0], *site.arguments(), code=2)
        cordon(*quarantine, "reject", blocks[0], *site.arguments(), code=2)
        equal(metric(site, "cordon_centre_quarantine_blocks"), 2)

    with suite.case("neither the console, nor a person without role, nor one person alone decides"):
        release = ("release", blocks[0], "--reason", "cut off", "--except", "too-old")
        for step in (("show", blocks[0]), release, ("confirm", blocks[0]), ("destroy", blocks[0])):
            refused(*step, says="needs a certificate", by=None)
            refused(*step, says="no rule permits", by=people["officer-2"])
        site.ask(*quarantine, *release, by=one)
        refused("confirm", blocks[0], says="another person")
        (row,) = [row for row in site.ask(*quarantine, "list")["blocks"] if "proposal" in row]
        equal((row["proposal"]["act"], row["proposal"]["proposed"]["uid"]), ("release", "reviewer-3"))
        equal(people["officer-2"].violations(), [])

    with suite.case("what is proposed survives a restart, and the word of a person who left does not count"):
        site.stop()
        site.start()
        site.ask("directory", "disable", "--uid", "reviewer-3")
        refused("confirm", blocks[0], says="may no longer decide", by=other)
        site.ask("directory", "enable", "--uid", "reviewer-3")

    with suite.case("a released block is evidence, with a receipt, and its package verifies"):
        site.ask(*quarantine, "confirm", blocks[0], by=other)
        (row,) = people["officer-2"].violations()
        answer = device.request("GET", f"/intake/v1/blocks/{blocks[0]}/receipt")
        equal(device.open_receipt(answer.body)["verdict"], "accepted")
        out, trust = site.folder / "package", site.folder / "trust.json"
        site.ask("evidence", "export", row["id"], "--out", out, by=one)
        trust.write_text(cordon("evidence", "trust", *site.arguments(), "--json").stdout)
        cordon("evidence", "check", out, "--trust", trust)

    with suite.case("a block is destroyed by two people, after the waiting time and not before"):
        site.ask(*quarantine, "reject", blocks[1], "--reason", "test picture", by=other)
        refused("destroy", blocks[1], says="second person")
        site.ask(*quarantine, "confirm", blocks[1], by=one)
        refused("destroy", blocks[1], says="may be destroyed from")
        equal(len(site.ask(*quarantine, "list")["blocks"]), 1)
        equal(len(list((site.data / "centre" / "quarantine").rglob("*"))) > 0, True)
        site.stop()
        (later,) = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
        clock = {"env": {**os.environ, "LD_PRELOAD": later, "FAKETIME": "+4d", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}}
        site.ask(*quarantine, "destroy", blocks[1], by=one, **clock)
        equal(site.ask(*quarantine, "list", **clock)["blocks"], [])
        assert not [path for path in (site.data / "centre" / "quarantine").rglob("*") if path.is_file()]

    with suite.case("all decisions name who and why"):
        shown = cordon("audit", "show", site.data / "audit" / "log").stdout
        for action, who, why in (
            ("evidence.release", "reviewer-4", "cut off"), ("evidence.reject", "reviewer-3", "test picture"),
        ):
            (line,) = [line for line in shown.splitlines() if action in line]
            contains(line, who)
            contains(line, why)
        site.verify_audit()
