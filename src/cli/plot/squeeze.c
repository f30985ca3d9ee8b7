/* squeeze.c - makes gnuplot's SVG smaller: a third of it is empty groups, attributes that have their initial
 * values, and indentation. */
#include <ctype.h>
#include <string.h>

#include "cli/plot/draw.h"

static const char group[] = "<g ", end[] = "</g>";
static const char initial[] = " stroke-linecap=\"butt\" stroke-linejoin=\"miter\"";

/* The length of text without its last tag and the white space after it, if this tag opens a group; otherwise the
 * length of text. */
static size_t without_open_group(const char *text, size_t length)
{
    size_t last = length, start;
    while (last && isspace((unsigned char)text[last - 1]))
        last--;
    if (!last || text[last - 1] != '>')
        return length;
    for (start = last; start && text[start - 1] != '<';)
        start--;
    bool opens = start && strncmp(text + start - 1, group, sizeof group - 1) == 0;
    return opens ? start - 1 : length;
}

size_t lk__plot_squeeze(char *svg, size_t bytes)
{
    size_t used = 0;
    bool tag = false; /* inside the tag of a group */
    for (size_t i = 0; i < bytes;) {
        size_t left = bytes - i, shorter;
        tag = tag ? svg[i] != '>' : left >= sizeof group && strncmp(svg + i, group, sizeof group - 1) == 0;
        if (tag && left >= sizeof initial && strncmp(svg + i, initial, sizeof initial - 1) == 0) {
            i += sizeof initial - 1;
        } else if (left >= sizeof end - 1 && strncmp(svg + i, end, sizeof end - 1) == 0 &&
                   (shorter = without_open_group(svg, used)) < used) {
            used = shorter;
            i += sizeof end - 1;
            while (i < bytes && isspace((unsigned char)svg[i]))
                i++;
        } else if (svg[i] == '\t') {
            i++; /* indentation */
        } else {
            svg[used++] = svg[i++];
        }
    }
    return used;
}
