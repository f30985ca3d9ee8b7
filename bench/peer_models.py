"""The models of the benchmarks in PyTorch, by the words of `lockstep --model`: those of tools/models.py."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tools"))

MNIST, CIFAR, IMAGENET = (1, 28, 28), (3, 32, 32), (3, 224, 224)


def parse(words):
    """("resnet18", {"cifar": 1}) of "resnet18:cifar"."""
    name, _, rest = words.partition(":")
    params = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        params[key] = float(value) if "." in value else int(value or 1)
    return name, params


def make(words, shape, classes):
    """A model, and the loss of its output and labels."""
    import models

    name, params = parse(words)
    return models.build(name, shape, classes, **params), models.criterion(name)


def optimizer_words(words):
    """Of `lockstep --optimizer`: that of each model in the benchmarks."""
    return {"cnn": "adadelta", "mlp": "adam"}.get(parse(words)[0], "sgd:momentum=.9,weight_decay=1e-4")


def make_optimizer(torch, words, parameters, **form):
    """The same optimiser; form: options such as fused=True."""
    name = parse(words)[0]
    if name == "cnn":
        return torch.optim.Adadelta(parameters, lr=1.0, **form)
    if name == "mlp":
        return torch.optim.Adam(parameters, lr=0.001, **form)
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4, **form)
