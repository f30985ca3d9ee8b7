/* answer.c - guards, routes, and a cache of answers.
 *
 * Answers about a run stay right until its stamp changes. The cache keeps them, so that many clients that ask the same
 * cost little more than one. */
#include "serve/answer.h"

#include <inttypes.h>
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "net/token.h"
#include "serve/page.h"
#include "serve/runs.h"
#include "serve/series.h"
#include "serve/tail.h"

enum {
    MAX_PATH = 512,
    MAX_VALUE = 256,
    KEY_BYTES = 1024,
    CACHE = 256,
    DEFAULT_POINTS = 400,
    MIN_POINTS = 10,
    PROBLEM_BYTES = 1024
};

typedef struct cached {
    char key[KEY_BYTES];
    uint64_t stamp, used;
    lk_body body;
} cached;

struct lk_answer {
    char token[LK_TOKEN_TEXT];
    lk_runs *runs;
    lk_series *series;
    uint64_t calls;
    cached cache[CACHE];
};

static const char json_type[] = "application/json";

lk_status lk__answer_create(const char *folder, const char *token, lk_answer **out)
{
    lk_answer *answer;
    LK_TRY(LK_ALLOC(1, "answers", &answer));
    snprintf(answer->token, sizeof answer->token, "%s", token);
    lk_status status = lk__runs_create(folder, &answer->runs);
    if (status == LK_OK)
        status = lk__series_create(&answer->series);
    if (status == LK_OK)
        *out = answer;
    else
        lk__answer_destroy(answer);
    return status;
}

void lk__answer_destroy(lk_answer *answer)
{
    if (!answer)
        return;
    for (size_t i = 0; i < CACHE; i++)
        lk__body_fini(&answer->cache[i].body);
    lk__runs_destroy(answer->runs);
    lk__series_destroy(answer->series);
    lk__mem_free(answer);
}

static void refuse(lk_http_reply *reply, unsigned code, const char *why)
{
    reply->code = code;
    reply->data = why;
    reply->bytes = strlen(why);
}

/* "localhost:8080", "127.0.0.1", "[::1]:8080": any port, which may be forwarded. */
static bool is_loopback_name(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; host && i < sizeof names / sizeof *names; i++) {
        size_t length = strlen(names[i]);
        if (strncasecmp(host, names[i], length) == 0 && (!host[length] || host[length] == ':'))
            return true;
    }
    return false;
}

/* The path behind the token; NULL without the right token. The time does not depend on where a token of the
 * right length differs. */
static const char *path_behind_token(const lk_answer *answer, const char *path)
{
    size_t length = strlen(answer->token);
    if (path[0] != '/')
        return NULL;
    if (length == 0)
        return path + 1;
    if (strlen(path + 1) < length || sodium_memcmp(path + 1, answer->token, length) != 0 || path[1 + length] != '/')
        return NULL;
    return path + length + 2;
}

/* The path of a request that is allowed, without the token; NULL: refused. */
static const char *admit(const lk_answer *answer, const lk_http_request *request, lk_http_reply *reply)
{
    const char *method = lk__http_method(request), *path = lk__http_path(request);
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        refuse(reply, LK_HTTP_METHOD, "only GET and HEAD: this server changes nothing\n");
        return NULL;
    }
    if (strlen(path) > MAX_PATH) {
        refuse(reply, LK_HTTP_TOO_LONG, "the address is too long\n");
        return NULL;
    }
    if (!*answer->token && !is_loopback_name(lk__http_host(request))) {
        refuse(
            reply, LK_HTTP_FORBIDDEN,
            "this server answers to the names localhost, 127.0.0.1 and [::1] only; for others start it with --host\n");
        return NULL;
    }
    const char *rest = path_behind_token(answer, path);
    if (!rest)
        refuse(reply, LK_HTTP_FORBIDDEN,
               "the token is missing or wrong: open the whole address that lockstep has printed\n");
    else if (strstr(rest, ".."))
        refuse(reply, LK_HTTP_BAD, "'..' is in no address of this server\n");
    return rest && !strstr(rest, "..") ? rest : NULL;
}

/* The slot of this key, emptied unless it holds what is right at this stamp (*right). */
static cached *find_cached(lk_answer *answer, const char *key, uint64_t stamp, bool *right)
{
    cached *slot = &answer->cache[0];
    for (size_t i = 0; i < CACHE; i++) {
        cached *at = &answer->cache[i];
        if (strcmp(at->key, key) == 0) {
            slot = at;
            break;
        }
        slot = at->used < slot->used ? at : slot;
    }
    *right = strcmp(slot->key, key) == 0 && slot->stamp == stamp;
    slot->used = ++answer->calls;
    if (!*right) {
        lk__body_clear(&slot->body);
        snprintf(slot->key, sizeof slot->key, "%s", key);
        slot->stamp = stamp;
    }
    return slot;
}

/* A request about one run. */
typedef struct question {
    lk_answer *answer;
    const lk_http_request *request;
    const lk_runs_entry *run;
    lk_body *body;
} question;

/* Writes the answer. *lasting is false if the answer may change although the run does not. */
typedef lk_status (*route_writer)(const question *q, bool *lasting);

static double number_value(const lk_http_request *request, const char *name, double otherwise)
{
    const char *text = lk__http_value(request, name);
    char *end;
    double value = text ? strtod(text, &end) : otherwise;
    return text && (end == text || *end || isnan(value)) ? otherwise : value;
}

static lk_record_column axis_value(const lk_http_request *request)
{
    const char *text = lk__http_value(request, "x");
    if (text && strcmp(text, "epoch") == 0)
        return LK_RECORD_COLUMN_EPOCH;
    return text && strcmp(text, "seconds") == 0 ? LK_RECORD_COLUMN_SECONDS : LK_RECORD_COLUMN_STEP;
}

static lk_status write_series(const question *q, bool *lasting)
{
    double points = number_value(q->request, "points", DEFAULT_POINTS);
    const lk_series_query query = {
        .folder = q->run->folder,
        .axis = axis_value(q->request),
        .range = {number_value(q->request, "from", -INFINITY), number_value(q->request, "to", INFINITY)},
        .buckets = (size_t)fmin(fmax(points, MIN_POINTS), LK_SERIES_MAX_POINTS),
    };
    return lk__series_write(q->answer->series, &query, q->body, lasting);
}

static lk_status write_json(lk_body *body, const cJSON *object)
{
    char *text = object ? cJSON_PrintUnformatted(object) : NULL;
    if (object && !text)
        return lk__fail_memory(0, "an answer");
    lk__body_text(body, text ? text : "{}");
    cJSON_free(text);
    return LK_OK;
}

static lk_status write_run(const question *q, bool *lasting)
{
    *lasting = true;
    return write_json(q->body, q->run->record ? lk__record_run(q->run->record) : NULL);
}

static lk_status write_ranks(const question *q, bool *lasting)
{
    *lasting = true;
    return write_json(q->body, q->run->record ? lk__record_last_ranks(q->run->record) : NULL);
}

static lk_status write_log(const question *q, bool *lasting)
{
    double from = number_value(q->request, "from", -1);
    *lasting = true;
    return lk__tail_write(q->run->folder, from >= 0 && from < 1e15 ? (int64_t)from : -1, q->body);
}

static const struct {
    const char *path;
    route_writer write;
} routes[] = {
    {"api/series", write_series},
    {"api/run", write_run},
    {"api/ranks", write_ranks},
    {"api/log", write_log},
};

/* Path and values of a request, as the key of its answer; false: a value is too long. */
static bool make_key(const char *path, const lk_http_request *request, char key[KEY_BYTES])
{
    static const char *const names[] = {"run", "x", "points", "from", "to", "since"};
    size_t length = (size_t)snprintf(key, KEY_BYTES, "%s", path);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = lk__http_value(request, names[i]);
        if (value && (strlen(value) > MAX_VALUE || length + strlen(value) + 16 > KEY_BYTES))
            return false;
        if (value)
            length += (size_t)snprintf(key + length, KEY_BYTES - length, "\n%s=%s", names[i], value);
    }
    return true;
}

static void reply_body(lk_http_reply *reply, const lk_body *body)
{
    if (body->failed) {
        refuse(reply, LK_HTTP_BROKEN, "out of memory\n");
        return;
    }
    *reply = (lk_http_reply){.code = LK_HTTP_OK, .type = json_type, .data = body->data, .bytes = body->bytes};
}

/* A run that was removed is an answer, not an error: the page asks for it until it learns of the removal. */
static void reply_gone(lk_http_reply *reply)
{
    static const char gone[] = "{\"gone\":true}\n";
    *reply = (lk_http_reply){.code = LK_HTTP_OK, .type = json_type, .data = gone, .bytes = sizeof gone - 1};
}

/* A file that is damaged does not end the page: it shows the problem. */
static void reply_problem(lk_http_reply *reply, lk_body *body)
{
    char why[PROBLEM_BYTES];
    snprintf(why, sizeof why, "%s", lk_error_detail());
    lk__body_clear(body);
    lk__body_text(body, "{\"complete\":true,\"problem\":");
    lk__body_string(body, why);
    lk__body_text(body, "}\n");
    reply_body(reply, body);
}

static void answer_run(lk_answer *answer, size_t route, const lk_http_request *request, const char *key,
                       lk_http_reply *reply)
{
    const char *name = lk__http_value(request, "run");
    bool right, lasting = false;
    if (!name || !*name) {
        refuse(reply, LK_HTTP_BAD, "which run? Add run=NAME\n");
        return;
    }
    const lk_runs_entry *run = lk__runs_find(answer->runs, name);
    if (!run) {
        reply_gone(reply);
        return;
    }
    cached *slot = find_cached(answer, key, run->stamp, &right);
    const question q = {.answer = answer, .request = request, .run = run, .body = &slot->body};
    lk_status status = right ? LK_OK : routes[route].write(&q, &lasting);
    if (!right && (!lasting || status != LK_OK || slot->body.failed))
        slot->key[0] = '\0';
    if (status == LK_OK)
        reply_body(reply, &slot->body);
    else if (status == LK_STATUS_NOT_FOUND)
        reply_gone(reply);
    else
        reply_problem(reply, &slot->body);
}

static void answer_runs(lk_answer *answer, const lk_http_request *request, const char *key, lk_http_reply *reply)
{
    bool right;
    cached *slot = find_cached(answer, key, lk__runs_version(answer->runs) + 1, &right);
    if (!right)
        lk__runs_write(answer->runs, lk__http_value(request, "since"), &slot->body);
    if (slot->body.failed)
        slot->key[0] = '\0';
    reply_body(reply, &slot->body);
}

static bool answer_data(lk_answer *answer, const char *path, const lk_http_request *request, lk_http_reply *reply)
{
    char key[KEY_BYTES];
    bool list = strcmp(path, "api/runs") == 0;
    size_t route = 0, count = sizeof routes / sizeof *routes;
    while (route < count && strcmp(path, routes[route].path) != 0)
        route++;
    if (!list && route == count)
        return false;
    if (!make_key(path, request, key)) {
        refuse(reply, LK_HTTP_TOO_LONG, "a value in the address is too long\n");
        return true;
    }
    lk__runs_scan(answer->runs);
    if (list)
        answer_runs(answer, request, key, reply);
    else
        answer_run(answer, route, request, key, reply);
    return true;
}

static const char *type_of(const char *name)
{
    static const char *const types[][2] = {{".html", "text/html; charset=utf-8"},
                                           {".css", "text/css; charset=utf-8"},
                                           {".js", "text/javascript; charset=utf-8"},
                                           {".svg", "image/svg+xml"}};
    const char *end = strrchr(name, '.');
    for (size_t i = 0; end && i < sizeof types / sizeof *types; i++) {
        if (strcmp(end, types[i][0]) == 0)
            return types[i][1];
    }
    return "application/octet-stream";
}

static bool answer_file(const char *path, lk_http_reply *reply)
{
    const char *name = *path ? path : "index.html";
    for (const lk_page_file *file = lk__page_files; file->name; file++) {
        if (strcmp(file->name, name) != 0)
            continue;
        *reply = (lk_http_reply){.code = LK_HTTP_OK, .type = type_of(name), .data = file->data, .bytes = file->bytes};
        return true;
    }
    return false;
}

void lk__answer_request(void *arg, const lk_http_request *request, lk_http_reply *reply)
{
    lk_answer *answer = arg;
    const char *path = admit(answer, request, reply);
    if (path && !answer_file(path, reply) && !answer_data(answer, path, request, reply))
        refuse(reply, LK_HTTP_NOT_FOUND, "nothing is here; the page is at the address that lockstep has printed\n");
}
