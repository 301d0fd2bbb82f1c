"""Many tunnels at one gateway: all at once, what each costs in memory, and new keys for all of them at the same time.

`python -m tests.ike_many --full` has 5000, with release builds in CORDON and CORDON_LAB; with `--rounds 5` all of it five times,
each with a gateway and cameras of its own, and `--tunnels 1000` has so many.
"""

import argparse
import statistics
import sys
import time
from typing import NamedTuple

from tests.harness import equal
from tests.ike_fleet import Fleet, told
from tests.ike_lab import INSIDE, Daemon, Lab
from tests.runner import Suite, finish, run_suite
from tests.spoof import cpu, resident


class Scale(NamedTuple):
    tunnels: int
    # Seconds of a Child SA's life: less a tenth at random it gets new keys. All begin at once.
    lifetime: int
    # Seconds until all have new ones.
    within: int
    # How often all get new keys.
    storms: int
    # Bytes of memory for a tunnel, with all that belongs to its IKE SA; among few, what is there once counts too much.
    each: int | None


FEW, FULL = Scale(300, 20, 30, 1, None), Scale(5000, 60, 60, 2, 20_000)
# Seconds until all are up.
UP = 10
# Seconds after which a replaced Child SA receives no more, and a little.
LINGER = 12


def held(suite, scale):
    """What was measured: seconds until all were up, bytes for each, and seconds of the longest round of new keys."""
    lab = Lab(suite)
    # What is inside answers from the tunnel's interface.
    lab.network.run("server", "ip", "address", "delete", f"{INSIDE['server']}/32", "dev", "lo")
    fleet = Fleet(lab, scale.tunnels)
    text, top = fleet.gateway(f"lifetime = {2 * scale.lifetime}", f"lifetime = {scale.lifetime}")
    gateway = Daemon(lab, "server", text, top).start()
    suite.finally_do(lambda: gateway.process.kill())
    pid = gateway.process.child.pid
    empty = resident(pid, "RssAnon")

    def memory():
        kib = resident(pid, "RssAnon")
        each = (kib - empty) * 1024 / scale.tunnels
        print(f"      the gateway has {kib >> 10} MiB, {empty >> 10} without tunnels: {each:.0f} bytes each", flush=True)
        assert not scale.each or each <= scale.each, each
        return each

    with suite.case(f"{scale.tunnels} tunnels are up within {UP} s"):
        fleet.start(resume=False)
        suite.finally_do(fleet.process.kill)
        times = fleet.times()
        told("packets both ways after", times)
        print(f"      processor time of the gateway {cpu(pid):.1f} s", flush=True)
        found = {"up, s": times[-1], "memory of each, bytes": memory()}
        assert times[-1] <= UP, times[-1]
    with suite.case(f"new keys for all of them at once: packets by them within {scale.within} s, and no tunnel is lost"):
        before = gateway.ike()["counters"]
        for _ in range(scale.storms):
            began, used = time.monotonic(), cpu(pid)
            fleet.tell("storm")
            times = fleet.times()
            told("packets by new keys after", times)
            found["new keys for all, s"] = max(found.get("new keys for all, s", 0), times[-1])
            print(f"      processor time of the gateway {cpu(pid) - used:.1f} s", flush=True)
            assert time.monotonic() - began <= scale.within, time.monotonic() - began
        counters = gateway.ike()["counters"]
        equal((counters["ike_sas"], counters["established"]), (scale.tunnels, before["established"]), "IKE SAs, and how many ever came up")
        print(f"      {counters['child_rekeys'] - before['child_rekeys']} Child SAs replaced", flush=True)
        if scale.each:
            time.sleep(LINGER)
        found["memory of each, bytes"] = max(found["memory of each, bytes"], memory())
    fleet.stop()
    return found


def run(suite):
    held(suite, FEW)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help=f"{FULL.tunnels} tunnels")
    parser.add_argument("--tunnels", type=int, metavar="N", help="so many tunnels instead")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="times that all of it is done")
    chosen = parser.parse_args()
    if chosen.rounds < 1:
        parser.error("--rounds takes a number from 1 on")
    scale = FULL if chosen.full else FEW
    if chosen.tunnels:
        scale = scale._replace(tunnels=chosen.tunnels)
    suites, results = [], []
    for _ in range(chosen.rounds):
        suites.append(Suite("ike_many"))
        run_suite(suites[-1], lambda suite: results.append(held(suite, scale)), limit=600)
    for what in results[0] if results else []:
        values = [result[what] for result in results]
        print(f"{what}: median {statistics.median(values):.2f}, least {min(values):.2f}, greatest {max(values):.2f}")
    return finish(suites)


if __name__ == "__main__":
    sys.exit(main())
