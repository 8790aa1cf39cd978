// A peer of tools/bench: the measurements of measured.hpp over Gloo's TCP transport. The environment:
// BENCH_RANK, BENCH_SIZE, BENCH_ADDRESS (this host's) and BENCH_FOLDER, an empty one that all ranks see, for
// Gloo's store.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <exception>
#include <memory>
#include <string>

#include "measured.hpp"

namespace {

std::string from_environment(const char* name) {
    const char* const value = std::getenv(name);
    if (value == nullptr) measured::fail(std::string(name) + " is not set");
    return value;
}

int int_of(uint32_t number) {
    return static_cast<int>(number);
}

struct Request {
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    bool is_send;
};

struct Job {
    Job()
        : rank(static_cast<uint32_t>(std::stoul(from_environment("BENCH_RANK")))),
          size(static_cast<uint32_t>(std::stoul(from_environment("BENCH_SIZE")))),
          context(std::make_shared<gloo::rendezvous::Context>(int_of(rank), int_of(size))) {
        gloo::transport::tcp::attr address;
        address.hostname = from_environment("BENCH_ADDRESS");
        auto device = gloo::transport::tcp::CreateDevice(address);
        gloo::rendezvous::FileStore store(from_environment("BENCH_FOLDER"));
        context->connectFullMesh(store, device);
    }

    void barrier() {
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
    }
    void broadcast(uint64_t& value) {
        gloo::BroadcastOptions options(context);
        options.setRoot(0);
        options.setOutput(&value, 1);
        gloo::broadcast(options);
    }
    void all_reduce(float* values, size_t count) {
        gloo::AllreduceOptions options(context);
        options.setOutput(values, count);
        options.setReduceFunction(
            static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
        gloo::allreduce(options);
    }
    void send(const void* data, size_t bytes, uint32_t to, uint32_t tag) {
        finish(send_start(data, bytes, to, tag));
    }
    void recv(void* data, size_t bytes, uint32_t from, uint32_t tag) {
        finish(recv_start(data, bytes, from, tag));
    }
    Request send_start(const void* data, size_t bytes, uint32_t to, uint32_t tag) {
        auto buffer =
            context->createUnboundBuffer(const_cast<void*>(data), bytes);  // Gloo takes both kinds so
        buffer->send(int_of(to), tag);
        return {std::move(buffer), true};
    }
    Request recv_start(void* data, size_t bytes, uint32_t from, uint32_t tag) {
        auto buffer = context->createUnboundBuffer(data, bytes);
        buffer->recv(int_of(from), tag);
        return {std::move(buffer), false};
    }
    static void finish(const Request& request) {
        if (request.is_send)
            request.buffer->waitSend();
        else
            request.buffer->waitRecv();
    }
    static void* allocate(size_t) { return nullptr; }
    static void deallocate(void*) {}

    uint32_t rank, size;
    std::shared_ptr<gloo::rendezvous::Context> context;
};

}  // namespace

int main(int argc, char** argv) try {
    const measured::Options options = measured::parse(argc, argv);
    Job job;
    measured::run(job, options);
} catch (const std::exception& failure) {
    measured::fail(failure.what());
}
