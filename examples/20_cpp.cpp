/* 20_cpp.cpp - the network of 01_single.c in C++: the same calls, the same bits.
 *
 * Objects destroy themselves and failures are exceptions; builders and options are those of C. */
#include <cinttypes>
#include <cstdio>

#include <lockstep/lockstep.hpp>

constexpr std::size_t batch_size = 256, test_batch = 1000, epochs = 2;

static lk_node convolution(lk_graph *graph, lk_node x, const char *name, std::size_t out)
{
    lk_conv2d_opts opts{};
    opts.out = out;
    opts.kernel = 3;
    opts.stride = 2;
    return lk_relu(graph, lk_conv2d(graph, x, name, opts));
}

static lk::Graph build_network(const lk_dataset_info &data)
{
    lk::Graph graph;
    lk_node x = lk_input(graph, data.channels, data.height, data.width);
    x = convolution(graph, x, "conv1", 8);
    x = convolution(graph, x, "conv2", 16);
    lk_cross_entropy(graph, lk_linear(graph, lk_flatten(graph, x), "fc", data.classes));
    return graph;
}

static lk::Loader make_loader(const lk::Dataset &data, std::size_t batch, bool shuffle)
{
    lk_loader_opts opts{};
    opts.batch = batch;
    opts.shuffle = shuffle;
    opts.seed = 1;
    opts.workers = 1;
    return lk::Loader(data, opts);
}

static void run()
{
    lk::Dataset train_data("digits"), test_data("digits", LK_SPLIT_TEST);
    lk::Graph graph = build_network(train_data.info());

    lk_engine_opts opts{};
    opts.batch = batch_size;
    opts.optimizer = "adam";
    opts.lr = .004;
    opts.seed = 1;
    lk::Engine engine(graph, opts);

    lk::Loader train_loader = make_loader(train_data, batch_size, true);
    lk::Loader test_loader = make_loader(test_data, test_batch, false);
    for (std::size_t epoch = 0; epoch < epochs; epoch++) {
        double loss = 0;
        std::size_t correct = 0;
        train_loader.start(epoch);
        while (const lk_batch *batch = train_loader.next())
            loss = engine.step(*batch).loss;
        test_loader.start(0);
        while (const lk_batch *batch = test_loader.next())
            correct += engine.eval(*batch).correct;
        std::printf("epoch %zu: loss of the last step %.4f, %zu of %zu correct\n", epoch + 1, loss, correct,
                    test_data.info().count);
    }

    lk::State state = engine.state();
    state.save("20_cpp.safetensors");
    std::printf("state hash %016" PRIx64 "\n", state.hash());
}

int main()
{
    try {
        run();
        return 0;
    } catch (const lk::Error &error) {
        std::fprintf(stderr, "20_cpp: %s\n", error.what());
        return 1;
    }
}
