/* habits_spec.c - PyTorch's names of parameters in --optimizer and --schedule, and parameters of the optimiser that
 * are options elsewhere (--momentum). */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/spec.h"
#include "cli/options/habits.h"
#include "optim/optim.h"

/* A spec that is read is shorter than ITEM_BYTES; parameters may be added to it. */
enum { SPEC_BYTES = 512, ITEM_BYTES = 256 };

/* The texts that were written. The optimiser's is written in three steps, each from the text of the one before: without
 * its rate, with the words of this program, with parameters added; the schedule's in the first two. */
static char rate_text[SPEC_BYTES], words_text[SPEC_BYTES], optimizer_text[SPEC_BYTES], schedule_text[SPEC_BYTES];
static char schedule_rate_text[SPEC_BYTES];

/* A spec that is read item by item. */
typedef struct spec {
    const char *option; /* "`optimizer`" */
    const char *text;
    const lk_args *args;
} spec;

/* An item of a spec: key=value, or key alone; value is "" then. */
typedef struct item {
    char key[ITEM_BYTES], value[ITEM_BYTES];
    bool valued;
} item;

/* A parameter under another name. */
typedef struct spec_word {
    const char *option, *name; /* name of the optimiser or schedule; NULL: of each */
    const char *key;
    const char *value;  /* the row is for this value, which `means` contains; NULL: for each, which follows `means` */
    const char *means;  /* "size", "accuracy=1" */
    const char *second; /* of a pair of values "a,b": the name of the second; otherwise NULL */
    lk_status (*check)(const spec *in, const item *it); /* or NULL */
} spec_word;

static lk_status fail_long(const spec *in)
{
    return lk__fail(LK_STATUS_USAGE, "%s is longer than the %d characters that it may have", in->option,
                    ITEM_BYTES - 1);
}

/* Reads the item at `at`; returns the position after it. */
static const char *read_item(const char *at, item *out)
{
    size_t length = strcspn(at, ","), key = strcspn(at, ",=");
    out->valued = at[key] == '=';
    snprintf(out->key, sizeof out->key, "%.*s", (int)key, at);
    snprintf(out->value, sizeof out->value, "%.*s", out->valued ? (int)(length - key - 1) : 0, at + key + out->valued);
    return at + length + (at[length] == ',');
}

/* The items of a spec, "" if there are none. */
static const char *items_of(const char *text)
{
    const char *colon = strchr(text, ':');
    return colon ? colon + 1 : "";
}

/* Writes the item of a parameter, as "gamma=.5", to *out; false if the spec does not have this parameter. */
static bool find_value(const char *text, const char *key, item *out)
{
    for (const char *at = items_of(text); *at;) {
        at = read_item(at, out);
        if (lk__options_same_name(out->key, key, strlen(out->key)))
            return true;
    }
    return false;
}

/* T_max counts epochs after the warm-up, and the rate rises again after it: with a warm-up and in a longer run there is
 * no schedule here that does the same. */
static lk_status check_t_max(const spec *in, const item *it)
{
    double end = 0, warmup = 0;
    item other;
    bool steps = find_value(in->text, "by-step", &other) || find_value(in->text, "warmup-steps", &other);
    bool warm = find_value(in->text, "warmup", &other) && lk__number_parse_double(other.value, &warmup) && warmup > 0;
    bool number = lk__number_parse_double(it->value, &end);
    if (steps)
        return lk__fail(LK_STATUS_USAGE,
                        "%s cosine: T_max counts calls of step(), and here epochs=N counts epochs of "
                        "the run: write epochs=N in place of T_max=%s",
                        in->option, it->value);
    if (number && warm)
        return lk__fail(LK_STATUS_USAGE,
                        "%s cosine: T_max=%s counts from the end of the warm-up, and epochs from the "
                        "beginning of the run: write epochs=%g in place of it",
                        in->option, it->value, end + warmup);
    if (number && end < (double)in->args->train.epochs)
        return lk__fail(LK_STATUS_USAGE,
                        "%s cosine: after T_max=%s of `epochs` %zu PyTorch's rate rises again, and "
                        "here it stays at its lowest: write epochs=%s in place of it",
                        in->option, it->value, in->args->train.epochs, it->value);
    return LK_OK;
}

/* PyTorch's cycle has a length of its own. */
static lk_status check_length(const spec *in, const item *it)
{
    return lk__fail(LK_STATUS_USAGE,
                    "%s onecycle: the cycle is as long as the run, which `epochs` or `max_steps` set: leave %s=%s out",
                    in->option, it->key, it->value);
}

/* A value that no row of this key has. */
static lk_status check_choice(const spec *in, const item *it)
{
    return lk__fail(LK_STATUS_USAGE, "%s %s: %s has no '%s' here; 'lockstep info' lists the parameters there are",
                    in->option, in->text, it->key, it->value);
}

static const spec_word spec_words[] = {
    {"`schedule`", "step", "step-size", .means = "size"},
    {"`schedule`", "cosine", "T-max", .means = "epochs", .check = check_t_max},
    {"`schedule`", "cosine", "eta-min", .means = "min"},
    {"`schedule`", "onecycle", "total-steps", .check = check_length},
    {"`schedule`", "onecycle", "steps-per-epoch", .check = check_length},
    {"`schedule`", "onecycle", "epochs", .check = check_length},
    {"`schedule`", "onecycle", "anneal-strategy", .value = "linear", .means = "linear=1"},
    {"`schedule`", "onecycle", "anneal-strategy", .value = "cos", .means = "linear=0"},
    {"`schedule`", "onecycle", "anneal-strategy", .check = check_choice},
    {"`schedule`", "plateau", "mode", .value = "max", .means = "accuracy=1"},
    {"`schedule`", "plateau", "mode", .value = "min", .means = "accuracy=0"},
    {"`schedule`", "plateau", "mode", .check = check_choice},
    {"`schedule`", "plateau", "threshold-mode", .value = "abs", .means = "abs=1"},
    {"`schedule`", "plateau", "threshold-mode", .value = "rel", .means = "abs=0"},
    {"`schedule`", "plateau", "threshold-mode", .check = check_choice},
    {"`schedule`", "plateau", "min-lr", .means = "min"},
    {"`optimizer`", "rmsprop", "rho", .means = "alpha"},
    {"`optimizer`", "adam", "betas", .means = "beta1", .second = "beta2"},
    {"`optimizer`", "adamw", "betas", .means = "beta1", .second = "beta2"},
    {"`optimizer`", NULL, "wd", .means = "weight_decay"},
};

/* PyTorch's classes, in small letters. Their defaults differ from those of the schedules here, so that they are
 * answered with what to write. */
static const struct {
    const char *name, *write;
} classes[] = {{"steplr", "step:size=30,gamma=.1"},
               {"multisteplr", "multistep:milestones=30/60,gamma=.1"},
               {"exponentiallr", "exponential:gamma=.9"},
               {"cosineannealinglr", "cosine:epochs=90"},
               {"onecyclelr", "onecycle"},
               {"reducelronplateau", "plateau:factor=.1,patience=10"},
               {"constantlr", "constant"}};

static lk_status check_class(const spec *in)
{
    size_t length = strcspn(in->text, ":");
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strlen(classes[i].name) == length && strncasecmp(classes[i].name, in->text, length) == 0)
            return lk__fail(LK_STATUS_USAGE, "%s: PyTorch's %.*s is written here as in %s %s", in->option, (int)length,
                            in->text, in->option, classes[i].write);
    return LK_OK;
}

static const spec_word *find_word(const spec *in, const item *it)
{
    const char *key = it->key;
    size_t name = strcspn(in->text, ":");
    for (size_t i = 0; i < sizeof spec_words / sizeof *spec_words; i++) {
        const spec_word *word = &spec_words[i];
        bool named = !word->name || (strncmp(in->text, word->name, name) == 0 && !word->name[name]);
        bool valued = !word->value || strcmp(word->value, it->value) == 0;
        if (named && valued && strcmp(word->option, in->option) == 0 &&
            lk__options_same_name(key, word->key, strlen(key)))
            return word;
    }
    return NULL;
}

/* Writes an item with the name that it has here. "betas=.9/.99" are two. */
static void put_item(const spec_word *word, const item *it, lk_options_buffer *to)
{
    size_t first = strcspn(it->value, "/");
    if (word && word->value)
        lk__options_put(to, "%s", word->means);
    else if (word && word->second && it->value[first])
        lk__options_put(to, "%s=%.*s,%s=%s", word->means, (int)first, it->value, word->second, it->value + first + 1);
    else
        lk__options_put(to, "%s%s%s", word ? word->means : it->key, it->valued ? "=" : "", it->value);
}

/* Writes the spec with the names that its parameters have here; *changed: they differ from the text's. A number alone
 * continues the list before it: "milestones=30,60" becomes "milestones=30/60". */
static lk_status translate(const spec *in, char out[SPEC_BYTES], bool *changed)
{
    lk_options_buffer to = {.at = out, .bytes = SPEC_BYTES};
    const char *items = items_of(in->text);
    const spec_word *word = NULL, *before;
    double number;
    if (strlen(in->text) >= ITEM_BYTES)
        return fail_long(in);
    *changed = false;
    lk__options_put(&to, "%.*s%s", (int)strcspn(in->text, ":"), in->text, strchr(in->text, ':') ? ":" : "");
    for (const char *at = items; *at;) {
        item it;
        bool first = at == items;
        at = read_item(at, &it);
        before = word;
        word = find_word(in, &it);
        if (word && word->check)
            LK_TRY(word->check(in, &it));
        bool joined = !first && !it.valued && lk__number_parse_double(it.key, &number);
        if (joined && before && before->second)
            lk__options_put(&to, ",%s=", before->second);
        else if (!first)
            lk__options_put(&to, joined ? "/" : ",");
        put_item(word, &it, &to);
        *changed |= joined || word;
    }
    return LK_OK;
}

/* Writes the spec without the parameter `key`. */
static void leave_out(const char *text, const char *key, char out[SPEC_BYTES])
{
    lk_options_buffer to = {.at = out, .bytes = SPEC_BYTES};
    const char *sign = ":";
    lk__options_put(&to, "%.*s", (int)strcspn(text, ":"), text);
    for (const char *at = items_of(text); *at;) {
        item it;
        at = read_item(at, &it);
        if (lk__options_same_name(it.key, key, strlen(it.key)))
            continue;
        lk__options_put(&to, "%s%s%s%s", sign, it.key, it.valued ? "=" : "", it.value);
        sign = ",";
    }
}

/* Where an option comes from; NULL: the command line. */
static const char *origin(const lk_options_set *set, const lk_options_parsed *parsed, const lk_option *row)
{
    for (size_t i = 0; i < set->count; i++)
        if (parsed->given[i] && lk__options_same(&set->rows[i], row))
            return parsed->from[i];
    return NULL;
}

static bool same_number(const char *a, double b)
{
    double number;
    return lk__number_parse_double(a, &number) && number == b;
}

/* A learning rate inside the text of an option. */
typedef struct rate {
    const char *option, *key;
    const char **text;
    char *rest; /* (SPEC_BYTES) the text without it is written here */
} rate;

/* Takes the rate out of the text, as if it were --lr. */
static lk_status take_rate(const lk_options_set *set, lk_args *args, lk_options_parsed *parsed, const rate *of)
{
    const lk_option *lr = lk__options_find(set, "lr"), *option = lk__options_find(set, of->option);
    char name[64];
    item it;
    if (!lr || !option || !*of->text || !find_value(*of->text, of->key, &it))
        return LK_OK;
    snprintf(name, sizeof name, "`%s`", of->option);
    if (strlen(*of->text) >= ITEM_BYTES)
        return fail_long(&(spec){.option = name});
    bool given = lk__options_given(set, parsed, "lr");
    const char *mine = origin(set, parsed, option), *other = origin(set, parsed, lr);
    if (given && !mine == !other && !same_number(it.value, args->train.lr))
        return lk__fail(LK_STATUS_USAGE, "%s: %s=%s in %s and `lr` %g contradict each other; give one", set->command,
                        it.key, it.value, name, args->train.lr);
    /* The command line has precedence over a file. */
    if (!given || (other && !mine)) {
        LK_TRY(lk__options_set_value(set, lr, it.value, args));
        parsed->given[lr - set->rows] = true;
        parsed->from[lr - set->rows] = mine;
    }
    leave_out(*of->text, of->key, of->rest);
    *of->text = of->rest;
    return LK_OK;
}

lk_status lk__habits_take_lr(const lk_options_set *set, lk_args *args, lk_options_parsed *parsed)
{
    static const char cycle[] = "onecycle:";
    const char **schedule = &args->train.schedule;
    LK_TRY(take_rate(set, args, parsed, &(rate){"optimizer", "lr", &args->train.optimizer, rate_text}));
    if (!*schedule || strncmp(*schedule, cycle, sizeof cycle - 1) != 0)
        return LK_OK;
    return take_rate(set, args, parsed, &(rate){"schedule", "max-lr", schedule, schedule_rate_text});
}

/* The optimiser that has all parameters of the list "momentum=.9,weight_decay=1e-4"; NULL if there is none. */
static const char *find_rule(const char *list)
{
    const lk_optim_info *rule;
    for (size_t i = 0; (rule = lk_optimizer_list(i)); i++) {
        bool all = true;
        for (const char *at = list; *at && all;) {
            item it;
            at = read_item(at, &it);
            all = lk__optim_takes(rule->name, it.key);
        }
        if (all)
            return rule->name;
    }
    return NULL;
}

/* Whether the table has an optimiser of the spec's name. */
static bool is_rule(const char *text)
{
    const lk_optim_info *rule;
    size_t length = strcspn(text, ":");
    for (size_t i = 0; (rule = lk_optimizer_list(i)); i++)
        if (strncmp(rule->name, text, length) == 0 && !rule->name[length])
            return true;
    return false;
}

/* Refuses a parameter that the optimiser does not have, and names the first that has it. */
static lk_status fail_key(const lk_options_set *set, const lk_options_taken *taken, const char *key, const char *text)
{
    const char *items = items_of(text), *other = find_rule(items);
    item it;
    /* Nesterov's momentum is a kind of momentum, which must be above 0. */
    bool bare = find_value(text, "nesterov", &it) && !find_value(text, "momentum", &it);
    other = other ? other : find_rule(key);
    return lk__fail(LK_STATUS_USAGE, "%s: the optimiser %.*s has no %s for %s; write --optimizer %s:%s%s", set->command,
                    (int)strcspn(text, ":"), text, key, taken->row->word, other ? other : "NAME",
                    bare ? "momentum=.9," : "", items);
}

/* Adds the parameter of a foreign option to the text of --optimizer. */
static lk_status add_key(const lk_options_set *set, const lk_options_parsed *parsed, const lk_options_taken *taken,
                         char text[SPEC_BYTES])
{
    const char *key = strchr(taken->row->means, ':') + 1;
    const lk_option *option = lk__options_find(set, "optimizer");
    bool typed = lk__options_given(set, parsed, "optimizer") && !origin(set, parsed, option);
    char rest[SPEC_BYTES];
    double number = 1;
    item it;
    if (taken->value && (strlen(taken->value) >= LK_NUMBER_TEXT || !lk__number_parse_double(taken->value, &number)))
        return lk__fail(LK_STATUS_USAGE, "%s: %s '%s' must be a number", set->command, taken->row->word, taken->value);
    bool found = find_value(text, key, &it);
    if (found && (it.valued ? same_number(it.value, number) : number == 1))
        return LK_OK;
    if (found && typed)
        return lk__fail(LK_STATUS_USAGE, "%s: %s %s and `optimizer` %s contradict each other; give one", set->command,
                        taken->row->word, taken->value ? taken->value : "", text);
    leave_out(text, key, rest);
    lk_options_buffer to = {.at = text, .bytes = SPEC_BYTES};
    lk__options_put(&to, "%s%s%s", rest, strchr(rest, ':') ? "," : ":", key);
    lk__options_put(&to, "%s%s", taken->value ? "=" : "", taken->value ? taken->value : "");
    return LK_OK;
}

/* Adds the parameters of all foreign options to --optimizer. */
static lk_status add_keys(const lk_options_set *set, lk_args *args, const lk_options_parsed *parsed)
{
    const lk_options_taken *taken = parsed->foreign;
    assert(args->train.optimizer); /* a command with such words has --optimizer, and this has a default */
    snprintf(optimizer_text, sizeof optimizer_text, "%s", args->train.optimizer);
    for (size_t i = 0; i < parsed->foreign_count; i++)
        LK_TRY(add_key(set, parsed, &taken[i], optimizer_text));
    for (size_t i = 0; i < parsed->foreign_count; i++) {
        const char *key = strchr(taken[i].row->means, ':') + 1;
        if (is_rule(optimizer_text) && !lk__optim_takes(optimizer_text, key))
            return fail_key(set, &taken[i], key, optimizer_text);
    }
    args->train.optimizer = optimizer_text;
    return LK_OK;
}

lk_status lk__habits_complete(const lk_options_set *set, lk_args *args, const lk_options_parsed *parsed)
{
    lk_train_opts *train = &args->train;
    bool changed = false;
    /* Ranks of CPUs: auto finds shared memory or TCP, as gloo does. */
    if (args->backend && strcmp(args->backend, "gloo") == 0)
        args->backend = "auto";
    if (train->schedule)
        LK_TRY(check_class(&(spec){"`schedule`", train->schedule, args}));
    if (train->schedule)
        LK_TRY(translate(&(spec){"`schedule`", train->schedule, args}, schedule_text, &changed));
    if (changed)
        train->schedule = schedule_text;
    changed = false;
    if (train->optimizer)
        LK_TRY(translate(&(spec){"`optimizer`", train->optimizer, args}, words_text, &changed));
    if (changed)
        train->optimizer = words_text;
    return parsed->foreign_count ? add_keys(set, args, parsed) : LK_OK;
}
