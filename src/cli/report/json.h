/* json.h - JSON objects, one on each line of stdout, and keys written as in JSON. */
#ifndef LK_CLI_REPORT_JSON_H
#define LK_CLI_REPORT_JSON_H

#include <stddef.h>

#include <cjson/cJSON.h>

/* Prints object on one line and deletes it. */
void lk__cli_json_line(cJSON *object);

/* Prints a key with escapes, because a file may contain any bytes, which must not control the terminal; returns
 * the number of bytes printed. */
size_t lk__cli_json_key(const char *key);

#endif
