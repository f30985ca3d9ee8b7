/* fuzz_checkpoint.c - libFuzzer target: arbitrary bytes as checkpoint.json.
 *
 * The first byte chooses whether the input is the whole file or the part between its first lines and its
 * checksum; the target adds these, so that most inputs pass the checksum. Both state files exist. Notes that
 * load, are saved and are loaded again must be the same. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "io/checkpoint/checkpoint.h"
#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One tensor "w" of two floats; the seeds describe it correctly. */
static const uint8_t part[] = "\x40\0\0\0\0\0\0\0"
                              "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}          "
                              "\0\0\x80\x3f\0\0\0\x40";
enum { PART_BYTES = 8 + 64 + 8 };
_Static_assert(sizeof part == PART_BYTES + 1, "a header of 64 bytes");

static size_t mend(const uint8_t *data, size_t size, char *out, size_t room)
{
    size_t used = (size_t)snprintf(out, room, "{\n\"format\": \"lockstep checkpoint\",\n\"version\": 1,\n");
    require(used + size + 64 < room);
    memcpy(out + used, data, size);
    used += size;
    return used +
           (size_t)snprintf(out + used, room - used, "\"checksum\": \"%016" PRIx64 "\"\n}\n", lk__hash(out, used, 0));
}

static void check_refusal(lk_status status)
{
    require(status == LK_STATUS_FORMAT && strstr(lk_error_detail(), scratch_open()) != NULL);
}

static lk_checkpoint *with_states(void)
{
    lk_state *states[2] = {NULL, NULL};
    lk_checkpoint *checkpoint = NULL;
    require(lk_state_create(&states[0]) == LK_OK && lk_state_create(&states[1]) == LK_OK);
    require(lk_checkpoint_create(states[0], states[1], &checkpoint) == LK_OK);
    return checkpoint;
}

static void check_round_trip(const lk_checkpoint *notes)
{
    lk_checkpoint *copy = with_states(), *back = NULL;
    char path[SCRATCH_PATH + 8], file[SCRATCH_PATH + 64];
    const char *name;
    for (size_t i = 0; (name = lk_checkpoint_note_name(notes, i)); i++)
        require(lk_checkpoint_set_note(copy, name, lk_checkpoint_note(notes, name)) == LK_OK);
    snprintf(path, sizeof path, "%s/copy", scratch_open());
    require(lk_checkpoint_save(copy, path) == LK_OK && lk_checkpoint_load(path, &back) == LK_OK);
    for (size_t i = 0; (name = lk_checkpoint_note_name(notes, i)); i++) {
        require(strcmp(lk_checkpoint_note_name(back, i), name) == 0);
        require(strcmp(lk_checkpoint_note(back, name), lk_checkpoint_note(notes, name)) == 0);
    }
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "checkpoint.json"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        require(unlink(file) == 0);
    }
    require(rmdir(path) == 0);
    lk_checkpoint_destroy(copy);
    lk_checkpoint_destroy(back);
}

static void try_folder(void)
{
    lk_checkpoint *notes = NULL, *whole = NULL;
    lk_status status = lk_checkpoint_load_notes(scratch_open(), &notes);
    require((status == LK_OK) == (notes != NULL));
    if (notes)
        check_round_trip(notes);
    else
        check_refusal(status);
    lk_status verified = lk_checkpoint_verify(scratch_open());
    if (verified != LK_OK)
        check_refusal(verified);
    require(status == LK_OK || verified != LK_OK);
    require((lk_checkpoint_load(scratch_open(), &whole) == LK_OK) == (verified == LK_OK));
    lk_checkpoint_destroy(notes);
    lk_checkpoint_destroy(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[1 << 16];
    if (size == 0 || size > sizeof text / 2)
        return 0;
    scratch_put("model.safetensors", part, PART_BYTES);
    scratch_put("optimizer.safetensors", part, PART_BYTES);
    if (data[0] & 1)
        scratch_put("checkpoint.json", text, mend(data + 1, size - 1, text, sizeof text));
    else
        scratch_put("checkpoint.json", data + 1, size - 1);
    try_folder();
    scratch_clear();
    return 0;
}
