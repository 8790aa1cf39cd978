// See no_descriptor.hpp.
#include "loop/no_descriptor.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace nexar::loop {

namespace {

std::string remedy_of(int error) {
    rlimit limit{};
    if (error == EMFILE && ::getrlimit(RLIMIT_NOFILE, &limit) == 0)
        return "; the limit on descriptors is " + std::to_string(limit.rlim_cur) +
               ": raise it (LimitNOFILE of the unit, ulimit -n)";
    if (error == ENFILE) return "; all of the host's are taken: raise fs.file-max";
    if (error == ENOSPC) return "; raise fs.epoll.max_user_watches";
    return "";
}

}  // namespace

std::unexpected<Error> fail_without_descriptor(const std::string& what) {
    const int error = errno;
    return fail(Errc::io, "cannot make " + what + ": " + std::strerror(error) + remedy_of(error));
}

}  // namespace nexar::loop
