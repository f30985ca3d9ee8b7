/* config.c - turns keys and values of a YAML file into the texts of a command line. The table of options checks
 * the values. */
#include "cli/options/config.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "base/mem.h"
#include "io/yaml.h"

/* A file that was read. Options point into its memory. */
typedef struct config {
    const char *path;
    lk_yaml *yaml;
    char *texts; /* composed from the items, one after the other */
    size_t used, room;
    lk_options_entry *entries;
    size_t count;
} config;

static config *loaded;

static void destroy(config *c)
{
    if (!c)
        return;
    lk__yaml_destroy(c->yaml);
    lk__mem_free(c->texts);
    lk__mem_free(c->entries);
    lk__mem_free(c);
}

void lk__config_unload(void)
{
    destroy(loaded);
    loaded = NULL;
}

static lk_status __attribute__((format(printf, 3, 4)))
fail_at(const config *c, const lk_yaml_item *item, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return lk__fail(LK_STATUS_USAGE, "%s:%zu: %s", c->path, item->line, text);
}

/* Appends to the current text; reserve_texts has allocated enough. */
static void __attribute__((format(printf, 2, 3))) put(config *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(c->texts + c->used, c->room - c->used, format, args);
    va_end(args);
    assert(length >= 0 && (size_t)length < c->room - c->used);
    c->used += (size_t)length;
}

/* Allocates memory for each item's key and text, with a separator before, between and after them, and for its
 * source; and for texts that get parameters (add_key), one of which may contain all items, for each of them. */
static lk_status reserve_texts(config *c)
{
    enum { SIGNS = 8, LINE_DIGITS = 24 };
    size_t path = strlen(c->path), keys = 0;
    c->room = 1;
    for (size_t i = 0; i < c->yaml->count; i++) {
        const lk_yaml_item *item = &c->yaml->items[i];
        c->room += (item->key ? strlen(item->key) : 0) + (item->text ? strlen(item->text) : 0) + SIGNS;
        c->room += path + LINE_DIGITS;
        keys += item->depth == 0;
    }
    c->room *= 1 + lk__size_min(keys, LK_OPTIONS_TAKEN_MAX);
    return LK_ALLOC(c->room, "the options of a file", &c->texts);
}

static bool is_word(const lk_yaml_item *item, const char *word)
{
    if (item->kind != LK_YAML_KIND_TEXT || item->quoted)
        return false;
    for (size_t i = 0; item->text[i] || word[i]; i++) {
        if (tolower((unsigned char)item->text[i]) != word[i])
            return false;
    }
    return true;
}

/* Refuses words that are true or false in YAML 1.1 but texts in YAML 1.2. */
static lk_status check_words(const config *c)
{
    static const struct {
        const char *word, *truth;
    } words[] = {{"yes", "true"}, {"on", "true"}, {"no", "false"}, {"off", "false"}};
    for (size_t i = 0; i < c->yaml->count; i++) {
        const lk_yaml_item *item = &c->yaml->items[i];
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            if (is_word(item, words[k].word))
                return fail_at(c, item,
                               "'%s' is a text to some readers of YAML and %s to others: write %s, or \"%s\" in "
                               "quotes for the text",
                               item->text, words[k].truth, words[k].truth, item->text);
    }
    return LK_OK;
}

/* The item after this one and all its children. */
static size_t skip(const config *c, size_t index)
{
    int depth = c->yaml->items[index].depth;
    do
        index++;
    while (index < c->yaml->count && c->yaml->items[index].depth > depth);
    return index;
}

/* Appends a part of a text; the part must not contain the text's separators. */
static lk_status put_part(config *c, const lk_yaml_item *item, const char *part)
{
    if (!*part || part[strcspn(part, ",:= ")])
        return fail_at(c, item, "'%s' cannot be part of an option's value; write the whole value as one text", part);
    put(c, "%s", part);
    return LK_OK;
}

/* [1, 2] becomes "1/2". */
static lk_status put_values(config *c, size_t list)
{
    const lk_yaml_item *items = c->yaml->items;
    if (list + 1 == skip(c, list))
        return fail_at(c, &items[list], "'%s' is an empty list", items[list].key);
    for (size_t i = list + 1; i < skip(c, list); i++) {
        if (items[i].kind != LK_YAML_KIND_TEXT)
            return fail_at(c, &items[i], "'%s' wants plain values in its list", items[list].key);
        put(c, "%s", i > list + 1 ? "/" : "");
        LK_TRY(put_part(c, &items[i], items[i].text));
    }
    return LK_OK;
}

/* A pair of a mapping becomes "key=value". If the option is a list of terms, true and an empty value give the
 * bare term. */
static lk_status put_pair(config *c, const lk_option *row, size_t index)
{
    const lk_yaml_item *item = &c->yaml->items[index];
    bool term = row->kind == LK_OPTION_KIND_TERMS, on = is_word(item, "true");
    LK_TRY(put_part(c, item, item->key));
    if (term && (on || item->kind == LK_YAML_KIND_NULL))
        return LK_OK;
    if (item->kind == LK_YAML_KIND_NULL || item->kind == LK_YAML_KIND_MAP)
        return fail_at(c, item, "'%s' of %s wants a value", item->key, row->name);
    put(c, "=");
    if (item->kind == LK_YAML_KIND_LIST)
        return put_values(c, index);
    return put_part(c, item, on ? "1" : is_word(item, "false") ? "0" : item->text);
}

/* {name: sgd, momentum: .9} becomes "sgd:momentum=.9". */
static lk_status put_spec(config *c, const lk_option *row, size_t map)
{
    const lk_yaml_item *items = c->yaml->items;
    size_t end = skip(c, map), name = map + 1;
    while (name < end && strcmp(items[name].key, "name") != 0)
        name = skip(c, name);
    if (name == end || items[name].kind != LK_YAML_KIND_TEXT)
        return fail_at(c, &items[map], "%s wants 'name: ...' among its values", row->name);
    LK_TRY(put_part(c, &items[name], items[name].text));
    const char *sign = ":";
    for (size_t i = map + 1; i < end; i = skip(c, i)) {
        if (i == name)
            continue;
        put(c, "%s", sign);
        LK_TRY(put_pair(c, row, i));
        sign = ",";
    }
    return LK_OK;
}

/* {crop: 4, flip: true} becomes "crop=4,flip"; false terms are left out. */
static lk_status put_terms(config *c, const lk_option *row, size_t map, const char **sign)
{
    size_t end = skip(c, map);
    for (size_t i = map + 1; i < end; i = skip(c, i)) {
        if (is_word(&c->yaml->items[i], "false"))
            continue;
        put(c, "%s", *sign);
        LK_TRY(put_pair(c, row, i));
        *sign = ",";
    }
    return LK_OK;
}

/* [a, b] becomes "a,b"; elements of a list of terms may be mappings. */
static lk_status put_list(config *c, const lk_option *row, size_t list)
{
    const lk_yaml_item *items = c->yaml->items;
    size_t end = skip(c, list);
    const char *sign = "";
    for (size_t i = list + 1; i < end; i = skip(c, i)) {
        if (items[i].kind == LK_YAML_KIND_MAP && row->kind == LK_OPTION_KIND_TERMS) {
            LK_TRY(put_terms(c, row, i, &sign));
            continue;
        }
        if (items[i].kind != LK_YAML_KIND_TEXT || !*items[i].text)
            return fail_at(c, &items[i], "%s wants plain values in its list", row->name);
        put(c, "%s%s", sign, items[i].text);
        sign = ",";
    }
    return LK_OK;
}

/* A list or a mapping becomes one text, if the option has such values. */
static lk_status put_nested(config *c, const lk_option *row, size_t index, const char **out)
{
    const lk_yaml_item *item = &c->yaml->items[index];
    const char *text = c->texts + c->used, *sign = "";
    bool listed = row->kind == LK_OPTION_KIND_LIST || row->kind == LK_OPTION_KIND_TERMS;
    if (item->kind == LK_YAML_KIND_LIST && listed)
        LK_TRY(put_list(c, row, index));
    else if (item->kind == LK_YAML_KIND_MAP && row->kind == LK_OPTION_KIND_SPEC)
        LK_TRY(put_spec(c, row, index));
    else if (item->kind == LK_YAML_KIND_MAP && row->kind == LK_OPTION_KIND_TERMS)
        LK_TRY(put_terms(c, row, index, &sign));
    else
        return fail_at(c, item, "%s takes no %s%s%s", row->name, item->kind == LK_YAML_KIND_LIST ? "list" : "mapping",
                       row->arg ? ", but " : "", row->arg ? row->arg : "");
    c->texts[c->used++] = 0;
    *out = text;
    return LK_OK;
}

/* Checks that true or false is allowed for the option. *absent: the option counts as not given. */
static lk_status take_truth(const config *c, const lk_option *row, const lk_yaml_item *item, bool *absent)
{
    bool flag = row->kind == LK_OPTION_KIND_FLAG || row->kind == LK_OPTION_KIND_ALIAS;
    *absent = is_word(item, "false");
    if (flag && !*absent && !is_word(item, "true"))
        return fail_at(c, item, "%s '%s' must be true or false%s", row->name, item->text,
                       item->quoted ? ", without quotes" : "");
    if (!flag && row->kind != LK_OPTION_KIND_OPTIONAL && (*absent || is_word(item, "true")))
        return fail_at(c, item, "%s wants %s, not %s", row->name, row->arg ? row->arg : "a value", item->text);
    return LK_OK;
}

/* Checks the value of a key that stands for an option with a fixed value, "amp". */
static lk_status take_fixed(const config *c, const lk_yaml_item *item, bool *absent)
{
    *absent = is_word(item, "false");
    if (!*absent && !is_word(item, "true"))
        return fail_at(c, item, "%s must be true or false", item->key);
    return LK_OK;
}

/* Adds the entry of an item at the top level, unless the option counts as not given. fixed: its value, whatever the
 * item says but false; or NULL. */
static lk_status add_entry(config *c, const lk_option *row, const char *fixed, size_t index)
{
    const lk_yaml_item *item = &c->yaml->items[index];
    lk_options_entry *entry = &c->entries[c->count];
    *entry = (lk_options_entry){.row = row, .value = item->text};
    if (item->kind == LK_YAML_KIND_NULL)
        return fail_at(c, item, "%s has no value; leave the line out, or write one", row->name);
    if (item->kind == LK_YAML_KIND_TEXT) {
        bool absent;
        LK_TRY(fixed ? take_fixed(c, item, &absent) : take_truth(c, row, item, &absent));
        if (absent)
            return LK_OK;
        if (fixed || is_word(item, "true"))
            entry->value = fixed;
    } else {
        LK_TRY(put_nested(c, row, index, &entry->value));
    }
    entry->source = c->texts + c->used;
    put(c, "%s:%zu", c->path, item->line);
    c->used++;
    c->count++;
    return LK_OK;
}

/* A key that is a word of another program, of the set's command; NULL if it is none. */
static const lk_options_foreign *find_foreign(const lk_options_set *set, const lk_yaml_item *item)
{
    char word[64];
    snprintf(word, sizeof word, "--%s", item->key);
    return lk__options_find_foreign(set, word);
}

/* Whether the key stands for an option of the set, or for a parameter of one. */
static bool stands_for(const lk_options_set *set, const lk_yaml_item *item)
{
    const char *fixed;
    const lk_options_foreign *row = find_foreign(set, item);
    return row && (lk__options_foreign_option(set, row, &fixed) || lk__options_foreign_is_key(set, row));
}

/* Adds a parameter, "momentum: .9", to the option that the same file has, "optimizer: sgd". */
static lk_status add_key(config *c, const lk_options_set *set, const lk_yaml_item *item, const char *means)
{
    const char *key = strchr(means, ':') + 1;
    int length = (int)(key - 1 - means);
    const lk_option *row = lk__options_find_name(set, means, (size_t)length);
    lk_options_entry *entry = c->entries;
    while (entry < c->entries + c->count && entry->row != row)
        entry++;
    if (item->kind != LK_YAML_KIND_TEXT)
        return fail_at(c, item, "%s wants a number", item->key);
    if (entry == c->entries + c->count)
        return fail_at(c, item, "'%s' is a parameter of %.*s: write '%.*s: {name: NAME, %s: %s}'", item->key, length,
                       means, length, means, key, item->text);
    if (is_word(item, "false"))
        return LK_OK;
    const char *text = c->texts + c->used, *sign = strchr(entry->value, ':') ? "," : ":";
    put(c, "%s%s%s=", entry->value, sign, key);
    LK_TRY(put_part(c, item, is_word(item, "true") ? "1" : item->text));
    c->texts[c->used++] = 0;
    entry->value = text;
    return LK_OK;
}

static lk_status add_keys(config *c, const lk_options_set *set)
{
    size_t count = 0;
    for (size_t i = 0; i < c->yaml->count; i = skip(c, i)) {
        const lk_yaml_item *item = &c->yaml->items[i];
        const lk_options_foreign *row = lk__options_find(set, item->key) ? NULL : find_foreign(set, item);
        if (!row || !lk__options_foreign_is_key(set, row))
            continue;
        if (++count > LK_OPTIONS_TAKEN_MAX)
            return fail_at(c, item, "'%s' is one word of another program too many", item->key);
        LK_TRY(add_key(c, set, item, row->means));
    }
    return LK_OK;
}

static lk_status fail_unknown(const config *c, const lk_options_set *set, const lk_options_set *other,
                              const lk_yaml_item *item)
{
    if (find_foreign(set, item))
        return fail_at(c, item, "no option '%s'; 'lockstep %s --%s' says what to write", item->key, set->command,
                       item->key);
    const char *near = lk__options_nearest(set, item->key);
    near = near ? near : lk__options_nearest(other, item->key);
    if (near)
        return fail_at(c, item, "no option '%s'; did you mean '%s'?", item->key, near);
    return fail_at(c, item, "no option '%s'; 'lockstep %s --help' lists those there are", item->key, set->command);
}

/* Makes the entry of an item if it is an option of the set; options of `other` are skipped. */
static lk_status take_item(config *c, const lk_options_set *set, const lk_options_set *other, size_t index)
{
    const lk_yaml_item *item = &c->yaml->items[index];
    const lk_option *row = lk__options_find(set, item->key);
    const char *fixed = NULL;
    if (row && (strcmp(row->name, "config") == 0 || strcmp(row->name, "help") == 0))
        return fail_at(c, item, "'%s' belongs on the command line; leave it out", item->key);
    if (!row && lk__options_find(other, item->key))
        return LK_OK;
    const lk_options_foreign *foreign = row ? NULL : find_foreign(set, item);
    if (foreign)
        row = lk__options_foreign_option(set, foreign, &fixed);
    if (row)
        return add_entry(c, row, fixed, index);
    return stands_for(set, item) || stands_for(other, item) ? LK_OK : fail_unknown(c, set, other, item);
}

/* Makes entries from all items at the top level that are options of the set; options of `other` are skipped. */
static lk_status take_items(config *c, const lk_options_set *set, const lk_options_set *other)
{
    c->count = 0;
    for (size_t i = 0; i < c->yaml->count; i = skip(c, i))
        LK_TRY(take_item(c, set, other, i));
    return add_keys(c, set);
}

/* Options that the set does not have are checked as those of the recipe. */
static lk_status check_others(config *c, const lk_options_set *set, const lk_options_set *recipe, void *values)
{
    lk_options_parsed all = {0};
    for (size_t i = 0; i < recipe->count; i++)
        all.given[i] = true;
    LK_TRY(take_items(c, recipe, set));
    return lk__options_fill(recipe, c->entries, c->count, values, &all);
}

static lk_status read_file(config *c)
{
    lk_status status = lk__yaml_read(c->path, &c->yaml);
    /* A file of options is a kind of command line, so its errors are USAGE. */
    if (status == LK_STATUS_FORMAT)
        return lk__fail(LK_STATUS_USAGE, "%s", lk_error_detail());
    if (status != LK_OK)
        return lk__fail(status, "--config: %s", lk_error_detail());
    LK_TRY(check_words(c));
    LK_TRY(reserve_texts(c));
    return LK_ALLOC(c->yaml->count, "the options of a file", &c->entries);
}

lk_status lk__config_load(const lk_options_set *set, const lk_options_set *recipe, const char *path, void *values,
                          lk_options_parsed *parsed)
{
    config *c;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "the options of a file", &c));
    c->path = path;
    LK_TRY_GOTO(read_file(c), destroy_config);
    if (set->commands != recipe->commands)
        LK_TRY_GOTO(check_others(c, set, recipe, values), destroy_config);
    c->used = 0;
    LK_TRY_GOTO(take_items(c, set, recipe), destroy_config);
    LK_TRY_GOTO(lk__options_fill(set, c->entries, c->count, values, parsed), destroy_config);
    lk__config_unload();
    loaded = c;
    return LK_OK;

destroy_config:
    destroy(c);
    return status;
}
