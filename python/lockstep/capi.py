"""The C headers of Lockstep as ctypes. Written by tools/api_ctypes.py; do not edit.

FUNCTIONS has for each function its result, its arguments (name and type) and the comment of its header."""
from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_double, c_int, c_size_t, c_uint, c_uint64, c_void_p

from .enums import Enum

VERSION = "0.1.0"
LK_MAX_DIMS = 8
LK_MAX_TENSOR_NAME = 1024
LK_MAX_STATE_NOTES = 64
LK_SAMPLE_DIMS = 3
LK_MAX_ROOTS = 26


class lk_split(Enum):
    values = {'TRAIN': 0, 'TEST': 1}


class lk_sample_order(Enum):
    values = {'CHW': 0, 'HWC': 1}


class lk_reduce_order(Enum):
    values = {'TREE': 0, 'BACKEND': 1}


class lk_bn_mode(Enum):
    values = {'BATCH': 0, 'SHARD': 1}


class lk_reduction(Enum):
    values = {'SUM': 0, 'MEAN': 1, 'MIN': 2, 'MAX': 3, 'PRODUCT': 4}


class lk_dtype(Enum):
    values = {'F32': 0, 'F64': 1, 'BF16': 2, 'F16': 3, 'I64': 4, 'I32': 5, 'U8': 6}


class lk_precision(Enum):
    values = {'FP32': 0, 'TF32': 1, 'BF16': 2}


class lk_status(Enum):
    values = {'OK': 0, 'USAGE': 1, 'NOT_FOUND': 2, 'IO': 3, 'FORMAT': 4, 'MISMATCH': 5, 'MEMORY': 6, 'NONFINITE': 7, 'PEER': 8, 'UNSUPPORTED': 9}


lk_dataset_read_fn = CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p, c_void_p)


lk_notice_fn = CFUNCTYPE(None, c_void_p, c_char_p)


lk_reduction_fn = CFUNCTYPE(None, c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_size_t)


lk_spawn_fn = CFUNCTYPE(c_int, c_int, c_void_p)


lk_difference_fn = CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)


class lk_dataset_info(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("path", c_char_p),
        ("count", c_size_t),
        ("channels", c_size_t),
        ("height", c_size_t),
        ("width", c_size_t),
        ("classes", c_size_t),
        ("targets", c_size_t),
        ("dtype", lk_dtype),
        ("order", lk_sample_order),
        ("mean", c_void_p),
        ("std", c_void_p),
    ]


class lk_dataset_opts(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("count", c_size_t),
        ("dtype", lk_dtype),
        ("dims", c_size_t * 3),
        ("order", lk_sample_order),
        ("classes", c_size_t),
        ("targets", c_size_t),
        ("mean", c_void_p),
        ("std", c_void_p),
        ("augment", c_char_p),
        ("split", lk_split),
        ("reserved", c_uint64 * 8),
    ]


class lk_dataset_row(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("summary", c_char_p),
    ]


class lk_transform_info(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("summary", c_char_p),
    ]


class lk_sample_shape(Structure):
    _fields_ = [
        ("channels", c_size_t),
        ("height", c_size_t),
        ("width", c_size_t),
    ]


class lk_batch(Structure):
    _fields_ = [
        ("count", c_size_t),
        ("sample_floats", c_size_t),
        ("x", c_void_p),
        ("labels", c_void_p),
        ("target_floats", c_size_t),
        ("targets", c_void_p),
        ("ids", c_void_p),
        ("total", c_size_t),
        ("epoch", c_size_t),
        ("source", c_void_p),
        ("reserved", c_uint64 * 8),
    ]


class lk_shard_range(Structure):
    _fields_ = [
        ("shards", c_int),
        ("first", c_int),
        ("last", c_int),
        ("labels_only", c_bool),
    ]


class lk_loader_opts(Structure):
    _fields_ = [
        ("batch", c_size_t),
        ("drop_last", c_bool),
        ("shuffle", c_bool),
        ("seed", c_uint64),
        ("workers", c_int),
        ("augment", c_char_p),
        ("share", lk_shard_range),
        ("reserved", c_uint64 * 8),
    ]


class lk_engine_opts(Structure):
    _fields_ = [
        ("device", c_char_p),
        ("threads", c_int),
        ("batch", c_size_t),
        ("shards", c_int),
        ("micro_batch", c_size_t),
        ("bn", lk_bn_mode),
        ("precision", lk_precision),
        ("optimizer", c_char_p),
        ("lr", c_double),
        ("seed", c_uint64),
        ("eval_only", c_bool),
        ("allow_nonfinite", c_bool),
        ("clip_norm", c_double),
        ("label_smoothing", c_double),
        ("group", c_void_p),
        ("bucket_bytes", c_size_t),
        ("reduce", lk_reduce_order),
        ("gradient_backend", c_char_p),
        ("stages", c_char_p),
        ("pipelined", c_bool),
        ("check_every", c_int),
        ("outputs", c_char_p),
        ("reserved", c_uint64 * 15),
    ]


class lk_metrics(Structure):
    _fields_ = [
        ("count", c_size_t),
        ("correct", c_size_t),
        ("top5", c_size_t),
        ("loss", c_double),
        ("reserved", c_uint64 * 8),
    ]


class lk_layout(Structure):
    _fields_ = [
        ("replica", c_int),
        ("replicas", c_int),
        ("stage", c_int),
        ("stages", c_int),
        ("first_layer", c_int),
        ("last_layer", c_int),
        ("threads", c_int),
        ("capacity", c_size_t),
        ("one_wave", c_bool),
        ("gradient_backend", c_char_p),
        ("reserved", c_uint64 * 8),
    ]


class lk_output(Structure):
    _fields_ = [
        ("node", c_char_p),
        ("values", c_void_p),
    ]


class lk_waits(Structure):
    _fields_ = [
        ("gradients", c_double),
        ("other", c_double),
    ]


class lk_node(Structure):
    _fields_ = [
        ("index", c_int),
        ("graph", c_uint),
    ]


class lk_conv2d_opts(Structure):
    _fields_ = [
        ("out", c_size_t),
        ("kernel", c_size_t),
        ("stride", c_size_t),
        ("pad", c_size_t),
        ("no_bias", c_bool),
        ("groups", c_size_t),
        ("reserved", c_uint64 * 8),
    ]


class lk_conv_transpose2d_opts(Structure):
    _fields_ = [
        ("out", c_size_t),
        ("kernel", c_size_t),
        ("stride", c_size_t),
        ("pad", c_size_t),
        ("no_bias", c_bool),
        ("groups", c_size_t),
        ("out_pad", c_size_t),
        ("reserved", c_uint64 * 8),
    ]


class lk_maxpool2d_opts(Structure):
    _fields_ = [
        ("kernel", c_size_t),
        ("stride", c_size_t),
        ("pad", c_size_t),
        ("reserved", c_uint64 * 8),
    ]


class lk_avgpool2d_opts(Structure):
    _fields_ = [
        ("kernel", c_size_t),
        ("stride", c_size_t),
        ("pad", c_size_t),
        ("ceil", c_bool),
        ("reserved", c_uint64 * 8),
    ]


class lk_model_shape(Structure):
    _fields_ = [
        ("channels", c_size_t),
        ("height", c_size_t),
        ("width", c_size_t),
        ("classes", c_size_t),
    ]


class lk_model_info(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("summary", c_char_p),
        ("params", c_char_p),
    ]


class lk_group_opts(Structure):
    _fields_ = [
        ("init_method", c_char_p),
        ("rank", c_int),
        ("world_size", c_int),
        ("threads", c_int),
        ("thread", c_int),
        ("backend", c_char_p),
        ("timeout", c_double),
        ("token", c_char_p),
        ("notice", lk_notice_fn),
        ("notice_arg", c_void_p),
        ("progress_thread", c_bool),
        ("reserved", c_uint64 * 8),
    ]


class lk_buffer(Structure):
    _fields_ = [
        ("at", c_void_p),
        ("count", c_size_t),
        ("dtype", lk_dtype),
    ]


class lk_shard_sums(Structure):
    _fields_ = [
        ("bounds", c_void_p),
        ("roots", c_void_p),
    ]


class lk_state_entry(Structure):
    _fields_ = [
        ("name", c_void_p),
        ("dtype", lk_dtype),
        ("ndim", c_int),
        ("dims", c_size_t * 8),
        ("bytes", c_size_t),
        ("data", c_void_p),
    ]


FUNCTIONS = {
    "lk_checkpoint_create": (lk_status, (("model", c_void_p), ("optimizer", c_void_p), ("out", c_void_p)),
        'Creates a checkpoint in memory. Takes ownership of both states, also on failure. A state may be NULL: the checkpoint then has notes, and cannot be saved (USAGE).'),
    "lk_checkpoint_destroy": (None, (("checkpoint", c_void_p),),
        'Creates a checkpoint in memory. Takes ownership of both states, also on failure. A state may be NULL: the checkpoint then has notes, and cannot be saved (USAGE).'),
    "lk_checkpoint_model": (c_void_p, (("checkpoint", c_void_p),),
        'The two states, borrowed from the checkpoint; NULL after lk_checkpoint_load_notes.'),
    "lk_checkpoint_optimizer": (c_void_p, (("checkpoint", c_void_p),),
        'The two states, borrowed from the checkpoint; NULL after lk_checkpoint_load_notes.'),
    "lk_checkpoint_set_note": (lk_status, (("checkpoint", c_void_p), ("name", c_char_p), ("text", c_char_p)),
        'Sets the text of a note; both strings are copied. A note keeps the position at which it was first set. Name and text are UTF-8, and the name is not empty (else USAGE).'),
    "lk_checkpoint_note": (c_char_p, (("checkpoint", c_void_p), ("name", c_char_p)),
        'The text of a note, borrowed until the note is set again; NULL when there is no such note.'),
    "lk_checkpoint_note_name": (c_char_p, (("checkpoint", c_void_p), ("index", c_size_t)),
        'The name of note `index`, counted from 0; NULL after the last note.'),
    "lk_checkpoint_save": (lk_status, (("checkpoint", c_void_p), ("folder", c_char_p)),
        'Saves the checkpoint as `folder`. Blocks until the files are synced to the disk. The files are written to a temporary folder beside `folder` (its name starts with ".lk-"), synced, read back and verified; a rename then gives that folder its name. So `folder` is either complete or does not exist. An existing checkpoint is replaced by an exchange of the two names. Where the file system cannot exchange names and the process is killed between the two renames, the next save or load of `folder` restores the old checkpoint. A failure keeps the old checkpoint and removes the temporary folder, if it can be removed.'),
    "lk_checkpoint_load": (lk_status, (("folder", c_char_p), ("out", c_void_p)),
        'Reads and verifies a checkpoint. NOT_FOUND: folder is not a checkpoint. FORMAT: at least one bit differs from what was saved; the detail names the file and the tensor. UNSUPPORTED: a later version of Lockstep has saved the checkpoint. The caller owns *out.'),
    "lk_checkpoint_load_notes": (lk_status, (("folder", c_char_p), ("out", c_void_p)),
        'Reads and verifies the notes only; does not read the two large files.'),
    "lk_checkpoint_verify": (lk_status, (("folder", c_char_p),),
        'Verifies a checkpoint as lk_checkpoint_load does, and returns only the status.'),
    "lk_dataset_open": (lk_status, (("name", c_char_p), ("dir", c_char_p), ("split", lk_split), ("out", c_void_p)),
        'Opens a split of a data set. `name` is a name of lk_dataset_list or a folder. A name is searched in `dir` only. If dir is NULL or "", it is searched in $LOCKSTEP_DATA, ./data, the user\'s cache folder and the system\'s dataset folder, in this order. NOT_FOUND: the detail lists the folders that were searched. The caller owns *out.'),
    "lk_dataset_destroy": (None, (("data", c_void_p),),
        'Opens a split of a data set. `name` is a name of lk_dataset_list or a folder. A name is searched in `dir` only. If dir is NULL or "", it is searched in $LOCKSTEP_DATA, ./data, the user\'s cache folder and the system\'s dataset folder, in this order. NOT_FOUND: the detail lists the folders that were searched. The caller owns *out.'),
    "lk_dataset_get_info": (POINTER(lk_dataset_info), (("data", c_void_p),),
        'The result is borrowed from the data set.'),
    "lk_dataset_get": (lk_status, (("data", c_void_p), ("index", c_size_t), ("sample", c_void_p), ("target", c_void_p)),
        'Copies sample `index`, counted from 0: channels * height * width elements of info.dtype in the order info.order; and its target: an int32_t label, or info.targets floats. May block until the data are read. USAGE if there is no such sample, or if the images differ in size; a loader with transforms can read such data sets.'),
    "lk_dataset_create": (lk_status, (("opts", POINTER(lk_dataset_opts)), ("read", lk_dataset_read_fn), ("arg", c_void_p), ("out", c_void_p)),
        'Creates a data set whose samples `read` gives; arg must outlive it. The caller owns *out. USAGE for impossible options.'),
    "lk_dataset_from_memory": (lk_status, (("opts", POINTER(lk_dataset_opts)), ("samples", c_void_p), ("targets", c_void_p), ("out", c_void_p)),
        'Creates a data set of samples in memory, one after the other, and their targets. The memory is borrowed and must outlive the data set. USAGE for impossible options and for labels outside of [0, classes).'),
    "lk_dataset_subset": (lk_status, (("base", c_void_p), ("indices", c_void_p), ("count", c_size_t), ("split", lk_split), ("out", c_void_p)),
        'Creates a data set of the samples indices (count) of base, in this order; an index may occur several times. base is borrowed and must outlive it; indices is not used afterwards. split: as in lk_dataset_opts; it also says which of base\'s transforms "auto" stands for. USAGE if an index is not below base\'s count, or if count is 0.'),
    "lk_dataset_list": (POINTER(lk_dataset_row), (("index", c_size_t),),
        'Row `index` of the known data sets, counted from 0; NULL after the last.'),
    "lk_transform_list": (POINTER(lk_transform_info), (("index", c_size_t),),
        'Row `index` of the transforms, counted from 0; NULL after the last.'),
    "lk_augmented_shape": (lk_status, (("data", c_void_p), ("augment", c_char_p), ("out", POINTER(lk_sample_shape))),
        'The shape of every sample of a loader that is created with this `augment` (see lk_loader_opts). USAGE if the samples would differ in size. If the images are files and no transform fixes the size, the first call for a data set reads the headers of all files.'),
    "lk_shard_range_count": (c_size_t, (("share", lk_shard_range), ("total", c_size_t)),
        "For a batch of `total` samples: the number of samples in the share, and the index in the batch of the share's first sample."),
    "lk_shard_range_begin": (c_size_t, (("share", lk_shard_range), ("total", c_size_t)),
        "For a batch of `total` samples: the number of samples in the share, and the index in the batch of the share's first sample."),
    "lk_loader_create": (lk_status, (("data", c_void_p), ("opts", POINTER(lk_loader_opts)), ("out", c_void_p)),
        'Creates a loader and its worker threads. `data` is borrowed and must outlive the loader.'),
    "lk_loader_destroy": (None, (("loader", c_void_p),),
        'Creates a loader and its worker threads. `data` is borrowed and must outlive the loader.'),
    "lk_loader_start": (lk_status, (("loader", c_void_p), ("epoch", c_size_t), ("first_batch", c_size_t)),
        'Starts an epoch at batch `first_batch` (0: the first). Ends an epoch that is under way: blocks until the workers have finished the batches that they prepare.'),
    "lk_loader_next": (lk_status, (("loader", c_void_p), ("out", c_void_p)),
        'Blocks until the next batch is ready. *out is NULL after the last batch of the epoch, and is borrowed until the next call for this loader.'),
    "lk_loader_batches": (c_size_t, (("loader", c_void_p),),
        'The number of batches of an epoch.'),
    "lk_engine_create": (lk_status, (("graph", c_void_p), ("opts", POINTER(lk_engine_opts)), ("out", c_void_p)),
        'Creates an engine; it copies graph. Collective: options that change the result must be equal at all ranks (else MISMATCH), and all replicas get the parameters of replica 0. USAGE if a BatchNorm would always normalise a single value per channel.'),
    "lk_engine_destroy": (None, (("engine", c_void_p),),
        'Destroys an engine. Ranks that share a GPU block here until all of them destroy their engines, unless their job is broken.'),
    "lk_engine_layout": (lk_layout, (("engine", c_void_p),),
        "The engine's layout, which never changes."),
    "lk_engine_shard_range": (lk_shard_range, (("engine", c_void_p),),
        'The share of each batch that this rank needs. The caller may give the engine this share of a batch, or the whole batch.'),
    "lk_engine_cache_dataset": (lk_status, (("engine", c_void_p), ("loader", c_void_p), ("cached", c_void_p)),
        "Copies all samples of a loader's data set to the engine's device. The bits of steps and evaluations stay the same, and batches need no upload. *cached says whether the samples were copied; LK_OK and false if they cannot be: the device must have its own memory, the samples must be bytes of one size with no other transforms than crop and flip, and they must take at most half of the free memory. An engine can cache two loaders' data sets, one for training and one for testing. From its next lk_loader_start, a cached loader gives batches of labels and ids, which only this engine can use. Reads the whole data set. Not collective: does not communicate, and only stage 0 caches."),
    "lk_engine_step": (lk_status, (("engine", c_void_p), ("batch", POINTER(lk_batch)), ("out", POINTER(lk_metrics))),
        'Collective: forward, backward, sum of gradients and update. The batch, of all ranks, has 1 to lk_engine_opts.batch samples. Every rank gets the metrics of the whole batch. After NONFINITE the engine is in its state before the step.'),
    "lk_engine_depth": (c_int, (("engine", c_void_p),),
        'A step in two calls. lk_engine_send starts a step and returns when the memory of the batch may be used again; lk_engine_receive blocks until the oldest step or evaluation under way is done and returns its metrics. A GPU can have up to lk_engine_depth of them under way if there is one rank, or NCCL sums the gradients, or the engine only evaluates. lk_engine_can_send says whether a step of `total` samples can be sent now; true if nothing is under way. All ranks must send and receive in the same order. Functions that read or change the state return USAGE while anything is under way. lk_engine_steps counts the steps sent. After NONFINITE nothing is under way, and the engine is in its state before the step that failed.'),
    "lk_engine_can_send": (c_bool, (("engine", c_void_p), ("total", c_size_t)),
        'A step in two calls. lk_engine_send starts a step and returns when the memory of the batch may be used again; lk_engine_receive blocks until the oldest step or evaluation under way is done and returns its metrics. A GPU can have up to lk_engine_depth of them under way if there is one rank, or NCCL sums the gradients, or the engine only evaluates. lk_engine_can_send says whether a step of `total` samples can be sent now; true if nothing is under way. All ranks must send and receive in the same order. Functions that read or change the state return USAGE while anything is under way. lk_engine_steps counts the steps sent. After NONFINITE nothing is under way, and the engine is in its state before the step that failed.'),
    "lk_engine_send": (lk_status, (("engine", c_void_p), ("batch", POINTER(lk_batch))),
        'A step in two calls. lk_engine_send starts a step and returns when the memory of the batch may be used again; lk_engine_receive blocks until the oldest step or evaluation under way is done and returns its metrics. A GPU can have up to lk_engine_depth of them under way if there is one rank, or NCCL sums the gradients, or the engine only evaluates. lk_engine_can_send says whether a step of `total` samples can be sent now; true if nothing is under way. All ranks must send and receive in the same order. Functions that read or change the state return USAGE while anything is under way. lk_engine_steps counts the steps sent. After NONFINITE nothing is under way, and the engine is in its state before the step that failed.'),
    "lk_engine_receive": (lk_status, (("engine", c_void_p), ("out", POINTER(lk_metrics))),
        'A step in two calls. lk_engine_send starts a step and returns when the memory of the batch may be used again; lk_engine_receive blocks until the oldest step or evaluation under way is done and returns its metrics. A GPU can have up to lk_engine_depth of them under way if there is one rank, or NCCL sums the gradients, or the engine only evaluates. lk_engine_can_send says whether a step of `total` samples can be sent now; true if nothing is under way. All ranks must send and receive in the same order. Functions that read or change the state return USAGE while anything is under way. lk_engine_steps counts the steps sent. After NONFINITE nothing is under way, and the engine is in its state before the step that failed.'),
    "lk_engine_eval": (lk_status, (("engine", c_void_p), ("batch", POINTER(lk_batch)), ("out", POINTER(lk_metrics))),
        'Collective: forward in evaluation mode. The batch has at least one sample, and may be larger than lk_engine_opts.batch. Every rank gets the metrics of the whole batch.'),
    "lk_engine_can_send_eval": (c_bool, (("engine", c_void_p), ("total", c_size_t)),
        'An evaluation in two calls: lk_engine_send_eval starts it as lk_engine_send starts a step, and lk_engine_receive returns its metrics. It evaluates the model as it is after the steps sent before. Steps and evaluations may be under way together. lk_engine_can_send_eval says whether an evaluation of `total` samples can be sent now.'),
    "lk_engine_send_eval": (lk_status, (("engine", c_void_p), ("batch", POINTER(lk_batch))),
        'An evaluation in two calls: lk_engine_send_eval starts it as lk_engine_send starts a step, and lk_engine_receive returns its metrics. It evaluates the model as it is after the steps sent before. Steps and evaluations may be under way together. lk_engine_can_send_eval says whether an evaluation of `total` samples can be sent now.'),
    "lk_engine_forward": (lk_status, (("engine", c_void_p), ("batch", POINTER(lk_batch)), ("scores", c_void_p)),
        "Collective: forward in evaluation mode; writes the scores (total, lk_engine_output_floats(engine, NULL)) of every sample of the whole batch, at every rank, whether the ranks give the whole batch or their shares, and in whichever stage the scores are. labels and targets of the batch are not read and may be NULL, and ids too unless source is set. The batch may be larger than lk_engine_opts.batch. The first call of a size may allocate memory; later calls do not, except for messages of a group. Counts as an evaluation for lk_engine_set_signal_source. USAGE if a pointer is NULL, the batch has no sample, or a step is under way; MISMATCH if the samples have another size than the model's input, or the ranks have batches of different sizes."),
    "lk_engine_forward_outputs": (lk_status, (("engine", c_void_p), ("batch", POINTER(lk_batch)), ("outputs", POINTER(lk_output)), ("count", c_size_t)),
        'As lk_engine_forward, for `count` outputs, at least 1, in one pass. All ranks must ask for the same nodes in the same order. USAGE also if lk_engine_opts.outputs does not have a node.'),
    "lk_engine_output_floats": (c_size_t, (("engine", c_void_p), ("node", c_char_p)),
        'The floats that an output has for each sample; node NULL: the scores. 0 if there is no such output.'),
    "lk_engine_gradients": (lk_status, (("engine", c_void_p), ("batch", POINTER(lk_batch)), ("out", POINTER(lk_metrics))),
        "Collective: the two halves of a step. lk_engine_gradients computes the gradients and BatchNorm's running statistics; lk_engine_update updates the parameters, and needs a successful lk_engine_gradients before it (else USAGE). lk_engine_gradients alone counts as a training step (lk_engine_steps, new dropout masks), so a program may also update the parameters itself (lk_engine_grads, lk_engine_set_state)."),
    "lk_engine_update": (lk_status, (("engine", c_void_p),),
        "Collective: the two halves of a step. lk_engine_gradients computes the gradients and BatchNorm's running statistics; lk_engine_update updates the parameters, and needs a successful lk_engine_gradients before it (else USAGE). lk_engine_gradients alone counts as a training step (lk_engine_steps, new dropout masks), so a program may also update the parameters itself (lk_engine_grads, lk_engine_set_state)."),
    "lk_engine_own_metrics": (lk_metrics, (("engine", c_void_p),),
        "Metrics of this rank's samples in the last step. count is 0 except at the last stage, and after a failure."),
    "lk_engine_set_grad_norm": (lk_status, (("engine", c_void_p), ("on", c_bool)),
        'Whether later steps (lk_engine_step, lk_engine_send, lk_engine_update) compute the norm of the gradient; off at first. All ranks must set the same. May be called while steps are under way.'),
    "lk_engine_grad_norm": (c_double, (("engine", c_void_p),),
        "The 2-norm of the whole model's gradient in the last step that was received, before clipping; the same bits however the work was divided. NaN if that step did not compute it, and after a failure. With clip_norm every step computes it."),
    "lk_engine_waits": (lk_waits, (("engine", c_void_p),),
        'Seconds, over all steps so far, in which this rank waited for other ranks (folding sums is included): `gradients` after its backward pass, `other` before (stages, BatchNorm).'),
    "lk_engine_check": (lk_status, (("engine", c_void_p),),
        'Collective: compares parameters, buffers and optimiser state of the replicas. MISMATCH: the detail names rank, tensor and step. Steps do this every check_every steps.'),
    "lk_engine_lr": (c_double, (("engine", c_void_p),),
        'The learning rate of the next update.'),
    "lk_engine_set_lr": (lk_status, (("engine", c_void_p), ("lr", c_double)),
        "Sets the learning rate of later updates; all ranks must set the same. May be called while steps are under way. USAGE, and the rate is kept, if lr is negative, NaN or too large for a float. With a rate of 0, updates keep the parameters and change only the optimiser's state (in lk_engine_opts, 0 means the default)."),
    "lk_engine_steps": (c_uint64, (("engine", c_void_p),),
        'The number of training steps: successful calls of lk_engine_step, lk_engine_send and lk_engine_gradients, and the steps of a restored optimiser state. A failed step and lk_engine_update are not counted. Dropout masks are a function of this number.'),
    "lk_engine_state": (lk_status, (("engine", c_void_p), ("out", c_void_p)),
        "Copies of the parameters and buffers, or of the last step's gradients, of the whole model under PyTorch's names; the caller owns *out. Collective if there are several stages. lk_engine_grads is USAGE if there was no step or the last one failed."),
    "lk_engine_grads": (lk_status, (("engine", c_void_p), ("out", c_void_p)),
        "Copies of the parameters and buffers, or of the last step's gradients, of the whole model under PyTorch's names; the caller owns *out. Collective if there are several stages. lk_engine_grads is USAGE if there was no step or the last one failed."),
    "lk_engine_set_state": (lk_status, (("engine", c_void_p), ("state", c_void_p)),
        'Collective: replaces parameters and buffers by the state that replica 0 gives. MISMATCH, and nothing is replaced, if a key is missing, unknown or has another shape; only num_batches_tracked may be missing, as in old files, and is then 0.'),
    "lk_engine_optimizer_state": (lk_status, (("engine", c_void_p), ("out", c_void_p)),
        'A copy of the optimiser\'s state, owned by the caller: arrays with PyTorch\'s names, as "exp_avg.conv1.weight"; "steps" (i64); "lr" and "powers" (f64). Later steps depend only on this state and on parameters and buffers. Collective if there are several stages.'),
    "lk_engine_set_optimizer_state": (lk_status, (("engine", c_void_p), ("state", c_void_p)),
        'Collective: replaces the optimiser\'s state by the state that replica 0 gives. MISMATCH as for lk_engine_set_state; no key may be missing. lk_engine_steps continues from the state\'s "steps", and lk_engine_update needs new gradients.'),
    "lk_engine_set_signal_source": (None, (("engine", c_void_p), ("level", c_void_p), ("arg", c_void_p)),
        "Sets this rank's signal source, a function that every step and evaluation calls in the calling thread. It returns a signal level, not below 0; without a source the level is 0. After the step every rank knows the largest level of all ranks. So ranks agree on the step after which they save or stop, whichever rank was asked to; this needs no additional message."),
    "lk_engine_agreed_signal": (c_int, (("engine", c_void_p),),
        'The largest signal level of all ranks in the last step or evaluation; 0 if the last one failed.'),
    "lk_engine_agreed_signal_rank": (c_int, (("engine", c_void_p),),
        'The rank whose signal level was the largest; of several such ranks, the lowest. -1 if the level is 0. 0 without a group. The result is the same at every rank.'),
    "lk_graph_create": (lk_status, (("out", c_void_p),),
        'Creates a graph without layers; the caller owns *out.'),
    "lk_graph_destroy": (None, (("graph", c_void_p),),
        'Creates a graph without layers; the caller owns *out.'),
    "lk_graph_check": (lk_status, (("graph", c_void_p),),
        'Returns the first mistake of the builders. LK_OK if there was none and the graph is complete: it has one input, a loss as its last node, and every other node is an input of a later one.'),
    "lk_input": (lk_node, (("graph", c_void_p), ("channels", c_size_t), ("height", c_size_t), ("width", c_size_t)),
        'Builders. `name` is the prefix of the layer\'s keys in a state dict: "conv1" gives conv1.weight and conv1.bias. The name is copied.'),
    "lk_conv2d": (lk_node, (("graph", c_void_p), ("x", lk_node), ("name", c_char_p), ("opts", lk_conv2d_opts)),
        'Builders. `name` is the prefix of the layer\'s keys in a state dict: "conv1" gives conv1.weight and conv1.bias. The name is copied.'),
    "lk_conv_transpose2d": (lk_node, (("graph", c_void_p), ("x", lk_node), ("name", c_char_p), ("opts", lk_conv_transpose2d_opts)),
        'Transposed convolution, which enlarges images. Its weight is (input channels, out / groups, kernel, kernel).'),
    "lk_linear": (lk_node, (("graph", c_void_p), ("x", lk_node), ("name", c_char_p), ("out", c_size_t)),
        'out: output features. x is a vector, or a sequence, whose vectors are multiplied with the same weights, as nn.Linear does with (N, T, C).'),
    "lk_batchnorm2d": (lk_node, (("graph", c_void_p), ("x", lk_node), ("name", c_char_p)),
        'As in PyTorch, with eps 1e-5 and momentum 0.1.'),
    "lk_groupnorm": (lk_node, (("graph", c_void_p), ("x", lk_node), ("name", c_char_p), ("groups", c_size_t)),
        "As in PyTorch, with eps 1e-5. groupnorm normalises each group of a sample's channels over all pixels; `groups` must divide the channels. layernorm normalises the channels of each pixel alone, as nn.LayerNorm(C) does with tensors whose last axis is the channels. Both have a weight and a bias for each channel."),
    "lk_layernorm": (lk_node, (("graph", c_void_p), ("x", lk_node), ("name", c_char_p)),
        "As in PyTorch, with eps 1e-5. groupnorm normalises each group of a sample's channels over all pixels; `groups` must divide the channels. layernorm normalises the channels of each pixel alone, as nn.LayerNorm(C) does with tensors whose last axis is the channels. Both have a weight and a bias for each channel."),
    "lk_relu": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        'max(x, 0).'),
    "lk_relu6": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        'min(max(x, 0), 6).'),
    "lk_leaky_relu": (lk_node, (("graph", c_void_p), ("x", lk_node), ("slope", c_double)),
        'x where x > 0, else slope * x; slope is in [0,1).'),
    "lk_sigmoid": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        "Functions of each element; the result has x's shape. silu is x * sigmoid(x); gelu is x * Phi(x), where Phi is the distribution function of the normal distribution; gelu_tanh is PyTorch's approximation of gelu by tanh."),
    "lk_tanh": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        "Functions of each element; the result has x's shape. silu is x * sigmoid(x); gelu is x * Phi(x), where Phi is the distribution function of the normal distribution; gelu_tanh is PyTorch's approximation of gelu by tanh."),
    "lk_silu": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        "Functions of each element; the result has x's shape. silu is x * sigmoid(x); gelu is x * Phi(x), where Phi is the distribution function of the normal distribution; gelu_tanh is PyTorch's approximation of gelu by tanh."),
    "lk_gelu": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        "Functions of each element; the result has x's shape. silu is x * sigmoid(x); gelu is x * Phi(x), where Phi is the distribution function of the normal distribution; gelu_tanh is PyTorch's approximation of gelu by tanh."),
    "lk_gelu_tanh": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        "Functions of each element; the result has x's shape. silu is x * sigmoid(x); gelu is x * Phi(x), where Phi is the distribution function of the normal distribution; gelu_tanh is PyTorch's approximation of gelu by tanh."),
    "lk_maxpool2d": (lk_node, (("graph", c_void_p), ("x", lk_node), ("opts", lk_maxpool2d_opts)),
        'The maximum and the mean of the pixels of each window.'),
    "lk_avgpool2d": (lk_node, (("graph", c_void_p), ("x", lk_node), ("opts", lk_avgpool2d_opts)),
        'The maximum and the mean of the pixels of each window.'),
    "lk_global_avgpool": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        'Mean and maximum of each channel over all pixels; the result is a vector of channels.'),
    "lk_global_maxpool": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        'Mean and maximum of each channel over all pixels; the result is a vector of channels.'),
    "lk_dropout": (lk_node, (("graph", c_void_p), ("x", lk_node), ("p", c_double)),
        'p, in [0,1), is the probability that an element, or for dropout2d a whole channel, is set to 0.'),
    "lk_dropout2d": (lk_node, (("graph", c_void_p), ("x", lk_node), ("p", c_double)),
        'p, in [0,1), is the probability that an element, or for dropout2d a whole channel, is set to 0.'),
    "lk_pad_channels": (lk_node, (("graph", c_void_p), ("x", lk_node), ("channels", c_size_t)),
        'Appends channels of zeros to x, so that the result has `channels` channels.'),
    "lk_flatten": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        "x as a vector, in PyTorch's order: channels, height, width."),
    "lk_add": (lk_node, (("graph", c_void_p), ("a", lk_node), ("b", lk_node)),
        'The sum and the product, element by element, of two nodes of the same shape.'),
    "lk_mul": (lk_node, (("graph", c_void_p), ("a", lk_node), ("b", lk_node)),
        'The sum and the product, element by element, of two nodes of the same shape.'),
    "lk_concat": (lk_node, (("graph", c_void_p), ("a", lk_node), ("b", lk_node)),
        'The channels of a, then those of b, whose heights and widths must be equal. More than two nodes are concatenated by more than one call.'),
    "lk_matmul": (lk_node, (("graph", c_void_p), ("a", lk_node), ("b", lk_node)),
        'The product of the matrices of a and b, one for each sample and height: a is (width rows, channels columns) and b has as many rows as a has columns, as torch.matmul of (N, H, T, C) tensors.'),
    "lk_transpose": (lk_node, (("graph", c_void_p), ("x", lk_node), ("a", c_int), ("b", c_int)),
        "x with two of the axes 1 (height), 2 (width) and 3 (channels) exchanged, as PyTorch's x.transpose(a, b) of a tensor (N, height, width, channels)."),
    "lk_reshape": (lk_node, (("graph", c_void_p), ("x", lk_node), ("height", c_size_t), ("width", c_size_t), ("channels", c_size_t)),
        "The same elements in another shape, in the order height, width, channels: the products must be equal. For a sequence this is PyTorch's reshape of (N, T, C). Unlike lk_flatten, it does not change the order to (channels, height, width)."),
    "lk_softmax": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        'Probabilities: over the channels of each pixel.'),
    "lk_log_softmax": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        'Log-probabilities of a vector.'),
    "lk_nll_loss": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        'Losses: the mean over the batch. The input of nll_loss is log-probabilities, that of cross_entropy is scores.'),
    "lk_cross_entropy": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        'Losses: the mean over the batch. The input of nll_loss is log-probabilities, that of cross_entropy is scores.'),
    "lk_name": (lk_node, (("graph", c_void_p), ("x", lk_node), ("name", c_char_p)),
        'Gives the layer x a name, by which lk_engine_opts.outputs and lk_engine_opts.stages find it; most useful for layers without parameters. The keys of a layer\'s parameters stay as they are, and a layer that has a name from its builder has two. No other layer may have this name. The name is 1 to 127 printable characters without blanks and commas, and is copied. Returns x, so that a call can enclose a builder: lk_name(g, lk_relu(g, x), "features").'),
    "lk_init": (lk_node, (("graph", c_void_p), ("x", lk_node), ("policy", c_char_p)),
        'Sets the initial weights of the convolution or linear layer x. (The weights of a BatchNorm are initially 1, its biases 0.) A policy is one of "default" PyTorch\'s: weights and biases uniform in +-1/sqrt(fan in) "kaiming_normal" "kaiming_uniform": variance 2 / fan, for ReLU "xavier_normal" "xavier_uniform": variance 2 / (fan in + fan out) "normal:std=.01" kaiming uses fan in, or with "fan_out" the fan out. All policies but "default" accept "zero_bias"; without it, biases are those of "default". Returns x, so that a call can enclose a builder: lk_init(g, lk_conv2d(...), "kaiming_normal:fan_out").'),
    "lk_init_all": (None, (("graph", c_void_p), ("policy", c_char_p)),
        'Sets the policy of every convolution and linear layer that the graph has now.'),
    "lk_model_build": (lk_status, (("spec", c_char_p), ("shape", lk_model_shape), ("out", c_void_p)),
        'Builds a named model. `spec` is a name of lk_model_list, with parameters if wanted: "cnn:dropout=0". The caller owns *out (lk_graph_destroy).'),
    "lk_model_list": (POINTER(lk_model_info), (("index", c_size_t),),
        'Row `index` of the named models, counted from 0; NULL after the last.'),
    "lk_graph_parameters": (c_size_t, (("graph", c_void_p),),
        'Trainable parameters of a graph, in elements.'),
    "lk_group_join": (lk_status, (("opts", POINTER(lk_group_opts)), ("out", c_void_p)),
        'Joins the job and connects to the other ranks; opts may be NULL (all defaults). Blocks until all ranks have joined or the timeout has passed. USAGE if this process has already joined this job as this rank and has not left. With backend "mpi", or "auto" on several hosts under an MPI launcher, the first call starts MPI, unless the program has; call it before other threads do work, because some MPI libraries replace functions of the C library while they start. MPI ends when the process exits: by MPI_Abort after a failure of a group or with another exit status than 0.'),
    "lk_group_create_threads": (lk_status, (("count", c_int), ("opts", POINTER(lk_group_opts)), ("out", c_void_p)),
        'Creates a group of `count` ranks that are threads of this process: out (count) gets one handle for each rank, and the thread that is rank r uses out[r]. Only timeout, notice and progress_thread of opts are used; opts may be NULL. Does not block.'),
    "lk_group_destroy": (None, (("group", c_void_p),),
        'Leaves the group and frees it, with its requests. A rank that still waits for this rank gets an error. Afterwards the process may join again, also as the same rank. Rank 0 runs the server of the job: its call blocks until all other ranks have left or died, with a notice every five seconds.'),
    "lk_group_split": (lk_status, (("parent", c_void_p), ("colour", c_int), ("key", c_int), ("out", c_void_p)),
        'Splits a group: the ranks that give the same colour form a new group, ordered by key, then by rank. Collective: blocks until all ranks of the parent have called it. With colour < 0 the rank is in no new group and *out is NULL. After the parent is destroyed, a new group can only be destroyed.'),
    "lk_group_rank": (c_int, (("group", c_void_p),),
        'The rank of the caller in the group, from 0, and the number of ranks of the group.'),
    "lk_group_size": (c_int, (("group", c_void_p),),
        'The rank of the caller in the group, from 0, and the number of ranks of the group.'),
    "lk_group_local_rank": (c_int, (("group", c_void_p),),
        "The caller's index among the group's ranks on its host, in rank order, and the number of these ranks."),
    "lk_group_local_size": (c_int, (("group", c_void_p),),
        "The caller's index among the group's ranks on its host, in rank order, and the number of these ranks."),
    "lk_group_host": (c_char_p, (("group", c_void_p), ("rank", c_int)),
        'The name of the host of `rank`, and whether `rank` is on the caller\'s host: two hosts may have the same name. "" and false if there is no such rank. The name is borrowed from the group.'),
    "lk_group_is_local": (c_bool, (("group", c_void_p), ("rank", c_int)),
        'The name of the host of `rank`, and whether `rank` is on the caller\'s host: two hosts may have the same name. "" and false if there is no such rank. The name is borrowed from the group.'),
    "lk_group_timeout": (c_double, (("group", c_void_p),),
        'Seconds that a rank waits for another one.'),
    "lk_group_transport": (c_char_p, (("group", c_void_p),),
        'The name of the transport: "inproc", "shm", "tcp", "mpi" or "auto". Borrowed from the group.'),
    "lk_group_alloc": (lk_status, (("group", c_void_p), ("bytes", c_size_t), ("out", c_void_p)),
        'Allocates zeroed memory that the other ranks of the host can read directly, so that collective calls on it copy less. Collective: may block until all ranks have called it. The sizes (bytes) of the ranks may differ. The group owns the memory and frees it when the group is destroyed.'),
    "lk_group_free": (None, (("group", c_void_p), ("block", c_void_p)),
        'Frees memory of lk_group_alloc before the group is destroyed; ignores NULL. Every rank must call it for its block. Does not block.'),
    "lk_group_abort": (None, (("group", c_void_p), ("reason", c_char_p)),
        'Aborts the job for all ranks: all calls of all its groups fail with this reason. Does not block.'),
    "lk_group_poll": (lk_status, (("group", c_void_p),),
        'Makes progress on the requests under way and checks for failures. Does not block, except that it waits for the reason if the connection to a peer was lost: for 2 seconds, or up to the timeout while rank 0 does not answer.'),
    "lk_group_history": (c_size_t, (("group", c_void_p), ("text", c_void_p), ("bytes", c_size_t)),
        "Writes the last 64 calls of the group to text, oldest first, each on a line of its own. Writes at most `bytes` bytes, including the final '\\0', and returns the bytes that the complete text needs."),
    "lk_reduction_register": (lk_status, (("name", c_char_p), ("combine", lk_reduction_fn), ("arg", c_void_p), ("out", c_void_p)),
        "Registers a reduction of the program's own for all groups of this process, for good: *out is its number. All ranks must register the same reductions, by name, in the same order: a call whose reductions have different names is a disagreement of the ranks. Any thread may call it. USAGE if there are too many (LK_REDUCTION_LIMIT)."),
    "lk_shard_roots": (c_int, (("shards", c_int), ("first", c_int), ("last", c_int), ("begin", c_void_p)),
        'Returns the number of largest subtrees of the tree over [0,shards) that cover [first,last); this number is at most LK_MAX_ROOTS. Writes the first shard of each subtree to begin (LK_MAX_ROOTS); begin may be NULL. Returns -1 if the range is invalid.'),
    "lk_request_wait": (lk_status, (("request", c_void_p),),
        'Blocks until the call is done, frees the request and returns the status of the call.'),
    "lk_request_test": (lk_status, (("request", c_void_p), ("done", c_void_p)),
        'Sets *done to whether the call is done. Does not block. If the call is done or has failed, frees the request and returns the status of the call.'),
    "lk_request_wait_all": (lk_status, (("requests", c_void_p), ("count", c_size_t)),
        'Waits for all of requests (count), which may be NULL, frees them and sets them to NULL. Returns the first failure.'),
    "lk_request_wait_any": (lk_status, (("requests", c_void_p), ("count", c_size_t), ("index", c_void_p)),
        'Blocks until one of requests (count) is done: sets *index to its index, frees it, sets it to NULL and returns its status. NULL entries are skipped; if all are NULL, *index is count. The requests are of one job.'),
    "lk_allreduce": (lk_status, (("group", c_void_p), ("data", lk_buffer), ("op", lk_reduction), ("request", c_void_p)),
        'Combines the data of all ranks in place; each rank is one shard.'),
    "lk_reduce": (lk_status, (("group", c_void_p), ("data", lk_buffer), ("op", lk_reduction), ("root", c_int), ("request", c_void_p)),
        'As lk_allreduce, but only root gets the result; the data of the other ranks stay unchanged.'),
    "lk_reduce_scatter": (lk_status, (("group", c_void_p), ("in", lk_buffer), ("counts", c_void_p), ("out", c_void_p), ("op", lk_reduction), ("request", c_void_p)),
        'Combines the vectors `in` of all ranks; rank r gets the counts[r] elements of the result that follow those of rank r-1. out may point into `in`. The sum of counts (size) is in.count. If counts is NULL, rank r gets lk_even_count(in.count, size, r) elements.'),
    "lk_even_count": (c_size_t, (("count", c_size_t), ("ranks", c_int), ("rank", c_int)),
        'The number of elements of `rank` if `count` elements are divided among `ranks` ranks as evenly as possible.'),
    "lk_allreduce_shards": (lk_status, (("group", c_void_p), ("sums", POINTER(lk_shard_sums)), ("out", lk_buffer), ("op", lk_reduction), ("request", c_void_p)),
        "lk_allreduce, lk_reduce and lk_reduce_scatter for partial sums over shards: the input is `sums`, the result is written to out. out.at may be one of this rank's roots."),
    "lk_reduce_shards": (lk_status, (("group", c_void_p), ("sums", POINTER(lk_shard_sums)), ("out", lk_buffer), ("op", lk_reduction), ("root", c_int), ("request", c_void_p)),
        "lk_allreduce, lk_reduce and lk_reduce_scatter for partial sums over shards: the input is `sums`, the result is written to out. out.at may be one of this rank's roots."),
    "lk_reduce_scatter_shards": (lk_status, (("group", c_void_p), ("sums", POINTER(lk_shard_sums)), ("counts", c_void_p), ("out", lk_buffer), ("op", lk_reduction), ("request", c_void_p)),
        'counts (size) must not be NULL; out.count is counts[rank].'),
    "lk_broadcast": (lk_status, (("group", c_void_p), ("data", lk_buffer), ("root", c_int), ("request", c_void_p)),
        "Copies root's data to all ranks."),
    "lk_allgather": (lk_status, (("group", c_void_p), ("mine", lk_buffer), ("counts", c_void_p), ("out", c_void_p), ("request", c_void_p)),
        "Gathers the vectors of all ranks: out gets their elements in rank order. Rank r gives counts[r] elements, so mine.count is counts[rank]. counts NULL: all ranks give the same number. mine.at may be this rank's own range of out."),
    "lk_gather": (lk_status, (("group", c_void_p), ("mine", lk_buffer), ("counts", c_void_p), ("out", c_void_p), ("root", c_int), ("request", c_void_p)),
        'As lk_allgather, but only root gets the result; at other ranks `out` is ignored.'),
    "lk_scatter": (lk_status, (("group", c_void_p), ("in", c_void_p), ("counts", c_void_p), ("mine", lk_buffer), ("root", c_int), ("request", c_void_p)),
        "The reverse of lk_gather: rank r gets counts[r] elements of root's `in`, into mine. mine.count is counts[rank]; at other ranks than root `in` is ignored."),
    "lk_alltoall": (lk_status, (("group", c_void_p), ("in", lk_buffer), ("send", c_void_p), ("out", lk_buffer), ("recv", c_void_p), ("request", c_void_p)),
        'Sends send[r] elements of `in` to each rank r and receives recv[r] elements of rank r into `out`, both in rank order. NULL counts: in.count / size elements for each rank.'),
    "lk_barrier": (lk_status, (("group", c_void_p), ("request", c_void_p)),
        'The call is done when every rank has made it.'),
    "lk_send": (lk_status, (("group", c_void_p), ("data", lk_buffer), ("to", c_int), ("request", c_void_p)),
        'Sends data to one rank; receives data from one rank. Between two ranks of a group, these calls and the collective calls are matched in the order in which both ranks make them.'),
    "lk_recv": (lk_status, (("group", c_void_p), ("data", lk_buffer), ("from", c_int), ("request", c_void_p)),
        'Sends data to one rank; receives data from one rank. Between two ranks of a group, these calls and the collective calls are matched in the order in which both ranks make them.'),
    "lk_sendrecv": (lk_status, (("group", c_void_p), ("out", lk_buffer), ("to", c_int), ("in", lk_buffer), ("from", c_int)),
        "Sends `out` to rank `to` while it receives `in` from rank `from`, so that ranks in a ring do not wait for each other in turn. Blocks until both are done. Both may be the caller's own rank; in and out must then have the same size."),
    "lk_spawn": (lk_status, (("nprocs", c_int), ("fn", lk_spawn_fn), ("arg", c_void_p)),
        'Runs fn in nprocs (at least 1) forked processes. Blocks until all of them have ended. If a process ends with an exit status other than 0 or by a signal, the other processes are ended within a second, and the call returns PEER; the detail says which process failed first, and how. All processes end even if the caller is killed. The calling process should have no other threads.'),
    "lk_dtype_size": (c_size_t, (("dtype", lk_dtype),),
        'Bytes of one element.'),
    "lk_dtype_name": (c_char_p, (("dtype", lk_dtype),),
        'The name in lower case: "f32", "i64", ...'),
    "lk_state_create": (lk_status, (("out", c_void_p),),
        'Creates a state without entries; the caller owns *out.'),
    "lk_state_destroy": (None, (("state", c_void_p),),
        'Creates a state without entries; the caller owns *out.'),
    "lk_state_add": (lk_status, (("state", c_void_p), ("name", c_char_p), ("dtype", lk_dtype), ("ndim", c_int), ("dims", c_void_p), ("out", c_void_p)),
        'Appends an entry whose data are zero; the caller fills it. dims may be NULL if ndim is 0. *out is borrowed and valid until the next lk_state_add. MISMATCH: the state has an entry of this name. USAGE: the name is longer than LK_MAX_TENSOR_NAME.'),
    "lk_state_count": (c_size_t, (("state", c_void_p),),
        'The number of entries.'),
    "lk_state_at": (POINTER(lk_state_entry), (("state", c_void_p), ("index", c_size_t)),
        'Entry `index`, counted from 0, borrowed; NULL after the last.'),
    "lk_state_find": (POINTER(lk_state_entry), (("state", c_void_p), ("name", c_char_p)),
        'The entry of this name, borrowed; NULL if there is none.'),
    "lk_state_set_note": (lk_status, (("state", c_void_p), ("name", c_char_p), ("text", c_char_p)),
        'Notes are texts about a state: name and text, in the order in which they were first set. Files in the format of safetensors keep them in "__metadata__", under "lockstep." and the name, and those of torch.save in a member "lockstep.json" of the archive, which PyTorch passes over. Notes do not belong to the hash or to comparisons. Sets the text of a note; both strings are copied. USAGE if they are not UTF-8, the name is empty, or the state has LK_MAX_STATE_NOTES other notes.'),
    "lk_state_note": (c_char_p, (("state", c_void_p), ("name", c_char_p)),
        'The text of a note, borrowed until the note is set again; NULL if there is no such note.'),
    "lk_state_note_name": (c_char_p, (("state", c_void_p), ("index", c_size_t)),
        'The name of note `index`, counted from 0; NULL after the last.'),
    "lk_state_hash": (c_uint64, (("state", c_void_p),),
        'A hash of names, types, shapes and bytes. It does not depend on the order of the entries or on the machine: a state that was saved and loaded has the same hash.'),
    "lk_state_save": (lk_status, (("state", c_void_p), ("path", c_char_p)),
        'Saves a state. The ending of path selects the format: .pth and .pt select the format of torch.save; .safetensors, or no ending, selects safetensors; any other ending is USAGE. Equal states with equal notes give equal files. Writes a temporary file, syncs it and renames it: path has either its old content or the complete new one. Blocks until the file is synced to the disk.'),
    "lk_state_load": (lk_status, (("path", c_char_p), ("out", c_void_p)),
        'Loads a state; the caller owns *out. The format is recognised by the content: safetensors, the zip format and the older format of torch.save, or a checkpoint folder (checkpoint.h), whose model is verified and returned. If a torch.save file holds a dict with several objects, the state is its member "state_dict", "model_state_dict", "model" or "net" (the first of these that exists), else the tensors of the dict itself; the other objects are ignored. Names are those of the file (see lk_state_strip). No code of a file is executed: objects other than tensors and plain data are FORMAT. Time and memory are bounded by the size of the file. A lack of memory is MEMORY, never FORMAT.'),
    "lk_state_strip": (c_bool, (("state", c_void_p), ("prefix", c_char_p)),
        'If every name starts with `prefix`, removes the prefix from all names and returns true. Otherwise, and for an empty state, changes nothing and returns false. PyTorch\'s DataParallel and DistributedDataParallel put "module." before every name: the commands that load or compare models remove that prefix, `convert` and `info` keep it.'),
    "lk_state_compare": (c_size_t, (("a", c_void_p), ("b", c_void_p), ("report", lk_difference_fn), ("arg", c_void_p)),
        'Compares two states bit by bit; report may be NULL. Returns the number of keys that differ in data, shape or type, or exist in only one of the states.'),
    "lk_status_string": (c_char_p, (("status", lk_status),),
        'The meaning of a status; never NULL.'),
    "lk_error_detail": (c_char_p, (),
        'The detail of the calling thread\'s last failure; "" if there was none. Fields of option structs are written in backquotes in it: `max_steps`.'),
    "lk_fail": (lk_status, (("status", lk_status), ("format", c_char_p)),
        'Sets the detail of the calling thread and returns status: for functions that a program gives to the library, as in return lk_fail(LK_STATUS_IO, "%s: no such table", path).'),
    "lk_version": (c_char_p, (),
        'The version of the library that the program runs with, in the form of LK_VERSION. Any thread may call it.'),
}
