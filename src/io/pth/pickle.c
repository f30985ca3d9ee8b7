/* pickle.c - the pickle machine: a stack, marks and a memo, driven by a table of opcodes. It knows
 * the binary opcodes for data of protocols 2 to 5, which torch.save writes. It imports nothing and
 * calls nothing. */
#include "io/pth/pickle.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"

/* An array that grows. */
typedef struct array {
    void *items;
    size_t count, capacity, limit;
    const char *what;
} array;

typedef struct machine {
    lk_pickle_stream in;
    const lk_pickle_global *globals;
    size_t at, op_at; /* the next byte; the current opcode */
    bool stopped;
    array values; /* lk_pickle_value */
    array cells;  /* struct lk_pickle_cell; cell 0 is unused */
    array stack;  /* lk_pickle_ref */
    array marks;  /* size_t: heights of the stack */
    array memo;   /* lk_pickle_ref plus one; 0: unused */
    size_t memoized;
} machine;

#define FAIL(m, ...) lk__pickle_fail(&(m)->in, (m)->op_at, __VA_ARGS__)

static lk_status reserve(machine *m, array *a, size_t size, size_t count)
{
    if (count <= a->capacity)
        return LK_OK;
    if (count > a->limit)
        return FAIL(m, "more than %zu %s; is this a checkpoint?", a->limit, a->what);
    size_t capacity = lk__size_min(lk__size_max(count, lk__size_max(64, 2 * a->capacity)), a->limit);
    void *items;
    LK_TRY(lk__mem_alloc(capacity, size, "a pickle", &items));
    if (a->count)
        memcpy(items, a->items, a->count * size);
    lk__mem_free(a->items);
    a->items = items;
    a->capacity = capacity;
    return LK_OK;
}

static lk_pickle_value *value_of(const machine *m, lk_pickle_ref ref)
{
    return (lk_pickle_value *)m->values.items + ref;
}

static lk_status push_ref(machine *m, lk_pickle_ref ref)
{
    LK_TRY(reserve(m, &m->stack, sizeof ref, m->stack.count + 1));
    ((lk_pickle_ref *)m->stack.items)[m->stack.count++] = ref;
    return LK_OK;
}

static lk_status push(machine *m, lk_pickle_value value)
{
    LK_TRY(reserve(m, &m->values, sizeof value, m->values.count + 1));
    value.at = (uint32_t)m->op_at;
    *value_of(m, (lk_pickle_ref)m->values.count) = value;
    return push_ref(m, (lk_pickle_ref)m->values.count++);
}

/* Height of the stack that the current opcode may not go below. */
static size_t floor_of(const machine *m)
{
    return m->marks.count ? ((size_t *)m->marks.items)[m->marks.count - 1] : 0;
}

static lk_status want(const machine *m, size_t count)
{
    if (m->stack.count - floor_of(m) < count)
        return FAIL(m, "opcode 0x%02x wants more values than there are", m->in.bytes[m->op_at]);
    return LK_OK;
}

/* The value `depth` below the top; want() has checked that it exists. */
static lk_pickle_ref peek(const machine *m, size_t depth)
{
    return ((lk_pickle_ref *)m->stack.items)[m->stack.count - 1 - depth];
}

static lk_status take(machine *m, size_t bytes, const uint8_t **out)
{
    if (bytes > m->in.size - m->at)
        return FAIL(m, "the pickle is cut short: opcode 0x%02x wants %zu bytes, %zu follow", m->in.bytes[m->op_at],
                    bytes, m->in.size - m->at);
    *out = m->in.bytes + m->at;
    m->at += bytes;
    return LK_OK;
}

static lk_status take_number(machine *m, int bytes, uint64_t *out)
{
    const uint8_t *number = NULL;
    LK_TRY(take(m, (size_t)bytes, &number));
    *out = lk__bytes_get_le(number, bytes);
    return LK_OK;
}

/* A row of the table: the function for an opcode and its arguments. */
typedef struct opcode {
    lk_status (*run)(machine *m, const struct opcode *op);
    int number;          /* bytes of a length or number, or a count */
    lk_pickle_kind kind; /* of the value that it creates */
} opcode;

static lk_status op_proto(machine *m, const opcode *op)
{
    (void)op;
    uint64_t version = 0;
    LK_TRY(take_number(m, 1, &version));
    return version >= 2 && version <= 5 ? LK_OK
                                        : FAIL(m, "protocol %u of pickles; 2 to 5 can be read", (unsigned)version);
}

/* Frames only say how much to read at once. */
static lk_status op_frame(machine *m, const opcode *op)
{
    (void)op;
    uint64_t bytes = 0;
    LK_TRY(take_number(m, 8, &bytes));
    return bytes <= m->in.size - m->at ? LK_OK : FAIL(m, "the pickle is cut short: a frame goes beyond its end");
}

static lk_status op_stop(machine *m, const opcode *op)
{
    (void)op;
    if (m->stack.count != 1 || m->marks.count)
        return FAIL(m, "the pickle ends with %zu values, expected one", m->stack.count);
    m->stopped = true;
    return LK_OK;
}

static lk_status op_mark(machine *m, const opcode *op)
{
    (void)op;
    LK_TRY(reserve(m, &m->marks, sizeof(size_t), m->marks.count + 1));
    ((size_t *)m->marks.items)[m->marks.count++] = m->stack.count;
    return LK_OK;
}

static lk_status pop_mark(machine *m, size_t *floor)
{
    if (!m->marks.count)
        return FAIL(m, "opcode 0x%02x wants a mark, and there is none", m->in.bytes[m->op_at]);
    *floor = floor_of(m);
    m->marks.count--;
    return LK_OK;
}

static lk_status op_pop(machine *m, const opcode *op)
{
    (void)op;
    if (m->marks.count && m->stack.count == floor_of(m)) {
        m->marks.count--;
        return LK_OK;
    }
    LK_TRY(want(m, 1));
    m->stack.count--;
    return LK_OK;
}

static lk_status op_pop_mark(machine *m, const opcode *op)
{
    (void)op;
    return pop_mark(m, &m->stack.count);
}

static lk_status op_dup(machine *m, const opcode *op)
{
    (void)op;
    LK_TRY(want(m, 1));
    return push_ref(m, peek(m, 0));
}

/* None, a bool, an empty container. */
static lk_status op_constant(machine *m, const opcode *op)
{
    lk_pickle_value value = {.kind = op->kind};
    if (op->kind == LK_PICKLE_KIND_BOOL)
        value.as.integer = op->number;
    return push(m, value);
}

static lk_status op_int(machine *m, const opcode *op)
{
    uint64_t number = 0;
    LK_TRY(take_number(m, op->number, &number));
    int64_t value = op->number == 4 ? (int64_t)(int32_t)(uint32_t)number : (int64_t)number;
    return push(m, (lk_pickle_value){.kind = LK_PICKLE_KIND_INT, .as.integer = value});
}

/* Two's complement of any length. */
static lk_status op_long(machine *m, const opcode *op)
{
    uint64_t bytes = 0;
    const uint8_t *digits = NULL;
    LK_TRY(take_number(m, op->number, &bytes));
    LK_TRY(take(m, (size_t)bytes, &digits));
    if (bytes > 8)
        return push(m,
                    (lk_pickle_value){.kind = LK_PICKLE_KIND_LONG, .as.text = {(const char *)digits, (uint32_t)bytes}});
    uint64_t number = lk__bytes_get_le(digits, (int)bytes);
    if (bytes > 0 && bytes < 8 && digits[bytes - 1] & 0x80)
        number |= ~(uint64_t)0 << (8 * bytes);
    return push(m, (lk_pickle_value){.kind = LK_PICKLE_KIND_INT, .as.integer = (int64_t)number});
}

/* The only big-endian number in a pickle. */
static lk_status op_float(machine *m, const opcode *op)
{
    (void)op;
    const uint8_t *bytes = NULL;
    LK_TRY(take(m, 8, &bytes));
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | bytes[i];
    lk_pickle_value value = {.kind = LK_PICKLE_KIND_FLOAT};
    memcpy(&value.as.real, &bits, sizeof bits);
    return push(m, value);
}

static lk_status op_text(machine *m, const opcode *op)
{
    uint64_t length = 0;
    const uint8_t *bytes = NULL;
    LK_TRY(take_number(m, op->number, &length));
    LK_TRY(take(m, (size_t)length, &bytes));
    return push(m, (lk_pickle_value){.kind = op->kind, .as.text = {(const char *)bytes, (uint32_t)length}});
}

static lk_status append(machine *m, lk_pickle_ref container, lk_pickle_ref item)
{
    LK_TRY(reserve(m, &m->cells, sizeof(struct lk_pickle_cell), m->cells.count + 1));
    struct lk_pickle_cell *cells = m->cells.items;
    lk_pickle_value *value = value_of(m, container);
    uint32_t cell = (uint32_t)m->cells.count++;
    cells[cell] = (struct lk_pickle_cell){.value = item};
    if (value->as.items.count++)
        cells[value->as.items.last].next = cell;
    else
        value->as.items.first = cell;
    value->as.items.last = cell;
    return LK_OK;
}

/* Moves the stack's values from floor on into the container. */
static lk_status append_from(machine *m, lk_pickle_ref container, size_t floor)
{
    if (value_of(m, container)->kind == LK_PICKLE_KIND_DICT && (m->stack.count - floor) % 2)
        return FAIL(m, "a dict gets a key without a value");
    for (size_t i = floor; i < m->stack.count; i++)
        LK_TRY(append(m, container, ((lk_pickle_ref *)m->stack.items)[i]));
    m->stack.count = floor;
    return LK_OK;
}

/* Replaces the stack's values from floor on by a container of them. */
static lk_status collect(machine *m, size_t floor, lk_pickle_kind kind)
{
    LK_TRY(push(m, (lk_pickle_value){.kind = kind}));
    lk_pickle_ref container = peek(m, 0);
    m->stack.count--;
    LK_TRY(append_from(m, container, floor));
    return push_ref(m, container);
}

static lk_status op_collect(machine *m, const opcode *op)
{
    size_t floor = 0;
    LK_TRY(pop_mark(m, &floor));
    return collect(m, floor, op->kind);
}

static lk_status op_tuple(machine *m, const opcode *op)
{
    LK_TRY(want(m, (size_t)op->number));
    return collect(m, m->stack.count - (size_t)op->number, LK_PICKLE_KIND_TUPLE);
}

/* Moves the stack's values from floor on into the container below floor. */
static lk_status extend(machine *m, size_t floor, lk_pickle_kind kind)
{
    if (floor <= floor_of(m))
        return FAIL(m, "items without a container");
    lk_pickle_ref container = ((lk_pickle_ref *)m->stack.items)[floor - 1];
    if (value_of(m, container)->kind != kind)
        return FAIL(m, "items for something that is not a container of theirs");
    return append_from(m, container, floor);
}

static lk_status op_extend(machine *m, const opcode *op)
{
    size_t floor = 0;
    LK_TRY(pop_mark(m, &floor));
    return extend(m, floor, op->kind);
}

static lk_status op_add(machine *m, const opcode *op)
{
    LK_TRY(want(m, (size_t)op->number));
    return extend(m, m->stack.count - (size_t)op->number, op->kind);
}

/* Copies a name from the file for a message. */
static void show(const char *text, size_t length, char out[64])
{
    size_t used = 0;
    for (; used < length && used < 60; used++)
        out[used] = text[used] > ' ' && text[used] < 0x7f ? text[used] : '?';
    snprintf(out + used, 4, "%s", used < length ? "..." : "");
}

static bool same(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && memcmp(name, text, length) == 0;
}

static lk_status push_global(machine *m, const char *module, size_t module_bytes, const char *name, size_t name_bytes)
{
    for (const lk_pickle_global *row = m->globals; row->module; row++)
        if (same(row->module, module, module_bytes) && same(row->name, name, name_bytes))
            return push(m, (lk_pickle_value){.kind = LK_PICKLE_KIND_GLOBAL, .as.call.global = row});
    char shown_module[64], shown_name[64];
    show(module, module_bytes, shown_module);
    show(name, name_bytes, shown_name);
    return FAIL(m,
                "it refers to %s.%s, which is not among the plain data and tensors that are read; in Python save the "
                "state_dict() alone: torch.save(model.state_dict(), PATH)",
                shown_module, shown_name);
}

static lk_status take_line(machine *m, const char **out, size_t *length)
{
    const uint8_t *start = m->in.bytes + m->at;
    const uint8_t *end = memchr(start, '\n', m->in.size - m->at);
    if (!end)
        return FAIL(m, "the pickle is cut short: a name has no end");
    *out = (const char *)start;
    *length = (size_t)(end - start);
    m->at += *length + 1;
    return LK_OK;
}

static lk_status op_global(machine *m, const opcode *op)
{
    (void)op;
    const char *module = NULL, *name = NULL;
    size_t module_bytes = 0, name_bytes = 0;
    LK_TRY(take_line(m, &module, &module_bytes));
    LK_TRY(take_line(m, &name, &name_bytes));
    return push_global(m, module, module_bytes, name, name_bytes);
}

static lk_status op_stack_global(machine *m, const opcode *op)
{
    (void)op;
    LK_TRY(want(m, 2));
    lk_pickle_value module = *value_of(m, peek(m, 1)), name = *value_of(m, peek(m, 0));
    if (module.kind != LK_PICKLE_KIND_TEXT || name.kind != LK_PICKLE_KIND_TEXT)
        return FAIL(m, "the name of a global is not a text");
    m->stack.count -= 2;
    return push_global(m, module.as.text.bytes, module.as.text.length, name.as.text.bytes, name.as.text.length);
}

/* Python 2 writes an OrderedDict as a call with a list of its pairs. */
static lk_status fill_dict(machine *m, lk_pickle_ref dict, const lk_pickle_value *list)
{
    const struct lk_pickle_cell *cells;
    for (uint32_t cell = list->as.items.first; cell; cell = cells[cell].next) {
        cells = m->cells.items;
        lk_pickle_value pair = *value_of(m, cells[cell].value);
        if ((pair.kind != LK_PICKLE_KIND_LIST && pair.kind != LK_PICKLE_KIND_TUPLE) || pair.as.items.count != 2)
            return FAIL(m, "a dict is made of something that is not a pair");
        lk_pickle_ref key = cells[pair.as.items.first].value, value = cells[pair.as.items.last].value;
        LK_TRY(append(m, dict, key));
        LK_TRY(append(m, dict, value));
        cells = m->cells.items;
    }
    return LK_OK;
}

static lk_status make_dict(machine *m, const lk_pickle_value *args)
{
    const struct lk_pickle_cell *cells = m->cells.items;
    lk_pickle_value list = {.kind = LK_PICKLE_KIND_NONE};
    if (args->as.items.count == 1)
        list = *value_of(m, cells[args->as.items.first].value);
    LK_TRY(push(m, (lk_pickle_value){.kind = LK_PICKLE_KIND_DICT}));
    return list.kind == LK_PICKLE_KIND_LIST ? fill_dict(m, peek(m, 0), &list) : LK_OK;
}

static lk_status op_call(machine *m, const opcode *op)
{
    (void)op;
    LK_TRY(want(m, 2));
    lk_pickle_ref args_ref = peek(m, 0);
    lk_pickle_value called = *value_of(m, peek(m, 1)), args = *value_of(m, args_ref);
    if (called.kind != LK_PICKLE_KIND_GLOBAL || args.kind != LK_PICKLE_KIND_TUPLE)
        return FAIL(m, "a call of something that is not a global with a tuple");
    const lk_pickle_global *global = called.as.call.global;
    if (global->use == LK_PICKLE_USE_NAMED)
        return FAIL(m, "a call of %s.%s", global->module, global->name);
    m->stack.count -= 2;
    if (global->use == LK_PICKLE_USE_MAKES_DICT)
        return make_dict(m, &args);
    return push(m, (lk_pickle_value){.kind = LK_PICKLE_KIND_CALL, .as.call = {global, args_ref}});
}

/* An object's attributes are not part of its data: they are dropped. */
static lk_status op_build(machine *m, const opcode *op)
{
    (void)op;
    LK_TRY(want(m, 2));
    lk_pickle_kind kind = value_of(m, peek(m, 1))->kind;
    if (kind != LK_PICKLE_KIND_DICT && kind != LK_PICKLE_KIND_CALL)
        return FAIL(m, "attributes for something that has none");
    m->stack.count--;
    return LK_OK;
}

static lk_status op_persistent(machine *m, const opcode *op)
{
    (void)op;
    LK_TRY(want(m, 1));
    lk_pickle_ref id = peek(m, 0);
    m->stack.count--;
    return push(m, (lk_pickle_value){.kind = LK_PICKLE_KIND_PERSISTENT, .as.id = id});
}

static lk_status memoize(machine *m, uint64_t index)
{
    LK_TRY(want(m, 1));
    if (index >= m->memo.limit)
        return FAIL(m, "entry %llu of the memo, which has at most %zu", (unsigned long long)index, m->memo.limit);
    LK_TRY(reserve(m, &m->memo, sizeof(lk_pickle_ref), (size_t)index + 1));
    lk_pickle_ref *memo = m->memo.items;
    m->memoized += memo[index] == 0;
    memo[index] = peek(m, 0) + 1;
    m->memo.count = lk__size_max(m->memo.count, (size_t)index + 1);
    return LK_OK;
}

static lk_status op_put(machine *m, const opcode *op)
{
    uint64_t index = 0;
    LK_TRY(take_number(m, op->number, &index));
    return memoize(m, index);
}

static lk_status op_memoize(machine *m, const opcode *op)
{
    (void)op;
    return memoize(m, m->memoized);
}

static lk_status op_get(machine *m, const opcode *op)
{
    uint64_t index = 0;
    LK_TRY(take_number(m, op->number, &index));
    lk_pickle_ref ref = index < m->memo.count ? ((lk_pickle_ref *)m->memo.items)[index] : 0;
    return ref ? push_ref(m, ref - 1) : FAIL(m, "the memo has no entry %llu", (unsigned long long)index);
}

/* In the order of Python's pickletools. */
static const opcode opcodes[256] = {
    [0x80] = {op_proto, 1, 0},
    [0x95] = {op_frame, 8, 0},
    ['.'] = {op_stop, 0, 0},
    ['J'] = {op_int, 4, 0},
    ['K'] = {op_int, 1, 0},
    ['M'] = {op_int, 2, 0},
    [0x8a] = {op_long, 1, 0},
    [0x8b] = {op_long, 4, 0},
    ['G'] = {op_float, 8, 0},
    ['T'] = {op_text, 4, LK_PICKLE_KIND_TEXT},
    ['U'] = {op_text, 1, LK_PICKLE_KIND_TEXT},
    ['X'] = {op_text, 4, LK_PICKLE_KIND_TEXT},
    [0x8c] = {op_text, 1, LK_PICKLE_KIND_TEXT},
    [0x8d] = {op_text, 8, LK_PICKLE_KIND_TEXT},
    ['B'] = {op_text, 4, LK_PICKLE_KIND_BYTES},
    ['C'] = {op_text, 1, LK_PICKLE_KIND_BYTES},
    [0x8e] = {op_text, 8, LK_PICKLE_KIND_BYTES},
    [0x96] = {op_text, 8, LK_PICKLE_KIND_BYTES},
    ['N'] = {op_constant, 0, LK_PICKLE_KIND_NONE},
    [0x88] = {op_constant, 1, LK_PICKLE_KIND_BOOL},
    [0x89] = {op_constant, 0, LK_PICKLE_KIND_BOOL},
    [')'] = {op_constant, 0, LK_PICKLE_KIND_TUPLE},
    [']'] = {op_constant, 0, LK_PICKLE_KIND_LIST},
    ['}'] = {op_constant, 0, LK_PICKLE_KIND_DICT},
    [0x8f] = {op_constant, 0, LK_PICKLE_KIND_SET},
    ['l'] = {op_collect, 0, LK_PICKLE_KIND_LIST},
    ['d'] = {op_collect, 0, LK_PICKLE_KIND_DICT},
    ['t'] = {op_collect, 0, LK_PICKLE_KIND_TUPLE},
    [0x91] = {op_collect, 0, LK_PICKLE_KIND_SET},
    [0x85] = {op_tuple, 1, 0},
    [0x86] = {op_tuple, 2, 0},
    [0x87] = {op_tuple, 3, 0},
    ['a'] = {op_add, 1, LK_PICKLE_KIND_LIST},
    ['s'] = {op_add, 2, LK_PICKLE_KIND_DICT},
    ['e'] = {op_extend, 0, LK_PICKLE_KIND_LIST},
    ['u'] = {op_extend, 0, LK_PICKLE_KIND_DICT},
    [0x90] = {op_extend, 0, LK_PICKLE_KIND_SET},
    ['('] = {op_mark, 0, 0},
    ['0'] = {op_pop, 0, 0},
    ['1'] = {op_pop_mark, 0, 0},
    ['2'] = {op_dup, 0, 0},
    ['c'] = {op_global, 0, 0},
    [0x93] = {op_stack_global, 0, 0},
    ['R'] = {op_call, 0, 0},
    [0x81] = {op_call, 0, 0},
    ['b'] = {op_build, 0, 0},
    ['Q'] = {op_persistent, 0, 0},
    ['q'] = {op_put, 1, 0},
    ['r'] = {op_put, 4, 0},
    [0x94] = {op_memoize, 0, 0},
    ['h'] = {op_get, 1, 0},
    ['j'] = {op_get, 4, 0},
};

static lk_status run(machine *m)
{
    if (m->in.size > LK_PICKLE_MAX_BYTES)
        return FAIL(m, "a pickle of %zu bytes; at most %d are read", m->in.size, LK_PICKLE_MAX_BYTES);
    LK_TRY(reserve(m, &m->cells, sizeof(struct lk_pickle_cell), 1));
    m->cells.count = 1;
    while (!m->stopped) {
        m->op_at = m->at;
        if (m->at == m->in.size)
            return FAIL(m, "the pickle is cut short: it has no end");
        const opcode *op = &opcodes[m->in.bytes[m->at++]];
        if (!op->run)
            return FAIL(m, "opcode 0x%02x, which is none of the binary ones that torch.save writes",
                        m->in.bytes[m->op_at]);
        LK_TRY(op->run(m, op));
    }
    return LK_OK;
}

/* An opcode has at least one byte and creates at most one value. Pickles number their memo from 0
 * on. Items of pairs that go into a dict count twice. */
static machine make_machine(const lk_pickle_stream *stream, const lk_pickle_global *globals)
{
    size_t values = lk__size_min(LK_PICKLE_MAX_VALUES, stream->size);
    return (machine){.in = *stream,
                     .globals = globals,
                     .values = {.limit = values, .what = "values"},
                     .cells = {.limit = 1 + 2 * values, .what = "items"},
                     .stack = {.limit = lk__size_min(LK_PICKLE_MAX_STACK, values), .what = "values at once"},
                     .marks = {.limit = LK_PICKLE_MAX_MARKS, .what = "nested containers"},
                     .memo = {.limit = values, .what = "entries of the memo"}};
}

lk_status lk__pickle_read(const lk_pickle_stream *stream, const lk_pickle_global *globals, lk_pickle **out)
{
    lk_pickle *pickle;
    LK_TRY(LK_ALLOC(1, "a pickle", &pickle));
    machine m = make_machine(stream, globals);
    lk_status status = run(&m);
    pickle->values = m.values.items;
    pickle->cells = m.cells.items;
    lk__mem_free(m.memo.items);
    lk__mem_free(m.marks.items);
    if (status == LK_OK) {
        pickle->stream = *stream;
        pickle->count = m.values.count;
        pickle->root = peek(&m, 0);
        pickle->used = m.at;
        *out = pickle;
    } else {
        lk__pickle_destroy(pickle);
    }
    lk__mem_free(m.stack.items);
    return status;
}
