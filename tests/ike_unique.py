"""One IKE SA and one set of Child SAs between two gateways, whoever starts, and while either authenticates anew."""

import collections
import contextlib
import functools
import itertools
import re
import threading

from tests.harness import equal, run as execute, wait_for
from tests.ike_lab import ESP, INSIDE, Daemon, Lab, connection, mirrored
from tests.ike_pair import CHARON6_ROOT
from tests.ike_recovery import pings
from tests.namespaces import OUTSIDE

# Time after which nothing may change any more: the side that is not to act has waited for the other (10 s).
SETTLED = 12
# Longest time without an answer while an IKE SA takes the place of another.
GAP = 0.5
# Seconds for all parts one after the other, with two releases of strongSwan.
LIMIT = 1500
# strongSwan's identity is theirs.example.org: one is lower, one is higher.
LOWER, HIGHER = "ours.example.org", "zone.example.org"
# Releases of strongSwan, with the root of each that is not the host's own.
RELEASES = {"5.9": None} | ({"6": CHARON6_ROOT} if CHARON6_ROOT else {})
AUTHENTICATIONS = {"make before break": "yes", "break before make": "no"}


def repeated(log):
    """Lines of a log that come more often than two attempts explain, without times and numbers."""
    lines = (re.sub(r"^\S+ +", "", line) for line in log.splitlines())
    lines = (re.sub(r"[0-9a-f]{16}|[0-9a-f]{8}|\d+", "#", line) for line in lines if line)
    return {line: count for line, count in collections.Counter(lines).items() if count > 2}


def ends(daemon):
    return [(child["spi_in"], child["spi_out"]) for child in daemon.children()]


def is_one(ours, other):
    """Whether both have one IKE SA with one Child SA, and it is the same one."""
    if not all(len(daemon.sas()) == 1 for daemon in (ours, other)):
        return False
    mine, theirs = ends(ours), ends(other)
    return len(mine) == 1 and [(spi_out, spi_in) for spi_in, spi_out in mine] == theirs


def wait_for_one(ours, other):
    wait_for(lambda: is_one(ours, other), lambda: f"{ours.sas()}\n{other.sas()}\n{ours.log()[-3000:]}", 30)


@contextlib.contextmanager
def both(lab, starts, ids=("ours.example.org", "theirs.example.org"), extra=""):
    """Two daemons that begin at the same moment."""
    mine = connection(suite=None, start=starts[0], extra=extra, local_id=ids[0], remote_id=ids[1])
    names = {"local_id": ids[1], "remote_id": ids[0], "remote": OUTSIDE["client"]}
    theirs = mirrored(suite=None, start=starts[1], extra=extra, **names)
    daemons = [Daemon(lab, "client", mine), Daemon(lab, "server", theirs, interface="")]
    threads = [threading.Thread(target=daemon.start) for daemon in daemons]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with contextlib.ExitStack() as stack:
        # They run already: only their ends are the stack's.
        for daemon in daemons:
            stack.push(daemon.__exit__)
        yield daemons


def two_of_ours(suite, lab, *starts):
    for one, two, name in starts:
        with suite.case(f"two daemons, start = {one} and {two}, as {name}: one IKE SA and one Child SA stay"):
            with both(lab, (one, two), (name, "theirs.example.org")) as (ours, other):
                sides = [side for side, start in (("client", one), ("server", two)) if start == "trap"]
                for side in sides if "start" not in (one, two) else ():
                    # A packet of either side, or of both at once, brings it up.
                    other_side = {"client": "server", "server": "client"}[side]
                    lab.network.run(side, "ping", "-c", "3", "-i", "0.5", INSIDE[other_side], code=None)
                wait_for_one(ours, other)
                with pings(lab.network.command("client"), GAP):
                    execute("sleep", str(SETTLED))
                wait_for_one(ours, other)
                counts = [daemon.counter("established") for daemon in (ours, other)]
                assert all(count <= 2 for count in counts), counts
                execute("sleep", "5")
                equal([daemon.counter("established") for daemon in (ours, other)], counts, "IKE SAs that came up")
                for daemon in (ours, other):
                    equal(repeated(daemon.log()), {}, "lines that come again and again")


def deaths(suite, lab):
    with suite.case("two daemons that both start: either closes, dies and comes back, and one IKE SA stays"):
        with both(lab, ("start", "start"), extra="liveness = 2") as (ours, other):
            wait_for_one(ours, other)
            for daemon, peer in ((ours, other), (other, ours)):
                peer.tell("down", "peer")
                # The side that still wants it has it again.
                wait_for_one(ours, other)
                peer.tell("connect", "peer")
                daemon.process.kill()
                (daemon.folder / "log").unlink()
                daemon.start()
                wait_for_one(ours, other)
            execute("sleep", str(SETTLED))
            wait_for_one(ours, other)


def spis(charon):
    """Inbound SPIs of charon's Child SAs."""
    return re.findall(r"in  ([0-9a-f]{8})", charon.sas())


def is_one_with(ours, charon):
    text = charon.sas()
    up = re.findall(r": #\d+, (\w+), IKEv2", text)
    return up == ["ESTABLISHED"] and len(ours.sas()) == 1 and [spi_out for _, spi_out in ends(ours)] == spis(charon)


def wait_for_one_with(ours, charon):
    wait_for(lambda: is_one_with(ours, charon), lambda: f"{ours.sas()}\n{charon.sas()}\n{ours.log()[-3000:]}", 40)


def with_strongswan(suite, lab, name, release="5.9", starts=(("start", "start"),)):
    """`starts` are ours and strongSwan's; its ESP in user space sets no traps."""
    for first, unique, (start, theirs) in itertools.product(("ours", "strongSwan"), ("no", "keep"), starts):
        if (start, theirs) != ("start", "start") and (first, unique) != ("ours", "no"):
            continue
        title = f"strongSwan {release} has start = {theirs} and we {start}, unique = {unique}, {first} first, we are {name}"
        with suite.case(f"{title}: one IKE SA and one Child SA stay"):
            ours = Daemon(lab, "client", connection(local_id=name, start=start))
            options = {"esp": f"{ESP}\n        start_action = {theirs}", "ppk": f"unique = {unique}", "remote_id": name}
            options["root"] = RELEASES[release]
            with contextlib.ExitStack() as stack:
                if first == "ours":
                    stack.enter_context(ours)
                charon = stack.enter_context(lab.charon(**options))
                if first != "ours":
                    stack.enter_context(ours)
                if "start" not in (start, theirs):
                    lab.network.run("client", "ping", "-c", "3", "-i", "0.5", INSIDE["server"], code=None)
                wait_for(ours.children, ours.log)
                with pings(lab.network.command("client"), GAP):
                    execute("sleep", str(SETTLED))
                wait_for_one_with(ours, charon)
                count = ours.counter("established")
                assert count <= 2, count
                execute("sleep", "3")
                equal(ours.counter("established"), count, "IKE SAs that came up")
                equal(repeated(ours.log()), {}, "lines that come again and again")


def authenticating_anew(suite, lab, by):
    for release, (title, setting) in itertools.product(RELEASES, AUTHENTICATIONS.items()):
        with suite.case(f"strongSwan {release} authenticates anew every 4 s, {title}, started by {by}: one tunnel stays"):
            text = connection(start="start" if by == "ours" else "none")
            options = {"root": RELEASES[release], "ppk": "reauth_time = 4s\n    over_time = 4s\n    rand_time = 0s"}
            with lab.charon(settings=f"make_before_break = {setting}", **options) as charon:
                with Daemon(lab, "client", text) as ours:
                    if by == "theirs":
                        charon.control("--initiate", "--child", "net", "--timeout", "20")
                    wait_for(ours.children, ours.log)
                    # With a break there is none for a moment.
                    with pings(lab.network.command("client"), GAP if setting == "yes" else 5.0):
                        wait_for(lambda: ours.counter("established") >= 4, "new IKE SAs", 60)
                    wait_for_one_with(ours, charon)
                    # Each takes the place of one.
                    most = ours.log().count("Child SA up")
                    assert most <= 2 * ours.counter("established"), most


# Only ours starts, only strongSwan, or a packet of ours.
ONE_SIDE = (("start", "none"), ("none", "start"), ("trap", "start"), ("trap", "none"))

# Each waits most of its time.
PARTS = {
    "starts": lambda suite, lab: two_of_ours(
        suite, lab, ("start", "start", LOWER), ("start", "start", HIGHER), ("start", "none", LOWER),
    ),
    "traps": lambda suite, lab: two_of_ours(
        suite, lab, ("none", "start", LOWER), ("trap", "start", LOWER), ("trap", "trap", LOWER),
    ),
    "other traps": lambda suite, lab: two_of_ours(
        suite, lab, ("start", "trap", LOWER), ("none", "trap", LOWER), ("trap", "none", LOWER),
    ),
    "deaths": deaths,
    "anew by ours": lambda suite, lab: authenticating_anew(suite, lab, "ours"),
    "anew by theirs": lambda suite, lab: authenticating_anew(suite, lab, "theirs"),
    "strongSwan, lower": lambda suite, lab: with_strongswan(suite, lab, LOWER),
    "strongSwan, higher": lambda suite, lab: with_strongswan(suite, lab, HIGHER),
    "strongSwan, one side": lambda suite, lab: with_strongswan(suite, lab, LOWER, starts=ONE_SIDE),
}
if CHARON6_ROOT:
    PARTS |= {
        f"strongSwan 6, {title}": functools.partial(with_strongswan, name=name, release="6", starts=starts)
        for title, name, starts in (
            ("lower", LOWER, (("start", "start"), *ONE_SIDE)), ("higher", HIGHER, (("start", "start"),)),
        )
    }


def run(suite):
    lab = Lab(suite)
    for part in [suite.part] if suite.part else PARTS:
        PARTS[part](suite, lab)
