"""Runs the suites named on the command line, or all of them.

    python -m tests [--jobs N] [--only sharing|alone] [--part PART] [NAME...]

`--jobs N` runs N side by side. `--only sharing` leaves out those that must be alone on the machine, `--only alone` the others.
`--part PART` runs one part of a suite that has `PARTS`.
"""

import argparse
import concurrent.futures
import importlib
import os
import re
import subprocess
import sys
import threading
import time

from tests.runner import main

# The longest first, so that nothing long is left for the end when they run side by side.
SUITES = [
    "ike_unique", "ikev2", "ike_vpn", "lab", "export", "vpn", "browser", "ike_keys", "openvpn", "demo", "years", "relying_parties", "suspensions", "ike_eap",
    "ibc", "tunnel_renewal", "ike_recovery", "ike_tcp", "ike_modes", "ike_workers", "ike_algorithms", "ike_block", "diskfull", "revoked_centre", "insiders", "poison", "kill", "issuing_kills",
    "ike_hostile", "ike_identities", "ike_check", "ike_setup", "faults", "requests", "profiles", "key_archive", "request_pages", "applicant", "enrolment", "id_enrol", "founding", "cmp", "acme", "scep", "notices", "authorities", "ceremony", "generations", "generations_kept", "generations_tunnels", "authority_keys",
    "audit_host", "hosts", "rollback", "upload", "tutorials", "ike_large",
    "openid", "services", "scan", "scale", "ocsp", "ldap",
    "product", "pages", "camera_alone", "ike_confinement", "quarantine", "house", "ike_kernel", "hostile_readers", "hostile_site", "resumption", "ike_load",
    "ike_flood", "ike_crash", "ike_many", "slow_link", "hw", "accelerator", "accel_kernel", "accel_product",
]
# Suites that compare times or load the machine: they run when nothing else does.
ALONE = {"ike_load", "ike_flood", "ike_crash", "hostile_site", "slow_link"}
# Suites that wait more than they work and hold short times: they share a machine with one another only.
TIMED = {"ike_unique", "ike_recovery", "ike_tcp", "relying_parties", "suspensions", "tunnel_renewal"}
# Suites whose time is that of what they measure, or that need tools which CI does not install: only when named, and in
# `scripts/test --full`.
WHEN_NAMED = {"slow_link", "hw", "accelerator", "accel_kernel"}
# A suite that is beyond the limit of tests.runner, or its own, and of its own clean-up hangs.
LIMIT, CLEAN_UP = 900, 300


def load(name):
    if name not in SUITES:
        print(f"tests: there is no suite {name}\n  to do: choose from {', '.join(SUITES)}", file=sys.stderr)
        sys.exit(2)
    return importlib.import_module(f"tests.{name}")


# Gives a suite an own network with a loopback interface: no port is another's, and no interface comes or goes because of
# another, which would make a browser give up its pages.
OWN_NETWORK = ["unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def one(name, part, lock):
    """Runs a suite, or a part of it, in a process and a network of its own; counts of what passed and failed come back."""
    started = time.monotonic()
    command = [*(OWN_NETWORK if os.geteuid() == 0 else []), sys.executable, "-m", "tests", name]
    if part:
        command += ["--part", part]
    title = f"{name}, {part}" if part else name
    limit = max(LIMIT, getattr(load(name), "LIMIT", 0) + CLEAN_UP)
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit)
        text, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        text, code = (error.stdout or b"").decode(errors="replace") + f"\n{title}: not done after {limit} s", 1
    counts = re.search(r"^(\d+) passed, (\d+) failed", text, re.MULTILINE)
    passed, failed = map(int, counts.groups()) if counts else (0, 1)
    if code != 0 and failed == 0:
        failed = 1
    with lock:
        print(re.sub(r"^\d+ passed, \d+ failed.*\n", "", text, flags=re.MULTILINE), end="")
        print(f"{title}: {time.monotonic() - started:.0f} s", flush=True)
    return passed, failed


def side_by_side(modules, jobs):
    """Runs suites in so many processes, then the timed ones with all their parts at once, then those that must be alone."""
    lock = threading.Lock()
    groups = [[], [], []]
    for name, module in modules.items():
        groups[2 if name in ALONE else 1 if name in TIMED else 0] += [(name, part) for part in getattr(module, "PARTS", [None])]
    counts = []
    for group, most in zip(groups, (jobs, len(groups[1]), 1)):
        if group:
            with concurrent.futures.ThreadPoolExecutor(most) as pool:
                counts += pool.map(lambda each: one(*each, lock), group)
    passed, failed = (sum(column) for column in zip(*counts))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def run(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests", description="Runs suites of tests.")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="suites side by side")
    parser.add_argument("--only", choices=["sharing", "alone"], help="suites that may share the machine, or may not")
    parser.add_argument("--part", help="one part of a suite that has some")
    parser.add_argument("names", nargs="*", metavar="NAME", help="suites; all that are not only run when named")
    chosen = parser.parse_args(arguments)
    if chosen.jobs < 1:
        parser.error("--jobs takes a number from 1 on")
    names = chosen.names or [name for name in SUITES if name not in WHEN_NAMED]
    if chosen.only:
        names = [name for name in names if (name in ALONE | TIMED) == (chosen.only == "alone")]
    modules = {name: load(name) for name in names}
    if chosen.part and any(chosen.part not in getattr(module, "PARTS", []) for module in modules.values()):
        parser.error("--part takes the name of a part that each suite has")
    if chosen.jobs > 1:
        return side_by_side(modules, chosen.jobs)
    return main(modules.values(), chosen.part)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
