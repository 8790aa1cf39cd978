// OpScratch: the scratch memory of one collective on this node: what its segments are charged, and which may
// begin (docs/protocol/tenants.md [N8], [N9]). Dry.
//
// The oldest collective of its group has a charge for one segment in advance, its permit, that its lowest
// segment uses which is not over. So one that has begun goes on, one segment at a time if need be.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "engine/scratch_share.hpp"

namespace nexar::engine {

class OpScratch {
  public:
    explicit OpScratch(ScratchShare& share) : share_(&share) {}
    ~OpScratch() { clear(); }
    OpScratch(const OpScratch&) = delete;
    OpScratch& operator=(const OpScratch&) = delete;

    struct Shape {
        uint32_t segments = 0, lanes = 0;  // every lanes-th segment is of the same lane
        uint64_t segment_bytes_max = 0;
    };
    // `tenant`: null in tests: nothing is charged. An error as of set_oldest().
    Result<void> start(TenantRef tenant, const Shape& shape);
    // No older collective of the group runs here. An error: there is no room for its permit.
    Result<void> set_oldest();

    // False: a Waiter(share, tenant, this, segment) has to end before begin().
    bool may_begin(uint32_t segment, uint64_t bytes) const;
    void begin(uint32_t segment, uint64_t bytes);
    void over(uint32_t segment);  // nothing touches its memory any more
    void fail(const Error& error);
    void end();    // no segment begins any more
    void clear();  // and all are over

    ScratchShare& share() { return *share_; }
    const TenantRef& tenant() const { return tenant_; }

  private:
    struct Running {
        uint64_t bytes;
        ChargeRef charge;  // null: uncounted
    };

    bool counts(uint64_t bytes) const { return tenant_ && bytes > ScratchShare::uncounted_max; }
    uint32_t lowest_to_begin() const;
    uint32_t lowest_open() const;
    bool is_permitted(uint32_t segment) const;
    void pass_permit_on();
    void drop_permit();

    ScratchShare* share_;
    TenantRef tenant_;
    Shape shape_;
    bool is_oldest_ = false;
    Vector<uint32_t> next_;  // by lane: its first segment that has not begun
    std::map<uint32_t, Running, std::less<>, Recycled<std::pair<const uint32_t, Running>>>
        running_;  // by segment: begun and not over
    ChargeRef permit_;
    std::optional<uint32_t> permitted_;  // the running segment whose charge the permit is
};

}  // namespace nexar::engine
