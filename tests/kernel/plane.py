"""`cordon vpn up` with `backend = "kernel"`: negotiated keys in Linux's IPsec.

    python3 tests/kernel/machine.py FOLDER /usr/bin/python3 tests/kernel/plane.py target/debug/cordon [WORD...]

Runs under a kernel that has IPsec and XFRM interfaces; makes two network namespaces of its own. With words, only
the cases whose names have one of them.
"""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from daemons import (
    CORDON, INSIDE, LINUX, NETS, OURS, OUTSIDE, Charon, Daemon, address_on_loopback, carries, nothing_is_left,
    padded_sizes, pings, run_cases,
)
from ike import ALGORITHMS
from vpn import inside, network, output, shell, wait_for

PLAIN = 'esp = [{ encryption = ["aes-128-gcm"], groups = ["x25519"] }]'
OTHER = "192.0.2.77"


def kernel(folder, side=OURS, **options):
    return Daemon(side, folder, **({"backend": "kernel", "esp": PLAIN} | options))


def states(side):
    """Associations of our daemon in the kernel."""
    return output(side, "ip", "xfrm", "state").count("if_id 0x4350")


def only(side, count=2):
    """Waits until old keys have gone."""
    wait_for(lambda: output(side, "ip", "xfrm", "state"), lambda: states(side) == count)


def beside_charon(by, carrier, algorithm, esn, folder):
    """Kernels on both sides."""
    theirs, ours = ALGORITHMS[algorithm]
    theirs += "-esn" if esn else ""
    line = ours % ("true" if esn else "false")
    with address_on_loopback(), Charon(folder, "tunnel", carrier, theirs) as charon:
        with kernel(folder, encapsulation=carrier, esp=line, starts=by == OURS) as daemon:
            if by == LINUX:
                charon.initiate()
            child = daemon.up()
            assert child["in_udp"] == (carrier == "udp"), child
            carries()
            with pings(OURS, INSIDE[LINUX]):
                for what in ("child", "ike", "child"):
                    before = daemon.counters()[f"{what}_rekeys"]
                    charon.rekey(what)
                    wait_for("new keys", lambda: daemon.counters()[f"{what}_rekeys"] > before)
                    time.sleep(1)
            only(OURS)
            carries()
            sa = daemon.children()[0]
            assert min(sa["bytes_in"], sa["bytes_out"]) > 200 * 1024, sa
            assert daemon.status()["offload"] == "kernel"
            charon.close()
            daemon.says("IKE SA down", "closed by the peer")
            if by == OURS:
                # It was to be up, so it comes again.
                daemon.up()
                carries()
            else:
                only(OURS, 0)
    nothing_is_left(OURS)


def beside_ours(by, carrier, folder):
    """Our own packet path on the other side; each side replaces keys every few seconds."""
    with kernel(folder, encapsulation=carrier, starts=by == OURS, extra="lifetime = 11", child="lifetime = 5") as one:
        with Daemon(LINUX, folder, encapsulation=carrier, esp=PLAIN, starts=by == LINUX, extra="lifetime = 13",
                    child="lifetime = 6") as other:
            one.up()
            other.up()
            with pings(OURS, INSIDE[LINUX]):
                enough = lambda: one.counters()["child_rekeys"] >= 4 and one.counters()["ike_rekeys"] >= 1
                wait_for("new keys", enough)
                carries()
            counters = one.counters()
            assert counters["established"] == 1, counters
            other.tell("down", "peer")
            one.says("IKE SA down", "closed by the peer")
    nothing_is_left(OURS)


def padding(folder):
    """The kernel pads what it sends, and takes the padding of our own packet path."""
    with kernel(folder, starts=True, child="tfc_padding = 1200") as one:
        with Daemon(LINUX, folder, esp=PLAIN, child="tfc_padding = 1200"):
            one.up()
            ours, theirs = padded_sizes()
            assert ours == theirs and len(ours) == 1, (ours, theirs)
            carries()
    nothing_is_left(OURS)


def killed(folder):
    """What a daemon leaves that was killed is taken away by the next one, and nothing of others."""
    mine = ("src 203.0.113.1 dst 203.0.113.2 proto esp spi 0x2002 mode tunnel if_id 9 "
            f"aead 'rfc4106(gcm(aes))' 0x{'07' * 20} 128")
    shell(f"ip -n {OURS} xfrm state add {mine}")
    with Daemon(LINUX, folder, esp=PLAIN) as other:
        daemon = kernel(folder, starts=True)
        with daemon:
            daemon.up()
            carries()
            daemon.kill()
        old = output(OURS, "ip", "xfrm", "state")
        assert states(OURS) == 2 and "tunnel0" in output(OURS, "ip", "link"), old
        # They would go by themselves, some time after they should have been replaced.
        assert "expire add: soft 0(sec), hard 7260(sec)" in output(OURS, "ip", "-s", "xfrm", "state")
        with daemon:
            daemon.says("of a daemon that was killed are gone")
            wait_for("other keys", lambda: len(daemon.children()) == 1 and states(OURS) == 2)
            spi = daemon.children()[0]["spi_in"]
            assert spi not in old and spi in output(OURS, "ip", "xfrm", "state")
            other.up()
            carries()
            second(daemon, folder)
            carries()
    left = output(OURS, "ip", "xfrm", "state")
    assert "203.0.113.2" in left, left
    shell(f"ip -n {OURS} xfrm state delete src 203.0.113.1 dst 203.0.113.2 proto esp spi 0x2002")
    nothing_is_left(OURS)


def second(daemon, folder):
    """Another daemon does not take what is a living one's: its interface, or its number under another name."""
    text = daemon.file.read_text().replace(OUTSIDE[OURS], "10.5.1.1").replace("control.sock", "second.sock")
    file = daemon.folder / "second.toml"
    before = output(OURS, "ip", "xfrm", "state")
    for name, refusal in (("tunnel0", "tunnel0 belongs to a tunnel that runs"),
                          ("tunnel1", "another daemon has XFRM interface number 17232")):
        file.write_text(text.replace("tunnel0", name))
        done = subprocess.run(inside(OURS, CORDON, "vpn", "up", "--config", file), capture_output=True, text=True)
        assert done.returncode == 1 and refusal in done.stderr, done
    assert before == output(OURS, "ip", "xfrm", "state")


def moves(who, folder):
    """An address changes and the tunnel goes on; the kernel's daemon is the one that moves, or the other."""
    any_address = f'listen = "{OUTSIDE[OURS]}"'
    mover, stayer = ("kernel", "user") if who == OURS else ("user", "kernel")
    starting = Daemon(OURS, folder, esp=PLAIN, starts=True, backend=mover)
    starting.file.write_text(starting.file.read_text().replace(any_address, 'listen = "0.0.0.0"'))
    waiting = Daemon(LINUX, folder, esp=PLAIN, backend=stayer)
    waiting.file.write_text(waiting.file.read_text().replace(f'remote = "{OUTSIDE[OURS]}"\n', ""))
    with waiting, starting:
        starting.up()
        carries()
        shell(f"ip -n {OURS} address add {OTHER}/24 dev cable; ip -n {OURS} address delete {OUTSIDE[OURS]}/24 dev cable")
        try:
            # Without "promote_secondaries" the other one went with it.
            shell(f"ip -n {OURS} address replace {OTHER}/24 dev cable")
            starting.says("the tunnel moves", OTHER)
            waiting.says("the tunnel moves", OTHER)
            wait_for("one child", lambda: len(starting.children()) == 1 == len(waiting.children()))
            ping = lambda: subprocess.run(inside(OURS, "ping", "-c", "1", "-W", "1", INSIDE[LINUX]),
                                          capture_output=True).returncode == 0
            wait_for("packets", ping)
            carries()
            assert starting.counters()["established"] == 1, starting.counters()
            side = OURS if mover == "kernel" else LINUX
            wait_for("old addresses are gone", lambda: OUTSIDE[OURS] not in output(side, "ip", "xfrm", "state"))
            assert OUTSIDE[OURS] not in output(side, "ip", "xfrm", "policy")
        finally:
            shell(f"ip -n {OURS} address add {OUTSIDE[OURS]}/24 dev cable; ip -n {OURS} address delete {OTHER}/24 dev cable")
            shell(f"ip -n {OURS} address replace {OUTSIDE[OURS]}/24 dev cable")
    nothing_is_left(LINUX)
    nothing_is_left(OURS)


def addresses(folder):
    """The kernel's daemon gives addresses inside the tunnel."""
    gateway = kernel(folder, LINUX, extra='pool = "inside"')
    text = gateway.file.read_text().replace(f'remote = ["{NETS[OURS]}"]\n', "")
    gateway.file.write_text(f'{text}\n[[pool]]\nname = "inside"\naddresses = ["10.9.0.0/24"]\n')
    client = Daemon(OURS, folder, esp=PLAIN, starts=True, extra='request = ["ipv4"]')
    text = client.file.read_text().replace(f'local = ["{NETS[OURS]}"]\n', "")
    client.file.write_text(text.replace(f'"{INSIDE[OURS]}/32"', ""))
    with gateway, client:
        client.up()
        for source, sink in [(OURS, INSIDE[LINUX]), (LINUX, "10.9.0.1")]:
            output(source, "ping", "-n", "-q", "-c", 2, "-i", "0.2", "-W", 5, sink)
        client.tell("down", "peer")
        wait_for("the address back", lambda: gateway.status()["ike"]["pools"] == [{"name": "inside", "taken": 0}])
        only(LINUX, 0)
    nothing_is_left(LINUX)


def main():
    network()
    cases = [
        (f"charon over the kernel's IPsec: {algorithm}, {carrier}, started by {by}",
         partial(beside_charon, by, carrier, algorithm, esn))
        for by, carrier, algorithm, esn in [
            (OURS, "udp", "AES-GCM", False),
            (LINUX, "native", "AES-GCM", True),
            (OURS, "native", "AES-CBC with SHA-2", False),
            (LINUX, "udp", "AES-CBC with SHA-2", True),
            (OURS, "udp", "ChaCha20-Poly1305", True),
            (LINUX, "udp", "AES-CCM-8", False),
            (OURS, "native", "AES-CCM", True),
            (OURS, "udp", "AES-CTR", True),
            (LINUX, "native", "AES-GMAC", True),
            (OURS, "udp", "AES-XCBC", True),
        ]
    ]
    for by, carrier in [(OURS, "udp"), (LINUX, "native")]:
        cases.append((f"ours in user space: both replace keys all the time, {carrier}, started by {by}",
                      partial(beside_ours, by, carrier)))
    cases.append(("traffic-flow padding both ways", padding))
    cases.append(("killed, and started again", killed))
    cases.append(("it moves to another address", partial(moves, OURS)))
    cases.append(("its peer moves to another address", partial(moves, LINUX)))
    cases.append(("it gives addresses", addresses))
    return run_cases(cases)


if __name__ == "__main__":
    sys.exit(main())
