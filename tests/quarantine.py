"""Blocks that were set apart: what waits, who decides, and what becomes of it, on the running program."""

import glob
import json
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
        site.ask("registry", "suspend", "--uid", "reviewer-3")
        refused("confirm", blocks[0], says="may no longer decide", by=other)
        site.ask("registry", "resume", "--uid", "reviewer-3")

    with suite.case("a released block is evidence, with a receipt, and its package verifies"):
        site.ask(*quarantine, "confirm", blocks[0], by=other)
        (row,) = people["officer-2"].violations()
        answer = device.request("GET", f"/intake/v1/blocks/{blocks[0]}/receipt")
        equal(device.open_receipt(answer.body)["verdict"], "accepted")
        out, trust = site.folder / "package", site.folder / "trust.json"
        site.ask("evidence", "export", row["id"], "--out", out, by=one)
        trust.write_text(cordon("evidence", "trust", *site.arguments(), "--json").stdout)
        cordon("evidence", "check", out, "--trust", trust)

    with suite.case("blocks of a swapped memory card are evidence, once two people closed the former chain"):
        swapped = Device(site, "camera-18")
        equal(swapped.enrol(), 200)
        for name in ("old-1", "old-2"):
            equal(swapped.verdict(swapped.seal(jpeg(name.encode()), name=name)[0].read_bytes())["verdict"], "accepted")
        swapped.sequence, swapped.previous = 1, None
        stranded = []
        for name in ("new-1", "new-2"):
            block, sealed = swapped.seal(jpeg(name.encode()), name=name)
            equal(swapped.verdict(block.read_bytes())["reason"], "sequence-fork")
            stranded.append(sealed["block_sha256"])
        equal(site.ask(*quarantine, "show", stranded[0], by=one)["code"], "sequence-fork")
        refused("release", stranded[0], "--reason", "card", says="cordon registry replace")
        replace = ["registry", "replace", "--device", "camera-18"]

        def not_replaced(*arguments, says, by):
            proof = by.signs() if by else []
            done = cordon(*replace, *arguments, *site.arguments(), *proof, "--log", "off", code=1)
            contains(done.stderr, says)

        not_replaced("--reason", "card", says="needs a certificate", by=None)
        not_replaced("--reason", "card", says="no rule permits", by=people["officer-2"])
        not_replaced("--confirm", says="nothing is proposed", by=other)
        site.ask(*replace, "--reason", "memory card swapped", by=one)
        not_replaced("--confirm", says="another person", by=one)
        site.stop()
        site.start()
        chain = site.ask(*replace, "--confirm", by=other)["chain"]
        equal((chain["epoch"], chain["closed_head"]), (1, 2))
        for block in stranded:
            equal(site.ask(*quarantine, "show", block, by=one)["code"], None)
            site.ask(*quarantine, "release", block, "--reason", "memory card swapped", by=one)
            site.ask(*quarantine, "confirm", block, by=other)
            answer = swapped.request("GET", f"/intake/v1/blocks/{block}/receipt")
            equal(swapped.open_receipt(answer.body)["verdict"], "accepted")
        block, _ = swapped.seal(jpeg(b"new-3"), name="new-3")
        equal(swapped.verdict(block.read_bytes())["verdict"], "accepted")
        out = site.folder / "package-of-epoch-1"
        site.ask("evidence", "export", f"v-{stranded[0][:16]}", "--out", out, by=one)
        checked = cordon("evidence", "check", out, "--trust", trust, "--json")
        equal(json.loads(checked.stdout)["report"]["epoch"], 1)
        contains((out / "epoch.json").read_text(), "memory card swapped")

    with suite.case("a block that is kept waits no longer, and its bytes stay"):
        site.ask(*quarantine, "keep", blocks[1], "--reason", "file 12", by=one)
        refused("confirm", blocks[1], says="another person")
        site.ask(*quarantine, "confirm", blocks[1], by=other)
        (row,) = site.ask(*quarantine, "list")["blocks"]
        equal((row["block_sha256"], row["kept"]), (blocks[1], True))
        equal(metric(site, "cordon_centre_quarantine_blocks"), 0)
        refused("keep", blocks[1], "--reason", "again", says="kept already")

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
            (line,) = [line for line in shown.splitlines() if action in line and why in line]
            contains(line, who)
            contains(line, why)
        site.verify_audit()
