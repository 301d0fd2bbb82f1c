"""Tunnels go on while other authorities take the place of those of devices and services: `cordon vpn up` on both sides, and OpenVPN."""

from tests.device import Device
from tests.generations import take_over
from tests.harness import equal, run as execute, wait_for
from tests.relying_lab import World
from tests.relying_tunnels import GATEWAY, Client, Gateway, Sessions

DEVICES, SERVICES = ("devices", "devices-g2"), ("services", "services-g2")


def enrolled(site, name):
    device = Device(site, name)
    equal(device.enrol(), 200, "status of an enrolment")
    device.key.chmod(0o600)
    return device


def issuer(file):
    return execute("openssl", "x509", "-in", file, "-noout", "-issuer", "-nameopt", "RFC2253,sep_comma_plus").stdout


def associations(daemon):
    """IKE SAs by the peer's certificate: another one has another SPI."""
    return {sa["certificate"]: sa["spi"] for sa in daemon.sas()}


def settled(daemon):
    """The same, once they have been there for a second."""
    known = []

    def stay():
        known.append(associations(daemon))
        return known[-1] and known[-5:].count(known[-1]) == 5

    wait_for(stay, daemon.text, 30, 0.2)
    return known[-1]


def run(suite):
    world = World(suite)
    site, folder = world.site, suite.folder / "gateway"
    site.ask("vpn", "gateway-certificate", "--name", GATEWAY, "--out", folder)
    first = enrolled(site, "car-1")
    gateway, client = Gateway(world, folder), Client(world, [first])
    sessions = Sessions(world, ["van-1"])
    with suite.case("before it, a device of the first generation has its tunnels"):
        wait_for(lambda: gateway.peers() == {"car-1"}, gateway.text, 30)
        sessions.are_up()
    with suite.case("both sides are told of the generations that wait, and no tunnel ends when these are put to use"):
        names = take_over(world, ["devices", "services"])
        gateway.reload(Gateway.settings(world, folder, authorities=DEVICES))
        client.reload(Client.settings(world, [first], authorities=SERVICES))
        # Other authorities are a change of the connections, which begin anew.
        before = settled(gateway)
        for name in names:
            site.ask("pki", "activate-authority", name)
        equal(associations(gateway), before)
        assert not sessions.ended("van-1"), sessions.server.text()
    with suite.case("a device of the second generation comes in beside the first, at a gateway of the first"):
        second = enrolled(site, "car-2")
        assert "devices CA G2" in issuer(second.chain) and "CA G2" not in issuer(folder / "gateway.pem")
        client.reload(Client.settings(world, [first, second], authorities=SERVICES))
        wait_for(lambda: gateway.peers() == {"car-1", "car-2"}, gateway.text, 30)
        assert before.items() <= associations(gateway).items(), (before, associations(gateway))
    with suite.case("devices of both generations come in at a gateway of the second"):
        other = suite.folder / "gateway-2"
        site.ask("vpn", "gateway-certificate", "--name", GATEWAY, "--out", other)
        assert "services CA G2" in issuer(other / "gateway.pem")
        for daemon in (client, gateway):
            daemon.end()
        gateway = Gateway(world, other, authorities=DEVICES)
        Client(world, [first, second], authorities=SERVICES)
        wait_for(lambda: gateway.peers() == {"car-1", "car-2"}, gateway.text, 30)
    with suite.case("OpenVPN lets a device of the second generation in once it is told of that, and the first one's session goes on"):
        out = sessions.folder
        site.ask("vpn", "openvpn-profile", "--device", "van-2", "--out", out)
        refused = sessions.daemon(world, "client", out / "van-2.ovpn")
        wait_for(lambda: "certificate refused" in sessions.server.text(), sessions.server.text, 30)
        assert not sessions.has_session("van-2")
        pinned = out / "authorities.pem"
        pinned.write_text((world.pki / "devices-g2-ca.pem").read_text() + pinned.read_text())
        site.ask("vpn", "openvpn-crl", "--out", out / "crl.pem")
        refused.end()
        sessions.ends.remove(refused)
        sessions.daemon(world, "client", out / "van-2.ovpn").up(60)
        assert not sessions.ended("van-1"), sessions.server.text()
    with suite.case("a revocation of a device of either generation ends its tunnels"):
        for name, van in (("car-1", "van-1"), ("car-2", "van-2")):
            world.revoke("--device", name)
            world.revoke("--device", van)
            wait_for(lambda: name not in gateway.peers() and sessions.ended(van), gateway.text, 20)
    while world.tunnels:
        world.tunnels.pop().end()
    site.stop()
    site.verify_audit()
