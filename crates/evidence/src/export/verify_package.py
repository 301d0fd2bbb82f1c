#!/usr/bin/env python3
"""Checks a custody package: python3 verify_package.py --trust FILE [--crl FILE]... FOLDER

Needs Python 3.8 and OpenSSL 3, no network. Use your own copy of this script and of the trust file, from
the authority itself: a forged package may hold a forged script. Exit code 0: valid, 1: not, 2: wrong usage.
The steps are those of docs/formats.md, "Custody package".
"""
import argparse
import base64
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

TOP = set("""README.md SHA256SUMS SHA256SUMS.sig package.json block.cordon manifest.p7s manifest.json receipt.p7s
receipt.json camera.pem centre.pem root.pem events.jsonl proofs.json epoch.json checkpoint log.pem
verify_package.py""".split())
SKEW = datetime.timedelta(minutes=5)
WORK = tempfile.TemporaryDirectory()


class Invalid(Exception):
    """The package is not valid."""


def need(condition, problem):
    if not condition:
        raise Invalid(problem)


def openssl(*arguments):
    done = subprocess.run(["openssl", *arguments], capture_output=True, stdin=subprocess.DEVNULL)
    return done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")


def scratch(name, data):
    path = os.path.join(WORK.name, name)
    with open(path, "wb") as out:
        out.write(data)
    return path


# DER


def items(data):
    """The elements in `data`: (tag, content, whole)."""
    found, at = [], 0
    while at < len(data):
        start, tag, length = at, data[at], data[at + 1]
        need(tag & 31 != 31, "DER: long tag")
        at += 2
        if length & 128:
            size = length & 127
            need(0 < size <= 4, "DER: length")
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        need(at + length <= len(data), "DER: too short")
        found.append((tag, data[at : at + length], data[start : at + length]))
        at += length
    return found


def oid(content):
    numbers, value = [], 0
    for byte in content:
        value = value << 7 | byte & 127
        if not byte & 128:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def moment(tag, content):
    """UTCTime or GeneralizedTime."""
    text = content.decode("ascii")
    if tag == 0x17:
        text = ("20" if int(text[:2]) < 50 else "19") + text
    return datetime.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=datetime.timezone.utc)


def extensions(content):
    found = {}
    for _, content, _ in items(items(content)[0][1]):
        parts = items(content)
        found[oid(parts[0][1])] = (len(parts) == 3, parts[-1][1])
    return found


class Certificate:
    def __init__(self, der):
        self.der = der
        parts = items(items(items(der)[0][1])[0][1])
        need(parts[0][0] == 0xA0, "certificate: not version 3")
        self.serial = int.from_bytes(parts[1][1], "big")
        self.issuer, self.subject = parts[3][2], parts[5][2]
        self.extensions = next((extensions(p[1]) for p in parts[7:] if p[0] == 0xA3), {})
        names = [items(a[1]) for rdn in items(parts[5][1]) for a in items(rdn[1])]
        names = [n[1][1].decode() for n in names if oid(n[0][1]) == "2.5.4.3"]
        self.name = names[-1] if names else ""

    def usage(self, bit):
        if "2.5.29.15" not in self.extensions:
            return False
        bits = items(self.extensions["2.5.29.15"][1])[0][1][1:]
        return bit // 8 < len(bits) and bool(bits[bit // 8] >> (7 - bit % 8) & 1)

    def purposes(self):
        value = self.extensions.get("2.5.29.37")
        return [oid(p[1]) for p in items(items(value[1])[0][1])] if value else []

    def issues(self, arc):
        value = self.extensions.get(arc + ".3")
        return items(value[1])[0][1].decode() if value else None

    def pem(self):
        text = base64.encodebytes(self.der).decode()
        return ("-----BEGIN CERTIFICATE-----\n%s-----END CERTIFICATE-----\n" % text).encode()


def pems(data, label):
    pattern = "-----BEGIN %s-----(.*?)-----END %s-----" % (label, label)
    return [base64.b64decode(t) for t in re.findall(pattern, data.decode("ascii"), re.S)]


class RevocationList:
    def __init__(self, der):
        self.der = der
        parts = items(items(items(der)[0][1])[0][1])
        self.issuer = parts[2][2]
        self.this_update, self.next_update = moment(*parts[3][:2]), moment(*parts[4][:2])
        self.revoked = {}
        for tag, content, _ in parts[5:]:
            if tag == 0x30:
                for _, entry, _ in items(content):
                    serial, date, *rest = items(entry)
                    reason = extensions(rest[0][2]).get("2.5.29.21") if rest else None
                    superseded = reason is not None and reason[1][-1:] == b"\x04"
                    self.revoked[int.from_bytes(serial[1], "big")] = moment(*date[:2]), superseded
            if tag == 0xA0:
                for name, (critical, _) in extensions(content).items():
                    need(not critical and name != "2.5.29.27", "revocation list: delta or partial")


# Steps


def read(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def sha256(data):
    return hashlib.sha256(data).digest()


def file_hash(path):
    value = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            value.update(piece)
    return value.hexdigest()


def check_files(folder):
    """Step 1: which files there are, and their hashes."""
    need(os.path.lexists(os.path.join(folder, "package.json")), "exported by an earlier version; export it again")
    names = set()
    for entry in os.scandir(folder):
        if entry.name in ("media", "crls") and entry.is_dir(follow_symlinks=False):
            for inner in os.scandir(entry.path):
                need(inner.is_file(follow_symlinks=False), "%s does not belong here" % inner.path)
                names.add("%s/%s" % (entry.name, inner.name))
        else:
            need(entry.is_file(follow_symlinks=False) and entry.name in TOP, "%s does not belong here" % entry.name)
            names.add(entry.name)
    listed = {}
    for line in read(folder, "SHA256SUMS").decode().rstrip("\n").split("\n"):
        hash_, name = line.split(" *", 1)
        need(name not in listed, "SHA256SUMS lists a file twice")
        listed[name] = hash_
    need(names - {"SHA256SUMS", "SHA256SUMS.sig"} == set(listed), "files and SHA256SUMS differ")
    for name, hash_ in listed.items():
        need(file_hash(os.path.join(folder, name)) == hash_, "%s does not have its hash" % name)
    return names


def ed25519(key, message, signature):
    der = bytes.fromhex("302a300506032b6570032100") + key
    pem = "-----BEGIN PUBLIC KEY-----\n%s-----END PUBLIC KEY-----\n" % base64.encodebytes(der).decode()
    return openssl("pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", scratch("key", pem.encode()),
                   "-in", scratch("message", message), "-sigfile", scratch("signature", signature))[0]


def root_of(leaf, index, size, proof):
    """RFC 9162 section 2.1.3.2."""
    if index >= size:
        return None
    node, last, value = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return None
        if node & 1 or node == last:
            value = sha256(b"\x01" + sibling + value)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            value = sha256(b"\x01" + value + sibling)
        node, last = node >> 1, last >> 1
    return None if last else value


def open_note(text, trust):
    """Size and root of a checkpoint that the pinned key signed."""
    origin, key = trust["log"]["origin"], bytes.fromhex(trust["log"]["public_key"])
    body, signatures = text.split("\n\n", 1)
    lines = body.split("\n")
    need(lines[0] == origin, "checkpoint of another log")
    key_id = sha256(origin.encode() + b"\n\x01" + key)[:4]
    marks = [l[len("\u2014 %s " % origin):] for l in signatures.split("\n") if l.startswith("\u2014 %s " % origin)]
    marks = [base64.b64decode(m, validate=True) for m in marks]
    marks = [m[4:] for m in marks if m[:4] == key_id]
    need(marks and ed25519(key, (body + "\n").encode(), marks[0]), "checkpoint is not signed by the pinned key")
    return int(lines[1]), base64.b64decode(lines[2], validate=True)


def check_receipt_note(receipt, trust, size, root):
    """Step 5: the receipt's own checkpoint has its event, and the package's log continues it."""
    need(receipt["schema"] == ("cordon.receipt/2" if "checkpoint" in receipt else "cordon.receipt/1"), "receipt")
    if "checkpoint" in receipt:
        own, seen = open_note(receipt["checkpoint"], trust)
        need(receipt["log_index"] < own <= size, "checkpoint of the receipt: the log went back")
        need(own != size or seen == root, "checkpoint of the receipt: the log was replaced")


def check_log(folder, trust):
    """Step 3: the checkpoint under the pinned key, and the events in its tree."""
    origin, key = trust["log"]["origin"], bytes.fromhex(trust["log"]["public_key"])
    need(len(key) == 32, "trust file: log.public_key")
    shown = pems(read(folder, "log.pem"), "PUBLIC KEY")
    need(shown == [bytes.fromhex("302a300506032b6570032100") + key], "log.pem is not the pinned key")
    size, root = open_note(read(folder, "checkpoint").decode(), trust)
    proofs = json.loads(read(folder, "proofs.json"))
    raw = read(folder, "events.jsonl")
    need(raw.endswith(b"\n"), "events.jsonl")
    lines = raw[:-1].split(b"\n")
    need(proofs["origin"] == origin and len(lines) == len(proofs["events"]), "proofs.json")
    events = []
    for line, proof in zip(lines, proofs["events"]):
        hashes = [bytes.fromhex(h) for h in proof["hashes"]]
        index = proof["index"]
        need(root_of(sha256(b"\x00" + line), index, size, hashes) == root, "event %d is not in the log" % index)
        need(not events or events[-1][0] < index, "indices do not ascend")
        events.append((index, json.loads(line)))
    need(events[0][0] == proofs["receipt_index"], "receipt_index")
    begun = None
    if os.path.lexists(os.path.join(folder, "epoch.json")):
        begun = json.loads(read(folder, "epoch.json"))
        hashes = [bytes.fromhex(h) for h in begun["hashes"]]
        found = root_of(sha256(b"\x00" + begun["entry"].encode()), begun["index"], size, hashes)
        need(found == root, "event %d is not in the log" % begun["index"])
        begun = begun["index"], json.loads(begun["entry"])
    return events, begun, size, root


def signing_time(der):
    signed = items(items(items(der)[0][1])[1][1])[0][1]
    signer = items(items(signed)[-1][1])
    need(len(signer) == 1, "CMS: not one signer")
    for tag, content, _ in items(signer[0][1]):
        if tag == 0xA0:
            for _, attribute, _ in items(content):
                name, values = items(attribute)
                if oid(name[1]) == "1.2.840.113549.1.9.5":
                    return moment(*items(values[1])[0][:2])
    raise Invalid("CMS: no signing time")


def epoch(at):
    return str(int(at.timestamp()))


def signed(folder, name):
    """Content, signer and signing time of NAME.p7s."""
    path, der = os.path.join(folder, name + ".p7s"), read(folder, name + ".p7s")
    at = signing_time(der)
    out, signer = os.path.join(WORK.name, name + ".json"), os.path.join(WORK.name, name + ".signer")
    bundle = scratch("bundle", read(folder, "camera.pem") + read(folder, "centre.pem"))
    good, text = openssl("cms", "-verify", "-cades", "-binary", "-inform", "DER", "-in", path, "-purpose", "any",
                         "-CAfile", os.path.join(folder, "root.pem"), "-no-CApath", "-no-CAstore",
                         "-certfile", bundle, "-attime", epoch(at), "-signer", signer, "-out", out)
    need(good, "signature of %s.p7s: %s" % (name, text))
    content = read(WORK.name, name + ".json")
    need(content == read(folder, name + ".json"), "%s.json is not what is signed" % name)
    signers = pems(read(WORK.name, name + ".signer"), "CERTIFICATE")
    need(len(signers) == 1, "%s.p7s: not one signer" % name)
    return json.loads(content), content, Certificate(signers[0]), at


def signs_receipts(leaf):
    """Not the role for trust bundles, by usage or, before there was one, by name."""
    return leaf.name != "Trust Bundle" and "1.3.6.1.4.1.99999.1.5.2" not in leaf.purposes()


def path(folder, leaf, kind, at, arc):
    """Step 7: leaf, issuing authority, root; the authority must issue for `kind`."""
    root = Certificate(pems(read(folder, "root.pem"), "CERTIFICATE")[0])
    found = pems(read(folder, "camera.pem") + read(folder, "centre.pem"), "CERTIFICATE")
    for authority in map(Certificate, found):
        if authority.subject != leaf.issuer or authority.issuer != root.subject or authority.issues(arc) != kind:
            continue
        good, _ = openssl("verify", "-purpose", "any", "-attime", epoch(at), "-no-CApath", "-no-CAstore",
                          "-CAfile", os.path.join(folder, "root.pem"),
                          "-untrusted", scratch("authority", authority.pem()), scratch("leaf", leaf.pem()))
        if good and authority.usage(5):
            break
    else:
        raise Invalid("certificate of %s was not issued by an authority for %s" % (leaf.name, kind))
    need(leaf.usage(0) or leaf.usage(1), "certificate of %s may not sign" % leaf.name)
    need("1.3.6.1.5.5.7.3.4" in leaf.purposes(), "certificate of %s is not for signing evidence" % leaf.name)
    return [leaf, authority, root]


def check_revocation(chain, role, used, signed_at, exported, lists, notes):
    """Step 8. A camera's certificate that was only superseded counts by when the camera signed."""
    until = None
    for subject, issuer in zip(chain, chain[1:]):
        good = []
        for list_, extra in lists:
            if list_.issuer != issuer.subject:
                continue
            text = openssl("crl", "-inform", "DER", "-in", scratch("crl", list_.der), "-noout", "-verify",
                           "-no-CApath", "-no-CAstore", "-CAfile", scratch("issuer", issuer.pem()))[1]
            if "verify OK" in text:
                good.append((list_, extra))
        force = [l for l, extra in good if not extra and l.this_update <= exported <= l.next_update]
        need(force, "no revocation list of %s in force at the export" % issuer.name)
        newest = max(l.this_update for l, _ in good)
        until = newest if until is None else min(until, newest)
        for date, superseded in (l.revoked[subject.serial] for l, _ in good if subject.serial in l.revoked):
            use = min(used, signed_at) if superseded and signed_at and subject is chain[0] else used
            if date <= use:
                raise Invalid("certificate of %s (%s) was revoked at %s, before its use at %s"
                              % (subject.name, role, date, use))
            note = "certificate of %s (%s) was revoked at %s, after its use" % (subject.name, role, date)
            if note not in notes:
                notes.append(note)
    return until


def time_of(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def check_custody(events, package, receipt):
    """Step 6: the events are of this violation, and none is left out."""
    violation = "v-" + receipt["block_sha256"][:16]
    need(package["violation"] == violation, "package.json: violation")
    index, leaf = events[0]
    event = leaf["event"]
    details = event.get("details", {})
    need(index == receipt["log_index"] == package["receipt_index"] and event["action"] == "evidence.receive"
         and event["outcome"] == "ok" and event["actor"]["kind"] == "device"
         and event["actor"]["id"] == receipt["device"] and event["resource"] == "block/" + receipt["block_sha256"]
         and details.get("manifest_sha256") == receipt["manifest_sha256"] and details.get("size") == receipt["size"]
         and details.get("sequence") == receipt["sequence"], "event %d is not the receipt's" % index)
    numbered = False
    for place, (index, leaf) in enumerate(events, 1):
        event = leaf["event"]
        details = event.get("details", {})
        need(leaf["role"] == "centre", "event %d is of another role" % index)
        need(place == 1 or event["resource"] == "violation/" + violation, "event %d is about something else" % index)
        if "custody_count" not in details:
            need(not numbered, "event %d has no number" % index)
            continue
        before = events[place - 2][0] if place > 1 else None
        need(details["custody_count"] == place and details.get("custody_previous") == before,
             "event %d does not follow the one before: an event is missing" % index)
        vouch = None
        if not numbered and place > 1:
            vouch = sha256(",".join(str(i) for i, _ in events[: place - 1]).encode()).hex()
        need(details.get("custody_earlier_sha256") == vouch, "event %d does not vouch for earlier events" % index)
        numbered = True
    need(numbered, "no event has a number")
    need(event["action"] == "evidence.export" and event["outcome"] in ("permit", "ok")
         and index == package["export_index"], "the newest event is not this export")
    return time_of(events[0][1]["event"]["at"]), time_of(event["at"])


def check_epoch(events, begun, receipt):
    """Step 6: two people began the epoch of the camera's chain, before the block came."""
    epoch = events[0][1]["event"].get("details", {}).get("epoch")
    need((epoch is None) == (begun is None), "epoch.json")
    if begun is None:
        return
    index, leaf = begun
    event = leaf["event"]
    details = event.get("details", {})
    need(index < events[0][0] and leaf["role"] == "centre" and event["action"] == "chain.begin-epoch"
         and event["outcome"] == "permit" and event["resource"] == "chain/" + receipt["device"]
         and details.get("epoch") == epoch and event["actor"]["kind"] == "user"
         and details.get("proposed_by") not in (None, event["actor"]["id"]), "event %d begins no epoch" % index)


def medium_name(number, name):
    return "media/%02d-%s" % (number, "".join(c if re.match("[A-Za-z0-9._-]", c) else "_" for c in name))


def check(folder, trust, extra):
    need(trust.get("schema") == "cordon.trust/1" and not trust["witnesses"], "trust file")
    names = check_files(folder)
    package = json.loads(read(folder, "package.json"))
    need(package["schema"] == "cordon.package/2", "package.json: schema")
    roots = pems(read(folder, "root.pem"), "CERTIFICATE")  # step 2
    need([sha256(r).hex() for r in roots] == [trust["root_sha256"]], "root.pem is not the pinned root")
    events, begun, size, root = check_log(folder, trust)
    manifest, manifest_bytes, camera, camera_at = signed(folder, "manifest")  # step 4
    receipt, _, signer, receipt_at = signed(folder, "receipt")  # step 5
    received = time_of(receipt["received_at"])
    check_receipt_note(receipt, trust, size, root)
    need(receipt["verdict"] == "accepted", "receipt")
    need(signs_receipts(signer), "the receipt's signer has another role")
    need(manifest["schema"] == "cordon.manifest/1", "manifest")
    need(receipt["manifest_sha256"] == sha256(manifest_bytes).hex(), "receipt is for another manifest")
    need((receipt["device"], receipt["sequence"]) == (manifest["device"], manifest["sequence"]), "receipt: device")
    need(camera_at <= received + SKEW, "the camera signed after the receipt")
    block = os.path.join(folder, "block.cordon")
    need((file_hash(block), os.path.getsize(block)) == (receipt["block_sha256"], receipt["size"]), "block.cordon")
    media = {medium_name(n, m["name"]): m for n, m in enumerate(manifest["media"], 1)}
    need({n for n in names if n.startswith("media/")} == set(media), "media and manifest differ")
    for name, medium in media.items():
        place = os.path.join(folder, name)
        need((file_hash(place), os.path.getsize(place)) == (medium["sha256"], medium["size"]), name)
    need(pems(read(folder, "camera.pem"), "CERTIFICATE")[0] == camera.der, "camera.pem")
    logged, exported = check_custody(events, package, receipt)
    check_epoch(events, begun, receipt)
    arc, notes = trust["extension_arc"], []
    maker = Certificate(pems(read(folder, "centre.pem"), "CERTIFICATE")[0])
    need(signs_receipts(maker), "the package's signer has another role")
    need(camera.name == manifest["device"], "the camera's certificate is of %s" % camera.name)
    public = scratch("maker", maker.pem())
    key = openssl("x509", "-in", public, "-noout", "-pubkey")[1]
    kind = openssl("x509", "-in", public, "-noout", "-text")[1]
    digest = [] if "ED25519" in kind else ["-digest", "sha384" if "secp384r1" in kind else "sha256"]
    need(openssl("pkeyutl", "-verify", "-rawin", *digest, "-pubin", "-inkey", scratch("maker.pub", key.encode()),
                 "-in", os.path.join(folder, "SHA256SUMS"),
                 "-sigfile", os.path.join(folder, "SHA256SUMS.sig"))[0], "signature of SHA256SUMS")
    lists = [(RevocationList(der), False) for n in sorted(names) if n.startswith("crls/")
             for der in pems(read(folder, n), "X509 CRL")]
    lists += [(RevocationList(der), True) for der in extra]
    known = []
    for leaf, issuer, at, used, role in (
        (camera, "devices", camera_at, received, "camera"),
        (signer, "services", receipt_at, max(received, logged), "receipt"),
        (maker, "services", exported, exported, "package"),
    ):
        chain = path(folder, leaf, issuer, at, arc)
        signed_at = camera_at if role == "camera" else None
        known.append(check_revocation(chain, role, used, signed_at, exported, lists, notes))
    print("VALID: %s of %s, number %d, received %s, %d custody events up to the export at %s (log size %d)"
          % (package["violation"], manifest["device"], manifest["sequence"], received, len(events), exported, size))
    print("revocations are known until %s; bring newer lists with --crl" % min(known))
    for note in notes:
        print("note: " + note)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trust", required=True, help="your own trust file")
    parser.add_argument("--crl", action="append", default=[], help="a newer revocation list, PEM or DER")
    parser.add_argument("folder")
    options = parser.parse_args()
    try:
        extra = []
        for name in options.crl:
            data = read(".", name)
            extra += pems(data, "X509 CRL") if b"-----BEGIN" in data else [data]
        check(options.folder, json.loads(read(".", options.trust)), extra)
    except Invalid as problem:
        sys.exit("INVALID: %s" % problem)
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as problem:
        sys.exit("INVALID: malformed: %r" % problem)


if __name__ == "__main__":
    main()
