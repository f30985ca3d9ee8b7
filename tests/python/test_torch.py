"""test_torch.py - the package beside PyTorch: weights of a state dict give the same scores and the same loss, and steps
of SGD the same weights, within the rounding of sums in another order."""
import os
import tempfile
import unittest

import numpy as np
import torch
from torch import nn

import lockstep as lk

torch.manual_seed(1)
torch.set_num_threads(1)
rng = np.random.default_rng(1)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 4 * 4, 5)

    def forward(self, x):
        return self.fc(torch.relu(self.bn(self.conv(x))).flatten(1))


def graph():
    g = lk.Graph()
    x = g.conv2d(g.input(3, 8, 8), "conv", out=8, kernel=3, stride=2, pad=1)
    x = g.flatten(g.relu(g.batchnorm2d(x, "bn")))
    g.cross_entropy(g.linear(x, "fc", 5))
    return g


# A sum of n products of f32 in another order differs by about n * 2^-24 of its terms; n is at most 128 samples * 16
# pixels here, and values are near 1.
TOLERANCE = 128 * 16 * 2.0 ** -24


class Torch(unittest.TestCase):
    def setUp(self):
        self.network = Network()
        # Running statistics that are not their first values.
        with torch.no_grad():
            self.network(torch.randn(64, 3, 8, 8))
        self.x = rng.standard_normal((128, 3, 8, 8), dtype=np.float32)
        self.y = rng.integers(0, 5, 128)

    def close(self, a, b):
        np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE)

    def test_evaluation(self):
        engine = lk.Engine(graph(), batch=128, threads=2, outputs="conv")
        engine.set_state(self.network.state_dict())
        with torch.no_grad():
            scores = self.network.eval()(torch.from_numpy(self.x))
            features = self.network.conv(torch.from_numpy(self.x)).flatten(1)
        self.close(engine.outputs(self.x, "conv")["conv"], features.numpy())
        self.close(engine.forward(self.x), scores.numpy())
        metrics = engine.eval(self.x, self.y)
        self.close(metrics.loss, nn.functional.cross_entropy(scores, torch.from_numpy(self.y)).item())
        self.assertEqual(metrics.correct, int((scores.argmax(1).numpy() == self.y).sum()))

    def test_steps(self):
        engine = lk.Engine(graph(), batch=128, optimizer="sgd:momentum=.9,weight_decay=.01", lr=.05, threads=2)
        engine.set_state(self.network.state_dict())
        optimizer = torch.optim.SGD(self.network.parameters(), lr=.05, momentum=.9, weight_decay=.01)
        self.network.train()
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.network(torch.from_numpy(self.x)), torch.from_numpy(self.y))
            loss.backward()
            optimizer.step()
            self.close(engine.step(self.x, self.y).loss, loss.item())
        for name, gradient in engine.grads().items():
            self.close(gradient, self.network.get_parameter(name).grad.numpy())
        state = engine.state()
        for name, tensor in self.network.state_dict().items():
            self.assertEqual(state[name].shape, tuple(tensor.shape))
            self.close(state[name], tensor.numpy())

    def test_files(self):
        engine = lk.Engine(graph(), batch=8)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.pth")
            engine.save(path)
            self.network.load_state_dict(torch.load(path, weights_only=True))
            for name, array in engine.state().items():
                np.testing.assert_array_equal(array, self.network.state_dict()[name].numpy())
            torch.save(Network().state_dict(), path)
            engine.load(path)


if __name__ == "__main__":
    unittest.main()
