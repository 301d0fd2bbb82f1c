"""Suspensions of devices, gateways and people, and disabled people, at every door and relying party, until they end."""

import json
import time

from tests.harness import contains, cordon, equal, run as execute, wait_for
from tests.relying_lab import WITHIN, took
from tests.relying_parties import Parties, intake, portal
from tests.relying_tunnels import GATEWAY, Client, Gateway, Guard, StrongSwan

# At doors that read the registry.
AT_ONCE = 1.0
# For a resumed device at an OpenVPN server: five seconds until the guard compares its files, and two attempts of the device, which
# waits five seconds (`--hand-window`) for the answer to one that is refused. The rest is for a machine with other work.
RETURN = 30.0


def verifies(parties, authority, certificate, text):
    """Verifies by the lists of the certificate's own address, complete and delta, as they were published first and are now."""
    world, folder = parties.world, parties.suite.folder
    shown = execute("openssl", "x509", "-in", certificate, "-noout", "-text").stdout
    address = next(line.split("/crl/")[1] for line in shown.split("\n") if "/crl/" in line and "delta" not in line).removesuffix(".crl")
    base = folder / f"base-{address}.pem"
    if not base.exists():
        world.lists(address).replace(base)
    done = execute("openssl", "verify", "-crl_check", "-use_deltas", "-extended_crl", "-CAfile", parties.site.root,
                   "-untrusted", world.pki / f"{authority}-ca.pem", "-CRLfile", base, "-CRLfile", world.lists(f"{address}-delta"), certificate,
                   code=None)
    contains(done.stdout + done.stderr, text)
    equal(done.returncode, 0 if text == "OK" else 2, "exit code of openssl verify")


def servers(parties, certificate, key, expected):
    """Nginx by the published lists, Apache by the responder."""
    parties.nginx.fetch()
    parties.nginx.reload()
    for server in (parties.nginx, parties.apache):
        equal(server.lets_in(certificate, key), expected, type(server).__name__)


def person(parties, title, uid, begin, end):
    world, someone = parties.world, parties.people[uid]
    with parties.case(f"a person is {title}: portal, OCSP, lists with deltas, nginx, Apache; and back"):
        assert portal(someone)
        verifies(parties, "users", someone.cert, "OK")
        began = begin()
        took("the portal's refusal", lambda: not portal(someone), AT_ONCE, began)
        said = world.ocsp("users", someone.cert)
        contains(said, ": revoked")
        contains(said, "Reason: certificateHold")
        verifies(parties, "users", someone.cert, "certificate revoked")
        servers(parties, someone.cert, someone.key, False)
        began = end()
        took("the portal's page", lambda: portal(someone), AT_ONCE, began)
        contains(world.ocsp("users", someone.cert), ": good")
        verifies(parties, "users", someone.cert, "OK")
        servers(parties, someone.cert, someone.key, True)


def order(parties, *words):
    """A function that gives a command; it says when the command has ended."""

    def give():
        parties.site.ask(*words)
        return time.monotonic()

    return give


def both(parties, *whom):
    """The functions that suspend and resume."""
    return [order(parties, "registry", verb, *whom) for verb in ("suspend", "resume")]


def device(parties):
    world, folder = parties.world, parties.folder
    with parties.case("a device is suspended: intake, renewal, cordon vpn up, OpenVPN, OCSP, lists with deltas, nginx, Apache; and back"):
        car = parties.device("car-1")
        gateway, near = Gateway(world, folder), Client(world, [car])
        guard = Guard(world, "near", "car-1")
        remote = Guard(world, "remote", "car-1", number=1, source=("--crl-url", f"{world.url}/crl"))
        wait_for(lambda: gateway.peers() == {"car-1"}, lambda: gateway.text()[-3000:] + near.text()[-3000:], 20)
        assert intake(car) and guard.is_up() and remote.is_up()
        verifies(parties, "devices", car.cert, "OK")
        suspend, resume = both(parties, "--device", "car-1")
        began = suspend()
        took("the intake's refusal", lambda: not intake(car), AT_ONCE, began)
        took("the end of the tunnel", lambda: not gateway.peers(), WITHIN, began)
        for one in (guard, remote):
            began = order(parties, "registry", "suspend", "--device", one.device)()
            took(f"the end of OpenVPN's session ({one.name})", one.has_ended, WITHIN, began)
        for one in (guard, remote):
            began = order(parties, "registry", "resume", "--device", one.device)()
            took(f"the device's return to OpenVPN ({one.name})", one.is_up, RETURN, began)
        said = world.ocsp("devices", car.cert)
        contains(said, "Reason: certificateHold")
        verifies(parties, "devices", car.cert, "certificate revoked")
        servers(parties, car.chain, car.key, False)
        began = resume()
        took("the intake's answer", lambda: intake(car), AT_ONCE, began)
        contains(world.ocsp("devices", car.cert), ": good")
        verifies(parties, "devices", car.cert, "OK")
        servers(parties, car.chain, car.key, True)
        wait_for(lambda: gateway.peers() == {"car-1"}, lambda: gateway.text()[-3000:] + near.text()[-3000:], 60)
    with parties.case("a device is suspended: strongSwan by its lists and responder; and back"):
        car = parties.device("car-2")
        suspend, resume = both(parties, "--device", "car-2")
        suspend()
        charon = StrongSwan(world, folder)
        near = Client(world, [car], strongswan=True)
        wait_for(lambda: "certificate was revoked on" in charon.log(), lambda: charon.log()[-4000:], 20)
        contains(charon.log(), "certificate hold")
        assert not charon.certified("car-2"), charon.sas()
        resume()
        charon.control("--flush-certs")
        wait_for(lambda: charon.certified("car-2"), lambda: charon.log()[-4000:] + near.text()[-2000:], 60)


def gateway(parties):
    world = parties.world
    with parties.case("a gateway is suspended: cordon vpn up at the other side; and back"):
        car = parties.device("car-3")
        Gateway(world, parties.folder)
        near = Client(world, [car])
        wait_for(lambda: near.peers() == {GATEWAY}, lambda: near.text()[-3000:], 20)
        suspend, resume = both(parties, "--gateway", GATEWAY)
        began = suspend()
        took("the end of the tunnel", lambda: not near.peers(), WITHIN, began)
        resume()
        wait_for(lambda: near.peers() == {GATEWAY}, lambda: near.text()[-3000:], 60)


def run(suite):
    parties = Parties(suite)
    site = parties.site
    person(parties, "suspended", "officer-2", *both(parties, "--uid", "officer-2"))
    person(parties, "disabled", "reviewer-3", *(order(parties, "directory", verb, "--uid", "reviewer-3") for verb in ("disable", "enable")))
    device(parties)
    gateway(parties)
    with suite.case("cordon pki audit finds the states of the registry's book in the log"):
        audit = cordon("pki", "audit", "--data", site.data, "--json", "--log", "off", code=None)
        gaps = [gap["what"] for gap in json.loads(audit.stdout)["report"]["gaps"]]
        equal([what for what in gaps if "book" in what], [], "gaps about the book")
    site.stop()
    site.verify_audit()
