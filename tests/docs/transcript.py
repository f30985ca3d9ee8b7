"""transcript.py - compares the output of a command with its page.

A line "..." stands for any number of lines. Process ids, host names, seconds and numbers of threads are not compared.
Ranks print in any order, so the lines of each rank are compared for themselves. Checkpoints are saved during training,
so their lines may be anywhere between others. Progress lines, which are printed when steps take long, are ignored, and
so is the table at the end of a run, unless the page shows it."""
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
# Lines that are printed or not, depending on how busy the host is.
PROGRESS = re.compile(r"(\[\d+\] )?(epoch \d+, step \d+/\d+, loss .* ETA |Steps waited for the loader for )")
# A row of the table at the end of a run: its name is compared, if the page shows it, and not its numbers.
ROW = re.compile(r"(\[\d+\] )?  (accuracy|time|speed|steps|loader|peak memory|slowest rank|shards) .*")
FLOATING = re.compile(r"(\[\d+\] )?Checkpoint saved to ")


def normal(line, varies):
    line = ROW.sub(r"\1\2 of the table", line)
    for pattern, text in VOLATILE + [(pattern, "*") for pattern in varies]:
        line = re.sub(pattern, text, line)
    return line.strip()


def by_rank(lines):
    """Sorts consecutive lines of ranks by rank; the lines of a rank keep their order."""
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
    """Returns a regular expression for the shown lines, joined by spaces; "..." matches anything."""
    parts = []
    for line in shown:
        if line == "...":
            parts.append(r"(?:.*? )?")
            continue
        escaped = re.escape(line)
        # "..." at the end of a line stands for the rest of the line.
        escaped = re.sub(r"\\\.\\\.\\\.(?=$|\\\))", r".*?", escaped)
        parts.append(escaped + " ")
    return "".join(parts)


def split(lines, varies):
    """Returns the lines with a fixed position, and the lines that may be anywhere."""
    lines = [normal(line, varies) for line in lines if not PROGRESS.match(line)]
    return by_rank([line for line in lines if not FLOATING.match(line)]), [x for x in lines if FLOATING.match(x)]


def is_subsequence(few, many):
    rest = iter(many)
    return all(any(line == other for other in rest) for line in few)


def agree(shown, printed, varies=()):
    """Whether the printed lines are equal to the shown lines. varies: patterns that are not compared, besides VOLATILE."""
    if not any(ROW.fullmatch(line) for line in shown):
        printed = [line for line in printed if not ROW.fullmatch(line)]
    fixed, floating = split(shown, varies)
    fixed_printed, floating_printed = split(printed, varies)
    text = "".join(line + " " for line in fixed_printed if line)
    if not re.fullmatch(pattern_of([line for line in fixed if line]), text, re.S):
        return False
    return is_subsequence(floating, floating_printed) and ("..." in fixed or floating == floating_printed)
