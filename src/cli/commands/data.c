/* data.c - `lockstep data`: lists, fetches and verifies data sets. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <lockstep/data.h>

#include "base/clock.h"
#include "base/spec.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/report/json.h"
#include "data/download/obtain.h"

/* Seconds between two progress lines: redrawn on a terminal, or as separate lines. */
static const double redraw_every = 0.1, line_every = 10;

enum { NAME_COLUMN = 14, SIGNAL_STATUS = 128 };

static volatile sig_atomic_t caught;

static void on_signal(int signal)
{
    caught = signal;
}

/* The first signal ends the work in order; a second one ends the process. A signal that was ignored at the
 * start (nohup) stays ignored. */
static void catch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}, old;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
}

/* State of the progress display of a download. */
typedef struct screen {
    bool quiet, json, terminal, drawn;
    char file[LK_MAX_FILE_NAME]; /* the file that the figures belong to */
    double began, printed;       /* by lk__clock */
    size_t first;                /* bytes that existed at the beginning */
} screen;

static void clear_line(screen *s)
{
    if (s->drawn)
        fputs("\r\033[K", stderr);
    s->drawn = false;
}

static void print_note(void *arg, const char *text)
{
    screen *s = arg;
    clear_line(s);
    if (s->json) {
        cJSON *line = cJSON_CreateObject();
        cJSON_AddStringToObject(line, "event", "note");
        cJSON_AddStringToObject(line, "text", text);
        lk__cli_json_line(line);
    } else if (!s->quiet) {
        printf("%s\n", text);
    }
}

static void print_progress(screen *s, size_t have, size_t total, double now)
{
    double rate = now > s->began && have > s->first ? (double)(have - s->first) / (now - s->began) : 0;
    char text[LK_TEXT_AMOUNT];
    clear_line(s);
    fprintf(stderr, "%s: %.0f%% of %s", s->file, total ? 100 * (double)have / (double)total : 100,
            lk__text_amount(total, text));
    if (rate > 0) {
        double left = (double)(total - have) / rate;
        fprintf(stderr, ", %s/s, %.0f:%02.0f left", lk__text_amount((size_t)rate, text), (double)(long)(left / 60),
                left - 60 * (double)(long)(left / 60));
    }
    if (!s->terminal)
        fputc('\n', stderr);
    fflush(stderr);
    s->drawn = s->terminal;
    s->printed = now;
}

static bool on_progress(void *arg, const char *file, size_t have, size_t total)
{
    screen *s = arg;
    double now = lk__clock();
    if (strcmp(s->file, file) != 0 || have < s->first) {
        snprintf(s->file, sizeof s->file, "%s", file);
        s->began = s->printed = now;
        s->first = have;
    }
    if (!s->quiet && !s->json && now - s->printed >= (s->terminal ? redraw_every : line_every))
        print_progress(s, have, total, now);
    return caught == 0;
}

static const char *next_row(const void *arg, size_t index)
{
    (void)arg;
    const lk_dataset_row *row = lk_dataset_list(index);
    return row ? row->name : NULL;
}

static int print_row(const lk_args *args, const lk_dataset_row *row)
{
    char folder[LK_MAX_PATH] = "", size[LK_TEXT_AMOUNT];
    const lk_source *source = lk__source_find(row->name);
    lk_status status = lk__source_locate(row->name, args->train.data_dir, folder);
    const char *hint = lk__args_spell(lk__source_hint(row->name));
    if (args->json) {
        cJSON *line = cJSON_CreateObject();
        cJSON_AddStringToObject(line, "event", "data");
        cJSON_AddStringToObject(line, "name", row->name);
        cJSON_AddBoolToObject(line, "found", status == LK_OK);
        cJSON_AddStringToObject(line, "path", status == LK_OK ? folder : "");
        cJSON_AddNumberToObject(line, "download_bytes", source ? (double)lk__source_bytes(source) : 0);
        cJSON_AddStringToObject(line, "summary", row->summary);
        if (!source)
            cJSON_AddStringToObject(line, "hint", hint);
        lk__cli_json_line(line);
        return 0;
    }
    if (status == LK_OK)
        return printf("%-*s %s\n", NAME_COLUMN, row->name, *folder ? folder : "built in");
    if (source)
        return printf("%-*s not here; %s: lockstep data get %s\n", NAME_COLUMN, row->name,
                      lk__text_amount(lk__source_bytes(source), size), row->name);
    return printf("%-*s not here; %s\n", NAME_COLUMN, row->name, hint);
}

static int run_list(lk_args *args, const char *name)
{
    (void)name;
    const lk_dataset_row *row;
    for (size_t i = 0; (row = lk_dataset_list(i)); i++)
        print_row(args, row);
    return LK_EXIT_DONE;
}

/* For a data set of the table that is not published: prints what to do instead. Built-in data need nothing. */
static int no_source(const lk_args *args, const char *name)
{
    char folder[LK_MAX_PATH] = "";
    bool built_in = lk__source_locate(name, args->train.data_dir, folder) == LK_OK && !*folder;
    if (!built_in)
        return lk__cli_fail(lk__fail(LK_STATUS_UNSUPPORTED, "data: '%s' is %s", name, lk__source_hint(name)));
    if (!args->quiet && !args->json)
        printf("%s is %s\n", name, lk__source_hint(name));
    return LK_EXIT_DONE;
}

typedef struct verification {
    const lk_args *args;
    bool silent;
} verification;

static void print_verdict(void *arg, const lk_obtain_verdict *verdict)
{
    const verification *v = arg;
    bool right = verdict->status == LK_OK;
    if (v->silent)
        return;
    if (v->args->json) {
        cJSON *line = cJSON_CreateObject();
        cJSON_AddStringToObject(line, "event", "file");
        cJSON_AddStringToObject(line, "path", verdict->path);
        cJSON_AddBoolToObject(line, "ok", right);
        cJSON_AddStringToObject(line, "detail", right ? verdict->remark : lk__args_spell(lk_error_detail()));
        lk__cli_json_line(line);
    } else if (!right) {
        printf("%s\n", lk__args_spell(lk_error_detail()));
    } else if (!v->args->quiet) {
        printf("%s: OK%s%s%s\n", verdict->path, *verdict->remark ? " (" : "", verdict->remark,
               *verdict->remark ? ")" : "");
    }
}

static int run_verify(lk_args *args, const char *name)
{
    const lk_source *source = lk__source_find(name);
    if (!source)
        return no_source(args, name);
    char folder[LK_MAX_PATH];
    bool right = false;
    verification v = {.args = args};
    lk_status status = lk__source_locate(source->name, args->train.data_dir, folder);
    if (status == LK_OK)
        status = lk__source_verify(source, folder, print_verdict, &v, &right);
    if (status != LK_OK)
        return lk__cli_fail(status);
    if (args->json) {
        cJSON *line = cJSON_CreateObject();
        cJSON_AddStringToObject(line, "event", "verify");
        cJSON_AddStringToObject(line, "name", name);
        cJSON_AddStringToObject(line, "path", folder);
        cJSON_AddBoolToObject(line, "ok", right);
        lk__cli_json_line(line);
    } else if (!right && !args->quiet) {
        printf("%s in %s differs from what was published; 'lockstep data get %s%s%s' downloads the wrong files again\n",
               name, folder, name, args->train.data_dir ? " --data-dir " : "",
               args->train.data_dir ? args->train.data_dir : "");
    }
    return right ? LK_EXIT_DONE : LK_EXIT_FAILED;
}

static lk_status choose_server(const lk_args *args, const char **out)
{
    const char *variable = getenv("LOCKSTEP_DATA_URL"), *what = "--url";
    const char *server = args->data_url;
    if (!server && variable && *variable) {
        server = variable;
        what = "LOCKSTEP_DATA_URL";
    }
    if (server && strncasecmp(server, "http://", 7) != 0 && strncasecmp(server, "https://", 8) != 0)
        return lk__fail(LK_STATUS_USAGE, "%s '%s': a URL begins with http:// or https://", what, server);
    *out = server;
    return LK_OK;
}

/* If no folder was given, any verified copy that is found is enough. */
static bool is_there(const lk_source *source, const lk_args *args, char folder[LK_MAX_PATH])
{
    bool right = false;
    verification v = {.args = args, .silent = true};
    return args->train.data_dir == NULL && lk__source_locate(source->name, NULL, folder) == LK_OK &&
           lk__source_verify(source, folder, print_verdict, &v, &right) == LK_OK && right;
}

static void print_obtained(const lk_args *args, const char *name, const char *folder, const lk_obtain_result *done)
{
    if (args->json) {
        cJSON *line = cJSON_CreateObject();
        cJSON_AddStringToObject(line, "event", "get");
        cJSON_AddStringToObject(line, "name", name);
        cJSON_AddStringToObject(line, "path", folder);
        cJSON_AddNumberToObject(line, "fetched", (double)done->fetched);
        cJSON_AddNumberToObject(line, "bytes", (double)done->bytes);
        cJSON_AddNumberToObject(line, "unpacked", (double)done->unpacked);
        lk__cli_json_line(line);
    } else if (args->quiet) {
        return;
    } else if (done->fetched + done->unpacked == 0) {
        printf("%s is complete and right in %s: nothing to do\n", name, folder);
    } else {
        char size[LK_TEXT_AMOUNT];
        printf("%s is in %s: %s fetched, sizes and checksums are right\n", name, folder,
               lk__text_amount(done->bytes, size));
    }
}

/* A folder that is searched earlier may contain a damaged copy. */
static void warn_of_others(const lk_source *source, const lk_args *args, const char *folder)
{
    char found[LK_MAX_PATH];
    if (lk__source_locate(source->name, args->train.data_dir, found) != LK_OK)
        fprintf(stderr, "lockstep: warning: %s\n", lk__args_spell(lk_error_detail()));
    else if (strcmp(found, folder) != 0)
        fprintf(stderr, "lockstep: warning: training finds %s first; move it away, or give --data-dir\n", found);
}

static lk_status get(const lk_source *source, const lk_args *args)
{
    screen s = {.quiet = args->quiet, .json = args->json, .terminal = isatty(STDERR_FILENO) == 1};
    char folder[LK_MAX_PATH];
    lk_obtain_result done = {0};
    lk_obtain_opts opts = {.folder = folder,
                           .limits = LK_DOWNLOAD_LIMITS_INIT,
                           .watch = {.arg = &s, .progress = on_progress, .note = print_note}};
    LK_TRY(choose_server(args, &opts.server));
    if (!is_there(source, args, folder)) {
        LK_TRY(lk__source_folder(source, args->train.data_dir, folder));
        lk_status status = lk__obtain(source, &opts, &done);
        clear_line(&s);
        LK_TRY(status);
        warn_of_others(source, args, folder);
    }
    print_obtained(args, source->name, folder, &done);
    return LK_OK;
}

static int run_get(lk_args *args, const char *name)
{
    const lk_source *source = lk__source_find(name);
    if (!source)
        return no_source(args, name);
    catch_signals();
    lk_status status = get(source, args);
    if (status == LK_OK)
        return LK_EXIT_DONE;
    int code = lk__cli_fail(status);
    return caught ? SIGNAL_STATUS + caught : code;
}

static const struct {
    const char *name;
    bool takes_name;
    int (*run)(lk_args *args, const char *name);
} actions[] = {{"list", false, run_list}, {"get", true, run_get}, {"verify", true, run_verify}};

enum { ACTIONS = sizeof actions / sizeof *actions };

static const char *next_action(const void *arg, size_t index)
{
    (void)arg;
    return index < ACTIONS ? actions[index].name : NULL;
}

int lk__cmd_data(lk_args *args)
{
    lk_names known = {.what = "data", .kind = "action", .next = next_action};
    lk_names rows = {.what = "data", .kind = "data set", .next = next_row};
    size_t action = 0, row = 0;
    const char *name = args->word_count > 1 ? args->words[1] : NULL;
    lk_status status = lk__names_find(&known, args->words[0], &action);
    if (status == LK_OK && actions[action].takes_name && !name)
        status = lk__fail(LK_STATUS_USAGE, "data %s wants a data set; 'lockstep data list' shows those there are",
                          args->words[0]);
    else if (status == LK_OK && !actions[action].takes_name && name)
        status = lk__fail(LK_STATUS_USAGE, "data %s: one word too many, '%s'", args->words[0], name);
    else if (status == LK_OK && name)
        status = lk__names_find(&rows, name, &row);
    return status == LK_OK ? actions[action].run(args, name) : lk__cli_fail(status);
}
