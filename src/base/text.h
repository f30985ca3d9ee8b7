/* text.h - text for people: removes unprintable characters from untrusted text; checks names; writes amounts; lists
 * numbers. */
#ifndef LK_BASE_TEXT_H
#define LK_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum lk_text_kind {
    LK_TEXT_KIND_NAME, /* of a host: letters, digits, '.', '-' and '_' */
    LK_TEXT_KIND_LINE, /* anything printable */
    LK_TEXT_KIND_LINES /* anything printable, newlines and tabs */
} lk_text_kind;

/* Replaces by '?' what the kind does not allow: control characters and so escape sequences, bytes
 * that are not UTF-8, characters that reorder or hide text. The text never becomes longer. */
void lk__text_clean(char *text, lk_text_kind kind);

/* Whether text has 1 to `most` characters, each of which is an ASCII letter, a digit or one of `others`. */
bool lk__text_is_name(const char *text, size_t most, const char *others);

/* Writes "[2, 3]", or "[]" without dims. The macro is the room that ndim dims need. */
#define LK_TEXT_DIMS_BYTES(ndim) (22 * (ndim) + 4)
void lk__text_dims(const size_t *dims, int ndim, char *text, size_t bytes);

/* Writes bytes with three digits and a decimal unit, "512 B", "37.8 MB", "1.50 GB"; returns text. 1 MB is 10^6 bytes.
 */
enum { LK_TEXT_AMOUNT = 32 };
const char *lk__text_amount(size_t bytes, char text[LK_TEXT_AMOUNT]);

/* Writes "rank 2" or "ranks 1, 3 and 5"; returns the number of characters needed. */
size_t lk__text_list(const char *noun, const uint8_t *marked, int size, char *text, size_t bytes);
/* Writes "rank 2 of 4 has WHAT" or "ranks 1, 3 and 5 of 8 have WHAT". */
void lk__text_awaited(const char *noun, const uint8_t *awaited, int size, const char *what, char *text, size_t bytes);

#endif
