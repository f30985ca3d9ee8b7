/* json.c - JSON objects, one on each line of stdout, and keys written as in JSON. */
#include "cli/report/json.h"

#include <stdio.h>

#include "io/json.h"

void lk__cli_json_line(cJSON *object)
{
    char *text = cJSON_PrintUnformatted(object);
    if (text)
        puts(text);
    cJSON_free(text);
    cJSON_Delete(object);
}

size_t lk__cli_json_key(const char *key)
{
    size_t printed = 0;
    while (*key) {
        char text[LK_JSON_MAX_ESCAPE];
        size_t bytes = lk__json_escape(&key, text);
        printed += fwrite(text, 1, bytes, stdout);
    }
    return printed;
}
