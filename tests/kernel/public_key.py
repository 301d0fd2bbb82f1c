"""Public-key verification by the kernel (keyctl, KEYCTL_PKEY_VERIFY), beside the library.

    python public_key.py        prints both as JSON
"""

import ctypes
import datetime
import errno
import json
import os
import statistics
import sys
import time

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

# System calls of x86-64, and what keyctl is asked for (linux/keyctl.h).
ADD_KEY, KEYCTL = 248, 250
UNLINK, QUERY, VERIFY = 9, 24, 28
PROCESS_KEYRING = -2
# Rounds in which library and kernel take turns, seconds that each takes of one, and signatures at most.
ROUNDS, SECONDS, OPERATIONS = 9, 0.02, 200
LIBC = ctypes.CDLL(None, use_errno=True)


class Parameters(ctypes.Structure):
    """struct keyctl_pkey_params."""

    _fields_ = [("key", ctypes.c_int32), ("digest_length", ctypes.c_uint32), ("signature_length", ctypes.c_uint32),
                ("spare", ctypes.c_uint32 * 7)]


def call(*arguments):
    result = LIBC.syscall(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class KernelKey:
    """The public key of a certificate, in the kernel; it goes with the process at the latest."""

    def __init__(self, certificate, encoding):
        self.info = f"enc={encoding} hash=sha256".encode()
        self.key = call(ADD_KEY, b"asymmetric", b"cordon-test", certificate, ctypes.c_size_t(len(certificate)), PROCESS_KEYRING)

    def verify(self, digest, signature):
        parameters = Parameters(self.key, len(digest), len(signature))
        try:
            call(KEYCTL, VERIFY, ctypes.byref(parameters), self.info, digest, signature)
            return True
        except OSError as error:
            # Another message's signature, and one that is no number below the modulus.
            if error.errno in (errno.EKEYREJECTED, errno.EBADMSG, errno.EINVAL):
                return False
            raise

    def close(self):
        call(KEYCTL, UNLINK, self.key, PROCESS_KEYRING)


def certificate(key):
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "public key")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(days=2))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def hashed(data):
    digest = hashes.Hash(hashes.SHA256())
    digest.update(data)
    return digest.finalize()


def kinds():
    """Keys with the encoding of their signatures for keyctl, and what the library takes beside a signature."""
    for size in (2048, 4096):
        yield f"RSA-{size}", rsa.generate_private_key(65537, size), "pkcs1", (padding.PKCS1v15(), Prehashed(hashes.SHA256()))
    yield "ECDSA P-256", ec.generate_private_key(ec.SECP256R1()), "x962", (ec.ECDSA(Prehashed(hashes.SHA256())),)


def microseconds(work, *arguments):
    began = time.perf_counter()
    done = 0
    while done == 0 or done < OPERATIONS and time.perf_counter() - began < SECONDS:
        assert work(*arguments)
        done += 1
    return (time.perf_counter() - began) / done * 1e6


def compare(name, key, encoding, scheme):
    """Right and wrong signatures by both; then their time. None if the kernel has no such keys."""
    try:
        kernel = KernelKey(certificate(key), encoding)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.ENODEV, errno.ENOENT, errno.ENOPKG, errno.EBADMSG):
            return None
        raise
    public = key.public_key()

    def library(digest, signature):
        try:
            public.verify(signature, digest, *scheme)
            return True
        except InvalidSignature:
            return False

    for number in range(40):
        digest = hashed(f"message {number}".encode())
        signature = key.sign(digest, *scheme)
        assert kernel.verify(digest, signature) and library(digest, signature)
        other = hashed(b"another message")
        damaged = bytearray(signature)
        damaged[-1 - number % (len(signature) // 2)] ^= 1 << number % 8
        for digest, signature in ((other, signature), (digest, bytes(damaged))):
            assert not library(digest, signature) and not kernel.verify(digest, signature), (name, number)
    for wrong in (b"", signature[:-1], signature + b"\0", bytes(len(signature)), b"\xff" * len(signature)):
        assert not kernel.verify(hashed(b"x"), wrong), (name, wrong)
    digest = hashed(b"message")
    signature = key.sign(digest, *scheme)
    times = [(microseconds(library, digest, signature), microseconds(kernel.verify, digest, signature)) for _ in range(ROUNDS)]
    # The call alone, by a request that verifies nothing.
    parameters = Parameters(kernel.key)
    asked = ctypes.create_string_buffer(64)
    query = microseconds(lambda: call(KEYCTL, QUERY, kernel.key, None, kernel.info, asked) == 0)
    kernel.close()
    medians = [round(statistics.median(column), 1) for column in zip(*times)]
    ranges = [[round(min(column), 1), round(max(column), 1)] for column in zip(*times)]
    return {"key": name, "library": medians[0], "library_range": ranges[0], "kernel": medians[1], "kernel_range": ranges[1],
            "call": round(query, 1), "unit": "µs for a verification"}


def measure():
    """A line for each kind of key that the kernel has."""
    results = [compare(*kind) for kind in kinds()]
    return [result for result in results if result]


def said(results):
    return "; ".join(f"{result['key']}: {result['kernel']} µs by the kernel, {result['library']} µs by the library"
                     for result in results)


if __name__ == "__main__":
    found = measure()
    for result in found:
        print(json.dumps(result, ensure_ascii=False))
    sys.exit(0 if found else "the kernel has no public keys")
