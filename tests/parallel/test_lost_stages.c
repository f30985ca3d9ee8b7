/* test_lost_stages.c - stages that are joined by channels between their devices lose a rank, or get nothing from it,
 * while they wait for a link: every rank fails with the reason, later calls fail at once, and engines end. */
#include "joined.h"
#include "ranks.h"

static const law_case mlp = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 37, .shards = 11, .first = 4};

/* What happens after the first step, by the last rank where one rank does it. */
typedef enum loss_kind {
    MUTED,  /* channels between devices send nothing more */
    ABORTS, /* it aborts the job */
    LEAVES, /* it destroys its engine and leaves the group */
    SILENT, /* channels send nothing from the beginning */
} loss_kind;

typedef struct loss {
    loss_kind kind;
    law_way way;
} loss;

/* A host that waits for a byte of a rank may find out that the rank has left; devices only wait. */
static void check_peer(lk_status status, const loss *l)
{
    const char *text = l->kind == ABORTS ? "gave up: it had enough" : "that is its timeout; is ";
    CHECK(status == LK_STATUS_PEER);
    if (l->kind != LEAVES || !strstr(lk_error_detail(), " has left the group while rank "))
        CHECK_TEXT(lk_error_detail(), text);
}

/* Every call fails, again and again. */
static void check_lost(lk_engine *engine, const lk_batch *batch, const loss *l)
{
    lk_metrics metrics;
    check_peer(lk_engine_step(engine, batch, &metrics), l);
    check_peer(lk_engine_eval(engine, batch, &metrics), l);
    check_peer(lk_engine_gradients(engine, batch, &metrics), l);
}

static void go_on(lk_engine *engine, lk_group *group, const loss *l)
{
    bool last = lk_group_rank(group) == l->way.ranks - 1;
    lk_batch batch;
    lk_metrics metrics;
    law_samples s = law_samples_make(&mlp);
    law_batch(&mlp, 0, s.x, s.labels, s.ids, &batch);
    CHECK_OK(lk_engine_step(engine, &batch, &metrics));
    CHECK_OK(lk_barrier(group, NULL));
    joined_mute = l->kind == MUTED;
    CHECK_OK(lk_barrier(group, NULL));
    if (l->kind == ABORTS && last)
        lk_group_abort(group, "it had enough");
    else if (l->kind != LEAVES || !last)
        check_lost(engine, &batch, l);
    law_samples_free(&s);
}

static bool lose(lk_group *group, const team_spec *team, const void *arg)
{
    const loss *l = arg;
    lk_engine_opts opts = law_opts(&mlp, &l->way);
    lk_engine *engine;
    opts.group = group;
    joined_mute = l->kind == SILENT;
    lk_status status = law_create(&mlp, &opts, &engine);
    if (l->kind == SILENT) {
        check_peer(status, l);
        return false;
    }
    CHECK_OK(status);
    go_on(engine, group, l);
    lk_engine_destroy(engine); /* must end; the test has a timeout */
    return false;
}

static void try_loss(loss_kind kind, law_way way)
{
    loss l = {kind, way};
    l.way.device = "far";
    l.way.transport = "inproc";
    l.way.threads = 1;
    team_spec team = ranks_team(&l.way);
    team.timeout = 4; /* also of the first step, which must succeed */
    assert_true(team_run(team, lose, &l));
}

static void try_losses(void)
{
    law_way two = {.ranks = 2, .stages = "2"}, three = {.ranks = 3, .stages = "3", .pipelined = true, .micro_batch = 4};
    law_way grid = {.ranks = 4, .stages = "2", .pipelined = true, .micro_batch = 4};
    try_loss(MUTED, two);
    try_loss(ABORTS, two);
    try_loss(LEAVES, two);
    try_loss(MUTED, three);
    try_loss(ABORTS, three);
    try_loss(ABORTS, grid);
    try_loss(LEAVES, grid);
}

static void test_on_several_devices(void **arg)
{
    try_losses();
    try_loss(SILENT, (law_way){.ranks = 2, .stages = "2"});
}

static void test_on_one_device(void **arg)
{
    joined_places = 1;
    try_losses();
    joined_places = 0;
}

int main(void)
{
    law_require(joined_add_device());
    return RUN_TESTS(NULL, NULL, TEST(test_on_several_devices), TEST(test_on_one_device));
}
