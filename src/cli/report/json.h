/* json.h - JSON objects, one a line of stdout, and keys as JSON spells them. */
#ifndef LK_CLI_REPORT_JSON_H
#define LK_CLI_REPORT_JSON_H

#include <stddef.h>

#include <cjson/cJSON.h>

/* Prints object on one line and deletes it. */
void lk__cli_json_line(cJSON *object);

/* Prints a key, which a file may have filled with anything, so that it cannot
 * steer the terminal; returns the bytes printed. */
size_t lk__cli_json_key(const char *key);

#endif
