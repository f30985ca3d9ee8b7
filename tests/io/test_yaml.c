/* test_yaml.c - the YAML reader: the items that it gives for correct files, and the errors for files that
 * are broken, hostile, or larger than a file of options. */
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

/* Parsing fails, its detail has the line and the part, and the output stays NULL. */
static void refuse_bytes(const char *text, size_t bytes, const char *line, const char *part)
{
    lk_yaml *yaml = NULL;
    lk_status status = lk__yaml_parse("file.yaml", text, bytes, &yaml);
    if (status == LK_STATUS_UNSUPPORTED)
        skip();
    assert_int_equal(status, LK_STATUS_FORMAT);
    assert_null(yaml);
    assert_detail(line);
    assert_detail(part);
}

static void refuse(const char *text, const char *line, const char *part)
{
    refuse_bytes(text, strlen(text), line, part);
}

/* The items of the text, each as "LINE DEPTH KEY=VALUE"; KEY is - in lists, quoted values keep quotes. */
static void items_are(const char *text, const char *const *wanted, size_t count)
{
    static const char *const kinds[] = {"", "null", "list", "map"};
    lk_yaml *yaml = parsed(text);
    assert_int_equal(yaml->count, count);
    for (size_t i = 0; i < count; i++) {
        const lk_yaml_item *item = &yaml->items[i];
        char line[256];
        const char *quote = item->quoted ? "\"" : "";
        snprintf(line, sizeof line, "%zu %d %s=%s%s%s%s", item->line, item->depth, item->key ? item->key : "-",
                 kinds[item->kind], quote, item->text ? item->text : "", quote);
        assert_string_equal(line, wanted[i]);
    }
    lk__yaml_destroy(yaml);
}

#define ITEMS(...) (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

static void pairs_keep_their_text_and_line(void **state)
{
    items_are("# a comment\nlr: .1\n\nbatch_size: 0064\nname: 'a b'\nquoted: \"true\"\nplain: true # why\n",
              ITEMS("2 0 lr=.1", "4 0 batch_size=0064", "5 0 name=\"a b\"", "6 0 quoted=\"true\"", "7 0 plain=true"));
}

static void nested_values_follow_one_level_deeper(void **state)
{
    items_are("ids: [0, 1]\nmodel:\n  name: cnn\n  list:\n    - 3\n    - {deep: 4}\nafter: x\n",
              ITEMS("1 0 ids=list", "1 1 -=0", "1 1 -=1", "2 0 model=map", "3 1 name=cnn", "4 1 list=list", "5 2 -=3",
                    "6 2 -=map", "6 3 deep=4", "7 0 after=x"));
}

static void null_is_not_a_text(void **state)
{
    items_are("a:\nb: ~\nc: null\nd: \"\"\ne: 'null'\n",
              ITEMS("1 0 a=null", "2 0 b=null", "3 0 c=null", "4 0 d=\"\"", "5 0 e=\"null\""));
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
    items_are("\xef\xbb\xbf"
              "a: 1\r\nb: 2\r\n",
              ITEMS("1 0 a=1", "2 0 b=2"));
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
    items_are("a: {x: 1}\nb: {x: 2, a: 3}\n", ITEMS("1 0 a=map", "1 1 x=1", "2 0 b=map", "2 1 x=2", "2 1 a=3"));
}

static void anchors_aliases_and_tags_are_refused(void **state)
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
    items_are("a: [[[1]]]\n", ITEMS("1 0 a=list", "1 1 -=list", "1 2 -=list", "1 3 -=1"));

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
    items_are("größe: \"\\u00e9\"\n", ITEMS("1 0 größe=\"é\""));
}

static void files_are_read(void **state)
{
    lk_yaml *yaml = NULL;
    const char *path = temp_path("a.yaml");
    assert_fails(lk__yaml_read(path, &yaml), LK_STATUS_NOT_FOUND, path);
    temp_write(path, "lr: 1\n", 6);
    lk_status status = lk__yaml_read(path, &yaml);
    if (status == LK_STATUS_UNSUPPORTED)
        return;
    assert_ok(status);
    assert_int_equal(yaml->count, 1);
    assert_string_equal(yaml->items[0].key, "lr");
    assert_string_equal(yaml->items[0].text, "1");
    lk__yaml_destroy(yaml);
}

TEST_MAIN(temp_folder_set_up, temp_folder_tear_down, TEST(pairs_keep_their_text_and_line),
          TEST(nested_values_follow_one_level_deeper), TEST(null_is_not_a_text), TEST(empty_files_have_no_items),
          TEST(other_systems_files_are_read), TEST(syntax_errors_have_a_line), TEST(other_than_a_mapping_is_refused),
          TEST(keys_are_given_once), TEST(anchors_aliases_and_tags_are_refused), TEST(limits_hold),
          TEST(texts_are_utf8_without_zeros), TEST(files_are_read))
