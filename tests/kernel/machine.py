"""Runs a command under a Linux kernel that can do IPsec, whatever this machine's own can do.

    python3 tests/kernel/machine.py FOLDER COMMAND...

boots a Debian kernel in an emulator (no hardware virtualisation needed) over this machine's own files,
which it sees read-only with a throw-away layer on top. FOLDER is the one place where the command can
leave something; it is /run/share inside. Exits with the command's status. The kernel is fetched with
`apt-get download`, unpacked below target/kernel and never installed.

CORDON_KERNEL_DEVICES has more arguments for the emulator, CORDON_KERNEL_PARAMETERS more of the kernel's.

With CORDON_GUEST=DIR, a root made by `scripts/ipsec-guest DIR`, its kernel runs as an ordinary process instead,
which is many times faster (guest.py).

Needs: qemu-system-x86 busybox-static cpio kmod xz-utils; the latter nothing but that root.
"""

import fcntl
import gzip
import hashlib
import lzma
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import guest

PACKAGE = "linux-image-6.12-amd64"
HOME = Path(__file__).resolve().parents[2] / "target/kernel"
# What is needed before the machine's files are there; the rest is loaded from them.
EARLY = ["virtio_pci", "9pnet_virtio", "9p", "overlay"]
SECONDS = int(os.environ.get("CORDON_KERNEL_SECONDS", "900"))
DEVICES = shlex.split(os.environ.get("CORDON_KERNEL_DEVICES", ""))
PARAMETERS = os.environ.get("CORDON_KERNEL_PARAMETERS", "")
GUEST = os.environ.get("CORDON_GUEST")

FIRST_PROCESS = """#!/bin/busybox sh
bb=/bin/busybox
for kind in proc sysfs devtmpfs; do
  case $kind in proc) at=/proc ;; sysfs) at=/sys ;; *) at=/dev ;; esac
  $bb mount -t $kind none $at
done
while read -r module; do $bb insmod "/modules/$module"; done </modules/order
share() { $bb mount -t 9p -o "trans=virtio,version=9p2000.L,msize=262144,$1" "$2" "$3"; }
$bb mkdir -p /host /layer /all
share ro,cache=loose host /host || $bb poweroff -f
$bb mount -t tmpfs none /layer
$bb mkdir /layer/changes /layer/work
$bb mount -t overlay -o lowerdir=/host,upperdir=/layer/changes,workdir=/layer/work none /all || $bb poweroff -f
for at in proc sys dev; do $bb mount --move /$at /all/$at; done
for at in run dev/shm; do $bb mkdir -p /all/$at; $bb mount -t tmpfs none /all/$at; done
$bb mkdir -p /all/run/share /all/usr/lib/modules
share rw share /all/run/share
share ro,cache=loose modules /all/usr/lib/modules
exec $bb switch_root /all /bin/sh /run/share/.command
"""

# Of one first process each, so that a kernel fetched before this file changed starts with the present one.
FIRST = HOME / f"first-{hashlib.sha256(repr((EARLY, FIRST_PROCESS)).encode()).hexdigest()[:16]}.gz"

COMMAND = """export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
ip link set lo up
{command} >/run/share/.output 2>&1
echo $? >/run/share/.status
sync
exec busybox poweroff -f
"""


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, **options)


def kernel():
    """Returns the kernel's version, once it and its first file system are there."""
    known = HOME / "version"
    if not known.exists():
        fetch(known)
    version = known.read_text().strip()
    if not FIRST.exists():
        first_files(version)
    return version


def fetch(known):
    """Fetches and unpacks the kernel; `known` gets its version when all of it is there."""
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    lines = run("apt-cache", "depends", PACKAGE, capture_output=True, text=True).stdout.splitlines()
    package = next(line.split()[-1] for line in lines if "Depends: linux-image-" in line)
    run("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package, cwd=HOME)
    run("dpkg-deb", "-x", next(HOME.glob("*.deb")), HOME / "root")
    version = next((HOME / "root/lib/modules").iterdir()).name
    run("depmod", "-b", HOME / "root", version)
    known.write_text(version)


def first_files(version):
    """Builds the first file system: busybox and the modules that reach the others."""
    root = HOME / "first"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("bin", "modules", "proc", "sys", "dev"):
        (root / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), root / "bin/busybox")
    order = []
    for module in EARLY:
        shown = run("modprobe", "-d", HOME / "root", "-S", version, "--show-depends", module,
                    capture_output=True, text=True).stdout
        for line in shown.splitlines():
            kind, _, path = line.partition(" ")
            path = Path(path.strip())
            name = path.name.removesuffix(".xz")
            if kind != "insmod" or name in order:
                continue
            data = path.read_bytes()
            (root / "modules" / name).write_bytes(lzma.decompress(data) if path.suffix == ".xz" else data)
            order.append(name)
    (root / "modules/order").write_text("".join(f"{name}\n" for name in order))
    (root / "init").write_text(FIRST_PROCESS)
    (root / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    archive = run("cpio", "-o", "-H", "newc", "--quiet", cwd=root, input=names.encode(), capture_output=True).stdout
    # Under its name only when it is whole: a boot that was killed here begins again.
    new = FIRST.with_suffix(".new")
    new.write_bytes(gzip.compress(archive, 1))
    new.rename(FIRST)


def boot(version, folder):
    def share(path, tag, how):
        return ["-virtfs", f"local,path={path},mount_tag={tag},security_model=none,{how}"]

    return run(
        "timeout", SECONDS, "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", 2, "-m", 1024,
        "-nodefaults", "-no-reboot", "-nographic", "-serial", "stdio", "-device", "virtio-rng-pci",
        "-kernel", HOME / f"root/boot/vmlinuz-{version}", "-initrd", FIRST,
        # The check of its timer at boot takes an emulator that was kept waiting for a broken timer.
        "-append", f"console=ttyS0 quiet panic=-1 mitigations=off no_timer_check {PARAMETERS}", *DEVICES,
        *share("/", "host", "readonly=on,multidevs=remap"),
        *share(HOME / "root/lib/modules", "modules", "readonly=on"),
        *share(folder, "share", "readonly=off"),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )


def emulate(folder, command):
    """Runs a command in the emulator; returns what the console said."""
    (folder / ".command").write_text(COMMAND.replace("{command}", shlex.join(command)))
    HOME.parent.mkdir(parents=True, exist_ok=True)
    with open(HOME.parent / "kernel.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        version = kernel()
    return boot(version, folder).stdout


def main(folder, *command):
    folder = Path(folder).resolve()
    for name in (".status", ".output"):
        (folder / name).unlink(missing_ok=True)
    console = guest.boot(GUEST, folder, command, SECONDS) if GUEST else emulate(folder, command)
    output = folder / ".output"
    if output.exists():
        sys.stdout.write(output.read_text())
    status = folder / ".status"
    if not status.exists():
        sys.exit(f"the kernel did not finish the command; its console said:\n{console[-4000:]}")
    return int(status.read_text())


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
