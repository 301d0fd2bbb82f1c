"""What a running `cordon vpn up` may not do, and that it runs as another user than root."""

import os
import shutil
from pathlib import Path

from tests.harness import CORDON, Process, contains, equal, run as execute, wait_for
from tests.ike_lab import INSIDE, Daemon, Lab, connection, mirrored

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
