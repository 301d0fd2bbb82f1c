"""The product's own use of an accelerator: ESP of `cordon vpn up`, sealing at the camera, opening and signing at the site; each moves
data through a device in a process of its own, which is killed and lies in the middle."""

import contextlib
import json
import signal
import socket
import ssl
import threading
import time
import urllib.request
from pathlib import Path

from tests.harness import CORDON, Camera, Process, Site, contains, cordon, cordon_json, equal, jpeg, wait_for
from tests.ike_lab import Daemon, Lab, connection, mirrored
from tests.namespaces import OUTSIDE

LIMIT = 1500
SERVE = Path(CORDON).resolve().parent / "accel_serve"
# The model's RSA is slower than any hardware, on a machine that does other work as well.
DEADLINE = 20_000
# Bytes from which on a message goes to the device; above what control messages have.
FROM = 256


class Device:
    """One `accel_serve`."""

    def __init__(self, suite, name):
        self.folder = suite.folder / name
        self.folder.mkdir()
        self.socket = self.folder / "socket"
        self.process = Process(
            [SERVE, self.socket, "--conduct", self.folder / "conduct", "--counts", self.folder / "counts"], self.folder / "log"
        )
        suite.finally_do(self.kill)
        wait_for(self.socket.exists, "the device's socket")

    def kill(self):
        self.process.kill()

    def pause(self):
        """It is there and does nothing."""
        self.process.child.send_signal(signal.SIGSTOP)

    def counts(self):
        try:
            return json.loads((self.folder / "counts").read_text())
        except FileNotFoundError:
            return {"requests": 0, "conduct": "proper"}

    def behave(self, conduct):
        new = self.folder / "new"
        new.write_text(conduct)
        new.rename(self.folder / "conduct")
        wait_for(lambda: self.counts()["conduct"] == conduct, lambda: f"{conduct}: {self.counts()}")

    def section(self, **settings):
        """The inline table of a configuration."""
        settings = {"from": FROM, "deadline_ms": DEADLINE} | settings
        lines = [f'socket = "{self.socket}"', *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
        return f"accelerator = {{ {', '.join(lines)} }}\n"


class Mute:
    """A socket that takes connections, behind which nobody says anything."""

    section = Device.section

    def __init__(self, suite, name):
        self.socket = suite.folder / name
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.socket))
        self.listener.listen()
        suite.finally_do(self.listener.close)


def by_operation(status, engine="device"):
    return {one["operation"]: one[engine] for one in status["operations"] if one[engine]}


def set_aside(status, *reason):
    equal(status["state"], "quarantine")
    for part in reason:
        contains(status["reason"], part)


# The tunnel

SUITES = {
    "AES-GCM with 64-bit numbers": (None, {"AES-GCM seal", "AES-GCM open"}),
    "AES-CBC and HMAC-SHA-256": (
        '{ encryption = ["aes-256-cbc"], integrity = ["hmac-sha2-256-128"], groups = ["x25519"] }',
        {"AES-CBC encrypt", "AES-CBC decrypt", "HMAC-SHA256"},
    ),
    "AES-CTR and HMAC-SHA-1": (
        '{ encryption = ["aes-128-ctr"], integrity = ["hmac-sha1-96"], groups = ["x25519"], extended_sequence = false }',
        {"AES-CTR", "HMAC-SHA1"},
    ),
}
IKE = '[{ encryption = ["aes-128-gcm"], prf = ["hmac-sha2-256"], groups = ["x25519"] }]'


@contextlib.contextmanager
def tunnel(lab, device, esp=None, **settings):
    """Two daemons, of which the client's has the device."""
    lines = {"suite": (IKE, f"[{esp}]") if esp else None}
    with contextlib.ExitStack() as stack:
        theirs = stack.enter_context(Daemon(lab, "server", mirrored(**lines, remote=OUTSIDE["client"])))
        ours = Daemon(lab, "client", connection(**lines), device.section(**settings))
        stack.enter_context(ours)
        theirs.up()
        ours.up()
        yield ours, theirs


def both_ways(lab, megabytes):
    lab.stream(megabytes)
    lab.stream(megabytes, "server", "client")


def accelerator(daemon):
    return daemon.ask("status")["accelerator"]


def nothing_lost(*daemons):
    """No packet was dropped for a reason of the cipher's."""
    for daemon in daemons:
        state = daemon.ask("status")
        drops = {one["cause"]: one["packets"] for name in ("outbound_drops", "inbound_drops") for one in state[name] if one["packets"]}
        bad = {"seal_failed", "integrity_failed", "bad_padding", "bad_next_header"} & set(drops)
        equal(bad, set(), f"drops for their cipher, of {drops}")


def esp(suite, lab):
    for name, (proposal, operations) in SUITES.items():
        with suite.case(f"{name}: a stream both ways, of which the device did every long packet"):
            device = Device(suite, f"device-{len(list(suite.folder.glob('device-*')))}")
            with tunnel(lab, device, proposal) as (ours, theirs):
                before = device.counts()["requests"]
                both_ways(lab, 2)
                status = accelerator(ours)
                equal((status["state"], status["reason"]), ("in-use", None))
                did = by_operation(status)
                equal(set(did), operations, "operations of the device")
                wait_for(lambda: device.counts()["requests"] - before >= sum(did.values()), lambda: f"{device.counts()} {did}")
                # Two megabytes each way in packets of 1.4 kB, and acknowledgements that stay with software.
                assert min(did.values()) > 1000, did
                assert by_operation(status, "software"), status
                nothing_lost(ours, theirs)
                print(f"        {did}, checked {status['checked']}, busy {status['busy']}", flush=True)
                contains(ours.tell("status").stdout, f"accelerator {device.socket}  in-use")
                contains(ours.tell("status", "--format", "prometheus").stdout, "accelerator_in_use 1")
                equal(theirs.ask("status")["accelerator"], None)


def in_the_middle(suite, lab, title, act, *reason, proposal=None, **settings):
    """A stream during which something happens to the device."""
    with suite.case(title):
        device = Device(suite, f"device-{len(list(suite.folder.glob('device-*')))}")
        with tunnel(lab, device, proposal, **settings) as (ours, theirs):
            def in_time():
                done = lambda: sum(by_operation(accelerator(ours)).values())
                wait_for(lambda: done() > 200, lambda: f"{done()} requests of the device")
                act(device)

            thread = threading.Thread(target=in_time)
            thread.start()
            both_ways(lab, 6)
            thread.join()
            assert device.counts()["requests"] < 2 * 6_000_000 / 1400, "the device was alright to the end"
            lab.stream(1)
            status = accelerator(ours)
            assert by_operation(status), "the device had done nothing before"
            set_aside(status, *reason)
            nothing_lost(ours, theirs)
            ours.says("accelerator: set aside")
            equal(ours.log().count("accelerator: set aside"), 1, "lines about it")
            print(f"        {by_operation(status)} by the device, then: {status['reason']}", flush=True)


def shared(suite, lab):
    with suite.case("two daemons that name one device: the first has it, the other goes on by software, and says so"):
        device = Device(suite, "shared")
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(Daemon(lab, "client", connection(), device.section()))
            second = stack.enter_context(Daemon(lab, "server", mirrored(remote=OUTSIDE["client"]), device.section()))
            first.up()
            second.up()
            both_ways(lab, 2)
            status = accelerator(second)
            equal((status["state"], by_operation(status)), ("unreachable", {}))
            contains(status["reason"], "timed out")
            equal(accelerator(first)["state"], "in-use")
            assert min(by_operation(accelerator(first)).values()) > 1000, accelerator(first)
            nothing_lost(first, second)


def tunnels(suite):
    lab = Lab(suite)
    esp(suite, lab)
    shared(suite, lab)
    in_the_middle(suite, lab, "a device that is killed in the middle of a stream: it goes on, every byte is right", Device.kill)
    lies = lambda device: device.behave("lie-about-tag")
    in_the_middle(suite, lab, "a device that lies about tags of AES-GCM is set aside, every byte is right", lies, "AES-GCM")
    in_the_middle(
        suite, lab, "a device that lies about tags of HMAC is set aside, every byte is right", lies, "HMAC-SHA256",
        proposal=SUITES["AES-CBC and HMAC-SHA-256"][0],
    )
    for name in ("AES-CBC and HMAC-SHA-256", "AES-CTR and HMAC-SHA-1", None):
        in_the_middle(
            suite, lab, f"a device that makes wrong bytes is set aside, every byte is right: {name or 'AES-GCM, with the right tag'}",
            lambda device: device.behave("lie-about-data"), "another result than software's", proposal=name and SUITES[name][0],
        )
    die = lambda device: device.behave("die")
    in_the_middle(suite, lab, "a device that dies is given up by the deadline", die, deadline_ms=500)
    in_the_middle(suite, lab, "so is one that stands still", Device.pause, deadline_ms=500)
    late = lambda device: device.behave("late")
    in_the_middle(suite, lab, "and one that answers after six seconds", late, deadline_ms=500)
    with suite.case("without a device behind the socket, and with one that is measured and slower, software does all"):
        absent = Device(suite, "absent")
        absent.kill()
        with tunnel(lab, absent) as (ours, _):
            lab.stream(1)
            status = accelerator(ours)
            equal((status["state"], by_operation(status)), ("unreachable", {}))
            contains(status["reason"], "no way to the device")
        with tunnel(lab, Mute(suite, "mute")) as (ours, _):
            lab.stream(1)
            status = accelerator(ours)
            equal((status["state"], by_operation(status)), ("unreachable", {}))
            contains(status["reason"], "timed out")
        slow = Device(suite, "slow")
        with tunnel(lab, slow, **{"from": "measured"}) as (ours, _):
            lab.stream(1)
            status = accelerator(ours)
            equal((status["state"], by_operation(status)), ("in-use", {}))
            equal({one["from"] for one in status["operations"]}, {None}, "sizes from which on the device is taken")
            assert slow.counts()["requests"] > 0, "it was not measured"


# Camera and site


def seal(suite, site, reviewer):
    """The camera alone has a device: what it seals, the site opens by software."""
    device = Device(suite, "camera-device")
    camera = Camera(site, "camera-30")
    text = camera.config.read_text()
    camera.config.write_text(device.section() + text)
    status = lambda: cordon_json("camera", "status", "--config", camera.config)["accelerator"]
    sent = {}

    def send(name, size):
        sent[name] = jpeg(name.encode(), size)
        camera.drop(name, sent[name], plate=name)
        camera.drain()

    with suite.case("a camera seals with its device, the site opens by software: the same bytes"):
        camera.start()
        for number in range(4):
            send(f"SEAL {number}", 300_000)
        same(reviewer, sent)
        wait_for(lambda: status()["state"] == "in-use", status)
        # 300 kB are five chunks.
        wait_for(lambda: device.counts()["requests"] >= 20, device.counts)

    def set_aside_at(name):
        send(name, 300_000)
        same(reviewer, sent)
        wait_for(lambda: status()["state"] == "quarantine", status)
        contains(cordon("camera", "status", "--config", camera.config).stdout, "quarantine: ")
        contains(camera.log.read_text(), "accelerator: set aside")
        print(f"        {status()['reason']}", flush=True)

    with suite.case("a camera's device that lies about tags: pictures go on to arrive, and the camera says why it is set aside"):
        device.behave("lie-about-tag")
        set_aside_at("SEAL 5")
    with suite.case("a camera's device that is killed: so they do, after a start with another one"):
        camera.stop()
        other = Device(suite, "camera-device-2")
        camera.config.write_text(other.section() + text)
        camera.start()
        send("SEAL 6", 200_000)
        wait_for(lambda: status()["state"] == "in-use", status)
        other.kill()
        set_aside_at("SEAL 7")
        camera.stop()


def same(reviewer, sent):
    """Each picture comes out of the site as it was."""
    rows = reviewer.get("/api/v1/violations")["rows"]
    found = {row["plate"]: row["id"] for row in rows}
    for plate, picture in sent.items():
        answer = reviewer.request("GET", f"/api/v1/violations/{found[plate]}/media/0")
        assert answer.body == picture, f"{plate} is another picture"


def metrics(site):
    with urllib.request.urlopen(f"http://127.0.0.1:{site.metrics}/metrics", timeout=10) as answer:
        return answer.read().decode()


def shake_hands(site):
    """A TLS handshake with the portal, whoever it is."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("localhost", site.portal), timeout=60) as connection:
        context.wrap_socket(connection).close()


def site_with_device(suite):
    device = Device(suite, "site-device")
    settings = '[keys]\nleaf = "rsa-2048"\n'
    site = Site(suite, "with-device", settings)
    without = site.config.read_text()
    site.config.write_text(device.section() + without)
    site.start()
    state = lambda: cordon_json("site", "status", "--data", site.data)
    reviewer = site.people()["reviewer-3"]
    camera = Camera(site, "camera-31")
    sent = {}

    def send(name):
        sent[name] = jpeg(name.encode(), 300_000)
        camera.drop(name, sent[name], plate=name)
        camera.drain()

    with suite.case("a site opens what was sealed by software, signs receipts and TLS with its device: the same bytes, good signatures"):
        camera.start()
        for number in range(3):
            send(f"OPEN {number}")
        same(reviewer, sent)
        found = state()
        status = found["accelerator"]
        did = by_operation(status)
        equal((status["state"], found["problems"]), ("in-use", []))
        # Verification at intake and three pictures shown: at least five chunks each; a receipt each, and handshakes.
        assert did["AES-GCM open"] >= 30 and did["RSA private"] >= 6, did
        equal({one["operation"]: one["from"] for one in status["operations"]}["RSA private"], 0)
        assert len(camera.receipts()) == 3, camera.receipts()
        print(f"        {did}", flush=True)
        contains(cordon("site", "status", "--data", site.data).stdout, f"accelerator {device.socket}  in-use")
        contains(metrics(site), "cordon_accelerator_in_use 1")
    with suite.case("a site's device that is killed: the upload goes on, and the operator is told"):
        device.kill()
        send("OPEN 3")
        same(reviewer, sent)
        found = state()
        set_aside(found["accelerator"])
        assert any("is not in use" in warning for warning in found["warnings"]), found
        contains(metrics(site), "cordon_accelerator_in_use 0")
        contains(site.log_text(), "accelerator: set aside")
        print(f"        {found['accelerator']['reason']}", flush=True)
        site.stop()

    def start_with(device, **settings):
        # After a case that failed it runs still.
        site.end()
        site.config.write_text(device.section(**settings) + without)
        site.start()

    with suite.case("a site's device that signs wrongly: nobody sees such a signature, and it is set aside"):
        device = Device(suite, "site-device-2")
        start_with(device)
        equal(state()["accelerator"]["state"], "in-use")
        device.behave("lie-about-data")
        send("OPEN 4")
        found = state()["accelerator"]
        # The first that it gets is a handshake.
        set_aside(found, "RSA private: another result than software's")
        equal(by_operation(found), {})
        same(reviewer, sent)
        site.stop()
    with suite.case("a site's device that opens wrongly: the picture shown is the right one, and it is set aside"):
        device = Device(suite, "site-device-3")
        start_with(device, **{"from": 2048})
        device.behave("lie-about-data")
        send("OPEN 5")
        same(reviewer, sent)
        set_aside(state()["accelerator"], "another result than software's")
        site.stop()
    with suite.case("a site's device that stands still: whoever needs no signature is served meanwhile, handshakes after the deadline"):
        device = Device(suite, "site-device-4")
        start_with(device, deadline_ms=10_000)
        device.pause()
        began = time.monotonic()
        hands = [threading.Thread(target=shake_hands, args=(site,)) for _ in range(4)]
        for hand in hands:
            hand.start()
        slowest = 0
        while any(hand.is_alive() for hand in hands):
            asked = time.monotonic()
            contains(metrics(site), "cordon_accelerator_in_use")
            slowest = max(slowest, time.monotonic() - asked)
            time.sleep(0.1)
        took = time.monotonic() - began
        print(f"        handshakes after {took:.1f} s, metrics meanwhile within {slowest:.2f} s", flush=True)
        assert slowest < 3 and 9 < took < 25, (slowest, took)
        send("OPEN 6")
        same(reviewer, sent)
        set_aside(state()["accelerator"])
        device.kill()
        site.stop()
    camera.stop()
    with suite.case("the audit log of a site with a device holds, and a site with a mute socket in its place starts"):
        start_with(Mute(suite, "site-mute"))
        site.verify_audit()
        found = state()["accelerator"]
        equal(found["state"], "unreachable")
        contains(found["reason"], "timed out")
        site.stop()


def sites(suite):
    site = Site(suite).start()
    seal(suite, site, site.people()["reviewer-3"])
    with suite.case("a site without the section says nothing of an accelerator"):
        equal(cordon_json("site", "status", "--data", site.data)["accelerator"], None)
        site.stop()
    site_with_device(suite)


PARTS = {"tunnel": tunnels, "site": sites}


def run(suite):
    for part in [suite.part] if suite.part else PARTS:
        PARTS[part](suite)
