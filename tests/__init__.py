"""End-to-end tests of the `cordon` binary, with foreign tools as peers.

    CORDON=target/debug/cordon .venv/bin/python -m tests            all suites
    CORDON=target/debug/cordon .venv/bin/python -m tests upload     some
    CORDON=target/debug/cordon .venv/bin/python -m tests.kill --times 200

A suite is a module with a function `run(suite)`. It makes its own site in a temporary folder, on
loopback and free ports, and leaves nothing behind; only the folder of a failed suite is kept.
"""
