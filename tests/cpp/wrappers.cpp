/* wrappers.cpp - every class of lockstep.hpp: its calls, its failures, and that objects move and destroy themselves. */
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/lockstep.hpp>

static void require(bool holds, const char *what, int line)
{
    if (holds)
        return;
    std::cerr << "wrappers.cpp:" << line << ": " << what << "\n";
    std::exit(1);
}
#define REQUIRE(condition) require(condition, #condition, __LINE__)

/* The status that a function fails with. */
template <typename Function>
static lk_status failure(Function function)
{
    try {
        function();
        return LK_OK;
    } catch (const lk::Error &error) {
        REQUIRE(std::string(error.what()) == lk_error_detail());
        return error.status();
    }
}

static lk_engine_opts engine_opts(lk_group *group)
{
    lk_engine_opts opts{};
    opts.batch = 6;
    opts.threads = 1;
    opts.seed = 1;
    opts.group = group;
    return opts;
}

static lk_loader_opts loader_opts(lk_shard_range share)
{
    lk_loader_opts opts{};
    opts.batch = 6;
    opts.share = share;
    return opts;
}

static lk::Graph build()
{
    lk::Graph graph;
    lk_node x = lk_relu(graph, lk_linear(graph, lk_input(graph, 2, 1, 1), "fc1", 8));
    lk_cross_entropy(graph, lk_linear(graph, x, "fc2", 3));
    graph.check();
    REQUIRE(graph.parameters() == 2 * 8 + 8 + 8 * 3 + 3);
    return graph;
}

static lk_dataset_opts data_opts()
{
    lk_dataset_opts opts{};
    opts.count = 12;
    opts.dims[0] = 2;
    opts.classes = 3;
    return opts;
}

static std::vector<float> samples()
{
    std::vector<float> x(24);
    for (std::size_t i = 0; i < x.size(); i++)
        x[i] = static_cast<float>(i % 7) - 3;
    return x;
}

static lk_status read_sample(void *arg, size_t index, void *sample, void *target)
{
    const std::vector<float> &x = *static_cast<std::vector<float> *>(arg);
    static_cast<float *>(sample)[0] = x[2 * index];
    static_cast<float *>(sample)[1] = x[2 * index + 1];
    *static_cast<std::int32_t *>(target) = static_cast<std::int32_t>(index % 3);
    return LK_OK;
}

/* Trains over the data set; returns the hash of the weights. */
static std::uint64_t train(const lk::Dataset &data, const lk::Group &group)
{
    lk::Engine engine(build(), engine_opts(group));
    lk::Loader loader(data, loader_opts(engine.shard_range()));
    REQUIRE(loader.batches() == 2);
    loader.start(0);
    while (const lk_batch *batch = loader.next())
        REQUIRE(engine.step(*batch).count == 6);
    REQUIRE(engine.steps() == 2 && engine.layout().replicas == group.size());
    loader.start(0);
    const lk_batch *batch = loader.next();
    REQUIRE(engine.eval(*batch).count == 6);
    REQUIRE(engine.forward(*batch).size() == 6 * 3);
    return engine.state().hash();
}

static void test_data_and_engines()
{
    std::vector<float> x = samples();
    std::vector<std::int32_t> labels(12);
    for (std::size_t i = 0; i < labels.size(); i++)
        labels[i] = static_cast<std::int32_t>(i % 3);
    lk::Dataset memory(data_opts(), x.data(), labels.data());
    lk::Dataset read(data_opts(), read_sample, &x);
    std::uint64_t hash = train(memory, lk::Group());
    REQUIRE(train(read, lk::Group()) == hash);
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < 12; i++)
        order.push_back(i);
    REQUIRE(train(memory.subset(order), lk::Group()) == hash);
    REQUIRE(memory.subset({3, 1}, LK_SPLIT_TEST).info().count == 2);

    std::vector<lk::Group> groups = lk::Group::threads(2);
    std::vector<std::uint64_t> hashes(2);
    std::thread other([&] { hashes[1] = train(memory, groups[1]); });
    hashes[0] = train(memory, groups[0]);
    other.join();
    REQUIRE(hashes[0] == hash && hashes[1] == hash);
}

static void test_states(const std::string &folder)
{
    lk::Engine engine(lk::Graph("mlp:hidden=4", lk_model_shape{1, 4, 4, 3}), engine_opts(nullptr));
    lk::State state = engine.state();
    state.save(folder + "/model.safetensors");
    lk::State loaded = lk::State::load(folder + "/model.safetensors");
    REQUIRE(loaded.hash() == state.hash() && loaded.size() == state.size());
    engine.set_state(loaded);
    engine.set_optimizer_state(engine.optimizer_state());
    engine.set_lr(.5);
    REQUIRE(engine.lr() == .5);

    lk::State own;
    static_cast<float *>(own.add("a", LK_DTYPE_F32, {2, 3}).data)[5] = 7;
    REQUIRE(own.find("a")->dims[1] == 3 && static_cast<float *>(own.at(0)->data)[5] == 7 && !own.find("b"));
    REQUIRE(failure([&] { own.add("a", LK_DTYPE_F32, {1}); }) == LK_STATUS_MISMATCH);
    REQUIRE(failure([&] { engine.set_state(own); }) == LK_STATUS_MISMATCH);
    REQUIRE(failure([&] { engine.grads(); }) == LK_STATUS_USAGE);

    lk::State moved = std::move(state);
    REQUIRE(!state && moved && moved.hash() == loaded.hash());
    lk_state *raw = moved.release();
    REQUIRE(!moved);
    lk_state_destroy(raw);
}

static void test_failures()
{
    REQUIRE(failure([] { lk::Dataset("nonesuch", LK_SPLIT_TRAIN, "/nowhere"); }) == LK_STATUS_NOT_FOUND);
    REQUIRE(failure([] { lk::Graph("nonesuch", lk_model_shape{1, 4, 4, 3}); }) != LK_OK);
    REQUIRE(failure([] { lk::State::load("/nowhere"); }) != LK_OK);
    REQUIRE(failure([] { lk::Graph().check(); }) == LK_STATUS_USAGE);
    REQUIRE(failure([] { lk::Group::threads(0); }) == LK_STATUS_USAGE);
}

static void collectives(const lk::Group &group)
{
    std::vector<float> vector(3, static_cast<float>(group.rank() + 1));
    group.allreduce(lk::buffer(vector));
    REQUIRE(vector[2] == 6);
    std::int32_t number = group.rank();
    group.broadcast(lk::buffer(&number, 1), 2);
    REQUIRE(number == 2);
    std::vector<std::int64_t> mine(2, group.rank()), all = group.allgather(mine);
    REQUIRE((all == std::vector<std::int64_t>{0, 0, 1, 1, 2, 2}));
    std::vector<double> sum(1000, 1);
    lk::Request request = group.start(lk_allreduce, lk::buffer(sum), LK_REDUCTION_SUM);
    request.wait();
    REQUIRE(sum[999] == 3 && request.test());
    lk::Request tested = group.start(lk_barrier);
    while (!tested.test())
        std::this_thread::yield();
    {
        lk::Request left = group.start(lk_allreduce, lk::buffer(sum), LK_REDUCTION_SUM);
    }
    REQUIRE(sum[0] == 9);
    std::uint8_t byte = 7;
    if (group.rank() == 0)
        group.send(lk::buffer(&byte, 1), 1);
    byte = 0;
    if (group.rank() == 1)
        group.recv(lk::buffer(&byte, 1), 0);
    REQUIRE(byte == (group.rank() == 1 ? 7 : 0));
    lk::Group part = group.split(group.rank() == 2 ? -1 : 0);
    REQUIRE(part.size() == (group.rank() == 2 ? 1 : 2) && !part == (group.rank() == 2));
    group.barrier();
}

static void test_groups()
{
    REQUIRE(!lk::Group::launched());
    std::vector<lk::Group> groups = lk::Group::threads(3);
    std::vector<std::thread> threads;
    for (const lk::Group &group : groups)
        threads.emplace_back([&group] { collectives(group); });
    for (std::thread &thread : threads)
        thread.join();
    groups[0].abort("enough");
    REQUIRE(failure([&] { groups[1].barrier(); }) == LK_STATUS_PEER);
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    test_data_and_engines();
    test_states(argv[1]);
    test_failures();
    test_groups();
    return 0;
}
