"""OpenVPN, sshd, nginx, strongSwan and a token of GnuTLS as they are, over the provider cordon_accel and the simulated cores: the same
bytes at the other side, the device's counters, and a fault in the core in the middle."""

import base64
import collections
import contextlib
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.bench_openvpn import make_keys
from scripts.vpn_peers import StrongSwan
from tests.harness import ROOT, Process, contains, equal, run as execute, wait_for
from tests.namespaces import OUTSIDE, Network, OpenVpn

# Cores on a machine that does other work as well.
LIMIT = 1500
PROVIDER = Path(os.environ.get("CORDON_ACCEL_PROVIDER", ROOT / "target/debug/libaccel_provider.so"))
# The file that each program moves, and a shorter one for its other ciphers and for faults.
SIZE, SHORT = 10_000_000, 1_500_000
INSIDE = {"server": "10.208.0.1", "client": "10.208.0.2"}
# Least share of the bytes that must have gone through the core: handshakes, short packets and what is below `from` do not.
SHARE = 0.9
# Above what OpenSSL's own random generator encrypts at once.
FROM = 512
# Cycles of a block at least.
CYCLES = 12


class Lab:
    """A network, the cores, a file to move, and configurations of OpenSSL."""

    def __init__(self, suite):
        assert PROVIDER.exists(), f"{PROVIDER} is missing; run cargo build -p accel-provider"
        self.suite, self.folder, self.count = suite, suite.folder, 0
        # Users other than root look for the configuration and write counters.
        self.folder.chmod(0o755)
        cores = os.environ.get("CORDON_HW_CORES")
        self.cores = Path(cores) if cores else self.folder / "cores"
        if not cores:
            execute(sys.executable, ROOT / "scripts/hw", "cores", self.cores, "aes", "hmac", "mont", timeout=LIMIT)
        self.network = Network()
        suite.finally_do(self.network.remove)
        self.network.create()
        self.digests = {}
        for size in (SIZE, SHORT):
            content = random.randbytes(size)
            self.file(size).write_bytes(content)
            self.digests[size] = hashlib.sha256(content).hexdigest()

    def file(self, size):
        return self.folder / f"content-{size}"

    def provider(self, aes="aes", **settings):
        """A configuration with the provider; `Provider` reads its counters."""
        self.count += 1
        return Provider(self, self.folder / f"openssl-{self.count}", {"aes": self.cores / aes, **settings})

    def program(self, arguments):
        """The core for AES with arguments."""
        program = self.folder / f"aes-{arguments.replace(' ', '-')}"
        program.write_text(f"#!/bin/sh\nexec {self.cores}/aes {arguments}\n")
        program.chmod(0o755)
        return program

    def faulty(self, cycle):
        """A core in which a bit of a block's state is inverted at the first block after so many cycles."""
        return self.program(f"fault {cycle} 77")

    def spawn(self, side, *command, log, **options):
        process = Process(self.network.command(side, *command), self.folder / log, **options)
        self.suite.finally_do(process.kill)
        return process


class Provider:
    def __init__(self, lab, folder, settings):
        self.folder = folder
        folder.mkdir()
        folder.chmod(0o777)
        settings = {"engine": "verilated", "from": FROM, "algorithms": "gcm ctr cbc rsa", "rsa": lab.cores / "mont", **settings}
        lines = "\n".join(f"{name} = {value}" for name, value in settings.items())
        (folder / "openssl.cnf").write_text(f"""
openssl_conf = init
[init]
providers = providers
alg_section = algorithms
[algorithms]
default_properties = ?provider=cordon_accel
[providers]
default = plain
cordon_accel = accel
[plain]
activate = 1
[accel]
module = {PROVIDER}
statistics = {folder}
{lines}
activate = 1
""")
        self.environment = {**os.environ, "OPENSSL_CONF": str(folder / "openssl.cnf")}

    def counters(self):
        """Bytes by operation, requests and cycles of the device, of all processes together; reasons of quarantine."""
        sums, reasons = collections.Counter(), []
        for path in self.folder.glob("cordon_accel.*"):
            for line in filter(None, path.read_text().splitlines()):
                name, _, rest = line.partition(": ")
                numbers = [int(number) for number in re.findall(r"\d+", rest)]
                if name == "quarantine":
                    reasons.append(rest)
                elif name == "device":
                    sums["requests"] += numbers[0]
                    sums["cycles"] += numbers[2]
                else:
                    sums[name] += numbers[1]
        return sums, reasons

    def moved(self, operation, size):
        """The core did the bytes of an operation: by their count, and by cycles that only a core counts."""
        least = SHARE * size
        sums, reasons = self.counters()
        equal(reasons, [], "quarantine")
        assert sums[operation] >= least, f"{operation}: {sums}"
        assert sums["cycles"] >= least / 16 * CYCLES, sums
        print(f"        {operation}: {sums[operation]} bytes, {sums['requests']} requests, {sums['cycles']} cycles", flush=True)

    def fell_back(self, operation, least=FROM):
        """The core began, was wrong once, and software went on."""
        sums, reasons = self.counters()
        assert sums[operation] >= least, sums
        assert len(reasons) == 1, reasons
        contains(reasons[0], "another result than software's")
        print(f"        {sums[operation]} bytes, then: {reasons[0]}", flush=True)


def same(lab, size, content):
    equal(hashlib.sha256(content).hexdigest(), lab.digests[size], "hash of what came")


# nginx


def nginx(lab, provider, protocol, size):
    home = provider.folder / "nginx"
    home.mkdir()
    execute("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=server", "-addext",
            f"subjectAltName=IP:{OUTSIDE['server']}", "-keyout", home / "key", "-out", home / "certificate")
    (home / "conf").write_text(f"""
daemon off; pid {home}/pid; error_log {home}/log info; worker_processes 1; user root;
events {{}}
http {{
  access_log off; sendfile on; client_body_temp_path {home}; proxy_temp_path {home}; fastcgi_temp_path {home};
  uwsgi_temp_path {home}; scgi_temp_path {home};
  server {{
    listen {OUTSIDE['server']}:443 ssl; root {lab.folder};
    ssl_certificate {home}/certificate; ssl_certificate_key {home}/key;
    ssl_protocols {protocol}; ssl_ciphers ECDHE-RSA-AES128-GCM-SHA256;
  }}
}}
""")
    server = lab.spawn("server", "nginx", "-c", home / "conf", log=f"{provider.folder.name}/nginx-output",
                       env=provider.environment)
    try:
        wait_for(lambda: (home / "pid").exists(), lambda: f"nginx:\n{server.tail()}")
        lab.network.run("client", "curl", "-sS", "--fail", "--cacert", home / "certificate", "--max-time", "240",
                        f"https://{OUTSIDE['server']}/{lab.file(size).name}", "-o", home / "fetched", timeout=300)
        same(lab, size, (home / "fetched").read_bytes())
    finally:
        server.stop()


def web(lab):
    for protocol, size in (("TLSv1.3", SIZE), ("TLSv1.2", SHORT)):
        with lab.suite.case(f"nginx, {protocol}: {size} bytes and the handshake's RSA through the simulated cores"):
            provider = lab.provider()
            nginx(lab, provider, protocol, size)
            provider.moved("AES-GCM seal", size)
            equal(provider.counters()[0]["RSA private"], 256, "bytes signed by the core")
    with lab.suite.case("nginx: a fault in the core leaves the connection to software"):
        provider = lab.provider(aes=lab.faulty(1_000_000))
        nginx(lab, provider, "TLSv1.3", SHORT)
        provider.fell_back("AES-GCM seal")
    with lab.suite.case("nginx: a core whose process ends in the middle leaves the connection to software"):
        provider = lab.provider(aes=lab.program("end 1000000"))
        nginx(lab, provider, "TLSv1.3", SHORT)
        equal(len(provider.counters()[1]), 1, "reasons of quarantine")
        assert provider.counters()[0]["AES-GCM seal"] > 0


# sshd


class Ssh:
    """An sshd in the namespace `server`, with its own places for what it keeps in /run."""

    def __init__(self, lab, provider, cipher):
        self.lab, self.home = lab, provider.folder / "ssh"
        self.home.mkdir()
        for name in ("host", "user"):
            execute("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.home / name)
        shutil.copy(self.home / "user.pub", self.home / "authorized")
        (self.home / "config").write_text(f"""
Port 2222
ListenAddress {OUTSIDE['server']}
HostKey {self.home}/host
AuthorizedKeysFile {self.home}/authorized
StrictModes no
UsePAM no
PidFile none
PermitRootLogin yes
Ciphers {cipher}
LogLevel DEBUG
""")
        self.server = lab.spawn(
            "server", "unshare", "-m", "sh", "-c",
            f"mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec $(command -v sshd || echo /usr/sbin/sshd) -D -e -f {self.home}/config",
            log=f"{provider.folder.name}/sshd-log", env=provider.environment)
        wait_for(lambda: "Server listening" in self.server.tail(), lambda: f"sshd:\n{self.server.tail()}")

    def fetch(self, cipher, mac, size):
        options = [f"-oCiphers={cipher}", f"-oMACs={mac}", "-oStrictHostKeyChecking=no", f"-oUserKnownHostsFile={self.home}/known",
                   "-oBatchMode=yes", f"-i{self.home}/user", "-p2222"]
        command = self.lab.network.command("client", "ssh", *options, f"root@{OUTSIDE['server']}", f"cat {self.lab.file(size)}")
        done = subprocess.run(command, capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr.decode() + self.server.tail()
        return done.stdout

    def stop(self):
        self.server.kill()


def shell(lab):
    for cipher, mac, operation, size in (("aes128-ctr", "hmac-sha2-256-etm@openssh.com", "AES-CTR", SIZE),
                                         ("aes256-gcm@openssh.com", "hmac-sha2-256", "AES-GCM seal", SHORT),
                                         ("aes256-cbc", "hmac-sha2-512", "AES-CBC encrypt", SHORT)):
        with lab.suite.case(f"sshd, {cipher}: {size} bytes through the simulated core"):
            provider = lab.provider()
            ssh = Ssh(lab, provider, cipher)
            try:
                same(lab, size, ssh.fetch(cipher, mac, size))
            finally:
                ssh.stop()
            provider.moved(operation, size)
    with lab.suite.case("sshd, aes128-ctr: a fault in the core leaves the connection to software"):
        provider = lab.provider(aes=lab.faulty(500_000))
        ssh = Ssh(lab, provider, "aes128-ctr")
        try:
            same(lab, SHORT, ssh.fetch("aes128-ctr", "hmac-sha2-256-etm@openssh.com", SHORT))
        finally:
            ssh.stop()
        provider.fell_back("AES-CTR")


# OpenVPN and strongSwan: a file through a tunnel


SEND = """
import socket, sys
with socket.create_server((sys.argv[1], 5001)) as listener:
    print("ready", flush=True)
    with listener.accept()[0] as connection, open(sys.argv[2], "rb") as file:
        connection.sendfile(file)
"""
FETCH = """
import hashlib, socket, sys
digest = hashlib.sha256()
with socket.create_connection((sys.argv[1], 5001), 200) as connection:
    while part := connection.recv(65536):
        digest.update(part)
print(digest.hexdigest())
"""


def through(lab, address, size):
    """The file from the server's side of a tunnel to the client."""
    command = lab.network.command("server", "python3", "-c", SEND, address, str(lab.file(size)))
    sender = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        equal(sender.stdout.readline(), "ready\n", "sender")
        fetched = lab.network.run("client", "python3", "-c", FETCH, address, timeout=400)
        equal(fetched.stdout.strip(), lab.digests[size], "hash of what came")
    finally:
        sender.kill()
        sender.wait()
        sender.stdout.close()


@contextlib.contextmanager
def openvpn(lab, provider, cipher):
    fingerprint = make_keys(provider.folder)
    common = ["dev tun", "proto udp", "port 1194", "topology subnet", "verb 3", "mssfix 1300", "cert cert.pem", "key key.pem",
              "tls-version-min 1.3", "disable-dco", f"peer-fingerprint {fingerprint}", f"data-ciphers {cipher}", "auth SHA256"]
    sides = {"server": ["tls-server", "dh none", f"ifconfig {INSIDE['server']} 255.255.255.0"],
             "client": ["tls-client", "nobind", f"remote {OUTSIDE['server']}", f"ifconfig {INSIDE['client']} 255.255.255.0"]}
    daemons = []
    try:
        for side, lines in sides.items():
            config = provider.folder / f"{side}.conf"
            config.write_text("\n".join(common + lines) + "\n")
            environment = {"OPENSSL_CONF": provider.environment["OPENSSL_CONF"]} if side == "server" else {}
            daemons.append(OpenVpn(lab.network, side, config, provider.folder / f"{side}.log", environment=environment))
        for daemon in daemons:
            daemon.up(60)
        yield
    finally:
        for daemon in daemons:
            daemon.end()


def tunnel(lab):
    for cipher, operation, size in (("AES-256-GCM", "AES-GCM seal", SIZE), ("AES-128-CBC", "AES-CBC encrypt", SHORT)):
        with lab.suite.case(f"OpenVPN, {cipher}: {size} bytes through the simulated core"):
            provider = lab.provider()
            with openvpn(lab, provider, cipher):
                through(lab, INSIDE["server"], size)
            provider.moved(operation, size)
    with lab.suite.case(f"OpenVPN, AES-128-CBC with HMAC-SHA-256: {SHORT} bytes through two simulated cores"):
        provider = lab.provider(hmac=lab.cores / "hmac", algorithms="cbc hmac")
        with openvpn(lab, provider, "AES-128-CBC"):
            through(lab, INSIDE["server"], SHORT)
        provider.moved("AES-CBC encrypt", SHORT)
        provider.moved("HMAC-SHA256", SHORT)
    with lab.suite.case("OpenVPN, AES-128-CBC: a fault in the core leaves the tunnel to software"):
        provider = lab.provider(aes=lab.faulty(500_000))
        with openvpn(lab, provider, "AES-128-CBC"):
            through(lab, INSIDE["server"], SHORT)
        provider.fell_back("AES-CBC encrypt")


class Swan(StrongSwan):
    """strongSwan whose only ciphers are those of its plugin openssl, on one side over the provider."""

    PLUGINS = "random nonce sha1 sha2 hmac kdf curve25519 openssl kernel-libipsec kernel-netlink socket-default vici"

    def __init__(self, lab, provider, proposal):
        super().__init__(lab.network, provider.folder, proposal)
        self.provider = provider

    def spawn(self, side, *command, **options):
        if side == "server":
            options["env"] = {**options["env"], "OPENSSL_CONF": self.provider.environment["OPENSSL_CONF"]}
        return super().spawn(side, *command, **options)


def ipsec(lab):
    for proposal, operation, size in (("aes256gcm16", "AES-GCM seal", SIZE), ("aes128-sha256", "AES-CBC encrypt", SHORT)):
        with lab.suite.case(f"strongSwan, {proposal}: {size} bytes through the simulated core"):
            provider = lab.provider()
            with Swan(lab, provider, proposal) as swan:
                through(lab, swan.address["server"], size)
            provider.moved(operation, size)
    with lab.suite.case("strongSwan, aes256gcm16: a fault in the core leaves the tunnel to software"):
        provider = lab.provider(aes=lab.faulty(1_000_000))
        with Swan(lab, provider, "aes256gcm16") as swan:
            through(lab, swan.address["server"], SHORT)
        provider.fell_back("AES-GCM seal")


# GnuTLS, whose server has its key in a PKCS#11 token


TOKEN_LIBRARY = "/usr/lib/softhsm/libsofthsm2.so"
ECHOED = """
import hashlib, socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[2])
digest = hashlib.sha256()
with context.wrap_socket(socket.create_connection((sys.argv[1], 5556), 60), server_hostname=sys.argv[1]) as connection, \
        open(sys.argv[3], "rb") as file:
    # As much as the server takes before it answers: whole lines, since it looks for commands in them.
    while piece := file.read(15400):
        connection.sendall(piece)
        while piece:
            part = connection.recv(65536)
            assert piece.startswith(part) and part, "another answer"
            digest.update(part)
            piece = piece[len(part):]
print(digest.hexdigest())
"""


def token(lab):
    with lab.suite.case(f"GnuTLS with its key in a PKCS#11 token: {SIZE} bytes there and back, the key decrypted by the simulated core"):
        provider = lab.provider(**{"from": 16})
        home = provider.folder / "gnutls"
        (home / "tokens").mkdir(parents=True)
        (home / "softhsm.conf").write_text(f"directories.tokendir = {home}/tokens\nobjectstore.backend = file\nlog.level = ERROR\n")
        lines = base64.encodebytes(random.randbytes(SIZE))[:SIZE]
        (home / "lines").write_bytes(lines)
        address = OUTSIDE["server"]
        execute("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=server", "-addext",
                f"subjectAltName=IP:{address}", "-keyout", home / "key", "-out", home / "certificate")
        plain = {**os.environ, "SOFTHSM2_CONF": str(home / "softhsm.conf")}
        pin = ("--pin", "1234")
        execute("softhsm2-util", "--init-token", "--free", "--label", "accel", *pin, "--so-pin", "5678", env=plain)
        execute("softhsm2-util", "--import", home / "key", "--token", "accel", "--label", "key", "--id", "01", *pin, env=plain)
        # Nobody has it but the token.
        (home / "key").unlink()
        server = lab.spawn("server", "gnutls-serv", "--echo", "--quiet", "--port", "5556", "--x509certfile", home / "certificate",
                           "--x509keyfile", "pkcs11:token=accel;object=key;type=private?pin-value=1234", "--provider", TOKEN_LIBRARY,
                           log=f"{provider.folder.name}/gnutls-output", env={**plain, "OPENSSL_CONF": provider.environment["OPENSSL_CONF"]})
        try:
            wait_for(lambda: "listening on IPv4" in server.tail(), lambda: f"gnutls-serv:\n{server.tail()}")
            fetched = lab.network.run("client", "python3", "-c", ECHOED, address, home / "certificate", home / "lines", timeout=400)
            equal(fetched.stdout.strip(), hashlib.sha256(lines).hexdigest(), "hash of what came back")
        finally:
            server.kill()
        sums, reasons = provider.counters()
        equal(reasons, [], "quarantine")
        # The private numbers lie encrypted in the token's files. Its RSA is done past the providers.
        assert sums["AES-CBC decrypt"] >= 5 * 128 and sums["RSA private"] == 0, sums
        print(f"        AES-CBC decrypt: {sums['AES-CBC decrypt']} bytes", flush=True)


def run(suite):
    missing = [name for name in ("verilator", "nginx", "openvpn", "curl", "ssh", "gnutls-serv", "softhsm2-util") if not shutil.which(name)]
    missing += [path for path in ("/usr/sbin/sshd", StrongSwan.CHARON, TOKEN_LIBRARY) if not Path(path).exists()]
    if missing:
        raise AssertionError(f"not installed: {', '.join(missing)}; scripts/hw tools installs verilator")
    lab = Lab(suite)
    web(lab)
    shell(lab)
    tunnel(lab)
    ipsec(lab)
    token(lab)
