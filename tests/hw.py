"""The hardware in hw/: committed measurements within limits; the simulation, where Verilator is installed."""

import json
import shutil
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


def run(suite):
    committed = json.loads((ROOT / "hw" / "results.json").read_text())
    with suite.case("committed simulation: vectors, alarms, rates, zeroisation"):
        simulation_holds(committed["simulation"])
    with suite.case("committed counts: every variant fits an XC3S700AN, detection is not free"):
        counts = committed["spartan3a"]
        for name in VARIANTS:
            assert 0 < counts[name]["lut"] <= LUTS, (name, counts[name]["lut"])
            assert 0 < counts[name]["block_ram"] <= BLOCK_RAMS, (name, counts[name]["block_ram"])
        assert counts["none"]["lut"] < counts["parity"]["lut"] < counts["berger"]["lut"]
        assert counts["none"]["block_ram"] <= counts["parity"]["block_ram"] < counts["berger"]["block_ram"]
    if not (shutil.which("verilator") and shutil.which("g++")):
        print("left out  hw: simulation of all variants: needs verilator and g++", flush=True)
        return
    with suite.case("simulation of all variants: vectors, alarms, rates, zeroisation"):
        command = [sys.executable, ROOT / "scripts" / "hw", "bench"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr
        simulation_holds(json.loads(done.stdout))
