"""Handshakes of honest cameras while somebody floods the gateway: how long they take, and what memory it costs."""

import contextlib
import json
import subprocess
import sys
import time

from tests.harness import ROOT, equal, wait_for
from tests.ike_lab import INSIDE, OURS, THEIRS, Authority, Daemon, Lab, certificate_auth, connection
from tests.ike_pair import NETS, Peer
from tests.spoof import resident

LAB = ROOT / "target/debug/cordon-lab"
CLIENTS, EACH = 10, 10
# KiB that the gateway may take for attackers: docs/tunnels/operation.md names the bounds.
GROWTH = 48 * 1024
# Identities that ask for too much at once, and the bound of docs/tunnels/operation.md: KiB of the daemon, and of each peer.
ASKING = 20
BASE, EACH_PEER = 80 * 1024, 1024

# First messages from many networks at once that return the cookies they are asked for, as fast as they may.
COOKIES = """
import os, select, socket, struct, sys, time
sys.path.insert(0, sys.argv[1])
from tests.spoof import first_message
# Python has no name for it.
IP_PKTINFO = 8
server, networks, end = sys.argv[2], int(sys.argv[3]), time.monotonic() + float(sys.argv[4])
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
out.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
out.bind(("0.0.0.0", 1500))
out.setblocking(False)
sent = {}
cookies = number = 0
def send(address, message):
    info = struct.pack("=I4s4s", 0, address, address)
    try:
        out.sendmsg([message], [(socket.IPPROTO_IP, IP_PKTINFO, info)], 0, (server, 500))
    except BlockingIOError:
        pass
while time.monotonic() < end:
    for _ in range(20):
        number += 1
        address = bytes([203, number % networks, 113, number // networks % 250 + 1])
        message = first_message(number)
        sent[message[:8]] = (address, message)
        send(address, message)
    while select.select([out], [], [], 0)[0]:
        answer, control, _, _ = out.recvmsg(65536, 128)
        # An answer with a cookie begins with a Notify payload; the request comes again with it in front.
        known = sent.pop(answer[:8], None)
        if answer[16] == 41 and known and answer[34:36] == (16390).to_bytes(2, "big"):
            address, message = known
            length = int.from_bytes(answer[30:32], "big")
            notify = bytes([message[16], 0]) + answer[30:28 + length]
            size = (len(message) + length).to_bytes(4, "big")
            send(address, message[:16] + bytes([41]) + message[17:24] + size + notify + message[28:])
            cookies += 1
    if len(sent) > 100000:
        sent.clear()
print(cookies, flush=True)
"""


class Crowd:
    """Honest cameras that make tunnels and close them again."""

    def __init__(self, lab):
        self.lab = lab
        self.authority = Authority(lab.suite.folder / "crowd")
        self.authority.issue("server")
        self.authority.issue("theirs")
        names = [f"client-{number}" for number in range(CLIENTS)]
        self.authority.issue_for("clients", [f"{name}.example.org" for name in names])
        self.clients = [(f"10.207.0.{100 + number}", f"10.208.1.{1 + number}") for number in range(CLIENTS)]
        for outside, _ in self.clients:
            lab.network.run("client", "ip", "address", "add", f"{outside}/24", "dev", "cable")

    def gateway(self):
        """The text of a gateway for them, and for one with a secret."""
        folder = self.authority.folder
        peer = 'unique = "never"\npeer = { ike_sas = 100, handshakes_per_minute = 100000 }'
        text = connection(
            name="clients", remote=None, local_id="server.example.org", remote_id="any", start="none",
            auth=certificate_auth(folder, "server"), local=f"{INSIDE['server']}/32", other="10.208.1.0/24", extra=peer,
        )
        text += connection(
            name="other", remote=None, local_id="theirs.example.org", remote_id="ours.example.org", start="none",
            local=NETS["theirs"], other=NETS["ours"],
        )
        return text, f'trust = {{ anchors = ["{folder}/ca.pem"] }}'

    def times(self):
        """Seconds that each of the handshakes took, sorted."""
        read = lambda name: (self.authority.folder / name).read_text()
        order = {
            "server": THEIRS, "clients": self.clients, "inside": INSIDE["server"], "root": read("ca.pem"),
            "certificate": read("clients.pem"), "key": read("clients.key"), "hybrid": False, "count": EACH,
            "seconds": 0.0,
        }
        done = self.lab.network.run("client", LAB, "ike-clients", input=json.dumps(order), timeout=120)
        times = sorted(json.loads(done.stdout)["times"])
        equal(len(times), CLIENTS * EACH, "handshakes")
        print(f"      handshakes: median {times[len(times) // 2] * 1000:.0f} ms, p99 {times[-2] * 1000:.0f} ms")
        return times


def strangers(suite, lab, crowd, gateway):
    # All of 203.0.0.0/8 is the attacker's.
    lab.network.run("server", "ip", "route", "add", "203.0.0.0/8", "via", OURS)
    lab.network.run("client", "ip", "route", "add", "local", "203.0.0.0/8", "dev", "lo")
    for networks in (52, 250):
        with suite.case(f"strangers of {networks} networks that return cookies: handshakes of others, p99 within 1 s"):
            before = resident(gateway.process.child.pid)
            arguments = [sys.executable, "-c", COOKIES, str(ROOT), THEIRS, str(networks), "12"]
            attack = subprocess.Popen(lab.network.command("client", *arguments), stdout=subprocess.PIPE, text=True)
            suite.finally_do(attack.kill)
            wait_for(lambda: gateway.counter("cookies_sent") > 1000, "the flood")
            subprocess.run(["sleep", "4"], check=True)
            times = crowd.times()
            cookies = int(attack.communicate(timeout=60)[0])
            grown = resident(gateway.process.child.pid) - before
            puzzles = gateway.counter("puzzles_sent")
            print(f"      {cookies} cookies returned, {puzzles} puzzles demanded; {grown} KiB more memory")
            assert cookies > 2000, cookies
            assert times[-2] <= 1.0, times[-5:]
            assert grown < GROWTH, grown
            assert before + grown <= BASE + CLIENTS * EACH_PEER, (before, grown)


def authenticated(suite, lab, crowd, gateway):
    with suite.case("an authenticated peer that asks without end: handshakes of others, p99 within 1 s"):
        with contextlib.ExitStack() as stack:
            peer = Peer(lab, "aes128gcm16-prfsha256-x25519", "aes128gcm16-x25519", None)
            stack.callback(peer.stop)
            peer.tell("initiate")
            peer.expect("child-up")
            before = resident(gateway.process.child.pid)
            for _ in range(4000):
                peer.tell("rekey-ike")
                peer.tell("create-child")
                peer.tell("probe")
            times = crowd.times()
            grown = resident(gateway.process.child.pid) - before
            rekeys, kib = peer.count("ike-rekeyed"), resident(gateway.process.child.pid)
            print(f"      {rekeys} new IKE SAs granted; {grown} KiB more memory, {kib >> 10} MiB in all")
            assert times[-2] <= 1.0, times[-5:]
            assert grown < GROWTH, grown
            assert rekeys <= 130, rekeys


def crowded(suite, lab):
    """Many identities at once, each asking for all that it may have and more."""
    authority = Authority(lab.suite.folder / "asking")
    authority.issue("theirs")
    text = connection(
        name="asking", remote=None, local_id="theirs.example.org", remote_id="any", start="none",
        auth=certificate_auth(authority.folder, "theirs"), local=NETS["theirs"], other="10.209.0.0/16",
    )
    top = f'trust = {{ anchors = ["{authority.folder}/ca.pem"] }}'
    with suite.case(f"{ASKING} authenticated peers that ask without end: {BASE >> 10} MiB and {EACH_PEER} KiB for each"):
        with contextlib.ExitStack() as stack:
            gateway = stack.enter_context(Daemon(lab, "server", text, top))
            pid = gateway.process.child.pid
            quiet = resident(pid)
            peers = []
            for number in range(ASKING):
                address, folder = f"10.207.0.{150 + number}", authority.folder / f"peer{number}"
                lab.network.run("client", "ip", "address", "add", f"{address}/24", "dev", "cable")
                folder.mkdir()
                authority.issue(f"peer{number}")
                for kind in ("pem", "key"):
                    (folder / f"ours.{kind}").write_bytes((authority.folder / f"peer{number}.{kind}").read_bytes())
                (folder / "ca.pem").write_bytes((authority.folder / "ca.pem").read_bytes())
                extra = ["--local", address, "--local-id", f"peer{number}.example.org"]
                nets = {"ours": f"10.209.{number}.0/24", "theirs": NETS["theirs"]}
                suites = "aes128gcm16-prfsha256-x25519", "aes128gcm16-x25519"
                peers.append(Peer(lab, *suites, folder, extra=extra, nets=nets))
                stack.callback(peers[-1].stop)
            for peer in peers:
                peer.tell("initiate")
            for peer in peers:
                peer.expect("child-up")
            highest, children = (up := resident(pid)), 0
            for turn in range(80):
                for peer in peers:
                    for order in ("create-child", "rekey-child", "rekey-ike", "probe"):
                        peer.tell(order)
                    # A new handshake now and then, which ends the one before.
                    if turn % 40 == 39:
                        peer.tell("initiate")
                time.sleep(0.25)
                highest = max(highest, resident(pid))
                children = max(children, gateway.ike()["counters"]["child_sas"]) if turn % 10 == 0 else children
            counters = gateway.ike()["counters"]
            each = (highest - quiet) / ASKING
            print(f"      {quiet} KiB in quiet, {up} KiB with one tunnel each, {highest} KiB at most: {each:.0f} KiB for each;"
                  f" {children} Child SAs at once, {counters['ike_rekeys']} IKE and {counters['child_rekeys']} Child SAs replaced")
            assert counters["ike_rekeys"] > ASKING, counters
            assert highest <= BASE + ASKING * EACH_PEER, (quiet, highest)


def run(suite):
    lab = Lab(suite)
    crowded(suite, lab)
    lab.network.run("server", "ip", "address", "delete", f"{INSIDE['server']}/32", "dev", "lo")
    crowd = Crowd(lab)
    with Daemon(lab, "server", *crowd.gateway()) as gateway:
        with suite.case("the quiet gateway"):
            crowd.times()
        authenticated(suite, lab, crowd, gateway)
        strangers(suite, lab, crowd, gateway)
