"""Golden values of optimisers and learning-rate schedules."""
import math

import numpy as np
import torch
from torch import nn
from torch.optim import lr_scheduler

from golden_noise import File, noise

OPTIMIZERS = {  # our spec: (class, learning rate, arguments)
    "sgd": ("SGD", 0.1, {}),
    "sgd:momentum=.9": ("SGD", 0.1, {"momentum": 0.9}),
    "sgd:momentum=.9,weight_decay=.01": ("SGD", 0.1, {"momentum": 0.9, "weight_decay": 0.01}),
    "sgd:momentum=.9,nesterov": ("SGD", 0.1, {"momentum": 0.9, "nesterov": True}),
    "sgd:momentum=.9,nesterov=1,weight_decay=.01": ("SGD", 0.05, {"momentum": 0.9, "nesterov": True,
                                                                 "weight_decay": 0.01}),
    "sgd:momentum=.8,dampening=.3": ("SGD", 0.1, {"momentum": 0.8, "dampening": 0.3}),
    "sgd:weight_decay=.1": ("SGD", 0.1, {"weight_decay": 0.1}),
    "adam": ("Adam", 1e-3, {}),
    "adam:weight_decay=.05": ("Adam", 0.01, {"weight_decay": 0.05}),
    "adam:beta1=.8,beta2=.95,eps=.001": ("Adam", 0.05, {"betas": (0.8, 0.95), "eps": 0.001}),
    "adamw": ("AdamW", 1e-3, {}),
    "adamw:weight_decay=.5": ("AdamW", 0.05, {"weight_decay": 0.5}),
    "adamw:beta1=.8,beta2=.95,eps=.001,weight_decay=.1": ("AdamW", 0.05, {"betas": (0.8, 0.95), "eps": 0.001,
                                                                         "weight_decay": 0.1}),
    "adadelta": ("Adadelta", 1.0, {}),
    "adadelta:rho=.8,eps=.0001": ("Adadelta", 0.5, {"rho": 0.8, "eps": 0.0001}),
    "adadelta:weight_decay=.02": ("Adadelta", 1.0, {"weight_decay": 0.02}),
    "rmsprop": ("RMSprop", 0.01, {}),
    "rmsprop:alpha=.9,eps=.001,weight_decay=.05": ("RMSprop", 0.02, {"alpha": 0.9, "eps": 0.001, "weight_decay": 0.05}),
    "rmsprop:momentum=.9": ("RMSprop", 0.01, {"momentum": 0.9}),
    "rmsprop:centered": ("RMSprop", 0.01, {"centered": True}),
    "rmsprop:centered,momentum=.8,alpha=.95,eps=.0001": ("RMSprop", 0.02, {"centered": True, "momentum": 0.8,
                                                                        "alpha": 0.95, "eps": 0.0001}),
}
OPTIM_STEPS, OPTIM_COUNT = 20, 37


def make_optim():
    out = File()
    first, grads = noise("optim/params", OPTIM_COUNT), noise("optim/grads", OPTIM_STEPS, OPTIM_COUNT)
    out.add("params", first)
    out.add("grads", grads)
    for spec, (kind, lr, arguments) in OPTIMIZERS.items():
        parameter = nn.Parameter(first.double())
        optimizer = getattr(torch.optim, kind)([parameter], lr=lr, **arguments)
        rows = []
        for step in range(OPTIM_STEPS):
            parameter.grad = grads[step].double()
            optimizer.step()
            rows.append(parameter.detach().clone())
        out.add(f"optim/{spec}", torch.stack(rows))
        out.add(f"lr/{spec}", np.array([lr]))
    return out


SCHEDULE_EPOCHS, SCHEDULE_BATCHES, SCHEDULE_LR = 30, 4, 0.3
SCHEDULE_STEPS = SCHEDULE_EPOCHS * SCHEDULE_BATCHES


def factors(function):
    """A schedule given by its factor at each epoch or step, for schedules that PyTorch does not have."""
    return lambda optimizer: lr_scheduler.LambdaLR(optimizer, function)


def warmed(length, rest):
    """A linear warm-up, then another schedule that counts from its end; stepped after each batch."""
    def make(optimizer):
        rise = lr_scheduler.LinearLR(optimizer, 1 / length, 1, length - 1)
        return lr_scheduler.SequentialLR(optimizer, [rise, rest(optimizer)], [length])
    return make


def half_cosine(x):
    return (1 + math.cos(math.pi * x)) / 2


def bell(x, sigma=0.3):
    return math.exp(-x * x / (2 * sigma * sigma))


def above(low, factor):
    """The factor of the whole initial rate if `factor` applies only to its part above `low`."""
    return (low + (SCHEDULE_LR - low) * factor) / SCHEDULE_LR


BY_EPOCH = {  # our spec: what makes PyTorch's schedule of an optimizer, stepped after each epoch
    "constant": factors(lambda _: 1.0),
    "step": lambda o: lr_scheduler.StepLR(o, 1, 0.7),
    "step:size=1,gamma=.7": lambda o: lr_scheduler.StepLR(o, 1, 0.7),
    "step:size=3,gamma=.1": lambda o: lr_scheduler.StepLR(o, 3, 0.1),
    "step:size=7": lambda o: lr_scheduler.StepLR(o, 7, 0.7),
    "multistep": lambda o: lr_scheduler.MultiStepLR(o, [30, 60, 90], 0.1),
    "multistep:milestones=5/12/13/25,gamma=.5": lambda o: lr_scheduler.MultiStepLR(o, [5, 12, 13, 25], 0.5),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.95),
    "exponential:gamma=.8": lambda o: lr_scheduler.ExponentialLR(o, 0.8),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, SCHEDULE_EPOCHS),
    "cosine:min=.01": lambda o: lr_scheduler.CosineAnnealingLR(o, SCHEDULE_EPOCHS, 0.01),
    "cosine:epochs=20,min=.01": factors(lambda e: above(0.01, half_cosine(min(e / 20, 1)))),
    "gaussian": factors(lambda e: bell(e / SCHEDULE_EPOCHS)),
    "gaussian:sigma=.2,min=.05": factors(lambda e: above(0.05, bell(e / SCHEDULE_EPOCHS, 0.2))),
}
BY_STEP = {  # the same, stepped after each batch
    "constant:warmup_steps=50": lambda o: lr_scheduler.LinearLR(o, 1 / 50, 1, 49),
    "constant:warmup=4": lambda o: lr_scheduler.LinearLR(o, 1 / 16, 1, 15),
    "step:size=3,gamma=.5,warmup=5": warmed(20, lambda o: lr_scheduler.StepLR(o, 3 * SCHEDULE_BATCHES, 0.5)),
    "step:size=2,gamma=.5,warmup_steps=9": warmed(9, lambda o: lr_scheduler.StepLR(o, 2 * SCHEDULE_BATCHES, 0.5)),
    "multistep:milestones=3/9,warmup=5": warmed(20, lambda o: lr_scheduler.MultiStepLR(
        o, [3 * SCHEDULE_BATCHES, 9 * SCHEDULE_BATCHES], 0.1)),
    "multistep:milestones=3/9,warmup_steps=10": warmed(10, lambda o: lr_scheduler.MultiStepLR(
        o, [3 * SCHEDULE_BATCHES, 9 * SCHEDULE_BATCHES], 0.1)),
    "exponential:warmup=3": warmed(12, lambda o: lr_scheduler.StepLR(o, SCHEDULE_BATCHES, 0.95)),
    "exponential:warmup_steps=9": warmed(9, lambda o: lr_scheduler.StepLR(o, SCHEDULE_BATCHES, 0.95)),
    "cosine:by_step": lambda o: lr_scheduler.CosineAnnealingLR(o, SCHEDULE_STEPS),
    "cosine:by_step,warmup_steps=10": warmed(10, lambda o: lr_scheduler.CosineAnnealingLR(o, SCHEDULE_STEPS - 10)),
    "cosine:by_step,warmup=1": warmed(4, lambda o: lr_scheduler.CosineAnnealingLR(o, SCHEDULE_STEPS - 4)),
    "cosine:by_step,warmup=2": warmed(8, lambda o: lr_scheduler.CosineAnnealingLR(o, SCHEDULE_STEPS - 8)),
    "cosine:warmup=5": warmed(20, factors(lambda s: half_cosine(s // SCHEDULE_BATCHES / (SCHEDULE_EPOCHS - 5)))),
    "cosine:warmup_steps=10": warmed(10, factors(lambda s: half_cosine(
        s // SCHEDULE_BATCHES * SCHEDULE_BATCHES / (SCHEDULE_STEPS - 10)))),
    "gaussian:warmup=5": warmed(20, factors(lambda s: bell(s // SCHEDULE_BATCHES / (SCHEDULE_EPOCHS - 5)))),
    "onecycle": lambda o: lr_scheduler.OneCycleLR(o, SCHEDULE_LR, SCHEDULE_STEPS, cycle_momentum=False),
    "onecycle:pct_start=.25,div_factor=10,final_div_factor=100,linear": lambda o: lr_scheduler.OneCycleLR(
        o, SCHEDULE_LR, SCHEDULE_STEPS, pct_start=0.25, anneal_strategy="linear", div_factor=10, final_div_factor=100,
        cycle_momentum=False),
    "onecycle:three_phase,pct_start=.4": lambda o: lr_scheduler.OneCycleLR(
        o, SCHEDULE_LR, SCHEDULE_STEPS, pct_start=0.4, three_phase=True, cycle_momentum=False),
    "onecycle:three_phase,linear": lambda o: lr_scheduler.OneCycleLR(
        o, SCHEDULE_LR, SCHEDULE_STEPS, three_phase=True, anneal_strategy="linear", cycle_momentum=False),
    "gaussian:by_step,sigma=.5,warmup_steps=7": warmed(7, factors(lambda s: bell(s / (SCHEDULE_STEPS - 7), 0.5))),
}


PLATEAUS = {  # our spec: arguments of ReduceLROnPlateau, which sees one of RESULTS after each epoch
    "plateau": {},
    "plateau:factor=.5,patience=2": {"factor": 0.5, "patience": 2},
    "plateau:factor=.5,patience=0,cooldown=2,min=.01": {"factor": 0.5, "patience": 0, "cooldown": 2, "min_lr": 0.01},
    "plateau:factor=.3,patience=1,abs,threshold=.05": {"factor": 0.3, "patience": 1, "threshold_mode": "abs",
                                                       "threshold": 0.05},
    "plateau:factor=.1,patience=0,eps=.001": {"patience": 0, "eps": 0.001},
    "plateau:accuracy,factor=.6,patience=1": {"mode": "max", "factor": 0.6, "patience": 1},
    "plateau:accuracy,factor=.6,patience=0,abs,threshold=.02,cooldown=1": {
        "mode": "max", "factor": 0.6, "patience": 0, "threshold_mode": "abs", "threshold": 0.02, "cooldown": 1},
}


def results():
    """One number in (0,1) for each epoch that falls and wavers: loss and, as 1 - it, accuracy."""
    wave = noise("plateau", SCHEDULE_EPOCHS).double().numpy()
    return np.array([0.1 + 0.8 / (1 + e) + 0.05 * abs(w) for e, w in enumerate(wave)])


def make_plateaus(out):
    out.add("results", results())
    for spec, arguments in PLATEAUS.items():
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=SCHEDULE_LR)
        schedule = lr_scheduler.ReduceLROnPlateau(optimizer, **arguments)
        rates = []
        for result in results():
            rates += [optimizer.param_groups[0]["lr"]] * SCHEDULE_BATCHES
            schedule.step(1 - result if arguments.get("mode") == "max" else result)
        out.add(spec, np.array(rates).reshape(SCHEDULE_EPOCHS, SCHEDULE_BATCHES))


def make_schedules():
    """The rate of every step, one row for each epoch. The updates of SGD do not matter."""
    out = File()
    for table, by_step in ((BY_EPOCH, False), (BY_STEP, True)):
        for spec, make in table.items():
            optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=SCHEDULE_LR)
            schedule = make(optimizer)
            rates = []
            for step in range(SCHEDULE_STEPS):
                rates.append(optimizer.param_groups[0]["lr"])
                optimizer.step()
                if by_step or (step + 1) % SCHEDULE_BATCHES == 0:
                    schedule.step()
            out.add(spec, np.array(rates).reshape(SCHEDULE_EPOCHS, SCHEDULE_BATCHES))
    make_plateaus(out)
    return out
