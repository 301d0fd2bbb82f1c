"""Slopes: what a page, a picture, a tunnel, a film and an event cost must not grow with how many there are.

A short run of the lab's experiment; `cordon lab run scale` has the large numbers.
"""

import json

from tests.harness import cordon, equal

FIGURES = [
    "pages", "pictures", "tunnel-memory", "tunnel-cpu", "tunnel-time", "film-site", "film-camera", "film-memory",
    "event-record", "event-proof",
]


def run(suite):
    with suite.case("pages, pictures, tunnels, films and events cost the same, however many there are"):
        path = suite.folder / "scale.json"
        cordon("lab", "run", "--quick", "--out", path, "scale", timeout=600)
        [outcome] = json.loads(path.read_text())["experiments"]
        equal((outcome["state"], outcome["missing"]), ("measured", []), "state, and what is missing")
        equal([figure["id"] for figure in outcome["figures"] if figure["rows"]], FIGURES, "figures")
        assert len(outcome["findings"]) >= len(FIGURES) - 1, outcome["findings"]
        steep = [finding["text"] for finding in outcome["findings"] if not finding["holds"]]
        equal(steep, [], "what grows")
