/* script.c - a figure as a script of gnuplot. Numbers are in data blocks, texts in single quotes, in which gnuplot
 * interprets nothing but the quote itself. */
#include <math.h>
#include <string.h>

#include "cli/plot/draw.h"

/* The picture in pixels; fractions of it are gnuplot's screen coordinates. */
enum { WIDTH = 1000, PANEL = 326, TITLE = 46, LINE = 20, MARGIN = 14, LETTER = 7, MOST_LABELS = 40, MOST_POINTS = 40 };

/* Lines and what they mean, in columns below the panels. */
typedef struct legend {
    const char *heading; /* or NULL */
    size_t count, more;  /* more: entries beyond count, which have no room */
    size_t rows, columns;
    struct {
        const char *label;
        size_t index;
        bool ideal;
    } entries[MOST_LABELS];
} legend;

typedef struct page {
    const lk_plot_figure *figure;
    FILE *out;
    size_t rows, columns;
    legend runs, lines; /* of the curves; of throughput and speed-up */
    double height;
} page;

static void quote(const char *text, FILE *out)
{
    fputc('\'', out);
    for (; *text; text++)
        fprintf(out, *text == '\'' ? "''" : "%c", *text);
    fputc('\'', out);
}

static double across(double pixels)
{
    return pixels / WIDTH;
}

static double up(const page *p, double pixels_from_top)
{
    return 1 - pixels_from_top / p->height;
}

static void add_entry(legend *to, const char *label, size_t index, bool ideal)
{
    if (to->count == MOST_LABELS) {
        to->more++;
        return;
    }
    to->entries[to->count].label = label;
    to->entries[to->count].index = index;
    to->entries[to->count++].ideal = ideal;
}

/* Adds the labels of a panel that no earlier panel has. */
static void add_lines(legend *to, const lk_plot_panel *panel)
{
    for (size_t i = 0; i < panel->count; i++) {
        const lk_plot_series *s = &panel->series[i];
        size_t k = 0;
        while (k < to->count && strcmp(to->entries[k].label, s->label) != 0)
            k++;
        if (*s->label && k == to->count)
            add_entry(to, s->label, s->index, s->style == LK_PLOT_STYLE_IDEAL);
    }
}

/* Labels count bytes, so columns of other letters than Latin ones are wider than needed. */
static void arrange(legend *to, const char *heading)
{
    size_t longest = 0;
    for (size_t i = 0; i < to->count; i++)
        longest = strlen(to->entries[i].label) > longest ? strlen(to->entries[i].label) : longest;
    to->heading = heading;
    to->columns = (WIDTH - 2 * MARGIN) / (longest * LETTER + 56);
    to->columns = to->columns ? to->columns : 1;
    to->rows = (to->count + to->columns - 1) / to->columns + (heading != NULL) + (to->more > 0);
}

static void plan(page *p)
{
    const lk_plot_figure *f = p->figure;
    for (size_t i = 0; i < f->runs; i++)
        add_entry(&p->runs, f->labels[i], i, false);
    for (size_t i = 0; i < f->panel_count; i++)
        add_lines(&p->lines, &f->panels[i]);
    arrange(&p->runs, p->lines.count ? "Loss and accuracy:" : NULL);
    arrange(&p->lines, p->lines.count ? "Throughput and speed-up:" : NULL);
    p->columns = f->panel_count > 1 ? 2 : 1;
    p->rows = (f->panel_count + p->columns - 1) / p->columns;
    p->height = (double)(TITLE + p->rows * PANEL + (p->runs.rows + p->lines.rows) * LINE + MARGIN);
}

static void write_label(const page *p, const char *text, double x, double y, const char *more)
{
    fprintf(p->out, "set label ");
    quote(text, p->out);
    fprintf(p->out, " at screen %.5f,%.5f %s\n", across(x), up(p, y), more);
}

static const char *color(size_t index)
{
    return lk__plot_colors[index % LK_PLOT_COLORS];
}

/* Runs that share a colour differ in their dashes. */
static size_t dash(size_t index)
{
    return 1 + index / LK_PLOT_COLORS % 4;
}

static void write_legend(const page *p, const legend *of, double top)
{
    char more[64];
    double width = (WIDTH - 2.0 * MARGIN) / (double)of->columns;
    if (of->heading) {
        write_label(p, of->heading, MARGIN, top, "left tc rgb '#666666'");
        top += LINE;
    }
    for (size_t i = 0; i < of->count; i++) {
        double x = MARGIN + (double)(i % of->columns) * width, y = top + (double)(i / of->columns) * LINE;
        size_t index = of->entries[i].index;
        fprintf(p->out, "set arrow from screen %.5f,%.5f to screen %.5f,%.5f nohead", across(x), up(p, y),
                across(x + 30), up(p, y));
        if (of->entries[i].ideal)
            fprintf(p->out, " lw 1 lc rgb '#888888' dt 2\n");
        else
            fprintf(p->out, " lw 3 lc rgb '%s' dt %zu\n", color(index), dash(index));
        write_label(p, of->entries[i].label, x + 38, y, "left");
    }
    if (of->more) {
        snprintf(more, sizeof more, "and %zu more", of->more);
        write_label(p, more, MARGIN, top + (double)((of->count + of->columns - 1) / of->columns) * LINE, "left");
    }
}

static void write_head(const page *p)
{
    const bool *has = p->figure->has;
    char styles[160];
    snprintf(styles, sizeof styles, "%s%s%s%s%s", has[LK_PLOT_STYLE_TEST] ? "with points: test" : "",
             has[LK_PLOT_STYLE_TEST] && has[LK_PLOT_STYLE_VAL] ? "; " : "",
             has[LK_PLOT_STYLE_VAL] ? "dotted: validation" : "",
             (has[LK_PLOT_STYLE_TEST] || has[LK_PLOT_STYLE_VAL]) && has[LK_PLOT_STYLE_TRAIN] ? "; " : "",
             has[LK_PLOT_STYLE_TRAIN] ? "thin: training" : "");
    write_label(p, p->figure->title, MARGIN, 22, "left font ',15'");
    write_label(p, styles, WIDTH - MARGIN, 22, "right tc rgb '#666666'");
    double top = (double)(TITLE + p->rows * PANEL) + LINE / 2.0;
    write_legend(p, &p->lines, top);
    write_legend(p, &p->runs, top + (double)p->lines.rows * LINE);
}

static void write_data(const lk_plot_panel *panel, FILE *out)
{
    for (size_t i = 0; i < panel->count; i++) {
        const lk_plot_series *s = &panel->series[i];
        fprintf(out, "$s%zu << END\n", i);
        for (size_t k = 0; k < s->count; k++)
            if (isfinite(s->y[k]))
                fprintf(out, "%.7g %.6g\n", s->x[k], s->y[k]);
            else
                fprintf(out, "%.7g NaN\n", s->x[k]);
        fprintf(out, "END\n");
    }
}

static void write_style(const lk_plot_series *s, FILE *out)
{
    switch (s->style) {
    case LK_PLOT_STYLE_TRAIN: /* a half transparent line */
        if (s->count > 1)
            fprintf(out, " with lines lw 1 lc rgb '#90%s' dt %zu", color(s->index) + 1, dash(s->index));
        else /* a hollow point */
            fprintf(out, " with points pt 6 ps .6 lw 1.5 lc rgb '%s'", color(s->index));
        break;
    case LK_PLOT_STYLE_VAL:
        fprintf(out, " with linespoints pt 7 ps .3 lw 1.5 lc rgb '%s' dt 3", color(s->index));
        break;
    case LK_PLOT_STYLE_IDEAL:
        fprintf(out, " with lines lw 1 lc rgb '#888888' dt 2");
        break;
    default:
        fprintf(out, " with %s lw %.3g lc rgb '%s' dt %zu", s->count > MOST_POINTS ? "lines" : "linespoints pt 7 ps .5",
                2 + s->extra, color(s->index), dash(s->index));
    }
}

static void write_ticks(char axis, lk_plot_range range, bool log_scale, bool whole, FILE *out)
{
    double ticks[LK_PLOT_TICKS];
    size_t count = lk__plot_ticks(range, log_scale, whole, ticks);
    fprintf(out, "set %crange [%.9g:%.9g]\nset %ctics (", axis, range.min, range.max, axis);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "%s'%.6g' %.9g", i ? ", " : "", ticks[i], ticks[i]);
    fprintf(out, ")\n");
}

static void write_axes(const lk_plot_panel *panel, FILE *out)
{
    fprintf(out, "%s logscale y\n", panel->log_y ? "set" : "unset");
    write_ticks('x', panel->x, false, panel->whole_x, out);
    write_ticks('y', panel->y, panel->log_y, false, out);
    fprintf(out, "set title ");
    quote(panel->title, out);
    fprintf(out, "\nset xlabel ");
    quote(panel->x_label, out);
    fprintf(out, "\nset ylabel ");
    quote(panel->y_label, out);
    fputc('\n', out);
}

static void write_panel(const page *p, size_t index)
{
    const lk_plot_panel *panel = &p->figure->panels[index];
    double left = (double)(index % p->columns) * WIDTH / (double)p->columns;
    double right = left + WIDTH / (double)p->columns, top = TITLE + (double)(index / p->columns) * PANEL;
    FILE *out = p->out;
    fprintf(out, "set lmargin at screen %.5f\nset rmargin at screen %.5f\n", across(left + 92), across(right - MARGIN));
    fprintf(out, "set tmargin at screen %.5f\nset bmargin at screen %.5f\n", up(p, top + 26), up(p, top + PANEL - 62));
    write_axes(panel, out);
    write_data(panel, out);
    for (size_t i = 0; i < panel->count; i++) {
        const lk_plot_series *s = &panel->series[i];
        fprintf(out, "%s$s%zu using 1:2", i ? ", \\\n  " : "plot ", i);
        write_style(s, out);
        fprintf(out, " notitle");
    }
    /* Labels and arrows of the page are drawn once. */
    fprintf(out, "\nunset label\nunset arrow\n");
}

void lk__plot_script(const lk_plot_figure *figure, const char *terminal, FILE *out)
{
    page p = {.figure = figure, .out = out};
    plan(&p);
    fprintf(out, terminal, (double)WIDTH, p.height);
    fprintf(out, "set encoding utf8\n"
                 "set multiplot\n"
                 "set grid lt 1 lc rgb '#e2e2e2' lw 1 dt solid\n"
                 "set border 3 lc rgb '#888888'\n"
                 "set tics nomirror scale 0 textcolor rgb '#333333'\n"
                 "set title offset 0,-.5\n"
                 "set xlabel offset 0,.3\n"
                 "set ylabel offset 0,0\n"
                 "unset key\n");
    write_head(&p);
    for (size_t i = 0; i < figure->panel_count; i++)
        write_panel(&p, i);
    fprintf(out, "unset multiplot\nunset output\n");
}
