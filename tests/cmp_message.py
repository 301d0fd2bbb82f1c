"""CMP messages made and read byte by byte, for what no honest client sends."""

import hashlib
import hmac
import os
import time
import urllib.error
import urllib.request

FAILURES = {
    0: "badAlg", 1: "badMessageCheck", 2: "badRequest", 3: "badTime", 4: "badCertId", 5: "badDataFormat", 9: "badPOP",
    10: "certRevoked", 12: "wrongIntegrity", 13: "badRecipientNonce", 18: "badSenderNonce", 19: "badCertTemplate",
    20: "signerNotTrusted", 21: "transactionIdInUse", 22: "unsupportedVersion", 23: "notAuthorized", 24: "systemUnavail",
    26: "duplicateCertReq",
}
P10CR, ERROR, CERT_CONF, PKI_CONF = 4, 23, 24, 19


def tlv(tag, *parts):
    content = b"".join(parts)
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x80 | (size.bit_length() + 7) // 8]) + size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag]) + length + content


def sequence(*parts):
    return tlv(0x30, *parts)


def explicit(number, *parts):
    return tlv(0xA0 | number, *parts)


def integer(value):
    return tlv(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def octets(content):
    return tlv(0x04, content)


def oid(text):
    first, second, *rest = map(int, text.split("."))
    content = bytes([first * 40 + second])
    for number in rest:
        part = [number & 127]
        while number := number >> 7:
            part.insert(0, 0x80 | number & 127)
        content += bytes(part)
    return tlv(0x06, content)


def read(der):
    """Tags and contents of the values in `der`, with each value as it came."""
    values, at = [], 0
    while at < len(der):
        tag, size, start = der[at], der[at + 1], at + 2
        if size & 0x80:
            start += size & 127
            size = int.from_bytes(der[at + 2:start], "big")
        values.append((tag, der[start:start + size], der[at:start + size]))
        at = start + size
    return values


SHA256, HMAC_SHA256 = oid("2.16.840.1.101.3.4.2.1"), oid("1.2.840.113549.2.9")
NULL = b"\x05\x00"


class Secret:
    """A name and a code, by PBM (RFC 4211) or PBMAC1 (RFC 9481)."""

    def __init__(self, name, code, iterations=500, pbmac1=False):
        self.name, self.code, self.iterations, self.pbmac1 = name, code.encode(), iterations, pbmac1
        self.salt = os.urandom(16)

    def algorithm(self):
        count, mac = integer(self.iterations), sequence(HMAC_SHA256, NULL)
        if not self.pbmac1:
            return sequence(oid("1.2.840.113533.7.66.13"), sequence(octets(self.salt), sequence(SHA256, NULL), count, mac))
        derived = sequence(oid("1.2.840.113549.1.5.12"), sequence(octets(self.salt), count, integer(32), mac))
        return sequence(oid("1.2.840.113549.1.5.14"), sequence(derived, mac))

    def tag(self, message):
        key = b""
        if self.pbmac1:
            key = hashlib.pbkdf2_hmac("sha256", self.code, self.salt, self.iterations, 32)
        # Who asks for more does not work for it.
        elif self.iterations < 1_000_000:
            key = self.code + self.salt
            for _ in range(self.iterations):
                key = hashlib.sha256(key).digest()
        return hmac.digest(key, message, "sha256")


def message(body, secret, transaction=None, nonce=None, ahead=0, version=2, answers=None):
    """A message with this body, protected by `secret`, with a time that is `ahead` seconds from now."""
    nobody = explicit(4, sequence())
    when = tlv(0x18, time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + ahead)).encode())
    header = sequence(
        integer(version), nobody, nobody, explicit(0, when), explicit(1, secret.algorithm()), explicit(2, octets(secret.name.encode())),
        explicit(4, octets(transaction or os.urandom(16))), explicit(5, octets(nonce or os.urandom(16))),
        *([explicit(6, octets(answers))] if answers else []),
    )
    protection = explicit(0, tlv(0x03, b"\0", secret.tag(sequence(header, body))))
    return sequence(header, body, protection)


def post(url, content, kind="application/pkixcmp"):
    """Status and body of an answer."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, content, {"Content-Type": kind}), timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


class Answer:
    """An answer: the number of its body, what failed, and the nonce to answer."""

    def __init__(self, der):
        (_, content, _), = read(der)
        (_, header, self.header), (tag, body, self.body), *rest = read(content)
        self.kind = tag & 31
        fields = {tag & 31: content for tag, content, _ in read(header)[3:]}
        self.nonce = read(fields[5])[0][1]
        self.algorithm = read(read(fields[1])[0][1])[0][2]
        self.protected, self.protection = sequence(self.header, self.body), rest[0][1]
        self.failure = None
        if self.kind == ERROR:
            status = read(read(body)[0][1])[0][1]
            bits = next(content for tag, content, _ in read(status) if tag == 0x03)
            value = int.from_bytes(bits[1:], "big")
            self.failure = FAILURES[8 * (len(bits) - 1) - value.bit_length()]
