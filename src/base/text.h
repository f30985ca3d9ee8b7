/* text.h - text for people: cleaned where it comes from strangers, and lists of numbers. */
#ifndef LK_BASE_TEXT_H
#define LK_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

typedef enum lk_text_kind {
    LK_TEXT_NAME, /* of a host: letters, digits, '.', '-' and '_' */
    LK_TEXT_LINE, /* anything that prints */
    LK_TEXT_LINES /* with newlines and tabs */
} lk_text_kind;

/* Writes '?' over what does not belong there: control characters, and with them
 * escape sequences; bytes that are not UTF-8; characters that reorder or hide
 * text. The text gets no longer. */
void lk__text_clean(char *text, lk_text_kind kind);

/* "rank 2", "ranks 1, 3 and 5"; returns the characters it needs. */
size_t lk__text_list(const char *noun, const uint8_t *marked, int size, char *text, size_t bytes);
/* "rank 2 of 4 has WHAT", "ranks 1, 3 and 5 of 8 have WHAT". */
void lk__text_awaited(const char *noun, const uint8_t *awaited, int size, const char *what, char *text, size_t bytes);

#endif
