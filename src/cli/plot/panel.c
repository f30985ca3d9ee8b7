/* panel.c - one panel under construction: its series and the ranges of its axes. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cli/plot/figure.h"

lk_status lk__plot_add_series(lk_plot_panel *panel, lk_plot_style style, size_t index, const double *x, const double *y,
                              size_t count)
{
    if (panel->count == panel->room) {
        size_t room = panel->room ? 2 * panel->room : 8;
        lk_plot_series *series;
        LK_TRY(LK_ALLOC(room, "curves", &series));
        if (panel->count)
            memcpy(series, panel->series, panel->count * sizeof *series);
        lk__mem_free(panel->series);
        panel->series = series;
        panel->room = room;
    }
    lk_plot_series s = {.style = style, .index = index, .count = count};
    LK_TRY(LK_ALLOC(2 * count, "points of a curve", &s.x));
    s.y = s.x + count;
    if (count) {
        memcpy(s.x, x, count * sizeof *x);
        memcpy(s.y, y, count * sizeof *y);
    }
    panel->series[panel->count++] = s;
    return LK_OK;
}

void lk__plot_panel_fini(lk_plot_panel *panel)
{
    for (size_t i = 0; i < panel->count; i++)
        lk__mem_free(panel->series[i].x);
    lk__mem_free(panel->series);
    *panel = (lk_plot_panel){0};
}

static void extend(lk_plot_range *range, double value)
{
    if (!isfinite(value))
        return;
    range->min = value < range->min ? value : range->min;
    range->max = value > range->max ? value : range->max;
}

static bool is_curve_of(const lk_plot_series *s, lk_plot_style style)
{
    return style == LK_PLOT_STYLE_COUNT || s->style == style;
}

void lk__plot_find_range(const lk_plot_panel *panel, lk_plot_style style, lk_plot_range *x, lk_plot_range *y)
{
    *x = *y = (lk_plot_range){INFINITY, -INFINITY};
    for (size_t i = 0; i < panel->count; i++)
        for (size_t k = 0; is_curve_of(&panel->series[i], style) && k < panel->series[i].count; k++) {
            if (!isfinite(panel->series[i].y[k]))
                continue;
            extend(x, panel->series[i].x[k]);
            extend(y, panel->series[i].y[k]);
        }
}

/* gnuplot takes ends that are almost equal for an empty range. */
static lk_plot_range widen(lk_plot_range r, double part)
{
    double by = (r.max - r.min) * part;
    if (!(by > 1e-6 * fabs(r.max)))
        by = r.max != 0 ? fabs(r.max) * .05 : 1;
    return (lk_plot_range){r.min - by, r.max + by};
}

/* Points of the longest series of tests. */
static size_t most_tests(const lk_plot_panel *panel)
{
    size_t most = 0;
    for (size_t i = 0; i < panel->count; i++)
        if (panel->series[i].style == LK_PLOT_STYLE_TEST)
            most = lk__size_max(most, panel->series[i].count);
    return most;
}

/* The axis begins somewhat below the lowest of several tests: the first training steps would press all tests
 * together. */
static lk_plot_range accuracy_range(const lk_plot_panel *panel, lk_plot_range all)
{
    lk_plot_range x, tests;
    lk__plot_find_range(panel, LK_PLOT_STYLE_TEST, &x, &tests);
    double low = tests.min <= tests.max && most_tests(panel) > 2 ? tests.min - .5 * (100 - tests.min) : all.min;
    low = low < all.min ? all.min : low;
    lk_plot_range r = {low > 0 ? low : 0, all.max < 100 ? all.max : 100};
    r = widen(r, .04);
    r.min = r.min < 0 ? 0 : r.min;
    return r;
}

static lk_plot_range log_range(lk_plot_range r)
{
    double by = pow(r.max / r.min, .04);
    return (lk_plot_range){r.min / by, r.max * by};
}

void lk__plot_finish_panel(lk_plot_figure *figure, lk_plot_panel *panel)
{
    lk_plot_range x, y;
    lk__plot_find_range(panel, LK_PLOT_STYLE_COUNT, &x, &y);
    if (x.min > x.max) {
        lk__plot_panel_fini(panel);
        return;
    }
    bool percent = strchr(panel->y_label, '%') != NULL;
    panel->log_y = !percent && !panel->from_zero && y.min > 0 && y.max / y.min > LK_PLOT_LOG_RATIO;
    if (!panel->whole_x && x.min > 0 && x.min < .1 * x.max)
        x.min = 0;
    panel->x =
        panel->whole_x || !(x.min < x.max) ? widen(x, .06) : (lk_plot_range){x.min, x.max + .01 * (x.max - x.min)};
    panel->y = percent ? accuracy_range(panel, y) : panel->log_y ? log_range(y) : widen(y, .05);
    if (panel->from_zero)
        panel->y.min = 0;
    for (size_t i = 0; i < panel->count; i++)
        figure->has[panel->series[i].style] = true;
    figure->panels[figure->panel_count++] = *panel;
    *panel = (lk_plot_panel){0};
}
