#!/usr/bin/env python3
"""doxygen_filter.py FILE: prints a public header, or a page of docs, as Doxygen reads it (docs/Doxyfile).

The comments of the headers are plain C. A comment above declarations becomes the documentation of each of them, up to an
empty line or the next comment; a comment after a member becomes that of the member; the first comment of a file, and a
comment with an empty line after it, that of the file. In pages, links to other files become text."""
import re
import sys

# A comment and the text before it on its line.
COMMENT = re.compile(r"^(?P<before>[^\n\"]*?)/\*(?P<text>(?:(?!\*/).)*)\*/(?P<after>[^\n]*)\n", re.S | re.M)
# status.h says it of all of them.
DESTROY = "/** Destroys the object, which may be NULL. */"
LINK = re.compile(r"\[([^\]]*)\]\((?!http)[^)]*\)")


def escaped(line):
    """Text in which nothing is a command, a tag or an emphasis."""
    quoted = re.split(r"(`[^`]*`)", line)
    return "".join(part if i % 2 else re.sub(r"([\\@<>#&*|~])", r"\\\1", part) for i, part in enumerate(quoted))


def lines_of(text):
    """The lines of a comment without their margin; indented ones keep their form."""
    out, verbatim = [], False
    for line in text.strip().split("\n"):
        line = re.sub(r"^\s*\* ?", "", line)
        if line.startswith("  ") != verbatim:
            verbatim = not verbatim
            out.append("@verbatim" if verbatim else "@endverbatim")
        out.append(line if verbatim else escaped(line.strip()))
    return out + (["@endverbatim"] if verbatim else [])


def block(opening, text):
    return f"{opening} " + "\n".join(lines_of(text)) + " */"


def declarations(text):
    """The declarations at the beginning of text: those before an empty line or a line with a comment."""
    end = re.search(r"^\s*$|^.*/\*|\Z", text, re.M).start()
    return text[:end]


def repeated(documentation, text):
    """text, with the documentation before each one-line declaration of a function that follows the first declaration."""
    following = declarations(text)
    out = [documentation]
    for number, line in enumerate(following.split("\n")):
        begins = re.match(r"\s*[a-z][\w\s*]*\blk_\w+\(", line) and "typedef" not in line
        if number and begins and out[-1].rstrip().endswith(";"):
            out.append(DESTROY if "_destroy(" in line else documentation)
        out.append(line)
    return "\n".join(out), text[len(following):]


def header(text):
    out, first = [], True
    while match := COMMENT.search(text):
        out.append(text[: match.start()])
        before, comment, rest = match["before"], match["text"], text[match.end():]
        if before.strip().startswith(("#", "X(")) or match["after"].strip().endswith("\\"):
            out.append(match.group(0))
        elif before.strip():
            out.append(f"{before}{block('/**<', comment)}{match['after']}\n")
        elif first or rest.lstrip(" ").startswith("\n"):
            out.append(block("/** @file\n", comment) + "\n")
        else:
            documented, rest = repeated(before + block("/**", comment), rest)
            out.append(documented)
        first = False
        text = rest
    return "".join(out) + text


def page(text):
    return LINK.sub(r"\1", text)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    print(page(text) if sys.argv[1].endswith(".md") else header(text), end="")


if __name__ == "__main__":
    main()
