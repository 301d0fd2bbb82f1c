"""Runs the suites named on the command line, or all of them."""

import importlib
import sys

from tests.runner import main

SUITES = [
    "demo", "export", "upload", "browser", "scan", "ibc", "diskfull", "kill", "vpn", "openvpn", "ikev2", "ike_vpn",
    "ike_hostile", "ike_keys", "ike_eap", "ike_modes", "ike_load", "ike_kernel", "lab",
]


def load(name):
    if name not in SUITES:
        print(f"tests: there is no suite {name}\n  to do: choose from {', '.join(SUITES)}", file=sys.stderr)
        sys.exit(2)
    return importlib.import_module(f"tests.{name}")


if __name__ == "__main__":
    sys.exit(main([load(name) for name in sys.argv[1:] or SUITES]))
