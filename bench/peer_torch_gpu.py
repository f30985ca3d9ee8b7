#!/usr/bin/env python3
"""PyTorch on a GPU for comparison: trains the models of `lockstep bench train` on one batch that is on the GPU.

    python bench/peer_torch_gpu.py cnn 64 tf32 --captured --channels-last
    python bench/peer_torch_gpu.py resnet50 64 bf16 --compiled --captured

A step is the forward pass, the loss, which stays on the GPU, the backward pass and the update. --compiled compiles
forward and backward pass (torch.compile) and the update if the optimiser has no fused form; --captured replays the step
as one CUDA graph. fp32 weights in every precision; bf16 is autocast. cuDNN looks for its fastest algorithms. Prints one
JSON object: ms_per_step and the settings, or error.

--serve first prints a line with the names of PyTorch and the GPU. Then it reads such words from standard input, one run
on each line, and answers each with a line. Steps are kept while model, batch and precision stay the same, so that runs
can alternate with those of other programs. resnet, mobilenet and vgg are torchvision's.
"""
import argparse
import gc
import hashlib
import json
import os
import sys
import time
import warnings

import peer_models
from peer_models import CIFAR, IMAGENET, MNIST

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRECISIONS = ("fp32", "tf32", "bf16")
WARM_UP = 5  # steps before the first that counts; cuDNN looks for its fastest algorithms in them
FREE = 0.5  # of the GPU's memory: below it, steps that are not needed now are freed


# The sample's shape and the classes, by the words of `lockstep --model`.
MODELS = {
    "cnn": (MNIST, 10),
    "mlp": (MNIST, 10),
    "pyramidnet": (CIFAR, 10),
    "resnet18:cifar": (CIFAR, 10),
    "resnet50": (IMAGENET, 1000),
    "mobilenet_v2": (IMAGENET, 1000),
    "vgg16": (IMAGENET, 1000),
}


def make_optimizer(torch, args, parameters):
    """The optimiser of each model, in its fastest form: the default for Adadelta, fused for the others. A captured step
    must have its step counter on the GPU; SGD has none."""
    form = {} if args.model == "cnn" else {"fused": True}
    if args.model in ("cnn", "mlp"):
        form["capturable"] = args.device == "cuda"
    return peer_models.make_optimizer(torch, args.model, parameters, **form)


def make_step(torch, args):
    """A function that trains one step and returns the loss; its `parameters` is their number."""
    shape, classes = MODELS[args.model]
    memory_format = torch.channels_last if args.channels_last else torch.contiguous_format
    torch.manual_seed(1)
    model, criterion = peer_models.make(args.model, shape, classes)
    model = model.to(args.device, memory_format=memory_format)
    optimizer = make_optimizer(torch, args, model.parameters())
    x = torch.randn(args.batch, *shape, device=args.device).contiguous(memory_format=memory_format)
    y = torch.randint(0, classes, (args.batch,), device=args.device)

    def compute_loss():
        return criterion(model(x), y)

    forward, update = compute_loss, optimizer.step
    if args.compiled:
        forward = torch.compile(compute_loss, dynamic=False)
        update = torch.compile(optimizer.step) if args.model == "cnn" else optimizer.step

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
            loss = forward()
        loss.backward()
        update()
        return loss

    step.parameters = sum(p.numel() for p in model.parameters())
    return step


def capture(torch, step):
    """Captures the step as a graph, to be replayed. Earlier steps run on another stream, as capturing requires."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss

    replay.step = step  # keeps the batch and the weights alive: the graph has only their addresses
    replay.parameters = step.parameters
    return replay


class Bench:
    """The steps built so far, for one model, batch and precision at a time."""

    def __init__(self, torch):
        self.torch = torch
        self.what, self.steps = None, {}

    def clear(self):
        self.steps.clear()
        self.torch._dynamo.reset()
        gc.collect()
        if self.torch.cuda.is_available():
            self.torch.cuda.empty_cache()

    def choose_precision(self, args):
        torch = self.torch
        torch.backends.cuda.matmul.allow_tf32 = args.precision != "fp32"
        torch.backends.cudnn.allow_tf32 = args.precision != "fp32"
        torch.backends.cudnn.benchmark = not args.prepare

    def is_short_of_memory(self, args):
        if args.device != "cuda":
            return False
        free, total = self.torch.cuda.mem_get_info()
        return free < FREE * total

    def step_of(self, args):
        what, how = (args.model, args.batch, args.precision), (args.compiled, args.channels_last)
        if what != self.what:
            self.clear()
        self.what = what
        if (how, args.captured) not in self.steps:
            if self.is_short_of_memory(args):
                self.clear()
            self.choose_precision(args)
            # A captured step is that of the uncaptured one's weights.
            if (how, False) not in self.steps:
                self.steps[how, False] = make_step(self.torch, args)
            if args.captured:
                self.steps[how, True] = capture(self.torch, self.steps[how, False])
                self.torch.cuda.empty_cache()  # the graph has memory of its own
        return self.steps[how, args.captured]

    def finish(self, args):
        if args.device == "cuda":
            self.torch.cuda.synchronize()

    def run(self, args):
        step = self.step_of(args)
        for _ in range(0 if args.prepare else max(WARM_UP, args.steps // 10)):
            step()
        self.finish(args)
        start = time.perf_counter()
        for _ in range(args.steps):
            loss = step()
        self.finish(args)
        seconds = time.perf_counter() - start
        return {**vars(args), "ms_per_step": 1000 * seconds / args.steps, "loss": loss.item(),
                "parameters": step.parameters}


def make_parser():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("batch", type=int)
    parser.add_argument("precision", choices=PRECISIONS)
    parser.add_argument("--captured", action="store_true", help="the step as one CUDA graph")
    parser.add_argument("--compiled", action="store_true", help="by torch.compile")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try this program out")
    parser.add_argument("--prepare", action="store_true", help="to fill the compiler's cache: no warm-up, no search")
    return parser


def answer(bench, words):
    try:
        return bench.run(make_parser().parse_args(words))
    except Exception as error:  # the next line may succeed
        bench.clear()
        return {"error": (f"{type(error).__name__}: {error}".strip().splitlines() or ["unknown"])[0]}


def describe(torch):
    """What timings depend on: the GPU, versions, and the source of this program."""
    digest = hashlib.sha256()
    for path in (__file__, "bench/peer_models.py", "tools/models.py"):
        with open(os.path.join(ROOT, path), "rb") as file:
            digest.update(file.read())
    there = torch.cuda.is_available()
    gpu = torch.cuda.get_device_name(0) if there else "no GPU"
    memory = torch.cuda.get_device_properties(0).total_memory if there else 0
    return {"gpu": gpu, "gpu_gb": round(memory / 1e9), "peer": f"PyTorch {torch.__version__}",
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "source": digest.hexdigest()[:16]}


def print_line(line):
    print(json.dumps(line), flush=True)


def main():
    serve = sys.argv[1:2] == ["--serve"]
    if not serve:
        make_parser().parse_args()
    warnings.filterwarnings("ignore")
    import torch

    if "cpu" not in sys.argv and not torch.cuda.is_available():
        print_line({"error": f"PyTorch {torch.__version__} of {sys.executable} finds no GPU"})
        return 1
    bench = Bench(torch)
    if not serve:
        result = answer(bench, sys.argv[1:])
        print_line(result)
        return 1 if "error" in result else 0
    print_line(describe(torch))
    for line in sys.stdin:
        print_line(answer(bench, line.split()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
