"""Golden values of transforms, by Pillow and torchvision."""
import numpy as np

from golden_noise import File, words
from golden_optim import factors

RESIZES = [  # x (c, h, w), box (top, left, height, width), out (h, w)
    ((3, 23, 31), (0, 0, 23, 31), (32, 32)),
    ((3, 23, 31), (0, 0, 23, 31), (9, 14)),
    ((1, 23, 31), (0, 0, 23, 31), (23, 12)),
    ((3, 23, 31), (0, 0, 23, 31), (11, 31)),
    ((3, 23, 31), (3, 5, 17, 20), (16, 16)),
    ((3, 23, 31), (22, 30, 1, 1), (5, 4)),
    ((1, 23, 31), (1, 0, 20, 1), (7, 3)),
    ((3, 23, 31), (4, 6, 12, 13), (12, 13)),
    ((3, 150, 200), (11, 3, 130, 190), (21, 17)),
    ((3, 150, 200), (0, 0, 150, 200), (1, 1)),
    ((3, 150, 200), (40, 50, 63, 49), (28, 28)),
    ((1, 2, 3), (0, 0, 2, 3), (19, 40)),
]
LISTS = [  # our list, torchvision's transforms, x (c, h, w)
    ("resize=20", [("Resize", 20)], (3, 23, 31)),
    ("resize=20", [("Resize", 20)], (3, 31, 23)),
    ("resize=37", [("Resize", 37)], (1, 23, 31)),
    ("resize=23", [("Resize", 23)], (3, 23, 31)),
    ("resize=20/33", [("Resize", (20, 33))], (3, 31, 23)),
    ("center_crop=16", [("CenterCrop", 16)], (3, 23, 31)),
    ("center_crop=17", [("CenterCrop", 17)], (3, 24, 31)),
    ("center_crop=17", [("CenterCrop", 17)], (1, 22, 28)),
    ("center_crop=28", [("CenterCrop", 28)], (3, 23, 31)),
    ("center_crop=40", [("CenterCrop", 40)], (3, 23, 31)),
    ("center_crop=10/40", [("CenterCrop", (10, 40))], (3, 23, 31)),
    ("resize=24,center_crop=20", [("Resize", 24), ("CenterCrop", 20)], (3, 31, 52)),
    ("flip=1", [("RandomHorizontalFlip", 1)], (3, 23, 31)),
    ("vflip=1", [("RandomVerticalFlip", 1)], (3, 23, 31)),
    ("flip=0", [("RandomHorizontalFlip", 0)], (3, 23, 31)),
    ("grayscale=1", [("RandomGrayscale", 1)], (3, 23, 31)),
    ("grayscale=1", [("RandomGrayscale", 1)], (1, 23, 31)),
]
FACTORS = {"brightness": (0, .3, 1, 1.4, 7), "contrast": (0, .6, 1, 1.25, 9), "saturation": (0, .35, 1, 1.5, 12),
           "hue": (-.5, -.1, 0, .003, .21, .5)}
JITTERS = [((3, 0, 2, 1), (1.2, .7, 1.4, .05)), ((1, 2, 3, 0), (.6, 1.3, .5, -.3)), ((0, 1, 2, 3), (1.1, 1.1, .9, .4))]
AFFINES = [  # degrees, shift right and down, scale, shear
    (0, 0, 0, 1, 0), (0, 3, -2, 1, 0), (0, 0, 0, 1.3, 0), (0, -1, 4, .77, 0), (15, 0, 0, 1, 0), (-33.5, 2, 1, .9, 0),
    (7.25, 0, 0, 1.1, 12), (0, 0, 0, 1, -20.5), (120, -4, 5, 1.5, 3), (-179, 1, 1, .5, -45), (30, 40, 0, 1, 0), (0, 0, 0, 1.2, 0), (0, 0, 0, 2.4, 0),
]


def byte_image(shape):
    """A PIL image of random bytes, c 1 or 3."""
    from PIL import Image

    name = "transforms/%dx%dx%d" % shape
    array = (words(name, int(np.prod(shape))) >> np.uint32(24)).astype(np.uint8).reshape(shape)
    return Image.fromarray(array[0] if shape[0] == 1 else np.ascontiguousarray(array.transpose(1, 2, 0)))


def image_bytes(image):
    array = np.asarray(image)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def make_transforms():
    from torchvision import transforms
    from torchvision.transforms import functional as TF

    out = File()

    def add(kind, index, shape, values, image):
        out.add(f"{kind}/{index}/x", np.array(shape))
        out.add(f"{kind}/{index}/values", np.array(values, dtype=np.float64))
        out.add(f"{kind}/{index}/y", image_bytes(image))

    for i, (shape, box, size) in enumerate(RESIZES):
        add("resize", i, shape, box, TF.resized_crop(byte_image(shape), *box, list(size)))
    for spec, theirs, shape in LISTS:
        image = byte_image(shape)
        for name, argument in theirs:
            image = getattr(transforms, name)(argument)(image)
        out.add(f"list/{spec} of %dx%dx%d" % shape, image_bytes(image))
    shapes = [(3, 23, 31), (1, 23, 31)]
    for kind, factors in FACTORS.items():
        change = getattr(TF, "adjust_" + kind)
        for i, (factor, shape) in enumerate((factor, shape) for shape in shapes for factor in factors):
            add(kind, i, shape, [factor], change(byte_image(shape), factor))
    for i, (order, factors) in enumerate(JITTERS):
        image = byte_image(shapes[0])
        for part in order:
            image = getattr(TF, "adjust_" + list(FACTORS)[part])(image, factors[part])
        add("jitter", i, shapes[0], order + factors, image)
    for i, (values, shape) in enumerate((values, shape) for shape in shapes for values in AFFINES):
        angle, right, down, scale, shear = values
        add("affine", i, shape, values, TF.affine(byte_image(shape), angle, [right, down], scale, [shear, 0.0], fill=0))
    return out
