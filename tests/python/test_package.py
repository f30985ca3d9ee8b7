"""test_package.py LOCKSTEP - the Python package: the same bits as the program, numpy in and out, lifetimes, errors,
threads as ranks. Exits with 77 (skipped) where there is no numpy."""
import ctypes
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print(f"skipped: {sys.executable} has no numpy")
    sys.exit(77)

import lockstep as lk

LOCKSTEP = sys.argv.pop()
rng = np.random.default_rng(1)


def small_graph(features=4, classes=3):
    graph = lk.Graph()
    x = graph.relu(graph.linear(graph.input(features, 1, 1), "fc1", 8))
    graph.cross_entropy(graph.linear(x, "fc2", classes))
    return graph


def in_threads(groups, function):
    """Runs function(group) in one thread for each rank; returns the results, or raises the first exception."""
    results, failures = [None] * len(groups), []

    def run(group):
        try:
            results[group.rank] = function(group)
        except Exception as error:
            group.abort(str(error))
            failures.append(error)

    threads = [threading.Thread(target=run, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if failures:
        raise failures[0]
    return results


class Training(unittest.TestCase):
    def train(self, group=None, steps=10):
        engine = lk.Engine(lk.Model("mlp:hidden=32", (1, 28, 28), 10), group=group, batch=64, seed=3, lr=.1,
                           optimizer="sgd:momentum=.9", threads=1)
        loader = lk.Loader(lk.Dataset.open("digits"), batch=64, shuffle=True, seed=3, share=engine.shard_range)
        for _, batch in zip(range(steps), loader.epoch(0)):
            engine.step(batch)
        self.assertEqual(engine.steps, steps)
        return engine.hash

    def test_bits_are_those_of_the_program(self):
        words = ("train --data digits --model mlp:hidden=32 --batch-size 64 --max-steps 10 --seed 3 --optimizer "
                 "sgd:momentum=.9 --lr .1 --schedule constant --no-test --threads 1")
        printed = subprocess.run([LOCKSTEP, *words.split()], check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertIn(f"State hash {self.train():016x}", printed)

    def test_law(self):
        """The bits are the same for 1, 2 and 3 ranks, which are threads here: calls release Python's lock."""
        alone = self.train()
        for count in (2, 3):
            self.assertEqual(in_threads(lk.Group.threads(count, timeout=30), self.train), [alone] * count)

    def test_arrays_and_batches_are_equal(self):
        """A batch of a loader and the arrays of its samples give the same bits."""
        data = lk.Dataset.open("digits")
        hashes = []
        for arrays in (False, True):
            engine = lk.Engine(lk.Model("cnn:dropout=0", (1, 28, 28), 10), batch=32, seed=1)
            for _, batch in zip(range(2), lk.Loader(data, batch=32).epoch()):
                self.assertEqual(batch.x.shape, (32, 1, 28, 28))
                engine.step(batch.x, batch.labels) if arrays else engine.step(batch)
            hashes.append(engine.hash)
        self.assertEqual(*hashes)

    def test_states(self):
        engine = lk.Engine(lk.Model("resnet20", (3, 32, 32), 10), batch=8, optimizer="adam", seed=1)
        engine.step(rng.standard_normal((8, 3, 32, 32)), np.arange(8))
        state, optimizer, before = engine.state(), engine.optimizer_state(), engine.hash
        self.assertEqual(state["conv1.weight"].shape, (16, 3, 3, 3))
        self.assertEqual(lk.state_hash(state), before)
        engine.step(rng.standard_normal((8, 3, 32, 32)), np.arange(8))
        self.assertNotEqual(engine.hash, before)
        engine.set_state(state)
        engine.set_optimizer_state(optimizer)
        self.assertEqual((engine.hash, engine.steps), (before, 1))
        with tempfile.TemporaryDirectory() as folder:
            for name in ("model.safetensors", "model.pth"):
                path = os.path.join(folder, name)
                engine.save(path)
                self.assertEqual(lk.state_hash(lk.load(path)), before)
                engine.load(path)
                self.assertEqual(engine.hash, before)

    def test_halves_of_a_step(self):
        x, y = rng.standard_normal((6, 4)), rng.integers(0, 3, 6)
        whole, halves = (lk.Engine(small_graph(), batch=6, seed=1) for _ in range(2))
        whole.step(x, y)
        halves.gradients(x, y)
        self.assertEqual(halves.grads()["fc1.weight"].shape, (8, 4))
        halves.update()
        self.assertEqual(whole.hash, halves.hash)
        whole.lr = .25
        self.assertEqual(whole.lr, .25)


    def test_outputs(self):
        graph = lk.Graph()
        x = graph.name(graph.relu(graph.linear(graph.input(4, 1, 1), "fc1", 8)), "features")
        graph.cross_entropy(graph.linear(x, "fc2", 3))
        engine = lk.Engine(graph, batch=2, seed=1, outputs="fc1,features")
        x = rng.standard_normal((5, 4)).astype(np.float32)
        values = engine.outputs(x, "features", None, "fc1")
        np.testing.assert_array_equal(values["features"], np.maximum(values["fc1"], 0))
        np.testing.assert_array_equal(values[None], engine.forward(x))
        np.testing.assert_array_equal(engine.predict(x), values[None].argmax(1))
        self.assertEqual(engine.eval(x, engine.predict(x)).correct, 5)
        np.testing.assert_array_equal(np.concatenate([engine.forward(x[i:i + 1]) for i in range(5)]), values[None])
        with self.assertRaisesRegex(lk.Error, "fc2"):
            engine.outputs(x, "fc2")

        def divided(group):
            engine = lk.Engine(graph, group=group, batch=5, seed=1, threads=1)
            mine = engine.share(5)
            return engine.forward(lk.Batch(x[mine], ids=np.arange(5)[mine], total=5))

        for scores in in_threads(lk.Group.threads(2, timeout=30), divided):
            np.testing.assert_array_equal(scores, values[None])


    def test_updates(self):
        x, y = rng.standard_normal((6, 4)), rng.integers(0, 3, 6)
        engine = lk.Engine(small_graph(), batch=6, seed=1, lr=.5)
        before = engine.state()
        engine.set_group("fc1.*", frozen=True)
        engine.set_group("fc2.*", lr_scale=2)
        engine.gradients(x, y)
        engine.set_grads({name: np.full_like(grad, .25) for name, grad in engine.grads().items()})
        engine.update()
        after = engine.state()
        np.testing.assert_array_equal(after["fc1.weight"], before["fc1.weight"])
        np.testing.assert_array_equal(after["fc2.bias"], before["fc2.bias"] - np.float32(.25))
        engine.average(.5)
        engine.set_state(before)
        engine.average(.5)
        middle = engine.averaged_state()["fc2.bias"]
        np.testing.assert_allclose(middle, (before["fc2.bias"] + after["fc2.bias"]) / 2, rtol=1e-6)
        engine.set_averaged_state(before)
        np.testing.assert_array_equal(engine.averaged_state()["fc2.bias"], before["fc2.bias"])

    def test_train(self):
        data = lk.Dataset.from_arrays(rng.standard_normal((30, 4)).astype(np.float32), rng.integers(0, 3, 30))
        losses = []
        with tempfile.TemporaryDirectory() as folder:
            whole = lk.train(graph=small_graph(), train=data, batch=10, epochs=3, optimizer="adam", alone=True,
                             events={"step": lambda event: losses.append(event.metrics.loss)})
            self.assertEqual((whole.steps, len(losses)), (9, 9))
            opts = dict(graph=small_graph(), train=data, batch=10, epochs=3, optimizer="adam", alone=True,
                        checkpoint=Path(folder, "run"), resume="auto")
            stopped = lk.train(**opts, events={"epoch": lambda event: lk.stop(event) if event.epoch == 1 else None})
            self.assertTrue(stopped.stopped and stopped.steps < 9)
            self.assertEqual(lk.train(**opts).hash, whole.hash)

        def fails(event):
            raise RuntimeError("enough")

        with self.assertRaisesRegex(RuntimeError, "enough"):
            lk.train(graph=small_graph(), train=data, batch=10, alone=True, events={"step": fails})
        with self.assertRaisesRegex(TypeError, "before_step"):
            lk.train(graph=small_graph(), train=data, events={"steps": fails})
        with self.assertRaises(lk.Error):
            lk.train(graph=small_graph(), train=data, batch=10, alone=True, optimizer="nonesuch")

    def test_train_is_interrupted(self):
        data = lk.Dataset.from_arrays(rng.standard_normal((30, 4)).astype(np.float32), rng.integers(0, 3, 30))
        before = signal.getsignal(signal.SIGINT)
        timer = threading.Timer(.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            lk.train(graph=small_graph(), train=data, batch=10, alone=True, epochs=10 ** 6)
        timer.join()
        self.assertIs(signal.getsignal(signal.SIGINT), before)
        # A handler that was not installed from Python cannot be restored.
        with unittest.mock.patch.object(signal, "signal", return_value=None) as install:
            lk.train(graph=small_graph(), train=data, batch=10, alone=True, epochs=1)
        install.assert_called_with(signal.SIGINT, signal.SIG_DFL)

    def test_shapes_of_samples(self):
        graph = lk.Graph()
        x = graph.flatten(graph.input(3, 8, 6))
        graph.cross_entropy(graph.linear(x, "fc", 2))
        self.assertEqual(graph.shape, (3, 8, 6))
        engine = lk.Engine(graph, batch=4, threads=1)
        images = rng.standard_normal((4, 3, 8, 6)).astype(np.float32)
        engine.step(images, np.zeros(4, int))
        for wrong in (images.transpose(0, 2, 3, 1), images.transpose(0, 1, 3, 2), images.reshape(4, -1)):
            with self.assertRaisesRegex(ValueError, r"\(3, 8, 6\)"):
                engine.step(wrong, np.zeros(4, int))
            with self.assertRaisesRegex(ValueError, r"\(3, 8, 6\)"):
                engine.forward(wrong)
        with self.assertRaisesRegex(TypeError, "uint8"):
            engine.forward(np.zeros((4, 3, 8, 6), np.uint8))
        data = lk.Dataset.from_arrays(images.transpose(0, 1, 3, 2), np.zeros(4, int))
        with self.assertRaisesRegex(lk.Error, "height 8 and width 6"):
            lk.train(graph=graph, train=data, batch=4, alone=True)


class Data(unittest.TestCase):
    def test_from_arrays(self):
        for dtype in (np.float32, np.uint8, np.int32):
            x = np.arange(5 * 2 * 3 * 4).reshape(5, 2, 3, 4).astype(dtype)
            data = lk.Dataset.from_arrays(x, [0, 1, 2, 1, 0])
            self.assertEqual((len(data), data.info.classes, data.info.channels), (5, 3, 2))
            batch = next(lk.Loader(data, batch=5).epoch())
            scale = np.float32(255) if dtype == np.uint8 else np.float32(1)
            np.testing.assert_array_equal(batch.x, x.astype(np.float32) / scale)
            np.testing.assert_array_equal(batch.labels, [0, 1, 2, 1, 0])
            np.testing.assert_array_equal(batch.ids, range(5))
            last = lk.Dataset.from_arrays(x.transpose(0, 2, 3, 1), [0] * 5, classes=3, order="hwc")
            np.testing.assert_array_equal(next(lk.Loader(last, batch=5).epoch()).x, batch.x)
            np.testing.assert_array_equal(last[2][0], data[2][0])

    def test_targets(self):
        x, y = rng.standard_normal((7, 4)).astype(np.float32), rng.standard_normal((7, 2)).astype(np.float32)
        data = lk.Dataset.from_arrays(x, y, mean=[1, 0, 0, 0], std=[2, 1, 1, 1])
        batch = next(lk.Loader(data, batch=7).epoch())
        np.testing.assert_array_equal(batch.targets, y)
        np.testing.assert_array_equal(batch.x[:, 0, 0, 0], (x[:, 0] - 1) / 2)
        np.testing.assert_array_equal(data[3][1], y[3])
        column = lk.Dataset.from_arrays(x, y[:, 0])
        self.assertEqual(column.info.targets, 1)
        probabilities = lk.Dataset.from_arrays(x, np.eye(3)[[0, 1, 2, 0, 1, 2, 0]], classes=3)
        self.assertEqual((probabilities.info.classes, probabilities.info.targets), (3, 3))

    def test_from_function(self):
        x = rng.standard_normal((20, 4)).astype(np.float32)
        data = lk.Dataset.from_function(lambda i: (x[i], i % 3), 20, (4,), classes=3)
        with lk.Loader(data, batch=8, workers=3, shuffle=True, seed=2) as loader:
            self.assertEqual(len(loader), 3)
            for batch in loader.epoch(1):
                np.testing.assert_array_equal(batch.x[..., 0, 0], x[batch.ids])
                np.testing.assert_array_equal(batch.labels, batch.ids % 3)

        def fails(index):
            raise RuntimeError("the table is gone")

        broken = lk.Dataset.from_function(fails, 20, (4,), classes=3)
        with self.assertRaisesRegex(lk.Error, "^sample 0 of own: RuntimeError: the table is gone$"):
            next(lk.Loader(broken, batch=8).epoch())

    def test_wrong_samples(self):
        """numpy would repeat a sample that is too small, and cut a label that is no whole number."""
        for sample, why in (((x := np.zeros(4), 1.5), "float"), ((x, [1, 2]), "size 1"), ((x[:1], 1), r"\(1,\), not \(4,\)"),
                            ((1., 1), r"\(\), not \(4,\)"), ((x, 1 << 32), "32 bits"), ((x, 3), r"\[0, 3\)")):
            data = lk.Dataset.from_function(lambda _, sample=sample: sample, 2, [4], classes=3)
            with self.assertRaisesRegex(lk.Error, why):
                data[0]
        for target, why in (([1, 2, 3], r"\(3,\), not \(2,\)"), (1, r"\(1,\), not \(2,\)")):
            data = lk.Dataset.from_function(lambda _, target=target: (np.zeros(4), target), 2, [4], targets=2)
            with self.assertRaisesRegex(lk.Error, why):
                data[0]
        self.assertEqual(lk.Dataset.from_function(lambda i: (np.zeros(4), np.array([i])), 2, [4], classes=2)[1][1], 1)

    def test_subset(self):
        data = lk.Dataset.from_arrays(np.arange(10.).reshape(10, 1), np.arange(10))
        part = data.subset([7, 2, 2])
        self.assertEqual([part[i][1] for i in range(len(part))], [7, 2, 2])

    def test_epochs(self):
        loader = lk.Loader(lk.Dataset.open("digits"), batch=100)
        old = loader.epoch()
        batch = next(old)
        following = next(old)
        self.assertEqual(len(following), 100)
        with self.assertRaisesRegex(ValueError, "another one"):
            batch.labels
        loader.epoch(1)
        with self.assertRaisesRegex(ValueError, "another one"):
            following.x
        with self.assertRaisesRegex(ValueError, "another epoch"):
            next(old)


class Errors(unittest.TestCase):
    def test_status_and_detail(self):
        with self.assertRaises(lk.Error) as caught:
            lk.Dataset.open("nonesuch", "/nowhere")
        self.assertEqual(caught.exception.status, "NOT_FOUND")
        self.assertIn("nonesuch", caught.exception.detail)
        self.assertEqual(str(caught.exception), caught.exception.detail)

    def test_mistakes_of_builders(self):
        graph = lk.Graph()
        with self.assertRaisesRegex(lk.Error, "kernel"):
            graph.conv2d(graph.input(1, 4, 4), "conv", out=1, kernel=9)
        for mistake, kind in ((dict(outs=1), TypeError), (dict(out=-1, kernel=1), OverflowError)):
            with self.assertRaises(kind):
                graph = lk.Graph()
                graph.conv2d(graph.input(1, 4, 4), "conv", **mistake)
        with self.assertRaises(lk.Error):
            lk.Graph().check()
        with self.assertRaisesRegex(ValueError, '"train", "test"'):
            lk.Dataset.open("digits", split="val")

    def test_numbers_of_numpy(self):
        graph = lk.Graph()
        x = graph.conv2d(graph.input(np.int64(1), 4, 4), "conv", out=np.int32(2), kernel=np.uint8(3))
        graph.nll_loss(graph.log_softmax(graph.dropout(graph.flatten(x), np.float32(.5))))
        self.assertEqual(graph.parameters, 20)

    def test_wrong_arrays(self):
        engine = lk.Engine(small_graph(), batch=4)
        for x, y, kind in (
                (np.zeros((4, 5)), np.zeros(4, int), ValueError), (np.zeros((4, 4)), np.zeros(3, int), ValueError),
                (np.zeros((5, 4)), np.zeros(5, int), lk.Error), (np.zeros(4), np.zeros(4, int), ValueError),
                (np.zeros((4, 4)), np.full(4, 9), lk.Error), (np.zeros((4, 4)), np.full(4, 1 << 40), OverflowError)):
            with self.assertRaises(kind):
                engine.step(x, y)
        with self.assertRaises(TypeError):
            lk.Engine(small_graph(), batch=4, batches=1)
        with self.assertRaisesRegex(ValueError, '"batch", "shard"'):
            lk.Engine(small_graph(), batch=4, bn="none")
        with self.assertRaisesRegex(lk.Error, "fc1.weight"):
            engine.set_state({"fc1.weight": np.zeros((1, 1), np.float32)})
        with self.assertRaises(TypeError):
            engine.set_state({"fc1.weight": np.zeros(1, np.complex64)})
        with self.assertRaises(ValueError):
            lk.Dataset.from_arrays(np.zeros((3, 2)), [0, 0, 0], mean=[1])
        with self.assertRaisesRegex(TypeError, "'weight'"):
            engine.step(np.zeros((4, 4)), np.zeros(4, int), weight=np.ones(4))
        with self.assertRaisesRegex(TypeError, "'origins'"):
            engine.step(np.zeros((4, 4)), np.zeros(4, int), origins=np.ones(4))
        with self.assertRaisesRegex(ValueError, r"\(4, 1\), not \(4,\)"):
            engine.step(np.zeros((4, 4)), np.zeros(4, int), weights=np.ones((4, 1)))
        with self.assertRaisesRegex(TypeError, "option 'train' is of type ndarray"):
            lk.train(graph=small_graph(), train=np.zeros((8, 4)), alone=True)
        with self.assertRaisesRegex(ValueError, r"\(8, 3\)"):
            lk.Model("mlp", (8, 3), classes=2)

    def test_weights_of_samples(self):
        x, y = rng.standard_normal((4, 4)), np.array([0, 1, 2, 0])
        hashes = set()
        for weights in ([1, 1, 1, 1], None, [1, 2, 0, 1]):
            engine = lk.Engine(small_graph(), batch=4, seed=1)
            metrics = engine.step(x, y, weights=weights)
            self.assertEqual(metrics.weight, 4)
            hashes.add(engine.hash)
        self.assertEqual(len(hashes), 2)

    def test_arrays_of_builders(self):
        """A pointer and a length in C are one sequence in Python."""
        floats, length = lk.graph.array_and_length(ctypes.POINTER(ctypes.c_float), np.array([.5, 2]))
        self.assertEqual((list(floats), length), ([.5, 2], 2))
        graph = lk.Graph()
        nodes, length = lk.graph.array_and_length(ctypes.POINTER(lk.capi.lk_node), [graph.input(1, 2, 2)] * 2)
        self.assertEqual((nodes[1].index, length), (0, 2))
        attributes, length = lk.graph.array_and_length(ctypes.c_void_p, ctypes.c_int32(7))
        self.assertEqual((ctypes.c_int32.from_address(attributes.value).value, length), (7, 4))
        self.assertEqual(lk.graph.array_and_length(ctypes.c_void_p, None), (None, 0))

    def test_one_engine_in_two_threads(self):
        engine = lk.Engine(lk.Model("cnn", (1, 28, 28), 10), batch=64, threads=1)
        x, y, seen = np.zeros((64, 1, 28, 28), np.float32), np.zeros(64, int), []

        def steps():
            for _ in range(50):
                try:
                    engine.step(x, y)
                except lk.Error as error:
                    seen.append(error)
                if seen:
                    return

        threads = [threading.Thread(target=steps) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual({error.status for error in seen}, {"USAGE"})


class Lifetimes(unittest.TestCase):
    def test_arrays_and_parents_are_kept(self):
        """The loader keeps its data set and the data set keeps its arrays."""
        loader = lk.Loader(lk.Dataset.from_arrays(np.full((1000, 50), 7.), np.zeros(1000, int)), batch=1000)
        gc.collect()
        np.full((1000, 50), 1.)
        self.assertTrue((next(loader.epoch()).x == 7).all())

    def test_closing(self):
        data = lk.Dataset.open("digits")
        loader = lk.Loader(data, batch=10)
        part = data.subset([1, 2])
        data.close()
        data.close()
        for closed, use in ((data, lambda: data[0]), (loader, loader.epoch), (part, lambda: part[0])):
            with self.assertRaisesRegex(ValueError, f"{type(closed).__name__} is closed"):
                use()
        with lk.Group.threads(1)[0] as group:
            engine = lk.Engine(small_graph(), group=group, batch=3)
        with self.assertRaisesRegex(ValueError, "closed"):
            engine.steps

    def test_exit(self):
        """Objects that a program leaves open are destroyed in the right order at its end."""
        text = ("import numpy as np, lockstep as lk\n"
                "group = lk.Group.threads(1)[0]\n"
                "engine = lk.Engine(lk.Model('mlp', (1, 28, 28), 10), group=group, batch=4)\n"
                "request = group.allreduce(np.ones(4), wait=False)\n"
                "loader = lk.Loader(lk.Dataset.open('digits'), batch=4, workers=2)\n"
                "engine.step(next(loader.epoch()))\n")
        subprocess.run([sys.executable, "-c", text], check=True, timeout=60)


class Groups(unittest.TestCase):
    def collectives(self, group):
        rank, size = group.rank, group.size
        for dtype in (np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8):
            array = np.full((2, 3), rank + 1, dtype)
            self.assertIs(group.allreduce(array), array)
            self.assertTrue((array == size * (size + 1) // 2).all())
        self.assertEqual(group.allreduce(np.array([rank]), "max")[0], size - 1)
        self.assertEqual(group.reduce(np.array([1.]), root=0)[0], size if rank == 0 else 1)
        self.assertEqual(group.broadcast(np.array([rank]), root=size - 1)[0], size - 1)
        np.testing.assert_array_equal(group.allgather(np.array([rank, -rank])), [[r, -r] for r in range(size)])
        counts = list(range(1, size + 1))
        pieces = np.repeat(np.arange(size), counts)
        np.testing.assert_array_equal(group.allgather(np.full(rank + 1, rank), counts), pieces)
        gathered = group.gather(np.full(rank + 1, rank), counts, root=1)
        np.testing.assert_array_equal(gathered, pieces) if rank == 1 else self.assertIsNone(gathered)
        mine = np.empty(rank + 1, pieces.dtype)
        np.testing.assert_array_equal(group.scatter(pieces if rank == 1 else None, mine, counts, root=1), [rank] * (rank + 1))
        group.barrier()
        ring = group.sendrecv(np.array([rank]), (rank + 1) % size, np.array([0]), (rank - 1) % size)
        self.assertEqual(ring[0], (rank - 1) % size)
        if rank == 0:
            group.send(np.arange(5), 1)
        elif rank == 1:
            np.testing.assert_array_equal(group.recv(np.zeros(5, int), 0), np.arange(5))
        requests = [group.allreduce(np.full(1000, i), wait=False) for i in range(4)]
        gc.collect()
        self.assertEqual([request.wait()[0] for request in requests], [i * size for i in range(4)])
        request = group.allgather(np.array([rank]), wait=False)
        while not request.test():
            pass
        self.assertTrue(request.test())
        for _ in range(2):
            np.testing.assert_array_equal(request.wait(), [[r] for r in range(size)])
        with group.split(rank % 2) as part:
            self.assertEqual(part.allreduce(np.array([1]))[0], part.size)
        self.assertIsNone(group.split(-1))
        return True

    def test_failed_request(self):
        request = lk.Group.threads(2, timeout=.3)[0].barrier(wait=False)
        with self.assertRaises(lk.Error):
            request.wait()
        for use in (request.wait, request.test):
            with self.assertRaisesRegex(ValueError, "failed"):
                use()

    def test_collectives(self):
        self.assertEqual(in_threads(lk.Group.threads(3, timeout=30), self.collectives), [True] * 3)

    def test_processes(self):
        self.assertFalse(lk.Group.launched())
        text = ("import numpy as np, lockstep as lk\n"
                "assert lk.Group.launched()\n"
                "with lk.Group.join(timeout=30) as group:\n"
                "    print(group.rank, group.size, group.allreduce(np.array([group.rank + 1]))[0], group.host(0) != '')\n")
        run = subprocess.run([LOCKSTEP, "run", "-n", "3", sys.executable, "-c", text], check=True, timeout=120,
                             stdout=subprocess.PIPE, text=True)
        self.assertEqual(sorted(run.stdout.splitlines()), [f"[{rank}] {rank} 3 6 True" for rank in range(3)])

    def test_notices(self):
        seen = []
        with self.assertRaises(lk.Error) as caught, tempfile.TemporaryDirectory() as folder:
            lk.Group.join(init_method=f"file://{folder}/job", rank=0, world_size=2, timeout=1.5, notice=seen.append)
        self.assertEqual(caught.exception.status, "PEER")

    def test_wrong_arrays(self):
        group = lk.Group.threads(1)[0]
        with self.assertRaises(ValueError):
            group.allreduce(np.zeros((4, 4)).T[:2])
        with self.assertRaises(TypeError):
            group.allreduce([1, 2])
        frozen = np.zeros(3)
        frozen.flags.writeable = False
        with self.assertRaises(ValueError):
            group.allreduce(frozen)
        with self.assertRaisesRegex(ValueError, '"sum"'):
            group.allreduce(np.zeros(3), "median")


class Lists(unittest.TestCase):
    def test_lists(self):
        self.assertIn("resnet18", [row["name"] for row in lk.models()])
        self.assertIn("digits", [row["name"] for row in lk.datasets()])
        self.assertIn("eps 1e-5", lk.Graph.batchnorm2d.__doc__)


if __name__ == "__main__":
    unittest.main()
