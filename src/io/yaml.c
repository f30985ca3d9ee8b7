/* yaml.c - converts libyaml's events to a flat list of items.
 *
 * libyaml checks the syntax. This file refuses the unsupported parts of YAML and checks the limits
 * at every event, so that nothing large is built. */
#include "io/yaml.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

lk_status lk__yaml_read(const char *path, lk_yaml **out)
{
    uint8_t *data;
    size_t bytes;
    LK_TRY(lk__file_read(path, LK_YAML_MAX_BYTES, &data, &bytes));
    lk_status status = lk__yaml_parse(path, data, bytes, out);
    lk__mem_free(data);
    return status;
}

void lk__yaml_destroy(lk_yaml *yaml)
{
    if (!yaml)
        return;
    for (size_t i = 0; i < yaml->count; i++) {
        free((char *)yaml->items[i].key);
        free((char *)yaml->items[i].text);
    }
    lk__mem_free(yaml->items);
    lk__mem_free(yaml);
}

#ifndef LK_HAVE_YAML

lk_status lk__yaml_parse(const char *name, const void *data, size_t bytes, lk_yaml **out)
{
    (void)data, (void)bytes, (void)out;
    return lk__fail(LK_STATUS_UNSUPPORTED,
                    "%s: this build reads no YAML, as libyaml was not found: install libyaml-dev and build again, or "
                    "give the options on the command line",
                    name);
}

#else

#include <yaml.h>

/* An open mapping or list. */
typedef struct level {
    size_t first; /* index of its first item */
    bool list;
    char *key; /* of the next value; NULL: a key is next */
    size_t key_line;
} level;

typedef struct reading {
    const char *name;
    yaml_parser_t parser;
    lk_yaml *yaml;
    level levels[LK_YAML_MAX_DEPTH];
    int depth; /* number of open levels */
    int documents;
} reading;

static size_t line_of(const yaml_event_t *event)
{
    return event->start_mark.line + 1;
}

static lk_status fail_at(const reading *r, size_t line, const char *what)
{
    return lk__fail(LK_STATUS_FORMAT, "%s:%zu: %s", r->name, line, what);
}

/* The line of a byte: for bytes that are no characters libyaml only gives the offset. */
static size_t line_at(const uint8_t *data, size_t bytes, size_t offset)
{
    size_t line = 1;
    for (size_t i = 0; i < bytes && i < offset; i++)
        line += data[i] == '\n';
    return line;
}

static lk_status fail_syntax(const reading *r, const uint8_t *data, size_t bytes)
{
    const yaml_parser_t *parser = &r->parser;
    const char *problem = parser->problem ? parser->problem : "it cannot be read";
    if (parser->error == YAML_MEMORY_ERROR)
        return lk__fail_memory(bytes, r->name);
    if (parser->error == YAML_READER_ERROR)
        return lk__fail(LK_STATUS_FORMAT, "%s:%zu: not UTF-8 text: %s", r->name,
                        line_at(data, bytes, parser->problem_offset), problem);
    return lk__fail(LK_STATUS_FORMAT, "%s:%zu: not valid YAML: %s%s%s", r->name, parser->problem_mark.line + 1, problem,
                    parser->context ? " " : "", parser->context ? parser->context : "");
}

static bool is_null(const yaml_event_t *event)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    if (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp((const char *)event->data.scalar.value, words[i]) == 0)
            return true;
    }
    return false;
}

static lk_status copy_text(const reading *r, const yaml_event_t *event, char **out)
{
    const char *value = (const char *)event->data.scalar.value;
    size_t length = event->data.scalar.length;
    if (memchr(value, 0, length))
        return fail_at(r, line_of(event), "a text has a character of code 0 in it");
    *out = strdup(value);
    return *out ? LK_OK : lk__fail_memory(length + 1, r->name);
}

/* The keys of one mapping must differ. */
static lk_status check_key(const reading *r, const level *top, const char *key, size_t line)
{
    for (size_t i = top->first; i < r->yaml->count; i++) {
        const lk_yaml_item *item = &r->yaml->items[i];
        if (item->depth == r->depth - 1 && strcmp(item->key, key) == 0)
            return lk__fail(LK_STATUS_FORMAT, "%s:%zu: '%s' is on line %zu already; give it once", r->name, line, key,
                            item->line);
    }
    return LK_OK;
}

static lk_status take_key(reading *r, const yaml_event_t *event)
{
    level *top = &r->levels[r->depth - 1];
    char *key;
    LK_TRY(copy_text(r, event, &key));
    lk_status status = check_key(r, top, key, line_of(event));
    if (status != LK_OK) {
        free(key);
        return status;
    }
    top->key = key;
    top->key_line = line_of(event);
    return LK_OK;
}

/* Appends a value to the innermost open level; takes ownership of text. */
static lk_status add_item(reading *r, const yaml_event_t *event, lk_yaml_kind kind, char *text)
{
    lk_yaml *yaml = r->yaml;
    level *top = &r->levels[r->depth - 1];
    if (yaml->count == LK_YAML_MAX_ITEMS) {
        free(text);
        return lk__fail(LK_STATUS_FORMAT, "%s:%zu: more than %d values", r->name, line_of(event), LK_YAML_MAX_ITEMS);
    }
    yaml->items[yaml->count++] = (lk_yaml_item){
        .kind = kind,
        .key = top->key,
        .text = text,
        .quoted = kind == LK_YAML_KIND_TEXT && event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE,
        .line = top->list ? line_of(event) : top->key_line,
        .depth = r->depth - 1,
    };
    top->key = NULL;
    return LK_OK;
}

static lk_status take_scalar(reading *r, const yaml_event_t *event)
{
    char *text = NULL;
    if (event->data.scalar.tag)
        return fail_at(r, line_of(event), "tags ('!name') are not read; leave it out");
    if (r->depth == 0)
        return is_null(event) ? LK_OK : fail_at(r, line_of(event), "a file of options is lines of 'option: value'");
    if (!r->levels[r->depth - 1].list && !r->levels[r->depth - 1].key)
        return take_key(r, event);
    if (is_null(event))
        return add_item(r, event, LK_YAML_KIND_NULL, NULL);
    LK_TRY(copy_text(r, event, &text));
    return add_item(r, event, LK_YAML_KIND_TEXT, text);
}

static lk_status check_open(const reading *r, const yaml_event_t *event, bool list)
{
    const level *top = r->depth ? &r->levels[r->depth - 1] : NULL;
    bool tag = list ? event->data.sequence_start.tag : event->data.mapping_start.tag;
    if (tag)
        return fail_at(r, line_of(event), "tags ('!name') are not read; leave it out");
    if (!top && list)
        return fail_at(r, line_of(event), "a file of options is lines of 'option: value'");
    if (top && !top->list && !top->key)
        return fail_at(r, line_of(event), "a key must be a word");
    if (r->depth == LK_YAML_MAX_DEPTH)
        return lk__fail(LK_STATUS_FORMAT, "%s:%zu: nested more than %d levels deep", r->name, line_of(event),
                        LK_YAML_MAX_DEPTH);
    return LK_OK;
}

static lk_status open_level(reading *r, const yaml_event_t *event, bool list)
{
    LK_TRY(check_open(r, event, list));
    if (r->depth > 0)
        LK_TRY(add_item(r, event, list ? LK_YAML_KIND_LIST : LK_YAML_KIND_MAP, NULL));
    r->levels[r->depth++] = (level){.first = r->yaml->count, .list = list};
    return LK_OK;
}

static bool has_anchor(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return event->data.scalar.anchor;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.anchor;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.anchor;
    default:
        return event->type == YAML_ALIAS_EVENT;
    }
}

static lk_status take_event(reading *r, const yaml_event_t *event)
{
    if (has_anchor(event))
        return fail_at(r, line_of(event), "anchors ('&name') and aliases ('*name') are not read; write the value out");
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return r->documents++ ? fail_at(r, line_of(event), "a second document; a file of options has one") : LK_OK;
    case YAML_SCALAR_EVENT:
        return take_scalar(r, event);
    case YAML_SEQUENCE_START_EVENT:
        return open_level(r, event, true);
    case YAML_MAPPING_START_EVENT:
        return open_level(r, event, false);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        r->depth--;
        return LK_OK;
    default:
        return LK_OK;
    }
}

static lk_status take_all(reading *r, const uint8_t *data, size_t bytes)
{
    for (bool more = true; more;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&r->parser, &event))
            return fail_syntax(r, data, bytes);
        lk_status status = take_event(r, &event);
        more = event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        LK_TRY(status);
    }
    return LK_OK;
}

static lk_status parse_into(const char *name, const uint8_t *data, size_t bytes, lk_yaml *yaml)
{
    static const char mark[] = "\xef\xbb\xbf"; /* some editors write it before UTF-8 */
    size_t skipped = bytes >= strlen(mark) && memcmp(data, mark, strlen(mark)) == 0 ? strlen(mark) : 0;
    reading r = {.name = name, .yaml = yaml};
    data += skipped;
    bytes -= skipped;
    if (!yaml_parser_initialize(&r.parser))
        return lk__fail_memory(sizeof r.parser, name);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, data, bytes);
    lk_status status = take_all(&r, data, bytes);
    for (int i = 0; i < r.depth; i++)
        free(r.levels[i].key);
    yaml_parser_delete(&r.parser);
    return status;
}

lk_status lk__yaml_parse(const char *name, const void *data, size_t bytes, lk_yaml **out)
{
    lk_yaml *yaml;
    lk_status status;
    if (bytes > LK_YAML_MAX_BYTES)
        return lk__fail(LK_STATUS_FORMAT, "%s: more than %d bytes", name, LK_YAML_MAX_BYTES);
    LK_TRY(LK_ALLOC(1, name, &yaml));
    LK_TRY_GOTO(LK_ALLOC(LK_YAML_MAX_ITEMS, name, &yaml->items), destroy_yaml);
    LK_TRY_GOTO(parse_into(name, data, bytes, yaml), destroy_yaml);
    *out = yaml;
    return LK_OK;

destroy_yaml:
    lk__yaml_destroy(yaml);
    return status;
}

#endif
