// Tenants: whom sessions belong to, and how much of the daemon each may use (docs/protocol/tenants.md). What
// a tenant has is counted by Charges, which end with what they count.
//
// Thread: the control loop's; but a Charge may end on any thread, because it ends with a region.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/line_limit.hpp"
#include "core/recycled.hpp"
#include "core/result.hpp"

namespace nexar {

enum class Resource : uint8_t {
    sessions,       // connections to a session socket, also those whose handshake is not over
    regions,        // mapped: also freed ones that an operation still uses
    region_bytes,   // of these
    groups,         // one for each rank: from its open until the group has gone
    scratch_bytes,  // memory of the daemon that segments of collectives take while they run
    requests,       // messages, and local ranks of collectives, that the engine keeps state of
};
constexpr size_t resource_count = 6;
const char* name_of(Resource resource);
const char* key_of(Resource resource);  // of its total, in the configuration

struct TenantName {
    std::string label;  // of the session socket; the default socket has ""
    uint32_t uid = 0;   // attested by the kernel
    auto operator<=>(const TenantName&) const = default;
    std::string text() const { return "user " + std::to_string(uid) + (label.empty() ? "" : " of " + label); }
    uint64_t mark() const;  // for comparisons with tenants of other nodes: equal names have equal ones; not 0
};

struct TenantLimits {
    // By Resource.
    std::array<uint64_t, resource_count> totals{2000,  32768, uint64_t{1} << 46, 65536, uint64_t{1} << 30,
                                                524288};
    uint64_t share_percent = 30;  // of each total, for one tenant

    uint64_t& total(Resource resource) { return totals[static_cast<size_t>(resource)]; }
    uint64_t total(Resource resource) const { return totals[static_cast<size_t>(resource)]; }
    uint64_t share(Resource resource) const;
    // The last part of a total is for users who have no more than a start [N19].
    uint64_t kept(Resource resource) const;
    uint64_t start(Resource resource) const;
    uint64_t log_lines_per_second() const;  // of one tenant: the same share of what an event may have
};

// How much of each resource is in use, by Resource.
using Usage = std::array<std::atomic<uint64_t>, resource_count>;

// What all tenants share; outlives them.
struct TenantTotals {
    TenantLimits limits;
    Usage used{};
};

class Tenant;
using TenantRef = std::shared_ptr<Tenant>;

// A part of its tenant's share, in use until this ends.
class Charge {
  public:
    Charge(TenantRef tenant, Resource resource, uint64_t amount);
    ~Charge();
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;

  private:
    const TenantRef tenant_;
    const Resource resource_;
    const uint64_t amount_;
};
using ChargeRef = std::shared_ptr<const Charge>;  // what is counted may have several holders

// As Charge, for what has one holder and comes and goes with each operation: it needs no allocation.
// Requires: the tenant outlives it.
class Count {
  public:
    Count() = default;  // of nothing
    Count(Tenant& tenant, Resource resource, uint64_t amount);
    Count(Count&& other) noexcept { *this = std::move(other); }
    Count& operator=(Count&& other) noexcept;
    ~Count();

  private:
    Tenant* tenant_ = nullptr;  // null: of nothing
    Resource resource_{};
    uint64_t amount_ = 0;
};

class Tenant : public std::enable_shared_from_this<Tenant> {
  public:
    Tenant(TenantName name, uint64_t number, std::shared_ptr<TenantTotals> totals)
        : name(std::move(name)),
          number(number),
          lines(totals->limits.log_lines_per_second()),
          totals_(std::move(totals)) {}

    const TenantName name;
    const uint64_t number;   // of one daemon's tenants; never reused
    LineLimit lines;         // of the log, that its actions cause [N11]; the control loop's
    size_t collectives = 0;  // in flight, of groups in which it has had a rank here; the control loop's

    // An error: this tenant's share or the total is in use; its text names the limit, the use and the key.
    Result<ChargeRef> charge(Resource resource, uint64_t amount = 1);
    // As charge(), but refused only where a limit is reached already: `amount` may go beyond it.
    Result<ChargeRef> charge_beyond(Resource resource, uint64_t amount);
    Result<Count> count(Resource resource, uint64_t amount = 1);  // as charge()
    // This tenant is below half of its share, and all are below half of the total.
    bool is_below_half(Resource resource) const;
    uint64_t used(Resource resource) const { return used_[static_cast<size_t>(resource)].load(); }
    const TenantLimits& limits() const { return totals_->limits; }

  private:
    friend class Charge;
    friend class Count;
    // An error: less than `needed` of the `amount` that is asked for is left of a limit, where `kept` of the
    // total counts as used.
    Result<void> check_room(Resource resource, uint64_t amount, uint64_t needed, uint64_t kept) const;
    uint64_t kept_from_it(Resource resource, uint64_t amount) const;
    void add(Resource resource, uint64_t amount);
    void remove(Resource resource, uint64_t amount);

    Usage used_{};
    std::shared_ptr<TenantTotals> totals_;
};

// The daemon's tenants. A row stays while something refers to it, and longer as long as there are few: what a
// tenant has logged in this second outlives its last session.
class Tenants {
  public:
    static constexpr size_t rows_kept_max = 1024;  // more only while something refers to them

    explicit Tenants(const TenantLimits& limits = {});
    TenantRef of(const std::string& label, uint32_t uid);
    TenantRef find(const TenantName& name) const;  // null: it has nothing
    std::vector<TenantRef> all() const;            // by name
    const TenantTotals& totals() const { return *totals_; }

  private:
    void forget_oldest_idle();

    std::shared_ptr<TenantTotals> totals_;
    std::map<TenantName, TenantRef> rows_;
    uint64_t last_ = 0;  // the newest number
};

}  // namespace nexar
