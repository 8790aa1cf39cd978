// Join tokens: `nexarctl token create` prints one, a joiner shows it. docs/protocol/admission.md.
#pragma once

#include <string>
#include <vector>

#include "admission/certificates.hpp"

namespace nexar::admission {

using TokenId = std::array<uint8_t, 16>;
using TokenSecret = SecretBytes<32>;

constexpr size_t token_addresses_max = 16;
constexpr size_t token_text_max = 4096;

struct Token {
    Digest root_key_hash{};
    TokenId id{};
    TokenSecret secret;
    WallSeconds expires = 0;
    std::vector<std::string> issuer_addresses;

    Secret text() const;                                // "nexar1.<base64url>"
    static Result<Token> parse(std::string_view text);  // bad_token, never echoing the text
};

std::string hex(std::span<const uint8_t> bytes);

// MAC over values that both ends of this TLS connection know and no third party can replay [A4]:
// HMAC(secret, exporter ‖ id ‖ root key hash ‖ CSR).
Digest join_mac(const TokenSecret& secret, Bytes exporter, const TokenId& id, const Digest& root_key_hash,
                std::string_view csr);

struct JoinRequest {
    TokenId token{};
    std::string csr;
    Digest mac{};
    std::string hostname;
};
struct JoinReply {
    Error error;              // code ok: admitted
    std::string certificate;  // the leaf
    std::string issuer_certificate;
    std::string root_certificate;
};
std::vector<std::byte> encode(const JoinRequest& request);
std::vector<std::byte> encode(const JoinReply& reply);
Result<JoinRequest> decode_join_request(Bytes bytes);
Result<JoinReply> decode_join_reply(Bytes bytes);

// The tokens that an issuer has made. Requires: its owner saves text() after each change, and sends a
// certificate only when the use that admit() recorded is on disk [A5].
class TokenBook {
  public:
    static constexpr size_t tokens_max = 1024;
    static constexpr uint32_t uses_max = 10000;

    Result<Token> create(const Digest& root_key_hash, std::vector<std::string> addresses, WallSeconds now,
                         WallSeconds lifetime, uint32_t uses);
    // Checks token, MAC and expiry, and takes one use. The error names expiry and used-up tokens only after
    // the MAC was right: without the secret, an attacker learns only that it was refused.
    Result<void> admit(const JoinRequest& request, Bytes exporter, const Digest& root_key_hash,
                       WallSeconds now);
    Result<void> revoke(const std::string& id_hex);

    struct Entry {
        TokenId id{};
        TokenSecret secret;
        WallSeconds expires = 0;
        uint32_t uses_left = 0;
    };
    const std::vector<Entry>& entries() const { return entries_; }
    Secret text() const;  // for the state directory
    static Result<TokenBook> parse(std::string_view text);
    void drop_expired(WallSeconds now);

  private:
    Entry* find(const TokenId& id);
    std::vector<Entry> entries_;  // at most tokens_max; expired ones until drop_expired()
};

}  // namespace nexar::admission
