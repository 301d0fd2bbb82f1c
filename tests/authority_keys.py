"""Issuing authorities whose keys are on a token: SoftHSM in the place of a security module."""

import concurrent.futures
import glob
import json
import os
import shutil
import signal
import socket
import time

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.harness import CORDON, Camera, Site, contains, cordon, equal, jpeg, run as run_command, wait_for

SOFTHSM = "/usr/lib/softhsm/libsofthsm2.so"
PIN = "97531"
KINDS = ["users", "devices", "services"]


def tool(*command, **options):
    return run_command("pkcs11-tool", "--module", SOFTHSM, "--token-label", "Authorities", *command, **options)


def token(suite):
    """A token with three keys, and the settings that name them."""
    folder = suite.folder / "tokens"
    folder.mkdir()
    config = suite.folder / "softhsm2.conf"
    config.write_text(f"directories.tokendir = {folder}\n")
    os.environ["SOFTHSM2_CONF"] = str(config)
    suite.finally_do(lambda: os.environ.pop("SOFTHSM2_CONF", None))
    run_command("softhsm2-util", "--init-token", "--free", "--label", "Authorities", "--so-pin", "13579", "--pin", PIN)
    for number, (kind, key) in enumerate(zip(KINDS, ["EC:secp384r1", "EC:prime256v1", "rsa:3072"])):
        tool("--login", "--pin", PIN, "--keypairgen", "--key-type", key, "--label", f"{kind}-ca", "--id", f"a{number}")
    pin = suite.folder / "pin"
    pin.touch(mode=0o600)
    pin.write_text(PIN)
    name = "pkcs11:token=Authorities;object={}?module-path=" + SOFTHSM
    lines = [f'{kind}_ca = "{name.format(kind + "-ca")}"' for kind in KINDS]
    return "[keys]\n" + "\n".join(lines) + f'\npin_file = "{pin}"\n', folder, pin


def refused(site, *words):
    done = run_command(CORDON, "up", *site.arguments(), "--log", "off", code=1, timeout=60)
    for word in words:
        contains(done.stderr, word)


def checked_by_openssl(suite, site):
    pki = site.data / "pki"
    with suite.case("certificates and lists of the token's keys stand before OpenSSL"):
        for kind in KINDS:
            run_command("openssl", "verify", "-x509_strict", "-CAfile", pki / "root.pem", pki / f"{kind}-ca.pem")
            both = suite.folder / "both.pem"
            both.write_text((pki / "root.pem").read_text() + (pki / f"{kind}-ca.pem").read_text())
            run_command("openssl", "crl", "-inform", "DER", "-in", pki / "crl" / f"{kind}.crl", "-CAfile", both, "-noout")
        equal(sorted(path.name for path in pki.glob("*.key")), ["root.key"])


def used(suite, site):
    with suite.case("people and cameras get certificates of the token's authorities, and are let in"):
        camera = Camera(site).start()
        camera.drop("one", jpeg(b"one"))
        camera.drain()
        camera.stop()
        equal(len(camera.receipts()), 1)
    site.verify_audit()


def issue(socket_path, name, csr):
    """Asks the running site for a device's certificate, as a command would."""
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(socket_path))
        control.sendall(json.dumps({"do": "openvpn", "device": {"name": name, "csr": csr}}).encode() + b"\n")
        control.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: control.recv(65536), b""))
    return json.loads(answer)["done"]["serial"]


def request():
    """A certification request by a new key, as the control socket takes it."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER).hex()


def many(suite, site, number):
    with suite.case(f"{number} devices at once get certificates of the token's P-256 key, each with its own serial number"):
        devices = [(f"device-{n}", request()) for n in range(number)]
        started = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            serials = list(pool.map(lambda device: issue(site.data / "control.sock", *device), devices))
        rate = number / (time.monotonic() - started)
        print(f"        {rate:.0f} certificates a second")
        equal(len(set(serials)), number)
        assert rate > 20, rate
    site.verify_audit()


def signers(site):
    """The processes with private keys of the running site."""
    parent = site.process.child.pid
    found = []
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            stat = open(f"{folder}/stat").read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(stat[1]) == parent and stat[0] != "Z":
            found.append(int(folder.rsplit("/", 1)[1]))
    return found


def hangs(suite, site):
    """A process that is stopped is what a token's library is that waits for its token: it answers nothing, and ends by itself no more."""
    issued = suite.folder / "before.p12"
    site.ask("pki", "issue-user", "--uid", "officer-2", "--out", issued)
    stopped = signers(site)
    with suite.case("while a token does not answer, suspensions go on, and who wants a certificate is told after ten seconds"):
        equal(len(stopped), len(KINDS), "processes with keys")
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        started = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            waiting = [
                pool.submit(
                    cordon, "pki", "issue-user", "--uid", "officer-2", "--out", suite.folder / f"hung-{n}.p12", *site.arguments(), code=1
                )
                for n in range(6)
            ]
            time.sleep(1)
            for act in ("suspend", "resume"):
                before = time.monotonic()
                site.ask("registry", act, "--device", "device-1", timeout=60)
                assert time.monotonic() - before < 5, (act, time.monotonic() - before)
            said = {one.result().stderr for one in waiting}
        assert time.monotonic() - started < 30, time.monotonic() - started
        for text in said:
            contains(text, "did not answer in time")
    with suite.case("the processes that did not answer are gone, and certificates are issued again"):
        wait_for(lambda: set(stopped) - set(signers(site)), "the end of one that did not answer", 30)
        # Those that nobody asked.
        for process in set(stopped) & set(signers(site)):
            os.kill(process, signal.SIGCONT)

        def again():
            out = suite.folder / f"after-{time.monotonic()}.p12"
            return cordon("pki", "issue-user", "--uid", "officer-2", "--out", out, *site.arguments(), code=None).returncode == 0

        wait_for(again, "a certificate", 60, pause=1)
    site.verify_audit()


def away(suite, site, folder, pin):
    gone = folder.with_name("gone")
    with suite.case("while the token is away the site runs on, and says what it cannot do"):
        folder.rename(gone)
        folder.mkdir()
        refused_now = cordon(
            "pki", "issue-user", "--uid", "officer-2", "--out", suite.folder / "none.p12", *site.arguments(), code=1
        ).stderr
        contains(refused_now, "the key's holder does not sign")
        contains(refused_now, "look after the token")
        assert site.process.running()
    with suite.case("back again, it is used without a restart"):
        folder.rmdir()
        gone.rename(folder)

        said = []

        def issued():
            out = suite.folder / f"again-{len(said)}.p12"
            done = cordon("pki", "issue-user", "--uid", "officer-2", "--out", out, *site.arguments(), code=None)
            said.append(done.stderr)
            return done.returncode == 0

        wait_for(issued, lambda: f"a certificate of the token that is back: {said[-1]}", 20, pause=1)
    site.stop()
    with suite.case("a wrong PIN, a missing key and an open PIN file stop the start, with the reason"):
        good = pin.read_text()
        pin.write_text("1111")
        refused(site, "PIN")
        pin.write_text(good)
        pin.chmod(0o644)
        refused(site, str(pin))
        pin.chmod(0o600)
        config = site.config.read_text()
        site.config.write_text(config.replace("object=users-ca", "object=other"))
        refused(site, "there is no public key of that name")
        site.config.write_text(config.replace("object=users-ca", "object=devices-ca"))
        refused(site, "certificate and key do not belong together")
        site.config.write_text(config)
        site.start()
        site.stop()


def swapped(suite, site):
    with suite.case("another key under the same name, while the site runs, certifies nothing"):
        site.start()
        for kind in ("privkey", "pubkey"):
            tool("--login", "--pin", PIN, "--delete-object", "--type", kind, "--label", "users-ca")
        tool("--login", "--pin", PIN, "--keypairgen", "--key-type", "EC:secp384r1", "--label", "users-ca", "--id", "a0")
        out = suite.folder / "other-key.p12"
        said = cordon("pki", "issue-user", "--uid", "officer-2", "--out", out, *site.arguments(), code=1).stderr
        contains(said, "the key's holder does not sign")
        assert not out.exists()
        site.verify_audit()
        site.stop()


def requested(suite, settings):
    """The same keys for a site whose root is elsewhere."""
    site = Site(suite, "elsewhere", settings)
    out = suite.folder / "requests"
    with suite.case("requests for a root elsewhere are signed by the token"):
        site.ask("pki", "request-authorities", "--out", out)
        for kind in KINDS:
            file = out / f"{kind}-ca.csr"
            run_command("openssl", "req", "-in", file, "-verify", "-noout")
        assert not list(site.data.rglob("*.key"))
        shutil.rmtree(site.data)


def run(suite):
    settings, folder, pin = token(suite)
    requested(suite, settings)
    site = Site(suite, settings=settings).start()
    site.people()
    checked_by_openssl(suite, site)
    used(suite, site)
    many(suite, site, 200)
    hangs(suite, site)
    away(suite, site, folder, pin)
    swapped(suite, site)
