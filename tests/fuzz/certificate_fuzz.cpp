// Certificate chains of peers that connect, and the requests of joiners. Bytes at random never get far,
// so the input is what to do to a good chain, or to a good request: its first byte chooses, then pieces of
// five bytes say what, to which certificate, where, and with which byte. Or it is the certificate itself.
// Whatever is accepted carries the key that was signed: nobody becomes another node by changing bytes.
#include <cstdlib>

#include "admission/certificates.hpp"
#include "core/bytes.hpp"
#include "core/key_form.hpp"

namespace {

using namespace nexar;
using namespace nexar::admission;

constexpr WallSeconds now = 1'800'000'000;

void must(bool what) {
    if (!what) std::abort();
}

struct World {
    Secret root_key = make_key().value(), issuer_key = make_key().value(), node_key = make_key().value();
    std::string root = make_root(root_key, "fuzz", now).value();
    std::string issuer = make_issuer(root_key, root, issuer_key, now).value();
    std::string csr = make_csr(node_key).value();
    std::string leaf = sign_leaf(issuer_key, issuer, csr, now).value();
    Digest root_hash = key_hash_of_certificate(root).value();
    NodeId node = node_id_of_key(node_key).value(), issuer_node = node_id_of_key(issuer_key).value(),
           root_node = node_id_of_key(root_key).value();
    DerChain member{der_of_pem(leaf).value(), der_of_pem(issuer).value(), der_of_pem(root).value()};
    DerChain door{der_of_pem(issuer).value(), der_of_pem(root).value()};

    World() {
        must(verify_member(member, root, now) == node);
        must(verify_issuer(door, root_hash, now) == issuer_node);
    }
};

template <class Text>
void change(Text& text, size_t at, uint8_t with) {
    using Unit = typename Text::value_type;
    if (!text.empty()) text[at % text.size()] ^= static_cast<Unit>(with);
}

DerChain changed(DerChain chain, Reader& in) {
    while (in.left() >= 5) {
        const auto what = in.get<uint8_t>(), which = in.get<uint8_t>();
        const auto at = in.get<uint16_t>();
        const auto with = in.get<uint8_t>();
        if (chain.empty()) break;
        auto& one = chain[which % chain.size()];
        switch (what % 6) {
            case 0:
            case 1:
                change(one, at, with);
                break;
            case 2:
                one.resize(at % (one.size() + 3));
                break;
            case 3:
                std::swap(one, chain[with % chain.size()]);
                break;
            case 4:
                chain.push_back(one);
                break;
            default:
                chain.erase(chain.begin() + which % static_cast<ptrdiff_t>(chain.size()));
        }
    }
    return chain;
}

void read_pem(const std::string& text) {
    (void)node_id_of_certificate(text), (void)key_hash_of_certificate(text),
        (void)expiry_of_certificate(text);
    (void)common_name_of_certificate(text), (void)der_of_pem(text), (void)node_id_of_key(Secret(text));
}

void try_csr(const World& w, const std::string& csr, bool only_ours) {
    const auto id = node_id_of_csr(csr);
    const auto leaf = sign_leaf(w.issuer_key, w.issuer, csr, now);
    must(id.has_value() == leaf.has_value());
    if (!leaf) return;
    must(node_id_of_certificate(*leaf) == *id);
    must(!only_ours || *id == w.node);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const World& world = *new World;
    Reader in(std::as_bytes(std::span(data, size)));
    if (size == 0) return 0;
    const auto kind = in.get<uint8_t>() % 4;
    const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
    if (kind == 0) {
        const auto chain = changed(world.member, in);
        const auto id = verify_member(chain, world.root, now);
        must(!id || *id == world.node);
        for (const auto& one : chain) must(!id || check_certificate_key(one));
    } else if (kind == 1) {
        const auto id = verify_issuer(changed(world.door, in), world.root_hash, now);
        // Who holds the root's key could sign itself an issuer's certificate.
        must(!id || *id == world.issuer_node || *id == world.root_node);
    } else if (kind == 2) {
        std::string csr = world.csr;
        while (in.left() >= 3) {
            const auto at = in.get<uint16_t>();
            change(csr, at, in.get<uint8_t>());
        }
        try_csr(world, csr, true);
    } else {
        read_pem(rest);
        try_csr(world, rest, false);
        const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
        must(!verify_member({{bytes.begin(), bytes.end()}}, world.root, now));
        (void)check_certificate_message(bytes), (void)check_request_key(bytes);
    }
    return 0;
}
