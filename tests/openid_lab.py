"""Apache as the tutorial configures it, and a browser without pages, for the suite `openid`."""

import http.client
import os
import re
import shutil
import ssl
import tempfile
import urllib.parse
from pathlib import Path

from tests.harness import CORDON, ROOT, Process, free_port, run as execute, tls_context, wait_for

TUTORIAL = ROOT / "docs" / "tutorials" / "apache-openid.md"
MODULES = "/usr/lib/apache2/modules"


class Page:
    def __init__(self, url, answer):
        self.url, self.status, self.headers = url, answer.status, answer.headers
        self.text = answer.read().decode(errors="replace")


class Browser:
    """Follows redirects between portal and applications, with cookies for each origin, and a certificate for the portal."""

    def __init__(self, site, trust, person=None):
        self.site, self.person, self.cookies, self.trail, self.refreshes = site, person, {}, [], 0
        self.portal, self.other = tls_context(site.root, person), ssl.create_default_context(cafile=str(trust))

    def send(self, method, url, form=None, site_of="none"):
        """One request; `site_of` is what browsers say of where it began."""
        parts = urllib.parse.urlsplit(url)
        is_portal = parts.port == self.site.portal
        context = self.portal if is_portal else self.other
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, context=context, timeout=30)
        jar = self.cookies.setdefault(parts.port, {})
        # As SameSite=Strict demands.
        sent = {} if is_portal and site_of == "cross-site" else jar
        headers = {"cookie": "; ".join(f"{name}={value}" for name, value in sent.items())} if sent else {}
        headers |= {"accept": "text/html", "sec-fetch-site": site_of, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        body = None
        if form is not None:
            body, headers["content-type"] = urllib.parse.urlencode(form), "application/x-www-form-urlencoded"
        try:
            connection.request(method, urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, "")), body, headers)
            answer = connection.getresponse()
            for header in answer.headers.get_all("set-cookie") or []:
                name, value = header.split(";")[0].split("=", 1)
                if value and "max-age=0" not in header.lower():
                    jar[name] = value
                else:
                    jar.pop(name, None)
            page = Page(url, answer)
        finally:
            connection.close()
        self.trail.append((method, url, page.status))
        return page

    def open(self, url, site_of="none", form=None, stop=None):
        """Goes to an address and wherever that leads; `stop` is the beginning of an address that is not followed."""
        page = self.send("POST" if form is not None else "GET", url, form, site_of)
        for _ in range(12):
            location = page.headers["location"] if page.status in (301, 302, 303, 307) else None
            refresh = page.headers["refresh"]
            if refresh and not location:
                # A page of the portal itself began this one.
                location, site_of = refresh.split("url=")[1], "same-origin"
                self.refreshes += 1
            if not location:
                return page
            target = urllib.parse.urljoin(page.url, location)
            if stop and target.startswith(stop):
                return target
            if urllib.parse.urlsplit(target).port != urllib.parse.urlsplit(page.url).port:
                site_of = "cross-site"
            page = self.send("GET", target, None, site_of)
        raise AssertionError(f"too many redirects: {self.trail[-12:]}")


class Apache:
    """Apache as the tutorial configures it."""

    def __init__(self, suite, site):
        self.suite, self.site, self.port = suite, site, free_port()
        self.url = f"https://localhost:{self.port}"
        self.folder = suite.folder / "apache"
        self.folder.mkdir()
        self.cert, self.key = self.folder / "own.pem", self.folder / "own.key"
        execute(
            *"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost".split(),
            *["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", self.key, "-out", self.cert],
        )
        self.pages = Path(tempfile.mkdtemp(prefix="cordon-pages-"))
        self.pages.chmod(0o755)
        suite.finally_do(shutil.rmtree, self.pages, True)
        (self.pages / "index.html").write_text("<!--#echo var=\"REMOTE_USER\" --> level <!--#echo var=\"OIDC_CLAIM_clearance\" --> by <!--#echo var=\"OIDC_CLAIM_acr\" -->\n")
        self.log = self.folder / "error.log"

    def translated(self, text):
        """The tutorial's names and places as they are here."""
        for there, here in (
            ("https://portal.example.org:8443", f"https://localhost:{self.site.portal}"),
            ("https://wiki.example.org", self.url),
            ("/etc/apache2/", f"{self.folder}/"),
            ("/var/lib/cordon", str(self.site.data)),
        ):
            text = text.replace(there, here)
        return text

    def start(self, settings):
        modules = ["mpm_event", "authn_core", "authz_core", "authz_user", "ssl", "dir", "mime", "include", "auth_openidc"]
        config = self.folder / "apache.conf"
        config.write_text(f"""
ServerRoot {self.folder}
ServerName localhost
PidFile {self.folder}/pid
DefaultRuntimeDir {self.folder}
ErrorLog {self.log}
LogLevel auth_openidc:info
{"".join(f"LoadModule {one}_module {MODULES}/mod_{one}.so{chr(10)}" for one in modules)}
TypesConfig /etc/mime.types
User nobody
Group nogroup
Listen 127.0.0.1:{self.port}
DocumentRoot {self.pages}
<Directory {self.pages}>
  Options +Includes
  AddOutputFilter INCLUDES .html
</Directory>
<VirtualHost *:{self.port}>
  SSLEngine on
  SSLCertificateFile {self.cert}
  SSLCertificateKeyFile {self.key}
{settings}
</VirtualHost>
""")
        for file in (self.folder, self.suite.folder):
            file.chmod(0o755)
        self.process = Process(["apache2", "-f", config, "-DFOREGROUND"], self.folder / "output")
        self.suite.finally_do(self.process.stop)
        probe = ["curl", "-sk", "-o", os.devnull, self.url]
        wait_for(lambda: execute(*probe, code=None).returncode != 7, lambda: f"apache: {self.process.tail()}", 20)


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", TUTORIAL.read_text(), re.M | re.S)


def walk(suite, site):
    """Does what the tutorial says, word for word but for names and places."""
    apache = Apache(suite, site)
    shutil.copy(site.root, apache.folder / "cordon-root.pem")
    shutil.copy(apache.cert, apache.folder / "wiki.pem")
    for text in blocks("sh"):
        script = apache.translated(text).replace("cordon service", f"{CORDON} service")
        script = "\n".join(line for line in script.splitlines() if not line.startswith("systemctl") and not line.startswith("apt-get") and not line.startswith("a2en"))
        execute("bash", "-euc", script, cwd=apache.folder)
    settings = apache.translated(blocks("apache")[0])
    apache.start(settings)
    return apache
