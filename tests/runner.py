"""Counts cases, keeps going after a failure, cleans up, and bounds the time."""

import contextlib
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

# A suite that takes this many seconds hangs; slow machines stay far below.
LIMIT = 600


class Overdue(BaseException):
    """The suite's time is up; no `except Exception` may swallow it."""


class Suite:
    """One module's run: a temporary folder, a list of things to stop, and the cases."""

    def __init__(self, name, part=None):
        self.name = name
        # The one of its parts that is to run, if not all.
        self.part = part
        self.folder = Path(tempfile.mkdtemp(prefix=f"cordon-{name}-"))
        self.passed = 0
        self.failed = 0
        self._cleanup = contextlib.ExitStack()

    def finally_do(self, function, *args):
        """Calls `function` when the suite ends, last added first."""
        self._cleanup.callback(function, *args)

    @contextlib.contextmanager
    def case(self, title):
        """One case; a failure is printed and the suite goes on."""
        started = time.monotonic()
        try:
            yield
        except Exception as error:
            self.failed += 1
            print(f"FAILED  {self.name}: {title}", flush=True)
            lines = traceback.format_exception(error)
            print("".join(f"        {line}" for line in "".join(lines).splitlines(True)), flush=True)
        else:
            self.passed += 1
            print(f"ok      {self.name}: {title} ({time.monotonic() - started:.1f} s)", flush=True)

    def close(self):
        try:
            self._cleanup.close()
        finally:
            if self.failed:
                print(f"        files are kept in {self.folder}", flush=True)
            else:
                shutil.rmtree(self.folder, ignore_errors=True)


def run_suite(suite, function, limit=LIMIT):
    """Runs `function(suite)`; whatever escapes it is one more failure."""

    def overdue(_signal, _frame):
        raise Overdue(f"not done after {limit} s")

    signal.signal(signal.SIGALRM, overdue)
    signal.alarm(limit)
    try:
        function(suite)
    except (Exception, Overdue):
        suite.failed += 1
        print(f"FAILED  {suite.name}: the suite broke off\n{traceback.format_exc()}", flush=True)
    finally:
        signal.alarm(0)
        try:
            suite.close()
        except Exception:
            suite.failed += 1
            print(f"FAILED  {suite.name}: cleaning up\n{traceback.format_exc()}", flush=True)


def finish(suites):
    """Prints the last line and gives the exit code."""
    passed = sum(suite.passed for suite in suites)
    failed = sum(suite.failed for suite in suites)
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed or not passed else 0


def processor_time():
    """Seconds of this process and of the children that it has waited for."""
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def main(modules, part=None):
    # SIGTERM must clean up as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    suites = []
    for module in modules:
        started, used = time.monotonic(), processor_time()
        suite = Suite(module.__name__.rpartition(".")[2], part)
        suites.append(suite)
        run_suite(suite, module.run, getattr(module, "LIMIT", LIMIT))
        seconds, used = time.monotonic() - started, processor_time() - used
        print(f"        {suite.name} took {seconds:.0f} s, {used:.0f} s of processor time", flush=True)
    return finish(suites)
