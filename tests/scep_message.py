"""SCEP messages made and read byte by byte, for what no honest client sends."""

import base64
import datetime
import hashlib
import os
import urllib.error
import urllib.parse
import urllib.request

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.serialization import pkcs7
from cryptography.x509.oid import AttributeOID, NameOID

from tests.cmp_message import NULL, SHA256, explicit, integer, octets, oid, read, sequence, tlv

DER = serialization.Encoding.DER
DATA, SIGNED, ENVELOPED = (oid(f"1.2.840.113549.1.7.{n}") for n in (1, 2, 3))
RSA = sequence(oid("1.2.840.113549.1.1.1"), NULL)
CIPHERS = {16: oid("2.16.840.1.101.3.4.1.2"), 24: oid("2.16.840.1.101.3.4.1.22"), 32: oid("2.16.840.1.101.3.4.1.42")}
DES3, SHA1 = oid("1.2.840.113549.3.7"), oid("1.3.14.3.2.26")
FAILURES = {"0": "badAlg", "1": "badMessageCheck", "2": "badRequest", "3": "badTime", "4": "badCertId"}
MESSAGE_TYPE, STATUS, FAIL_INFO, SENDER_NONCE, RECIPIENT_NONCE, TRANSACTION = (oid(f"2.16.840.1.113733.1.9.{n}") for n in range(2, 8))
FAIL_TEXT = oid("1.3.6.1.5.5.7.24.1")
PKCS_REQ, RENEWAL_REQ = "19", "17"


def new_key(bits=2048):
    return rsa.generate_private_key(65537, bits)


def self_signed(key, name="client"):
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    at = datetime.datetime.now(datetime.timezone.utc)
    one = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    one = one.serial_number(x509.random_serial_number()).not_valid_before(at).not_valid_after(at + datetime.timedelta(days=365))
    return one.sign(key, hashes.SHA256())


def csr(key, name, challenge=None):
    """A certification request in DER."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if challenge is not None:
        request = request.add_attribute(AttributeOID.CHALLENGE_PASSWORD, challenge.encode())
    return request.sign(key, hashes.SHA256()).public_bytes(DER)


def issuer_and_serial(certificate):
    return sequence(certificate.issuer.public_bytes(), integer(certificate.serial_number))


def encrypt(content, to, bits=256, cipher=None, padded=True, key_algorithm=RSA):
    """EnvelopedData to an RSA certificate."""
    key, iv = os.urandom(bits // 8), os.urandom(16)
    padder = PKCS7(128).padder()
    text = padder.update(content) + padder.finalize() if padded else content
    encryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
    text = encryptor.update(text) + encryptor.finalize()
    wrapped = to.public_key().encrypt(key, padding.PKCS1v15())
    return envelope(wrapped, iv, text, to, cipher or CIPHERS[bits // 8], key_algorithm)


def envelope(wrapped, iv, text, to, cipher, key_algorithm=RSA):
    recipient = sequence(integer(0), issuer_and_serial(to), key_algorithm, octets(wrapped))
    inner = sequence(DATA, sequence(cipher, octets(iv)), tlv(0x80, text))
    return sequence(ENVELOPED, explicit(0, sequence(integer(0), tlv(0x31, recipient), inner)))


def printable(text):
    return tlv(0x13, text.encode())


def message(content, key, certificate, kind=PKCS_REQ, digest=SHA256, transaction="0123456789", nonce=None, signature=None, signed=None):
    """SignedData over `content`; of `signed` its digest is of something else."""
    attribute = lambda name, value: sequence(name, tlv(0x31, value))
    of = hashlib.sha1 if digest == SHA1 else hashlib.sha256
    attributes = [
        attribute(oid("1.2.840.113549.1.9.3"), DATA),
        attribute(oid("1.2.840.113549.1.9.4"), octets(of(content if signed is None else signed).digest())),
        attribute(TRANSACTION, printable(transaction)),
        attribute(SENDER_NONCE, octets(os.urandom(16) if nonce is None else nonce)),
    ]
    if kind is not None:
        attributes.append(attribute(MESSAGE_TYPE, printable(kind)))
    joined = b"".join(sorted(attributes))
    hashed = hashes.SHA1() if digest == SHA1 else hashes.SHA256()
    to_sign = tlv(0x31, joined)
    if signature is None:
        signature = key.sign(to_sign, ec.ECDSA(hashed)) if isinstance(key, ec.EllipticCurvePrivateKey) else key.sign(to_sign, padding.PKCS1v15(), hashed)
    algorithm = sequence(oid("1.2.840.10045.4.3.2")) if isinstance(key, ec.EllipticCurvePrivateKey) else RSA
    info = sequence(integer(1), issuer_and_serial(certificate), sequence(digest, NULL), tlv(0xA0, joined), algorithm, octets(signature))
    data = sequence(integer(1), tlv(0x31, sequence(digest, NULL)), sequence(DATA, explicit(0, octets(content))),
                    tlv(0xA0, certificate.public_bytes(DER)), tlv(0x31, info))
    return sequence(SIGNED, explicit(0, data))


class Answer:
    """A CertRep: its status, and the certificate or the failure."""

    def __init__(self, der, key):
        (_, signed, _), = read(der)
        (_, inner, _), = read(read(signed)[1][1])
        parts = read(inner)
        content = read(parts[2][1])
        info = read(read(parts[-1][1])[0][1])
        # By the name of each attribute its value.
        named = (read(one) for _, one, _ in read(info[3][1]))
        self.attributes = {name: read(values)[0] for (_, _, name), (_, values, _) in named}
        self.status = self.attributes[STATUS][1].decode()
        self.failure = self.text = self.certificate = None
        if self.status == "2":
            self.failure = FAILURES[self.attributes[FAIL_INFO][1].decode()]
            self.text = self.attributes[FAIL_TEXT][1].decode()
            assert len(content) == 1, "a refusal with content"
        else:
            self.certificate = self.decrypted(read(read(content[1][1])[0][1])[0], key)
        self.recipient_nonce, self.transaction = self.attributes[RECIPIENT_NONCE][1], self.attributes[TRANSACTION][1].decode()

    def decrypted(self, enveloped, key):
        (_, inner, _), = read(read(enveloped[1])[1][1])
        parts = read(inner)
        recipient = read(read(parts[1][1])[0][1])
        content_key = key.decrypt(recipient[3][1], padding.PKCS1v15())
        encrypted = read(parts[2][1])
        iv = read(encrypted[1][1])[1][1]
        decryptor = Cipher(algorithms.AES(content_key), modes.CBC(iv)).decryptor()
        unpadder = PKCS7(128).unpadder()
        self.bits = len(content_key) * 8
        text = unpadder.update(decryptor.update(encrypted[2][1]) + decryptor.finalize()) + unpadder.finalize()
        one, = pkcs7.load_der_pkcs7_certificates(text)
        return one


def ask(url, operation, body=None, by_get=False, context=None):
    """Status and body of an answer."""
    url = f"{url}?operation={operation}"
    if by_get:
        url, body = f"{url}&message={urllib.parse.quote(base64.b64encode(body))}", None
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=30, context=context) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()
