"""What a running `cordon vpn up` may not do, and that it runs as another user than root."""

import os
import shutil
import signal
import sys
from pathlib import Path

from tests.harness import CORDON, Process, contains, equal, run as execute, wait_for
from tests.ike_lab import INSIDE, Authority, Daemon, Lab, certificate_auth, connection, mirrored

# Any that is not root's; it needs no entry in a list of users.
USER = 64321
CAPABILITIES = "net_admin,net_bind_service,net_raw"


def status(pid, field):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(field + ":"))


class AsUser(Daemon):
    """The daemon under a user of its own, with the capabilities that the systemd unit gives it."""

    def start(self):
        for path in [self.folder, *self.folder.iterdir()]:
            os.chown(path, USER, USER)
        command = ["ip", "netns", "exec", self.namespace, "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        wanted = ",".join("+" + name for name in CAPABILITIES.split(","))
        command += [f"--inh-caps=-all,{wanted}", f"--ambient-caps=-all,{wanted}", f"--bounding-set=-all,{wanted}"]
        self.process = Process([*command, self.program, "vpn", "up", "--config", self.file], self.folder / "log")
        wait_for(lambda: "tunnels are served" in self.log(), self.log)
        return self


def fetching(suite, lab):
    """A gateway that follows a list by HTTP: who speaks HTTP, and with which rights."""
    good = Authority(suite.folder / "authority")
    good.issue("theirs")
    good.revoke()
    command = lab.network.command("server", sys.executable, "-m", "http.server", "8099", "--bind", "127.0.0.1")
    server = Process(command, suite.folder / "http", cwd=good.folder)
    suite.finally_do(server.kill)
    top = f'[trust]\nanchors = ["{good.folder}/ca.pem"]\ncrl_urls = ["http://127.0.0.1:8099/crl.pem"]\ncrl_refresh = 1'
    text = mirrored(suite=None, auth=certificate_auth(good.folder, "theirs"))
    gateway = Daemon(lab, "server", text)
    gateway.file.write_text(gateway.file.read_text() + top + "\n")
    with gateway:
        gateway.says("a revocation list has changed")
        daemon = gateway.process.child.pid
        # Of this daemon: other suites may run others.
        process = lambda: execute("pgrep", "-P", daemon, "-f", "vpn fetcher", code=None).stdout.split()
        (pid,) = wait_for(process, "the process that fetches")
        with suite.case("HTTP is spoken by a process without rights, and by no other"):
            equal(status(pid, "PPid"), str(daemon), "its parent")
            for field, value in [("CapEff", "0" * 16), ("CapPrm", "0" * 16), ("NoNewPrivs", "1"), ("Seccomp", "2")]:
                equal(status(pid, field), value, field)
            sockets = lab.network.run("server", "ss", "-tanp").stdout
            assert f"pid={daemon}," not in sockets, sockets
        with suite.case("a fetcher that ended is started again"):
            os.kill(int(pid), signal.SIGKILL)
            wait_for(lambda: process() not in ([], [pid]), "another process")
            good.revoke(good.issue("revoked"))
            lines = lambda: gateway.log().count("a revocation list has changed")
            wait_for(lambda: lines() >= 2, gateway.log)
        (last,) = process()
    with suite.case("it ends with the daemon"):
        wait_for(lambda: not Path(f"/proc/{last}").exists(), "its end")

def run(suite):
    lab = Lab(suite)
    # The program where everybody can reach it.
    program = suite.folder / "bin" / "cordon"
    program.parent.mkdir()
    shutil.copy(CORDON, program)
    suite.folder.chmod(0o755)
    theirs = Daemon(lab, "server", mirrored(suite=None))
    ours = AsUser(lab, "client", connection(suite=None), 'audit = { folder = "journal" }\ncrash_secret = "crash.secret"')
    ours.program = program
    with theirs, ours:
        pid = int(execute("pgrep", "-u", str(USER), "-f", "vpn up").stdout.split()[0])
        with suite.case("a user of its own: a tunnel comes up and carries packets"):
            ours.up()
            lab.ping(source=INSIDE["client"])
            equal(status(pid, "Uid").split(), [str(USER)] * 4, "user")
            # cap_net_bind_service, cap_net_admin, cap_net_raw
            equal(int(status(pid, "CapBnd"), 16) & ~(1 << 10 | 1 << 12 | 1 << 13), 0, "further capabilities")
        with suite.case("system calls are filtered in every thread, and nothing is dumped"):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                equal(status(thread.name, "Seccomp"), "2", f"filter of {thread.name}")
                equal(status(thread.name, "NoNewPrivs"), "1", "new privileges")
            contains(Path(f"/proc/{pid}/limits").read_text(), "Max core file size        0                    0")
        with suite.case("files elsewhere cannot be read: reload says so, and what to do"):
            elsewhere = suite.folder / "elsewhere"
            elsewhere.mkdir()
            (elsewhere / "psk").write_text("a secret somewhere else\n")
            (elsewhere / "psk").chmod(0o600)
            os.chown(elsewhere / "psk", USER, USER)
            ours.write(connection(suite=None, auth=f'psk_file = "{elsewhere}/psk"'))
            failed = ours.tell("reload", code=1).stderr
            contains(failed, "Permission denied")
            contains(failed, "name the folder in `folders`")
            ours.write(connection(suite=None))
            ours.tell("reload")
        with suite.case("reload goes on starting nft under the filter"):
            ours.write(connection(suite=None, other="10.5.2.0/25"))
            ours.tell("reload")
            rules = lab.network.run("client", "nft", "list", "ruleset").stdout
            contains(rules, "10.5.2.0/25")
            contains(rules, f"skuid {USER}")
    fetching(suite, lab)
