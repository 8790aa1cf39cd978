// PrivateCluster: daemons for this process alone, as the ordinary user that it is: in a temporary folder, on
// addresses of the loopback device. They end with it, also when this process is killed; then their folder
// stays. Linux only: prctl. Thread: one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.hpp"

namespace nexarctl {

class PrivateCluster {
  public:
    using Withdrawn = std::function<bool()>;  // whether nobody wants it any more

    // Returns when all nodes are connected. `nexard`: the program's path. An error names the node, and has
    // the end of its log.
    static nexar::Result<PrivateCluster> start(uint32_t nodes, const std::string& nexard,
                                               const Withdrawn& withdrawn);
    ~PrivateCluster();
    PrivateCluster(PrivateCluster&& other) noexcept;
    PrivateCluster& operator=(PrivateCluster&&) = delete;

    const std::string& folder() const { return folder_; }
    std::string session_socket(uint32_t node) const { return file(node, "socket"); }
    std::string admin_socket(uint32_t node) const { return file(node, "admin"); }

  private:
    enum class Look { no, yes };

    explicit PrivateCluster(std::string folder) : folder_(std::move(folder)) {}
    std::string file(size_t node, const char* name) const;
    std::string end_of_log(size_t node) const;
    nexar::Result<void> form(uint32_t nodes, const std::string& nexard, const Withdrawn& withdrawn);
    nexar::Result<void> start_node(const std::string& nexard, const std::string& address,
                                   const std::string& setting);
    nexar::Result<std::string> make_token(uint32_t uses) const;
    // Looks again and again, until `look` says yes or has an error.
    nexar::Result<void> until(const Withdrawn& withdrawn, const std::string& otherwise,
                              const std::function<nexar::Result<Look>()>& look) const;
    nexar::Result<Look> answers(size_t node) const;
    nexar::Result<Look> all_connected() const;
    void stop();

    std::string folder_;  // empty: moved from
    std::vector<pid_t> daemons_;
};

// --nexard, $NEXAR_NEXARD, beside this program, or on PATH. An error names what was given; not_found: nothing
// was, and it is nowhere.
nexar::Result<std::string> find_nexard(const std::string& given);

}  // namespace nexarctl
