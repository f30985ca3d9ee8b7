"""transcript.py - compares what a command printed with what its page shows.

A line "..." stands for any number of lines. What differs from run to run is not compared: process ids, host names,
seconds, the number of threads. Lines of several ranks come in any order, so each rank's are compared in their own.
Checkpoints are saved while training goes on, so their lines may stand anywhere between others. Lines of progress, which
come where steps take long, are left out."""
import re

VOLATILE = [
    (r"pid \d+", "pid N"),
    (r"host [\w.-]+", "host H"),
    (r"\d+\.\d+ seconds", "T seconds"),
    (r"with \d+ threads?", "with N threads"),
    (r"\.lk-[\d-]+", ".lk-N"),
    (r"\s+", " "),
]
RANK = re.compile(r"\[(\d+)\] ")
PROGRESS = re.compile(r"(\[\d+\] )?epoch \d+, step \d+/\d+, loss .* ETA ")
FLOATING = re.compile(r"(\[\d+\] )?Checkpoint saved to ")


def normal(line, varies):
    for pattern, text in VOLATILE + [(pattern, "*") for pattern in varies]:
        line = re.sub(pattern, text, line)
    return line.strip()


def by_rank(lines):
    """Consecutive lines of ranks, sorted by rank, each rank's in their order."""
    out, run = [], []
    for line in lines + [""]:
        if RANK.match(line):
            run.append(line)
            continue
        out += sorted(run, key=lambda text: int(RANK.match(text).group(1)))
        run = []
        out.append(line)
    return out[:-1]


def pattern_of(shown):
    """A regular expression for the shown lines, joined by spaces; "..." is anything."""
    parts = []
    for line in shown:
        if line == "...":
            parts.append(r"(?:.*? )?")
            continue
        escaped = re.escape(line)
        # Dots inside a line stand for its rest.
        escaped = re.sub(r"\\\.\\\.\\\.(?=$|\\\))", r".*?", escaped)
        parts.append(escaped + " ")
    return "".join(parts)


def split(lines, varies):
    """Lines in their places, and those that may float."""
    lines = [normal(line, varies) for line in lines if not PROGRESS.match(line)]
    return by_rank([line for line in lines if not FLOATING.match(line)]), [x for x in lines if FLOATING.match(x)]


def is_subsequence(few, many):
    rest = iter(many)
    return all(any(line == other for other in rest) for line in few)


def agree(shown, printed, varies=()):
    """Whether the printed lines are those shown. varies: patterns of what is not compared besides VOLATILE."""
    fixed, floating = split(shown, varies)
    fixed_printed, floating_printed = split(printed, varies)
    text = "".join(line + " " for line in fixed_printed if line)
    if not re.fullmatch(pattern_of([line for line in fixed if line]), text, re.S):
        return False
    return is_subsequence(floating, floating_printed) and ("..." in fixed or floating == floating_printed)
