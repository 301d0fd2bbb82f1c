"""A CA and the certificates `ours` and `theirs`, by openssl."""

import subprocess

KEYS = {
    "rsa": "-algorithm RSA -pkeyopt rsa_keygen_bits:2048",
    "rsa4096": "-algorithm RSA -pkeyopt rsa_keygen_bits:4096",
    "ecdsa": "-algorithm EC -pkeyopt ec_paramgen_curve:P-256",
}
CA = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n"
LEAF = "subjectAltName=DNS:{0}.example.org,email:{0}@example.org\nextendedKeyUsage=serverAuth,clientAuth\n"
LEAF += "keyUsage=critical,digitalSignature\n"


def execute(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done
    return done.stdout


def authority(folder, kind, levels=2):
    """With three levels there is one between, in `issuing.pem` and in ours, which is sent with its chain."""
    pki = folder / "pki"
    pki.mkdir()

    def made(name, subject, extensions, issuer=None):
        (pki / f"{name}.key").touch(mode=0o600)
        execute("openssl", "genpkey", *KEYS[kind].split(), "-out", f"{name}.key", cwd=pki)
        (pki / "extensions").write_text(extensions)
        execute("openssl", "req", "-new", "-key", f"{name}.key", "-subj", f"/CN={subject}", "-out", "csr", cwd=pki)
        signer = ["-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", "-CAcreateserial"] if issuer else ["-signkey", f"{name}.key"]
        execute(*"openssl x509 -req -in csr -days 2 -extfile extensions -out".split(), f"{name}.pem", *signer, cwd=pki)

    made("ca", "CA", CA)
    if levels == 3:
        made("issuing", "Issuing", CA, "ca")
    for name in ["ours", "theirs"]:
        made(name, f"{name}.example.org", LEAF.format(name), "issuing" if levels == 3 else "ca")
    if levels == 3:
        with open(pki / "ours.pem", "a") as chain:
            chain.write((pki / "issuing.pem").read_text())
    return pki
