"""exceptions.py - commands of the pages that cannot be run unchanged.

A row has the page, a regular expression that matches the beginning of the command, and the replacement. A text is run
instead of the command; SKIP(why) skips the command; None runs the command as it is. A row that matches no command is an
error."""
import os
import re
import shutil
import subprocess


class SKIP:
    def __init__(self, why):
        self.why = why


# tests/cluster/slurm.sh runs the page on a cluster of its own.
ON_SLURM = None if "DOCS_ON_SLURM" in os.environ else SKIP("needs Slurm and several hosts; tests/cluster/slurm.sh has them")


GNUPLOT = None if shutil.which("gnuplot") else SKIP("needs gnuplot")


# Open MPI refuses to run as root, and to start more tasks than cores, unless it is told to.
def mpirun(command):
    if not shutil.which("mpirun") or "Open MPI" not in subprocess.getoutput("mpirun --version"):
        return SKIP("there is no mpirun of Open MPI here")
    return ("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
            f"mpirun -n 2 {command}")


# Runs both nodes on this host. The page shows the command of the first node.
def two_nodes(line):
    return (f"port=$FREE_PORT; export LOCKSTEP_TOKEN=0123456789abcdef0123456789abcdef; "
            f"{line.format(node=1)} & {line.format(node=0)} && wait $!")


NODES = ("lockstep train --nnodes 2 --node-rank {node} --master-addr 127.0.0.1 --master-port $port -n 2 --dry-run "
         "--model mlp")
RUN_NODES = "lockstep run --nnodes 2 --node-rank {node} --master-addr 127.0.0.1 --master-port $port -n 2 true"
TCP = ("lockstep train --init-method tcp://127.0.0.1:$port --rank {node} --world-size 2 --dry-run --model mlp")
FILE = ("lockstep train --init-method file://$PWD/job1 --rank {node} --world-size 3 --devices cpu:0,cpu:1 "
        "$OPTIONS --dry-run")

TABLE = [
    ("README.md", r"make (demo|test) ", SKIP("they build and test the project, this test with it")),
    ("README.md", r"lockstep data get mnist", SKIP("a download; tests/cli/data.sh has a server of its own")),
    ("README.md", r"srun ", SKIP("needs Slurm")),
    ("README.md", r"mpirun ", SKIP("needs MPI; tests/cli/mpi.sh has it")),
    ("README.md", r"lockstep train --model resnet18 --data DIR",
     "lockstep train --model resnet18 --data pets --augment resized_crop=64,flip"),
    ("README.md", r"lockstep train --nnodes 2", two_nodes(NODES)),
    ("README.md", r"lockstep train --init-method tcp://IP:PORT", two_nodes(TCP)),
    ("README.md", r"make install", "cmake --install $BUILD --prefix $HOME/.local"),
    ("docs/install.md", r"make install", "cmake --install $BUILD --prefix $HOME/.local"),
    ("docs/install.md", r"make uninstall",
     "cmake -DBUILD=$BUILD -DPREFIX=$HOME/.local -P $(realpath examples)/../cmake/uninstall.cmake && "
     "! test -e $HOME/.local/bin/lockstep"),
    ("docs/guide.md", r"OPTIONS=\"--model pyramidnet",
     'OPTIONS="--model pyramidnet:blocks=1,alpha=24 --data cifar10 --batch-size 768 --epochs 4 --lr .1 '
     '--optimizer sgd:momentum=.9,weight_decay=1e-4 --schedule step:size=2,gamma=.1"'),
    ("docs/guide.md", r"lockstep train --init-method file:///nfs",
     f"{FILE.format(node=1)} & {FILE.format(node=2)} & {FILE.format(node=0)} && wait"),
    ("docs/guide.md", r"srun ", SKIP("needs Slurm")),
    ("docs/running.md", r"lockstep run -n 2 python3 train.py", SKIP("needs PyTorch; tests/cli/run_torch.sh has it")),
    ("docs/running.md", r"lockstep run --nnodes 2 --node-rank 0", two_nodes(RUN_NODES)),
    ("docs/running.md", r"lockstep run --nnodes 2 --node-rank 1", SKIP("the other half of the line before it")),
    ("docs/data.md", r"lockstep data (list|get|verify)", SKIP("depends on what is installed; tests/cli/data.sh")),
    ("docs/clusters.md", r"RANKS=2 examples/cluster/by_hand.sh", ON_SLURM),
    ("docs/clusters.md", r"(sbatch|srun|grep|cat) ", ON_SLURM),
    ("docs/clusters.md", r"mpirun -n 2 lockstep train", mpirun("lockstep train $OPTIONS")),
    ("docs/clusters.md", r"mpirun -n 2 sh", mpirun(
        "sh -c '[ \"${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\" != 0 ] || lockstep info --group'")),
    ("README.md", r"lockstep plot", GNUPLOT),
    # It serves until it is stopped.
    ("README.md", r"lockstep serve runs",
     "{ timeout 3 lockstep serve runs --port $FREE_PORT || true; } | grep 'Live page: http://127.0.0.1:'"),
    ("docs/plots.md", r"lockstep sweep .* --slurm", SKIP("needs Slurm; tests/cluster/slurm.sh has it")),
    ("docs/plots.md", r"lockstep (plot|sweep)", GNUPLOT),
    ("docs/gpu.md", r"lockstep (train|run)", SKIP("needs a GPU")),
    ("docs/models.md", r"lockstep (train|eval) .*resnet(18-f37072fd|50-0676ba61)", SKIP("weights that others publish")),
]

# Other parts of the output of a command that differ between runs or machines.
VARIES = [
    # If a rank is killed during a save, the message says that the save was not finished.
    ("README.md", r"LOCKSTEP_FAULT=kill", r"the last checkpoint is .*"),
    ("docs/checkpoints.md", r"LOCKSTEP_FAULT=kill", r"the last checkpoint is .*"),
    ("docs/faults.md", r"LOCKSTEP_FAULT='kill", r"the last checkpoint is .*"),
    ("docs/checkpoints.md", r"timeout ", r"step[- ]\d+"),
    ("docs/traces.md", r"(LOCKSTEP_FAULT|lockstep)", r"\b\d+\.\d\b"),
    ("docs/clusters.md", r"(sbatch|srun|grep|cat|mpirun)", r"(job|port) \d+|\b\d+\.0\b"),
    ("docs/plots.md", r"lockstep sweep", r"in [\d.]+ s|\d+ img/s|(?<=\d\.\d{4} )\d+ [\d.]+(?= )"),
    ("docs/models.md", r"lockstep info --model", r"(scratch of kernels|together) +[\d.]+ MB"),
]


def varies(page, command):
    return [pattern for row_page, row, pattern in VARIES if row_page == page and re.match(row, command.text)]


def instead(page, command):
    """Returns the text to run and None, or None and the reason for skipping."""
    for row_page, pattern, action in TABLE:
        if row_page == page and re.match(pattern, command.text):
            if isinstance(action, SKIP):
                return None, action.why
            return (command.text if action is None else action), None
    return command.text, None


def unused(page, commands):
    """Returns the patterns of this page's rows that match no command."""
    return [pattern for row_page, pattern, _ in TABLE
            if row_page == page and not any(re.match(pattern, command.text) for command in commands)]
