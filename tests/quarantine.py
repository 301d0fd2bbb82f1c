"""Blocks that were set apart: what waits, who decides, and what becomes of it, on the running program."""

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

    def refused(*arguments, says):
        done = cordon(*quarantine, *arguments, *site.arguments(), "--log", "off", code=1)
        contains(done.stderr, says)

    with suite.case("what waits is listed, counted, and shown with what stands against it"):
        rows = site.ask(*quarantine, "list")["blocks"]
        equal([row["block_sha256"] for row in rows], blocks)
        equal(metric(site, "cordon_centre_quarantine_blocks"), 2)
        assert metric(site, "cordon_centre_quarantine_bytes") == sum(row["size"] for row in rows)
        equal(site.ask(*quarantine, "show", blocks[0])["code"], "too-old")
        equal(people["officer-2"].violations(), [])

    with suite.case("nothing leaves without a reason and what is excepted being stated"):
        refused("release", blocks[0], "--reason", "late", says="too-old")
        refused("release", blocks[0], "--reason", "late", "--except", "malware", says="cannot be excepted")
        refused("release", "0" * 64, "--reason", "late", says="no block")
        cordon(*quarantine, "release", blocks[0], *site.arguments(), code=2)
        cordon(*quarantine, "reject", blocks[0], *site.arguments(), code=2)
        equal(metric(site, "cordon_centre_quarantine_blocks"), 2)

    with suite.case("a released block is evidence, with a receipt, and its package verifies"):
        site.ask(*quarantine, "release", blocks[0], "--reason", "cut off", "--except", "too-old")
        (row,) = people["officer-2"].violations()
        answer = device.request("GET", f"/intake/v1/blocks/{blocks[0]}/receipt")
        equal(device.open_receipt(answer.body)["verdict"], "accepted")
        out, trust = site.folder / "package", site.folder / "trust.json"
        site.ask("evidence", "export", row["id"], "--out", out)
        trust.write_text(cordon("evidence", "trust", *site.arguments(), "--json").stdout)
        cordon("evidence", "check", out, "--trust", trust)

    with suite.case("a rejected block is gone, and both decisions name who and why"):
        site.ask(*quarantine, "reject", blocks[1], "--reason", "test picture")
        equal(site.ask(*quarantine, "list")["blocks"], [])
        equal(metric(site, "cordon_centre_quarantine_blocks"), 0)
        shown = cordon("audit", "show", site.data / "audit" / "log").stdout
        for action, why in (("evidence.release", "cut off"), ("evidence.reject", "test picture")):
            (line,) = [line for line in shown.splitlines() if action in line]
            contains(line, f"unix:{os.getuid()}")
            contains(line, why)
        site.stop()
        site.verify_audit()
