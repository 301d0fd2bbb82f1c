"""Counts about the prose in the sources, for tests.house: how doc comments begin, which say nothing, and how much of the
reasons stands beside the code."""

import re
from pathlib import Path

# Words with which a doc comment asks a question instead of saying what a thing is.
QUESTIONS = {"What", "Who", "How", "Where", "Which"}


def paragraphs(text):
    """Every doc comment of a Rust file, as one line."""
    lines, found = text.splitlines(), []
    at = 0
    while at < len(lines):
        first = re.match(r"\s*/// ?(.*)", lines[at])
        at += 1
        if first:
            words = [first.group(1)]
            while at < len(lines) and (more := re.match(r"\s*/// ?(.*)", lines[at])):
                words.append(more.group(1))
                at += 1
            found.append(" ".join(words).strip())
    return found


def counts(folder):
    """Doc comments below a folder: all, those that begin with a question, those of three words or fewer."""
    total = questions = short = 0
    for file in Path(folder).rglob("*.rs"):
        for text in paragraphs(file.read_text()):
            total += 1
            word = re.match(r"[A-Za-z]+", text)
            questions += bool(word) and word.group(0) in QUESTIONS
            short += len(text.split()) <= 3
    return total, questions, short


def reasons(folder):
    """Lines of a folder's code, without tests, and how many comments stand between them (doc comments left out)."""
    code = comments = 0
    for file in Path(folder).rglob("*.rs"):
        if re.search(r"/tests?(\.rs$|/)", str(file)):
            continue
        for line in re.split(r"#\[cfg\(test\)\]\nmod \w+ \{", file.read_text())[0].splitlines():
            line = line.strip()
            if line.startswith("//"):
                comments += not line.startswith(("///", "//!"))
            else:
                code += bool(line)
    return code, comments
