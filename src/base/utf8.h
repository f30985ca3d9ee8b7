/* utf8.h - decodes UTF-8; the only decoder in the library. */
#ifndef LK_BASE_UTF8_H
#define LK_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed character at the start of text, which has `bytes` bytes; 0 if there is
 * none. value: the character's code point; may be NULL. */
size_t lk__utf8_read(const char *text, size_t bytes, uint32_t *value);
/* The number of bytes before the first error in text, which has `bytes` bytes. */
size_t lk__utf8_valid_bytes(const char *text, size_t bytes);
/* Whether all of text is well-formed. */
bool lk__utf8_is_valid(const char *text);

#endif
