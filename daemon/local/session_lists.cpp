// Lists that a descriptor names in memory: counts (docs/protocol/counts.md), and the pieces of a message
// (messages.md). See session_core.hpp.
#include <algorithm>

#include "local/session_core.hpp"
#include "shm/words.hpp"

namespace nexar::local {

namespace {

// A list that the daemon keeps, with what it is charged.
template <class Lists>
std::shared_ptr<const Lists> kept(Lists lists, ChargeRef charge) {
    struct Kept {
        Lists lists;
        ChargeRef charge;
    };
    const auto both = std::make_shared<const Kept>(std::move(lists), std::move(charge));
    return {both, &both->lists};
}

}  // namespace

// Copied before anything is checked, and not looked at again: the client can write there all the time [S3].
Result<std::vector<uint64_t>> SessionCore::copy_list(const nexar_shm_descriptor& asked, uint32_t size,
                                                     uint32_t lists) const {
    const uint32_t entries = size * lists;
    if (asked.args.entries != entries)
        return fail(Errc::invalid_argument,
                    "args.entries is " + std::to_string(asked.args.entries) +
                        "; allowed: " + std::to_string(entries) +
                        (lists == 1 ? ", a count for each rank" : ", two counts for each rank"));
    return copy_words(asked.args, "list of counts");
}

Result<std::vector<uint64_t>> SessionCore::copy_words(const nexar_shm_extent& list, const char* which) const {
    NEXAR_TRY(const MemoryRef memory,
              name_memory(list, uint64_t{list.entries} * sizeof(uint64_t), alignof(uint64_t), which));
    auto* shared = reinterpret_cast<uint64_t*>(memory.place().resolve());
    std::vector<uint64_t> copy(list.entries);
    for (uint32_t i = 0; i < list.entries; ++i) copy[i] = shm::load_relaxed(shared[i]);
    return copy;
}

// What is no rank of any group becomes one that this one lacks: the engine names it.
Result<std::vector<uint32_t>> SessionCore::read_ranks(const nexar_shm_descriptor& asked,
                                                      uint32_t size) const {
    if (asked.args.entries == 0 || asked.args.entries > size)
        return fail(Errc::invalid_argument, "the list has " + std::to_string(asked.args.entries) +
                                                " ranks; allowed: 1 to " + std::to_string(size) +
                                                ", the size of the parent");
    NEXAR_TRY(const auto words, copy_words(asked.args, "list of ranks"));
    std::vector<uint32_t> out;
    for (const uint64_t word : words)
        out.push_back(static_cast<uint32_t>(std::min<uint64_t>(word, UINT32_MAX)));
    return out;
}

Result<void> SessionCore::read_counts(const nexar_shm_descriptor& asked, const OpRow& row,
                                      const engine::GroupInfo& group, engine::OpRequest& request) const {
    if (!has_counts(row) && !has_own_counts(row)) return {};
    NEXAR_TRY(const auto copy, copy_list(asked, group.size, has_counts(row) ? 1 : 2));
    const std::span<const uint64_t> list(copy);
    NEXAR_TRY(Counts first, Counts::of(list.first(group.size)));
    NEXAR_TRY(Counts second, Counts::of(list.subspan(group.size)));
    if (has_counts(row) && first.sum() != asked.count)
        return fail(Errc::invalid_argument, "count is " + std::to_string(asked.count) +
                                                ", the counts of all ranks are together " +
                                                std::to_string(first.sum()));
    NEXAR_TRY(auto charge, identity_.tenant->charge(Resource::scratch_bytes, list.size_bytes()));
    if (has_counts(row))
        request.counts = kept(std::move(first), std::move(charge));
    else
        request.own_counts = kept(OwnCounts{std::move(first), std::move(second)}, std::move(charge));
    return {};
}

// [X8] Copied once, before it is checked. The sides have no other memory then.
Result<void> SessionCore::read_pieces(const nexar_shm_descriptor& asked, const OpRow& row, Lengths& lengths,
                                      engine::OpRequest& request) const {
    const uint32_t entries = asked.args.entries;
    if (has_pieces(row) && entries == 0 && (asked.args.region != 0 || asked.args.offset != 0))
        return fail(Errc::invalid_argument, "args names memory, and args.entries is 0");
    if (!has_pieces(row) || entries == 0) return {};
    if (entries > NEXAR_SHM_PIECES_MAX)
        return fail(Errc::invalid_argument, "args.entries is " + std::to_string(entries) +
                                                "; allowed: 0 to " + std::to_string(NEXAR_SHM_PIECES_MAX) +
                                                " pieces");
    NEXAR_TRY(const MemoryRef list, name_memory(asked.args, entries * sizeof(nexar_shm_piece),
                                                alignof(nexar_shm_piece), "list of pieces"));
    auto* shared = reinterpret_cast<nexar_shm_piece*>(list.place().resolve());
    const Dtype dtype = request.descriptor.dtype;
    engine::Pieces pieces;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < entries; ++i) {
        const nexar_shm_piece piece = shm::copy_once(shared[i]);
        const std::string which = "piece " + std::to_string(i);
        if (piece.bytes == 0 || piece.bytes % size_of(dtype) != 0 || piece.region > UINT32_MAX)
            return fail(Errc::invalid_argument, which + " has " + std::to_string(piece.bytes) +
                                                    " bytes in region " + std::to_string(piece.region) +
                                                    "; allowed: whole elements, at least one");
        const nexar_shm_extent extent{static_cast<uint32_t>(piece.region), 0, piece.offset};
        NEXAR_TRY(MemoryRef memory, name_memory(extent, piece.bytes, align_of(dtype), which.c_str()));
        if (__builtin_add_overflow(sum, piece.bytes, &sum)) sum = UINT64_MAX;
        pieces.push_back(std::move(memory));
    }
    if (sum != lengths.in + lengths.out)
        return fail(Errc::invalid_argument, "the pieces have " + std::to_string(sum) +
                                                " bytes together, the message " +
                                                std::to_string(lengths.in + lengths.out));
    NEXAR_TRY(auto charge, identity_.tenant->charge(Resource::scratch_bytes, entries * sizeof(MemoryRef)));
    request.pieces = kept(std::move(pieces), std::move(charge));
    lengths = {};
    return {};
}

}  // namespace nexar::local
