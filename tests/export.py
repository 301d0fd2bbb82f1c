"""The custody package: its README's commands as they stand, and what one flipped byte does."""

import ast
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.harness import Camera, Site, cordon_json, equal, jpeg, run as run_command

# Random positions per file, besides the first, the middle and the last.
RANDOM_POSITIONS = 3
FENCED = r"^```sh\n(.*?)^```$"


def run(suite):
    site = Site(suite).start()
    people = site.people()
    camera = Camera(site).start()
    for number, level in enumerate((1, 2, 3), 1):
        camera.drop(f"seen-{number}", jpeg(b"picture %d" % number, 20_000), classification=level)
    camera.drain()
    camera.stop()
    rows = people["reviewer-3"].get("/api/v1/violations")["rows"]
    packages = {}

    with suite.case("export while the site runs"):
        packages["running"] = export(site, rows[0]["id"], suite.folder / "running")
    with suite.case("the export is in the audit log"):
        details = people["reviewer-3"].get(f"/api/v1/violations/{rows[0]['id']}")
        actions = [step["action"] for step in details["custody"]]
        assert "evidence.export" in actions, actions
    site.stop()
    with suite.case("export of a stopped site"):
        packages["stopped"] = export(site, rows[1]["id"], suite.folder / "with spaces in its name")
    for name, package in packages.items():
        with suite.case(f"the README's commands all succeed ({name})"):
            commands = fenced(package)
            assert len(commands) >= 6, commands
            done = check(package)
            equal(done.returncode, 0, f"exit code with {done.stdout}{done.stderr};")
    with suite.case("the README's own one-liner runs them too"):
        readme = (packages["running"] / "README.md").read_text()
        line = next(line.strip() for line in readme.splitlines() if line.startswith("    awk "))
        run_command("bash", "-c", line, cwd=packages["running"])
    with suite.case("verify_inclusion.py is short and needs the standard library only"):
        script = packages["running"] / "verify_inclusion.py"
        text = script.read_text()
        assert len(text.splitlines()) <= 60, len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
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
    flips(suite, packages["running"])
    own_checks(suite, packages["running"])
    with suite.case("a file more or less is noticed"):
        for change in (lambda p: (p / "media/02-added.jpg").write_bytes(b"x"), lambda p: (p / "proofs.json").unlink()):
            copy = suite.folder / "changed"
            shutil.copytree(packages["running"], copy)
            change(copy)
            assert check(copy).returncode != 0
            shutil.rmtree(copy)


def export(site, violation, out):
    answer = site.ask("evidence", "export", "--out", out, violation)
    equal(Path(answer["folder"]), out)
    return out


def opened(site, package, out):
    keys = site.data / "keys"
    key = sorted(keys.glob("sealing-*.key"))[-1]
    arguments = ["--key", key, "--certificate", key.with_suffix(".pem"), "--root", package / "root.pem"]
    arguments += ["--passphrase-file", site.data / "passphrase", package / "block.cordon"]
    assert cordon_json("evidence", "verify", *arguments)["verified"]
    cordon_json("evidence", "open", "--out", out, *arguments)
    equal((out / "manifest.json").read_bytes(), (package / "manifest.json").read_bytes(), "manifest")


def fenced(package):
    """The README's commands, exactly as they stand, one text per section."""
    return re.findall(FENCED, (package / "README.md").read_text(), re.M | re.S)


def check(package, commands=None):
    script = "".join(commands or fenced(package))
    environment = {**os.environ, "LC_ALL": "C", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=package, env=environment, capture_output=True, text=True, timeout=60,
    )


def sections(package):
    """The README's commands by the number of their section; 0 is the introduction."""
    parts = re.split(r"^## (\d+)\. ", (package / "README.md").read_text(), flags=re.M)
    texts = dict(zip(["0", *parts[1::2]], parts[::2]))
    return {int(number): "".join(re.findall(FENCED, text, re.M | re.S)) for number, text in texts.items()}


def own_checks(suite, package):
    """The first check covers every file; each part's own check must not lean on it."""
    commands = sections(package)
    medium = str(next((package / "media").iterdir()).relative_to(package))
    for name, number, needle in (
        ("manifest.p7s", 2, b"speeding"),
        ("manifest.json", 2, b"speeding"),
        (medium, 3, b"picture"),
        ("manifest.json", 3, b'"sha256":"'),
        ("receipt.p7s", 4, b"accepted"),
        ("receipt.json", 4, b'"device":"'),
        ("block.cordon", 4, b""),
        ("manifest.json", 4, b"speeding"),
        ("crls/01.pem", 5, b"BEGIN X509 CRL-----\nM"),
        ("checkpoint", 6, b"\n"),
        ("log.pem", 6, b"MCowBQYDK2VwAyEA"),
        ("events.jsonl", 6, b'"action":"'),
        ("proofs.json", 6, b'"hashes":["'),
    ):
        with suite.case(f"section {number} alone notices a change of {name}"):
            script = [commands[0], commands[number]]
            equal(check(package, script).returncode, 0, "exit code before the change")
            path = package / name
            original = path.read_bytes()
            changed = bytearray(original)
            # Behind the needle, in the middle of its value.
            changed[original.index(needle) + len(needle) + 2] ^= 1
            path.write_bytes(changed)
            done = check(package, script)
            path.write_bytes(original)
            assert done.returncode != 0, f"unnoticed: {done.stdout}"


def flips(suite, package):
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    commands = fenced(package)
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
                # A changed README may hold no commands at all: those that were read before count.
                done = check(package, commands)
                assert done.returncode != 0, f"byte {position} of {path.relative_to(package)} changed unnoticed"
                count += 1
            path.write_bytes(original)
        equal(check(package).returncode, 0, "exit code of the restored package")
        print(f"        {count} flips")
