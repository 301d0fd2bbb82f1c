"""`cordon vpn up` beside strongSwan: ciphers that are in no default, those that are not here, padding, times of retransmission."""

import subprocess

from tests.harness import contains, equal, wait_for
from tests.ike_lab import INSIDE, OURS, THEIRS, Daemon, Lab, certificate_auth, connection, initiate, mirrored, pair


def of(ours, theirs, integrity=""):
    """A suite of both: our cipher and charon's words for it, the same for IKE and ESP."""
    words, more = (theirs, "") if not integrity else (f"{theirs}-{integrity}", ' integrity = ["hmac-sha2-256-128"],')
    return (
        f"{words}-prfsha256-x25519",
        f"{words}-x25519",
        f'[{{ encryption = ["{ours}"],{more} prf = ["hmac-sha2-256"], groups = ["x25519"] }}]',
        f'[{{ encryption = ["{ours}"],{more} groups = ["x25519"], extended_sequence = false }}]',
    )


# The rest of what RFC 8221 and RFC 8247 speak of, and keys of 192 bits.
SUITES = {
    "AES-CCM-8": of("aes-128-ccm-8", "aes128ccm8"),
    "AES-CCM": of("aes-256-ccm", "aes256ccm16"),
    "AES-CCM-12, 192 bits": of("aes-192-ccm-12", "aes192ccm12"),
    "AES-CTR": of("aes-256-ctr", "aes256ctr", "sha256"),
    "AES-CBC, 192 bits": of("aes-192-cbc", "aes192", "sha256"),
    "AES-GCM, 192 bits": of("aes-192-gcm", "aes192gcm16"),
}


def suites(suite, lab):
    """Packets both ways, and with new keys, as either side proposes it."""
    for name, (ike, esp, our_ike, our_esp) in SUITES.items():
        for by in ["ours", "theirs"]:
            with suite.case(f"{name}, started by {by}"):
                text = connection(suite=(our_ike, our_esp), start="start" if by == "ours" else "none")
                with lab.charon(ike, esp) as charon, Daemon(lab, "client", text) as ours:
                    initiate(by, ours, charon)
                    lab.stream(1)
                    lab.stream(1, "server", "client")
                    charon.control("--rekey", "--child", "net")
                    wait_for(lambda: ours.counter("child_rekeys") == 1, lambda: ours.ike()["counters"])
                    lab.ping()
                    child = ours.children()[0]
                    drops = [drop for drop in ours.ask("status").get("inbound_drops", []) if drop["packets"]]
                    equal(drops, [], f"drops, {child}")


# Sizes of the ESP packets in UDP from an address, until standard input ends.
SIZES = """
import select, socket, sys
cable = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
cable.bind(("cable", 0))
source, sizes = socket.inet_aton(sys.argv[1]), set()
print("ready", flush=True)
while True:
    ready = select.select([cable, sys.stdin], [], [])[0]
    if cable in ready:
        packet = cable.recv(65536)
        # Not IKE, whose messages begin with four zeros there.
        if packet[0] == 0x45 and packet[12:16] == source and packet[9] == 17 and packet[20:22] == b"\\x11\\x94" and any(packet[28:32]):
            sizes.add(len(packet))
    elif sys.stdin in ready:
        break
print(*sorted(sizes))
"""


def padding(suite, lab):
    """Traffic-flow padding towards a peer of other make, and between two of our own."""
    def sizes(side, source):
        line = lab.network.command(side, "python3", "-c", SIZES, source)
        sniffer = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        equal(sniffer.stdout.readline(), "ready\n")
        for size in (8, 500, 1000):
            lab.network.run("client", "ping", "-n", "-c", 2, "-i", "0.2", "-W", "2", "-s", size, INSIDE["server"])
        return {int(number) for number in sniffer.communicate("", timeout=20)[0].split()}

    with suite.case("packets padded to one size: strongSwan takes them, and its own differ"):
        with lab.charon() as charon, Daemon(lab, "client", connection(child="tfc_padding = 1200")) as ours:
            initiate("ours", ours, charon)
            padded, theirs = sizes("server", OURS), sizes("server", THEIRS)
            assert len(padded) == 1 and min(padded) > 1200 and len(theirs) == 3, (padded, theirs)
            # Larger ones than that pass as well.
            lab.network.run("client", "ping", "-n", "-c", 1, "-W", "2", "-s", 1300, INSIDE["server"])
            assert "WARN" not in ours.log(), ours.log()
    with suite.case("packets padded as far as the path goes, both ways"):
        stack, ours, gateway = pair(lab, connection(suite=None, child='tfc_padding = "mtu"'),
                                    mirrored(suite=None, child='tfc_padding = "mtu"'))
        with stack:
            ours.up()
            found = sizes("server", OURS), sizes("server", THEIRS)
            assert found[0] == found[1] and len(found[0]) == 1 and 1480 <= min(found[0]) <= 1500, found


def own_times(suite, lab):
    with suite.case("a peer that died is known as gone after the times of its connection"):
        text = connection(extra="liveness = 1\nretransmission = { timeout = 0.2, factor = 1, limit = 1, tries = 3 }")
        with lab.charon() as charon, Daemon(lab, "client", text) as ours:
            initiate("ours", ours, charon)
            charon.process.kill()
            charon.process.wait()
            # A second of silence and four waits of a fifth of one; a minute and more it would be otherwise.
            ours.says("IKE SA down", "does not answer", seconds=15)


def explained(ours):
    """The newest failure, once there is one."""
    failed = lambda: ours.ask("explain")["failed"]
    wait_for(failed, ours.log)
    return failed()[0]


def retired(suite, lab):
    """What is not here by intention, and what either side says of it."""
    text = connection(start="none")
    knock = ("--initiate", "--child", "net", "--timeout", "3")
    cases = [
        ("IKEv1", {"version": "1"}, (None, "IKEv1", "IKEv2"), None),
        # Its OpenSSL has both; the registry of IANA names them.
        ("3DES for IKE", {"ike": "3des-sha256-x25519"}, ("`ike`", "IKE:3DES", "AES_GCM_16_128"), "NO_PROP"),
        ("Camellia for IKE", {"ike": "camellia256-sha256-x25519"}, ("`ike`", "CAMELLIA_CBC", "AES_GCM_16_128"), "NO_PROP"),
        ("MODP of 1024 bits", {"ike": "aes128gcm16-prfsha256-modp1024"}, ("`ike`", "1024", "CURVE25519"), "NO_PROP"),
        ("HMAC-MD5 for ESP", {"esp": "aes128-md5-x25519"}, ("`esp`", "MD5", "AES_GCM_16_128"), "NO_PROP"),
        ("an address that is not of the pool", {"local": "10.8.0.5/32", "addresses": "vips = 10.8.0.5"},
         ("`local` and `remote`", "10.8.0.5", "10.9.0."), "TS_UNACCEPT"),
    ]
    for title, options, (setting, theirs, ours_is), told in cases:
        with suite.case(f"strongSwan comes with {title}: named on either side"):
            pool = '[[pool]]\nname = "inside"\naddresses = ["10.9.0.0/24"]\n' + connection(
                extra='pool = "inside"', start="none", remote=None, other=None)
            wanted = pool if "addresses" in options else text
            with lab.charon(**options) as charon, Daemon(lab, "client", wanted) as ours:
                charon.control(*knock, code=None)
                found = explained(ours)
                for part, key in ((setting, "setting"), (theirs, "theirs"), (ours_is, "ours")):
                    assert part is None or part in (found[key] or ""), f"{part} in {key} of {found}"
                assert told is None or told in charon.log(), charon.log()[-2000:]
                equal(ours.children(), [], "children")


def childless(suite, lab):
    with suite.case("strongSwan makes an IKE SA without Child SA first (RFC 6023)"):
        with lab.charon(ppk="childless = force") as charon, Daemon(lab, "client", connection(start="none")) as ours:
            charon.control("--initiate", "--ike", "peer", "--timeout", "10")
            wait_for(lambda: len(ours.sas()) == 1, ours.log)
            equal(ours.children(), [], "children")
            charon.control("--initiate", "--child", "net", "--timeout", "10")
            ours.up()
            lab.ping()
            equal(ours.counter("established"), 1, "IKE SAs that came up")


def proofs_of_old(suite, lab):
    folder = lab.pki("ecdsa")
    top = f'trust = {{ anchors = ["{folder}/ca.pem"] }}'
    for by in ("ours", "theirs"):
        with suite.case(f"ECDSA by method 9, for a peer without RFC 7427, started by {by}"):
            text = connection(auth=certificate_auth(folder), start="start" if by == "ours" else "none")
            charon = lab.charon(pki=folder, settings="signature_authentication = no")
            with charon as theirs, Daemon(lab, "client", text, top) as ours:
                initiate(by, ours, theirs)
                lab.ping()
                for side in ("ours", "theirs"):
                    contains(theirs.log(), f"authentication of '{side}.example.org'" + (
                        " (myself)" if side == "theirs" else "") + " with ECDSA-256 signature successful")


def run(suite):
    lab = Lab(suite)
    proofs_of_old(suite, lab)
    childless(suite, lab)
    retired(suite, lab)
    suites(suite, lab)
    padding(suite, lab)
    own_times(suite, lab)
