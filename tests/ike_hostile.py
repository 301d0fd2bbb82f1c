"""Authenticated peers of `cordon vpn up` that want more than they may have."""

from tests.harness import contains, equal, wait_for
from tests.ike_lab import THEIRS, Daemon, Lab, connection, initiate

POOL = '[[pool]]\nname = "inside"\naddresses = ["10.9.0.0/24"]\n'


def gateway(**options):
    return connection(start="none", remote=None, **options)


def routes(lab):
    return lab.network.run("client", "ip", "route").stdout


def pool(suite, lab):
    """charon asks a gateway with a pool for no address, and then for those of others."""
    text = POOL + gateway(extra='pool = "inside"', other=None)
    for wanted in ["10.9.0.77/32", "8.8.8.0/24", f"{THEIRS}/32", "0.0.0.0/0"]:
        with suite.case(f"a pool's peer that asks for no address gets no traffic: {wanted}"):
            with lab.charon(local=wanted) as charon, Daemon(lab, "client", text) as ours:
                before = routes(lab)
                # IKE_AUTH first; then there is an IKE SA, and CREATE_CHILD_SA asks.
                for _ in range(3):
                    charon.control("--initiate", "--child", "net", "--timeout", "5", code=None)
                wait_for(lambda: len(ours.sas()) == 1, lambda: ours.log())
                equal(ours.sas()[0]["children"], [], "Child SAs")
                equal(routes(lab), before, "routes")
                contains(charon.log(), "TS_UNACCEPTABLE")
                ours.says("no traffic selectors in common")
    with suite.case("a pool's peer with its own address gets no other one"):
        options = {"addresses": "vips = 0.0.0.0", "local": "0.0.0.0/0"}
        with lab.charon(**options) as charon, Daemon(lab, "client", text) as ours:
            initiate("theirs", ours, charon)
            equal([child["remote"] for child in ours.sas()[0]["children"]], ["10.9.0.1-10.9.0.1"], "its traffic")
            for target in (["--child", "net"], ["--ike", "peer"], ["--child", "net"]):
                charon.control("--rekey", *target)
            wait_for(lambda: ours.counter("child_rekeys") >= 2, lambda: ours.log())
            remote = {child["remote"] for sa in ours.sas() for child in sa["children"]}
            equal(remote, {"10.9.0.1-10.9.0.1"}, "its traffic after new keys")
            assert "8.8.8.0" not in routes(lab)


def outside(suite, lab):
    for network, why in [
        ("10.207.0.128/25", "to which this host is connected"),
        ("64.0.0.0/2", "most of the address space"),
    ]:
        with suite.case(f"a network that the host has itself, or most networks, is not routed to a peer: {network}"):
            text = gateway(other=network)
            with lab.charon(local=network) as charon, Daemon(lab, "client", text) as ours:
                before = routes(lab)
                charon.control("--initiate", "--child", "net", "--timeout", "5", code=None)
                ours.says("Child SA refused", why)
                wait_for(lambda: ours.sas() and not ours.sas()[0]["children"], lambda: ours.log())
                equal(routes(lab), before, "routes")


def run(suite):
    lab = Lab(suite)
    pool(suite, lab)
    outside(suite, lab)
