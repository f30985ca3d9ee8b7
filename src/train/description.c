/* description.c - writes and reads the notes that describe a model. */
#include "train/description.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/spec.h"
#include "base/utf8.h"
#include "io/json.h"

const char lk__description_model[] = "model", lk__description_data[] = "data",
           lk__description_transforms[] = "transforms";
static const char CLASSES[] = "classes", INPUT[] = "input", MEAN[] = "mean", STD[] = "std", ORDER[] = "order";

/* The order of what is done to an image, for readers of the file. */
static const char order[] = "decode, grey if one channel, transforms, divide by 255, subtract mean, divide by std";

enum { NUMBERS_TEXT = 24 * LK_DATASET_MAX_CHANNELS, MOST_SIDE = 1 << 16, MOST_CLASSES = 1 << 20 };

/* The fewest digits that give the float back. */
static size_t write_number(float value, char *text, size_t bytes)
{
    int length = 0;
    for (int digits = 4; digits <= 9; digits++) {
        double back;
        length = snprintf(text, bytes, "%.*g", digits, (double)value);
        if (lk__number_parse_double(text, &back) && (float)back == value)
            break;
    }
    return (size_t)length;
}

/* "0.485,0.456,0.406" */
static void write_numbers(const float *values, size_t count, char text[NUMBERS_TEXT])
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            text[used++] = ',';
        used += write_number(values[i], text + used, NUMBERS_TEXT - used);
    }
}

/* A JSON array of the classes' names. */
static lk_status note_classes(const lk_dataset *data, lk_state *state)
{
    size_t classes = lk_dataset_get_info(data)->classes, room = 3, used = 0;
    char number[LK_CLASS_NUMBER], *text;
    for (size_t i = 0; i < classes; i++)
        room += 6 * strlen(lk__dataset_class_name(data, i, number)) + 3;
    LK_TRY(LK_ALLOC(room, "names of classes", &text));
    text[used++] = '[';
    for (size_t i = 0; i < classes; i++) {
        if (i > 0)
            text[used++] = ',';
        used += lk__json_quote(lk__dataset_class_name(data, i, number), text + used);
    }
    text[used++] = ']';
    lk_status status = lk_state_set_note(state, CLASSES, text);
    lk__mem_free(text);
    return status;
}

lk_status lk__description_note(const lk_description_source *from, lk_state *state)
{
    char input[3 * 24], mean[NUMBERS_TEXT], std[NUMBERS_TEXT];
    lk_sample_shape shape = from->shape;
    snprintf(input, sizeof input, "%zux%zux%zu", shape.channels, shape.height, shape.width);
    write_numbers(from->data->info.mean, shape.channels, mean);
    write_numbers(from->data->info.std, shape.channels, std);
    LK_TRY(lk_state_set_note(state, lk__description_model, from->model));
    if (lk__utf8_is_valid(from->name))
        LK_TRY(lk_state_set_note(state, lk__description_data, from->name));
    LK_TRY(lk_state_set_note(state, INPUT, input));
    if (from->transforms)
        LK_TRY(lk_state_set_note(state, lk__description_transforms, from->transforms));
    LK_TRY(lk_state_set_note(state, MEAN, mean));
    LK_TRY(lk_state_set_note(state, STD, std));
    LK_TRY(lk_state_set_note(state, ORDER, order));
    return note_classes(from->data, state);
}

bool lk__description_is(const lk_state *state)
{
    return lk_state_note(state, INPUT) && lk_state_note(state, CLASSES);
}

static lk_status fail_note(const char *path, const char *name, const char *text)
{
    return lk__fail(LK_STATUS_FORMAT, "%s: the note 'lockstep.%s' is %s, which is not a value that this note can have",
                    path, name, text ? lk__json_quote_short(text).text : "missing");
}

static bool parse_input(const char *text, lk_model_shape *out)
{
    int end = 0;
    bool read = text && sscanf(text, "%5zux%5zux%5zu%n", &out->channels, &out->height, &out->width, &end) == 3;
    return read && !text[end] && (out->channels == 1 || out->channels == LK_DATASET_MAX_CHANNELS) && out->height > 0 &&
           out->width > 0 && out->height <= MOST_SIDE && out->width <= MOST_SIDE;
}

static bool parse_numbers(const char *text, size_t count, float *out)
{
    for (size_t i = 0; text && i < count; i++) {
        char one[64];
        double value;
        size_t length = strcspn(text, ",");
        if (length >= sizeof one || (text[length] == ',') != (i + 1 < count))
            return false;
        snprintf(one, sizeof one, "%.*s", (int)length, text);
        if (!lk__number_parse_double(one, &value) || !isfinite((float)value))
            return false;
        out[i] = (float)value;
        text += length + 1;
    }
    return text != NULL;
}

static lk_status copy_names(const cJSON *list, lk_description *out)
{
    size_t count = (size_t)cJSON_GetArraySize(list), at = 0;
    LK_TRY(LK_ALLOC(count, "names of classes", &out->names));
    out->shape.classes = count;
    for (const cJSON *item = list->child; item; item = item->next)
        LK_TRY(lk__mem_copy_text(item->valuestring, "a name of a class", &out->names[at++]));
    return LK_OK;
}

static lk_status read_classes(const char *text, const char *path, lk_description *out)
{
    size_t at = 0;
    const lk_json_limits limits = {.depth = 1, .array = MOST_CLASSES};
    cJSON *list = text && !lk__json_check(text, strlen(text), limits, &at) ? cJSON_Parse(text) : NULL;
    bool good = cJSON_IsArray(list) && list->child;
    for (const cJSON *item = good ? list->child : NULL; good && item; item = item->next)
        good = cJSON_IsString(item);
    lk_status status = good ? copy_names(list, out) : fail_note(path, CLASSES, text);
    cJSON_Delete(list);
    return status;
}

static lk_status read_notes(const lk_state *state, const char *path, lk_description *out)
{
    static const char *const names[] = {MEAN, STD};
    float *const values[] = {out->mean, out->std};
    const char *input = lk_state_note(state, INPUT);
    if (!parse_input(input, &out->shape))
        return fail_note(path, INPUT, input);
    for (size_t i = 0; i < 2; i++) {
        const char *text = lk_state_note(state, names[i]);
        if (!parse_numbers(text, out->shape.channels, values[i]))
            return fail_note(path, names[i], text);
    }
    for (size_t i = 0; i < out->shape.channels; i++)
        if (!(out->std[i] > 0))
            return fail_note(path, STD, lk_state_note(state, STD));
    return read_classes(lk_state_note(state, CLASSES), path, out);
}

lk_status lk__description_read(const lk_state *state, const char *path, lk_description *out)
{
    lk_description read = {0};
    lk_status status = read_notes(state, path, &read);
    if (status == LK_OK)
        *out = read;
    else
        lk__description_fini(&read);
    return status;
}

void lk__description_fini(lk_description *description)
{
    for (size_t i = 0; description->names && i < description->shape.classes; i++)
        lk__mem_free(description->names[i]);
    lk__mem_free(description->names);
    *description = (lk_description){0};
}
