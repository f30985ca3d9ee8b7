#!/usr/bin/env python3
"""commands.py LOCKSTEP REPOSITORY BUILD PAGE - runs every command of a page in its order, in one shell and one folder,
and compares the output with the page. A command whose output is not shown must end with status 0."""
import os
import socket
import subprocess
import sys
import tempfile

import exceptions
import fixtures
import page
import transcript


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return str(sock.getsockname()[1])


def prepare(folder, lockstep, repository, build):
    """Makes the folder of a reader: a clone of the repository after `make`."""
    fixtures.make(folder, lockstep)
    os.symlink(f"{repository}/configs", f"{folder}/configs")
    os.symlink(f"{repository}/examples", f"{folder}/examples")
    os.symlink(build, f"{folder}/build")
    os.symlink(f"{build}/examples/06_debug_group", f"{folder}/program")
    os.symlink(f"{repository}/examples/01_single.c", f"{folder}/prog.c")


def environment(folder, build):
    env = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
    env.update(HOME=folder, LOCKSTEP_DATA=f"{folder}/data", BUILD=build, LC_ALL="C",
               PATH=f"{folder}/short:{env['PATH']}")
    return env


def script(plan):
    """Runs all commands in one shell, because later commands use variables of earlier ones. Outputs and statuses go to
    files."""
    lines = []
    for i, (command, text) in enumerate(plan):
        # A transcript runs the program itself; other commands run fixtures.SHORT, which shortens long runs.
        path = "$BUILD" if command.output is not None else "$HOME/short"
        lines.append(f"PATH={path}:$PATH FREE_PORT={free_port()}")
        lines.append(f"{{\n{text}\n}} >out.{i} 2>&1 </dev/null")
        lines.append(f"echo $? >status.{i}")
    return "\n".join(lines) + "\n"


def judge(name, command, printed, status):
    """Returns what is wrong, or None."""
    # diff(1) ends with 1 if it has found a difference.
    if command.output is None and status != 0 and not (status == 1 and command.text.startswith("diff ")):
        return f"status {status}"
    if command.output is not None and not transcript.agree(
            command.output, printed.split("\n")[:-1], exceptions.varies(name, command)):
        return "prints something else than the page shows"
    return None


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def run(name, folder, plan, env):
    subprocess.run(["bash", "-c", script(plan)], cwd=folder, env=env, check=False)
    failures = 0
    for i, (command, text) in enumerate(plan):
        printed = read(f"{folder}/out.{i}")
        wrong = judge(name, command, printed, int(read(f"{folder}/status.{i}") or -1))
        print(f"{'FAILED' if wrong else 'ok'}: {name}:{command.line}: {text}", flush=True)
        if wrong:
            failures += 1
            print(f"  {wrong}; it prints:\n{printed}")
    return failures


def main():
    lockstep, repository, build = (os.path.realpath(path) for path in sys.argv[1:4])
    name = sys.argv[4]
    found = page.commands(f"{repository}/{name}")
    plan, failures = [], 0
    for command in found:
        text, why = exceptions.instead(name, command)
        if text is None:
            print(f"left out: {name}:{command.line}: {command.text}: {why}")
        else:
            plan.append((command, text))
    for pattern in exceptions.unused(name, found):
        failures += 1
        print(f"FAILED: no command of {name} matches the exception {pattern}")
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder, lockstep, repository, build)
        failures += run(name, folder, plan, environment(folder, build))
    if not found:
        print(f"FAILED: no command is found in {name}")
    print(f"{name}: {len(plan)} commands run, {failures} failed")
    sys.exit(failures > 0 or not found)


main()
