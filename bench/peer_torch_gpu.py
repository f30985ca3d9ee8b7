#!/usr/bin/env python3
"""PyTorch on a GPU for comparison: trains the models of `lockstep bench train` on one batch that is on the GPU.

    python bench/peer_torch_gpu.py cnn 64 tf32 --captured --channels-last

A step is the forward pass, the loss, which stays on the GPU, the backward pass and the update. --captured replays it as
one CUDA graph. Prints one JSON object: ms_per_step and the settings, or error.

--serve first prints a line with the names of PyTorch and the GPU. Then it reads such words from standard input, one run
on each line, and answers each with a line. Steps are kept while model, batch and precision stay the same, so that runs
can alternate with those of other programs.
"""
import argparse
import gc
import json
import sys
import time
import warnings

from peer_torch import make_cnn, make_mlp

PRECISIONS = ("fp32", "tf32", "bf16")
WARM_UP = 5  # steps before the first that counts; cuDNN looks for its fastest algorithms in them
CLASSES = 10


def pyramid_widths(blocks=17, alpha=270, first=16):
    """The channels of each block, in three stages."""
    growth = alpha / (3 * (blocks + 1))
    return [int(round(first + growth * (i + 1))) for i in range(3 * blocks)]


def make_pyramid_block(torch, channels, out, stride):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn1 = nn.BatchNorm2d(channels)
            self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(out)
            self.relu = nn.ReLU(inplace=True)
            self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(out)

        def forward(self, x):
            y = self.relu(self.bn2(self.conv1(self.bn1(x))))
            y = self.bn3(self.conv2(y))
            if stride > 1:
                x = nn.functional.avg_pool2d(x, 2, 2, ceil_mode=True)
            return y + nn.functional.pad(x, (0, 0, 0, 0, 0, out - channels))

    return Block()


def make_pyramidnet(torch, blocks=17):
    nn = torch.nn

    class PyramidNet(nn.Module):
        def __init__(self):
            super().__init__()
            widths = [16] + pyramid_widths(blocks)
            self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(16)
            for stage in range(3):
                steps = range(stage * blocks, (stage + 1) * blocks)
                layer = [make_pyramid_block(torch, widths[i], widths[i + 1], 2 if stage and i == steps[0] else 1)
                         for i in steps]
                setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
            self.bn_out = nn.BatchNorm2d(widths[-1])
            self.fc_out = nn.Linear(widths[-1], CLASSES)

        def forward(self, x):
            x = self.bn1(self.conv1(x))
            x = self.layer3(self.layer2(self.layer1(x)))
            x = nn.functional.avg_pool2d(nn.functional.relu(self.bn_out(x), inplace=True), 8)
            return self.fc_out(torch.flatten(x, 1))

    net = PyramidNet()
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return net


# By name: the function that makes the model, and the shape of a sample.
MODELS = {"cnn": (make_cnn, (1, 28, 28)), "mlp": (make_mlp, (1, 28, 28)), "pyramidnet": (make_pyramidnet, (3, 32, 32))}


def make_optimizer(torch, args, parameters):
    """The optimiser of each model, in its fastest form: the default for Adadelta, fused for the others. A captured step
    must have its step counter on the GPU; SGD has none."""
    if args.model == "cnn":
        return torch.optim.Adadelta(parameters, lr=1.0, capturable=args.captured)
    if args.model == "mlp":
        return torch.optim.Adam(parameters, lr=0.001, fused=True, capturable=args.captured)
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True)


def make_step(torch, args):
    make, sample = MODELS[args.model]
    memory_format = torch.channels_last if args.channels_last else torch.contiguous_format
    torch.manual_seed(1)
    model = make(torch).to("cuda", memory_format=memory_format)
    optimizer = make_optimizer(torch, args, model.parameters())
    x = torch.randn(args.batch, *sample, device="cuda").contiguous(memory_format=memory_format)
    y = torch.randint(0, CLASSES, (args.batch,), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=args.precision == "bf16"):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

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
    return replay


class Bench:
    """The steps built so far, for one model, batch and precision at a time."""

    def __init__(self, torch):
        self.torch = torch
        self.steps = {}

    def choose_precision(self, precision):
        torch = self.torch
        torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
        torch.backends.cudnn.allow_tf32 = precision != "fp32"
        torch.backends.cudnn.benchmark = True

    def step_of(self, args):
        what = (args.model, args.batch, args.precision)
        how = (args.captured, args.channels_last)
        if any(key[:3] != what for key in self.steps):
            self.steps.clear()
            gc.collect()
            self.torch.cuda.empty_cache()
        if what + how not in self.steps:
            self.choose_precision(args.precision)
            step = make_step(self.torch, args)
            self.steps[what + how] = capture(self.torch, step) if args.captured else step
        return self.steps[what + how]

    def run(self, args):
        step = self.step_of(args)
        for _ in range(max(WARM_UP, args.steps // 10)):
            step()
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(args.steps):
            loss = step()
        self.torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        return {**vars(args), "ms_per_step": 1000 * seconds / args.steps, "loss": loss.item()}


def make_parser():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("batch", type=int)
    parser.add_argument("precision", choices=PRECISIONS)
    parser.add_argument("--captured", action="store_true", help="the step as one CUDA graph")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    return parser


def answer(bench, words):
    try:
        return bench.run(make_parser().parse_args(words))
    except Exception as error:  # the next line may succeed
        bench.steps.clear()
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}


def print_line(line):
    print(json.dumps(line), flush=True)


def main():
    serve = sys.argv[1:] == ["--serve"]
    if not serve:
        make_parser().parse_args()
    warnings.filterwarnings("ignore")
    import torch

    if not torch.cuda.is_available():
        print_line({"error": f"PyTorch {torch.__version__} of {sys.executable} finds no GPU"})
        return 1
    bench = Bench(torch)
    if not serve:
        result = answer(bench, sys.argv[1:])
        print_line(result)
        return 1 if "error" in result else 0
    print_line({"peer": f"PyTorch {torch.__version__}", "cudnn": torch.backends.cudnn.version(),
          "gpu": torch.cuda.get_device_name(0)})
    for line in sys.stdin:
        print_line(answer(bench, line.split()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
