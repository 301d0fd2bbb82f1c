"""Web servers that people would use instead, each with mutual TLS 1.3 on loopback.

A peer is a context manager; inside of it `port` is where it answers, `pids` which processes serve, and `root` the
certificate that its clients trust. All demand the certificates of the site's people where the site does.
"""

import os
import signal
import subprocess
from pathlib import Path

from tests.harness import free_port, run, wait_for

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv/bin/python"
# Processes that serve pages: one for each of two processors.
WORKERS = 2


def children(pid):
    """The processes that `pid` has started, and theirs."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found] + [deep for child in found for deep in children(int(child))]


def certify(folder):
    """A key and a certificate for localhost, P-256, by an authority of its own."""
    authority = ["-keyout", folder / "root.key", "-out", folder / "root.pem", "-subj", "/CN=bench root"]
    request = ["-keyout", folder / "server.key", "-out", folder / "server.csr", "-subj", "/CN=localhost"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    run("openssl", "req", "-x509", *curve, *authority, "-days", "2", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    run("openssl", "req", "-new", *curve, *request)
    (folder / "names").write_text("subjectAltName=DNS:localhost\nextendedKeyUsage=serverAuth\n")
    run("openssl", "x509", "-req", "-in", folder / "server.csr", "-CA", folder / "root.pem", "-CAkey", folder / "root.key",
        "-CAcreateserial", "-days", "2", "-extfile", folder / "names", "-out", folder / "server.pem")


class Peer:
    """A server whose processes are those of one child and its children."""

    def __init__(self, folder, people, clients=True):
        self.folder, self.people, self.clients = Path(folder), people, clients
        self.folder.mkdir()
        self.root = self.folder / "root.pem"
        self.port = free_port()
        self.processes = []

    def __enter__(self):
        certify(self.folder)
        static = self.folder / "static"
        static.mkdir()
        (static / "style.css").write_bytes((ROOT / "crates/portal/assets/style.css").read_bytes())
        try:
            self.start()
            wait_for(lambda: subprocess.run(["ss", "-Hltn", f"sport = :{self.port}"], capture_output=True).stdout, "a peer", 20)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
            process.wait(30)

    @property
    def pids(self):
        return [pid for process in self.processes for pid in [process.pid, *children(process.pid)]]

    def spawn(self, *command, **options):
        log = open(self.folder / "log", "a")
        process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, **options)
        self.processes.append(process)
        return process

    def nginx(self, location):
        demand = f"ssl_client_certificate {self.people}; ssl_verify_client on; ssl_verify_depth 3;" if self.clients else ""
        paths = " ".join(f"{kind}_temp_path {self.folder}/{kind};" for kind in ("proxy", "fastcgi", "uwsgi", "scgi"))
        (self.folder / "nginx.conf").write_text(f"""
daemon off; pid {self.folder}/pid; error_log {self.folder}/error.log; worker_processes {WORKERS}; user root;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {self.folder}/body; {paths} types {{ text/css css; }} keepalive_requests 1000000;
  server {{
    listen 127.0.0.1:{self.port} ssl; ssl_protocols TLSv1.3;
    ssl_certificate {self.folder}/server.pem; ssl_certificate_key {self.folder}/server.key; {demand}
    ssl_session_cache shared:all:10m;
    {location}
  }}
}}
""")
        self.spawn("nginx", "-c", self.folder / "nginx.conf")


class Nginx(Peer):
    """Serves one file."""

    name = "nginx"

    def start(self):
        self.nginx(f"location /assets/ {{ alias {self.folder}/static/; }}")


class Apache(Peer):
    """Serves one file, by the event module."""

    name = "Apache"

    def start(self):
        modules = "/usr/lib/apache2/modules"
        loaded = "\n".join(f"LoadModule {name}_module {modules}/mod_{name}.so"
                           for name in ("mpm_event", "authz_core", "ssl", "socache_shmcb", "alias", "mime"))
        demand = f"SSLCACertificateFile {self.people}\nSSLVerifyClient require\nSSLVerifyDepth 3" if self.clients else ""
        (self.folder / "types").write_text("text/css css\n")
        (self.folder / "apache.conf").write_text(f"""
{loaded}
ServerName localhost
ServerRoot {self.folder}
PidFile {self.folder}/pid
ErrorLog {self.folder}/error.log
TypesConfig {self.folder}/types
Listen 127.0.0.1:{self.port}
SSLSessionCache shmcb:{self.folder}/cache(512000)
Alias /assets {self.folder}/static
<Directory {self.folder}/static>
Require all granted
</Directory>
SSLEngine on
SSLProtocol TLSv1.3
SSLCertificateFile {self.folder}/server.pem
SSLCertificateKeyFile {self.folder}/server.key
{demand}
""")
        self.spawn("/usr/sbin/apache2", "-DFOREGROUND", "-f", self.folder / "apache.conf")


class Flask(Peer):
    """nginx in front of gunicorn, Flask and the site's own index: a list of the same rows in the same markup."""

    name = "nginx, gunicorn, Flask"

    def __init__(self, folder, people, index):
        super().__init__(folder, people)
        self.index = index

    def start(self):
        back = free_port()
        environment = {**os.environ, "INDEX": str(self.index), "PYTHONPATH": str(ROOT)}
        self.spawn(PYTHON, "-m", "gunicorn", "--workers", WORKERS, "--bind", f"127.0.0.1:{back}", "--keep-alive", 60,
                   "scripts.web_app:app", env=environment, cwd=self.folder)
        self.nginx(f"""
    location / {{
      proxy_pass http://back; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header X-Client $ssl_client_s_dn;
    }}
  }}
  upstream back {{ server 127.0.0.1:{back}; keepalive 8;""")
        wait_for(lambda: subprocess.run(["ss", "-Hltn", f"sport = :{back}"], capture_output=True).stdout, "gunicorn", 20)
