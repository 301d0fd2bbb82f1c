"""The lab: what it stores, what it shows, and that an interrupt leaves nothing.

    CORDON=target/debug/cordon .venv/bin/python -m tests lab              a few interrupts
    CORDON=target/debug/cordon .venv/bin/python -m tests.lab --times 50   many
"""

import argparse
import contextlib
import json
import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
from playwright.sync_api import sync_playwright

from tests.harness import CORDON, LAB, ROOT, contains, cordon, cordon_json, equal, run as run_command, wait_for
from tests.portal import launch
from tests.runner import Suite, finish, run_suite

SCHEMA = ROOT / "crates/lab/schema.json"
SCREENSHOTS = ROOT / "target" / "screenshots"
# Without network and with: short ones.
MEASURED = ["ced", "latency"]
ALL = ["ced", "ced-hardware", "ibc", "block-size", "offload", "latency", "https", "handshakes", "vpn-ciphers", "ipsec-modes", "transfer", "cctv", "scale"]
FEW = 5
# Interrupts come within this many seconds: into the start, the first tunnels and the last.
LONGEST = 8.0
# A killed parent cannot wait for what the kernel tidies.
GRACE = 10


def run(suite):
    results = measured(suite)
    missing(suite)
    usage(suite)
    cameras(suite)
    kept(suite)
    unprivileged(suite)
    if results:
        pages(suite, results)
        compared(suite, results)
    interrupted(suite, FEW, random.randrange(1 << 32))


def schema():
    validator = jsonschema.Draft202012Validator
    text = json.loads(SCHEMA.read_text())
    validator.check_schema(text)
    return validator(text)


def measured(suite):
    """Measures something and returns the file; nothing if that failed."""
    path = suite.folder / "results.json"
    with suite.case("a quick run ends 0 and stores results that fit the schema"):
        # An unoptimised program on a busy machine takes several times as long as an optimised one.
        answer = cordon_json("lab", "run", "--quick", "--out", path, *MEASURED, timeout=400)
        equal(answer["measured"], MEASURED, "measured")
        results = json.loads(path.read_text())
        schema().validate(results)
        for outcome in results["experiments"]:
            assert outcome["figures"] and outcome["versions"] or outcome["name"].startswith("ced"), outcome["name"]
    with suite.case("what was published stands beside, with its table"):
        results = json.loads(path.read_text())
        for outcome in results["experiments"]:
            assert re.search(r"Table|Fig\.", outcome["source"]), outcome["source"]
    with suite.case("the schema refuses what it does not know"):
        broken = json.loads(path.read_text())
        broken["experiments"][0]["figures"][0]["rows"][0]["colour"] = "red"
        assert list(schema().iter_errors(broken)), "an unknown field"
        broken = json.loads(path.read_text())
        broken["experiments"][0].update(state="not_run", packages=[])
        assert list(schema().iter_errors(broken)), "a missing package"
    return path if path.exists() else None


def missing(suite):
    with suite.case("without a program the experiment is not run, and its package is named"):
        # A path with nothing but what makes the sandbox; programs for administrators are found anyway.
        folder = suite.folder / "bin"
        folder.mkdir()
        (folder / "unshare").symlink_to("/usr/bin/unshare")
        path = suite.folder / "missing.json"
        environment = {**os.environ, "PATH": str(folder)}
        cordon("lab", "run", "--quick", "--out", path, "latency", env=environment)
        results = json.loads(path.read_text())
        schema().validate(results)
        [outcome] = results["experiments"]
        equal(outcome["state"], "not_run", "state")
        contains(outcome["reason"], "ping")
        equal(outcome["packages"], ["iputils-ping"], "packages")


def usage(suite):
    with suite.case("every experiment is listed with question, source and what it needs"):
        listed = cordon_json("lab", "list")["experiments"]
        equal([one["name"] for one in listed], ALL, "names")
        assert all(one["question"].endswith("?") and one["source"] for one in listed)
    with suite.case("an ordinary binary says what it lacks"):
        ordinary = not cordon_json("lab", "list")["laboratory"]
        equal("--features cordon/lab" in cordon("lab", "list").stdout, ordinary, "note")
    with suite.case("an unknown name, an existing file and foreign results are refused"):
        contains(cordon("lab", "run", "nothing", code=2).stderr, "choose from ced")
        taken = suite.folder / "taken.json"
        taken.write_text("{}")
        contains(cordon("lab", "run", "--quick", "--out", taken, "ced", code=1).stderr, "name a new file")
        contains(cordon("lab", "report", taken, code=1).stderr, "not results of the lab")
    with suite.case("the worker touches no mounts outside of its sandbox"):
        order = '{"names":[],"quick":true,"bare":null}\n'
        contains(run_command(CORDON, "lab", "worker", code=1, input=order).stderr, "not in a sandbox")
        assert not Path("/run/cordon-lab").exists()


def cameras(suite):
    """A viewer and cameras on one machine, without a network: the rule for late and lost frames."""
    folder = suite.folder / "cameras"
    folder.mkdir()
    film = folder / "film.ts"
    source = "testsrc2=size=320x180:rate=25"
    run_command("ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", source, "-t", "2", "-c:v", "libx264",
                "-preset", "ultrafast", "-g", "25", "-f", "mpegts", film)

    def both(frames, expected, limit):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % free.getsockname()[1]
        viewer = subprocess.Popen([CORDON, "lab", "viewer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            order = {"address": address, "cameras": 3, "frames": expected, "limit_ms": limit}
            viewer.stdin.write(json.dumps(order) + "\n")
            viewer.stdin.flush()
            equal(viewer.stdout.readline(), "listening\n", "the viewer")
            order = {"viewer": address, "film": str(film), "cameras": 3, "frames": frames}
            filmed = json.loads(run_command(CORDON, "lab", "cameras", input=json.dumps(order) + "\n").stdout)
            return filmed, json.loads(viewer.stdout.readline())
        finally:
            viewer.kill()
            viewer.wait()
            viewer.stdin.close()
            viewer.stdout.close()

    with suite.case("every frame of a real film comes whole and in time"):
        filmed, viewed = both(60, 60, 5000)
        equal((viewed["frames"], viewed["late"], viewed["lost"], filmed["dropped"]), (180, False, 0, 0), "frames")
        assert 0 < viewed["worst_ms"] < 5000, viewed
    with suite.case("frames that do not come are lost, those after their limit late"):
        equal(both(10, 12, 500)[1]["lost"], 6, "lost")
        equal(both(10, 10, 0)[1]["late"], True, "late")
    with suite.case("a film that is none is refused"):
        film.write_bytes(b"no film")
        order = {"viewer": "127.0.0.1:9", "film": str(film), "cameras": 1, "frames": 1}
        contains(run_command(CORDON, "lab", "cameras", code=1, input=json.dumps(order) + "\n").stderr,
                 "not a transport stream")


def kept(suite):
    """What was measured before an interrupt is stored."""
    with suite.case("an interrupted run keeps what was measured, and says so"):
        path = suite.folder / "kept.json"
        child = subprocess.Popen([CORDON, "lab", "run", "--quick", "--out", path, "ced", "latency", "https"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = ""
        for line in child.stderr:
            said += line
            if "measured in" in line:
                break
        child.send_signal(signal.SIGINT)
        said += child.stderr.read()
        equal(child.wait(20), 1, "exit code")
        child.stderr.close()
        contains(said, "interrupted; what was measured until then is stored in")
        results = json.loads(path.read_text())
        schema().validate(results)
        equal(results["complete"], False, "complete")
        states = {one["name"]: one["state"] for one in results["experiments"]}
        equal(states, {"ced": "measured", "latency": "interrupted", "https": "interrupted"}, "states")
        cordon("lab", "report", path)
        contains(path.with_suffix(".html").read_text(), "This run was interrupted")


def unprivileged(suite):
    """As a user whom the kernel gives no namespaces."""
    with suite.case("without namespaces, what needs none is measured, and the rest says what is missing"):
        folder = suite.folder / "refused"
        folder.mkdir()
        # Stands in for a kernel that refuses; what else it would do never happens.
        fake = folder / "unshare"
        fake.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
        fake.chmod(0o755)
        path = suite.folder / "refused.json"
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        cordon("lab", "run", "--quick", "--out", path, "ced", "latency", env=environment)
        results = json.loads(path.read_text())
        schema().validate(results)
        states = {one["name"]: one["state"] for one in results["experiments"]}
        equal(states, {"ced": "measured", "latency": "not_run"}, "states")
        reason = results["experiments"][1]["reason"]
        contains(reason, "run as root")
        contains(reason, "Operation not permitted")
        assert not Path("/run/cordon-lab").exists(), "a folder outside of a sandbox"
    with suite.case("an ordinary user measures networks where the kernel lets users make them"):
        home = suite.folder / "user"
        home.mkdir()
        home.chmod(0o777)
        user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        program = home / "cordon"
        for file in (CORDON, LAB):
            shutil.copy(file, home)
        flags = ["--user", "--map-root-user", "--mount", "--net", "--ipc", "--pid", "--fork", "--mount-proc"]
        allowed = subprocess.run([*user, "unshare", *flags, "true"], capture_output=True)
        # The way to it may be closed to others: a test's folder is its owner's.
        opened = [folder for folder in [home, *home.parents] if not folder.stat().st_mode & 1]
        modes = {folder: folder.stat().st_mode & 0o7777 for folder in opened}
        for folder, mode in modes.items():
            folder.chmod(mode | 0o1)
        try:
            run_command(*user, program, "lab", "run", "--quick", "--out", home / "results.json", "latency", timeout=300)
        finally:
            for folder, mode in modes.items():
                folder.chmod(mode)
        results = json.loads((home / "results.json").read_text())
        schema().validate(results)
        expected = "measured" if allowed.returncode == 0 else "not_run"
        equal(results["experiments"][0]["state"], expected, "state")


def pages(suite, results):
    html, markdown = results.with_suffix(".html"), results.with_suffix(".md")
    with suite.case("the report is written as HTML and as Markdown"):
        cordon("lab", "report", results)
        text = html.read_text()
        assert not re.search(r"""(src|href)=["']?(https?:)?//""", text), "a link to elsewhere"
        embedded = re.search(r'<script type="application/json" id="results">(.*?)</script>', text, re.S).group(1)
        equal(json.loads(embedded), json.loads(results.read_text()), "the embedded results")
        for heading in ("What to choose", "Method", "Conditions"):
            contains(text, heading)
            contains(markdown.read_text(), heading)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for scheme in ("light", "dark"):
            for name, width in (("wide", 1280), ("narrow", 380)):
                with suite.case(f"the page opens in Chromium, {scheme} and {name}, without a complaint"):
                    picture = SCREENSHOTS / f"lab-{scheme}-{name}.png"
                    opened(browser, html, scheme, width, picture)
        with suite.case("the page prints"):
            page = browser.new_page()
            page.goto(html.as_uri())
            assert page.pdf().startswith(b"%PDF"), "no PDF"
        browser.close()


def opened(browser, html, scheme, width, picture):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    complaints = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: request.url.startswith(("file:", "data:")) or complaints.append(request.url))
    page.goto(html.as_uri())
    equal(page.evaluate("document.documentElement.scrollWidth"), width, "width of the page")
    assert page.locator("figure svg").count() >= 5, "too few pictures"
    red, green, blue = map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3])
    equal(red + green + blue > 380, scheme == "light", "a bright page")
    for identifier in ("choose", "method", *MEASURED):
        equal(page.locator(f"h2#{identifier}").count(), 1, identifier)
    # Text must not run out of a picture.
    outside = page.evaluate("""[...document.querySelectorAll('svg')].flatMap(svg => {
        const frame = svg.getBoundingClientRect();
        return [...svg.querySelectorAll('text')].filter(text => {
            const box = text.getBoundingClientRect();
            return box.left < frame.left - 1 || box.right > frame.right + 1;
        }).map(text => text.textContent);
    })""")
    equal(outside, [], "text outside of its picture")
    page.screenshot(path=picture, full_page=True)
    equal(complaints, [], "complaints")
    page.close()


def compared(suite, results):
    with suite.case("a run agrees with itself"):
        compared = cordon_json("lab", "compare", "--same", results, results)
        lines = compared["lines"]
        equal(compared["agree"], compared["ratios"], "ratios that agree")
        assert compared["ratios"] > 20 and all(line["agrees"] and line["change"] in (1, None) for line in lines)
    with suite.case("a change beyond the spread is told with its direction"):
        slower = json.loads(results.read_text())
        slow(slower)
        other = suite.folder / "slower.json"
        other.write_text(json.dumps(slower))
        lines = cordon_json("lab", "compare", results, other)["lines"]
        changed = [line for line in lines if not line["agrees"]]
        assert changed and not any(line["better"] for line in changed), changed
        equal({line["figure"] for line in changed}, {"average"}, "figures")
        failed = cordon("lab", "compare", "--same", results, other, code=1)
        ratios = [line for line in changed if line["what"] == "ratio"]
        contains(failed.stderr, f"{len(ratios)} of ")
        contains(failed.stdout, "  worse")


def slow(results):
    """Makes one figure much worse."""
    for outcome in results["experiments"]:
        for figure in (one for one in outcome["figures"] if one["id"] == "average"):
            for row in figure["rows"]:
                for spread in filter(None, (row["measured"], row["ratio"])):
                    for name in ("median", "low", "high"):
                        spread[name] *= 1000


def interrupted(suite, times, seed):
    print(f"        seed {seed}; repeat with: python -m tests.lab --times {times} --seed {seed}")
    dice = random.Random(seed)
    with suite.case(f"{times} interrupts at random moments leave nothing"):
        for number in range(times):
            kind = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL][number % 3]
            name = dice.choice(ALL)
            interrupt(suite.folder / f"interrupt-{number}", kind, name, dice.uniform(0.0, LONGEST))


def interrupt(folder, kind, name, seconds):
    folder.mkdir()
    temporary = folder / "temporary"
    temporary.mkdir()
    marker = secrets.token_hex(8)
    environment = {**os.environ, "CORDON_TEST_MARKER": marker, "TMPDIR": str(temporary)}
    log = folder / "log"
    with open(log, "wb") as out:
        child = subprocess.Popen(
            [CORDON, "lab", "run", "--quick", "--out", "results.json", name],
            cwd=folder, env=environment, stdout=out, stderr=out,
        )
    time.sleep(seconds)
    most = len(marked(marker))
    child.send_signal(kind)
    code = child.wait(GRACE + 10)
    what = f"{kind.name} after {seconds:.2f} s of {name}, {most} processes"
    text = log.read_text()
    if kind == signal.SIGKILL:
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not marked(marker), "the end", GRACE)
    elif code == 0:
        # It was done before: these compute for a few seconds only.
        assert name in ("ced", "ced-hardware", "ibc", "offload"), f"done already, {what}"
    elif seconds > 1:
        # Earlier, the program may not have got as far as to catch signals.
        equal(code, 1, f"exit code, {what}\n{text}")
        contains(text, "interrupted")
    else:
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not marked(marker), "the end", GRACE)
    equal(marked(marker), [], f"processes after {what}")
    stored = folder / "results.json"
    if stored.exists():
        # Whole rounds that were over.
        results = json.loads(stored.read_text())
        schema().validate(results)
        assert results["complete"] == (code == 0) and results["experiments"][0]["figures"], f"results after {what}"
        stored.unlink()
    equal(sorted(path.name for path in folder.iterdir()), ["log", "temporary"], f"files after {what}")
    equal(list(temporary.iterdir()), [], f"temporary files after {what}")
    assert "cordon-lab" not in Path("/proc/self/mounts").read_text(), f"mounts after {what}"
    assert not Path("/run/cordon-lab").exists() and not Path("/run/wireguard").exists(), f"files in /run after {what}"
    equal([one.name for one in Path("/run/netns").glob("*") if one.name in ("server", "client")], [],
          f"network namespaces after {what}")


def marked(marker):
    """What still runs of a run: every process has its environment from the first."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and marker.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=FEW)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = random.randrange(1 << 32) if args.seed is None else args.seed
    suite = Suite("lab")
    run_suite(suite, lambda suite: interrupted(suite, args.times, seed), limit=60 + 30 * args.times)
    return finish([suite])


if __name__ == "__main__":
    sys.exit(main())
