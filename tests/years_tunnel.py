"""Tunnels that live for years beside a site and its camera: IKE, whose gateway and camera renew their certificates, and OpenVPN.

Used by `tests.years`. The daemons are in namespaces of their own; what renews their files is beside the site.
"""

import glob
import json
import re
import shutil
import tempfile
from pathlib import Path

from tests.harness import CORDON, Process, contains, equal, run, wait_for
from tests.namespaces import OUTSIDE, Network, OpenVpn

INSIDE = "10.2.0.1"
OPENVPN_INSIDE = "10.8.0.1"
GATEWAY = "gateway.example.org"


def library():
    found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    assert found, "libfaketime is missing: apt-get install libfaketime"
    return found[0]


class Daemon:
    """`cordon vpn up` under the moved clock."""

    def __init__(self, tunnel, side, folder, text):
        self.tunnel, self.side, self.folder = tunnel, side, folder
        self.file = folder / "vpn.toml"
        # The clock's file must be readable; nft under libfaketime would need more than that.
        head = f'status = "{side}.sock"\nfolders = ["{tunnel.suite.folder}"]\nfirewall = {{ enforce = "off" }}\n'
        self.file.write_text(head + text)
        self.log = folder / f"{side}.log"
        self.process = None

    def start(self):
        command = self.tunnel.network.command(self.side, CORDON, "vpn", "up", "--config", self.file)
        self.process = Process(command, self.log, env=self.tunnel.clock.environment())
        self.tunnel.suite.finally_do(self.process.kill)
        wait_for(lambda: "tunnels are served" in self.text(), self.text, 60)

    def text(self):
        return re.sub(r"\x1b\[[0-9;]*m", "", self.log.read_text(errors="replace"))

    def connection(self):
        done = run(CORDON, "vpn", "status", "--config", self.file, "--json", "--log", "error")
        return json.loads(done.stdout)["ike"]["connections"][0]

    def certificate_ends(self):
        return self.connection()["certificates"][0]["not_after"]


class Renewer:
    """`cordon pki renew --watch` for one file."""

    def __init__(self, tunnel, file, hook=None):
        site = tunnel.site
        command = [CORDON, "pki", "renew", "--watch", "--file", file, "--server", f"localhost:{site.enrolment}"]
        command += ["--root", site.root, *(["--deploy-hook", hook] if hook else [])]
        self.log = site.folder / f"renew-{file.name}.log"
        self.process = Process(command, self.log, env=tunnel.clock.environment())
        tunnel.suite.finally_do(self.process.kill)


class Tunnel:
    """A gateway and the camera's daemon; OpenVPN's server and a client."""

    def __init__(self, suite, site, camera, clock):
        self.suite, self.site, self.clock = suite, site, clock
        self.network = Network()
        suite.finally_do(self.network.remove)
        self.network.create()
        folder = site.folder / "gateway"
        site.ask("vpn", "gateway-certificate", "--name", GATEWAY, "--out", folder)
        pki = site.data / "pki"
        self.gateway = Daemon(self, "server", folder, f"""
audit = {{ folder = "journal" }}
interface = {{ name = "years0", addresses = ["{INSIDE}/16"] }}
trust = {{ anchors = ["devices-ca.pem"], crls = ["{pki}/crl/devices.crl"], require_crl = true }}
pool = [{{ name = "cameras", addresses = ["10.9.0.0/24"] }}]
[[connection]]
name = "cameras"
local_id = "{GATEWAY}"
remote_id = "any"
certificate = "gateway.pem"
key = "gateway.pem"
pool = "cameras"
[[connection.child]]
name = "net"
local = ["10.2.0.0/16"]
""")
        self.camera = Daemon(self, "client", camera.folder, f"""
interface = {{ name = "years0" }}
trust = {{ anchors = ["{pki}/services-ca.pem"], crls = ["{pki}/crl/services.crl"] }}
[[connection]]
name = "headquarters"
remote = "{OUTSIDE['server']}"
remote_id = "{GATEWAY}"
certificate = "identity.pem"
key = "identity.pem"
passphrase_file = "passphrase"
request = ["ipv4"]
start = "start"
[[connection.child]]
name = "net"
remote = ["10.2.0.0/16"]
""")
        self.renewers = [Renewer(self, folder / "gateway.pem")]
        for daemon in (self.gateway, self.camera):
            daemon.start()
        self.first = {daemon.side: daemon.certificate_ends() for daemon in (self.gateway, self.camera)}
        self.openvpn(site)
        self.check()

    def openvpn(self, site):
        """A server and a device whose files renew themselves."""
        self.out = site.folder / "openvpn"
        # Scripts of OpenVPN get neither its environment nor root's rights.
        self.verifier = Path(tempfile.mkdtemp(prefix="cordon-years-verifier-")) / "cordon"
        self.verifier.parent.chmod(0o755)
        self.suite.finally_do(shutil.rmtree, self.verifier.parent, True)
        options = ["--server", OUTSIDE["server"], "--verifier", self.verifier, "--device", "terminal-3", "--without-guard", "--out", self.out]
        site.ask("vpn", "openvpn-profile", *options)
        hook = site.folder / "deployed"
        hook.write_text('#!/bin/sh\necho "${RENEWED_FILE##*/}" >> "$(dirname "$0")/deployments"\n')
        hook.chmod(0o700)
        for name in ("server.conf", "terminal-3.ovpn"):
            self.renewers.append(Renewer(self, self.out / name, hook))

    def check_openvpn(self):
        """Starts both ends, as whoever is told of a new certificate does, with the lists of the day."""
        moved = {"LD_PRELOAD": library(), "FAKETIME": f"+{self.clock.days}d", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        moved |= {"DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}
        words = " ".join(f"{name}={value}" for name, value in moved.items())
        self.verifier.write_text(f'#!/bin/sh\n{words} exec {CORDON} "$@"\n')
        self.verifier.chmod(0o755)
        self.site.ask("vpn", "openvpn-crl", "--out", self.out / "crl.pem")
        ends = []
        try:
            for side, name in (("server", "server.conf"), ("client", "terminal-3.ovpn")):
                log = self.suite.folder / f"openvpn-{side}-{self.clock.days}.log"
                ends.append(OpenVpn(self.network, side, self.out / name, log, environment=moved))
                ends[-1].up(30)
            wait_for(lambda: self.ping(OPENVPN_INSIDE), "a packet through OpenVPN", 10)
        finally:
            for end in ends:
                end.end()

    def ping(self, address=INSIDE):
        return self.network.run("client", "ping", "-n", "-c", "1", "-W", "1", address, code=None).returncode == 0

    def check(self):
        """Both tunnels carry packets; whatever a jump of the clock has closed comes again by itself."""
        tell = lambda: f"{self.gateway.text()[-3000:]}\n--- camera\n{self.camera.text()[-3000:]}"
        wait_for(self.ping, tell, 60, 0.5)
        for process in (self.gateway.process, self.camera.process, *(one.process for one in self.renewers)):
            assert process.running(), f"{process.child.args} ended\n{process.tail()}"
        self.check_openvpn()

    def renewed(self, days):
        """What the years have done to the certificates."""
        now = self.clock.now().timestamp()
        for daemon in (self.gateway, self.camera):
            end = daemon.certificate_ends()
            # A third of a year is left at least, so that much of the first year's end has moved on.
            assert end - self.first[daemon.side] > max(0, days - 300) * 86400, f"{daemon.side} has its certificate of before"
            assert end - now > 60 * 86400, f"{daemon.side} has {(end - now) / 86400} days left"
            contains(daemon.text(), "our certificate was renewed")
        deployed = (self.site.folder / "deployments").read_text().split()
        for name in ("server.conf", "terminal-3.ovpn"):
            assert deployed.count(name) >= max(1, days // 365), deployed
        equal(len(re.findall("certificate not renewed", self.renewers[0].log.read_text())), 0, "renewals that failed")
        status = run(CORDON, "vpn", "status", "--config", self.gateway.file, "--format", "prometheus").stdout
        contains(status, 'cordon_vpn_certificate_not_after_seconds{connection="cameras",number="0"}')

    def end(self):
        for process in (self.camera.process, self.gateway.process, *(one.process for one in self.renewers)):
            process.stop()
