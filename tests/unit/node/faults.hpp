// A disk that fails on request: write, fsync and renameat of this binary go through here, and count.
#pragma once

#include <cstddef>

namespace nexar::node::test {

struct Faults {
    bool counting = false;
    size_t calls = 0;    // while counting
    size_t fsyncs = 0;   // of these
    size_t fail_at = 0;  // the number of the call that fails, from 1; 0: none
    bool failed = false;
};
Faults& faults();

// Counts from here to its end.
class Disk {
  public:
    explicit Disk(size_t fail_at = 0) {
        faults() = {};
        faults().fail_at = fail_at;
        faults().counting = true;
    }
    ~Disk() { faults().counting = false; }
    Disk(const Disk&) = delete;
    bool failed() const { return faults().failed; }
};

}  // namespace nexar::node::test
