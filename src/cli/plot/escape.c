/* escape.c - text inside HTML and SVG. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/utf8.h"
#include "cli/plot/draw.h"

static const char *entity(char c)
{
    static const struct {
        char c;
        const char *text;
    } table[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].c == c)
            return table[i].text;
    return NULL;
}

/* One character at a time, because lk__text_clean needs text that it may change. */
void lk__plot_escape(const char *text, FILE *out)
{
    while (*text) {
        char one[5] = "";
        size_t bytes = lk__utf8_read(text, strnlen(text, 4), NULL);
        bytes = bytes ? bytes : 1;
        memcpy(one, text, bytes);
        lk__text_clean(one, LK_TEXT_KIND_LINE);
        fputs(entity(*one) ? entity(*one) : one, out);
        text += bytes;
    }
}
