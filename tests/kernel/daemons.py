"""Two network namespaces with IKE daemons in them: ours, and strongSwan, libreswan or OpenIKED over Linux's IPsec."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import vpn
from authority import execute
from vpn import inside, output, shell, stream, wait_for

CORDON = Path(sys.argv[1]).resolve()
OURS, LINUX = "ours", "linux"
# An emulator is slow, above all beside other work.
SECONDS = vpn.SECONDS = 120
OUTSIDE, OUTSIDE_V6 = vpn.OUTSIDE[4], vpn.OUTSIDE[6]
INSIDE = {OURS: "10.5.1.1", LINUX: "10.5.2.1"}
NETS = {OURS: "10.5.1.0/24", LINUX: "10.5.2.0/24"}
NAMES = {OURS: "ours.example.org", LINUX: "theirs.example.org"}
SECRET = "a secret for this test only"
# Where guest.py puts the programs of a later release.
PEERS = Path("/run/peers")
GCM = 'encryption = ["aes-128-gcm"], prf = ["hmac-sha2-256"], groups = ["x25519"]'


class Program:
    """A program with its log in a file; ended by its own id only."""

    def __init__(self, command, log):
        self.log_file = log
        with open(log, "ab") as out:
            self.process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=out,
                                            stdin=subprocess.DEVNULL)

    def log(self):
        return re.sub(r"\x1b\[[0-9;]*m", "", self.log_file.read_text(errors="replace"))

    def says(self, *parts, seconds=SECONDS):
        """Waits for one line of the log that has all the parts."""
        end = time.monotonic() + seconds
        while not any(all(part in line for part in parts) for line in self.log().splitlines()):
            assert time.monotonic() < end, f"{parts} not in one line of {self.log()[-3000:]}"
            time.sleep(0.1)

    def signal(self, number):
        """Sends it to the program and its children, their children too."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            # One that has just ended is of no interest. The name in parentheses may have anything in it.
            with contextlib.suppress(OSError):
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(stat.parent.name))
        waiting = [self.process.pid]
        while waiting:
            pid = waiting.pop()
            os.kill(pid, number)
            waiting += parents.get(pid, [])

    def end(self):
        self.process.terminate()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Daemon:
    """One `cordon vpn up`."""

    def __init__(self, side, folder, mode="tunnel", encapsulation="udp", esp="", starts=False, ike=GCM,
                 auth='psk_file = "psk"', top="", extra="", child="", backend="user", path="", ids=None, outside=OUTSIDE):
        self.side, self.folder = side, folder / side
        self.folder.mkdir()
        other = LINUX if side == OURS else OURS
        ids = ids or NAMES
        secret = self.folder / "psk"
        secret.touch(mode=0o600)
        secret.write_text(SECRET)
        transport = mode == "transport"
        networks = f'local = ["{NETS[side]}"]\nremote = ["{NETS[other]}"]'
        self.file = self.folder / "vpn.toml"
        self.file.write_text(f"""
backend = "{backend}"
status = "control.sock"
{top}
[path]
listen = "{outside[side]}"
encapsulation = "{encapsulation}"
{path}
[firewall]
enforce = "off"
[interface]
name = "tunnel0"
addresses = [{"" if transport else f'"{INSIDE[side]}/32"'}]
[[connection]]
name = "peer"
remote = "{outside[other]}"
local_id = "{ids[side]}"
remote_id = "{ids[other]}"
{auth}
ike = [{{ {ike} }}]
start = "{starts if isinstance(starts, str) else "start" if starts else "none"}"
{extra}
[[connection.child]]
name = "net"
mode = "{mode}"
{"" if transport else networks}
{esp}
{child}
""")

    def __enter__(self):
        self.program = Program(inside(self.side, CORDON, "vpn", "up", "--config", self.file), self.folder / "log")
        process = self.program.process
        try:
            wait_for("the daemon", lambda: "tunnels are served" in self.log() or process.poll() is not None)
            assert process.poll() is None, self.log()
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind, *_):
        if kind:
            print(f"--- {self.side}\n{self.log()[-5000:]}")
            self.program.process.kill()
            self.program.process.wait()
        elif self.program.process.poll() is None:
            code = self.program.end()
            assert code == 0, f"{code}: {self.log()[-3000:]}"

    def log(self):
        return self.program.log()

    def says(self, *parts, seconds=SECONDS):
        self.program.says(*parts, seconds=seconds)

    def kill(self):
        """As a crash does."""
        self.program.process.kill()
        self.program.process.wait()

    def tell(self, *order):
        line = [CORDON, "vpn", order[0], "--config", self.file, *order[1:], "--json"]
        return subprocess.run(line, capture_output=True, text=True)

    def status(self):
        done = self.tell("status")
        assert done.returncode == 0, f"{done}\n{self.log()[-3000:]}"
        return json.loads(done.stdout)

    def counters(self):
        return self.status()["ike"]["counters"]

    def children(self):
        return [child for sa in self.status()["ike"]["sas"] for child in sa["children"]]

    def up(self, seconds=SECONDS):
        wait_for(f"a child: {self.log()[-2000:]}", lambda: len(self.children()) == 1, seconds)
        return self.children()[0]


def padded_sizes():
    """Sizes of the ESP packets in UDP on the cable by source, while packets of several sizes go both ways."""
    with vpn.network_of(OURS):
        cable = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    with cable:
        cable.bind(("cable", 0))
        cable.setblocking(False)
        for size in (8, 500, 1000):
            output(OURS, "ping", "-n", "-q", "-c", 2, "-i", "0.2", "-W", 5, "-s", size, INSIDE[LINUX])
        sizes = {}
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = cable.recv(65536)
                # Not IKE, whose messages begin with four zeros there.
                if packet[0] == 0x45 and packet[9] == 17 and any(packet[28:32]):
                    sizes.setdefault(socket.inet_ntoa(packet[12:16]), set()).add(len(packet))
    return sizes[OUTSIDE[OURS]], sizes[OUTSIDE[LINUX]]


class Charon:
    """strongSwan with the kernel's IPsec."""

    CONFIG = """
charon {
  load = random drbg nonce aes sha1 sha2 md5 hmac xcbc kdf gcm ctr ccm chapoly curve25519 openssl pem pkcs1 pkcs8 x509 constraints pubkey kernel-netlink socket-default vici
  delete_rekeyed_delay = 1
  filelog {
    log {
      path = FOLDER/charon.log
      default = 1
      flush_line = yes
    }
  }
  plugins {
    vici {
      socket = unix://FOLDER/vici.sock
    }
  }
}
"""
    CONNECTION = """
connections {
  peer {
    version = 2
    local_addrs = %(theirs)s
    remote_addrs = %(remote)s
    proposals = aes128gcm16-prfsha256-x25519
    mobike = %(mobike)s
    encap = %(encap)s
    local {
      auth = psk
      id = theirs.example.org
    }
    remote {
      auth = psk
      id = ours.example.org
    }
    children {
      net {
        mode = %(mode)s
        %(selectors)s
        esp_proposals = %(esp)s
        %(child)s
      }
    }
  }
}
secrets {
  ike-1 {
    secret = "%(secret)s"
  }
}
"""

    def __init__(self, folder, mode="tunnel", encapsulation="udp", esp="aes128gcm16-x25519", mobike="no", remote=None,
                 child=""):
        self.folder = folder / "charon"
        self.swanctl = self.folder / "swanctl"
        self.swanctl.mkdir(parents=True)
        self.config = self.folder / "strongswan.conf"
        self.config.write_text(self.CONFIG.replace("FOLDER", str(self.folder)))
        selectors = f"local_ts = {NETS[LINUX]}\n        remote_ts = {NETS[OURS]}" if mode == "tunnel" else ""
        (self.swanctl / "swanctl.conf").write_text(self.CONNECTION % {
            "theirs": OUTSIDE[LINUX], "remote": remote or OUTSIDE[OURS], "mode": mode, "selectors": selectors,
            "esp": esp, "child": child, "secret": SECRET, "encap": "yes" if encapsulation == "udp" else "no", "mobike": mobike,
        })
        self.uri = f"unix://{self.folder}/vici.sock"

    def __enter__(self):
        command = f"STRONGSWAN_CONF={self.config} exec /usr/lib/ipsec/charon"
        # One of another case may have left its file.
        Path("/run/charon.pid").unlink(missing_ok=True)
        self.program = Program(inside(LINUX, "sh", "-c", command), self.folder / "output")
        wait_for("charon", (self.folder / "vici.sock").exists)
        environment = dict(os.environ, SWANCTL_DIR=str(self.swanctl))
        done = subprocess.run(["swanctl", "--load-all", "--noprompt", "--uri", self.uri], env=environment,
                              capture_output=True, text=True)
        assert done.returncode == 0, done
        return self

    def control(self, *arguments):
        done = subprocess.run(["swanctl", *arguments, "--uri", self.uri], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{done}\n{self.log()}"
        return done.stdout

    def initiate(self):
        self.control("--initiate", "--child", "net", "--timeout", "110")

    def rekey(self, what):
        self.control("--rekey", *{"child": ["--child", "net"], "ike": ["--ike", "peer"]}[what])

    def close(self):
        self.control("--terminate", "--ike", "peer")

    def log(self):
        return (self.folder / "charon.log").read_text(errors="replace")[-4000:]

    def __exit__(self, kind, *_):
        if kind:
            print(f"--- charon\n{self.log()}")
        self.program.end()


class Libreswan:
    """libreswan, in the root of guest.py."""

    def __init__(self, folder, ike="aes_gcm128-sha2_256-dh31", esp="aes_gcm128-null", auth="secret", pki=None,
                 encapsulation="auto", extra="", setup="", ids=None, outside=OUTSIDE):
        ids = ids or {side: f"@{name}" for side, name in NAMES.items()}
        self.folder = folder / "libreswan"
        self.folder.mkdir()
        self.nss = self.folder / "nss"
        self.nss.mkdir()
        self.run_peer("certutil", "-N", "-d", f"sql:{self.nss}", "--empty-password")
        certificates = ""
        if pki:
            self.trust(pki)
            certificates = "leftcert=theirs\n    leftsendcert=always"
        self.config = self.folder / "ipsec.conf"
        self.config.write_text(f"""
config setup
    logfile={self.folder}/pluto.log
    nssdir={self.nss}
    plutodebug=none
    ikev1-policy=drop
    {setup}
conn net
    left={outside[LINUX]}
    leftid="{ids[LINUX]}"
    leftsubnet={NETS[LINUX]}
    {certificates}
    right={outside[OURS]}
    rightid="{ids[OURS]}"
    rightsubnet={NETS[OURS]}
    {auth if '=' in auth else f'authby={auth}'}
    keyexchange=ikev2
    ike={ike}
    esp={esp}
    encapsulation={encapsulation}
    auto=add
    {extra}
""")
        secrets = self.folder / "ipsec.secrets"
        secrets.touch(mode=0o600)
        # Distinguished names are no index of it.
        secrets.write_text(f': PSK "{SECRET}"\n')
        self.secrets = secrets

    def run_peer(self, *command, code=0):
        done = subprocess.run(inside(LINUX, "chroot", PEERS, *command), capture_output=True, text=True, timeout=120)
        assert code is None or done.returncode == code, f"{done}\n{self.log()}"
        return done.stdout

    def trust(self, pki):
        database = ["-d", f"sql:{self.nss}"]
        package = self.folder / "theirs.p12"
        execute("openssl", "pkcs12", "-export", "-inkey", pki / "theirs.key", "-in", pki / "theirs.pem", "-name",
                "theirs", "-out", package, "-passout", "pass:test")
        self.run_peer("pk12util", "-i", package, *database, "-W", "test")
        self.run_peer("certutil", "-A", "-n", "authority", "-t", "CT,,", "-i", pki / "ca.pem", *database)

    def __enter__(self):
        (PEERS / "run/pluto").mkdir(exist_ok=True)
        line = ["/usr/libexec/ipsec/pluto", "--nofork", "--config", self.config, "--secretsfile", self.secrets,
                "--nssdir", self.nss]
        self.program = Program(inside(LINUX, "chroot", PEERS, *line), self.folder / "output")
        try:
            wait_for("pluto", lambda: "ready" in self.run_peer("ipsec", "whack", "--status", code=None)
                     or "listening" in self.log())
            self.run_peer("ipsec", "add", "--config", self.config, "net")
            self.run_peer("ipsec", "listen")
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def control(self, *arguments, code=0):
        return self.run_peer("ipsec", "whack", *arguments, code=code)

    def initiate(self):
        self.control("--initiate", "--name", "net")

    def rekey(self, what):
        self.control(f"--rekey-{what}", "--name", "net")

    def close(self):
        self.control("--terminate", "--name", "net")

    def is_down(self):
        return "ESTABLISHED" not in self.control("--showstates")

    def log(self):
        file = self.folder / "pluto.log"
        return file.read_text(errors="replace")[-6000:] if file.exists() else ""

    def __exit__(self, kind, *_):
        if kind:
            print(f"--- libreswan\n{self.log()}\n{self.program.log()[-1000:]}")
        self.program.end()


class Iked:
    """OpenIKED, in the root of guest.py."""

    def __init__(self, folder, ike="enc aes-128-gcm prf hmac-sha2-256 group curve25519", auth=None, pki=None,
                 active=False, extra="", top="", ids=None, outside=OUTSIDE):
        ids = ids or NAMES
        self.folder = folder / "iked"
        self.folder.mkdir()
        self.config, self.socket = self.folder / "iked.conf", self.folder / "iked.sock"
        auth = auth or f'psk "{SECRET}"'
        self.config.touch(mode=0o600)
        self.config.write_text(
            f'{top}\nikev2 "net" {"active" if active else "passive"} esp '
            f"from {NETS[LINUX]} to {NETS[OURS]} local {outside[LINUX]} peer {outside[OURS]} "
            f"{f'ikesa {ike}' if ike else ''} srcid \"{ids[LINUX]}\" dstid \"{ids[OURS]}\" {extra} {auth}\n"
        )
        home = PEERS / "etc/iked"
        for old in [*home.glob("ca/*"), *home.glob("certs/*"), *home.glob("private/*")]:
            old.unlink()
        key = home / "private/local.key"
        key.touch(mode=0o600)
        if pki:
            authorities = [("ca", name) for name in ("ca.pem", "issuing.pem") if (pki / name).exists()]
            for place, name in [*authorities, ("certs", "theirs.pem"), ("private", "theirs.key")]:
                target = key if place == "private" else home / place / name
                target.write_bytes((pki / name).read_bytes())
        else:
            # It does not start without one.
            execute(*"openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out".split(), key)

    def __enter__(self):
        line = ["iked", "-d", "-vv", "-f", self.config, "-s", self.socket]
        self.program = Program(inside(LINUX, "chroot", PEERS, *line), self.folder / "log")
        try:
            wait_for("iked", self.socket.exists)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def control(self, *arguments):
        line = inside(LINUX, "chroot", PEERS, "ikectl", "-s", self.socket, *arguments)
        done = subprocess.run(line, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{done}\n{self.log()}"
        return done.stdout

    def close(self):
        self.control("reset", "sa")

    def is_down(self):
        return "iked_sas" not in self.control("show", "sa")

    def log(self):
        return self.program.log()

    def __exit__(self, kind, *_):
        if kind:
            print(f"--- iked\n{self.log()[-7000:]}")
        self.program.end()


def with_certificate(pki):
    """The lines of our configuration."""
    return {
        "auth": f'certificate = "{pki}/ours.pem"\nkey = "{pki}/ours.key"',
        "top": f'trust = {{ anchors = ["{pki}/ca.pem"] }}',
    }


def carries(mode="tunnel"):
    """A ping and a stream, both ways."""
    address = OUTSIDE if mode == "transport" else INSIDE
    for source, sink in [(OURS, LINUX), (LINUX, OURS)]:
        output(source, "ping", "-n", "-q", "-c", 2, "-i", "0.2", "-W", 5, "-I", address[source], address[sink])
        stream(source, sink, address[sink])


@contextlib.contextmanager
def address_on_loopback(mode="tunnel"):
    """The other daemons have no interface: their inner address is the host's."""
    if mode == "transport":
        yield
        return
    shell(f"ip -n {LINUX} address add {INSIDE[LINUX]}/32 dev lo")
    shell(f"ip -n {LINUX} route add {NETS[OURS]} via {OUTSIDE[OURS]} src {INSIDE[LINUX]}")
    try:
        yield
    finally:
        shell(f"ip -n {LINUX} route delete {NETS[OURS]}")
        shell(f"ip -n {LINUX} address delete {INSIDE[LINUX]}/32 dev lo")


@contextlib.contextmanager
def pings(side, address, lost=0):
    """Packets all the time, of which not more may be lost."""
    line = inside(side, "ping", "-n", "-q", "-i", "0.05", address)
    ping = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    try:
        yield
        ping.send_signal(signal.SIGINT)
        text = ping.communicate(timeout=SECONDS)[0]
    finally:
        ping.kill()
        ping.wait()
    sent, received = map(int, re.search(r"(\d+) packets transmitted, (\d+) received", text).groups())
    # The last one may have been on its way.
    assert sent > 10 and sent - received <= lost + 1, text


def nothing_is_left(side):
    for table in ("state", "policy"):
        left = output(side, "ip", "xfrm", table)
        assert not any(network in left for network in ("192.0.2", "2001:db8")), left
    assert "tunnel0" not in output(side, "ip", "link")
    assert "1723" not in output(side, "ip", "rule")


def clear(side):
    """Takes away what a case that failed has left."""
    for table in ("state", "policy"):
        output(side, "ip", "xfrm", table, "flush")


def run_cases(cases):
    """Runs the cases, pairs of a name and a function of a folder, that the command line wants."""
    failed = 0
    for name, case in cases:
        if sys.argv[2:] and not any(word in name for word in sys.argv[2:]):
            continue
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory() as folder:
                case(Path(folder))
            print(f"ok  {name}  {time.monotonic() - began:.1f} s", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILED  {name}: {error!r:.3000}", flush=True)
            for side in (OURS, LINUX):
                for table in (["state"], ["policy"]):
                    shown = subprocess.run(inside(side, "ip", "-s", "xfrm", *table), capture_output=True, text=True)
                    print(side, shown.stdout[:3000])
                shown = subprocess.run(inside(side, "grep", "-v", "[^0-9]0$", "/proc/net/xfrm_stat"), capture_output=True,
                                       text=True)
                print(side, shown.stdout)
                clear(side)
    return failed


def stopped(program, then):
    """Calls `then` while a program stands still."""
    program.signal(signal.SIGSTOP)
    try:
        then()
    finally:
        program.signal(signal.SIGCONT)
