"""The C headers of Lockstep as ctypes. Written by tools/api_ctypes.py; do not edit.

FUNCTIONS has for each function its result, its arguments (name and type) and the comment of its header."""
from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint, c_uint64, c_void_p

from .enums import Enum

VERSION = "0.1.0"
LK_NO_DECAY = -1.0
LK_ZERO_PAD = 18446744073709551615
LK_TARGETS_AS_X = 18446744073709551615
LK_MAX_DIMS = 8
LK_MAX_TENSOR_NAME = 1024
LK_MAX_STATE_NOTES = 64
LK_SAMPLE_DIMS = 3
LK_MAX_ROOTS = 26
LK_OP_MAX_INPUTS = 2
LK_OP_MAX_PARAMS = 4
LK_OP_MAX_ATTR = 256
LK_OP_LIMIT = 256
LK_OPTIMIZER_MAX_PARAMS = 8
LK_OPTIMIZER_MAX_STATES = 4


class lk_split(Enum):
    values = {'TRAIN': 0, 'TEST': 1}


class lk_sample_order(Enum):
    values = {'CHW': 0, 'HWC': 1}


class lk_reduce_order(Enum):
    values = {'TREE': 0, 'ENGINE': 1}


class lk_bn_mode(Enum):
    values = {'BATCH': 0, 'SHARD': 1}


class lk_conv_mode(Enum):
    values = {'WINOGRAD': 0, 'DIRECT': 1}


class lk_reduction(Enum):
    values = {'SUM': 0, 'MEAN': 1, 'MIN': 2, 'MAX': 3, 'PRODUCT': 4}


class lk_op_first(Enum):
    values = {'CONSTANT': 0, 'UNIFORM': 1, 'NORMAL': 2}


class lk_dtype(Enum):
    values = {'F32': 0, 'F64': 1, 'BF16': 2, 'F16': 3, 'I64': 4, 'I32': 5, 'U8': 6}


class lk_precision(Enum):
    values = {'FP32': 0, 'TF32': 1, 'BF16': 2, 'TF32CONV': 3, 'AUTO': 4}


class lk_status(Enum):
    values = {'OK': 0, 'USAGE': 1, 'NOT_FOUND': 2, 'IO': 3, 'FORMAT': 4, 'MISMATCH': 5, 'MEMORY': 6, 'NONFINITE': 7, 'PEER': 8, 'UNSUPPORTED': 9}


class lk_balance_mode(Enum):
    values = {'AUTO': 0, 'EVEN': 1}


lk_dataset_read_fn = CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p, c_void_p)


lk_loss_fn = CFUNCTYPE(c_float, c_void_p, c_void_p, c_size_t, c_int32, c_void_p, c_size_t, c_void_p)


lk_loss_rank_fn = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t, c_int32, c_void_p, c_size_t)


lk_loss_cuda_fn = CFUNCTYPE(None, c_void_p, c_void_p)


lk_notice_fn = CFUNCTYPE(None, c_void_p, c_char_p)


lk_reduction_fn = CFUNCTYPE(None, c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_size_t)


lk_spawn_fn = CFUNCTYPE(c_int, c_int, c_void_p)


lk_optimizer_fn = CFUNCTYPE(None, c_void_p, c_void_p)


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
        ("weights", c_void_p),
        ("origins", c_void_p),
        ("reserved", c_uint64 * 6),
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
        ("backend", c_char_p),
        ("stages", c_char_p),
        ("pipelined", c_bool),
        ("check_every", c_int),
        ("outputs", c_char_p),
        ("input_grads", c_bool),
        ("conv", lk_conv_mode),
        ("reserved", c_uint64 * 14),
    ]


class lk_metrics(Structure):
    _fields_ = [
        ("count", c_size_t),
        ("correct", c_size_t),
        ("top5", c_size_t),
        ("loss", c_double),
        ("absolute_error", c_double),
        ("squared_error", c_double),
        ("weight", c_double),
        ("reserved", c_uint64 * 5),
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
        ("stage_backend", c_char_p),
        ("stage_obstacle", c_char_p),
        ("reserved", c_uint64 * 6),
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


class lk_param_group(Structure):
    _fields_ = [
        ("lr_scale", c_double),
        ("weight_decay", c_double),
        ("frozen", c_bool),
        ("reserved", c_uint64 * 8),
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
        ("dilation", c_size_t),
        ("kernel_w", c_size_t),
        ("stride_w", c_size_t),
        ("pad_w", c_size_t),
        ("dilation_w", c_size_t),
        ("reserved", c_uint64 * 3),
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
        ("dilation", c_size_t),
        ("kernel_w", c_size_t),
        ("stride_w", c_size_t),
        ("pad_w", c_size_t),
        ("out_pad_w", c_size_t),
        ("dilation_w", c_size_t),
        ("reserved", c_uint64 * 2),
    ]


class lk_maxpool2d_opts(Structure):
    _fields_ = [
        ("kernel", c_size_t),
        ("stride", c_size_t),
        ("pad", c_size_t),
        ("dilation", c_size_t),
        ("kernel_w", c_size_t),
        ("stride_w", c_size_t),
        ("pad_w", c_size_t),
        ("dilation_w", c_size_t),
        ("ceil", c_bool),
        ("reserved", c_uint64 * 2),
    ]


class lk_avgpool2d_opts(Structure):
    _fields_ = [
        ("kernel", c_size_t),
        ("stride", c_size_t),
        ("pad", c_size_t),
        ("ceil", c_bool),
        ("kernel_w", c_size_t),
        ("stride_w", c_size_t),
        ("pad_w", c_size_t),
        ("reserved", c_uint64 * 5),
    ]


class lk_loss_cuda_call(Structure):
    _fields_ = [
        ("stream", c_void_p),
        ("count", c_size_t),
        ("floats", c_size_t),
        ("x", c_void_p),
        ("labels", c_void_p),
        ("target_floats", c_size_t),
        ("targets", c_void_p),
        ("weights", c_void_p),
        ("scale", c_float),
        ("loss", c_void_p),
        ("dx", c_void_p),
        ("label_rank", c_void_p),
        ("reserved", c_uint64 * 7),
    ]


class lk_loss_def(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("target_floats", c_size_t),
        ("sample", lk_loss_fn),
        ("cuda", lk_loss_cuda_fn),
        ("arg", c_void_p),
        ("rank", lk_loss_rank_fn),
        ("reserved", c_uint64 * 7),
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
        ("device", c_char_p),
    ]


class lk_shard_sums(Structure):
    _fields_ = [
        ("bounds", c_void_p),
        ("roots", c_void_p),
    ]


class lk_op_size(Structure):
    _fields_ = [
        ("height", c_size_t),
        ("width", c_size_t),
        ("channels", c_size_t),
    ]


class lk_op_param(Structure):
    _fields_ = [
        ("ndim", c_int),
        ("dims", c_size_t * 4),
        ("first", lk_op_first),
        ("number", c_double),
        ("reserved", c_uint64 * 4),
    ]


class lk_op_shape(Structure):
    _fields_ = [
        ("x", lk_op_size * 2),
        ("attr", c_void_p),
        ("attr_bytes", c_size_t),
        ("arg", c_void_p),
        ("y", lk_op_size),
        ("param_count", c_int),
        ("param", lk_op_param * 4),
        ("workspace", c_size_t),
        ("reserved", c_uint64 * 8),
    ]


class lk_op_args(Structure):
    _fields_ = [
        ("n", c_size_t),
        ("x_size", lk_op_size * 2),
        ("y_size", lk_op_size),
        ("x", c_void_p * 2),
        ("y", c_void_p),
        ("dy", c_void_p),
        ("dx", c_void_p * 2),
        ("param", c_void_p * 4),
        ("grad", c_void_p * 4),
        ("workspace", c_void_p),
        ("attr", c_void_p),
        ("attr_bytes", c_size_t),
        ("arg", c_void_p),
        ("train", c_bool),
        ("stream", c_void_p),
        ("reserved", c_uint64 * 8),
    ]


class lk_op_def(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("inputs", c_int),
        ("params", c_char_p * 4),
        ("shape", CFUNCTYPE(c_int, c_void_p)),
        ("forward", CFUNCTYPE(None, c_void_p)),
        ("backward", CFUNCTYPE(None, c_void_p)),
        ("cuda_forward", CFUNCTYPE(None, c_void_p)),
        ("cuda_backward", CFUNCTYPE(None, c_void_p)),
        ("arg", c_void_p),
        ("reserved", c_uint64 * 8),
    ]


class lk_op_check_opts(Structure):
    _fields_ = [
        ("x", lk_op_size * 2),
        ("attr", c_void_p),
        ("attr_bytes", c_size_t),
        ("device", c_char_p),
        ("samples", c_size_t),
        ("seed", c_uint64),
        ("low", c_double),
        ("high", c_double),
        ("tolerance", c_double),
        ("report", c_void_p),
        ("report_bytes", c_size_t),
        ("reserved", c_uint64 * 8),
    ]


class lk_loss_check_opts(Structure):
    _fields_ = [
        ("x", lk_op_size),
        ("device", c_char_p),
        ("samples", c_size_t),
        ("seed", c_uint64),
        ("low", c_double),
        ("high", c_double),
        ("target_low", c_double),
        ("target_high", c_double),
        ("tolerance", c_double),
        ("report", c_void_p),
        ("report_bytes", c_size_t),
        ("reserved", c_uint64 * 8),
    ]


class lk_optim_info(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("summary", c_char_p),
    ]


class lk_optimizer_numbers(Structure):
    _fields_ = [
        ("lr", c_double),
        ("weight_decay", c_double),
        ("step", c_uint64),
    ]


class lk_optimizer_update(Structure):
    _fields_ = [
        ("count", c_size_t),
        ("grads", c_void_p),
        ("params", c_void_p),
        ("states", c_void_p * 4),
        ("values", c_void_p),
        ("numbers", POINTER(lk_optimizer_numbers)),
        ("skip", c_void_p),
        ("stream", c_void_p),
        ("reserved", c_uint64 * 8),
    ]


class lk_optimizer_param(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("value", c_double),
        ("min", c_double),
        ("max", c_double),
    ]


class lk_optimizer_def(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("lr", c_double),
        ("params", POINTER(lk_optimizer_param)),
        ("param_count", c_size_t),
        ("states", c_void_p),
        ("state_count", c_size_t),
        ("cpu", lk_optimizer_fn),
        ("cuda", lk_optimizer_fn),
        ("arg", c_void_p),
        ("reserved", c_uint64 * 8),
    ]


class lk_lr_schedule_at(Structure):
    _fields_ = [
        ("epoch", c_size_t),
        ("epochs", c_size_t),
        ("batch", c_size_t),
        ("batches", c_size_t),
        ("drops", c_size_t),
    ]


class lk_lr_schedule_watch(Structure):
    _fields_ = [
        ("best", c_double),
        ("results", c_size_t),
        ("bad", c_size_t),
        ("cooldown", c_size_t),
        ("drops", c_size_t),
    ]


class lk_lr_schedule_result(Structure):
    _fields_ = [
        ("loss", c_double),
        ("accuracy", c_double),
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


class lk_train_opts(Structure):
    _fields_ = [
        ("model", c_char_p),
        ("graph", c_void_p),
        ("data", c_char_p),
        ("data_dir", c_char_p),
        ("train", c_void_p),
        ("test", c_void_p),
        ("augment", c_char_p),
        ("test_augment", c_char_p),
        ("batch", c_size_t),
        ("accumulate", c_size_t),
        ("test_batch", c_size_t),
        ("epochs", c_size_t),
        ("max_steps", c_size_t),
        ("seed", c_uint64),
        ("drop_last", c_bool),
        ("dry_run", c_bool),
        ("no_test", c_bool),
        ("val_split", c_double),
        ("early_stop", c_size_t),
        ("init", c_char_p),
        ("init_from", c_char_p),
        ("init_skip", c_char_p),
        ("optimizer", c_char_p),
        ("lr", c_double),
        ("schedule", c_char_p),
        ("clip_norm", c_double),
        ("label_smoothing", c_double),
        ("bn", lk_bn_mode),
        ("precision", lk_precision),
        ("group", c_void_p),
        ("alone", c_bool),
        ("device", c_char_p),
        ("threads", c_int),
        ("workers", c_int),
        ("shards", c_int),
        ("micro_batch", c_size_t),
        ("bucket_mb", c_double),
        ("reduce", lk_reduce_order),
        ("backend", c_char_p),
        ("stages", c_char_p),
        ("pipelined", c_bool),
        ("check_every", c_int),
        ("balance", lk_balance_mode),
        ("checkpoint", c_char_p),
        ("save_every", c_size_t),
        ("keep", c_size_t),
        ("resume", c_char_p),
        ("reshard", c_bool),
        ("save_model", c_char_p),
        ("trace", c_char_p),
        ("trace_file", c_char_p),
        ("conv", lk_conv_mode),
        ("reserved", c_uint64 * 31),
    ]


class lk_train_start(Structure):
    _fields_ = [
        ("run", c_void_p),
        ("rank", c_int),
        ("ranks", c_int),
        ("train", POINTER(lk_dataset_info)),
        ("test", POINTER(lk_dataset_info)),
        ("val", POINTER(lk_dataset_info)),
        ("parameters", c_size_t),
        ("batch", c_size_t),
        ("batches", c_size_t),
        ("steps", c_size_t),
        ("done", c_size_t),
        ("resumed", c_char_p),
        ("lr", c_double),
        ("reserved", c_uint64 * 8),
    ]


class lk_train_next(Structure):
    _fields_ = [
        ("run", c_void_p),
        ("epoch", c_size_t),
        ("batch", c_size_t),
        ("step", c_size_t),
        ("lr", c_double),
        ("reserved", c_uint64 * 4),
    ]


class lk_train_step(Structure):
    _fields_ = [
        ("run", c_void_p),
        ("epoch", c_size_t),
        ("batch", c_size_t),
        ("seen", c_size_t),
        ("step", c_size_t),
        ("metrics", lk_metrics),
        ("own", lk_metrics),
        ("running", lk_metrics),
        ("lr", c_double),
        ("grad_norm", c_double),
        ("samples", c_size_t),
        ("seconds", c_double),
        ("train_seconds", c_double),
        ("batch_seconds", c_double),
        ("reserved", c_uint64 * 8),
    ]


class lk_train_epoch(Structure):
    _fields_ = [
        ("run", c_void_p),
        ("epoch", c_size_t),
        ("step", c_size_t),
        ("train_loss", c_double),
        ("seconds", c_double),
        ("reserved", c_uint64 * 4),
    ]


class lk_train_test(Structure):
    _fields_ = [
        ("run", c_void_p),
        ("val", c_bool),
        ("epoch", c_size_t),
        ("step", c_size_t),
        ("metrics", lk_metrics),
        ("train_loss", c_double),
        ("seconds", c_double),
        ("best", c_bool),
        ("reserved", c_uint64 * 4),
    ]


class lk_train_saved(Structure):
    _fields_ = [
        ("run", c_void_p),
        ("path", c_char_p),
        ("step", c_size_t),
        ("best", c_bool),
        ("again", c_bool),
        ("seconds", c_double),
        ("reserved", c_uint64 * 4),
    ]


class lk_train_events(Structure):
    _fields_ = [
        ("arg", c_void_p),
        ("start", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("before_step", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("step", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("epoch", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("test", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("saved", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("notice", lk_notice_fn),
        ("norm_every", c_size_t),
        ("reserved", c_uint64 * 8),
    ]


class lk_train_result(Structure):
    _fields_ = [
        ("rank", c_int),
        ("ranks", c_int),
        ("stopped", c_bool),
        ("steps", c_size_t),
        ("samples", c_size_t),
        ("seconds", c_double),
        ("train_seconds", c_double),
        ("test", lk_metrics),
        ("val", lk_metrics),
        ("best_step", c_size_t),
        ("best_correct", c_size_t),
        ("best_loss", c_double),
        ("stale", c_size_t),
        ("hash", c_uint64),
        ("checkpoint", c_char * 4096),
        ("reserved", c_uint64 * 16),
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
        'Sets the text of a note; both strings are copied. A note keeps the position at which it was first set. USAGE if name or text is not UTF-8, the name is empty, or the checkpoint has 4096 other notes.'),
    "lk_checkpoint_note": (c_char_p, (("checkpoint", c_void_p), ("name", c_char_p)),
        'The text of a note, borrowed until the note is set again; NULL when there is no such note.'),
    "lk_checkpoint_note_name": (c_char_p, (("checkpoint", c_void_p), ("index", c_size_t)),
        'The name of note `index`, counted from 0; NULL after the last note.'),
    "lk_checkpoint_save": (lk_status, (("checkpoint", c_void_p), ("folder", c_char_p)),
        'Saves the checkpoint as `folder`. Blocks until the files are synced to the disk. The files are written to a temporary folder beside `folder` (its name starts with ".lk-"), synced, read back and verified; a rename then gives that folder its name. So `folder` is either complete or does not exist. An existing checkpoint is replaced by an exchange of the two names. Where the file system cannot exchange names and the process is killed between the two renames, the next save or load of `folder` restores the old checkpoint. A failure keeps the old checkpoint and removes the temporary folder, if it can be removed. USAGE: the checkpoint has no states, `folder` exists and is not a checkpoint, its path is too long, or a name cannot be saved (lk_state_save). NOT_FOUND: the folder in which `folder` is to be does not exist. IO: a file cannot be written, or reads back with other bytes.'),
    "lk_checkpoint_load": (lk_status, (("folder", c_char_p), ("out", c_void_p)),
        'Reads and verifies a checkpoint. NOT_FOUND: folder is not a checkpoint. FORMAT: at least one bit differs from what was saved; the detail names the file and the tensor. UNSUPPORTED: a later version of Lockstep has saved the checkpoint. IO: a file cannot be read. The caller owns *out.'),
    "lk_checkpoint_load_notes": (lk_status, (("folder", c_char_p), ("out", c_void_p)),
        'Reads and verifies the notes only; does not read the two large files. Fails as lk_checkpoint_load.'),
    "lk_checkpoint_verify": (lk_status, (("folder", c_char_p),),
        'Verifies a checkpoint as lk_checkpoint_load does, and returns only the status.'),
    "lk_dataset_open": (lk_status, (("name", c_char_p), ("dir", c_char_p), ("split", lk_split), ("out", c_void_p)),
        'Opens a split of a data set. `name` is a name of lk_dataset_list or a folder. A name is searched in `dir` only. If dir is NULL or "", it is searched in $LOCKSTEP_DATA, ./data, the user\'s cache folder and the system\'s dataset folder, in this order. NOT_FOUND: the detail lists the folders that were searched. FORMAT: a file is damaged. MISMATCH: files do not fit together, as images and labels of different numbers. IO: a file or folder cannot be read. USAGE: the name is empty, a path is too long or split is no lk_split. The caller owns *out.'),
    "lk_dataset_destroy": (None, (("data", c_void_p),),
        'Opens a split of a data set. `name` is a name of lk_dataset_list or a folder. A name is searched in `dir` only. If dir is NULL or "", it is searched in $LOCKSTEP_DATA, ./data, the user\'s cache folder and the system\'s dataset folder, in this order. NOT_FOUND: the detail lists the folders that were searched. FORMAT: a file is damaged. MISMATCH: files do not fit together, as images and labels of different numbers. IO: a file or folder cannot be read. USAGE: the name is empty, a path is too long or split is no lk_split. The caller owns *out.'),
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
        'The shape of every sample of a loader that is created with this `augment` (see lk_loader_opts). USAGE if the samples would differ in size, or `augment` is no list of transforms. If the images are files and no transform fixes the size, the first call for a data set reads the headers of all files.'),
    "lk_shard_range_count": (c_size_t, (("share", lk_shard_range), ("total", c_size_t)),
        "For a batch of `total` samples: the number of samples in the share, and the index in the batch of the share's first sample."),
    "lk_shard_range_begin": (c_size_t, (("share", lk_shard_range), ("total", c_size_t)),
        "For a batch of `total` samples: the number of samples in the share, and the index in the batch of the share's first sample."),
    "lk_loader_create": (lk_status, (("data", c_void_p), ("opts", POINTER(lk_loader_opts)), ("out", c_void_p)),
        'Creates a loader and its worker threads. `data` is borrowed and must outlive the loader. USAGE for impossible options. UNSUPPORTED if the data set has 2^32 samples or more. Fails as lk_augmented_shape.'),
    "lk_loader_destroy": (None, (("loader", c_void_p),),
        'Creates a loader and its worker threads. `data` is borrowed and must outlive the loader. USAGE for impossible options. UNSUPPORTED if the data set has 2^32 samples or more. Fails as lk_augmented_shape.'),
    "lk_loader_start": (lk_status, (("loader", c_void_p), ("epoch", c_size_t), ("first_batch", c_size_t)),
        'Starts an epoch at batch `first_batch` (0: the first). Ends an epoch that is under way: blocks until the workers have finished the samples that they prepare. USAGE if epoch is not below 2^32, or first_batch is above the number of batches.'),
    "lk_loader_next": (lk_status, (("loader", c_void_p), ("out", c_void_p)),
        'Blocks until the next batch is ready. *out is NULL after the last batch of the epoch, and is borrowed until the next call for this loader. USAGE before lk_loader_start. If a sample cannot be read, this call fails, and later ones may fail until lk_loader_start is called.'),
    "lk_loader_batches": (c_size_t, (("loader", c_void_p),),
        'The number of batches of an epoch.'),
    "lk_engine_create": (lk_status, (("graph", c_void_p), ("opts", POINTER(lk_engine_opts)), ("out", c_void_p)),
        'Creates an engine; it copies graph. Collective: options that change the result must be equal at all ranks (else MISMATCH), and all replicas get the parameters of replica 0. Returns the mistake of lk_graph_check if the graph has one. USAGE if an option is out of its range or does not fit another one or the model, if a name in `optimizer`, `stages` or `outputs` is unknown, and if a BatchNorm would always normalise a single value per channel. UNSUPPORTED without the device or a library that it needs, and if it cannot run the model: in this precision, or because an own op, loss or optimiser has no function for it. MEMORY: the detail says what is needed, and what would fit.'),
    "lk_engine_destroy": (None, (("engine", c_void_p),),
        'Destroys an engine. Ranks that share a GPU block here until all of them destroy their engines, unless their job is broken.'),
    "lk_engine_layout": (lk_layout, (("engine", c_void_p),),
        "The engine's layout, which never changes. Its strings are valid until the engine is destroyed."),
    "lk_engine_shard_range": (lk_shard_range, (("engine", c_void_p),),
        'The share of each batch that this rank needs. The caller may give the engine this share of a batch, or the whole batch.'),
    "lk_engine_cache_dataset": (lk_status, (("engine", c_void_p), ("loader", c_void_p), ("cached", c_void_p)),
        "Copies all samples of a loader's data set to the engine's device. The bits of steps and evaluations stay the same, and batches need no upload of samples. *cached says whether the samples were copied; LK_OK and false if they cannot be: the device must have its own memory, the samples must have the shape of the model's input and one size, with no other transforms than crop and flip, and they must take at most half of the free memory. Images (U8 with 1 or 3 channels) take one byte a value there; all other samples take four, as the floats of a batch. An engine can cache two loaders' data sets, one for training and one for testing. From its next lk_loader_start, a cached loader gives batches of labels, targets and ids, which only this engine can use; where a function reads the samples (lk_dataset_create), it still reads them for their targets. Reads the whole data set. MISMATCH if a sample of floats has a value that the model cannot take (lk_embedding). Not collective: does not communicate, and only stage 0 caches. USAGE if another engine has cached the loader; the error of the data set if a sample cannot be read."),
    "lk_engine_step": (lk_status, (("engine", c_void_p), ("batch", POINTER(lk_batch)), ("out", POINTER(lk_metrics))),
        "Collective: forward, backward, sum of gradients and update. The batch, of all ranks, has 1 to lk_engine_opts.batch samples. Every rank gets the metrics of the whole batch. NONFINITE if a loss or a gradient is not finite, unless lk_engine_opts.allow_nonfinite; the detail says where, and the engine is in its state before the step. MISMATCH if samples do not have the size of the model's input, or have a value that an embedding cannot use; if the batch does not have the targets that the loss learns, or a label or a weight is not allowed; if the batch is neither whole nor this rank's share; if the ranks have batches of different sizes, or only some give weights; and if a comparison of the replicas is due and they differ. USAGE if the batch has no sample or too many, lacks samples, labels or ids, is of another engine's cached loader, or has only weights of 0; if the engine was created with eval_only; and after 2^32 - 1 steps."),
    "lk_engine_depth": (c_int, (("engine", c_void_p),),
        'A step in two calls. lk_engine_send starts a step and returns when the memory of the batch may be used again; lk_engine_receive blocks until the oldest step or evaluation under way is done and returns its metrics. A GPU can have up to lk_engine_depth of them under way if there is one rank, or NCCL sums the gradients, or the engine only evaluates. lk_engine_can_send says whether a step of `total` samples can be sent now; true if nothing is under way. All ranks must send and receive in the same order. Functions that read or change the state return USAGE while anything is under way. lk_engine_steps counts the steps sent. After NONFINITE nothing is under way, and the engine is in its state before the step that failed. A batch with `weights` can be sent only if nothing is under way. lk_engine_send returns what lk_engine_step returns, and USAGE if the step cannot be sent now. lk_engine_receive returns the NONFINITE or MISMATCH of a step that was still under way when lk_engine_send returned, and USAGE if nothing is under way.'),
    "lk_engine_can_send": (c_bool, (("engine", c_void_p), ("total", c_size_t)),
        'A step in two calls. lk_engine_send starts a step and returns when the memory of the batch may be used again; lk_engine_receive blocks until the oldest step or evaluation under way is done and returns its metrics. A GPU can have up to lk_engine_depth of them under way if there is one rank, or NCCL sums the gradients, or the engine only evaluates. lk_engine_can_send says whether a step of `total` samples can be sent now; true if nothing is under way. All ranks must send and receive in the same order. Functions that read or change the state return USAGE while anything is under way. lk_engine_steps counts the steps sent. After NONFINITE nothing is under way, and the engine is in its state before the step that failed. A batch with `weights` can be sent only if nothing is under way. lk_engine_send returns what lk_engine_step returns, and USAGE if the step cannot be sent now. lk_engine_receive returns the NONFINITE or MISMATCH of a step that was still under way when lk_engine_send returned, and USAGE if nothing is under way.'),
    "lk_engine_send": (lk_status, (("engine", c_void_p), ("batch", POINTER(lk_batch))),
        'A step in two calls. lk_engine_send starts a step and returns when the memory of the batch may be used again; lk_engine_receive blocks until the oldest step or evaluation under way is done and returns its metrics. A GPU can have up to lk_engine_depth of them under way if there is one rank, or NCCL sums the gradients, or the engine only evaluates. lk_engine_can_send says whether a step of `total` samples can be sent now; true if nothing is under way. All ranks must send and receive in the same order. Functions that read or change the state return USAGE while anything is under way. lk_engine_steps counts the steps sent. After NONFINITE nothing is under way, and the engine is in its state before the step that failed. A batch with `weights` can be sent only if nothing is under way. lk_engine_send returns what lk_engine_step returns, and USAGE if the step cannot be sent now. lk_engine_receive returns the NONFINITE or MISMATCH of a step that was still under way when lk_engine_send returned, and USAGE if nothing is under way.'),
    "lk_engine_receive": (lk_status, (("engine", c_void_p), ("out", POINTER(lk_metrics))),
        'A step in two calls. lk_engine_send starts a step and returns when the memory of the batch may be used again; lk_engine_receive blocks until the oldest step or evaluation under way is done and returns its metrics. A GPU can have up to lk_engine_depth of them under way if there is one rank, or NCCL sums the gradients, or the engine only evaluates. lk_engine_can_send says whether a step of `total` samples can be sent now; true if nothing is under way. All ranks must send and receive in the same order. Functions that read or change the state return USAGE while anything is under way. lk_engine_steps counts the steps sent. After NONFINITE nothing is under way, and the engine is in its state before the step that failed. A batch with `weights` can be sent only if nothing is under way. lk_engine_send returns what lk_engine_step returns, and USAGE if the step cannot be sent now. lk_engine_receive returns the NONFINITE or MISMATCH of a step that was still under way when lk_engine_send returned, and USAGE if nothing is under way.'),
    "lk_engine_eval": (lk_status, (("engine", c_void_p), ("batch", POINTER(lk_batch)), ("out", POINTER(lk_metrics))),
        'Collective: forward in evaluation mode. The batch has at least one sample, and may be larger than lk_engine_opts.batch. Every rank gets the metrics of the whole batch. MISMATCH and USAGE for batches as in lk_engine_step. A loss that is not finite is no error, and neither are weights that are all 0.'),
    "lk_engine_can_send_eval": (c_bool, (("engine", c_void_p), ("total", c_size_t)),
        'An evaluation in two calls: lk_engine_send_eval starts it as lk_engine_send starts a step, and lk_engine_receive returns its metrics. It evaluates the model as it is after the steps sent before. Steps and evaluations may be under way together. lk_engine_can_send_eval says whether an evaluation of `total` samples can be sent now; otherwise sending it is USAGE. Errors of batches as in lk_engine_eval.'),
    "lk_engine_send_eval": (lk_status, (("engine", c_void_p), ("batch", POINTER(lk_batch))),
        'An evaluation in two calls: lk_engine_send_eval starts it as lk_engine_send starts a step, and lk_engine_receive returns its metrics. It evaluates the model as it is after the steps sent before. Steps and evaluations may be under way together. lk_engine_can_send_eval says whether an evaluation of `total` samples can be sent now; otherwise sending it is USAGE. Errors of batches as in lk_engine_eval.'),
    "lk_engine_forward": (lk_status, (("engine", c_void_p), ("batch", POINTER(lk_batch)), ("scores", c_void_p)),
        "Collective: forward in evaluation mode; writes the scores (total, lk_engine_output_floats(engine, NULL)) of every sample of the whole batch, at every rank, whether the ranks give the whole batch or their shares, and in whichever stage the scores are. labels and targets of the batch are not read and may be NULL, and ids too unless source is set. The batch may be larger than lk_engine_opts.batch. The first call of a size may allocate memory; later calls do not, except for messages of a group. Counts as an evaluation for lk_engine_set_signal_source. USAGE if a pointer is NULL, the batch has no sample, or a step is under way; MISMATCH if the samples have another size than the model's input, or the ranks have batches of different sizes."),
    "lk_engine_forward_outputs": (lk_status, (("engine", c_void_p), ("batch", POINTER(lk_batch)), ("outputs", POINTER(lk_output)), ("count", c_size_t)),
        'As lk_engine_forward, for `count` outputs, at least 1, in one pass. All ranks must ask for the same nodes in the same order. USAGE also if lk_engine_opts.outputs does not have a node.'),
    "lk_engine_output_floats": (c_size_t, (("engine", c_void_p), ("node", c_char_p)),
        'The floats that an output has for each sample; node NULL: the scores. 0 if there is no such output.'),
    "lk_engine_gradients": (lk_status, (("engine", c_void_p), ("batch", POINTER(lk_batch)), ("out", POINTER(lk_metrics))),
        "Collective: the two halves of a step. lk_engine_gradients computes the gradients and BatchNorm's running statistics; lk_engine_update updates the parameters, and needs a successful lk_engine_gradients before it (else USAGE). lk_engine_gradients alone counts as a training step (lk_engine_steps, new dropout masks), so a program may also update the parameters itself (lk_engine_grads, lk_engine_set_state). lk_engine_gradients returns what lk_engine_step returns, except that lk_engine_update compares replicas: MISMATCH if they differ."),
    "lk_engine_update": (lk_status, (("engine", c_void_p),),
        "Collective: the two halves of a step. lk_engine_gradients computes the gradients and BatchNorm's running statistics; lk_engine_update updates the parameters, and needs a successful lk_engine_gradients before it (else USAGE). lk_engine_gradients alone counts as a training step (lk_engine_steps, new dropout masks), so a program may also update the parameters itself (lk_engine_grads, lk_engine_set_state). lk_engine_gradients returns what lk_engine_step returns, except that lk_engine_update compares replicas: MISMATCH if they differ."),
    "lk_engine_set_grads": (lk_status, (("engine", c_void_p), ("grads", c_void_p)),
        'Collective: between lk_engine_gradients and lk_engine_update, replaces the gradients. Every rank gives a state with the keys and shapes of lk_engine_grads, of the whole model; the values of replica 0 count. The update uses them as they are, without clipping; values of frozen parameters are ignored. USAGE if there are no gradients to update by. MISMATCH if a key is missing, unknown or has another shape, NONFINITE if a value is not finite, unless lk_engine_opts.allow_nonfinite; nothing is replaced then.'),
    "lk_engine_input_grads": (lk_status, (("engine", c_void_p), ("dx", c_void_p)),
        "Copies the gradients of this rank's samples in the last lk_engine_gradients, of the loss that its metrics have, to dx: (N, H, W, C) for the N samples of lk_engine_shard_range, f32. USAGE without lk_engine_opts.input_grads, before lk_engine_gradients has succeeded, and at stages other than 0, which have no samples."),
    "lk_engine_own_metrics": (lk_metrics, (("engine", c_void_p),),
        "Metrics of this rank's samples in the last step. count is 0 except at the last stage, and after a failure."),
    "lk_engine_set_grad_norm": (lk_status, (("engine", c_void_p), ("on", c_bool)),
        'Whether later steps (lk_engine_step, lk_engine_send, lk_engine_update) compute the norm of the gradient; off at first. All ranks must set the same. May be called while steps are under way. Has no errors of its own.'),
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
    "lk_engine_set_group": (lk_status, (("engine", c_void_p), ("pattern", c_char_p), ("group", POINTER(lk_param_group))),
        'Gives the parameters whose keys match the pattern these settings, in place of what earlier calls gave them. In a pattern, \'*\' is any text, also with dots, and \'?\' is any one character: "fc.*", "*.bias". Updates use the settings from the next one on, as PyTorch\'s optimisers use parameter groups. Settings are in no state or checkpoint: a program that resumes sets them again. Frozen parameters are as PyTorch\'s with requires_grad=False. The backward pass ends at the lowest layer that has a trained parameter. lk_engine_grads gives zeros for frozen parameters, and norms do not count them. Their optimiser state stays as it is. BatchNorm\'s running statistics change in every step, also in frozen layers. A call that freezes or unfreezes a parameter invalidates the last gradients: lk_engine_grads and lk_engine_update need new ones. Collective: all ranks must set the same. MISMATCH if they do not, and if no key matches; the detail has the keys. USAGE if a value is out of its range, if the optimiser has no weight decay, if the parameters would have over 16 different settings, and while steps are under way. MEMORY if memory is short. Settings are kept on failure.'),
    "lk_engine_steps": (c_uint64, (("engine", c_void_p),),
        'The number of training steps: successful calls of lk_engine_step, lk_engine_send and lk_engine_gradients, and the steps of a restored optimiser state. A failed step and lk_engine_update are not counted. Dropout masks are a function of this number.'),
    "lk_engine_state": (lk_status, (("engine", c_void_p), ("out", c_void_p)),
        "Copies of the parameters and buffers, or of the last step's gradients, of the whole model under PyTorch's names; the caller owns *out. Collective if there are several stages. lk_engine_grads is USAGE if there was no step, the last one failed, or a parameter was frozen or unfrozen since."),
    "lk_engine_grads": (lk_status, (("engine", c_void_p), ("out", c_void_p)),
        "Copies of the parameters and buffers, or of the last step's gradients, of the whole model under PyTorch's names; the caller owns *out. Collective if there are several stages. lk_engine_grads is USAGE if there was no step, the last one failed, or a parameter was frozen or unfrozen since."),
    "lk_engine_set_state": (lk_status, (("engine", c_void_p), ("state", c_void_p)),
        'Collective: replaces parameters and buffers. Every rank gives a state of the whole model; the values of replica 0 count. MISMATCH, and nothing is replaced, if a key is missing, unknown or has another shape; only num_batches_tracked may be missing, as in old files, and is then 0.'),
    "lk_engine_average": (lk_status, (("engine", c_void_p), ("decay", c_double)),
        "Updates an exponential moving average of the weights, on the device: average = decay * average + (1 - decay) * weights, as PyTorch's AveragedModel with get_ema_multi_avg_fn. The first call copies the weights. Buffers are copied, not averaged. All ranks must make the same calls; does not communicate. USAGE if decay is not in [0,1), and while steps are under way. MEMORY if the first call finds too little memory."),
    "lk_engine_averaged_state": (lk_status, (("engine", c_void_p), ("out", c_void_p)),
        'A copy of the average, as lk_engine_state; the caller owns *out. Collective if there are several stages. USAGE if there is no average.'),
    "lk_engine_set_averaged_state": (lk_status, (("engine", c_void_p), ("state", c_void_p)),
        'Collective: replaces the average, or begins one. States and MISMATCH as for lk_engine_set_state.'),
    "lk_engine_optimizer_state": (lk_status, (("engine", c_void_p), ("out", c_void_p)),
        'A copy of the optimiser\'s state, owned by the caller: arrays with PyTorch\'s names, as "exp_avg.conv1.weight"; "steps" (i64); "lr" and "powers" (f64). Later steps depend only on this state and on parameters and buffers. Collective if there are several stages.'),
    "lk_engine_set_optimizer_state": (lk_status, (("engine", c_void_p), ("state", c_void_p)),
        'Collective: replaces the optimiser\'s state. Every rank gives a state of the whole model; the values of replica 0 count. MISMATCH as for lk_engine_set_state, and if a number is out of its range; no key may be missing. lk_engine_steps continues from the state\'s "steps", and lk_engine_update needs new gradients.'),
    "lk_engine_set_signal_source": (None, (("engine", c_void_p), ("level", c_void_p), ("arg", c_void_p)),
        "Sets this rank's signal source, a function that every step and evaluation calls in the calling thread. It returns a signal level, not below 0; without a source the level is 0. After the step every rank knows the largest level of all ranks. So ranks agree on the step after which they save or stop, whichever rank was asked to; this needs no additional message."),
    "lk_engine_agreed_signal": (c_int, (("engine", c_void_p),),
        'The largest signal level of all ranks in the last step or evaluation; 0 if the last one failed.'),
    "lk_engine_agreed_signal_rank": (c_int, (("engine", c_void_p),),
        'The rank whose signal level was the largest; of several such ranks, the lowest. -1 if the level is 0. 0 without a group. The result is the same at every rank.'),
    "lk_graph_create": (lk_status, (("out", c_void_p),),
        'Creates a graph without layers; the caller owns *out. Fails with MEMORY only.'),
    "lk_graph_destroy": (None, (("graph", c_void_p),),
        'Creates a graph without layers; the caller owns *out. Fails with MEMORY only.'),
    "lk_graph_check": (lk_status, (("graph", c_void_p),),
        'Returns the first mistake of the builders. LK_OK if there was none and the graph is complete: it has one input, a loss as its last node, and every other node is an input of a later one; otherwise USAGE.'),
    "lk_input": (lk_node, (("graph", c_void_p), ("channels", c_size_t), ("height", c_size_t), ("width", c_size_t)),
        'Builders. `name` is the prefix of the layer\'s keys in a state dict: "conv1" gives conv1.weight and conv1.bias. The name is copied.'),
    "lk_conv2d": (lk_node, (("graph", c_void_p), ("x", lk_node), ("name", c_char_p), ("opts", lk_conv2d_opts)),
        'Builders. `name` is the prefix of the layer\'s keys in a state dict: "conv1" gives conv1.weight and conv1.bias. The name is copied.'),
    "lk_conv_transpose2d": (lk_node, (("graph", c_void_p), ("x", lk_node), ("name", c_char_p), ("opts", lk_conv_transpose2d_opts)),
        'Transposed convolution, which enlarges images. Its weight is (input channels, out / groups, kernel, kernel_w).'),
    "lk_linear": (lk_node, (("graph", c_void_p), ("x", lk_node), ("name", c_char_p), ("out", c_size_t)),
        'out: output features. x is a vector, or a sequence, whose vectors are multiplied with the same weights, as nn.Linear does with (N, T, C).'),
    "lk_embedding": (lk_node, (("graph", c_void_p), ("x", lk_node), ("name", c_char_p), ("rows", c_size_t), ("width", c_size_t)),
        'As nn.Embedding(rows, width): its weight is (rows, width), first normal with mean 0 and deviation 1. x is a vector of T ids, or a sequence of T ids with one channel; the result is a sequence of T vectors: height 1, width T and `width` channels. An id is a float with a whole number in [0,rows); rows is at most 2^24. If x is the input of the graph, a step or evaluation with another value is MISMATCH, and names sample and value. Behind other layers the vector of such an id is NaN, and a step is NONFINITE. bf16 cannot hold ids: lk_engine_create is UNSUPPORTED.'),
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
        "Losses end a graph. The loss of a batch is the mean over its samples; with weights it is sum(w * loss) / sum(w) (see lk_weigh_classes, and `weights` in lk_batch). Losses of labels: a sample's target is its label. The input of nll_loss is log-probabilities, that of cross_entropy is scores. Both take vectors."),
    "lk_cross_entropy": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        "Losses end a graph. The loss of a batch is the mean over its samples; with weights it is sum(w * loss) / sum(w) (see lk_weigh_classes, and `weights` in lk_batch). Losses of labels: a sample's target is its label. The input of nll_loss is log-probabilities, that of cross_entropy is scores. Both take vectors."),
    "lk_mse_loss": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        "Losses of float targets: a sample's target (lk_batch.targets) has as many floats as x, in the order (H, W, C). x has any shape, so an image may be the target. The loss of a sample is the mean over its elements, as PyTorch's mean over (N, ...). d is x - target. mse: d^2. l1: |d|. huber: d^2 / 2 where |d| < delta, otherwise delta (|d| - delta / 2); delta is above 0. smooth_l1: d^2 / (2 beta) where |d| < beta, otherwise |d| - beta / 2; beta is not below 0. bce_with_logits: binary cross-entropy of sigmoid(x), one label in [0,1] for each element."),
    "lk_l1_loss": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        "Losses of float targets: a sample's target (lk_batch.targets) has as many floats as x, in the order (H, W, C). x has any shape, so an image may be the target. The loss of a sample is the mean over its elements, as PyTorch's mean over (N, ...). d is x - target. mse: d^2. l1: |d|. huber: d^2 / 2 where |d| < delta, otherwise delta (|d| - delta / 2); delta is above 0. smooth_l1: d^2 / (2 beta) where |d| < beta, otherwise |d| - beta / 2; beta is not below 0. bce_with_logits: binary cross-entropy of sigmoid(x), one label in [0,1] for each element."),
    "lk_huber_loss": (lk_node, (("graph", c_void_p), ("x", lk_node), ("delta", c_double)),
        "Losses of float targets: a sample's target (lk_batch.targets) has as many floats as x, in the order (H, W, C). x has any shape, so an image may be the target. The loss of a sample is the mean over its elements, as PyTorch's mean over (N, ...). d is x - target. mse: d^2. l1: |d|. huber: d^2 / 2 where |d| < delta, otherwise delta (|d| - delta / 2); delta is above 0. smooth_l1: d^2 / (2 beta) where |d| < beta, otherwise |d| - beta / 2; beta is not below 0. bce_with_logits: binary cross-entropy of sigmoid(x), one label in [0,1] for each element."),
    "lk_smooth_l1_loss": (lk_node, (("graph", c_void_p), ("x", lk_node), ("beta", c_double)),
        "Losses of float targets: a sample's target (lk_batch.targets) has as many floats as x, in the order (H, W, C). x has any shape, so an image may be the target. The loss of a sample is the mean over its elements, as PyTorch's mean over (N, ...). d is x - target. mse: d^2. l1: |d|. huber: d^2 / 2 where |d| < delta, otherwise delta (|d| - delta / 2); delta is above 0. smooth_l1: d^2 / (2 beta) where |d| < beta, otherwise |d| - beta / 2; beta is not below 0. bce_with_logits: binary cross-entropy of sigmoid(x), one label in [0,1] for each element."),
    "lk_bce_with_logits_loss": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        "Losses of float targets: a sample's target (lk_batch.targets) has as many floats as x, in the order (H, W, C). x has any shape, so an image may be the target. The loss of a sample is the mean over its elements, as PyTorch's mean over (N, ...). d is x - target. mse: d^2. l1: |d|. huber: d^2 / 2 where |d| < delta, otherwise delta (|d| - delta / 2); delta is above 0. smooth_l1: d^2 / (2 beta) where |d| < beta, otherwise |d| - beta / 2; beta is not below 0. bce_with_logits: binary cross-entropy of sigmoid(x), one label in [0,1] for each element."),
    "lk_soft_cross_entropy": (lk_node, (("graph", c_void_p), ("x", lk_node)),
        'Cross-entropy of a vector of scores with a probability for each class as targets.'),
    "lk_weigh_classes": (lk_node, (("graph", c_void_p), ("loss", lk_node), ("weights", POINTER(c_float)), ("classes", c_size_t)),
        "Gives the classes of a loss weights: (classes) numbers not below 0, copied, of which one is above 0. cross_entropy and nll_loss: as PyTorch's `weight`; a sample's weight is that of its label. soft_cross_entropy: as PyTorch's `weight` with probabilities; the weights of samples do not change. bce_with_logits_loss: as PyTorch's `pos_weight`, for each channel of x. Returns loss. USAGE for other losses, another number of classes, and a second call."),
    "lk_loss_label_rank": (c_int32, (("arg", c_void_p), ("x", POINTER(c_float)), ("floats", c_size_t), ("label", c_int32), ("target", POINTER(c_float)), ("target_floats", c_size_t)),
        'The rank of cross_entropy, for losses whose x are scores of classes: the scores above that of the label, and equal ones of classes before it. With as many targets as x has floats, the label is the first class with the largest target; with another number of targets the result is -1. NaN ranks before the label. arg is not used.'),
    "lk_loss_register": (lk_status, (("def", POINTER(lk_loss_def)),),
        "Registers a loss of the program's own until this process ends. All ranks must register the same losses. Any thread may call it. USAGE if the name is taken or does not have 1 to 127 characters, and after 64 losses."),
    "lk_loss": (lk_node, (("graph", c_void_p), ("x", lk_node), ("name", c_char_p)),
        'A registered loss, or one of the library\'s own without a parameter, by its name: "mse_loss". USAGE if there is no such loss.'),
    "lk_name": (lk_node, (("graph", c_void_p), ("x", lk_node), ("name", c_char_p)),
        'Gives the layer x a name, by which lk_engine_opts.outputs and lk_engine_opts.stages find it; most useful for layers without parameters. The keys of a layer\'s parameters stay as they are, and a layer that has a name from its builder has two. No other layer may have this name. The name is 1 to 127 printable characters without blanks and commas, and is copied. Returns x, so that a call can enclose a builder: lk_name(g, lk_relu(g, x), "features").'),
    "lk_init": (lk_node, (("graph", c_void_p), ("x", lk_node), ("policy", c_char_p)),
        'Sets the initial weights of the convolution or linear layer x. (The weights of a BatchNorm are initially 1, its biases 0.) A policy is one of "default" PyTorch\'s: weights and biases uniform in +-1/sqrt(fan in) "kaiming_normal" "kaiming_uniform": variance 2 / fan, for ReLU "xavier_normal" "xavier_uniform": variance 2 / (fan in + fan out) "normal:std=.01" kaiming uses fan in, or with "fan_out" the fan out. All policies but "default" accept "zero_bias"; without it, biases are those of "default". Returns x, so that a call can enclose a builder: lk_init(g, lk_conv2d(...), "kaiming_normal:fan_out").'),
    "lk_init_all": (None, (("graph", c_void_p), ("policy", c_char_p)),
        'Sets the policy of every convolution and linear layer that the graph has now.'),
    "lk_model_build": (lk_status, (("spec", c_char_p), ("shape", lk_model_shape), ("out", c_void_p)),
        'Builds a named model. `spec` is a name of lk_model_list, with parameters if wanted: "cnn:dropout=0". The caller owns *out (lk_graph_destroy). USAGE if there is no such model or parameter, if a parameter is out of its range, and if the model cannot take samples of this shape.'),
    "lk_model_list": (POINTER(lk_model_info), (("index", c_size_t),),
        'Row `index` of the named models, counted from 0; NULL after the last.'),
    "lk_graph_shape": (lk_model_shape, (("graph", c_void_p),),
        'The shape of a sample that the graph takes, and the channels of its scores as `classes`. All 0 if the graph is not complete (lk_graph_check).'),
    "lk_graph_parameters": (c_size_t, (("graph", c_void_p),),
        'Trainable parameters of a graph, in elements.'),
    "lk_group_launched": (c_bool, (),
        "Whether a launcher has started this process as a rank, so that lk_group_join(NULL, &group) is the way to the others. A program that also runs alone asks first: lk_status status = lk_group_launched() ? lk_group_join(NULL, &group) : LK_OK; True if RANK is set, as by `lockstep run`, torchrun and lk_spawn, also with one rank; and for one of several tasks of Open MPI's or MPICH's mpirun, srun, PBS's pbsdsh, Flux or jsrun. False in a process without a launcher, for the only task of such a launcher, and in the script of a batch job. Also true if the variables contradict each other or are incomplete: lk_group_join then returns USAGE and says what is wrong. Reads the environment and, under PBS, the file that PBS_NODEFILE names, at each call; keeps nothing, never fails and does not wait for other ranks. Any thread may call it, while no thread changes the environment."),
    "lk_group_join": (lk_status, (("opts", POINTER(lk_group_opts)), ("out", c_void_p)),
        'Joins the job and connects to the other ranks; opts may be NULL (all defaults). Blocks until all ranks have joined or the timeout has passed. The caller owns *out. USAGE: options or variables of the environment are missing or impossible, or this process has already joined this job as this rank and has not left. PEER: a rank has not joined, rank 0 cannot be reached or has another key, within the timeout; or a rank has exited before it joined (`lockstep run` on one node and lk_spawn report this at once). MISMATCH: two processes have the same rank, or ranks have different world sizes, backends or versions. NOT_FOUND: the file of the key, the address or the plug-in for MPI does not exist. FORMAT: the file of the key or of file:// is damaged, or what answers is not Lockstep. IO: rank 0 cannot listen at its port, or shared memory cannot be created. UNSUPPORTED: MPI grants too low a thread level. With backend "mpi", or "auto" on several hosts under an MPI launcher, the first call starts MPI, unless the program has; call it before other threads do work, because some MPI libraries replace functions of the C library while they start. MPI ends when the process exits: by MPI_Abort after a failure of a group or with another exit status than 0.'),
    "lk_group_from_mpi": (lk_status, (("comm", c_void_p), ("opts", POINTER(lk_group_opts)), ("out", c_void_p)),
        'Makes a group of the processes of an MPI communicator: comm is the address of the program\'s MPI_Comm (Open MPI or MPICH), rank r of it becomes rank r of the group. Collective: blocks until all its processes have called it or the timeout has passed. Of opts, which may be NULL, only backend, timeout, notice and progress_thread may be set; address and key travel over MPI. The communicator is duplicated, so the program\'s own messages and the group\'s never mix. MPI stays the program\'s: destroy the group at all ranks before MPI_Finalize. With backend "auto", ranks of one host share memory, and ranks of several hosts use MPI if it grants MPI_THREAD_SERIALIZED (with progress_thread MPI_THREAD_MULTIPLE), else TCP; "mpi" requires that level. If MPI grants less than MPI_THREAD_MULTIPLE, the program must not call MPI in another thread while a call of the group runs. USAGE if MPI is not initialised or already finalised, for MPI_COMM_NULL and inter-communicators, for other options, and in another thread than that of MPI_Init if MPI grants less than MPI_THREAD_SERIALIZED. NOT_FOUND if the plug-in for the program\'s MPI is not installed (the detail names the package). UNSUPPORTED for another MPI library, and for "mpi" without the thread level. PEER, MISMATCH and IO as lk_group_join. The caller owns *out.'),
    "lk_group_create_threads": (lk_status, (("count", c_int), ("opts", POINTER(lk_group_opts)), ("out", c_void_p)),
        'Creates a group of `count` ranks that are threads of this process: out (count) gets one handle for each rank, and the thread that is rank r uses out[r]. Only timeout, notice and progress_thread of opts are used; opts may be NULL. Does not block. The caller owns the groups, and destroys each. USAGE if count is not in 1 to 4096. MEMORY also if a thread cannot be started.'),
    "lk_group_destroy": (None, (("group", c_void_p),),
        'Leaves the group and frees it, with its requests. A rank that still waits for this rank gets an error. Afterwards the process may join again, also as the same rank. Rank 0 runs the server of the job: its call blocks until all other ranks have left or died, with a notice every five seconds.'),
    "lk_group_split": (lk_status, (("parent", c_void_p), ("colour", c_int), ("key", c_int), ("out", c_void_p)),
        'Splits a group: the ranks that give the same colour form a new group, ordered by key, then by rank. Collective: blocks until all ranks of the parent have called it. With colour < 0 the rank is in no new group and *out is NULL. After the parent is destroyed, a new group can only be destroyed. The caller owns *out.'),
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
        'Makes progress on the requests under way and checks for failures. Does not block, except that it waits for the reason if the connection to a peer was lost: for 2 seconds, or up to the timeout while rank 0 does not answer. Returns the failure of the group, if it has failed.'),
    "lk_group_history": (c_size_t, (("group", c_void_p), ("text", c_void_p), ("bytes", c_size_t)),
        "Writes the last 64 calls of the group to text, oldest first, each on a line of its own. Writes at most `bytes` bytes, including the final '\\0', and returns the bytes that the complete text needs."),
    "lk_reduction_register": (lk_status, (("name", c_char_p), ("combine", lk_reduction_fn), ("arg", c_void_p), ("out", c_void_p)),
        "Registers a reduction of the program's own for all groups, until this process ends: *out is its number. name is copied; combine and arg must stay valid. All ranks must register the same reductions, by name, in the same order: a call whose reductions have different names is a disagreement of the ranks. Any thread may call it. USAGE if the name is empty or has been registered before, or if there are too many reductions (LK_REDUCTION_LIMIT)."),
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
        'Runs fn in nprocs (at least 1) forked processes. Blocks until all of them have ended. If a process ends with an exit status other than 0 or by a signal, the other processes are ended within a second, and the call returns PEER; the detail says which process failed first, and how. All processes end even if the caller is killed. The calling process should have no other threads: a forked process has only the thread that called. fn and arg are used until the call returns. PEER also if a signal (SIGINT, SIGTERM, SIGHUP) ended the job; the signal is then raised again in the caller. USAGE: nprocs is below 1, or $LOCKSTEP_TIMEOUT is no number. IO: a process or a pipe cannot be created, or no port is free. UNSUPPORTED: the kernel has no subreapers.'),
    "lk_op_register": (lk_status, (("def", POINTER(lk_op_def)),),
        'Registers an op until this process ends. All ranks must register the same ops: lk_engine_create compares the names and attributes of layers, and cannot compare functions. Errors: USAGE if a name is no name, a function is NULL where it must not be, `inputs` is out of range, the name is registered already or LK_OP_LIMIT is reached; MEMORY.'),
    "lk_op_add": (lk_node, (("graph", c_void_p), ("op", c_char_p), ("name", c_char_p), ("inputs", POINTER(lk_node)), ("count", c_int), ("attr", c_void_p), ("attr_bytes", c_size_t)),
        "Adds a layer with the op of this name. `name` is the layer's, the prefix of its keys; NULL if it has no parameters. inputs has `count` nodes. attr is copied: at most LK_OP_MAX_ATTR bytes, all of which belong to the hash of the model, so pads of a struct must be zero; NULL with attr_bytes 0: none. Mistakes (lk_graph_check): NOT_FOUND if no such op is registered; USAGE for another number of inputs, too many bytes, a size of 0, and what `shape` returns."),
    "lk_op_check": (lk_status, (("op", c_char_p), ("opts", POINTER(lk_op_check_opts))),
        'Runs a registered op on random inputs and checks, in this order: - guards: nothing is written outside of y, workspace and the gradients (64 floats before and after each of them are watched), and inputs, parameters, dy and, in backward, y and workspace stay as they are; - outputs: every element of y and of the gradients is written and finite; - state: the same call gives the same bits again, after calls with other samples in between; - samples: a sample alone gives the same y and dx as among others; - threads: 1, 2 or 3 threads, one wave or several, with all, one or no gradients of inputs: the same bits; - shards: the gradient of a parameter is the same sum, up to rounding, for every cut into shards; - gradients: those of inputs and parameters are finite differences of forward. Of each tensor at most 48 elements are compared, chosen by `seed`. Elements where forward is not smooth (the difference depends on the step) are left out; at most half of them may be. Errors: MISMATCH if a check fails: the detail names the check, the place and both numbers; NOT_FOUND if there is no such op; USAGE for impossible options; UNSUPPORTED if the device or a function for it is missing; MEMORY.'),
    "lk_loss_check": (lk_status, (("loss", c_char_p), ("opts", POINTER(lk_loss_check_opts))),
        'Runs a registered loss on random inputs and targets and checks, in this order: - guards: nothing is written outside of dx (64 floats before and after it are watched), and x and target stay as they are; - outputs: the loss is finite, every element of dx is written and finite; - state: the same calls in another order, at other addresses and without dx give the same bits; - threads: 1, 2 or 3 threads that call at the same time get the same bits; - shards: all samples at once, in parts or one by one, with and without weights, give the same bits; on CUDA they are also those of `sample`, up to the tolerance, multiplied by weight and scale; - gradients: dx is finite differences of the loss. All elements are compared, or 4,194,304 / (elements of a sample) of them, at least 64, where that is fewer; they are spread evenly over samples and elements, and chosen by `seed`. Elements where the loss is not smooth (the difference depends on the step) are left out; at most half of them may be. `rank`, if it is given, takes part in the checks guards, state, threads and shards. Errors: MISMATCH if a check fails: the detail names the check, the place and both numbers; NOT_FOUND if the program has registered no such loss; USAGE for impossible options; UNSUPPORTED if the device or a function for it is missing; MEMORY.'),
    "lk_op_exp": (c_float, (("x", c_float),),
        'Functions that give the same bits on every machine; the errors are below 4 units in the last place.'),
    "lk_op_log": (c_float, (("x", c_float),),
        'Functions that give the same bits on every machine; the errors are below 4 units in the last place.'),
    "lk_op_tanh": (c_float, (("x", c_float),),
        'Functions that give the same bits on every machine; the errors are below 4 units in the last place.'),
    "lk_op_sigmoid": (c_float, (("x", c_float),),
        'Functions that give the same bits on every machine; the errors are below 4 units in the last place.'),
    "lk_optimizer_list": (POINTER(lk_optim_info), (("index", c_size_t),),
        'Row `index` of the optimisers, which lk_engine_opts.optimizer names, with those of lk_optimizer_register; NULL after the last.'),
    "lk_optimizer_register": (lk_status, (("def", POINTER(lk_optimizer_def)),),
        'Adds a rule to the table of optimisers until this process ends: lk_engine_opts.optimizer may then be its name, with parameters. The definition is copied, but not what arg points to. Its states are in lk_engine_optimizer_state and in checkpoints, by their names. All ranks must register the same. USAGE if a name is missing, malformed or taken, a number is out of its range, or the process has registered 32 rules.'),
    "lk_lr_schedule_create": (lk_status, (("spec", c_char_p), ("out", c_void_p)),
        'USAGE if the spec has no known name or a wrong parameter. The caller owns *out.'),
    "lk_lr_schedule_destroy": (None, (("schedule", c_void_p),),
        'USAGE if the spec has no known name or a wrong parameter. The caller owns *out.'),
    "lk_lr_schedule_check": (lk_status, (("schedule", c_void_p), ("base_lr", c_double), ("at", lk_lr_schedule_at)),
        'USAGE if the schedule does not fit base_lr and the run, whose epochs and batches are in `at`. A run may end in its warm-up: recipes are tested with fewer epochs.'),
    "lk_lr_schedule_warmup": (c_size_t, (("schedule", c_void_p), ("batches", c_size_t)),
        'Steps of the warm-up; 0 without one.'),
    "lk_lr_schedule_lr": (c_double, (("schedule", c_void_p), ("base_lr", c_double), ("at", lk_lr_schedule_at)),
        'The rate of the step at this position, for lk_engine_set_lr. 0 if at.batches is 0.'),
    "lk_lr_schedule_watches": (c_bool, (("schedule", c_void_p),),
        'Whether rates depend on results.'),
    "lk_lr_schedule_observe": (None, (("schedule", c_void_p), ("at", lk_lr_schedule_at), ("result", lk_lr_schedule_result), ("watch", POINTER(lk_lr_schedule_watch))),
        'Counts the result of the epoch whose last step is `at`. Results in the warm-up are not counted. Does nothing if the schedule does not watch.'),
    "lk_lr_schedule_list": (POINTER(lk_optim_info), (("index", c_size_t),),
        'Row `index` of the schedules; NULL after the last.'),
    "lk_dtype_size": (c_size_t, (("dtype", lk_dtype),),
        'Bytes of one element.'),
    "lk_dtype_name": (c_char_p, (("dtype", lk_dtype),),
        'The name in lower case: "f32", "i64", ...'),
    "lk_state_create": (lk_status, (("out", c_void_p),),
        'Creates a state without entries; the caller owns *out.'),
    "lk_state_destroy": (None, (("state", c_void_p),),
        'Creates a state without entries; the caller owns *out.'),
    "lk_state_add": (lk_status, (("state", c_void_p), ("name", c_char_p), ("dtype", lk_dtype), ("ndim", c_int), ("dims", c_void_p), ("out", c_void_p)),
        'Appends an entry whose data are zero; the caller fills it. dims may be NULL if ndim is 0. *out is borrowed and valid until the next lk_state_add. MISMATCH: the state has an entry of this name. USAGE: the name is longer than LK_MAX_TENSOR_NAME, the type is unknown, or ndim is not in 0 to LK_MAX_DIMS. MEMORY also if the data would be larger than the address space.'),
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
        'Saves a state. The ending of path selects the format: .pth and .pt select the format of torch.save; .safetensors, or no ending, selects safetensors; any other ending is USAGE. Equal states with equal notes give equal files. Writes a temporary file, syncs it and renames it: path has either its old content or the complete new one. Blocks until the file is synced to the disk. USAGE also for names of tensors that the format cannot hold (not UTF-8). NOT_FOUND: the folder does not exist. IO: the file cannot be written.'),
    "lk_state_load": (lk_status, (("path", c_char_p), ("out", c_void_p)),
        'Loads a state; the caller owns *out. The format is recognised by the content: safetensors, the zip format and the older format of torch.save, or a checkpoint folder (checkpoint.h), whose model is verified and returned. If a torch.save file holds a dict with several objects, the state is its member "state_dict", "model_state_dict", "model" or "net" (the first of these that exists), else the tensors of the dict itself; the other objects are ignored. Names are those of the file (see lk_state_strip). No code of a file is executed: objects other than tensors and plain data are FORMAT. Time and memory are bounded by the size of the file. A lack of memory is MEMORY, never FORMAT. NOT_FOUND: there is no such file. IO: it cannot be read. FORMAT: it is damaged, or of no known format; the detail names the byte or tensor. USAGE: path is a folder of runs or of checkpoints; the detail names one of them. UNSUPPORTED: a file of torch.save in a build without libzip, or a checkpoint of a later version.'),
    "lk_state_strip": (c_bool, (("state", c_void_p), ("prefix", c_char_p)),
        'If every name starts with `prefix`, removes the prefix from all names and returns true. Otherwise, and for an empty state, changes nothing and returns false. PyTorch\'s DataParallel and DistributedDataParallel put "module." before every name: the commands that load or compare models remove that prefix, `convert` and `info` keep it.'),
    "lk_state_compare": (c_size_t, (("a", c_void_p), ("b", c_void_p), ("report", lk_difference_fn), ("arg", c_void_p)),
        'Compares two states bit by bit; report may be NULL. Returns the number of keys that differ in data, shape or type, or exist in only one of the states.'),
    "lk_status_string": (c_char_p, (("status", lk_status),),
        'The meaning of a status; never NULL.'),
    "lk_error_detail": (c_char_p, (),
        'The detail of the calling thread\'s last failure; "" if there was none. Valid until the thread\'s next failure or its end. Fields of option structs are written in backquotes in it: `max_steps`.'),
    "lk_fail": (lk_status, (("status", lk_status), ("format", c_char_p)),
        'Sets the detail of the calling thread, a text as of printf, and returns status: for functions that a program gives to the library, as in return lk_fail(LK_STATUS_IO, "%s: no such table", path).'),
    "lk_train_engine": (c_void_p, (("run", c_void_p),),
        'The engine of this rank, borrowed, to look at or to change. All ranks must make the same collective calls in the same event function. Between `before_step` and `step` of one step, and while later steps are under way, functions that read or change the state are USAGE (lk_engine_send); no step is under way in `start`, `epoch` and `test`, nor in `before_step` and `step` of a run that has `before_step`. lk_engine_step, lk_engine_destroy and other functions that take or undo steps break the run.'),
    "lk_train_stop": (None, (("run", c_void_p),),
        'Asks for an end at all ranks, whichever rank asks. lk_train then saves a checkpoint if it has a folder, saves the model if `save_model` is given, and returns LK_OK with lk_train_result.stopped. A call in `before_step` ends the run after this step; a call in `step` or `saved`, after the next step or at the end of the epoch (on a GPU that has steps under way: after these); a call in another function, at once. The result is the same for any number of ranks. A signal handler may set a flag at which `before_step` looks.'),
    "lk_train_fail": (None, (("run", c_void_p), ("status", lk_status)),
        "Ends the run with a failure: lk_train returns `status` and this thread's detail (lk_fail) at this rank, and the other ranks get PEER with the detail. Later calls and LK_OK have no effect."),
    "lk_train": (lk_status, (("opts", POINTER(lk_train_opts)), ("events", POINTER(lk_train_events)), ("out", POINTER(lk_train_result))),
        'Trains, and blocks until the run ends. Collective if there are several ranks. events and out may be NULL. USAGE: options that are impossible, contradict each other or the checkpoint, or would have no effect; the detail names the field. NOT_FOUND: no such data, file of weights or checkpoint. FORMAT: a damaged file. MISMATCH: ranks have different options, or the checkpoint was saved with other data. NONFINITE: a loss, a gradient or the final weights; nothing non-finite is saved. PEER: another rank failed. IO, MEMORY, UNSUPPORTED: as in the other headers. A failure keeps the checkpoints that were saved.'),
    "lk_version": (c_char_p, (),
        'The version of the library that the program runs with, in the form of LK_VERSION. Any thread may call it.'),
}
