"""Rates of certification and OCSP, beside others, in one run.

    CORDON=target/release/cordon .venv/bin/python -m tests.pki_rates [--orders 1000] [--requests 20000] [--rounds 3]

OCSP: responses that are signed ahead, asked for by `ab`, of Cordon, of `openssl ocsp` (which signs each) and of cfssl's responder (from a
file). Each server has one processor; counted is its own processor time, so that other load does little harm. Issuing: orders
for P-256 keys by an authority whose P-256 key is in SoftHSM, through the process with the key, until each is recorded on the
disk of TMPDIR.
"""

import argparse
import base64
import concurrent.futures
import json
import os
import re
import statistics
import sys
import time

from tests import authority_keys
from tests.device import Device
from tests.harness import Process, Site, free_port, run, wait_for
from tests.relying_parties import leaf
from tests.runner import Suite, finish, run_suite

# Orders that are under way at once.
AT_ONCE = 64
# Connections of `ab`.
CONNECTIONS = 8
# What is demanded of issuing, a second.
DEMANDED = 200


def processor_time(pid):
    """User and system seconds of a process with its threads."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return sum(int(number) for number in fields[11:13]) / os.sysconf("SC_CLK_TCK")


def ask(url, request, count, keep):
    """Sends one request so many times; the seconds that it took."""
    keep = ["-k"] if keep else []
    command = ["taskset", "-c", "1", "ab", "-q", "-l", *keep, "-n", count, "-c", CONNECTIONS, "-p", request, "-T", "application/ocsp-request", url]
    said = run(*command, timeout=600).stdout
    assert re.search(r"^Failed requests: +0$", said, re.M) and "Non-2xx" not in said, said
    return float(re.search(r"^Time taken for tests: +([\d.]+)", said, re.M)[1])


class Responders:
    """Three servers with one signer's key, about one certificate."""

    def __init__(self, suite):
        self.suite = suite
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        self.site = Site(suite, settings=f'public = "127.0.0.1:{port}"\n[site]\npublic_url = "{url}"\n').start()
        os.sched_setaffinity(self.site.process.child.pid, {0})
        for thread in os.listdir(f"/proc/{self.site.process.child.pid}/task"):
            os.sched_setaffinity(int(thread), {0})
        device = Device(self.site, "camera-17")
        assert device.enrol() == 200
        data, folder = self.site.data, suite.folder
        issuer, self.request = data / "pki/devices-ca.pem", folder / "request.der"
        run("openssl", "ocsp", "-issuer", issuer, "-cert", device.cert, "-no_nonce", "-reqout", self.request)
        signer, key = leaf(data / "keys/ocsp-devices.pem", folder / "signer.pem"), folder / "signer.key"
        run("openssl", "pkey", "-in", data / "keys/ocsp-devices.key", "-passin", f"file:{data}/passphrase", "-out", key)
        serial = run("openssl", "x509", "-in", device.cert, "-noout", "-serial").stdout.strip().split("=")[1]
        (folder / "index").write_text(f"V\t350101000000Z\t\t{serial}\tunknown\t/CN=camera-17\n")
        self.servers = {"cordon": (f"{url}/ocsp", self.site.process.child.pid)}
        self.add("openssl ocsp", ["openssl", "ocsp", "-index", folder / "index", "-CA", issuer, "-rsigner", signer, "-rkey", key,
                                  "-ndays", "1", "-port"])
        sign = ["cfssl", "ocspsign", "-ca", issuer, "-responder", signer, "-responder-key", key, "-cert", device.cert]
        made = json.loads(run(*sign).stdout)["ocspResponse"]
        assert base64.b64decode(made)
        (folder / "responses").write_text(made + "\n")
        self.add("cfssl ocspserve", ["cfssl", "ocspserve", "-loglevel", "5", "-responses", folder / "responses", "-port"])

    def add(self, name, command):
        port = free_port()
        process = Process(["taskset", "-c", "0", *command, port], self.suite.folder / f"{name.split()[0]}.log")
        self.suite.finally_do(process.kill)
        url = f"http://127.0.0.1:{port}/"
        post = ["curl", "-s", "-f", "-o", os.devnull, "--data-binary", f"@{self.request}", "-H", "Content-Type: application/ocsp-request", url]
        wait_for(lambda: run(*post, code=None).returncode == 0, process.tail, 20)
        self.servers[name] = (url, process.child.pid)

    def measure(self, count, rounds):
        found = {}
        for _ in range(rounds):
            for name, (url, pid) in self.servers.items():
                # OpenSSL ends each connection; it signs each answer, so fewer will do.
                keep, number = name != "openssl ocsp", count if name != "openssl ocsp" else count // 10
                before = processor_time(pid)
                seconds = ask(url, self.request, number, keep)
                used = processor_time(pid) - before
                found.setdefault(name, []).append((number / used, number / seconds))
        for name, values in found.items():
            by_processor, by_clock = (statistics.median(column) for column in zip(*values))
            low, high = min(value for value, _ in values), max(value for value, _ in values)
            print(f"        {name}: {by_processor:.0f} answers per second of processor time ({low:.0f} to {high:.0f}), {by_clock:.0f} by the clock", flush=True)
        return {name: statistics.median(value for value, _ in values) for name, values in found.items()}


def sync_time(folder):
    """Milliseconds of one fdatasync after 4 KiB, on the disk that is written to."""
    file = os.open(folder / "sync", os.O_CREAT | os.O_RDWR)
    times = []
    for number in range(50):
        os.pwrite(file, b"x" * 4096, number * 4096)
        began = time.monotonic()
        os.fdatasync(file)
        times.append((time.monotonic() - began) * 1000)
    os.close(file)
    return statistics.median(times)


def issuing(suite, orders, rounds):
    settings, _, _ = authority_keys.token(suite)
    site = Site(suite, "issuing", settings).start()
    control = site.data / "control.sock"
    rates = []
    for number in range(rounds):
        names = [f"device-{number}-{one}" for one in range(orders)]
        requests = [authority_keys.request() for _ in names]
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            serials = list(pool.map(lambda pair: authority_keys.issue(control, *pair), zip(names, requests)))
        rates.append(orders / (time.monotonic() - began))
        assert len(set(serials)) == orders
    print(f"        {statistics.median(rates):.0f} certificates a second ({min(rates):.0f} to {max(rates):.0f}), {AT_ONCE} orders at once, "
          f"a sync of the disk takes {sync_time(suite.folder):.1f} ms", flush=True)
    site.verify_audit()
    site.stop()
    return statistics.median(rates)


def measure(suite, args):
    with suite.case(f"{args.orders} certificates of a P-256 key in SoftHSM"):
        rate = issuing(suite, args.orders, args.rounds)
        assert rate >= DEMANDED, f"{rate:.0f} certificates a second, not {DEMANDED}"
    with suite.case("OCSP responses that are signed ahead"):
        found = Responders(suite).measure(args.requests, args.rounds)
        assert found["cordon"] > found["openssl ocsp"], found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orders", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    suite = Suite("pki_rates")
    run_suite(suite, lambda suite: measure(suite, args), limit=1800)
    return finish([suite])


if __name__ == "__main__":
    sys.exit(main())
