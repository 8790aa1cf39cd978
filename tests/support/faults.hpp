// A disk that fails or hangs on request: write, fsync and renameat of this binary go through here, and count.
// For tests of this binary's own code; tests/support/faulty_disk.c does it to a whole nexard.
#pragma once

#include <cstddef>

namespace nexar::test {

struct Faults {
    bool counting = false;
    size_t calls = 0;    // while counting
    size_t fsyncs = 0;   // of these
    size_t fail_at = 0;  // the number of the call that fails, from 1; 0: none
    bool failed = false;
};
Faults& faults();  // of this thread

// Counts from here to its end. Thread: one; the calls of others neither count nor fail.
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

// From here to its end every fsync waits, of all threads.
class HungDisk {
  public:
    HungDisk();
    ~HungDisk();
    HungDisk(const HungDisk&) = delete;
};

}  // namespace nexar::test
