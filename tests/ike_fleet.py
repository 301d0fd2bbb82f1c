"""Cameras by the thousand in one process (`cordon-lab ike-fleet`), each with an address and a certificate."""

import json
import os
import subprocess

from tests.harness import ROOT, equal
from tests.ike_lab import INSIDE, OURS, THEIRS, Authority, certificate_auth, connection

LAB = os.environ.get("CORDON_LAB", ROOT / "target/debug/cordon-lab")
# Cameras of one network (/24), of which the gateway takes so many handshakes at once.
NETWORK = 100


class Fleet:
    """The cameras, in one process on the client's side; each has an address and a certificate."""

    def __init__(self, lab, count):
        self.lab, self.count = lab, count
        self.authority = Authority(lab.suite.folder / "crowd")
        self.authority.issue("server")
        self.certificates = self.certify()
        place = lambda number: f"{number // NETWORK}.{number % NETWORK + 1}"
        self.clients = [(f"10.60.{place(number)}", f"10.61.{place(number)}") for number in range(count)]
        batch = "".join(f"address add {outside}/32 dev cable\n" for outside, _ in self.clients)
        lab.network.run("client", "ip", "-batch", "-", input=batch)
        # By one neighbour: the kernel's table of these has room for 1024.
        lab.network.run("server", "ip", "route", "add", "10.60.0.0/16", "via", OURS)

    def certify(self):
        """Certificates of all cameras for one key."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        authority, x509 = self.authority, self.authority.x509
        key = ec.generate_private_key(ec.SECP256R1())
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        self.key = key.private_bytes(*form).decode()
        out = []
        for number in range(self.count):
            name = f"client-{number}.example.org"
            subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
            builder = authority.builder(subject, key.public_key(), 1)
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), False)
            certificate = authority.sign(builder)
            out.append(certificate.public_bytes(serialization.Encoding.PEM).decode())
        return out

    def gateway(self, extra="", child=""):
        """What the gateway's file has for them: connection, and settings of the whole."""
        auth = certificate_auth(self.authority.folder, "server")
        text = connection(
            name="cameras", remote=None, local_id="server.example.org", remote_id="any", start="none", auth=auth,
            local=f"{INSIDE['server']}/32", other="10.61.0.0/16",
            extra=extra, child=child,
        )
        top = f'crash_secret = "crash.secret"\nsession_tickets = "tickets"\ntrust = {{ anchors = ["{self.authority.folder}/ca.pem"] }}'
        return text, top

    def start(self, resume):
        order = {
            "server": THEIRS, "clients": self.clients, "inside": INSIDE["server"],
            "root": (self.authority.folder / "ca.pem").read_text(), "certificate": self.certificates[0],
            "key": self.key, "hybrid": False, "count": None, "seconds": 0.0,
            "certificates": self.certificates, "echo_ms": 500, "resume": resume,
        }
        command = self.lab.network.command("client", LAB, "ike-fleet")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.tell(json.dumps(order))

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def times(self):
        """Seconds until each camera had an answer through a new tunnel, sorted."""
        measured = json.loads(self.process.stdout.readline())
        equal(len(measured["times"]), self.count, "cameras")
        self.resumed = measured["resumed"]
        return sorted(measured["times"])

    def stop(self):
        self.process.stdin.close()
        self.process.wait(20)


def told(what, times):
    at = lambda share: times[min(len(times) - 1, int(len(times) * share))]
    print(f"      {what}: first {times[0]:.2f} s, median {at(0.5):.2f} s, p99 {at(0.99):.2f} s, last {times[-1]:.2f} s",
          flush=True)
