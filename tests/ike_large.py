"""Paths of 1280 and 576 bytes: IKE messages larger than them, with a peer that puts no fragments of IKE together (RFC
7383), and IPv6 inside of a tunnel, whose packets of 1280 bytes nobody may be told to make smaller."""

from tests.harness import contains, equal, wait_for
from tests.ike_lab import INSIDE, THEIRS, Daemon, Lab, certificate_auth, connection, initiate, mirrored

# Bytes that the cable takes, and the largest packet of a ping inside the tunnel that fits it.
PATHS = (1280, 576)
METRIC = "cordon_vpn_ike_ip_fragmented_total"


def resize(lab, size):
    for side in ("client", "server"):
        lab.network.run(side, "ip", "link", "set", "cable", "mtu", str(size))


# Addresses inside, of both families, and bytes of a ping that make a packet of 1280.
INSIDE_V6 = {"client": "fd00:5:1::1", "server": "fd00:5:2::1"}
WHOLE = {4: 1252, 6: 1232}


def both_families_inside(suite, lab, title, size, remote, path):
    """IPv4 and IPv6 inside; the path's size is in the file, or is learned from what the kernel says."""
    lines = {"suite": None, "local": None, "other": None}
    networks = [f'["10.5.{number}.0/24", "fd00:5:{number}::/64"]' for number in (1, 2)]
    sides = ("client", "server")
    texts = [connection(remote=remote, child=f"local = {networks[0]}\nremote = {networks[1]}", **lines),
             mirrored(child=f"local = {networks[1]}\nremote = {networks[0]}", **lines)]
    interfaces = [f'addresses = ["{INSIDE[side]}/32", "{INSIDE_V6[side]}/128"]' for side in sides]
    resize(lab, size)
    for known, mtu in (("known", [f"mtu = {size}"]), ("learned", [])):
        top = f"path = {{ {', '.join([*mtu, *path])} }}" if mtu or path else ""
        with suite.case(f"IPv6 and IPv4 inside over {size} bytes of {title}, {known}: packets of 1280 bytes and streams"):
            daemons = [Daemon(lab, *each) for each in zip(sides, texts, (top, top), interfaces)]
            with daemons[1], daemons[0] as ours:
                ours.up()
                for version, inside in ((6, INSIDE_V6), (4, INSIDE)):
                    ping = ("ping", "-n", "-i", "0.2", "-W", "2", "-s", WHOLE[version], inside["server"])
                    # The first one may be what the path is learned by.
                    lab.network.run("client", *ping, "-c", "1", code=None)
                    lab.network.run("client", *ping, "-c", "3")
                    lab.stream(1, address=inside["server"])
                    lab.stream(1, "server", "client", address=inside["client"])


def run(suite):
    lab = Lab(suite)
    folder = lab.pki("rsa4096")
    top = f'trust = {{ anchors = ["{folder}/ca.pem"] }}'
    for size in PATHS:
        resize(lab, size)
        for by in ("ours", "theirs"):
            with suite.case(f"RSA-4096 with three levels over {size} bytes, no fragments of IKE, started by {by}"):
                text = connection(auth=certificate_auth(folder), start="start" if by == "ours" else "none")
                charon = lab.charon(pki=folder, fragmentation="no")
                with charon as theirs, Daemon(lab, "client", text, top) as ours:
                    initiate(by, ours, theirs)
                    lab.ping()
                    wait_for(lambda: ours.counter("in_fragments") >= 1, ours.log)
                    line = "an IKE message is larger than the path"
                    equal(ours.log().count(line), 1, "warnings")
                    warning = next(text for text in ours.log().splitlines() if line in text)
                    contains(warning, f"path_mtu={size}")
                    contains(ours.tell("status", "--format", "prometheus").stdout, METRIC)
    lab.network.run("server", "ip", "address", "delete", f"{INSIDE['server']}/32", "dev", "lo")
    for size in PATHS:
        both_families_inside(suite, lab, "IPv4", size, THEIRS, [])
    resize(lab, 1500)
    outside = {"server": "fd07::1", "client": "fd07::2"}
    for side, address in outside.items():
        lab.network.run(side, "ip", "address", "add", f"{address}/64", "dev", "cable", "nodad")
    # No link of IPv6 takes less.
    both_families_inside(suite, lab, "IPv6", 1280, outside["server"], ['listen = "::"'])
    resize(lab, 1500)
