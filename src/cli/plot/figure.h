/* figure.h - the curves of runs as numbers: panels, series, ranges and ticks. gnuplot.c and svg.c draw them.
 *
 * Panels: loss and accuracy against epochs and against time; where runs differ in their number of ranks or threads,
 * also throughput and speed-up. A panel without a point is left out. A colour means the same thing in all panels: that
 * of a line of throughput and speed-up, which several runs make, is no colour of a run while there are enough. */
#ifndef LK_CLI_PLOT_FIGURE_H
#define LK_CLI_PLOT_FIGURE_H

#include <stdbool.h>
#include <stddef.h>

#include "record/runs.h"

enum { LK_PLOT_PANELS = 6, LK_PLOT_COLORS = 8, LK_PLOT_LABEL = 136, LK_PLOT_TICKS = 16 };
/* Values that are further apart than this have a logarithmic axis. */
enum { LK_PLOT_LOG_RATIO = 30 };

/* Colours that colour-blind people can tell apart (Okabe and Ito), as "#0072B2". */
extern const char *const lk__plot_colors[LK_PLOT_COLORS];

typedef enum lk_plot_style {
    LK_PLOT_STYLE_TRAIN, /* thin line */
    LK_PLOT_STYLE_VAL,   /* dotted line */
    LK_PLOT_STYLE_TEST,  /* thick line with points */
    LK_PLOT_STYLE_SCALE, /* thick line with points; has a label of its own */
    LK_PLOT_STYLE_IDEAL, /* grey dashed line */
    LK_PLOT_STYLE_COUNT
} lk_plot_style;

typedef struct lk_plot_series {
    lk_plot_style style;
    size_t index;              /* chooses the colour; of curves: the run; of SCALE: the runs' number and the line */
    char label[LK_PLOT_LABEL]; /* of SCALE and IDEAL */
    double extra;              /* width of the line in pixels beyond that of its style */
    size_t count;
    double *x, *y; /* (count) y may be NaN: a gap in the line */
} lk_plot_series;

typedef struct lk_plot_range {
    double min, max; /* min < max; with a logarithmic scale min > 0 */
} lk_plot_range;

typedef struct lk_plot_panel {
    char title[128], x_label[48], y_label[48];
    bool log_y, whole_x; /* whole_x: only whole numbers on the axis */
    bool from_zero;      /* the y axis is linear and begins at 0 */
    lk_plot_range x, y;
    size_t count, room;
    lk_plot_series *series; /* (count) in the order of drawing */
} lk_plot_panel;

typedef struct lk_plot_figure {
    char title[192];
    size_t panel_count;
    lk_plot_panel panels[LK_PLOT_PANELS];
    size_t runs;
    char (*labels)[LK_PLOT_LABEL]; /* (runs) what distinguishes each run; no two are equal while names differ */
    bool has[LK_PLOT_STYLE_COUNT]; /* styles that occur */
} lk_plot_figure;

lk_status lk__plot_figure_create(const lk_record_runs *runs, lk_plot_figure **out) LK_CHECKED;
void lk__plot_figure_destroy(lk_plot_figure *figure);

/* Adds panels of throughput and speed-up if the runs differ in ranks or threads (scaling.c). */
lk_status lk__plot_scaling(const lk_record_runs *runs, lk_plot_figure *figure) LK_CHECKED;

/* Parts of a figure under construction. The series gets copies of count points. */
lk_status lk__plot_add_series(lk_plot_panel *panel, lk_plot_style style, size_t index, const double *x, const double *y,
                              size_t count) LK_CHECKED;
/* The ranges of all points with a finite y of the series of a style; LK_PLOT_STYLE_COUNT: of all. min > max if there is
 * none. */
void lk__plot_find_range(const lk_plot_panel *panel, lk_plot_style style, lk_plot_range *x, lk_plot_range *y);
/* Moves the panel to the figure and sets its ranges from its points; drops a panel that has no point. */
void lk__plot_finish_panel(lk_plot_figure *figure, lk_plot_panel *panel);
void lk__plot_panel_fini(lk_plot_panel *panel);

/* Numbers to write at an axis, at most LK_PLOT_TICKS; returns how many. */
size_t lk__plot_ticks(lk_plot_range range, bool log_scale, bool whole, double ticks[LK_PLOT_TICKS]);

#endif
