#!/usr/bin/env python3
"""Checks that every line of events.jsonl is in the log state of `checkpoint` (RFC 6962).

Run it in the package's folder. The checkpoint's signature is checked with openssl, see README.md.
"""
import base64
import hashlib
import json
import sys


def sha256(data):
    return hashlib.sha256(data).digest()


def root_from_proof(leaf, index, size, proof):
    """RFC 9162 section 2.1.3.2."""
    if index >= size:
        sys.exit("FAILED: index outside the tree")
    node, last, hash_ = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            sys.exit("FAILED: proof too long")
        if node & 1 or node == last:
            hash_ = sha256(b"\x01" + sibling + hash_)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            hash_ = sha256(b"\x01" + hash_ + sibling)
        node, last = node >> 1, last >> 1
    if last:
        sys.exit("FAILED: proof too short")
    return hash_


checkpoint = open("checkpoint", encoding="utf-8").read().split("\n")
origin, size, root = checkpoint[0], int(checkpoint[1]), base64.b64decode(checkpoint[2], validate=True)
proofs = json.load(open("proofs.json", encoding="utf-8"))
receipt = json.load(open("receipt.json", encoding="utf-8"))
lines = open("events.jsonl", "rb").read().split(b"\n")[:-1]
if not origin == proofs["origin"] == receipt["log_origin"]:
    sys.exit("FAILED: another log")
if len(lines) != len(proofs["events"]):
    sys.exit("FAILED: number of events and of proofs differ")
found = set()
for line, proof in zip(lines, proofs["events"]):
    hashes = [bytes.fromhex(h) for h in proof["hashes"]]
    if root_from_proof(sha256(b"\x00" + line), proof["index"], size, hashes) != root:
        sys.exit("FAILED: event %d is not in the log" % proof["index"])
    if receipt["block_sha256"].encode() in line:
        found.add(proof["index"])
if receipt["log_index"] not in found:
    sys.exit("FAILED: the receipt's event does not name this block")
print("OK: %d events are in the log of %s at size %d" % (len(lines), origin, size))
