"""Imports between the files of a crate, for tests.house: which of them import one another in a circle."""

import re
from pathlib import Path


def paths(tree, base=()):
    """Every path of a `use` tree such as `a::{b, c::{d, e}}`."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        names = [name.strip() for name in tree.split(" as ")[0].split("::")]
        yield [*base, *(name for name in names if name and name not in ("self", "*"))]
        return
    prefix = [name for name in tree[:brace].split("::") if name and name != "self"]
    depth, branch = 0, ""
    for char in tree[brace + 1 : tree.rindex("}")] + ",":
        if char == "," and depth == 0:
            if branch.strip():
                yield from paths(branch, (*base, *prefix))
            branch = ""
        else:
            depth += (char == "{") - (char == "}")
            branch += char


def modules(source):
    """The files of a crate by the path of their module; tests left out."""
    found = {}
    for file in sorted(Path(source).rglob("*.rs")):
        names = list(file.relative_to(source).with_suffix("").parts)
        if "tests" in names or "testing" in names:
            continue
        if names[-1] in ("mod", "lib", "main"):
            names.pop()
        found[tuple(names)] = file
    return found


def graph(source):
    """For each module of a crate those that its file imports; the root, which hands names on, is left out."""
    files = modules(source)

    def home(names):
        while names and tuple(names) not in files:
            names = names[:-1]
        return tuple(names)

    edges = {}
    for module, file in files.items():
        text = re.split(r"#\[cfg\(test\)\]\nmod \w+ \{", file.read_text())[0]
        text = re.sub(r"//.*", "", text)
        uses = re.findall(r"\buse ((?:\w+::)[^;]+);", text)
        uses += re.findall(r"(?<![\w:])((?:crate|super)(?:::\w+)+)", re.sub(r"\buse [^;]+;", "", text))
        edges[module] = set()
        for names in (names for tree in uses for names in paths(tree)):
            if names[0] == "crate":
                target = names[1:]
            elif names[0] == "super":
                ups = next((at for at, name in enumerate(names) if name != "super"), len(names))
                target = [*module[: len(module) - ups], *names[ups:]]
            elif (*module, names[0]) in files:
                target = [*module, *names]
            else:
                continue
            edges[module].add(home(target))
        edges[module] -= {module, ()}
    edges.pop((), None)
    return edges


def circles(source):
    """Groups of modules of which each reaches every other one (Tarjan)."""
    edges = graph(source)
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(edges.get(module, ())):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            found.append(sorted("::".join(names) for names in stack[at:]))
            del stack[at:]

    for module in edges:
        if module not in index:
            visit(module)
    return [group for group in found if len(group) > 1]
