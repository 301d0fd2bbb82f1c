"""`cordon vpn up` where Linux has ESP: with charon over the kernel's IPsec.

    python3 tests/kernel/machine.py FOLDER /usr/bin/python3 tests/kernel/ike.py target/debug/cordon [WORD...]

Runs under a kernel that has IPsec; makes two network namespaces of its own. With words, only the cases
whose names have one of them.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import vpn
from vpn import inside, network, output, shell, stream, wait_for

CORDON = Path(sys.argv[1]).resolve()
OURS, LINUX = "ours", "linux"
# The emulator is slow, above all beside other work.
SECONDS = vpn.SECONDS = 120
OUTSIDE = vpn.OUTSIDE[4]
INSIDE = {OURS: "10.5.1.1", LINUX: "10.5.2.1"}
NETS = {OURS: "10.5.1.0/24", LINUX: "10.5.2.0/24"}
SECRET = "a secret for this test only"

STRONGSWAN = """
charon {
  load = random drbg nonce aes sha1 sha2 md5 hmac kdf gcm ctr ccm chapoly curve25519 openssl pem pkcs1 pkcs8 x509 constraints pubkey kernel-netlink socket-default vici
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
SWANCTL = """
connections {
  peer {
    version = 2
    local_addrs = %(theirs)s
    remote_addrs = %(ours)s
    proposals = aes128gcm16-prfsha256-x25519
    mobike = no
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
GCM = 'esp = [{ encryption = ["aes-128-gcm"], groups = ["x25519"], extended_sequence = %s }]'
CBC = 'esp = [{ encryption = ["aes-256-cbc"], integrity = ["hmac-sha2-256-128"], groups = ["x25519"], extended_sequence = %s }]'
ALGORITHMS = {
    "AES-GCM": ("aes128gcm16-x25519", GCM),
    "AES-CBC with SHA-2": ("aes256-sha256-x25519", CBC),
    "ChaCha20-Poly1305": ("chacha20poly1305-x25519", GCM.replace("aes-128-gcm", "chacha20-poly1305")),
}


class Daemon:
    """One `cordon vpn up`."""

    def __init__(self, side, folder, mode, encapsulation, esp="", starts=False):
        self.side, self.folder = side, folder / side
        self.folder.mkdir()
        other = LINUX if side == OURS else OURS
        mine, its = ("ours", "theirs") if side == OURS else ("theirs", "ours")
        secret = self.folder / "psk"
        secret.touch(mode=0o600)
        secret.write_text(SECRET)
        transport = mode == "transport"
        networks = f'local = ["{NETS[side]}"]\nremote = ["{NETS[other]}"]'
        self.file = self.folder / "vpn.toml"
        self.file.write_text(f"""
status = "control.sock"
path = {{ listen = "{OUTSIDE[side]}", encapsulation = "{encapsulation}" }}
[interface]
name = "tunnel0"
addresses = [{"" if transport else f'"{INSIDE[side]}/32"'}]
[[connection]]
name = "peer"
remote = "{OUTSIDE[other]}"
local_id = "{mine}.example.org"
remote_id = "{its}.example.org"
psk_file = "psk"
ike = [{{ encryption = ["aes-128-gcm"], prf = ["hmac-sha2-256"], groups = ["x25519"] }}]
start = "{"start" if starts else "none"}"
[[connection.child]]
name = "net"
mode = "{mode}"
{"" if transport else networks}
{esp}
""")

    def __enter__(self):
        self.output = open(self.folder / "log", "wb")
        command = inside(self.side, CORDON, "vpn", "up", "--config", self.file)
        self.process = subprocess.Popen(command, stdout=self.output, stderr=self.output)
        try:
            wait_for("the daemon", lambda: "tunnels are served" in self.log() or self.process.poll() is not None)
            assert self.process.poll() is None, self.log()
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind, *_):
        if kind:
            print(f"--- {self.side}\n{self.log()[-4000:]}")
            self.process.kill()
            self.process.wait()
        else:
            self.process.terminate()
            assert self.process.wait(SECONDS) == 0, self.log()
        self.output.close()

    def log(self):
        text = (self.folder / "log").read_text(errors="replace")
        return re.sub(r"\x1b\[[0-9;]*m", "", text)

    def tell(self, *order):
        return subprocess.run([CORDON, "vpn", *order, "--config", self.file, "--json"], capture_output=True, text=True)

    def status(self):
        return json.loads(self.tell("status").stdout)

    def children(self):
        return [child for sa in self.status()["ike"]["sas"] for child in sa["children"]]

    def up(self):
        wait_for(f"a child: {self.log()[-2000:]}", lambda: len(self.children()) == 1)
        return self.children()[0]


class Charon:
    """strongSwan with the kernel's IPsec."""

    def __init__(self, folder, mode, encapsulation, esp):
        self.folder = folder / "charon"
        swanctl = self.folder / "swanctl"
        swanctl.mkdir(parents=True)
        self.config = self.folder / "strongswan.conf"
        self.config.write_text(STRONGSWAN.replace("FOLDER", str(self.folder)))
        selectors = f"local_ts = {NETS[LINUX]}\n        remote_ts = {NETS[OURS]}" if mode == "tunnel" else ""
        (swanctl / "swanctl.conf").write_text(SWANCTL % {
            "theirs": OUTSIDE[LINUX], "ours": OUTSIDE[OURS], "mode": mode, "selectors": selectors, "esp": esp,
            "secret": SECRET, "encap": "yes" if encapsulation == "udp" else "no",
        })
        self.swanctl, self.uri = swanctl, f"unix://{self.folder}/vici.sock"

    def __enter__(self):
        command = f"STRONGSWAN_CONF={self.config} exec /usr/lib/ipsec/charon"
        # One of another case may have left its file.
        Path("/run/charon.pid").unlink(missing_ok=True)
        self.process = subprocess.Popen(inside(LINUX, "sh", "-c", command), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
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

    def log(self):
        return (self.folder / "charon.log").read_text(errors="replace")[-4000:]

    def __exit__(self, kind, *_):
        if kind:
            print(f"--- charon\n{self.log()}")
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def ends(mode):
    return OUTSIDE if mode == "transport" else INSIDE


def carries(mode):
    address = ends(mode)
    for source, sink in [(OURS, LINUX), (LINUX, OURS)]:
        stream(source, sink, address[sink])


@contextlib.contextmanager
def address_on_loopback(mode):
    """charon has no interface: its inner address is the host's."""
    if mode == "transport":
        yield
        return
    shell(f"ip -n {LINUX} address add {INSIDE[LINUX]}/32 dev lo")
    try:
        yield
    finally:
        shell(f"ip -n {LINUX} address delete {INSIDE[LINUX]}/32 dev lo")


def beside_charon(folder, mode, encapsulation, algorithm, esn, by):
    """Ours in user space; charon has the kernel's IPsec."""
    theirs, ours = ALGORITHMS[algorithm]
    with address_on_loopback(mode), Charon(folder, mode, encapsulation, theirs + ("-esn" if esn else "")) as charon:
        line = ours % ("true" if esn else "false")
        daemon = Daemon(OURS, folder, mode, encapsulation, line, starts=by == OURS)
        with daemon:
            if by == LINUX:
                charon.control("--initiate", "--child", "net", "--timeout", "110")
            child = daemon.up()
            assert (child["mode"], child["in_udp"]) == (mode, encapsulation == "udp"), child
            carries(mode)
            for target in (["--child", "net"], ["--ike", "peer"]):
                charon.control("--rekey", *target)
            wait_for("new keys", lambda: daemon.status()["ike"]["counters"]["ike_rekeys"] == 1)
            carries(mode)
            # Those that count here are the kernel's own.
            table = output(LINUX, "ip", "-s", "xfrm", "state")
            assert ("espinudp" in table) == (encapsulation == "udp"), table
    nothing_is_left(OURS)


def nothing_is_left(side):
    for table in ("state", "policy"):
        left = output(side, "ip", "xfrm", table)
        assert "192.0.2" not in left, left
    assert "tunnel0" not in output(side, "ip", "link")
    assert "1723" not in output(side, "ip", "rule")


CASES = [
    ("tunnel", "udp", "AES-GCM", False, OURS),
    ("tunnel", "native", "AES-GCM", True, LINUX),
    ("transport", "native", "AES-CBC with SHA-2", False, OURS),
    ("transport", "auto", "ChaCha20-Poly1305", True, LINUX),
    ("transport", "udp", "AES-GCM", False, OURS),
]


def wanted(name):
    return not sys.argv[2:] or any(word in name for word in sys.argv[2:])


def main():
    network()
    failed = 0
    for case in CASES:
        if not wanted(" ".join(map(str, case))):
            continue
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory() as folder:
                beside_charon(Path(folder), *case)
            print(f"ok  beside charon: {' '.join(map(str, case))}  {time.monotonic() - began:.1f} s", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILED  beside charon: {' '.join(map(str, case))}: {error!r:.2000}", flush=True)
            for side in (OURS, LINUX):
                for table in (["state"], ["policy"]):
                    shown = subprocess.run(inside(side, "ip", "-s", "xfrm", *table), capture_output=True, text=True)
                    print(side, shown.stdout[:3000])
    return failed


if __name__ == "__main__":
    sys.exit(main())
