/* partition.c - finding legal cuts of a graph and the best of them, and messages about illegal ones.
 *
 * "Cut a" is the cut directly before layer a, 1 < a < count. */
#include "parallel/layout/partition.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/spec.h"
#include "base/status.h"
#include "nn/op.h"

enum { TEXT_BYTES = LK_LAYER_TEXT };

/* Convolutions and linear layers: each weight is used once for each pixel of the output. */
static bool multiplies(const lk_layer *layer)
{
    return layer->param_count > 0 && layer->params[0].ndim >= 2;
}

static bool has_parameters_before(const lk_graph *graph, int index)
{
    int i = 0;
    while (i < index && graph->layers[i].param_count == 0)
        i++;
    return i < index;
}

/* The cost of forward and backward for one sample: FLOPs of convolutions and linear layers, else one
 * operation for each element read. The first layer with parameters computes no input gradient. */
static double layer_cost(const lk_graph *graph, const lk_layer *layer)
{
    double passes = has_parameters_before(graph, layer->index) ? 3 : 2;
    if (multiplies(layer))
        return passes * 2 * (double)lk__op_slot_count(&layer->params[0]) * (double)(layer->shape.h * layer->shape.w);
    double elements = 0;
    for (int i = 0; i < layer->input_count; i++)
        elements += (double)lk__shape_sample(lk__op_input_shape(graph, layer, i));
    return 2 * elements;
}

/* Finds an edge, other than from layer a-1, that crosses cut a. Returns the layer that reads, and in *from
 * the layer that is read; NULL if there is no such edge. */
static const lk_layer *find_crossing(const lk_graph *graph, int a, int *from)
{
    for (int j = a; j < graph->count; j++) {
        const lk_layer *layer = &graph->layers[j];
        for (int i = 0; i < layer->input_count; i++) {
            if (layer->inputs[i] >= a - 1)
                continue;
            *from = layer->inputs[i];
            return layer;
        }
    }
    return NULL;
}

static bool is_legal(const lk_graph *graph, int a)
{
    int from;
    return a > 1 && a < graph->count && find_crossing(graph, a, &from) == NULL;
}

/* A clean cut has parameters on both sides and does not separate a layer from its ReLU, pooling or
 * BatchNorm. */
static bool is_clean(const lk_graph *graph, int a)
{
    const lk_layer *layer = &graph->layers[a];
    bool follows = layer->input_count > 0 && multiplies(&graph->layers[layer->inputs[0]]);
    return layer->param_count > 0 && (multiplies(layer) || !follows) && has_parameters_before(graph, a);
}

/* The quality of a partition: first the number of cuts that are not clean, then the cost of the most
 * expensive stage. Less is better. */
typedef struct grade {
    int unclean;
    double most;
} grade;

static bool is_better(grade a, grade b)
{
    return a.unclean != b.unclean ? a.unclean < b.unclean : a.most < b.most;
}

static const grade impossible = {LK_MAX_STAGES, DBL_MAX};

typedef struct search {
    const lk_graph *graph;
    int stages;
    int points; /* layers at which a stage may begin, layer 1 included, and the end of the graph */
    int *at;    /* (points) the layer */
    bool *clean;
    double *before; /* (points) cost of all layers before it */
    grade *best;    /* (stages + 1, points) the best grade of cutting the layers from a point into so many stages */
} search;

static grade *best_of(const search *s, int stages, int point)
{
    return &s->best[stages * s->points + point];
}

/* The grade of a stage between two points, with the best stages after it. */
static grade extend(const search *s, int stages, int from, int to)
{
    grade rest = *best_of(s, stages - 1, to);
    double cost = s->before[to] - s->before[from];
    if (rest.unclean == impossible.unclean)
        return rest;
    rest.unclean += to < s->points - 1 && !s->clean[to];
    rest.most = cost > rest.most ? cost : rest.most;
    return rest;
}

static void grade_all(search *s)
{
    for (int k = 0; k <= s->stages; k++)
        for (int p = s->points - 1; p >= 0; p--) {
            grade *best = best_of(s, k, p);
            *best = impossible;
            if (k == 0 && p == s->points - 1)
                *best = (grade){0, 0};
            for (int to = p + 1; k > 0 && to < s->points; to++) {
                grade next = extend(s, k, p, to);
                if (is_better(next, *best))
                    *best = next;
            }
        }
}

/* Of the best partitions, chooses the one with the earliest cuts. */
static void choose(const search *s, int *first)
{
    grade left = *best_of(s, s->stages, 0);
    int p = 0;
    first[0] = s->at[0];
    for (int k = s->stages; k > 0; k--) {
        int to = p + 1;
        while (is_better(left, extend(s, k, p, to)))
            to++;
        left.unclean -= to < s->points - 1 && !s->clean[to];
        p = to;
        first[s->stages - k + 1] = s->at[p];
    }
}

static void find_points(search *s)
{
    double cost = 0;
    for (int a = 1; a <= s->graph->count; a++) {
        if (a == 1 || a == s->graph->count || is_legal(s->graph, a)) {
            s->at[s->points] = a;
            s->clean[s->points] = a < s->graph->count && is_clean(s->graph, a);
            s->before[s->points++] = cost;
        }
        if (a < s->graph->count)
            cost += layer_cost(s->graph, &s->graph->layers[a]);
    }
}

static lk_status run_search(search *s, int *first)
{
    size_t room = (size_t)s->graph->count + 1;
    LK_TRY(LK_ALLOC(room, "cuts of a model", &s->at));
    LK_TRY(LK_ALLOC(room, "cuts of a model", &s->clean));
    LK_TRY(LK_ALLOC(room, "cuts of a model", &s->before));
    find_points(s);
    if (s->stages > s->points - 1)
        return lk__fail(LK_STATUS_USAGE,
                        "`stages` %d: this model can be cut into at most %d stages, since one tensor must cross each "
                        "cut; give a smaller number",
                        s->stages, s->points - 1);
    LK_TRY(LK_ALLOC((size_t)(s->stages + 1) * (size_t)s->points, "ways to cut a model", &s->best));
    grade_all(s);
    choose(s, first);
    return LK_OK;
}

static lk_status cut_evenly(const lk_graph *graph, int stages, int *first)
{
    search s = {.graph = graph, .stages = stages};
    lk_status status = run_search(&s, first);
    lk__mem_free(s.best);
    lk__mem_free(s.before);
    lk__mem_free(s.clean);
    lk__mem_free(s.at);
    return status;
}

/* The name of a layer: that of its builder, else that of lk_name; "" if it has none. */
static const char *name_of(const lk_layer *layer)
{
    return layer->name[0] ? layer->name : layer->alias;
}

const char *lk__partition_layer_text(const lk_graph *graph, int index, char text[LK_LAYER_TEXT])
{
    const lk_layer *layer = &graph->layers[index];
    int named = index;
    while (named > 0 && name_of(&graph->layers[named])[0] == '\0')
        named--;
    if (named == index)
        snprintf(text, TEXT_BYTES, "%s", index > 0 ? name_of(layer) : layer->op->name);
    else
        snprintf(text, TEXT_BYTES, "%s after %s", layer->op->name,
                 named > 0 ? name_of(&graph->layers[named]) : "the input");
    return text;
}

/* The nearest clean cuts before and after cut a, as "'x' or 'y'"; "" if there is none. */
static const char *near_text(const lk_graph *graph, int a, char text[2 * TEXT_BYTES])
{
    const char *found[2];
    int count = 0;
    for (int step = -1; step <= 1; step += 2) {
        int b = a + step;
        while (b > 1 && b < graph->count && !(is_legal(graph, b) && is_clean(graph, b)))
            b += step;
        if (b > 1 && b < graph->count)
            found[count++] = name_of(&graph->layers[b]);
    }
    text[0] = '\0';
    if (count > 0)
        snprintf(text, 2 * TEXT_BYTES, "'%s'%s%s%s", found[0], count > 1 ? " or '" : "", count > 1 ? found[1] : "",
                 count > 1 ? "'" : "");
    return text;
}

static lk_status check_legal(const lk_graph *graph, const char *word, int a)
{
    char near[2 * TEXT_BYTES], reader[TEXT_BYTES], source[TEXT_BYTES], text[2 * TEXT_BYTES + 32] = "";
    int from = 0;
    if (a == 1)
        return lk__fail(LK_STATUS_USAGE,
                        "`stages`: '%s' is the model's first layer and begins stage 0 anyway; name the layers at "
                        "which stages 1, 2 ... begin",
                        word);
    const lk_layer *crossing = find_crossing(graph, a, &from);
    if (crossing == NULL)
        return LK_OK;
    if (near_text(graph, a, near)[0])
        snprintf(text, sizeof text, "; the nearest that it can begin at: %s", near);
    return lk__fail(LK_STATUS_USAGE,
                    "`stages`: no stage can begin at '%s': the connection from %s to %s would cross the cut%s", word,
                    lk__partition_layer_text(graph, from, source),
                    lk__partition_layer_text(graph, crossing->index, reader), text);
}

/* The valid names for a message, cut to as many dots as the user's word has. */
typedef struct name_list {
    size_t count;
    char (*at)[LK_MAX_NAME];
    char last[LK_MAX_NAME]; /* the name of the previous layer, cut in the same way */
} name_list;

static const char *name_at(const void *arg, size_t index)
{
    const name_list *list = arg;
    return index < list->count ? list->at[index] : NULL;
}

static void add_name(name_list *list, const lk_graph *graph, int layer, size_t dots)
{
    const char *name = name_of(&graph->layers[layer]);
    size_t length = 0;
    while (name[length] != '\0' && (name[length] != '.' || dots-- > 0))
        length++;
    char *mine = list->at[list->count];
    memcpy(mine, name, length);
    mine[length] = '\0';
    bool first = length > 0 && strcmp(mine, list->last) != 0;
    if (first)
        memcpy(list->last, mine, length + 1);
    list->count += first && is_legal(graph, layer);
}

static lk_status fail_unknown(const lk_graph *graph, const char *word)
{
    name_list list = {0};
    size_t dots = 0, index;
    for (const char *at = word; *at != '\0'; at++)
        dots += *at == '.';
    LK_TRY(LK_ALLOC((size_t)graph->count, "names of layers", &list.at));
    for (int i = 1; i < graph->count; i++)
        add_name(&list, graph, i, dots);
    const lk_names names = {
        .what = "`stages`", .kind = "layer", .next = name_at, .arg = &list, .list = "a stage can begin at"};
    lk_status status = list.count > 0
                           ? lk__names_find(&names, word, &index)
                           : lk__fail(LK_STATUS_USAGE, "`stages`: no layer '%s', and this model cannot be cut", word);
    lk__mem_free(list.at);
    return status;
}

/* The layer of this name; 0 if there is none. */
static int find_named(const lk_graph *graph, const char *word)
{
    int i = 1;
    while (i < graph->count && !lk__layer_is_named(&graph->layers[i], word))
        i++;
    return i < graph->count ? i : 0;
}

/* The layer of this name, else the first layer whose name begins with "word.". */
static lk_status find_layer(const lk_graph *graph, const char *word, int *out)
{
    size_t length = strlen(word);
    int found = find_named(graph, word);
    for (int i = 1; i < graph->count && length > 0 && !found; i++) {
        const char *name = name_of(&graph->layers[i]);
        if (strncmp(name, word, length) == 0 && name[length] == '.')
            found = i;
    }
    if (!found)
        return fail_unknown(graph, word);
    *out = found;
    return LK_OK;
}

/* The values that a user can name, for a message. */
typedef struct value_list {
    const lk_graph *graph;
    char (*at)[TEXT_BYTES];
} value_list;

static const char *value_at(const void *arg, size_t index)
{
    const value_list *list = arg;
    int layer = (int)index + 1;
    if (layer >= list->graph->count || list->graph->layers[layer].op->is_loss)
        return NULL;
    return lk__partition_layer_text(list->graph, layer, list->at[index]);
}

lk_status lk__partition_find_value(const lk_graph *graph, const char *word, const char *what, int *out)
{
    value_list list = {.graph = graph};
    size_t index;
    int named = find_named(graph, word);
    if (named > 0 && !graph->layers[named].op->is_loss) {
        *out = named;
        return LK_OK;
    }
    LK_TRY(LK_ALLOC((size_t)graph->count, "names of layers", &list.at));
    const lk_names names = {.what = what, .kind = "node", .next = value_at, .arg = &list, .list = "nodes"};
    lk_status status = lk__names_find(&names, word, &index);
    for (size_t i = index + 1; status == LK_OK && value_at(&list, i); i++)
        if (strcmp(list.at[i], word) == 0)
            status = lk__fail(LK_STATUS_USAGE, "%s: '%s' is layer %zu and also layer %zu; give one a name by lk_name",
                              what, word, index + 1, i + 1);
    lk__mem_free(list.at);
    if (status == LK_OK)
        *out = (int)index + 1;
    return status;
}

static lk_status check_order(const lk_graph *graph, const char *word, int a, int stage, int before)
{
    char text[TEXT_BYTES];
    if (a == before)
        return lk__fail(LK_STATUS_USAGE, "`stages`: '%s' is where stage %d begins already; name each layer once", word,
                        stage - 1);
    if (a < before)
        return lk__fail(LK_STATUS_USAGE,
                        "`stages`: '%s' comes before '%s' in the model; name the layers in the model's order", word,
                        lk__partition_layer_text(graph, before, text));
    return LK_OK;
}

static lk_status cut_at_names(const lk_graph *graph, const char *spec, int *stages, int *first)
{
    int count = 1;
    first[0] = 1;
    for (const char *at = spec; at != NULL; count++) {
        const char *comma = strchr(at, ',');
        size_t length = comma ? (size_t)(comma - at) : strlen(at);
        char word[LK_MAX_NAME];
        int a = 0;
        if (length == 0 || length >= sizeof word)
            return lk__fail(LK_STATUS_USAGE,
                            "`stages` '%.200s' is neither a number nor names of layers with commas between them", spec);
        if (count == LK_MAX_STAGES)
            return lk__fail(LK_STATUS_USAGE, "`stages` names more than %d stages", LK_MAX_STAGES);
        memcpy(word, at, length);
        word[length] = '\0';
        LK_TRY(find_layer(graph, word, &a));
        if (count > 1)
            LK_TRY(check_order(graph, word, a, count, first[count - 1]));
        LK_TRY(check_legal(graph, word, a));
        first[count] = a;
        at = comma ? comma + 1 : NULL;
    }
    first[count] = graph->count;
    *stages = count;
    return LK_OK;
}

/* Whether spec is a number, not names. */
static bool is_number(const char *spec, long long *out)
{
    return lk__number_parse_int(spec, INT64_MIN, INT64_MAX, out);
}

int lk__partition_count(const char *spec)
{
    long long number = 0;
    int names = 1;
    if (spec == NULL)
        return 1;
    if (is_number(spec, &number))
        return number >= 1 && number <= LK_MAX_STAGES ? (int)number : 0;
    for (const char *at = spec; *at != '\0'; at++) {
        if (*at == ',' && (at == spec || at[1] == ',' || at[1] == '\0'))
            return 0;
        names += *at == ',';
    }
    return *spec != '\0' && names < LK_MAX_STAGES ? names + 1 : 0;
}

lk_status lk__partition(const lk_graph *graph, const char *spec, int *stages, int first[LK_MAX_STAGES + 1])
{
    int cuts[LK_MAX_STAGES + 1], count = 0;
    long long number = 0;
    if (!is_number(spec, &number)) {
        LK_TRY(cut_at_names(graph, spec, &count, cuts));
    } else if (number < 1 || number > LK_MAX_STAGES) {
        return lk__fail(LK_STATUS_USAGE, "`stages` %lld: there can be 1 to %d stages", number, LK_MAX_STAGES);
    } else {
        count = (int)number;
        LK_TRY(cut_evenly(graph, count, cuts));
    }
    memcpy(first, cuts, ((size_t)count + 1) * sizeof *first);
    *stages = count;
    return LK_OK;
}
