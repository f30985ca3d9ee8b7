/* fuzz_yaml.c - libFuzzer target: arbitrary bytes as a file of options. libyaml makes items of them, and a table
 * with one option of each kind makes values of the items. The first byte chooses the options of the command
 * line. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/option_rows.h"
#include "cli/options/config.h"
#include "io/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct values {
    bool flag;
    const char *text, *once, *spec, *terms, *optional;
    size_t count;
    int whole, choice;
    uint64_t seed;
    double real;
    char list[LK_LIST_BYTES];
} values;

static const char *const choices[] = {"a", "b", NULL};

#define AT(field) LK_FIELD(values, field)
#define ROW(name, kind, field)                                                                   \
    {                                                                                            \
        "g", name, 0, 1, 0, LK_OPTION_KIND_##kind, AT(field), "X", 0, 100, choices, NULL, "help" \
    }
static const lk_option rows[] = {
    ROW("f", FLAG, flag),
    ROW("t", TEXT, text),
    ROW("o", ONCE, once),
    ROW("s", SPEC, spec),
    ROW("m", TERMS, terms),
    ROW("p", OPTIONAL, optional),
    ROW("c", COUNT, count),
    ROW("w", INT, whole),
    ROW("h", CHOICE, choice),
    ROW("e", SEED, seed),
    ROW("r", REAL, real),
    ROW("l", LIST, list),
    ROW("l-2", LIST, list),
    {"g", "a", 0, 1, 0, LK_OPTION_KIND_ALIAS, 0, "", NULL, 0, 0, NULL, "h=b", "help"},
    {"g", "x", 'x', 2, 0, LK_OPTION_KIND_SPEC, AT(spec), "X", 0, 0, NULL, NULL, "help"},
};
enum { ROWS = sizeof rows / sizeof *rows };

static const lk_options_rival rivals[] = {{{"t", "l"}, {"f", "r"}}, {{NULL}, {NULL}}};
static const lk_options_set set = {.rows = rows, .count = ROWS, .commands = 1, .command = "fuzz", .rivals = rivals};
static const lk_options_set recipe = {.rows = rows, .count = ROWS, .commands = 2, .command = "recipe"};

/* Items are in the order that io/yaml.h describes. */
static void check_items(const lk_yaml *yaml)
{
    int depth = 0;
    for (size_t i = 0; i < yaml->count; i++) {
        const lk_yaml_item *item = &yaml->items[i];
        if (item->depth > depth || item->depth < 0 || item->line == 0 ||
            (item->kind == LK_YAML_KIND_TEXT) != !!item->text)
            abort();
        if ((item->depth == 0 && !item->key) || item->depth >= LK_YAML_MAX_DEPTH)
            abort();
        depth = item->depth + (item->kind == LK_YAML_KIND_LIST || item->kind == LK_YAML_KIND_MAP);
    }
}

static void try_items(const uint8_t *data, size_t size)
{
    lk_yaml *yaml = NULL;
    lk_status status = lk__yaml_parse("fuzz", data, size, &yaml);
    if ((status == LK_OK) != (yaml != NULL) || (status != LK_OK && !strstr(lk_error_detail(), "fuzz")))
        abort();
    if (yaml)
        check_items(yaml);
    lk__yaml_destroy(yaml);
}

/* All memory that a value points to can be read. */
static size_t read_values(const values *v)
{
    const char *texts[] = {v->text, v->once, v->spec, v->terms, v->optional, v->list};
    size_t length = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        length += texts[i] ? strlen(texts[i]) : 0;
    return length;
}

static void try_options(uint8_t given, const uint8_t *data, size_t size)
{
    char path[64], origins[128];
    values v = {0};
    lk_options_parsed parsed = {0};
    for (size_t i = 0; i < 8; i++)
        parsed.given[i] = given >> i & 1;
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    lk_status status = lk__config_load(&set, &recipe, path, &v, &parsed);
    close(fd);
    bool refused = status == LK_STATUS_USAGE || status == LK_STATUS_UNSUPPORTED;
    if (status != LK_OK && (!refused || !strstr(lk_error_detail(), path)))
        abort();
    if (status == LK_OK) {
        lk__options_spell(&set, &parsed, "`spec`, `text`, `list` and `nobody`", origins, sizeof origins);
        if (read_values(&v) + strlen(origins) > size * 4 + sizeof origins)
            abort();
    }
    lk__config_unload();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    try_items(data + 1, size - 1);
    try_options(data[0], data + 1, size - 1);
    return 0;
}
