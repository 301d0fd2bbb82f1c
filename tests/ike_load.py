"""Many peers of one `cordon vpn up`, and strangers by the hundred thousand."""

import contextlib
import ipaddress
import os
import socket
import subprocess
import sys
import time

from tests.harness import equal, run as execute, wait_for
from tests.ike_lab import (
    GCM, INSIDE, THEIRS, Authority, Daemon, Lab, certificate_auth, connection, mirrored
)
from tests.spoof import SPOOFER, cpu, first_message, resident

CAMERAS = 50
SPOOFED = 100_000
# KiB that strangers may cost: 10 000 half-open handshakes at most, a cookie for all others.
GROWTH = 64 * 1024


class Camera:
    """One of many, in a namespace with a cable to the gateway."""

    def __init__(self, lab, stack, number):
        self.name = f"cordon-{os.getpid()}-camera{number}"
        self.gateway, server, link = f"10.30.{number}.1", lab.network.names["server"], f"camera{number}"
        execute("ip", "netns", "add", self.name)
        stack.callback(execute, "ip", "netns", "delete", self.name)
        veth = ["uplink", "type", "veth", "peer", "name", link, "netns", server]
        execute("ip", "-n", self.name, "link", "add", *veth)
        execute("ip", "-n", self.name, "address", "add", f"10.30.{number}.2/24", "dev", "uplink")
        execute("ip", "-n", server, "address", "add", f"{self.gateway}/24", "dev", link)
        for where, what in [(self.name, "uplink"), (self.name, "lo"), (server, link)]:
            execute("ip", "-n", where, "link", "set", what, "up")


def crowd(suite, lab, count):
    with suite.case(f"{count} cameras and one gateway; one of them is revoked"):
        began = time.monotonic()
        good = Authority(lab.suite.folder / "crowd")
        good.issue("theirs")
        good.revoke()
        trust = f'trust = {{ anchors = ["{good.folder}/ca.pem"] }}'
        lists = f'trust = {{ anchors = ["{good.folder}/ca.pem"], crls = ["{good.folder}/crl.pem"] }}'
        text = '[[pool]]\nname = "cameras"\naddresses = ["10.9.0.0/24"]\n'
        auth = certificate_auth(good.folder, "theirs")
        text += mirrored(remote_id="any", auth=auth, extra='pool = "cameras"', other=None, suite=None)
        with contextlib.ExitStack() as stack:
            gateway = stack.enter_context(Daemon(lab, "server", text, lists))
            cameras, certificates = [], []
            for number in range(count):
                camera = Camera(lab, stack, number)
                certificates.append(good.issue(f"camera-{number}"))
                own = connection(
                    remote=camera.gateway, local_id=None, auth=certificate_auth(good.folder, f"camera-{number}"),
                    extra='request = ["ipv4"]', local=None, suite=None,
                )
                daemon = Daemon(lab, "client", own, trust, "addresses = []", camera.name)
                cameras.append((camera, stack.enter_context(daemon)))
            gateway.up(count, 60)
            sas = gateway.sas()
            given = sorted((sa["addresses"][0] for sa in sas), key=ipaddress.ip_address)
            equal(given, [f"10.9.0.{number + 1}" for number in range(count)], "addresses")
            equal({sa["peer"] for sa in sas}, {f"CN=camera-{n}.example.org" for n in range(count)}, "peers")
            for camera, _ in cameras:
                execute("ip", "netns", "exec", camera.name, "ping", "-c", "1", "-W", "5", INSIDE["server"])
            for address in given:
                lab.ping("server", address, count=1)
            spent, kib = cpu(gateway.process.child.pid), resident(gateway.process.child.pid)
            print(f"        up after {time.monotonic() - began:.0f} s; the gateway has {kib >> 10} MiB and has used"
                  f" {spent:.1f} s of processor time", flush=True)
            before = {sa["peer"]: sa["spi"] for sa in sas}
            good.revoke(certificates[count // 2])
            gateway.says("closing a tunnel", "was revoked", seconds=10)
            lost = f"CN=camera-{count // 2}.example.org"
            wait_for(lambda: len(gateway.children()) == count - 1, "the others alone", 10)
            after = {sa["peer"]: sa["spi"] for sa in gateway.sas() if sa["children"]}
            equal(after, {peer: spi for peer, spi in before.items() if peer != lost}, "IKE SAs")


def strangers(suite, lab):
    with suite.case(f"{SPOOFED} first messages with senders of one network; others come in meanwhile"):
        with contextlib.ExitStack() as stack:
            gateway = stack.enter_context(Daemon(lab, "server", mirrored(remote=None, suite=GCM)))
            pid = gateway.process.child.pid
            before, used = resident(pid), cpu(pid)
            command = lab.network.command("client", sys.executable, "-c", SPOOFER, THEIRS)
            spoofer = subprocess.Popen(command, stdin=subprocess.PIPE)
            stack.callback(spoofer.wait)
            stack.callback(spoofer.stdin.close)
            # 198.51.100.0/24 is nobody's: no answer finds its way.
            network = socket.inet_aton("198.51.100.0")[:3]
            for number in range(SPOOFED):
                message = first_message(number)
                head = network + bytes([number % 256]) + len(message).to_bytes(2, "big")
                spoofer.stdin.write(head + message)
                if number == SPOOFED // 3:
                    ours = stack.enter_context(Daemon(lab, "client", connection()))
                if number == 2 * SPOOFED // 3:
                    ours.up()
            spoofer.stdin.close()
            spoofer.wait()
            lab.ping()
            counters = gateway.ike()["counters"]
            equal((counters["established"], counters["ike_sas"]), (1, 1), "IKE SAs")
            assert counters["cookies_sent"] > 1000, counters
            grown, spent = resident(pid) - before, cpu(pid) - used
            print(f"        {spent:.1f} s of processor time, {grown} KiB more memory, {counters['cookies_sent']} cookies,"
                  f" {counters['half_open_limit']} refused, {counters['busy']} dropped while busy", flush=True)
            assert grown < GROWTH, f"{grown} KiB"
            # What they left is forgotten, and a line a stranger does not fill the log.
            assert len(gateway.log().splitlines()) < 1000, len(gateway.log().splitlines())
            lab.stream(1)


def run(suite):
    lab = Lab(suite)
    strangers(suite, lab)
    crowd(suite, lab, CAMERAS)
