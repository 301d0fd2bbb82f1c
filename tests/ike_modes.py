"""`cordon vpn up` in transport mode and with ESP as an IP protocol of its own, between two of ours; and a gateway whose peers come
by IPv4 and by IPv6.

strongSwan's ESP in user space has neither of the first two; `tests/kernel/ike.py` has it with that of Linux.
"""

import contextlib
import os
import re

from tests.harness import equal, run as execute, wait_for
from tests.ike_check import check, has
from tests.ike_lab import INSIDE, OURS, THEIRS, Daemon, Lab, connection, mirrored, pair

LISTEN = {"client": OURS, "server": THEIRS}
COUNT = "add table ip c; add chain ip c i { type filter hook input priority 0; };"
COUNT += " add rule ip c i ip protocol esp counter; add rule ip c i udp dport 4500 counter"


def counted(lab, side):
    """Packets that came as ESP, and as UDP with ESP or IKE."""
    text = lab.network.run(side, "nft", "list", "chain", "ip", "c", "i").stdout
    return tuple(int(number) for number in re.findall(r"counter packets (\d+)", text))


@contextlib.contextmanager
def counting(lab):
    for side in LISTEN:
        lab.network.run(side, "nft", COUNT)
    try:
        yield
    finally:
        for side in LISTEN:
            lab.network.run(side, "nft", "flush", "ruleset")


def path(side, encapsulation):
    return f'path = {{ listen = "{LISTEN[side]}", encapsulation = "{encapsulation}" }}'


def modes(suite, lab):
    for mode in ["tunnel", "transport"]:
        for encapsulation in ["udp", "native"]:
            if (mode, encapsulation) == ("tunnel", "udp"):
                # Everywhere else.
                continue
            with suite.case(f"{mode} mode, encapsulation {encapsulation}: a stream both ways while keys change"):
                lines = {"suite": None, "child": "lifetime = 3", "extra": "lifetime = 8"}
                if mode == "transport":
                    lines |= {"local": None, "other": None, "child": 'mode = "transport"\nlifetime = 3'}
                theirs = mirrored(**lines | {"remote": OURS})
                interface = "addresses = []" if mode == "transport" else ""
                inside = LISTEN if mode == "transport" else INSIDE
                with contextlib.ExitStack() as stack:
                    stack.enter_context(counting(lab))
                    other = stack.enter_context(
                        Daemon(lab, "server", theirs, path("server", encapsulation), interface)
                    )
                    ours = stack.enter_context(
                        Daemon(lab, "client", connection(**lines), path("client", encapsulation), interface)
                    )
                    other.up()
                    child = ours.up().children()[0]
                    equal((child["mode"], child["in_udp"]), (mode, encapsulation == "udp"), "child")
                    lab.stream(3, address=inside["server"])
                    lab.stream(3, "server", "client", address=inside["client"])
                    rekeyed = lambda: min(ours.counter("child_rekeys"), ours.counter("ike_rekeys")) > 0
                    wait_for(rekeyed, lambda: ours.log())
                    lab.stream(2, address=inside["server"])
                    esp, udp = counted(lab, "server")
                    print(f"        {esp} packets of ESP, {udp} of UDP", flush=True)
                    assert (esp > 1000 and udp < 100) if encapsulation == "native" else (esp == 0 and udp > 100), (esp, udp)
                    packets_in = lambda: other.ask("status")["received"]["packets"]
                    before = packets_in()
                    lab.ping(address=inside["server"])
                    assert packets_in() >= before + 2, "the ping went another way"
                if mode == "transport":
                    # Nothing is left of the rules, and the hosts reach one another as before.
                    assert "1723" not in lab.network.run("client", "ip", "rule").stdout
                    lab.ping(address=THEIRS)


def refused_transport(suite, lab):
    with suite.case("a peer that wants tunnel mode gets it from one that wants transport mode"):
        wants = {"suite": None, "local": None, "other": None, "child": 'mode = "transport"'}
        takes = mirrored(suite=None, remote=OURS, local=f"{THEIRS}/32", other=f"{OURS}/32", start="none")
        with contextlib.ExitStack() as stack:
            other = stack.enter_context(Daemon(lab, "server", takes, path("server", "udp"), "addresses = []"))
            ours = stack.enter_context(Daemon(lab, "client", connection(**wants), path("client", "udp"), "addresses = []"))
            equal(ours.up().children()[0]["mode"], "tunnel", "mode")
            equal(other.up().children()[0]["mode"], "tunnel", "mode")


def translated(suite, lab):
    """Address translation in front of ours."""
    inner = f"cordon-{os.getpid()}-inner"
    execute("ip", "netns", "add", inner)
    suite.finally_do(execute, "ip", "netns", "delete", inner)
    client = lab.network.names["client"]
    execute("ip", "-n", inner, "link", "add", "uplink", "type", "veth", "peer", "name", "downlink", "netns", client)
    for name, link, address in [(inner, "uplink", "10.208.0.2/24"), (client, "downlink", "10.208.0.1/24")]:
        execute("ip", "-n", name, "address", "add", address, "dev", link)
        execute("ip", "-n", name, "link", "set", link, "up")
    execute("ip", "-n", inner, "route", "add", "default", "via", "10.208.0.1")
    lab.network.run("client", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    rules = "add table ip n; add chain ip n p { type nat hook postrouting priority 100; };"
    rules += ' add rule ip n p oifname "cable" ip saddr 10.208.0.0/24 masquerade'
    lab.network.run("client", "nft", rules)
    text, theirs = connection(suite=None), mirrored(suite=None)

    def inner_daemon(encapsulation):
        return Daemon(lab, "client", text, f'path = {{ encapsulation = "{encapsulation}" }}', namespace=inner)

    with suite.case("encapsulation auto: UDP behind address translation"):
        with Daemon(lab, "server", theirs, 'path = { encapsulation = "auto" }') as other:
            with inner_daemon("auto") as ours:
                equal(ours.up().children()[0]["in_udp"], True, "in UDP")
                equal(other.up().children()[0]["in_udp"], True, "in UDP")
                execute("ip", "netns", "exec", inner, "ping", "-c", "2", "-i", "0.2", INSIDE["server"])
    with suite.case("encapsulation native: address translation is named as the reason"):
        with Daemon(lab, "server", theirs, 'path = { encapsulation = "native" }') as other, inner_daemon("auto"):
            other.says("WARN", "Child SA refused", "addresses are translated on the way")
            equal(other.children(), [], "children")


def automatic(suite, lab):
    with suite.case("encapsulation auto: no UDP where nothing translates"):
        top = 'path = { encapsulation = "auto" }'
        stack, ours, other = pair(lab, connection(suite=None), mirrored(suite=None), top, top)
        with stack:
            equal(ours.up().children()[0]["in_udp"], False, "in UDP")
            equal(other.up().children()[0]["in_udp"], False, "in UDP")
            wait_for(lambda: lab.ping(count=1, code=None).returncode == 0, "a ping", 5)
            lab.stream(2)


BOTH = '[path]\nlisten = "::"\ndual_stack = true'
# Outside by IPv6; inside, networks of the second peer.
OUTSIDE_V6 = {"client": "fd07::2", "server": "fd07::1"}
SECOND = {"local": "10.6.1.0/24", "other": "10.6.2.0/24"}


def over_ipv6(text):
    return text.replace(f'"{THEIRS}"', f'"{OUTSIDE_V6["server"]}"')


def both_families(suite, lab):
    for side, address in OUTSIDE_V6.items():
        lab.network.run(side, "ip", "address", "add", f"{address}/64", "dev", "cable", "nodad")
    mirror = {"local": SECOND["other"], "other": SECOND["local"], "remote_id": "second.example.org"}
    theirs = mirrored(suite=None) + mirrored(name="second", suite=None, **mirror)
    gateway = Daemon(lab, "server", theirs, f"{BOTH}\ntcp_port = 4500", 'addresses = ["10.5.2.1/32", "10.6.2.1/32"]\nworkers = 2')
    second = {"name": "second", "local_id": "second.example.org", "suite": None, "extra": "lifetime = 8", "child": "lifetime = 4"}
    inside = {"client": ["10.5.1.1", "10.6.1.1"], "server": ["10.5.2.1", "10.6.2.1"]}

    def passes(ours):
        ours.up(2)
        # The kernel would take the first address of the interface for both.
        for side, source, network in (("client", "10.6.1.1", SECOND["other"]), ("server", "10.6.2.1", SECOND["local"])):
            lab.network.run(side, "ip", "route", "replace", network, "dev", "tunnel0", "src", source)
        for near, far in zip(inside["client"], inside["server"]):
            lab.ping(address=far, source=near)
            lab.stream(2, address=far)
            lab.stream(2, "server", "client", address=near)

    # One daemon of ours is both peers.
    text = connection(suite=None) + over_ipv6(connection(**second, **SECOND))
    addresses = f'addresses = ["{inside["client"][0]}/32", "{inside["client"][1]}/32"]'
    with gateway as other:
        with suite.case("one gateway, one peer by IPv4 and one by IPv6 at once, streams both ways while keys change"):
            with Daemon(lab, "client", text, BOTH, addresses) as ours:
                passes(ours)
                equal(sorted(sa["remote"] for sa in other.sas()), [f"{OURS}:4500", "[fd07::2]:4500"], "peers")
                wait_for(lambda: ours.counter("ike_rekeys") > 0 and ours.counter("child_rekeys") > 0, ours.log)
                passes(ours)
                drops = [drop for drop in other.ask("status").get("inbound_drops", []) if drop["packets"]]
                equal(drops, [], "drops")
        with suite.case("and one over TCP of each family"):
            over_tcp = text.replace('start = "start"', 'start = "start"\ntransport = "tcp"')
            with Daemon(lab, "client", over_tcp, BOTH, addresses) as ours:
                passes(ours)
                equal([sa["transport"] for sa in other.sas()], ["tcp", "tcp"], "transports")
    with suite.case("a tunnel goes on by IPv6 where IPv4 fails (MOBIKE)"):
        further = lambda side: f'further_addresses = ["{OUTSIDE_V6[side]}"]'
        text = connection(suite=None, extra=f"liveness = 1\n{further('client')}")
        theirs = mirrored(suite=None, extra=further("server"))
        with Daemon(lab, "server", theirs, BOTH) as other, Daemon(lab, "client", text, BOTH) as ours:
            ours.up()
            lab.network.run("client", "nft", "add table ip m; add chain ip m o { type filter hook output priority 0; };"
                            f" add rule ip m o ip daddr {THEIRS} drop")
            try:
                wait_for(lambda: [sa["remote"] for sa in ours.sas()] == ["[fd07::1]:4500"], lambda: ours.sas(), 60)
                lab.ping()
                lab.stream(2, "server", "client")
                equal((ours.counter("established"), other.counter("established")), (1, 1), "IKE SAs that came up")
            finally:
                lab.network.run("client", "nft", "delete table ip m")
    with suite.case("mistakes about both families are named"):
        for path_lines, words in (
            ('listen = "0.0.0.0"', 'needs `listen = "::"`'), ('listen = "::"\nencapsulation = "auto"', 'encapsulation = "udp"'),
        ):
            has(check(Daemon(lab, "client", connection(), f"[path]\ndual_stack = true\n{path_lines}"), 1), words)
        plain = Daemon(lab, "client", over_ipv6(connection()))
        has(check(plain, 1), "`dual_stack`")


def run(suite):
    lab = Lab(suite)
    # Ours has its address on the tunnel's interface, and so has the other one here.
    lab.network.run("server", "ip", "address", "delete", f"{INSIDE['server']}/32", "dev", "lo")
    modes(suite, lab)
    refused_transport(suite, lab)
    automatic(suite, lab)
    both_families(suite, lab)
    translated(suite, lab)
