// ScratchShare: which segments of collectives may begin, by the scratch memory that their tenants have taken
// (docs/protocol/tenants.md [N8], [N9]). Those that may not wait here, in order. Dry.
//
// Thread: the control loop's.
#pragma once

#include <list>
#include <map>

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

    // Waits until its end, for room of its tenant or for open() or fail() of its owner.
    class Waiter {
      public:
        Waiter(ScratchShare& share, TenantRef tenant, const void* owner);
        ~Waiter();
        Waiter(const Waiter&) = delete;
        Waiter& operator=(const Waiter&) = delete;

        Op op;

      private:
        friend class ScratchShare;
        ScratchShare* share_;
        const TenantRef tenant_;
        const void* owner_;
    };

    // False: a segment that needs scratch has to wait, behind those that wait already.
    bool has_room(const Tenant& tenant) const;
    void open(const void* owner) { end(owner, {}); }  // its segments begin now
    void fail(const void* owner, const Error& error) { end(owner, std::unexpected(error)); }
    void returned();  // scratch of any tenant

    bool waits(const void* owner) const;

  private:
    void run() override;  // lets the first of each tenant begin
    void end(const void* owner, const Result<void>& result);
    void leave(const Waiter& waiter);

    Executor* executor_;
    std::map<uint64_t, std::list<Waiter*>> waiting_;  // by the tenant's number; no list is empty
    bool queued_ = false;                             // run() is due
};

}  // namespace nexar::engine
