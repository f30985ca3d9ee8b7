#!/usr/bin/env python3
"""programs.py CC CXX REPOSITORY LIBRARIES PAGE - runs every program of a page and compares what it prints with the page.

A program is a fenced block: "c", "cpp" or "python". The output is the "text" block after it; a program without one must
only succeed. The first "c" block with a main() is the frame: it comes before each later "c" block, which has no main().
Programs run in one folder, in their order. A program whose compiler or numpy is missing is named and left out."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]


class Program:
    def __init__(self, kind, text, line):
        self.kind, self.text, self.line, self.output = kind, text, line, None


def programs(page):
    """The programs of a page with their outputs, and the frame."""
    found, frame = [], ""
    for match in FENCED.finditer(page):
        kind, text, line = match.group(1), match.group(2), page.count("\n", 0, match.start()) + 1
        if kind == "text" and found and found[-1].output is None:
            found[-1].output = text
        elif kind == "c" and re.search(r"^int main\(", text, re.M) and not frame:
            frame = text
        elif kind in ("c", "cpp", "python"):
            found.append(Program(kind, text, line))
    return found, frame


def has_numpy():
    return subprocess.run([sys.executable, "-c", "import numpy"], stderr=subprocess.DEVNULL, check=False).returncode == 0


class Runner:
    def __init__(self, cc, cxx, repository, libraries):
        self.repository, self.libraries = repository, libraries
        self.commands = {"c": [cc, "-std=c17", "-D_POSIX_C_SOURCE=200809L"],
                         "cpp": [cxx, "-std=c++17"] if cxx and shutil.which(cxx) else None,
                         "python": [sys.executable] if has_numpy() else None}

    def environment(self, folder):
        env = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
        env.update(HOME=folder, LC_ALL="C", LD_LIBRARY_PATH=self.libraries, PYTHONPATH=f"{self.repository}/python",
                   PYTHONDONTWRITEBYTECODE="1")
        return env

    def build(self, program, frame, folder):
        """The command that runs a program."""
        source = f"{folder}/program.{'py' if program.kind == 'python' else program.kind}"
        with open(source, "w", encoding="utf-8") as file:
            file.write(frame + "\n" + program.text if program.kind == "c" else program.text)
        if program.kind == "python":
            return [*self.commands["python"], source]
        command = [*self.commands[program.kind], *WARNINGS, f"-I{self.repository}/include", source, "-o",
                   f"{folder}/program", f"-L{self.libraries}", "-llockstep", "-pthread"]
        subprocess.run(command, check=True, timeout=120)
        return [f"{folder}/program"]

    def run(self, program, frame, folder):
        """Returns what is wrong, or None."""
        try:
            command = self.build(program, frame, folder)
            run = subprocess.run(command, cwd=folder, env=self.environment(folder), timeout=120, check=False,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        except (subprocess.SubprocessError, OSError) as error:
            return str(error)
        if run.returncode != 0 or program.output not in (None, run.stdout):
            return f"status {run.returncode}; it prints:\n{run.stdout}"
        return None


def main():
    cc, cxx, repository, libraries, name = sys.argv[1:6]
    runner, failures, ran = Runner(cc, cxx, repository, libraries), 0, 0
    with open(f"{repository}/{name}", encoding="utf-8") as file:
        found, frame = programs(file.read())
    with tempfile.TemporaryDirectory() as folder:
        for program in found:
            if runner.commands[program.kind] is None:
                print(f"left out: {name}:{program.line}: there is no compiler or numpy for {program.kind}")
                continue
            wrong = runner.run(program, frame, folder)
            ran, failures = ran + 1, failures + bool(wrong)
            print(f"{'FAILED' if wrong else 'ok'}: {name}:{program.line}{': ' + wrong if wrong else ''}", flush=True)
    print(f"{name}: {ran} programs run, {failures} failed")
    if not found:
        print("FAILED: no program is found")
    sys.exit(1 if failures or not found else 0 if ran else 77)


if __name__ == "__main__":
    main()
