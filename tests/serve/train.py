"""train.py PROGRAM - `train --serve`: the page of a run lives as long as the run and leaves its bits alone."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from answers import free_port

LIMIT = 100  # seconds for anything


def start(program, folder, *options, fault=None):
    line = [program, "train", "--model", "mlp", "--log-dir", folder, "--log-interval", "1", *options]
    variables = dict(os.environ, LOCKSTEP_FAULT=fault) if fault else None
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=variables)


def address_of(run):
    """The page's address, the first line of stderr."""
    found = re.fullmatch(r"Live page: (http://127\.0\.0\.1:\d+/)\n", run.stderr.readline())
    assert found, "no address"
    return found[1]


def runs_at(address):
    with urllib.request.urlopen(address + "api/runs", timeout=60) as answer:
        return json.load(answer)["runs"]


def listens(address):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(address.split(":")[2].strip("/")))) == 0


def await_true(what, condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(.05)


def finish(run):
    out, err = run.communicate(timeout=LIMIT)
    return run.returncode, out, err


def hash_of(out):
    return re.search(r"^State hash (\w+)$", out, re.M)[1]


def check_bits(program, folder):
    """The same bits with and without the page; the page sees the steps and ends with the run."""
    steps = ["-n", "2", "--max-steps", "100"]
    code, out, _ = finish(start(program, folder, *steps))
    assert code == 0
    slow = "slow:rank=0,op=data,seconds=0.03"  # otherwise it might end before it is looked at
    run = start(program, folder, *steps, "--serve", str(free_port()), fault=slow)
    address = address_of(run)
    await_true("the run is not in the list", lambda: any(row.get("status") == "running" for row in runs_at(address)))
    await_true("steps are not in the list", lambda: max(row.get("step", 0) for row in runs_at(address)) > 0)
    code, served, err = finish(run)
    assert code == 0 and hash_of(served) == hash_of(out), err
    assert not listens(address), "the page outlives the run"


def check_signals(program, folder):
    """The page ends with its run, however the run ends; Ctrl-C is the run's to handle."""
    for ranks in ["1", "2"]:
        for number in [signal.SIGINT, signal.SIGKILL]:
            run = start(program, folder, "-n", ranks, "--epochs", "100000", "--serve", str(free_port()))
            address = address_of(run)
            await_true("no steps", lambda: any(row.get("step", 0) > 0 and row["status"] == "running" for row in runs_at(address)))
            run.send_signal(number)
            code, _, err = finish(run)
            assert code == {signal.SIGINT: 130, signal.SIGKILL: -9}[number], (code, err)
            await_true("the page outlives the run", lambda: not listens(address))


def check_refusals(program, folder):
    def refused(code, *options):
        done = subprocess.run([program, "train", "--model", "mlp", "--max-steps", "1", *options], capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == code and not done.stdout and done.stderr.count("\n") == 1, done
        return done.stderr
    assert "--log-dir" in refused(2, "--serve")
    text = refused(2, "--log-dir", folder, "--serve", "here")
    assert "--serve 'here'" in text and "HOST:PORT" in text, text
    assert "HOST:PORT" in refused(2, "--log-dir", folder, "--serve", " 6061")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert port in refused(1, "--log-dir", folder, "--serve", port)
        assert port in refused(1, "--log-dir", folder, "-n", "2", "--serve", "127.0.0.1:" + port)


def main():
    program = os.path.realpath(sys.argv[1])
    if "not in this build: the live page" in subprocess.run([program, "info"], capture_output=True, text=True).stdout:
        done = subprocess.run([program, "serve", "."], capture_output=True, text=True)
        assert done.returncode == 2 and "libmicrohttpd-dev" in done.stderr, done
        print("SKIPPED: this build is without libmicrohttpd")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        check_refusals(program, folder)
        check_bits(program, folder)
        check_signals(program, folder)
    print("all checks passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
