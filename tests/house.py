"""Walls of the house, held against the code: layers, sizes of files, links between documents."""

import json
import re
import tomllib
from pathlib import Path

from tests import counts, imports, prose
from tests.harness import ROOT, equal, run as run_command

# Crates outside of the layers: for programs, and those that look at everything.
# The accelerator's interface and driver: without clocks, and they use nothing else.
ACCELERATOR = {"accel-abi", "accel-driver"}
# The device in simulation: a board takes its place, and what is shipped knows nothing of it.
SIMULATION = {"accel-simulation"}
OUTSIDE = {"commandline", "scene", "lab", "fuzz", "ibc-provider", "provider-abi", "accel-provider"} | SIMULATION
# What tests of several crates share, with the services that it is for: no crate uses it in what it ships.
FOR_TESTS = {"testkit": set(), "portal-testkit": {"portal"}}
# Files that import one another in a circle, at most: none of them can be read without the others.
MAX_CIRCLE = 3
# Folders where the reason stands beside the code, in at least so many comments for a line of code.
REASONED = {"tunnel/src", "vpn/src", "ikev2/src/sa"}
MIN_REASONS = 0.025
# Words after the mark of a block in a document's comment that make it an example which is compiled.
EXAMPLES = {"", "rust", "should_panic", "no_run", "compile_fail"}
# Libraries that switch features of others on, without a line of code.
FOR_FEATURES = {"digest", "getrandom", "sha2", "zerocopy"}
# Names in code that are not those of the package.
CODE_NAMES = {"kamadak-exif": "exif", "md-5": "md5", "rustls-webpki": "webpki"}
# Lines of a source file at most: beyond that a newcomer does not find their room.
MAX_LINES = 600


def own_crates():
    """Each crate of the workspace with those that it uses, tests left out."""
    metadata = json.loads(run_command("cargo", "metadata", "--format-version", "1", "--no-deps", "--offline", cwd=ROOT).stdout)
    names = {package["name"] for package in metadata["packages"]}
    return {
        package["name"]: {d["name"] for d in package["dependencies"] if d["kind"] != "dev" and d["name"] in names}
        for package in metadata["packages"]
    }


def layers():
    """Layers of ARCHITECTURE.md's table from the top: name, crates."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.split("| layer | crates |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (\w+) \| ([^|]*) \|", table, re.M)
    return [(name, set(re.findall(r"`([\w-]+)`", crates))) for name, crates in rows]


def untested():
    """Libraries with tests, or examples in their documents, that their manifest says not to build and run."""
    found = []
    for manifest in sorted((ROOT / "crates").glob("*/Cargo.toml")):
        library = tomllib.loads(manifest.read_text()).get("lib", {})
        text = "\n".join(path.read_text() for path in (manifest.parent / "src").rglob("*.rs"))
        if library.get("test") is False and "#[test]" in text:
            found.append(f"{manifest.parent.name}: tests")
        if library.get("doctest") is False:
            # A block's end looks like the beginning of one without a word: of each two marks, the first counts.
            marks = re.findall(r"^\s*//[/!] ```(.*)$", text, re.M)
            found += [f"{manifest.parent.name}: an example" for mark in marks[::2] if mark in EXAMPLES]
    return found


def built_again():
    """Packages that programs are built of, which tests would build again with more features."""
    line = ["cargo", "tree", "--workspace", "--offline", "--locked", "--prefix", "none", "--format", "{p} {f}", "--edges"]
    kinds = "normal,build", "normal,build,dev"
    programs, tests = (run_command(*line, edges, cwd=ROOT).stdout.replace(" (*)", "").splitlines() for edges in kinds)
    return sorted(set(programs) - set(tests))


def unused():
    """Dependencies that no code of their crate names."""
    found = []
    for manifest in sorted((ROOT / "crates").glob("*/Cargo.toml")):
        files = list(manifest.parent.rglob("*.rs"))
        # Some tests of one crate are part of another's too.
        files += [path.parent / other for path in files for other in re.findall(r'#\[path = "(.*\.\./.*)"\]', path.read_text())]
        code = "\n".join(path.read_text() for path in files)
        told = tomllib.loads(manifest.read_text())
        for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
            for name in told.get(kind, {}):
                word = CODE_NAMES.get(name, name.replace("-", "_"))
                if name not in FOR_FEATURES and not re.search(rf"\b{word}\b", code):
                    found.append((manifest.parent.name, name))
    return found


def device_uses(crates):
    """What the sources of the simulated device and its cores name of others: crates that know a driver, the rest of their own."""
    source = ROOT / "crates" / "accel-simulation" / "src"
    others = "|".join(sorted(name.replace("-", "_") for name in crates["accel-simulation"] - {"accel-abi", "ibc"}))
    found = set()
    for kind, own in (("cores", "cores"), ("device", "cores|device")):
        for file in [source / f"{kind}.rs", *(source / kind).glob("*.rs")]:
            text = re.sub(r"//.*", "", file.read_text())
            found.update(re.findall(rf"\b(?:{others})\b::|\bcrate::(?!(?:{own})\b)\w+|super::super", text))
    return found


def tracked(*patterns):
    return [ROOT / name for name in run_command("git", "ls-files", *patterns, cwd=ROOT).stdout.splitlines()]


def run(suite):
    with suite.case("no library keeps tests that are not built"):
        equal(untested(), [], "libraries")
    with suite.case("tests reuse what programs were built of"):
        equal(built_again(), [], "packages that testkit's manifest has to name with the features they have in tests")
    crates = own_crates()
    rows = layers()
    of_layer = dict(rows)
    services, cores = of_layer["services"], of_layer["cores"]
    programs = of_layer["programs"] | of_layer["site"] | of_layer["parts"]
    with suite.case("no crate asks for a library that it does not use"):
        equal(unused(), [], "dependencies to remove from Cargo.toml")
    with suite.case("crates use crates of lower layers, as the table of ARCHITECTURE.md says"):
        below = {name for _, members in rows for name in members} | OUTSIDE
        equal(below | set(FOR_TESTS), set(crates), "crates of the table and outside of it")
        for layer, members in rows:
            below = below - members - OUTSIDE
            for name in members:
                # Programs have what is for programs; `cordon camera` is the program cordon-camera inside.
                inside = {"cordon-camera"} if name == "cordon" else set()
                inside = {"programs": OUTSIDE | inside, "site": OUTSIDE, "parts": OUTSIDE, "applications": set(), "services": set()}.get(layer, members)
                equal(crates[name] - below - inside, set(), f"what {name} uses above or beside itself")
        for name in OUTSIDE - {"fuzz"}:
            equal(crates[name] & (services | programs), set(), f"services and programs that {name} uses")
        equal({name for name in crates if crates[name] & set(FOR_TESTS)}, set(), "crates that ship what is for tests")
        for name, tested in FOR_TESTS.items():
            equal(crates[name] & (services | programs | OUTSIDE), tested, f"what {name} uses")
        for name in ACCELERATOR:
            equal(crates[name] - ACCELERATOR, set(), f"what {name} uses")
        equal(crates["accel-engine"], {"accel-abi", "accel-driver", "offload-policy"}, "what accel-engine uses")
        equal(crates["accel-transport"], {"accel-abi", "accel-driver", "accel-engine", "sys"}, "what accel-transport uses")
        # A board takes the device's place: the driver must not know it, nor the device the driver.
        equal(crates["accel-driver"], {"accel-abi"}, "what accel-driver uses")
        equal(device_uses(crates), set(), "what cores and device use of other code")

    with suite.case("the product uses neither the laboratory nor the research cipher nor a simulated device"):
        def reaches(program):
            reached, waiting = set(), [program]
            while waiting:
                name = waiting.pop()
                if name not in reached:
                    reached.add(name)
                    waiting.extend(crates[name])
            return reached

        reached = reaches("cordon")
        others = {"lab", "cordon-lab", "ibc", "ibc-provider", "provider-abi", "accel-provider", "fuzz"}
        equal(reached & (others | SIMULATION), set(), "reached from cordon")
        # Tunnels know a device by the interface of batches alone.
        for name in ("ipsec", "tunnel"):
            equal(crates[name] & {"offload-policy", "accelerator"} | {one for one in crates[name] if one.startswith("accel-")}, set(),
                  f"devices that {name} knows")
        equal(reaches("cordon-camera") & {"centre", "portal", "registry", "vpn", "access", "store"}, set(),
              "reached from cordon-camera")

    with suite.case("lints keep clocks, sockets and threads out of the cores"):
        common = (ROOT / "clippy.toml").read_text()
        for name in sorted(cores | ACCELERATOR | SIMULATION):
            own = (ROOT / "crates" / name / "clippy.toml").read_text()
            assert own.startswith(common), f"crates/{name}/clippy.toml does not begin with the common part"
            for path in ("std::time::Instant::now", "time::OffsetDateTime::now_utc", "std::thread::sleep", "std::net::UdpSocket::bind"):
                assert path in own, f"crates/{name}/clippy.toml does not forbid {path}"

    with suite.case(f"no source file has more than {MAX_LINES} lines"):
        files = tracked("*.rs", "*.py", "*.sh")
        long = {str(f.relative_to(ROOT)): n for f in files if (n := len(f.read_text().splitlines())) > MAX_LINES}
        equal(long, {}, "files that are too long")

    with suite.case("what cannot be looked at does not count as missing in site and camera"):
        # An error of these is `false`; `try_exists` and metadata say which it was.
        guess = re.compile(r"\.exists\(\)|(?:path|file|folder|dir|data|target|join\([^()]*\))(?:\(\))?\.is_(?:file|dir)\(\)")
        crates_of_it = "audit|camera|centre|directory|durable|evidence|pki|registry|store"
        found = []
        for file in tracked("crates/*.rs"):
            place = str(file.relative_to(ROOT))
            text = file.read_text()
            own = re.match(rf"crates/({crates_of_it})/src/|crates/cordon/src/[a-z_]+\.rs", place)
            if own and not re.search(r"tests?(\.rs|/)", place):
                code = text.split("#[cfg(test)]\nmod tests")[0]
                found += [f"{place}: {m[0]}" for m in guess.finditer(code)]
        allowed = {
            # Metadata, or a wrong answer changes nothing.
            "crates/durable/src/disk.rs: path.is_dir()",
            "crates/camera/src/ingest/group.rs: data.is_file()", "crates/evidence/src/check/folder.rs: data.is_file()",
            "crates/evidence/src/check/folder.rs: data.is_dir()",
        }
        equal(sorted(set(found) - allowed), [], "places")

    with suite.case("disks that record and fail are for tests"):
        users = {str(file.relative_to(ROOT)) for file in tracked("crates/*.rs") if "durable::testing" in file.read_text()}
        equal({place for place in users if not re.search(r"tests?(\.rs|/)", place)}, set(), "places outside of tests")

    with suite.case("every link between documents leads somewhere"):
        broken = []
        for page in tracked("*.md"):
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
                if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists():
                    broken.append(f"{Path(page).relative_to(ROOT)}: {target}")
        equal(broken, [], "links that lead nowhere")

    with suite.case("every type that the glossary names is there"):
        text = (ROOT / "docs" / "glossary.md").read_text()
        for crate, name in sorted(set(re.findall(r"`(\w+)::(\w+)`", text))):
            sources = "".join(f.read_text() for f in (ROOT / "crates" / crate / "src").rglob("*.rs"))
            assert re.search(rf"\b(struct|enum|trait|type) {name}\b", sources), f"{crate}::{name}"

    with suite.case("doc comments say what a thing is, and none says nothing"):
        total, questions, short = prose.counts(ROOT / "crates")
        assert questions <= total * 0.03, f"{questions} of {total} doc comments begin with a question"
        assert short <= total * 0.05, f"{short} of {total} doc comments have three words or fewer"

    with suite.case("marked words, methods of types, long functions and actions as text are no more than they were"):
        found = counts.worse(counts.measure(), json.loads(counts.LIMITS.read_text()))
        assert not found, "write what is beyond its limit in plain English, or cut it:\n" + "\n".join(found)

    with suite.case("these counts find what is planted"):
        planted(suite)

    with suite.case("commit messages are checked before they are in the history"):
        commit_messages(suite)

    with suite.case(f"no more than {MAX_CIRCLE} files import one another in a circle"):
        for source in sorted((ROOT / "crates").glob("*/src")):
            long = [group for group in imports.circles(source) if len(group) > MAX_CIRCLE]
            equal(long, [], f"circles in {source.parent.name}")

    with suite.case("where much has to be known, the reason stands beside the code"):
        for name in sorted(REASONED):
            code, comments = prose.reasons(ROOT / "crates" / name)
            assert comments >= code * MIN_REASONS, f"{name}: {comments} comments in {code} lines of code"

    with suite.case("every crate has its paragraph in ARCHITECTURE.md"):
        text = (ROOT / "ARCHITECTURE.md").read_text()
        equal([name for name in crates if f"**`{name}`**" not in text], [], "crates without one")


def planted(suite):
    """Faults that the counts must find, beside text that has none."""
    plain = "/// Rejects the certificate.\n// The gateway retries once.\n"
    equal(counts.marked(counts.comments(plain)), 0)
    dialect = "/// Whoever comes is told.\n//! What is no answer goes on.\n    // It is held against the log anew.\n"
    equal(len(counts.LEXICON.findall(counts.comments(dialect))), 6)
    equal(counts.marked(counts.prose("```sh\nwhoever\n```\nThe `anew` setting.\n")), 0)
    source = suite.folder / "src"
    source.mkdir()
    steps = "        step();\n" * 80
    lines = "impl Big {\n" + "    fn a(&self) {\n        step();\n    }\n" * 61 + "}\n"
    (source / "lib.rs").write_text(lines + "impl Clone for Big {\n    fn clone(&self) {}\n}\n")
    (source / "more.rs").write_text(f"impl Big {{\n    pub(crate) async fn long(\n        &self,\n    ) {{\n{steps}    }}\n}}\n")
    equal(counts.methods(source), {"Big": 62})
    equal(list(counts.functions((source / "more.rs").read_text())), [("long", 84)])
    equal(list(counts.functions("trait T {\n    fn a(&self);\n}\n")), [])
    equal(counts.worse({"methods: x::Big": 62, "marked comments: x": 25}, {}), ["methods: x::Big: 62, at most 60"])
    known = counts.actions()
    assert len(known) > 100 and "evidence.receive" in known and "clearance.new" not in known, sorted(known)
    equal(counts.spelled('let a = "evidence.receive"; let b = "evidence.received"; x("name.old")', known), ["evidence.receive"])
    equal(counts.worse({"actions of events as text: x": 1}, {}), ["actions of events as text: x: 1, at most 0"])
    equal(counts.lowered({"a": 3, "b": 9}, {"a": 5, "b": 7}), {"a": 3, "b": 7})


def commit_messages(suite):
    """The hook's verdict about messages, in a repository with a small and with a large change."""
    repository = suite.folder / "repository"
    run_command("git", "init", "--quiet", repository)

    def checked(message, lines):
        (repository / "file").write_text("line\n" * lines)
        run_command("git", "add", "file", cwd=repository)
        file = suite.folder / "message"
        file.write_text(message)
        return run_command(ROOT / "scripts/hooks/commit-msg", file, cwd=repository, code=None).returncode

    good = "area: say what\n\nWhy, and how it was tested.\n"
    equal([checked(text, 40) for text in (good, "area, other: say what\n\nWhy.\n", "Merge branch 'x'\n")], [0, 0, 0])
    equal(checked("area: say what\n", 30), 0)
    equal(checked("area: say what\n", 31), 1)
    equal(checked(f"area: {'x' * 66}\n\nWhy.\n", 1), 0)
    equal(checked(f"area: {'x' * 67}\n\nWhy.\n", 1), 1)
    for bad in ("say what\n\nWhy.\n", "Area: say what\n\nWhy.\n", "area: Say\n\nWhy.\n", "area: say\nWhy.\n"):
        equal(checked(bad, 1), 1, repr(bad))
