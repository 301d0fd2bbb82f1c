"""A program as it is over the kernel's crypto API: OpenSSL, by its engine for AF_ALG."""

import hashlib
import secrets
import subprocess
from pathlib import Path

FOLDER = Path("/run/clients")
# Bytes that it moves, and of one write.
SIZE, PIECE = 10_000_000, 32_768


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def execute(*command, seconds):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=seconds, cwd=FOLDER)
    assert done.returncode == 0, done


def engine(seconds):
    """A file encrypted by OpenSSL's engine, opened by OpenSSL without it; the requests that it takes at least."""
    FOLDER.mkdir(exist_ok=True)
    plain = FOLDER / "content"
    plain.write_bytes(secrets.token_bytes(SIZE))
    key = ["-aes-128-cbc", "-K", secrets.token_hex(16), "-iv", secrets.token_hex(16)]
    execute("openssl", "enc", "-engine", "afalg", *key, "-bufsize", PIECE, "-in", plain, "-out", "sealed", seconds=seconds)
    execute("openssl", "enc", "-d", *key, "-in", "sealed", "-out", "opened", seconds=seconds)
    assert digest(FOLDER / "opened") == digest(plain)
    return SIZE // PIECE
