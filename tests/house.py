"""Walls of the house, held against the code: layers, sizes of files, links between documents."""

import json
import re
from pathlib import Path

from tests.harness import ROOT, equal, run as run_command

SERVICES = {"portal", "centre", "registry", "directory", "camera", "gateway"}
PROGRAMS = {"cordon", "cordon-lab"}
# What nothing above may be missing from, and what may use nothing above it.
CORES = {"access", "evidence", "audit", "pki", "ikev2", "ipsec"}
BASE = {"store", "durable", "pool", "offload", "sys", "ibc"}
# Lines of a source file at most: beyond that a newcomer does not find their room.
MAX_LINES = 600


def own_crates():
    """Each crate of the workspace with those that it uses, tests left out."""
    metadata = json.loads(run_command("cargo", "metadata", "--format-version", "1", "--no-deps", "--offline", cwd=ROOT).stdout)
    names = {package["name"] for package in metadata["packages"]}
    return {
        package["name"]: {d["name"] for d in package["dependencies"] if d["kind"] is None and d["name"] in names}
        for package in metadata["packages"]
    }


def tracked(*patterns):
    return [ROOT / name for name in run_command("git", "ls-files", *patterns, cwd=ROOT).stdout.splitlines()]


def run(suite):
    crates = own_crates()
    with suite.case("services do not use one another, and only programs use them"):
        for name, uses in crates.items():
            if name in SERVICES:
                equal(uses & SERVICES, set(), f"services that {name} uses")
            # Fuzz targets reach into everything.
            if name not in PROGRAMS | {"fuzz"}:
                equal(uses & SERVICES, set(), f"services that {name} uses")
            equal(uses & PROGRAMS, set(), f"programs that {name} uses")

    with suite.case("cores use no service, and what lies below them no core"):
        for name in CORES:
            equal(crates[name] - CORES - BASE, set(), f"what {name} uses")
        for name in BASE:
            equal(crates[name] - BASE, set(), f"what {name} uses")

    with suite.case("the product uses neither the laboratory nor the research cipher"):
        reached, waiting = set(), ["cordon"]
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting.extend(crates[name])
        equal(reached & {"lab", "cordon-lab", "ibc", "ibc-provider", "fuzz"}, set(), "reached from cordon")

    with suite.case(f"no source file has more than {MAX_LINES} lines"):
        files = tracked("*.rs", "*.py", "*.sh")
        long = {str(f.relative_to(ROOT)): n for f in files if (n := len(f.read_text().splitlines())) > MAX_LINES}
        equal(long, {}, "files that are too long")

    with suite.case("every link between documents leads somewhere"):
        broken = []
        for page in tracked("*.md"):
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
                if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists():
                    broken.append(f"{Path(page).relative_to(ROOT)}: {target}")
        equal(broken, [], "links that lead nowhere")

    with suite.case("every crate has its paragraph in ARCHITECTURE.md"):
        text = (ROOT / "ARCHITECTURE.md").read_text()
        equal([name for name in crates if f"**`{name}`**" not in text], [], "crates without one")
