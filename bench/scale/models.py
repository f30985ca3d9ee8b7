"""Gradients of a model as the step engine sums them: buckets of at most 4 MiB, in backward order, each with the
time at which backward has computed it."""

FLOAT = 4
ALIGN = 16  # floats; buckets begin at multiples


def conv(out, into, kernel, pixels):
    """A convolution without bias: its tensors, and its multiplications for one sample."""
    return [out * into * kernel * kernel], out * into * kernel * kernel * pixels


def batchnorm(channels):
    return [channels, channels], 0


def linear(out, into):
    return [out * into, out], out * into


def cnn():
    """The MNIST network: 1,199,882 parameters."""
    return [([32 * 9, 32], 32 * 9 * 26 * 26), ([64 * 32 * 9, 64], 64 * 32 * 9 * 24 * 24), linear(128, 9216),
            linear(10, 128)]


def resnet50():
    """224x224, 1,000 classes: 25,557,032 parameters."""
    layers = [conv(64, 3, 7, 112 * 112), batchnorm(64)]
    into = 64
    for stage, (blocks, width, side) in enumerate([(3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)]):
        for block in range(blocks):
            before = side * 2 if stage > 0 and block == 0 else side
            layers += [conv(width, into, 1, before * before), batchnorm(width), conv(width, width, 3, side * side),
                       batchnorm(width), conv(4 * width, width, 1, side * side), batchnorm(4 * width)]
            if block == 0:
                layers += [conv(4 * width, into, 1, side * side), batchnorm(4 * width)]
            into = 4 * width
    return layers + [linear(1000, 2048)]


def pyramidnet():
    """CIFAR, 17 blocks in each of three stages, alpha 270: 24,253,410 parameters."""
    layers = [conv(16, 3, 3, 32 * 32), batchnorm(16)]
    width, into, side = 16.0, 16, 32
    for stage in range(3):
        for block in range(17):
            if stage > 0 and block == 0:
                side //= 2
            width += 270 / (3 * 18)
            out = round(width)
            layers += [batchnorm(into), conv(out, into, 3, side * side), batchnorm(out),
                       conv(out, out, 3, side * side), batchnorm(out)]
            into = out
    return layers + [batchnorm(into), linear(10, into)]


# Name: layers, milliseconds of a step's own computation, and what that is.
MODELS = {
    "cnn": (cnn, 6.9, "64 samples on 16 cores, measured"),
    "resnet50": (resnet50, 150.0, "32 samples, as given"),
    "pyramidnet": (pyramidnet, 70.5, "256 samples on an H200 with tf32, measured"),
}


def parameters(name):
    return sum(sum(tensors) for tensors, _ in MODELS[name][0]())


def tensors_in_backward(name, compute):
    """(floats, time) of each tensor, the last layer first. Forward takes a third of the time, backward two
    thirds; a layer's share is that of its multiplications."""
    layers = MODELS[name][0]()
    work = sum(flops for _, flops in layers)
    time = compute / 3
    result = []
    for tensors, flops in reversed(layers):
        time += compute * 2 / 3 * flops / work
        result += [(-(-count // ALIGN) * ALIGN, time) for count in tensors]
    return result


def buckets(name, compute, room=4 << 20):
    """(seconds, floats) of each bucket. A bucket is full when the next tensor has no room in it; a tensor that is
    larger than a bucket is divided."""
    room //= FLOAT
    result, filled, ready = [], 0, 0.0
    for count, time in tensors_in_backward(name, compute):
        if filled and filled + count > room:
            result.append((ready, filled))
            filled = 0
        while not filled and count > room:
            result.append((time, room))
            count -= room
        filled, ready = filled + count, time
    return result + [(ready, filled)]
