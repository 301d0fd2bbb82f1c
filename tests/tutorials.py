"""The tutorials do what they say: their blocks marked as runnable run as one shell script each, in a network of their own."""

import os
import re
import shutil
from pathlib import Path

from tests.harness import CORDON, ROOT, run as run_command
from tests.namespaces import Network

# Seconds for a whole tutorial.
LIMIT = 180


def script(page):
    """The runnable blocks of a page, in order; every command must succeed."""
    blocks = re.findall(r"^```sh run\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    # With -m the numbers of background jobs are known; none of them outlives the script.
    head = "set -euo pipefail -m\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\ntrap 'exit 1' TERM\n"
    return head + "\n".join(blocks)


def run(suite):
    network = Network()
    suite.finally_do(network.remove)
    network.create()
    for name in ("first-gateway", "first-camera"):
        suite.finally_do(lambda name=name: run_command("ip", "netns", "delete", name, code=None))
    tools = suite.folder / "bin"
    tools.mkdir()
    for name in ("cordon", "cordon-camera"):
        (tools / name).symlink_to(Path(CORDON).with_name(name))
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")):
        text = script(page)
        if "\n" not in text.partition("TERM\n")[2]:
            continue
        with suite.case(f"docs/tutorials/{page.name} runs as it is written"):
            folder = suite.folder / page.stem
            folder.mkdir()
            (folder / "script").write_text(text)
            # Whatever the script started ends with its process group's leader.
            line = network.command("server", "timeout", "--kill-after=5", str(LIMIT), "bash", folder / "script")
            done = run_command(*line, code=None, cwd=folder, env=environment, timeout=LIMIT + 20)
            logs = "\n".join(log.read_text()[-1500:] for log in folder.rglob("*.log"))
            assert done.returncode == 0, f"ended {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}\n{logs}"
            shutil.rmtree(folder, ignore_errors=True)
