"""Our IKEv2 library beside strongSwan's charon: both daemons, a network between them, certificates."""

import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

from tests.harness import ROOT, contains, equal, run as execute, wait_for
from tests.namespaces import OUTSIDE, Network

PEER = Path(os.environ.get("IKE_PEER", ROOT / "target/debug/examples/ike_peer"))
CHARON = "/usr/lib/ipsec/charon"
# A root file system with strongSwan 6, which speaks ML-KEM (scripts/strongswan-6).
CHARON6_ROOT = os.environ.get("CHARON6_ROOT")
# Ours is the client side of the network, charon the server side.
OURS, THEIRS = OUTSIDE["client"], OUTSIDE["server"]
NETS = {"ours": "10.5.1.0/24", "theirs": "10.5.2.0/24"}
SECRET = "a secret for this test only"
PASSWORD = "a password for this test only"
IKE = "aes128gcm16-prfsha256-x25519"
ESP = "aes128gcm16-x25519"

STRONGSWAN = """
charon {
  load = random drbg nonce aes sha1 sha2 md5 hmac xcbc kdf gcm ctr ccm chapoly curve25519 openssl pem pkcs1 pkcs8 x509 constraints pubkey eap-identity eap-mschapv2 eap-tls kernel-libipsec kernel-netlink socket-default vici
  delete_rekeyed_delay = 1
  retransmit_timeout = 1.0
  retransmit_base = 1.3
  retransmit_tries = 20
  %(settings)s
  filelog {
    log {
      path = %(folder)s/charon.log
      default = 1
      ike = %(level)s
      chd = %(level)s
      enc = 1
      flush_line = yes
    }
  }
  plugins {
    vici {
      socket = unix://%(folder)s/vici.sock
    }
  }
}
"""

CONNECTION = """
connections {
  peer {
    version = %(version)s
    local_addrs = %(theirs)s
    remote_addrs = %(ours)s
    proposals = %(ike)s
    fragmentation = %(fragmentation)s
    mobike = %(mobike)s
    %(ppk)s
    %(addresses)s
    local {
      auth = %(local_auth)s
      id = "%(local_id)s"
      %(cert)s
      %(local_eap)s
    }
    remote {
      auth = %(remote_auth)s
      id = "%(remote_id)s"
      %(remote_eap)s
    }
    children {
      net {
        local_ts = %(local)s
        remote_ts = %(remote)s
        esp_proposals = %(esp)s
        %(child)s
      }
    }
  }
}
pools {
  inside {
    addrs = 10.9.0.0/24
  }
}
secrets {
  ike-1 {
    secret = "%(secret)s"
  }
  eap-1 {
    id = officer-4711
    secret = "%(password)s"
  }
  ppk-1 {
    id-1 = lab
    secret = "a secret against quantum computers"
  }
}
"""


class Charon:
    """One strongSwan daemon with ESP in user space."""

    def __init__(self, lab, ike, esp, pki, level=1, secret=SECRET, profile=None, root=None, settings="",
                 side="server", names=f"{OURS} ours.example.org", **options):
        options = {"version": "2", "addresses": "", "mobike": "no", "ppk": "", "fragmentation": "yes", "child": ""} | options
        options = {"local": NETS["theirs"], "remote": NETS["ours"]} | options
        lab.count += 1
        # Sockets have short names.
        self.folder = lab.suite.folder / f"c{lab.count}"
        swanctl = self.folder / "swanctl"
        for name in ["private", "x509", "x509ca"]:
            (swanctl / name).mkdir(parents=True)
        if profile:
            shutil.copytree(profile, swanctl, dirs_exist_ok=True)
        config = self.folder / "strongswan.conf"
        config.write_text(STRONGSWAN % {"folder": self.folder, "level": level, "settings": settings})
        if profile:
            # Somebody else's configuration as it is.
            shutil.copytree(profile, swanctl, dirs_exist_ok=True)
        else:
            self.configure(swanctl, pki, {"ike": ike, "esp": esp, "secret": secret} | options)
        hosts = self.folder / "hosts"
        hosts.write_text(f"127.0.0.1 localhost\n{names}\n")
        command = f"mount -t tmpfs tmpfs /run; mount --bind {hosts} /etc/hosts; STRONGSWAN_CONF={config} exec {CHARON}"
        if root:
            # Its folder is at the same place inside.
            inside = f"{root}{self.folder}"
            Path(inside).mkdir(parents=True)
            Path(f"{root}/etc/hosts").touch()
            command = f"mount --bind {hosts} {root}/etc/hosts; mount --rbind /dev {root}/dev; mount --bind {self.folder} {inside}; mount -t proc proc {root}/proc; "
            command += f"mount -t tmpfs tmpfs {root}/run; STRONGSWAN_CONF={config} exec chroot {root} {CHARON}"
        line = lab.network.command(side, "unshare", "-m", "sh", "-c", command)
        self.process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.uri = f"unix://{self.folder}/vici.sock"
        wait_for((self.folder / "vici.sock").exists, "charon's socket")
        self.swanctl = swanctl
        self.load()

    def load(self):
        environment = dict(os.environ, SWANCTL_DIR=str(self.swanctl))
        execute("swanctl", "--load-all", "--noprompt", "--uri", self.uri, env=environment)

    @staticmethod
    def configure(swanctl, pki, options):
        names = {"ours": OURS, "theirs": THEIRS}
        auth = "pubkey" if pki else "psk"
        names |= {"local_auth": auth, "remote_auth": auth, "local_id": "theirs.example.org", "remote_id": "ours.example.org"}
        names |= {"local_eap": "", "remote_eap": "", "password": PASSWORD}
        names |= {"cert": "certs = theirs.pem" if pki else ""} | options
        (swanctl / "swanctl.conf").write_text(CONNECTION % names)
        if pki:
            between = [("issuing.pem", "x509ca")] if (pki / "issuing.pem").exists() else []
            for source, target in [("ca.pem", "x509ca"), *between, ("theirs.pem", "x509"), ("theirs.key", "private")]:
                (swanctl / target / source).write_bytes((pki / source).read_bytes())

    def control(self, *arguments, code=0):
        return execute("swanctl", *arguments, "--uri", self.uri, code=code, timeout=60).stdout

    def sas(self):
        return self.control("--list-sas")

    def log(self):
        return (self.folder / "charon.log").read_text(errors="replace")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Peer:
    """Our example peer; its lines come into a list."""

    def __init__(self, lab, ike, esp, pki, secret=SECRET, extra=(), nets=NETS, remote="theirs.example.org"):
        auth = ["--psk", secret]
        if pki:
            auth = ["--cert", pki / "ours.pem", "--key", pki / "ours.key", "--ca", pki / "ca.pem"]
        command = [PEER, "--local", OURS, "--remote", THEIRS, "--local-id", "ours.example.org"]
        command += ["--remote-id", remote, "--ike", ike, "--esp", esp, *auth]
        command += ["--local-ts", nets["ours"], "--remote-ts", nets["theirs"], *extra]
        line = lab.network.command("client", *(str(part) for part in command))
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.expect("ready")

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def count(self, start):
        return sum(line.startswith(start) for line in self.lines)

    def expect(self, start, count=1, seconds=20):
        what = lambda: f"{count} x {start!r} among {self.lines}"

        def said():
            # Asked first: what was said last is read before the reader ends.
            ended = not self.reader.is_alive()
            if self.count(start) >= count:
                return True
            assert not ended, f"the peer ended before {what()}"
            return False

        wait_for(said, what, seconds)

    def alive(self):
        """The peer's inbound SPIs of our Child SAs."""
        ups = [line.split() for line in self.lines if line.startswith("child-up")]
        downs = {line.split()[1] for line in self.lines if line.startswith("child-down")}
        return [theirs for _, ours, theirs, *_ in ups if ours not in downs]

    def stop(self):
        self.process.terminate()
        self.process.wait(10)
        self.process.stdin.close()
        self.reader.join()
        self.process.stdout.close()


class Lab:
    def __init__(self, suite):
        self.suite = suite
        self.count = 0
        self.network = Network()
        suite.finally_do(self.network.remove)
        self.network.create()
        # charon looks for an address inside its side of the tunnel.
        for side, address in [("server", "10.5.2.1/32"), ("client", "10.5.1.1/32")]:
            self.network.run(side, "ip", "address", "add", address, "dev", "lo")

    def pki(self, kind):
        """A CA and two certificates, made for this run at the first call; of 4096 bits with an authority between."""
        folder = self.suite.folder / f"pki-{kind}"
        if folder.exists():
            return folder
        folder.mkdir()
        options = {
            "rsa": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
            "rsa4096": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:4096"],
            "ecdsa": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
            "ed25519": ["-algorithm", "ED25519"],
        }[kind]
        inside = {"cwd": folder}
        issuer = "issuing" if kind == "rsa4096" else "ca"
        for name in dict.fromkeys(["ca", issuer, "ours", "theirs"]):
            execute("openssl", "genpkey", *options, "-out", f"{name}.key", **inside)
        execute(
            *"openssl req -x509 -new -key ca.key -days 2 -out ca.pem -subj /CN=CA".split(),
            *"-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign".split(),
            **inside,
        )
        if issuer != "ca":
            (folder / "ext").write_text("basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n")
            execute("openssl", "req", "-new", "-key", f"{issuer}.key", "-subj", "/CN=Issuing", "-out", "csr", **inside)
            execute(
                *"openssl x509 -req -in csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext".split(),
                *["-out", f"{issuer}.pem"],
                **inside,
            )
        for name in ["ours", "theirs"]:
            host = f"{name}.example.org"
            (folder / "ext").write_text(f"subjectAltName=DNS:{host}\nextendedKeyUsage=serverAuth,clientAuth\n")
            execute("openssl", "req", "-new", "-key", f"{name}.key", "-subj", f"/CN={host}", "-out", "csr", **inside)
            execute(
                *f"openssl x509 -req -in csr -CA {issuer}.pem -CAkey {issuer}.key -CAcreateserial -days 2".split(),
                *["-extfile", "ext", "-out", f"{name}.pem"],
                **inside,
            )
        if issuer != "ca":
            with open(folder / "ours.pem", "a") as chain:
                chain.write((folder / f"{issuer}.pem").read_text())
        return folder

    def loss(self, percent):
        """Loses that share of what arrives, on both sides."""
        for side in ["client", "server"]:
            self.network.run(side, "nft", "flush", "ruleset")
            if percent:
                rules = "add table inet l; add chain inet l i { type filter hook input priority 0; };"
                rules += f" add rule inet l i meta l4proto udp numgen random mod 100 < {percent} drop"
                self.network.run(side, "nft", rules)


class Pair:
    """Both daemons; stopped at the end of a `with`."""

    def __init__(self, lab, ike=IKE, esp=ESP, pki=None, extra=(), charon=None, **options):
        self.charon = Charon(lab, ike, esp, pki, **(charon or {}))
        try:
            self.peer = Peer(lab, ike, esp, pki, extra=extra, **options)
        except BaseException:
            self.charon.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            print("\n".join([*self.peer.lines, self.charon.log()[-6000:]]))
        self.peer.stop()
        self.charon.stop()

    def up(self, by):
        if by == "ours":
            self.peer.tell("initiate")
        else:
            self.charon.control("--initiate", "--child", "net", "--timeout", "20")
        self.peer.expect("child-up")
        wait_for(lambda: "INSTALLED" in self.charon.sas(), "charon's child")
        contains(self.charon.sas(), "ESTABLISHED")

    def spis(self):
        """Inbound SPIs of charon's Child SAs that are installed."""
        return re.findall(r"in  ([0-9a-f]{8})", self.charon.sas())

    def check_spis(self):
        """The last Child SA that we reported is the one that charon has."""
        found = lambda: [line.split()[2] for line in self.peer.lines if line.startswith("child-up")][-1]
        wait_for(lambda: self.spis() == [found()], lambda: f"{found()} as only child in {self.charon.sas()}")

    def rekey_all(self):
        """Child and IKE SA, started by either side."""
        self.peer.tell("rekey-child")
        self.peer.expect("child-down", 1)
        self.check_spis()
        self.charon.control("--rekey", "--child", "net")
        self.peer.expect("child-down", 2)
        self.check_spis()
        self.peer.tell("rekey-ike")
        self.peer.expect("ike-rekeyed", 1)
        wait_for(lambda: self.charon.sas().count("ESTABLISHED") == 1, "one IKE SA at charon")
        self.charon.control("--rekey", "--ike", "peer")
        self.peer.expect("ike-rekeyed", 2)
        self.check_spis()
        # The new IKE SA carries requests of both sides.
        self.peer.tell("rekey-child")
        self.peer.expect("child-down", 3)
        self.check_spis()
        equal(self.peer.count("ike-down"), 0, "IKE SAs that went down")
