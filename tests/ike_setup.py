"""From two bare hosts to a tunnel that answers, by `cordon vpn init`, `prepare`, `up` and `ping` alone."""

import contextlib
import json
import os
import pty
import subprocess
import time

from tests.harness import CORDON, Camera, Process, Site, contains, equal, run as execute, wait_for
from tests.namespaces import OUTSIDE, Network

# Networks behind the gateways; .1 is the gateway's own address, .9 a host behind it.
LAN = {"client": "10.1.0", "server": "10.2.0"}


class Hosts:
    """Two gateways with a cable between them, each with a host behind it."""

    def __init__(self, suite):
        self.suite = suite
        self.network = Network()
        suite.finally_do(self.network.remove)
        self.network.create()
        for side, net in LAN.items():
            behind = self.network.names[f"{side}-behind"] = f"{self.network.names[side]}-behind"
            execute("ip", "netns", "add", behind)
            self.network.made.append(behind)
            gateway = self.network.names[side]
            execute("ip", "-n", gateway, "link", "add", "lan", "type", "veth", "peer", "name", "lan", "netns", behind)
            for name, address in [(gateway, f"{net}.1"), (behind, f"{net}.9")]:
                execute("ip", "-n", name, "address", "add", f"{address}/24", "dev", "lan")
                execute("ip", "-n", name, "link", "set", "lan", "up")
            execute("ip", "-n", behind, "route", "add", "default", "via", f"{net}.1")

    def run(self, side, *command, **options):
        return self.network.run(side, *command, **options)

    def cordon(self, side, *arguments, code=0, **options):
        return self.run(side, CORDON, *arguments, code=code, **options)

    @contextlib.contextmanager
    def daemon(self, side, file):
        process = Process(self.network.command(side, CORDON, "vpn", "up", "--config", file), file.parent / "up.log")
        log = lambda: (file.parent / "up.log").read_text(errors="replace")
        try:
            wait_for(lambda: "tunnels are served" in log(), log)
            yield process
        finally:
            process.stop()
            self.cordon(side, "vpn", "unblock", "--config", file)

    def ping(self, side, file, *arguments, code=0):
        return self.cordon(side, "vpn", "ping", "--config", file, *arguments, code=code, timeout=60)

    def closed(self, side):
        """A firewall that lets in what the host asked for, and nothing else."""
        rules = """table inet filter {
          chain input { type filter hook input priority 0; policy drop; ct state established,related accept; iif lo accept; iifname "cordon0" accept; }
          chain forward { type filter hook forward priority 0; ct state established,related accept; counter reject; }
        }"""
        self.run(side, "nft", rules)


def site_to_site(suite, hosts):
    folder = suite.folder / "tunnel"
    command = ["vpn", "init", "site-to-site", "--remote", OUTSIDE["server"], "--remote-network", "10.2.0.1/24", "--out", folder, "--tar"]
    for side in LAN:
        hosts.closed(side)

    with suite.case("site to site: a dry run says what would be done and does nothing"):
        before = hosts.run("client", "nft", "list", "ruleset").stdout
        said = hosts.cordon("client", *command, "--dry-run").stdout
        for part in ("has not done", "here/vpn.toml", "there.tar", "sysctl -w net.ipv4.ip_forward=1", "udp dport { 500, 4500 } accept"):
            contains(said, part)
        assert not folder.exists(), "files of a dry run"
        equal(hosts.run("client", "nft", "list", "ruleset").stdout, before, "the rules after a dry run")
        equal(hosts.run("client", "sysctl", "-n", "net.ipv4.ip_forward").stdout.strip(), "0", "forwarding")

    with suite.case("site to site: wrong answers are refused before anything is written"):
        for wrong, code in [(["--remote-network", "10.1.0.128/25"], 2), (["--remote", "2001:db8::1"], 2), (["--remote", "nobody"], 2)]:
            arguments = ["vpn", "init", "site-to-site", "--remote", OUTSIDE["server"], "--remote-network", "10.2.0.1/24", "--out", folder]
            for option, value in zip(wrong[::2], wrong[1::2]):
                arguments[arguments.index(option) + 1] = value
            hosts.cordon("client", *arguments, "--yes", code=code)
        # Without a terminal nobody can answer or confirm.
        contains(hosts.cordon("client", "vpn", "init", "site-to-site", code=2, stdin=subprocess.DEVNULL).stderr, "--yes")
        contains(hosts.cordon("client", *command, code=2, stdin=subprocess.DEVNULL).stderr, "--yes")
        assert not folder.exists(), "files of a refused call"

    with suite.case("site to site: two bare hosts answer each other, and so do the hosts behind them"):
        said = hosts.cordon("client", *command, "--yes").stdout
        contains(said, "cordon vpn ping")
        here, there = folder / "here" / "vpn.toml", suite.folder / "other" / "there" / "vpn.toml"
        equal((folder / "here" / "secret").stat().st_mode & 0o777, 0o600, "mode of the secret")
        equal((folder / "there.tar").stat().st_mode & 0o777, 0o600, "mode of what is carried")
        there.parent.parent.mkdir()
        execute("tar", "-xf", folder / "there.tar", "-C", there.parent.parent)
        said = hosts.cordon("server", "vpn", "prepare", "--config", there).stdout
        contains(said, "net.ipv4.ip_forward=1")
        again = json.loads(hosts.cordon("server", "vpn", "prepare", "--config", there, "--json").stdout)
        equal(again["steps"], [], "steps of the second time")
        contains(hosts.ping("client", here, code=1).stderr, "cordon vpn up")
        with hosts.daemon("client", here):
            # Nobody is at the other side.
            contains(hosts.ping("client", here, code=1).stderr, "does not come up")
            with hosts.daemon("server", there):
                contains(hosts.ping("client", here).stdout, "3 of 3")
                answer = json.loads(hosts.ping("server", there, "--json").stdout)
                equal((answer["source"], answer["target"]), ("10.2.0.1", "10.1.0.1"), "source and target")
                hosts.run("client-behind", "ping", "-c", 2, "-i", "0.2", "-W", 2, "10.2.0.9")
                hosts.run("server-behind", "ping", "-c", 2, "-i", "0.2", "-W", 2, "10.1.0.9")
                # An address at which nobody is, one of nobody, and one that another firewall keeps out.
                contains(hosts.ping("client", here, "--target", "10.2.0.77", code=1).stderr, "come")
                contains(hosts.ping("client", here, "--target", "10.7.0.1", code=1).stderr, "not in the networks")
                hosts.run("server", "nft", "add table inet shut; add chain inet shut i { type filter hook input priority 1; };"
                          " add rule inet shut i icmp type echo-request drop")
                contains(hosts.ping("client", here, code=1).stderr, "none come back")
                hosts.run("server", "nft", "delete table inet shut")
                hosts.run("client", "nft", "add table inet shut; add chain inet shut o { type filter hook output priority 1; };"
                          " add rule inet shut o icmp type echo-request drop")
                contains(hosts.ping("client", here, code=1).stderr, "nothing left")
                hosts.run("client", "nft", "delete table inet shut")

    with suite.case("the same once more changes nothing, and other answers are no way over files that are there"):
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".log"}
        hosts.cordon("client", *command, "--yes")
        refused = hosts.cordon("client", *command, "--local-network", "10.3.0.1/24", "--yes", code=1)
        contains(refused.stderr, "is there, with other content")
        equal({path: path.read_bytes() for path in before}, before, "files")
        # A secret that somebody else could know is none.
        secret = folder / "here" / "secret"
        os.chown(secret, 65534, 65534)
        contains(hosts.cordon("client", *command, "--yes", code=1).stderr, "not of this user alone")
        os.chown(secret, os.geteuid(), os.getegid())

    with suite.case("answers on a terminal lead to the same files"):
        other = suite.folder / "asked"
        line = hosts.network.command("client", CORDON, "vpn", "init", "site-to-site", "--out", other)
        master, slave = pty.openpty()
        with subprocess.Popen(line, stdin=slave, stdout=slave, stderr=slave, close_fds=True, start_new_session=True) as child:
            os.close(slave)
            text = b""
            answers = {b"other gateway outside": OUTSIDE["server"], b"this host outside": "", b"Networks here": "",
                       b"Networks behind": "nonsense", b"such as": "10.2.0.1/24", b"Go on?": "y"}
            end = time.monotonic() + 60
            while time.monotonic() < end:
                try:
                    text += os.read(master, 4096)
                except OSError:
                    break
                for question, answer in list(answers.items()):
                    if question in text and text.rstrip().endswith((b":",)):
                        os.write(master, answer.encode() + b"\n")
                        del answers[question]
                        text = b""
                        break
            equal(child.wait(30), 0, f"exit code after {text!r}")
            os.close(master)
        equal(answers, {}, "answers that nobody asked for")
        equal((other / "here/vpn.toml").read_bytes(), (folder / "here/vpn.toml").read_bytes(), "settings")
        assert (other / "here/secret").read_bytes() != (folder / "here/secret").read_bytes(), "each tunnel has a secret of its own"

    for side in LAN:
        hosts.run(side, "nft", "flush", "ruleset")


def gateway_and_devices(suite, hosts):
    site = Site(suite).start()
    gateway, laptop = suite.folder / "gateway", suite.folder / "laptop-7"
    of_site = [*site.arguments(), "--yes"]

    with suite.case("gateway and road warrior: certificates of the site, a pool, a tunnel that answers"):
        made = ["vpn", "init", "gateway", *of_site, "--name", "gateway.example.org", "--network", "10.2.0.1/24", "--out", gateway]
        said = hosts.cordon("server", *made).stdout
        contains(said, "roadwarrior")
        own = (gateway / "gateway.pem").read_bytes()
        hosts.cordon("server", *made)
        equal((gateway / "gateway.pem").read_bytes(), own, "the certificate after the same call")
        made = ["vpn", "init", "roadwarrior", *of_site, "--gateway", gateway / "vpn.toml", "--address", OUTSIDE["server"], "--device", "laptop-7"]
        hosts.cordon("client", *made, "--out", laptop)
        equal({path.name: path.stat().st_mode & 0o777 for path in laptop.iterdir()},
              {"vpn.toml": 0o600, "device.pem": 0o600, "services-ca.pem": 0o600}, "files")
        hosts.cordon("client", "vpn", "prepare", "--config", laptop / "vpn.toml")
        with hosts.daemon("server", gateway / "vpn.toml"), hosts.daemon("client", laptop / "vpn.toml"):
            contains(hosts.ping("client", laptop / "vpn.toml").stdout, "3 of 3")
            hosts.run("client", "ping", "-c", 2, "-i", "0.2", "-W", 2, "10.2.0.9")
            contains(hosts.ping("server", gateway / "vpn.toml").stdout, "3 of 3")

    with suite.case("gateway and camera: with the certificate that its agent keeps"):
        camera = Camera(site).start()
        wait_for((camera.folder / "identity.pem").exists, "the camera's certificate")
        made = ["vpn", "init", "camera", *of_site, "--gateway", gateway / "vpn.toml", "--address", OUTSIDE["server"]]
        hosts.cordon("client", *made, "--folder", suite.folder, code=1)
        hosts.cordon("client", *made, "--folder", camera.folder)
        file = camera.folder / "vpn.toml"
        hosts.cordon("client", "vpn", "prepare", "--config", file)
        with hosts.daemon("server", gateway / "vpn.toml"), hosts.daemon("client", file):
            contains(hosts.ping("client", file).stdout, "3 of 3")

    with suite.case("what is not a gateway's file, and a site that does not answer, are refused without a trace"):
        made = ["vpn", "init", "roadwarrior", *of_site, "--gateway", laptop / "vpn.toml", "--address", OUTSIDE["server"], "--device", "x"]
        contains(hosts.cordon("client", *made, "--out", suite.folder / "x", code=1).stderr, "init gateway")
        made = ["vpn", "init", "gateway", "--data", suite.folder / "none", "--yes", "--name", "g.example.org", "--network", "10.2.0.1/24"]
        hosts.cordon("server", *made, "--out", suite.folder / "x", code=1)
        assert not (suite.folder / "x").exists(), "files of a refused call"


def run(suite):
    hosts = Hosts(suite)
    site_to_site(suite, hosts)
    gateway_and_devices(suite, hosts)
