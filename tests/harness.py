"""Processes, sites, cameras and HTTPS with certificates, for the suites."""

import http.client
import json
import os
import random
import re
import socket
import ssl
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORDON = str(Path(os.environ.get("CORDON", ROOT / "target/debug/cordon")).resolve())
# Measurements and the research cipher, beside the product.
LAB = str(Path(CORDON).with_name("cordon-lab"))

# The people of the tests: user id, clearance, roles.
PEOPLE = [
    ("officer-2", 2, ["officer"]),
    ("reviewer-3", 3, ["officer", "reviewer"]),
    ("auditor-1", 1, ["auditor"]),
]


def run(*command, code=0, **options):
    """Runs a command, checks its exit code (None: any) and returns it with its output as text."""
    options = {"capture_output": True, "text": True, "timeout": 120, **options}
    done = subprocess.run([str(part) for part in command], **options)
    if code is not None and done.returncode != code:
        shown = " ".join(str(part) for part in command)
        raise AssertionError(f"{shown}\nended {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}")
    return done


def cordon(*arguments, code=0, **options):
    return run(CORDON, *arguments, code=code, **options)


def cordon_json(*arguments, **options):
    return json.loads(cordon(*arguments, "--json", "--log", "error", **options).stdout)


def pem(text, kind):
    """All PEM objects of a kind in a text."""
    found = re.findall(f"-----BEGIN {kind}-----.*?-----END {kind}-----\n", text, re.DOTALL)
    assert found, f"no {kind} in {text}"
    return "".join(found)


def equal(found, expected, what="value"):
    assert found == expected, f"{what} is {found!r}, not {expected!r}"


def contains(text, part):
    assert part in text, f"{part!r} is not in: {text[:2000]}"


def wait_for(condition, what, seconds=30, pause=0.05):
    """Waits until `condition()` is true and returns its value; what goes on is in `what`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for {what() if callable(what) else what}")
        time.sleep(pause)


# Ports that this process gave to somebody, who may not listen yet.
GIVEN = set()


def free_port():
    """A port nobody listens on or was given, below those that the kernel gives to outgoing connections."""
    while True:
        port = random.randint(15_000, 31_000)
        if port in GIVEN:
            continue
        GIVEN.add(port)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


# `/healthz` of a site in which nothing is wrong, and acts need no approvals.
HEALTHY_DIRECT = (200, 'ok\nwarning: certificates and rights need no approvals (registration.approvals is "direct"): for laboratories only\n')


class Process:
    """A program under test with its log in a file; ended by its own id only."""

    def __init__(self, command, log, **options):
        self.log = Path(log)
        with self.log.open("ab") as stderr:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": stderr, **options}
            self.child = subprocess.Popen([str(part) for part in command], **pipes)

    def answer(self, seconds=60):
        """The line of JSON that the program prints once it is ready."""
        line = b""
        os.set_blocking(self.child.stdout.fileno(), False)
        end = time.monotonic() + seconds
        while not line.endswith(b"\n"):
            part = self.child.stdout.read()
            line += part or b""
            if part is None:
                time.sleep(0.02)
            if self.child.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"no answer from {self.child.args}\n{self.tail()}")
        return json.loads(line)

    def tail(self):
        return self.log.read_text(errors="replace")[-3000:]

    def running(self):
        return self.child.poll() is None

    def stop(self, seconds=30):
        """Asks the program to end and returns its exit code."""
        if self.running():
            self.child.terminate()
        try:
            code = self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.child.args} ignores SIGTERM\n{self.tail()}") from None
        self.close()
        return code

    def kill(self):
        if self.running():
            self.child.kill()
        self.child.wait()
        self.close()

    def close(self):
        if self.child.stdout:
            self.child.stdout.close()


class Person:
    """A person's certificate as files, and HTTPS with it."""

    def __init__(self, site, p12, password_file, folder):
        self.site = site
        self.uid = p12.stem
        self.p12 = p12
        self.password_file = password_file
        self.password = password_file.read_text().strip()
        self.cert = folder / f"{self.uid}.cert.pem"
        self.key = folder / f"{self.uid}.key.pem"
        # Once for both: deriving the key from the password takes as long as it has to.
        text = run("openssl", "pkcs12", "-in", p12, "-passin", f"file:{password_file}", "-noenc").stdout
        self.cert.write_text(pem(text, "CERTIFICATE"))
        self.key.write_text(pem(text, "PRIVATE KEY"))
        self.key.chmod(0o600)

    def signs(self):
        """Arguments by which a command is this person's."""
        return ["--as", self.p12, "--as-password-file", self.password_file]

    def request(self, method, path, body=None, headers=None):
        return request(self.site.portal, method, path, self.site.root, self, body, headers)

    def get(self, path, status=200):
        """The JSON at `path`."""
        answer = self.request("GET", path)
        equal(answer.status, status, f"status of {path}: {answer.body[:500]!r};")
        return json.loads(answer.body)


    def violations(self):
        """All violations that this person may see, from all pages of the list."""
        rows, before = [], ""
        while True:
            page = self.get(f"/api/v1/violations{before}")
            rows += page["rows"]
            if page["older"] is None:
                return rows
            before = f"?before={page['older']}"


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()
        self.text = self.body.decode(errors="replace")

    def json(self):
        return json.loads(self.body)


def tls_context(root, identity=None):
    context = ssl.create_default_context(cafile=str(root))
    # The hierarchy is checked by OpenSSL with all its rules; names must match.
    if identity is not None:
        context.load_cert_chain(identity.cert, identity.key)
    return context


def request(port, method, path, root, identity=None, body=None, headers=None, seconds=60):
    """One HTTPS request on its own connection."""
    context = tls_context(root, identity)
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=seconds)
    try:
        connection.request(method, path, body, headers or {})
        return Answer(connection.getresponse())
    finally:
        connection.close()


class Site:
    """`cordon up` on a data folder, with people whose certificates are at hand."""

    def __init__(self, suite, name="site", settings="", data=None):
        self.suite = suite
        self.folder = suite.folder / name
        self.folder.mkdir()
        self.data = data or self.folder / "data"
        self.config = self.folder / "cordon.toml"
        self.log = self.folder / "site.log"
        self.root = self.folder / "root.pem"
        self.portal, self.intake, self.enrolment, self.metrics = (free_port() for _ in range(4))
        listen = {name: getattr(self, name) for name in ("portal", "intake", "enrolment", "metrics")}
        lines = [f'{name} = "127.0.0.1:{port}"' for name, port in listen.items()]
        self.config.write_text("[listen]\n" + "\n".join(lines) + "\n" + settings)
        self.process = None
        # Further options of every process about this site and its cameras, such as an environment.
        self.options = {}
        suite.finally_do(self.end)

    def arguments(self):
        return ["--data", self.data, "--config", self.config]

    def start(self, *command):
        """Starts the site (or another command that runs one) and waits until it answers."""
        command = command or ("up",)
        line = [CORDON, *command, *self.arguments(), "--json"]
        self.process = Process(line, self.log, **self.options)
        self.ready = self.process.answer(120)
        root = self.data / "pki" / "root.pem"
        if not self.root.exists():
            self.root.write_bytes(root.read_bytes())
        return self

    def stop(self):
        equal(self.process.stop(), 0, "exit code of the site")

    def end(self):
        if self.process and self.process.running():
            self.process.kill()

    def ask(self, *arguments, by=None, **options):
        """A command about this site, signed by a person if `by` is given, with its JSON answer."""
        signed = by.signs() if by else []
        return cordon_json(*arguments, *self.arguments(), *signed, **{**self.options, **options})

    def people(self, people=PEOPLE):
        """Makes the people of the tests, or others, and returns them by user id."""
        lines = []
        for uid, clearance, roles in people:
            person = {
                "uid": uid, "name": f"Test {uid}", "email": f"{uid}@example.org",
                "organisation": "LEA-EU", "clearance": clearance, "roles": roles, "units": ["traffic"],
            }
            lines.append(json.dumps(person))
        file = self.folder / "people.jsonl"
        file.write_text("\n".join(lines) + "\n")
        self.ask("directory", "import", file)
        return {uid: self.certified(uid) for uid, _, _ in people}

    def certified(self, uid):
        """Has a certificate made for a person of the directory."""
        p12 = self.folder / f"{uid}.p12"
        self.ask("pki", "issue-user", "--uid", uid, "--out", p12)
        return Person(self, p12, p12.with_name(f"{uid}.p12.password"), self.folder)

    def reviewer(self, uid="reviewer-4"):
        """One more reviewer, who may see everything of the unit `traffic`."""
        return self.people([(uid, 4, ["reviewer"])])[uid]

    def demo_person(self, uid):
        """One of the people that `cordon demo` makes."""
        people = self.data / "people"
        return Person(self, people / f"{uid}.p12", people / f"{uid}.password", self.folder)

    def verify_audit(self):
        """Checks the audit log and all journals with the offline verifier."""
        audit = self.data / "audit"
        return cordon_json("audit", "verify", audit / "log", "--journals", audit / "journal")

    def log_text(self):
        return self.log.read_text(errors="replace")


class Camera:
    """A camera's folder, made by `cordon registry code`, and its agent."""

    def __init__(self, site, device="camera-17", folder=None, settings=""):
        self.site = site
        self.device = device
        self.folder = folder or site.folder / device
        self.log = site.folder / f"{device}.log"
        site.ask("registry", "code", "--device", device, "--out", self.folder)
        self.config = self.folder / "camera.toml"
        quick = "\n[uplink]\nbackoff_min_ms = 100\nbackoff_max_ms = 1000\n"
        self.config.write_text(self.config.read_text() + (settings or quick))
        self.incoming = self.folder / "incoming"
        self.incoming.mkdir()
        self.process = None
        site.suite.finally_do(self.end)

    def start(self):
        command = [CORDON, "camera", "run", "--config", self.config]
        self.process = Process(command, self.log, **self.site.options)
        return self

    def stop(self):
        equal(self.process.stop(), 0, "exit code of the camera")

    def end(self):
        if self.process and self.process.running():
            self.process.kill()

    def drop(self, name, picture, kind="jpg", **facts):
        """Puts a picture, or a film, and its facts into the watched folder as a camera's head does."""
        for extension, content in ((kind, picture), ("json", json.dumps(violation(**facts)).encode())):
            part = self.folder / f"{name}.{extension}.part"
            part.write_bytes(content)
            part.rename(self.incoming / f"{name}.{extension}")

    def blocks(self):
        return sorted((self.folder / "spool" / "blocks").glob("*.block"))

    def receipts(self):
        return sorted((self.folder / "spool" / "receipts").glob("*.p7m"))

    def waiting(self):
        """Files that have no receipt yet."""
        return [*self.incoming.glob("*.jpg"), *self.blocks()]

    def drain(self, seconds=60):
        def what():
            return f"{self.waiting()[:3]} to be receipted\n{self.log.read_text()[-1500:]}"

        wait_for(lambda: not self.waiting(), what, seconds)


def violation(plate="AB 123C", classification=1, speed=88):
    """Facts as a camera's head writes them beside a picture."""
    return {
        "captured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "classification": classification,
        "violation": {
            "type": "speeding",
            "place": {"name": "A4 km 215.3", "latitude_microdeg": 50_064_650, "longitude_microdeg": 19_944_980},
            "speed_kmh": speed, "limit_kmh": 50, "plate": plate, "lane": 1, "device_serial": "TEST-0017",
        },
    }


def jpeg(comment, size=0):
    """A valid grey 8 by 8 JPEG that holds `comment` and is at least `size` bytes long."""

    def segment(marker, content):
        return bytes([0xFF, marker]) + (len(content) + 2).to_bytes(2, "big") + content

    parts = [b"\xff\xd8", segment(0xFE, comment)]
    missing = size - len(comment)
    while missing > 0:
        parts.append(segment(0xFE, random.randbytes(min(missing, 60_000))))
        missing -= 60_000
    parts.append(segment(0xDB, b"\0" + b"\x10" * 64))
    parts.append(segment(0xC0, bytes([8, 0, 8, 0, 8, 1, 1, 0x11, 0])))
    # One code each: difference 0, and end of block.
    for table in (0x00, 0x10):
        parts.append(segment(0xC4, bytes([table, 1] + [0] * 15 + [0])))
    parts.append(segment(0xDA, bytes([1, 1, 0x00, 0, 63, 0])))
    return b"".join(parts) + b"\x3f" + b"\xff\xd9"
