"""Several workers with a Child SA each (RFC 9611): between two daemons of ours, and beside strongSwan, which has one."""

import contextlib
import re
import subprocess
import time

from tests.harness import contains, equal, wait_for
from tests.ike_lab import INSIDE, Daemon, Lab, connection, mirrored
from tests.ike_pair import CHARON6_ROOT

# Streams at once: that the kernel gives all of them to one of two queues has odds of one to 2^23.
STREAMS = 24
BYTES = 300_000

# Takes any number of streams at once and answers each with the digest of what came.
SINKS = """
import hashlib, socket, sys, threading
def take(connection):
    digest = hashlib.sha256()
    with connection:
        while block := connection.recv(1 << 16):
            digest.update(block)
        connection.sendall(digest.hexdigest().encode())
with socket.create_server((sys.argv[1], 5002), backlog=100) as server:
    print("ready", flush=True)
    while True:
        threading.Thread(target=take, args=(server.accept()[0],), daemon=True).start()
"""

# Sends as many streams at once, and says how many arrived as they were.
SOURCES = """
import hashlib, os, socket, sys, threading
right = []
def send(size):
    with socket.create_connection((sys.argv[1], 5002), 30) as connection:
        connection.settimeout(60)
        data = os.urandom(size)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(100):
            answer += part
        right.append(answer.decode() == hashlib.sha256(data).hexdigest())
threads = [threading.Thread(target=send, args=(int(sys.argv[3]),)) for _ in range(int(sys.argv[2]))]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sum(right))
"""


def daemon(lab, side, text, workers, **options):
    interface = f'addresses = ["{INSIDE[side]}/32"]\nworkers = {workers}'
    return Daemon(lab, side, text, interface=interface, **options)


@contextlib.contextmanager
def ends(lab, ours, theirs, **options):
    """Two daemons with so many workers; the first one starts."""
    with daemon(lab, "server", mirrored(**options), theirs) as server:
        with daemon(lab, "client", connection(**options), ours) as client:
            yield client, server


def streams(lab, side="client", other="server"):
    command = lab.network.command(other, "python3", "-c", SINKS, INSIDE[other])
    sinks = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        equal(sinks.stdout.readline(), b"ready\n", "the sinks")
        done = lab.network.run(side, "python3", "-c", SOURCES, INSIDE[other], STREAMS, BYTES, timeout=120)
        equal(done.stdout.strip(), str(STREAMS), "streams that arrived as they were")
    finally:
        sinks.kill()
        sinks.wait()
        sinks.stdout.close()


def workers(end):
    return sorted(child["worker"] for child in end.children())


def settled(end, count, number):
    """Waits until there are so many Child SAs, each of another of `number` workers, with all of which packets are sent."""
    def is_so():
        children = end.children()
        return len(children) == count == len({child["worker"] for child in children}) and all(c["sending"] for c in children)

    wait_for(is_so, lambda: f"{count} Child SAs: {end.children()} {end.log()[-3000:]}", 30)
    assert all(0 <= worker < number for worker in workers(end)), workers(end)


def carried(end, direction):
    return {child["spi_in"]: child[direction] for child in end.children()}


def no_drops(end):
    equal(end.ask("status")["inbound_drops"], [], f"drops of {end.side}")


def both_carry(suite, lab):
    with suite.case(f"two workers at both ends: {STREAMS} streams in either direction are carried by both Child SAs"):
        with ends(lab, 2, 2) as (client, server):
            settled(client, 2, 2)
            lab.ping()
            settled(server, 2, 2)
            for source, sink in [(client, server), (server, client)]:
                before = carried(source, "bytes_out"), carried(sink, "bytes_in")
                streams(lab, source.side, sink.side)
                after = carried(source, "bytes_out"), carried(sink, "bytes_in")
                for old, new in zip(before, after):
                    amounts = [new[spi] - old[spi] for spi in new]
                    assert min(amounts) >= BYTES and sum(amounts) >= STREAMS * BYTES, amounts
            no_drops(client)
            no_drops(server)
            # Status for people and metrics have both of them.
            text = client.tell("status").stdout
            equal([text.count(f"  worker {number}\n") for number in (0, 1)], [1, 1], "the workers")
            metrics = client.tell("status", "--format", "prometheus").stdout
            equal(len(re.findall(r"(?m)^cordon_vpn_sa_bytes_total\{.*direction=\"out\"", metrics)), 2, "associations")
            log = client.log() + server.log()
            assert "WARN" not in log and "ERROR" not in log, log


def unequal(suite, lab):
    for ours, theirs in [(2, 1), (1, 2), (4, 2), (2, 3)]:
        with suite.case(f"{ours} workers at the end that starts, {theirs} at the other: as many Child SAs as the one with fewer has"):
            with ends(lab, ours, theirs) as (client, server):
                if min(ours, theirs) == 1:
                    client.up(1)
                    equal(len(server.children()), 1, "Child SAs")
                else:
                    settled(client, min(ours, theirs), ours)
                    lab.ping()
                    settled(server, min(ours, theirs), theirs)
                streams(lab)
                streams(lab, "server", "client")
                no_drops(client)
                no_drops(server)
                # Nobody has failed, so nothing is explained.
                equal([end.ask("explain")["failed"] for end in (client, server)], [[], []], "failed negotiations")


def rekeys(suite, lab):
    with suite.case("new keys of one Child SA leave the other, while packets go through"):
        with ends(lab, 2, 2, child="lifetime = 8") as (client, server):
            settled(client, 2, 2)
            flow = subprocess.Popen(lab.network.command("client", *f"ping -n -i 0.02 -c 1000 -W 2 {INSIDE['server']}".split()),
                                    stdout=subprocess.PIPE, text=True)
            seen, alone = carried(client, "bytes_out").keys(), 0
            while flow.poll() is None:
                now = carried(client, "bytes_out").keys()
                alone += len(now - seen) == 1 and len(now & seen) >= 1
                seen = now
                time.sleep(0.05)
            output, _ = flow.communicate()
            # The cause first: a packet that came before its keys is counted.
            no_drops(client)
            no_drops(server)
            assert " 0% packet loss" in output, output[-300:]
            assert alone >= 2, f"{alone} Child SAs were replaced alone"
            settled(client, 2, 2)
            settled(server, 2, 2)
            assert client.counter("child_rekeys") >= 3, client.ike()["counters"]
            streams(lab)
            # By command both at once, and the IKE SA.
            before = carried(client, "bytes_out").keys()
            client.tell("rekey", "peer")
            wait_for(lambda: not carried(client, "bytes_out").keys() & before, lambda: client.log()[-2000:])
            settled(client, 2, 2)
            streams(lab, "server", "client")


def restarts(suite, lab):
    for killed in ["server", "client"]:
        with suite.case(f"the {killed} is killed and starts again: both Child SAs come back, and packets go through"):
            with ends(lab, 2, 2, extra='liveness = 2\nretransmission = { timeout = 0.5, tries = 4 }') as pair:
                for end in pair:
                    settled(end, 2, 2)
                end = next(end for end in pair if end.side == killed)
                end.process.kill()
                # What the first one said is not what is waited for.
                (end.folder / "log").unlink()
                end.start()
                for end in pair:
                    settled(end, 2, 2)
                lab.ping()
                streams(lab)
                streams(lab, "server", "client")


def strongswan(suite, lab, root, name):
    options = {"root": root} if root else {}
    for by in ["ours", "theirs"]:
        with suite.case(f"two workers beside {name}, started by {by}: one Child SA, packets both ways, new keys by both sides"):
            with beside(lab, by, **options) as (charon, ours):
                ours.up(1)
                lab.stream(5)
                lab.stream(5, "server", "client")
                new_keys(lab, charon, ours, 1)


@contextlib.contextmanager
def beside(lab, by, **options):
    text = connection(start="start" if by == "ours" else "none")
    with lab.charon(**options) as charon, daemon(lab, "client", text, 2) as ours:
        if by == "theirs":
            charon.control("--initiate", "--child", "net", "--timeout", "20")
        yield charon, ours


def new_keys(lab, charon, ours, count):
    """Both sides replace everything, and as many Child SAs are there as before, on both sides."""
    spis = lambda: sorted(child["spi_in"] for child in ours.children())
    theirs = lambda: sorted(re.findall(r"in  ([0-9a-f]{8})", charon.sas()))
    for order in [lambda: charon.control("--rekey", "--child", "net"), lambda: charon.control("--rekey", "--ike", "peer"),
                  lambda: ours.tell("rekey", "peer")]:
        before = ours.sas()[0]["spi"], set(spis())
        order()
        wait_for(lambda: ours.sas()[0]["spi"] != before[0] or not before[1] & set(spis()), lambda: ours.log()[-2000:])
        wait_for(lambda: len(spis()) == count and sorted(c["spi_out"] for c in ours.children()) == theirs(),
                 lambda: f"{ours.children()} {charon.sas()}", 30)
        lab.ping()
    log = ours.log()
    assert "WARN" not in log and "ERROR" not in log, log


def several_of_strongswan(suite, lab):
    """strongSwan's protocol half makes several; its ESP in user space knows nothing of processors, and sends with one."""
    with suite.case("two workers beside strongSwan 6 with per_cpu_sas: a Child SA for each, packets both ways, new keys by both sides"):
        options = {"root": CHARON6_ROOT, "child": "per_cpu_sas = yes"}
        with beside(lab, "ours", **options) as (charon, ours):
            settled(ours, 2, 2)
            contains(charon.log(), "creating per-resource SA as one of several")
            lab.stream(5)
            lab.stream(5, "server", "client")
            no_drops(ours)
            new_keys(lab, charon, ours, 2)
    with suite.case("the same, started by strongSwan, which asks for further ones when its kernel wants some: its first one"):
        with beside(lab, "theirs", **options) as (charon, ours):
            ours.up(1)
            lab.stream(5)
            lab.stream(5, "server", "client")
            new_keys(lab, charon, ours, 1)


def run(suite):
    lab = Lab(suite)
    # What is inside answers from the tunnel's interface, but for charon's cases.
    charons = lambda: lab.network.run("server", "ip", "address", "add", f"{INSIDE['server']}/32", "dev", "lo")
    lab.network.run("server", "ip", "address", "delete", f"{INSIDE['server']}/32", "dev", "lo")
    both_carry(suite, lab)
    unequal(suite, lab)
    rekeys(suite, lab)
    restarts(suite, lab)
    charons()
    strongswan(suite, lab, None, "strongSwan 5.9")
    if CHARON6_ROOT:
        strongswan(suite, lab, CHARON6_ROOT, "strongSwan 6")
        several_of_strongswan(suite, lab)
    else:
        print("        not run: strongSwan 6, as CHARON6_ROOT names no root with it", flush=True)
