"""What a forger does to a custody package: facts, picture, receipt and log of its own, signed with any certificate."""

import base64
import hashlib
import json
import shutil
import time
from pathlib import Path

from tests.harness import run


class Signer:
    """A certificate with its key, made readable for openssl in a file of its own."""

    def __init__(self, certificate, key, passphrase=None):
        self.certificate, self.key, self.passphrase = Path(certificate), Path(key or certificate), passphrase
        self.opened = None

    def files(self, folder):
        """Leaf, other certificates, and key without a passphrase."""
        marker = b"-----BEGIN CERTIFICATE-----"
        end = b"-----END CERTIFICATE-----\n"
        text = self.certificate.read_bytes()
        found = [marker + part.split(end)[0] + end for part in text.split(marker)[1:]]
        leaf, rest, key = (folder / f"signer.{name}" for name in ("leaf", "rest", "key"))
        leaf.write_bytes(found[0])
        rest.write_bytes(b"".join(found[1:]) or found[0])
        if not self.opened:
            # Once for all forgeries: deriving the key from the passphrase takes as long as it has to.
            pass_in = ["-passin", f"file:{self.passphrase}"] if self.passphrase else []
            self.opened = run("openssl", "pkey", "-in", self.key, *pass_in).stdout
        key.write_text(self.opened)
        return leaf, rest, key

    def chain(self):
        marker = b"-----BEGIN CERTIFICATE-----"
        return marker + self.certificate.read_bytes().split(marker, 1)[1].split(b"-----BEGIN ENCRYPTED")[0].split(
            b"-----BEGIN PRIVATE")[0].split(b"-----BEGIN EC")[0]


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def leaf_hash(data):
    return hashlib.sha256(b"\0" + data).digest()


def node(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()


def stamp(at, fraction=""):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + fraction + "Z"


def sums(package):
    names = [p for p in package.rglob("*") if p.is_file()]
    names = sorted(str(p.relative_to(package)) for p in names)
    lines = []
    for name in names:
        if not name.startswith("SHA256SUMS"):
            lines.append(f"{hashlib.sha256((package / name).read_bytes()).hexdigest()} *{name}\n")
    return "".join(lines).encode()


class Forger:
    def __init__(self, genuine, folder):
        self.genuine, self.folder = genuine, folder
        self.work = folder / "forger"
        self.work.mkdir()
        self.log_key = self.work / "log.key"
        run("openssl", "genpkey", "-algorithm", "ED25519", "-out", self.log_key)

    def make(self, name, manifest_signer, receipt_signer, package_signer, lists=None, **others):
        """A package with another plate, speed and picture, and a trust file that pins the forger's log.

        `manifest`, `receipt` and `package` in `others` replace the signer of that part.
        """
        manifest_signer = others.get("manifest", manifest_signer)
        receipt_signer = others.get("receipt", receipt_signer)
        package_signer = others.get("package", package_signer)
        package = self.folder / f"forged-{name.replace(' ', '-')}"
        shutil.copytree(self.genuine, package)
        medium = next((package / "media").iterdir())
        medium.write_bytes(b"another picture")
        manifest = json.loads((package / "manifest.json").read_bytes())
        manifest["violation"].update(plate="FORGED 1", speed_kmh=199)
        manifest["media"][0].update(size=15, sha256=hashlib.sha256(b"another picture").hexdigest())
        self.sign(package, "manifest", canonical(manifest), manifest_signer)
        (package / "camera.pem").write_bytes(manifest_signer.chain())
        (package / "block.cordon").write_bytes(b"a block that nobody can open")
        now = int(time.time())
        receipt = json.loads((package / "receipt.json").read_bytes())
        block = (package / "block.cordon").read_bytes()
        receipt.update(
            block_sha256=hashlib.sha256(block).hexdigest(), size=len(block), log_index=0,
            manifest_sha256=hashlib.sha256(canonical(manifest)).hexdigest(), received_at=stamp(now),
        )
        origin, trust = self.log(package, receipt, now)
        if not others.get("genuine_checkpoint"):
            # A forger who has thought of it: the receipt's own checkpoint is of the forged log too.
            receipt["checkpoint"] = (package / "checkpoint").read_text()
        self.sign(package, "receipt", canonical(receipt), receipt_signer)
        del origin
        (package / "centre.pem").write_bytes(package_signer.chain())
        if lists:
            # The newest lists of the site, as a verifier would bring them.
            for old in (package / "crls").iterdir():
                old.unlink()
            for number, pem in enumerate(lists.read_bytes().split(b"-----BEGIN X509 CRL-----")[1:], 1):
                (package / f"crls/{number:02}.pem").write_bytes(b"-----BEGIN X509 CRL-----" + pem)
        self.close(package, package_signer)
        return package, trust

    def sign(self, package, name, content, signer):
        leaf, rest, key = signer.files(self.work)
        (package / f"{name}.json").write_bytes(content)
        run(
            "openssl", "cms", "-sign", "-cades", "-binary", "-nodetach", "-nosmimecap", "-md", "sha256",
            "-in", package / f"{name}.json", "-signer", leaf, "-inkey", key, "-certfile", rest,
            "-outform", "DER", "-out", package / f"{name}.p7s",
        )

    def log(self, package, receipt, now):
        """A log of two events: receipt and export."""
        origin = receipt["log_origin"]
        violation = "v-" + receipt["block_sha256"][:16]
        received = {
            "action": "evidence.receive", "actor": {"id": receipt["device"], "kind": "device"},
            "at": stamp(now, ".000"), "outcome": "ok", "resource": f"block/{receipt['block_sha256']}",
            "role": "centre", "v": 1,
            "details": {
                "custody_count": 1, "manifest_sha256": receipt["manifest_sha256"],
                "sequence": receipt["sequence"], "size": receipt["size"],
            },
        }
        exported = {
            "action": "evidence.export", "actor": {"id": "reviewer", "kind": "user"}, "at": stamp(now, ".500"),
            "outcome": "permit", "resource": f"violation/{violation}", "role": "centre", "v": 1,
            "details": {"custody_count": 2, "custody_previous": 0},
        }
        leaves = [
            canonical({"event": event, "prev": "0" * 64, "role": "centre", "seq": number})
            for number, event in enumerate((received, exported), 1)
        ]
        hashes = [leaf_hash(leaf) for leaf in leaves]
        der = run("openssl", "pkey", "-in", self.log_key, "-pubout", "-outform", "DER", text=False).stdout
        public = der[-32:]
        body = f"{origin}\n2\n{base64.b64encode(node(*hashes)).decode()}\n"
        (self.work / "body").write_bytes(body.encode())
        sign = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", self.log_key, "-in", self.work / "body"]
        signature = run(*sign, text=False).stdout
        mark = hashlib.sha256(origin.encode() + b"\n\x01" + public).digest()[:4] + signature
        note = f"{body}\n\u2014 {origin} {base64.b64encode(mark).decode()}\n"
        (package / "checkpoint").write_bytes(note.encode())
        pem = run("openssl", "pkey", "-in", self.log_key, "-pubout").stdout
        (package / "log.pem").write_text(pem)
        (package / "events.jsonl").write_bytes(b"".join(leaf + b"\n" for leaf in leaves))
        proofs = [{"index": n, "hashes": [hashes[1 - n].hex()]} for n in range(2)]
        (package / "proofs.json").write_bytes(canonical({"origin": origin, "receipt_index": 0, "events": proofs}))
        statement = json.loads((package / "package.json").read_bytes())
        statement.update(violation=violation, receipt_index=0, export_index=1)
        (package / "package.json").write_bytes(canonical(statement))
        trust = self.folder / "forger-trust.json"
        root = run("openssl", "x509", "-in", package / "root.pem", "-outform", "DER", text=False).stdout
        trust.write_text(json.dumps({
            "schema": "cordon.trust/1", "root_sha256": hashlib.sha256(root).hexdigest(),
            "extension_arc": "1.3.6.1.4.1.99999.1",
            "log": {"origin": origin, "public_key": public.hex()}, "witnesses": [],
        }))
        return origin, trust

    def close(self, package, signer):
        """SHA256SUMS and its signature."""
        leaf, _, key = signer.files(self.work)
        (package / "SHA256SUMS").write_bytes(sums(package))
        text = run("openssl", "x509", "-in", leaf, "-noout", "-text").stdout
        digest = [] if "ED25519" in text else ["-digest", "sha384" if "secp384r1" in text else "sha256"]
        run(
            "openssl", "pkeyutl", "-sign", "-rawin", *digest, "-inkey", key,
            "-in", package / "SHA256SUMS", "-out", package / "SHA256SUMS.sig",
        )

    def without_event(self, genuine, number, signer):
        """The genuine package with one event and its proof less, signed again by the centre itself."""
        package = self.folder / f"without-{number}"
        shutil.copytree(genuine, package)
        lines = (package / "events.jsonl").read_bytes().splitlines(True)
        proofs = json.loads((package / "proofs.json").read_bytes())
        statement = json.loads((package / "package.json").read_bytes())
        del lines[number], proofs["events"][number]
        # Everything that is not in the log is made to fit.
        proofs["receipt_index"] = proofs["events"][0]["index"]
        statement["receipt_index"] = proofs["receipt_index"]
        statement["export_index"] = proofs["events"][-1]["index"]
        (package / "events.jsonl").write_bytes(b"".join(lines))
        (package / "proofs.json").write_bytes(canonical(proofs))
        (package / "package.json").write_bytes(canonical(statement))
        self.close(package, signer)
        return package
