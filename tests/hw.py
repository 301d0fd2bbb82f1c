"""The hardware in hw/: committed measurements within limits, the C header; the simulation, where Verilator is installed."""

import json
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VARIANTS = ("none", "parity", "berger")
# What an XC3S700AN has.
LUTS, BLOCK_RAMS = 11776, 20
# Each of these sites gets one bit inverted.
SITES = ("substitution", "position", "permuted")


def simulation_holds(results):
    """What every run of the bench must show, for each variant."""
    assert set(results) == set(VARIANTS), results.keys()
    for name, result in results.items():
        assert result["passed"] is True, name
        assert result["vectors"]["run"] == result["vectors"]["equal"] >= 60, result["vectors"]
        assert result["clean"]["blocks"] >= 2000, result["clean"]
        assert result["clean"]["false_alarms"] == result["clean"]["wrong"] == 0, result["clean"]
        assert result["zeroised"] == {"bits_left_by_bus": 0, "bits_left_by_pin": 0}, result["zeroised"]
        assert result["refused_commands"]["tried"] == result["refused_commands"]["refused"] > 0
        for site in SITES:
            count = result["single"][site]
            assert count["injected"] >= 2000, (name, site, count)
            if name == "none":
                assert count["alarmed"] == 0 and count["wrong_results_released"] > 0, (site, count)
            else:
                assert count["alarmed"] == count["injected"], (name, site, count)
                assert count["wrong_results_released"] == 0, (name, site, count)
        if name != "none":
            assert result["stored_bits"]["alarmed"] == result["stored_bits"]["injected"] >= 500
        assert len(result["multiple"]) >= 10
        for row in result["multiple"]:
            low, high = row["interval"]
            assert low - 1e-6 <= row["computed_rate"] <= high + 1e-6, (name, row)


def cosimulation_holds(results):
    """All tests of the simulated cores passed: those that the source has now."""
    sources = (ROOT / "crates" / "accel-simulation" / "tests" / "it" / "cores").glob("*.rs")
    listed = [test for source in sources for test in re.findall(r"^fn (rtl_\w+)", source.read_text(), re.M)]
    assert sorted(results["passed"]) == sorted(listed), results


def counts_hold(counts):
    """Everything fits an XC3S700AN; detection is not free."""
    for name, count in [*counts["ibc"].items(), ("aes", counts["aes"]), ("hmac", counts["hmac"]), *counts["mont"].items()]:
        assert 0 < count["lut"] <= LUTS, (name, count["lut"])
        assert 0 <= count["block_ram"] <= BLOCK_RAMS, (name, count["block_ram"])
    none, parity, berger = (counts["ibc"][name] for name in VARIANTS)
    assert none["lut"] < parity["lut"] < berger["lut"]
    assert 0 < none["block_ram"] <= parity["block_ram"] < berger["block_ram"]


def rates_hold(routed):
    """Clock rates of three seeds each. Published for a Spartan-3AN: none >= parity > Berger."""
    assert len(routed["seeds"]) == 3
    rates = {name: design["mhz"] for name, design in routed["designs"].items()}
    assert all(len(mhz) == 3 and min(mhz) > 20 for mhz in rates.values()), rates
    for design in ("aes/ecp5/hash-8", "aes/ice40/hash-4", "hmac/ecp5", "hmac/ice40", "mont/ecp5/32-bits", "mont/ice40/16-bits"):
        assert design in rates, (design, sorted(rates))
    for place in ("ibc/ice40-2-lanes", "ibc/ecp5-8-lanes"):
        none, parity, berger = (statistics.median(rates[f"{place}/{name}"]) for name in VARIANTS)
        assert none > parity and none > berger, (place, none, parity, berger)
        # The second relation holds on ECP5 only; on iCE40 the two are equal within the seeds.
        assert parity > berger or "ice40" in place, (place, parity, berger)
        assert parity > berger * 0.95, (place, parity, berger)


# The layout as a C compiler sees it.
HEADER_TEST = """
#include <stddef.h>
#include "cordon_accel.h"
_Static_assert(sizeof(struct cordon_accel_descriptor) == 128, "size");
_Static_assert(offsetof(struct cordon_accel_descriptor, iv) == 40, "iv");
_Static_assert(offsetof(struct cordon_accel_descriptor, check) == 96, "check");
_Static_assert(offsetof(struct cordon_accel_descriptor, status) == 120, "status");
_Static_assert(offsetof(struct cordon_accel_descriptor, echo) == 124, "echo");
_Static_assert(sizeof(struct cordon_accel_segment) == 16, "segment");
"""


def script(*arguments, limit):
    done = subprocess.run([sys.executable, ROOT / "scripts" / "hw", *arguments], capture_output=True, text=True, timeout=limit)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(suite):
    committed = json.loads((ROOT / "hw" / "results.json").read_text())
    with suite.case("committed simulation: vectors, alarms, rates, zeroisation"):
        simulation_holds(committed["simulation"])
    with suite.case("committed simulation of all cores behind their buses"):
        cosimulation_holds(committed["cosimulation"])
    with suite.case("committed counts: everything fits an XC3S700AN, detection is not free"):
        counts_hold(committed["spartan3a"])
    with suite.case("committed clock rates: no detection is fastest, Berger slowest or equal to parity"):
        rates_hold(committed["place_and_route"])
    with suite.case("the C header has the layout of descriptors"):
        include = ROOT / "crates" / "accel-abi" / "include"
        command = ["gcc", "-x", "c", "-std=c11", "-Wall", "-Werror", "-fsyntax-only", f"-I{include}", "-"]
        done = subprocess.run(command, input=HEADER_TEST, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    if not (shutil.which("verilator") and shutil.which("g++")):
        print("left out  hw: simulation of all cores: needs verilator and g++", flush=True)
        return
    with suite.case("simulation of all variants: vectors, alarms, rates, zeroisation"):
        simulation_holds(script("bench", limit=500))
    with suite.case("simulation of all cores behind their buses, by the tests of accel-simulation"):
        cosimulation_holds(script("cosim", limit=1500))
