"""The two sides of bench/gpu.py: Lockstep's program, and PyTorch in a process that is kept."""
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEER = os.path.join(ROOT, "bench", "peer_torch_gpu.py")
# By PyTorch's mode: the words of bench/peer_torch_gpu.py.
MODES = {"eager": [], "captured": ["--captured"], "compiled": ["--compiled"], "both": ["--compiled", "--captured"]}
STEP_TIMEOUT_S, PEER_TIMEOUT_S, RUN_TIMEOUT_S = 90, 120, 60
PARALLEL = 8  # processes that compile at the same time
# Most GB of GPU memory that a sample of a step takes in PyTorch; 0.02 for models that are not listed. GB of a process.
SAMPLE_GB = {"resnet50": 0.12, "mobilenet_v2": 0.12, "vgg16": 0.3, "pyramidnet": 0.08}
PROCESS_GB, GPU_PART = 2, 0.7  # GPU_PART: of the GPU's memory, for all processes that compile


class Failed(Exception):
    """A run that gave no figure, and why."""


class Clock:
    """Seconds that are left for everything, without the reserve for the end."""

    def __init__(self, seconds, kept):
        self.seconds, self.kept = seconds, kept
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - self.kept - time.monotonic()

    def bound(self, seconds):
        return max(1, min(seconds, self.left()))


class Ours:
    def __init__(self, program, device, clock):
        self.program, self.clock = program, clock
        self.device = "cuda:0" if device == "cuda" else device
        self.counts = {}  # parameters, by model

    def lines_of(self, words, timeout):
        """The JSON lines a command prints."""
        timeout = self.clock.bound(timeout)
        try:
            done = subprocess.run([self.program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  universal_newlines=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(f"no end after {timeout:.0f} s") from None
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if line.strip()]
            raise Failed(said[-1] if said else f"exit status {done.returncode}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.strip()]

    def step(self, row, shards, runs):
        words = ["bench", "train", "--devices", self.device, "--precision", row.precision, "--batch-size",
                 str(row.batch), "--shards", str(shards), "--steps", str(row.steps), "--runs", str(runs), "--json"]
        return self.lines_of([*words, *row.model_words(), *row.learning()], STEP_TIMEOUT_S)[-1]["ms_per_step"]

    def parameters(self, row):
        if row.model not in self.counts:
            line = self.lines_of(["info", "--json", *row.model_words()], STEP_TIMEOUT_S)[0]
            self.counts[row.model] = line["parameters"]
        return self.counts[row.model]

    def has(self, data):
        try:
            self.lines_of(["train", "--devices", "cpu", "--data", data, "--epochs", "0", "--no-test", "--json"],
                          STEP_TIMEOUT_S)
        except Failed:
            return False
        return True

    def train(self, data, *more):
        """All JSON lines of a run of the cnn, and its seconds from exec to exit."""
        words = ["train", "--devices", self.device, "--precision", "tf32", "--model", "cnn", "--data", data, "--quiet"]
        began = time.monotonic()
        lines = self.lines_of([*words, "--json", *more], RUN_TIMEOUT_S)
        return lines, time.monotonic() - began


class Peer:
    """PyTorch in a process that is kept, because importing it takes seconds. `about` is what its figures depend on."""

    def __init__(self, python, device, folder, clock):
        self.python, self.device, self.clock = python, device, clock
        self.process, self.errors = None, None
        cache = os.path.join(folder, "inductor")
        self.env = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache, TORCHINDUCTOR_FX_GRAPH_CACHE="1",
                        TORCHINDUCTOR_AUTOGRAD_CACHE="1", TRITON_CACHE_DIR=os.path.join(cache, "triton"))
        self.about = self.start()

    def start(self):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([self.python, PEER, "--serve", self.device], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, universal_newlines=True,
                                        env=self.env)
        self.answers = queue.Queue()
        threading.Thread(target=self.read, args=(self.process.stdout, self.answers), daemon=True).start()
        return self.answer()

    @staticmethod
    def read(pipe, answers):
        for line in pipe:
            if line.startswith("{"):
                answers.put(json.loads(line))
        answers.put(None)

    def answer(self):
        timeout = self.clock.bound(PEER_TIMEOUT_S)
        try:
            line = self.answers.get(timeout=timeout)
        except queue.Empty:
            self.stop()
            raise Failed(f"no answer after {timeout:.0f} s") from None
        if line is None:
            self.errors.seek(0)
            said = self.errors.read().strip().splitlines()
            self.stop()
            raise Failed(f"PyTorch ended: {said[-1]}" if said else "PyTorch ended")
        if "error" in line:
            raise Failed(line["error"])
        return line

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None
            self.errors.close()

    def words(self, row, mode, last, steps):
        words = [row.model, str(row.batch), row.precision, "--steps", str(steps), "--device", self.device]
        return [*words, *MODES[mode], *(["--channels-last"] if last else [])]

    def run(self, row, mode, last, steps):
        """The answer of bench/peer_torch_gpu.py."""
        if not self.process:
            self.start()
        try:
            self.process.stdin.write(" ".join(self.words(row, mode, last, steps)) + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # the answer says why
        return self.answer()

    def start_compiling(self, row, last):
        """A process that compiles into the cache, and the file of its answer."""
        said = tempfile.TemporaryFile("w+")
        env = dict(self.env, TORCHINDUCTOR_COMPILE_THREADS="2", OMP_NUM_THREADS="2")
        words = [self.python, PEER, *self.words(row, "compiled", last, 1), "--prepare"]
        return subprocess.Popen(words, env=env, stdout=said, stderr=subprocess.DEVNULL), said

    def compile_all(self, jobs, seconds):
        """Compiles for (row, last) in parallel processes, into the cache. Returns by row whether it could be
        compiled, without rows for which the time was too short; prints why rows were not compiled."""
        self.stop()  # its memory is needed
        room = GPU_PART * self.about["gpu_gb"] if self.device == "cuda" else 1e9
        waiting = sorted(jobs, key=lambda job: -job_gb(job[0]))
        running, ended, end = [], {}, time.monotonic() + seconds
        while (waiting or running) and time.monotonic() < end:
            for job in [job for job in running if job[1].poll() is not None]:
                running.remove(job)
                ended[job[0]] = end_compiling(*job)
            for row, last in list(waiting):
                used = sum(job_gb(job[0]) for job in running)
                if len(running) < PARALLEL and (not running or used + job_gb(row) <= room):
                    running.append((row, *self.start_compiling(row, last)))
                    waiting.remove((row, last))
            time.sleep(0.05)
        for row, process, said in running:
            process.kill()
            end_compiling(row, process, said)
        for row in [job[0] for job in waiting]:
            complain(row, "PyTorch", "not compiled, the time is over")
        return ended


def end_compiling(row, process, said):
    """True if the process was successful; prints the reason if not."""
    status = process.wait()
    said.seek(0)
    lines = [json.loads(line) for line in said if line.startswith("{")]
    said.close()
    if status < 0:
        complain(row, "PyTorch", "not compiled in time" if status == -9 else f"compiling ended by signal {-status}")
    elif status > 0:
        complain(row, "PyTorch, compiled", lines[-1].get("error") if lines else f"exit status {status}")
    return status == 0


def job_gb(row):
    return PROCESS_GB + SAMPLE_GB.get(row.model, 0.02) * row.batch


def find_ours(program, device, row, clock):
    """None, with the reason printed, if there is no such program or device."""
    if not os.access(program, os.X_OK):
        print(f"Lockstep is not measured: {program} is not there; run make first")
        return None
    ours = Ours(program, device, clock)
    try:
        ours.step(row._replace(steps=1), 1, 1)
    except Failed as why:
        print(f"Lockstep is not measured: {why}")
        return None
    return ours


def find_peer(device, folder, clock):
    """The first PyTorch that has a GPU; None, with the reason printed, if there is none."""
    try:
        found = subprocess.run([os.path.join(ROOT, "tools", "torch_python"), "--all"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, universal_newlines=True, timeout=clock.bound(60), check=False)
    except subprocess.TimeoutExpired:
        print("PyTorch is not measured: it was not found in time")
        return None
    reasons = [] if found.returncode == 0 else [found.stderr.strip()]
    for python in found.stdout.split():
        try:
            return Peer(python, device, folder, clock)
        except Failed as why:
            reasons.append(str(why))
    print(f"PyTorch is not measured: {'; '.join(reasons)}")
    return None


def complain(row, who, why):
    print(f"{row.name()}: {who}: {why}", file=sys.stderr, flush=True)
