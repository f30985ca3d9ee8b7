/* spec.c - parses "name:key=value,key=value" strings and single numbers.
 *
 * All values are checked before the first is stored: a refused spec leaves the defaults unchanged. */
#include "base/spec.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEYS = 64, MAX_WORD = 64, MAX_NUMBER = 64 };

lk_status lk__spec_name(const char *text, const char *what, char name[LK_SPEC_MAX_NAME])
{
    size_t length = strcspn(text, ":");
    if (length == 0)
        return lk__fail(LK_STATUS_USAGE, "%s '%s': the name before ':' is missing", what, text);
    if (length >= LK_SPEC_MAX_NAME)
        return lk__fail(LK_STATUS_USAGE, "%s: a name of %zu characters is too long (at most %d)", what, length,
                        LK_SPEC_MAX_NAME - 1);
    memcpy(name, text, length);
    name[length] = '\0';
    return LK_OK;
}

bool lk__number_parse_double(const char *text, double *out)
{
    if (*text == '\0' || isspace((unsigned char)*text))
        return false;
    char *end;
    double value = strtod(text, &end);
    if (*end != '\0' || !isfinite(value))
        return false;
    *out = value;
    return true;
}

const char *lk__number_text(double value, char text[LK_NUMBER_TEXT])
{
    char shortest[LK_NUMBER_TEXT] = "";
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(shortest, sizeof shortest, "%.*g", digits, value);
        if (strtod(shortest, NULL) == value)
            break;
    }
    return memcpy(text, shortest, sizeof shortest);
}

/* Whether two values of these lengths are the same number or text. */
static bool same_value(const char *a, size_t a_length, const char *b, size_t b_length)
{
    char x[64], y[64];
    double u, v;
    if (a_length == b_length && memcmp(a, b, a_length) == 0)
        return true;
    if (a_length >= sizeof x || b_length >= sizeof y)
        return false;
    snprintf(x, sizeof x, "%.*s", (int)a_length, a);
    snprintf(y, sizeof y, "%.*s", (int)b_length, b);
    return lk__number_parse_double(x, &u) && lk__number_parse_double(y, &v) && u == v;
}

/* Whether two items, "key=value" or a word, of these lengths are the same. */
static bool same_item(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t key = strcspn(a, "=,");
    if (key != strcspn(b, "=,") || memcmp(a, b, key) != 0)
        return false;
    if (key == a_length || key == b_length)
        return a_length == b_length;
    return same_value(a + key + 1, a_length - key - 1, b + key + 1, b_length - key - 1);
}

static const char *next_item(const char *item)
{
    item += strcspn(item, ",");
    return item + (*item == ',');
}

/* Whether b has every item of a. */
static bool has_items(const char *a, const char *b)
{
    for (; *a; a = next_item(a)) {
        const char *other = b;
        while (*other && !same_item(a, strcspn(a, ","), other, strcspn(other, ",")))
            other = next_item(other);
        if (!*other)
            return false;
    }
    return true;
}

bool lk__spec_same(const char *a, const char *b)
{
    size_t name = strcspn(a, ":");
    if (name != strcspn(b, ":") || memcmp(a, b, name) != 0)
        return false;
    a += name + (a[name] == ':');
    b += name + (b[name] == ':');
    return has_items(a, b) && has_items(b, a);
}

bool lk__number_parse_int(const char *text, long long min, long long max, long long *out)
{
    if (*text == '\0' || isspace((unsigned char)*text))
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*end != '\0' || errno != 0 || value < min || value > max)
        return false;
    *out = value;
    return true;
}

int lk__variable_int(const char *name, int max)
{
    const char *text = getenv(name);
    long long value;
    return text && lk__number_parse_int(text, 0, max, &value) ? (int)value : -1;
}

void lk__names_join(const lk_names *names, char *text, size_t bytes)
{
    const char *name;
    size_t used = 0;
    *text = '\0';
    for (size_t i = 0; used < bytes && (name = names->next(names->arg, i)) != NULL; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i > 0 ? ", " : "", name);
}

static lk_status unknown_word(const lk_names *names, const char *word)
{
    char known[512];
    lk__names_join(names, known, sizeof known);
    const char *near = lk__names_nearest(word, names->next, names->arg);
    return lk__fail(LK_STATUS_USAGE, "%s: no %s '%s'%s%s%s (%s: %s)", names->what, names->kind, word,
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "",
                    names->list ? names->list : "known", known);
}

lk_status lk__names_find(const lk_names *names, const char *word, size_t *index)
{
    const char *name;
    for (size_t i = 0; (name = names->next(names->arg, i)) != NULL; i++) {
        if (strcmp(name, word) == 0) {
            *index = i;
            return LK_OK;
        }
    }
    return unknown_word(names, word);
}

lk_status lk__spec_find(const char *text, const lk_names *names, size_t *index)
{
    char name[LK_SPEC_MAX_NAME];
    LK_TRY(lk__spec_name(text, names->what, name));
    return lk__names_find(names, name, index);
}

/* The parameters that a spec may set: `count` keys, and a list as the last parameter if list is not NULL. */
typedef struct key_list {
    const lk_spec_key *keys;
    size_t count;
    lk_spec_list *list; /* or NULL */
} key_list;

static const char *key_name(const void *arg, size_t index)
{
    const key_list *list = arg;
    if (index == list->count && list->list)
        return list->list->name;
    return index < list->count ? list->keys[index].name : NULL;
}

/* Whether a word of this length equals b; '-' and '_' are equal. */
static bool same_word(const char *a, size_t length, const char *b)
{
    for (size_t i = 0; i < length; i++) {
        char ca = a[i] == '_' ? '-' : a[i], cb = b[i] == '_' ? '-' : b[i];
        if (ca != cb)
            return false;
    }
    return b[length] == '\0';
}

static lk_status unknown_key(const char *what, const char *word, size_t length, const key_list *list)
{
    char key[MAX_WORD];
    snprintf(key, sizeof key, "%.*s", (int)length, word);
    if (!key_name(list, 0))
        return lk__fail(LK_STATUS_USAGE, "%s: no parameter '%s' (none can be set here)", what, key);
    return unknown_word(&(lk_names){.what = what, .kind = "parameter", .next = key_name, .arg = list}, key);
}

/* Reads `length` characters as a number within the key's range. */
static lk_status read_number(const char *what, const lk_spec_key *key, const char *digits, size_t length, double *out)
{
    char number[MAX_NUMBER];
    double value = 0;
    bool fits = length < sizeof number;
    if (fits) {
        memcpy(number, digits, length);
        number[length] = '\0';
    }
    if (!fits || !lk__number_parse_double(number, &value))
        return lk__fail(LK_STATUS_USAGE, "%s: '%.*s' is not a number for '%s' (from %.10g to %.10g)", what, (int)length,
                        digits, key->name, key->min, key->max);
    if (!(value >= key->min && value <= key->max))
        return lk__fail(LK_STATUS_USAGE, "%s: %s=%.10g is out of range (from %.10g to %.10g)", what, key->name, value,
                        key->min, key->max);
    if (key->whole && value != floor(value))
        return lk__fail(LK_STATUS_USAGE, "%s: %s=%.10g must be a whole number (from %.10g to %.10g)", what, key->name,
                        value, key->min, key->max);
    *out = value;
    return LK_OK;
}

/* Reads the value of "key=value" or "key"; item has length characters. */
static lk_status item_value(const char *what, const lk_spec_key *key, const char *item, size_t length, double *out)
{
    const char *equals = memchr(item, '=', length);
    bool is_switch = key->whole && key->min == 0 && key->max == 1;
    if (equals != NULL)
        return read_number(what, key, equals + 1, length - (size_t)(equals + 1 - item), out);
    if (!is_switch)
        return lk__fail(LK_STATUS_USAGE, "%s: '%s' needs a value, as in '%s=%.10g'", what, key->name, key->name,
                        *key->value);
    *out = 1;
    return LK_OK;
}

/* Reads the values of "key=value/value"; item has length characters. */
static lk_status item_values(const char *what, lk_spec_list *list, const char *item, size_t length)
{
    const lk_spec_key key = {.name = list->name, .min = list->min, .max = list->max, .whole = list->whole};
    const char *equals = memchr(item, '=', length), *end = item + length;
    if (equals == NULL)
        return lk__fail(LK_STATUS_USAGE, "%s: '%s' needs values, as in '%s=%.10g/%.10g'", what, key.name, key.name,
                        list->values[0], list->values[list->count - 1]);
    list->count = 0;
    for (const char *at = equals; at < end;) {
        const char *digits = at + 1, *slash = memchr(digits, '/', (size_t)(end - digits));
        at = slash ? slash : end;
        if (list->count == LK_SPEC_MAX_LIST)
            return lk__fail(LK_STATUS_USAGE, "%s: '%s' takes at most %d values", what, key.name, LK_SPEC_MAX_LIST);
        double *value = &list->values[list->count++];
        LK_TRY(read_number(what, &key, digits, (size_t)(at - digits), value));
        if (list->count > 1 && !(value[-1] < *value))
            return lk__fail(LK_STATUS_USAGE, "%s: the values of '%s' must rise, but after %.10g comes %.10g", what,
                            key.name, value[-1], *value);
    }
    return LK_OK;
}

/* Reads the item of key k, which has length characters; stores the result if `store`. */
static lk_status read_item(const char *what, const key_list *list, size_t k, const char *item, size_t length,
                           bool store)
{
    if (k == list->count) {
        lk_spec_list values = *list->list;
        LK_TRY(item_values(what, &values, item, length));
        if (store)
            *list->list = values;
        return LK_OK;
    }
    double value = 0;
    LK_TRY(item_value(what, &list->keys[k], item, length, &value));
    if (store)
        *list->keys[k].value = value;
    return LK_OK;
}

/* Goes through the items once; stores values if `store`. */
static lk_status walk(const char *items, const char *what, const key_list *list, bool store)
{
    uint64_t seen = 0;
    for (const char *item = items;; item++) {
        size_t length = strcspn(item, ",");
        size_t word = strcspn(item, ",=");
        if (word == 0)
            return lk__fail(LK_STATUS_USAGE, "%s: a parameter's name is missing at '%s' (write key=value,key=value)",
                            what, items);
        size_t k = 0;
        const char *name;
        while ((name = key_name(list, k)) != NULL && !same_word(item, word, name))
            k++;
        if (!name)
            return unknown_key(what, item, word, list);
        if (seen >> k & 1)
            return lk__fail(LK_STATUS_USAGE, "%s: parameter '%s' is given twice", what, name);
        seen |= (uint64_t)1 << k;
        LK_TRY(read_item(what, list, k, item, length, store));
        item += length;
        if (*item == '\0')
            return LK_OK;
    }
}

static lk_status read_items(const char *text, const char *what, const key_list *list)
{
    assert(list->count < MAX_KEYS);
    const char *colon = strchr(text, ':');
    if (colon == NULL)
        return LK_OK;
    LK_TRY(walk(colon + 1, what, list, false));
    return walk(colon + 1, what, list, true);
}

lk_status lk__spec_params(const char *text, const char *what, const lk_spec_key *keys, size_t count)
{
    return read_items(text, what, &(key_list){.keys = keys, .count = count});
}

lk_status lk__spec_values_list(const char *text, const char *what, const lk_spec_param *params, size_t max,
                               double *values, lk_spec_list *list)
{
    lk_spec_key keys[MAX_KEYS];
    size_t count = 0;
    assert(max < MAX_KEYS);
    for (; count < max && params[count].name != NULL; count++) {
        const lk_spec_param *p = &params[count];
        values[count] = p->value;
        keys[count] = (lk_spec_key){p->name, &values[count], p->min, p->max, p->whole};
    }
    return read_items(text, what, &(key_list){.keys = keys, .count = count, .list = list});
}

lk_status lk__spec_values(const char *text, const char *what, const lk_spec_param *params, size_t max, double *values)
{
    return lk__spec_values_list(text, what, params, max, values, NULL);
}

bool lk__spec_has_switch(const char *text, const char *name)
{
    const lk_spec_key key = {.name = name, .max = 1, .whole = true};
    for (const char *at = strchr(text, ':'); at != NULL && *at != '\0';) {
        const char *item = at + 1;
        size_t length = strcspn(item, ",");
        double value = 0;
        if (same_word(item, strcspn(item, ",="), name))
            return item_value(text, &key, item, length, &value) == LK_OK && value > 0;
        at = item + length;
    }
    return false;
}

/* Normalises a letter for the edit distance: small, '-' for '_'. */
static char plain(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c - 'A' + 'a');
    return c == '_' ? '-' : c;
}

/* Edit distance of two words; swapped neighbours are one edit. Only the first MAX_WORD - 1
 * characters count. */
static size_t distance(const char *a, const char *b)
{
    size_t na = strnlen(a, MAX_WORD - 1), nb = strnlen(b, MAX_WORD - 1);
    unsigned char rows[3][MAX_WORD] = {{0}};
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = (unsigned char)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned char *row = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
        row[0] = (unsigned char)i;
        for (size_t j = 1; j <= nb; j++) {
            int best = up[j - 1] + (plain(a[i - 1]) != plain(b[j - 1]));
            if (up[j] + 1 < best)
                best = up[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && plain(a[i - 1]) == plain(b[j - 2]) && plain(a[i - 2]) == plain(b[j - 1]) &&
                up2[j - 2] + 1 < best)
                best = up2[j - 2] + 1;
            row[j] = (unsigned char)best;
        }
    }
    return rows[na % 3][nb];
}

const char *lk__names_nearest(const char *word, const char *(*next)(const void *arg, size_t index), const void *arg)
{
    /* With more edits, "did you mean" would mislead more than help. */
    size_t limit = strlen(word) < 3 ? 1 : strlen(word) / 3;
    const char *best = NULL;
    const char *candidate;
    for (size_t i = 0; (candidate = next(arg, i)) != NULL; i++) {
        size_t edits = distance(word, candidate);
        if (edits <= limit && edits < strlen(word)) {
            limit = edits == 0 ? 0 : edits - 1;
            best = candidate;
            if (edits == 0)
                break;
        }
    }
    return best;
}
