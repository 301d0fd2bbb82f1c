"""`cordon vpn check`: what `up` would refuse, what this host lacks, what would leave in the clear; and that it changes nothing."""

import json
import os
import subprocess

from tests.harness import CORDON, contains, equal, run as execute
from tests.ike_lab import OURS, Daemon, Lab, connection


def check(daemon, code, *before):
    """The findings; the exit code is that of errors."""
    command = ["ip", "netns", "exec", daemon.namespace, *before, CORDON, "vpn", "check", "--config", daemon.file, "--json"]
    done = execute(*command, code=code)
    answer = json.loads(done.stdout)
    equal(answer["errors"], sum(one["severity"] == "error" for one in answer["findings"]), "errors counted")
    equal(bool(answer["errors"]), code == 1, "errors and the exit code")
    return [f"{one['severity']} {one['setting']}: {one['found']}" for one in answer["findings"]]


def has(found, *parts):
    assert any(all(part in line for part in parts) for line in found), f"{parts} in none of {found}"


def state(lab):
    """What a command could have changed on a host."""
    # Without what the kernel itself changes a moment after a cable is there.
    shown = [["nft", "list", "ruleset"], ["ls", "/sys/class/net"], ["ip", "-4", "route", "show", "table", "all"], ["ip", "rule"],
             ["ss", "-lun"], ["sysctl", "-a", "--pattern", "forward|rp_filter"]]
    return [lab.network.run("client", *command).stdout for command in shown]


def run(suite):
    lab = Lab(suite)
    lab.network.run("client", "sysctl", "-w", "net.ipv4.ip_forward=1")

    with suite.case("a host and a file on which all is well have no findings, before and while the daemon runs"):
        daemon = Daemon(lab, "client", connection())
        before = state(lab)
        equal(check(daemon, 0), [], "findings")
        equal(state(lab), before, "the host after the check")
        plain = execute("ip", "netns", "exec", daemon.namespace, CORDON, "vpn", "check", "--config", daemon.file)
        contains(plain.stdout, "nothing to say against")
        with daemon:
            before = state(lab)
            equal(check(daemon, 0), [], "findings beside the running daemon")
            equal(state(lab), before, "the host after the check")
            equal(daemon.ike()["connections"][0]["name"], "peer", "the daemon that went on")

    with suite.case("a file is the same from wherever it is named"):
        daemon = Daemon(lab, "client", connection())
        for folder in (daemon.folder, daemon.folder.parent, daemon.folder.parent.parent):
            command = ["ip", "netns", "exec", daemon.namespace, CORDON, "vpn", "check", "--config", daemon.file.relative_to(folder)]
            contains(execute(*command, cwd=folder).stdout, "nothing to say against")

    with suite.case("every mistake is named at once, one line each, and up refuses for the first"):
        text = connection(auth='psk_file = "missing"') + connection(name="second", remote="10.207.0.9", remote_id="b.example.org",
                                                                    other="10.5.2.0/25", extra="lifetime = 0")
        daemon = Daemon(lab, "client", text)
        found = check(daemon, 1)
        has(found, "error", 'connection "peer"', "missing")
        has(found, "error", 'connection "second"', "`lifetime` is below one second")
        plain = execute("ip", "netns", "exec", daemon.namespace, CORDON, "vpn", "check", "--config", daemon.file, code=1)
        equal(len(plain.stdout.splitlines()), len(found), "lines")
        up = execute("ip", "netns", "exec", daemon.namespace, CORDON, "vpn", "up", "--config", daemon.file, code=1)
        contains(up.stderr, 'connection "peer"')
        daemon.write("nonsense = \n")
        has(check(daemon, 1), "error line 7")
        daemon.file.write_bytes(b"\xff\xfe\x00")
        execute(CORDON, "vpn", "check", "--config", daemon.file, code=1)
        execute(CORDON, "vpn", "check", "--config", daemon.folder / "none", code=1)
        execute(CORDON, "vpn", "check", code=2)

    with suite.case("secrets that others may read, and lists that are missing, are errors of the file"):
        daemon = Daemon(lab, "client", connection())
        (daemon.folder / "psk").chmod(0o644)
        has(check(daemon, 1), "error", "psk")
        daemon = Daemon(lab, "client", connection(), top='trust = { require_crl = true, crls = ["none.crl"] }')
        has(check(daemon, 1), "error trust.crls", "none.crl")

    with suite.case("packets in the clear: the firewall off, a network of the other side beside us"):
        daemon = Daemon(lab, "client", connection(), top='firewall = { enforce = "off" }')
        has(check(daemon, 1), "error firewall.enforce", "in the clear")
        lab.network.run("client", "ip", "route", "add", "10.5.2.0/25", "via", "10.207.0.1")
        has(check(daemon, 1), "error", "10.5.2.0/25 is routed to cable", "in the clear")
        daemon = Daemon(lab, "client", connection())
        has(check(daemon, 0), "warning", "10.5.2.0/25 is routed to cable", "held back")
        lab.network.run("client", "ip", "route", "delete", "10.5.2.0/25")

    with suite.case("what the host lacks: forwarding, ports, capabilities, the device, nftables"):
        daemon = Daemon(lab, "client", connection())
        lab.network.run("client", "sysctl", "-w", "net.ipv4.ip_forward=0")
        has(check(daemon, 0), "warning net.ipv4.ip_forward")
        lab.network.run("client", "sysctl", "-w", "net.ipv4.ip_forward=1")
        hold = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 4500)); print(1, flush=True); input()"
        command = lab.network.command("client", "python3", "-c", hold)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            holder.stdout.readline()
            has(check(daemon, 1), "error UDP port 4500", "in use")
            holder.communicate(b"\n")
        found = check(daemon, 1, "setpriv", "--bounding-set", "-net_admin,-net_bind_service", "--inh-caps", "-all")
        has(found, "error capabilities", "CAP_NET_ADMIN")
        has(found, "error capabilities", "CAP_NET_BIND_SERVICE")
        has(found, "error firewall")
        hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/net; exec "$@"', "sh"]
        has(check(daemon, 1, *hidden), "error TUN", "/dev/net/tun")
        bare = suite.folder / "bare"
        bare.mkdir()
        hidden[4] = f'for f in /usr/local/sbin /usr/sbin /sbin; do mount --bind {bare} $f; done; PATH=/nowhere exec "$@"'
        has(check(daemon, 1, *hidden), "error firewall", "nft")
        daemon = Daemon(lab, "client", connection(), top='path = { listen = "192.0.2.77" }')
        has(check(daemon, 1), "error path.listen", "192.0.2.77")
        lab.network.run("client", "ip", "link", "add", "tunnel0", "type", "veth", "peer", "name", "other")
        has(check(Daemon(lab, "client", connection()), 1), "error interface.name", "tunnel0")
        lab.network.run("client", "ip", "link", "delete", "tunnel0")

    with suite.case("pipes and devices as the file or the secret are errors at once, and are read by nobody"):
        daemon = Daemon(lab, "client", connection(auth='psk_file = "pipe"'))
        os.mkfifo(daemon.folder / "pipe", 0o600)
        has(check(daemon, 1), "error", "pipe is no regular file")
        for file in (daemon.folder / "pipe", "/dev/zero"):
            for order in ("check", "up", "block", "prepare"):
                contains(execute(CORDON, "vpn", order, "--config", file, code=1, timeout=20).stderr, "no regular file")
        large = daemon.folder / "large"
        with large.open("wb") as file:
            file.truncate(1 << 40)
        contains(execute(CORDON, "vpn", "check", "--config", large, code=1, timeout=20).stderr, "too long")

    with suite.case("an identity of ours that is a pattern, and peers and networks of nobody, are errors"):
        for own in ("any", "*.example.org", "*@example.org", "CN=*, O=Example", "-x"):
            daemon = Daemon(lab, "client", connection(local_id=own))
            has(check(daemon, 1), "error", json.dumps(own)[1:-1])
            for order in ("up", "prepare"):
                lab.network.run("client", CORDON, "vpn", order, "--config", daemon.file, code=1)
        for remote, what in ((OURS, "this host itself"), ("0.0.0.0", "nobody"), ("224.0.0.1", "multicast"), ("255.255.255.255", "broadcast")):
            has(check(Daemon(lab, "client", connection(remote=remote)), 1), "error", remote, what)
        for other in ("127.0.0.0/8", "224.0.0.0/4"):
            has(check(Daemon(lab, "client", connection(other=other)), 1), "error", other)
