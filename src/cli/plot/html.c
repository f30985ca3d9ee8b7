/* html.c - the page of `lockstep report`: one file without scripts, readable on a phone, light and dark. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <lockstep/version.h>

#include "base/file.h"
#include "cli/plot/draw.h"

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1d2329;--dim:#5d6872;--line:#dfe3e8;--box:#f6f8fa;"
    "--k0:#0072b2;--k1:#d55e00;--k2:#009e73;--k3:#cc79a7;--k4:#e69f00;--k5:#56b4e9;--k6:#444;--k7:#b8a800}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#14181c;--fg:#e4e8ec;--dim:#98a3ad;--line:#323a42;--box:#1d2329;"
    "--k0:#4aa8e0;--k1:#ff8a4c;--k2:#2fc79a;--k3:#e8a0c8;--k4:#f2b83a;--k5:#8fd0f5;--k6:#c4ccd4;--k7:#e2d64a}}\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}\n"
    "main{max-width:1160px;margin:auto;padding:16px}h1{font-size:1.5em;margin:.3em 0}h2{font-size:1.15em;margin:1.8em "
    "0 .5em}\n"
    ".note{color:var(--dim);margin:.2em 0}.wide{overflow-x:auto;border:1px solid var(--line);border-radius:6px}\n"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:6px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}\n"
    "tr:last-child td{border-bottom:0}th{background:var(--box);font-weight:600;font-size:.9em}\n"
    "th:first-child,td:first-child,.text{text-align:left}td:first-child{white-space:normal;min-width:min(15em,46vw)}"
    "code{font:."
    "88em "
    "ui-monospace,monospace;overflow-wrap:anywhere}\n"
    ".panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:18px}\n"
    "figure{margin:0}figcaption{font-weight:600;margin-bottom:4px}svg{width:100%;height:auto;display:block;overflow:"
    "visible}\n"
    "svg svg{overflow:hidden}svg text{fill:var(--dim);font-size:12px}.grid{stroke:var(--line);stroke-width:1}\n"
    ".axis{stroke:var(--dim);fill:none}g path{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}\n"
    "circle{fill:var(--c)}.train path{stroke-width:1;opacity:.6}.train "
    "circle{fill:none;stroke:var(--c);stroke-width:1.5}.val path{stroke-dasharray:2 3;stroke-width:1.5}\n"
    ".ideal{--c:var(--dim)!important}.ideal path{stroke-width:1;stroke-dasharray:6 4}\n"
    ".d1 path{stroke-dasharray:9 4}.d2 path{stroke-dasharray:2 4}.d3 path{stroke-dasharray:9 4 2 4}\n"
    ".key{display:inline-flex;align-items:center;gap:6px;margin:2px 14px 2px 0}\n"
    ".key i{flex:none;width:22px;height:0;border-top:3px solid var(--c)}.key.d1 i{border-top-style:dashed}\n"
    ".key.d2 i{border-top-style:dotted}.key.d3 i{border-top-style:double}.key.ideal i{border-top-style:dashed}\n"
    ".k0{--c:var(--k0)}.k1{--c:var(--k1)}.k2{--c:var(--k2)}.k3{--c:var(--k3)}"
    ".k4{--c:var(--k4)}.k5{--c:var(--k5)}.k6{--c:var(--k6)}.k7{--c:var(--k7)}\n"
    ".options{columns:260px;margin:0;padding:0;list-style:none}.options li{break-inside:avoid}\n"
    "details{border:1px solid var(--line);border-radius:6px;padding:8px 12px;margin:8px 0}summary{cursor:pointer}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 14px;margin:8px 0 "
    "0}dt{color:var(--dim)}dd{margin:0}\n"
    ".failed{color:var(--k1)}\n";

/* The page and what it is about. */
typedef struct page {
    const lk_record_runs *runs;
    const lk_plot_figure *figure;
    FILE *out;
} page;

static void write_key(const page *p, const char *label, size_t index, const char *more)
{
    fprintf(p->out, "<span class=\"key k%zu d%zu %s\"><i></i>", index % LK_PLOT_COLORS, index / LK_PLOT_COLORS % 4,
            more);
    lk__plot_escape(label, p->out);
    fprintf(p->out, "</span>");
}

/* A number in a cell; empty if it is unknown. */
static void write_number(const page *p, const char *format, double value)
{
    fprintf(p->out, "<td>");
    if (isfinite(value))
        fprintf(p->out, format, value);
    fprintf(p->out, "</td>");
}

static void write_time(const page *p, double seconds)
{
    if (!isfinite(seconds))
        fprintf(p->out, "<td></td>");
    else if (seconds < 120)
        fprintf(p->out, "<td>%.1f s</td>", seconds);
    else
        fprintf(p->out, "<td>%.0f:%02.0f:%02.0f</td>", floor(seconds / 3600), floor(fmod(seconds, 3600) / 60),
                floor(fmod(seconds, 60)));
}

static lk_status write_result(const page *p, size_t run)
{
    const lk_record *record = p->runs->records[run];
    const char *state = lk__record_text(record, "status");
    lk_record_summary s;
    LK_TRY(lk__record_summarise(record, &s));
    fprintf(p->out, "<tr><td>");
    write_key(p, p->figure->labels[run], run, "");
    fprintf(p->out, "</td><td class=\"text%s\">", strcmp(state, "failed") == 0 ? " failed" : "");
    lk__plot_escape(state, p->out);
    fprintf(p->out, "</td>");
    write_number(p, s.epochs < 100 ? "%.3g" : "%.0f", s.epochs);
    write_number(p, "%.0f", s.steps);
    write_number(p, "%.4f", s.train_loss);
    if (p->figure->has[LK_PLOT_STYLE_VAL]) {
        write_number(p, "%.4f", s.val_loss);
        write_number(p, "%.2f", s.val_top1);
        write_number(p, "%.2f", s.val_best_top1);
    }
    write_number(p, "%.4f", s.test_loss);
    write_number(p, "%.2f", s.top1);
    write_number(p, "%.2f", s.best_top1);
    write_number(p, "%.0f", s.img_per_s);
    write_time(p, s.seconds);
    fprintf(p->out, "<td class=\"text\"><code>");
    lk__plot_escape(lk__record_text(record, "hash"), p->out);
    fprintf(p->out, "</code></td></tr>\n");
    return LK_OK;
}

/* Whether all runs ended with the same weights. */
static bool same_hash(const lk_record_runs *runs)
{
    const char *first = runs->count > 1 ? lk__record_text(runs->records[0], "hash") : "";
    for (size_t r = 1; r < runs->count; r++)
        if (strcmp(first, lk__record_text(runs->records[r], "hash")) != 0)
            return false;
    return *first != 0;
}

static lk_status write_results(const page *p)
{
    fprintf(p->out,
            "<h2>Results</h2>\n<div class=\"wide\"><table>\n<tr><th>run</th><th class=\"text\">status</th>"
            "<th>epochs</th><th>steps</th><th>training loss</th>%s<th>test loss</th><th>correct %%</th>"
            "<th>best %%</th><th>img/s</th><th>time</th><th class=\"text\">state hash</th></tr>\n",
            p->figure->has[LK_PLOT_STYLE_VAL]
                ? "<th>validation loss</th><th>validation %</th><th>best validation %</th>"
                : "");
    for (size_t r = 0; r < p->runs->count; r++)
        LK_TRY(write_result(p, r));
    fprintf(p->out, "</table></div>\n");
    if (same_hash(p->runs))
        fprintf(p->out, "<p class=\"note\">All %zu runs ended with the same weights, bit by bit.</p>\n",
                p->runs->count);
    return LK_OK;
}

static void write_curves(const page *p)
{
    const lk_plot_figure *f = p->figure;
    fprintf(p->out, "<h2>Curves</h2>\n");
    if (!f->panel_count) {
        fprintf(p->out, "<p>The runs have no rows yet.</p>\n");
        return;
    }
    fprintf(p->out, "<p>");
    for (size_t r = 0; r < f->runs; r++)
        write_key(p, f->labels[r], r, "");
    fprintf(p->out, "</p>\n<p class=\"note\">With points: test. Thin: training.%s</p>\n<div class=\"panels\">\n",
            f->has[LK_PLOT_STYLE_VAL] ? " Dotted: validation." : "");
    for (size_t i = 0; i < f->panel_count; i++) {
        fprintf(p->out, "<figure><figcaption>");
        lk__plot_escape(f->panels[i].title, p->out);
        fprintf(p->out, "</figcaption>\n");
        lk__plot_svg(f, &f->panels[i], p->out);
        for (size_t k = 0; k < f->panels[i].count; k++)
            if (*f->panels[i].series[k].label)
                write_key(p, f->panels[i].series[k].label, f->panels[i].series[k].index,
                          f->panels[i].series[k].style == LK_PLOT_STYLE_IDEAL ? "ideal" : "");
        fprintf(p->out, "</figure>\n");
    }
    fprintf(p->out, "</div>\n");
}

static void write_differences(const page *p)
{
    const lk_record_differences *d = p->runs->differences;
    if (!d->count)
        return;
    fprintf(p->out, "<h2>Differences</h2>\n<div class=\"wide\"><table>\n<tr><th>run</th>");
    for (size_t i = 0; i < d->count; i++) {
        fprintf(p->out, "<th class=\"text\">");
        lk__plot_escape(d->names[i], p->out);
        fprintf(p->out, "</th>");
    }
    fprintf(p->out, "</tr>\n");
    for (size_t r = 0; r < d->runs; r++) {
        fprintf(p->out, "<tr><td>");
        write_key(p, d->titles[r], r, "");
        fprintf(p->out, "</td>");
        for (size_t i = 0; i < d->count; i++) {
            const char *value = d->values[i * d->runs + r];
            fprintf(p->out, "<td class=\"text\">");
            lk__plot_escape(value ? value : "", p->out);
            fprintf(p->out, "</td>");
        }
        fprintf(p->out, "</tr>\n");
    }
    fprintf(p->out, "</table></div>\n");
}

static bool is_different(const lk_record_differences *d, const char *name)
{
    for (size_t i = 0; i < d->count; i++)
        if (strcmp(d->names[i], name) == 0)
            return true;
    return false;
}

/* The options of the first run that all others have, too. */
static void write_options(const page *p)
{
    const cJSON *options = cJSON_GetObjectItemCaseSensitive(lk__record_run(p->runs->records[0]), "options"), *item;
    fprintf(p->out, "<h2>Options%s</h2>\n<ul class=\"options\">\n", p->runs->count > 1 ? " of all runs" : "");
    cJSON_ArrayForEach(item, options)
    {
        bool shown = p->runs->count == 1 || lk__record_differences_compares(item->string);
        if (!shown || !cJSON_IsString(item) || is_different(p->runs->differences, item->string))
            continue;
        fprintf(p->out, "<li><code>");
        lk__plot_escape(item->string, p->out);
        fprintf(p->out, ": ");
        lk__plot_escape(item->valuestring, p->out);
        fprintf(p->out, "</code></li>\n");
    }
    fprintf(p->out, "</ul>\n");
}

static void write_fact(const page *p, const char *name, const char *value)
{
    if (!*value)
        return;
    fprintf(p->out, "<dt>%s</dt><dd><code>", name);
    lk__plot_escape(value, p->out);
    fprintf(p->out, "</code></dd>\n");
}

/* The texts of an array, with spaces between them. */
static void write_words(const page *p, const char *name, const cJSON *words)
{
    const cJSON *item;
    if (!cJSON_IsArray(words))
        return;
    fprintf(p->out, "<dt>%s</dt><dd><code>", name);
    cJSON_ArrayForEach(item, words)
    {
        lk__plot_escape(cJSON_IsString(item) ? item->valuestring : "?", p->out);
        fputc(' ', p->out);
    }
    fprintf(p->out, "</code></dd>\n");
}

static void write_start(const page *p, const lk_record *record)
{
    double seconds = lk__record_number(record, "started");
    time_t when = (time_t)seconds;
    struct tm parts;
    char text[64];
    if (isfinite(seconds) && seconds > 0 && seconds < 1e12 && gmtime_r(&when, &parts) &&
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts))
        write_fact(p, "started", text);
}

/* Why --early-stop has ended the run. */
static void write_early(const page *p, const lk_record *record)
{
    const cJSON *early = lk__record_result_item(record, "early_stop");
    const char *data = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(early, "data"));
    double epochs = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(early, "epochs_without_better"));
    double step = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(early, "best_step"));
    double best = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(early, "best_top1"));
    char text[256];
    if (!data)
        return;
    snprintf(text, sizeof text, "no better %.32s accuracy in %.0f epoch%s; the best was %.2f %%, after epoch %.0f",
             data, epochs, epochs == 1 ? "" : "s", best, step / lk__record_number(record, "steps_per_epoch"));
    write_fact(p, "ended early", text);
}

static void write_runs(const page *p)
{
    static const char *const facts[] = {"error", "directory", "host", "version", "build"};
    fprintf(p->out, "<h2>Runs</h2>\n");
    for (size_t r = 0; r < p->runs->count; r++) {
        const lk_record *record = p->runs->records[r];
        fprintf(p->out, "<details><summary>");
        write_key(p, p->runs->differences->titles[r], r, "");
        fprintf(p->out, "</summary><dl>\n");
        write_words(p, "command", cJSON_GetObjectItemCaseSensitive(lk__record_run(record), "command"));
        write_fact(p, "folder", lk__record_folder(record));
        write_start(p, record);
        write_early(p, record);
        for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
            write_fact(p, facts[i], lk__record_text(record, facts[i]));
        write_words(p, "devices", cJSON_GetObjectItemCaseSensitive(lk__record_run(record), "devices"));
        fprintf(p->out, "</dl></details>\n");
    }
}

/* The policy forbids scripts and everything from elsewhere, even if a text were not escaped. */
lk_status lk__plot_html(const lk_record_runs *runs, const lk_plot_figure *figure, FILE *out)
{
    page p = {.runs = runs, .figure = figure, .out = out};
    fprintf(out,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src 'unsafe-inline'\"/>\n"
            "<title>");
    lk__plot_escape(figure->title, out);
    fprintf(out, "</title>\n<style>\n%s</style></head>\n<body><main>\n<h1>", style);
    lk__plot_escape(figure->title, out);
    fprintf(out, "</h1>\n<p class=\"note\">Written by lockstep %s</p>\n", LK_VERSION);
    LK_TRY(write_results(&p));
    write_curves(&p);
    write_differences(&p);
    write_options(&p);
    write_runs(&p);
    fprintf(out, "</main></body></html>\n");
    return LK_OK;
}

lk_status lk__plot_report(const lk_record_runs *runs, const lk_plot_figure *figure, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        return lk__fail_memory(0, "page");
    lk_status status = lk__plot_html(runs, figure, stream);
    if (fclose(stream) != 0 && status == LK_OK)
        status = lk__fail_memory(bytes, "page");
    if (status == LK_OK)
        status = lk__file_replace(path, text, bytes);
    free(text);
    return status;
}
