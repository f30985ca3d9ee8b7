/* test_predict.c - a model file says what it is, images are prepared as in an evaluation, and mistakes are named. */
#include "base/mem.h"
#include "tiny.h"
#include "train/parts.h"
#include "train/predict.h"

enum { CLASSES = 2, IMAGES = 2 };

static const char *const classes[CLASSES] = {"cats & \"dogs\"", "birds"};
static const char *const images[CLASSES][IMAGES] = {{"rgb.png", "fine.jpg"}, {"palette.png", "grey.png"}};

static void copy_image(const char *split, size_t class, const char *name)
{
    static unsigned char bytes[1 << 20];
    char from[PATH], to[PATH], below_it[PATH];
    snprintf(from, sizeof from, LK_TESTS_DIR "/data/images/%s", name);
    snprintf(below_it, sizeof below_it, "pictures/%s/%s/%s", split, classes[class], name);
    FILE *in = fopen(from, "rb"), *out = fopen(below(below_it, to), "wb");
    assert_non_null(in);
    assert_non_null(out);
    size_t count = fread(bytes, 1, sizeof bytes, in);
    assert_int_equal(fwrite(bytes, 1, count, out), count);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static int make_pictures(void **state)
{
    static const char *const splits[] = {"train", "val"};
    (void)make_data(state);
    make_folder("pictures");
    for (size_t s = 0; s < 2; s++) {
        char name[PATH];
        snprintf(name, sizeof name, "pictures/%s", splits[s]);
        make_folder(name);
        for (size_t c = 0; c < CLASSES; c++) {
            snprintf(name, sizeof name, "pictures/%s/%s", splits[s], classes[c]);
            make_folder(name);
            for (size_t i = 0; i < IMAGES; i++)
                copy_image(splits[s], c, images[c][i]);
        }
    }
    return 0;
}

/* Trains on the pictures; the file is `name` in the test's folder. */
static lk_train_outcome train_pictures(const char *name, bool no_test, char path[PATH])
{
    static char data[PATH];
    lk_train_opts opts = options();
    record told;
    opts.data = below("pictures", data);
    opts.augment = "resized_crop=8";
    opts.epochs = 1;
    opts.no_test = no_test;
    opts.save_model = below(name, path);
    return train_well(&opts, &told);
}

static lk_predictor *open_predictor(const char *path)
{
    lk_train_opts opts = {.init_from = path, .device = "cpu", .threads = 1};
    lk_predictor *predictor;
    assert_ok(lk__predictor_create(&opts, &predictor));
    return predictor;
}

/* The mean loss and the hits of the test pictures, one by one. */
static void images_are_prepared_as_in_the_evaluation(void **state)
{
    char path[PATH], picture[PATH], name[PATH];
    lk_metrics test = train_pictures("pictures.safetensors", false, path).test;
    lk_predictor *predictor = open_predictor(path);
    const lk_description *what = lk__predictor_description(predictor);
    double loss = 0;
    size_t correct = 0;
    assert_int_equal(what->shape.classes, CLASSES);
    assert_int_equal(what->shape.channels, 3);
    assert_int_equal(what->shape.height, 8);
    for (size_t c = 0; c < CLASSES; c++) {
        assert_string_equal(what->names[c], classes[1 - c]); /* sorted */
        for (size_t i = 0; i < IMAGES; i++) {
            double probabilities[CLASSES];
            snprintf(name, sizeof name, "pictures/val/%s/%s", classes[c], images[c][i]);
            assert_ok(lk__predictor_image(predictor, below(name, picture), probabilities));
            assert_true(fabs(probabilities[0] + probabilities[1] - 1) < 1e-12);
            loss -= log(probabilities[1 - c]);
            correct += probabilities[1 - c] > probabilities[c];
        }
    }
    assert_int_equal(test.count, CLASSES * IMAGES);
    assert_int_equal(correct, test.correct);
    assert_true(fabs(loss / (CLASSES * IMAGES) - test.loss) <= 1e-6 * fabs(test.loss));
    lk__predictor_destroy(predictor);
}

/* The notes do not change the hash, and a run that evaluates nothing writes the same. */
static void the_file_says_what_it_is(void **state)
{
    char path[PATH], other[PATH];
    lk_state *tested, *untested;
    lk_train_outcome result = train_pictures("tested.safetensors", false, path);
    assert_true(train_pictures("untested.safetensors", true, other).hash == result.hash);
    assert_ok(lk_state_load(path, &tested));
    assert_ok(lk_state_load(other, &untested));
    assert_true(lk_state_hash(tested) == result.hash);
    assert_string_equal(lk_state_note(tested, "model"), "mlp");
    assert_string_equal(lk_state_note(tested, "input"), "3x8x8");
    assert_string_equal(lk_state_note(tested, "mean"), "0.485,0.456,0.406");
    assert_string_equal(lk_state_note(tested, "std"), "0.229,0.224,0.225");
    assert_string_equal(lk_state_note(tested, "classes"), "[\"birds\",\"cats & \\\"dogs\\\"\"]");
    const char *name;
    for (size_t i = 0; (name = lk_state_note_name(tested, i)); i++)
        assert_string_equal(lk_state_note(tested, name), lk_state_note(untested, name));
    lk_state_destroy(tested);
    lk_state_destroy(untested);
}

static void save_without_notes(const char *from, const char *to)
{
    lk_state *state, *plain;
    const lk_state_entry *entry;
    assert_ok(lk_state_load(from, &state));
    assert_ok(lk_state_create(&plain));
    for (size_t i = 0; (entry = lk_state_at(state, i)); i++) {
        lk_state_entry *copy;
        assert_ok(lk_state_add(plain, entry->name, entry->dtype, entry->ndim, entry->dims, &copy));
        memcpy(copy->data, entry->data, entry->bytes);
    }
    assert_ok(lk_state_save(plain, to));
    lk_state_destroy(plain);
    lk_state_destroy(state);
}

/* A model of one channel: a colour image is made grey, and the size must be right. */
static void grey_models_take_any_image(void **state)
{
    char path[PATH], old[PATH], picture[PATH];
    record told;
    lk_train_opts opts = options();
    opts.epochs = 1;
    opts.save_model = below("grey.safetensors", path);
    (void)train_well(&opts, &told);
    snprintf(picture, sizeof picture, LK_TESTS_DIR "/data/images/rgb.png");
    double probabilities[10], again[10];
    lk_predictor *predictor = open_predictor(path);
    assert_fails(lk__predictor_image(predictor, picture, probabilities), LK_STATUS_MISMATCH, "the model takes 8x8");
    assert_detail("resize=8,center_crop=8");
    lk__predictor_destroy(predictor);
    lk_train_opts other = {.init_from = path, .test_augment = "resize=8,center_crop=8", .device = "cpu", .threads = 1};
    assert_ok(lk__predictor_create(&other, &predictor));
    assert_ok(lk__predictor_image(predictor, picture, probabilities));
    assert_int_equal(lk__predictor_image(predictor, path, again), LK_STATUS_FORMAT);
    assert_detail("grey.safetensors");
    assert_ok(lk__predictor_image(predictor, picture, again));
    assert_memory_equal(probabilities, again, sizeof again);
    lk__predictor_destroy(predictor);
    /* A file without notes, as others write it: model and data must be given. */
    save_without_notes(path, below("grey.pth", old));
    other.init_from = old;
    assert_fails(lk__predictor_create(&other, &predictor), LK_STATUS_USAGE, "does not say what it is");
    other.model = "mlp";
    other.data = opts.data;
    assert_ok(lk__predictor_create(&other, &predictor));
    assert_ok(lk__predictor_image(predictor, picture, again));
    assert_memory_equal(probabilities, again, sizeof again);
    lk__predictor_destroy(predictor);
}

/* Notes come from files, which may come from anywhere. */
static void malformed_notes_are_refused(void **state)
{
    static const struct {
        const char *name, *text;
    } bad[] = {{"input", "28x28"},
               {"input", "1x28x28x3"},
               {"input", "2x28x28"},
               {"input", "1x0x28"},
               {"mean", "x"},
               {"mean", "1,2"},
               {"std", "0"},
               {"std", "nan"},
               {"classes", "[1,2]"},
               {"classes", "[]"},
               {"classes", "{\"a\":\"b\"}"},
               {"classes", "[\"a\","},
               {"classes", "[[\"a\"]]"}};
    lk_state *notes;
    lk_dataset *data;
    lk_description what;
    assert_ok(lk_dataset_open("digits", NULL, LK_SPLIT_TEST, &data));
    lk_description_source from = {.model = "mlp", .name = "digits", .data = data, .shape = {1, 28, 28}};
    assert_ok(lk_state_create(&notes));
    assert_false(lk__description_is(notes));
    assert_ok(lk__description_note(&from, notes));
    assert_true(lk__description_is(notes));
    assert_ok(lk__description_read(notes, "file", &what));
    assert_true(what.mean[0] == .1307f && what.std[0] == .3081f);
    assert_string_equal(what.names[9], "9");
    lk__description_fini(&what);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        char *good;
        assert_ok(lk__mem_copy_text(lk_state_note(notes, bad[i].name), "a note", &good));
        assert_ok(lk_state_set_note(notes, bad[i].name, bad[i].text));
        assert_fails(lk__description_read(notes, "file", &what), LK_STATUS_FORMAT, bad[i].name);
        assert_ok(lk_state_set_note(notes, bad[i].name, good));
        lk__mem_free(good);
    }
    lk_state_destroy(notes);
    lk_dataset_destroy(data);
}

/* Ranks share an evaluation and get the result of one, whatever divides the batches. */
static void ranks_evaluate_as_one(void **state)
{
    char path[PATH];
    record told;
    lk_train_opts opts = options();
    opts.epochs = 1;
    opts.save_model = below("shared.safetensors", path);
    (void)train_well(&opts, &told);
    opts.init_from = path;
    const char *devices[] = {"cpu", "cpu", "cpu", "cpu", "cpu"};
    lk_metrics one, several;
    size_t count;
    assert_ok(lk__train_evaluate(&opts, &opts.device, 1, NULL, &one, &count));
    assert_memory_equal(&one, &told.test[0].metrics, sizeof one);
    for (int ranks = 2; ranks <= 5; ranks++) {
        assert_ok(lk__train_evaluate(&opts, devices, ranks, NULL, &several, &count));
        assert_memory_equal(&one, &several, sizeof one);
    }
    opts.shards = 2;
    assert_int_equal(lk__train_evaluate(&opts, devices, 3, NULL, &several, &count), LK_STATUS_USAGE);
    assert_detail("3 replicas cannot share 2 shards");
    char bad[PATH];
    opts = options();
    opts.model = "mlp:bad";
    opts.init_from = path;
    opts.data = below("bad", bad);
    assert_int_not_equal(lk__train_evaluate(&opts, devices, 2, NULL, &several, &count), LK_OK);
}

TEST_MAIN(make_pictures, temp_folder_tear_down, TEST(images_are_prepared_as_in_the_evaluation),
          TEST(the_file_says_what_it_is), TEST(grey_models_take_any_image), TEST(malformed_notes_are_refused),
          TEST(ranks_evaluate_as_one))
