#include "admission/token.hpp"

#include <openssl/crypto.h>

#include <algorithm>
#include <charconv>

namespace nexar::admission {
namespace {

constexpr std::string_view token_prefix = "nexar1.";
constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

std::string base64url(Bytes in) {  // RFC 4648 section 5, without padding
    std::string out;
    out.reserve((in.size() + 2) / 3 * 4);  // a larger buffer later would leave a copy behind
    for (size_t i = 0; i < in.size(); i += 3) {
        uint32_t v = 0;
        const size_t n = std::min<size_t>(3, in.size() - i);
        for (size_t k = 0; k < 3; ++k) v = v << 8 | (k < n ? std::to_integer<uint32_t>(in[i + k]) : 0);
        for (size_t k = 0; k <= n; ++k) out += alphabet[v >> (18 - 6 * k) & 63];
    }
    return out;
}

bool un_base64url(std::string_view in, std::vector<std::byte>& out) {
    uint32_t v = 0;
    int bits = 0;
    out.reserve(in.size());
    for (const char c : in) {
        const size_t digit = alphabet.find(c);
        if (digit == std::string_view::npos) return false;
        v = v << 6 | static_cast<uint32_t>(digit);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out.push_back(static_cast<std::byte>(v >> bits & 255));
        }
    }
    return bits < 6 && (v & ((1u << bits) - 1)) == 0;  // exactly one text for each token
}

void put_text(Writer& w, std::string_view text) {
    w.put(static_cast<uint16_t>(text.size()));
    w.put_bytes(std::as_bytes(std::span(text)));
}
std::string get_text(Reader& r) {
    const Bytes b = r.take(r.get<uint16_t>());
    return {reinterpret_cast<const char*>(b.data()), b.size()};
}

bool same(std::span<const uint8_t> a, std::span<const uint8_t> b) {  // constant time
    return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool un_hex(std::string_view text, std::span<uint8_t> out) {
    if (text.size() != 2 * out.size()) return false;
    for (size_t i = 0; i < out.size(); ++i) {
        const auto r = std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, out[i], 16);
        if (r.ec != std::errc{} || r.ptr != text.data() + 2 * i + 2) return false;
    }
    return true;
}

// Up to the next space, which goes with it.
std::string_view take_word(std::string_view& line) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
    return word;
}

template <class T>
bool un_decimal(std::string_view text, T& out) {
    const auto r = std::from_chars(text.data(), text.data() + text.size(), out);
    return r.ec == std::errc{} && r.ptr == text.data() + text.size();
}

void append_hex(std::string& out, std::span<const uint8_t> bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    for (const uint8_t b : bytes) {
        out += digits[b >> 4];
        out += digits[b & 15];
    }
}

Result<Token> read_token(Bytes body) {
    Reader r(body);
    Token t;
    t.root_key_hash = r.get<Digest>();
    t.id = r.get<TokenId>();
    const Bytes secret = r.take(t.secret.size());
    std::ranges::copy(secret, std::as_writable_bytes(std::span(t.secret)).begin());
    t.expires = r.get<WallSeconds>();
    const size_t n = r.get<uint8_t>();
    if (n > token_addresses_max) return fail(Errc::bad_token, "the token is damaged: too many addresses");
    for (size_t i = 0; i < n; ++i) t.issuer_addresses.push_back(get_text(r));
    if (!r.finished())
        return fail(Errc::bad_token, "the token is damaged: cut short, or with bytes too many");
    return t;
}

constexpr uint8_t request_kind = 1, reply_kind = 2;

}  // namespace

std::string hex(std::span<const uint8_t> bytes) {
    std::string out;
    append_hex(out, bytes);
    return out;
}

Secret Token::text() const {
    std::vector<std::byte> body;
    body.reserve(token_text_max);
    Writer w(body);
    w.put(root_key_hash);
    w.put(id);
    w.put_bytes(std::as_bytes(std::span(secret)));
    w.put(expires);
    w.put(static_cast<uint8_t>(issuer_addresses.size()));
    for (const auto& a : issuer_addresses) put_text(w, a);
    std::string text = base64url(body);
    text.insert(0, token_prefix);
    wipe(body);
    return Secret::take(std::move(text));
}

Result<Token> Token::parse(std::string_view text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\r'))
        text.remove_suffix(1);
    if (!text.starts_with(token_prefix))
        return fail(Errc::bad_token,
                    "a token starts with '" + std::string(token_prefix) + "'; this text does not");
    std::vector<std::byte> body;
    if (text.size() > token_text_max || !un_base64url(text.substr(token_prefix.size()), body))
        return fail(Errc::bad_token, "the token is damaged: not base64url, or longer than " +
                                         std::to_string(token_text_max) + " characters");
    auto token = read_token(body);
    wipe(body);
    return token;
}

Digest join_mac(const TokenSecret& secret, Bytes exporter, const TokenId& id, const Digest& root_key_hash,
                std::string_view csr) {
    std::vector<std::byte> data;
    Writer w(data);
    w.put(static_cast<uint32_t>(exporter.size()));
    w.put_bytes(exporter);
    w.put(id);
    w.put(root_key_hash);
    w.put_bytes(std::as_bytes(std::span(csr)));
    return hmac_sha256(std::as_bytes(std::span(secret)), data);
}

std::vector<std::byte> encode(const JoinRequest& request) {
    std::vector<std::byte> out;
    Writer w(out);
    w.put(request_kind);
    w.put(request.token);
    w.put(request.mac);
    put_text(w, request.csr);
    put_text(w, request.hostname);
    return out;
}

Result<JoinRequest> decode_join_request(Bytes bytes) {
    Reader r(bytes);
    JoinRequest q;
    const uint8_t kind = r.get<uint8_t>();
    q.token = r.get<TokenId>();
    q.mac = r.get<Digest>();
    q.csr = get_text(r);
    q.hostname = get_text(r);
    if (kind != request_kind || !r.finished())
        return fail(Errc::protocol_error, "a join request that does not parse");
    if (q.csr.size() > csr_bytes_max || q.hostname.size() > 255)
        return fail(Errc::protocol_error, "a join request over its limits (CSR 4096 bytes, host name 255)");
    return q;
}

std::vector<std::byte> encode(const JoinReply& reply) {
    std::vector<std::byte> out;
    Writer w(out);
    w.put(reply_kind);
    w.put(static_cast<int32_t>(reply.error.code));
    put_text(w, reply.error.text);
    put_text(w, reply.certificate);
    put_text(w, reply.issuer_certificate);
    put_text(w, reply.root_certificate);
    return out;
}

Result<JoinReply> decode_join_reply(Bytes bytes) {
    Reader r(bytes);
    JoinReply a;
    const uint8_t kind = r.get<uint8_t>();
    a.error.code = static_cast<Errc>(r.get<int32_t>());
    a.error.text = get_text(r);
    a.certificate = get_text(r);
    a.issuer_certificate = get_text(r);
    a.root_certificate = get_text(r);
    if (kind != reply_kind || !r.finished())
        return fail(Errc::protocol_error, "a join reply that does not parse");
    return a;
}

Result<Token> TokenBook::create(const Digest& root_key_hash, std::vector<std::string> addresses,
                                WallSeconds now, WallSeconds lifetime, uint32_t uses) {
    if (lifetime < 1 || lifetime > 30 * 86400)
        return fail(Errc::invalid_argument,
                    "a token's lifetime of " + std::to_string(lifetime) + " s; allowed: 1 s to 30 days");
    if (uses < 1 || uses > uses_max)
        return fail(Errc::invalid_argument,
                    std::to_string(uses) + " uses; allowed: 1 to " + std::to_string(uses_max));
    if (addresses.empty() || addresses.size() > token_addresses_max)
        return fail(Errc::invalid_argument, "a token needs 1 to 16 issuer addresses");
    drop_expired(now);
    if (entries_.size() >= tokens_max)
        return fail(Errc::table_full, std::to_string(tokens_max) + " tokens are open; revoke some first");
    Entry e;
    random_bytes(e.id);
    random_bytes(e.secret);
    e.expires = now + lifetime;
    e.uses_left = uses;
    entries_.push_back(e);
    return Token{root_key_hash, e.id, e.secret, e.expires, std::move(addresses)};
}

Result<void> TokenBook::admit(const JoinRequest& request, Bytes exporter, const Digest& root_key_hash,
                              WallSeconds now) {
    Entry* e = find(request.token);
    const TokenSecret none;
    const Digest mac = join_mac(e ? e->secret : none, exporter, request.token, root_key_hash, request.csr);
    if (!same(mac, request.mac) || !e)
        return fail(Errc::bad_token, "the token is unknown here, or its proof is wrong");
    if (now > e->expires) return fail(Errc::bad_token, "the token has expired");
    if (e->uses_left == 0) return fail(Errc::bad_token, "the token is used up");
    --e->uses_left;
    return {};
}

Result<void> TokenBook::revoke(const std::string& id_hex) {
    const auto n = std::erase_if(entries_, [&](const Entry& e) { return hex(e.id) == id_hex; });
    if (n == 0) return fail(Errc::not_found, "no token with the id '" + id_hex + "'");
    return {};
}

TokenBook::Entry* TokenBook::find(const TokenId& id) {
    for (Entry& e : entries_)
        if (same(e.id, id)) return &e;
    return nullptr;
}

void TokenBook::drop_expired(WallSeconds now) {
    std::erase_if(entries_, [&](const Entry& e) { return now > e.expires; });
}

Secret TokenBook::text() const {
    constexpr size_t line_max = 2 * sizeof(TokenId) + 2 * sizeof(TokenSecret) + 20 + 10 + 4;
    std::string out;
    out.reserve(entries_.size() * line_max);  // a larger buffer later would leave a copy behind
    for (const Entry& e : entries_) {
        append_hex(out, e.id);
        out += ' ';
        append_hex(out, e.secret);
        out += ' ' + std::to_string(e.expires) + ' ' + std::to_string(e.uses_left) + '\n';
    }
    return Secret::take(std::move(out));
}

Result<TokenBook> TokenBook::parse(std::string_view text) {
    TokenBook book;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        Entry e;
        const bool good = un_hex(take_word(line), e.id) && un_hex(take_word(line), e.secret) &&
                          un_decimal(take_word(line), e.expires) &&
                          un_decimal(take_word(line), e.uses_left) && line.empty() &&
                          book.entries_.size() < tokens_max;
        if (!good) return fail(Errc::io, "the file of tokens in the state directory is damaged");
        book.entries_.push_back(e);
    }
    return book;
}

}  // namespace nexar::admission
