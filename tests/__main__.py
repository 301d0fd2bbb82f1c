"""Runs the suites named on the command line, or all of them.

    python -m tests [--jobs N] [--only sharing|alone] [NAME...]

`--jobs N` runs N side by side. `--only sharing` leaves out those that must be alone on the machine, `--only alone` the others.
"""

import argparse
import concurrent.futures
import importlib
import re
import subprocess
import sys
import threading
import time

from tests.runner import main

# The longest first, so that nothing long is left for the end when they run side by side.
SUITES = [
    "ike_vpn", "ikev2", "ike_kernel", "lab", "ike_block", "hostile_site", "ike_hostile", "ike_keys", "ike_eap",
    "ike_modes", "ike_unique", "ike_large", "openvpn", "vpn", "browser", "demo", "kill", "faults", "insiders", "diskfull", "rollback", "upload",
    "export", "scan", "slow_link", "years", "authorities", "ocsp", "tunnel_renewal", "revoked_centre", "product",
    "camera_alone", "tutorials", "ike_recovery", "quarantine", "ike_confinement", "house", "ibc", "hw", "ike_load", "ike_flood", "ike_crash",
]
# Suites that compare times or load the machine, and a browser, which gives up pages whenever an interface of
# the host changes: they run when nothing else does.
ALONE = {"ike_load", "ike_flood", "ike_crash", "hostile_site", "browser", "slow_link"}
# Suites whose time is that of what they measure, or that need tools which CI does not install: only when named, and in
# `scripts/test --full`.
WHEN_NAMED = {"slow_link", "hw"}
# A suite that is beyond the limit of tests.runner and of its own clean-up hangs.
LIMIT = 900


def load(name):
    if name not in SUITES:
        print(f"tests: there is no suite {name}\n  to do: choose from {', '.join(SUITES)}", file=sys.stderr)
        sys.exit(2)
    return importlib.import_module(f"tests.{name}")


def one(name, lock):
    """Runs a suite in a process of its own; counts of what passed and failed come back."""
    started = time.monotonic()
    command = [sys.executable, "-m", "tests", name]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        text, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        text, code = (error.stdout or b"").decode(errors="replace") + f"\n{name}: not done after {LIMIT} s", 1
    counts = re.search(r"^(\d+) passed, (\d+) failed", text, re.MULTILINE)
    passed, failed = map(int, counts.groups()) if counts else (0, 1)
    if code != 0 and failed == 0:
        failed = 1
    with lock:
        print(re.sub(r"^\d+ passed, \d+ failed.*\n", "", text, flags=re.MULTILINE), end="")
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    return passed, failed


def side_by_side(names, jobs):
    """Runs suites in so many processes, then those that must be alone."""
    lock = threading.Lock()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        counts = list(pool.map(lambda name: one(name, lock), [name for name in names if name not in ALONE]))
    counts += [one(name, lock) for name in names if name in ALONE]
    passed, failed = (sum(column) for column in zip(*counts))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def run(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests", description="Runs suites of tests.")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="suites side by side")
    parser.add_argument("--only", choices=["sharing", "alone"], help="suites that may share the machine, or may not")
    parser.add_argument("names", nargs="*", metavar="NAME", help="suites; all that are not only run when named")
    chosen = parser.parse_args(arguments)
    if chosen.jobs < 1:
        parser.error("--jobs takes a number from 1 on")
    names = chosen.names or [name for name in SUITES if name not in WHEN_NAMED]
    if chosen.only:
        names = [name for name in names if (name in ALONE) == (chosen.only == "alone")]
    modules = [load(name) for name in names]
    return side_by_side(names, chosen.jobs) if chosen.jobs > 1 else main(modules)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
