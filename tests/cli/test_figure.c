/* test_figure.c - parts of pictures: ticks of axes, ranges, smaller SVG, escaped text. */
#include <math.h>

#include "check.h"
#include "cli/plot/draw.h"

static void assert_ticks(lk_plot_range range, bool log_scale, bool whole, const double *wanted, size_t count)
{
    double ticks[LK_PLOT_TICKS];
    assert_int_equal(lk__plot_ticks(range, log_scale, whole, ticks), count);
    for (size_t i = 0; i < count; i++)
        assert_true(fabs(ticks[i] - wanted[i]) <= 1e-12 * fabs(wanted[i]));
}

static void ticks_are_round_and_inside(void **state)
{
    assert_ticks((lk_plot_range){0, 10}, false, false, (double[]){0, 2, 4, 6, 8, 10}, 6);
    assert_ticks((lk_plot_range){94.7, 99.2}, false, false, (double[]){95, 96, 97, 98, 99}, 5);
    assert_ticks((lk_plot_range){.9, 2.1}, false, true, (double[]){1, 2}, 2);
    assert_ticks((lk_plot_range){.03, 2.5}, true, false, (double[]){.05, .1, .2, .5, 1, 2}, 6);
    assert_ticks((lk_plot_range){1e-5, 1.5}, true, false, (double[]){1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1}, 6);
    /* Any range has ticks, and they are inside it. */
    for (int power = -30; power <= 30; power++)
        for (int log_scale = 0; log_scale < 2; log_scale++) {
            lk_plot_range range = {pow(10, power), 7e3 * pow(10, power)};
            double ticks[LK_PLOT_TICKS];
            size_t count = lk__plot_ticks(range, log_scale, false, ticks);
            assert_true(count >= 2);
            assert_true(ticks[0] >= range.min * .999999 && ticks[count - 1] <= range.max * 1.000001);
        }
}

/* A panel whose values are equal, far apart or not finite has a range that can be drawn. */
static void every_range_can_be_drawn(void **state)
{
    static const double x[] = {1, 2, 3}, values[][3] = {{5, 5, 5}, {1e-3, NAN, 1e3}, {-1, 0, 1}, {0, 0, 0}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        lk_plot_figure figure = {0};
        lk_plot_panel panel = {.y_label = "loss"};
        assert_ok(lk__plot_add_series(&panel, LK_PLOT_STYLE_TRAIN, 0, x, values[i], 3));
        lk__plot_finish_panel(&figure, &panel);
        assert_int_equal(figure.panel_count, 1);
        const lk_plot_panel *p = &figure.panels[0];
        assert_true(p->x.min < p->x.max && p->y.min < p->y.max && (!p->log_y || p->y.min > 0));
        assert_int_equal(p->log_y, i == 1);
        lk__plot_panel_fini(&figure.panels[0]);
    }
    lk_plot_figure figure = {0};
    lk_plot_panel panel = {0};
    assert_ok(lk__plot_add_series(&panel, LK_PLOT_STYLE_TRAIN, 0, x, (double[]){NAN, NAN, INFINITY}, 3));
    lk__plot_finish_panel(&figure, &panel);
    assert_int_equal(figure.panel_count, 0);
}

static void assert_squeezed(const char *text, const char *wanted)
{
    char svg[512];
    snprintf(svg, sizeof svg, "%s", text);
    svg[lk__plot_squeeze(svg, strlen(svg))] = 0;
    assert_string_equal(svg, wanted);
}

static void svg_is_squeezed_and_text_is_not(void **state)
{
    assert_squeezed("<svg><g a=\"1\">\n\t</g>\n<g>x</g></svg>", "<svg><g>x</g></svg>");
    assert_squeezed("<g a=\"1\"><g b=\"2\"> </g>\n</g>", "");
    assert_squeezed("<g fill=\"none\" stroke-linecap=\"butt\" stroke-linejoin=\"miter\"><path/></g>",
                    "<g fill=\"none\"><path/></g>");
    /* Text stays as it is. */
    assert_squeezed("<text> stroke-linecap=\"butt\" stroke-linejoin=\"miter\"</text>",
                    "<text> stroke-linecap=\"butt\" stroke-linejoin=\"miter\"</text>");
    assert_squeezed("</g>\n\t<g ", "</g>\n<g ");
    assert_squeezed("", "");
}

static void texts_are_escaped(void **state)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    lk__plot_escape("<a href='x'>&\"\xc3\xa9\x1b\n\xff\xc3", out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\xc3\xa9????");
    free(text);
}

TEST_MAIN(NULL, NULL, TEST(ticks_are_round_and_inside), TEST(every_range_can_be_drawn),
          TEST(svg_is_squeezed_and_text_is_not), TEST(texts_are_escaped))
