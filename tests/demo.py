"""The demo, and the command line: help, wrong usage, failures."""

import json
import os
import re
import shlex
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tests.harness import CORDON, Process, contains, cordon, cordon_json, equal, free_port, wait_for

VIOLATIONS = 5


def run_demo(data, *more, code=0):
    return cordon("demo", "--data", data, "--violations", VIOLATIONS, "--once", "--json", *more, code=code)


def run(suite):
    data = suite.folder / "demo"
    demo(suite, data)
    interrupted(suite)
    help_texts(suite)
    wrong_usage(suite)
    failures(suite, data)


def demo(suite, data):
    checkpoints = []

    def once(limit):
        started = time.monotonic()
        done = run_demo(data)
        seconds = time.monotonic() - started
        lines = done.stdout.splitlines()
        equal(len(lines), 1, "number of lines on standard output")
        result = json.loads(lines[0])
        equal(result["violations"], VIOLATIONS)
        equal(result["receipts"], VIOLATIONS)
        assert re.fullmatch(r"https://[^/]+:\d+/", result["portal_url"]), result["portal_url"]
        contains(result["audit_checkpoint"], "cordon.example.org/audit\n")
        contains(result["audit_checkpoint"], "\u2014 cordon.example.org/audit ")
        assert seconds < limit, f"the demo took {seconds:.0f} s, more than {limit}"
        print(f"        {VIOLATIONS} violations in {seconds:.1f} s")
        checkpoints.append(result["audit_checkpoint"])
        return result

    with suite.case("--once --json prints one object"):
        result = once(90)
        for person in result["people"]:
            for name in ("pkcs12", "password_file"):
                equal(Path(person[name]).stat().st_mode & 0o777, 0o600, name)
        if os.geteuid() == 0:
            equal((result["tunnel"], result["tunnel_moves"]), (True, 1), "tunnel and its moves")
    with suite.case("a second run is as good"):
        once(60)
    with suite.case("nothing of the tunnel is left"):
        nothing_left()
    with suite.case("the audit log holds, and continues the first run's"):
        earlier = suite.folder / "earlier-checkpoint"
        earlier.write_text(checkpoints[0])
        log = data / "audit" / "log"
        report = cordon_json("audit", "verify", log, "--journals", data / "audit/journal", "--since", earlier)
        assert report["verified"] and report["events"] > 2 * VIOLATIONS, report
    with suite.case("the audit log of one run is not that of another"):
        note = checkpoints[1].replace("\n", "\nAAAA", 2)
        earlier = suite.folder / "forged-checkpoint"
        earlier.write_text(note)
        cordon("audit", "verify", data / "audit/log", "--since", earlier, code=1)


def nothing_left():
    """Interfaces of the demo's tunnel go with it, if not at once."""
    shown = lambda: subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    wait_for(lambda: not re.search(r" (cd[ab][0-9]+|cordon-demo)[@:]", shown()), shown)


def interrupted(suite):
    data = suite.folder / "interrupted"

    def start(violations, log):
        command = [CORDON, "demo", "--data", data, "--violations", violations, "--json"]
        return Process(command, suite.folder / log)

    with suite.case("SIGTERM under load ends the demo in time, saying so"):
        # Far more pictures than can be drawn: the end must not wait for them.
        process = start(20_000, "demo-1.log")
        suite.finally_do(process.kill)
        receipts = data / "camera-17/spool/receipts"
        wait_for(lambda: len(list(receipts.glob("*.p7m"))) >= 2, process.tail, 60)
        started = time.monotonic()
        process.child.terminate()
        code = process.child.wait(60)
        seconds = time.monotonic() - started
        contains(process.tail(), "stopped before all receipts")
        contains(process.tail(), '"to_do":"start again: nothing is lost')
        equal(code, 1, "exit code of a demo without all receipts")
        assert seconds < 15, f"took {seconds:.1f} s to end"
        nothing_left()
    with suite.case("the next run receipts what was left as well"):
        left = len(list((data / "camera-17/incoming").glob("*.jpg")))
        left += len(list((data / "camera-17/spool/blocks").glob("*.block")))
        result = json.loads(run_demo(data).stdout)
        equal(result["receipts"], VIOLATIONS)
        for folder in ("incoming", "spool/blocks", "rejected"):
            equal(os.listdir(data / "camera-17" / folder), [], f"{folder} (with {left} left before)")
        cordon_json("audit", "verify", data / "audit/log", "--journals", data / "audit/journal")
    with suite.case("without privileges the demo says so and goes on over mTLS alone"):
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", CORDON, "demo", "--data", data]
        command += ["--violations", "1", "--once", "--json"]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
        equal(done.returncode, 0, done.stderr)
        equal(json.loads(done.stdout)["tunnel"], False, "tunnel")
        contains(done.stderr, "goes without tunnel, over mTLS alone")
    with suite.case("a killed demo leaves nothing either"):
        process = start(20_000, "demo-3.log")
        suite.finally_do(process.kill)
        wait_for(lambda: "block receipted" in process.tail(), process.tail, 60)
        process.kill()
        nothing_left()
    with suite.case("SIGTERM of a demo that shows its portal ends it with 0"):
        process = start(1, "demo-2.log")
        suite.finally_do(process.kill)
        result = process.answer()
        equal(result["receipts"], 1)
        equal(process.stop(), 0, "exit code")


def commands():
    """Every command with its help text, found by walking through the help."""
    waiting, found = [[]], {}
    while waiting:
        path = waiting.pop()
        text = cordon(*path, "--help").stdout
        found[" ".join(path)] = text
        listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.M)
        for line in listed.group(1).splitlines() if listed else []:
            if name := re.match(r"  (\S+)", line):
                if name.group(1) != "help":
                    waiting.append([*path, name.group(1)])
    return found


def examples(text):
    """The command lines of a help text's examples, continued lines joined."""
    part = re.search(r"^Examples?:\n((?:.*\n?)+)", text, re.M)
    joined = re.sub(r" \\\n\s*", " ", part.group(1)) if part else ""
    return [line.strip() for line in joined.splitlines() if line.startswith(("  cordon ", "  cordon-lab "))]


def help_texts(suite):
    texts = {}
    with suite.case("every command explains itself"):
        texts.update(commands())
        assert len(texts) > 20, sorted(texts)
    with suite.case("every command that does something has an example"):
        missing = [name for name, text in texts.items() if "Commands:" not in text and not examples(text)]
        equal(missing, [], "commands without example")
    with suite.case("every example parses"), tempfile.TemporaryDirectory(dir=suite.folder) as folder:
        count = 0
        for text in texts.values():
            for line in examples(text):
                # Remarks stand apart by several blanks, redirections are the shell's.
                line = re.split(r"\s{3,}|\s[<>]\s", line)[0]
                program, *words = shlex.split(line)
                if program == "cordon-lab" and words[0] != "ibc":
                    words = ["lab", *words]
                cordon(*words, "--help")
                count += 1
                # Servers do not end; attacks and measurements take their time and have suites of their own.
                long = words[:2] in (["camera", "run"], ["ibc", "analyse"], ["lab", "run"])
                # These change the host; `ike_setup` has namespaces for them.
                host = words[:2] in (["vpn", "init"], ["vpn", "prepare"])
                if words[0] in ("up", "demo", "COMMAND") or long or host:
                    continue
                # Nothing it names exists here: it may fail, but not for its form.
                for path in ("/var/lib/cordon", "/usr/local/lib"):
                    words = [word.replace(path, f"{folder}/none") for word in words]
                done = cordon(*words, code=None, cwd=folder, stdin=subprocess.DEVNULL)
                assert done.returncode in (0, 1), f"{line}: {done.stderr}"
        assert count >= 20, count


def refused(done, code, *parts):
    """The two lines of a failure: what and where, and what to do."""
    equal(done.returncode, code, f"exit code with {done.stderr!r};")
    lines = [line for line in done.stderr.splitlines() if not re.match(r"\d{4}-\d\d-\d\dT", line)]
    equal(len(lines), 2, f"number of lines of {done.stderr!r};")
    assert lines[0].startswith("cordon: "), lines
    assert lines[1].startswith("  to do: "), lines
    for part in parts:
        contains(lines[0], part)
    equal(done.stdout, "", "standard output")


def wrong_usage(suite):
    for words in (
        ["frobnicate"],
        ["up"],
        ["up", "--dat", "x"],
        ["demo", "--data", "x", "--violations", "none"],
        ["demo", "--data", "x", "--violations", "0"],
        ["pki", "revoke", "--data", "x"],
        ["pki", "revoke", "--data", "x", "--uid", "a", "--device", "b"],
        ["registry", "code", "--data", "x", "--device", "d", "--clearance", "5", "--out", "y"],
        ["evidence", "seal"],
        ["config", "check", "x", "--log", "a=b=c"],
    ):
        with suite.case(f"wrong usage ends with 2: {' '.join(words)}"):
            refused(cordon(*words, code=None), 2)
    with suite.case("without any argument the help is shown"):
        done = cordon(code=2)
        contains(done.stdout + done.stderr, "Usage: cordon")
    with suite.case("a reader that goes away is no error"):
        script = f"set -o pipefail; {CORDON} openapi | head -c 1 >/dev/null"
        equal(subprocess.run(["bash", "-c", script], capture_output=True).returncode, 0)


def failures(suite, data):
    folder = suite.folder
    config = folder / "bad.toml"

    with suite.case("missing configuration"):
        refused(cordon("up", "--data", folder / "x", "--config", folder / "none.toml", code=None), 1, "none.toml")
    for text, place in (
        ("[site]\n\ncountry = \"Europe\"\n", "bad.toml:3: site.country"),
        ("[site]\nnames = [\n", "bad.toml:2:"),
        ("[listen]\nportal = 1\n", "bad.toml:2:"),
        ("[listen]\n[typo]\nx = 1\n", "bad.toml:2:"),
        ("\n[keys]\nleaf = \"dsa\"\n", "bad.toml:3: keys.leaf"),
    ):
        with suite.case(f"mistake in the configuration is named with its line: {place}"):
            config.write_text(text)
            refused(cordon("up", "--data", folder / "x", "--config", config, code=None), 2, place)
            refused(cordon("config", "check", config, code=None), 2, place)
    with suite.case("a camera's configuration is checked as well"):
        config.write_text("[watch]\nfolder = \"a\"\nrejected = \"b\"\ncolour = 1\n")
        refused(cordon("camera", "run", "--config", config, code=None), 2, "bad.toml:4:")
        refused(cordon("camera", "run", "--config", folder / "none.toml", code=None), 1, "none.toml")
    with suite.case("port in use"), socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = [f'{name} = "127.0.0.1:{free_port()}"\n' for name in ("intake", "enrolment", "metrics")]
        config.write_text(f'[listen]\nportal = "127.0.0.1:{port}"\n' + "".join(ports))
        refused(cordon("up", "--data", data, "--config", config, code=None), 1, f"127.0.0.1:{port}", "listen.portal")
    with suite.case("a data folder that cannot be made"):
        (folder / "file").write_text("")
        refused(cordon("up", "--data", folder / "file" / "data", code=None), 1, "file/data")
        refused(cordon("up", "--data", "/proc/cordon", code=None), 1, "/proc/cordon")
        refused(cordon("up", "--data", folder / "file", code=None), 1, "file")
    with suite.case("a folder that is no site's"):
        for words in (["pki", "list"], ["directory", "list"], ["pki", "revoke", "--uid", "officer-2"]):
            refused(cordon(*words, "--data", folder / "nothing", code=None), 1, "nothing")
        assert not (folder / "nothing").exists(), "a query made the folder"
    with suite.case("unknown violation, person, device, reason"):
        site = ["--data", data]
        out = folder / "package"
        unknown = "v-0000000000000000"
        refused(cordon("evidence", "export", *site, "--out", out, unknown, code=None), 1, unknown)
        assert not out.exists()
        nobody = ["--uid", "nobody"]
        refused(cordon("pki", "issue-user", *site, *nobody, "--out", folder / "n.p12", code=None), 1, "nobody")
        refused(cordon("pki", "revoke", *site, "--uid", "nobody", code=None), 1, "nobody")
        refused(cordon("pki", "revoke", *site, "--device", "nothing", code=None), 1, "nothing")
        refused(cordon("pki", "revoke", *site, "--uid", "officer-2", "--reason", "boredom", code=None), 1, "boredom")
        refused(cordon("directory", "disable", *site, "--uid", "nobody", code=None), 1, "nobody")
    with suite.case("nothing is overwritten"):
        (folder / "taken.p12").write_text("mine")
        issue = ["pki", "issue-user", "--data", data, "--uid", "officer-2", "--out", folder / "taken.p12"]
        refused(cordon(*issue, code=None), 1, "taken.p12")
        equal((folder / "taken.p12").read_text(), "mine")
    with suite.case("a bad line of an import is named"):
        people = folder / "people.jsonl"
        good = {"uid": "x-1", "name": "X", "email": "x@example.org", "organisation": "O", "clearance": 1,
                "roles": ["officer"], "units": ["traffic"]}
        people.write_text(json.dumps(good) + "\n" + json.dumps({**good, "clearance": 7}) + "\n")
        refused(cordon("directory", "import", "--data", data, people, code=None), 1, "line 2")
    with suite.case("two sites on one folder"):
        ports = [f'{name} = "127.0.0.1:{free_port()}"\n' for name in ("portal", "intake", "enrolment", "metrics")]
        config.write_text("[listen]\n" + "".join(ports))
        site = Process([CORDON, "up", "--data", data, "--config", config, "--json"], folder / "one.log")
        suite.finally_do(site.kill)
        site.answer()
        ports = [f'{name} = "127.0.0.1:{free_port()}"\n' for name in ("portal", "intake", "enrolment", "metrics")]
        config.write_text("[listen]\n" + "".join(ports))
        refused(cordon("up", "--data", data, "--config", config, code=None), 1)
        equal(site.stop(), 0)
    with suite.case("a tampered audit log is refused"):
        entries = sorted((data / "audit/log/tile/entries").rglob("*.p/*"))[-1]
        content = bytearray(entries.read_bytes())
        content[len(content) // 2] ^= 1
        entries.write_bytes(content)
        done = cordon("audit", "verify", data / "audit/log", code=None)
        refused(done, 1, "does not hold")
