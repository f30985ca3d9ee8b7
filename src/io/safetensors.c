/* safetensors.c - reads and writes .safetensors files.
 *
 * A file is the header's length (8 bytes, little-endian), the header (a JSON object of name ->
 * dtype, shape and data_offsets, and "__metadata__") and the data, which the offsets must cover
 * without holes or overlaps. A file may come from anywhere: every value is checked before it is
 * used, and memory is allocated only after all tensors are known to fit the file. */
#include "io/safetensors.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "io/json.h"
#include "io/state_format.h"
#include "io/state_notes.h"
#include "tensor/state.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file's numbers are little-endian");

/* The format's limit of the header's bytes, and the offset of the header. */
#define MAX_HEADER 100000000u
#define HEADER_AT 8u
#define METADATA "__metadata__"
/* Before the names of a state's notes in the metadata. */
#define NOTE_PREFIX "lockstep."

static const char *const dtype_names[LK_DTYPE_COUNT] = {
    [LK_DTYPE_F32] = "F32", [LK_DTYPE_F64] = "F64", [LK_DTYPE_BF16] = "BF16", [LK_DTYPE_F16] = "F16",
    [LK_DTYPE_I64] = "I64", [LK_DTYPE_I32] = "I32", [LK_DTYPE_U8] = "U8",
};

/* A file being read. */
typedef struct source {
    const lk_state_source *file;
    const char *path;
    uint64_t size;
    uint64_t header;       /* bytes of the header */
    const cJSON *metadata; /* or NULL */
} source;

/* One tensor, as the header describes it; offsets count from the start of the data. */
typedef struct record {
    const char *name; /* borrowed from the parsed header */
    size_t order;     /* index in the header */
    lk_dtype dtype;
    int ndim;
    size_t dims[LK_MAX_DIMS];
    uint64_t begin, end;
} record;

static uint64_t data_at(const source *in)
{
    return HEADER_AT + in->header;
}

/* Reads the length and the header; a 0 follows the text. */
static lk_status read_header(source *in, char **out)
{
    if (in->size < HEADER_AT + 2)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s has %" PRIu64 " bytes, too few for a safetensors file: byte 0 holds an 8-byte header "
                        "length and byte 8 the header",
                        in->path, in->size);
    LK_TRY(lk__state_source_read(in->file, 0, &in->header, sizeof in->header));
    if (in->header > MAX_HEADER)
        return lk__fail(
            LK_STATUS_FORMAT,
            "%s is no model file (.safetensors, .pth) and no checkpoint: read as safetensors, byte 0 gives a "
            "header of %" PRIu64 " bytes, at most %u is legal",
            in->path, in->header, MAX_HEADER);
    if (in->header > in->size - HEADER_AT)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s is cut short or not a safetensors file: byte 0 gives a header of %" PRIu64
                        " bytes, but only %" PRIu64 " follow",
                        in->path, in->header, in->size - HEADER_AT);
    char *text;
    LK_TRY(LK_ALLOC((size_t)in->header + 1, "the header of a safetensors file", &text));
    lk_status status = lk__state_source_read(in->file, HEADER_AT, text, (size_t)in->header);
    if (status != LK_OK) {
        lk__mem_free(text);
        return status;
    }
    *out = text;
    return LK_OK;
}

static lk_status parse_header(const source *in, const char *text, cJSON **out)
{
    size_t bytes = (size_t)in->header, at = 0;
    if (bytes == 0 || text[0] != '{')
        return lk__fail(LK_STATUS_FORMAT, "%s is not a safetensors file: its header does not start with { at byte %u",
                        in->path, HEADER_AT);
    const lk_json_limits limits = {.depth = 8, .array = LK_MAX_DIMS};
    const char *wrong = lk__json_check(text, bytes, limits, &at);
    if (wrong == lk__json_too_deep)
        return lk__fail(LK_STATUS_FORMAT, "%s: the header has %s at byte %zu (%d deep at most)", in->path, wrong,
                        HEADER_AT + at, limits.depth);
    if (wrong == lk__json_too_long)
        return lk__fail(LK_STATUS_FORMAT, "%s: the header has %s at byte %zu (%zu numbers at most)", in->path, wrong,
                        HEADER_AT + at, limits.array);
    if (wrong)
        return lk__fail(LK_STATUS_FORMAT, "%s: the header has %s at byte %zu", in->path, wrong, HEADER_AT + at);
    const char *end = text;
    cJSON *root = cJSON_ParseWithLengthOpts(text, bytes, &end, false);
    at = (size_t)(end - text);
    if (!root && lk__json_is_valid(text, bytes))
        return lk__fail_memory(bytes, "the parsed header of a safetensors file");
    if (!root)
        return lk__fail(LK_STATUS_FORMAT, "%s: the header is not valid JSON at byte %zu", in->path, HEADER_AT + at);
    at += strspn(text + at, " \t\r\n");
    if (at < bytes) {
        cJSON_Delete(root);
        return lk__fail(LK_STATUS_FORMAT, "%s: the header goes on after its object at byte %zu; only spaces may follow",
                        in->path, HEADER_AT + at);
    }
    *out = root;
    return LK_OK;
}

static lk_status check_metadata(const source *in, const cJSON *item)
{
    bool good = cJSON_IsObject(item);
    for (const cJSON *child = item->child; good && child; child = child->next)
        good = cJSON_IsString(child);
    if (!good)
        return lk__fail(LK_STATUS_FORMAT, "%s: \"" METADATA "\" in the header must be an object of strings", in->path);
    return LK_OK;
}

static lk_status parse_dtype(const source *in, const cJSON *item, record *rec)
{
    const char *name = cJSON_IsString(item) ? item->valuestring : "";
    for (int i = 0; i < LK_DTYPE_COUNT; i++) {
        if (strcmp(name, dtype_names[i]) == 0) {
            rec->dtype = (lk_dtype)i;
            return LK_OK;
        }
    }
    return lk__fail(LK_STATUS_FORMAT,
                    "%s: tensor %s has dtype %s; F64, F32, BF16, F16, I64, I32 and U8 can be read: convert it first",
                    in->path, lk__json_quote_short(rec->name).text, lk__json_quote_short(name).text);
}

static lk_status parse_shape(const source *in, const cJSON *item, record *rec)
{
    bool good = cJSON_IsArray(item);
    int ndim = 0;
    for (const cJSON *dim = item->child; good && dim; dim = dim->next, ndim++) {
        uint64_t value;
        good = ndim < LK_MAX_DIMS && lk__json_integer(dim, &value) && value <= SIZE_MAX;
        if (good)
            rec->dims[ndim] = (size_t)value;
    }
    rec->ndim = ndim;
    if (!good)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s: tensor %s has a malformed shape; expected an array of 0 to %d integers from 0 to 2^53 - 1",
                        in->path, lk__json_quote_short(rec->name).text, LK_MAX_DIMS);
    return LK_OK;
}

static lk_status parse_offsets(const source *in, const cJSON *item, record *rec)
{
    const cJSON *begin = cJSON_IsArray(item) ? item->child : NULL;
    const cJSON *end = begin ? begin->next : NULL;
    if (!end || end->next || !lk__json_integer(begin, &rec->begin) || !lk__json_integer(end, &rec->end) ||
        rec->begin > rec->end)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s: tensor %s has malformed data_offsets; expected [begin, end], integers from 0 to 2^53 - 1 "
                        "with begin <= end",
                        in->path, lk__json_quote_short(rec->name).text);
    uint64_t data = in->size - data_at(in);
    if (rec->end > data)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s is cut short or its header wrong: tensor %s ends at byte %" PRIu64
                        ", the file at byte %" PRIu64,
                        in->path, lk__json_quote_short(rec->name).text, data_at(in) + rec->end, in->size);
    return LK_OK;
}

/* The fields of a tensor. Others are ignored, as the format's own reader does. */
static const struct {
    const char *name;
    lk_status (*parse)(const source *in, const cJSON *item, record *rec);
} fields[] = {{"dtype", parse_dtype}, {"shape", parse_shape}, {"data_offsets", parse_offsets}};

enum { FIELDS = sizeof fields / sizeof *fields };

static lk_status check_bytes(const source *in, const record *rec)
{
    size_t bytes = SIZE_MAX;
    bool counted = lk__dtype_count_bytes(rec->dtype, rec->ndim, rec->dims, &bytes);
    if (!counted || bytes != rec->end - rec->begin)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s: tensor %s has %" PRIu64 " bytes of data at byte %" PRIu64
                        ", its shape and dtype %s ask for %s%zu",
                        in->path, lk__json_quote_short(rec->name).text, rec->end - rec->begin, data_at(in) + rec->begin,
                        dtype_names[rec->dtype], counted ? "" : "more than ", bytes);
    return LK_OK;
}

static lk_status parse_record(const source *in, const cJSON *item, record *rec)
{
    bool seen[FIELDS] = {false};
    if (!cJSON_IsObject(item))
        return lk__fail(LK_STATUS_FORMAT, "%s: tensor %s is not described by an object in the header", in->path,
                        lk__json_quote_short(rec->name).text);
    for (const cJSON *child = item->child; child; child = child->next) {
        for (int i = 0; i < FIELDS; i++) {
            if (strcmp(child->string, fields[i].name) != 0)
                continue;
            if (seen[i])
                return lk__fail(LK_STATUS_FORMAT, "%s: tensor %s has %s twice in the header", in->path,
                                lk__json_quote_short(rec->name).text, fields[i].name);
            LK_TRY(fields[i].parse(in, child, rec));
            seen[i] = true;
        }
    }
    for (int i = 0; i < FIELDS; i++)
        if (!seen[i])
            return lk__fail(LK_STATUS_FORMAT, "%s: tensor %s has no %s in the header", in->path,
                            lk__json_quote_short(rec->name).text, fields[i].name);
    return check_bytes(in, rec);
}

static int by_offset(const void *a, const void *b)
{
    const record *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* Every byte of the data must belong to exactly one tensor. records are sorted. */
static lk_status check_cover(const source *in, const record *records, size_t count)
{
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (records[i].begin != at)
            return lk__fail(LK_STATUS_FORMAT,
                            "%s: tensor %s starts at byte %" PRIu64 ", expected byte %" PRIu64
                            ", the end of the one before: tensors may not %s",
                            in->path, lk__json_quote_short(records[i].name).text, data_at(in) + records[i].begin,
                            data_at(in) + at, records[i].begin < at ? "overlap" : "leave holes");
        at = records[i].end;
    }
    if (data_at(in) + at != in->size)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s: the last tensor ends at byte %" PRIu64 ", the file at byte %" PRIu64
                        ": the rest belongs to no tensor",
                        in->path, data_at(in) + at, in->size);
    return LK_OK;
}

static lk_status check_length(const source *in, const char *name)
{
    size_t bytes = strlen(name);
    if (bytes > LK_MAX_TENSOR_NAME)
        return lk__fail(LK_STATUS_FORMAT, "%s: tensor %s has a name of %zu bytes; names have %d at most", in->path,
                        lk__json_quote_short(name).text, bytes, LK_MAX_TENSOR_NAME);
    return LK_OK;
}

/* records has room for every child of root. */
static lk_status parse_records(const source *in, const cJSON *root, record *records, size_t *out)
{
    size_t count = 0;
    bool metadata = false;
    for (const cJSON *item = root->child; item; item = item->next) {
        if (strcmp(item->string, METADATA) == 0) {
            if (metadata)
                return lk__fail(LK_STATUS_FORMAT, "%s: the header has \"" METADATA "\" twice", in->path);
            metadata = true;
            LK_TRY(check_metadata(in, item));
            continue;
        }
        records[count] = (record){.name = item->string, .order = count};
        LK_TRY(check_length(in, item->string));
        LK_TRY(parse_record(in, item, &records[count]));
        count++;
    }
    if (count)
        qsort(records, count, sizeof *records, by_offset);
    LK_TRY(check_cover(in, records, count));
    *out = count;
    return LK_OK;
}

/* Tensors follow each other in the file, so the data are read in one pass. */
static lk_status read_tensors(const source *in, const record *records, size_t count, lk_state *state)
{
    for (size_t i = 0; i < count; i++) {
        const record *rec = &records[i];
        lk_state_entry *entry;
        if (lk_state_find(state, rec->name))
            return lk__fail(LK_STATUS_FORMAT, "%s: the header has tensor %s twice", in->path,
                            lk__json_quote_short(rec->name).text);
        LK_TRY(lk_state_add(state, rec->name, rec->dtype, rec->ndim, rec->dims, &entry));
        LK_TRY(lk__state_source_read(in->file, data_at(in) + rec->begin, entry->data, entry->bytes));
    }
    return LK_OK;
}

/* Called with the tensors of a file when the whole header is known to be valid. */
typedef lk_status (*use_records)(const source *in, const record *records, size_t count, void *arg);

static lk_status use_tensors(const source *in, const cJSON *root, use_records use, void *arg)
{
    record *records;
    size_t count = 0;
    lk_status status;
    LK_TRY(LK_ALLOC((size_t)cJSON_GetArraySize(root), "the table of a safetensors file", &records));
    LK_TRY_GOTO(parse_records(in, root, records, &count), free_records);
    status = use(in, records, count, arg);
free_records:
    lk__mem_free(records);
    return status;
}

static lk_status read_file(const lk_state_source *file, use_records use, void *arg)
{
    source in = {.file = file, .path = file->path, .size = file->size};
    char *text = NULL;
    cJSON *root = NULL;
    lk_status status;
    LK_TRY(read_header(&in, &text));
    LK_TRY_GOTO(parse_header(&in, text, &root), free_text);
    in.metadata = cJSON_GetObjectItemCaseSensitive(root, METADATA);
    status = use_tensors(&in, root, use, arg);
    cJSON_Delete(root);
free_text:
    lk__mem_free(text);
    return status;
}

static lk_status make_notes(const source *in, const record *records, size_t count, void *arg)
{
    (void)records, (void)count;
    return lk__state_notes_take(in->metadata, NOTE_PREFIX, arg);
}

static lk_status load_notes(const lk_state_source *file, lk_state *state)
{
    return read_file(file, make_notes, state);
}

static lk_status make_state(const source *in, const record *records, size_t count, void *arg)
{
    lk_state **out = arg, *state = NULL;
    lk_status status;
    LK_TRY(lk_state_create(&state));
    LK_TRY_GOTO(read_tensors(in, records, count, state), destroy_state);
    LK_TRY_GOTO(lk__state_notes_take(in->metadata, NOTE_PREFIX, state), destroy_state);
    *out = state;
    return LK_OK;
destroy_state:
    lk_state_destroy(state);
    return status;
}

static lk_status load_safetensors(const lk_state_source *file, lk_state **out)
{
    return read_file(file, make_state, out);
}

typedef struct listing {
    lk_safetensors_fn visit;
    void *arg;
} listing;

static lk_status list_records(const source *in, const record *records, size_t count, void *arg)
{
    const listing *list = arg;
    (void)in;
    for (size_t i = 0; i < count; i++) {
        lk_state_entry entry = {.name = (char *)(uintptr_t)records[i].name,
                                .dtype = records[i].dtype,
                                .ndim = records[i].ndim,
                                .bytes = (size_t)(records[i].end - records[i].begin)};
        memcpy(entry.dims, records[i].dims, sizeof entry.dims);
        list->visit(list->arg, &entry);
    }
    return LK_OK;
}

lk_status lk__safetensors_list(const lk_state_source *file, lk_safetensors_fn visit, void *arg)
{
    listing list = {.visit = visit, .arg = arg};
    return read_file(file, list_records, &list);
}

static lk_status check_name(const char *path, const char *name)
{
    if (strcmp(name, METADATA) == 0)
        return lk__fail(LK_STATUS_USAGE, "cannot save %s: a tensor may not be called \"" METADATA "\"", path);
    size_t bytes = strlen(name), valid = lk__utf8_valid_bytes(name, bytes);
    if (valid < bytes)
        return lk__fail(LK_STATUS_USAGE, "cannot save %s: the name of a tensor is not UTF-8 at its byte %zu", path,
                        valid);
    return LK_OK;
}

/* Sorts by element size, largest first, then in the state's order: every tensor is then aligned to
 * its elements, because the start of the data is aligned to the largest. */
void lk__safetensors_order(const lk_state *state, const lk_state_entry **sorted)
{
    size_t at = 0;
    for (size_t size = 8; size; size /= 2)
        for (size_t i = 0; i < lk_state_count(state); i++)
            if (lk_dtype_size(lk_state_at(state, i)->dtype) == size)
                sorted[at++] = lk_state_at(state, i);
}

static size_t put(char *out, size_t room, const char *before, uint64_t value)
{
    return (size_t)snprintf(out, room, "%s%" PRIu64, before, value);
}

/* The most bytes of an entry without its name. */
enum { ENTRY_BYTES = 80 + 21 * (LK_MAX_DIMS + 2) };

static size_t put_entry(char *out, const lk_state_entry *entry, uint64_t begin)
{
    size_t at = 0;
    out[at++] = ',';
    at += lk__json_quote(entry->name, out + at);
    at += (size_t)snprintf(out + at, 40, ":{\"dtype\":\"%s\",\"shape\":[", dtype_names[entry->dtype]);
    for (int i = 0; i < entry->ndim; i++)
        at += put(out + at, 22, i ? "," : "", entry->dims[i]);
    at += put(out + at, 42, "],\"data_offsets\":[", begin);
    at += put(out + at, 22, ",", begin + entry->bytes);
    memcpy(out + at, "]}", 2);
    at += 2;
    return at;
}

/* PyTorch's word and the notes. */
static size_t put_metadata(char *out, const lk_state *state)
{
    static const char start[] = "{\"" METADATA "\":{\"format\":\"pt\"";
    size_t at = sizeof start - 1;
    memcpy(out, start, at);
    at += lk__state_notes_put(state, NOTE_PREFIX, out + at);
    out[at++] = '}';
    return at;
}

/* Makes the length and the header. */
static lk_status make_header(const char *path, const lk_state *state, const lk_state_entry *const *sorted, char **out,
                             size_t *bytes)
{
    size_t room = HEADER_AT + lk__state_notes_room(state, NOTE_PREFIX) + 64, count = lk_state_count(state);
    for (size_t i = 0; i < count; i++) {
        LK_TRY(check_name(path, sorted[i]->name));
        room += 6 * strlen(sorted[i]->name) + ENTRY_BYTES;
    }
    char *text;
    LK_TRY(LK_ALLOC(room, "the header of a safetensors file", &text));
    size_t at = HEADER_AT + put_metadata(text + HEADER_AT, state);
    uint64_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        at += put_entry(text + at, sorted[i], offset);
        offset += sorted[i]->bytes;
    }
    text[at++] = '}';
    while (at % 8)
        text[at++] = ' ';
    uint64_t length = at - HEADER_AT;
    if (length > MAX_HEADER) {
        lk__mem_free(text);
        return lk__fail(LK_STATUS_USAGE, "cannot save %s: its header would have %" PRIu64 " bytes, at most %u is legal",
                        path, length, MAX_HEADER);
    }
    memcpy(text, &length, sizeof length);
    *out = text;
    *bytes = at;
    return LK_OK;
}

lk_status lk__safetensors_write(const lk_state *state, const char *path, lk_writer *writer)
{
    const lk_state_entry **sorted;
    char *header = NULL;
    size_t count = lk_state_count(state), bytes = 0;
    lk_status status;
    LK_TRY(LK_ALLOC(count, "the order of a state dict", &sorted));
    lk__safetensors_order(state, sorted);
    LK_TRY_GOTO(make_header(path, state, sorted, &header, &bytes), free_sorted);
    LK_TRY_GOTO(lk__writer_write(writer, header, bytes), free_header);
    for (size_t i = 0; i < count; i++)
        LK_TRY_GOTO(lk__writer_write(writer, sorted[i]->data, sorted[i]->bytes), free_header);
free_header:
    lk__mem_free(header);
free_sorted:
    lk__mem_free(sorted);
    return status;
}

static lk_status save_safetensors(const lk_state *state, const char *path)
{
    lk_writer *writer;
    lk_status status;
    LK_TRY(lk__writer_open(path, &writer));
    LK_TRY_GOTO(lk__safetensors_write(state, path, writer), abort_writer);
    return lk__writer_commit(writer);
abort_writer:
    lk__writer_abort(writer);
    return status;
}

static bool probe_safetensors(const uint8_t *start, size_t bytes)
{
    return bytes > HEADER_AT && start[HEADER_AT] == '{';
}

const lk_state_format lk__state_format_safetensors = {.name = "safetensors",
                                                      .endings = {".safetensors"},
                                                      .probe = probe_safetensors,
                                                      .load = load_safetensors,
                                                      .load_notes = load_notes,
                                                      .save = save_safetensors};
