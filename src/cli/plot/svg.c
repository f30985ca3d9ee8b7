/* svg.c - a panel as an <svg> element of a web page. Colours and fonts are the page's, by classes. */
#include <math.h>

#include "cli/plot/draw.h"

/* In units of the view box. */
enum { WIDTH = 540, HEIGHT = 300, LEFT = 58, RIGHT = 12, TOP = 10, BOTTOM = 42, CIRCLES = 40 };
enum { INNER_WIDTH = WIDTH - LEFT - RIGHT, INNER_HEIGHT = HEIGHT - TOP - BOTTOM };

static const char *const classes[LK_PLOT_STYLE_COUNT] = {"train", "val", "test", "test", "ideal"};

static double place(lk_plot_range range, bool log_scale, double value)
{
    if (log_scale)
        return log(value / range.min) / log(range.max / range.min);
    return (value - range.min) / (range.max - range.min);
}

static double x_at(const lk_plot_panel *p, double x)
{
    return place(p->x, false, x) * INNER_WIDTH;
}

static double y_at(const lk_plot_panel *p, double y)
{
    return (1 - place(p->y, p->log_y, y)) * INNER_HEIGHT;
}

static void write_grid(const lk_plot_panel *p, FILE *out)
{
    double ticks[LK_PLOT_TICKS];
    size_t count = lk__plot_ticks(p->x, false, p->whole_x, ticks);
    for (size_t i = 0; i < count; i++) {
        double x = LEFT + x_at(p, ticks[i]);
        fprintf(
            out,
            "<path class=\"grid\" d=\"M%.1f %dv%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n", x,
            TOP, INNER_HEIGHT, x, HEIGHT - BOTTOM + 17, ticks[i]);
    }
    count = lk__plot_ticks(p->y, p->log_y, false, ticks);
    for (size_t i = 0; i < count; i++) {
        double y = TOP + y_at(p, ticks[i]);
        fprintf(out,
                "<path class=\"grid\" d=\"M%d %.1fh%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n",
                LEFT, y, INNER_WIDTH, LEFT - 6, y + 4, ticks[i]);
    }
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", LEFT + INNER_WIDTH / 2, HEIGHT - 6);
    lk__plot_escape(p->x_label, out);
    fprintf(out, "</text>\n<text transform=\"translate(13 %d)rotate(-90)\" text-anchor=\"middle\">",
            TOP + INNER_HEIGHT / 2);
    lk__plot_escape(p->y_label, out);
    fprintf(out, "</text>\n");
}

/* One path; it is interrupted where y is not finite. */
static void write_line(const lk_plot_panel *p, const lk_plot_series *s, FILE *out)
{
    bool drawing = false;
    fprintf(out, "<path d=\"");
    for (size_t i = 0; i < s->count; i++) {
        bool finite = isfinite(s->y[i]) != 0;
        if (finite)
            fprintf(out, "%c%.1f %.1f", drawing ? 'L' : 'M', x_at(p, s->x[i]), y_at(p, s->y[i]));
        drawing = finite;
    }
    if (s->extra > 0)
        fprintf(out, "\" style=\"stroke-width:%.3g", 2 + s->extra);
    fprintf(out, "\"/>");
}

static void write_circles(const lk_plot_panel *p, const lk_plot_series *s, FILE *out)
{
    bool many = s->count > CIRCLES, test = s->style == LK_PLOT_STYLE_TEST || s->style == LK_PLOT_STYLE_SCALE;
    for (size_t i = 0; (s->count == 1 || (test && !many)) && i < s->count; i++)
        if (isfinite(s->y[i]))
            fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>", x_at(p, s->x[i]), y_at(p, s->y[i]));
}

/* An inner <svg> cuts off what is outside the axes. */
void lk__plot_svg(const lk_plot_figure *figure, const lk_plot_panel *panel, FILE *out)
{
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    lk__plot_escape(panel->title, out);
    fprintf(out, "\">\n");
    write_grid(panel, out);
    fprintf(out, "<svg x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\">\n", LEFT, TOP, INNER_WIDTH, INNER_HEIGHT);
    for (size_t i = 0; i < panel->count; i++) {
        const lk_plot_series *s = &panel->series[i];
        fprintf(out, "<g class=\"k%zu d%zu %s\"><title>", s->index % LK_PLOT_COLORS, s->index / LK_PLOT_COLORS % 4,
                classes[s->style]);
        lk__plot_escape(*s->label || s->style >= LK_PLOT_STYLE_SCALE ? s->label : figure->labels[s->index], out);
        fprintf(out, "</title>");
        write_line(panel, s, out);
        write_circles(panel, s, out);
        fprintf(out, "</g>\n");
    }
    fprintf(out, "</svg>\n<path class=\"axis\" d=\"M%d %dv%dh%d\"/>\n</svg>\n", LEFT, TOP, INNER_HEIGHT, INNER_WIDTH);
}
