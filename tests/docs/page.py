"""page.py - the command blocks of a Markdown page.

A block is a group of lines indented by four spaces or more, after an empty line or a heading. Three kinds:
- a transcript has commands, in lines that begin with "$ ", each followed by its output;
- a list of commands begins with a command and shows no output;
- anything else (C, Python, messages, file listings) is text.
"""
import re
import shlex

FIRST_WORDS = ("lockstep", "make", "export", "srun", "cc", "diff", "timeout", "rm", "sh", "python3")
# "lockstep: ..." and "lockstep train: ..." are messages of the program.
MESSAGE = re.compile(r"lockstep( \w+)?: ")
ASSIGNMENT = re.compile(r"[A-Z_]+=")


class Command:
    """A command, its line on the page, and the lines of output that the page shows (None: it shows none)."""

    def __init__(self, text, line, output=None):
        self.text, self.line, self.output = text, line, output


def blocks(path):
    """Yields (number of the first line, lines without their indentation)."""
    block, begin, open_to_block, fenced = [], 0, True, False
    with open(path, encoding="utf-8") as page:
        lines = page.read().split("\n")
    for number, line in enumerate(lines + [""], 1):
        if line.startswith("```"):
            fenced = not fenced
        indented = line.startswith("    ") and not fenced
        if indented and (block or open_to_block):
            begin = begin if block else number
            block.append(line[4:])
        elif block:
            yield begin, block
            block = []
        open_to_block = not line.strip() or line.startswith("#")


def is_whole(text):
    """Whether no quote is open and no backslash ends the text."""
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return not text.endswith("\\")


def read_command(lines, at):
    """The command that begins at lines[at], and the index of the line after it."""
    text = lines[at]
    while not is_whole(text) and at + 1 < len(lines):
        at += 1
        text += "\n" + lines[at]
    return text, at + 1


def transcript(begin, lines):
    found, at = [], 0
    while at < len(lines):
        if lines[at].startswith("$ "):
            text, after = read_command([lines[at][2:]] + lines[at + 1:], 0)
            found.append(Command(text, begin + at, []))
            at += after
        else:
            found[-1].output.append(lines[at])
            at += 1
    return found


def listing(begin, lines):
    found, at = [], 0
    while at < len(lines):
        text, after = read_command(lines, at)
        found.append(Command(text.strip(), begin + at))
        at = after
    return found


def is_command(line):
    word = line.strip().split(" ")[0]
    return not MESSAGE.match(line.strip()) and (word in FIRST_WORDS or ASSIGNMENT.match(word) is not None)


def commands(path):
    found = []
    for begin, lines in blocks(path):
        if any(line.startswith("$ ") for line in lines):
            found += transcript(begin, lines)
        elif is_command(lines[0]):
            found += listing(begin, lines)
    return found
