"""Two network namespaces with a cable between them, and OpenVPN in both."""

import contextlib
import os
import subprocess
from pathlib import Path

from tests.harness import Process, run, wait_for

ROOT = Path(__file__).resolve().parent.parent
# Addresses of the cable; the tunnel has its own.
OUTSIDE = {"server": "10.207.0.1", "client": "10.207.0.2"}


class Network:
    """The namespaces `server` and `client`; `remove` takes away everything in them."""

    def __init__(self):
        self.names = {side: f"cordon-{os.getpid()}-{side}" for side in OUTSIDE}
        self.made = []

    def create(self):
        for side, name in self.names.items():
            run("ip", "netns", "add", name)
            self.made.append(name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        server, client = self.names["server"], self.names["client"]
        run("ip", "-n", server, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", client)
        for side, name in self.names.items():
            run("ip", "-n", name, "address", "add", f"{OUTSIDE[side]}/24", "dev", "cable")
            run("ip", "-n", name, "link", "set", "cable", "up")
        return self

    def remove(self):
        # The cable goes with its namespaces.
        while self.made:
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                run("ip", "netns", "delete", self.made.pop())

    def command(self, side, *command):
        """A command line that runs `command` in a namespace."""
        return ["ip", "netns", "exec", self.names[side], *command]

    def run(self, side, *command, **options):
        return run(*self.command(side, *command), **options)


class OpenVpn:
    """One OpenVPN daemon; `up` waits for its tunnel."""

    DONE = "Initialization Sequence Completed"

    def __init__(self, network, side, config, log, modules=None, extra=(), environment=None):
        environment = {**os.environ, **(environment or {})}
        environment.pop("OPENSSL_MODULES", None)
        if modules:
            environment["OPENSSL_MODULES"] = str(modules)
        command = network.command(side, "openvpn", "--config", config, *extra)
        # OpenVPN writes its log to standard output; relative paths are the configuration's.
        with open(log, "ab") as out:
            # Without a terminal it asks nobody, and says in its log what it would have asked.
            self.process = Process(command, log, env=environment, cwd=Path(config).parent, stdout=out, start_new_session=True)

    def text(self):
        return self.process.log.read_text(errors="replace")

    def says(self, words, seconds=20):
        """Waits for words in the log and returns it."""
        wait_for(lambda: words in self.text(), lambda: f"{words!r}:\n{self.process.tail()}", seconds)
        return self.text()

    def up(self, seconds=20):
        def state():
            if not self.process.running():
                raise AssertionError(f"openvpn ended {self.process.child.returncode}:\n{self.process.tail()}")
            return self.DONE in self.text()

        wait_for(state, lambda: f"a tunnel:\n{self.process.tail()}", seconds)
        return self

    def stop(self):
        return self.process.stop(10)

    def end(self):
        self.process.kill()
