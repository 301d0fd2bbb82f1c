"""An audit log that is put back, replaced or removed: the site stops instead of promising numbers twice."""

import json
import os
import shutil

from tests.harness import CORDON, Camera, Site, contains, cordon, equal, jpeg, run as run_command, wait_for


def refused(site, *words):
    """A start that must fail; its two lines come back."""
    done = run_command(CORDON, "up", *site.arguments(), "--log", "off", code=1, timeout=60)
    lines = done.stderr.strip().splitlines()
    equal(len(lines), 2, f"lines of {lines}")
    for word in words:
        contains(lines[0], word)
    contains(lines[1], "bring back the newest copy")


def put(source, target):
    shutil.rmtree(target, ignore_errors=True)
    if source:
        shutil.copytree(source, target, symlinks=True)


def run(suite):
    site = Site(suite).start()
    site.people()
    audit, kept = site.data / "audit", suite.folder
    camera = Camera(site).start()
    camera.drop("one", jpeg(b"one"))
    camera.drain()
    site.stop()
    note = site.data / "last-checkpoint"
    shutil.copytree(audit, kept / "older", symlinks=True)
    older_note = note.read_bytes()
    site.start()
    camera.drop("two", jpeg(b"two"))
    camera.drain()
    camera.stop()
    site.stop()
    shutil.copytree(audit, kept / "newest", symlinks=True)
    known = note.read_bytes()

    def is_newest():
        """The kept checkpoint is the log's, and a line more."""
        checkpoint, authenticator = (audit / "log" / "checkpoint").read_bytes(), "\u2014 cordon-last-checkpoint ".encode()
        return note.read_bytes().startswith(checkpoint + authenticator)

    with suite.case("the newest checkpoint is kept outside of the log's folder"):
        assert is_newest(), known

    with suite.case("an older copy of the log proves itself, and stops the site"):
        put(kept / "older", audit)
        site.verify_audit()
        refused(site, "went back")
        contains(cordon("audit", "verify", audit / "log", "--since", note, code=1).stderr, "does not hold")

    with suite.case("without the kept checkpoint an older copy is refused, and signed checkpoints of before are none"):
        note.unlink()
        refused(site, "last-checkpoint is gone")
        note.write_bytes((audit / "log" / "checkpoint").read_bytes())
        refused(site, "was not written by this site")
        last_line = known.splitlines(keepends=True)[-1]
        note.write_bytes((audit / "log" / "checkpoint").read_bytes() + last_line)
        refused(site, "was not written by this site")

    with suite.case("where the kept checkpoint was put back as well, receipts in the index still tell an older copy"):
        note.write_bytes(older_note)
        refused(site, "the centre's index relies on number")

    with suite.case("a log that was removed is no new beginning"):
        note.unlink()
        put(None, audit)
        refused(site, "the centre's index relies on number")
        put(None, audit)
        note.write_bytes(known)
        refused(site, "the audit log is gone")
        assert not (audit / "log").exists(), "a refused start has made a new log"
        (site.data / "centre").rename(kept / "centre")
        note.unlink()
        put(None, audit)
        # Once more: what a refused start records must not make a beginning of it.
        for _ in range(2):
            refused(site, "the registry relies on number 0")
        (site.data / "registry.sqlite").rename(kept / "registry.sqlite")
        refused(site, "the directory relies on number 0")
        (kept / "registry.sqlite").rename(site.data / "registry.sqlite")
        (kept / "centre").rename(site.data / "centre")

    with suite.case("journals that were cut, or an order, make no new beginning either"):
        put(kept / "newest", audit)
        shutil.rmtree(audit / "log")
        for role in ("site", "portal"):
            shutil.rmtree(audit / "journal" / role, ignore_errors=True)
        for shipped in (audit / "journal").glob("*/shipped"):
            shipped.unlink()
        for _ in range(2):
            refused(site, "last-checkpoint is gone")
        reason = ("--reason", "a minute ahead")
        contains(cordon("audit", "accept-clock", *site.arguments(), *reason, code=1).stderr, "last-checkpoint is gone")
        refused(site, "last-checkpoint is gone")

    with suite.case("a loss that the log does not know of is none"):
        # Anybody with the disk can write the file; what a person has accepted is an event of the log.
        losses = site.data / "log-losses.json"
        loss = {"at": "2026-11-26T10:00:00Z", "reason": "", "unix_user": 0, "relied_on": 10**9}
        for size in (0, 1, 10**9):
            losses.write_text(json.dumps([loss | {"size": size}]))
            put(None, audit)
            refused(site, "the centre's index relies on number")
            put(kept / "older", audit)
            note.write_bytes(older_note)
            refused(site, "the centre's index relies on number")
            note.unlink()
        losses.unlink()

    with suite.case("a log of another key or history is refused"):
        note.write_bytes(known)
        other = Site(suite, "other").start()
        other.people()
        other.stop()
        put(other.data / "audit", audit)
        shutil.copy(other.data / "passphrase", kept / "passphrase")
        done = run_command(
            CORDON, "up", *site.arguments(), "--passphrase-file", kept / "passphrase", "--log", "off", code=1
        )
        contains(done.stderr, "not of this log's key")

    with suite.case("the newest copy brings the site back"):
        put(kept / "newest", audit)
        site.start()
        site.stop()

    with suite.case("the kept checkpoint follows while the site runs"):
        site.start()
        camera.start()
        before = note.read_bytes()
        camera.drop("four", jpeg(b"four"))
        camera.drain()
        wait_for(is_newest, "the newest checkpoint", 10)
        assert note.read_bytes() != before
        camera.stop()
        site.process.kill()
        site.start()
        site.stop()

    with suite.case("a loss is accepted by a person, with a reason, for ever"):
        put(kept / "older", audit)
        refused(site, "went back")
        cordon("audit", "accept-loss", *site.arguments(), code=2)
        cordon("audit", "accept-loss", *site.arguments(), "--reason", "the log's disk failed")
        site.start()
        shown = cordon("audit", "show", audit / "log").stdout
        (line,) = [line for line in shown.splitlines() if "audit.accept-loss" in line]
        contains(line, f"unix:{os.getuid()}")
        contains(shown, "the log's disk failed")
        camera = camera.start()
        camera.drop("three", jpeg(b"three"))
        camera.drain()
        site.stop()
        site.verify_audit()
        # What is lost after that is a new loss.
        put(kept / "older", audit)
        refused(site, "went back")

    with suite.case("the camera has noticed, shows it until a person has seen it, and keeps the evidence"):
        done = cordon("camera", "status", "--config", camera.config, "--json", code=1)
        (problem, *more) = json.loads(done.stdout)["contradictions"]
        # By the time of the contact it is still shorter, or longer again with other entries than the camera had seen.
        seen = ("the audit log is shorter than it was", "the audit log does not continue what it was")
        assert problem["problem"].startswith(seen), problem
        assert len(more) < 2, more
        # Both are signed by the log: whoever put it back cannot deny it.
        for note in (problem["known"], problem["found"]):
            contains(note, "cordon.example.org/audit\n")
        contains(camera.log.read_text(), "the centre's audit log contradicts itself")
        cordon("camera", "accept-log", "--config", camera.config)
        cordon("camera", "status", "--config", camera.config)
