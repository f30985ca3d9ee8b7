/* scaling.c - panels of throughput and speed-up against ranks and threads. Runs that differ in other options are
 * lines of their own, each with its own base of the speed-up; runs that are the only ones with their options have no
 * speed-up. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cli/plot/figure.h"

static const char *const axes[] = {"ranks", "threads", NULL};

/* A run, or several that are equal in all but the result. */
typedef struct cell {
    double ranks, threads, speed;
    size_t group; /* the first run with the same other options */
} cell;

typedef struct grid {
    const lk_record_runs *runs;
    size_t count;
    cell *cells;         /* by group, threads, ranks */
    bool ranks, threads; /* which of them differ */
} grid;

static int compare(double a, double b)
{
    return (a > b) - (a < b);
}

static int by_line(const void *a, const void *b)
{
    const cell *x = a, *y = b;
    int order = (x->group > y->group) - (x->group < y->group);
    order = order ? order : compare(x->threads, y->threads);
    return order ? order : compare(x->ranks, y->ranks);
}

/* Equal cells become one with the mean of their speeds. */
static void merge(grid *g)
{
    size_t kept = 0;
    for (size_t i = 0, next; i < g->count; i = next) {
        double sum = 0;
        for (next = i; next < g->count && by_line(&g->cells[i], &g->cells[next]) == 0; next++)
            sum += g->cells[next].speed;
        g->cells[kept] = g->cells[i];
        g->cells[kept++].speed = sum / (double)(next - i);
    }
    g->count = kept;
}

static lk_status read_cells(const lk_record_runs *runs, grid *g)
{
    for (size_t r = 0; r < runs->count; r++) {
        cell *c = &g->cells[g->count];
        lk_record_summary summary;
        LK_TRY(lk__record_summarise(runs->records[r], &summary));
        c->ranks = lk__record_number(runs->records[r], "ranks");
        c->threads = lk__record_number(runs->records[r], "threads");
        c->threads = isnan(c->threads) ? 1 : c->threads;
        c->speed = summary.img_per_s;
        for (c->group = 0; !lk__record_differences_same(runs->differences, c->group, r, axes);)
            c->group++;
        g->count += isfinite(c->ranks) && isfinite(c->speed);
    }
    for (size_t i = 1; i < g->count; i++) {
        g->ranks |= g->cells[i].ranks != g->cells[0].ranks;
        g->threads |= g->cells[i].threads != g->cells[0].threads;
    }
    qsort(g->cells, g->count, sizeof *g->cells, by_line);
    merge(g);
    return LK_OK;
}

/* With several numbers of ranks, each number of threads is a line. */
static bool same_line(const grid *g, const cell *a, const cell *b)
{
    return a->group == b->group && (!g->ranks || a->threads == b->threads);
}

static void write_label(const grid *g, const cell *c, char out[LK_PLOT_LABEL])
{
    bool threads = g->ranks && g->threads;
    char part[32] = "", others[LK_PLOT_LABEL - sizeof part];
    if (threads)
        snprintf(part, sizeof part, "%g thread%s", c->threads, c->threads == 1 ? "" : "s");
    lk__record_differences_label_without(g->runs->differences, c->group, axes, others, sizeof others);
    snprintf(out, LK_PLOT_LABEL, "%s%s%s", part, threads && *others ? ", " : "", others);
}

/* The cell of the group with the fewest ranks times threads. */
static const cell *find_base(const grid *g, const cell *of)
{
    const cell *best = of;
    for (size_t i = 0; i < g->count; i++) {
        const cell *c = &g->cells[i];
        if (c->group == of->group && c->ranks * c->threads < best->ranks * best->threads)
            best = c;
    }
    return best;
}

/* Whether no other cell has the same other options: there is nothing that it could be faster than. */
static bool is_alone(const grid *g, const cell *of)
{
    for (size_t i = 0; i < g->count; i++)
        if (&g->cells[i] != of && g->cells[i].group == of->group)
            return false;
    return true;
}

/* The base, if it has the same ranks and threads in all groups that have one; otherwise NULL. */
static const cell *find_common_base(const grid *g)
{
    const cell *common = NULL;
    for (size_t i = 0; i < g->count; i++) {
        const cell *base = find_base(g, &g->cells[i]);
        if (is_alone(g, base))
            continue;
        if (common && (common->ranks != base->ranks || common->threads != base->threads))
            return NULL;
        common = base;
    }
    return common;
}

typedef struct point {
    double x, y;
} point;

static double units(const grid *g, const cell *c)
{
    return g->ranks && g->threads ? c->ranks * c->threads : g->ranks ? c->ranks : c->threads;
}

static point throughput(const grid *g, const cell *c)
{
    return (point){g->ranks ? c->ranks : c->threads, c->speed};
}

static point speedup(const grid *g, const cell *c)
{
    return (point){units(g, c), is_alone(g, c) ? NAN : c->speed / find_base(g, c)->speed};
}

/* A line without a value is left out; the others keep their colours. */
static lk_status add_lines(const grid *g, point (*of)(const grid *, const cell *), lk_plot_panel *panel)
{
    double *points;
    lk_status status = LK_OK;
    LK_TRY(LK_ALLOC(2 * g->count, "points of a curve", &points));
    for (size_t i = 0, next, line = 0; status == LK_OK && i < g->count; i = next, line++) {
        bool any = false;
        for (next = i; next < g->count && same_line(g, &g->cells[i], &g->cells[next]); next++) {
            point p = of(g, &g->cells[next]);
            points[next - i] = p.x;
            points[g->count + next - i] = p.y;
            any |= isfinite(p.y) != 0;
        }
        if (!any)
            continue;
        status =
            lk__plot_add_series(panel, LK_PLOT_STYLE_SCALE, g->runs->count + line, points, points + g->count, next - i);
        if (status == LK_OK)
            write_label(g, &g->cells[i], panel->series[panel->count - 1].label);
    }
    lk__mem_free(points);
    return status;
}

/* The line of a speed-up that loses nothing: from the base to the largest cell. */
static lk_status add_ideal(const grid *g, const cell *base, lk_plot_panel *panel)
{
    lk_plot_range x, y;
    double start = units(g, base);
    lk__plot_find_range(panel, LK_PLOT_STYLE_SCALE, &x, &y);
    if (!(x.min < x.max) || !(start > 0))
        return LK_OK;
    double ends[] = {x.min, x.max}, ideal[] = {x.min / start, x.max / start};
    LK_TRY(lk__plot_add_series(panel, LK_PLOT_STYLE_IDEAL, 0, ends, ideal, 2));
    snprintf(panel->series[panel->count - 1].label, LK_PLOT_LABEL, "ideal");
    return LK_OK;
}

/* Speeds of very different models are shown on a logarithmic axis, as losses are; the others begin at 0. */
static bool are_near(const lk_plot_panel *panel)
{
    lk_plot_range x, y;
    lk__plot_find_range(panel, LK_PLOT_STYLE_SCALE, &x, &y);
    return !(y.min > 0) || y.max / y.min <= LK_PLOT_LOG_RATIO;
}

static lk_status add_throughput(const grid *g, lk_plot_figure *figure)
{
    lk_plot_panel panel = {.title = "Throughput", .y_label = "images a second", .whole_x = true};
    snprintf(panel.x_label, sizeof panel.x_label, "%s", g->ranks ? "ranks" : "threads");
    lk_status status = add_lines(g, throughput, &panel);
    panel.from_zero = are_near(&panel);
    if (status == LK_OK)
        lk__plot_finish_panel(figure, &panel);
    lk__plot_panel_fini(&panel);
    return status;
}

static lk_status add_speedup(const grid *g, lk_plot_figure *figure)
{
    lk_plot_panel panel = {.y_label = "times faster", .whole_x = true, .from_zero = true};
    const cell *base = find_common_base(g);
    const char *x = g->ranks && g->threads ? "ranks x threads" : g->ranks ? "ranks" : "threads";
    snprintf(panel.x_label, sizeof panel.x_label, "%s", x);
    if (base)
        snprintf(panel.title, sizeof panel.title, "Speed-up over %g rank%s, %g thread%s", base->ranks,
                 base->ranks == 1 ? "" : "s", base->threads, base->threads == 1 ? "" : "s");
    else
        snprintf(panel.title, sizeof panel.title, "Speed-up over the smallest run with the same options");
    lk_status status = add_lines(g, speedup, &panel);
    if (status == LK_OK && base)
        status = add_ideal(g, base, &panel);
    if (status == LK_OK)
        lk__plot_finish_panel(figure, &panel);
    lk__plot_panel_fini(&panel);
    return status;
}

lk_status lk__plot_scaling(const lk_record_runs *runs, lk_plot_figure *figure)
{
    grid g = {.runs = runs};
    LK_TRY(LK_ALLOC(runs->count, "speeds of runs", &g.cells));
    lk_status status = read_cells(runs, &g);
    if (status == LK_OK && (g.ranks || g.threads))
        status = add_throughput(&g, figure);
    if (status == LK_OK && (g.ranks || g.threads))
        status = add_speedup(&g, figure);
    lk__mem_free(g.cells);
    return status;
}
