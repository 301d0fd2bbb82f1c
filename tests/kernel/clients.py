"""Programs as they are over the kernel's crypto API: OpenSSL by its engine for AF_ALG, GnuTLS by the kernel's TLS."""

import hashlib
import os
import secrets
import subprocess
import sys
from pathlib import Path

FOLDER = Path("/run/clients")
# Bytes that each moves, and of one write of OpenSSL.
SIZE, PIECE = 10_000_000, 32_768
# Bytes of data in a record of TLS.
RECORD = 16_384
PORT = 4433
SERVER = """
import http.server, ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("certificate", "key")
server = http.server.ThreadingHTTPServer(("127.0.0.1", {port}), http.server.SimpleHTTPRequestHandler)
server.socket = context.wrap_socket(server.socket, server_side=True)
print("ready", flush=True)
server.serve_forever()
"""


def content():
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "content"
    if not path.exists():
        path.write_bytes(secrets.token_bytes(SIZE))
    return path


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def execute(*command, seconds, **environment):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=seconds, cwd=FOLDER,
                          env={**os.environ, **environment})
    assert done.returncode == 0, done
    return done.stdout


def engine(seconds):
    """A file encrypted by OpenSSL's engine, opened by OpenSSL without it; the requests that it takes at least."""
    plain = content()
    key = ["-aes-128-cbc", "-K", secrets.token_hex(16), "-iv", secrets.token_hex(16)]
    execute("openssl", "enc", "-engine", "afalg", *key, "-bufsize", PIECE, "-in", plain, "-out", "sealed", seconds=seconds)
    execute("openssl", "enc", "-d", *key, "-in", "sealed", "-out", "opened", seconds=seconds)
    assert digest(FOLDER / "opened") == digest(plain)
    return SIZE // PIECE


def tls_counts():
    """What the kernel's TLS says of its connections."""
    lines = Path("/proc/net/tls_stat").read_text().splitlines()
    return {name: int(number) for name, number in (line.split() for line in lines)}


def gnutls(seconds):
    """A file fetched by wget, which uses GnuTLS, whose records the kernel opens; the requests that it takes at least."""
    plain = content()
    execute("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=server", "-addext",
            "subjectAltName=IP:127.0.0.1", "-keyout", "key", "-out", "certificate", seconds=seconds)
    (FOLDER / "gnutls.conf").write_text("[global]\nktls = true\n")
    server = subprocess.Popen([sys.executable, "-c", SERVER.format(port=PORT)], cwd=FOLDER, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert server.stdout.readline() == "ready\n"
        before = tls_counts()
        execute("wget", "-q", "--tries=1", f"--timeout={seconds}", "--ca-certificate=certificate", "-O", "fetched",
                f"https://127.0.0.1:{PORT}/{plain.name}", seconds=seconds, GNUTLS_SYSTEM_PRIORITY_FILE=str(FOLDER / "gnutls.conf"))
        now = tls_counts()
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    assert digest(FOLDER / "fetched") == digest(plain)
    assert now["TlsRxSw"] == before["TlsRxSw"] + 1 and now["TlsDecryptError"] == before["TlsDecryptError"], (before, now)
    return SIZE // RECORD
