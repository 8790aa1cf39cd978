// What the exported operations share: a call from its handle to its status.
#pragma once

#include "operation.hpp"
#include "tables.hpp"

namespace nexar::c {

ErrorContext context_of(const Group& group, uint8_t kind, const char* called = nullptr);

// What an exported function does on a group: an operation, or the making of children.
class Call {
  public:
    explicit Call(uint8_t kind, const char* called = nullptr) : kind(kind), called(called) {}
    const uint8_t kind;
    const char* const called;  // as in Operation
    const char* name() const { return name_of_call(kind, called); }
    // Its options and out parameters, before anything else happens.
    virtual Result<void> read() = 0;
    virtual Result<Taken> prepare(Session& session, const Group& group, Use use) const = 0;

  protected:
    ~Call() = default;
};

// nexar_x_start, nexar_x_init.
nexar_status begin(nexar_group* handle, Call&& call, nexar_request* request);
nexar_status init(nexar_group* handle, Call&& call, nexar_request* request);
// nexar_x. NEXAR_OK: *outcome is the operation's, without an error.
nexar_status run(nexar_group* handle, Call&& call, Outcome& outcome);

// The same for an operation.
nexar_status begin(nexar_group* handle, const Operation& operation, const nexar_op_options* options,
                   nexar_request* request);
nexar_status init(nexar_group* handle, const Operation& operation, const nexar_op_options* options,
                  nexar_request* request);
// *message: of an mprobe that has succeeded.
nexar_status run(nexar_group* handle, const Operation& operation, const nexar_op_options* options,
                 nexar_completion* completion = nullptr, nexar_message* message = nullptr);

}  // namespace nexar::c
