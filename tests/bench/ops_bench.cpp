// One rank of a job that times nexar's operations and checks every result; who and how many: from the
// environment. What is measured, and the options: measured.hpp.
#include <string>

#include "measured.hpp"
#include "nexar_calls.hpp"

namespace {

void must(nexar_status status, const char* what) {
    if (status == NEXAR_OK) return;
    nexar_error error{};
    error.struct_size = sizeof error;
    const bool known = nexar_last_error(&error) == NEXAR_OK;
    measured::fail(std::string(what) + ": " + nexar_status_name(status) +
                   (known ? std::string(": ") + error.text : ""));
}

struct Job {
    Job() {
        must(nexar_session_open(nullptr, &session), "session_open");
        must(nexar_group_open(session, nullptr, &group), "group_open");
        must(nexar_group_rank(group, &rank), "group_rank");
        must(nexar_group_size(group, &size), "group_size");
    }
    ~Job() {
        must(nexar_group_free(group), "group_free");
        must(nexar_session_close(session), "session_close");
    }
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    void barrier() const { must(calls::barrier(group), "barrier"); }
    void broadcast(uint64_t& value) const {
        must(calls::broadcast(group, &value, sizeof value, 0), "broadcast");
    }
    void all_reduce(float* values, size_t count) const {
        must(calls::all_reduce(group, values, values, count), "all_reduce");
    }
    void send(const void* data, size_t bytes, uint32_t to, uint32_t tag) const {
        must(calls::send(group, data, bytes, to, tag), "send");
    }
    void recv(void* data, size_t bytes, uint32_t from, uint32_t tag) const {
        must(calls::recv(group, data, bytes, from, tag), "recv");
    }
    nexar_request send_start(const void* data, size_t bytes, uint32_t to, uint32_t tag) const {
        nexar_request request{};
        must(calls::send_start(group, data, bytes, to, tag, &request), "send_start");
        return request;
    }
    nexar_request recv_start(void* data, size_t bytes, uint32_t from, uint32_t tag) const {
        nexar_request request{};
        must(calls::recv_start(group, data, bytes, from, tag, &request), "recv_start");
        return request;
    }
    static void finish(nexar_request request) { must(calls::finish(request), "message"); }
    void* allocate(size_t bytes) const {
        void* data = nullptr;
        must(calls::alloc(session, bytes, &data), "alloc");
        return data;
    }
    void deallocate(void* data) const { must(nexar_free(session, data), "free"); }

    nexar_session* session = nullptr;
    nexar_group* group = nullptr;
    uint32_t rank = 0, size = 0;
};

}  // namespace

int main(int argc, char** argv) {
    const measured::Options options = measured::parse(argc, argv);
    Job job;
    measured::run(job, options);
}
