"""Tunnels that rely on the site's certificates: `cordon vpn up` on both sides, OpenVPN with its guard, strongSwan's charon."""

import json
import re

from tests.harness import CORDON, Process, equal, run, wait_for
from tests.ike_lab import GCM
from tests.ike_pair import Charon
from tests.namespaces import OUTSIDE, OpenVpn

GATEWAY = "gateway.example.org"
INSIDE = "10.2.0.1"
IKE, ESP = "aes128gcm16-prfsha256-x25519", "aes128gcm16-x25519"
# What charon loads as it is packaged, with the plugins that follow lists and OCSP.
PLUGINS = (
    "random drbg nonce aes sha1 sha2 md5 hmac xcbc kdf gcm ctr ccm chapoly curve25519 openssl pem pkcs1 pkcs8 x509 revocation curl "
    "constraints pubkey kernel-libipsec kernel-netlink socket-default vici"
)


class Daemon:
    """`cordon vpn up` in a namespace."""

    def __init__(self, world, side, text):
        self.world, self.side = world, side
        world.count += 1
        self.folder = world.suite.folder / f"vpn-{world.count}"
        self.folder.mkdir()
        self.file = self.folder / "vpn.toml"
        self.write(text)
        self.log = self.folder / "log"
        command = world.network.command(side, CORDON, "vpn", "up", "--config", self.file)
        self.process = Process(command, self.log)
        world.suite.finally_do(self.process.kill)
        world.tunnels.append(self)
        wait_for(lambda: "tunnels are served" in self.text(), self.text, 30)

    def reload(self, text):
        """Gives the running daemon other settings."""
        self.write(text)
        run(CORDON, "vpn", "reload", "--config", self.file)

    def write(self, text):
        self.file.write_text('status = "control.sock"\nfirewall = { enforce = "off" }\n' + text)

    def text(self):
        return re.sub(r"\x1b\[[0-9;]*m", "", self.log.read_text(errors="replace"))

    def sas(self):
        done = run(CORDON, "vpn", "status", "--config", self.file, "--json", "--log", "error")
        return [sa for sa in json.loads(done.stdout)["ike"]["sas"] if sa["children"]]

    def peers(self):
        """Common names of those who have a tunnel."""
        return {re.search(r"CN=([^,]+)", sa["certificate"])[1] for sa in self.sas()}

    def takes_new_lists(self):
        """Waits until the daemon has fetched another list than those of its start."""
        count = lambda: self.text().count("a revocation list has changed")
        wait_for(lambda: count() > 2, self.text, 10)

    def end(self):
        """Ends it; that it ended before is as good."""
        if self.process.running():
            equal(self.process.stop(), 0, "exit code")


def followed(world, authorities):
    """Addresses of the lists of the root and these authorities, and the files of their certificates, for settings."""
    lists = ", ".join(f'"{world.url}/crl/{name}.crl"' for name in ("root", *authorities))
    return lists, ", ".join(f'"{world.pki}/{name}-ca.pem"' for name in authorities)


class Gateway(Daemon):
    """A gateway for devices, which trusts the root and follows the lists that the site publishes."""

    def __init__(self, world, folder, demand="", name="rely0", authorities=("devices",)):
        super().__init__(world, "server", self.settings(world, folder, demand, name, authorities))

    @staticmethod
    def settings(world, folder, demand="", name="rely0", authorities=("devices",)):
        lists, known = followed(world, authorities)
        return f"""
interface = {{ name = "{name}", addresses = ["{INSIDE}/16"] }}
pool = [{{ name = "devices", addresses = ["10.9.0.0/24"] }}]
[trust]
anchors = ["{world.site.root}"]
intermediates = [{known}]
crl_urls = [{lists}]
require_crl = true
{demand}
[[connection]]
name = "devices"
local_id = "{GATEWAY}"
remote_id = "any"
certificate = "{folder}/gateway.pem"
key = "{folder}/gateway.pem"
peer = {{ kind = "devices" }}
pool = "devices"
[[connection.child]]
name = "net"
local = ["10.2.0.0/16"]
"""


class Client(Daemon):
    """A host that has a tunnel for each of several devices."""

    def __init__(self, world, devices, strongswan=False, authorities=("services",)):
        super().__init__(world, "client", self.settings(world, devices, strongswan, authorities))

    @staticmethod
    def settings(world, devices, strongswan=False, authorities=("services",)):
        lists, known = followed(world, authorities)
        text = f"""
interface = {{ name = "rely1" }}
[trust]
anchors = ["{world.site.root}"]
intermediates = [{known}]
crl_urls = [{lists}]
"""
        # strongSwan 5.9 has neither hybrid key exchange nor, in user space, 64-bit sequence numbers.
        ike, esp = (f"ike = {GCM[0]}", f"esp = {GCM[1]}") if strongswan else ("", "")
        for number, device in enumerate(devices):
            network = "10.5.2.0/24" if strongswan else f"10.2.{number}.0/24"
            text += f"""
[[connection]]
name = "{device.name}"
remote = "{OUTSIDE['server']}"
remote_id = "{GATEWAY}"
certificate = "{device.chain}"
key = "{device.key}"
peer = {{ kind = "services" }}
request = ["ipv4"]
start = "start"
{ike}
[[connection.child]]
name = "net"
remote = ["{network}"]
{esp}
"""
        return text


class Guard:
    """An OpenVPN server with `cordon vpn openvpn-guard` beside it, and a device that is connected."""

    def __init__(self, world, name, device, number=0, source=()):
        self.world, self.name = world, name
        self.inside = f"10.8.{number}.1"
        out = world.suite.folder / f"openvpn-{name}-{device}"
        world.site.ask(
            "vpn", "openvpn-profile", "--server", OUTSIDE["server"], "--port", 20_000 + number, "--network", f"10.8.{number}.0/24",
            "--verifier", CORDON, "--device", f"{device}-{name}", "--out", out,
        )
        self.device = f"{device}-{name}"
        self.server = self.daemon("server", out / "server.conf")
        command = [CORDON, "vpn", "openvpn-guard", "--config", out / "server.conf", *(source or ("--data", world.site.data)), "--log", "info"]
        self.guard = Process(command, world.suite.folder / f"{out.name}-guard.log")
        world.suite.finally_do(self.guard.kill)
        self.server.up(30)
        self.client = self.daemon("client", out / f"{self.device}.ovpn", ["--connect-retry", "1", "1", "--hand-window", "5"])
        self.client.up(30)
        world.tunnels.append(self)

    def daemon(self, side, config, extra=()):
        daemon = OpenVpn(self.world.network, side, config, self.world.suite.folder / f"{config.parent.name}-{side}.log", None, extra)
        self.world.suite.finally_do(daemon.end)
        return daemon

    def is_up(self):
        """Whether a packet comes through within a fifth of a second."""
        ping = ["ping", "-n", "-c", "1", "-W", "0.2", self.inside]
        return self.world.network.run("client", *ping, code=None).returncode == 0

    def has_ended(self):
        return "session ended" in self.guard.log.read_text(errors="replace") and not self.is_up()

    def end(self):
        for daemon in (self.client, self.server):
            daemon.end()
        self.guard.kill()


class Sessions:
    """An OpenVPN server with its guard, and several devices that are connected."""

    def __init__(self, world, devices):
        self.devices = devices
        self.folder = out = world.suite.folder / "openvpn-many"
        each = [part for device in devices for part in ("--device", device)]
        world.site.ask("vpn", "openvpn-profile", "--server", OUTSIDE["server"], "--port", 20_002, "--network", "10.8.2.0/24",
                       "--verifier", CORDON, *each, "--out", out)
        self.ends = []
        self.server = self.daemon(world, "server", out / "server.conf")
        command = [CORDON, "vpn", "openvpn-guard", "--config", out / "server.conf", "--data", world.site.data, "--log", "info"]
        self.guard = Process(command, out / "guard.log")
        world.suite.finally_do(self.guard.kill)
        world.tunnels.append(self)
        self.server.up(30)
        for device in devices:
            self.daemon(world, "client", out / f"{device}.ovpn", ["--connect-retry", "1", "1"])

    def daemon(self, world, side, config, extra=()):
        daemon = OpenVpn(world.network, side, config, config.with_suffix(".log"), None, extra)
        world.suite.finally_do(daemon.end)
        self.ends.append(daemon)
        return daemon

    def are_up(self):
        for daemon in self.ends[1:]:
            daemon.up(60)

    def has_session(self, device):
        """Whether OpenVPN has a session of a device, or had one."""
        return f"{device}/" in self.server.text()

    def ended(self, device):
        """Whether OpenVPN has ended the session of a device."""
        return re.search(f"^.* {device}/.*client-instance exiting", self.server.text(), re.M) is not None

    def end(self):
        for daemon in self.ends:
            daemon.end()
        self.guard.kill()


class StrongSwan(Charon):
    """charon as a gateway for devices, with its plugin for revocation as it is by default."""

    def __init__(self, world, gateway):
        pki = world.suite.folder / f"charon-{world.count}"
        pki.mkdir()
        text = (gateway / "gateway.pem").read_text()
        parts = {kind: re.search(f"-----BEGIN [A-Z ]*{kind}.*?-----END [A-Z ]*{kind}-----\n", text, re.S)[0] for kind in ("PRIVATE KEY", "CERTIFICATE")}
        files = {"theirs.key": parts["PRIVATE KEY"], "theirs.pem": parts["CERTIFICATE"], "ca.pem": world.site.root.read_text(),
                 "issuing.pem": (world.pki / "devices-ca.pem").read_text()}
        for name, content in files.items():
            (pki / name).write_text(content)
        world.network.run("server", "ip", "address", "replace", "10.5.2.1/32", "dev", "lo")
        super().__init__(
            world, IKE, ESP, pki, local_id=GATEWAY, remote_id="%any", settings=f"load = {PLUGINS}", local="10.5.2.0/24", remote="dynamic",
            addresses="pools = inside", names=f"{OUTSIDE['server']} {GATEWAY}",
        )

        world.tunnels.append(self)

    def end(self):
        self.stop()

    def certified(self, name):
        """Whether a device has a tunnel."""
        text = self.sas()
        return f"CN={name}" in text and "INSTALLED" in text
