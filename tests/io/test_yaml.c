/* The reader of YAML: what it gives for files as people write them, and what it
 * says about those that are broken, hostile, or more than a file of options. */
#include "check.h"
#include "io/yaml.h"
#include "temp_folder.h"

static lk_status parse(const char *text, lk_yaml **out)
{
    lk_status status = lk__yaml_parse("file.yaml", text, strlen(text), out);
    if (status == LK_STATUS_UNSUPPORTED) {
        assert_detail("libyaml");
        skip();
    }
    return status;
}

static lk_yaml *parsed(const char *text)
{
    lk_yaml *yaml = NULL;
    if (parse(text, &yaml) != LK_OK)
        fail_msg("'%s': %s", text, lk_error_detail());
    return yaml;
}

/* Refused with a sentence that has both parts, and nothing is given. */
static void refuse_bytes(const char *text, size_t bytes, const char *place, const char *part)
{
    lk_yaml *yaml = NULL;
    lk_status status = lk__yaml_parse("file.yaml", text, bytes, &yaml);
    if (status == LK_STATUS_UNSUPPORTED)
        skip();
    assert_int_equal(status, LK_STATUS_FORMAT);
    assert_null(yaml);
    assert_detail(place);
    assert_detail(part);
}

static void refuse(const char *text, const char *place, const char *part)
{
    refuse_bytes(text, strlen(text), place, part);
}

/* An item as one line: "2 0 lr=.1", with " for quotes. */
static void assert_item(const lk_yaml *yaml, size_t index, const char *wanted)
{
    static const char *const kinds[] = {"", "null", "list", "map"};
    assert_in_range(index, 0, yaml->count - 1);
    const lk_yaml_item *item = &yaml->items[index];
    char text[256];
    const char *quote = item->quoted ? "\"" : "";
    snprintf(text, sizeof text, "%zu %d %s=%s%s%s%s", item->line, item->depth, item->key ? item->key : "-",
             kinds[item->kind], quote, item->text ? item->text : "", quote);
    assert_string_equal(text, wanted);
}

static void pairs_keep_their_text_and_line(void **state)
{
    lk_yaml *yaml =
        parsed("# a comment\nlr: .1\n\nbatch_size: 0064\nname: 'a b'\nquoted: \"true\"\nplain: true # why\n");
    assert_int_equal(yaml->count, 5);
    assert_item(yaml, 0, "2 0 lr=.1");
    assert_item(yaml, 1, "4 0 batch_size=0064");
    assert_item(yaml, 2, "5 0 name=\"a b\"");
    assert_item(yaml, 3, "6 0 quoted=\"true\"");
    assert_item(yaml, 4, "7 0 plain=true");
    lk__yaml_destroy(yaml);
}

static void nested_values_follow_one_level_deeper(void **state)
{
    lk_yaml *yaml = parsed("ids: [0, 1]\nmodel:\n  name: cnn\n  list:\n    - 3\n    - {deep: 4}\nafter: x\n");
    assert_int_equal(yaml->count, 10);
    assert_item(yaml, 0, "1 0 ids=list");
    assert_item(yaml, 1, "1 1 -=0");
    assert_item(yaml, 2, "1 1 -=1");
    assert_item(yaml, 3, "2 0 model=map");
    assert_item(yaml, 4, "3 1 name=cnn");
    assert_item(yaml, 5, "4 1 list=list");
    assert_item(yaml, 6, "5 2 -=3");
    assert_item(yaml, 7, "6 2 -=map");
    assert_item(yaml, 8, "6 3 deep=4");
    assert_item(yaml, 9, "7 0 after=x");
    lk__yaml_destroy(yaml);
}

static void nothing_is_not_a_text(void **state)
{
    lk_yaml *yaml = parsed("a:\nb: ~\nc: null\nd: \"\"\ne: 'null'\n");
    assert_item(yaml, 0, "1 0 a=null");
    assert_item(yaml, 1, "2 0 b=null");
    assert_item(yaml, 2, "3 0 c=null");
    assert_item(yaml, 3, "4 0 d=\"\"");
    assert_item(yaml, 4, "5 0 e=\"null\"");
    lk__yaml_destroy(yaml);
}

static void empty_files_have_no_items(void **state)
{
    static const char *const files[] = {"", "\n\n", "# nothing\n", "---\n", "{}\n", "--- # here\n...\n"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        lk_yaml *yaml = parsed(files[i]);
        assert_int_equal(yaml->count, 0);
        lk__yaml_destroy(yaml);
    }
}

static void other_systems_files_are_read(void **state)
{
    lk_yaml *yaml = parsed("\xef\xbb\xbf"
                           "a: 1\r\nb: 2\r\n");
    assert_item(yaml, 0, "1 0 a=1");
    assert_item(yaml, 1, "2 0 b=2");
    lk__yaml_destroy(yaml);
}

static void syntax_errors_have_a_line(void **state)
{
    refuse("a: 1\nb: [1, 2\nc: 3\n", "file.yaml:3:", "not valid YAML");
    refuse("a: 1\n b: 2\n", "file.yaml:2:", "mapping values");
    refuse("a: 1\nb: \"open\n", "file.yaml:3:", "not valid YAML");
    refuse("a: {b: 1\n", "file.yaml:2:", "not valid YAML");
    refuse("\tkey: 1\n", "file.yaml:1:", "not valid YAML");
    refuse("a: 1\nb\n", "file.yaml:3:", "not valid YAML");
}

static void other_than_a_mapping_is_refused(void **state)
{
    refuse("just words\n", "file.yaml:1:", "option: value");
    refuse("\n- a\n- b\n", "file.yaml:2:", "option: value");
    refuse("a: 1\n---\nb: 2\n", "file.yaml:2:", "second document");
    refuse("[a, b]: 1\n", "file.yaml:1:", "a key must be a word");
    refuse("a: 1\n? {b: 2}\n: 3\n", "file.yaml:2:", "a key must be a word");
}

static void keys_are_given_once(void **state)
{
    refuse("lr: 1\nseed: 2\nlr: 3\n", "file.yaml:3:", "'lr' is on line 1 already");
    refuse("m:\n  a: 1\n  a: 2\n", "file.yaml:3:", "'a' is on line 2 already");
    lk_yaml *yaml = parsed("a: {x: 1}\nb: {x: 2, a: 3}\n");
    assert_int_equal(yaml->count, 5);
    lk__yaml_destroy(yaml);
}

static void a_file_is_no_more_than_it_holds(void **state)
{
    refuse("a: &x [1]\nb: [*x, *x]\n", "file.yaml:1:", "anchors");
    refuse("a: *x\n", "file.yaml:1:", "aliases");
    refuse("&x a: 1\n", "file.yaml:1:", "anchors");
    refuse("a: &x {b: 1}\n", "file.yaml:1:", "anchors");
    refuse("a: !!python/object/apply:os.system ['ls']\n", "file.yaml:1:", "tags");
    refuse("a: 1\nb: !!str 2\n", "file.yaml:2:", "tags");
    refuse("a: !x {}\n", "file.yaml:1:", "tags");
}

static void limits_hold(void **state)
{
    refuse("a: [[[[1]]]]\n", "file.yaml:1:", "more than 4 levels");
    lk_yaml *yaml = parsed("a: [[[1]]]\n");
    assert_int_equal(yaml->count, 4);
    lk__yaml_destroy(yaml);

    static char text[LK_YAML_MAX_BYTES + 2];
    size_t used = 0;
    for (int i = 0; i <= LK_YAML_MAX_ITEMS; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "k%d: 1\n", i);
    refuse(text, "file.yaml:1025:", "more than 1024 values");

    memset(text, '#', sizeof text - 1);
    refuse(text, "file.yaml:", "more than 65536 bytes");
    memset(text, '[', sizeof text - 2);
    memcpy(text, "a: ", 3);
    refuse_bytes(text, LK_YAML_MAX_BYTES, "file.yaml:1:", "levels");
}

static void texts_are_utf8_without_zeros(void **state)
{
    refuse("a: 1\nb: \xff\xfe\n", "file.yaml:2:", "not UTF-8");
    refuse("a: 1\n\nb: \x01\n", "file.yaml:3:", "not UTF-8");
    refuse_bytes("a: x\0y\n", 7, "file.yaml:1:", "not UTF-8");
    refuse("a: 1\nb: \"x\\0y\"\n", "file.yaml:2:", "code 0");
    refuse("\"x\\0y\": 1\n", "file.yaml:1:", "code 0");
    lk_yaml *yaml = parsed("größe: \"\\u00e9\"\n");
    assert_item(yaml, 0, "1 0 größe=\"é\"");
    lk__yaml_destroy(yaml);
}

static void files_are_read(void **state)
{
    char folder[TEMP_FOLDER_BYTES], path[sizeof(folder) + 16];
    lk_yaml *yaml = NULL;
    temp_folder_create(folder);
    snprintf(path, sizeof path, "%s/a.yaml", folder);
    assert_fails(lk__yaml_read(path, &yaml), LK_STATUS_NOT_FOUND, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("lr: 1\n", file);
    assert_int_equal(fclose(file), 0);
    lk_status status = lk__yaml_read(path, &yaml);
    if (status == LK_OK)
        assert_item(yaml, 0, "1 0 lr=1");
    else
        assert_int_equal(status, LK_STATUS_UNSUPPORTED);
    lk__yaml_destroy(yaml);
    temp_folder_remove(folder);
}

TEST_MAIN(NULL, NULL, TEST(pairs_keep_their_text_and_line), TEST(nested_values_follow_one_level_deeper),
          TEST(nothing_is_not_a_text), TEST(empty_files_have_no_items), TEST(other_systems_files_are_read),
          TEST(syntax_errors_have_a_line), TEST(other_than_a_mapping_is_refused), TEST(keys_are_given_once),
          TEST(a_file_is_no_more_than_it_holds), TEST(limits_hold), TEST(texts_are_utf8_without_zeros),
          TEST(files_are_read))
