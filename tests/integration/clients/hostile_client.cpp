// A client that wants to harm its daemon, or the sessions beside its own. The test looks at those.
//
//   hostile_client MODE SECONDS SEED      prints a line when it begins, then how many sessions it had and how
//   many
//                                         operations ended, and in MODE bulk how many of them well
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <thread>

#include "raw_session.hpp"

namespace hostile {
namespace {

struct Attack {
    std::string path;
    Clock::time_point until;
    Random random;
    uint64_t sessions = 0, ended = 0, well = 0;
    std::function<void(int memfd, uint64_t bytes)> on_memory{};

    bool goes_on() const { return Clock::now() < until; }
    uint64_t below(uint64_t n) { return random() % n; }
    bool chance(uint64_t one_in) { return below(one_in) == 0; }

    // A new session, as soon as the daemon gives one.
    std::unique_ptr<RawSession> session(uint64_t region_bytes = 1 << 20, bool sparse = false) {
        while (goes_on()) {
            auto out = std::make_unique<RawSession>(region_bytes, sparse);
            if (on_memory) out->on_memory = on_memory;
            if (out->open(path)) {
                ++sessions;
                return out;
            }
            usleep(1000);  // sleep: between two tries
        }
        return nullptr;
    }

    // Mostly what might pass one more check.
    uint64_t number() {
        constexpr uint64_t edges[] = {0, 1, 2, 3, 7, 64, 4096, 65536, 1 << 19, 1 << 20, 1u << 31, UINT32_MAX};
        switch (below(4)) {
            case 0:
                return edges[below(std::size(edges))];
            case 1:
                return UINT64_MAX - below(16);
            case 2:
                return below(1 << 20);
            default:
                return random() >> below(64);
        }
    }

    nexar_shm_descriptor descriptor(RawSession& s) {
        nexar_shm_descriptor d = s.all_reduce(1 + below(1000));
        d.kind = static_cast<uint8_t>(chance(8) ? random() : below(8) + (chance(4) ? 64 : 0));
        d.dtype = static_cast<uint8_t>(chance(8) ? random() : below(12));
        d.op = static_cast<uint8_t>(chance(8) ? random() : below(5));
        d.flags = chance(4) ? static_cast<uint32_t>(chance(2) ? below(8) : random()) : 0;
        if (chance(8)) d.priority = static_cast<uint8_t>(random());
        if (chance(8)) d.epoch = static_cast<uint32_t>(number());
        if (chance(8)) d.match_id = number();
        if (chance(8)) d.stage_windows = static_cast<uint32_t>(chance(2) ? below(66) : number());
        if (chance(16)) d.args = {static_cast<uint32_t>(number()), static_cast<uint32_t>(number()), number()};
        if (chance(16)) d.zero[below(sizeof d.zero)] = 1;
        d.timeout_ns = chance(2) ? 1'000'000 : static_cast<int64_t>(number());
        d.peer = chance(2) ? 0 : static_cast<uint32_t>(number());
        if (chance(8)) d.group = static_cast<uint32_t>(number());
        if (chance(3)) d.count = number();
        if (chance(4)) d.in = {static_cast<uint32_t>(number()), 0, number()};
        if (chance(4)) d.out = {static_cast<uint32_t>(number()), 0, number()};
        d.tag = number();
        return d;
    }
};

// Whole entries with descriptors and payloads of every kind.
void descriptors(Attack& a) {
    while (auto s = a.session()) {
        for (int i = 0; i < 2000 && a.goes_on() && !s->ended(); ++i) {
            const auto at = static_cast<uint32_t>(a.below(RawSession::slots));
            auto& open = s->payload(at).group_open;
            open.size = a.chance(2) ? 1 : static_cast<uint32_t>(a.number());
            open.rank = a.chance(2) ? 0 : static_cast<uint32_t>(a.number());
            open.name_bytes = a.chance(2) ? 5 : static_cast<uint32_t>(a.number());
            open.secret_bytes = a.chance(2) ? 0 : static_cast<uint32_t>(a.number());
            open.timeout_ns = a.chance(2) ? 1'000'000 : static_cast<int64_t>(a.number());
            for (int64_t* time :
                 {&open.collective_timeout_ns, &open.barrier_timeout_ns, &open.rpc_timeout_ns})
                *time = a.chance(2) ? -1 : static_cast<int64_t>(a.number());
            open.instance = a.chance(2) ? 0 : a.number();
            for (char& c : open.name) c = static_cast<char>(a.chance(4) ? a.random() : 'a' + a.below(3));
            const uint32_t generation = s->submit(at, a.descriptor(*s));
            if (a.chance(4)) s->push(NEXAR_ENTRY_CANCEL, at, generation);
            if (a.chance(8)) a.ended += s->await(at, generation, 20);
        }
    }
}

// Random words everywhere, while operations are in flight.
void scribble(Attack& a) {
    while (auto s = a.session()) {
        const uint64_t words = RawSession::control_bytes() / 8;
        auto* control = reinterpret_cast<uint64_t*>(s->control());
        const uint64_t first = nexar_shm_submission_offset(RawSession::slots) / 8;
        for (int i = 0; i < 3000 && a.goes_on() && !s->ended(); ++i) {
            if (a.chance(3)) s->submit(static_cast<uint32_t>(a.below(RawSession::slots)), a.descriptor(*s));
            for (int n = 0; n < 50; ++n) {
                const uint64_t at = a.chance(4)   ? a.below(64) * 8
                                    : a.chance(4) ? first + a.below(words - first)
                                                  : a.below(words);
                std::atomic_ref(control[at])
                    .store(a.chance(3) ? a.number() : a.random(), std::memory_order_relaxed);
            }
            std::atomic_ref(reinterpret_cast<uint64_t*>(s->region())[a.below(s->region_bytes / 8)])
                .store(a.random());
        }
    }
}

// A session of this host and one of another, at NEXAR_TEST_OTHER_SOCKET, in a group of two.
struct Across {
    std::unique_ptr<RawSession> here, there;

    static std::optional<Across> open(Attack& a) {
        static int number = 0;
        while (a.goes_on()) {
            Across out{std::make_unique<RawSession>(16 << 20), std::make_unique<RawSession>(16 << 20)};
            const std::string name = "across-" + std::to_string(getpid()) + "-" + std::to_string(++number);
            const std::string secret = std::getenv("NEXAR_JOB_SECRET");
            if (out.here->attach(a.path) && out.there->attach(std::getenv("NEXAR_TEST_OTHER_SOCKET"))) {
                const uint32_t first = out.here->begin_group(name, secret, 2, 0);
                const uint32_t second = out.there->begin_group(name, secret, 2, 1);
                if (out.here->finish_group(first) && out.there->finish_group(second)) return out;
            }
            usleep(1000);  // sleep: between two tries
        }
        return std::nullopt;
    }
};

// What the daemon's shards count themselves in, and all other sessions of the host read: nobody else writes
// it.
void try_page(RawSession& s) {
    if (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, s.page_fd(), 0) != MAP_FAILED) _exit(5);
    const uint32_t many = 1000;
    if (pwrite(s.page_fd(), &many, sizeof many, offsetof(nexar_shm_daemon_page, bulk_threads)) > 0) _exit(5);
    const int again = open(("/proc/self/fd/" + std::to_string(s.page_fd())).c_str(), O_RDWR | O_CLOEXEC);
    if (again >= 0 && mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, again, 0) != MAP_FAILED) _exit(5);
    if (again >= 0) close(again);
}

// One thing that is wrong, of a session whose operations are with the shards now.
enum Harm : uint64_t {
    indexes,
    entries_of_rings,
    slots_in_flight,
    half_requests,
    contents,
    less_memory,
    harms
};

void harm(Attack& a, RawSession& s, uint64_t kind) {
    auto* const control = reinterpret_cast<uint64_t*>(s.control());
    const uint64_t rings = nexar_shm_submission_offset(RawSession::slots) / 8;
    const auto scribble = [&](uint64_t from, uint64_t words, int times) {
        while (times-- > 0)
            std::atomic_ref(control[from + a.below(words)])
                .store(a.chance(2) ? a.number() : a.random(), std::memory_order_relaxed);
    };
    switch (kind) {
        case indexes:
            return scribble(0, 64, 20);
        case entries_of_rings:
            return scribble(rings, RawSession::control_bytes() / 8 - rings, 200);
        case slots_in_flight:  // descriptors and states
            return scribble(nexar_shm_slots_offset() / 8, RawSession::slots * sizeof(nexar_shm_slot) / 8,
                            200);
        case half_requests:  // as many as the daemon bears, and no more than the ring has room for
            for (int i = 0; i < 16; ++i) {
                s.slot(9).descriptor = a.descriptor(s);
                s.push(NEXAR_ENTRY_SUBMIT, 9, static_cast<uint32_t>(a.random()));
            }
            return;
        case contents:  // of what is being sent and received
            for (int i = 0; i < 20'000; ++i)
                std::atomic_ref(reinterpret_cast<uint64_t*>(s.region())[a.below(s.region_bytes / 8)])
                    .store(a.random(), std::memory_order_relaxed);
            return;
        default:  // less_memory
            for (const int fd : {s.region_fd(), s.control_fd()})
                if (ftruncate(fd, a.chance(2) ? 0 : 4096) == 0) _exit(5);
    }
}

bool await_end(RawSession& s) {
    for (const auto end = Clock::now() + std::chrono::seconds(20); Clock::now() < end;) {
        if (s.ended()) return true;
        usleep(1000);  // sleep: between two looks
    }
    return false;
}

// How many of the daemon's shards move bulk data.
uint32_t shards_at_work(const void* page) {
    const uint32_t& word = static_cast<const nexar_shm_daemon_page*>(page)->bulk_threads;
    return std::atomic_ref(const_cast<uint32_t&>(word)).load();
}

// Harm of every kind while the shards move what this session and one of another host exchange. What it
// prints shows that they did.
void bulk(Attack& a) {
    uint32_t at_work = 0;
    while (auto pair = Across::open(a)) {
        ++a.sessions;
        RawSession& s = *pair->here;
        try_page(s);
        void* const page = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, s.page_fd(), 0);
        if (page == MAP_FAILED) _exit(3);
        for (int turn = 0; turn < 4 && !s.ended() && !pair->there->ended(); ++turn) {
            if (a.sessions > 1 && !a.goes_on()) break;
            uint32_t generation = 0;
            for (uint32_t at = 1; at <= 4; ++at) {
                generation = s.submit(at, s.all_reduce(s.region_bytes / 16));
                pair->there->submit(at, pair->there->all_reduce(s.region_bytes / 16));
            }
            // The first session does nothing wrong at first, and is closed for what it does then.
            const bool well = turn == 0, first = a.sessions == 1 && turn == 1;
            usleep(static_cast<useconds_t>(a.below(well ? 1 : 5000)));  // sleep: harm comes at any moment
            if (!well) harm(a, s, first ? uint64_t{half_requests} : a.below(harms));
            bool ended = false;
            const auto end = Clock::now() + std::chrono::milliseconds(well || first ? 20'000 : 100);
            while (!ended && !s.ended() && Clock::now() < end) {
                at_work = std::max(at_work, shards_at_work(page));
                ended = s.await(4, generation, 1);
            }
            a.ended += ended;
            a.well += ended && s.slot(4).result.status == 0;
            if (first && !await_end(s)) _exit(6);
        }
        munmap(page, 4096);
    }
    std::printf("%u shards at work, %llu well\n", at_work, static_cast<unsigned long long>(a.well));
}

// Entries that make no sense: unknown kinds and slots, old generations, the same slot twice, cancels of
// nothing.
void entries(Attack& a) {
    while (auto s = a.session())
        while (a.goes_on() && !s->ended()) {
            s->push(static_cast<uint32_t>(a.chance(2) ? a.below(4) : a.below(256)),
                    static_cast<uint32_t>(a.chance(2) ? a.below(RawSession::slots) : a.below(65536)),
                    static_cast<uint32_t>(a.random()));
            if (a.chance(64)) usleep(100);  // sleep: a pause, at random
        }
}

// The descriptor of a slot is another one between the daemon's check and its use, if it looks twice.
void flip(Attack& a) {
    while (auto s = a.session()) {
        std::atomic<bool> stop = false;
        std::thread flipper([&] {
            auto& d = s->slot(1).descriptor;
            while (!stop.load(std::memory_order_relaxed)) {
                std::atomic_ref(d.count).store(uint64_t{1} << 40, std::memory_order_relaxed);
                std::atomic_ref(d.out.offset).store(UINT64_MAX - 64, std::memory_order_relaxed);
                std::atomic_ref(d.in.region).store(77, std::memory_order_relaxed);
                std::atomic_ref(d.count).store(100, std::memory_order_relaxed);
                std::atomic_ref(d.out.offset).store(4096, std::memory_order_relaxed);
                std::atomic_ref(d.in.region).store(1, std::memory_order_relaxed);
            }
        });
        for (int i = 0; i < 500 && a.goes_on() && !s->ended(); ++i)
            a.ended += s->await(1, s->submit(1, s->all_reduce(100)), 100);
        stop = true;
        flipper.join();
    }
}

// Pages of the segments are to disappear, before the daemon has them and while it works in them.
void punch(Attack& a) {
    constexpr int how = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    a.on_memory = [&a](int memfd, uint64_t bytes) {
        if (a.chance(8)) fallocate(memfd, how, 0, static_cast<off_t>(bytes));
    };
    while (auto s = a.session())
        for (int i = 0; i < 500 && a.goes_on() && !s->ended(); ++i) {
            const uint32_t at = 1 + static_cast<uint32_t>(a.below(RawSession::slots - 1));
            const uint32_t generation = s->submit(at, s->all_reduce(s->region_bytes / 16));
            if (fallocate(s->region_fd(), how, 0, static_cast<off_t>(s->region_bytes)) == 0) _exit(5);
            if (fallocate(s->control_fd(), how, 0, static_cast<off_t>(RawSession::control_bytes())) == 0)
                _exit(5);
            a.ended += s->await(at, generation, 5);
        }
}

// Operations on memory that is not there.
void holes(Attack& a) {
    constexpr uint64_t bytes = 300 << 20;
    while (auto s = a.session(bytes, true)) {
        a.ended += s->await(1, s->submit(1, s->all_reduce(bytes / 16)));
        struct stat status{};
        const bool provided = fstat(s->region_fd(), &status) == 0 && status.st_blocks > 2 * 8 * 150;
        if (provided && s->ended()) _exit(5);  // though the session has ended for its holes
    }
}

// Mappings make the kernel's work on a page longer: of so many no honest program comes near.
class Multiplied {
  public:
    Multiplied(int memfd, uint64_t bytes) : memfd_(memfd), bytes_(bytes) {
        constexpr uint64_t mapped_max = 4000;
        reserve();
        for (uint64_t i = 0; i < mapped_max;
             ++i) {  // every other is of another kind, so that none are merged
            const int kind = i % 2 == 0 ? PROT_READ : PROT_READ | PROT_EXEC;
            void* at = mmap(nullptr, bytes, kind, MAP_SHARED | MAP_POPULATE, memfd, 0);
            if (at == MAP_FAILED) break;
            mapped_.emplace_back(at, bytes);
        }
    }
    ~Multiplied() {
        stop_ = true;
        if (thread_.joinable()) thread_.join();
        for (const auto& [at, bytes] : mapped_) munmap(at, bytes);
    }
    Multiplied(const Multiplied&) = delete;

    // From now on it is punched, if the kernel allows that, and huge pages are to be made of it.
    void begin() {
        if (thread_.joinable()) return;
        thread_ = std::thread([this] {
            constexpr int how = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, collapse = 25;  // MADV_COLLAPSE
            while (!stop_) {
                fallocate(memfd_, how, 4096, static_cast<off_t>(bytes_ - 4096));
                madvise(huge_, huge_bytes_, collapse);
            }
        });
    }

  private:
    // Huge pages have addresses of their own.
    void reserve() {
        constexpr uint64_t huge = 2 << 20;
        huge_bytes_ = (bytes_ + huge - 1) / huge * huge;
        void* room = mmap(nullptr, huge_bytes_ + huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        const auto first = (reinterpret_cast<uintptr_t>(room) + huge - 1) / huge * huge;
        huge_ =
            mmap(reinterpret_cast<void*>(first), huge_bytes_, PROT_READ, MAP_SHARED | MAP_FIXED, memfd_, 0);
        if (room == MAP_FAILED || huge_ == MAP_FAILED) _exit(3);
        mapped_.emplace_back(room, huge_bytes_ + huge);
    }

    const int memfd_;
    const uint64_t bytes_;
    void* huge_ = nullptr;
    uint64_t huge_bytes_ = 0;
    std::atomic<bool> stop_{false};
    std::thread thread_;
    std::vector<std::pair<void*, uint64_t>> mapped_;
};

// Half of the time before the daemon has the memory, which may keep this user's sessions from opening for
// seconds; half of the time, and at first, when it works there.
void mappings(Attack& a) {
    std::list<Multiplied> memory;
    a.on_memory = [&](int memfd, uint64_t bytes) {
        memory.emplace_back(memfd, bytes);
        if (a.sessions > 0 && a.chance(2)) memory.back().begin();
    };
    while (auto s = a.session()) {
        for (uint64_t left = 20 + a.below(200); left > 0 && a.goes_on() && !s->ended(); --left) {
            if (left % 20 == 0) memory.front().begin();
            if (left % 20 == 10) memory.back().begin();
            a.ended += s->await(1, s->submit(1, s->all_reduce(s->region_bytes / 16)), 1000);
        }
        memory.clear();
    }
}

// Endless doorbells, and an answer to each operation that is never read.
void doorbells(Attack& a) {
    while (auto s = a.session()) {
        std::atomic_ref(s->header().bell_wanted).store(1);
        fcntl(s->socket_fd(), F_SETFL, 0);  // blocking, should the daemon share it
        const nexar_msg_head doorbell{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL};
        while (a.goes_on() && !s->ended()) {
            for (int i = 0; i < 1000; ++i) s->send(&doorbell, sizeof doorbell, {}, MSG_DONTWAIT);
            uint32_t last = 0;
            for (uint32_t at = 1; at < RawSession::slots; ++at) last = s->submit(at, s->all_reduce(1));
            a.ended += s->await(RawSession::slots - 1, last, 100);
        }
    }
}

// Descriptors of every kind, where one belongs, and where none does.
void descriptors_of_files(Attack& a) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) _exit(3);
    const int zero = open("/dev/zero", O_RDWR | O_CLOEXEC), folder = open("/", O_PATH | O_CLOEXEC);
    const int soft = RawSession::sealed_memory(1 << 20, 0);
    const int frozen =
        RawSession::sealed_memory(1 << 20, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    const int huge = RawSession::sealed_memory(uint64_t{1} << 46);
    const int small = RawSession::sealed_memory(100);
    while (auto s = a.session())
        for (int i = 0; i < 300 && a.goes_on() && !s->ended(); ++i) {
            const int all[] = {pipe_ends[0],   pipe_ends[1],    zero,           folder,
                               soft,           frozen,          huge,           small,
                               s->socket_fd(), s->control_fd(), s->region_fd(), 0};
            nexar_msg_region_add add{};
            add.head = {NEXAR_LOCAL_MAGIC,
                        static_cast<uint32_t>(a.chance(16) ? a.below(12) : uint64_t{NEXAR_MSG_REGION_ADD})};
            add.slot = static_cast<uint32_t>(a.chance(8) ? a.number() : a.below(RawSession::slots));
            add.generation = static_cast<uint32_t>(a.random());
            add.region = static_cast<uint32_t>(a.chance(4) ? a.number() : 2 + a.below(20));
            add.kind = static_cast<uint32_t>(a.chance(8) ? a.number() : uint64_t{NEXAR_MEMORY_MEMFD});
            add.reserved = a.chance(16) ? a.number() : 0;
            add.offset = a.chance(2) ? 0 : a.number();
            add.bytes = a.chance(2) ? 4096 : a.number();
            std::vector<int> fds(a.chance(16) ? a.below(9) : 1);
            for (int& fd : fds) fd = all[a.below(std::size(all))];
            const size_t size = a.chance(16) ? a.below(sizeof add) : sizeof add;
            s->send(&add, size, fds, MSG_DONTWAIT);
        }
}

// Handshakes that stop, come twice, or are of another size; as many as the limit on descriptors allows.
void handshakes(Attack& a) {
    std::vector<std::unique_ptr<RawSession>> held;
    while (a.goes_on()) {
        auto s = std::make_unique<RawSession>();
        if (!s->dial(a.path)) {
            usleep(1000);  // sleep: between two tries
            held.clear();
            continue;
        }
        ++a.sessions;
        char bytes[6000];
        for (char& c : bytes) c = static_cast<char>(a.random());
        nexar_msg_hello hello{};
        hello.head = {NEXAR_LOCAL_MAGIC, static_cast<uint32_t>(a.below(10))};
        hello.version_min = static_cast<uint32_t>(a.below(NEXAR_LOCAL_VERSION + 2));
        hello.version_max = static_cast<uint32_t>(a.below(NEXAR_LOCAL_VERSION + 2));
        const int fd = s->socket_fd();
        if (a.chance(2))
            s->send(&hello, a.chance(4) ? a.below(sizeof hello) : sizeof hello, std::span(&fd, a.below(2)),
                    MSG_DONTWAIT);
        if (a.chance(2)) s->send(bytes, a.below(sizeof bytes), {}, MSG_DONTWAIT);
        if (a.chance(2)) held.push_back(std::move(s));
        if (held.size() > 200) held.clear();
    }
}

}  // namespace

int run(int argc, char** argv) {
    const std::map<std::string, void (*)(Attack&)> modes{{"descriptors", descriptors},
                                                         {"scribble", scribble},
                                                         {"bulk", bulk},
                                                         {"entries", entries},
                                                         {"flip", flip},
                                                         {"punch", punch},
                                                         {"holes", holes},
                                                         {"mappings", mappings},
                                                         {"doorbells", doorbells},
                                                         {"files", descriptors_of_files},
                                                         {"handshakes", handshakes}};
    const char* path = std::getenv("NEXAR_SOCKET");
    if (argc != 4 || !path || !modes.contains(argv[1])) return 2;
    const rlimit files{2000, 2000};
    setrlimit(RLIMIT_NOFILE, &files);
    Attack attack{path, Clock::now() + std::chrono::milliseconds(static_cast<int>(1000 * std::atof(argv[2]))),
                  Random(std::strtoull(argv[3], nullptr, 10))};
    RawSession::patience_ms = 5000;  // who gets no answer goes on
    std::puts("begun");
    std::fflush(stdout);
    modes.at(argv[1])(attack);
    std::printf("%llu sessions, %llu ended\n", static_cast<unsigned long long>(attack.sessions),
                static_cast<unsigned long long>(attack.ended));
    return 0;
}

}  // namespace hostile

int main(int argc, char** argv) {
    return hostile::run(argc, argv);
}
