/* test_initial.c - starting from a file: other float types, skipped layers, and the errors if the file
 * does not fit. */
#include "check.h"
#include "temp_folder.h"
#include "train/parts.h"

static lk_engine *create(const char *model, size_t classes)
{
    lk_graph *graph;
    lk_engine *engine;
    lk_engine_opts opts = {.batch = 4, .optimizer = "sgd", .seed = 3};
    assert_int_equal(lk_model_build(model, (lk_model_shape){1, 4, 4, classes}, &graph), LK_OK);
    assert_int_equal(lk_engine_create(graph, &opts, &engine), LK_OK);
    lk_graph_destroy(graph);
    return engine;
}

static lk_state *state_of(const lk_engine *engine)
{
    lk_state *state;
    assert_int_equal(lk_engine_state(engine, &state), LK_OK);
    return state;
}

/* fc.weight (classes, 16) and fc.bias (classes) of the given type; all elements are equal. */
static lk_state *file_of(size_t classes, lk_dtype dtype, const void *element)
{
    lk_state *state;
    assert_int_equal(lk_state_create(&state), LK_OK);
    for (int i = 0; i < 2; i++) {
        lk_state_entry *entry;
        assert_int_equal(
            lk_state_add(state, i ? "fc.bias" : "fc.weight", dtype, i ? 1 : 2, (size_t[]){classes, 16}, &entry), LK_OK);
        for (size_t at = 0; at < entry->bytes; at += lk_dtype_size(dtype))
            memcpy((char *)entry->data + at, element, lk_dtype_size(dtype));
    }
    return state;
}

static void expect_all(const char *model, lk_dtype dtype, const void *element, float wanted)
{
    lk_engine *engine = create(model, 3);
    lk_state *file = file_of(3, dtype, element);
    lk_train_opts opts = {.model = model, .init_from = "file"};
    assert_int_equal(lk__train_init_engine(engine, &opts, file, ""), LK_OK);
    lk_state *got = state_of(engine);
    for (size_t i = 0; i < lk_state_count(got); i++) {
        const lk_state_entry *entry = lk_state_at(got, i);
        for (size_t k = 0; k < entry->bytes / sizeof(float); k++)
            assert_memory_equal((float *)entry->data + k, &wanted, sizeof wanted);
    }
    lk_state_destroy(got);
    lk_state_destroy(file);
    lk_engine_destroy(engine);
}

static void test_types(void **state)
{
    static const struct {
        uint16_t half;
        float value;
    } halves[] = {{0x3c00, 1.0f}, {0xc100, -2.5f}, {0x0001, 0x1p-24f}, {0x83ff, -0x3ffp-24f},
                  {0x0000, 0.0f}, {0x8000, -0.0f}, {0x7bff, 65504.0f}, {0x0400, 0x1p-14f}};
    for (size_t i = 0; i < COUNT_OF(halves); i++)
        expect_all("debug", LK_DTYPE_F16, &halves[i].half, halves[i].value);
    expect_all("debug", LK_DTYPE_BF16, &(uint16_t){0xbfc0}, -1.5f);
    expect_all("debug", LK_DTYPE_F64, &(double){0.1}, 0.1f);
    expect_all("debug", LK_DTYPE_F32, &(float){0.3f}, 0.3f);
}

/* The skipped layer keeps its first weights; the other layers have those of the file. */
static void test_skip(void **state)
{
    lk_engine *source = create("mlp", 7), *engine = create("mlp", 3);
    lk_state *file = state_of(source), *before = state_of(engine);
    memset(lk_state_find(file, "chunk1.1.weight")->data, 0, 64);
    lk_train_opts opts = {.model = "mlp", .init_from = "old.pth", .init_skip = "chunk2.2"};
    assert_int_equal(lk__train_init_engine(engine, &opts, file, ""), LK_OK);
    lk_state *after = state_of(engine);
    for (size_t i = 0; i < lk_state_count(after); i++) {
        const lk_state_entry *entry = lk_state_at(after, i);
        const lk_state *from = strncmp(entry->name, "chunk2.2.", 9) == 0 ? before : file;
        assert_memory_equal(entry->data, lk_state_find(from, entry->name)->data, entry->bytes);
    }
    lk_state_destroy(after);

    opts.init_skip = NULL;
    assert_int_equal(lk__train_init_engine(engine, &opts, file, "; skip it"), LK_STATUS_MISMATCH);
    assert_detail("old.pth: key 'chunk2.2.weight'");
    assert_detail("(the model is mlp; skip it)");
    opts.init_skip = "chunk2.2,chunk2";
    assert_int_equal(lk__train_init_engine(engine, &opts, file, ""), LK_OK);
    opts.init_skip = "chunk2.2,chun";
    assert_fails(lk__train_init_engine(engine, &opts, file, ""), LK_STATUS_USAGE, "no layer 'chun'");
    lk_state_destroy(before);
    lk_state_destroy(file);
    lk_engine_destroy(engine);
    lk_engine_destroy(source);
}

/* The prefix "module." in the names of a file is ignored, in every format. */
static void test_prefix(void **state)
{
    char folder[TEMP_FOLDER_BYTES], path[TEMP_FOLDER_BYTES + 32];
    static const char *const endings[] = {"pth", "safetensors"};
    lk_engine *engine = create("debug", 3);
    lk_state *named, *file;
    lk_train_opts opts = {.model = "debug", .init_from = path};
    temp_folder_create(folder);
    assert_int_equal(lk_state_create(&named), LK_OK);
    for (int i = 0; i < 2; i++) {
        lk_state_entry *entry;
        const char *name = i ? "module.fc.bias" : "module.fc.weight";
        assert_int_equal(lk_state_add(named, name, LK_DTYPE_F32, i ? 1 : 2, (size_t[]){3, 16}, &entry), LK_OK);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/file.%s", folder, endings[i]);
        assert_int_equal(lk_state_save(named, path), LK_OK);
        lk_status status = lk__train_load_weights(path, &file);
        if (status == LK_STATUS_UNSUPPORTED)
            continue;
        assert_int_equal(status, LK_OK);
        assert_int_equal(lk__train_init_engine(engine, &opts, file, ""), LK_OK);
        lk_state_destroy(file);
    }
    lk_state_destroy(named);
    lk_engine_destroy(engine);
    temp_folder_remove(folder);
}

TEST_MAIN(NULL, NULL, TEST(test_types), TEST(test_skip), TEST(test_prefix))
