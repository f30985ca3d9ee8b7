/* answer.h - which request gets which answer: refuses what is not allowed, and finds files of the page and data of
 * runs. One thread uses an lk_answer. */
#ifndef LK_SERVE_ANSWER_H
#define LK_SERVE_ANSWER_H

#include "serve/http.h"

typedef struct lk_answer lk_answer;
/* token: the first part of every path, or "": none, and only requests to names of this host's loopback are answered.
 * Otherwise a page of another site could read the answers by giving its own name the address 127.0.0.1. */
lk_status lk__answer_create(const char *folder, const char *token, lk_answer **out) LK_CHECKED;
void lk__answer_destroy(lk_answer *answer);

/* An lk_http_answer; arg is the lk_answer. */
void lk__answer_request(void *arg, const lk_http_request *request, lk_http_reply *reply);

#endif
