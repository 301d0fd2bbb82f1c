"""`cordon vpn up` against libreswan and OpenIKED, which have Linux's IPsec.

    CORDON_GUEST=DIR python3 tests/kernel/machine.py FOLDER /usr/bin/python3 tests/kernel/peers.py target/debug/cordon [WORD...]

DIR is made by `scripts/ipsec-guest DIR`. With words, only the cases whose names have one of them.
"""

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from daemons import (
    LINUX, OURS, Daemon, Iked, Libreswan, address_on_loopback, authority, carries, nothing_is_left, run_cases,
    stopped, with_certificate,
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


def esp(text):
    return f"esp = [{{ {text} }}]"


def libreswan(algorithm, by, carrier, folder, kind=None):
    """Up, packets, new keys by either side, closed by the one that did not start."""
    ike, child, our_ike, our_esp = LIBRESWAN[algorithm]
    auth = {"rsa": "rsa-sha2", "ecdsa": "ecdsa", None: "secret"}[kind]
    pki = authority(folder, kind) if kind else None
    options = with_certificate(pki) if kind else {}
    theirs = Libreswan(folder, ike, child, auth, pki, "auto" if carrier == "udp" else "no")
    with address_on_loopback(), theirs:
        ours = Daemon(OURS, folder, encapsulation=carrier, ike=our_ike, esp=esp(our_esp), starts=by == OURS, **options)
        with ours:
            life_of_a_tunnel(ours, theirs, by, carrier)
    nothing_is_left(OURS)


def life_of_a_tunnel(ours, theirs, by, carrier):
    if by == LINUX:
        theirs.initiate()
    child = ours.up()
    assert child["in_udp"] == (carrier == "udp"), child
    carries()
    for what in ("child", "ike", "child"):
        before = ours.counters()[f"{what}_rekeys"]
        theirs.rekey(what)
        wait_for(lambda: f"new keys: {theirs.log()[-2000:]}", lambda: ours.counters()[f"{what}_rekeys"] > before)
        wait_for("one child", lambda: len(ours.children()) == 1)
        carries()
    table = output(LINUX, "ip", "-s", "xfrm", "state")
    assert ("espinudp" in table) == (carrier == "udp"), table
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
    ike, our_ike, our_esp = IKED[algorithm]
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
    cases.append(("libreswan, keys replaced by us", libreswan_and_our_lifetimes))
    cases.append(("libreswan, silence", libreswan_and_silence))
    for algorithm in IKED:
        for by, carrier in [(OURS, "native"), (LINUX, "udp")]:
            cases.append((f"OpenIKED, secret, {algorithm}, {carrier}, started by {by}",
                          partial(iked, algorithm, by, carrier)))
    for kind in ["rsa", "ecdsa"]:
        for by, carrier in [(OURS, "udp"), (LINUX, "native")]:
            cases.append((f"OpenIKED, {kind} certificates, {carrier}, started by {by}",
                          partial(iked, next(iter(IKED)), by, carrier, kind=kind)))
    cases.append(("OpenIKED, keys replaced by us", iked_and_our_lifetimes))
    cases.append(("OpenIKED, silence", iked_and_silence))
    return run_cases(cases)


if __name__ == "__main__":
    sys.exit(main())
