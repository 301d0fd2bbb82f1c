"""`cordon vpn up` in network namespaces, against strongSwan's charon and against itself.

`python -m tests.ike_vpn --long` adds the long half: 100 MB through each suite, and ten minutes of a stream
while keys change every five seconds and a tenth of the datagrams is lost.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

from tests.harness import Process, Site, contains, cordon, equal, run as execute, wait_for
from tests.ike_lab import (
    ESP, GCM, IKE, INSIDE, OURS, THEIRS, Authority, Daemon, Lab, certificate_auth, connection, initiate, mirrored, pair
)

SUITES = {
    "AES-GCM": (IKE, ESP, *GCM),
    "AES-CBC with SHA-2": (
        "aes256-sha256-prfsha256-modp2048",
        "aes256-sha256-modp2048",
        '[{ encryption = ["aes-256-cbc"], integrity = ["hmac-sha2-256-128"], prf = ["hmac-sha2-256"],'
        ' groups = ["modp2048"] }]',
        '[{ encryption = ["aes-256-cbc"], integrity = ["hmac-sha2-256-128"], groups = ["modp2048"],'
        " extended_sequence = false }]",
    ),
    "ChaCha20-Poly1305": (
        "chacha20poly1305-prfsha512-ecp256",
        "chacha20poly1305-ecp256",
        '[{ encryption = ["chacha20-poly1305"], prf = ["hmac-sha2-512"], groups = ["p256"] }]',
        '[{ encryption = ["chacha20-poly1305"], groups = ["p256"], extended_sequence = false }]',
    ),
}
# Bytes that go through each tunnel where a stream is wanted, in MB.
MEGABYTES = 5

# Sends slowly for some seconds, and says whether all of it arrived as it was.
STREAM = """
import hashlib, os, socket, sys, time
digest, end = hashlib.sha256(), time.monotonic() + float(sys.argv[2])
with socket.create_connection((sys.argv[1], 5001), 60) as connection:
    connection.settimeout(120)
    while time.monotonic() < end:
        block = os.urandom(20000)
        connection.sendall(block)
        digest.update(block)
        time.sleep(0.02)
    connection.shutdown(socket.SHUT_WR)
    print(connection.recv(100).decode() == digest.hexdigest())
"""


def start_by(by):
    return "start" if by == "ours" else "none"


def keys_by_command(suite, lab):
    with suite.case("rekey and reauth by the operator, beside strongSwan, while packets go through"):
        text = connection(start="none")
        with lab.charon() as charon, Daemon(lab, "client", text) as ours:
            contains(ours.tell("rekey", "peer", code=1).stderr, "not up")
            ours.tell("rekey", "nobody", code=1)
            ours.tell("connect", "peer")
            ours.up()
            ike = lambda: [sa["spi"] for sa in ours.sas()]
            spis = lambda: [child["spi_in"] for child in ours.children()]
            flow = subprocess.Popen(lab.network.command("client", *f"ping -n -i 0.02 -c 250 -W 2 {INSIDE['server']}".split()),
                                    stdout=subprocess.PIPE, text=True)
            for _ in range(2):
                before = ike(), spis()
                contains(ours.tell("rekey", "peer").stdout, "1 IKE SAs and 1 Child SAs")
                wait_for(lambda: len(spis()) == len(ike()) == 1 and ike() != before[0] and spis() != before[1],
                         lambda: f"{before}, {ike(), spis()}: {ours.log()[-2000:]}")
                wait_for(lambda: [c["spi_out"] for c in ours.children()] == re.findall(r"in  ([0-9a-f]{8})", charon.sas()), charon.sas)
            before = ike(), spis()
            ours.tell("reauth", "peer")
            wait_for(lambda: len(spis()) == len(ike()) == 1 and ike() != before[0], lambda: f"{before}, {ike()}: {ours.log()[-2000:]}")
            equal(ours.counter("established"), 2, "authentications")
            output, _ = flow.communicate(timeout=60)
            numbers = {int(number) for number in re.findall(r"icmp_seq=(\d+)", output)}
            missing = sorted(set(range(1, 251)) - numbers)
            # Traffic goes on: a quarter of a second at most. Beside charon, whose ESP here is in user space as well, single ones
            # were missing in some runs; which side drops them is not known.
            assert len(missing) <= 12, f"echo requests {missing} were not answered"
        with lab.charon() as charon, Daemon(lab, "client", text) as ours:
            initiate("theirs", ours, charon)
            contains(ours.tell("reauth", "peer", code=1).stderr, "started by the peer")
            ours.tell("rekey", "peer")
            wait_for(lambda: ours.counter("child_rekeys") == ours.counter("ike_rekeys") == 1, lambda: ours.ike()["counters"])
            lab.ping()


def both_roles(suite, lab, megabytes):
    for by in ["ours", "theirs"]:
        with suite.case(f"shared secret, started by {by}: packets both ways, new keys by both sides"):
            text = connection(start=start_by(by), extra="lifetime = 7", child="lifetime = 4")
            with lab.charon() as charon, Daemon(lab, "client", text) as ours:
                initiate(by, ours, charon)
                lab.ping()
                lab.ping("server", INSIDE["client"], source=INSIDE["server"])
                # Ours come by themselves, every few seconds.
                for target in (["--child", "net"], ["--ike", "peer"]):
                    before = ours.counter("child_rekeys"), ours.counter("ike_rekeys")
                    charon.control("--rekey", *target)
                    now = lambda: (ours.counter("child_rekeys"), ours.counter("ike_rekeys"))
                    wait_for(lambda: all(a > b for a, b in zip(now(), before)), lambda: f"{before} {now()}", 30)
                    lab.ping()
                # Old keys go a moment after the new ones come.
                lab.stream(megabytes)
                wait_for(lambda: len(ours.children()) == 1, lambda: ours.children())
                spis = lambda: re.findall(r"in  ([0-9a-f]{8})", charon.sas())
                wait_for(lambda: [c["spi_out"] for c in ours.children()] == spis(), lambda: f"{spis()} {ours.children()}")
                if by == "ours":
                    charon.control("--terminate", "--ike", "peer")
                    ours.says("IKE SA down", "closed by the peer")
                    # It was to be up, so it comes again.
                    ours.up()
                    lab.ping()
            log = ours.log()
            assert "WARN" not in log and "ERROR" not in log, log


def certificates(suite, lab):
    for kind in ["ecdsa", "rsa", "ed25519"]:
        folder = lab.pki(kind)
        for by in ["ours", "theirs"]:
            with suite.case(f"{kind} certificates, started by {by}"):
                top = f'trust = {{ anchors = ["{folder}/ca.pem"] }}'
                text = connection(auth=certificate_auth(folder), start=start_by(by))
                with lab.charon(pki=folder) as charon, Daemon(lab, "client", text, top) as ours:
                    initiate(by, ours, charon)
                    lab.ping()
                    equal(ours.sas()[0]["certificate"], "CN=theirs.example.org", "certificate")


def suites(suite, lab, megabytes):
    for name, (ike, esp, our_ike, our_esp) in SUITES.items():
        with suite.case(f"{name}: {megabytes} MB each way"):
            text = connection(suite=(our_ike, our_esp))
            with lab.charon(ike, esp) as charon, Daemon(lab, "client", text) as ours:
                initiate("ours", ours, charon)
                lab.stream(megabytes)
                lab.stream(megabytes, "server", "client")
                child = ours.children()[0]
                assert min(child["bytes_in"], child["bytes_out"]) > megabytes << 20, child


def nat(suite, lab):
    with suite.case("behind a NAT"):
        inner = f"cordon-{os.getpid()}-inner"
        execute("ip", "netns", "add", inner)
        try:
            client = lab.network.names["client"]
            execute("ip", "-n", inner, "link", "add", "uplink", "type", "veth", "peer", "name", "downlink", "netns", client)
            for name, link, address in [(inner, "uplink", "10.208.0.2/24"), (client, "downlink", "10.208.0.1/24")]:
                execute("ip", "-n", name, "address", "add", address, "dev", link)
                execute("ip", "-n", name, "link", "set", link, "up")
            execute("ip", "-n", inner, "route", "add", "default", "via", "10.208.0.1")
            lab.network.run("client", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            rules = "add table ip n; add chain ip n p { type nat hook postrouting priority 100; };"
            rules += ' add rule ip n p oifname "cable" ip saddr 10.208.0.0/24 masquerade random'
            lab.network.run("client", "nft", rules)
            with lab.charon() as charon, Daemon(lab, "client", connection(), namespace=inner) as ours:
                initiate("ours", ours, charon)
                execute("ip", "netns", "exec", inner, "ping", "-c", "2", "-i", "0.2", INSIDE["server"])
                contains(charon.log(), "remote host is behind NAT")
                contains(charon.sas(), f"@ {OURS}[")
                equal(ours.sas()[0]["local"], "10.208.0.2:4500", "our address")
        finally:
            execute("ip", "netns", "delete", inner)
            lab.network.run("client", "nft", "flush", "ruleset")


def addresses(suite, lab):
    with suite.case("charon gives us an address inside the tunnel"):
        text = connection(extra='request = ["ipv4"]', local=None)
        options = {"addresses": "pools = inside", "remote": "dynamic"}
        with lab.charon(**options) as charon, Daemon(lab, "client", text, interface="addresses = []") as ours:
            initiate("ours", ours, charon)
            wait_for(lambda: "10.9.0.1/32" in lab.network.run("client", "ip", "address", "show", "tunnel0").stdout, "it")
            lab.ping()
            equal(ours.sas()[0]["addresses"], ["10.9.0.1"], "addresses")
            charon.control("--terminate", "--ike", "peer")
            ours.says("IKE SA down", "closed by the peer")
            ours.up()
            wait_for(lambda: lab.ping(code=None).returncode == 0, "packets after the tunnel came again")
    with suite.case("we give charon an address inside the tunnel, and take it back"):
        text = '[[pool]]\nname = "inside"\naddresses = ["10.9.0.0/24"]\n'
        text += connection(extra='pool = "inside"', start="none", remote=None, other=None)
        options = {"addresses": "vips = 0.0.0.0", "local": "dynamic"}
        with lab.charon(**options) as charon, Daemon(lab, "client", text) as ours:
            initiate("theirs", ours, charon)
            contains(charon.sas(), "[10.9.0.1]")
            lab.ping(address="10.9.0.1")
            lab.ping("server", INSIDE["client"])
            equal(ours.ike()["pools"], [{"name": "inside", "taken": 1}], "pools")
            charon.control("--terminate", "--ike", "peer")
            wait_for(lambda: ours.ike()["pools"][0]["taken"] == 0, "the address back")
            assert "10.9.0.1" not in lab.network.run("client", "ip", "route").stdout


def small_path(suite, lab, megabytes):
    with suite.case("a path of 1280 bytes: certificates in fragments, a stream both ways"):
        folder = lab.suite.folder / "pki-rsa"
        for side in ["client", "server"]:
            lab.network.run(side, "ip", "link", "set", "cable", "mtu", "1280")
        try:
            top = f'trust = {{ anchors = ["{folder}/ca.pem"] }}\npath = {{ mtu = 1280 }}'
            text = connection(auth=certificate_auth(folder))
            with lab.charon(pki=folder) as charon, Daemon(lab, "client", text, top) as ours:
                initiate("ours", ours, charon)
                contains(charon.log(), "received fragment #1 of")
                lab.stream(megabytes)
                lab.stream(megabytes, "server", "client")
        finally:
            for side in ["client", "server"]:
                lab.network.run(side, "ip", "link", "set", "cable", "mtu", "1500")


def mobility(suite, lab):
    other = "10.207.0.3"
    with suite.case("our address changes and the stream goes on"):
        text = connection()
        with lab.charon(mobike="yes") as charon, Daemon(lab, "client", text) as ours:
            initiate("ours", ours, charon)
            with lab.sink("server", INSIDE["server"]):
                command = lab.network.command("client", "python3", "-c", STREAM, INSIDE["server"], "8")
                source = Process(command, lab.suite.folder / "mobile")
                time.sleep(2)
                lab.network.run("client", "ip", "address", "add", f"{other}/24", "dev", "cable")
                lab.network.run("client", "ip", "address", "delete", f"{OURS}/24", "dev", "cable")
                try:
                    # Without "promote_secondaries" the other one went with it.
                    lab.network.run("client", "ip", "address", "replace", f"{other}/24", "dev", "cable")
                    wait_for(lambda: f"@ {other}[4500]" in charon.sas(), lambda: charon.sas())
                    equal(source.child.stdout.read().strip() or source.child.communicate()[0].strip(), b"True", "sums")
                finally:
                    source.kill()
                    lab.network.run("client", "ip", "address", "delete", f"{other}/24", "dev", "cable")
                    lab.network.run("client", "ip", "address", "add", f"{OURS}/24", "dev", "cable")
            equal(ours.counter("established"), 1, "IKE SAs that came up")


def further_addresses(suite, lab):
    second = "10.207.0.9"
    with suite.case("the peer's address fails, and another one of which it told takes over"):
        lab.network.run("server", "ip", "address", "add", f"{second}/32", "dev", "cable")
        theirs = mirrored(suite=None, extra=f'further_addresses = ["{second}"]')
        stack, ours, gateway = pair(lab, connection(suite=None, extra="liveness = 1"), theirs)
        try:
            with stack:
                ours.up()
                rules = f"add table ip m; add chain ip m o {{ type filter hook output priority 0; }}; add rule ip m o ip daddr {THEIRS} drop"
                lab.network.run("client", "nft", rules)
                remote = lambda: [sa["remote"] for sa in ours.sas()]
                wait_for(lambda: remote() == [f"{second}:4500"], remote, 60)
                lab.ping()
                equal((ours.counter("established"), gateway.counter("established")), (1, 1), "IKE SAs that came up")
        finally:
            lab.network.run("client", "nft", "flush", "ruleset")
            lab.network.run("server", "ip", "address", "delete", f"{second}/32", "dev", "cable")


# Sends to an SPI that is not there, for some seconds.
ASTRAY = """
import socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(40):
    out.sendto(bytes.fromhex("0badcafe") + bytes(60), (sys.argv[1], 4500))
    time.sleep(0.1)
"""


def unknown_spi(suite, lab):
    with suite.case("a peer that goes on sending to an SPI that is not ours is told so (INVALID_SPI)"):
        with lab.charon() as charon, Daemon(lab, "client", connection()) as ours:
            initiate("ours", ours, charon)
            lab.network.run("server", "python3", "-c", ASTRAY, OURS)
            wait_for(lambda: "N(INVAL_SPI)" in charon.log(), lambda: charon.log()[-2000:], 10)
            # Once in two seconds; and the Child SA that is there stays.
            assert charon.log().count("[ N(INVAL_SPI) ]") <= 3, charon.log()[-2000:]
            equal(ours.counter("child_rekeys"), 0, "new keys")
            lab.ping()


def silence(suite, lab):
    with suite.case("a peer that says nothing any more is given up, and found again when it speaks"):
        with lab.charon() as charon, Daemon(lab, "client", connection(extra="liveness = 2")) as ours:
            initiate("ours", ours, charon)
            charon.process.send_signal(signal.SIGSTOP)
            try:
                # Nine messages with pauses up to 16 s.
                ours.says("IKE SA down", "peer does not answer", seconds=150)
                equal(ours.children(), [], "children")
            finally:
                charon.process.send_signal(signal.SIGCONT)
            ours.up(seconds=150)
            lab.ping()


def storm(suite, lab, seconds):
    with suite.case(f"{seconds} s of a stream, keys every five seconds, a tenth of the datagrams lost"):
        text = connection(extra="lifetime = 17", child="lifetime = 5")
        with lab.charon() as charon, Daemon(lab, "client", text) as ours:
            initiate("ours", ours, charon)
            with lab.sink("server", INSIDE["server"]):
                lab.loss(10)
                try:
                    command = ["python3", "-c", STREAM, INSIDE["server"], str(seconds)]
                    done = lab.network.run("client", *command, timeout=seconds + 200)
                finally:
                    lab.loss(0)
                equal(done.stdout.strip(), "True", "sums of what was sent and received")
            counters = ours.ike()["counters"]
            equal(counters["established"], 1, "IKE SAs that came up")
            equal(counters["failed_timeout"], 0, "timeouts")
            assert counters["child_rekeys"] >= seconds // 8, counters
            assert counters["ike_rekeys"] >= seconds // 25, counters
            shown = ", ".join(f"{counters[key]} {key}" for key in ("child_rekeys", "ike_rekeys"))
            print(f"        {shown}", flush=True)


def failures(suite, lab):
    good = Authority(lab.suite.folder / "good")
    stranger = Authority(lab.suite.folder / "stranger", "Stranger")
    good.issue("theirs")
    revoked = good.issue("revoked")
    good.issue("expired", days=-1)
    good.issue("ours")
    stranger.issue("ours")
    good.revoke(revoked)
    trust = f'trust = {{ anchors = ["{good.folder}/ca.pem"], crls = ["{good.folder}/crl.pem"] }}'
    theirs = mirrored(remote_id="any", auth=certificate_auth(good.folder, "theirs"), suite=None)

    def with_certificate(folder, name, local_id=None):
        auth = certificate_auth(folder, name)
        return connection(auth=auth, local_id=local_id or f"{name}.example.org", suite=None)

    other = '[{ encryption = ["aes-256-gcm"], prf = ["hmac-sha2-256"], groups = ["p384"] }]', GCM[1]
    other_esp = GCM[0], '[{ encryption = ["aes-256-gcm"] }]'
    cases = {
        "wrong secret": (
            connection(auth='psk_file = "other"'), mirrored(),
            "the proof is wrong (shared secret or key does not match)", "peer refused with AUTHENTICATION_FAILED",
        ),
        "wrong identity": (
            connection(local_id="intruder.example.org"), mirrored(),
            "intruder.example.org", "peer refused with AUTHENTICATION_FAILED",
        ),
        "expired": (
            with_certificate(good.folder, "expired"), theirs,
            "certificate of expired.example.org expired at", "peer refused with AUTHENTICATION_FAILED",
        ),
        "revoked": (
            with_certificate(good.folder, "revoked"), theirs,
            "certificate of revoked.example.org was revoked at", "peer refused with AUTHENTICATION_FAILED",
        ),
        "unknown authority": (
            with_certificate(stranger.folder, "ours"), theirs,
            "issued by unknown authority CN=Stranger",
            "peer refused with AUTHENTICATION_FAILED",
        ),
        "no proposal in common": (
            connection(suite=other), mirrored(),
            "no proposal in common: ENCR: theirs AES_GCM_16_256, ours AES_GCM_16_128",
            "peer refused with NO_PROPOSAL_CHOSEN",
        ),
        "no ESP proposal in common": (
            connection(suite=other_esp), mirrored(),
            "no proposal in common: ENCR: theirs AES_GCM_16_256, ours AES_GCM_16_128",
            "peer refused with NO_PROPOSAL_CHOSEN",
        ),
        "no traffic in common": (
            connection(other="10.77.0.0/24"), mirrored(),
            "no traffic selectors in common", "peer refused with TS_UNACCEPTABLE",
        ),
    }
    for name, (one, two, reason, told) in cases.items():
        with suite.case(f"{name}: the operator gets the reason in one line, the peer what the RFC says"):
            # Ours trusts both, so that only the other side refuses.
            both = f'trust = {{ anchors = ["{good.folder}/ca.pem"] }}\n'
            audit = 'audit = { folder = "journal" }\n'
            responder = Daemon(lab, "server", two, audit + trust)
            initiator = Daemon(lab, "client", one, both)
            initiator.secret("other", "another secret than that")
            with responder as theirs_up, initiator as ours_up:
                theirs_up.says("WARN", "negotiation of", reason)
                ours_up.says("WARN", "negotiation of", told)
                failed = theirs_up.ask("explain")["failed"][0]
                contains(failed["reason"], reason)
                contains(failed["remote"], OURS)
                if "proposal" in name:
                    contains(failed["theirs"], "AES_GCM_16_256")
                    contains(failed["ours"], "AES_GCM_16_128")
                    contains(failed["first_difference"], "ENCR: theirs")
                if "traffic" in name:
                    contains(failed["theirs"], "10.77.0.0")
                    contains(failed["ours"], "10.5.2.0")
                contains(theirs_up.tell("explain").stdout, reason)
                equal(theirs_up.children(), [], "children")
                # SAs that were refused are in the journal.
                journal = theirs_up.folder / "journal"
                written = lambda: b"".join(file.read_bytes() for file in journal.glob("*.journal"))
                wait_for(lambda: reason.split(" (")[0].encode() in written(), "an audit event")
                contains(written().decode(errors="replace"), '"outcome":"deny"')


def revocation(suite, lab):
    good = Authority(lab.suite.folder / "fresh")
    good.issue("theirs")
    device = good.issue("ours")
    good.revoke()
    trust = f'trust = {{ anchors = ["{good.folder}/ca.pem"], crls = ["{good.folder}/crl.pem"], require_crl = true }}'
    one = connection(auth=certificate_auth(good.folder), suite=None)
    two = mirrored(auth=certificate_auth(good.folder, "theirs"), suite=None)
    with suite.case("a revoked device loses its tunnel within ten seconds"):
        both = 'audit = { folder = "journal" }\n' + trust
        stack, ours, theirs = pair(lab, one, two, trust, both)
        with stack:
            ours.up()
            theirs.up()
            lab.ping(address=INSIDE["server"], count=1, code=None)
            good.revoke(device)
            begin = time.monotonic()
            theirs.says("closing a tunnel", "revoked", seconds=10)
            wait_for(lambda: theirs.children() == [], "no child", 10 - (time.monotonic() - begin))
            print(f"        {time.monotonic() - begin:.1f} s", flush=True)
            theirs.says("WARN", "negotiation of", "was revoked at")
            equal(theirs.counter("revoked"), 1, "revoked")
            journal = theirs.folder / "journal"
            written = b"".join(file.read_bytes() for file in journal.glob("*.journal")).decode(errors="replace")
            for action in ("tunnel.up", "tunnel.child-up", "tunnel.revoke", "tunnel.down", "tunnel.refuse"):
                contains(written, f'"action":"{action}"')


def central_log(suite, lab):
    site = Site(suite, "central").start()
    log = site.data / "audit/log"

    def tunnels():
        """The numbers and actions of a daemon's events in the site's log."""
        shown = json.loads(cordon("audit", "show", log, "--last", "1000", "--json").stdout)
        events = [row["leaf"]["event"] for row in shown["entries"]]
        return [(e["details"]["journal_seq"], e["action"]) for e in events if e["action"].startswith("tunnel.")]

    with suite.case("what happens to tunnels comes into the site's central log, also after the site was away"):
        audit = f'audit = {{ folder = "journal", site = "{site.data}" }}'
        stack, ours, gateway = pair(lab, connection(suite=None), mirrored(suite=None), "", audit)
        with stack:
            ours.up()
            wait_for(lambda: "tunnel.up" in dict(map(reversed, tunnels())), tunnels, 15)
            site.stop()
            before = len(tunnels())
            ours.tell("down", "peer")
            gateway.says("IKE SA down", "closed by the peer")
            gateway.says("ERROR", "events wait for the central audit log")
            equal(len(tunnels()), before, "events while the site is away")
            site.start()
            gateway.says("the central audit log takes events again")
            wait_for(lambda: "tunnel.down" in dict(map(reversed, tunnels())), tunnels, 15)
            ours.tell("connect", "peer")
            ours.up()
        # The last ones come with the daemon's end.
        done = wait_for(lambda: [a for _, a in tunnels()].count("tunnel.down") == 2 and tunnels(), tunnels, 15)
        equal([number for number, _ in done], list(range(1, len(done) + 1)), "numbers")
        site.stop()
        cordon("audit", "verify", log, "--journals", site.data / "audit/journal")


def fetched_lists(suite, lab):
    good = Authority(lab.suite.folder / "fetched")
    good.issue("theirs")
    device = good.issue("ours")
    good.revoke()
    lists = f'trust = {{ anchors = ["{good.folder}/ca.pem"], crl_urls = ["http://127.0.0.1:8099/crl.pem"], '
    lists += "crl_refresh = 1, require_crl = true }"
    trust = f'trust = {{ anchors = ["{good.folder}/ca.pem"] }}'
    one = connection(auth=certificate_auth(good.folder), suite=None)
    two = mirrored(auth=certificate_auth(good.folder, "theirs"), suite=None)
    with suite.case("revocation lists are fetched by HTTP, and without one nobody gets in"):
        command = lab.network.command("server", "python3", "-m", "http.server", "8099", "-d", good.folder)
        with contextlib.ExitStack() as stack:
            both, ours, theirs = pair(lab, one, two, trust, lists)
            stack.enter_context(both)
            theirs.says("WARN", "negotiation of", "no current revocation list of CN=CA")
            theirs.says("WARN", "cannot fetch a revocation list")
            server = Process(command, lab.suite.folder / "http.log")
            stack.callback(server.kill)
            ours.up(seconds=40)
            theirs.tell("reload")
            time.sleep(2)
            equal(len(theirs.children()), 1, "children after a reload")
            good.revoke(device)
            theirs.says("closing a tunnel", "was revoked", seconds=10)


def orders(suite, lab):
    with suite.case("down, connect, reload and metrics; a reload leaves the others alone"):
        first = connection(suite=None)
        second = connection("second", local="10.6.1.0/24", other="10.6.2.0/24", start="none", suite=None)
        theirs = mirrored(suite=None)
        theirs += mirrored(name="second", local="10.6.2.0/24", other="10.6.1.0/24", suite=None)
        one = connection(suite=None) + second
        stack, ours, gateway = pair(lab, one, theirs, 'metrics = { listen = "127.0.0.1:9401" }')
        with stack:
            ours.up()
            state = {row["name"]: row["state"] for row in ours.ike()["connections"]}
            equal(state, {"peer": "up", "second": "waiting"}, "states")
            ours.tell("down", "peer")
            wait_for(lambda: ours.sas() == [], "no IKE SA")
            time.sleep(2)
            state = {row["name"]: row["state"] for row in ours.ike()["connections"]}
            equal(state["peer"], "down", "state")
            contains(ours.tell("down", "nobody", code=1).stderr, 'there is no connection "nobody"')
            contains(ours.tell("connect", "nobody", code=1).stderr, "no connection")
            ours.tell("connect", "peer")
            spi = ours.up().sas()[0]["spi"]
            third = connection("third", local="10.7.1.0/24", other="10.7.2.0/24", start="none", suite=None)
            ours.write(first + third)
            equal(ours.ask("reload"), {"added": ["third"], "changed": [], "removed": ["second"], "renewed": []}, "reload")
            equal([sa["spi"] for sa in ours.sas()], [spi], "IKE SAs")
            ours.write(connection(suite=None, extra="liveness = 7") + third)
            os.kill(ours.process.child.pid, signal.SIGHUP)
            wait_for(lambda: [sa["spi"] for sa in ours.sas()] not in ([spi], []), lambda: ours.log(), 30)
            ours.write(first.replace("psk_file", "pskfile") + third)
            contains(ours.tell("reload", code=1).stderr, "pskfile")
            ours.write(first.replace("10.5.1.0/24", "10.5.1.0/33") + third)
            contains(ours.tell("reload", code=1).stderr, "10.5.1.0/33")
            equal(len(ours.sas()), 1, "IKE SAs after reloads that failed")
            text = lab.network.run("client", "curl", "-s", "http://127.0.0.1:9401/metrics").stdout
            for line in ("cordon_vpn_ike_sas 1", 'cordon_vpn_ike_failures_total{reason="authentication"} 0'):
                assert line in text.splitlines(), text
            equal(ours.tell("status", "--format", "prometheus").stdout.count("cordon_vpn_child_sas 1"), 1)
            contains(ours.tell("status").stdout, "child net  10.5.1.0/24 = 10.5.2.0/24")
            ours.tell("down")
            equal(ours.process.child.wait(10), 0, "exit code")
            gateway.says("IKE SA down", "closed by the peer")


def traps(suite, lab):
    with suite.case("the first packet brings the tunnel up, and before it nothing goes in the clear"):
        # The other side's address inside is on its loopback, so a packet in the clear would arrive.
        one = connection(start="trap", suite=None)
        stack, ours, gateway = pair(lab, one, mirrored(suite=None))
        with stack:
            time.sleep(1)
            equal(ours.sas(), [], "IKE SAs")
            wait_for(lambda: lab.ping(count=1, code=None).returncode == 0, "a ping", 10)
            ours.says("traffic wants a tunnel")
            gateway.tell("down", "peer")
            ours.says("IKE SA down", "closed by the peer")
            gateway.tell("connect", "peer", code=1)
            wait_for(lambda: lab.ping(count=1, code=None).returncode == 0, "a ping through a new tunnel", 20)


def run(suite, long=False):
    lab = Lab(suite)
    megabytes = 100 if long else MEGABYTES
    both_roles(suite, lab, megabytes)
    keys_by_command(suite, lab)
    certificates(suite, lab)
    suites(suite, lab, megabytes)
    nat(suite, lab)
    addresses(suite, lab)
    small_path(suite, lab, megabytes)
    mobility(suite, lab)
    further_addresses(suite, lab)
    unknown_spi(suite, lab)
    failures(suite, lab)
    revocation(suite, lab)
    central_log(suite, lab)
    fetched_lists(suite, lab)
    orders(suite, lab)
    traps(suite, lab)
    if long:
        silence(suite, lab)
    storm(suite, lab, 600 if long else 30)


if __name__ == "__main__":
    from tests.runner import Suite, finish, run_suite

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    the_suite = Suite("ike_vpn")
    run_suite(the_suite, lambda suite: run(suite, "--long" in sys.argv), 3600)
    sys.exit(finish([the_suite]))
