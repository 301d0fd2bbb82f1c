"""The experimental authority: what it signs with ML-DSA-65 another implementation verifies, and no site takes any of it."""

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import mldsa
from cryptography.hazmat.primitives.serialization import (
    Encoding, NoEncryption, PrivateFormat, PublicFormat, load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.harness import Site, contains, cordon, equal
from tests.requests import REQUEST, enrol, make_csr

# RFC 9881, section 2.
ML_DSA_65 = "2.16.840.1.101.3.4.3.18"
SECRET = "a passphrase for this test"


def certificates(file):
    return x509.load_pem_x509_certificates(file.read_bytes())


def request_of(folder, key, name="officer-9"):
    """A certification request that `cryptography` makes, with its proof of possession."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, None)
    file = folder / "officer-9.csr"
    file.write_bytes(made.public_bytes(Encoding.PEM))
    return file


def refuses(verify, *arguments):
    try:
        verify(*arguments)
    except InvalidSignature:
        return
    raise AssertionError("a signature over something else is good")


def run(suite):
    folder = suite.folder
    config, secret, place = folder / "pq.toml", folder / "secret", folder / "pq"
    secret.write_text(SECRET + "\n")

    def give(*command, code=0, configured=True):
        named = ("--config", config) if configured else ()
        line = ("pki", "post-quantum", *command, *named, "--folder", place, "--passphrase-file", secret)
        return cordon(*line, code=code)

    with suite.case("it is off unless the configuration says otherwise, and says that it is an experiment"):
        for text in ("", "[experimental]\nml_dsa = false\n"):
            config.write_text(text)
            contains(give("authority", code=1).stderr, "ML-DSA is experimental, and off")
        contains(give("authority", code=1, configured=False).stderr, "write `ml_dsa = true` below `[experimental]`")
        assert not place.exists()
        config.write_text('[site]\norganisation = "LEA-FR"\ncountry = "FR"\n[experimental]\nml_dsa = true\n')
        contains(give("authority").stderr, "experimental")
        contains(give("authority", code=1).stderr, "is there already")

    key = mldsa.MLDSA65PrivateKey.generate()
    (root,), (issuing,) = certificates(place / "root.pem"), certificates(place / "users-ca.pem")
    with suite.case("`cryptography` verifies root, authority, certificate and lists, in the encodings of RFC 9881"):
        out = folder / "officer-9.pem"
        owner = ("--uid", "officer-9", "--name", "Ninth Officer", "--email", "nine@police.example", "--days", 90)
        give("certify", "--csr", request_of(folder, key), *owner, "--out", out)
        leaf, above, top = certificates(out)
        equal((above, top), (issuing, root))
        for certificate, issuer in ((root, root), (issuing, root), (leaf, issuing)):
            equal(certificate.signature_algorithm_oid.dotted_string, ML_DSA_65)
            certificate.verify_directly_issued_by(issuer)
            refuses(issuer.public_key().verify, certificate.signature, certificate.tbs_certificate_bytes + b"x")
        # The key is the one of the request, and what it signs verifies with the certificate.
        spki = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        equal(leaf.public_key().public_bytes(*spki), key.public_key().public_bytes(*spki))
        leaf.public_key().verify(key.sign(b"a document"), b"a document")
        refuses(leaf.public_key().verify, key.sign(b"a document"), b"another one")
        names = {attribute.oid: attribute.value for attribute in leaf.subject}
        equal((names[NameOID.COUNTRY_NAME], names[NameOID.ORGANIZATION_NAME], names[NameOID.USER_ID]), ("FR", "LEA-FR", "officer-9"))
        usage = leaf.extensions.get_extension_for_class(x509.KeyUsage).value
        equal((usage.digital_signature, usage.content_commitment, usage.key_encipherment, usage.key_cert_sign), (True, True, False, False))
        purposes = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        equal([one.dotted_string for one in purposes], ["1.3.6.1.5.5.7.3.36"])
        assert ExtendedKeyUsageOID.CLIENT_AUTH not in purposes
        for name, issuer in (("root.crl", root), ("users.crl", issuing)):
            listed = x509.load_der_x509_crl((place / name).read_bytes())
            equal((listed.signature_algorithm_oid.dotted_string, len(listed)), (ML_DSA_65, 0))
            assert listed.is_signature_valid(issuer.public_key())

    with suite.case("its keys are PKCS#8 that `cryptography` reads, and they are those of the certificates"):
        for name, certificate in (("root.key", root), ("users-ca.key", issuing)):
            file = place / name
            equal(file.stat().st_mode & 0o777, 0o600)
            loaded = load_pem_private_key(file.read_bytes(), SECRET.encode())
            equal(loaded.public_key(), certificate.public_key())
            # RFC 9881, section 6: the seed alone.
            equal(len(loaded.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())), 54)

    with suite.case("a revoked certificate is on the next list, which `cryptography` verifies, with a higher number"):
        give("list", "--revoke", out, "--reason", "key-compromise")
        give("list")
        listed = x509.load_der_x509_crl((place / "users.crl").read_bytes())
        assert listed.is_signature_valid(issuing.public_key())
        equal(listed.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number, 3)
        entry = listed.get_revoked_certificate_by_serial_number(leaf.serial_number)
        equal(entry.extensions.get_extension_for_class(x509.CRLReason).value.reason, x509.ReasonFlags.key_compromise)
        contains(give("list", "--revoke", place / "root.pem", code=1).stderr, "not this authority's")

    with suite.case("a request without proof of possession, of another kind of key, or with another passphrase gives nothing"):
        good = request_of(folder, key).read_bytes()
        der = bytearray(x509.load_pem_x509_csr(good).public_bytes(Encoding.DER))
        der[-100] ^= 1
        (folder / "forged.csr").write_bytes(der)
        refused = ("--uid", "officer-9", "--name", "Ninth Officer", "--out", folder / "no.pem")
        contains(give("certify", "--csr", folder / "forged.csr", *refused, code=1).stderr, "does not prove possession")
        classical = make_csr(folder, "classical", "/CN=officer-9")
        contains(give("certify", "--csr", classical, *refused, code=1).stderr, "nothing was issued")
        smaller = request_of(folder, mldsa.MLDSA44PrivateKey.generate())
        give("certify", "--csr", smaller, *refused, code=1)
        give("certify", "--csr", request_of(folder, key), *refused, "--days", 731, code=1)
        secret.write_text("another passphrase\n")
        give("certify", "--csr", request_of(folder, key), *refused, code=1)
        assert not (folder / "no.pem").exists()

    with suite.case("a site certifies no such key and takes no such profile, with the switch on as well"):
        site = Site(suite, settings="[experimental]\nml_dsa = true\n").start()
        site.people()
        staff = enrol(site, ("clerk", "officer", 4))
        contains(site.log.read_text(), "experimental.ml_dsa is on")
        person = staff["clerk"].p12
        proof = ("--as", person, "--as-password-file", person.with_name(f"{person.name}.password"))
        asked = (*REQUEST, "new", "issue", "--uid", "clerk", "--csr", request_of(folder, key, "clerk"), "--reason", "new")
        contains(cordon(*asked, *site.arguments(), *proof, "--log", "off", code=1).stderr, "refused (key-kind)")
        profile = folder / "own.toml"
        profile.write_text('name = "own"\nissuer = "users"\n[names]\nuid = "required"\n[key_usage]\nml_dsa_65 = ["digitalSignature"]\n'
                           '[extended_key_usage]\npurposes = ["documentSigning"]\n')
        contains(cordon("pki", "profile", "put", profile, *site.arguments(), "--log", "off", code=1).stderr, "is experimental")
        site.stop()
