// Overtaking: how far one tenant's chunks may go before bytes of others that a connection has taken already
// on its less urgent streams [K31]. The connection empties the more urgent stream first: without a limit a
// tenant whose operations are all critical would have the link for itself. Dry.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "link/channel.hpp"

namespace nexar::link {

class Overtaking {
  public:
    // So many bytes may be before those of others; then as many as these have had acknowledged.
    static constexpr uint64_t ahead_max = frame_bytes_max;

    // Where this tenant's next frame leaves: on the stream that its priority has, or the next one on which it
    // does not pass too much.
    Class stream_for(const Channel& channel, Class wanted, Account tenant, uint64_t bytes) {
        size_t stream = index_of(wanted);
        while (passes_too_much(channel, stream, tenant, bytes)) ++stream;
        return static_cast<Class>(stream);
    }
    // Its frame was written.
    void wrote(const Channel& channel, Class stream, Account tenant, uint64_t bytes) {
        for (size_t i = index_of(stream) + 1; i < class_count; ++i)
            if (waits(channel, static_cast<Class>(i), tenant)) rows_[i].ahead += bytes;
        Row& row = rows_[index_of(stream)];
        // All that waited here may have gone unseen: what passed it did not pass what comes now.
        settle(channel, stream, row);
        if (row.last != tenant) row.others_end = row.written;
        row.last = tenant;
        row.written += bytes;
    }

  private:
    struct Row {         // of a stream; units: bytes of data frames, as they were written
        Account last{};  // who wrote last
        uint64_t written = 0;
        uint64_t others_end = 0;  // of the last bytes that were not `last`'s
        uint64_t gone = 0;        // of `written`: acknowledged, as it was seen last
        uint64_t ahead = 0;  // what left before bytes that wait here, less what these have had acknowledged
    };

    bool passes_too_much(const Channel& channel, size_t stream, Account tenant, uint64_t bytes) {
        for (size_t i = stream + 1; i < class_count; ++i)
            if (waits(channel, static_cast<Class>(i), tenant) && rows_[i].ahead != 0 &&
                rows_[i].ahead + bytes > ahead_max)
                return true;
        return false;
    }
    // Bytes of another tenant have not been acknowledged.
    bool waits(const Channel& channel, Class stream, Account tenant) {
        Row& row = rows_[index_of(stream)];
        const uint64_t end = row.last == tenant ? row.others_end : row.written;
        if (end <= row.gone) return false;
        settle(channel, stream, row);
        return end > row.gone;
    }
    // Looks what has been acknowledged.
    static void settle(const Channel& channel, Class stream, Row& row) {
        const uint64_t gone = row.written - std::min<uint64_t>(row.written, channel.held(stream));
        row.ahead -= std::min(row.ahead, gone - std::min(gone, row.gone));
        row.gone = std::max(gone, row.gone);
        if (row.gone == row.written) row.ahead = 0;
    }

    std::array<Row, class_count> rows_{};
};

}  // namespace nexar::link
