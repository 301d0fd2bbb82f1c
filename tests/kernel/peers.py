"""`cordon vpn up` against libreswan and OpenIKED, which have Linux's IPsec.

    CORDON_GUEST=DIR python3 tests/kernel/machine.py FOLDER /usr/bin/python3 tests/kernel/peers.py target/debug/cordon [WORD...]

DIR is made by `scripts/ipsec-guest DIR`. With words, only the cases whose names have one of them.
"""

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from authority import authority
from daemons import (
    LINUX, NAMES, OURS, OUTSIDE, OUTSIDE_V6, Daemon, Iked, Libreswan, address_on_loopback, carries, nothing_is_left,
    run_cases, stopped, with_certificate,
)
from vpn import network, output, wait_for

# Theirs and ours, for the IKE SA and the Child SA.
LIBRESWAN = {
    "AES-GCM": (
        "aes_gcm128-sha2_256-dh31", "aes_gcm128-null",
        'encryption = ["aes-128-gcm"], prf = ["hmac-sha2-256"], groups = ["x25519"]',
        'encryption = ["aes-128-gcm"], groups = ["x25519"]',
    ),
    "AES-CBC with SHA-2": (
        "aes256-sha2_256-dh19", "aes256-sha2_256",
        'encryption = ["aes-256-cbc"], integrity = ["hmac-sha2-256-128"], prf = ["hmac-sha2-256"], groups = ["p256"]',
        'encryption = ["aes-256-cbc"], integrity = ["hmac-sha2-256-128"], groups = ["p256"]',
    ),
    "ChaCha20-Poly1305": (
        "chacha20_poly1305-sha2_512-dh14", "chacha20_poly1305-null",
        'encryption = ["chacha20-poly1305"], prf = ["hmac-sha2-512"], groups = ["modp2048"]',
        'encryption = ["chacha20-poly1305"], groups = ["modp2048"]',
    ),
}
# The rest of what RFC 8221 and RFC 8247 speak of, as libreswan has it; the cipher of IKE is the same where that has it. Where it is AES-CCM,
# libreswan 5.2 tells Linux neither of UDP nor of 64-bit sequence numbers.
MORE_OF_LIBRESWAN = {
    "AES-CBC with 128 bits and SHA-512": (
        "aes128-sha2_512-dh14", "aes128-sha2_512",
        'encryption = ["aes-128-cbc"], integrity = ["hmac-sha2-512-256"], prf = ["hmac-sha2-512"], groups = ["modp2048"]',
        'encryption = ["aes-128-cbc"], integrity = ["hmac-sha2-512-256"], groups = ["modp2048"]',
    ),
    "AES-CBC with SHA-1": (
        "aes256-sha1-dh14", "aes256-sha1",
        'encryption = ["aes-256-cbc"], integrity = ["hmac-sha1-96"], prf = ["hmac-sha1"], groups = ["modp2048"]',
        'encryption = ["aes-256-cbc"], integrity = ["hmac-sha1-96"], groups = ["modp2048"]',
    ),
    "AES-CTR": (
        "aes_ctr256-sha2_256-dh19", "aes_ctr256-sha2_256",
        'encryption = ["aes-256-ctr"], integrity = ["hmac-sha2-256-128"], prf = ["hmac-sha2-256"], groups = ["p256"]',
        'encryption = ["aes-256-ctr"], integrity = ["hmac-sha2-256-128"], groups = ["p256"]',
    ),
    "AES-GCM with 256 bits, AES-CCM": (
        "aes_gcm256-sha2_384-dh20", "aes_ccm_c256-null",
        'encryption = ["aes-256-gcm"], prf = ["hmac-sha2-384"], groups = ["p384"]',
        'encryption = ["aes-256-ccm"], groups = ["p384"], extended_sequence = false',
    ),
    "AES-CCM-8": (
        "aes_gcm128-sha2_256-dh31", "aes_ccm_a128-null",
        'encryption = ["aes-128-gcm"], prf = ["hmac-sha2-256"], groups = ["x25519"]',
        'encryption = ["aes-128-ccm-8"], groups = ["x25519"], extended_sequence = false',
    ),
    "AES-XCBC for all": (
        "aes128-aes_xcbc-dh31", "aes128-aes_xcbc",
        'encryption = ["aes-128-cbc"], integrity = ["aes-xcbc-96"], prf = ["aes-128-xcbc"], groups = ["x25519"]',
        'encryption = ["aes-128-cbc"], integrity = ["aes-xcbc-96"], groups = ["x25519"]',
    ),
    "NULL with SHA-2": (
        "aes_gcm128-sha2_256-dh31", "null-sha2_256",
        'encryption = ["aes-128-gcm"], prf = ["hmac-sha2-256"], groups = ["x25519"]',
        'encryption = ["null"], integrity = ["hmac-sha2-256-128"], groups = ["x25519"]',
    ),
}
# Title, whether there are certificates, identities as we write them, as libreswan and as OpenIKED do, and whom we want.
MAILS = {OURS: "ours@example.org", LINUX: "theirs@example.org"}
ADDRESSES = OUTSIDE
SUBJECTS = {side: f"CN={name}" for side, name in NAMES.items()}
SLASHED = {side: f"/CN={name}" for side, name in NAMES.items()}
KEY_IDS = {OURS: "station-7", LINUX: "headquarters"}
IDENTITIES = [
    ("mail addresses", False, MAILS, MAILS, MAILS, None),
    ("mail addresses", True, MAILS, MAILS, MAILS, None),
    ("addresses", False, ADDRESSES, ADDRESSES, ADDRESSES, None),
    ("distinguished names", True, SUBJECTS, SUBJECTS, SLASHED, None),
    ("distinguished names", False, SUBJECTS, SUBJECTS, None, None),
    ("a pattern of distinguished names", True, SUBJECTS, SUBJECTS, SLASHED, "CN=*"),
    ("a pattern of hosts", True, NAMES, None, NAMES, "*.example.org"),
    ("key IDs", False, {side: f"keyid:{text}" for side, text in KEY_IDS.items()},
     {side: f"@[{text}]" for side, text in KEY_IDS.items()}, None, None),
]
# Its Child SAs have what it proposes by itself: a `childsa` of ours with AES-GCM it answers with NO_PROPOSAL_CHOSEN,
# whatever is proposed (openiked-portable issue 126), and SHA-256 is cut to 96 bits by the interface that it uses.
IKED = {
    "AES-GCM, AES-CBC with SHA-512": (
        "enc aes-128-gcm prf hmac-sha2-256 group curve25519",
        'encryption = ["aes-128-gcm"], prf = ["hmac-sha2-256"], groups = ["x25519"]',
        'encryption = ["aes-256-cbc"], integrity = ["hmac-sha2-512-256"], groups = ["x25519"]',
    ),
    "AES-CBC with SHA-256, AES-CBC with SHA-384": (
        "enc aes-256 auth hmac-sha2-256 prf hmac-sha2-256 group ecp256",
        'encryption = ["aes-256-cbc"], integrity = ["hmac-sha2-256-128"], prf = ["hmac-sha2-256"], groups = ["p256"]',
        'encryption = ["aes-128-cbc"], integrity = ["hmac-sha2-384-192"], groups = ["p256"]',
    ),
}

# The rest of what it has for IKE, and of what it proposes for ESP.
MORE_OF_IKED = {
    "AES-GCM with 256 bits, AES-CBC with SHA-1": (
        "enc aes-256-gcm prf hmac-sha2-384 group ecp384",
        'encryption = ["aes-256-gcm"], prf = ["hmac-sha2-384"], groups = ["p384"]',
        'encryption = ["aes-256-cbc"], integrity = ["hmac-sha1-96"], groups = ["p384"]',
    ),
    "AES-CBC with SHA-512, AES-CBC with 192 bits": (
        "enc aes-128 auth hmac-sha2-512 prf hmac-sha2-512 group modp2048",
        'encryption = ["aes-128-cbc"], integrity = ["hmac-sha2-512-256"], prf = ["hmac-sha2-512"], groups = ["modp2048"]',
        'encryption = ["aes-192-cbc"], integrity = ["hmac-sha2-512-256"], groups = ["modp2048"]',
    ),
    "AES-CBC with SHA-1 for all": (
        "enc aes-256 auth hmac-sha1 prf hmac-sha1 group modp4096",
        'encryption = ["aes-256-cbc"], integrity = ["hmac-sha1-96"], prf = ["hmac-sha1"], groups = ["modp4096"]',
        'encryption = ["aes-128-cbc"], integrity = ["hmac-sha1-96"], groups = ["modp4096"]',
    ),
}

# Of what OpenIKED proposes and takes where its file names nothing.
IKED_DEFAULT = (
    'encryption = ["aes-256-cbc"], integrity = ["hmac-sha2-256-128"], prf = ["hmac-sha2-256"], groups = ["x25519"]',
    'encryption = ["aes-256-cbc"], integrity = ["hmac-sha2-512-256"], groups = ["x25519"]',
)


def esp(text):
    return f"esp = [{{ {text} }}]"


def libreswan(algorithm, by, carrier, folder, kind=None):
    """Up, packets, new keys by either side, closed by the one that did not start."""
    ike, child, our_ike, our_esp = (LIBRESWAN | MORE_OF_LIBRESWAN)[algorithm]
    auth = {"rsa": "rsa-sha2", "ecdsa": "ecdsa", None: "secret"}[kind]
    pki = authority(folder, kind) if kind else None
    options = with_certificate(pki) if kind else {}
    theirs = Libreswan(folder, ike, child, auth, pki, "auto" if carrier == "udp" else "no")
    with address_on_loopback(), theirs:
        ours = Daemon(OURS, folder, encapsulation=carrier, ike=our_ike, esp=esp(our_esp), starts=by == OURS, **options)
        with ours:
            life_of_a_tunnel(ours, theirs, by, carrier)
    nothing_is_left(OURS)


def libreswan_over_ipv6(by, carrier, folder):
    """IPv6 outside and nothing else, IPv4 inside. OpenIKED's interface to Linux (PF_KEY) has no associations for that:
    packets come to XfrmInStateMismatch."""
    ike, child, our_ike, our_esp = LIBRESWAN["AES-GCM"]
    theirs = Libreswan(folder, ike, child, encapsulation="yes" if carrier == "udp" else "no", outside=OUTSIDE_V6)
    ours = Daemon(OURS, folder, "tunnel", carrier, esp(our_esp), by == OURS, our_ike, outside=OUTSIDE_V6)
    with address_on_loopback(), theirs, ours:
        life_of_a_tunnel(ours, theirs, by, carrier)
    nothing_is_left(OURS)


def libreswan_over_tcp(by, folder):
    """IKE and ESP over TCP, where UDP does not pass; its ESP comes out of TCP by the kernel (ESPINTCP)."""
    ike, child, our_ike, our_esp = LIBRESWAN["AES-GCM"]
    ours_to_them = {"extra": 'transport = "tcp"'} if by == OURS else {"path": "tcp_port = 4500"}
    theirs_to_us = {"setup": "listen-tcp=yes"} if by == OURS else {"extra": "enable-tcp=yes\n    tcp-remoteport=4500"}
    theirs = Libreswan(folder, ike, child, **theirs_to_us)
    rules = "table inet noudp { chain in { type filter hook input priority 0; udp dport { 500, 4500 } drop; }; }"
    output(LINUX, "nft", rules)
    try:
        with address_on_loopback(), theirs:
            ours = Daemon(OURS, folder, ike=our_ike, esp=esp(our_esp), starts=by == OURS, **ours_to_them)
            with ours:
                life_of_a_tunnel(ours, theirs, by, "tcp")
    finally:
        output(LINUX, "nft", "delete", "table", "inet", "noudp")
    nothing_is_left(OURS)


def identities_with(peer, row, by, folder):
    """Up with these identities, and packets."""
    _, certificates, ours_are, for_libreswan, for_iked, wanted = row
    kind = "rsa" if peer == "libreswan" else "ecdsa"
    pki = authority(folder, kind) if certificates else None
    options = with_certificate(pki) if certificates else {}
    if peer == "libreswan":
        ike, child, our_ike, our_esp = LIBRESWAN["AES-GCM"]
        auth = "rsa-sha2" if certificates else "secret"
        theirs = Libreswan(folder, ike, child, auth, pki, ids=for_libreswan)
    else:
        ike, our_ike, our_esp = next(iter(IKED.values()))
        theirs = Iked(folder, ike, "rfc7427" if certificates else None, pki, active=by == LINUX, ids=for_iked)
    ours = Daemon(OURS, folder, ike=our_ike, esp=esp(our_esp), starts=by == OURS, ids=ours_are, **options)
    if wanted:
        text = ours.file.read_text()
        ours.file.write_text(text.replace(f'remote_id = "{ours_are[LINUX]}"', f'remote_id = "{wanted}"'))
    with address_on_loopback(), theirs, ours:
        if by == LINUX and peer == "libreswan":
            theirs.initiate()
        ours.up()
        carries()
    nothing_is_left(OURS)


def one_way_secret(proved, folder):
    """The secret is the proof of one side, a certificate that of the other."""
    ike, child, our_ike, our_esp = LIBRESWAN["AES-GCM"]
    pki = authority(folder, "rsa")
    secret = f'psk_file = "psk"\npsk_proves = "{"us" if proved == OURS else "peer"}"'
    options = with_certificate(pki)
    options["auth"] = secret if proved == OURS else f"{options['auth']}\n{secret}"
    auth = {OURS: "leftauth=rsasig\n    rightauth=secret", LINUX: "leftauth=secret\n    rightauth=rsasig"}[proved]
    theirs = Libreswan(folder, ike, child, auth, pki)
    ours = Daemon(OURS, folder, ike=our_ike, esp=esp(our_esp), starts=True, **options)
    with address_on_loopback(), theirs, ours:
        ours.up()
        carries()


def large_messages(size, by, folder):
    """RSA-4096 with three levels and OpenIKED as it is by itself: no fragments of IKE, its own proposals."""
    pki = authority(folder, "rsa4096", levels=3)
    options = with_certificate(pki)
    for side in (OURS, LINUX):
        output(side, "ip", "link", "set", "cable", "mtu", size)
    try:
        # Nothing is said of algorithms and proofs.
        theirs = Iked(folder, None, " ", pki, active=by == LINUX)
        ours = Daemon(OURS, folder, esp=esp(IKED_DEFAULT[1]), ike=IKED_DEFAULT[0], starts=by == OURS, **options)
        with address_on_loopback(), theirs, ours:
            ours.up()
            carries()
            if size < 1500 or by == OURS:
                assert ours.counters()["in_fragments"] >= 1, ours.counters()
    finally:
        for side in (OURS, LINUX):
            output(side, "ip", "link", "set", "cable", "mtu", 1500)
    nothing_is_left(OURS)


def life_of_a_tunnel(ours, theirs, by, carrier):
    if by == LINUX:
        theirs.initiate()
    child = ours.up()
    assert child["in_udp"] == (carrier != "native"), child
    carries()
    for what in ("child", "ike", "child"):
        before = ours.counters()[f"{what}_rekeys"]
        theirs.rekey(what)
        wait_for(lambda: f"new keys: {theirs.log()[-2000:]}", lambda: ours.counters()[f"{what}_rekeys"] > before)
        wait_for("one child", lambda: len(ours.children()) == 1)
        carries()
    table = output(LINUX, "ip", "-s", "xfrm", "state")
    assert [word in table for word in ("espinudp", "espintcp")] == [carrier == "udp", carrier == "tcp"], table
    assert [sa["transport"] for sa in ours.status()["ike"]["sas"]] == ["tcp" if carrier == "tcp" else "udp"]
    closed_by_either(ours, theirs, by)


def closed_by_either(ours, theirs, by):
    """The peer closes it; where we start it, it comes again and we close it."""
    theirs.close()
    ours.says("IKE SA down", "closed by the peer")
    if by == OURS:
        # It was to be up, so it comes again.
        ours.up()
        carries()
        assert ours.tell("down", "peer").returncode == 0
        wait_for(lambda: f"no SA: {theirs.log()[-2000:]}", theirs.is_down)


def libreswan_and_our_lifetimes(folder):
    """We start the exchanges that replace keys, every few seconds."""
    ike, child, our_ike, our_esp = LIBRESWAN["AES-GCM"]
    ours = Daemon(OURS, folder, "tunnel", "native", esp(our_esp), True, our_ike, extra="lifetime = 13", child="lifetime = 5")
    with address_on_loopback(), Libreswan(folder, ike, child, encapsulation="no"), ours:
        many_keys(ours)


def many_keys(ours):
    ours.up()
    for _ in range(4):
        before = ours.counters()["child_rekeys"]
        carries()
        wait_for("new keys", lambda: ours.counters()["child_rekeys"] > before, 30)
    wait_for("a new IKE SA", lambda: ours.counters()["ike_rekeys"] >= 1, 30)
    carries()
    counters = ours.counters()
    assert counters["established"] == 1, counters


def silence(ours, theirs, patience):
    """Either side finds out that the other is gone, and the tunnel comes again."""
    ours.up()
    carries()
    count = lambda what: ours.log().count(f"IKE SA {what} ")
    stopped(theirs.program, lambda: wait_for("our finding out", lambda: count("down") == 1, 200))
    wait_for("a new beginning", lambda: count("up") == 2, 200)
    ours.up()
    carries()
    stopped(ours.program, lambda: wait_for(lambda: f"no SA: {theirs.log()[-2000:]}", theirs.is_down, patience))
    # That it has forgotten us is found out in the same way.
    wait_for("another end", lambda: count("down") == 2, 200)
    wait_for("another beginning", lambda: count("up") == 3, 200)
    ours.up()
    carries()


def libreswan_and_silence(folder):
    ike, child, our_ike, our_esp = LIBRESWAN["AES-GCM"]
    theirs = Libreswan(folder, ike, child, encapsulation="no", extra="dpddelay=2\n    retransmit-timeout=8s")
    ours = Daemon(OURS, folder, "tunnel", "native", esp(our_esp), True, our_ike, extra="liveness = 2")
    with address_on_loopback(), theirs, ours:
        silence(ours, theirs, 120)


def iked(algorithm, by, carrier, folder, kind=None):
    ike, our_ike, our_esp = (IKED | MORE_OF_IKED)[algorithm]
    pki = authority(folder, kind) if kind else None
    options = with_certificate(pki) if kind else {}
    auth = {"rsa": "rfc7427", "ecdsa": "rfc7427", None: None}[kind]
    # It has no command that replaces keys: its Child SAs live for some seconds here.
    theirs = Iked(folder, ike, auth, pki, active=by == LINUX, extra="lifetime 8")
    ours = Daemon(OURS, folder, "tunnel", carrier, esp(our_esp), by == OURS, our_ike, **options)
    with address_on_loopback(), theirs, ours:
        child = ours.up()
        assert child["in_udp"] == (carrier == "udp"), child
        carries()
        wait_for(lambda: f"new keys: {theirs.log()[-2000:]}", lambda: ours.counters()["child_rekeys"] > 1)
        carries()
        closed_by_either(ours, theirs, by)
    nothing_is_left(OURS)


def iked_and_our_lifetimes(folder):
    ike, our_ike, our_esp = next(iter(IKED.values()))
    ours = Daemon(OURS, folder, "tunnel", "native", esp(our_esp), True, our_ike, extra="lifetime = 13", child="lifetime = 5")
    with address_on_loopback(), Iked(folder, ike), ours:
        many_keys(ours)


def iked_and_silence(folder):
    ike, our_ike, our_esp = next(iter(IKED.values()))
    ours = Daemon(OURS, folder, "tunnel", "native", esp(our_esp), True, our_ike, extra="liveness = 2")
    with address_on_loopback(), Iked(folder, ike) as theirs, ours:
        # Linux's PF_KEY does not tell it that nothing comes: it asks after five minutes without a message of IKE, and
        # takes two more to give up.
        silence(ours, theirs, 600)


def main():
    network()
    cases = []
    for algorithm in LIBRESWAN:
        for by, carrier in [(OURS, "native"), (LINUX, "udp")]:
            cases.append((f"libreswan, secret, {algorithm}, {carrier}, started by {by}",
                          partial(libreswan, algorithm, by, carrier)))
    for kind in ["rsa", "ecdsa"]:
        for by, carrier in [(OURS, "udp"), (LINUX, "native")]:
            cases.append((f"libreswan, {kind} certificates, {carrier}, started by {by}",
                          partial(libreswan, "AES-GCM", by, carrier, kind=kind)))
    for algorithm in MORE_OF_LIBRESWAN:
        carrier = "native" if "CCM" in algorithm else "udp"
        cases.append((f"libreswan, secret, {algorithm}, {carrier}, started by {OURS}",
                      partial(libreswan, algorithm, OURS, carrier)))
    for by in (OURS, LINUX):
        cases.append((f"libreswan, over TCP, started by {by}", partial(libreswan_over_tcp, by)))
    for by, carrier in [(OURS, "udp"), (LINUX, "native")]:
        cases.append((f"libreswan, over IPv6, {carrier}, started by {by}", partial(libreswan_over_ipv6, by, carrier)))
    for row in IDENTITIES:
        proof = "certificates" if row[1] else "a secret"
        for peer, theirs in (("libreswan", row[3]), ("OpenIKED", row[4])):
            for by in (OURS, LINUX) if theirs else ():
                cases.append((f"{peer}, identities: {row[0]} with {proof}, started by {by}",
                              partial(identities_with, peer, row, by)))
    for proved in (OURS, LINUX):
        cases.append((f"libreswan, identities: a secret proves {proved}, a certificate the other",
                      partial(one_way_secret, proved)))
    for size in (1500, 1280):
        for by in (OURS, LINUX):
            cases.append((f"OpenIKED as it is by itself, RSA-4096 with three levels, {size} bytes, started by {by}",
                          partial(large_messages, size, by)))
    cases.append(("libreswan, keys replaced by us", libreswan_and_our_lifetimes))
    cases.append(("libreswan, silence", libreswan_and_silence))
    for algorithm in IKED:
        for by, carrier in [(OURS, "native"), (LINUX, "udp")]:
            cases.append((f"OpenIKED, secret, {algorithm}, {carrier}, started by {by}",
                          partial(iked, algorithm, by, carrier)))
    for algorithm in MORE_OF_IKED:
        cases.append((f"OpenIKED, secret, {algorithm}, udp, started by {OURS}", partial(iked, algorithm, OURS, "udp")))
    for kind in ["rsa", "ecdsa"]:
        for by, carrier in [(OURS, "udp"), (LINUX, "native")]:
            cases.append((f"OpenIKED, {kind} certificates, {carrier}, started by {by}",
                          partial(iked, next(iter(IKED)), by, carrier, kind=kind)))
    cases.append(("OpenIKED, keys replaced by us", iked_and_our_lifetimes))
    cases.append(("OpenIKED, silence", iked_and_silence))
    return run_cases(cases)


if __name__ == "__main__":
    sys.exit(main())
