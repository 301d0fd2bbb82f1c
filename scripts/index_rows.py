"""Fills the index of a site with rows, for measurements at sizes that no camera brings in time."""

import random
import sqlite3
import time
from pathlib import Path

# Rows as the intake writes them; triggers count, and the next start makes the entries of the search.
AUDIENCES = [(unit, level) for unit in ("traffic", "harbour", "border") for level in range(4)]


class Folder:
    """Where the site lives, and what ends with it."""

    def __init__(self, folder):
        self.folder, self.ends = Path(folder), []

    def finally_do(self, end):
        self.ends.append(end)


def fill(index, rows, first):
    """Adds rows `first` to `rows` to the index."""
    db = sqlite3.connect(index)
    db.execute("PRAGMA synchronous = OFF")
    for unit, level in AUDIENCES:
        db.execute("INSERT INTO audiences (unit, classification) VALUES (?, ?) ON CONFLICT DO NOTHING", (unit, level))
    db.execute("INSERT INTO violation_groups (audience, state) SELECT id, 'open' FROM audiences WHERE true ON CONFLICT DO NOTHING")
    groups = [row[0] for row in db.execute("SELECT id FROM violation_groups WHERE state = 'open'")]
    numbers = random.Random(first)
    now = int(time.time() * 1000)
    for i in range(first, rows):
        name, device, number, at = f"{i:064x}", f"camera-{100 + i % 50}", i // 50 + 1, now - 3_600_000 - i * 1000
        db.execute(
            "INSERT INTO blocks (block_sha256, device, size, received_at, verdict, reason, sequence, manifest_sha256, log_index, receipt)"
            " VALUES (?, ?, 1, ?, 'accepted', '', ?, ?, 1, x'00')", (name, device, at, number, name),
        )
        db.execute("INSERT INTO chain VALUES (?, ?, ?, ?, ?)", (device, number, name, name, name))
        db.execute(
            "INSERT INTO violations VALUES (?, ?, ?, ?, ?, ?, ?, 'speeding', ?, 0, 0, ?, 90, ?, 1, ?)",
            (at << 15, f"v-{i:016x}", name, device, groups[i % len(groups)], number, at, f"A{i % 7} km {i % 41}",
             100 + i % 90, f"KR {numbers.randrange(10**7):07d}", "x" * 900),
        )
    db.execute("DELETE FROM violation_text_version")
    db.commit()
    db.close()
