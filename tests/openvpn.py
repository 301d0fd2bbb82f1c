"""OpenVPN as it is, with profiles of ours: standard ciphers, IBC, rekeying, and what goes wrong; layers, carriers, tokens and
revocation are in `openvpn_sessions`."""

import contextlib
import hashlib
import os
import random
import subprocess
from pathlib import Path

from tests.harness import CORDON, ROOT, Site, contains, cordon_json, equal, free_port, wait_for
from tests.harness import run as execute
from tests import openvpn_sessions
from tests.namespaces import OUTSIDE, Network, OpenVpn

PROVIDER = Path(os.environ.get("CORDON_IBC_PROVIDER", ROOT / "target/debug/libibc_provider.so"))
INSIDE = "10.8.0.1"
PORT = 5001
RESEARCH = ["INDECT-128-CBC", "INDECT-192-CBC", "INDECT-320-CBC"]

# Sends a file to who connects, or fetches it and prints its SHA-256.
SEND = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as listener:
    print("ready", flush=True)
    with listener.accept()[0] as connection, open(sys.argv[3], "rb") as file:
        connection.sendfile(file)
"""
FETCH = """
import hashlib, socket, sys
digest = hashlib.sha256()
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 30) as connection:
    while part := connection.recv(65536):
        digest.update(part)
print(digest.hexdigest())
"""


class Lab:
    """A site, a network and module folders, for all cases."""

    def __init__(self, suite):
        assert PROVIDER.exists(), f"{PROVIDER} is missing; run cargo build -p ibc-provider"
        self.suite = suite
        self.public = free_port()
        self.site = Site(suite, settings=f'public = "127.0.0.1:{self.public}"\n').start()
        self.network = Network()
        suite.finally_do(self.network.remove)
        self.network.create()
        self.modules = suite.folder / "modules"
        self.installed = cordon_json("ibc", "provider", "--library", PROVIDER, "--module-dir", self.modules)
        self.count = 0
        self.daemons = []

    def profile(self, cipher=None, code=0, flag=True, server=OUTSIDE["server"], extra=("--without-guard",)):
        """Makes a folder of profiles and returns it with what the command said."""
        self.count += 1
        out = self.suite.folder / f"profiles-{self.count}"
        chosen = ["--cipher", cipher] if cipher else []
        if cipher in RESEARCH and flag:
            chosen.append("--allow-research-cipher")
        chosen.extend(extra)
        done = execute(CORDON, "vpn", "openvpn-profile", *self.site.arguments(), "--server", server, "--verifier", Path(CORDON).resolve(),
                   "--device", f"camera-{self.count}", "--out", out, *chosen, code=code)
        return out, done

    def daemon(self, side, out, extra=(), modules="ours"):
        config = out / "server.conf" if side == "server" else next(out.glob("*.ovpn"))
        modules = self.modules if modules == "ours" else modules
        log = self.suite.folder / f"{out.name}-{side}-{random.randrange(1 << 32):08x}.log"
        daemon = OpenVpn(self.network, side, config, log, modules, extra)
        self.suite.finally_do(daemon.end)
        self.daemons.append(daemon)
        return daemon

    @contextlib.contextmanager
    def case(self, title):
        with self.suite.case(title):
            try:
                yield
            finally:
                while self.daemons:
                    self.daemons.pop().end()

    def tunnel(self, out, extra=()):
        server = self.daemon("server", out, extra)
        server.up()
        client = self.daemon("client", out, extra)
        client.up()
        return server, client

    def ping(self, *options):
        return self.network.run("client", "ping", "-q", "-W", "5", *options, INSIDE)

    def transfer(self, size=3_000_000, source="server", sink="client", address=INSIDE):
        """A file from one side to the other, compared by its hash; the source listens at an address."""
        content = random.randbytes(size)
        file = self.suite.folder / "content"
        file.write_bytes(content)
        command = self.network.command(source, "python3", "-c", SEND, address, str(PORT), str(file))
        sender = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            equal(sender.stdout.readline(), "ready\n", "sender")
            fetched = self.network.run(sink, "python3", "-c", FETCH, address, PORT, timeout=60)
            equal(fetched.stdout.strip(), hashlib.sha256(content).hexdigest(), "hash of what came")
            equal(sender.wait(10), 0, "exit code of the sender")
        finally:
            sender.kill()
            sender.wait()
            sender.stdout.close()


def stop(*daemons):
    for daemon in daemons:
        equal(daemon.stop(), 0, "exit code of openvpn")


def use(lab, cipher, extra=()):
    """A tunnel with this cipher, used; returns both logs."""
    out, done = lab.profile(cipher)
    equal("research cipher" in done.stderr, cipher in RESEARCH, "a warning")
    server, client = lab.tunnel(out, extra)
    for size in (0, 1, 15, 16, 31, 32, 1200, 3000):
        lab.ping("-c", 2, "-i", "0.02", "-s", size)
    lab.transfer()
    stop(client, server)
    # A busy server may log its data channel after the first packets have gone through it.
    logs = server.text(), client.text()
    for log in logs:
        contains(log, f"cipher '{cipher or 'AES-256-GCM'}'")
        assert "Authenticate/Decrypt packet error" not in log, log[-2000:]
    return logs


def rekeys(lab, cipher):
    out, _ = lab.profile(cipher)
    server, client = lab.tunnel(out, ["--reneg-sec", "2", "2"])

    def keys():
        return client.text().count("TLS: soft reset") + server.text().count("TLS: soft reset")

    # Traffic all the time: a packet under the wrong key would be lost.
    done = lab.ping("-i", "0.05", "-c", "180")
    contains(done.stdout, " 0% packet loss")
    lab.transfer()
    assert keys() >= 2, f"{keys()} renegotiations\n{client.text()[-2000:]}"
    stop(client, server)


def ends_with(daemon, words, code=1):
    """Waits for a daemon that cannot go on, and for the reason in its log."""
    wait_for(lambda: not daemon.process.running(), lambda: f"an end\n{daemon.process.tail()}", 20)
    if code is not None:
        equal(daemon.process.child.returncode, code, "exit code of openvpn")
    contains(daemon.text(), words)


def documented(words):
    """The operators' guide must name what the log says."""
    contains((ROOT / "docs/openvpn.md").read_text(), words)


def run_refusals(lab):
    with lab.case("a research cipher asks for its flag"):
        _, done = lab.profile(RESEARCH[0], code=2, flag=False)
        contains(done.stderr, "--allow-research-cipher")
    with lab.case("profiles hold keys and are for their owner only"):
        out, _ = lab.profile()
        for file in [out / "server.conf", *out.glob("*.ovpn"), out / "tls-crypt-v2.key"]:
            equal(file.stat().st_mode & 0o777, 0o600, f"mode of {file.name}")
    with lab.case("a device can be added, and a revoked one is refused"):
        out, _ = lab.profile()
        args = ["vpn", "openvpn-profile", *lab.site.arguments(), "--out", out]
        execute(CORDON, *args, "--device", "camera-late")
        execute(CORDON, *args, "--device", "camera-late", code=1)
        first = next(p for p in out.glob("*.ovpn") if p.stem != "camera-late")
        device = first.stem
        first.rename(out / f"{device}.gone")
        server, client = lab.tunnel(out)
        stop(client)
        lab.site.ask("pki", "revoke", "--device", "camera-late")
        lab.site.ask("vpn", "openvpn-crl", "--out", out / "crl.pem")
        client = lab.daemon("client", out, ["--connect-retry-max", "1", "--hand-window", "5"])
        server.says("certificate revoked")
        client.end()
        stop(server)
    with lab.case("a person's certificate does not open the tunnel"):
        out, _ = lab.profile()
        profile = next(out.glob("*.ovpn"))
        person = lab.site.people()["officer-2"]
        text = profile.read_text()
        for tag, file in (("cert", person.cert), ("key", person.key)):
            start, end = text.index(f"<{tag}>"), text.index(f"</{tag}>")
            text = f"{text[:start]}<{tag}>\n{file.read_text()}{text[end:]}"
        profile.write_text(text)
        server = lab.daemon("server", out)
        server.up()
        client = lab.daemon("client", out, ["--connect-retry-max", "1", "--hand-window", "5"])
        server.says("VERIFY EKU ERROR")
        client.end()
        stop(server)
    with lab.case("a device that OpenSSL accepts and our validator does not is refused"):
        out, _ = lab.profile()
        server = lab.daemon("server", out)
        server.up()
        # OpenSSL has the root in server.conf; ours does not trust it any more.
        authorities = (out / "authorities.pem").read_text()
        (out / "authorities.pem").write_text(authorities[: authorities.rindex("-----BEGIN")])
        client = lab.daemon("client", out, ["--connect-retry-max", "1", "--hand-window", "5"])
        server.says("VERIFY SCRIPT ERROR")
        client.end()
        stop(server)


def run_mistakes(lab):
    """Wrong settings of the provider on one side."""
    out, _ = lab.profile(RESEARCH[0])
    profile = next(out.glob("*.ovpn"))
    good = profile.read_text()
    with lab.case("without OPENSSL_MODULES OpenVPN names the provider it cannot load"):
        words = "failed to load provider 'cordon_ibc_openvpn'"
        ends_with(lab.daemon("client", out, modules=None), words)
        documented(words)
    with lab.case("without the providers line OpenVPN names the cipher it does not know"):
        profile.write_text(good.replace("providers default cordon_ibc_openvpn", ""))
        words = "Unsupported cipher in --data-ciphers"
        ends_with(lab.daemon("client", out), words)
        documented(words)
    with lab.case("with the other module OpenVPN ends at the first packet"):
        profile.write_text(good.replace("providers default cordon_ibc_openvpn", "providers default cordon_ibc"))
        server = lab.daemon("server", out)
        server.up()
        client = lab.daemon("client", out)
        client.says("Initialization Sequence Completed")
        lab.network.run("client", "ping", "-c", "1", "-W", "1", INSIDE, code=None)
        words = "Assertion failed at crypto.c"
        ends_with(client, words, code=None)
        documented(words)
        stop(server)
    with lab.case("with different ciphers the server says that none is shared"):
        text = good.replace("data-ciphers INDECT-128-CBC", "data-ciphers INDECT-192-CBC")
        profile.write_text(text)
        server = lab.daemon("server", out)
        server.up()
        client = lab.daemon("client", out, ["--connect-retry-max", "1"])
        words = "no shared cipher"
        server.says(words)
        documented(words)
        client.end()
        stop(server)


def openssl_with_config(lab):
    """The lines that the command prints make any `openssl` know the cipher."""
    config = lab.suite.folder / "openssl.cnf"
    config.write_text(lab.installed["openssl_cnf"])
    environment = {**os.environ, "OPENSSL_CONF": str(config)}
    encrypt = ["openssl", "enc", "-INDECT-320-CBC", "-pbkdf2", "-a", "-pass", "pass:test"]
    secret = execute(*encrypt, input="text\n", env=environment).stdout
    equal(execute(*encrypt, "-d", input=secret, env=environment).stdout, "text\n", "what comes back")
    listed = execute("openssl", "list", "-providers", env=environment).stdout
    contains(listed, "research cipher, not secure")


def run(suite):
    lab = Lab(suite)
    with lab.case("openssl takes the printed configuration"):
        openssl_with_config(lab)
    for cipher in [None, *RESEARCH]:
        with lab.case(f"{cipher or 'the default cipher'} carries pings of all sizes and a file"):
            use(lab, cipher)
    for cipher in [None, RESEARCH[0]]:
        with lab.case(f"{cipher or 'the default cipher'} loses nothing while keys change"):
            rekeys(lab, cipher)
    run_refusals(lab)
    run_mistakes(lab)
    openvpn_sessions.run(lab)
    lab.site.stop()
