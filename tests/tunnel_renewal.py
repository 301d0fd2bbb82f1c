"""Certificates of tunnels are renewed while packets go through: none is lost, and the new ones count."""

import os
import re

from tests.harness import CORDON, Camera, Process, Site, contains, equal, jpeg, wait_for
from tests.harness import run as execute
from tests.years import Clock
from tests.years_tunnel import GATEWAY, INSIDE, Tunnel


def established(daemon):
    status = execute(CORDON, "vpn", "status", "--config", daemon.file, "--format", "prometheus").stdout
    return int(re.search(r"^cordon_vpn_ike_established_total (\d+)$", status, re.MULTILINE)[1])


def renew(site, file, *options, code=0, port=None):
    command = [CORDON, "pki", "renew", "--force", "--file", file, "--server", f"localhost:{port or site.enrolment}"]
    return execute(*command, "--root", site.root, *options, code=code)


def lossless(tunnel, during):
    """Pings twenty times a second while something happens; returns what is missing."""
    log = tunnel.suite.folder / "ping"
    command = tunnel.network.command("client", "ping", "-n", "-i", "0.05", "-c", "160", "-W", "5", INSIDE)
    with log.open("wb") as out:
        process = Process(command, tunnel.suite.folder / "ping.err", stdout=out)
        during()
        process.child.wait(30)
    found = re.search(r"(\d+) packets transmitted, (\d+) received", log.read_text())
    return int(found[1]) - int(found[2])


def run(suite):
    site = Site(suite).start()
    camera = Camera(site).start()
    camera.drop("first", jpeg(b"first"))
    camera.drain()
    # What the agent does, by hand and without waiting for eight months.
    camera.stop()
    tunnel = Tunnel(suite, site, camera, Clock(suite.folder))
    identity = camera.folder / "identity.pem"

    with suite.case("a camera's daemon shows the renewed certificate within seconds, and no packet is lost"):
        before, old = established(tunnel.gateway), identity.read_text()
        options = ("--passphrase-file", camera.folder / "passphrase")
        equal(lossless(tunnel, lambda: renew(site, identity, *options)), 0, "lost packets")
        wait_for(lambda: established(tunnel.gateway) == before + 1, "another authentication", 10)
        contains(tunnel.camera.text(), "our certificate was renewed")
        assert identity.read_text() != old
        equal(identity.stat().st_mode & 0o777, 0o600, "mode")

    with suite.case("a renewal that is interrupted asks for the same key again, and keeps link, owner and mode"):
        real = camera.folder / "elsewhere.pem"
        identity.rename(real)
        identity.symlink_to(real.name)
        os.chown(real, 65534, 65534)
        real.chmod(0o640)
        # Nobody listens on the port of "discard".
        renew(site, identity, *options, code=1, port=9)
        next_key = identity.with_name(f".{identity.name}.next")
        asked = next_key.read_text()
        renew(site, identity, *options, code=1, port=9)
        equal(next_key.read_text(), asked, "key that is asked for")
        renew(site, identity, *options)
        assert not next_key.exists()
        assert identity.is_symlink()
        stat = real.stat()
        equal((stat.st_uid, stat.st_gid, stat.st_mode & 0o777), (65534, 65534, 0o640), "owner and mode")
        os.chown(real, 0, 0)

    with suite.case("who uses a renewed certificate is told until that works"):
        hook, told = suite.folder / "hook", suite.folder / "told"
        hook.write_text(f"#!/bin/sh\necho once >> {told}\ntest $(wc -l < {told}) -gt 1\n")
        hook.chmod(0o755)
        own = tunnel.gateway.folder / "gateway.pem"
        contains(renew(site, own, "--deploy-hook", hook, code=1).stderr, "exit status: 1")
        command = [CORDON, "pki", "renew", "--file", own, "--server", f"localhost:{site.enrolment}", "--root", site.root]
        contains(execute(*command, "--deploy-hook", hook).stdout, "not due")
        equal(told.read_text().count("once"), 2, "times that it was told")
        execute(*command, "--deploy-hook", hook)
        equal(told.read_text().count("once"), 2, "times that it was told")

    with suite.case("the gateway's is taken over, no packet is lost, and it counts for the next authentication"):
        before = established(tunnel.gateway)
        own = tunnel.gateway.folder / "gateway.pem"
        first = tunnel.gateway.certificate_ends()
        equal(lossless(tunnel, lambda: renew(site, own)), 0, "lost packets")
        wait_for(lambda: tunnel.gateway.certificate_ends() > first, "the new certificate", 20)
        equal(established(tunnel.gateway), before, "authentications")
        execute(CORDON, "vpn", "down", "--config", tunnel.camera.file, "headquarters")
        execute(CORDON, "vpn", "connect", "--config", tunnel.camera.file, "headquarters")
        tunnel.check()

    with suite.case("a file that does not fit leaves the certificate of before in use, and the log says so"):
        good = own.read_text()
        key, chain = good[: good.index("-----BEGIN CERTIFICATE")], good[good.index("-----BEGIN CERTIFICATE") :]
        other = tunnel.out / "server.conf"
        text = other.read_text()
        text = text[text.index("<key>\n") + 6 : text.index("</key>")]
        assert key != text
        own.write_text(text + chain)
        wait_for(lambda: "renewed certificates are not taken over" in tunnel.gateway.text(), tunnel.gateway.text, 20)
        tunnel.check()
        own.write_text(good)

    with suite.case("a revoked gateway renews nothing, and its tunnels end"):
        site.ask("pki", "revoke", "--gateway", GATEWAY, "--reason", "key-compromise")
        contains(renew(site, own, code=1).stderr, "cordon registry list")
        wait_for(lambda: "revoked" in tunnel.camera.text(), tunnel.camera.text, 20)
        wait_for(lambda: not tunnel.ping(), "no tunnel", 20)
        equal({row["state"] for row in site.ask("registry", "list")["holders"] if row["holder"] == GATEWAY}, {"revoked"})
    tunnel.end()
    site.stop()
    site.verify_audit()
