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
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
from playwright.sync_api import sync_playwright

from tests.harness import CORDON, ROOT, contains, cordon, cordon_json, equal, run as run_command, wait_for
from tests.portal import launch
from tests.runner import Suite, finish, run_suite

SCHEMA = ROOT / "crates/lab/schema.json"
SCREENSHOTS = ROOT / "target" / "screenshots"
# Without network and with: short ones.
MEASURED = ["ced", "latency"]
FEW = 5
# Interrupts come within this many seconds: into the start, the first tunnels and the last.
LONGEST = 8.0
# A killed parent cannot wait for what the kernel tidies.
GRACE = 10


def run(suite):
    results = measured(suite)
    missing(suite)
    usage(suite)
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
        answer = cordon_json("lab", "run", "--quick", "--out", path, *MEASURED)
        equal(answer["measured"], MEASURED, "measured")
        results = json.loads(path.read_text())
        schema().validate(results)
        for outcome in results["experiments"]:
            assert outcome["figures"] and outcome["versions"] or outcome["name"] == "ced", outcome["name"]
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
        assert {"ced", "ibc", "block-size", "latency", "https", "vpn-ciphers"} <= {one["name"] for one in listed}
        assert all(one["question"].endswith("?") and one["source"] for one in listed)
    with suite.case("an ordinary binary says what it lacks"):
        ordinary = not cordon_json("lab", "list")["laboratory"]
        equal("--features lab" in cordon("lab", "list").stdout, ordinary, "note")
    with suite.case("an unknown name, an existing file and foreign results are refused"):
        contains(cordon("lab", "run", "nothing", code=2).stderr, "choose from ced")
        taken = suite.folder / "taken.json"
        taken.write_text("{}")
        contains(cordon("lab", "run", "--quick", "--out", taken, "ced", code=1).stderr, "name a new file")
        contains(cordon("lab", "report", taken, code=1).stderr, "not results of the lab")
    with suite.case("the worker touches no mounts outside of its sandbox"):
        contains(run_command(CORDON, "lab", "worker", code=1, input='{"names":[],"quick":true}\n').stderr, "not in a sandbox")
        assert not Path("/run/cordon-lab").exists()


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
        lines = cordon_json("lab", "compare", results, results)["lines"]
        assert len(lines) > 20 and all(line["agrees"] and line["change"] in (1, None) for line in lines)
    with suite.case("a change beyond the spread is told with its direction"):
        slower = json.loads(results.read_text())
        slow(slower)
        other = suite.folder / "slower.json"
        other.write_text(json.dumps(slower))
        lines = cordon_json("lab", "compare", results, other)["lines"]
        changed = [line for line in lines if not line["agrees"]]
        assert changed and not any(line["better"] for line in changed), changed
        equal({line["figure"] for line in changed}, {"average"}, "figures")


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
            name = dice.choice(["latency", "https", "vpn-ciphers", "block-size"])
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
    elif seconds > 1:
        # Earlier, the program may not have got as far as to catch signals.
        equal(code, 1, f"exit code, {what}\n{text}")
        contains(text, "interrupted")
    else:
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not marked(marker), "the end", GRACE)
    equal(marked(marker), [], f"processes after {what}")
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
