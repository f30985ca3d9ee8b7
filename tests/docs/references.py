"""references.py ROOT: every file and every C name that a page mentions exists.

Checked are links and paths in backquotes, which may begin at the root, in src/ or in tests/; bare names of C files; and
words that look like names of the library. NAME and FOLDER stand for any. Rows and functions that CONTRIBUTING.md quotes
must be in a source, word for word. CHANGELOG.md has names that are gone: there
only the version is checked, which must be that of version.h."""
import re
import sys
from pathlib import Path

LINK = re.compile(r"\]\(([^)#\s]+)")
QUOTED = re.compile(r"`([\w.-]+(?:/[\w.-]+)+/?|[\w-]+\.(?:c|cu|cuh|h|md))`")
QUOTE = re.compile(r"^```c\n(.*?)^```", re.M | re.S)
NAME = re.compile(r"\blk__?[a-z]\w*|\bLK_[A-Z]\w*")
SOURCES = (".c", ".h", ".hpp", ".cu", ".cuh", ".py", ".txt", ".cmake")
# First folders of paths of this repository, beside the modules of src/.
FOLDERS = ("src", "include", "tests", "tools", "examples", "configs", "docs", "bench", "cmake", "python")
FOREIGN = {"nccl.h"}


class Tree:
    def __init__(self, root):
        self.root = root
        files = [path for folder in FOLDERS for path in (root / folder).rglob("*") if path.is_file()]
        files += [path for path in root.iterdir() if path.is_file()]
        self.files = {path.name for path in files} | FOREIGN
        self.names = {name for path in files if path.suffix in SOURCES
                      for name in NAME.findall(path.read_text(errors="replace"))}

    def is_ours(self, path):
        first = path.split("/")[0]
        return "/" not in path or first in FOLDERS or (self.root / "src" / first).is_dir()

    def has_path(self, path, page):
        if "/" not in path and path in self.files:
            return True
        starts = (page.parent, self.root, self.root / "src", self.root / "tests")
        return any((start / path).exists() for start in starts)

    def has_name(self, name):
        return name in self.names or (name.endswith("_") and any(known.startswith(name) for known in self.names))


def check_line(tree, page, line):
    paths = [link for link in LINK.findall(line) if "://" not in link]
    paths += [path for path in QUOTED.findall(line) if tree.is_ours(path) and not re.search("NAME|FOLDER", path)]
    yield from (f"there is no {path}" for path in paths if not tree.has_path(path, page))
    yield from (f"no source has {name}" for name in NAME.findall(line) if not tree.has_name(name))


def check_version(root):
    header = (root / "include/lockstep/version.h").read_text()
    version = ".".join(re.findall(r"^#define LK_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header, re.M))
    newest = re.search(r"^## \[?([^\]\s]+)", (root / "CHANGELOG.md").read_text(), re.M).group(1)
    if newest != version:
        yield f"CHANGELOG.md: the newest version is {newest}, and version.h has {version}"


def check_quotes(root):
    page = root / "CONTRIBUTING.md"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    sources = [path.read_text(encoding="utf-8") for path in (root / "src").rglob("*.c")]
    for quote in QUOTE.finditer(text):
        if not any(quote.group(1) in source for source in sources):
            yield f"CONTRIBUTING.md:{text.count(chr(10), 0, quote.start()) + 1}: no source has these lines"


def check(root):
    tree = Tree(root)
    for page in sorted([*root.glob("*.md"), *root.glob("docs/*.md")]):
        lines = page.read_text(encoding="utf-8").split("\n") if page.name != "CHANGELOG.md" else []
        for number, line in enumerate(lines, 1):
            yield from (f"{page.relative_to(root)}:{number}: {what}" for what in check_line(tree, page, line))
    yield from check_quotes(root)
    yield from check_version(root)


if __name__ == "__main__":
    found = list(check(Path(sys.argv[1]).resolve()))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(1 if found else 0)
