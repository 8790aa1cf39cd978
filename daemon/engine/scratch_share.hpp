// ScratchShare: which segments of collectives may begin, by the scratch memory that their tenants have taken
// (docs/protocol/tenants.md [N8]). Those that may not wait here: each tenant's by priority [K24], and in
// order. Dry.
//
// Thread: the control loop's.
#pragma once

#include <list>
#include <map>
#include <utility>

#include "core/priority.hpp"
#include "core/tenant.hpp"
#include "task/executor.hpp"
#include "task/op.hpp"

namespace nexar::engine {

class ScratchShare final : public Runnable {
  public:
    // Less than what the engine keeps of an operation anyhow is not counted.
    static constexpr uint64_t uncounted_max = 1024;

    explicit ScratchShare(Executor& executor) : executor_(&executor) {}
    ~ScratchShare() { executor_->forget(this); }
    ScratchShare(const ScratchShare&) = delete;
    ScratchShare& operator=(const ScratchShare&) = delete;

    // A segment of its owner's. Waits for room of its tenant, or for open() or fail().
    class Waiter {
      public:
        Waiter(ScratchShare& share, TenantRef tenant, const void* owner, uint32_t segment,
               Priority priority = Priority::bulk);
        ~Waiter();
        Waiter(const Waiter&) = delete;
        Waiter& operator=(const Waiter&) = delete;

        Op op;

      private:
        friend class ScratchShare;
        ScratchShare* share_;
        const TenantRef tenant_;
        const void* owner_;
        const uint32_t segment_;
        const Priority priority_;
        std::list<Waiter*>::iterator at_;  // in the list of its tenant
    };

    // False: a segment that needs scratch has to wait, behind those that wait already.
    bool has_room(const Tenant& tenant) const;
    void open(const void* owner, uint32_t segment);  // it begins now, if it waits
    void fail(const void* owner, const Error& error);
    void returned();  // scratch of any tenant

    bool waits(const void* owner) const { return first_of(owner) != by_owner_.end(); }

  private:
    void run() override;  // lets the first of each tenant begin
    using ByOwner = std::map<std::pair<const void*, uint32_t>, Waiter*>;  // and segment

    ByOwner::const_iterator first_of(const void* owner) const;  // by_owner_.end(): none of its segments waits
    void leave(Waiter& waiter);

    Executor* executor_;
    std::map<uint64_t, std::list<Waiter*>> waiting_;  // by the tenant's number; no list is empty
    ByOwner by_owner_;                                // the same
    bool queued_ = false;                             // run() is due
};

}  // namespace nexar::engine
