/* ticks.c - round numbers for axes. */
#include <math.h>

#include "cli/plot/figure.h"

/* The smallest of 1, 2, 5, 10, ... that is at least x, at any power of ten. */
static double round_step(double x)
{
    double power = pow(10, floor(log10(x)));
    double part = x / power;
    return power * (part <= 1.0001 ? 1 : part <= 2.0001 ? 2 : part <= 5.0001 ? 5 : 10);
}

static size_t linear_ticks(lk_plot_range range, bool whole, double *ticks)
{
    enum { WANTED = 6 };
    double step = round_step((range.max - range.min) / WANTED);
    double slack = (range.max - range.min) * 1e-9;
    size_t count = 0;
    if (whole && step < 1)
        step = 1;
    double first = ceil((range.min - slack) / step);
    for (size_t i = 0; i < LK_PLOT_TICKS && (first + (double)i) * step <= range.max + slack; i++)
        ticks[count++] = (first + (double)i) * step;
    return count;
}

/* Powers of ten; with 2 and 5 between them if the range has few. */
static size_t log_ticks(lk_plot_range range, double *ticks)
{
    static const double parts[] = {1, 2, 5};
    int first = (int)floor(log10(range.min)), last = (int)ceil(log10(range.max));
    int stride = (last - first) / 8 + 1;
    size_t count = 0, each = last - first <= 3 ? 3 : 1;
    for (int power = first; power <= last; power += stride)
        for (size_t i = 0; i < each && count < LK_PLOT_TICKS; i++) {
            double value = parts[i] * pow(10, power);
            if (value >= range.min && value <= range.max)
                ticks[count++] = value;
        }
    return count;
}

size_t lk__plot_ticks(lk_plot_range range, bool log_scale, bool whole, double ticks[LK_PLOT_TICKS])
{
    return log_scale ? log_ticks(range, ticks) : linear_ticks(range, whole, ticks);
}
