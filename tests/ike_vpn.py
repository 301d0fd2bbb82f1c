"""`cordon vpn up` in network namespaces, against strongSwan's charon and against itself.

`python -m tests.ike_vpn --long` adds the long half: 100 MB through each suite, and ten minutes of a stream
while keys change every five seconds and a tenth of the datagrams is lost.
"""

import contextlib
import datetime
import ipaddress
import json
import os
import re
import signal
import sys
import time

from tests.harness import CORDON, Process, contains, cordon, equal, run as execute, wait_for
from tests.ikev2 import Charon, Lab as IkeLab
from tests.namespaces import OUTSIDE
from tests.vpn import SINK, SOURCE

OURS, THEIRS = OUTSIDE["client"], OUTSIDE["server"]
INSIDE = {"client": "10.5.1.1", "server": "10.5.2.1"}
SECRET = "a secret for this test only"
IKE = "aes128gcm16-prfsha256-x25519"
ESP = "aes128gcm16-x25519"
# strongSwan's ESP in user space has no 64-bit sequence numbers.
GCM = (
    '[{ encryption = ["aes-128-gcm"], prf = ["hmac-sha2-256"], groups = ["x25519"] }]',
    '[{ encryption = ["aes-128-gcm"], groups = ["x25519"], extended_sequence = false }]',
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


class Daemon:
    """One `cordon vpn up`."""

    def __init__(self, lab, side, connections, top="", interface="", namespace=None):
        lab.count += 1
        self.lab, self.side = lab, side
        self.namespace = namespace or lab.network.names[side]
        self.folder = lab.suite.folder / f"d{lab.count}"
        self.folder.mkdir()
        self.top, self.interface = top, interface or f'addresses = ["{INSIDE[side]}/32"]'
        self.file = self.folder / "vpn.toml"
        self.secret("psk", SECRET)
        self.write(connections)
        self.process = None

    def write(self, connections):
        self.file.write_text(f"""
status = "control.sock"
{self.top}
[interface]
name = "tunnel0"
{self.interface}
{connections}
""")

    def secret(self, name, text):
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text + "\n")
        return path

    def start(self):
        command = ["ip", "netns", "exec", self.namespace, CORDON, "vpn", "up", "--config", self.file]
        self.process = Process(command, self.folder / "log")
        wait_for(lambda: "tunnels are served" in self.log(), self.log)
        return self

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        if kind:
            print(f"--- {self.side}\n{self.log()[-5000:]}")
            self.process.kill()
        else:
            equal(self.process.stop(), 0, "exit code")

    def log(self):
        text = (self.folder / "log").read_text(errors="replace")
        return re.sub(r"\x1b\[[0-9;]*m", "", text)

    def tell(self, *order, code=0):
        return cordon("vpn", order[0], "--config", self.file, *order[1:], code=code)

    def ask(self, *order):
        return json.loads(cordon("vpn", *order, "--config", self.file, "--json").stdout)

    def ike(self):
        return self.ask("status")["ike"]

    def sas(self):
        return self.ike()["sas"]

    def children(self):
        return [child for sa in self.sas() for child in sa["children"]]

    def up(self, count=1, seconds=20):
        wait_for(lambda: len(self.children()) == count, lambda: f"{count} children: {self.log()[-3000:]}", seconds)
        return self

    def counter(self, name):
        return self.ike()["counters"][name]

    def says(self, *parts, seconds=20):
        """Waits for one line of the log that has all the parts."""
        has = lambda: any(all(part in line for part in parts) for line in self.log().splitlines())
        wait_for(has, lambda: f"{parts} in one line of {self.log()[-4000:]}", seconds)


def connection(
    name="peer",
    remote=THEIRS,
    local_id="ours.example.org",
    remote_id="theirs.example.org",
    auth='psk_file = "psk"',
    suite=GCM,
    start="start",
    extra="",
    local="10.5.1.0/24",
    other="10.5.2.0/24",
    child="",
):
    """The text of one connection with one child."""
    network = lambda key, value: f'{key} = ["{value}"]' if value else ""
    lines = [
        "[[connection]]",
        f'name = "{name}"',
        f'remote = "{remote}"' if remote else "",
        f'local_id = "{local_id}"' if local_id else "",
        f'remote_id = "{remote_id}"',
        auth,
        f"ike = {suite[0]}" if suite else "",
        f'start = "{start}"',
        extra,
        "[[connection.child]]",
        'name = "net"',
        network("local", local),
        network("remote", other),
        f"esp = {suite[1]}" if suite else "",
        child,
    ]
    return "\n".join(line for line in lines if line) + "\n"


def certificate_auth(folder, name="ours"):
    return f'certificate = "{folder}/{name}.pem"\nkey = "{folder}/{name}.key"'


class Lab(IkeLab):
    def __init__(self, suite):
        super().__init__(suite)
        # Ours is on the tunnel's interface.
        self.network.run("client", "ip", "address", "delete", f"{INSIDE['client']}/32", "dev", "lo")

    def ping(self, side="client", address=INSIDE["server"], source=None, count=2, code=0):
        source = ["-I", source] if source else []
        return self.network.run(
            side, "ping", "-n", "-c", count, "-i", "0.2", "-W", "2", *source, address, code=code
        )

    @contextlib.contextmanager
    def sink(self, side, address):
        self.count += 1
        command = self.network.command(side, "python3", "-c", SINK, address)
        process = Process(command, self.suite.folder / f"sink{self.count}")
        try:
            wait_for(lambda: process.child.stdout.readline() == b"ready\n", "a sink")
            yield
        finally:
            process.kill()

    def stream(self, megabytes, side="client", other="server", address=None):
        """Sends through the tunnel and compares the sums."""
        address = address or INSIDE[other]
        with self.sink(other, address):
            command = ["python3", "-c", SOURCE, address, str(megabytes)]
            done = self.network.run(side, *command, timeout=300)
        equal(done.stdout.strip(), "True", "sums of what was sent and received")

    @contextlib.contextmanager
    def charon(self, ike=IKE, esp=ESP, pki=None, **options):
        charon = Charon(self, ike, esp, pki, **options)
        try:
            yield charon
        except BaseException:
            print(f"--- charon\n{charon.log()[-5000:]}")
            raise
        finally:
            charon.stop()


def initiate(by, ours, charon):
    if by == "theirs":
        charon.control("--initiate", "--child", "net", "--timeout", "20")
    ours.up()
    wait_for(lambda: "INSTALLED" in charon.sas(), "charon's child")


def start_by(by):
    return "start" if by == "ours" else "none"


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


class Authority:
    """A CA of our own with certificates and revocation lists, for what openssl's command cannot do."""

    def __init__(self, folder, name="CA"):
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        self.x509, self.folder = x509, folder
        folder.mkdir(exist_ok=True)
        self.key, self.number = ec.generate_private_key(ec.SECP256R1()), 0
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        usage = dict.fromkeys(
            "digital_signature content_commitment key_encipherment data_encipherment key_agreement "
            "key_cert_sign crl_sign encipher_only decipher_only".split(), False
        )
        usage |= {"key_cert_sign": True, "crl_sign": True}
        builder = self.builder(self.name, self.key.public_key(), 1)
        builder = builder.add_extension(x509.BasicConstraints(True, None), True)
        self.certificate = self.sign(builder.add_extension(x509.KeyUsage(**usage), True))
        self.save("ca.pem", self.certificate)

    def builder(self, subject, public, days):
        now = datetime.datetime.now(datetime.UTC)
        begin, end = sorted([now - datetime.timedelta(days=2), now + datetime.timedelta(days=days)])
        builder = self.x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(public)
        return builder.serial_number(self.x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)

    def sign(self, builder):
        from cryptography.hazmat.primitives import hashes

        return builder.sign(self.key, hashes.SHA256())

    def save(self, name, what):
        from cryptography.hazmat.primitives import serialization

        new = self.folder / f"{name}.new"
        new.write_bytes(what.public_bytes(serialization.Encoding.PEM))
        new.replace(self.folder / name)

    def issue(self, name, days=1):
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key, host = ec.generate_private_key(ec.SECP256R1()), f"{name}.example.org"
        subject = self.x509.Name([self.x509.NameAttribute(self.x509.NameOID.COMMON_NAME, host)])
        names = self.x509.SubjectAlternativeName([self.x509.DNSName(host)])
        certificate = self.sign(self.builder(subject, key.public_key(), days).add_extension(names, False))
        self.save(f"{name}.pem", certificate)
        path = self.folder / f"{name}.key"
        path.touch(mode=0o600)
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        path.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
        return certificate

    def revoke(self, *certificates):
        """A revocation list that names these."""
        now, self.number = datetime.datetime.now(datetime.UTC), self.number + 1
        builder = self.x509.CertificateRevocationListBuilder().issuer_name(self.name)
        builder = builder.last_update(now - datetime.timedelta(minutes=1))
        builder = builder.next_update(now + datetime.timedelta(days=1))
        builder = builder.add_extension(self.x509.CRLNumber(self.number), False)
        for certificate in certificates:
            one = self.x509.RevokedCertificateBuilder().serial_number(certificate.serial_number)
            builder = builder.add_revoked_certificate(one.revocation_date(now - datetime.timedelta(minutes=1)).build())
        self.save("crl.pem", self.sign(builder))


def pair(lab, ours, theirs, top_ours="", top_theirs=""):
    """Two daemons of ours; the first one starts."""
    stack = contextlib.ExitStack()
    with contextlib.ExitStack() as building:
        other = building.enter_context(Daemon(lab, "server", theirs, top_theirs))
        one = building.enter_context(Daemon(lab, "client", ours, top_ours))
        stack = building.pop_all()
    return stack, one, other


def mirrored(**options):
    """The gateway's side of `connection()`."""
    mirror = {"remote": None, "local_id": "theirs.example.org", "remote_id": "ours.example.org"}
    mirror |= {"start": "none", "local": "10.5.2.0/24", "other": "10.5.1.0/24"}
    return connection(**(mirror | options))


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
            "certificate of CN=expired.example.org expired at", "peer refused with AUTHENTICATION_FAILED",
        ),
        "revoked": (
            with_certificate(good.folder, "revoked"), theirs,
            "certificate of CN=revoked.example.org was revoked at", "peer refused with AUTHENTICATION_FAILED",
        ),
        "unknown authority": (
            with_certificate(stranger.folder, "ours"), theirs,
            "certificate of CN=ours.example.org: unknown authority CN=Stranger",
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
            equal(ours.ask("reload"), {"added": ["third"], "changed": [], "removed": ["second"]}, "reload")
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
            contains(ours.tell("status").stdout, "child net  10.5.1.0-10.5.1.255 = 10.5.2.0-10.5.2.255")
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


def crowd(suite, lab, count=8):
    with suite.case(f"{count} cameras and one gateway"):
        good = Authority(lab.suite.folder / "crowd")
        good.issue("theirs")
        trust = f'trust = {{ anchors = ["{good.folder}/ca.pem"] }}'
        text = '[[pool]]\nname = "cameras"\naddresses = ["10.9.0.0/24"]\n'
        auth = certificate_auth(good.folder, "theirs")
        text += mirrored(remote_id="any", auth=auth, extra='pool = "cameras"', other=None, suite=None)
        names = [f"cordon-{os.getpid()}-camera{n}" for n in range(count)]
        with contextlib.ExitStack() as stack:
            gateway = stack.enter_context(Daemon(lab, "server", text, trust))
            server, cameras = lab.network.names["server"], []
            for n, name in enumerate(names):
                execute("ip", "netns", "add", name)
                stack.callback(execute, "ip", "netns", "delete", name)
                link = f"camera{n}"
                execute("ip", "-n", name, "link", "add", "uplink", "type", "veth", "peer", "name", link, "netns", server)
                execute("ip", "-n", name, "address", "add", f"10.30.{n}.2/24", "dev", "uplink")
                execute("ip", "-n", server, "address", "add", f"10.30.{n}.1/24", "dev", link)
                for where, what in [(name, "uplink"), (name, "lo"), (server, link)]:
                    execute("ip", "-n", where, "link", "set", what, "up")
                good.issue(f"camera-{n}")
                own = connection(
                    remote=f"10.30.{n}.1", local_id=None, auth=certificate_auth(good.folder, f"camera-{n}"),
                    extra='request = ["ipv4"]', local=None, suite=None,
                )
                cameras.append(stack.enter_context(Daemon(lab, "client", own, trust, "addresses = []", name)))
            for camera in cameras:
                camera.up()
            gateway.up(count)
            given = [sa["addresses"][0] for sa in gateway.sas()]
            equal(sorted(given, key=ipaddress.ip_address), [f"10.9.0.{n + 1}" for n in range(count)], "addresses")
            for name in names:
                execute("ip", "netns", "exec", name, "ping", "-c", "1", "-W", "2", INSIDE["server"])
            for address in given:
                lab.ping("server", address, count=1)
            peers = {sa["peer"] for sa in gateway.sas()}
            equal(peers, {f"CN=camera-{n}.example.org" for n in range(count)}, "peers")


def run(suite, long=False):
    lab = Lab(suite)
    megabytes = 100 if long else MEGABYTES
    both_roles(suite, lab, megabytes)
    certificates(suite, lab)
    suites(suite, lab, megabytes)
    nat(suite, lab)
    addresses(suite, lab)
    small_path(suite, lab, megabytes)
    mobility(suite, lab)
    failures(suite, lab)
    revocation(suite, lab)
    orders(suite, lab)
    traps(suite, lab)
    crowd(suite, lab)
    storm(suite, lab, 600 if long else 30)


if __name__ == "__main__":
    from tests.runner import Suite, finish, run_suite

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    the_suite = Suite("ike_vpn")
    run_suite(the_suite, lambda suite: run(suite, "--long" in sys.argv), 3600)
    sys.exit(finish([the_suite]))
