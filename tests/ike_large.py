"""IKE messages larger than the path, with a peer that puts no fragments of IKE together (RFC 7383)."""

from tests.harness import contains, equal, wait_for
from tests.ike_lab import Daemon, Lab, certificate_auth, connection, initiate

# Bytes that the cable takes, and the largest packet of a ping inside the tunnel that fits it.
PATHS = (1280, 576)
METRIC = "cordon_vpn_ike_ip_fragmented_total"


def resize(lab, size):
    for side in ("client", "server"):
        lab.network.run(side, "ip", "link", "set", "cable", "mtu", str(size))


def run(suite):
    lab = Lab(suite)
    folder = lab.pki("rsa4096")
    top = f'trust = {{ anchors = ["{folder}/ca.pem"] }}'
    for size in PATHS:
        resize(lab, size)
        for by in ("ours", "theirs"):
            with suite.case(f"RSA-4096 over {size} bytes, no fragments of IKE, started by {by}"):
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
    resize(lab, 1500)
