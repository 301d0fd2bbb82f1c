"""The accelerator's kernel module before a real Linux in an emulator: two device processes, the module, its users.

The cases are in tests/kernel/accelerator.py: what they print is shown here. Needs what machine.py needs, and the headers of its
kernel with their compiler (`linux-headers-VERSION`).
"""

import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.harness import CORDON, ROOT

# Seconds for the kernel with all its cases.
PATIENCE = 3000
LIMIT = PATIENCE + 300
MEMORY = "1024M"
CASES = ROOT / "tests/kernel/accelerator.py"
TOOLS = ["qemu-system-x86_64", "busybox", "cpio", "depmod", "xz", "make", "gcc-12", "dmsetup", "apt-get", "openssl"]


def machine():
    """tests/kernel/machine.py, which runs as a script and is in no package."""
    folder = ROOT / "tests/kernel"
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("machine", folder / "machine.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


def module(version, folder):
    """Builds the module for the kernel, with all warnings of a kernel build as errors."""
    headers = Path(f"/usr/src/linux-headers-{version}")
    line = ["make", "-C", ROOT / "hw/driver", f"KERNEL={headers}", f"OUT={folder}", "KCFLAGS=-Werror"]
    done = subprocess.run([str(part) for part in line], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return folder / "cordon_accel.ko"


def simulated(suite):
    """The program of the simulated core for AES by the name of its option; none, and its model is there instead, without Verilator.

    CORDON_HW_CORES names a folder with programs of `scripts/hw cores`, which take minutes on a busy machine.
    """
    made = os.environ.get("CORDON_HW_CORES")
    if made:
        return {"--aes": Path(made) / "aes"}
    if not shutil.which("verilator"):
        print("        not run: the simulated core in the place of its model, without Verilator", flush=True)
        return {}
    with suite.case("the Verilog of AES becomes a program"):
        done = subprocess.run([ROOT / "scripts/hw", "cores", suite.folder, "aes"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return {"--aes": suite.folder / "aes"}
    return {}


class Devices:
    """The device processes, one for the kernel's crypto API and one for user space; the cores of the first may be simulated."""

    def __init__(self, folder, share, cores):
        self.folder, self.share, self.cores = folder, share, cores
        self.ram = folder / "ram"
        with open(self.ram, "wb") as file:
            file.truncate(1 << 30)
        self.processes = []
        self.ended = threading.Event()
        self.killer = threading.Thread(target=self.kill_when_asked)

    def __enter__(self):
        program = Path(CORDON).resolve().parent / "accel_serve"
        for name in ("crypto", "user"):
            log = open(self.share / f"{name}.log", "wb")
            line = [program, self.folder / name, "--ram", self.ram, "--conduct", self.share / f"{name}.conduct",
                    "--counts", self.share / f"{name}.counts"]
            line += [word for option in self.cores.items() for word in option] if name == "crypto" else []
            with log:
                self.processes.append(subprocess.Popen([str(part) for part in line], stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        end = time.monotonic() + 30
        try:
            while not all((self.folder / name).is_socket() for name in ("crypto", "user")):
                assert time.monotonic() < end and all(process.poll() is None for process in self.processes), self.logs()
                time.sleep(0.05)
        except BaseException:
            self.__exit__()
            raise
        self.killer.start()
        return self

    def arguments(self):
        words = ["-machine", "memory-backend=ram", "-object",
                 f"memory-backend-file,id=ram,size={MEMORY},mem-path={self.ram},share=on"]
        for name, slot in (("crypto", 0x10), ("user", 0x11)):
            words += ["-chardev", f"socket,id={name},path={self.folder / name}", "-device",
                      f"ivshmem-doorbell,chardev={name},vectors=1,addr={slot:#x}"]
        return shlex.join(words)

    def kill_when_asked(self):
        """Kills the first device when a case leaves the file `kill`, which goes when it is done."""
        asked = self.share / "kill"
        while not self.ended.wait(0.2):
            if asked.exists():
                self.processes[0].kill()
                self.processes[0].wait()
                asked.unlink()

    def logs(self):
        return "".join((self.share / f"{name}.log").read_text() for name in ("crypto", "user"))

    def __exit__(self, *_):
        self.ended.set()
        if self.killer.ident:
            self.killer.join()
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait()
        # A gigabyte, and most of it in memory.
        self.ram.unlink()


def missing(kernel):
    """Why this cannot run here; none if it can."""
    absent = [tool for tool in TOOLS if not shutil.which(tool)]
    if absent:
        return f"without {', '.join(absent)}"
    version = kernel.kernel()
    if not Path(f"/usr/src/linux-headers-{version}/Makefile").is_file():
        return f"without linux-headers-{version}"
    return None


def run(suite):
    kernel = machine()
    reason = missing(kernel)
    if reason:
        print(f"        not run: the accelerator's kernel module, {reason}", flush=True)
        return
    with suite.case("signatures verified by this machine's kernel and by the library"):
        done = subprocess.run([ROOT / ".venv/bin/python", ROOT / "tests/kernel/public_key.py"], capture_output=True, text=True)
        missing_here = "the kernel has no public keys" in done.stderr
        assert done.returncode == 0 or missing_here, done.stdout + done.stderr
        print(f"        {done.stderr if missing_here else done.stdout.strip()}", flush=True)
    with suite.case("the module compiles without a warning"):
        built = module(kernel.kernel(), suite.folder / "module")
    programs = Path(CORDON).resolve().parent
    # The guest has a /dev of its own, and so no /dev/shm of this machine; its memory is best there.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as share, Devices(suite.folder, Path(share), simulated(suite)) as devices:
        shutil.copy(built, share)
        line = [sys.executable, ROOT / "tests/kernel/machine.py", share, ROOT / ".venv/bin/python",
                CASES, "/run/share/cordon_accel.ko", programs / "examples/exercise", Path(CORDON).resolve()]
        environment = dict(os.environ, CORDON_KERNEL_SECONDS=str(PATIENCE), CORDON_KERNEL_DEVICES=devices.arguments(),
                           CORDON_KERNEL_PARAMETERS="pci=resource_alignment=12@pci:1af4:1110")
        environment.pop("CORDON_GUEST", None)
        done = subprocess.run([str(part) for part in line], capture_output=True, text=True, env=environment)
        said = done.stdout[-20_000:] + done.stderr[-4000:] + devices.logs()
    results = [text for text in done.stdout.splitlines() if text.startswith(("ok  ", "FAILED  "))]
    for text in results:
        with suite.case(text.split("  ")[1]):
            assert text.startswith("ok"), said
    with suite.case(f"all {len(results)} cases under Linux {kernel.kernel()} came to their end"):
        assert done.returncode == 0 and results, said
