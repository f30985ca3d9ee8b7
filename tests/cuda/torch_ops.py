#!/usr/bin/env python3
"""torch_ops.py FILE.safetensors - compares every op, loss and optimiser with PyTorch. torch_ops.c writes the file.

The truth is PyTorch's result in float64 for the same inputs; the name of a case describes it (see torch_ops.c). A line
for each case and precision has the largest errors, relative to the largest value of a tensor: of the device, of PyTorch
in the same precision (on a GPU where it has one; it has no tf32 on a CPU), of the CPU, and between device and CPU. The
last number is the largest error of the device as a part of its bound. The exit status is 1 if an error exceeds its
bound. Needs numpy and PyTorch.

The bound of an element y is 1e-5 of the largest value of its tensor, plus, with unit roundoff u:
- convolutions and linear layers in tf32, u = 2^-11: rounding both factors of a product has an error of at most 4u of the
  product. Errors of one direction add up to 4u |y|; random errors add up to less than 4 * 4u r (more than ten standard
  deviations), where r is the root of the sum of the products' squares.
- results in bf16, u = 2^-8: u |y| for rounding. Partial results of sums of products may be rounded, too: 4u r more.
- dx of add in bf16 is dy plus a gradient g that was rounded before: u |g| more, which is at most u (|dx| + |dy|).
- dx of matmul in bf16 is a sum of gradients of both factors, which were rounded before; the second one is a sum of up
  to nine of a maximum pooling.
- dx of concat in bf16 is a part of dy plus such a gradient.
- softmax in bf16 rounds its result y, which its gradient y (dy - sum of y dy) uses twice.
- dx of mul in bf16 is dy b plus a sum of up to nine products dy x of a maximum pooling. dy b, the products and their
  sum were rounded before: u (|dy b| + 2 s) more, where s is the sum of the products' absolute values.
- sigmoid and tanh in bf16 round their result y, and their gradients use it: their slopes change by less than 2u.
- log_softmax in bf16 rounds its result, and its gradient uses the exponential of that: u |y| more of the gradient.
"""
import json
import struct
import sys

import numpy as np
import torch
from torch.nn import functional as F

TOLERANCE = 1e-5
ROUNDOFF = {"fp32": 0.0, "tf32": 2.0**-11, "bf16": 2.0**-8}
DTYPES = {"F32": np.float32, "I32": np.int32}
GPU = torch.cuda.is_available()
PLACE = "cuda" if GPU else "cpu"
WITH_PRODUCTS = ("conv2d", "conv_transpose2d", "linear")
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
              "adadelta": torch.optim.Adadelta, "rmsprop": torch.optim.RMSprop}


def read(path):
    """Returns {(case, precision, batch): {whose: {what: tensor}}} of a .safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    runs = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        case, precision, batch, whose, what = name.split("/")
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        run = runs.setdefault((case, precision, batch), {"in": {}, "device": {}, "cpu": {}})
        run[whose][what] = torch.from_numpy(array.copy())
    return runs


def parse(word):
    """Returns the name and the numbers of "conv2d:out=26,no_bias"."""
    name, _, rest = word.partition(":")
    pairs = (item.partition("=") for item in rest.split(",") if item)
    return name, {key: float(value) if value else 1.0 for key, _, value in pairs}


def axes(v, key, default):
    """Returns an option of the height and of the width."""
    height = int(v.get(key, default))
    return height, 0 if "no_" + key + "_w" in v else int(v.get(key + "_w", 0)) or height


def windows(v):
    """Returns kernel, stride and padding of a pooling."""
    kernel = axes(v, "kernel", 0)
    return kernel, axes(v, "stride", 0) if "stride" in v else kernel, axes(v, "pad", 0)


def split(case):
    """Returns the layers of a chain."""
    return [parse(word) for word in case.split() if word not in ("first", "eval")]


def images(tensor):
    """Converts (n, h, w, c) to PyTorch's order; images of one pixel become vectors."""
    return tensor.flatten(1) if tensor.shape[1] == tensor.shape[2] == 1 else tensor.permute(0, 3, 1, 2)


def like_ours(tensor):
    return tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor


class Run:
    """One pass through a chain in PyTorch. kept says where the last layer passes gradients, because rounding may have
    changed the sign of a ReLU's input; for dropout it is the mask. Ops get their input and the numbers of their name."""

    def __init__(self, case, given, dtype, place, kept=None):
        self.layers = split(case)
        self.train = "eval" not in case.split()
        self.kept = None if kept is None else images(kept).to(place)
        self.leaves = {key: value.to(place) for key, value in given.items()}
        for key, value in self.leaves.items():
            if not value.is_floating_point():
                continue
            # Parameters of normalisations stay in float32, and running statistics are updated in place.
            norm = "running_mean" in given or self.layers[0][0] in ("groupnorm", "layernorm")
            whole = norm and key not in ("x", "dy")
            kind = torch.float32 if whole and dtype == torch.bfloat16 else dtype
            self.leaves[key] = value.clone().to(kind).requires_grad_(not key.startswith("running_"))

    def conv2d(self, x, v):
        return F.conv2d(x, self.leaves["weight"], self.leaves.get("bias"), axes(v, "stride", 1), axes(v, "pad", 0),
                        axes(v, "dilation", 1), int(v.get("groups", 1)))

    def conv_transpose2d(self, x, v):
        return F.conv_transpose2d(x, self.leaves["weight"], self.leaves.get("bias"), axes(v, "stride", 1),
                                  axes(v, "pad", 0), axes(v, "out_pad", 0), int(v.get("groups", 1)),
                                  axes(v, "dilation", 1))

    def linear(self, x, v):
        return F.linear(x, self.leaves["weight"], self.leaves["bias"])

    def embedding(self, x, v):
        """The ids are the elements of x, whose gradient is 0."""
        y = F.embedding(x.detach().flatten(1).long(), self.leaves["weight"]) + 0 * x.sum()
        return y.transpose(1, 2).unsqueeze(2)

    def batchnorm2d(self, x, v):
        return F.batch_norm(x, self.leaves["running_mean"], self.leaves["running_var"], self.leaves["weight"],
                            self.leaves["bias"], self.train)

    # Autocast computes these two in fp32.
    def groupnorm(self, x, v):
        x = x.float() if x.dtype == torch.bfloat16 else x
        return F.group_norm(x, int(v["groups"]), self.leaves["weight"], self.leaves["bias"])

    def layernorm(self, x, v):
        x = (x.float() if x.dtype == torch.bfloat16 else x).permute(0, 2, 3, 1)
        return F.layer_norm(x, x.shape[3:], self.leaves["weight"], self.leaves["bias"]).permute(0, 3, 1, 2)

    def relu(self, x, v):
        y = F.relu(x)
        if self.kept is None:
            return y
        passed = x * self.kept
        return passed + (y - passed).detach()

    def relu6(self, x, v):
        return F.relu6(x)

    def leaky_relu(self, x, v):
        return F.leaky_relu(x, v["slope"])

    def sigmoid(self, x, v):
        return torch.sigmoid(x)

    def tanh(self, x, v):
        return torch.tanh(x)

    def silu(self, x, v):
        return F.silu(x)

    def gelu(self, x, v):
        return F.gelu(x)

    def gelu_tanh(self, x, v):
        return F.gelu(x, approximate="tanh")

    def maxpool2d(self, x, v):
        kernel, stride, pad = windows(v)
        return F.max_pool2d(x, kernel, stride, pad, axes(v, "dilation", 1), bool(v.get("ceil", 0)))

    def avgpool2d(self, x, v):
        return F.avg_pool2d(x, *windows(v), bool(v.get("ceil", 0)))

    def global_avgpool(self, x, v):
        return F.adaptive_avg_pool2d(x, 1)

    def global_maxpool(self, x, v):
        return F.adaptive_max_pool2d(x, 1)

    def dropout(self, x, v):
        return x * self.kept / (1 - v["p"])

    def dropout2d(self, x, v):
        return x * self.kept.amax((2, 3), keepdim=True) / (1 - v["p"])

    def pad_channels(self, x, v):
        return F.pad(x, (0, 0, 0, 0, 0, int(v["out"]) - x.shape[1]))

    def flatten(self, x, v):
        return x.flatten(1)

    def add(self, x, v):
        return x + F.max_pool2d(x, 3, 1, 1)

    def mul(self, x, v):
        return x * F.max_pool2d(x, 3, 1, 1)

    # Axes are those of (n, h, w, c).
    def matmul(self, x, v):
        a, b = x.permute(0, 2, 3, 1), F.max_pool2d(x, 3, 1, 1).permute(0, 2, 3, 1)
        return (a @ b).permute(0, 3, 1, 2)

    def transpose(self, x, v):
        return x.permute(0, 2, 3, 1).transpose(int(v["a"]), int(v["b"])).permute(0, 3, 1, 2)

    def reshape(self, x, v):
        x = x.permute(0, 2, 3, 1).reshape(-1, int(v["height"]), int(v["width"]), int(v["out"]))
        return x.permute(0, 3, 1, 2)

    def concat(self, x, v):
        return torch.cat([x, F.max_pool2d(x, 3, 1, 1)], 1)

    # Autocast computes these in fp32.
    def softmax(self, x, v):
        return F.softmax(x.float() if x.dtype == torch.bfloat16 else x, 1)

    def log_softmax(self, x, v):
        return F.log_softmax(x.float() if x.dtype == torch.bfloat16 else x, 1)

    def nll_loss(self, x, v):
        smoothing, y, k = v.get("smoothing", 0), self.leaves["labels"].long(), self.class_weights(x, v)
        x = x.float() if x.dtype == torch.bfloat16 else x
        label = F.nll_loss(x, y, weight=None if k is None else k.to(x.dtype), reduction="none")
        return (1 - smoothing) * label - smoothing * x.mean(1)

    def cross_entropy(self, x, v):
        return self.of_classes(x, self.leaves["labels"].long(), v)

    def soft_cross_entropy(self, x, v):
        return self.of_classes(x, images(self.leaves["targets"]), v)

    def of_classes(self, x, y, v):
        x = x.float() if x.dtype == torch.bfloat16 else x
        k = self.class_weights(x, v)
        return F.cross_entropy(x, y.to(x.dtype) if y.is_floating_point() else y, weight=k, reduction="none",
                               label_smoothing=v.get("smoothing", 0))

    def class_weights(self, x, v):
        """Returns the weights of torch_layers.h, or None."""
        k = 0.5 + torch.arange(x.shape[1], device=x.device) % 4 / 2
        return k.to(x.dtype) if "weighted" in v else None

    def of_elements(self, function, x, **options):
        x = x.float() if x.dtype == torch.bfloat16 else x
        return function(x, images(self.leaves["targets"]).to(x.dtype), reduction="none", **options).flatten(1).mean(1)

    def mse_loss(self, x, v):
        return self.of_elements(F.mse_loss, x)

    def l1_loss(self, x, v):
        return self.of_elements(F.l1_loss, x)

    def huber_loss(self, x, v):
        return self.of_elements(F.huber_loss, x, delta=v["p"])

    def smooth_l1_loss(self, x, v):
        return self.of_elements(F.smooth_l1_loss, x, beta=v["p"])

    def bce_with_logits_loss(self, x, v):
        return self.of_elements(F.binary_cross_entropy_with_logits, x, pos_weight=self.class_weights(x, v))

    def results(self):
        """Returns the results under the names of torch_ops.c."""
        y = images(self.leaves["x"])
        for i, (name, values) in enumerate(self.layers):
            last, kept = i == len(self.layers) - 1, self.kept
            self.kept = kept if last else None
            y = getattr(self, name)(y, values)
            self.kept = kept
        out = {"loss": y} if "labels" in self.leaves or "targets" in self.leaves else {"y": like_ours(y)}
        if self.train:
            wanted = [key for key in ("x", "weight", "bias") if key in self.leaves]
            dy = images(self.leaves["dy"]) if "dy" in self.leaves else torch.full_like(y, 1 / len(y))
            grads = torch.autograd.grad(y, [self.leaves[key] for key in wanted], dy.reshape(y.shape).to(y.dtype))
            out.update({"dx" if key == "x" else "grad." + key: grad for key, grad in zip(wanted, grads)})
        for key in ("running_mean", "running_var"):
            if key in self.leaves:
                out["after." + key] = self.leaves[key]
        return {key: value.detach().double().cpu() for key, value in out.items()}


def kept_by(case, run, got):
    """Where the last layer of a chain passes gradients, according to the results `got`; dropout's mask is the CPU's."""
    last = split(case)[-1][0]
    if last.startswith("dropout"):
        return run["cpu"]["y"] != 0
    return got["y"] > 0 if last == "relu" else None


def exact(case, run, got):
    return Run(case, run["in"], torch.float64, "cpu", kept_by(case, run, got)).results()


def product_squares(case, run):
    """Returns the sum of the products' squares for each sum of products: the chain applied to squares. A ReLU before
    it needs the signs."""
    given = {key: value.double() ** 2 for key, value in run["in"].items()}
    if split(case)[0][0] == "relu":
        given["x"] = given["x"] * run["in"]["x"].sign()
    return Run(case, given, torch.float64, "cpu", kept_by(case, run, run["device"])).results()


# Comparisons.


def allowed(case, precision, run, want):
    """Returns the bounds of the device's errors; see the head of this file."""
    names = [name for name, _ in split(case)]
    u = ROUNDOFF[precision]
    products = any(name in WITH_PRODUCTS for name in names)
    squares = product_squares(case, run) if products else {}
    bounds = {}
    for key, value in want.items():
        bounds[key] = torch.full_like(value, TOLERANCE * value.abs().max().item())
        if products:
            bounds[key] += (4 * u if precision == "tf32" else u) * (value.abs() + 4 * squares[key].sqrt())
        elif precision == "bf16" and key in ("y", "dx"):
            bounds[key] += u * value.abs()
    if "add" in names and precision == "bf16":
        bounds["dx"] += u * (want["dx"].abs() + run["in"]["dy"].double().abs())
    if "matmul" in names and precision == "bf16":
        x, dy = run["in"]["x"].double().abs(), run["in"]["dy"].double().abs()
        largest = like_ours(F.max_pool2d(images(x), 3, 1, 1))
        bounds["dx"] += u * (dy @ largest.transpose(2, 3)).reshape(bounds["dx"].shape)
        inner = images(x.transpose(2, 3) @ dy)
        bounds["dx"] += 9 * u * like_ours(F.max_pool2d(inner, 3, 1, 1)).reshape(bounds["dx"].shape)
    if "concat" in names and precision == "bf16":
        direct = run["in"]["dy"].double()[..., :run["in"]["x"].shape[-1]].abs()
        bounds["dx"] += u * (want["dx"].abs().reshape(direct.shape) + direct).reshape(bounds["dx"].shape)
    if "softmax" in names and precision == "bf16":
        y = like_ours(F.softmax(images(run["in"]["x"]).double(), 1))
        dy = run["in"]["dy"].double().reshape(y.shape)
        reach = dy.abs() + 2 * (y * dy).abs().sum(-1, keepdim=True)
        bounds["dx"] += (u * y * reach).reshape(bounds["dx"].shape)
    if "mul" in names and precision == "bf16":
        x = images(run["in"]["x"]).double().requires_grad_()
        dy, largest = images(run["in"]["dy"]).double(), F.max_pool2d(x, 3, 1, 1)
        largest.backward((dy * x).abs().detach())
        bounds["dx"] += u * like_ours((dy * largest).abs().detach() + 2 * x.grad).reshape(bounds["dx"].shape)
    if names[0] in ("sigmoid", "tanh") and precision == "bf16":
        bounds["dx"] += 2 * u * run["in"]["dy"].double().abs().reshape(bounds["dx"].shape)
    if "log_softmax" in names and precision == "bf16":
        scores = F.log_softmax(images(run["in"]["x"]).double(), 1)
        dy = images(run["in"]["dy"]).double().sum(1, keepdim=True) if "dy" in run["in"] else 1 / len(scores)
        bounds["dx"] += like_ours(u * (scores * scores.exp() * dy).abs()).reshape(bounds["dx"].shape)
        if "loss" in bounds:
            bounds["loss"] += u * want["loss"].abs()
    return bounds


def larger(a, b):
    """Returns the larger number; NaN is the largest."""
    return a if b <= a or a != a else b


def distance(got, want, scale):
    """Returns the largest difference of two results, relative to the largest value of each tensor."""
    worst = 0.0
    for key in want:
        a, b = got[key].double(), want[key].double()
        largest = scale[key].abs().max().item()
        off = (a.reshape(b.shape) - b).abs().max().item()
        worst = larger(worst, off / largest if largest else off)
    return worst


def used(got, want, bounds):
    """Returns the largest error as a part of its bound, and the tensor that has it."""
    worst, whose = 0.0, ""
    for key in want:
        off = (got[key].double().reshape(want[key].shape) - want[key]).abs()
        part = torch.where(off == 0, 0, off / bounds[key]).max().item()
        if larger(worst, part) is not worst:
            worst, whose = part, key
    return worst, whose


def has_all(got, want):
    """Whether the file has all results of PyTorch."""
    return set(want) <= set(got) and all(got[key].numel() == want[key].numel() for key in want)


def own(case, precision, run):
    """Returns PyTorch's results in this precision; None: PyTorch does not support it."""
    if precision == "tf32" and not GPU:
        return None
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    last = split(case)[-1][0]
    kept = kept_by(case, run, run["cpu"]) if last.startswith("dropout") else None
    try:
        return Run(case, run["in"], dtype, PLACE, kept).results()
    except RuntimeError as error:  # old versions do not support bf16 everywhere
        if "not implemented for" in str(error):
            return None
        raise


def label_ranks(run):
    """Returns the label rank of each sample; of equal scores the first class is first."""
    x, labels = run["in"]["x"].flatten(1), run["in"]["labels"].long()
    score = x.gather(1, labels[:, None])
    before = torch.arange(x.shape[1]) < labels[:, None]
    return ((x > score) | (x == score) & before).sum(1)


def mistakes(case, run):
    """Compares masks, and label ranks if the loss is the first layer; they must be equal."""
    found = []
    device, cpu = run["device"], run["cpu"]
    name, values = split(case)[0]
    if "labels" in run["in"] and len(split(case)) == 1:
        for whose in ("device", "cpu"):
            if not torch.equal(run[whose]["place"].long(), label_ranks(run)):
                found.append(f"{whose}: label ranks")
    if name.startswith("dropout"):
        kept = device["y"] != 0
        if not torch.equal(kept, cpu["y"] != 0) or not torch.equal(kept, device["dx"] != 0):
            found.append("the mask is not the CPU's, or not that of the gradient")
        draws = kept.amax((1, 2)) if name == "dropout2d" else kept
        off = abs(draws.double().mean().item() - (1 - values["p"]))
        if off > 5 * (values["p"] * (1 - values["p"]) / draws.numel()) ** 0.5:
            found.append(f"the share of what is kept is off by {off:.3g}")
    return found


def compare_chain(case, precision, run):
    """Returns (device, PyTorch, CPU, device to CPU, part of the bound) and a list of mistakes."""
    device, cpu = run["device"], run["cpu"]
    want, cpu_want = exact(case, run, device), exact(case, run, cpu)
    if case.startswith("first"):
        del want["dx"], cpu_want["dx"]
    if not has_all(device, want) or not has_all(cpu, cpu_want):
        return None, [f"has {sorted(device)}, PyTorch {sorted(want)}"]
    part, whose = used(device, want, allowed(case, precision, run, want))
    found = mistakes(case, run)
    if not part <= 1:
        found.append(f"{whose} is off by {part:.3g} times what is allowed")
    errors = [distance(device, want, want), None, distance(cpu, cpu_want, cpu_want), None, part]
    if not errors[2] <= TOLERANCE:
        found.append("the CPU is beyond 1e-5")
    theirs = own(case, precision, run)
    if theirs:
        theirs_want = exact(case, run, theirs if "y" not in theirs else {"y": theirs["y"].reshape(device["y"].shape)})
        errors[1] = distance(theirs, {key: theirs_want[key] for key in want}, theirs_want)
    # A ReLU whose input changed its sign has other gradients.
    mine, other = kept_by(case, run, device), kept_by(case, run, cpu)
    same = mine is None or torch.equal(mine, other)
    errors[3] = distance(device, {key: cpu[key] for key in want if same or key == "y"}, want)
    return errors, found


def optimize(spec, given, dtype, place):
    name, values = parse(spec)
    options = {key: value for key, value in values.items() if key not in ("beta1", "beta2")}
    if name.startswith("adam"):
        options["betas"] = values.get("beta1", 0.9), values.get("beta2", 0.999)
    if "nesterov" in options:
        options["nesterov"] = True
    param = given["param"][0].to(place, dtype).requires_grad_()
    optimizer = OPTIMIZERS[name]([param], lr=given["lr"].item(), **options)
    steps = []
    for grad in given["grads"]:
        param.grad = grad.to(place, dtype)
        optimizer.step()
        steps.append(param.detach().clone())
    state = {key: value for key, value in optimizer.state[param].items() if key != "step" and value is not None}
    return {key: value.detach().double().cpu() for key, value in {"param": torch.stack(steps), **state}.items()}


def compare_optimizer(spec, precision, run):
    """Like compare_chain."""
    device, cpu = run["device"], run["cpu"]
    want = optimize(spec, run["in"], torch.float64, "cpu")
    if not has_all(device, want) or set(device) != set(want):
        return None, [f"has {sorted(device)}, PyTorch {sorted(want)}"]
    errors = [distance(got, want, want) for got in (device, optimize(spec, run["in"], torch.float32, PLACE), cpu)]
    errors += [distance(device, cpu, want), errors[0] / TOLERANCE]
    found = [f"{whose} is beyond 1e-5" for whose, error in (("the device", errors[0]), ("the CPU", errors[2]))
             if not error <= TOLERANCE]
    return errors, found


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: torch_ops.py FILE.safetensors")
    torch.set_num_threads(1)
    runs = read(sys.argv[1])
    lines, failures = {}, []
    for (case, precision, batch), run in runs.items():
        compare = compare_optimizer if case.partition(":")[0] in OPTIMIZERS else compare_chain
        errors, found = compare(case, precision, run)
        if found:
            failures.append(f"FAILED {case}, {precision}, {batch}: {'; '.join(found)}")
        worst = lines.setdefault((case, precision), [None] * 5)
        for i, error in enumerate(errors or []):
            worst[i] = error if worst[i] is None else worst[i] if error is None else larger(worst[i], error)
    print(f"{'':62}{'device':>9}{'PyTorch':>9}{'CPU':>9}{'to CPU':>9}{'allowed':>9}")
    for (case, precision), worst in lines.items():
        columns = "".join(f"{'-' if error is None else f'{error:.1e}':>9}" for error in worst[:4])
        print(f"{precision} {case:57}{columns}{'-' if worst[4] is None else f'{worst[4]:.0%}':>9}")
    if failures:
        print("\n".join(failures))
    where = torch.cuda.get_device_name() if GPU else "a CPU"
    print(f"{len(runs)} cases, {len(failures)} failed; PyTorch {torch.__version__} on {where}")
    sys.exit(1 if failures or not runs else 0)


if __name__ == "__main__":
    main()
