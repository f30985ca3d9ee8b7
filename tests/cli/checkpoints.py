"""checkpoints.py PROGRAM IMAGES - unchanged checkpoints of torchvision's resnet18. On a folder of images the program
computes the loss of torchvision; older files (without zip archive, without counters) and files of
DistributedDataParallel start the same run; with another number of classes --init-skip leaves out the last layer."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import torch
import torchvision
from torch.nn import functional as F
from torchvision import transforms

PROGRAM, IMAGES = sys.argv[1:]
FILES = {"cat": ["rgb.png", "fine.jpg"], "dog": ["palette.png", "grey.jpg"]}


def lockstep(*words, status=0):
    done = subprocess.run([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                          timeout=200)
    assert done.returncode == status, (words, done.returncode, done.stdout)
    return done.stdout


def make_folder():
    for split in ("train", "val"):
        for name, files in FILES.items():
            os.makedirs(f"pets/{split}/{name}")
            for file in files:
                shutil.copy(os.path.join(IMAGES, file), f"pets/{split}/{name}")


def own_loss(model):
    change = transforms.Compose([transforms.Resize((64, 64)), transforms.ToTensor(),
                                 transforms.Normalize((.485, .456, .406), (.229, .224, .225))])
    data = torchvision.datasets.ImageFolder("pets/val", change)
    x, y = zip(*data)
    with torch.no_grad():
        return F.cross_entropy(model.eval()(torch.stack(x)), torch.tensor(y)).item()


def check_eval():
    torch.manual_seed(1)
    model = torchvision.models.resnet18(num_classes=2)
    torch.save(model.state_dict(), "two.pth")
    said = lockstep("eval", "two.pth", "--model", "resnet18", "--data", "pets", "--augment", "resize=64/64",
                    "--test-augment", "resize=64/64", "--json")
    ours = float(re.search(r'"loss":([0-9.e-]+)', said).group(1))
    theirs = own_loss(model)
    assert abs(ours - theirs) < 1e-5 * abs(theirs), (ours, theirs)


def check_starts():
    task = ["train", "--model", "resnet18", "--data", "pets", "--augment", "resize=64/64", "--batch-size", "4",
            "--max-steps", "1", "--no-test"]
    state = torchvision.models.resnet18(num_classes=1000).state_dict()
    old = {"module." + key: value for key, value in state.items() if "num_batches" not in key}
    torch.save(state, "new.pth")
    torch.save({"epoch": 90, "state_dict": old}, "old.pth", _use_new_zipfile_serialization=False)
    said = lockstep(*task, "--init-from", "new.pth", status=1)
    assert "'fc.weight'" in said and "--init-skip" in said, said
    ends = {re.search("State hash (.*)", lockstep(*task, "--init-from", path, "--init-skip", "fc", *more)).group(1)
            for path, more in (("new.pth", ()), ("old.pth", ()), ("new.pth", ("-n", "2")))}
    assert len(ends) == 1, ends


with tempfile.TemporaryDirectory() as own_folder:
    os.chdir(own_folder)
    make_folder()
    check_eval()
    check_starts()
    os.chdir("/")
