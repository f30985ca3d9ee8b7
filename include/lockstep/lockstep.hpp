/* lockstep.hpp - Lockstep in C++17: objects that destroy themselves, and failures as exceptions.
 *
 * A thin layer over the C headers, without a library of its own. Every class owns one object of the C API and converts
 * to a pointer to it, so each C function can be called with it; lk::check turns the status of such a call into an
 * exception. Options are the structs of the C headers. What the C headers say about threads, lifetimes and collective
 * calls holds here, too: a data set must outlive its loaders, and a group its engines, so declare them in this order.
 */
#ifndef LOCKSTEP_HPP
#define LOCKSTEP_HPP

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/lockstep.h>

namespace lk
{

/* A failure: what() is the detail, status() its kind. */
class Error : public std::runtime_error
{
  public:
    explicit Error(lk_status status) : std::runtime_error(text(status)), status_(status) {}
    lk_status status() const noexcept { return status_; }

  private:
    static const char *text(lk_status status)
    {
        const char *detail = lk_error_detail();
        return *detail ? detail : lk_status_string(status);
    }
    lk_status status_;
};

/* Throws an Error unless status is LK_OK. To be called by the thread that made the call. */
inline void check(lk_status status)
{
    if (status != LK_OK)
        throw Error(status);
}

/* The owner of an object that `destroy` destroys. It can be moved and not copied. */
template <typename T, void (*destroy)(T *)>
class Owner
{
  public:
    Owner() = default;
    explicit Owner(T *object) noexcept : object_(object) {}
    T *get() const noexcept { return object_.get(); }
    operator T *() const noexcept { return object_.get(); }
    explicit operator bool() const noexcept { return object_ != nullptr; }
    /* Gives the object away; the caller must destroy it. */
    T *release() noexcept { return object_.release(); }

  protected:
    /* Calls create(arguments..., &object) and owns the result. */
    template <typename Function, typename... Arguments>
    static T *made(Function create, Arguments... arguments)
    {
        T *object = nullptr;
        check(create(arguments..., &object));
        return object;
    }

  private:
    struct Destroy {
        void operator()(T *object) const noexcept { destroy(object); }
    };
    std::unique_ptr<T, Destroy> object_;
};

/* Named tensors. */
class State : public Owner<lk_state, lk_state_destroy>
{
  public:
    State() : Owner(made(lk_state_create)) {}
    explicit State(lk_state *state) noexcept : Owner(state) {}
    static State load(const std::string &path) { return State(made(lk_state_load, path.c_str())); }
    void save(const std::string &path) const { check(lk_state_save(get(), path.c_str())); }

    /* Appends a tensor whose data are zero. The entry is valid until the next call of add. */
    lk_state_entry &add(const std::string &name, lk_dtype dtype, const std::vector<std::size_t> &dims)
    {
        lk_state_entry *entry = nullptr;
        check(lk_state_add(get(), name.c_str(), dtype, static_cast<int>(dims.size()), dims.data(), &entry));
        return *entry;
    }
    std::size_t size() const noexcept { return lk_state_count(get()); }
    /* NULL if there is no such entry. */
    const lk_state_entry *at(std::size_t index) const noexcept { return lk_state_at(get(), index); }
    const lk_state_entry *find(const std::string &name) const noexcept { return lk_state_find(get(), name.c_str()); }
    std::uint64_t hash() const noexcept { return lk_state_hash(get()); }
};

/* A network. The builders of graph.h take it as their first argument. */
class Graph : public Owner<lk_graph, lk_graph_destroy>
{
  public:
    Graph() : Owner(made(lk_graph_create)) {}
    /* A named model. */
    Graph(const std::string &spec, lk_model_shape shape) : Owner(made(lk_model_build, spec.c_str(), shape)) {}
    void check() const { lk::check(lk_graph_check(get())); }
    std::size_t parameters() const noexcept { return lk_graph_parameters(get()); }
};

/* Samples and their targets. */
class Dataset : public Owner<lk_dataset, lk_dataset_destroy>
{
  public:
    explicit Dataset(const std::string &name, lk_split split = LK_SPLIT_TRAIN, const std::string &folder = "")
        : Owner(made(lk_dataset_open, name.c_str(), folder.c_str(), split))
    {
    }
    /* A data set of the program's own, from memory that must outlive it, or from a function. */
    Dataset(const lk_dataset_opts &opts, const void *samples, const void *targets)
        : Owner(made(lk_dataset_from_memory, &opts, samples, targets))
    {
    }
    Dataset(const lk_dataset_opts &opts, lk_dataset_read_fn read, void *arg)
        : Owner(made(lk_dataset_create, &opts, read, arg))
    {
    }
    /* Some samples of a data set that must outlive it. */
    Dataset subset(const std::vector<std::size_t> &indices, lk_split split = LK_SPLIT_TRAIN) const
    {
        return Dataset(
            made(lk_dataset_subset, static_cast<const lk_dataset *>(get()), indices.data(), indices.size(), split));
    }
    const lk_dataset_info &info() const noexcept { return *lk_dataset_get_info(get()); }

  private:
    explicit Dataset(lk_dataset *data) noexcept : Owner(data) {}
};

/* Makes batches of a data set, which must outlive it. */
class Loader : public Owner<lk_loader, lk_loader_destroy>
{
  public:
    Loader(const Dataset &data, const lk_loader_opts &opts)
        : Owner(made(lk_loader_create, static_cast<const lk_dataset *>(data.get()), &opts))
    {
    }
    void start(std::size_t epoch, std::size_t first_batch = 0) { check(lk_loader_start(get(), epoch, first_batch)); }
    /* NULL after the last batch of the epoch; borrowed until the next call. */
    const lk_batch *next()
    {
        const lk_batch *batch = nullptr;
        check(lk_loader_next(get(), &batch));
        return batch;
    }
    std::size_t batches() const noexcept { return lk_loader_batches(get()); }
};

/* A call of a group under way; the group must outlive it. wait(), or test() that returns true, ends it. The destructor
 * blocks until the call is done, because the call uses the caller's memory. */
class Request
{
  public:
    explicit Request(lk_request *request) noexcept : request_(request) {}
    Request(Request &&other) noexcept : request_(std::exchange(other.request_, nullptr)) {}
    Request &operator=(Request &&other) noexcept
    {
        std::swap(request_, other.request_);
        return *this;
    }
    ~Request()
    {
        if (request_ && lk_request_wait(request_) != LK_OK) {
            /* The job is broken; the next call of its groups returns the failure again. */
        }
    }
    void wait()
    {
        if (request_)
            check(lk_request_wait(std::exchange(request_, nullptr)));
    }
    bool test()
    {
        bool done = !request_;
        lk_status status = done ? LK_OK : lk_request_test(request_, &done);
        if (done || status != LK_OK)
            request_ = nullptr;
        check(status);
        return done;
    }

  private:
    lk_request *request_;
};

/* The lk_dtype of an element of C++. */
template <typename T>
struct Dtype;
template <>
struct Dtype<float> {
    static constexpr lk_dtype value = LK_DTYPE_F32;
};
template <>
struct Dtype<double> {
    static constexpr lk_dtype value = LK_DTYPE_F64;
};
template <>
struct Dtype<std::int64_t> {
    static constexpr lk_dtype value = LK_DTYPE_I64;
};
template <>
struct Dtype<std::int32_t> {
    static constexpr lk_dtype value = LK_DTYPE_I32;
};
template <>
struct Dtype<std::uint8_t> {
    static constexpr lk_dtype value = LK_DTYPE_U8;
};

/* The data of a call. */
template <typename T>
lk_buffer buffer(T *at, std::size_t count) noexcept
{
    lk_buffer data{};
    data.at = at;
    data.count = count;
    data.dtype = Dtype<T>::value;
    return data;
}
template <typename T>
lk_buffer buffer(std::vector<T> &data) noexcept
{
    return buffer(data.data(), data.size());
}

/* Ranks that make the same collective calls in the same order. Each call blocks; with start, as in
 * group.start(lk_allreduce, lk::buffer(data), LK_REDUCTION_SUM), it returns a Request at once. */
class Group : public Owner<lk_group, lk_group_destroy>
{
  public:
    Group() = default; /* no group: one rank */
    explicit Group(lk_group *group) noexcept : Owner(group) {}
    /* Whether a launcher has started this process as a rank: join() then finds the others. */
    static bool launched() noexcept { return lk_group_launched(); }
    static Group join() { return Group(made(lk_group_join, static_cast<const lk_group_opts *>(nullptr))); }
    static Group join(const lk_group_opts &opts) { return Group(made(lk_group_join, &opts)); }
    /* One group for each of `count` ranks, which are threads of this process. */
    static std::vector<Group> threads(int count, const lk_group_opts &opts = {})
    {
        std::vector<lk_group *> handles(count > 0 ? static_cast<std::size_t>(count) : 1);
        check(lk_group_create_threads(count, &opts, handles.data()));
        return std::vector<Group>(handles.begin(), handles.end());
    }
    /* Empty if colour < 0. */
    Group split(int colour, int key = 0) const { return Group(made(lk_group_split, get(), colour, key)); }

    int rank() const noexcept { return get() ? lk_group_rank(get()) : 0; }
    int size() const noexcept { return get() ? lk_group_size(get()) : 1; }
    void abort(const std::string &reason) noexcept { lk_group_abort(get(), reason.c_str()); }

    template <typename Call, typename... Arguments>
    Request start(Call call, Arguments... arguments) const
    {
        lk_request *request = nullptr;
        check(call(get(), arguments..., &request));
        return Request(request);
    }
    void allreduce(lk_buffer data, lk_reduction op = LK_REDUCTION_SUM) const
    {
        check(lk_allreduce(get(), data, op, nullptr));
    }
    void broadcast(lk_buffer data, int root = 0) const { check(lk_broadcast(get(), data, root, nullptr)); }
    /* All ranks give the same number of elements. */
    template <typename T>
    std::vector<T> allgather(const std::vector<T> &mine) const
    {
        std::vector<T> out(mine.size() * static_cast<std::size_t>(size()));
        check(lk_allgather(get(), buffer(const_cast<T *>(mine.data()), mine.size()), nullptr, out.data(), nullptr));
        return out;
    }
    void barrier() const { check(lk_barrier(get(), nullptr)); }
    void send(lk_buffer data, int to) const { check(lk_send(get(), data, to, nullptr)); }
    void recv(lk_buffer data, int from) const { check(lk_recv(get(), data, from, nullptr)); }
};

/* A compiled graph, its parameters and an optimiser; its group must outlive it. */
class Engine : public Owner<lk_engine, lk_engine_destroy>
{
  public:
    Engine(const Graph &graph, const lk_engine_opts &opts)
        : Owner(made(lk_engine_create, static_cast<const lk_graph *>(graph.get()), &opts))
    {
    }
    lk_metrics step(const lk_batch &batch) { return run(lk_engine_step, batch); }
    lk_metrics eval(const lk_batch &batch) { return run(lk_engine_eval, batch); }
    /* The scores of every sample of the whole batch, one sample after the other. */
    std::vector<float> forward(const lk_batch &batch)
    {
        std::size_t total = batch.total ? batch.total : batch.count;
        std::vector<float> scores(total * lk_engine_output_floats(get(), nullptr));
        check(lk_engine_forward(get(), &batch, scores.data()));
        return scores;
    }
    lk_metrics gradients(const lk_batch &batch) { return run(lk_engine_gradients, batch); }
    void update() { check(lk_engine_update(get())); }

    State state() const { return State(copy(lk_engine_state)); }
    State grads() const { return State(copy(lk_engine_grads)); }
    State optimizer_state() const { return State(copy(lk_engine_optimizer_state)); }
    void set_state(const State &state) { check(lk_engine_set_state(get(), state.get())); }
    void set_optimizer_state(const State &state) { check(lk_engine_set_optimizer_state(get(), state.get())); }

    void set_grads(const State &grads) { check(lk_engine_set_grads(get(), grads.get())); }
    void set_group(const std::string &pattern, const lk_param_group &group)
    {
        check(lk_engine_set_group(get(), pattern.c_str(), &group));
    }
    void average(double decay) { check(lk_engine_average(get(), decay)); }
    State averaged_state() const { return State(copy(lk_engine_averaged_state)); }

    double lr() const noexcept { return lk_engine_lr(get()); }
    void set_lr(double lr) { check(lk_engine_set_lr(get(), lr)); }
    std::uint64_t steps() const noexcept { return lk_engine_steps(get()); }
    lk_layout layout() const noexcept { return lk_engine_layout(get()); }
    lk_shard_range shard_range() const noexcept { return lk_engine_shard_range(get()); }

  private:
    lk_metrics run(lk_status (*call)(lk_engine *, const lk_batch *, lk_metrics *), const lk_batch &batch)
    {
        lk_metrics metrics{};
        check(call(get(), &batch, &metrics));
        return metrics;
    }
    lk_state *copy(lk_status (*call)(const lk_engine *, lk_state **)) const
    {
        lk_state *state = nullptr;
        check(call(get(), &state));
        return state;
    }
};

} // namespace lk

#endif
