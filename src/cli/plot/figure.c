/* figure.c - panels of loss and accuracy. */
#include "cli/plot/figure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

/* Points of a curve. Rows of training are single batches: without means of several rows, their noise would hide where
 * the curve goes. Curves of a crowd of runs have fewer points, so that files stay small, and training curves of a crowd
 * that is tested are left out, because they would hide the tests. */
enum { TRAIN_POINTS = 25, TEST_POINTS = 240, ALL_POINTS = 600, FEWEST = 10, CROWD = 12 };

const char *const lk__plot_colors[LK_PLOT_COLORS] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                     "#E69F00", "#56B4E9", "#444444", "#B8A800"};

/* What a panel of curves shows. */
typedef struct curves {
    lk_record_column x, y;
    const char *title, *x_label, *y_label;
} curves;

static const curves kinds[] = {
    {LK_RECORD_COLUMN_EPOCH, LK_RECORD_COLUMN_LOSS, "Loss", "epochs", "loss"},
    {LK_RECORD_COLUMN_SECONDS, LK_RECORD_COLUMN_LOSS, "Loss over time", NULL, "loss"},
    {LK_RECORD_COLUMN_EPOCH, LK_RECORD_COLUMN_TOP1, "Accuracy", "epochs", "correct (%)"},
    {LK_RECORD_COLUMN_SECONDS, LK_RECORD_COLUMN_TOP1, "Accuracy over time", NULL, "correct (%)"},
};

/* A point of a thinned curve is the mean of `each` rows; rows without a finite value do not count. */
static size_t thin(double *x, double *y, size_t count, size_t most)
{
    size_t each = (count + most - 1) / (most ? most : 1), kept = 0;
    for (size_t i = 0; each > 1 && i < count; i += each) {
        double sum_x = 0, sum_y = 0;
        size_t rows = 0, finite = 0;
        for (; rows < each && i + rows < count; rows++) {
            sum_x += x[i + rows];
            finite += isfinite(y[i + rows]) != 0;
            sum_y += isfinite(y[i + rows]) ? y[i + rows] : 0;
        }
        x[kept] = sum_x / (double)rows;
        y[kept++] = finite ? sum_y / (double)finite : NAN;
    }
    return each > 1 ? kept : count;
}

static lk_status add_curve(const lk_record_table *table, const curves *what, lk_plot_style style, size_t run,
                           size_t most, lk_plot_panel *panel)
{
    const double *x = table->column[what->x], *y = table->column[what->y];
    double *points;
    size_t count = 0;
    if (!x || !y)
        return LK_OK;
    LK_TRY(LK_ALLOC(2 * table->count, "points of a curve", &points));
    for (size_t i = 0; i < table->count; i++)
        if (isfinite(x[i]) && (table->mask[i] >> what->y & 1)) {
            points[count] = x[i];
            points[table->count + count++] = y[i];
        }
    double *values = points + table->count;
    count = thin(points, values, count, most);
    lk_status status = count ? lk__plot_add_series(panel, style, run, points, values, count) : LK_OK;
    lk__mem_free(points);
    return status;
}

static size_t most_points(lk_plot_style style, size_t runs)
{
    size_t most = style == LK_PLOT_STYLE_TRAIN ? TRAIN_POINTS : TEST_POINTS;
    return lk__size_max(FEWEST, lk__size_min(most, ALL_POINTS / runs));
}

static lk_status add_curves(const lk_record_runs *runs, const curves *what, lk_plot_panel *panel)
{
    static const struct {
        lk_record_kind kind;
        lk_plot_style style;
    } order[] = {{LK_RECORD_KIND_TRAIN, LK_PLOT_STYLE_TRAIN},
                 {LK_RECORD_KIND_VAL, LK_PLOT_STYLE_VAL},
                 {LK_RECORD_KIND_TEST, LK_PLOT_STYLE_TEST}};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (size_t r = 0; r < runs->count; r++) {
            bool tested = lk__record_table(runs->records[r], LK_RECORD_KIND_TEST)->count > 0;
            if (runs->count > CROWD && tested && order[k].style == LK_PLOT_STYLE_TRAIN)
                continue;
            LK_TRY(add_curve(lk__record_table(runs->records[r], order[k].kind), what, order[k].style, r,
                             most_points(order[k].style, runs->count), panel));
        }
    return LK_OK;
}

/* Whether all runs have the same points, which the law promises for runs that differ only in how work is divided. */
static bool all_same(const lk_plot_panel *panel, size_t runs)
{
    size_t firsts = 0;
    for (size_t i = 0; i < panel->count; i++) {
        const lk_plot_series *s = &panel->series[i], *first = panel->series;
        while (first->style != s->style)
            first++;
        firsts += first == s;
        if (s->count != first->count || memcmp(s->x, first->x, s->count * sizeof *s->x) != 0 ||
            memcmp(s->y, first->y, s->count * sizeof *s->y) != 0)
            return false;
    }
    return runs > 1 && panel->count == firsts * runs;
}

/* Equal tests lie on top of each other: lines that are drawn later are thinner, so that all are seen, as stripes. */
static void show_stripes(lk_plot_panel *panel, size_t runs)
{
    for (size_t i = 0; i < panel->count; i++)
        if (panel->series[i].style == LK_PLOT_STYLE_TEST)
            panel->series[i].extra = (double)(runs - 1 - panel->series[i].index) * (runs > 4 ? 9. / (double)runs : 2.4);
}

/* Shows long times in minutes or hours. */
static void scale_time(lk_plot_panel *panel)
{
    lk_plot_range x, y;
    lk__plot_find_range(panel, LK_PLOT_STYLE_COUNT, &x, &y);
    double unit = x.max > 2 * 3600 ? 3600 : x.max > 180 ? 60 : 1;
    snprintf(panel->x_label, sizeof panel->x_label, "%s", unit > 60 ? "hours" : unit > 1 ? "minutes" : "seconds");
    for (size_t i = 0; i < panel->count; i++)
        for (size_t k = 0; k < panel->series[i].count; k++)
            panel->series[i].x[k] /= unit;
}

static lk_status add_panel(const lk_record_runs *runs, const curves *what, lk_plot_figure *figure)
{
    lk_plot_panel panel = {0};
    lk_status status = add_curves(runs, what, &panel);
    if (status != LK_OK) {
        lk__plot_panel_fini(&panel);
        return status;
    }
    bool same = what->x == LK_RECORD_COLUMN_EPOCH && all_same(&panel, runs->count);
    int used = snprintf(panel.title, sizeof panel.title, "%s", what->title);
    if (same) {
        snprintf(panel.title + used, sizeof panel.title - (size_t)used, " (equal in all %zu runs)", runs->count);
        show_stripes(&panel, runs->count);
    }
    snprintf(panel.y_label, sizeof panel.y_label, "%s", what->y_label);
    if (what->x_label)
        snprintf(panel.x_label, sizeof panel.x_label, "%s", what->x_label);
    else
        scale_time(&panel);
    lk__plot_finish_panel(figure, &panel);
    return LK_OK;
}

/* A text of run.json that is equal in all runs; "" otherwise. */
static const char *common_text(const lk_record_runs *runs, const char *key)
{
    const char *first = runs->count ? lk__record_text(runs->records[0], key) : "";
    for (size_t r = 1; r < runs->count; r++)
        if (strcmp(first, lk__record_text(runs->records[r], key)) != 0)
            return "";
    return first;
}

static void write_title(const lk_record_runs *runs, lk_plot_figure *figure)
{
    const char *model = common_text(runs, "model"), *data = common_text(runs, "data");
    snprintf(figure->title, sizeof figure->title, "%.64s%s%.64s%s%zu run%s", model, *model && *data ? " on " : "", data,
             *model || *data ? ", " : "", runs->count, runs->count == 1 ? "" : "s");
    lk__text_clean(figure->title, LK_TEXT_KIND_LINE);
}

/* Runs whose labels are equal, because what distinguishes them was cut off, are called by their names. */
static void use_names(const lk_record_runs *runs, size_t run, lk_plot_figure *figure)
{
    char label[LK_PLOT_LABEL];
    size_t equal = 0;
    snprintf(label, sizeof label, "%s", figure->labels[run]);
    for (size_t r = run; r < runs->count; r++)
        equal += strcmp(figure->labels[r], label) == 0;
    for (size_t r = run; equal > 1 && r < runs->count; r++)
        if (strcmp(figure->labels[r], label) == 0)
            snprintf(figure->labels[r], LK_PLOT_LABEL, "%s", runs->differences->titles[r]);
}

static void write_labels(const lk_record_runs *runs, lk_plot_figure *figure)
{
    for (size_t r = 0; r < runs->count; r++)
        lk__record_differences_label(runs->differences, r, figure->labels[r], LK_PLOT_LABEL);
    for (size_t r = 0; r < runs->count; r++)
        use_names(runs, r, figure);
}

static lk_status fill(const lk_record_runs *runs, lk_plot_figure *figure)
{
    figure->runs = runs->count;
    LK_TRY(LK_ALLOC(runs->count, "labels of runs", &figure->labels));
    write_labels(runs, figure);
    write_title(runs, figure);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        LK_TRY(add_panel(runs, &kinds[k], figure));
    return lk__plot_scaling(runs, figure);
}

lk_status lk__plot_figure_create(const lk_record_runs *runs, lk_plot_figure **out)
{
    lk_plot_figure *figure;
    LK_TRY(LK_ALLOC(1, "figure", &figure));
    lk_status status = fill(runs, figure);
    if (status == LK_OK)
        *out = figure;
    else
        lk__plot_figure_destroy(figure);
    return status;
}

void lk__plot_figure_destroy(lk_plot_figure *figure)
{
    if (!figure)
        return;
    for (size_t i = 0; i < figure->panel_count; i++)
        lk__plot_panel_fini(&figure->panels[i]);
    lk__mem_free(figure->labels);
    lk__mem_free(figure);
}
