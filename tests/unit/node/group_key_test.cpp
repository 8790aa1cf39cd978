// Who finds whom: equal keys for one job, different ones for everything else.
#include "node/group_key.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace nexar;

namespace {

engine::OpenRequest request(const std::string& secret, const std::string& name, uint32_t uid = 1000,
                            const std::string& label = {}) {
    static Tenants tenants;
    engine::OpenRequest r;
    r.job_secret = secret;
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

}  // namespace

TEST_CASE("with a secret, secret and name alone decide, on every node and for every user", "[node]") {
    const auto key = node::group_key(request("secret-of-the-job", "train"), here);
    CHECK(key == node::group_key(request("secret-of-the-job", "train"), there));
    CHECK(key == node::group_key(request("secret-of-the-job", "train", 5), here));
    CHECK(key != node::group_key(request("secret-of-the-joc", "train"), here));
    CHECK(key != node::group_key(request("secret-of-the-job", "test"), here));
    auto again = request("secret-of-the-job", "train");
    again.instance = 1;  // the launcher's next attempt is another job
    CHECK(key != node::group_key(again, here));
}

TEST_CASE("where the secret ends and the name begins is part of the key", "[node]") {
    const auto key = node::group_key(request("secretA", "Btrain"), here);
    CHECK(key != node::group_key(request("secret", "ABtrain"), here));
    CHECK(key != node::group_key(request("secretAB", "train"), here));
    CHECK(key != node::group_key(request("secretABtrain", ""), here));
    CHECK(node::group_key(request(std::string("a\0b", 3), "c"), here) !=
          node::group_key(request("a", std::string("\0bc", 3)), here));
}

TEST_CASE("without a secret only sessions of one tenant on one node meet", "[node]") {
    const auto key = node::group_key(request("", "train"), here);
    CHECK(key == node::group_key(request("", "train"), here));
    CHECK(key != node::group_key(request("", "train"), there));
    CHECK(key != node::group_key(request("", "train", 1001), here));
    CHECK(key != node::group_key(request("", "train", 1000, "pod"), here));
    CHECK(node::group_key(request("", "b", 1000, "a"), here) !=
          node::group_key(request("", "", 1000, "ab"), here));
    CHECK(key != node::group_key(request("", "tes"), here));
}

TEST_CASE("no secret can be chosen that gives the key of a group without one", "[node]") {
    // The bytes that follow the label of the local form, as a secret and as a name.
    std::string local(reinterpret_cast<const char*>(here.bytes.data()), here.bytes.size());
    const uint32_t uid = 1000;
    local.append(reinterpret_cast<const char*>(&uid), sizeof uid);
    local.append(4, '\0');  // no label
    const auto key = node::group_key(request("", "train"), here);
    CHECK(key != node::group_key(request(local, "train"), here));
    CHECK(key != node::group_key(request("nexar-local-v2" + local, "train"), here));
    CHECK(key != node::group_key(request("x", local + "train"), here));
}
