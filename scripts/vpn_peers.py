"""Tunnels to compare, ours and others', each with its two ends in two namespaces.

A tunnel is a context manager; inside of it `address` says where the two sides are reached, `pids`
which processes carry the packets.
"""

import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
from pathlib import Path

from scripts.bench_openvpn import make_keys
from tests.harness import CORDON, Process, run, wait_for
from tests.namespaces import OUTSIDE, OpenVpn

ROOT = Path(__file__).resolve().parent.parent
OTHER = {"server": "client", "client": "server"}
INSIDE = {"server": "10.208.0.1", "client": "10.208.0.2"}


class Plain:
    """No tunnel: the cable itself."""

    name = "plain"

    def __init__(self, network, folder):
        self.network, self.folder = network, folder
        self.address = OUTSIDE
        self.processes = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            with contextlib.suppress(AssertionError):
                process.stop(10)
        self.processes = []

    def start(self):
        pass

    def pids(self):
        return {process.child.pid for process in self.processes}

    def spawn(self, side, *command, **options):
        log = self.folder / f"{self.name}-{side}.log"
        process = Process(self.network.command(side, *command), log, **options)
        self.processes.append(process)
        return process

    def answers(self, seconds=20):
        """Waits until a ping comes back."""
        ping = self.network.command("client", "ping", "-c", "1", "-W", "1", self.address["server"])
        wait_for(lambda: subprocess.run(ping, capture_output=True).returncode == 0, f"{self.name} to answer", seconds)


class Cordon(Plain):
    """`cordon vpn static`."""

    def __init__(self, network, folder, name, encryption, integrity=None, sizes=(36, 0), mode="tunnel", protocol="esp",
                 encapsulation="udp"):
        super().__init__(network, folder)
        self.name, self.encryption, self.integrity, self.sizes = name, encryption, integrity, sizes
        self.mode, self.protocol, self.encapsulation = mode, protocol, encapsulation
        # In transport mode the hosts' own addresses are the ones that are protected.
        self.address = INSIDE if mode == "tunnel" else OUTSIDE

    def start(self):
        keys = {side: [secrets.token_hex(size) for size in self.sizes] for side in OTHER}
        for side, other in OTHER.items():
            config = self.folder / f"{self.name}-{side}.toml"
            config.touch(mode=0o600)
            config.write_text(self.text(side, other, keys))
            self.spawn(side, CORDON, "vpn", "static", "--config", config)
        self.answers()

    def text(self, side, other, keys):
        spis = {"server": 0x1001, "client": 0x1002}

        def entry(end):
            cipher, mac = keys[end]
            parts = [f"spi = {spis[end]}"]
            parts += [f'encryption_key = "{cipher}"'] if cipher else []
            parts += [f'integrity_key = "{mac}"'] if mac else []
            return "{ " + ", ".join(parts) + " }"

        lines = [f'protocol = "{self.protocol}"', f'mode = "{self.mode}"']
        lines += [f'encryption = "{self.encryption}"'] if self.encryption else []
        lines += [f'integrity = "{self.integrity}"'] if self.integrity else []
        addresses = f'addresses = ["{INSIDE[side]}/24"]' if self.mode == "tunnel" else ""
        # Other programs' tunnels take its place in the same namespaces.
        return f"""
[firewall]
enforce = "off"
[interface]
name = "tunnel0"
{addresses}
[path]
local = "{OUTSIDE[side]}"
remote = "{OUTSIDE[other]}"
encapsulation = "{self.encapsulation}"
[sa]
sequence_numbers = "{self.folder}/numbers-{side}"
{chr(10).join(lines)}
outbound = {entry(side)}
inbound = {entry(other)}
"""


class WireGuard(Plain):
    """A WireGuard in user space that is configured through its control socket."""

    def __init__(self, network, folder, name, program, *words):
        super().__init__(network, folder)
        self.name, self.program, self.words = name, program, words
        self.address = INSIDE

    def start(self):
        private = {side: run("wg", "genkey").stdout.strip() for side in OTHER}
        public = {side: run("wg", "pubkey", input=key).stdout.strip() for side, key in private.items()}
        for side in OTHER:
            # Each end's control socket has one well-known place; the namespaces do not part files.
            self.spawn(side, "unshare", "-m", "sh", "-c",
                       f"mount -t tmpfs none /run && exec {self.program} {' '.join(self.words)} wg-{side}")
        for side, other in OTHER.items():
            config = self.folder / f"wg-{side}.conf"
            config.touch(mode=0o600)
            config.write_text(
                f"[Interface]\nPrivateKey = {private[side]}\nListenPort = 51820\n[Peer]\nPublicKey = {public[other]}\n"
                f"AllowedIPs = {INSIDE[other]}/32\nEndpoint = {OUTSIDE[other]}:51820\n")
            process = self.processes[list(OTHER).index(side)]
            inside = ["nsenter", "-t", process.child.pid, "-m", "-n"]
            wait_for(lambda: run(*inside, "wg", "setconf", f"wg-{side}", config, code=None).returncode == 0,
                     f"the interface of {self.name}")
            run(*inside, "ip", "address", "add", f"{INSIDE[side]}/24", "dev", f"wg-{side}")
            run(*inside, "ip", "link", "set", f"wg-{side}", "mtu", "1420", "up")
        self.answers()


class Fastd(Plain):
    """fastd with AES-128-CTR and UMAC, its fastest method where the processor has instructions for AES."""

    name = "fastd"

    def __init__(self, network, folder):
        super().__init__(network, folder)
        self.address = INSIDE

    def start(self):
        keys = {}
        for side in OTHER:
            shown = run("fastd", "--generate-key", "--machine-readable").stdout.strip()
            public = run("fastd", "--config", "-", "--show-key", "--machine-readable", input=f'secret "{shown}";\n').stdout
            keys[side] = (shown, public.strip())
        for side, other in OTHER.items():
            config = self.folder / f"fastd-{side}.conf"
            config.touch(mode=0o600)
            config.write_text(f"""
mode tun; interface "fastd0"; mtu 1420; method "aes128-ctr+umac"; log level warn;
bind {OUTSIDE[side]}:10000; secret "{keys[side][0]}";
peer "{other}" {{ key "{keys[other][1]}"; remote {OUTSIDE[other]}:10000; }}
on up "ip address add {INSIDE[side]}/24 dev $INTERFACE && ip link set $INTERFACE mtu 1420 up";
""")
            self.spawn(side, "fastd", "--config", config)
        # One whose first message came before the other side was there tries again after up to twenty seconds.
        self.answers(50)


class OpenVpnPeer(Plain):
    """OpenVPN with its defaults and one data cipher."""

    def __init__(self, network, folder, cipher="AES-256-GCM"):
        super().__init__(network, folder)
        self.name, self.cipher, self.address = "openvpn", cipher, INSIDE

    def start(self):
        fingerprint = make_keys(self.folder)
        common = ["dev tun", "proto udp", "port 1194", "topology subnet", "verb 3", "disable-dco", "cert cert.pem",
                  "key key.pem", f"peer-fingerprint {fingerprint}", f"data-ciphers {self.cipher}"]
        sides = {
            "server": ["tls-server", "dh none", f"ifconfig {INSIDE['server']} 255.255.255.0"],
            "client": ["tls-client", "nobind", f"remote {OUTSIDE['server']}",
                       f"ifconfig {INSIDE['client']} 255.255.255.0"],
        }
        daemons = []
        for side, lines in sides.items():
            config = self.folder / f"openvpn-{side}.conf"
            config.write_text("\n".join(common + lines) + "\n")
            daemons.append(OpenVpn(self.network, side, config, self.folder / f"openvpn-{side}.log"))
            self.processes.append(daemons[-1].process)
        for daemon in daemons:
            daemon.up(20)
        self.answers()


class StrongSwan(Plain):
    """strongSwan with ESP in user space (kernel-libipsec): kernels without ESP have no other."""

    CHARON = "/usr/lib/ipsec/charon"
    PLUGINS = ("random drbg nonce aesni aes sha1 sha2 hmac kdf gcm ctr curve25519 openssl kernel-libipsec "
               "kernel-netlink socket-default vici")

    def __init__(self, network, folder, proposal="aes256gcm16"):
        super().__init__(network, folder)
        self.name, self.proposal = "strongswan", proposal
        self.address = {"server": "10.209.1.1", "client": "10.209.2.1"}

    def start(self):
        secret = secrets.token_hex(32)
        for side in OTHER:
            self.network.run(side, "ip", "address", "replace", f"{self.address[side]}/32", "dev", "lo")
        for side, other in OTHER.items():
            home = self.folder / f"swan-{side}"
            shutil.rmtree(home, ignore_errors=True)
            (home / "swanctl").mkdir(parents=True)
            (home / "strongswan.conf").write_text(
                f"charon {{\n load = {self.PLUGINS}\n install_virtual_ip = no\n plugins {{ vici {{ socket = unix://{home}/vici }} }}\n}}\n")
            config = home / "swanctl/swanctl.conf"
            config.touch(mode=0o600)
            config.write_text(self.text(side, other, secret))
            self.spawn(side, "unshare", "-m", "sh", "-c", f"mount -t tmpfs none /run && exec {self.CHARON}",
                       env={**os.environ, "STRONGSWAN_CONF": str(home / "strongswan.conf")})
        for side in OTHER:
            wait_for(lambda: reachable(self.folder / f"swan-{side}/vici"), "charon's control socket")
            self.control(side, "--load-all", "--noprompt")
        self.control("client", "--initiate", "--child", "net")
        self.answers()

    def control(self, side, *words):
        home = self.folder / f"swan-{side}"
        run("swanctl", *words, "--uri", f"unix://{home}/vici", env={**os.environ, "SWANCTL_DIR": str(home / "swanctl")})

    def text(self, side, other, secret):
        return f"""
connections {{
  pair {{
    version = 2
    local_addrs = {OUTSIDE[side]}
    remote_addrs = {OUTSIDE[other]}
    proposals = aes256gcm16-prfsha256-x25519
    local {{ auth = psk
      id = {side} }}
    remote {{ auth = psk
      id = {other} }}
    children {{ net {{
      local_ts = {self.address[side]}/32
      remote_ts = {self.address[other]}/32
      esp_proposals = {self.proposal}
    }} }}
  }}
}}
secrets {{ ike-pair {{ secret = "{secret}" }} }}
"""

    def __exit__(self, *words):
        super().__exit__(*words)
        for side in OTHER:
            self.network.run(side, "ip", "address", "delete", f"{self.address[side]}/32", "dev", "lo", code=None)


def reachable(path):
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def built(path):
    """A peer that was built here, else the distribution's."""
    program = ROOT / "target/peers" / path
    return str(program) if program.exists() else {"wireguard": "wireguard-go"}.get(path, program.name)


# name -> how to make it
PEERS = {
    "plain": Plain,
    "cordon-aes256gcm": lambda *at: Cordon(*at, "cordon-aes256gcm", "aes-256-gcm"),
    "cordon-aes128gcm": lambda *at: Cordon(*at, "cordon-aes128gcm", "aes-128-gcm", sizes=(20, 0)),
    "cordon-chacha20": lambda *at: Cordon(*at, "cordon-chacha20", "chacha20-poly1305"),
    "cordon-aes128cbc-sha256": lambda *at: Cordon(
        *at, "cordon-aes128cbc-sha256", "aes-128-cbc", "hmac-sha2-256-128", (16, 32)),
    "cordon-null": lambda *at: Cordon(*at, "cordon-null", "null", None, (0, 0)),
    "wireguard-go": lambda *at: WireGuard(*at, "wireguard-go", built("wireguard"), "-f"),
    "gotatun": lambda *at: WireGuard(*at, "gotatun", built("bin/gotatun"), "-f", "--disable-drop-privileges"),
    "boringtun": lambda *at: WireGuard(*at, "boringtun", built("bin/boringtun-cli"), "-f", "--disable-drop-privileges"),
    "fastd": Fastd,
    "openvpn": OpenVpnPeer,
    "strongswan": StrongSwan,
}


def version_of(text):
    """The first word of `text` that begins like a version."""
    return re.search(r"v?(\d+\.?[\w.-]*)", text).group(1)


def versions():
    """What was compared."""
    go = built("wireguard")
    if go.startswith("/"):
        shown = run("go", "version", "-m", go).stdout
        wireguard = next(line.split()[2] for line in shown.splitlines() if line.split()[:1] == ["mod"])
    else:
        wireguard = run("dpkg-query", "-W", "-f", "${Version}", "wireguard-go").stdout
    return {
        "cordon": run(CORDON, "--version").stdout.split()[-1],
        "wireguard-go": wireguard,
        "gotatun": version_of(run(built("bin/gotatun"), "--version").stdout),
        "boringtun": version_of(run(built("bin/boringtun-cli"), "--version").stdout),
        "fastd": version_of(run("fastd", "--version").stdout),
        "openvpn": run("openvpn", "--version", code=None).stdout.split()[1],
        "strongswan": run("dpkg-query", "-W", "-f", "${Version}", "strongswan-charon").stdout,
    }
