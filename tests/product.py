"""What the product contains, and how it finds the laboratory beside it."""

import os
import re
import shutil

from tests.harness import CORDON, LAB, contains, equal, run as run_command

# Code of the laboratory: the research cipher, its attacks and faults, measurements, broken algorithms.
LABORATORY = re.compile(r"(?:^|[ <&(])(?:ibc|lab|ibc_provider)::|fault_injection|DesCbc|TripleDes|HmacMd5")


def symbols(program):
    """Names of functions and data in a program."""
    return run_command("nm", "-C", program).stdout.splitlines()


def run(suite):
    with suite.case("the product has no code of the laboratory; the laboratory has"):
        found = [line for line in symbols(CORDON) if LABORATORY.search(line)]
        equal(found[:5], [], "symbols of the laboratory")
        assert any(" ibc::" in line for line in symbols(LAB)), "the pattern finds nothing anywhere"

    with suite.case("cordon lab and cordon ibc run cordon-lab from beside the program"):
        for words in (("lab", "list"), ("ibc", "variants")):
            here = run_command(CORDON, "--json", *words).stdout
            own = words[1:] if words[0] == "lab" else words
            equal(here, run_command(LAB, "--json", *own).stdout)
        contains(run_command(CORDON, "ibc", "--help").stdout, "broken")
        contains(run_command(CORDON, "lab", "run", "--help").stdout, "--quick")
        equal(run_command(CORDON, "lab", "run", "nonsense", code=2).stdout, "")

    with suite.case("without it there is one clear line; in PATH it is found"):
        alone = suite.folder / "alone"
        alone.mkdir()
        program = shutil.copy(CORDON, alone)
        empty = {**os.environ, "PATH": str(alone)}
        done = run_command(program, "lab", "list", code=1, env=empty)
        equal(len(done.stderr.strip().splitlines()), 2, "lines")
        contains(done.stderr, "install cordon-lab")
        elsewhere = suite.folder / "elsewhere"
        elsewhere.mkdir()
        shutil.copy(LAB, elsewhere)
        contains(run_command(program, "lab", "list", env={**os.environ, "PATH": str(elsewhere)}).stdout, "Repeats")
