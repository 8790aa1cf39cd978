// What a mesh reports to its owner, in one order: the ends of transfers from the table, all else from the
// carrier.
#pragma once

#include <string>
#include <vector>

#include "core/queue.hpp"
#include "link/transfer.hpp"

namespace nexar::link {

struct MeshEvent {
    enum class Kind : uint8_t {
        done,      // transfer `handle`: recv: all chunks applied; send: all chunks acked
        failed,    // transfer `handle`: withdrawn, or its peer detached for good; memory is free. `text`: or
                   // it was never begun, and why
        mismatch,  // a peer's header disagrees with ours [W4]: `key`, `peer`, `theirs`; the op is not harmed
                   // yet
        message,   // a whole message from `peer`: `bytes`. A `logged` one counts as applied once it is
                   // polled: its owner applies it before the next flush() [L3]
        log_discarded,  // [L7] what waited in the log with `peer` is lost. `by_peer`: the peer began it
                        // anew; otherwise the connection is to be closed, `text` says why
        log_room,       // a reserve() for `peer` failed, and may succeed now
        peer_garbage,   // `peer` sent something that breaks the protocol: close its channel; `text` says what
    };
    Kind kind;
    uint64_t handle = 0;
    PeerIndex peer;
    TransferKey key;
    Agreement theirs;
    std::vector<std::byte> bytes;
    std::string text;
    bool logged = false, by_peer = false;
};

using Events = Queue<MeshEvent>;

}  // namespace nexar::link
