/* body.h - a text that grows: the body of an answer, mostly JSON.
 *
 * A failed allocation marks the body as failed; later calls do nothing, so that callers check once, at the end. */
#ifndef LK_SERVE_BODY_H
#define LK_SERVE_BODY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct lk_body {
    char *data; /* (bytes) not terminated; NULL: nothing was added */
    size_t bytes, room;
    bool failed;
} lk_body;

void lk__body_add(lk_body *body, const char *text, size_t bytes);
void lk__body_text(lk_body *body, const char *text);
/* The text as a JSON string; bytes that are not UTF-8 become '?'. */
void lk__body_string(lk_body *body, const char *text);
/* A number with `digits` significant digits; null if it is not finite. */
void lk__body_number(lk_body *body, double value, int digits);
/* Makes an empty body; its memory is kept. */
void lk__body_clear(lk_body *body);
void lk__body_fini(lk_body *body);

#endif
