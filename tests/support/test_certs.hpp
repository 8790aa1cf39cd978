// Certificates for tests, made in this process: P-256 keys, a root and leaves signed by it. Never for
// anything else.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/bytes.hpp"
#include "core/ids.hpp"
#include "core/result.hpp"
#include "core/secret.hpp"

namespace nexar::test {

struct Leaf {
    std::string certificate_pem;
    Secret private_key_pem;
    NodeId id;  // SHA-256 of its SubjectPublicKeyInfo
};

class CertificateAuthority {
  public:
    explicit CertificateAuthority(const std::string& name);
    ~CertificateAuthority();

    const std::string& certificate_pem() const { return pem_; }
    // Valid from now + `from_s` to now + `to_s` seconds.
    Leaf issue(const std::string& name, long from_s = -600, long to_s = 3600) const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
    std::string pem_;
};

// What admission does in the daemon: a node's id from its certificate.
Result<NodeId> node_id_of(const std::vector<std::byte>& certificate_der);

}  // namespace nexar::test
