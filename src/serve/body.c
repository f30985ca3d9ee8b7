/* body.c - a text that grows. */
#include "serve/body.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "io/json.h"

enum { FIRST_ROOM = 1024 };

static bool reserve(lk_body *body, size_t bytes)
{
    if (body->failed || body->room - body->bytes >= bytes)
        return !body->failed;
    size_t room = lk__size_max(lk__size_max(2 * body->room, body->bytes + bytes), FIRST_ROOM);
    char *data;
    if (LK_ALLOC(room, "an answer", &data) != LK_OK) {
        body->failed = true;
        return false;
    }
    if (body->bytes > 0)
        memcpy(data, body->data, body->bytes);
    lk__mem_free(body->data);
    body->data = data;
    body->room = room;
    return true;
}

void lk__body_add(lk_body *body, const char *text, size_t bytes)
{
    if (bytes == 0 || !reserve(body, bytes))
        return;
    memcpy(body->data + body->bytes, text, bytes);
    body->bytes += bytes;
}

void lk__body_text(lk_body *body, const char *text)
{
    lk__body_add(body, text, strlen(text));
}

/* The copy behind the room for the quoted text is cleaned first. */
void lk__body_string(lk_body *body, const char *text)
{
    size_t length = strlen(text), quoted = LK_JSON_MAX_ESCAPE * length + 2;
    if (!reserve(body, quoted + length + 1))
        return;
    char *copy = body->data + body->bytes + quoted;
    memcpy(copy, text, length + 1);
    lk__text_clean(copy, LK_TEXT_KIND_LINES);
    body->bytes += lk__json_quote(copy, body->data + body->bytes);
}

void lk__body_number(lk_body *body, double value, int digits)
{
    char text[40];
    if (isfinite(value))
        snprintf(text, sizeof text, "%.*g", digits, value);
    lk__body_text(body, isfinite(value) ? text : "null");
}

void lk__body_clear(lk_body *body)
{
    body->bytes = 0;
    body->failed = false;
}

void lk__body_fini(lk_body *body)
{
    lk__mem_free(body->data);
    *body = (lk_body){0};
}
