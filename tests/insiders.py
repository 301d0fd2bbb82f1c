"""What insiders do is in the log: administrators by certificate, cameras' journals from end to end."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess

from tests.harness import CORDON, Camera, Person, Site, contains, cordon, cordon_json, equal, jpeg, wait_for
from tests.harness import run as run_command


def events(site, *actions):
    shown = cordon_json("audit", "show", site.data / "audit" / "log", "--last", 1_000_000)
    found = [entry["leaf"]["event"] for entry in shown["entries"]]
    return [event for event in found if event["action"] in actions]


def run(suite):
    administrators(suite)
    journals(suite)
    databases(suite)
    owners(suite)


def administrators(suite):
    site = Site(suite, "commands").start()
    site.people()
    keeper = {
        "uid": "keeper-1", "name": "Keeper", "email": "keeper@example.org", "organisation": "LEA-EU",
        "clearance": 1, "roles": ["administrator"], "units": ["traffic"],
    }
    registrar = {**keeper, "uid": "registrar-1", "name": "Registrar", "roles": ["registrar"]}
    people = {}
    for person in (keeper, registrar):
        file = site.folder / f"{person['uid']}.jsonl"
        file.write_text(json.dumps(person) + "\n")
        site.ask("directory", "import", file)
        p12 = site.folder / f"{person['uid']}.p12"
        site.ask("pki", "issue-user", "--uid", person["uid"], "--out", p12)
        people[person["uid"]] = Person(site, p12, p12.with_name(f"{p12.name}.password"), site.folder)
    officer = Person(site, site.folder / "officer-2.p12", site.folder / "officer-2.p12.password", site.folder)
    site.stop()
    site.config.write_text(site.config.read_text() + '\n[administration]\nrequire = "certificate"\n')
    site.start()

    def give(*command, by=None, code=0):
        proof = ["--as", by.p12, "--as-password-file", by.p12.with_name(f"{by.p12.name}.password")] if by else []
        return cordon(*command, *site.arguments(), *proof, "--log", "off", code=code)

    def last(action):
        return events(site, action)[-1]

    disable = ("directory", "disable", "--uid", "reviewer-3")
    with suite.case("without a certificate nothing is changed or handed out, and the refusal is an event"):
        for command in (disable, ("registry", "code", "--device", "camera-20", "--out", site.folder / "no")):
            contains(give(*command, code=1).stderr, "needs a certificate")
        assert not (site.folder / "no").exists()
        refusal = last("administration.refuse")
        equal((refusal["outcome"], refusal["details"]["command"]), ("deny", "code"))
        assert refusal["actor"]["id"].startswith("unix:"), refusal
        give("directory", "list")
    with suite.case("an administrator's command is that person's act, with the Unix user beside"):
        give(*disable, by=people["keeper-1"])
        (change,) = events(site, "directory.disable") or [events(site, "directory.change")[-1]]
        equal(change["actor"]["id"], "keeper-1")
        contains(change["actor"]["name"], "as unix:")
    with suite.case("a registrar enrols but does not keep the directory; an officer does neither"):
        give("registry", "code", "--device", "camera-20", "--out", site.folder / "yes", by=people["registrar-1"])
        equal(last("enrolment.invite")["actor"]["id"], "registrar-1")
        enable = ("directory", "enable", "--uid", "reviewer-3")
        contains(give(*enable, by=people["registrar-1"], code=1).stderr, "may not directory.write")
        contains(give(*enable, by=officer, code=1).stderr, "may not directory.write")
        equal(last("administration.refuse")["actor"]["id"], "officer-2")
    with suite.case("a PEM file with an encrypted key does as well, a revoked certificate does not"):
        pem = site.folder / "keeper.pem"
        secret = site.folder / "keeper-1.p12.password"
        key = site.folder / "keeper.key"
        command = ["openssl", "pkcs8", "-topk8", "-in", people["keeper-1"].key, "-passout", f"file:{secret}", "-v2", "aes256",
                   "-out", key]
        subprocess.run([str(part) for part in command], check=True, capture_output=True)
        pem.write_text(people["keeper-1"].cert.read_text() + key.read_text())
        cordon("directory", "enable", "--uid", "reviewer-3", *site.arguments(), "--as", pem, "--as-password-file", secret)
        revoke = ("pki", "revoke", "--uid", "registrar-1", "--reason", "key-compromise")
        give(*revoke, by=people["keeper-1"])
        contains(give(*revoke, by=people["registrar-1"], code=1).stderr, "refused")
    with suite.case("without a running site the same is demanded, and the event says that it was offline"):
        site.stop()
        contains(give(*disable, code=1).stderr, "needs a certificate")
        give(*disable, by=people["keeper-1"])
        (change,) = events(site, "directory.disable")[-1:] or events(site, "directory.change")[-1:]
        equal(change["actor"]["id"], "keeper-1")
        contains(change["actor"]["name"], "site not running")
    with suite.case("demands fall neither with a configuration that nobody names nor with the demo"):
        before = events(site, "settings.change")
        refusal = cordon(*disable, "--data", site.data, "--log", "off", code=1).stderr
        contains(refusal, 'administration.require = "certificate"')
        contains(refusal, "--config")
        contains(cordon("demo", "--once", "--data", site.data, "--log", "off", code=1).stderr, "not made by the demo")
        contains(cordon("demo", "--once", *site.arguments(), "--log", "off", code=1).stderr, "not made by the demo")
        equal(events(site, "settings.change"), before)
    site.verify_audit()


def journals(suite):
    site = Site(suite, "journals").start()
    camera = Camera(site)
    seen = ("camera.start", "camera.stop", "camera.enrol", "camera.settings", "camera.accept-log", "camera.clock",
            "camera.journal-gap", "camera.journal-fork")

    pictures = iter(range(1000))

    def told():
        return [event["action"] for event in events(site, *seen)]

    def deliver():
        camera.drop(f"picture-{next(pictures)}", jpeg(b"a picture", 1_000))
        camera.drain()

    def arrives(*actions):
        """Pictures bring contacts, and contacts the journal."""

        def there():
            deliver()
            return told() == list(actions)

        wait_for(there, lambda: f"{actions} in the site's log: {told()}", 30, pause=1)

    with suite.case("what was done to a camera is in the site's log, under the camera's name, once"):
        camera.start()
        arrives("camera.start", "camera.enrol")
        camera.stop()
        cordon("camera", "accept-log", "--config", camera.config)
        text = camera.config.read_text()
        camera.config.write_text(text.replace("[uplink]", "[uplink]\nparallel = 1"))
        camera.start()
        life = ["camera.start", "camera.enrol", "camera.stop", "camera.accept-log", "camera.start", "camera.settings"]
        arrives(*life)
        for event in events(site, *seen):
            equal((event["actor"]["id"], event["resource"]), ("camera-17", "camera/camera-17"))
            assert event["details"]["address"] and event["details"]["camera_at"], event
        command = events(site, "camera.accept-log")[0]
        assert command["details"]["by"].startswith("unix:"), command
    with suite.case("a command while the agent runs is in its journal too"):
        cordon("camera", "accept-log", "--config", camera.config)
        arrives(*life, "camera.accept-log")
    with suite.case("every record of the camera's journal is in the log, with its number"):
        everything = [e for e in events(site, *all_actions(site)) if e["action"].startswith("camera.")]
        told_numbers = [event["details"]["journal_seq"] for event in everything]
        equal(told_numbers, numbers(camera)[: len(told_numbers)])
    with suite.case("a journal that was removed and begun anew is a fork"):
        camera.process.kill()
        journal = camera.folder / "spool" / "journal"
        shutil.rmtree(journal)
        camera.start()
        wait_for(lambda: deliver() or events(site, "camera.journal-fork"), "the fork", 30, pause=1)
        fork = events(site, "camera.journal-fork")[0]
        equal((fork["actor"]["id"], fork["outcome"]), ("camera-17", "fail"))
    camera.stop()
    site.stop()
    site.verify_audit()


def databases(suite):
    """Somebody with the disk writes to what decides who somebody is."""
    site = Site(suite, "databases").start()
    site.people()
    site.ask("registry", "code", "--device", "camera-9", "--out", site.folder / "camera-9")

    def write(file, *statements):
        with contextlib.closing(sqlite3.connect(site.data / file)) as database, database:
            for statement in statements:
                database.execute(statement)

    person = "UPDATE people SET clearance = {} WHERE uid = 'officer-2'"
    code = "UPDATE one_time_codes SET verifier = {} WHERE device = 'camera-9'"
    with contextlib.closing(sqlite3.connect(site.data / "registry.sqlite")) as database:
        ((verifier,),) = database.execute("SELECT hex(verifier) FROM one_time_codes").fetchall()
    with contextlib.closing(sqlite3.connect(site.data / "directory.sqlite")) as database:
        ((clearance,),) = database.execute("SELECT clearance FROM people WHERE uid = 'officer-2'").fetchall()
    changes = (
        ("directory.sqlite", person.format(4), person.format(clearance)),
        ("registry.sqlite", code.format("x'00'"), code.format(f"x'{verifier}'")),
    )
    with suite.case("rights and codes that somebody writes into the databases end a running site, which does not start again"):
        for file, change, back in changes:
            write(file, change)
            wait_for(lambda: not site.process.running(), site.process.tail, 20)
            contains(site.process.tail(), "was changed by something else than this program")
            error = json.loads(cordon("up", *site.arguments(), "--json", "--log", "off", code=1, timeout=120).stderr)
            contains(error["error"], "was changed by something else than this program")
            contains(error["to_do"], "newest copy of the data folder")
            write(file, back)
            site.start()
    with suite.case("so does another file under the name, and a database in which the site is kept from looking"):
        site.stop()
        directory = site.data / "directory.sqlite"
        other = site.folder / "other.sqlite"
        shutil.copy(directory, other)
        with contextlib.closing(sqlite3.connect(other)) as database, database:
            database.execute(person.format(4))
        site.start()
        other.rename(directory.with_suffix(".new"))
        directory.rename(other)
        directory.with_suffix(".new").rename(directory)
        wait_for(lambda: not site.process.running(), site.process.tail, 20)
        contains(site.process.tail(), "not the file any more")
        for beside in ("-wal", "-shm"):
            (site.data / f"directory.sqlite{beside}").unlink(missing_ok=True)
        other.rename(directory)
        site.start()
        with contextlib.closing(sqlite3.connect(directory, timeout=20, isolation_level=None)) as database:
            for statement in ("BEGIN IMMEDIATE", person.format(4), "COMMIT", "BEGIN IMMEDIATE"):
                database.execute(statement)
            wait_for(lambda: not site.process.running(), site.process.tail, 60)
            contains(site.process.tail(), "keeps the database locked")
        write("directory.sqlite", person.format(clearance))
        site.start()
    with suite.case("so do a trigger and the databases of before the last change, after an orderly end"):
        site.stop()
        older, newest = site.folder / "older", site.folder / "newest"

        def put(file, source, target):
            """Copies a database with what belongs to it, in the place of what is there."""
            target.mkdir(exist_ok=True)
            for there in target.glob(f"{file}*"):
                there.unlink()
            for part in source.glob(f"{file}*"):
                shutil.copy(part, target)

        for file, _, _ in changes:
            put(file, site.data, older)
        site.start()
        site.ask("registry", "code", "--device", "camera-10", "--out", site.folder / "camera-10")
        site.ask("directory", "disable", "--uid", "officer-2")
        site.stop()
        for file, _, _ in changes:
            put(file, site.data, newest)
            put(file, older, site.data)
            cordon("up", *site.arguments(), "--log", "off", code=1, timeout=120)
            put(file, newest, site.data)
            table = {"directory.sqlite": "people", "registry.sqlite": "issued"}[file]
            write(file, f"CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END")
            contains(cordon("up", *site.arguments(), "--log", "off", code=1, timeout=120).stderr, "trigger t in the database")
            write(file, "DROP TRIGGER t")
        site.start()
        site.stop()
        site.verify_audit()


def owners(suite):
    """Commands of other Unix users on a stopped site."""
    owner = 4711
    site = Site(suite, "owner").start()
    site.people()
    site.stop()

    def folders():
        return [site.data, *site.data.rglob("*")]

    def foreign():
        return [str(path) for path in folders() if path.lstat().st_uid != owner]

    # The way to it may be closed to others: a test's folder is its owner's.
    closed = {path: path.stat().st_mode & 0o7777 for path in site.data.parents if not path.stat().st_mode & 1}
    for path, mode in closed.items():
        path.chmod(mode | 1)
    for path in folders():
        os.lchown(path, owner, owner)
    with suite.case("a command of root on a stopped site leaves every file to the owner of the folder"):
        site.ask("registry", "code", "--device", "camera-30", "--out", site.folder / "camera-30")
        site.ask("directory", "disable", "--uid", "officer-2")
        cordon("evidence", "rebuild-index", *site.arguments(), "--log", "off")
        equal(foreign(), [], "files of others")
        equal((site.folder / "camera-30" / "code").stat().st_uid, 0, "owner of the output")
        equal(events(site, "directory.disable")[-1]["actor"]["id"], "unix:0", "actor")
    with suite.case("root does not run the site of another user"):
        refused = cordon("up", *site.arguments(), "--log", "off", code=1)
        contains(refused.stderr, "belongs to user 4711")
        contains(refused.stderr, "sudo -u '#4711'")
        equal(foreign(), [], "files of others")
    with suite.case("the owner goes on with the folder"):
        program = site.folder / "cordon"
        shutil.copy(CORDON, program)
        user = ["setpriv", "--reuid", owner, "--regid", owner, "--clear-groups"]
        listed = run_command(*user, program, "directory", "list", *site.arguments(), "--json")
        contains(listed.stdout, "officer-2")
        equal(foreign(), [], "files of others")


def all_actions(site):
    shown = cordon_json("audit", "show", site.data / "audit" / "log", "--last", 1_000_000)
    return {entry["leaf"]["event"]["action"] for entry in shown["entries"]}


def numbers(camera):
    """Numbers of the records in the camera's journal."""
    found = []
    for segment in sorted((camera.folder / "spool" / "journal").glob("*.journal")):
        data = segment.read_bytes()
        at = 48
        while at + 4 <= len(data):
            length = int.from_bytes(data[at : at + 4], "big")
            found.append(json.loads(data[at + 4 : at + 4 + length])["seq"])
            at += 4 + length + 32
    return found
