"""Counts about the whole tree, for tests.house: marked constructions of the prose, methods of types, long functions, actions of
events that code has as text.

`tests/counts.json` has the most that each crate and document may have today. The figures only fall:
`python3 -m tests.counts --lower` writes down what has become better, and nothing raises one.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = ROOT / "tests" / "counts.json"

# Constructions that a reader has to decode; "Words" in docs/development.md says what to write.
LEXICON = re.compile(
    r"\b(?:who(?:so)?ever|whatever|whichever|whom|somebody|nobody|(?:is|are|was|were) told|go(?:es|ing)? on|went on"
    r"|held against|anew|of (?:the|an) own|(?:is|are|was) no \w+|put to use|to be had|comes? about|came about"
    r"|lies in|stands (?:in|at|for|beside)|had (?:it|them) \w+ed)\b",
    re.IGNORECASE,
)
# Lines of a function at most, its signature among them.
LONG = 70
# Methods of a type at most.
METHODS = 60


def comments(text):
    """The words of all comments of a Rust file, in one line."""
    found = re.findall(r"^\s*//[/!]?(.*)$", text, re.M)
    return re.sub(r"`[^`]*`", "x", " ".join(line.strip() for line in found))


def prose(text):
    """The words of a Markdown document, without blocks of code and names in backticks."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`]*`", "x", text)


def marked(text):
    """Marked constructions for every 10 000 words of a text."""
    words = len(re.findall(r"[A-Za-z']+", text))
    return round(len(LEXICON.findall(text)) * 10_000 / words) if words else 0


def functions(text):
    """Name and lines of each function of a Rust file, as rustfmt lays it out."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        begin = re.match(r"( *)(?:pub(?:\([a-z]+\))? )?(?:const )?(?:async )?(?:unsafe )?(?:extern \"C\" )?fn (\w+)", line)
        if not begin:
            continue
        # A body ends where its brace stands under the function's first letter.
        end = next((n for n in range(at, len(lines)) if lines[n] == f"{begin[1]}}}"), None)
        semicolon = next((n for n in range(at, len(lines)) if re.search(r"[;{}]\s*$", lines[n])), at)
        if end is not None and not lines[semicolon].rstrip().endswith(";"):
            yield begin[2], end - at + 1


def without_tests(file):
    if re.search(r"/(tests?|testing)(\.rs$|/)", str(file)):
        return ""
    return re.split(r"#\[cfg\(test\)\]\nmod \w+ \{", file.read_text())[0]


def methods(source):
    """Methods of each type of a crate that have a body, in all its files; those of traits left out."""
    found = {}
    for file in Path(source).rglob("*.rs"):
        text = without_tests(file)
        for block in re.finditer(r"^impl(?:<[^\n]*?>)? (?![^\n]* for )(\w+)[^\n]*\{\n(.*?)^\}", text, re.M | re.S):
            number = len(re.findall(r"^    (?:pub(?:\([a-z]+\))? )?(?:const )?(?:async )?(?:unsafe )?fn ", block[2], re.M))
            found[block[1]] = found.get(block[1], 0) + number
    return found


def actions():
    """Actions of the event catalogue: `Name = "noun.verb"`, and the two that the log itself needs."""
    found = {"journal.refused", "audit.accept-loss"}
    for file in (ROOT / "crates" / "event-catalogue" / "src").glob("*.rs"):
        found.update(re.findall(r'^\s+[A-Z]\w* = "([a-z-]+\.[a-z-]+)"', file.read_text(), re.M))
    return found


def spelled(text, known):
    """Actions of events that a Rust file has as text."""
    return [action for action in re.findall(r'"([a-z-]+\.[a-z-]+)"', text) if action in known]


# Crates that may have actions as text: the catalogue, tools that fabricate events, and the log, which the catalogue rests on.
SPELLS = {"event-catalogue", "audit", "fuzz", "lab", "testkit"}
# The verifier of packages reads the published format and shares no code with the writer.
VERIFIER = "evidence/src/check/"


def measure():
    """All figures of the tree, by name."""
    figures = {}
    known = actions()
    long = total = 0
    for source in sorted((ROOT / "crates").glob("*/src")):
        name = source.parent.name
        texts = [file.read_text() for file in sorted(source.rglob("*.rs"))]
        figures[f"marked comments: {name}"] = marked(" ".join(comments(text) for text in texts))
        files = [file for file in source.rglob("*.rs") if VERIFIER not in str(file)]
        if name not in SPELLS:
            figures[f"actions of events as text: {name}"] = sum(len(spelled(without_tests(file), known)) for file in files)
        for kind, number in methods(source).items():
            if number > METHODS:
                figures[f"methods: {name}::{kind}"] = number
        sizes = [lines for file in sorted(source.rglob("*.rs")) for _, lines in functions(without_tests(file))]
        long += sum(lines > LONG for lines in sizes)
        total += len(sizes)
    figures["functions over 70 lines, of 10 000"] = round(long * 10_000 / total)
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for file in sorted(documents):
        figures[f"marked words: {file.relative_to(ROOT)}"] = marked(prose(file.read_text()))
    return figures


def worse(figures, limits):
    """What is beyond its limit; a crate or document without one has the goal of 25, a type that of METHODS, actions none."""
    def limit(name):
        goal = 0 if name.startswith("actions") else METHODS if name.startswith("methods") else 25
        return limits.get(name, goal)

    return [f"{name}: {figure}, at most {limit(name)}" for name, figure in figures.items() if figure > limit(name)]


def lowered(figures, limits):
    """Limits that are no higher than what was measured, and never higher than before."""
    return {name: min(figure, limits.get(name, figure)) for name, figure in figures.items()}


if __name__ == "__main__":
    measured = measure()
    before = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    if "--lower" in sys.argv:
        LIMITS.write_text(json.dumps(lowered(measured, before), indent=1, sort_keys=True) + "\n")
    for line in worse(measured, before):
        print(line)
