// See shut_out.hpp.
#include "loop/shut_out.hpp"

#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace nexar::loop {

namespace {

constexpr const char* attribute = "system.posix_acl_access";

// Source: include/uapi/linux/posix_acl_xattr.h; little endian, entries by tag, and those of users by number.
class List {
  public:
    List() { put(posix_acl_xattr_header{POSIX_ACL_XATTR_VERSION}); }
    void add(uint16_t tag, unsigned permissions, uint32_t id = UINT32_MAX) {
        put(posix_acl_xattr_entry{tag, static_cast<uint16_t>(permissions), id});
    }
    const std::vector<char>& bytes() const { return bytes_; }

  private:
    template <class T>
    void put(const T& value) {
        const size_t at = bytes_.size();
        bytes_.resize(at + sizeof value);
        std::memcpy(bytes_.data() + at, &value, sizeof value);
    }
    std::vector<char> bytes_;
};

}  // namespace

Result<void> ShutOut::add(uint32_t uid) {
    if (users_.contains(uid)) return {};
    if (users_.size() >= users_max) return fail(Errc::table_full, "too many users are shut out");
    auto wanted = users_;
    wanted.insert(uid);
    NEXAR_TRY_VOID(apply(wanted));
    users_ = std::move(wanted);
    return {};
}

Result<void> ShutOut::remove(uint32_t uid) {
    auto wanted = users_;
    if (wanted.erase(uid) == 0) return {};
    NEXAR_TRY_VOID(apply(wanted));
    users_ = std::move(wanted);
    return {};
}

// The mask is as the group's permissions were, which the mode shows from now on; chmod() puts both back.
Result<void> ShutOut::apply(const std::set<uint32_t>& users) const {
    List list;
    list.add(ACL_USER_OBJ, mode_ >> 6 & 7);
    for (const uint32_t uid : users) list.add(ACL_USER, 0, uid);
    list.add(ACL_GROUP_OBJ, mode_ >> 3 & 7);
    if (!users.empty()) list.add(ACL_MASK, mode_ >> 3 & 7);
    list.add(ACL_OTHER, mode_ & 7);
    if (::setxattr(path_.c_str(), attribute, list.bytes().data(), list.bytes().size(), 0) == 0) return {};
    return fail(Errc::io, "the access control list of " + path_ + " cannot be set: " + std::strerror(errno));
}

}  // namespace nexar::loop
