/* report_start.c - the first lines of a run: everything that belongs to its result, and what a user may not expect. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/report/json.h"
#include "cli/report/report.h"

enum { SHARDS_TEXT = 256 };

static bool is_on_cpu(const lk_train_begin *start)
{
    return lk__device_find(start->self.device) == &lk__device_cpu;
}

/* Stages on the CPU have one way to exchange activations. */
static bool has_stages_on_gpus(const lk_train_begin *start)
{
    return start->self.layout.stages > 1 && !is_on_cpu(start);
}

static void json_layout(cJSON *line, const lk_report *report, const lk_train_begin *start)
{
    const lk_train_rank_info *self = &start->self;
    cJSON_AddStringToObject(line, "parallel", lk__args_parallel_names[report->plan->mode.parallel]);
    cJSON_AddNumberToObject(line, "ranks", self->ranks);
    cJSON_AddNumberToObject(line, "replicas", self->layout.replicas);
    cJSON_AddNumberToObject(line, "stages", self->layout.stages);
    cJSON *names = cJSON_AddArrayToObject(line, "stages_begin");
    for (int i = 1; i < self->layout.stages; i++)
        cJSON_AddItemToArray(names, cJSON_CreateString(start->cuts[i - 1]));
    cJSON_AddBoolToObject(line, "one_wave", self->layout.one_wave);
    cJSON_AddStringToObject(line, "transport", self->transport);
    cJSON_AddStringToObject(line, "sums",
                            self->layout.gradient_backend ? self->layout.gradient_backend : self->transport);
    if (has_stages_on_gpus(start))
        cJSON_AddStringToObject(line, "activations",
                                self->layout.stage_backend ? self->layout.stage_backend : self->transport);
    if (self->layout.stage_obstacle)
        cJSON_AddStringToObject(line, "activations_obstacle", self->layout.stage_obstacle);
    cJSON_AddNumberToObject(line, "better_shards", start->better_shards);
}

static void json_facts(cJSON *line, const lk_report *report, const lk_train_begin *start)
{
    lk_device_fact facts[LK_DEVICE_FACTS];
    size_t count = lk__device_facts(start->self.device, facts);
    cJSON *object = cJSON_AddObjectToObject(line, "device_facts");
    for (size_t i = 0; i < count; i++)
        cJSON_AddStringToObject(object, facts[i].name, facts[i].value);
    cJSON_AddStringToObject(line, "precision", lk__device_precision_names[report->plan->train.precision]);
}

void lk__report_start_json(const lk_report *report, const lk_train_begin *start)
{
    const lk_train_opts *opts = &report->plan->train;
    char seed[32];
    snprintf(seed, sizeof seed, "%" PRIu64, opts->seed);
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "event", "start");
    if (*report->plan->join.started)
        cJSON_AddStringToObject(line, "started_by", report->plan->join.started);
    cJSON_AddStringToObject(line, "config", report->args->config ? report->args->config : "");
    cJSON_AddStringToObject(line, "data", start->train->name);
    cJSON_AddStringToObject(line, "path", start->train->path);
    cJSON_AddBoolToObject(line, "data_given", report->data_given);
    cJSON_AddNumberToObject(line, "train_samples", (double)start->train->count);
    if (start->val)
        cJSON_AddNumberToObject(line, "val_samples", (double)start->val->count);
    cJSON_AddNumberToObject(line, "test_samples", start->test ? (double)start->test->count : 0);
    cJSON_AddNumberToObject(line, "classes", (double)start->train->classes);
    cJSON_AddStringToObject(line, "augment", start->augment);
    cJSON_AddStringToObject(line, "test_augment", start->test_augment);
    cJSON_AddStringToObject(line, "model", opts->model);
    cJSON_AddNumberToObject(line, "parameters", (double)start->parameters);
    cJSON_AddStringToObject(line, "device", start->self.device);
    json_facts(line, report, start);
    cJSON_AddNumberToObject(line, "threads", start->self.layout.threads);
    cJSON_AddNumberToObject(line, "shards", opts->shards);
    cJSON_AddRawToObject(line, "seed", seed);
    cJSON_AddStringToObject(line, "optimizer", opts->optimizer);
    cJSON_AddStringToObject(line, "schedule", opts->schedule);
    cJSON_AddNumberToObject(line, "lr_first", start->rates.first);
    cJSON_AddNumberToObject(line, "lr_highest", start->rates.highest);
    cJSON_AddNumberToObject(line, "lr_last", start->rates.last);
    cJSON_AddNumberToObject(line, "batch_size", (double)opts->batch);
    cJSON_AddNumberToObject(line, "steps", (double)start->steps);
    json_layout(line, report, start);
    lk__report_resumed_json(line, start);
    lk__cli_json_line(line);
}

/* "2 stages x 2 replicas (stage 1 begins with fc1), " */
static void print_grid(const lk_train_begin *start)
{
    const lk_layout *layout = &start->self.layout;
    if (layout->stages < 2)
        return;
    printf("%d stages x %d replica%s (", layout->stages, layout->replicas, layout->replicas == 1 ? "" : "s");
    for (int i = 1; i < layout->stages; i++)
        printf("%sstage %d begins with %s", i > 1 ? ", " : "", i, start->cuts[i - 1]);
    printf("), ");
}

/* Whether this is a channel between ranks that are on one GPU. */
static bool joins_one_gpu(const lk_train_rank_info *self, const char *name)
{
    const lk_channel_type *channel = lk__device_find_channel(self->device, name);
    return channel && channel->one_device;
}

/* The name as users know it: "CUDA IPC". */
static const char *title_of(const lk_train_rank_info *self, const char *name)
{
    const lk_channel_type *channel = lk__device_find_channel(self->device, name);
    return channel && channel->title ? channel->title : name;
}

static bool is_on_one_gpu(const lk_train_rank_info *self)
{
    bool sums = self->layout.replicas == 1 || joins_one_gpu(self, self->layout.gradient_backend);
    return sums && (self->layout.stages == 1 || joins_one_gpu(self, self->layout.stage_backend));
}

/* Devices and ranks: "cpu with 2 threads", "ddp, 4 ranks over shm with 1 thread each", "pp, 2 stages x 1 replica (stage
 * 1 begins with fc1), 2 ranks over shm with 1 thread each on cuda, activations over nccl". If all are
 * on one GPU: "on cuda:0". */
static void print_ranks(const lk_report *report, const lk_train_begin *start)
{
    const lk_train_rank_info *self = &start->self;
    const char *plural = start->self.layout.threads == 1 ? "" : "s";
    if (self->ranks == 1) {
        printf("%s with %d thread%s", self->device, start->self.layout.threads, plural);
        return;
    }
    printf("%s, ", lk__args_parallel_names[report->plan->mode.parallel]);
    print_grid(start);
    const char *sums = self->layout.gradient_backend;
    bool both = sums && strcmp(sums, self->transport) != 0;
    printf("%d ranks over %s%s%s with %d thread%s each", self->ranks, both ? title_of(self, sums) : "",
           both ? " and " : "", self->transport, start->self.layout.threads, plural);
    const char *activations = self->layout.stage_backend;
    bool one = is_on_one_gpu(self);
    if (strcmp(self->device, "cpu") != 0)
        printf(" on %.*s", (int)(one ? strlen(self->device) : strcspn(self->device, ":")), self->device);
    if (has_stages_on_gpus(start))
        printf(", activations %s %s", activations ? "over" : "through",
               activations ? title_of(self, activations) : "host memory");
}

/* "GPU NVIDIA H200, CUDA 12.8, cuDNN 9.13.0, cuBLASLt 12.8.4, precision tf32conv": what the bits of a GPU depend on.
 * Those of the CPU are the same everywhere: "precision bf16", and nothing in its own precision. */
static void print_facts(const lk_report *report, const lk_train_begin *start)
{
    lk_device_fact facts[LK_DEVICE_FACTS];
    size_t count = lk__device_facts(start->self.device, facts);
    for (size_t i = 0; i < count; i++)
        printf("%s %s, ", facts[i].name, facts[i].value);
    lk_precision precision = report->plan->train.precision;
    if (count > 0 || precision != lk__device_precision(start->self.device, LK_PRECISION_AUTO))
        printf("precision %s\n", lk__device_precision_names[precision]);
}

/* "18 shards instead of the usual 16, ..."; "" if there are as many as usual, or if they were given. */
static void write_shards(const lk_report *report, const lk_train_begin *start, char text[SHARDS_TEXT])
{
    const lk_train_opts *opts = &report->plan->train;
    int usual = lk__train_default_shards(opts, 1), each = opts->shards / (int)opts->accumulate;
    text[0] = 0;
    if (report->args->shards_given || opts->shards <= usual)
        return;
    snprintf(text, SHARDS_TEXT,
             "%d shards instead of the usual %d, because there are %d replicas: --shards %d has this result for any "
             "number of them up to it",
             opts->shards, usual, start->self.layout.replicas, each);
}

/* Other shards have other bits. */
void lk__report_start_notices(const lk_report *report, const lk_train_begin *start)
{
    char text[SHARDS_TEXT];
    write_shards(report, start, text);
    lk__report_notice("train", text);
    lk__report_passed_over(stderr, "lockstep train: ");
}

/* Effects of combined options that a user may not expect. */
static void print_hints(const lk_report *report, const lk_train_begin *start)
{
    const lk_train_opts *opts = &report->plan->train;
    const lk_layout *layout = &start->self.layout;
    bool stages = layout->stages > 1 && opts->pipelined;
    char text[SHARDS_TEXT];
    if (layout->gradient_backend && opts->reduce == LK_REDUCE_ORDER_ENGINE)
        printf("--reduce engine: %s adds gradients up in an order of its own, and the result is that of %d replicas "
               "on these devices; --reduce tree has the same bits for any number\n",
               layout->gradient_backend, layout->replicas);
    if (joins_one_gpu(&start->self, layout->gradient_backend) && !report->args->devices.named)
        printf("%d ranks share the GPU %s, and one rank alone would be faster: start one rank for each GPU, or name "
               "the devices (--devices) if this is meant\n",
               start->self.ranks, start->self.device);
    if (layout->stage_obstacle)
        printf("activations go through host memory between GPUs, which is slower: %s\n", layout->stage_obstacle);
    if (layout->one_wave && stages)
        printf("--pipelined has little effect here: BatchNorm under --bn batch needs the whole batch at once, and the "
               "stages take turns, segment by segment; --bn shard lets them work at the same time\n");
    if (layout->one_wave && (opts->micro_batch || opts->accumulate > 1))
        printf("%s here: BatchNorm under --bn batch needs the whole batch at once\n",
               opts->micro_batch ? "--micro-batch has no effect" : "--accumulate saves no memory");
    if (start->mixed_devices)
        printf("%s\n", lk__train_mixed_text);
    write_shards(report, start, text);
    if (*text)
        printf("%s\n", text);
    bool tree = opts->reduce == LK_REDUCE_ORDER_TREE;
    if (tree && start->better_shards % (int)opts->accumulate == 0 && start->better_shards)
        printf("%d shards are not %d replicas times a power of two, so that replicas exchange several partial sums: "
               "--shards %d is faster, with a result of its own\n",
               opts->shards, layout->replicas, start->better_shards / (int)opts->accumulate);
}

/* Prints nothing if images are used as they are. */
static void print_transforms(const lk_train_begin *start)
{
    bool changed = strcmp(start->augment, "none") != 0, tests_changed = strcmp(start->test_augment, "none") != 0;
    if (changed || tests_changed)
        printf("training images: %s; test images: %s\n", changed ? start->augment : "as they are",
               tests_changed ? start->test_augment : "as they are");
}

static bool is_one_of(const char *const *names, const char *name)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names;
}

/* The value of an option, if the line of options shows it: what belongs to the result, unless it is the default or
 * another line has it. */
static const char *shown_value(const lk_option *row, const lk_train_opts *opts, char text[LK_OPTION_TEXT_BYTES])
{
    static const char *const always[] = {"batch-size", "epochs", "optimizer", "lr", "schedule", NULL};
    static const char *const never[] = {"model",  "data",      "data-dir", "augment",    "test-augment", "seed",
                                        "shards", "precision", "keep",     "save-every", "save-model",   NULL};
    bool counts = row->properties & (LK_OPTION_KEPT | LK_OPTION_AGREED) || strcmp(row->name, "init-from") == 0;
    const char *value = lk__option_value(row, opts, text);
    if (!counts || !value || is_one_of(never, row->name))
        return NULL;
    bool usual = row->initial && strcmp(value, row->initial) == 0;
    return is_one_of(always, row->name) || !usual ? value : NULL;
}

/* "options: batch-size 64, epochs 14, optimizer adadelta, lr 1, schedule step:size=1,gamma=0.7" */
static void print_options(const lk_train_opts *given, const lk_train_begin *start)
{
    lk_train_opts opts = *given;
    const lk_option *row;
    const char *value, *comma = "";
    char text[LK_OPTION_TEXT_BYTES];
    opts.lr = start->lr; /* where it was not given, the optimiser's own */
    printf("options: ");
    for (size_t i = 0; (row = lk__train_option(i)) != NULL; i++)
        if ((value = shown_value(row, &opts, text)) != NULL) {
            printf("%s%s%s%s", comma, row->name, row->kind == LK_OPTION_KIND_FLAG ? "" : " ",
                   row->kind == LK_OPTION_KIND_FLAG ? "" : value);
            comma = ", ";
        }
    printf("\n");
}

/* Learning rates of the steps of this process. Six digits distinguish all rates in common use. */
static void print_rates(const lk_train_begin *start)
{
    const lk_lr_schedule_rates *rates = &start->rates;
    if (start->done >= start->steps)
        return;
    if (start->watches)
        printf("learning rate: first %.6g; it falls when results are no better\n", rates->first);
    else if (rates->first == rates->highest && rates->last == rates->highest)
        printf("learning rate: %.6g in all steps\n", rates->first);
    else
        printf("learning rate: first %.6g, highest %.6g, last %.6g\n", rates->first, rates->highest, rates->last);
    if (start->warmup)
        printf("the warm-up of %zu steps is longer than the run: the learning rate never reaches its full value\n",
               start->warmup);
}

void lk__report_start_text(const lk_report *report, const lk_train_begin *start)
{
    const lk_train_opts *opts = &report->plan->train;
    const char *path = start->train->path;
    if (*report->plan->join.started)
        printf("%s\n", report->plan->join.started);
    printf("data %s (", start->train->name);
    if (!*path)
        printf(report->data_given ? "built in; " : "built in, as --data was not given; ");
    else if (strcmp(path, start->train->name) != 0)
        printf("%s; ", path);
    printf("%zu training", start->train->count);
    if (start->val)
        printf(start->test ? ", %zu validation" : " and %zu validation", start->val->count);
    if (start->test)
        printf(" and %zu test", start->test->count);
    printf(" samples, %zu classes), model %s (%zu parameters), ", start->train->classes, opts->model,
           start->parameters);
    print_ranks(report, start);
    printf(", %d shard%s, seed %" PRIu64, opts->shards, opts->shards == 1 ? "" : "s", opts->seed);
    if (report->args->config)
        printf(", config %s", report->args->config);
    printf("\n");
    print_facts(report, start);
    print_options(opts, start);
    print_transforms(start);
    print_rates(start);
    print_hints(report, start);
    lk__report_resumed(report, start);
}
