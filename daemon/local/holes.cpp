// See holes.hpp.
#include "local/holes.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace nexar::local {

namespace {

std::unexpected<Error> refused(const char* what) {
    const int number = errno;
    return fail(Error{.code = number == ENOMEM ? Errc::no_memory : Errc::unsupported,
                      .text = std::string(what) + std::strerror(number),
                      .system_errno = number});
}

}  // namespace

Result<Holes> Holes::open() {
    // USER_MODE_ONLY: the kernel's own accesses are not handled, so no privilege is needed.
    loop::Fd fd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)));
    if (!fd) return refused("userfaultfd is not allowed: ");
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MISSING_HUGETLBFS;
    if (::ioctl(fd.get(), UFFDIO_API, &api) != 0)
        return refused("userfaultfd has no signals for shared memory: ");
    return Holes(std::move(fd));
}

Result<void> Holes::refuse(MutableBytes mapping) const {
    uffdio_register memory{};
    memory.range = {reinterpret_cast<uintptr_t>(mapping.data()), mapping.size()};
    memory.mode = UFFDIO_REGISTER_MODE_MISSING;
    if (::ioctl(fd_.get(), UFFDIO_REGISTER, &memory) != 0)
        return refused("the memory cannot be guarded by userfaultfd: ");
    return {};
}

}  // namespace nexar::local
