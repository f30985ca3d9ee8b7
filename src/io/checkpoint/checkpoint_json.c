/* checkpoint_json.c - reads and writes checkpoint.json: notes, and the description of the two other
 * files.
 *
 * Each note and each tensor is one line. The first lines, with format and version, are the same in
 * every version. The last member is the hash of all bytes before it, which detects any changed bit.
 * The file may come from anywhere, also with a correct hash: every value is checked before it is
 * used. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/text.h"
#include "io/checkpoint/checkpoint_impl.h"
#include "tensor/state.h"

#define START "{\n\"format\": \"lockstep checkpoint\",\n\"version\": "
enum { VERSION = 1, MAX_BYTES = 64 << 20, HASH_DIGITS = 16 };

/* The end of the file, with the hash of everything before it. */
#define TAIL "\"checksum\": \"%016" PRIx64 "\"\n}\n"
enum { TAIL_BYTES = 13 + HASH_DIGITS + 4 };

void lk__manifest_fini(lk_manifest *manifest)
{
    for (int i = 0; i < LK_PARTS; i++)
        lk__mem_free(manifest->parts[i].tensors);
    cJSON_Delete(manifest->root);
    *manifest = (lk_manifest){0};
}

/* The most bytes of a line without names and texts. */
enum { LINE_BYTES = 128 + 22 * LK_MAX_DIMS };

static size_t room_for(const lk_checkpoint *checkpoint, const lk_manifest_part parts[LK_PARTS])
{
    size_t room = 8 * LINE_BYTES;
    for (size_t i = 0; i < checkpoint->count; i++)
        room += LINE_BYTES + 6 * (strlen(checkpoint->notes[i].name) + strlen(checkpoint->notes[i].text));
    for (int p = 0; p < LK_PARTS; p++)
        for (size_t i = 0; i < parts[p].count; i++)
            room += LINE_BYTES + 6 * strlen(parts[p].tensors[i].entry.name);
    return room;
}

static char *put(char *at, const char *text)
{
    size_t bytes = strlen(text);
    memcpy(at, text, bytes);
    return at + bytes;
}

static char *put_notes(char *at, const lk_checkpoint *checkpoint)
{
    at = put(at, "\"notes\": {");
    for (size_t i = 0; i < checkpoint->count; i++) {
        at = put(at, i ? ",\n" : "\n");
        at += lk__json_quote(checkpoint->notes[i].name, at);
        at = put(at, ": ");
        at += lk__json_quote(checkpoint->notes[i].text, at);
    }
    return put(at, "\n},\n");
}

static char *put_tensor(char *at, const lk_manifest_tensor *tensor)
{
    const lk_state_entry *entry = &tensor->entry;
    char text[LINE_BYTES], dims[LK_TEXT_DIMS_BYTES(LK_MAX_DIMS)];
    at += lk__json_quote(entry->name, at);
    lk__text_dims(entry->dims, entry->ndim, dims, sizeof dims);
    snprintf(text, sizeof text, ": {\"dtype\": \"%s\", \"shape\": %s, \"hash\": \"%016" PRIx64 "\"}",
             lk_dtype_name(entry->dtype), dims, tensor->hash);
    return put(at, text);
}

static char *put_part(char *at, const char *name, const lk_manifest_part *part)
{
    char text[LINE_BYTES];
    snprintf(text, sizeof text, "\"%s\": {\"bytes\": %" PRIu64 ", \"hash\": \"%016" PRIx64 "\", \"tensors\": {", name,
             part->bytes, part->hash);
    at = put(at, text);
    for (size_t i = 0; i < part->count; i++) {
        at = put(at, i ? ",\n" : "\n");
        at = put_tensor(at, &part->tensors[i]);
    }
    return put(at, "\n}}");
}

lk_status lk__manifest_make(const lk_checkpoint *checkpoint, const lk_manifest_part parts[LK_PARTS], char **text,
                            size_t *bytes)
{
    char *start, line[TAIL_BYTES + 1];
    LK_TRY(LK_ALLOC(room_for(checkpoint, parts), "the notes of a checkpoint", &start));
    char *at = put(start, START "1,\n");
    at = put_notes(at, checkpoint);
    at = put(at, "\"files\": {\n");
    for (int p = 0; p < LK_PARTS; p++) {
        at = put(at, p ? ",\n" : "");
        at = put_part(at, lk__checkpoint_parts[p], &parts[p]);
    }
    at = put(at, "\n},\n");
    snprintf(line, sizeof line, TAIL, lk__hash(start, (size_t)(at - start), 0));
    at = put(at, line);
    if (at - start > MAX_BYTES) {
        lk__mem_free(start);
        return lk__fail(LK_STATUS_USAGE, "%s would have more than %d bytes: too many notes or tensors",
                        lk__checkpoint_notes, MAX_BYTES);
    }
    *text = start;
    *bytes = (size_t)(at - start);
    return LK_OK;
}

typedef struct input {
    const char *path;
    const char *text;
    size_t bytes;
} input;

static lk_status damaged(const input *in, const char *what)
{
    return lk__fail(LK_STATUS_FORMAT, "%s is damaged: %s", in->path, what);
}

static bool sum_fits(const input *in)
{
    char tail[TAIL_BYTES + 1];
    if (in->bytes < TAIL_BYTES)
        return false;
    size_t before = in->bytes - TAIL_BYTES;
    snprintf(tail, sizeof tail, TAIL, lk__hash(in->text, before, 0));
    return memcmp(in->text + before, tail, TAIL_BYTES) == 0;
}

/* The start up to the version and the checksum at the end are the same in every version, so that a
 * valid file of a later version differs from a damaged one. */
static lk_status fail_later(const input *in, unsigned long version)
{
    if (sum_fits(in))
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "%s was made by a later version of lockstep: it has format %lu, and this one reads up to %d; "
                        "update lockstep",
                        in->path, version, VERSION);
    return lk__fail(LK_STATUS_FORMAT,
                    "%s is damaged: it says that a later version of lockstep made it, of format %lu, but its checksum "
                    "does not fit",
                    in->path, version);
}

static lk_status check_version(const input *in)
{
    size_t at = sizeof START - 1, digits = 0;
    unsigned long version = 0;
    if (in->bytes < at || memcmp(in->text, START, at) != 0)
        return lk__fail(LK_STATUS_FORMAT, "%s is damaged or not of a checkpoint: it does not start as one", in->path);
    for (; at < in->bytes && in->text[at] >= '0' && in->text[at] <= '9' && digits < 9; at++, digits++)
        version = 10 * version + (unsigned long)(in->text[at] - '0');
    if (digits == 0 || at == in->bytes || in->text[at] != ',' || version == 0)
        return damaged(in, "its version cannot be read");
    if (version > VERSION)
        return fail_later(in, version);
    return LK_OK;
}

static lk_status check_sum(const input *in)
{
    if (in->bytes < TAIL_BYTES || memcmp(in->text + in->bytes - TAIL_BYTES, "\"checksum\": ", 12) != 0)
        return damaged(in, "it is cut short, or its end is altered");
    return sum_fits(in) ? LK_OK : damaged(in, "it differs from what was saved, by its checksum");
}

static lk_status parse(const input *in, cJSON **out)
{
    size_t at = 0;
    const lk_json_limits limits = {.depth = 8, .array = LK_MAX_DIMS};
    const char *wrong = lk__json_check(in->text, in->bytes, limits, &at);
    if (wrong)
        return lk__fail(LK_STATUS_FORMAT, "%s is malformed: it has %s at byte %zu", in->path, wrong, at);
    const char *end = in->text;
    cJSON *root = cJSON_ParseWithLengthOpts(in->text, in->bytes, &end, false);
    if (!root && lk__json_is_valid(in->text, in->bytes))
        return lk__fail_memory(in->bytes, "the parsed notes of a checkpoint");
    if (!root)
        return lk__fail(LK_STATUS_FORMAT, "%s is malformed: no valid JSON at byte %zu", in->path,
                        (size_t)(end - in->text));
    if (end != in->text + in->bytes - 1) {
        cJSON_Delete(root);
        return lk__fail(LK_STATUS_FORMAT, "%s is malformed: it goes on after its object", in->path);
    }
    *out = root;
    return LK_OK;
}

/* The member with this name; NULL if there is none or object is not an object. */
static const cJSON *member(const cJSON *object, const char *name)
{
    return cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, name) : NULL;
}

static bool read_hash(const cJSON *item, uint64_t *out)
{
    const char *text = cJSON_IsString(item) ? item->valuestring : "";
    if (strlen(text) != HASH_DIGITS || strspn(text, "0123456789abcdef") != HASH_DIGITS)
        return false;
    *out = strtoull(text, NULL, 16);
    return true;
}

static bool read_dtype(const cJSON *item, lk_dtype *out)
{
    for (int i = 0; cJSON_IsString(item) && i < LK_DTYPE_COUNT; i++) {
        if (strcmp(item->valuestring, lk_dtype_name((lk_dtype)i)) == 0) {
            *out = (lk_dtype)i;
            return true;
        }
    }
    return false;
}

static bool read_shape(const cJSON *item, lk_state_entry *entry)
{
    if (!cJSON_IsArray(item))
        return false;
    for (const cJSON *dim = item->child; dim; dim = dim->next) {
        uint64_t value;
        if (entry->ndim == LK_MAX_DIMS || !lk__json_integer(dim, &value) || value > SIZE_MAX)
            return false;
        entry->dims[entry->ndim++] = (size_t)value;
    }
    return true;
}

static bool read_tensor(const cJSON *item, lk_manifest_tensor *out)
{
    lk_state_entry *entry = &out->entry;
    entry->name = item->string;
    return read_dtype(member(item, "dtype"), &entry->dtype) && read_shape(member(item, "shape"), entry) &&
           lk__dtype_count_bytes(entry->dtype, entry->ndim, entry->dims, &entry->bytes) &&
           read_hash(member(item, "hash"), &out->hash);
}

static lk_status read_tensors(const input *in, const cJSON *list, lk_manifest_part *out)
{
    LK_TRY(LK_ALLOC((size_t)cJSON_GetArraySize(list), "the tensors of a checkpoint", &out->tensors));
    for (const cJSON *item = list->child; item; item = item->next) {
        lk_manifest_tensor *tensor = &out->tensors[out->count++];
        if (!read_tensor(item, tensor) || tensor->entry.bytes > out->bytes - out->data)
            return lk__fail(LK_STATUS_FORMAT, "%s is malformed: what it says of tensor %s cannot be", in->path,
                            lk__json_quote_short(item->string).text);
        out->data += tensor->entry.bytes;
    }
    return LK_OK;
}

static lk_status read_part(const input *in, const cJSON *files, const char *name, lk_manifest_part *out)
{
    const cJSON *item = member(files, name), *tensors = member(item, "tensors");
    if (!lk__json_integer(member(item, "bytes"), &out->bytes) || !read_hash(member(item, "hash"), &out->hash) ||
        !cJSON_IsObject(tensors))
        return lk__fail(LK_STATUS_FORMAT, "%s is malformed: it does not say what %s is", in->path, name);
    return read_tensors(in, tensors, out);
}

static lk_status read_notes(const input *in, const cJSON *notes, lk_checkpoint *out)
{
    if (!cJSON_IsObject(notes))
        return lk__fail(LK_STATUS_FORMAT, "%s is malformed: it has no notes", in->path);
    for (const cJSON *item = notes->child; item; item = item->next) {
        if (!cJSON_IsString(item) || !*item->string || out->count == LK_MAX_NOTES ||
            lk_checkpoint_note(out, item->string))
            return lk__fail(LK_STATUS_FORMAT, "%s is malformed: note %s has no name or text, or is one too many",
                            in->path, lk__json_quote_short(item->string).text);
        LK_TRY(lk_checkpoint_set_note(out, item->string, item->valuestring));
    }
    return LK_OK;
}

/* Checks notes that the caller does not want: they must be valid, too. */
static lk_status check_notes(const input *in, const cJSON *notes)
{
    lk_checkpoint *unused;
    LK_TRY(lk_checkpoint_create(NULL, NULL, &unused));
    lk_status status = read_notes(in, notes, unused);
    lk_checkpoint_destroy(unused);
    return status;
}

static lk_status read_members(const input *in, lk_manifest *manifest, lk_checkpoint *notes)
{
    const cJSON *files = member(manifest->root, "files"), *texts = member(manifest->root, "notes");
    LK_TRY(notes ? read_notes(in, texts, notes) : check_notes(in, texts));
    for (int p = 0; p < LK_PARTS; p++)
        LK_TRY(read_part(in, files, lk__checkpoint_parts[p], &manifest->parts[p]));
    return LK_OK;
}

static lk_status read_text(const input *in, lk_manifest *out, lk_checkpoint *notes)
{
    lk_manifest manifest = {.bytes = in->bytes};
    LK_TRY(check_version(in));
    LK_TRY(check_sum(in));
    LK_TRY(parse(in, &manifest.root));
    lk_status status = read_members(in, &manifest, notes);
    if (status == LK_OK)
        *out = manifest;
    else
        lk__manifest_fini(&manifest);
    return status;
}

lk_status lk__manifest_read(const char *folder, lk_manifest *out, lk_checkpoint *notes)
{
    char path[LK_CHECKPOINT_PATH];
    uint8_t *data = NULL;
    size_t bytes = 0;
    LK_TRY(lk__checkpoint_join(folder, lk__checkpoint_notes, path));
    lk_status status = lk__file_read(path, MAX_BYTES, &data, &bytes);
    if (status == LK_STATUS_NOT_FOUND)
        return lk__fail(status, "%s is no checkpoint: %s", folder, lk_error_detail());
    LK_TRY(status);
    const input in = {.path = path, .text = (const char *)data, .bytes = bytes};
    status = read_text(&in, out, notes);
    lk__mem_free(data);
    return status;
}
