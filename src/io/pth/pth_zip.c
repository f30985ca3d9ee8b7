/* pth_zip.c - reads the zip archive of torch.save since PyTorch 1.6: ROOT/data.pkl, ROOT/byteorder
 * and a member ROOT/data/KEY for each storage. Needs libzip, which also reads compressed members;
 * UNSUPPORTED without it. pth_save.c writes without a library. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/pth/pth.h"
#include "io/state_notes.h"

#ifdef LK_HAVE_LIBZIP
#include <cjson/cJSON.h>
#include <zip.h>
#include <zlib.h>

enum { NAME_BYTES = 1024 };
/* The directory may list the same bytes many times. So all members that are used may together have
 * at most the file's bytes, and inflate to at most lk__pth_most; weights hardly compress. A pickle
 * needs many times its size in memory, so its limit is smaller: uncompressed, as torch.save writes
 * it, it is smaller than the file. */
enum { PICKLE_TIMES = 4, PICKLE_MORE = 1 << 12 };

typedef struct archive {
    const lk_state_source *file;
    zip_t *zip;
    char root[NAME_BYTES / 2];
    uint64_t stored, inflated; /* bytes of all members found so far */
} archive;

/* A member that exists and has a size. */
typedef struct member {
    char name[NAME_BYTES];
    zip_uint64_t index, bytes;
} member;

/* After a lack of memory libzip may report "not a zip archive" or other errors. errno, which
 * load_zip has cleared, shows the real reason. */
static bool is_memory(const zip_error_t *error)
{
    int code = zip_error_code_zip(error), system = zip_error_code_system(error);
    return errno == ENOMEM || code == ZIP_ER_MEMORY || (code == ZIP_ER_ZLIB && system == Z_MEM_ERROR);
}

static lk_status no_memory(const archive *a)
{
    return lk__fail_memory((size_t)a->file->size, a->file->path);
}

static lk_status open_archive(const lk_state_source *file, archive *out)
{
    archive a = {.file = file};
    int fd = dup(file->fd), code = 0;
    if (fd < 0)
        return lk__fail(LK_STATUS_IO, "cannot read %s: %s", file->path, strerror(errno));
    a.zip = zip_fdopen(fd, 0, &code);
    if (!a.zip) {
        zip_error_t error;
        zip_error_init_with_code(&error, code);
        lk_status status =
            is_memory(&error)
                ? no_memory(&a)
                : lk__fail(LK_STATUS_FORMAT,
                           "%s is cut short or damaged: it starts as a zip archive, but its directory, which belongs "
                           "at its end, cannot be read (%s); download or save it again",
                           file->path, zip_error_strerror(&error));
        zip_error_fini(&error);
        close(fd);
        return status;
    }
    *out = a;
    return LK_OK;
}

/* Finds the folder that contains all members: the folder of the first one. */
static lk_status find_root(archive *a)
{
    const char *name = zip_get_name(a->zip, 0, 0);
    const char *slash = name ? strchr(name, '/') : NULL;
    if (!name && is_memory(zip_get_error(a->zip)))
        return no_memory(a);
    if (!slash || (size_t)(slash - name) >= sizeof a->root)
        return lk__fail(LK_STATUS_FORMAT, "%s is a zip archive, but not one of torch.save: its first member is %s",
                        a->file->path, lk__json_quote_short(name ? name : "").text);
    snprintf(a->root, sizeof a->root, "%.*s", (int)(slash - name), name);
    return LK_OK;
}

/* Finds a member; *index is negative if there is none. */
static lk_status find_index(const archive *a, const char *name, zip_int64_t *index)
{
    *index = zip_name_locate(a->zip, name, 0);
    return *index < 0 && is_memory(zip_get_error(a->zip)) ? no_memory(a) : LK_OK;
}

static lk_status bad_member(const archive *a, const char *name, const char *why)
{
    return lk__fail(LK_STATUS_FORMAT, "%s: member %s %s", a->file->path, lk__json_quote_short(name).text, why);
}

/* Checks the limits before memory is allocated for a member. */
static lk_status count_member(archive *a, const char *name, uint64_t stored, uint64_t inflated)
{
    const uint64_t size = a->file->size;
    if (stored > size - a->stored)
        return bad_member(a, name, "has a size that the file cannot hold beside its other members");
    if (inflated > lk__pth_most(size) - a->inflated)
        return bad_member(a, name,
                          "is compressed to so little that all members are more than 16 times the file and 1 MiB; "
                          "unpack the archive and pack it uncompressed");
    a->stored += stored;
    a->inflated += inflated;
    return LK_OK;
}

static lk_status find_member(archive *a, const char *name, member *out)
{
    zip_int64_t index;
    LK_TRY(find_index(a, name, &index));
    if (index < 0)
        return bad_member(a, name, "is missing: it is no file of torch.save, or was cut");
    zip_stat_t stat;
    zip_stat_init(&stat);
    const zip_uint64_t needed = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE;
    if (zip_stat_index(a->zip, (zip_uint64_t)index, 0, &stat) != 0 || (stat.valid & needed) != needed)
        return bad_member(a, name, "has no size");
    LK_TRY(count_member(a, name, stat.comp_size, stat.size));
    *out = (member){.index = (zip_uint64_t)index, .bytes = stat.size};
    snprintf(out->name, sizeof out->name, "%s", name);
    return LK_OK;
}

static lk_status read_failed(const archive *a, const member *m, zip_file_t *file)
{
    return is_memory(zip_file_get_error(file)) ? no_memory(a) : bad_member(a, m->name, zip_file_strerror(file));
}

/* libzip checks the checksum when the end is read. */
static lk_status read_open(const archive *a, const member *m, zip_file_t *file, uint8_t *out)
{
    uint8_t more;
    for (zip_uint64_t done = 0; done < m->bytes;) {
        zip_int64_t got = zip_fread(file, out + done, m->bytes - done);
        if (got < 0)
            return read_failed(a, m, file);
        if (got == 0)
            return bad_member(a, m->name, "is shorter than the archive's directory says");
        done += (zip_uint64_t)got;
    }
    zip_int64_t got = zip_fread(file, &more, 1);
    if (got < 0)
        return read_failed(a, m, file);
    return got == 0 ? LK_OK : bad_member(a, m->name, "is longer than the archive's directory says");
}

static lk_status read_member(const archive *a, const member *m, void *out)
{
    zip_file_t *file = zip_fopen_index(a->zip, m->index, 0);
    if (!file)
        return is_memory(zip_get_error(a->zip)) ? no_memory(a) : bad_member(a, m->name, zip_strerror(a->zip));
    lk_status status = read_open(a, m, file, out);
    zip_fclose(file);
    return status;
}

/* A file without the member comes from a PyTorch that wrote in the machine's byte order. All
 * machines in use are little-endian. */
static lk_status check_byteorder(archive *a)
{
    char name[NAME_BYTES], order[16] = "";
    zip_int64_t index;
    snprintf(name, sizeof name, "%s/byteorder", a->root);
    LK_TRY(find_index(a, name, &index));
    if (index < 0)
        return LK_OK;
    member m;
    LK_TRY(find_member(a, name, &m));
    if (m.bytes < sizeof order)
        LK_TRY(read_member(a, &m, order));
    if (strcmp(order, "little") != 0)
        return bad_member(a, name, "does not say \"little\"; only files of little-endian machines can be read");
    return LK_OK;
}

static lk_status storage_name(const archive *a, const lk_pth_storage *storage, char name[NAME_BYTES])
{
    int length = snprintf(name, NAME_BYTES, "%s/data/%.*s", a->root, (int)lk__size_min(storage->key_bytes, NAME_BYTES),
                          storage->key);
    return length < NAME_BYTES ? LK_OK : bad_member(a, name, "has too long a name");
}

static lk_status locate_storage(void *self, lk_pth_storage *storage)
{
    archive *a = self;
    char name[NAME_BYTES], why[128];
    member m;
    LK_TRY(storage_name(a, storage, name));
    LK_TRY(find_member(a, name, &m));
    if (m.bytes != storage->bytes) {
        snprintf(why, sizeof why, "has %" PRIu64 " bytes, the tensors in data.pkl ask for %" PRIu64, (uint64_t)m.bytes,
                 storage->bytes);
        return bad_member(a, name, why);
    }
    storage->position = m.index;
    return LK_OK;
}

static lk_status read_storage(void *self, const lk_pth_storage *storage, void *out)
{
    member m = {.index = storage->position, .bytes = storage->bytes};
    LK_TRY(storage_name(self, storage, m.name));
    return read_member(self, &m, out);
}

static lk_status load_pickle(archive *a, const lk_pickle_stream *stream, lk_state **out)
{
    lk_pickle *pickle = NULL;
    LK_TRY(lk__pickle_read(stream, lk__pth_globals, &pickle));
    const lk_pth_reader reader = {
        .pickle = pickle, .file_bytes = a->file->size, .self = a, .locate = locate_storage, .read = read_storage};
    lk_status status = lk__pth_load(&reader, out);
    lk__pickle_destroy(pickle);
    return status;
}

static lk_status check_pickle_size(const archive *a, const member *m)
{
    if (m->bytes > LK_PICKLE_MAX_BYTES)
        return bad_member(a, m->name, "has more than 64 MiB; it describes the tensors, and holds no data of theirs");
    if (m->bytes > PICKLE_TIMES * a->file->size + PICKLE_MORE)
        return bad_member(a, m->name,
                          "is compressed to so little that it is more than 4 times the file and 4 KiB; unpack the "
                          "archive and pack it uncompressed");
    return LK_OK;
}

static lk_status parse_notes(const archive *a, const member *m, const char *text, lk_state *state)
{
    const lk_json_limits limits = {.depth = 1};
    size_t at = 0, bytes = (size_t)m->bytes;
    cJSON *root = lk__json_check(text, bytes, limits, &at) ? NULL : cJSON_ParseWithLength(text, bytes);
    lk_status status = cJSON_IsObject(root) ? lk__state_notes_take(root, "", state)
                                            : bad_member(a, m->name, "is no JSON object of texts");
    cJSON_Delete(root);
    return status;
}

/* Adds the notes of a file that this program has saved. */
static lk_status add_notes(archive *a, lk_state *state)
{
    char name[NAME_BYTES], *text;
    zip_int64_t index;
    member m;
    snprintf(name, sizeof name, "%s/" LK_PTH_NOTES, a->root);
    LK_TRY(find_index(a, name, &index));
    if (index < 0)
        return LK_OK;
    LK_TRY(find_member(a, name, &m));
    LK_TRY(check_pickle_size(a, &m));
    LK_TRY(LK_ALLOC((size_t)m.bytes, "the notes of a state", &text));
    lk_status status = read_member(a, &m, text);
    if (status == LK_OK)
        status = parse_notes(a, &m, text, state);
    lk__mem_free(text);
    return status;
}

static lk_status load_archive(archive *a, lk_state **out)
{
    char name[NAME_BYTES];
    member m;
    uint8_t *bytes;
    zip_int64_t program;
    LK_TRY(find_root(a));
    snprintf(name, sizeof name, "%s/constants.pkl", a->root);
    LK_TRY(find_index(a, name, &program));
    if (program >= 0)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s is a TorchScript program; in Python save its parameters: torch.save(model.state_dict(), "
                        "PATH)",
                        a->file->path);
    LK_TRY(check_byteorder(a));
    snprintf(name, sizeof name, "%s/data.pkl", a->root);
    LK_TRY(find_member(a, name, &m));
    LK_TRY(check_pickle_size(a, &m));
    LK_TRY(LK_ALLOC((size_t)m.bytes, "a pickle", &bytes));
    lk_status status = read_member(a, &m, bytes);
    const lk_json_quoted shown = lk__json_quote_short(name);
    const lk_pickle_stream stream = {
        .path = a->file->path, .member = shown.text, .bytes = bytes, .size = (size_t)m.bytes};
    if (status == LK_OK)
        status = load_pickle(a, &stream, out);
    lk__mem_free(bytes);
    return status;
}

static lk_status load_zip(const lk_state_source *file, lk_state **out)
{
    archive a;
    errno = 0;
    LK_TRY(open_archive(file, &a));
    lk_state *state = NULL;
    lk_status status;
    LK_TRY_GOTO(load_archive(&a, &state), discard_archive);
    LK_TRY_GOTO(add_notes(&a, state), destroy_state);
    *out = state;
    state = NULL;
destroy_state:
    lk_state_destroy(state);
discard_archive:
    zip_discard(a.zip);
    return status;
}

static lk_status load_notes(const lk_state_source *file, lk_state *state)
{
    archive a;
    errno = 0;
    LK_TRY(open_archive(file, &a));
    lk_status status = find_root(&a);
    if (status == LK_OK)
        status = add_notes(&a, state);
    zip_discard(a.zip);
    return status;
}

#else

static lk_status load_zip(const lk_state_source *file, lk_state **out)
{
    (void)out;
    return lk__fail(LK_STATUS_UNSUPPORTED,
                    "%s: this build cannot read PyTorch's files: it was made without libzip; install libzip-dev and "
                    "build again, or convert the file to .safetensors",
                    file->path);
}

static lk_status load_notes(const lk_state_source *file, lk_state *state)
{
    (void)file, (void)state;
    return LK_OK;
}

#endif

static bool probe_zip(const uint8_t *start, size_t bytes)
{
    return bytes >= 4 && memcmp(start, "PK\3\4", 4) == 0;
}

const lk_state_format lk__state_format_pth = {.name = "PyTorch",
                                              .endings = {".pth", ".pt"},
                                              .probe = probe_zip,
                                              .load = load_zip,
                                              .load_notes = load_notes,
                                              .save = lk__pth_save};
