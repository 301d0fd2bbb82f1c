"""A slapd that keeps a copy of the directory (RFC 4533), with the configuration in `packaging/slapd`."""

import base64
import json

from tests.harness import ROOT, Process, contains, equal, run, wait_for

PACKAGED = ROOT / "packaging" / "slapd"
# Operational attributes that slapd makes itself.
OWN = ("entryCSN", "modifiersName", "creatorsName", "createTimestamp", "modifyTimestamp", "contextCSN", "hasSubordinates", "subschemaSubentry")


def entries(text):
    """Attributes of each entry of an LDIF, as sets. slapd escapes a comma in a name by its number."""
    text = text.replace("\\2C", "\\,")
    found = {}
    for block in text.strip().split("\n\n"):
        name, entry = None, {}
        for line in block.splitlines():
            key, _, value = line.partition(": ")
            if key.endswith(":"):
                key, value = key[:-1], base64.b64decode(value).decode(errors="surrogateescape")
            if key == "dn":
                name = value
            elif key and not key.startswith("#") and key not in OWN:
                entry.setdefault(key, set()).add(value)
        if name is not None:
            found[name] = entry
    return found


class Replica:
    """slapd on a socket of this host."""

    def __init__(self, suite, ldap, person):
        self.folder = suite.folder / "slapd"
        for part in (self.folder, self.folder / "config", self.folder / "db"):
            part.mkdir()
        words = {
            "FOLDER": self.folder, "SCHEMA": PACKAGED / "cordon.ldif", "BASE": "o=LEA-EU", "URL": ldap.url, "INTERVAL": "00:00:00:01",
            "CERTIFICATE": person.cert, "KEY": person.key, "ROOT": ldap.site.root,
        }
        text = (PACKAGED / "replica.ldif").read_text()
        for word, value in words.items():
            text = text.replace(word, str(value))
        config = self.folder / "config.ldif"
        config.write_text(text)
        run("slapadd", "-F", self.folder / "config", "-n", "0", "-l", config)
        self.url = f"ldapi://{str(self.folder / 'socket').replace('/', '%2F')}"
        self.log = self.folder / "slapd.log"
        command = ["slapd", "-F", self.folder / "config", "-h", self.url, "-d", "sync"]
        self.process = Process(command, self.log)
        suite.finally_do(self.process.kill)
        wait_for((self.folder / "socket").exists, self.process.tail)

    def entries(self):
        command = ["ldapsearch", "-LLL", "-o", "ldif-wrap=no", "-H", self.url, "-Y", "EXTERNAL", "-Q", "-b", "o=LEA-EU", "(objectClass=*)", "*", "+"]
        done = run(*command, code=None)
        return entries(done.stdout)


def replica(suite, ldap):
    person = ldap.people["registrar-1"]

    def site_entries():
        return entries(ldap.run(
            "ldapsearch", "-LLL", "-o", "ldif-wrap=no", "-b", "o=LEA-EU", "-E", "pr=500/noprompt", "(objectClass=*)", "*", "+", by=person,
        ).stdout)

    def equal_soon():
        def what():
            ours, theirs = site_entries(), copy.entries()
            names = {name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)}
            return f"these to be equal: {[(name, ours.get(name), theirs.get(name)) for name in list(names)[:2]]!r:.3000}\n{copy.process.tail()}"

        wait_for(lambda: site_entries() == copy.entries(), what, 20, 0.3)

    with suite.case("a slapd follows: the same entries with the same UUIDs, certificates and clearance"):
        copy = Replica(suite, ldap, person)
        equal_soon()
        shown = copy.entries()["uid=registrar-1,ou=people,o=LEA-EU"]
        equal((shown["cordonClearance"], len(shown["userCertificate;binary"]), len(shown["entryUUID"])), ({"4"}, 1, 1))
    with suite.case("people who come, change and go do so in the copy"):
        person_1 = {
            "uid": "comer-1", "name": "A Comer", "email": "comer-1@example.org", "organisation": "LEA-EU", "clearance": 1, "roles": ["officer"],
            "units": ["harbour, north"],
        }
        file = suite.folder / "comer.jsonl"
        file.write_text(json.dumps(person_1) + "\n")
        ldap.site.ask("directory", "import", file)
        equal_soon()
        contains(copy.entries(), "uid=comer-1,ou=people,o=LEA-EU")
        file.write_text(json.dumps(person_1 | {"email": "moved@example.org"}) + "\n")
        ldap.site.ask("directory", "import", file)
        equal_soon()
        equal(copy.entries()["uid=comer-1,ou=people,o=LEA-EU"]["mail"], {"moved@example.org"})
        ldap.site.ask("directory", "disable", "--uid", "comer-1")
        equal_soon()
        assert "uid=comer-1,ou=people,o=LEA-EU" not in copy.entries()
    with suite.case("both are equal again after the site was killed, and after slapd was"):
        ldap.site.process.kill()
        ldap.site.start()
        equal_soon()
        copy.process.kill()
        ldap.site.ask("directory", "enable", "--uid", "comer-1")
        command = ["slapd", "-F", copy.folder / "config", "-h", copy.url, "-d", "sync"]
        (copy.folder / "socket").unlink()
        copy.process = Process(command, copy.log)
        suite.finally_do(copy.process.kill)
        wait_for((copy.folder / "socket").exists, copy.process.tail)
        equal_soon()
        contains(copy.entries(), "uid=comer-1,ou=people,o=LEA-EU")
    with suite.case("what did not change is not sent again"):
        seen = copy.log.read_text().count("LDAP_RES_SEARCH_ENTRY")
        wait_for(lambda: copy.log.read_text().count("syncrepl") > 0, copy.process.tail)
        done = copy.log.read_text().count("LDAP_RES_SEARCH_RESULT")
        wait_for(lambda: copy.log.read_text().count("LDAP_RES_SEARCH_RESULT") >= done + 3, copy.process.tail, 20)
        equal(copy.log.read_text().count("LDAP_RES_SEARCH_ENTRY"), seen, "entries that were received")
    with suite.case("copies are for those who see everything, and in refreshOnly"):
        ldap.run("ldapsearch", "-b", "o=LEA-EU", "-E", "!sync=ro", by="officer-2", code=50)
        done = ldap.run("ldapsearch", "-b", "o=LEA-EU", "-E", "!sync=rp", by=person, code=53)
        contains(done.stdout + done.stderr, "refreshOnly")
    equal(copy.process.stop(), 0, "exit code of slapd")
