"""The accelerator's kernel module, under the kernel of machine.py with two devices on its bus.

    python accelerator.py MODULE EXERCISE CORDON [WORD...]

MODULE is cordon_accel.ko, EXERCISE the program that drives /dev/uio0, CORDON the product. With words, only the cases whose
titles have one of them, after the kernel's own tests. What the devices count of themselves, and how they are to
behave, is in /run/share (accel_serve): `crypto.*` for the one that the kernel's crypto API uses, `user.*` for the other.
"""

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import clients
import public_key

MODULE, EXERCISE, CORDON, *WORDS = sys.argv[1:]
SHARE = Path("/run/share")
# Where the arguments of the emulator put the two.
CRYPTO, USER = "0000:00:10.0", "0000:00:11.0"
STATISTICS = Path(f"/sys/bus/pci/devices/{CRYPTO}/accelerator")
ALGORITHMS = ["cbc-aes-cordon", "ctr-aes-cordon", "gcm-aes-cordon", "rfc4106-gcm-aes-cordon", "hmac-sha256-cordon"]
COUNTS = ["requests", "interrupts", "missed_interrupts", "spurious_interrupts", "key_loads", "fallbacks"]
# Deadline and watchdog of the module, in milliseconds: where interrupts are counted, none is so late that the module looks by itself, however
# busy the machine is; where things go wrong, they end soon.
PATIENT, HASTY = (60_000, 30_000), (4000, 100)
# An emulator is slow, above all beside other work.
SECONDS = 300
SIZES = [16, 48, 1024, 4096, 16384, 65536]


def shell(text, **options):
    done = subprocess.run(["sh", "-ec", text], capture_output=True, text=True, **options)
    assert done.returncode == 0, done
    return done.stdout


def counts():
    numbers = {name: int((STATISTICS / name).read_text()) for name in COUNTS}
    return numbers | {"failure": (STATISTICS / "failure").read_text().strip()}


def device_counts(which):
    """What the device says, once it has written it."""
    return json.loads((SHARE / f"{which}.counts").read_text())


def behave(conduct, which="crypto"):
    new = SHARE / f"{which}.new"
    new.write_text(conduct)
    new.rename(SHARE / f"{which}.conduct")
    end = time.monotonic() + SECONDS
    while device_counts(which)["conduct"] != conduct:
        assert time.monotonic() < end
        time.sleep(0.1)


def load(deadline, watchdog):
    """The kernel tests algorithms after it has registered them."""
    shell(f"insmod {MODULE} user={USER} deadline_ms={deadline} watchdog_ms={watchdog}")
    end = time.monotonic() + SECONDS
    while registered() != dict.fromkeys(ALGORITHMS, "passed"):
        assert time.monotonic() < end, registered()
        time.sleep(0.2)


def unload():
    shell("rmmod cordon_accel")


def registered():
    """Algorithms of the module with what the kernel says of its tests, all of them asynchronous."""
    found = {}
    for entry in Path("/proc/crypto").read_text().split("\n\n"):
        fields = dict(re.findall(r"^(\S+) *: *(.*)$", entry, re.M))
        # A test under way has an entry of its own.
        if fields.get("driver") in ALGORITHMS and fields["type"] != "larval":
            assert fields["async"] == "yes", entry
            found[fields["driver"]] = fields["selftest"]
    return found


def same_on_both_sides(before, device_before, which="crypto"):
    """Requests and interrupts since then, as the module counts them; as many as the device counts."""
    end = time.monotonic() + SECONDS
    while True:
        now, device = counts(), device_counts(which)
        requests, interrupts = (now[name] - before[name] for name in ("requests", "interrupts"))
        ours = {"requests": requests, "interrupts": interrupts}
        theirs = {name: device[name] - device_before[name] for name in ours}
        if ours == theirs:
            return ours
        assert time.monotonic() < end, (ours, theirs, now)
        time.sleep(0.2)


def one_interrupt_a_request(before, device_before):
    ours = same_on_both_sides(before, device_before)
    now = counts()
    assert ours["requests"] == ours["interrupts"] > 0, (ours, now)
    assert now["missed_interrupts"] == before["missed_interrupts"], now
    assert now["spurious_interrupts"] == before["spurious_interrupts"], now
    assert now["failure"] == "", now
    return ours["requests"]


def self_test():
    """The kernel's own vectors of each algorithm: one interrupt a request."""
    load(*PATIENT)
    zero = dict.fromkeys(COUNTS, 0)
    requests = one_interrupt_a_request(zero, zero)
    assert requests > 100, requests
    return f"{requests} requests and interrupts"


class Transform:
    """A key of the kernel's crypto API, by AF_ALG."""

    def __init__(self, kind, name, key, tag=0):
        self.tag = tag
        self.socket = socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET, 0)
        self.socket.bind((kind, name))
        self.socket.setsockopt(socket.SOL_ALG, socket.ALG_SET_KEY, key)
        if tag:
            self.socket.setsockopt(socket.SOL_ALG, socket.ALG_SET_AEAD_AUTHSIZE, None, tag)

    def run(self, encrypt, iv, data, aad=b""):
        operation, _ = self.socket.accept()
        with operation:
            operation.settimeout(SECONDS)
            options = {"op": socket.ALG_OP_ENCRYPT if encrypt else socket.ALG_OP_DECRYPT, "iv": iv}
            if self.tag:
                options["assoclen"] = len(aad)
            operation.sendmsg_afalg([aad + data], **options)
            change = self.tag if encrypt else -self.tag
            result = operation.recv(len(aad) + len(data) + change)
            return result[len(aad):]

    def close(self):
        self.socket.close()


def library(name, key, encrypt, iv, data, aad=b""):
    """The same by the library."""
    if name == "gcm(aes)":
        gcm = AESGCM(key)
        return gcm.encrypt(iv, data, aad) if encrypt else gcm.decrypt(iv, data, aad)
    cipher = Cipher(algorithms.AES(key), {"cbc(aes)": modes.CBC, "ctr(aes)": modes.CTR}[name](iv))
    context = cipher.encryptor() if encrypt else cipher.decryptor()
    return context.update(data) + context.finalize()


def authenticated(length, size):
    """An HMAC by the kernel, held against the library. What is sent at once, the device gets as a whole."""
    key, data = secrets.token_bytes(length), secrets.token_bytes(size)
    with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET, 0) as transform:
        transform.bind(("hash", "hmac(sha256)"))
        transform.setsockopt(socket.SOL_ALG, socket.ALG_SET_KEY, key)
        operation, _ = transform.accept()
        with operation:
            # Without a time limit: nothing can wait for such a socket.
            operation.sendall(data)
            assert operation.recv(32) == hmac.digest(key, data, "sha256"), (length, size)


def both_ways(name, key, size, seals=True):
    """A message encrypted and decrypted by the kernel, held against the library."""
    kind, tag = ("aead", 16) if name == "gcm(aes)" else ("skcipher", 0)
    transform = Transform(kind, name, key, tag)
    iv, aad = secrets.token_bytes(12 if tag else 16), secrets.token_bytes(20 if tag else 0)
    # What AF_ALG takes at once; a tag is part of it.
    data = secrets.token_bytes(size - 64 if size == 65536 and tag else size)
    sealed = library(name, key, True, iv, data, aad)
    if seals:
        assert transform.run(True, iv, data, aad) == sealed, (name, len(key), size)
    assert transform.run(False, iv, sealed, aad) == data, (name, len(key), size)
    transform.close()


def af_alg():
    before, device_before = counts(), device_counts("crypto")
    for name in ("cbc(aes)", "ctr(aes)", "gcm(aes)"):
        for length in (16, 24, 32):
            for size in SIZES if length == 16 else SIZES[:3]:
                both_ways(name, secrets.token_bytes(length), size)
    for size in (1, 15, 17, 1000):
        both_ways("ctr(aes)", secrets.token_bytes(32), size)
        both_ways("gcm(aes)", secrets.token_bytes(32), size)
    for length in (1, 32, 64, 65, 200):
        for size in (1, 64, 1000, 16384):
            authenticated(length, size)
    requests = one_interrupt_a_request(before, device_before)
    return f"{requests} requests and interrupts"


def forged():
    """A wrong tag is the message's fault: it is refused, and the device goes on."""
    before = counts()
    key, iv, data = secrets.token_bytes(16), secrets.token_bytes(12), secrets.token_bytes(100)
    sealed = bytearray(library("gcm(aes)", key, True, iv, data, b"aad"))
    sealed[-1] ^= 1
    transform = Transform("aead", "gcm(aes)", key, 16)
    try:
        transform.run(False, iv, bytes(sealed), b"aad")
        raise AssertionError("a forged message was opened")
    except OSError as error:
        assert error.errno == 74, error
    transform.close()
    now = counts()
    assert now["failure"] == "" and now["fallbacks"] == before["fallbacks"] + 1, now


# Names, what `ip xfrm` calls them, and requests for each packet.
ESP = {
    "CBC with HMAC-SHA-256": ("enc 'cbc(aes)' {key} auth-trunc 'hmac(sha256)' {integrity} 128", 2),
    "GCM": ("aead 'rfc4106(gcm(aes))' {salted} 128", 1),
}


@contextlib.contextmanager
def two_hosts(words):
    """Two namespaces whose packets to one another are protected, in transport mode."""
    names = {"key": "0x" + secrets.token_hex(16), "integrity": "0x" + secrets.token_hex(32),
             "salted": "0x" + secrets.token_hex(20)}
    transform = words.format(**names)
    shell("""
      for n in a b; do ip netns add $n; done
      ip link add va netns a type veth peer name vb netns b
      ip -n a addr add 10.6.0.1/24 dev va; ip -n b addr add 10.6.0.2/24 dev vb
      ip -n a link set va up; ip -n b link set vb up
    """)
    try:
        for name, own, other in (("a", 1, 2), ("b", 2, 1)):
            for source, destination in ((own, other), (other, own)):
                shell(f"ip -n {name} xfrm state add src 10.6.0.{source} dst 10.6.0.{destination} proto esp"
                      f" spi 0x100{source} mode transport replay-window 32 {transform}")
            for way, (source, destination) in {"out": (own, other), "in": (other, own)}.items():
                shell(f"ip -n {name} xfrm policy add src 10.6.0.{source} dst 10.6.0.{destination} dir {way}"
                      " tmpl proto esp mode transport")
        # Neighbours, and keys in the device.
        pings(2)
        yield
    finally:
        shell("ip netns delete a; ip netns delete b")


def pings(count):
    said = shell(f"ip netns exec a ping -q -c {count} -i 0.3 -s 1000 -W 60 10.6.0.2")
    assert f"{count} received" in said, said


def esp(words, each, packets=10):
    """What xfrm counts, and what the device counts."""
    with two_hosts(words):
        before, device_before, protected_before = counts(), device_counts("crypto"), xfrm_packets()
        pings(packets)
        requests = one_interrupt_a_request(before, device_before)
        protected = xfrm_packets() - protected_before
        loaded = counts()["key_loads"] - before["key_loads"]
        # An echo and its reply are each protected once and opened once; no other request but for keys.
        assert protected == 4 * packets and requests - loaded == each * protected, (protected, requests, loaded)
        return f"{protected} packets protected and opened, {requests} requests and interrupts"


def dying_under_esp():
    """No packet is lost, and none is wrong: the one that the device had goes by software when its time is over."""
    with two_hosts(ESP["GCM"][0]):
        behave("die")
        pings(10)
        assert "not completed in time" in counts()["failure"], counts()
    behave("proper")
    unload()
    load(*HASTY)


def xfrm_packets():
    """Packets of all states, as `ip` shows them behind their bytes."""
    text = shell("ip -n a -s xfrm state; ip -n b -s xfrm state")
    return sum(int(number) for number in re.findall(r"\d+\(bytes\), (\d+)\(packets\)", text))


def opened_disk(key, driver):
    """A loop device under dm-crypt with a cipher of the crypto API by its driver's name."""
    shell(f"""
      echo "0 $(blockdev --getsz /dev/loop7) crypt capi:{driver}-plain64 {key} 0 /dev/loop7 0" | dmsetup create --noudevsync disk
      dmsetup mknodes disk
    """)


def disk():
    """Written through the module, read back through it and by software; what is on the loop device is neither."""
    shell("modprobe loop; modprobe dm-crypt; truncate -s 2M /run/disk; losetup /dev/loop7 /run/disk")
    key = secrets.token_hex(32)
    content = secrets.token_bytes(1 << 20)
    digest = hashlib.sha256(content).hexdigest()
    before, device_before = counts(), device_counts("crypto")

    def read():
        with open("/dev/mapper/disk", "rb") as file:
            return hashlib.sha256(file.read(len(content))).hexdigest()

    try:
        opened_disk(key, "cbc-aes-cordon")
        with open("/dev/mapper/disk", "r+b") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        shell("echo 3 >/proc/sys/vm/drop_caches; blockdev --flushbufs /dev/mapper/disk")
        assert read() == digest
        shell("dmsetup remove --noudevsync disk")
        requests = one_interrupt_a_request(before, device_before)
        assert requests >= 2 * len(content) // 4096, requests
        assert content[:4096] not in Path("/run/disk").read_bytes()
        opened_disk(key, software("cbc(aes)"))
        assert read() == digest
        shell("dmsetup remove --noudevsync disk")
    finally:
        shell("dmsetup remove --noudevsync disk 2>/dev/null || true; losetup -d /dev/loop7; rm /run/disk")
    return f"{len(content) >> 10} KiB, {requests} requests and interrupts"


def software(name):
    """The driver with the highest priority of an algorithm that is not ours."""
    entries = [dict(re.findall(r"^(\S+) *: *(.*)$", entry, re.M)) for entry in Path("/proc/crypto").read_text().split("\n\n")]
    others = [entry for entry in entries if entry.get("name") == name and entry["driver"] not in ALGORITHMS
              and entry["internal"] == "no"]
    return max(others, key=lambda entry: int(entry["priority"]))["driver"]


def moved_by(client):
    """A program as it is that moves a file through the device."""
    before, device_before = counts(), device_counts("crypto")
    least = client(2 * SECONDS)
    requests = one_interrupt_a_request(before, device_before)
    assert requests >= least and counts()["fallbacks"] == before["fallbacks"], (requests, least, counts())
    return f"{clients.SIZE} bytes, {requests} requests and interrupts"


def public_keys():
    results = public_key.measure()
    assert results, "the kernel has no public keys"
    return f"in this emulator: {public_key.said(results)}"


def user_space():
    """The driver in user space: by interrupt, by polling, adaptive."""
    name = Path("/sys/class/uio/uio0/name").read_text().strip()
    assert name == "cordon_accel", name
    said = shell(f"{EXERCISE} /dev/uio0", timeout=2 * SECONDS)
    device = None
    results = [json.loads(line) for line in said.splitlines()]
    assert [result["completion"] for result in results] == ["interrupt", "polling", "adaptive"], results
    for result in results:
        assert result["equal"] == result["messages"] > 0 and result["quarantine"] is None, result
    interrupt, polling, _ = results
    assert interrupt["interrupts"] == interrupt["requests"] > 0, interrupt
    assert polling["interrupts"] == 0 < polling["requests"], polling
    end = time.monotonic() + SECONDS
    while device is None or device["requests"] != sum(result["requests"] for result in results):
        assert time.monotonic() < end, (device, results)
        time.sleep(0.2)
        device = device_counts("user")
    assert device["interrupts"] == sum(result["interrupts"] for result in results), (device, results)
    return ", ".join(f"{result['completion']}: {result['requests']} requests, {result['interrupts']} interrupts"
                     for result in results)


def product(service, completion):
    """Cordon itself with /dev/uio0 as its accelerator."""
    def case():
        script = Path(__file__).with_name("accelerated.py")
        line = [sys.executable, script, CORDON, service, completion]
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=8 * SECONDS)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
        counted = json.loads(done.stdout.splitlines()[-1])
        return f"{counted['requests']} requests, {counted['interrupts']} interrupts"
    return case


def used_once():
    """Another user at the same time is refused."""
    first = os.open("/dev/uio0", os.O_RDWR)
    try:
        os.close(os.open("/dev/uio0", os.O_RDWR))
        raise AssertionError("opened twice")
    except OSError as error:
        assert error.errno == 16, error
    finally:
        os.close(first)


def traffic(seals=True):
    """Messages of every kind; each right."""
    for name in ("cbc(aes)", "ctr(aes)", "gcm(aes)"):
        for size in (16, 4096):
            both_ways(name, secrets.token_bytes(16), size, seals)
    if seals:
        authenticated(32, 1000)


def broken(conduct, reason):
    """A device that does what no working one does is given up, and every message is right by software."""
    def case():
        # Whether a tag on a sealed message is right, only its receiver sees.
        seals = conduct != "lie-about-tag"
        before = counts()
        assert before["failure"] == "", before
        behave(conduct)
        began = time.monotonic()
        traffic(seals)
        took = time.monotonic() - began
        now = counts()
        assert reason in now["failure"], now
        assert now["fallbacks"] > before["fallbacks"], now
        behave("proper")
        if conduct == "late":
            # It takes its reset when it is through.
            time.sleep(5)
        # The device is there again for whoever binds it anew.
        unload()
        load(*HASTY)
        before, device_before = counts(), device_counts("crypto")
        assert before["failure"] == "", before
        both_ways("gcm(aes)", secrets.token_bytes(16), 1024)
        assert counts()["fallbacks"] == before["fallbacks"]
        return f"{took:.1f} s"
    return case


def lost_interrupts():
    """The watchdog finds what no interrupt told."""
    unload()
    load(*HASTY)
    before = counts()
    behave("lose-interrupts")
    traffic()
    now = counts()
    assert now["failure"] == "" and now["interrupts"] == before["interrupts"], now
    assert now["fallbacks"] == before["fallbacks"], now
    missed = now["missed_interrupts"] - before["missed_interrupts"]
    assert missed == now["requests"] - before["requests"] > 0, now
    behave("proper")
    return f"{missed} found"


def doubled_interrupts():
    before = counts()
    behave("double-interrupts")
    traffic()
    now = counts()
    assert now["failure"] == "" and now["fallbacks"] == before["fallbacks"], now
    spurious = now["spurious_interrupts"] - before["spurious_interrupts"]
    assert spurious > 0, now
    behave("proper")
    return f"{spurious} found nothing"


def killed():
    """The device process is gone, and with it whatever it had begun."""
    (SHARE / "kill").touch()
    end = time.monotonic() + SECONDS
    while (SHARE / "kill").exists():
        assert time.monotonic() < end
        time.sleep(0.1)
    began = time.monotonic()
    traffic()
    assert counts()["failure"], counts()
    return f"{time.monotonic() - began:.1f} s"


def quiet():
    """The kernel had nothing to warn of, from the first case to the last."""
    unload()
    log = shell("dmesg")
    bad = [line for line in log.splitlines()
           if re.search(r"WARNING|BUG|Oops|Call Trace|hung task|alg: .*(fail|wrong)|refcount|lockup|use-after", line)]
    assert not bad, bad
    # The killed device cannot have taken its reset.
    assert log.count("given up") == 8 and log.count("its memory is not given back") == 1, log


def cases():
    yield "the kernel's own tests of each algorithm pass", self_test
    yield "AF_ALG and the library agree", af_alg
    yield "a forged message is refused, and the device stays", forged
    for name, how in ESP.items():
        yield f"ESP of the kernel, {name}", lambda how=how: esp(*how)
    yield "dm-crypt, read again by software", disk
    yield "OpenSSL by AF_ALG", lambda: moved_by(clients.engine)
    yield "signatures verified by the kernel and by the library", public_keys
    yield "/dev/uio0 and software agree", user_space
    for service, title in (("vpn", "cordon vpn up"), ("site", "a site")):
        for completion in ("interrupt", "polling"):
            yield f"{title} with /dev/uio0, by {completion}", product(service, completion)
    yield "/dev/uio0 has one user at a time", used_once
    yield "lost interrupts", lost_interrupts
    yield "doubled interrupts", doubled_interrupts
    yield "a device that lies about tags", broken("lie-about-tag", "a tag is wrong")
    yield "a device that dies in the middle", broken("die", "not completed in time")
    yield "completions of another request", broken("wrong-echo", "another request")
    yield "completions with another length", broken("wrong-length", "another length")
    yield "completions with an unknown outcome", broken("wrong-outcome", "an outcome")
    yield "completions after the deadline", broken("late", "not completed in time")
    yield "ESP goes on when the device dies", dying_under_esp
    yield "a device process that is killed", killed
    yield "no warning of the kernel", quiet


def main():
    shell("modprobe -a crypto_engine uio algif_skcipher algif_aead algif_hash veth esp4 xfrm_user authenc gcm crc-itu-t")
    failed = 0
    for title, case in cases():
        if WORDS and case != self_test and not any(word in title for word in WORDS):
            continue
        began = time.monotonic()
        try:
            said = case()
        except Exception as error:
            failed += 1
            print(f"FAILED  {title}: {type(error).__name__}: {error}", flush=True)
            print(shell("dmesg | tail -25"), flush=True)
            break
        print(f"ok  {title}{f': {said}' if said else ''}  {time.monotonic() - began:.1f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
