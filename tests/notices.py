"""Notices of registration requests by mail, over an SMTP relay (Exim) that demands TLS and a login, and over one that misbehaves."""

import contextlib
import email
import json
import os
import re
import socketserver
import sqlite3
import subprocess
import threading
import time

from tests.harness import Process, Site, contains, cordon, cordon_json, equal, free_port, wait_for
from tests.requests import REQUEST, enrol, make_csr, openssl
from tests.years import http, metric

STAFF = [
    ("clerk", "officer", 4), ("officer-9", "officer", 3), ("registrar-1", "registrar", 4), ("registrar-2", "registrar", 4),
    ("registrar-0", "registrar", 0), ("keeper-1", "administrator", 4), ("refused", "registrar", 4),
]
PASSWORD = "relay password 47"
EXIM = """
primary_hostname = relay.example.org
keep_environment =
spool_directory = {folder}/spool
log_file_path = {folder}/log-%slog
pid_file_path = {folder}/exim.pid
local_interfaces = 127.0.0.1
daemon_smtp_ports = {port}
exim_user = {user}
exim_group = nogroup
tls_advertise_hosts = *
tls_certificate = {folder}/relay.pem
tls_privatekey = {folder}/relay.key
auth_advertise_hosts = ${{if def:tls_in_cipher {{*}}{{}}}}
acl_smtp_rcpt = rcpt
acl_smtp_data = accept
remote_max_parallel = 1

begin acl
rcpt:
  deny message = TLS first
       !encrypted = *
  deny message = log in first
       !authenticated = *
  deny message = no such mailbox
       local_parts = refused
  defer message = later
        local_parts = registrar-1
        condition = ${{if exists{{{folder}/defer}}}}
  accept

begin routers
all:
  driver = accept
  transport = keep

begin transports
keep:
  driver = appendfile
  file = {folder}/mailbox
  user = {user}
  envelope_to_add

begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_prompts = :
  server_condition = ${{if and {{{{eq{{$auth2}}{{cordon}}}}{{eq{{$auth3}}{{{password}}}}}}}}}
  server_set_id = $auth2
"""


class Relay:
    """Exim on a port of this host, with one mailbox for everybody."""

    def __init__(self, suite, name="127.0.0.1"):
        self.folder = suite.folder / "relay"
        self.folder.mkdir(mode=0o777)
        self.folder.chmod(0o777)
        suite.folder.chmod(0o755)
        self.port = free_port()
        self.authority = self.folder / "authority.pem"
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        openssl("req", "-x509", *key, "-keyout", self.folder / "ca.key", "-subj", "/CN=Relay CA", "-out", self.authority)
        request = self.folder / "relay.csr"
        openssl("req", "-new", *key, "-keyout", self.folder / "relay.key", "-subj", "/CN=relay", "-out", request)
        names = self.folder / "names"
        names.write_text(f"subjectAltName=IP:{name}\n")
        issue = ("-CA", self.authority, "-CAkey", self.folder / "ca.key", "-CAcreateserial", "-extfile", names)
        openssl("x509", "-req", "-in", request, *issue, "-out", self.folder / "relay.pem")
        (self.folder / "relay.key").chmod(0o644)
        user = "nobody"
        values = {"folder": self.folder, "port": self.port, "user": user, "password": PASSWORD}
        self.config = self.folder / "exim.conf"
        self.config.write_text(EXIM.format(**values))
        self.process = None
        suite.finally_do(self.end)

    def start(self):
        self.process = Process(["exim4", "-C", self.config, "-bdf", "-q1m"], self.folder / "output")
        wait_for(self.answers, lambda: f"the relay: {self.process.tail()}", 10)

    def answers(self):
        assert self.process.running(), self.process.tail()
        done = subprocess.run(["ss", "-ltnH", f"sport = :{self.port}"], capture_output=True, text=True)
        return bool(done.stdout.strip())

    def end(self):
        if self.process:
            self.process.stop()
            self.process = None

    def mails(self):
        """Mails so far, by recipient."""
        file, found = self.folder / "mailbox", {}
        text = file.read_text() if file.exists() else ""
        for part in re.split(r"^From \S+ .*\n", text, flags=re.MULTILINE)[1:]:
            mail = email.message_from_string(part)
            found.setdefault(mail["Envelope-to"].partition("@")[0], []).append(mail)
        return found

    def settings(self):
        password = self.folder / "password"
        password.write_text(PASSWORD + "\n")
        password.chmod(0o600)
        return self.settings_only()

    def settings_only(self):
        password = self.folder / "password"
        return (
            f'\n[mail]\nrelay = "127.0.0.1:{self.port}"\nfrom = "cordon@example.org"\n'
            f'authorities = "{self.authority}"\nuser = "cordon"\npassword_file = "{password}"\n'
        )


class Stubborn:
    """A relay in this process that answers commands as `answers` says, by the beginning of a command; None: not at all."""

    def __init__(self, suite):
        self.answers = {}
        self.taken = []
        relay = self

        class Session(socketserver.StreamRequestHandler):
            def handle(self):
                # The other side may leave in the middle of an answer.
                with contextlib.suppress(ConnectionError):
                    self.session()

            def session(self):
                to, data = "", []
                if not self.say("", "220 relay"):
                    return
                for line in self.rfile:
                    line = line.decode().rstrip("\r\n")
                    if line == "." and data:
                        if self.say(". " + to, "250 taken"):
                            relay.taken.append((to, "\n".join(data)))
                            data = []
                    elif data:
                        data.append(line)
                    else:
                        if line.startswith("RCPT"):
                            to = line.partition("<")[2].partition("@")[0]
                        if self.say(line, "354 go" if line == "DATA" else "250 fine") and line == "DATA":
                            data = ["data"]

            def say(self, command, usual):
                for start, answer in relay.answers.items():
                    if command.startswith(start) and (start or not command):
                        if answer is None:
                            return False
                        self.wfile.write(answer.encode() + b"\r\n")
                        return answer[0] in "23"
                self.wfile.write(usual.encode() + b"\r\n")
                return True

        socketserver.ThreadingTCPServer.daemon_threads = True
        socketserver.ThreadingTCPServer.allow_reuse_address = True
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session)
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        suite.finally_do(server.shutdown)

    def settings(self):
        return f'\n[mail]\nrelay = "127.0.0.1:{self.port}"\nfrom = "cordon@example.org"\nsecurity = "none"\n'

    def told(self, request):
        """Who got a mail with this request, sorted."""
        return sorted(to for to, text in self.taken if request in text)


def body(mail):
    return mail.get_payload(decode=True).decode()


def run(suite):
    relay = Relay(suite)
    site = Site(suite).start()
    people = enrol(site, *STAFF)
    site.stop()
    plain = site.config.read_text() + '\n[registration]\napprovals = "required"\n'
    csr = make_csr(site.folder, "officer-9", "/CN=anything")

    def give(*command, by, code=0):
        person = people[by]
        proof = ("--as", person.p12, "--as-password-file", person.p12.with_name(f"{person.p12.name}.password"))
        done = cordon(*REQUEST, *command, *site.arguments(), *proof, "--json", "--log", "off", code=code)
        return json.loads(done.stdout)

    def ask(reason, csr=csr):
        return give("new", "issue", "--uid", "officer-9", "--csr", csr, "--reason", reason, "--submit", by="clerk")

    with suite.case("a relay without an authority, or in the clear on another host, is refused with its line"):
        for changed, said in (("authorities", "mail.authorities"), ("relay", "mail.security")):
            text = relay.settings()
            text = re.sub(rf'{changed} = ".*"\n', "", text)
            if changed == "relay":
                text += 'relay = "relay.example.org:25"\nsecurity = "none"\n'
            site.config.write_text(plain + text)
            contains(cordon("config", "check", site.config, code=2).stderr, said)
        site.config.write_text(plain + relay.settings().replace(str(relay.authority), str(relay.config)))
        contains(cordon("up", *site.arguments(), "--log", "off", code=1).stderr, "it has no certificate")
        for wrong in ("[::1:25", "localhost:25:30", "a b:25", " 127.0.0.1:25", "127.0.0.1:+25"):
            site.config.write_text(plain + relay.settings().replace(f"127.0.0.1:{relay.port}", wrong))
            contains(cordon("config", "check", site.config, code=2).stderr, "mail.relay")

    with suite.case("a password that others may read, that is empty, or that never ends, is refused"):
        password = relay.folder / "password"
        test = ("config", "test-mail", site.config, "--to", "a@example.org")
        site.config.write_text(plain + relay.settings())
        for text, mode, said in (("x", 0o666, "others may read it"), ("", 0o600, "empty"), ("x\ny\n", 0o600, "several lines")):
            password.write_text(text)
            password.chmod(mode)
            contains(cordon(*test, code=1).stderr, said)
        password.unlink()
        os.mkfifo(password, 0o600)
        for setting in (str(password), "/dev/zero"):
            for old in (str(password), str(relay.authority)):
                site.config.write_text(plain + relay.settings_only().replace(f'"{old}"', f'"{setting}"'))
                if old != setting:
                    contains(cordon(*test, code=1).stderr, "no regular file")
        password.unlink()

    with suite.case("a test mail comes to an end with a relay that is silent or never ends a line"):
        stubborn = Stubborn(suite)
        site.config.write_text(plain + stubborn.settings())
        started = time.monotonic()
        stubborn.answers = {"QUIT": None}
        equal(cordon_json(*test)["sent"], True)
        equal([to for to, _ in stubborn.taken], ["a"])
        stubborn.answers = {"": "220 " + "A" * (64 << 20)}
        contains(cordon(*test, code=1).stderr, "has more than")
        stubborn.answers = {"MAIL": "554 \x1b[31mred"}
        contains(cordon(*test, code=1).stderr, "554 ?[31mred")
        assert time.monotonic() - started < 15

    with suite.case("a test mail is sent before a site is started, or the answer says what is wrong"):
        site.config.write_text(plain)
        test = ("config", "test-mail", site.config, "--to")
        contains(cordon(*test, "registrar-1@example.org", code=1).stderr, "there is no mail relay")
        site.config.write_text(plain + relay.settings())
        contains(cordon(*test, "registrar-1@example.org", code=1).stderr, "refused")
        relay.start()
        equal(cordon_json(*test, "registrar-1@example.org")["sent"], True)
        contains(cordon(*test, "refused@example.org", code=1).stderr, "no such mailbox")
        contains(cordon(*test, "a@example.org\r\nRCPT TO:<b@example.org>", code=1).stderr, "does not take mail")
        (relay.folder / "password").write_text("another")
        contains(cordon(*test, "registrar-1@example.org", code=1).stderr, "535")
        wait_for(relay.mails, "the test mail", 10)
        (mail,) = relay.mails().pop("registrar-1")
        contains(mail["Subject"], "Test of notices")
        relay.end()
        (relay.folder / "mailbox").unlink()

    with suite.case("nobody is told of what was before the first start with a relay"):
        site.config.write_text(plain)
        site.start()
        before = ask("before")
        give("withdraw", before["id"], "--seen", before["version"], by="clerk")
        site.stop()
        site.config.write_text(plain + relay.settings())
        relay.start()
        site.start()
        wait_for((site.data / "notices").exists, "the first look", 20)
        equal(relay.mails(), {})

    with suite.case("who may approve is told, by TLS and a login, and no name and no reason is in it"):
        (relay.folder / "defer").touch()
        asked = ask("narcotics unit")
        # A mailbox that is put off keeps nobody else's waiting, and gets its mail later.
        wait_for(lambda: "registrar-2" in relay.mails(), lambda: f"others' mail: {relay.mails()} {site.process.tail()}", 30)
        (relay.folder / "defer").unlink()
        wait_for(lambda: len(relay.mails()) == 2, lambda: f"two recipients: {relay.mails()} {site.process.tail()}", 90)
        mails = relay.mails()
        equal(sorted(mails), ["registrar-1", "registrar-2"])
        (mail,) = mails["registrar-1"]
        equal((mail["From"], mail["Auto-Submitted"]), ("Cordon <cordon@example.org>", "auto-generated"))
        contains(mail["Subject"], f"Request {asked['id']}")
        contains(mail["Received"], "TLS")
        contains(body(mail), f"https://localhost:{site.portal}/requests/{asked['id']}")
        assert not re.search("narcotics|officer-9|clerk", mail.as_string()), mail.as_string()
        text = metrics(site)
        contains(text, 'cordon_notices_total{outcome="refused"} 1')
        contains(text, 'cordon_notices_total{outcome="sent"} 2')

    with suite.case("a request that comes back is told to who asked, though the relay was away and the site restarted"):
        relay.end()
        failed = 'cordon_notices_total{outcome="failed"}'
        before = metric(site, failed)
        back = give("return", asked["id"], "--seen", asked["version"], "--reason", "wrong form", by="registrar-1")
        wait_for(lambda: metric(site, failed) > before, "an attempt", 30)
        site.process.kill()
        relay.start()
        site.start()
        wait_for(lambda: "clerk" in relay.mails(), lambda: f"{relay.mails()} {site.process.tail()}", 90)
        (mail,) = relay.mails()["clerk"]
        contains(body(mail), "came back to you")
        assert "wrong form" not in mail.as_string()

    with suite.case("approval goes to who asked, and what was carried out to whom it is about"):
        again = give("submit", asked["id"], "--seen", back["version"], by="clerk")
        one = give("approve", asked["id"], "--seen", again["version"], by="registrar-1")
        two = give("approve", asked["id"], "--seen", one["version"], by="registrar-2")
        issued = give("carry-out", asked["id"], "--seen", two["version"], "--out", site.folder / "o.pem", by="registrar-1")
        new = ("new", "revoke", "--serial", issued["serial"], "--cause", "key-compromise", "--emergency", "--reason", "stolen")
        urgent = give(*new, "--submit", by="clerk")
        one = give("approve", urgent["id"], "--seen", urgent["version"], by="registrar-1")
        give("carry-out", urgent["id"], "--seen", one["version"], by="clerk")

        def told():
            mails = relay.mails()
            second = any(f"{urgent['id']} was an emergency" in body(mail) for mail in mails["registrar-2"])
            return second and "officer-9" in mails and any("carried out" in body(mail) for mail in mails["clerk"])

        wait_for(told, lambda: f"{ {who: [body(m) for m in some] for who, some in relay.mails().items()} }", 40)
        contains(body(relay.mails()["officer-9"][0]), "about you")
        assert not any("was an emergency" in body(mail) for mail in relay.mails()["registrar-1"])
        assert "keeper-1" not in relay.mails() and "registrar-0" not in relay.mails(), relay.mails()

    with suite.case("a relay with another authority's certificate gets nothing, not even the password"):
        site.stop()
        other = site.folder / "other.pem"
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", site.folder / "other.key")
        openssl("req", "-x509", *key, "-subj", "/CN=Relay CA", "-out", other)
        site.config.write_text(plain + relay.settings().replace(str(relay.authority), str(other)))
        log = relay.folder / "log-mainlog"
        before = (sum(map(len, relay.mails().values())), log.read_text().count("A=plain"))
        site.start()
        ask("once more", make_csr(site.folder, "another", "/CN=anything"))
        wait_for(lambda: 'outcome="failed"' in metrics(site), "an attempt", 30)
        contains(site.process.tail(), "mail relay")
        equal((sum(map(len, relay.mails().values())), log.read_text().count("A=plain")), before)
        contains(http(site, "/healthz")[1], "notices by mail are not sent")
        site.stop()

    stubborn = Stubborn(suite)

    with suite.case("what the relay says to the sender loses nothing, and what it says to one recipient keeps nobody else's notices"):
        (site.data / "notices").unlink()
        site.config.write_text(plain + stubborn.settings())
        stubborn.answers = {"MAIL": "550 5.7.1 sender not allowed"}
        site.start()
        wait_for((site.data / "notices").exists, "the first look", 20)
        one = ask("one", make_csr(site.folder, "one", "/CN=anything"))["id"]
        wait_for(lambda: 'outcome="failed"' in metrics(site), "an attempt", 30)
        contains(http(site, "/healthz")[1], "sender not allowed")
        stubborn.answers = {
            "RCPT TO:<refused": "554 5.7.1 Relay access denied", "RCPT TO:<registrar-1": "452 4.2.2 full",
            "QUIT": None,
        }
        wait_for(lambda: stubborn.told(one), lambda: f"{stubborn.taken} {site.process.tail()}", 40)
        two = ask("two", make_csr(site.folder, "two", "/CN=anything"))["id"]
        wait_for(lambda: stubborn.told(two), lambda: f"{stubborn.taken} {site.process.tail()}", 20)
        equal((stubborn.told(one), stubborn.told(two)), (["registrar-2"], ["registrar-2"]))
        equal(metric(site, 'cordon_notices_total{outcome="sent"}'), 2)
        wait_for(lambda: metric(site, 'cordon_notices_total{outcome="refused"}') == 2, "both refusals", 20)
        assert "notices by mail" not in http(site, "/healthz")[1]

    with suite.case("after a crash only that gets a mail which was not taken, what is fresh beside what is old"):
        site.process.kill()
        stubborn.answers = {}
        waiting = json.loads((site.data / "notices").read_text())["waiting"]
        equal((list(waiting), sorted(waiting["registrar-1@example.org"]["changes"])), (["registrar-1@example.org"], sorted([one, two])))
        waiting["registrar-1@example.org"]["changes"][one]["at"] -= 49 * 3600
        changed = {**json.loads((site.data / "notices").read_text()), "waiting": waiting}
        (site.data / "notices").write_text(json.dumps(changed))
        site.start()
        wait_for(lambda: "registrar-1" in stubborn.told(two), lambda: f"{stubborn.taken} {site.process.tail()}", 20)
        equal((stubborn.told(one), stubborn.told(two)), (["registrar-2"], ["registrar-1", "registrar-2"]))
        site.stop()

    with suite.case("a damaged queue is said, and what happened in the last 48 hours is told again rather than nobody"):
        with sqlite3.connect(site.data / "registry.sqlite") as database:
            database.execute("UPDATE request_history SET at = at - 49 * 3600 WHERE request = ?", (one,))
        database.close()
        # Other rows than the log has would stop the start.
        site.ask("audit", "accept-loss", "--reason", "a request is made older")
        for damaged in ("-5", ""):
            (site.data / "notices").write_text(damaged)
            stubborn.taken.clear()
            site.start()
            wait_for(lambda: len(stubborn.told(two)) == 3, lambda: f"{stubborn.taken} {site.process.tail()}", 20)
            equal((stubborn.told(one), metric(site, "cordon_notices_queue_lost_total")), ([], 1))
            contains(http(site, "/healthz")[1], "queue of notices was damaged")
            site.stop()


def metrics(site):
    return http(site, "/metrics")[1]
