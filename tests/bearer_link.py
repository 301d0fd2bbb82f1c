"""A slow, lossy bearer between two network namespaces: a TUN interface in each, and a thread that carries packets."""

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
# Packets that wait for their turn or are on their way; a modem has no more room either.
QUEUE = 200

libc = ctypes.CDLL(None, use_errno=True)


def tun_in(namespace, name):
    """A TUN interface inside a namespace, as a file descriptor of this process."""
    home, there = os.open("/proc/thread-self/ns/net", os.O_RDONLY), os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if libc.setns(there, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        return tun
    finally:
        libc.setns(home, CLONE_NEWNET)
        os.close(home)
        os.close(there)


class Bearer:
    """Carries packets between two TUN interfaces until it is closed.

    `rate` is in bytes a second for each direction, None for no limit; `delay` in seconds; `loss` a share. A packet is lost
    after it has taken its time: what the sender's interface counts is what an operator would.
    """

    def __init__(self, one, other):
        self.ends = (one, other)
        self.rate, self.delay, self.loss, self.cut, self.queue = None, 0.0, 0.0, False, QUEUE
        self.random = random.Random(7)
        self.open = True
        self.thread = threading.Thread(target=self.carry, daemon=True)
        self.thread.start()

    def carry(self):
        flying, free, waiting, number = [], {0: 0.0, 1: 0.0}, {0: 0, 1: 0}, 0
        while self.open:
            now = time.monotonic()
            while flying and flying[0][0] <= now:
                _, _, side, packet = heapq.heappop(flying)
                waiting[side] -= 1
                if not self.cut and self.random.random() >= self.loss:
                    try:
                        os.write(self.ends[1 - side], packet)
                    except OSError:
                        pass
            pause = min(0.2, flying[0][0] - now) if flying else 0.2
            ready, _, _ = select.select(self.ends, [], [], max(pause, 0))
            for end in ready:
                side = self.ends.index(end)
                try:
                    packet = os.read(end, 2048)
                except OSError:
                    continue
                if self.cut or waiting[side] >= self.queue:
                    continue
                now = time.monotonic()
                takes = len(packet) / self.rate if self.rate else 0.0
                free[side] = max(now, free[side]) + takes
                waiting[side] += 1
                number += 1
                heapq.heappush(flying, (free[side] + self.delay, number, side, packet))

    def close(self):
        self.open = False
        self.thread.join(5)
        for end in self.ends:
            os.close(end)
