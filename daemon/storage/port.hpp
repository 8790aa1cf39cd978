// Port: everything durable goes through it (docs/protocol/storage.md). The control loop hands over a batch of
// changes and learns its outcome in a later turn; it never waits for the disk. Dry: the writer that does the
// system calls is behind the interface. Thread: the control loop's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/result.hpp"
#include "core/secret.hpp"

namespace nexar::storage {

// One file of the state directory.
struct Change {
    std::string file;
    std::optional<Secret> content;  // none: the file is removed
};

// Its changes are made in order, and the first that fails ends it [K4].
using Batch = std::vector<Change>;

struct Outcome {
    Result<void> result;
    // Changes that a restart finds, from the first on. After an error it may include the one that failed:
    // the file is replaced, and only its survival of a power failure is not certain.
    size_t applied = 0;
};

// A batch that was handed over. Copies share the outcome; the batch does not depend on whether there are any.
class Saving {
  public:
    // none: the disk is at work. Valid as long as this object.
    const Outcome* outcome() const { return *outcome_ ? &**outcome_ : nullptr; }

    // For who carries it out.
    void settle(Outcome outcome) { *outcome_ = std::move(outcome); }
    static Saving refused(Error why) {
        Saving out;
        out.settle({fail(std::move(why)), 0});
        return out;
    }

  private:
    std::shared_ptr<std::optional<Outcome>> outcome_ = std::make_shared<std::optional<Outcome>>();
};

class Port {
  public:
    virtual ~Port() = default;
    // A batch that finds no room has its outcome, an error, at once [K5].
    virtual Saving save(Batch batch) = 0;
};

}  // namespace nexar::storage
