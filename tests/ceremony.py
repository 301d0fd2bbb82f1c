"""A root that is elsewhere: requests, ceremonies with their records, and what a site installs of them."""

import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import subprocess
import time

from tests.harness import CORDON, Camera, Site, contains, cordon, cordon_json, equal, jpeg, run as run_command, wait_for

KINDS = ["users", "devices", "services"]


class Root:
    """The machine of the root: its folder, its passphrase, and scripts."""

    def __init__(self, folder):
        self.home = folder / "offline"
        self.home.mkdir()
        self.folder = self.home / "root"
        self.passphrase = self.home / "passphrase"
        self.passphrase.write_text("a sentence on paper in a safe\n")
        self.script = self.home / "script.toml"
        self.first = cordon("pki", "ceremony", "script").stdout

    def arguments(self):
        return ["pki", "ceremony", "run", self.script, "--root", self.folder, "--passphrase-file", self.passphrase]

    def hold(self, text, **options):
        self.script.write_text(text)
        return cordon(*self.arguments(), "--yes", "--json", **options)

    def number(self, number):
        return self.folder / "ceremonies" / f"{number:04}"

    def later(self, *acts):
        """A script with the same head and these acts."""
        return self.first[: self.first.index("[[act]]")] + "\n".join("[[act]]\n" + act for act in acts)


def openssl(*arguments, code=0, **options):
    return run_command("openssl", *arguments, code=code, **options)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def requests(suite, site, root):
    out = suite.folder / "requests"
    with suite.case("an empty site requests its authorities, and makes no root of its own from then on"):
        site.ask("pki", "request-authorities", "--out", out)
        equal(sorted(path.name for path in out.iterdir()), sorted(f"{kind}-ca.csr" for kind in KINDS))
        for kind in KINDS:
            shown = openssl("req", "-in", out / f"{kind}-ca.csr", "-verify", "-noout", "-subject")
            contains(shown.stdout, f"LEA-EU {kind} CA")
        refused = cordon("up", *site.arguments(), "--log", "off", code=1, timeout=60).stderr
        contains(refused, "has requested its authorities from a root elsewhere")
        contains(refused, "install-authorities")
        again = suite.folder / "again"
        site.ask("pki", "request-authorities", "--out", again)
        for kind in KINDS:
            keys = [openssl("req", "-in", folder / f"{kind}-ca.csr", "-pubkey", "-noout").stdout for folder in (out, again)]
            equal(keys[0], keys[1], f"key of {kind}")
    for kind in KINDS:
        shutil.copy(out / f"{kind}-ca.csr", root.home)


def scripts(suite, root):
    head = root.first
    mistakes = [
        ("list_days = 400", "list_days = 0", "list_days must be"),
        ('country = "EU"', 'country = "eu"', "country must be two upper-case letters"),
        ('name = "B. Example"', 'name = "A. Example"', "A. Example is there twice"),
        ('do = "create-root"', 'do = "make-root"', "unknown variant `make-root`"),
        ("years = 20", "years = 200", "act 1: years must be"),
        ('request = "users-ca.csr"', 'request = "../users-ca.csr"', "no name of a file beside the script"),
        ('request = "users-ca.csr"', 'request = "missing.csr"', "missing.csr"),
        ('request = "users-ca.csr"', 'request = "devices-ca.csr"', "it asks for the name"),
        ('organisation = "LEA-EU"', 'organisation = "LEA-XX"', "it asks for the name"),
        ("highest_clearance = 3", "highest_clearance = 5", "clearance level 5"),
        ('kind = "users"', 'kind = "cars"', "unknown kind of authority"),
        ('title = "', 'tilte = "', "unknown field"),
    ]
    for old, new, word in mistakes:
        with suite.case(f"a script with {new} is refused, and nothing is left"):
            assert old in head
            contains(root.hold(head.replace(old, new, 1), code=1).stderr, word)
            equal(files(root.folder) if root.folder.exists() else [], [], "files of the root")
    with suite.case("a request that was changed proves no possession of the key"):
        good = (root.home / "users-ca.csr").read_text()
        lines = good.splitlines()
        lines[2] = ("B" if lines[2][0] != "B" else "C") + lines[2][1:]
        (root.home / "users-ca.csr").write_text("\n".join(lines) + "\n")
        root.hold(head, code=1)
        (root.home / "users-ca.csr").write_text(good)
        equal(files(root.folder), [])
    with suite.case("a short passphrase, and nobody to ask, are refused"):
        root.script.write_text(head)
        short = root.home / "short"
        short.write_text("secret\n")
        arguments = root.arguments()
        contains(cordon(*arguments[:-1], short, "--yes", code=2).stderr, "less than 12 bytes")
        contains(cordon(*arguments, code=2, stdin=subprocess.DEVNULL).stderr, "nobody is there to confirm")


def on_a_terminal(root, answers, ahead=""):
    """Holds a ceremony on a terminal; what was shown, and how it ended."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(root.home)
        # Whoever runs this in the background may have it ignored.
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
        os.execv(CORDON, [CORDON, *map(str, root.arguments())])
    os.write(terminal, ahead.encode())
    shown, answers, end = b"", list(answers), time.monotonic() + 60
    while time.monotonic() < end:
        ready, _, _ = select.select([terminal], [], [], 1)
        try:
            part = os.read(terminal, 4096) if ready else b""
        except OSError:
            break
        shown += part
        if answers and shown.rstrip().endswith(b"[yes/no]") and part:
            os.write(terminal, answers.pop(0).encode() + b"\n")
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert not os.WCOREDUMP(status), "the memory of the ceremony was dumped"
    return shown.decode(errors="replace"), os.waitstatus_to_exitcode(status)


def people(suite, root):
    root.script.write_text(root.first)
    with suite.case("who does not agree ends the ceremony, and nothing was signed"):
        shown, code = on_a_terminal(root, ["yes"] * 5 + ["no"])
        equal(code, 1, shown)
        contains(shown, "step 2: B. Example did not confirm")
        for word in ["LEA-EU", "400 days", "this clock says", "SHA-256", "until"]:
            contains(shown, word)
        equal(files(root.folder), [])
    with suite.case("what was typed before a question is no answer to it"):
        shown, code = on_a_terminal(root, ["no"], ahead="yes\n" * 20)
        equal(code, 1, shown)
        contains(shown, "step 0: A. Example did not confirm")
        equal(files(root.folder), [])
    with suite.case("the key on the terminal that has a core dumped leaves no memory behind"):
        # Control-backslash: the root's passphrase is in memory by then.
        shown, code = on_a_terminal(root, ["\x1c"])
        equal(code, -signal.SIGQUIT, shown)
        shutil.rmtree(root.folder)
    with suite.case("everybody confirms every act, and the record has their names"):
        shown, code = on_a_terminal(root, ["yes"] * 10)
        equal(code, 0, shown)
        transcript = json.loads((root.number(1) / "transcript.json").read_text())
        asked = [step["confirmed_by"] for step in transcript["steps"]]
        equal(asked, [["A. Example", "B. Example"]] * 4 + [[]])
        equal(transcript["program"]["digest"], run_command("sha256sum", CORDON).stdout.split()[0])
    return transcript["root"]


def record(suite, root, fingerprint):
    one = root.number(1)
    with suite.case("OpenSSL agrees: root, authorities, list, and the signature of the transcript"):
        equal(oct((root.folder / "root.key").stat().st_mode & 0o777), "0o600")
        contains((root.folder / "root.key").read_text(), "BEGIN ENCRYPTED PRIVATE KEY")
        assert not any("PRIVATE" in (one / name).read_text(errors="replace") for name in files(one))
        shown = openssl("x509", "-in", one / "root.pem", "-noout", "-fingerprint", "-sha256").stdout
        equal(shown.split("=")[1].strip().replace(":", "").lower(), fingerprint)
        for kind in KINDS:
            openssl("verify", "-x509_strict", "-CAfile", one / "root.pem", one / f"{kind}-ca.pem")
        openssl("crl", "-in", one / "root.crl", "-inform", "DER", "-CAfile", one / "root.pem", "-noout")
        verify = ["cms", "-verify", "-inform", "DER", "-in", one / "transcript.p7s", "-content", one / "transcript.json"]
        openssl(*verify, "-binary", "-CAfile", one / "root.pem", "-purpose", "any", "-out", os.devnull)
    with suite.case("the record holds, alone and in its folder, for this root only"):
        for folder in (one, root.folder):
            checked = cordon_json("pki", "ceremony", "check", folder, "--root-sha256", fingerprint)
            equal(len(checked["ceremonies"]), 1)
            cordon("pki", "ceremony", "check", folder, "--root-sha256", "00" * 32, code=1)
    copy = suite.folder / "copy"
    with suite.case("one changed byte in any file is noticed, and so is a file more or less"):
        for name in files(one):
            put(one, copy)
            data = bytearray((one / name).read_bytes())
            data[len(data) // 2] ^= 1
            (copy / name).write_bytes(data)
            cordon("pki", "ceremony", "check", copy, "--root-sha256", fingerprint, code=1)
            put(one, copy)
            (copy / name).unlink()
            cordon("pki", "ceremony", "check", copy, "--root-sha256", fingerprint, code=1)
        put(one, copy)
        (copy / "more.pem").write_text("")
        refused = cordon("pki", "ceremony", "check", copy, "--root-sha256", fingerprint, code=1)
        contains(refused.stderr, "the transcript does not know it")


def forged(suite, site, root, fingerprint):
    one, copy = root.number(1), suite.folder / "forged"
    with suite.case("an authority of the site signs no record"):
        put(one, copy)
        data = json.loads((one / "transcript.json").read_text())
        data["title"] = "Another title"
        (copy / "transcript.json").write_text(json.dumps(data))
        key = suite.folder / "users.key"
        passphrase = (site.data / "passphrase").read_text()
        openssl("pkey", "-in", site.data / "pki.requested" / "users-ca.key", "-passin", f"pass:{passphrase}", "-out", key)
        openssl(
            "cms", "-sign", "-cades", "-binary", "-md", "sha384", "-in", copy / "transcript.json", "-outform", "DER",
            "-signer", one / "users-ca.pem", "-inkey", key, "-out", copy / "transcript.p7s",
        )
        refused = cordon("pki", "ceremony", "check", copy, "--root-sha256", fingerprint, code=1)
        contains(refused.stderr, "the signer is certified for something else")


def put(source, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def install(suite, site, root, fingerprint):
    one = root.number(1)
    folder = suite.folder / "stick"
    with suite.case("a site installs nothing of another root, of a changed record, or without the root's name"):
        arguments = ["pki", "install-authorities", folder, *site.arguments()]
        put(one, folder)
        contains(cordon(*arguments, code=1).stderr, "no root yet")
        contains(cordon(*arguments, "--root-sha256", "ab" * 32, code=1).stderr, "its SHA-256 is")
        (suite.folder / "other").mkdir()
        other = Root(suite.folder / "other")
        for kind in KINDS:
            shutil.copy(root.home / f"{kind}-ca.csr", other.home)
        theirs = json.loads(other.hold(other.first).stdout)
        (folder / "users-ca.pem").write_bytes((other.number(1) / "users-ca.pem").read_bytes())
        cordon(*arguments, "--root-sha256", fingerprint, code=1)
        arguments[2] = other.number(1)
        contains(cordon(*arguments, "--root-sha256", fingerprint, code=1).stderr, theirs["root_sha256"])
        assert not (site.data / "pki").exists()
    with suite.case("what the ceremony made is installed, and the site runs while its root is away"):
        put(one, folder)
        answer = site.ask("pki", "install-authorities", folder, "--root-sha256", fingerprint.upper())
        equal(answer["authorities"], KINDS)
        assert not (site.data / "pki.requested").exists()
        assert not list(site.data.rglob("root.key"))
        site.start()
        camera = Camera(site).start()
        camera.drop("one", jpeg(b"one"))
        camera.drain()
        camera.stop()
        site.verify_audit()
    return camera


def later(suite, site, root, fingerprint, camera):
    def install_next(number, **options):
        return cordon("pki", "install-authorities", root.number(number), *site.arguments(), "--json", **options)

    with suite.case("authorities are renewed by a second ceremony, for their keys, at a running site"):
        out = suite.folder / "renewal"
        site.ask("pki", "request-authorities", "--out", out)
        shutil.copy(out / "users-ca.csr", root.home / "users-ca.csr")
        root.hold(root.later('do = "certify-authority"\nkind = "users"\nrequest = "users-ca.csr"\nhighest_clearance = 4\nyears = 12\n'))
        equal(json.loads(install_next(2).stdout)["authorities"], ["users"])
        keys = [openssl("x509", "-in", root.number(n) / "users-ca.pem", "-noout", "-pubkey").stdout for n in (1, 2)]
        equal(keys[0], keys[1])
        site.stop()
        site.start()
        equal((site.data / "pki" / "users-ca.pem").read_text().strip(), (root.number(2) / "users-ca.pem").read_text().strip())
    with suite.case("an older ceremony is not installed over a later one"):
        contains(install_next(1, code=1).stderr, "a later ceremony is installed")
    with suite.case("an authority that a ceremony revoked is out at the next start"):
        shutil.copy(root.number(1) / "devices-ca.pem", root.home)
        root.hold(root.later('do = "revoke-authority"\ncertificate = "devices-ca.pem"\nreason = "ca-compromise"\n'))
        install_next(3)
        site.stop()
        site.start()
        camera.start()
        camera.drop("two", jpeg(b"two"))
        wait_for(lambda: "revoked" in camera.log.read_text(errors="replace"), lambda: camera.log.read_text()[-2000:], 30)
        camera.stop()
        equal(len(camera.receipts()), 1, "receipts")
        site.stop()
    with suite.case("three ceremonies follow one another, and none can be left out"):
        checked = cordon_json("pki", "ceremony", "check", root.folder, "--root-sha256", fingerprint)
        equal([one["number"] for one in checked["ceremonies"]], [1, 2, 3])
        put(root.folder, suite.folder / "gap")
        shutil.rmtree(suite.folder / "gap" / "ceremonies" / "0002")
        shown = cordon("pki", "ceremony", "check", suite.folder / "gap", "--root-sha256", fingerprint, code=1)
        contains(shown.stderr, "ceremony 2 is missing")
    with suite.case("a second root, a wrong passphrase, and what was left of a crash are refused"):
        contains(root.hold(root.first, code=1).stderr, "has a root already")
        wrong = root.home / "wrong"
        wrong.write_text("another sentence altogether\n")
        root.script.write_text(root.later('do = "issue-list"\n'))
        contains(cordon(*root.arguments()[:-1], wrong, "--yes", code=1).stderr, "passphrase")
        (root.folder / "ceremonies" / "0004.unfinished").mkdir()
        contains(root.hold(root.script.read_text(), code=1).stderr, "did not end")
        (root.folder / "ceremonies" / "0004.unfinished").rmdir()
        root.hold(root.script.read_text())
    with suite.case("the event of an installation names root, ceremony and who"):
        site.verify_audit()
        shown = "".join(path.read_text(errors="replace") for path in (site.data / "audit" / "journal").rglob("*") if path.is_file())
        equal(len(re.findall("authority.install", shown)), 3)
        contains(shown, f"root/{fingerprint}")


def run(suite):
    site, root = Site(suite), Root(suite.folder)
    requests(suite, site, root)
    scripts(suite, root)
    fingerprint = people(suite, root)
    record(suite, root, fingerprint)
    forged(suite, site, root, fingerprint)
    camera = install(suite, site, root, fingerprint)
    later(suite, site, root, fingerprint, camera)
