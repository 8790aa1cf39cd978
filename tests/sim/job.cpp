// See job.hpp.
#include "job.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstring>

namespace nexar::sim {

namespace {

SimGroup of_size(size_t size) {
    SimGroup group;
    group.placement.resize(size);
    return group;
}

uint64_t padded(uint64_t bytes) {
    return (bytes + 63) & ~uint64_t{63};
}

}  // namespace

Job::Job(Cluster& cluster, std::string name, std::vector<App*> apps)
    : cluster_(cluster), name_(std::move(name)), program_(cluster, of_size(apps.size())) {
    for (App* app : apps) members_.push_back({.app = app, .memory = {}, .failure = {}});
}

uint64_t Job::bytes_needed() const {
    uint64_t all = 64;
    for (const Step& step : program_.steps)
        all += 2 * padded(step.words.count * Reference::width(step.words.dtype) * members_.size() + 64) +
               padded(16 * members_.size());
    return random_ == nullptr ? all : all * (1 + windows_max_);
}

void Job::start(Duration pause, size_t depth, bool automatic_ranks) {
    pause_ = pause;
    depth_ = depth;
    const auto size = static_cast<uint32_t>(members_.size());
    for (size_t i = 0; i < members_.size(); ++i) {
        Member& member = members_[i];
        ++cluster_.to_be_submitted;
        cluster_.clock.after(cluster_.clock.some(pause), [this, &member, i, size, automatic_ranks] {
            --cluster_.to_be_submitted;
            if (member.app->ended()) return;
            member.memory = std::make_shared<std::vector<std::byte>>(bytes_needed(), std::byte{0xdd});
            const uint32_t rank = automatic_ranks ? NEXAR_SHM_ANY_RANK : static_cast<uint32_t>(i);
            member.region = member.app->add_region(member.memory, [this, &member, size, rank](const Done& d) {
                if (d.status != 0) {
                    member.failure = "region: " + d.text;
                    return;
                }
                member.app->open(name_, size, rank, [this, &member](const Done& o) { on_open(member, o); });
            });
        });
    }
}

void Job::on_open(Member& member, const Done& done) {
    if (done.status != 0) {
        member.failure = "open: " + done.text;
        return;
    }
    member.rank = done.result.rank;
    member.group = done.result.group;
    member.segment_bytes = done.result.stage;
    proceed(member);
}

// The application's main loop: as many as may be in flight, then what ended makes room.
void Job::proceed(Member& member) {
    if (member.app->ended() || member.over) return;
    while (member.in_flight < depth_ && member.next < program_.steps.size()) {
        if (!post(member, member.next)) {  // the table is full: look again a little later
            ++cluster_.to_be_submitted;
            cluster_.clock.after(100us, [this, &member] {
                --cluster_.to_be_submitted;
                proceed(member);
            });
            return;
        }
        ++member.next;
    }
    if (member.next == program_.steps.size() && member.in_flight == 0) leave(member);
}

bool Job::post(Member& member, size_t index) {
    Step& step = program_.steps[index];
    const OpDescriptor& d = step.words;
    const CountsRef counts = Reference::counts(d, program_.group.size());
    const OwnCountsRef own = Reference::own_counts(d, program_.group.size(), member.rank);
    const auto lengths = local::lengths_of(d, program_.group.size(), member.rank, counts.get(), own.get());
    REQUIRE(lengths);
    const uint64_t elements = lengths->in / Reference::width(d.dtype);
    auto in = Reference::input(step.salt, member.rank, elements, d.dtype);
    const uint64_t in_at = member.used, out_at = in_at + padded(lengths->in);
    if (!in.empty()) std::memcpy(member.memory->data() + in_at, in.data(), in.size());

    nexar_shm_descriptor words{};
    words.kind = static_cast<uint8_t>(d.kind);
    words.dtype = static_cast<uint8_t>(d.dtype);
    words.op = static_cast<uint8_t>(d.op);
    if (row_of(d.kind).reduces && d.op == ReduceOp::premul_sum)
        words.scalar = Reference::scalar(member.rank, d.dtype);
    words.group = member.group;
    words.count = d.count;
    words.peer = d.root;
    words.timeout_ns = -1;
    words.in = {member.region, 0, in_at};
    words.out = {member.region, 0, out_at};
    const uint64_t used_before = member.used;
    member.used = out_at + padded(lengths->out);
    if (own) words.count = 0;
    std::vector<uint64_t> list;
    for (const Counts* part : {counts.get(), own ? &own->sends : nullptr, own ? &own->receives : nullptr})
        for (uint32_t rank = 0; part != nullptr && rank < part->size(); ++rank)
            list.push_back(part->of(rank));
    if (!list.empty()) {
        words.args = {member.region, static_cast<uint32_t>(list.size()), member.used};
        std::memcpy(member.memory->data() + member.used, list.data(), 8 * list.size());
        member.used += padded(8 * list.size());
    }
    std::shared_ptr<StagedMemory> staged;
    if (wants_stage(member) && row_of(d.kind).has_elements && !own)
        staged = stage(member, d, std::move(in), lengths->out, words);
    Call& call = calls_.emplace_back();
    const bool from_in = d.kind == OpKind::broadcast && d.root == member.rank;
    const uint64_t at = from_in ? in_at : out_at, bytes = from_in ? lengths->in : lengths->out;
    const auto then = [this, &member, &call, at, bytes, staged](const Done& done) {
        call.ended = true;
        call.finished = finished_ = cluster_.clock.now();
        call.outcome.error = {static_cast<Errc>(done.status), done.text, -1, -1, {}};
        call.out_at_end.assign(member.memory->begin() + static_cast<ptrdiff_t>(at),
                               member.memory->begin() + static_cast<ptrdiff_t>(at + bytes));
        if (staged && !staged->out.user.empty()) call.out_at_end = staged->out.user;
        --member.in_flight;
        ++cluster_.to_be_submitted;
        cluster_.clock.after(cluster_.clock.some(pause_), [this, &member] {
            --cluster_.to_be_submitted;
            proceed(member);
        });
    };
    if (!member.app->start(words, then, staged)) {
        member.used = used_before;
        calls_.pop_back();
        return false;
    }
    ++member.in_flight;
    step.calls[member.rank] = &call;
    return true;
}

bool Job::wants_stage(const Member& member) {
    if (random_ == nullptr) return false;
    return (always_ && &member == &members_[*always_]) || random_->one_in(2);
}

// Windows behind what the call would have without: at least one side.
std::shared_ptr<StagedMemory> Job::stage(Member& member, const OpDescriptor& d, std::vector<std::byte> in,
                                         uint64_t out_bytes, nexar_shm_descriptor& words) {
    auto staged = std::make_shared<StagedMemory>();
    const auto size = program_.group.size();
    const OpRow& row = row_of(d.kind);
    staged->count = d.count;
    staged->element = Reference::width(d.dtype);
    staged->segments = segments_of(row, d.count, staged->element, size, member.segment_bytes);
    staged->windows = 1 + static_cast<uint32_t>(random_->below(windows_max_));
    staged->at_most = random_->one_in(2) ? UINT32_MAX : 1 + static_cast<uint32_t>(random_->below(3));
    const auto sides = random_->below(3);  // both; input; output
    const auto place = [&](StagedMemory::Side& side, uint64_t blocks) {
        side.blocks = blocks;
        side.stride = nexar_shm_window_bytes(d.count, staged->segments, staged->element, blocks);
        const uint64_t at = member.used;
        side.windows = member.memory->data() + at;
        member.used += side.stride * staged->windows;
        REQUIRE(member.used <= member.memory->size());
        return at;
    };
    words.stage_windows = staged->windows;
    if (sides != 2) words.flags |= NEXAR_SHM_FLAG_STAGED_IN;
    if (sides != 1) words.flags |= NEXAR_SHM_FLAG_STAGED_OUT;
    if (sides != 2 && !in.empty()) {
        words.in.offset = place(staged->in, side_blocks(row.in, size));
        staged->in.user = std::move(in);
        if (row.in == SideSize::own) staged->in.limit_to_own(*Reference::counts(d, size), member.rank);
    }
    if (sides != 1 && out_bytes != 0) {
        words.out.offset = place(staged->out, side_blocks(row.out, size));
        staged->out.user.assign(out_bytes, std::byte{0x77});
        if (row.out == SideSize::own) staged->out.limit_to_own(*Reference::counts(d, size), member.rank);
    }
    return staged;
}

void Job::leave(Member& member) {
    member.over = true;
    nexar_shm_descriptor words{};
    words.kind = NEXAR_CMD_GROUP_FREE;
    words.group = member.group;
    member.app->start(words, [&member](const Done& freed) {
        // A group that failed may be gone in the engine; the name is free either way.
        if (freed.status != 0 && freed.status != static_cast<int32_t>(Errc::not_found))
            member.failure = "group_free: " + freed.text;
        nexar_shm_descriptor free{};
        free.kind = NEXAR_CMD_REGION_FREE;
        free.in.region = member.region;
        member.app->start(free, [&member](const Done& done) {
            if (done.status != 0) member.failure = "region_free: " + done.text;
        });
    });
}

std::string Job::wrong() const {
    for (size_t i = 0; i < members_.size(); ++i) {
        const std::string who = name_ + ", member " + std::to_string(i);
        if (!members_[i].failure.empty()) return who + ": " + members_[i].failure;
        if (!members_[i].over) return who + " did not come to its end";
    }
    const std::string w = program_.wrong();
    return w.empty() ? w : name_ + ": " + w;
}

std::string Job::wrong_results() const {
    for (const Step& step : program_.steps)
        for (uint32_t rank = 0; rank < program_.group.size(); ++rank)
            if (step.calls[rank] != nullptr && step.calls[rank]->ok())
                if (const std::string w = program_.wrong_result(step, rank); !w.empty())
                    return name_ + " " + step.words.text() + ": " + w;
    return {};
}

std::set<std::string> Job::errors() const {
    std::set<std::string> out;
    for (const Call& call : calls_)
        if (call.ended && !call.ok()) out.insert(call.outcome.error.text);
    return out;
}

size_t Job::calls_ok() const {
    size_t n = 0;
    for (const Call& call : calls_) n += call.ok() ? 1u : 0u;
    return n;
}

}  // namespace nexar::sim
