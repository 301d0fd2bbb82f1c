"""A site under a root of its own ceremony, and the foreign programs that rely on its certificates: nginx, Apache, curl, OpenSSL."""

import ctypes
import os
import re
import shutil
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.ceremony import KINDS, Root
from tests.harness import Process, Site, free_port, run, wait_for
from tests.namespaces import OUTSIDE, Network

CLONE_NEWNET = 0x40000000
APACHE_MODULES = "/usr/lib/apache2/modules"
# What is demanded inside of Cordon: seconds from the beginning of the revoking command.
WITHIN = 5.0


def enter(suite, namespace):
    """Moves this process into a network, and back at the end of the suite: whatever it starts is there as well."""
    libc = ctypes.CDLL(None, use_errno=True)
    home, there = os.open("/proc/self/ns/net", os.O_RDONLY), os.open(f"/run/netns/{namespace}", os.O_RDONLY)

    def move(into):
        if libc.setns(into, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")

    def leave():
        move(home)
        os.close(home)

    move(there)
    os.close(there)
    suite.finally_do(leave)


class World:
    """The site in the namespace `server`, which the namespace `client` reaches; its root is elsewhere."""

    def __init__(self, suite):
        self.suite = suite
        self.network = Network()
        suite.finally_do(self.network.remove)
        self.network.create()
        enter(suite, self.network.names["server"])
        self.port = free_port()
        self.url = f"http://{OUTSIDE['server']}:{self.port}"
        settings = f'public = "0.0.0.0:{self.port}"\n[site]\npublic_url = "{self.url}"\n'
        self.site = Site(suite, settings=settings)
        self.root = Root(suite.folder)
        self.root.first = self.root.first.replace('# crl_base_url = "http://pki.example.org/crl"', f'crl_base_url = "{self.url}/crl"')
        requests = suite.folder / "requests"
        self.site.ask("pki", "request-authorities", "--out", requests)
        for file in requests.iterdir():
            shutil.copy(file, self.root.home)
        self.root.hold(self.root.first)
        one = self.root.number(1)
        shown = run("openssl", "x509", "-in", one / "root.pem", "-noout", "-fingerprint", "-sha256").stdout
        digest = shown.split("=")[1].strip().replace(":", "")
        self.site.ask("pki", "install-authorities", one, "--root-sha256", digest)
        self.site.start()
        self.pki = self.site.data / "pki"
        self.authorities = suite.folder / "authorities.pem"
        files = [self.pki / "root.pem", *(self.pki / f"{kind}-ca.pem" for kind in KINDS)]
        self.authorities.write_text("".join(file.read_text() for file in files))
        self.ceremonies = 1
        # Of what is made here, for names.
        self.count = 0
        # What a case has to end.
        self.tunnels = []

    def revoke_authority(self, kind):
        """Holds a ceremony that revokes an authority, and installs its list at the running site; when that began."""
        name = f"{kind}-ca.pem"
        shutil.copy(self.pki / name, self.root.home)
        self.root.hold(self.root.later(f'do = "revoke-authority"\ncertificate = "{name}"\nreason = "ca-compromise"\n'))
        self.ceremonies += 1
        began = time.monotonic()
        self.site.ask("pki", "install-authorities", self.root.number(self.ceremonies))
        return began

    def revoke(self, *whom, reason="key-compromise"):
        """Revokes by command; when that began."""
        began = time.monotonic()
        self.site.ask("pki", "revoke", *whom, "--reason", reason)
        return began

    def list(self, path):
        """The list that the site publishes there, as DER."""
        with urllib.request.urlopen(f"{self.url}/crl/{path}", timeout=10) as answer:
            return answer.read()

    def lists(self, *names):
        """Published lists in one PEM file, as somebody outside fetches them."""
        self.count += 1
        out = self.suite.folder / f"lists-{self.count}.pem"
        text = ""
        for name in names or ("root", *KINDS):
            text += run("openssl", "crl", "-inform", "DER", input=self.list(f"{name}.crl"), text=False).stdout.decode()
        out.write_text(text)
        return out

    def ocsp(self, authority, certificate, *options, code=0):
        """What OpenSSL's client is told of a certificate."""
        issuer = self.pki / f"{authority}-ca.pem"
        command = ["openssl", "ocsp", "-url", f"{self.url}/ocsp", "-issuer", issuer, "-cert", certificate, "-CAfile", self.site.root]
        done = run(*command, "-verify_other", issuer, *options, code=code)
        return done.stdout + done.stderr

    def serial(self, holder):
        """Serial number of the newest valid certificate of a holder."""
        rows = [row for row in self.site.ask("pki", "list")["certificates"] if row["holder"] == holder]
        return next((row["serial"] for row in rows if row["revoked"] is None), None)


def lifetime(seconds_of, text):
    """Seconds between two dates of a text that OpenSSL printed, after the words `seconds_of`."""
    dates = [re.search(rf"{words}[=:]\s*(.+?)\s*$", text, re.MULTILINE)[1] for words in seconds_of]
    first, last = (time.mktime(time.strptime(date, "%b %d %H:%M:%S %Y GMT")) for date in dates)
    return last - first


class Web:
    """A foreign HTTPS server that demands client certificates of the site's authorities."""

    def __init__(self, world, name):
        self.world, self.port = world, free_port()
        self.folder = world.suite.folder / name
        self.folder.mkdir()
        self.cert, self.key = self.folder / "own.pem", self.folder / "own.key"
        run(
            *"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost".split(),
            *["-addext", "subjectAltName=DNS:localhost", "-keyout", self.key, "-out", self.cert],
        )
        # Where workers without root's rights may read.
        self.pages = Path(tempfile.mkdtemp(prefix="cordon-pages-"))
        self.pages.chmod(0o755)
        world.suite.finally_do(shutil.rmtree, self.pages, True)
        (self.pages / "index.html").write_text("let in\n")
        self.log = self.folder / "error.log"

    def run(self, *command):
        self.process = Process(command, self.folder / "output")
        # Asked, not killed: their workers would stay.
        self.world.suite.finally_do(self.process.stop)
        wait_for(self.listens, lambda: f"{command[0]}: {self.process.tail()}", 20)

    def listens(self):
        return run("curl", "-sk", "-o", os.devnull, f"https://localhost:{self.port}/", code=None).returncode != 7

    def lets_in(self, chain, key):
        """Whether somebody with this certificate gets the page, by a connection of their own."""
        command = ["curl", "-s", "--cacert", self.cert, "--cert", chain, "--key", key, f"https://localhost:{self.port}/index.html"]
        done = run(*command, code=None)
        return done.returncode == 0 and done.stdout == "let in\n"


class Nginx(Web):
    """With `ssl_crl`: it knows the lists in its file, since it was told to read them."""

    def __init__(self, world):
        super().__init__(world, "nginx")
        self.crl = self.folder / "lists.pem"
        self.fetch()
        config = self.folder / "nginx.conf"
        config.write_text(f"""
daemon off; master_process on; worker_processes 1; pid {self.folder}/pid; error_log {self.log} info;
events {{}}
http {{
  access_log off;
  {"".join(f"{kind}_temp_path {self.folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))}
  server {{
    listen 127.0.0.1:{self.port} ssl;
    root {self.pages};
    ssl_certificate {self.cert};
    ssl_certificate_key {self.key};
    ssl_session_tickets off;
    ssl_client_certificate {world.authorities};
    ssl_verify_client on;
    ssl_verify_depth 3;
    ssl_crl {self.crl};
  }}
}}
""")
        self.run("nginx", "-c", config, "-e", self.log)

    def fetch(self):
        """Takes the published lists over, as a job beside it does."""
        self.world.lists().replace(self.crl)

    def reload(self):
        workers = self.workers()
        self.process.child.send_signal(1)
        wait_for(lambda: self.workers() and not set(self.workers()) & set(workers), "another worker", 10)

    def workers(self):
        pid = self.process.child.pid
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            return children.read().split()


class Apache(Web):
    """With `SSLOCSPEnable`: it asks the responder that a client's certificate names, with a nonce."""

    def __init__(self, world):
        super().__init__(world, "apache")
        modules = ["mpm_event", "authn_core", "authz_core", "ssl"]
        config = self.folder / "apache.conf"
        config.write_text(f"""
ServerRoot {self.folder}
ServerName localhost
PidFile {self.folder}/pid
DefaultRuntimeDir {self.folder}
ErrorLog {self.log}
LogLevel ssl:info
{"".join(f"LoadModule {one}_module {APACHE_MODULES}/mod_{one}.so{chr(10)}" for one in modules)}
User nobody
Group nogroup
Listen 127.0.0.1:{self.port}
DocumentRoot {self.pages}
SSLSessionCache none
<VirtualHost *:{self.port}>
  SSLEngine on
  SSLCertificateFile {self.cert}
  SSLCertificateKeyFile {self.key}
  SSLSessionTickets off
  SSLCACertificateFile {world.authorities}
  SSLVerifyClient require
  SSLVerifyDepth 3
  SSLOCSPEnable leaf
</VirtualHost>
""")
        self.run("apache2", "-f", config, "-DFOREGROUND")


def took(what, condition, limit, began):
    """Waits until a condition holds; the seconds since `began`, of which it may take so many."""
    wait_for(condition, what, limit + 60, 0.02)
    seconds = time.monotonic() - began
    print(f"        {what}: {seconds:.2f} s", flush=True)
    assert seconds <= limit, f"{what} took {seconds:.2f} s, more than {limit}"
    return seconds
