// Who finds whom: equal keys for one job, different ones for everything else.
#include "node/group_key.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>

using namespace nexar;

namespace {

engine::OpenRequest request(const std::string& secret, const std::string& name, uint32_t uid = 1000,
                            const std::string& label = {}) {
    static Tenants tenants;
    engine::OpenRequest r;
    r.job_secret = Secret(secret);
    r.name = name;
    r.tenant = tenants.of(label, uid);
    r.size = 4;
    return r;
}
NodeId node_number(uint8_t n) {
    NodeId id;
    id.bytes[31] = n;
    return id;
}
const NodeId here = node_number(1), there = node_number(2);

wire::GroupKey key_of(const engine::OpenRequest& r, const NodeId& node) {
    return node::credentials(r, node).key;
}

}  // namespace

TEST_CASE("with a secret, secret and name alone decide, on every node and for every user", "[node]") {
    const auto key = key_of(request("secret-of-the-job", "train"), here);
    CHECK(key == key_of(request("secret-of-the-job", "train"), there));
    CHECK(key == key_of(request("secret-of-the-job", "train", 5), here));
    CHECK(key != key_of(request("secret-of-the-joc", "train"), here));
    CHECK(key != key_of(request("secret-of-the-job", "test"), here));
    auto again = request("secret-of-the-job", "train");
    again.instance = 1;  // the launcher's next attempt is another job
    CHECK(key != key_of(again, here));
}

TEST_CASE("where the secret ends and the name begins is part of the key", "[node]") {
    const auto key = key_of(request("secretA", "Btrain"), here);
    CHECK(key != key_of(request("secret", "ABtrain"), here));
    CHECK(key != key_of(request("secretAB", "train"), here));
    CHECK(key != key_of(request("secretABtrain", ""), here));
    CHECK(key_of(request(std::string("a\0b", 3), "c"), here) !=
          key_of(request("a", std::string("\0bc", 3)), here));
}

TEST_CASE("without a secret only sessions of one tenant on one node meet", "[node]") {
    const auto key = key_of(request("", "train"), here);
    CHECK(key == key_of(request("", "train"), here));
    CHECK(key != key_of(request("", "train"), there));
    CHECK(key != key_of(request("", "train", 1001), here));
    CHECK(key != key_of(request("", "train", 1000, "pod"), here));
    CHECK(key_of(request("", "b", 1000, "a"), here) != key_of(request("", "", 1000, "ab"), here));
    CHECK(key != key_of(request("", "tes"), here));
}

TEST_CASE("no secret can be chosen that gives the key of a group without one", "[node]") {
    // The bytes that follow the label of the local form, as a secret and as a name.
    std::string local(reinterpret_cast<const char*>(here.bytes.data()), here.bytes.size());
    const uint32_t uid = 1000;
    local.append(reinterpret_cast<const char*>(&uid), sizeof uid);
    local.append(4, '\0');  // no label
    const auto key = key_of(request("", "train"), here);
    CHECK(key != key_of(request(local, "train"), here));
    CHECK(key != key_of(request("nexar-local-v2" + local, "train"), here));
    CHECK(key != key_of(request("x", local + "train"), here));
}

TEST_CASE("what a proof is made from follows from the secret and the key, and is neither", "[node][R19]") {
    const auto a = node::credentials(request("secret-of-the-job", "train"), here);
    CHECK(a.proof == node::credentials(request("secret-of-the-job", "train", 5), there).proof);
    CHECK(a.proof != a.key);
    auto again = request("secret-of-the-job", "train");
    again.instance = 1;
    for (const auto& other :
         {request("secret-of-the-joc", "train"), request("secret-of-the-job", "test"), again})
        CHECK(a.proof != node::credentials(other, here).proof);
    CHECK_FALSE(node::credentials(request("", "train"), here).proof);
}

TEST_CASE("nonces are not repeated", "[node][R19]") {
    const auto port = node::proof_port();
    std::set<wire::Nonce> seen;
    for (int i = 0; i < 1000; ++i) CHECK(seen.insert(port.nonce()).second);
}
