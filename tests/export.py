"""Custody packages: three verifiers on a genuine one, on every byte, on forgeries, on left-out events."""

import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import types
import zipfile
from pathlib import Path

from tests import package_verifier
from tests.forgery import Forger, Signer
from tests.harness import CORDON, Camera, Site, contains, cordon, cordon_json, equal, jpeg, request, violation, wait_for
from tests.harness import run as run_command

# Megabytes of the film, and bytes that exporting it may take beyond what the site has anyway.
FILM_MB = 96
EXPORT_MEMORY = 48 << 20
# Random positions per file, besides the first, the middle and the last.
RANDOM_POSITIONS = 3
VECTORS = Path(__file__).parent / "vectors"


def run(suite):
    site = Site(suite).start()
    people = site.people()
    cameras = [Camera(site).start(), Camera(site, "camera-18").start()]
    cameras[1].drop("other", jpeg(b"other", 3_000))
    for number, level in enumerate((1, 2, 3), 1):
        cameras[0].drop(f"seen-{number}", jpeg(b"picture %d" % number, 20_000), classification=level)
    for camera in cameras:
        camera.drain()
        camera.stop()
    rows = people["reviewer-3"].get("/api/v1/violations")["rows"]
    rows = [row for row in rows if row["device"] == "camera-17"]
    check = Checks(site, suite.folder)
    packages = {}

    with suite.case("export while the site runs"):
        people["reviewer-3"].get(f"/api/v1/violations/{rows[0]['id']}")
        packages["running"] = export(people["reviewer-3"], rows[0]["id"], suite.folder / "running")
    with suite.case("the export is in the audit log"):
        details = people["reviewer-3"].get(f"/api/v1/violations/{rows[0]['id']}")
        actors = [step["actor"] for step in details["custody"] if step["action"] == "evidence.export"]
        equal(actors, ["Test reviewer-3"])
        (event,) = events(site, "evidence.export")
        contains(event["details"]["console"], f"unix:{os.getuid()}")
    with suite.case("only its owner reads the package"):
        package = packages["running"]
        modes = {path.stat().st_mode & 0o077 for path in [package, *package.rglob("*")]}
        equal(modes, {0})
    with suite.case("a command exports only what its person may: neither the console, nor too low a clearance, nor another role"):
        low = site.people([("keeper-0", 0, ["administrator", "reviewer"]), ("keeper-4", 4, ["administrator"])])
        level_3 = [row["id"] for row in rows if row["classification"] == 3][0]
        out = suite.folder / "refused"
        for proof, says in (
            ([], "needs a certificate"),
            (low["keeper-0"].signs(), "above your clearance"),
            (low["keeper-4"].signs(), "no rule permits"),
        ):
            line = ["evidence", "export", *site.arguments(), "--out", out, level_3, *proof, "--log", "off"]
            contains(cordon(*line, code=1).stderr, says)
            assert not out.exists() and not out.with_name("refused.partial").exists()
        denied = [event for event in events(site, "evidence.export") if event["outcome"] == "deny"]
        equal([event["actor"]["id"] for event in denied], [f"unix:{os.getuid()}", "keeper-0", "keeper-4"])
    with suite.case("export from the portal, as a ZIP file"):
        packages["portal"] = from_portal(people["reviewer-3"], rows[2]["id"], suite.folder / "zip")
    forgeries(suite, site, people, cameras, packages["running"], check)
    film(suite, site, people["reviewer-3"], cameras[0], check)
    site.stop()
    with suite.case("export of a stopped site"):
        packages["stopped"] = export(people["reviewer-3"], rows[1]["id"], suite.folder / "with spaces in its name")
    for name, package in packages.items():
        with suite.case(f"all three verifiers accept the package ({name})"):
            check.accepted(package)
    with suite.case("verify_package.py needs the standard library only"):
        for node in ast.walk(ast.parse(check.script.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in sys.stdlib_module_names, name
    with suite.case("the picture in the package is the camera's"):
        picture = next((packages["running"] / "media").iterdir()).read_bytes()
        number = picture[picture.index(b"picture ") + 8 :][:1].decode()
        assert number in "123", number
    with suite.case("the sealed block opens for the centre's key"):
        opened(site, packages["running"], suite.folder / "opened")
    with suite.case("a file more or less, or a link, is noticed"):
        for change in (
            lambda p: (p / "media/02-added.jpg").write_bytes(b"x"),
            lambda p: (p / "proofs.json").unlink(),
            lambda p: (p / "note.txt").write_bytes(b"x"),
            as_link,
        ):
            copy = suite.folder / "changed"
            shutil.copytree(packages["running"], copy)
            change(copy)
            check.refused(copy)
            shutil.rmtree(copy)
    flips(suite, packages["running"], check)
    vectors(suite)


def as_link(package):
    (package / "manifest.json").rename(package.parent / "elsewhere.json")
    (package / "manifest.json").symlink_to(package.parent / "elsewhere.json")


def events(site, action):
    shown = cordon_json("audit", "show", site.data / "audit" / "log", "--last", 1_000_000)
    found = [entry["leaf"]["event"] for entry in shown["entries"]]
    return [event for event in found if event["action"] == action]


def export(person, violation, out):
    answer = person.site.ask("evidence", "export", "--out", out, violation, by=person)
    equal(Path(answer["folder"]), out)
    return out


def from_portal(person, name, folder):
    page = person.request("GET", f"/violations/{name}")
    equal(page.status, 200)
    token = re.search(r'name="token" value="([^"]+)"', page.text)[1]
    cookies = "; ".join(value.split(";")[0] for value in page.headers.get_all("set-cookie") or [])
    headers = {"content-type": "application/x-www-form-urlencoded", "origin": f"https://localhost:{person.site.portal}"}
    if cookies:
        headers["cookie"] = cookies
    answer = person.request("POST", f"/violations/{name}/export", f"token={token}", headers)
    equal(answer.status, 200, f"status with {answer.text[:300]};")
    folder.mkdir()
    file = folder / "package.zip"
    file.write_bytes(answer.body)
    with zipfile.ZipFile(file) as archive:
        equal(archive.testzip(), None)
        archive.extractall(folder)
    return folder / name


def opened(site, package, out):
    keys = site.data / "keys"
    key = sorted(keys.glob("sealing-*.key"))[-1]
    arguments = ["--key", key, "--certificate", key.with_suffix(".pem"), "--root", package / "root.pem"]
    arguments += ["--passphrase-file", site.data / "passphrase", package / "block.cordon"]
    assert cordon_json("evidence", "verify", *arguments)["verified"]
    cordon_json("evidence", "open", "--out", out, *arguments)
    equal((out / "manifest.json").read_bytes(), (package / "manifest.json").read_bytes(), "manifest")


def film(suite, site, person, camera, check):
    """A film far larger than the memory that an export may take, and an export that is killed."""
    size = FILM_MB << 20
    part = camera.folder / "film.part"
    with part.open("wb") as out:
        for _ in range(FILM_MB):
            out.write(random.randbytes(1 << 20))
    part.rename(camera.incoming / "film.mp4")
    facts = camera.folder / "film.json.part"
    facts.write_text(json.dumps(violation()))
    facts.rename(camera.incoming / "film.json")
    camera.start()
    wait_for(lambda: not list(camera.incoming.glob("film.*")) and not camera.blocks(), "the film's receipt", 180)
    camera.stop()
    rows = person.get("/api/v1/violations")["rows"]
    name = max(rows, key=lambda row: row["captured_at"])["id"]
    with suite.case(f"a film of {FILM_MB} MB is exported from the portal in bounded memory"):
        process = site.process.child.pid
        Path(f"/proc/{process}/clear_refs").write_text("5")
        before = memory(process, "VmRSS")
        package = from_portal(person, name, suite.folder / "film")
        grown = memory(process, "VmHWM") - before
        print(f"        {grown >> 20} MB more at the most")
        assert grown < EXPORT_MEMORY, f"{grown >> 20} MB more than before"
        assert next((package / "media").iterdir()).stat().st_size == size
        check.accepted(package)
    with suite.case("an export that is killed half-way leaves no plaintext"):
        out = suite.folder / "killed"
        line = [CORDON, "evidence", "export", *site.arguments(), "--out", out, name, *person.signs()]
        asking = subprocess.Popen(list(map(str, line)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        partial = out.with_name("killed.partial")
        wait_for(lambda: (partial / "media").is_dir(), "the export to reach the film", 60, 0.005)
        site.process.kill()
        asking.wait(60)
        assert not out.exists(), "the export was complete before it could be killed"
        left = [path for path in partial.rglob("*") if path.is_file()]
        equal(left, [], "files of a killed export")
        shutil.rmtree(partial)
        site.start()


def memory(process, field):
    """A value of /proc/PID/status in bytes."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise AssertionError(field)


class Checks:
    """The program, the script and the verifier written from the document, on one package."""

    def __init__(self, site, folder):
        self.trust = folder / "trust.json"
        self.script = folder / "own_verify_package.py"
        self.script.write_text(cordon("evidence", "script").stdout)
        if site:
            self.trust.write_text(cordon("evidence", "trust", *site.arguments()).stdout)

    def program(self, package, trust=None, lists=()):
        options = [part for path in lists for part in ("--crl", path)]
        return cordon("evidence", "check", "--trust", trust or self.trust, *options, package, code=None)

    def by_script(self, package, trust=None, lists=()):
        options = [str(part) for path in lists for part in ("--crl", path)]
        line = [sys.executable, self.script, "--trust", trust or self.trust, *options, package]
        return subprocess.run(list(map(str, line)), capture_output=True, text=True, timeout=60)

    def independent(self, package, trust=None, lists=()):
        from cryptography import x509

        extra = [x509.load_pem_x509_crl(p) for path in lists for p in pems(Path(path).read_bytes())]
        try:
            return True, package_verifier.verify(package, json.loads((trust or self.trust).read_text()), extra)
        except package_verifier.Refused as refusal:
            return False, str(refusal)

    def all(self, package, trust=None, lists=()):
        """What each of them says: whether it accepts, and its words."""
        done, script = self.program(package, trust, lists), self.by_script(package, trust, lists)
        assert done.returncode in (0, 1) and script.returncode in (0, 1), (done, script)
        assert "Traceback" not in script.stderr, script.stderr
        return {
            "program": (done.returncode == 0, done.stdout + done.stderr),
            "script": (script.returncode == 0, script.stdout + script.stderr),
            "independent": self.independent(package, trust, lists),
        }

    def accepted(self, package, trust=None, lists=()):
        said = self.all(package, trust, lists)
        assert all(good for good, _ in said.values()), said
        return said

    def refused(self, package, trust=None, lists=(), because=None):
        """All refuse; `because` is what each must say, by regular expression."""
        said = self.all(package, trust, lists)
        assert not any(good for good, _ in said.values()), said
        for who, expected in (because or {}).items():
            assert re.search(expected, said[who][1], re.I | re.S), (who, expected, said)
        return said


def pems(data):
    mark = b"-----BEGIN X509 CRL-----"
    return [mark + part for part in data.split(mark)[1:]]


def forgeries(suite, site, people, cameras, genuine, check):
    """Everything that a holder of some certificate of the site can make of a package."""
    officer = people["officer-2"]
    data, pass_site = site.data, site.data / "passphrase"
    openvpn = suite.folder / "openvpn"
    kinds = {
        "user": Signer(officer.cert, officer.key),
        "camera": Signer(cameras[0].folder / "identity.pem", None, cameras[0].folder / "passphrase"),
        "other camera": Signer(cameras[1].folder / "identity.pem", None, cameras[1].folder / "passphrase"),
        "server": Signer(data / "keys/server.pem", data / "keys/server.key", pass_site),
        "receipts": Signer(data / "keys/receipts.pem", data / "keys/receipts.key", pass_site),
        "recipient": Signer(data / "keys/sealing-1.pem", data / "keys/sealing-1.key", pass_site),
    }
    for name, signer in gateway_certificates(site, openvpn).items():
        kinds[name] = signer
    forger = Forger(genuine, suite.folder)
    lists = suite.folder / "lists.pem"

    def forged(name, **signers):
        return forger.make(name, kinds["camera"], kinds["receipts"], kinds["receipts"], **signers)

    with suite.case("the forger's tools are good: with the right certificates and its own log pinned, all accept"):
        package, trust = forged("right")
        check.accepted(package, trust)
        # The log of the forger is not that of the site.
        check.refused(package, because={who: "log|checkpoint" for who in ("program", "script", "independent")})
    for kind, signer in kinds.items():
        for part, right in (("manifest", "camera"), ("receipt", "receipts"), ("package", "receipts")):
            if kind == right:
                continue
            with suite.case(f"{part} signed with the certificate of a {kind} is refused by all"):
                package, trust = forged(f"{kind}-{part}", **{part: signer})
                check.refused(package)
                role = {"program": "role|certificate|device", "script": "certificate", "independent": "step 7"}
                if kind != "recipient":
                    check.refused(package, trust, because=role)
                check.refused(package, trust)
    for part in ("receipt", "package"):
        with suite.case(f"a {part} by the role that signs trust bundles is refused by all"):
            bundles = Signer(data / "keys/trust-bundle.pem", data / "keys/trust-bundle.key", pass_site)
            package, trust = forged(f"bundle-{part}", **{part: bundles})
            role = {"program": "role", "script": "role", "independent": "step 7"}
            check.refused(package, trust, because=role)
    with suite.case("a manifest by a tunnel's certificate that has the camera's own name is refused by all"):
        names = cameras[0].device
        tunnel = gateway_certificates(site, suite.folder / "openvpn-camera", names)["gateway"]
        package, trust = forged("tunnel-manifest", manifest=tunnel)
        role = {"program": "camera", "script": "not for signing evidence", "independent": "extended key usage"}
        check.refused(package, trust, because=role)
    with suite.case("and it cannot upload either"):
        headers = {"Tus-Resumable": "1.0.0", "Upload-Length": "10"}
        who = identity_of(tunnel, suite.folder)
        answer = request(site.intake, "POST", "/intake/v1/files", site.root, who, headers=headers)
        equal((answer.status, answer.json()["code"]), (403, "vpn-only"))
    with suite.case("a forged log is given away by the checkpoint in the receipt"):
        package, trust = forged("genuine-checkpoint", genuine_checkpoint=True)
        check.refused(package, trust, because={who: "checkpoint|step 5" for who in ("program", "script", "independent")})
    with suite.case("a whole package by an officer, with an own log, is refused"):
        package, trust = forger.make("officer", *[kinds["user"]] * 3)
        check.refused(package)
        check.refused(package, trust)
    with suite.case("an event left out of the genuine package, signed again by the centre's key, is refused"):
        for number in range(3):
            package = forger.without_event(genuine, number, kinds["receipts"])
            check.refused(package, because={"independent": "step [36]"})
    with suite.case("packages of earlier versions are refused, and all say why"):
        copy = suite.folder / "earlier"
        shutil.copytree(genuine, copy)
        (copy / "package.json").unlink()
        said = check.refused(copy)
        assert all("earlier version" in words for _, words in said.values()), said
    # A running site renews what is revoked: the thief keeps the former key.
    stolen = [shutil.copy(data / f"keys/receipts.{name}", suite.folder) for name in ("pem", "key")]
    kinds["receipts"] = Signer(*stolen, pass_site)
    with suite.case("revocation after its use: accepted with newer lists, and said"):
        serial = run_command("openssl", "x509", "-in", data / "keys/receipts.pem", "-noout", "-serial").stdout
        serial = serial.strip().split("=")[1]
        cordon("pki", "revoke", *site.arguments(), "--serial", serial, "--reason", "key-compromise")
        cordon("vpn", "openvpn-crl", *site.arguments(), "--out", lists)
        said = check.accepted(genuine, lists=[lists])
        assert all("revoked at" in str(words) for _, words in said.values()), said
    with suite.case("a receipt by a revoked signer is refused"):
        package, trust = forged("revoked", lists=lists)
        check.refused(package, trust, because={who: "revoked" for who in ("program", "script", "independent")})
        site.stop()
        # The site gets another certificate for receipts, as after a theft.
        for file in (data / "keys").glob("receipts.*"):
            file.unlink()
        site.start()


def identity_of(signer, folder):
    leaf, _, key = signer.files(folder)
    return types.SimpleNamespace(cert=leaf, key=key)


def gateway_certificates(site, folder, device="gateway-1"):
    """Certificates of an OpenVPN server and of a device that connects to it."""
    cordon("vpn", "openvpn-profile", *site.arguments(), "--server", "gateway.example.org", "--device", device, "--out", folder)
    made = {}
    for name, file in (("openvpn server", "server.conf"), ("gateway", f"{device}.ovpn")):
        text = (folder / file).read_text()
        certificates = "".join(re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", text, re.S))
        own = re.search(r"<cert>\n(.*?)</cert>", text, re.S)[1]
        key = re.search(r"<key>\n(.*?)</key>", text, re.S)[1]
        place = folder / f"{name.replace(' ', '-')}.pem"
        place.write_text(own + certificates.replace(own, "") + key)
        made[name] = Signer(place, None)
    return made


def flips(suite, package, check):
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    files = sorted(path for path in package.rglob("*") if path.is_file())
    with suite.case(f"one flipped byte anywhere is noticed, in each of {len(files)} files (seed {seed})"):
        count = 0
        for path in files:
            original = path.read_bytes()
            size = len(original)
            positions = {0, size // 2, size - 1, *(dice.randrange(size) for _ in range(RANDOM_POSITIONS))}
            for position in sorted(positions):
                changed = bytearray(original)
                changed[position] ^= 1 << dice.randrange(8)
                path.write_bytes(changed)
                place = f"byte {position} of {path.relative_to(package)} changed unnoticed by the"
                assert check.program(package).returncode == 1, f"{place} program"
                assert not check.independent(package)[0], f"{place} independent verifier"
                if position == size // 2:
                    assert check.by_script(package).returncode == 1, f"{place} script"
                count += 1
            path.write_bytes(original)
        check.accepted(package)
        print(f"        {count} flips")


def vectors(suite):
    """The published package is valid for ever; each published change is not."""
    check = Checks(None, suite.folder)
    trust = VECTORS / "trust.json"
    with suite.case("the published package is valid"):
        check.accepted(VECTORS / "package", trust)
    for line in (VECTORS / "README.md").read_text().splitlines():
        match = re.fullmatch(r"\| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \| (\d) \|", line)
        if not match:
            continue
        file, old, new, step = match.groups()
        with suite.case(f"the published package with {old} for {new} in {file} is refused"):
            copy = suite.folder / "vector"
            shutil.copytree(VECTORS / "package", copy)
            path = copy / file
            data = path.read_bytes()
            assert old.encode() in data
            path.write_bytes(data.replace(old.encode(), new.encode(), 1))
            # Hashes are right, so that the step itself is asked.
            rewrite_sums(copy)
            check.refused(copy, trust, because={"independent": f"step {step}"})
            shutil.rmtree(copy)


def rewrite_sums(package):
    from tests.forgery import sums

    (package / "SHA256SUMS").write_bytes(sums(package))
