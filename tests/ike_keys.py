"""`cordon vpn up`: private keys in a process of their own, on tokens, several certificates, OCSP."""

import contextlib
import os
import re
import signal
from pathlib import Path

from tests.harness import Process, contains, equal, run as execute, wait_for
from tests.ike_lab import (
    Daemon, Lab, certificate_auth, connection, initiate, mirrored, pair
)

SOFTHSM = "/usr/lib/softhsm/libsofthsm2.so"
PIN = "2468"


def parent(pid):
    """None when there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def signer_of(daemon):
    """The process with the daemon's private keys."""
    pid = daemon.process.child.pid
    children = [int(name) for name in os.listdir("/proc") if name.isdigit() and parent(name) == pid]
    equal(len(children), 1, "child processes")
    return children[0]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def remembers(pid, needles):
    """Which of these are anywhere in a process's memory."""
    found = set()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            begin, end, rights = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line).groups()
            if not rights.startswith("rw"):
                continue
            begin, end = int(begin, 16), int(end, 16)
            try:
                memory.seek(begin)
                part = memory.read(end - begin)
            except OSError:
                continue
            found |= {name for name, needle in needles.items() if needle in part}
    return found


def traces(file):
    """A P-256 key as it could be found in memory."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    text = Path(file).read_bytes()
    key = load_pem_private_key(text, None)
    lines = text.split(b"-----BEGIN PRIVATE KEY-----\n")[1].splitlines()
    return {"number": key.private_numbers().private_value.to_bytes(32, "big"), "text": lines[1]}


def processes(suite, lab):
    folder = lab.pki("ecdsa")
    top = f'trust = {{ anchors = ["{folder}/ca.pem"] }}'
    # As a camera has it: certificate and key in one file.
    both = folder / "identity.pem"
    both.touch(mode=0o600)
    both.write_bytes((folder / "ours.pem").read_bytes() + (folder / "ours.key").read_bytes())
    one_file = f'certificate = "{both}"\nkey = "{both}"'
    theirs = mirrored(auth=certificate_auth(folder, "theirs"), suite=None)
    for name, auth in [("a file of its own", certificate_auth(folder)), ("the file of the certificate", one_file)]:
        with suite.case(f"the daemon's memory has no private key, that of the signer has: {name}"):
            stack, ours, _ = pair(lab, connection(auth=auth, suite=None), theirs, top, top)
            with stack:
                ours.up()
                # Once more while keys are in use, and with everything read again.
                ours.tell("down", "peer")
                wait_for(lambda: ours.sas() == [], "no IKE SA")
                ours.tell("reload")
                ours.tell("connect", "peer")
                ours.up()
                needles = traces(folder / "ours.key")
                contains(remembers(signer_of(ours), needles), "number")
                equal(remembers(ours.process.child.pid, needles), set(), "traces in the daemon")
    with suite.case("the signer has no rights, no network, and can be neither debugged nor dumped"):
        stack, ours, _ = pair(lab, connection(auth=certificate_auth(folder), suite=None), theirs, top, top)
        with stack:
            ours.up()
            signer = signer_of(ours)
            status = dict(re.findall(r"(\w+):\s+(\S+)", Path(f"/proc/{signer}/status").read_text()))
            # Reading files of others is all that is left of root.
            equal(int(status["CapPrm"], 16) & ~(1 << 2), 0, "capabilities")
            equal((status["NoNewPrivs"], status["Seccomp"], status["Threads"]), ("1", "2", "1"), "status")
            files = [os.readlink(f"/proc/{signer}/fd/{fd}").split(":")[0] for fd in os.listdir(f"/proc/{signer}/fd")]
            equal(sorted(files), sorted(["socket", "/dev/null", str(ours.folder / "log")]), "open files")
            # Not dumpable: its files in /proc are root's whoever it runs as, and there is no core.
            os.kill(signer, signal.SIGTERM)
            os.kill(signer, signal.SIGINT)
            ours.tell("down", "peer")
            ours.tell("connect", "peer")
            ours.up()
            assert is_alive(signer)
    with suite.case("the signer ends with the daemon, also with one that is killed"):
        ours = Daemon(lab, "client", connection(auth=certificate_auth(folder), start="none"), top).start()
        try:
            signer = signer_of(ours)
            os.kill(ours.process.child.pid, signal.SIGKILL)
            wait_for(lambda: not is_alive(signer), "its end", 5)
        finally:
            ours.process.kill()
    with suite.case("the daemon ends in an orderly way with its signer, and says so"):
        ours = Daemon(lab, "client", connection(auth=certificate_auth(folder), suite=None), top)
        with Daemon(lab, "server", theirs, top) as gateway:
            ours.start()
            try:
                ours.up()
                os.kill(signer_of(ours), signal.SIGKILL)
                equal(ours.process.child.wait(20), 1, "exit code")
                contains(ours.log(), "the process with the private keys ended (signal: 9 (SIGKILL))")
                gateway.says("IKE SA down", "closed by the peer")
            finally:
                ours.process.kill()


class Token:
    """A SoftHSM token with one key and its certificate."""

    def __init__(self, folder, pki):
        self.folder = folder
        (folder / "tokens").mkdir(parents=True)
        config = folder / "softhsm2.conf"
        config.write_text(f"directories.tokendir = {folder}/tokens\nobjectstore.backend = file\n")
        os.environ["SOFTHSM2_CONF"] = str(config)
        self.tool("softhsm2-util", "--init-token", "--free", "--label", "The card", "--so-pin", "13579", "--pin", PIN)
        self.tool(
            "softhsm2-util", "--import", pki / "ours.key", "--token", "The card", "--label", "officer", "--id", "a1",
            "--pin", PIN,
        )
        execute("openssl", "x509", "-in", pki / "ours.pem", "-outform", "DER", "-out", folder / "ours.der")
        self.tool(
            "pkcs11-tool", "--module", SOFTHSM, "--token-label", "The card", "--login", "--pin", PIN,
            "--write-object", folder / "ours.der", "--type", "cert", "--label", "officer", "--id", "a1",
        )

    @staticmethod
    def tool(*command):
        execute(*command)

    @staticmethod
    def uri(kind, what="token=The%20card;object=officer;id=%a1"):
        return f"pkcs11:{what};type={kind}?module-path={SOFTHSM}"


def tokens(suite, lab):
    for kind in ["rsa", "ecdsa"]:
        folder = lab.pki(kind)
        token = Token(lab.suite.folder / f"token-{kind}", folder)
        pin = lab.suite.folder / f"pin-{kind}"
        pin.touch(mode=0o600)
        pin.write_text(f"{PIN}\n")
        auth = f'certificate = "{token.uri("cert")}"\nkey = "{token.uri("private")}"\npassphrase_file = "{pin}"'
        top = f'trust = {{ anchors = ["{folder}/ca.pem"] }}'
        for by in ["ours", "theirs"]:
            with suite.case(f"{kind}: certificate and key are on a token, charon is the peer, started by {by}"):
                text = connection(auth=auth, start="start" if by == "ours" else "none")
                with lab.charon(pki=folder) as charon, Daemon(lab, "client", text, top) as ours:
                    initiate(by, ours, charon)
                    lab.ping()
                    contains(charon.log(), "authentication of 'ours.example.org' with")
        if kind == "ecdsa":
            refusals(suite, lab, token, pin, auth, top)
            with suite.case("eap-tls signs on the token as well"):
                login = 'login = { name = "ours.example.org", method = "tls" }'
                text = connection(auth=auth, local_id=None, extra=login)
                charon = {"remote_auth": "eap-tls", "remote_eap": "eap_id = %any", "remote_id": "%any"}
                with lab.charon(pki=folder, **charon) as theirs, Daemon(lab, "client", text, top) as ours:
                    initiate("ours", ours, theirs)
                    lab.ping()
        os.environ.pop("SOFTHSM2_CONF")


def refusals(suite, lab, token, pin, auth, top):
    other, same = lab.pki("rsa"), lab.pki("ecdsa")
    wrong = pin.with_name("wrong-pin")
    wrong.touch(mode=0o600)
    wrong.write_text("1111\n")
    swap = lambda file: re.sub("certificate = .*", f'certificate = "{file}"', auth)
    # The wrong PIN last: it counts.
    for name, text, reason in [
        ("another certificate's key", swap(same / "theirs.pem"), "`key` is not the key of `certificate`"),
        ("another kind of key", swap(other / "ours.pem"), "of another kind than the certificate's"),
        ("no such key", auth.replace("object=officer", "object=nobody"), "there is no certificate of that name"),
        ("no such token", auth.replace("The%20card", "Another"), "there is no token of that name"),
        ("a PIN in the name", auth.replace("?module", "?pin-value=2468&module"), "a PIN does not belong here"),
        ("a wrong PIN", auth.replace(str(pin), str(wrong)), "the token says"),
    ]:
        with suite.case(f"token: {name} is refused in one line"):
            # Without a session with the token: while there is one, every PIN is right.
            with Daemon(lab, "client", connection(start="none"), f'folders = ["{other}"]\n{top}') as ours:
                ours.write(connection(auth=text))
                contains(ours.tell("reload", code=1).stderr, reason)
                equal([row["name"] for row in ours.ike()["connections"]], ["peer"], "connections")
                # It goes on with the right one.
                ours.write(connection(auth=auth, start="none"))
                equal(ours.ask("reload")["changed"], ["peer"], "changed")


def several(suite, lab):
    kinds = {"ecdsa": lab.pki("ecdsa"), "rsa": lab.pki("rsa")}
    further = kinds["rsa"]
    second = f'further_certificates = [{{ certificate = "{further}/ours.pem", key = "{further}/ours.key" }}]'
    anchors = ", ".join(f'"{folder}/ca.pem"' for folder in kinds.values())
    for kind, folder in kinds.items():
        # Both authorities have the same name, so the keys decide.
        with suite.case(f"the peer trusts the {kind} authority only and gets the certificate of that one"):
            top, theirs_top = f"trust = {{ anchors = [{anchors}] }}", f'trust = {{ anchors = ["{folder}/ca.pem"] }}'
            text = connection(auth=certificate_auth(kinds["ecdsa"]), suite=None, extra=second)
            # Whole chains, so that each certificate's authority is known by its key.
            theirs = mirrored(auth=certificate_auth(folder, "theirs"), suite=None)
            stack, ours, gateway = pair(lab, text, theirs, top, theirs_top)
            with stack:
                ours.up()
                gateway.up()
    with suite.case("a further certificate must be for the same name, and its key its own"):
        top = f"trust = {{ anchors = [{anchors}] }}"
        with Daemon(lab, "client", connection(auth=certificate_auth(kinds["ecdsa"])), top) as ours:
            for change, reason in [
                (second.replace("/ours.", "/theirs."), "our certificate does not say that we are ours.example.org"),
                (second.replace("ours.key", "theirs.key"), "`key` is not the key of `certificate`"),
            ]:
                ours.write(connection(auth=certificate_auth(kinds["ecdsa"]), extra=change))
                contains(ours.tell("reload", code=1).stderr, reason)


def index(folder, name, status):
    """What OpenSSL's responder is to say: V(alid), R(evoked), or None: it does not know the certificate."""
    number = execute("openssl", "x509", "-in", folder / f"{name}.pem", "-noout", "-serial").stdout.split("=")[1].strip()
    when = "260101000000Z" if status == "R" else ""
    line = f"{status}\t301231235959Z\t{when}\t{number}\tunknown\t/CN={name}\n"
    (folder / "index").write_text(line if status else "")
    (folder / "index.attr").write_text("")


def respond(folder, name, status):
    """What OpenSSL's responder says of a certificate, in a file."""
    index(folder, name, status)
    response = folder / f"{name}-{status}.ocsp"
    execute(
        *"openssl ocsp -index index -rsigner ca.pem -rkey ca.key -CA ca.pem -issuer ca.pem".split(),
        *["-cert", f"{name}.pem", "-respout", response, "-ndays", "1", "-noverify"],
        cwd=folder,
    )
    return response


def ocsp(suite, lab):
    folder = lab.pki("ecdsa")
    good, bad = respond(folder, "ours", "V"), respond(folder, "ours", "R")
    auth = certificate_auth(folder)
    theirs = mirrored(auth=certificate_auth(folder, "theirs"), suite=None)
    plain = f'trust = {{ anchors = ["{folder}/ca.pem"] }}'
    for policy, response, reason in [
        ("required", good, None),
        ("required", None, "no current OCSP response for the certificate of ours.example.org"),
        ("required", bad, "was revoked at 2026-01-01T00:00:00Z (an OCSP responder says)"),
        ("if-given", good, None),
        ("if-given", None, None),
        ("if-given", bad, "was revoked at 2026-01-01T00:00:00Z (an OCSP responder says)"),
        ("off", bad, None),
    ]:
        shown = {good: "good", bad: "revoked", None: "none"}[response]
        with suite.case(f'ocsp = "{policy}" and a response "{shown}": {"refused" if reason else "up"}'):
            strict = f'trust = {{ anchors = ["{folder}/ca.pem"], ocsp = "{policy}" }}'
            extra = f'ocsp_response = "{response}"' if response else ""
            stack, ours, gateway = pair(lab, connection(auth=auth, suite=None, extra=extra), theirs, plain, strict)
            with stack:
                if reason:
                    gateway.says("WARN", "negotiation of", reason)
                    ours.says("WARN", "peer refused with AUTHENTICATION_FAILED")
                    equal(gateway.children(), [], "children")
                else:
                    gateway.up()


class Responder:
    """OpenSSL's OCSP responder on the gateway's loopback; or somebody there who never answers."""

    SILENT = "import socket, time; s = socket.create_server(('127.0.0.1', {})); time.sleep(600)"

    def __init__(self, lab, folder, status, port=8098, silent=False):
        self.url = f"http://127.0.0.1:{port}/"
        if silent:
            command = ["python3", "-c", self.SILENT.format(port)]
        else:
            index(folder, "ours", status)
            command = f"openssl ocsp -port {port} -index index -rsigner ca.pem -rkey ca.key -CA ca.pem -ndays 1".split()
        command = lab.network.command("server", *command)
        self.process = Process(command, lab.suite.folder / "responder.log", cwd=folder)
        listens = lambda: f":{port} " in lab.network.run("server", "ss", "-ltn").stdout
        wait_for(listens, lambda: f"a responder: {self.process.tail()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()


def asking(suite, lab):
    folder = lab.pki("ecdsa")
    one = connection(auth=certificate_auth(folder), suite=None)
    two = mirrored(auth=certificate_auth(folder, "theirs"), suite=None)
    plain = f'trust = {{ anchors = ["{folder}/ca.pem"] }}'
    url, other = "http://127.0.0.1:8098/", "http://127.0.0.1:8097/"
    missing = "no current OCSP response for the certificate of ours.example.org"
    revoked = "was revoked at 2026-01-01T00:00:00Z (an OCSP responder says)"

    def trust(policy, *urls):
        named = ", ".join(f'"{url}"' for url in urls)
        named = f"[{named}]" if len(urls) > 1 else named
        return f'trust = {{ anchors = ["{folder}/ca.pem"], ocsp = "{policy}", ocsp_responder = {named} }}'

    @contextlib.contextmanager
    def both(policy, *urls):
        stack, ours, gateway = pair(lab, one, two, plain, trust(policy, *urls))
        with stack:
            yield ours, gateway

    def refused(ours, gateway, *reason):
        gateway.says("WARN", "negotiation of", *reason)
        # That is all that the peer learns.
        ours.says("WARN", "peer refused with AUTHENTICATION_FAILED")
        equal(gateway.children(), [], "children")

    def counts(gateway):
        return gateway.counter("ocsp_questions"), gateway.counter("ocsp_unanswered")

    for policy in ["required", "if-given"]:
        with suite.case(f'ocsp = "{policy}": the responder says "good", and is not asked again'):
            with Responder(lab, folder, "V") as responder, both(policy, url) as (ours, gateway):
                ours.up()
                equal(counts(gateway), (1, 0), "questions, those without answer")
                # The next connection does without it, also with everything read again.
                responder.process.kill()
                ours.tell("down", "peer")
                wait_for(lambda: gateway.sas() == [], "no IKE SA")
                gateway.tell("reload")
                ours.tell("connect", "peer")
                ours.up()
                equal(counts(gateway), (1, 0), "questions, those without answer")
        with suite.case(f'ocsp = "{policy}": the responder says "revoked": refused'):
            with Responder(lab, folder, "R"), both(policy, url) as (ours, gateway):
                refused(ours, gateway, revoked)
                equal(gateway.counter("ocsp_unanswered"), 0, "without answer")
        for name, status, why in [
            ("does not know it", None, "it does not know the certificate"),
            ("is down", "down", "Connection refused"),
            ("is silent", "silent", "no answer in time"),
        ]:
            taken = policy == "if-given"
            with suite.case(f'ocsp = "{policy}": the responder {name}: {"up" if taken else "refused"}, with a line'):
                with contextlib.ExitStack() as stack:
                    if status != "down":
                        stack.enter_context(Responder(lab, folder, status, silent=status == "silent"))
                    ours, gateway = stack.enter_context(both(policy, url))
                    if taken:
                        ours.up()
                        gateway.says("WARN", "no OCSP answer", f"{url}: ", why, "CN=ours.example.org")
                        equal(counts(gateway), (1, 1), "questions, those without answer")
                        metrics = gateway.tell("status", "--format", "prometheus").stdout
                        contains(metrics, "cordon_vpn_ocsp_unanswered_total 1\n")
                    else:
                        refused(ours, gateway, missing, f"{url}: ", why)
                        assert gateway.counter("ocsp_unanswered") >= 1
    with suite.case("of several responders the next one is asked when the first is silent or down"):
        with Responder(lab, folder, "V"), both("required", other, url) as (ours, gateway):
            ours.up()
            equal(counts(gateway), (2, 0), "questions, those without answer")
        with Responder(lab, folder, None, 8097, silent=True), Responder(lab, folder, "V"):
            with both("required", other, url) as (ours, gateway):
                ours.up()
                equal(counts(gateway), (2, 0), "questions, those without answer")
    with suite.case("a response that the peer brings along leaves nothing to ask"):
        brings = one.replace('start = "start"', f'start = "start"\nocsp_response = "{respond(folder, "ours", "V")}"')
        stack, ours, gateway = pair(lab, brings, two, plain, trust("required", url))
        with stack:
            ours.up()
            equal(counts(gateway), (0, 0), "questions, those without answer")
    with suite.case("reload takes another responder over, and refuses what cannot be asked"):
        with Responder(lab, folder, "V"), both("required", other) as (ours, gateway):
            refused(ours, gateway, missing, f"{other}: ", "Connection refused")
            good = trust("required", url)
            for top, reason in [
                (trust("off", url), '`ocsp_responder` needs ocsp = "if-given" or "required"'),
                (trust("required", "https://ocsp.example.org/"), "URL scheme must be http"),
                (trust("required", "ocsp.example.org"), "`ocsp_responder` of [trust]: ocsp.example.org"),
                (trust("required", *[url] * 5), "`ocsp_responder` names more than 4"),
                (good.replace(f'"{url}"', "8098"), "an address in quotation marks, or a list of them"),
            ]:
                gateway.top = top
                gateway.write(two)
                contains(gateway.tell("reload", code=1).stderr, reason)
            gateway.top = good
            gateway.write(two)
            gateway.tell("reload")
            ours.up(seconds=40)


def run(suite):
    lab = Lab(suite)
    processes(suite, lab)
    several(suite, lab)
    ocsp(suite, lab)
    asking(suite, lab)
    tokens(suite, lab)
