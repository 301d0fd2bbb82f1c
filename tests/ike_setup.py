"""From two bare hosts to a tunnel that answers, by `cordon vpn init`, `prepare`, `up` and `ping` alone."""

import contextlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import time
from types import SimpleNamespace

from tests.harness import CORDON, Camera, Process, Site, contains, equal, run as execute, wait_for
from tests.ike_pair import CHARON6_ROOT, Charon
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


def without(command):
    """A command in which an option that is named again counts as it was named last."""
    kept = {}
    words = list(command)
    while words:
        word = words.pop(0)
        value = words.pop(0) if str(word).startswith("--") and words and not str(words[0]).startswith("--") else None
        kept[word] = value
    return [part for word, value in kept.items() for part in ([word] if value is None else [word, value])]


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
        nonsense = [["--remote", address] for address in (OUTSIDE["client"], "0.0.0.0", "224.0.0.1", "255.255.255.255", "127.0.0.1")]
        nonsense += [["--remote-network", network] for network in ("0.0.0.0/0", "::/0", "127.0.0.0/8", "224.0.0.0/4")]
        for option, value in [*nonsense, ["--interface", "a/b"]]:
            done = hosts.cordon("client", *without([*command, option, value]), "--yes", code=None)
            assert done.returncode in (1, 2), f"{option} {value}: {done}"
        # Without a terminal nobody can answer or confirm.
        contains(hosts.cordon("client", "vpn", "init", "site-to-site", code=2, stdin=subprocess.DEVNULL).stderr, "--yes")
        contains(hosts.cordon("client", *command, code=2, stdin=subprocess.DEVNULL).stderr, "--yes")
        assert not folder.exists(), "files of a refused call"

    with suite.case("site to site: what others could have put there, or know, is no secret of ours"):
        planted = suite.folder / "planted"
        here = planted / "here"
        init = ["vpn", "init", "site-to-site", "--remote", OUTSIDE["server"], "--remote-network", "10.2.0.1/24", "--out", planted, "--yes"]
        known = suite.folder / "known"
        known.write_text("0" * 64)
        known.chmod(0o600)

        def refused(what):
            before = sorted(planted.rglob("*"))
            contains(hosts.cordon("client", *init, code=1).stderr, what)
            equal(sorted(planted.rglob("*")), before, "files of a refused call")

        here.mkdir(mode=0o700, parents=True)
        (here / "secret").symlink_to(known)
        refused("is a link")
        (here / "secret").unlink()
        for text in ("", "x\n"):
            (here / "secret").touch(mode=0o600)
            (here / "secret").write_text(text)
            refused("64 hexadecimal digits")
        (here / "secret").unlink()
        here.chmod(0o777)
        refused("only this user can write")
        here.chmod(0o700)
        os.chown(here, 65534, 65534)
        refused("only this user can write")
        here.rmdir()
        os.umask(0)
        try:
            hosts.cordon("client", *without([*init, "--files-only", "--out", suite.folder / "new" / "folder"]))
        finally:
            os.umask(0o022)
        modes = {path.name: path.stat().st_mode & 0o777 for path in [suite.folder / "new", *(suite.folder / "new").rglob("*")]}
        equal({name for name, mode in modes.items() if mode & 0o077}, set(), "what others may do with new files")

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
                # A second tunnel of this host gets an interface of its own, by itself.
                second = [*command, "--out", suite.folder / "second", "--remote", "10.207.0.77", "--remote-network", "10.5.0.1/24"]
                hosts.cordon("client", *without(second), "--yes", code=None)
                contains((suite.folder / "second/here/vpn.toml").read_text(), 'name = "cordon1"')
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


# Outside and behind the gateways by IPv6.
OUTSIDE_V6 = {"server": "fd07::1", "client": "fd07::2"}
LAN_V6 = {"client": "fd01:0:0:1", "server": "fd02:0:0:2"}


def named(hosts, side, line, *command, **options):
    """A command on a host that knows this line of names."""
    file = hosts.suite.folder / "hosts"
    file.write_text(f"127.0.0.1 localhost\n{line}\n")
    shell = 'mount --bind "$0" /etc/hosts && exec "$@"'
    return hosts.run(side, "unshare", "-m", "sh", "-c", shell, file, CORDON, *command, **options)


def over_ipv6(suite, hosts):
    for side, address in OUTSIDE_V6.items():
        for place, link in ((address, "cable"), (f"{LAN_V6[side]}::1", "lan")):
            hosts.run(side, "ip", "address", "add", f"{place}/64", "dev", link, "nodad")
        behind = f"{LAN_V6[side]}::9"
        hosts.run(f"{side}-behind", "ip", "address", "add", f"{behind}/64", "dev", "lan", "nodad")
        hosts.run(f"{side}-behind", "ip", "route", "add", "default", "via", f"{LAN_V6[side]}::1")
    with suite.case("site to site by IPv6, the other gateway by its name: files alone, then both hosts answer each other"):
        folder = suite.folder / "v6"
        made = ["vpn", "init", "site-to-site", "--local-network", f"{LAN_V6['client']}::1/64", "--remote-network",
                f"{LAN_V6['server']}::1/64", "--out", folder, "--files-only", "--yes", "--interface", "cordon0"]
        before = [hosts.run("client", *command).stdout for command in (["nft", "list", "ruleset"], ["sysctl", "-a", "--pattern", "forward"])]
        names = f"{OUTSIDE_V6['server']} gw.example.org"
        said = named(hosts, "client", names, *made, "--remote", "gw.example.org").stdout
        contains(said, f"gw.example.org ({OUTSIDE_V6['server']})")
        after = [hosts.run("client", *command).stdout for command in (["nft", "list", "ruleset"], ["sysctl", "-a", "--pattern", "forward"])]
        equal(after, before, "the host after --files-only")
        contains(named(hosts, "client", names, *made, "--remote", "none.example.org", code=2).stderr, "has no address")
        here, there = folder / "here/vpn.toml", folder / "there/vpn.toml"
        contains(here.read_text(), "# The address of gw.example.org")
        for side, file in (("client", here), ("server", there)):
            hosts.cordon(side, "vpn", "prepare", "--config", file)
        with hosts.daemon("client", here), hosts.daemon("server", there):
            contains(hosts.ping("client", here).stdout, "3 of 3")
            answer = json.loads(hosts.ping("server", there, "--json").stdout)
            equal((answer["source"], answer["target"]), (f"{LAN_V6['server']}::1", f"{LAN_V6['client']}::1"), "source and target")
            hosts.run("client-behind", "ping", "-c", 2, "-i", "0.2", "-W", 2, f"{LAN_V6['server']}::9")
            hosts.run("server", "nft", "add table inet shut; add chain inet shut i { type filter hook input priority 1; };"
                      " add rule inet shut i icmpv6 type echo-request drop")
            contains(hosts.ping("client", here, code=1).stderr, "none come back")
            hosts.run("server", "nft", "delete table inet shut")
    for side in LAN:
        hosts.run(side, "nft", "flush", "ruleset")


def strongswan_with_profile(suite, hosts, site, gateway, root=None):
    """A telephone's program, as far as one runs here: strongSwan with what `profile` wrote."""
    name = "phone-6" if root else "phone-5"
    out = suite.folder / name
    made = ["vpn", "profile", "--device", name, "--gateway", "gateway.example.org", "--network", "10.2.0.0/24"]
    site.ask(*made, "--network", f"{LAN_V6['server']}::/64", "--out", out)
    profile = out / "swanctl"
    if root:
        (profile / "swanctl-6.conf").replace(profile / "swanctl.conf")
    lab = SimpleNamespace(suite=suite, network=hosts.network, count=60 if root else 50)
    names = f"{OUTSIDE['server']} gateway.example.org"
    with hosts.daemon("server", gateway / "vpn.toml"):
        charon = Charon(lab, "", "", None, profile=profile, root=root, side="client", names=names)
        try:
            charon.control("--initiate", "--child", "tunnel", "--timeout", "30")
            equal("KE1_ML_KEM_768" in charon.log(), bool(root), "ML-KEM")
            for address in ("10.2.0.9", f"{LAN_V6['server']}::9"):
                hosts.run("client", "ping", "-c", 2, "-i", "0.2", "-W", 2, address)
        except BaseException:
            print(charon.log()[-5000:])
            raise
        finally:
            charon.stop()


def gateway_and_devices(suite, hosts):
    site = Site(suite).start()
    gateway, laptop = suite.folder / "gateway", suite.folder / "laptop-7"
    of_site = [*site.arguments(), "--yes"]

    with suite.case("gateway and road warrior: nothing is issued whose key cannot be stored, or whose name is a pattern"):
        issued = lambda: len(site.ask("pki", "list")["certificates"])
        before = issued()
        tiny = suite.folder / "tiny"
        tiny.mkdir()
        execute("mount", "-t", "tmpfs", "-o", "size=16k,mode=755", "tmpfs", tiny)
        suite.finally_do(lambda: execute("umount", tiny, code=None))
        (tiny / "full").write_bytes(bytes(16 << 10))
        for out in ("/proc/x", tiny / "x"):
            init = ["vpn", "init", "gateway", *of_site, "--name", "g.example.org", "--network", "10.2.0.1/24", "--out", out]
            hosts.cordon("server", *init, code=1)
        for name in ("any", "*.example.org", "*@example.org", "CN=*, O=x", "-x"):
            init = ["vpn", "init", "gateway", *of_site, f"--name={name}", "--network", "10.2.0.1/24", "--out", suite.folder / "any"]
            hosts.cordon("server", *init, code=2)
        init = ["vpn", "init", "gateway", *of_site, "--name", "g.example.org", "--network", "10.2.0.1/24", "--out", suite.folder / "any"]
        hosts.cordon("server", *init, "--crl-url", "file:///etc", code=2)
        equal(issued(), before, "certificates of refused calls")
        assert not (suite.folder / "any").exists() and [path.name for path in tiny.iterdir()] == ["full"], "files of refused calls"

    with suite.case("gateway and road warrior: a certificate whose key is lost all the same is named, with the command that revokes it"):
        lost = suite.folder / "lost"
        init = ["vpn", "init", "gateway", *of_site, "--name", "lost.example.org", "--network", "10.2.0.1/24", "--out", lost, "--files-only"]
        # The site is held, so that room was made and its answer is missing when somebody takes the name.
        os.kill(site.process.child.pid, signal.SIGSTOP)
        with subprocess.Popen(hosts.network.command("server", CORDON, *init), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
            try:
                wait_for(lambda: list(lost.glob(".gateway.pem.*.tmp")), "room to be made for the certificate")
                (lost / "gateway.pem").touch(exist_ok=False)
            finally:
                os.kill(site.process.child.pid, signal.SIGCONT)
            said = child.communicate(timeout=30)[1]
        equal(child.returncode, 1, "exit code")
        serial, command = re.search(r"certificate (\w+) was issued", said)[1], re.search(r"`cordon (pki revoke [^`]*)`", said)[1]
        hosts.cordon("server", *shlex.split(command))
        revoked = [one for one in site.ask("pki", "list")["certificates"] if one["serial"] == serial]
        assert len(revoked) == 1 and "cessation" in json.dumps(revoked), revoked
        equal([path.name for path in lost.iterdir()], ["gateway.pem"], "what is left: the other file")

    with suite.case("gateway and road warrior: certificates of the site, a pool, a tunnel that answers"):
        made = ["vpn", "init", "gateway", *of_site, "--name", "gateway.example.org", "--network", "10.2.0.1/24"]
        made += ["--network", f"{LAN_V6['server']}::1/64", "--out", gateway]
        said = hosts.cordon("server", *made).stdout
        for part in ("roadwarrior", "name    gateway.example.org", "has no address yet", "reach   10.2.0.0/24", f"{LAN_V6['server'][:-2]}:ffff::/64"):
            contains(said, part)
        own = (gateway / "gateway.pem").read_bytes()
        hosts.cordon("server", *made)
        equal((gateway / "gateway.pem").read_bytes(), own, "the certificate after the same call")
        made = ["vpn", "init", "roadwarrior", *of_site, "--gateway", gateway / "vpn.toml", "--address", OUTSIDE_V6["server"], "--device", "laptop-7"]
        hosts.cordon("client", *made, "--out", laptop)
        equal({path.name: path.stat().st_mode & 0o777 for path in laptop.iterdir()},
              {"vpn.toml": 0o600, "device.pem": 0o600, "services-ca.pem": 0o600}, "files")
        hosts.cordon("client", "vpn", "prepare", "--config", laptop / "vpn.toml")
        with hosts.daemon("server", gateway / "vpn.toml"), hosts.daemon("client", laptop / "vpn.toml"):
            contains(hosts.ping("client", laptop / "vpn.toml").stdout, "3 of 3")
            for address in ("10.2.0.9", f"{LAN_V6['server']}::9"):
                hosts.run("client", "ping", "-c", 2, "-i", "0.2", "-W", 2, address)
            contains(hosts.ping("client", laptop / "vpn.toml", "--target", f"{LAN_V6['server']}::1").stdout, "3 of 3")
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

    with suite.case("gateway and telephone: strongSwan 5.9 with its profile reaches both families"):
        strongswan_with_profile(suite, hosts, site, gateway)
    if CHARON6_ROOT:
        with suite.case("gateway and telephone: strongSwan 6 with its profile, by ML-KEM"):
            strongswan_with_profile(suite, hosts, site, gateway, CHARON6_ROOT)

    with suite.case("what is not a gateway's file, and a site that does not answer, are refused without a trace"):
        made = ["vpn", "init", "roadwarrior", *of_site, "--gateway", laptop / "vpn.toml", "--address", OUTSIDE["server"], "--device", "x"]
        contains(hosts.cordon("client", *made, "--out", suite.folder / "x", code=1).stderr, "init gateway")
        # Whoever has this name in his file is let in by every device: so it must be one gateway's.
        settings = (gateway / "vpn.toml").read_text()
        for name in ("any", "*.example.org", "*@example.org", "CN=*, O=x"):
            hostile = suite.folder / "hostile.toml"
            hostile.write_text(settings.replace('"gateway.example.org"', f'"{name}"'))
            made = ["vpn", "init", "roadwarrior", *of_site, "--gateway", hostile, "--address", OUTSIDE["server"], "--device", "x"]
            contains(hosts.cordon("client", *made, "--out", suite.folder / "x", code=1).stderr, "several identities")
        made = ["vpn", "init", "gateway", "--data", suite.folder / "none", "--yes", "--name", "g.example.org", "--network", "10.2.0.1/24"]
        hosts.cordon("server", *made, "--out", suite.folder / "x", code=1)
        assert not (suite.folder / "x").exists(), "files of a refused call"


def run(suite):
    hosts = Hosts(suite)
    site_to_site(suite, hosts)
    over_ipv6(suite, hosts)
    gateway_and_devices(suite, hosts)
