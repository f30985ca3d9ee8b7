/* text.h - text from strangers, made fit for a terminal or a log. */
#ifndef LK_BASE_TEXT_H
#define LK_BASE_TEXT_H

typedef enum lk_text_kind {
    LK_TEXT_NAME, /* of a host: letters, digits, '.', '-' and '_' */
    LK_TEXT_LINE, /* anything that prints */
    LK_TEXT_LINES /* with newlines and tabs */
} lk_text_kind;

/* Writes '?' over what does not belong there: control characters, and with them
 * escape sequences; bytes that are not UTF-8; characters that reorder or hide
 * text. The text gets no longer. */
void lk__text_clean(char *text, lk_text_kind kind);

#endif
