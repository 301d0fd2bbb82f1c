"""Authenticated peers of `cordon vpn up` that want more than they may have."""

import contextlib
import subprocess
import sys
import time

from tests.harness import contains, equal, wait_for
from tests.ike_lab import THEIRS, Authority, Daemon, Lab, certificate_auth, connection, initiate, mirrored

POOL = '[[pool]]\nname = "inside"\naddresses = ["10.9.0.0/24"]\n'


def gateway(**options):
    return connection(start="none", remote=None, **options)


def routes(lab):
    return lab.network.run("client", "ip", "route").stdout


def pool(suite, lab):
    """charon asks a gateway with a pool for no address, and then for those of others."""
    text = POOL + gateway(extra='pool = "inside"', other=None)
    for wanted in ["10.9.0.77/32", "8.8.8.0/24", f"{THEIRS}/32", "0.0.0.0/0"]:
        with suite.case(f"a pool's peer that asks for no address gets no traffic: {wanted}"):
            with lab.charon(local=wanted) as charon, Daemon(lab, "client", text) as ours:
                before = routes(lab)
                # IKE_AUTH first; then there is an IKE SA, and CREATE_CHILD_SA asks.
                for _ in range(3):
                    charon.control("--initiate", "--child", "net", "--timeout", "5", code=None)
                wait_for(lambda: len(ours.sas()) == 1, lambda: ours.log())
                equal(ours.sas()[0]["children"], [], "Child SAs")
                equal(routes(lab), before, "routes")
                contains(charon.log(), "TS_UNACCEPTABLE")
                ours.says("no traffic selectors in common")
    with suite.case("a pool's peer with its own address gets no other one"):
        options = {"addresses": "vips = 0.0.0.0", "local": "0.0.0.0/0"}
        with lab.charon(**options) as charon, Daemon(lab, "client", text) as ours:
            initiate("theirs", ours, charon)
            equal([child["remote"] for child in ours.sas()[0]["children"]], ["10.9.0.1/32"], "its traffic")
            for target in (["--child", "net"], ["--ike", "peer"], ["--child", "net"]):
                charon.control("--rekey", *target)
            wait_for(lambda: ours.counter("child_rekeys") >= 2, lambda: ours.log())
            remote = {child["remote"] for sa in ours.sas() for child in sa["children"]}
            equal(remote, {"10.9.0.1/32"}, "its traffic after new keys")
            assert "8.8.8.0" not in routes(lab)


def outside(suite, lab):
    for network, why in [
        ("10.207.0.128/25", "to which this host is connected"),
        ("64.0.0.0/2", "most of the address space"),
    ]:
        with suite.case(f"a network that the host has itself, or most networks, is not routed to a peer: {network}"):
            text = gateway(other=network)
            with lab.charon(local=network) as charon, Daemon(lab, "client", text) as ours:
                before = routes(lab)
                charon.control("--initiate", "--child", "net", "--timeout", "5", code=None)
                ours.says("Child SA refused", why)
                wait_for(lambda: ours.sas() and not ours.sas()[0]["children"], lambda: ours.log())
                equal(routes(lab), before, "routes")


# Listens on the gateway's cable for requests with a ticket, and shows each again when its input says so: as it was,
# with another SPI, and with another ticket in place of its own. Prints the type of what comes back.
TICKETS = """
import select, socket, sys
cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
cable.bind(("cable", 0))
print("ready", flush=True)
seen = []
while True:
    ready, _, _ = select.select([cable, sys.stdin], [], [])
    if sys.stdin in ready:
        break
    frame, address = cable.recvfrom(65536)
    # IPv4 without options, UDP to port 500, exchange 38, not yet an SPI of the responder.
    if frame[23:24] == b"\\x11" and frame[36:38] == b"\\x01\\xf4" and frame[60:61] == b"\\x26" and frame[50:58] == bytes(8):
        if frame[42:] not in seen:
            seen.append(frame[42:])
print(len(seen), flush=True)
again = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
again.bind((sys.argv[1], 7777))
again.settimeout(3)
def show(message):
    again.sendto(message, (sys.argv[2], 500))
    try:
        answer = again.recv(65536)
    except TimeoutError:
        return "nothing"
    # A notification about nothing in particular, of this type.
    return str(int.from_bytes(answer[34:36], "big")) if answer[16] == 41 else "payload %d" % answer[16]
for message in seen:
    other = bytes([message[0] ^ 1]) + message[1:]
    changed = other[:-200] + bytes([other[-200] ^ 1]) + other[-199:]
    print(show(message), show(other), show(other), show(changed), flush=True)
"""
TICKET_NACK = "16412"


def tickets(suite, lab):
    """Cameras resume their sessions after a crash of the gateway; somebody on the cable has recorded their tickets."""
    good = Authority(lab.suite.folder / "tickets")
    good.issue("theirs")
    certificates = {name: good.issue(name) for name in ("ours", "second")}
    good.revoke()
    trust = f'trust = {{ anchors = ["{good.folder}/ca.pem"], crls = ["{good.folder}/crl.pem"] }}'
    text = mirrored(remote_id="any", auth=certificate_auth(good.folder, "theirs"), suite=None)
    top = f'crash_secret = "crash.secret"\nsession_tickets = "tickets"\n{trust}'
    own = connection(auth=certificate_auth(good.folder), suite=None, extra="liveness = 1")
    with contextlib.ExitStack() as stack:
        gateway = Daemon(lab, "server", text, top).start()
        stack.callback(lambda: gateway.process.kill())
        camera = stack.enter_context(Daemon(lab, "client", own, f'trust = {{ anchors = ["{good.folder}/ca.pem"] }}'))
        camera.up()

        def crash():
            gateway.process.kill()
            (gateway.folder / "log").unlink()
            gateway.start()

        with suite.case("a ticket that was used is refused, whoever shows it, and a changed one as well"):
            line = lab.network.command("server", sys.executable, "-c", TICKETS, THEIRS, THEIRS)
            recorder = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(recorder.kill)
            equal(recorder.stdout.readline(), "ready\n", "recorder")
            crash()
            camera.says("session resumed")
            gateway.up()
            lab.ping()
            said = recorder.communicate("now\n", timeout=30)[0].split("\n")
            equal(said[0], "1", "tickets on the cable")
            # The request as it was comes from another address, so it is another one too.
            equal(said[1].split(), [TICKET_NACK] * 4, "answers")
            equal(len(gateway.sas()), 1, "IKE SAs")
        with suite.case("a ticket does not help a camera whose certificate was revoked meanwhile"):
            good.revoke(certificates["ours"])
            crash()
            gateway.says("revoked", "authentication failed")
            wait_for(lambda: not camera.children(), lambda: camera.log()[-2000:])
            equal(gateway.sas(), [], "IKE SAs")
        with suite.case("a gateway that has lost its keys takes a whole handshake"):
            good.revoke()
            crash()
            gateway.up()
            gateway.process.kill()
            (gateway.folder / "tickets").unlink()
            (gateway.folder / "log").unlink()
            gateway.start().up()
            lab.ping()
            equal((gateway.folder / "tickets").stat().st_mode & 0o777, 0o600, "mode")
        with suite.case("the key of tickets is replaced while the daemon runs in its confinement"):
            gateway.process.kill()
            (gateway.folder / "log").unlink()
            file, old = gateway.folder / "tickets", "11" * 32
            # Its twelve hours are over in a few seconds.
            file.write_text(f"session tickets 1\n{int(time.time()) - 12 * 3600 + 4} {old}\n")
            gateway.start()
            wait_for(lambda: len(file.read_text().splitlines()) == 3, lambda: gateway.log()[-2000:], 20)
            _, fresh, before = file.read_text().splitlines()
            assert before.endswith(old) and not fresh.endswith(old), file.read_text()
            equal(file.stat().st_mode & 0o777, 0o600, "mode")
            gateway.up()


# Sees the first message of each handshake on the gateway's cable, and refuses at once in the gateway's name.
FORGER = """
import select, socket, sys
cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
cable.bind(("cable", 0))
print("ready", flush=True)
count = 0
while True:
    ready, _, _ = select.select([cable, sys.stdin], [], [])
    if sys.stdin in ready:
        break
    frame, address = cable.recvfrom(65536)
    # IPv4 without options, UDP to port 500, IKE_SA_INIT of an initiator.
    if address[2] == socket.PACKET_OUTGOING or frame[23:24] != b"\\x11" or frame[36:38] != b"\\x01\\xf4" or frame[60:62] != b"\\x22\\x08":
        continue
    for kind in (14, 7):
        # Both SPIs, a notification, version 2, the exchange, a response, number 0: NO_PROPOSAL_CHOSEN or INVALID_SYNTAX.
        message = frame[42:50] + bytes(8) + bytes([41, 0x20, 34, 0x20]) + bytes(4) + (36).to_bytes(4, "big") + bytes([0, 0, 0, 8, 0, 0, 0, kind])
        udp = frame[36:38] + frame[34:36] + (8 + len(message)).to_bytes(2, "big") + bytes(2)
        ip = bytearray(bytes([0x45, 0]) + (28 + len(message)).to_bytes(2, "big") + bytes([0, 0, 0, 0, 64, 17, 0, 0]) + frame[30:34] + frame[26:30])
        total = sum(int.from_bytes(ip[at:at + 2], "big") for at in range(0, 20, 2))
        total = (total & 0xffff) + (total >> 16)
        ip[10:12] = (0xffff - ((total & 0xffff) + (total >> 16))).to_bytes(2, "big")
        cable.send(frame[6:12] + frame[:6] + frame[12:14] + bytes(ip) + udp + message)
    count += 1
print(count, flush=True)
"""


def forged_refusals(suite, lab):
    with suite.case("who refuses in the gateway's name, and is faster, keeps no tunnel from coming up"):
        with lab.charon() as charon, Daemon(lab, "client", connection(start="none")) as ours:
            line = lab.network.command("server", sys.executable, "-c", FORGER)
            forger = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            suite.finally_do(forger.kill)
            equal(forger.stdout.readline(), "ready\n", "forger")
            for count in range(1, 6):
                ours.tell("connect", "peer")
                ours.up()
                equal(ours.counter("established"), count, "IKE SAs that came up")
                ours.tell("down", "peer")
                wait_for(lambda: "ESTABLISHED" not in charon.sas() and not ours.sas(), charon.sas)
            equal(ours.ask("explain")["failed"], [], "failures")
            equal(forger.communicate("end\n", timeout=10)[0], "5\n", "forged refusals")


def run(suite):
    lab = Lab(suite)
    forged_refusals(suite, lab)
    tickets(suite, lab)
    pool(suite, lab)
    outside(suite, lab)
