// See group_key.hpp.
#include "node/group_key.hpp"

#include "admission/certificates.hpp"

namespace nexar::node {

wire::GroupKey group_key(const engine::OpenRequest& request, const NodeId& self) {
    std::vector<std::byte> data;
    Writer w(data);
    const auto put = [&](std::string_view text) { w.put_bytes(std::as_bytes(std::span(text))); };
    if (!request.job_secret.empty()) {
        put("nexar-group-v2");
        w.put(static_cast<uint32_t>(request.job_secret.size()));
        put(request.job_secret);
    } else {
        put("nexar-local-v2");
        w.put(self.bytes);
        w.put(request.tenant->name.uid);
        w.put(static_cast<uint32_t>(request.tenant->name.label.size()));
        put(request.tenant->name.label);
    }
    w.put(request.instance);
    put(request.name);
    return admission::sha256(data);
}

}  // namespace nexar::node
