"""What the benchmarks of tunnels share."""

import os
import re
from pathlib import Path


class Usage:
    """Processor time and memory of some processes."""

    def __init__(self, pids):
        self.pids = pids
        self.start = self.seconds()

    def seconds(self):
        """Used in and on behalf of them since they began."""
        ticks = 0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

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
