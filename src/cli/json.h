/* json.h - JSON objects, one a line of stdout. */
#ifndef LK_CLI_JSON_H
#define LK_CLI_JSON_H

#include <cjson/cJSON.h>

/* Prints object on one line and deletes it. */
void lk__json_line(cJSON *object);

#endif
