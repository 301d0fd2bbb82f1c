"""The field agent as a program of its own, also for other processors: it enrols, seals, uploads and gets its receipts.

    python -m tests.camera_alone [--program FILE --emulator 'qemu-aarch64 -L /usr/aarch64-linux-gnu']
"""

import argparse
import shlex
import sys
from pathlib import Path

from tests.harness import CORDON, Camera, Process, Site, contains, equal, jpeg, run as run_command, wait_for
from tests.runner import Suite, finish, run_suite

# KiB that the agent may have in memory while it uploads.
RESIDENT = 40 * 1024


class Alone(Camera):
    def start(self):
        self.process = Process([*self.program, "run", "--config", self.config], self.log, **self.site.options)
        return self


def resident(process):
    """Largest memory of a process until now, in KiB."""
    status = Path(f"/proc/{process.child.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def agent(suite, site, name, program, emulated):
    with suite.case(f"{name}: enrols, seals, uploads, gets receipts, says how it stands"):
        Alone.program = program
        camera = Alone(site, name)
        camera.start()
        for number in range(10):
            camera.drop(f"p{number}", jpeg(b"p%d" % number, 600_000))
        wait_for(lambda: len(camera.receipts()) == 10 and not camera.waiting(), lambda: camera.log.read_text()[-2000:], 240)
        memory = resident(camera.process)
        camera.stop()
        run_command(*program, "status", "--config", camera.config)
        # An emulator has its own memory and code.
        shown = f"{memory} KiB resident at most{' with the emulator' if emulated else ''}"
        print(f"        {shown}", flush=True)
        assert emulated or memory <= RESIDENT, shown


def unwatched(suite, site, name, program):
    with suite.case(f"{name}: where the kernel watches no more folders for its user it looks every second, and says so"):
        # In a namespace of its own for users, in which the limit can be set.
        limited = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$@\""
        Alone.program = ["unshare", "--user", "--map-root-user", "--", "sh", "-c", limited, "sh", *program]
        camera = Alone(site, name)
        camera.start()
        camera.drop("unwatched", jpeg(b"unwatched", 100_000))
        wait_for(lambda: camera.receipts() and not camera.waiting(), lambda: camera.log.read_text()[-2000:], 60)
        contains(camera.log.read_text(), "fs.inotify.max_user_instances")
        camera.stop()


def run(suite, program=None, emulator=""):
    site = Site(suite).start()
    program = Path(program or Path(CORDON).with_name("cordon-camera")).resolve()
    agent(suite, site, "camera-50", [*shlex.split(emulator), program], bool(emulator))
    unwatched(suite, site, "camera-51", [*shlex.split(emulator), program])
    with suite.case("its help names itself"):
        done = run_command(*shlex.split(emulator), program, "run", "--help")
        assert "cordon-camera run --config" in done.stdout, done.stdout
        equal(run_command(*shlex.split(emulator), program, "up", code=2).stdout, "")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--program", help="the agent; otherwise cordon-camera beside cordon")
    arguments.add_argument("--emulator", default="", help="command in front of it")
    chosen = arguments.parse_args()
    chosen_suite = Suite("camera_alone")
    run_suite(chosen_suite, lambda suite: run(suite, chosen.program, chosen.emulator))
    sys.exit(finish([chosen_suite]))
