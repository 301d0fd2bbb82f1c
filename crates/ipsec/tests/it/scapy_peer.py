"""The other side of the data plane's tests: scapy's ESP and AH.

Reads cases as JSON from standard input. For each it opens the packet, protects the same inner packet
with the same sequence number and initialisation vector, and once more with the next number and a
random vector. Writes what came out as JSON.
"""

import json
import sys

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import AH, ESP, SecurityAssociation
from scapy.packet import raw


def association(case):
    ends = {"src": case["source"], "dst": case["destination"]}
    # AH covers the identification.
    tunnel = IPv6(**ends) if case["v6"] else IP(**ends, id=case["lower"])
    return SecurityAssociation(
        ESP if case["protocol"] == "esp" else AH,
        spi=case["spi"],
        crypt_algo=case["encryption"],
        crypt_key=bytes.fromhex(case["encryption_key"]) or None,
        crypt_icv_size=case["encryption_icv"] or None,
        auth_algo=case["integrity"],
        auth_key=bytes.fromhex(case["integrity_key"]) or None,
        tunnel_header=tunnel if case["tunnel"] else None,
        nat_t_header=UDP(sport=4500, dport=4500) if case["udp"] else None,
        esn_en=case["esn"],
        esn=case["upper"],
    )


def answer(case):
    sa = association(case)
    outer_class = IPv6 if case["v6"] else IP
    inner = bytes.fromhex(case["inner"])
    inner_class = IPv6 if inner[0] >> 4 == 6 else IP
    outer = outer_class(bytes.fromhex(case["outer"]))
    iv = bytes.fromhex(case["iv"])
    opened = raw(sa.decrypt(outer))
    with_iv = {"iv": iv} if iv else {}
    equal = raw(sa.encrypt(inner_class(inner), seq_num=case["lower"], **with_iv))
    fresh = raw(sa.encrypt(inner_class(inner), seq_num=case["lower"] + 1))
    return {"opened": opened.hex(), "equal": equal.hex(), "fresh": fresh.hex()}


json.dump([answer(case) for case in json.load(sys.stdin)], sys.stdout)
