// Attach: the proof that a TCP connection belongs to the control connection of the same two daemons
// (docs/protocol/tcp.md [B2] [B3]). The dialler says hello, the acceptor answers with its proof, the dialler
// proves itself. The key is exported from the control connection's TLS session (RFC 8446 §7.5), so that who
// holds only a node's certificate, or repeats what it has received, attaches nothing. Dry: structs and bytes.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "core/bytes.hpp"
#include "core/ids.hpp"
#include "core/result.hpp"

namespace nexar::tcp {

constexpr std::string_view attach_key_label = "EXPORTER-nexar-bulk-attach";
using AttachKey = std::array<std::byte, 32>;
using AttachKeyId = std::array<std::byte, 8>;  // names a key and shows nothing of it
using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;

AttachKeyId id_of(const AttachKey& key);

enum class Mode : uint16_t { tls = 1, plain = 2 };

// What both ends put under their proofs.
struct AttachTerms {
    Mode mode = Mode::tls;
    uint16_t shard = 0;
    NodeId dialler, acceptor;
    Incarnation dialler_incarnation, acceptor_incarnation;
    Nonce dialler_nonce{}, acceptor_nonce{};
    std::array<std::byte, 32> binding{};  // of the TLS session over TCP; zeros in plain mode
};
enum class Side : uint8_t { dialler = 1, acceptor = 2 };
Proof prove(const AttachKey& key, const AttachTerms& terms, Side side);
bool proves(const AttachKey& key, const AttachTerms& terms, Side side, const Proof& proof);  // constant time

// The payloads of the three records; little-endian, no padding.
struct Hello {
    static constexpr uint32_t magic_value = 0x4154584e;  // "NXTA"
    uint32_t magic = magic_value;
    uint16_t version = 1;
    Mode mode = Mode::tls;
    uint16_t shard = 0;
    uint16_t reserved[3] = {};
    AttachKeyId key{};
    NodeId node;
    Incarnation incarnation;
    Nonce nonce{};
};
static_assert(sizeof(Hello) == 104);
struct Answer {
    NodeId node;
    Incarnation incarnation;
    Nonce nonce{};
    Proof proof{};
};
static_assert(sizeof(Answer) == 112);

Result<Hello> read_hello(Bytes bytes);  // protocol_error names what broke the rules
Result<Answer> read_answer(Bytes bytes);
Result<Proof> read_proof(Bytes bytes);

// Of one peer: from its control connections, the latest first. An older one may be the newest of the other
// end.
struct AttachKeys {
    Incarnation incarnation;
    std::array<std::optional<AttachKey>, 2> keys;

    bool add(const Incarnation& of, const AttachKey& key);  // false: it is the latest already
    const AttachKey* find(const AttachKeyId& id) const;     // null: none of them
    ~AttachKeys();

  private:
    void forget();
};

// What a connection asks while it attaches. Thread: the connection's.
class KeyRing {
  public:
    virtual const AttachKeys* keys_of(const NodeId& node) const = 0;  // null: no control connection yet

  protected:
    ~KeyRing() = default;
};

}  // namespace nexar::tcp
