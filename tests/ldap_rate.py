"""Searches for each second of the site's processor time, by one client: `python3 -m tests.ldap_rate [--people N]`."""

import argparse
import json
import os
import time
from pathlib import Path

from tests.harness import Site, cordon, free_port
from tests.ldap_message import Connection, bind, element, equals, search, text
from tests.runner import Suite

BASE = "o=LEA-EU"
PASSWORD = "a long pass phrase 47"
# Requests that the client sends before it reads their answers, so that its own time counts for little.
PIPELINED = 50


def processor_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rate(connection, pid, query, attributes, count):
    """Searches a second, and for each second of the site's processor time."""
    began, used = time.monotonic(), processor_seconds(pid)
    for _ in range(count // PIPELINED):
        for _ in range(PIPELINED):
            connection.send(search(BASE, query, attributes=attributes))
        for _ in range(PIPELINED):
            code, said, entries, _ = connection.result()
            assert (code, entries) == (0, 1), (code, said, entries)
    return count / (time.monotonic() - began), count / (processor_seconds(pid) - used)


def main():
    parser = argparse.ArgumentParser(prog="python3 -m tests.ldap_rate", description=__doc__)
    parser.add_argument("--people", type=int, default=1000, metavar="N", help="people in the directory")
    people = parser.parse_args().people
    suite = Suite("ldap-rate")
    try:
        port = free_port()
        site = Site(suite, settings=f'ldap = "127.0.0.1:{port}"\n').start()
        file = suite.folder / "people.jsonl"
        with file.open("w") as lines:
            for n in range(people):
                person = {
                    "uid": f"p-{n}", "name": f"Person {n}", "email": f"p-{n}@example.org", "organisation": "LEA-EU", "clearance": 1,
                    "roles": ["officer"], "units": [f"unit-{n % 20}"],
                }
                lines.write(json.dumps(person) + "\n")
        site.ask("directory", "import", file, timeout=600)
        cordon("directory", "password", "--uid", "p-1", *site.arguments(), "--log", "off", input=f"{PASSWORD}\n")
        connection = Connection(port, site.root, seconds=120)
        assert connection.ask(bind(f"uid=p-1,ou=people,{BASE}", PASSWORD))[0] == 0
        pid = site.process.child.pid
        last = people - 1
        part = element(0xA4, text("mail"), element(0x30, text(f"p-{last}@ex", 0x81)))
        connection.ask(search(BASE, equals("uid", "p-1")))
        print(f"{people} people, one connection, {PIPELINED} requests at once; searches a second, and a second of processor time")
        for title, query, attributes, count in (
            ("uid=, mail", equals("uid", f"p-{last}"), ("mail",), 20_000), ("mail=, all attributes and certificates",
            equals("mail", f"p-{last}@example.org"), ("*",), 5_000), ("mail=*part*, mail", part, ("mail",), 500),
        ):
            wall, processor = rate(connection, pid, query, attributes, count)
            print(f"{title:<42} {wall:>8.0f} {processor:>8.0f}")
    finally:
        suite.close()


if __name__ == "__main__":
    main()
