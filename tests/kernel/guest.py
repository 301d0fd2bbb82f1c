"""A Linux kernel as an ordinary process (user-mode-linux) over this machine's own files.

`boot` is what `machine.py` uses when CORDON_GUEST names a root made by `scripts/ipsec-guest`. The kernel sees this
machine's files read-only with a throw-away layer on top, FOLDER at its own place and at /run/share, writable, and the
root itself, whose programs are a later release's, at /run/peers, with a layer of its own.
"""

import os
import shlex
import subprocess
from pathlib import Path

MEGABYTES = 1024

# Runs on the bare root, which stays as it is; all that follows is in the layer above.
FIRST_PROCESS = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc none /proc
mount -t sysfs none /sys
mount -t tmpfs none /run
all=/run/all
layer() {
  mkdir -p "/run/$2.new" "/run/$2.work" "$3"
  mount -t overlay -o "lowerdir=$1,upperdir=/run/$2.new,workdir=/run/$2.work" none "$3"
}
layer / files $all || echo o >/proc/sysrq-trigger
mount -t proc none $all/proc
mount -t sysfs none $all/sys
mount -t devtmpfs none $all/dev
for at in run tmp; do mount -t tmpfs none $all/$at; done
mkdir -p $all/dev/pts $all/dev/shm $all/dev/net $all/run/netns $all/run/bare $all/run/peers "$all/FOLDER"
mount -t devpts none $all/dev/pts
mount -t tmpfs none $all/dev/shm
[ -e $all/dev/net/tun ] || mknod $all/dev/net/tun c 10 200
mkdir -p $all/run/share
for at in "$all/FOLDER" $all/run/share; do mount -t hostfs -o /share none "$at"; done
mount -t hostfs -o / none $all/run/bare
layer $all/run/bare peers $all/run/peers
for at in proc sys dev tmp; do mount --rbind $all/$at $all/run/peers/$at; done
mount -t tmpfs none $all/run/peers/run
ip link set lo up
chroot $all /bin/sh "FOLDER/.command" >"$all/FOLDER/.output" 2>&1
echo $? >"$all/FOLDER/.status"
sync
echo o >/proc/sysrq-trigger
sleep 10
"""

# The kernel's view of this machine: its own root, with ours and FOLDER inside.
PREPARE = """
mkdir -p "$1/mnt" "$1/share"
mount --rbind / "$1/mnt"
mount -o remount,ro,bind "$1/mnt"
mount --bind "$2" "$1/share"
mount --bind /dev "$1/dev"
mount -t proc proc "$1/proc"
mount -t tmpfs -o mode=1777,exec tmpfs "$1/tmp"
export TMPDIR=/tmp
exec timeout "$3" chroot "$1" /usr/bin/linux-ipsec "mem=$4M" root=/dev/root rootfstype=hostfs rootflags=/mnt ro \\
    "init=$2/.first" con=null con0=null,fd:1 ssl=null panic=-1 quiet
"""


def boot(root, folder, command, seconds):
    """Runs a command under the kernel of `root`; returns what the console said."""
    root, folder = Path(root).resolve(), Path(folder).resolve()
    assert folder.parts[1] not in ("dev", "proc", "sys"), f"the guest has one of its own: {folder}"
    first = folder / ".first"
    first.write_text(FIRST_PROCESS.replace("FOLDER", str(folder)))
    first.chmod(0o755)
    (folder / ".command").write_text(f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(map(str, command))}\n")
    line = ["unshare", "--mount", "sh", "-ec", PREPARE, "sh", root, folder, seconds, MEGABYTES]
    done = subprocess.run([str(part) for part in line], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.stdout
