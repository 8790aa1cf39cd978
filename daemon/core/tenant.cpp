#include "core/tenant.hpp"

#include <algorithm>

#include "core/event_limit.hpp"

namespace nexar {

namespace {

struct Row {
    const char *name, *key;
    Errc code;  // when it is used up
};
constexpr std::array<Row, resource_count> rows{{
    {"sessions", "sessions_max", Errc::table_full},
    {"regions", "regions_max", Errc::table_full},
    {"region_bytes", "region_bytes_max", Errc::no_memory},
    {"groups", "groups_max", Errc::table_full},
    {"scratch_bytes", "scratch_bytes_max", Errc::no_memory},
    {"requests", "requests_max", Errc::table_full},
}};

const Row& row_of(Resource resource) {
    return rows[static_cast<size_t>(resource)];
}

}  // namespace

// FNV-1a, 64 bits.
uint64_t TenantName::mark() const {
    uint64_t out = 0xcbf29ce484222325;
    for (const char c : std::to_string(uid) + " " + label)
        out = (out ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return out | 1;
}

const char* name_of(Resource resource) {
    return row_of(resource).name;
}

const char* key_of(Resource resource) {
    return row_of(resource).key;
}

// At least 1, so that no share is empty; without an overflow for the largest totals.
uint64_t TenantLimits::share(Resource resource) const {
    const uint64_t all = total(resource);
    return std::max<uint64_t>(1, all / 100 * share_percent + all % 100 * share_percent / 100);
}

// Never so much that a user who is alone does not get his share.
uint64_t TenantLimits::kept(Resource resource) const {
    constexpr uint64_t part = 8;
    return std::min(total(resource) / part, total(resource) - std::min(share(resource), total(resource)));
}

uint64_t TenantLimits::start(Resource resource) const {
    constexpr uint64_t part = 256;
    return std::max<uint64_t>(1, total(resource) / part);
}

uint64_t TenantLimits::log_lines_per_second() const {
    return std::max<uint64_t>(1, EventLimit::lines_per_second * share_percent / 100);
}

Charge::Charge(TenantRef tenant, Resource resource, uint64_t amount)
    : tenant_(std::move(tenant)), resource_(resource), amount_(amount) {
    tenant_->add(resource_, amount_);
}

Charge::~Charge() {
    tenant_->remove(resource_, amount_);
}

Count::Count(Tenant& tenant, Resource resource, uint64_t amount)
    : tenant_(&tenant), resource_(resource), amount_(amount) {
    tenant.add(resource, amount);
}

Count& Count::operator=(Count&& other) noexcept {
    std::swap(tenant_, other.tenant_);
    std::swap(resource_, other.resource_);
    std::swap(amount_, other.amount_);
    return *this;
}

Count::~Count() {
    if (tenant_ != nullptr) tenant_->remove(resource_, amount_);
}

void Tenant::add(Resource resource, uint64_t amount) {
    const auto at = static_cast<size_t>(resource);
    used_[at].fetch_add(amount, std::memory_order_relaxed);
    totals_->used[at].fetch_add(amount, std::memory_order_relaxed);
}

void Tenant::remove(Resource resource, uint64_t amount) {
    const auto at = static_cast<size_t>(resource);
    used_[at].fetch_sub(amount, std::memory_order_relaxed);
    totals_->used[at].fetch_sub(amount, std::memory_order_relaxed);
}

Result<void> Tenant::check_room(Resource resource, uint64_t amount, uint64_t needed, uint64_t kept) const {
    const Row& row = row_of(resource);
    const auto refuse = [&](const std::string& who, uint64_t has, uint64_t limit, const std::string& part) {
        return fail(row.code, who + " has " + std::to_string(has) + " of at most " + std::to_string(limit) +
                                  " " + row.name +
                                  (amount == 1 ? "" : " and asks for " + std::to_string(amount)) + part +
                                  " (" + row.key + " = " + std::to_string(limits().total(resource)) +
                                  ", of which one user may have " + std::to_string(limits().share_percent) +
                                  " %: user_share_percent)");
    };
    const uint64_t own = used(resource), share = limits().share(resource);
    if (own > share || needed > share - own) return refuse(name.text(), own, share, "");
    const uint64_t all = totals_->used[static_cast<size_t>(resource)].load(),
                   total = limits().total(resource);
    if (all > total || needed > total - all) return refuse("this daemon", all, total, "");
    if (kept > total - all || needed > total - all - kept)
        return refuse("this daemon", all, total,
                      "; the last " + std::to_string(kept) + " are for users with at most " +
                          std::to_string(limits().start(resource)));
    return {};
}

// [N19]
uint64_t Tenant::kept_from_it(Resource resource, uint64_t amount) const {
    const uint64_t start = limits().start(resource), own = used(resource);
    return own <= start && amount <= start - own ? 0 : limits().kept(resource);
}

Result<ChargeRef> Tenant::charge(Resource resource, uint64_t amount) {
    NEXAR_TRY_VOID(check_room(resource, amount, amount, kept_from_it(resource, amount)));
    return std::allocate_shared<const Charge>(Recycled<Charge>(), shared_from_this(), resource, amount);
}

Result<ChargeRef> Tenant::charge_beyond(Resource resource, uint64_t amount) {
    NEXAR_TRY_VOID(check_room(resource, amount, 1, 0));
    return std::allocate_shared<const Charge>(Recycled<Charge>(), shared_from_this(), resource, amount);
}

Result<Count> Tenant::count(Resource resource, uint64_t amount) {
    NEXAR_TRY_VOID(check_room(resource, amount, amount, kept_from_it(resource, amount)));
    return Count(*this, resource, amount);
}

bool Tenant::is_below_half(Resource resource) const {
    const uint64_t all = totals_->used[static_cast<size_t>(resource)].load(std::memory_order_relaxed);
    return all == 0 || (used(resource) < limits().share(resource) / 2 && all < limits().total(resource) / 2);
}

Tenants::Tenants(const TenantLimits& limits) : totals_(std::make_shared<TenantTotals>()) {
    totals_->limits = limits;
}

TenantRef Tenants::of(const std::string& label, uint32_t uid) {
    const TenantName name{label, uid};
    if (const auto known = rows_.find(name); known != rows_.end()) return known->second;
    if (rows_.size() >= rows_kept_max) forget_oldest_idle();
    return rows_.emplace(name, std::make_shared<Tenant>(name, ++last_, totals_)).first->second;
}

void Tenants::forget_oldest_idle() {
    auto oldest = rows_.end();
    for (auto row = rows_.begin(); row != rows_.end(); ++row)
        if (row->second.use_count() == 1 &&
            (oldest == rows_.end() || row->second->number < oldest->second->number))
            oldest = row;
    if (oldest != rows_.end()) rows_.erase(oldest);
}

TenantRef Tenants::find(const TenantName& name) const {
    const auto row = rows_.find(name);
    return row == rows_.end() ? nullptr : row->second;
}

std::vector<TenantRef> Tenants::all() const {
    std::vector<TenantRef> out;
    for (const auto& [name, tenant] : rows_) out.push_back(tenant);
    return out;
}

}  // namespace nexar
