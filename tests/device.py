"""A device made with curl and openssl alone: enrolment over EST, keys as files, HTTPS."""

import http.client
import json
import time

from tests.harness import cordon_json, request, run, tls_context, violation

FILES = "/intake/v1/files"
TUS = {"Tus-Resumable": "1.0.0"}


class Device:
    """Enrols in the site with a one-time code, as a foreign EST client would."""

    def __init__(self, site, name, clearance=3):
        self.site, self.name = site, name
        self.folder = site.folder / name
        site.ask("registry", "code", "--device", name, "--clearance", clearance, "--out", self.folder)
        self.code = (self.folder / "code").read_text().strip()
        self.root = self.folder / "root.pem"
        self.key = self.folder / "plain.key"
        self.sealed_key = self.folder / "sealed.key"
        self.passphrase = self.folder / "passphrase"
        self.passphrase.write_text("a passphrase of the test\n")
        self.cert = self.folder / "device.pem"
        self.chain = self.folder / "chain.pem"
        run("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", self.key)
        run("openssl", "pkcs8", "-topk8", "-v2", "aes-256-cbc", "-in", self.key, "-out", self.sealed_key,
            "-passout", f"file:{self.passphrase}")
        self.sequence, self.previous = 1, None

    def enrol(self, code=None):
        """Sends a request to simpleenroll with curl; returns the HTTP status."""
        csr, answer = self.folder / "csr", self.folder / "answer"
        run("openssl", "req", "-new", "-key", self.key, "-subj", f"/CN={self.name}", "-outform", "DER", "-out", csr)
        run("openssl", "base64", "-in", csr, "-out", f"{csr}.b64")
        status = run(
            "curl", "--silent", "--cacert", self.root, "--user", f"{self.name}:{code or self.code}",
            "--header", "Content-Type: application/pkcs10", "--header", "Content-Transfer-Encoding: base64",
            "--data-binary", f"@{csr}.b64", "--output", answer, "--write-out", "%{http_code}",
            f"https://localhost:{self.site.enrolment}/.well-known/est/simpleenroll",
        ).stdout
        if status == "200":
            self.cert.write_text(self.certificates(answer)[0])
            issuer = run("openssl", "x509", "-in", self.cert, "-noout", "-issuer").stdout.split("=", 1)[1]
            authority = next(c for c in self.authorities() if self.subject(c) == issuer)
            self.chain.write_text(self.cert.read_text() + authority)
        return int(status)

    def authorities(self):
        answer = self.folder / "cacerts"
        address = f"https://localhost:{self.site.enrolment}/.well-known/est/cacerts"
        run("curl", "--silent", "--fail", "--cacert", self.root, "--output", answer, address)
        return self.certificates(answer)

    def certificates(self, answer):
        der = answer.with_suffix(".p7")
        run("openssl", "base64", "-d", "-in", answer, "-out", der)
        text = run("openssl", "pkcs7", "-inform", "DER", "-in", der, "-print_certs").stdout
        end = "-----END CERTIFICATE-----\n"
        return [f"-----BEGIN{part.split('-----BEGIN', 1)[1]}{end}" for part in text.split(end)[:-1]]

    @staticmethod
    def subject(pem):
        return run("openssl", "x509", "-noout", "-subject", input=pem).stdout.split("=", 1)[1]

    def seal(self, picture, sequence=None, name="picture", **facts):
        """Seals a picture with `cordon evidence seal` as the next of this device's chain."""
        number = sequence or self.sequence
        stem = self.folder / f"{name}-{number}-{time.monotonic_ns()}"
        meta, medium, block = (stem.with_suffix(f".{e}") for e in ("json", "jpg", "cordon"))
        described = violation(**{k: v for k, v in facts.items() if k != "captured_at"})
        described["captured_at"] = facts.get("captured_at", described["captured_at"])
        meta.write_text(json.dumps(described))
        medium.write_bytes(picture)
        previous = ["--previous", self.previous] if self.previous and number > 1 else []
        sealed = cordon_json(
            "evidence", "seal", "--key", self.sealed_key, "--passphrase-file", self.passphrase,
            "--chain", self.chain, "--recipient", self.folder / "recipients.pem", "--meta", meta,
            "--sequence", number, *previous, "--out", block, medium,
        )
        if sequence is None:
            self.sequence, self.previous = number + 1, sealed["manifest_sha256"]
        return block, sealed

    def request(self, method, path, body=None, headers=None):
        return request(self.site.intake, method, path, self.root, self, body, {**TUS, **(headers or {})})

    def connection(self):
        """A connection to stay open."""
        context = tls_context(self.root, self)
        return http.client.HTTPSConnection("localhost", self.site.intake, context=context, timeout=30)

    def create(self, size, metadata=""):
        # As a camera asks: of a block that is archived already, the receipt.
        headers = {"Upload-Length": str(size), "Upload-Metadata": metadata, "Cordon-Receipt": "1"}
        return self.request("POST", FILES, None, {k: v for k, v in headers.items() if v})

    def append(self, location, offset, body, headers=None):
        fixed = {"Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"}
        return self.request("PATCH", location, body, {**fixed, **(headers or {})})

    def upload(self, block):
        """Uploads the bytes of a block in one request; returns the upload's path."""
        created = self.create(len(block))
        assert created.status == 201, created.text
        location = created.headers["Location"]
        answer = self.append(location, 0, block)
        assert answer.status == 204, answer.text
        return location

    def receipt(self, location, seconds=30):
        """The answer below an upload's path, once there is a verdict."""
        end = time.monotonic() + seconds
        while True:
            answer = self.request("GET", f"{location}/receipt")
            if answer.status != 202 or time.monotonic() > end:
                return answer
            time.sleep(0.2)

    def verdict(self, block):
        """Uploads a block and returns its receipt's content, checked by openssl."""
        answer = self.receipt(self.upload(block))
        assert answer.status == 200, answer.text
        return self.open_receipt(answer.body)

    def open_receipt(self, cms):
        file = self.folder / "receipt.p7m"
        file.write_bytes(cms)
        verify = ["openssl", "cms", "-verify", "-cades", "-binary", "-inform", "DER", "-in", file]
        return json.loads(run(*verify, "-CAfile", self.root, "-purpose", "any").stdout)
