"""What the benchmarks of tunnels share."""

import os
import re
import time
from pathlib import Path


class Usage:
    """Processor time and memory of some processes."""

    def __init__(self, pids):
        self.pids = pids
        self.start = self.seconds()

    def seconds(self):
        """Used in and on behalf of them since they began."""
        # Linux has a clock for each process, with nanoseconds where /proc/PID/stat has hundredths: the complement of its
        # number, and in the lowest three bits the kind, of all threads by the scheduler's own account.
        return sum(time.clock_gettime(~pid << 3 | 2) for pid in self.pids)

    def used(self):
        """Seconds since this object was made."""
        return self.seconds() - self.start

    def resident(self):
        """Megabytes of the largest process now."""
        texts = [Path(f"/proc/{pid}/status").read_text() for pid in self.pids]
        return max((int(re.search(r"VmRSS:\s*(\d+)", text).group(1)) * 1.024e-3 for text in texts), default=0)


def machine():
    """What it was measured on."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {"cpu": model and model.group(1), "cpus": os.cpu_count(), "kernel": os.uname().release}
