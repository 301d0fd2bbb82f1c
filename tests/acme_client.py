"""A client of ACME made of plain HTTP and signatures, which signs whatever it is told to."""

import base64
import hashlib
import hmac
import http.client
import json
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils
from cryptography.x509.oid import NameOID

ERROR = "urn:ietf:params:acme:error:"
JOSE = "application/jose+json"


def b64(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def unb64(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def number(value, length=None):
    return b64(value.to_bytes(length or (value.bit_length() + 7) // 8, "big"))


def new_key(kind="ES256"):
    match kind:
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "ES384":
            return ec.generate_private_key(ec.SECP384R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
        case _:
            return rsa.generate_private_key(65537, int(kind.removeprefix("RS")))


def jwk(key):
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        numbers = public.public_numbers()
        return {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}
    if isinstance(public, ed25519.Ed25519PublicKey):
        raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        return {"kty": "OKP", "crv": "Ed25519", "x": b64(raw)}
    numbers, length = public.public_numbers(), (public.curve.key_size + 7) // 8
    name = {"secp256r1": "P-256", "secp384r1": "P-384", "secp256k1": "secp256k1"}[public.curve.name]
    return {"kty": "EC", "crv": name, "x": number(numbers.x, length), "y": number(numbers.y, length)}


def algorithm(key):
    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return "EdDSA"
    return {"secp256r1": "ES256", "secp384r1": "ES384"}.get(key.curve.name, "ES256K")


def sign(key, content):
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, padding.PKCS1v15(), hashes.SHA256())
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(content)
    digest = hashes.SHA384() if key.curve.key_size == 384 else hashes.SHA256()
    length = (key.curve.key_size + 7) // 8
    parts = utils.decode_dss_signature(key.sign(content, ec.ECDSA(digest)))
    return b"".join(part.to_bytes(length, "big") for part in parts)


def encoded(value):
    """JSON in base64url; nothing for None."""
    return "" if value is None else b64(json.dumps(value).encode())


def jws(key, header, payload):
    protected, content = encoded(header), encoded(payload)
    signature = sign(key, f"{protected}.{content}".encode())
    return {"protected": protected, "payload": content, "signature": b64(signature)}


def binding(secret, kid, url, account):
    protected, content = encoded({"alg": "HS256", "kid": kid, "url": url}), encoded(account)
    tag = hmac.new(unb64(secret), f"{protected}.{content}".encode(), hashlib.sha256).digest()
    return {"protected": protected, "payload": content, "signature": b64(tag)}


def csr(names, key, common_name=None):
    """A certification request in base64url."""
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if names:
        request = request.add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), False)
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return b64(request.sign(key, digest).public_bytes(serialization.Encoding.DER))


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    def json(self):
        return json.loads(self.body)

    @property
    def problem(self):
        """Status and last part of the error's type."""
        assert self.headers["Content-Type"] == "application/problem+json", (self.status, self.body)
        return self.status, self.json()["type"].removeprefix(ERROR)


class Attacker:
    """Whoever has an account's key, or wants one. `kid` is the account's address."""

    def __init__(self, site, kind="ES256", host="localhost"):
        self.port, self.root, self.host = site.enrolment, site.root, host
        self.base = f"https://{host}:{site.enrolment}/acme/"
        self.key, self.kid, self.connection = new_key(kind), None, None

    def send(self, method, url, body=None, headers=None):
        path = url.removeprefix(f"https://{self.host}:{self.port}")
        for attempt in (1, 2):
            if self.connection is None:
                context = ssl.create_default_context(cafile=str(self.root))
                self.connection = http.client.HTTPSConnection("localhost", self.port, context=context, timeout=60)
            try:
                self.connection.request(method, path, body, {"Host": f"{self.host}:{self.port}", **(headers or {})})
                return Answer(self.connection.getresponse())
            except (http.client.HTTPException, OSError):
                # The listener closes what was idle, or what sent too much.
                self.connection = None
                if attempt == 2:
                    raise

    def nonce(self):
        return self.send("HEAD", self.base + "new-nonce").headers["Replay-Nonce"]

    def deliver(self, url, body, kind=JOSE):
        content = body if isinstance(body, (bytes, str)) else json.dumps(body)
        return self.send("POST", url, content, {"Content-Type": kind})

    def header(self, url, /, **changes):
        """The right header, with changes; a value of None takes a member away."""
        who = {"kid": self.kid} if self.kid else {"jwk": jwk(self.key)}
        header = {"alg": algorithm(self.key), "nonce": self.nonce(), "url": url, **who, **changes}
        return {name: value for name, value in header.items() if value is not None}

    def post(self, url, payload=None, /, **changes):
        return self.deliver(url, jws(self.key, self.header(url, **changes), payload))

    def register(self, kid, secret, **members):
        url = self.base + "new-account"
        bound = {"externalAccountBinding": binding(secret, kid, url, jwk(self.key)), **members}
        answer = self.post(url, bound, kid=None, jwk=jwk(self.key))
        if answer.status in (200, 201):
            self.kid = answer.headers["Location"]
        return answer

    def order(self, *names):
        identifiers = [{"type": "dns", "value": name} for name in names]
        return self.post(self.base + "new-order", {"identifiers": identifiers})

    def finalize(self, order, request):
        return self.post(order.json()["finalize"], {"csr": request})

    def certificate(self, key, *names):
        """Orders, finalizes and downloads: the chain in PEM, or the answer that refuses."""
        order = self.order(*names)
        if order.status not in (200, 201):
            return order
        done = self.finalize(order, csr(names, key))
        if done.status != 200:
            return done
        return self.post(done.json()["certificate"]).body.decode()


def der(chain):
    """The first certificate of a chain, as it is revoked."""
    first = x509.load_pem_x509_certificate(chain.encode() if isinstance(chain, str) else chain)
    return b64(first.public_bytes(serialization.Encoding.DER))
