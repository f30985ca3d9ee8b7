/* json.c - JSON objects, one a line of stdout. */
#include "cli/json.h"

#include <stdio.h>

void lk__json_line(cJSON *object)
{
    char *text = cJSON_PrintUnformatted(object);
    if (text)
        puts(text);
    cJSON_free(text);
    cJSON_Delete(object);
}
