"""Golden values of losses, with float targets and with weights: a step of small graphs, through the engine."""
import torch
from torch import nn
from torch.nn import functional as F

from golden_noise import File, labels, noise, noise_state

N, FEATURES, OUT = 9, 7, 6
IMAGE = (2, 5, 4)  # c, h, w


def mean(loss):
    return loss.flatten(1).mean(1)


def of_elements(function, **options):
    return lambda x, t, y, k: mean(function(x, t, reduction="none", **options))


def bce_weighted(x, t, y, k):
    return mean(F.binary_cross_entropy_with_logits(x, t, pos_weight=k, reduction="none"))


def of_classes(smoothing, soft):
    return lambda x, t, y, k: F.cross_entropy(x, t if soft else y, weight=k, label_smoothing=smoothing,
                                              reduction="none")


def plain_classes(x, t, y, k):
    return F.cross_entropy(x, t, reduction="none")


LOSSES = [  # name, loss of each sample from x, float targets t, labels y and class weights k; prediction; weighs labels
    ("mse", of_elements(F.mse_loss), lambda x: x, False),
    ("l1", of_elements(F.l1_loss), lambda x: x, False),
    ("huber", of_elements(F.huber_loss, delta=0.75), lambda x: x, False),
    ("smooth_l1", of_elements(F.smooth_l1_loss, beta=0.5), lambda x: x, False),
    ("bce", of_elements(F.binary_cross_entropy_with_logits), torch.sigmoid, False),
    ("bce_weighted", bce_weighted, torch.sigmoid, False),
    ("soft", plain_classes, lambda x: x.softmax(1), False),
    ("soft_weighted", of_classes(0.0, True), lambda x: x.softmax(1), False),
    ("soft_smooth", of_classes(0.125, True), lambda x: x.softmax(1), False),
    ("classes", of_classes(0.0, False), None, True),
    ("classes_smooth", of_classes(0.125, False), None, True),
    ("nll_classes", of_classes(0.0, False), None, True),
]


def one_case(out, name, function, predict, by_label, weighted):
    """A linear layer and the loss."""
    x = noise(f"{name}/x", N, FEATURES).double()
    targets = noise(f"{name}/targets", N, OUT).abs().double()
    y, classes = labels(f"{name}/labels", N, OUT), noise(f"{name}/classes", OUT).abs().double()
    weights = noise(f"{name}/weights", N).abs().double() if weighted else torch.ones(N).double()
    model = nn.Sequential()
    model.add_module("fc", nn.Linear(FEATURES, OUT))
    noise_state(model)
    model.double()
    scores = model(x)
    all_weights = weights * classes[y] if by_label else weights
    loss = (weights * function(scores, targets, y, classes)).sum() / all_weights.sum()
    put(out, name + ("_samples" if weighted else ""), model, loss, all_weights.sum())
    if predict and not weighted:
        error = predict(scores) - targets
        out.add(f"{name}/errors", torch.stack((error.abs().mean(), error.square().mean())))


def put(out, name, model, loss, weight):
    loss.backward()
    out.add(f"{name}/loss", loss)
    out.add(f"{name}/weight", weight)
    for key, value in model.named_parameters():
        out.add(f"{name}/grad/{key}", value.grad)


def image_case(out):
    """Images as targets: a convolution and the mean squared error."""
    x = noise("image/x", N, *IMAGE).double()
    targets = noise("image/targets", N, *IMAGE).abs().double()
    model = nn.Sequential()
    model.add_module("conv", nn.Conv2d(IMAGE[0], IMAGE[0], 3, padding=1))
    noise_state(model)
    model.double()
    put(out, "image", model, F.mse_loss(model(x), targets), torch.tensor(float(N)).double())


def make_losses():
    out = File()
    for row in LOSSES:
        for weighted in (False, True):
            one_case(out, *row, weighted)
    image_case(out)
    return out
