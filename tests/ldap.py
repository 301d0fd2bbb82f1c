"""The directory over LDAP with OpenLDAP's clients, OpenSSL and Dovecot, and with hostile clients."""

import base64
import json
import re
import shutil
import socket
import tempfile
import time
from pathlib import Path

from tests.harness import CORDON, Process, Site, contains, cordon, cordon_json, equal, free_port, run as run_command, wait_for
from tests.ldap_message import Connection, abandon, bind, element, equals, present, search
from tests.ldap_replica import replica
from tests.years import metric

BASE = "o=LEA-EU"
DOVECOT = """
base_dir = {folder}/run
state_dir = {folder}/run
log_path = {folder}/dovecot.log
ssl = no
protocols =
mail_location = maildir:{folder}/mail
passdb {{
  driver = ldap
  args = {folder}/ldap.conf
}}
userdb {{
  driver = static
  args = uid=nobody gid=nogroup home={folder}/home
}}
"""
DOVECOT_LDAP = """
uris = {url}
tls_ca_cert_file = {root}
tls_require_cert = hard
auth_bind = yes
auth_bind_userdn = uid=%u,ou=people,{base}
base = {base}
"""
PEOPLE = [
    ("officer-2", 2, ["officer"]), ("reviewer-3", 3, ["officer", "reviewer"]), ("registrar-1", 4, ["registrar"]),
    ("leaver-1", 1, ["officer"]), ("mover-1", 1, ["officer"]),
]
PASSWORD = "a long pass phrase 47"
# Result codes of RFC 4511, appendix A.
PROTOCOL, SIZE_LIMIT, NO_ATTRIBUTE, UNSUPPORTED, CRITICAL = 2, 4, 16, 7, 12
INSUFFICIENT, NO_OBJECT, CREDENTIALS, UNWILLING, ADMIN_LIMIT, STRONGER = 50, 32, 49, 53, 11, 8


def dn(uid):
    return f"uid={uid},ou=people,{BASE}"


class Ldap:
    """A site with LDAP, and OpenLDAP's clients."""

    def __init__(self, suite):
        self.port = free_port()
        self.site = Site(suite, settings=f'ldap = "127.0.0.1:{self.port}"\n').start()
        self.people = self.site.people(PEOPLE)
        for uid in self.people:
            self.set_password(uid, PASSWORD)
        self.secret = suite.folder / "secret"
        self.secret.write_text(PASSWORD)
        self.secret.chmod(0o600)
        # OpenLDAP's library takes `localhost` for the machine's own name, which is not in the certificate.
        self.url = self.site.ready["ldap_url"]
        equal(self.url, f"ldaps://127.0.0.1:{self.port}")

    def set_password(self, uid, password):
        cordon("directory", "password", "--uid", uid, *self.site.arguments(), "--log", "off", input=f"{password}\n")

    def run(self, program, *arguments, by=None, code=0, file=None, **options):
        """Runs a client anonymously, as a person with a password, or with a certificate (`by` is a `Person`)."""
        environment = {"PATH": "/usr/bin:/bin", "LDAPTLS_CACERT": str(self.site.root)}
        if by is None:
            how = ["-x"]
        elif isinstance(by, str):
            how = ["-x", "-D", by if "=" in by else dn(by), "-y", file or self.secret]
        else:
            how = ["-Y", "EXTERNAL", "-Q"]
            environment |= {"LDAPTLS_CERT": str(by.cert), "LDAPTLS_KEY": str(by.key)}
        return run_command(program, "-H", self.url, *how, *arguments, code=code, env=environment, **options)

    def search(self, query, *attributes, by="officer-2", base=BASE, options=(), code=0):
        """Attributes of the entries that a search gives, by name."""
        done = self.run("ldapsearch", "-LLL", "-o", "ldif-wrap=no", "-b", base, *options, query, *attributes, by=by, code=code)
        entries = {}
        for block in done.stdout.strip().split("\n\n"):
            name, entry = None, {}
            for line in block.splitlines():
                key, _, value = line.partition(": ")
                if key.endswith(":"):
                    key, value = key[:-1], base64.b64decode(value)
                if key == "dn":
                    name = value
                elif not key.startswith("#"):
                    entry.setdefault(key, []).append(value)
            if name is not None:
                entries[name if isinstance(name, str) else name.decode()] = entry
        return entries

    def connect(self, who=None, source="127.0.0.1", password=PASSWORD):
        connection = Connection(self.port, self.site.root, source)
        if who:
            equal(connection.ask(bind(dn(who), password))[0], 0, "bind")
        return connection

    def events(self, action):
        shown = cordon_json("audit", "show", self.site.data / "audit" / "log", "--last", 100_000)
        events = [entry["leaf"]["event"] for entry in shown["entries"]]
        return [event for event in events if event["action"] == action]


def reading(suite, ldap):
    people = ldap.people
    with suite.case("anonymous clients see root DSE and subschema, and nothing else"):
        root = ldap.search("(objectClass=*)", "+", by=None, base="", options=["-s", "base"])[""]
        equal(root["namingContexts"], [BASE])
        equal(root["supportedSASLMechanisms"], ["EXTERNAL"])
        contains(root["supportedControl"], "1.2.840.113556.1.4.319")
        schema = ldap.search("(objectClass=subschema)", "+", by=None, base=root["subschemaSubentry"][0], options=["-s", "base"])
        assert any("'cordonClearance'" in line for line in schema["cn=schema"]["attributeTypes"])
        for base, scope in ((BASE, "sub"), (BASE, "base"), (dn("officer-2"), "base"), (dn("nobody"), "base"), ("", "sub")):
            done = ldap.run("ldapsearch", "-b", base, "-s", scope, code=INSUFFICIENT)
            assert "dn:" not in done.stdout.replace("search result", ""), done.stdout
        equal(ldap.run("ldapwhoami").stdout.strip(), "anonymous")
    with suite.case("a password and a certificate bind"):
        equal(ldap.run("ldapwhoami", by="officer-2").stdout.strip(), f"dn:{dn('officer-2')}")
        equal(ldap.run("ldapwhoami", by=f"UID=OFFICER-2, ou=People,{BASE}").stdout.strip(), f"dn:{dn('officer-2')}")
        equal(ldap.run("ldapwhoami", by=people["reviewer-3"]).stdout.strip(), f"dn:{dn('reviewer-3')}")
        own = ldap.run("ldapwhoami", "-X", f"dn:{dn('reviewer-3')}", by=people["reviewer-3"])
        equal(own.stdout.strip(), f"dn:{dn('reviewer-3')}")
        ldap.run("ldapwhoami", "-X", "u:registrar-1", by=people["reviewer-3"], code=CREDENTIALS)
    with suite.case("a colleague is found by mail, unit and part of the name"):
        found = ldap.search("(mail=REVIEWER-3@example.org)")[dn("reviewer-3")]
        equal((found["cn"], found["ou"], found["memberOf"]), (["Test reviewer-3"], ["traffic"], [f"cn=traffic,ou=groups,{BASE}"]))
        contains(found["objectClass"], "inetOrgPerson")
        equal(set(ldap.search("(&(cn=*review*)(uid=*-3))", "1.1")), {dn("reviewer-3")})
        group = ldap.search("(member=" + dn("officer-2") + ")", "member")
        equal(set(group), {f"cn=traffic,ou=groups,{BASE}"})
        equal(len(group[f"cn=traffic,ou=groups,{BASE}"]["member"]), len(PEOPLE))
        equal(list(ldap.search("(ou=traffic)", "1.1", base=f"ou=units,{BASE}", options=["-s", "one"])), [f"ou=traffic,ou=units,{BASE}"])
        uuid = ldap.search("(uid=officer-2)", "entryUUID")[dn("officer-2")]["entryUUID"]
        equal(list(ldap.search(f"(entryUUID={uuid[0]})", "1.1")), [dn("officer-2")])
        ldap.search("(uid=*)", base=dn("nobody"), code=NO_OBJECT)
    with suite.case("clearance and roles are shown to a registrar's certificate, not to colleagues or a registrar's password"):
        shown = ldap.search("(uid=reviewer-3)", "*", by=people["registrar-1"])[dn("reviewer-3")]
        equal((shown["cordonClearance"], sorted(shown["cordonRole"])), (["3"], ["officer", "reviewer"]))
        equal(list(ldap.search("(cordonClearance>=4)", "1.1", by=people["registrar-1"])), [dn("registrar-1")])
        contains(ldap.search("(cn=reviewer)", "1.1", by=people["registrar-1"]), f"cn=reviewer,ou=roles,{BASE}")
        for by in ("officer-2", people["reviewer-3"], "registrar-1"):
            shown = ldap.search("(uid=reviewer-3)", "*", "+", "cordonRole", "userPassword", by=by)[dn("reviewer-3")]
            equal([name for name in shown if name.startswith("cordon") or "assword" in name], [], "attributes")
            for query in ("(cordonClearance=3)", "(!(cordonClearance=3))", "(cordonClearance>=0)", "(cordonRole=*)", "(!(cordonRole=x))"):
                equal(ldap.search(query, "1.1", by=by), {}, query)
            ldap.search("(cn=*)", by=by, base=f"cn=reviewer,ou=roles,{BASE}", code=NO_OBJECT)
            ldap.run("ldapcompare", dn("reviewer-3"), "cordonClearance:3", by=by, code=NO_ATTRIBUTE)
    with suite.case("comparisons are answered"):
        ldap.run("ldapcompare", dn("reviewer-3"), "mail:Reviewer-3@example.org", by="officer-2", code=6)
        ldap.run("ldapcompare", dn("reviewer-3"), "mail:x@example.org", by="officer-2", code=5)
        ldap.run("ldapcompare", dn("nobody"), "mail:x", by="officer-2", code=NO_OBJECT)


def limits(suite, ldap):
    with suite.case("paged results as a critical control give every entry once; unknown critical controls are refused"):
        everything = ldap.search("(objectClass=*)", "1.1")
        for size in (1, 2, 5, 500):
            done = ldap.run("ldapsearch", "-LLL", "-b", BASE, "-E", f"!pr={size}/noprompt", "(objectClass=*)", "1.1", by="officer-2")
            names = re.findall(r"^dn: (.*)$", done.stdout, re.M)
            equal((len(names), set(names)), (len(everything), set(everything)), f"pages of {size}")
        ldap.run("ldapsearch", "-b", BASE, "-E", "!1.2.3.4=:x", by="officer-2", code=CRITICAL)
        ldap.run("ldapsearch", "-b", BASE, "-E", "!sss=cn", by="officer-2", code=CRITICAL)
        ldap.run("ldapsearch", "-b", BASE, "-E", "1.2.3.4=:x", by="officer-2")
        ldap.run("ldapsearch", "-b", BASE, "-E", "sss=cn", by="officer-2")
    with suite.case("a client's size limit ends its search"):
        done = ldap.run("ldapsearch", "-LLL", "-b", BASE, "-z", "2", "(uid=*)", "1.1", by="officer-2", code=SIZE_LIMIT)
        equal(len(re.findall("^dn:", done.stdout, re.M)), 2, "entries")
    with suite.case("every write is refused with the way to the right place"):
        change = f"dn: {dn('officer-2')}\nchangetype: modify\nreplace: mail\nmail: x@example.org\n"
        entry = f"dn: {dn('new-1')}\nobjectClass: inetOrgPerson\ncn: x\nsn: x\n"
        for by in ("officer-2", ldap.people["registrar-1"]):
            for program, arguments, given in (
                ("ldapmodify", [], change), ("ldapadd", [], entry), ("ldapdelete", [dn("officer-2")], None),
                ("ldapmodrdn", [dn("officer-2"), "uid=x"], None),
            ):
                done = ldap.run(program, *arguments, by=by, code=UNWILLING, input=given)
                contains(done.stdout + done.stderr, "cordon directory import")
        done = ldap.run("ldappasswd", "-s", "another pass phrase", dn("officer-2"), by="officer-2", code=1)
        contains(done.stdout + done.stderr, "cordon directory password")
        ldap.run("ldapwhoami", by="officer-2")


def certificates(suite, ldap):
    folder = suite.folder
    letter, sealed = folder / "letter", folder / "sealed.eml"
    letter.write_text("Meet at gate 5.\n")

    def certificate_of(mail):
        found = ldap.search(f"(mail={mail})", "userCertificate;binary")
        return [value for entry in found.values() for value in entry.get("userCertificate;binary", [])]

    with suite.case("a letter is encrypted to a colleague who is found by mail, and the colleague opens it"):
        (der,) = certificate_of("reviewer-3@example.org")
        recipient = folder / "recipient.der"
        recipient.write_bytes(der)
        run_command("openssl", "x509", "-inform", "DER", "-in", recipient, "-out", folder / "recipient.pem")
        run_command("openssl", "cms", "-encrypt", "-aes256", "-in", letter, "-out", sealed, folder / "recipient.pem")
        key = ldap.people["reviewer-3"]
        opened = run_command("openssl", "cms", "-decrypt", "-in", sealed, "-recip", key.cert, "-inkey", key.key)
        equal(opened.stdout.replace("\r", "").strip(), letter.read_text().strip(), "letter")
        other = ldap.people["officer-2"]
        done = run_command("openssl", "cms", "-decrypt", "-in", sealed, "-recip", other.cert, "-inkey", other.key, code=None, text=False)
        assert done.returncode != 0 and b"gate" not in done.stdout, done.stdout
    with suite.case("a revoked certificate is not given any more, and the list that is given names it"):
        equal(len(certificate_of("leaver-1@example.org")), 1, "certificates")
        serial = run_command("openssl", "x509", "-in", ldap.people["leaver-1"].cert, "-noout", "-serial").stdout.strip().split("=")[1]
        ldap.site.ask("pki", "revoke", "--uid", "leaver-1")
        equal(certificate_of("leaver-1@example.org"), [], "certificates")
        entry = ldap.search("(cn=users)", "certificateRevocationList;binary", "cACertificate;binary")[f"cn=users,ou=authorities,{BASE}"]
        (folder / "users.crl").write_bytes(entry["certificateRevocationList;binary"][0])
        (folder / "users.der").write_bytes(entry["cACertificate;binary"][0])
        run_command("openssl", "x509", "-inform", "DER", "-in", folder / "users.der", "-out", folder / "users.pem")
        shown = run_command("openssl", "crl", "-inform", "DER", "-in", folder / "users.crl", "-CAfile", folder / "users.pem", "-noout", "-text")
        contains(shown.stderr, "verify OK")
        contains(shown.stdout, serial.lstrip("0"))
        ldap.run("ldapwhoami", by=ldap.people["leaver-1"], code=CREDENTIALS)
        ldap.run("ldapwhoami", by="leaver-1", code=CREDENTIALS)


def ends(suite, ldap):
    site = ldap.site
    with suite.case("a disabled person's open connection and new binds end at once, and the entry is gone"):
        connection = ldap.connect("mover-1")
        equal(connection.ask(search(BASE, equals("uid", "officer-2")))[:3:2], (0, 1), "search")
        began = time.monotonic()
        site.ask("directory", "disable", "--uid", "mover-1")
        code, said, entries, number = connection.ask(search(BASE, equals("uid", "officer-2")))
        equal((code, entries, number), (STRONGER, 0, 0), "notice of disconnection")
        contains(said, "bind again")
        equal(connection.receive(), None, "connection")
        assert time.monotonic() - began < 5, "it took more than five seconds"
        ldap.run("ldapwhoami", by="mover-1", code=CREDENTIALS)
        ldap.run("ldapwhoami", by=ldap.people["mover-1"], code=CREDENTIALS)
        equal(ldap.search("(uid=mover-1)", "1.1"), {}, "entry")
        site.ask("directory", "enable", "--uid", "mover-1")
        ldap.run("ldapwhoami", by="mover-1")
    with suite.case("a new password and a suspension end what the old ones bound"):
        connection = ldap.connect("mover-1")
        ldap.set_password("mover-1", "another pass phrase 48")
        equal(connection.ask(search(BASE, present("uid")))[0], STRONGER, "result")
        connection = ldap.connect("mover-1", password="another pass phrase 48")
        site.ask("registry", "suspend", "--uid", "mover-1")
        time.sleep(1.1)
        equal(connection.ask(search(BASE, present("uid")))[0], STRONGER, "result")
        site.ask("registry", "resume", "--uid", "mover-1")


def hostile(suite, ldap):
    site = ldap.site
    with suite.case("nothing is understood without TLS"):
        with socket.create_connection(("127.0.0.1", ldap.port), timeout=20) as plain:
            plain.sendall(element(0x30, b"\x02\x01\x01", bind(dn("officer-2"), PASSWORD)))
            try:
                equal(plain.recv(100), b"", "answer")
            except ConnectionResetError:
                pass
        done = run_command("ldapwhoami", "-x", "-H", f"ldap://127.0.0.1:{ldap.port}", "-ZZ", code=None)
        assert done.returncode != 0 and "anonymous" not in done.stdout, done.stdout
    with suite.case("names without a password, wrong passwords and unknown names are refused alike"):
        connection = ldap.connect()
        equal(connection.ask(bind(dn("officer-2"), ""))[0], UNWILLING, "a name without a password")
        answers = {connection.ask(bind(name, "wrong pass phrase"))[:2] for name in (dn("registrar-1"), dn("nobody"), dn("never-2"))}
        equal(answers, {(CREDENTIALS, "the name or the password is wrong")}, "answers")
        equal(connection.ask(bind(f"uid=officer-2,{BASE}", PASSWORD))[0], CREDENTIALS, "another place")
        equal(connection.ask(bind("officer-2", PASSWORD))[0], 34, "no name")
        plain = element(0x60, b"\x02\x01\x03", b"\x04\x00", element(0xA3, b"\x04\x05PLAIN", element(0x04, b"\0officer-2\0x")))
        equal(connection.ask(plain)[0], UNSUPPORTED, "SASL PLAIN")
        # A bind that failed ends the one before it.
        equal(connection.ask(bind(dn("officer-2"), PASSWORD))[0], 0, "bind")
        connection.ask(bind(dn("officer-2"), ""))
        equal(connection.ask(search(BASE, present("uid")))[0], INSUFFICIENT, "search")
    with suite.case("names and filters cannot be injected"):
        connection = ldap.connect()
        for name in (f"uid=officer-2\\,ou\\=people\\,{BASE.replace('=', chr(92) + '=')}", f"uid=*,ou=people,{BASE}", f"uid=officer-2)(uid=*,ou=people,{BASE}"):
            equal(connection.ask(bind(name, PASSWORD))[0], CREDENTIALS, name)
        bound = ldap.connect("officer-2")
        for value in ("*", "officer-2)(uid=*", "*)(objectClass=*", "\\2a", "officer-2\0"):
            equal(bound.ask(search(BASE, equals("uid", value)))[:3:2], (0, 0), value)
    with suite.case("deep and large filters are refused, and the connection or the next one works"):
        def nested(levels):
            query = present("uid")
            for _ in range(levels):
                query = element(0xA2, query)
            return query

        bound = ldap.connect("officer-2")
        equal(bound.ask(search(BASE, nested(20)))[0], 0, "20 levels")
        equal(bound.ask(search(BASE, nested(40)))[0], ADMIN_LIMIT, "40 levels")
        equal(bound.ask(search(BASE, nested(3000)))[0], PROTOCOL, "3000 levels")
        wide = element(0xA1, *[equals("uid", f"nobody-{n}") for n in range(300)])
        equal(bound.ask(search(BASE, wide))[0], ADMIN_LIMIT, "300 comparisons")
        equal(bound.ask(search(BASE, equals("uid", "officer-2")))[:3:2], (0, 1), "search")
        for query in (nested(10_000), equals("cn", "x" * 65_536), element(0xA1, *[present("cn")] * 20_000)):
            bound = ldap.connect("officer-2")
            # The header is enough: what follows it is not read.
            bound.begin(search(BASE, query))
            code, _, entries, number = bound.result()
            equal((code, entries, number), (PROTOCOL, 0, 0), "notice of disconnection")
            equal(bound.receive(), None, "connection")
    with suite.case("abandon storms end the connection that sends them"):
        storm = ldap.connect("officer-2")
        try:
            for _ in range(5000):
                storm.send(abandon(1))
        except OSError:
            pass
        try:
            equal(storm.result()[0], PROTOCOL, "notice")
        except OSError:
            pass
        equal(ldap.connect("officer-2").ask(search(BASE, present("uid")))[0], 0, "search")
    with suite.case("silent connections are bounded for each address, and keep nobody out"):
        idle = []
        for number in range(200):
            try:
                idle.append(socket.create_connection(("127.0.0.1", ldap.port), timeout=20, source_address=("127.0.0.9", 0)))
            except OSError:
                break
        ldap.run("ldapwhoami", by="officer-2")
        open_now = metric(site, 'cordon_listener_connections{listener="ldap",certificate="no"}')
        assert open_now <= 64 + 8, f"{open_now} connections"
        for one in idle:
            one.close()
    with suite.case("guesses lock the address that guesses, not the person"):
        codes = []
        guesser = Connection(ldap.port, site.root, "127.0.0.7")
        for number in range(8):
            codes.append(guesser.ask(bind(dn("registrar-1"), f"wrong pass phrase {number}"))[1])
        contains(codes[-1], "too many failed attempts")
        contains(guesser.ask(bind(dn("registrar-1"), PASSWORD))[1], "too many failed attempts")
        ldap.run("ldapwhoami", by="registrar-1")


def dovecot(suite, ldap):
    with suite.case("Dovecot logs people in by binds, and refuses a wrong password and a disabled person"):
        # Dovecot's processes run as users of their own.
        folder = Path(tempfile.mkdtemp(prefix="cordon-dovecot-"))
        suite.finally_do(shutil.rmtree, folder, True)
        folder.chmod(0o755)
        (folder / "run").mkdir()
        root = folder / "root.pem"
        root.write_bytes(ldap.site.root.read_bytes())
        (folder / "dovecot.conf").write_text(DOVECOT.format(folder=folder))
        (folder / "ldap.conf").write_text(DOVECOT_LDAP.format(url=ldap.url, root=root, base=BASE))
        process = Process(["dovecot", "-F", "-c", folder / "dovecot.conf"], folder / "out.log")
        suite.finally_do(process.kill)
        wait_for((folder / "run" / "auth-userdb").exists, process.tail)

        def login(uid, password):
            command = ["doveadm", "-c", folder / "dovecot.conf", "auth", "test", uid, password]
            return run_command(*command, code=None).returncode

        def log():
            return (folder / "dovecot.log").read_text()

        assert login("officer-2", PASSWORD) == 0, log()
        assert login("officer-2", "a wrong pass phrase") != 0, log()
        assert login("nobody-9", PASSWORD) != 0, log()
        ldap.site.ask("directory", "disable", "--uid", "reviewer-3")
        assert login("reviewer-3", PASSWORD) != 0, log()
        ldap.site.ask("directory", "enable", "--uid", "reviewer-3")
        assert login("reviewer-3", PASSWORD) == 0, log()
        equal(process.stop(), 0, "exit code of Dovecot")


def records(suite, ldap):
    with suite.case("binds, refusals and searches are in the log, without what was searched for"):
        binds = ldap.events("ldap.bind")
        methods = {(event["actor"]["id"], event["details"]["method"]) for event in binds}
        assert {("officer-2", "simple"), ("reviewer-3", "external")} <= methods, methods
        refused = [event for event in ldap.events("session.refuse") if event["resource"] == "ldap"]
        assert {"wrong-password", "locked-out"} <= {event["details"].get("code") for event in refused}, refused
        searches = ldap.events("directory.look-up")
        shapes = {event["details"]["filter"] for event in searches}
        assert "(mail=?)" in shapes, shapes
        assert "example.org" not in json.dumps(searches), searches
        # 20 in ten minutes are recorded one by one; the site was started twice.
        assert len([event for event in searches if event["actor"]["id"] == "officer-2"]) <= 40, len(searches)
    with suite.case("the log verifies"):
        ldap.site.stop()
        ldap.site.verify_audit()


def demo(suite):
    def start(*options, **files):
        command = [CORDON, "demo", "--data", suite.folder / "demo", "--violations", "1", *options]
        process = Process(command, suite.folder / "demo.log", **files)
        suite.finally_do(process.kill)
        return process

    with suite.case("the demo's JSON has address, authority and a bind that works"):
        process = start("--json")
        shown = process.answer(180)
        secret = suite.folder / "demo-secret"
        with open(shown["ldap_bind"]["password_file"]) as password:
            secret.write_text(password.read().strip())
        secret.chmod(0o600)
        environment = {"PATH": "/usr/bin:/bin", "LDAPTLS_CACERT": shown["ldap_ca_file"]}
        query = ["-LLL", "-H", shown["ldap_url"], "-x", "-D", shown["ldap_bind"]["dn"], "-y", secret, "-b", shown["ldap_base"]]
        found = run_command("ldapsearch", *query, "(mail=reviewer-3@example.org)", "cn", env=environment)
        contains(found.stdout, "cn: Example Reviewer")
        equal(process.stop(60), 0, "exit code")
    with suite.case("the command that the demo prints works in bash"):
        output = suite.folder / "demo.out"
        with output.open("wb") as file:
            process = start(stdout=file)
        printed = wait_for(lambda: re.search(r"^ *(LDAPTLS_CACERT=.*?\\\n.*)$", output.read_text(), re.M), process.tail, 180)
        found = run_command("bash", "-c", printed[1], env={"PATH": "/usr/bin:/bin"})
        contains(found.stdout, "cn: Example Reviewer")
        equal(process.stop(60), 0, "exit code")


def run(suite):
    ldap = Ldap(suite)
    reading(suite, ldap)
    limits(suite, ldap)
    certificates(suite, ldap)
    ends(suite, ldap)
    dovecot(suite, ldap)
    replica(suite, ldap)
    hostile(suite, ldap)
    records(suite, ldap)
    demo(suite)
