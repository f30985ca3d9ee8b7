/* table.c - the table of commands: names, help texts and functions. */
#include <string.h>

#include "base/spec.h"
#include "cli/cli.h"

static const lk_command commands[] = {
    {"train", "[options]", "train a model",
     "  lockstep train --data mnist --save-model            one process\n"
     "  lockstep train -n 4                                  four ranks here\n"
     "  lockstep train --devices cpu:0,cpu:1                 two ranks in one process\n"
     "  lockstep train -n 2 --stages 2 --pipelined           a model in two stages\n"
     "  lockstep train --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 -n 4   (and 1 on the other node)\n"
     "  srun lockstep train                                  every task of Slurm is a rank, as is every one of mpirun\n"
     "  lockstep train --checkpoint ck --resume auto         saves as it goes; the same line again goes on\n"
     "However the work is divided, the weights are the same bits.",
     LK_CMD_TRAIN, 0, 0, "", lk__cmd_train},
    {"run", "[options] PROGRAM [ARGUMENTS]", "start any program as the ranks of a job, here or on several nodes",
     "  lockstep run -n 4 ./program\n"
     "  lockstep run --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 -n 4 python3 train.py   (and 1 on the other "
     "node)\n"
     "Sets torchrun's variables (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT ...) for every rank. When a\n"
     "rank fails, all are stopped and its own status is passed on.",
     LK_CMD_RUN, 1, 1, "a program", lk__cmd_run},
    {"eval", "FILE [options]", "test a saved model, or a checkpoint",
     "  lockstep eval mnist_cnn.safetensors\n"
     "  lockstep eval resnet50.pth --model resnet50 --data imagenet -n 2\n"
     "A file that 'lockstep train' has saved, and a checkpoint, know their model and data; options that are given "
     "win.\n"
     "For files of other programs give --model and --data.",
     LK_CMD_EVAL, 0, 1, "", lk__cmd_eval},
    {"predict", "FILE IMAGE... [options]", "print the classes of images, by a saved model",
     "  lockstep predict mnist_cnn.safetensors seven.png\n"
     "  lockstep predict run/best photographs --top 3 --json\n"
     "An IMAGE is a PNG or JPEG file, or a folder of them. The file says how images are prepared: transforms and\n"
     "normalisation are those of the test data. A colour image is made grey for a model of one channel.\n"
     "Exit status: 0 when all images were read, 1 when one was not, 2 when the command line is wrong.",
     LK_CMD_PREDICT, 2, LK_WORDS_MAX, "a model file and an image", lk__cmd_predict},
    {"compare", "A B", "print what differs between two saved models, or two checkpoints",
     "Exit status: 0 when they are the same bits, 1 when they differ, 2 when they could not be compared.",
     LK_CMD_COMPARE, 2, 2, "two models (.safetensors, .pth) or checkpoints", lk__cmd_compare},
    {"verify", "DIR", "check that checkpoints are whole",
     "DIR is one checkpoint, or a folder of them as --checkpoint makes it.\n"
     "Exit status: 0 when all are whole, 1 when one is not, 2 when there is nothing to check.",
     LK_CMD_VERIFY, 1, 1, "a checkpoint, or a folder of them", lk__cmd_verify},
    {"convert", "A B", "write a model file in another format, .safetensors or .pth",
     "  lockstep convert checkpoint.pth model.safetensors\n"
     "  lockstep convert model.safetensors model.pth          for torch.load\n"
     "B's ending chooses the format. Of a checkpoint only the model's tensors are kept; nothing in it is executed.",
     LK_CMD_CONVERT, 2, 2, "a model file and a name for the new one", lk__cmd_convert},
    {"bench", "allreduce|data|kernels|layers|predict|train [options]", "measure speed",
     "allreduce: sums between ranks of this host, 4 bytes to 100 MB, beside Open MPI where mpirun is installed.\n"
     "data: batches out of the loader, with nothing trained on them.\n"
     "kernels: matrix and convolution kernels beside the core's peak, and OpenBLAS where it is installed.\n"
     "layers: each layer of a training step on the CPU, beside the limits of arithmetic and of memory.\n"
     "predict: one sample's forward pass.\n"
     "train: steps of training with the data in memory.\n"
     "predict and train run on one device, a GPU if there is one; the others run on the CPU.",
     LK_CMD_BENCH, 1, 1, "what to measure: allreduce, data, kernels, layers, predict or train", lk__cmd_bench},
    {"data", "list | get NAME | verify NAME", "find, download and check data sets",
     "  lockstep data list                    which there are, and where they are\n"
     "  lockstep data get mnist               download; run again after an interruption, it goes on\n"
     "  lockstep data verify mnist            compare the files with what was published\n"
     "Exit status of verify: 0 when all files are right, 1 when one is not, 2 when there is nothing to check.",
     LK_CMD_DATA, 1, 2, "what to do: list, get or verify", lk__cmd_data},
    {"plot", "RUN... [-o FILE]", "draw loss, accuracy and speed of runs",
     "RUN is a run folder, as train --log-dir DIR makes it, or a folder of them: then all are drawn. The legend has "
     "the\n"
     "options that differ between the runs. Throughput and speed-up are drawn for runs that differ in ranks or "
     "threads.\n"
     "  lockstep plot runs/* -o runs.svg\n"
     "gnuplot draws: the package gnuplot-nox, or gnuplot.",
     LK_CMD_PLOT, 1, LK_WORDS_MAX, "run folders", lk__cmd_plot},
    {"report", "RUN... [-o FILE]", "write results, curves and options of runs as one page",
     "RUN is as for 'lockstep plot'. The page is one file for a browser and needs no other file, script or network.",
     LK_CMD_REPORT, 1, LK_WORDS_MAX, "run folders", lk__cmd_report},
    {"sweep", "--OPTION A,B ... [-o DIR] -- train [options]", "train with every combination of some options",
     "  lockstep sweep --nproc 1,2,4 --threads 1,2 -- train --data mnist --epochs 2\n"
     "  lockstep sweep --lr .1,.01 --optimizer 'sgd:momentum=.9,nesterov=1;adam' -o rates -- train\n"
     "  lockstep sweep -o rates                 the table and the picture again, of what is there\n"
     "Any option of train takes a list: values are separated by commas, or by semicolons where a value has commas.\n"
     "The cells run one after the other. The same line again keeps the cells that are done and runs the others.\n"
     "Exit status: 0 when all cells are done, 1 when one is not.",
     LK_CMD_SWEEP, 0, 1, "", lk__cmd_sweep},
    {"info", "[FILE | --model NAME | --group]", "what this build can do, what a model file holds, what a network costs",
     "  lockstep info --model resnet18:cifar --data cifar10\n"
     "  lockstep info --model vgg16 --batch-size 32 --optimizer sgd:momentum=.9 --json\n"
     "  lockstep info --json                  models, devices, libraries ... as one JSON object; also of a FILE\n"
     "  srun lockstep info --group            what each task knows, and what 'lockstep train' would do there",
     LK_CMD_INFO, 0, 1, "", lk__cmd_info},
    {"serve", "DIR [options]", "show the runs in a folder on a page that grows as they train",
     "  lockstep serve runs                              this machine only; the address is printed\n"
     "  lockstep serve runs --host 0.0.0.0               for other machines; the address has a token\n"
     "DIR is the folder of --log-dir, one run of it, or a copy. Only files are read; runs may still write them.\n"
     "The page is answered until Ctrl-C. From another machine: ssh -L 6060:localhost:6060 HOST",
     LK_CMD_SERVE, 1, 1, "the folder of --log-dir", lk__cmd_serve},
    {"help", "[COMMAND]", "show a command's options and their defaults",
     "  lockstep help train\n"
     "  lockstep help --man train | man -l -                  its man page\n"
     "  source <(lockstep help --completion bash)             completion in this shell",
     LK_CMD_HELP, 0, 1, "", lk__cmd_help},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

const lk_command *lk__command_list(size_t index)
{
    return index < COMMANDS ? &commands[index] : NULL;
}

static const char *next_command(const void *arg, size_t index)
{
    (void)arg;
    return index < COMMANDS ? commands[index].name : NULL;
}

const lk_command *lk__command_find(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    const char *near = lk__names_nearest(name, next_command, NULL);
    if (near)
        (void)lk__fail(LK_STATUS_USAGE, "no command '%s'; did you mean '%s'?", name, near);
    else
        (void)lk__fail(LK_STATUS_USAGE, "no command '%s'; 'lockstep help' lists those there are", name);
    return NULL;
}
