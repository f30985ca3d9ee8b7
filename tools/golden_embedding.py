"""Golden values of a graph that begins with an embedding: its inputs are ids."""
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from golden_noise import File, labels, noise_state, train_step

BATCH, TOKENS, ROWS, WIDTH, STEPS = 12, 7, 9, 6, 3


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.up, self.fc = nn.Embedding(ROWS, WIDTH), nn.Linear(WIDTH, 8), nn.Linear(8, 5)

    def forward(self, ids):
        return self.fc(self.up(self.words(ids)).tanh().mean(1))


def make_embedding():
    """Losses of three steps, the gradients of the first, and the last state. The last row has no id in step 0."""
    out, model = File(), noise_state(Words()).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, weight_decay=0.01)
    curve = []
    for step in range(STEPS):
        ids = labels(f"words/x{step}", BATCH * TOKENS, ROWS - (step == 0)).reshape(BATCH, TOKENS)
        y = labels(f"words/labels{step}", BATCH, 5)
        curve.append(train_step(model, optimizer, F.cross_entropy, ids, y))
        if step == 0:
            for key, parameter in model.named_parameters():
                out.add(f"words/grad/{key}", parameter.grad)
    out.add("words/losses", np.array(curve))
    for key, value in model.state_dict().items():
        out.add(f"words/state/{key}", value)
    return out
