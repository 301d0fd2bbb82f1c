"""`cordon vpn up` in namespaces: the daemon, its configuration, authorities, and charon beside it."""

import contextlib
import datetime
import json
import re

from tests.harness import CORDON, Process, cordon, equal, run, wait_for
from tests.ike_pair import Charon, Lab as IkeLab
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
        # One that was killed left its table, which is of another file.
        self.unblock()

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
        # Somebody else's tunnel may come next between the same networks.
        self.unblock()

    def unblock(self):
        run("ip", "netns", "exec", self.namespace, CORDON, "vpn", "unblock", "--interface", "tunnel0")

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
        return self.issue_for(name, [f"{name}.example.org"], days)

    def issue_for(self, name, hosts, days=1):
        """A certificate with key for hosts, the first of which is the common name."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        subject = self.x509.Name([self.x509.NameAttribute(self.x509.NameOID.COMMON_NAME, hosts[0])])
        names = self.x509.SubjectAlternativeName([self.x509.DNSName(host) for host in hosts])
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
