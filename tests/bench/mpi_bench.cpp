// A peer of tools/bench: the measurements of measured.hpp over MPI, whichever implementation compiles it.
#include <mpi.h>

#include <string>

#include "measured.hpp"

namespace {

void must(int result, const char* what) {
    if (result != MPI_SUCCESS) measured::fail(std::string(what) + ": error " + std::to_string(result));
}

struct Job {
    Job() {
        int own = 0, all = 0;
        must(MPI_Comm_rank(MPI_COMM_WORLD, &own), "MPI_Comm_rank");
        must(MPI_Comm_size(MPI_COMM_WORLD, &all), "MPI_Comm_size");
        rank = static_cast<uint32_t>(own), size = static_cast<uint32_t>(all);
    }

    static int peer(uint32_t rank) { return static_cast<int>(rank); }
    static void barrier() { must(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); }
    static void broadcast(uint64_t& value) {
        must(MPI_Bcast(&value, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD), "MPI_Bcast");
    }
    static void all_reduce(float* values, size_t count) {
        must(MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
             "MPI_Allreduce");
    }
    static void send(const void* data, size_t bytes, uint32_t to, uint32_t tag) {
        must(MPI_Send(data, static_cast<int>(bytes), MPI_BYTE, peer(to), peer(tag), MPI_COMM_WORLD),
             "MPI_Send");
    }
    static void recv(void* data, size_t bytes, uint32_t from, uint32_t tag) {
        must(MPI_Recv(data, static_cast<int>(bytes), MPI_BYTE, peer(from), peer(tag), MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE),
             "MPI_Recv");
    }
    static MPI_Request send_start(const void* data, size_t bytes, uint32_t to, uint32_t tag) {
        MPI_Request request = MPI_REQUEST_NULL;
        must(
            MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer(to), peer(tag), MPI_COMM_WORLD, &request),
            "MPI_Isend");
        return request;
    }
    static MPI_Request recv_start(void* data, size_t bytes, uint32_t from, uint32_t tag) {
        MPI_Request request = MPI_REQUEST_NULL;
        must(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer(from), peer(tag), MPI_COMM_WORLD,
                       &request),
             "MPI_Irecv");
        return request;
    }
    static void finish(MPI_Request& request) { must(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait"); }
    static void* allocate(size_t) { return nullptr; }
    static void deallocate(void*) {}

    uint32_t rank = 0, size = 0;
};

}  // namespace

int main(int argc, char** argv) {
    must(MPI_Init(&argc, &argv), "MPI_Init");
    const measured::Options options = measured::parse(argc, argv);
    Job job;
    measured::run(job, options);
    must(MPI_Finalize(), "MPI_Finalize");
}
