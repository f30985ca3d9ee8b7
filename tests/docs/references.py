#!/usr/bin/env python3
"""references.py ROOT: every file and every C name that a page mentions in backquotes or links to exists.

A path is looked for below the root, src/ and tests/. A bare name of a source file must be the name of one file at
least. A C name must occur in the sources. CHANGELOG.md has names that are gone, so it is left out."""
import re
import sys
from pathlib import Path

QUOTED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+/?|[\w-]+\.(?:c|cu|cuh|h|cmake|md)")
NAME = re.compile(r"\blk__?[a-z]\w*|\bLK_[A-Z]\w*")
FOREIGN = {"nccl.h"}
# First folders of paths that are meant to be in this repository.
ROOMS = {"src", "include", "tests", "tools", "examples", "configs", "docs", "bench", "cmake"}


def pages(root):
    return sorted(page for page in [*root.glob("*.md"), *root.glob("docs/*.md")] if page.name != "CHANGELOG.md")


def known(root):
    """Paths of all files and folders, file names, and the text of all sources."""
    files = [path for room in sorted(ROOMS) for path in (root / room).rglob("*") if "__pycache__" not in path.parts]
    text = "\n".join(path.read_text(errors="replace") for path in files
                     if path.suffix in (".c", ".h", ".cu", ".cuh", ".py", ".txt", ".cmake"))
    text += (root / "CMakeLists.txt").read_text()
    return {path.name for path in files} | {path.name for path in root.iterdir()}, set(NAME.findall(text))


def path_exists(root, page, path, names):
    if "/" not in path:
        return path in names | FOREIGN or (page.parent / path).exists()
    places = (page.parent, root, root / "src", root / "tests")
    return any((place / path).exists() for place in places)


def is_ours(root, path):
    first = path.split("/")[0]
    return "/" not in path or first in ROOMS or (root / "src" / first).is_dir()


def check(root):
    names, words = known(root)
    for page in pages(root):
        for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
            paths = [link for link in LINK.findall(line) if "://" not in link]
            if not line.startswith("    "):
                paths += [quoted for quoted in QUOTED.findall(line) if PATH.fullmatch(quoted) and is_ours(root, quoted)]
            for path in paths:
                if not path_exists(root, page, path, names):
                    yield f"{page.relative_to(root)}:{number}: there is no {path}"
            for name in NAME.findall(line):
                if name not in words and not any(word.startswith(name) for word in words if name.endswith("_")):
                    yield f"{page.relative_to(root)}:{number}: no source has {name}"


if __name__ == "__main__":
    found = list(check(Path(sys.argv[1]).resolve()))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(1 if found else 0)
