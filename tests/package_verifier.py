"""A verifier of custody packages, written from docs/formats.md alone, over the library `cryptography`.

It shares no code with the product and none with its script, so that a mistake in either shows.
"""

import base64
import datetime
import hashlib
import json
import re
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

UTC = datetime.timezone.utc
FIXED = {
    "package.json", "manifest.p7s", "receipt.p7s", "manifest.json", "receipt.json", "block.cordon", "camera.pem",
    "centre.pem", "root.pem", "events.jsonl", "proofs.json", "checkpoint", "log.pem", "README.md",
    "verify_package.py", "SHA256SUMS", "SHA256SUMS.sig", "epoch.json",
}


# Extended key usages of the services' roles.
RECEIPTS, BUNDLES = "1.3.6.1.4.1.99999.1.5.1", "1.3.6.1.4.1.99999.1.5.2"

class Refused(Exception):
    """Step and reason."""


def must(holds, step, reason):
    if not holds:
        raise Refused(f"step {step}: {reason}")


def digest(data):
    return hashlib.sha256(data).hexdigest()


def when(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def strict_json(data, step):
    """Canonical JSON for the ASCII keys of these formats: sorted keys, no blanks."""
    value = json.loads(data)
    again = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    must(again.encode() == data, step, "not canonical")
    return value


# DER: only what SignedData needs.


def element(data, at):
    tag, length, at = data[at], data[at + 1], at + 2
    if length >= 0x80:
        count = length - 0x80
        length, at = int.from_bytes(data[at : at + count], "big"), at + count
    if at + length > len(data):
        raise Refused("DER ends too early")
    return tag, at, at + length


def split(data):
    at, parts = 0, []
    while at < len(data):
        tag, start, end = element(data, at)
        parts.append((tag, data[start:end], data[at:end]))
        at = end
    return parts


OIDS = {
    "signed_data": "2a864886f70d010702", "data": "2a864886f70d010701", "content_type": "2a864886f70d010903",
    "message_digest": "2a864886f70d010904", "signing_time": "2a864886f70d010905",
    "certificate_v2": "2a864886f70d010910022f",
}
DIGESTS = {"608648016503040201": hashes.SHA256, "608648016503040202": hashes.SHA384, "608648016503040203": hashes.SHA512}


def verify_raw(key, signature, message, algorithm=None):
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, message)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            natural = hashes.SHA384() if key.curve.key_size == 384 else hashes.SHA256()
            key.verify(signature, message, ec.ECDSA(algorithm or natural))
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, message, padding.PKCS1v15(), algorithm or hashes.SHA256())
        else:
            return False
        return True
    except InvalidSignature:
        return False


def signed_message(der, step):
    """Content, signer's certificate, signing time."""
    parts = split(split(der)[0][1])
    must(parts[0][1].hex() == OIDS["signed_data"], step, "not SignedData")
    data = split(split(parts[1][1])[0][1])
    content = split(data[2][1])
    must(content[0][1].hex() == OIDS["data"], step, "content type")
    content = split(content[1][1])[0][1]
    certificates = [x509.load_der_x509_certificate(c[2]) for tag, body, _ in data if tag == 0xA0 for c in split(body)]
    signers = split(data[-1][1])
    must(len(signers) == 1, step, "not exactly one signer")
    info = split(signers[0][1])
    attributes = next(p for p in info if p[0] == 0xA0)
    named = {}
    for _, body, _ in split(attributes[1]):
        name, values = split(body)
        must(name[1].hex() not in named, step, "attribute twice")
        named[name[1].hex()] = split(values[1])
    must(named[OIDS["content_type"]][0][1].hex() == OIDS["data"], step, "content-type attribute")
    # SigningCertificateV2: SEQUENCE of SEQUENCE of ESSCertIDv2; the hash algorithm's default is SHA-256.
    ids = split(split(split(named[OIDS["certificate_v2"]][0][1])[0][1])[0][1])
    must(ids[0][0] == 0x04, step, "signing-certificate-v2 without the default algorithm")
    signer = [c for c in certificates if c.fingerprint(hashes.SHA256()) == ids[0][1]]
    must(len(signer) == 1, step, "signer's certificate")
    algorithm = DIGESTS[split(info[2][1])[0][1].hex()]
    hasher = hashes.Hash(algorithm())
    hasher.update(content)
    must(named[OIDS["message_digest"]][0][1] == hasher.finalize(), step, "message-digest")
    message = b"\x31" + attributes[2][1:]
    signature = info[info.index(attributes) + 2][1]
    must(verify_raw(signer[0].public_key(), signature, message, algorithm()), step, "signature")
    tag, text, _ = named[OIDS["signing_time"]][0]
    text = text.decode() if tag == 0x18 else "20" + text.decode()
    return content, signer[0], datetime.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


# The steps.


class Package:
    def __init__(self, folder, trust, extra_lists=()):
        self.folder, self.trust, self.extra = Path(folder), trust, list(extra_lists)
        self.notes = []

    def read(self, name):
        return (self.folder / name).read_bytes()

    def verify(self):
        try:
            must(self.trust["schema"] == "cordon.trust/1", 0, "trust file")
            must(self.trust["witnesses"] == [], 0, "witnesses cannot be checked here")
            self.files()
            self.root()
            self.log()
            self.camera()
            self.receipt_step()
            self.custody()
            self.roles()
            self.revocation()
        except Refused:
            raise
        except Exception as error:  # malformed input of any kind
            raise Refused(f"malformed: {error!r}") from error
        return self.notes

    def files(self):
        must((self.folder / "package.json").exists(), 1, "no package.json: exported by an earlier version")
        found = set()
        for path in self.folder.rglob("*"):
            name = str(path.relative_to(self.folder))
            must(not path.is_symlink(), 1, f"{name} is a link")
            if path.is_dir():
                must(name in ("media", "crls"), 1, f"folder {name}")
                continue
            must(path.is_file() and (name in FIXED or re.fullmatch(r"(media|crls)/[^/]+", name)), 1, name)
            found.add(name)
        sums = {}
        for line in self.read("SHA256SUMS").decode().splitlines():
            match = re.fullmatch(r"([0-9a-f]{64}) \*(.+)", line)
            must(match and match[2] not in sums, 1, "SHA256SUMS")
            sums[match[2]] = match[1]
        must(set(sums) == found - {"SHA256SUMS", "SHA256SUMS.sig"}, 1, "other files than listed")
        for name, value in sums.items():
            must(digest(self.read(name)) == value, 1, f"hash of {name}")
        self.names = found
        self.package = strict_json(self.read("package.json"), 1)
        must(self.package["schema"] == "cordon.package/2", 1, "schema")

    def chain(self, name):
        return x509.load_pem_x509_certificates(self.read(name))

    def root(self):
        roots = self.chain("root.pem")
        must(len(roots) == 1, 2, "not one root")
        self.anchor = roots[0]
        must(self.anchor.fingerprint(hashes.SHA256()).hex() == self.trust["root_sha256"], 2, "not the pinned root")

    def note(self, text, step):
        """Size and root of a signed checkpoint of the pinned log."""
        origin, raw = self.trust["log"]["origin"], bytes.fromhex(self.trust["log"]["public_key"])
        key = ed25519.Ed25519PublicKey.from_public_bytes(raw)
        end = text.index("\n\n")
        lines = text[:end].split("\n")
        must(lines[0] == origin, step, "origin")
        key_id = hashlib.sha256(origin.encode() + b"\x0a\x01" + raw).digest()[:4]
        good = False
        for line in text[end + 2 :].splitlines():
            name, value = line.removeprefix("\u2014 ").rsplit(" ", 1)
            value = base64.b64decode(value, validate=True)
            if name == origin and value[:4] == key_id:
                good = verify_raw(key, value[4:], text[: end + 1].encode())
                break
        must(good, step, "no signature of the pinned key")
        return int(lines[1]), base64.b64decode(lines[2], validate=True)

    def log(self):
        origin, raw = self.trust["log"]["origin"], bytes.fromhex(self.trust["log"]["public_key"])
        shown = serialization.load_pem_public_key(self.read("log.pem"))
        form = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        must(shown.public_bytes(*form) == raw, 3, "log.pem is not the pinned key")
        self.size, tree = self.note(self.read("checkpoint").decode(), 3)
        self.tree = tree
        proofs = json.loads(self.read("proofs.json"))
        must(proofs["origin"] == origin, 3, "proofs of another log")
        raw_events = self.read("events.jsonl")
        must(raw_events[-1:] == b"\n", 3, "events.jsonl")
        leaves = raw_events[:-1].split(b"\n")
        must(len(leaves) == len(proofs["events"]), 3, "number of proofs")
        self.indices = [proof["index"] for proof in proofs["events"]]
        must(self.indices == sorted(set(self.indices)), 3, "indices do not ascend")
        must(self.indices[0] == proofs["receipt_index"] == self.package["receipt_index"], 3, "receipt_index")
        for leaf, proof in zip(leaves, proofs["events"]):
            value = hashlib.sha256(b"\0" + leaf).digest()
            path = [bytes.fromhex(h) for h in proof["hashes"]]
            must(self.lead(value, proof["index"], self.size, path) == tree, 3, f"event {proof['index']}")
        self.events = [json.loads(leaf) for leaf in leaves]
        self.begun = None
        if "epoch.json" in self.names:
            self.begun = strict_json(self.read("epoch.json"), 3)
            must(set(self.begun) == {"entry", "hashes", "index"}, 3, "epoch.json")
            value = hashlib.sha256(b"\0" + self.begun["entry"].encode()).digest()
            path = [bytes.fromhex(h) for h in self.begun["hashes"]]
            must(self.lead(value, self.begun["index"], self.size, path) == tree, 3, "epoch.json")

    def lead(self, value, index, size, path):
        """The root by recursion over RFC 6962's definition of the tree, not by RFC 9162's loop."""
        if size == 1:
            return value if index == 0 and not path else None
        if not path or not 0 <= index < size:
            return None
        half = 1 << (size - 1).bit_length() - 1
        sibling = path[-1]
        if index < half:
            left = self.lead(value, index, half, path[:-1])
            return left and hashlib.sha256(b"\1" + left + sibling).digest()
        right = self.lead(value, index - half, size - half, path[:-1])
        return right and hashlib.sha256(b"\1" + sibling + right).digest()

    def camera(self):
        content, self.camera_signer, self.camera_at = signed_message(self.read("manifest.p7s"), 4)
        must(content == self.read("manifest.json"), 4, "manifest.json")
        self.manifest = strict_json(content, 4)
        must(self.manifest["schema"] == "cordon.manifest/1", 4, "schema")
        must(self.chain("camera.pem")[0] == self.camera_signer, 4, "camera.pem")
        expected = {}
        for number, medium in enumerate(self.manifest["media"], 1):
            name = re.sub(r"[^A-Za-z0-9._-]", "_", medium["name"])
            expected[f"media/{number:02}-{name}"] = (medium["size"], medium["sha256"])
        found = {n: self.read(n) for n in self.names if n.startswith("media/")}
        must({n: (len(b), digest(b)) for n, b in found.items()} == expected, 4, "media")

    def receipt_step(self):
        content, self.receipt_signer, self.receipt_at = signed_message(self.read("receipt.p7s"), 5)
        must(content == self.read("receipt.json"), 5, "receipt.json")
        self.receipt = receipt = strict_json(content, 5)
        must(receipt["verdict"] == "accepted", 5, "not accepted")
        must(receipt["schema"] in ("cordon.receipt/1", "cordon.receipt/2"), 5, "schema")
        must((receipt["schema"] == "cordon.receipt/2") == ("checkpoint" in receipt), 5, "checkpoint")
        if "checkpoint" in receipt:
            size, tree = self.note(receipt["checkpoint"], 5)
            must(receipt["log_index"] < size <= self.size, 5, "log went back")
            must(size < self.size or tree == self.tree, 5, "log was replaced")
        names = self.receipt_signer.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        must(not names or names[-1].value != "Trust Bundle", 7, "receipt: role")
        block = self.read("block.cordon")
        must((digest(block), len(block)) == (receipt["block_sha256"], receipt["size"]), 5, "block")
        must(digest(self.read("manifest.json")) == receipt["manifest_sha256"], 5, "manifest_sha256")
        must(all(receipt[f] == self.manifest[f] for f in ("device", "sequence")), 5, "device or sequence")
        self.received = when(receipt["received_at"])
        must(self.camera_at <= self.received + datetime.timedelta(minutes=5), 4, "signed after the receipt")

    def custody(self):
        receipt, block = self.receipt, self.receipt["block_sha256"]
        violation = "v-" + block[:16]
        must(self.package["violation"] == violation, 6, "violation")
        first = self.events[0]["event"]
        details = first["details"]
        must(self.indices[0] == receipt["log_index"], 6, "log_index")
        must((first["action"], first["outcome"]) == ("evidence.receive", "ok"), 6, "first event")
        must((first["actor"]["kind"], first["actor"]["id"]) == ("device", receipt["device"]), 6, "actor")
        must(first["resource"] == f"block/{block}", 6, "resource")
        must(all(details[f] == receipt[f] for f in ("manifest_sha256", "size", "sequence")), 6, "details")
        must(all(leaf["role"] == "centre" for leaf in self.events), 6, "role")
        must(all(leaf["event"]["resource"] == f"violation/{violation}" for leaf in self.events[1:]), 6, "resource")
        must(("epoch" in first["details"]) == (self.begun is not None), 6, "epoch.json")
        if self.begun:
            leaf = json.loads(self.begun["entry"])
            event = leaf["event"]
            must(self.begun["index"] < self.indices[0] and leaf["role"] == "centre", 6, "epoch: place")
            must((event["action"], event["outcome"]) == ("chain.begin-epoch", "permit"), 6, "epoch: act")
            must(event["resource"] == f"chain/{receipt['device']}", 6, "epoch: camera")
            must(event["details"]["epoch"] == first["details"]["epoch"], 6, "epoch: number")
            who, other = event["actor"], event["details"]["proposed_by"]
            must(who["kind"] == "user" and who["id"] != other, 6, "epoch: one person")
        details = [leaf["event"].get("details", {}) for leaf in self.events]
        begin = next((n for n, d in enumerate(details) if "custody_count" in d), None)
        must(begin is not None, 6, "nothing is numbered")
        for n in range(len(details)):
            if n < begin:
                continue
            previous = self.indices[n - 1] if n else None
            must(details[n].get("custody_count") == n + 1, 6, f"number of event {self.indices[n]}")
            must(details[n].get("custody_previous") == previous, 6, f"link of event {self.indices[n]}")
            vouched = None
            if n == begin and n:
                vouched = digest(",".join(map(str, self.indices[:n])).encode())
            must(details[n].get("custody_earlier_sha256") == vouched, 6, f"event {self.indices[n]} vouches wrongly")
        last = self.events[-1]["event"]
        must(last["action"] == "evidence.export" and last["outcome"] in ("permit", "ok"), 6, "last is no export")
        must(self.indices[-1] == self.package["export_index"], 6, "export_index")
        self.logged, self.exported = when(first["at"]), when(last["at"])

    def role(self, leaf, kind, at, who):
        """Step 7, with the path by hand: leaf, issuing authority, pinned root."""
        paths = []
        for authority in self.chain("camera.pem") + self.chain("centre.pem"):
            try:
                leaf.verify_directly_issued_by(authority)
                authority.verify_directly_issued_by(self.anchor)
            except (ValueError, TypeError, InvalidSignature):
                continue
            paths.append(authority)
        must(paths, 7, f"{who}: no path to the root")
        authority = paths[0]
        for certificate in (leaf, authority, self.anchor):
            inside = certificate.not_valid_before_utc <= at <= certificate.not_valid_after_utc
            must(inside, 7, f"{who}: not valid at {at}")
        for signer in (authority, self.anchor):
            constraints = signer.extensions.get_extension_for_class(x509.BasicConstraints).value
            usage = signer.extensions.get_extension_for_class(x509.KeyUsage).value
            must(constraints.ca and usage.key_cert_sign, 7, f"{who}: issued by no authority")
        marker = x509.ObjectIdentifier(self.trust["extension_arc"] + ".3")
        marks = [e.value.value for e in authority.extensions if e.oid == marker]
        must(marks == [b"\x0c" + bytes([len(kind)]) + kind.encode()], 7, f"{who}: authority is not for {kind}")
        purposes = [e.value for e in leaf.extensions if isinstance(e.value, x509.ExtendedKeyUsage)]
        must(purposes and ExtendedKeyUsageOID.EMAIL_PROTECTION in purposes[0], 7, f"{who}: extended key usage")
        usage = [e.value for e in leaf.extensions if isinstance(e.value, x509.KeyUsage)]
        may = usage and (usage[0].digital_signature or usage[0].content_commitment)
        must(may, 7, f"{who}: key usage")
        return [leaf, authority, self.anchor]

    def roles(self):
        maker = self.chain("centre.pem")[0]
        camera = self.role(self.camera_signer, "devices", self.camera_at, "camera")
        names = self.camera_signer.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        must(names and names[-1].value == self.manifest["device"], 7, "camera: other device")
        receipt = self.role(self.receipt_signer, "services", self.receipt_at, "receipt")
        package = self.role(maker, "services", self.exported, "package")
        for leaf, who in ((self.receipt_signer, "receipt"), (maker, "package")):
            uses = [p.dotted_string for e in leaf.extensions if isinstance(e.value, x509.ExtendedKeyUsage) for p in e.value]
            own = {RECEIPTS, BUNDLES} & set(uses)
            named = leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[-1].value
            must(own in (set(), {RECEIPTS}) and named != "Trust Bundle", 7, f"{who}: another role")
        sums, signature = self.read("SHA256SUMS"), self.read("SHA256SUMS.sig")
        must(verify_raw(maker.public_key(), signature, sums), 7, "signature of SHA256SUMS")
        self.used = [
            (camera, self.received, "camera"),
            (receipt, max(self.received, self.logged), "receipt"),
            (package, self.exported, "package"),
        ]

    def revocation(self):
        own = [x509.load_pem_x509_crl(self.read(n)) for n in sorted(self.names) if n.startswith("crls/")]
        for path, used, who in self.used:
            for subject, issuer in zip(path, path[1:]):
                def signed(crl):
                    return crl.issuer == issuer.subject and crl.is_signature_valid(issuer.public_key())

                def whole(crl):
                    return not any(e.critical for e in crl.extensions)

                force = [
                    c for c in own
                    if signed(c) and whole(c) and c.last_update_utc <= self.exported <= c.next_update_utc
                ]
                must(force, 8, f"{who}: no list of {issuer.subject.rfc4514_string()}")
                for crl in filter(signed, own + self.extra):
                    entry = crl.get_revoked_certificate_by_serial_number(subject.serial_number)
                    if entry is None:
                        continue
                    at = entry.revocation_date_utc
                    # The camera's own certificate, superseded: its signing time counts.
                    reasons = [e.value.reason for e in entry.extensions if isinstance(e.value, x509.CRLReason)]
                    own_word = who == "camera" and subject is path[0] and reasons == [x509.ReasonFlags.superseded]
                    use = min(used, self.camera_at) if own_word else used
                    must(at > use, 8, f"{who}: revoked at {at}")
                    self.notes.append(f"{who}: revoked at {at}, after its use")


def verify(folder, trust, extra_lists=()):
    """Raises `Refused`, or returns notes."""
    return Package(folder, trust, extra_lists).verify()
