// Alive words: robust futexes of the control loop's thread. When the thread ends for any reason, the kernel
// wakes the clients that sleep on them [S8]. Source: get_robust_list(2),
// Documentation/locking/robust-futexes.rst.
#pragma once

#include <linux/futex.h>

#include <memory>

#include "core/result.hpp"
#include "local/crowd_waker.hpp"
#include "local/memory.hpp"

namespace nexar::local {

class AliveWord;

// The calling thread's robust list. It replaces the C library's list during its lifetime, so the thread must
// not hold robust pthread mutexes. Thread: the control loop's, also for the constructor and the destructor.
class RobustList {
  public:
    RobustList();
    ~RobustList();
    RobustList(const RobustList&) = delete;
    RobustList& operator=(const RobustList&) = delete;

    // The kernel walks at most 2048 entries when a thread ends (ROBUST_LIST_LIMIT).
    static constexpr size_t words_max = 2000;
    Result<std::unique_ptr<AliveWord>> add();

  private:
    friend class AliveWord;
    robust_list_head head_{};               // registered with the kernel
    robust_list_head* previous_ = nullptr;  // the C library's head, restored by the destructor
    size_t previous_size_ = 0;              // its size, as the kernel reported it
    int thread_ = 0;                        // kernel id of the thread that made the list
    size_t words_ = 0;                      // words in the list
};

// One session's word. The destructor and stop() set it to STOPPED and wake all sleepers.
class AliveWord {
  public:
    ~AliveWord();
    AliveWord(const AliveWord&) = delete;
    AliveWord& operator=(const AliveWord&) = delete;
    Fd take_fd() { return std::move(fd_); }
    // The crowd is `user`'s.
    void stop(CrowdWaker& waker, uint64_t user);

  private:
    friend class RobustList;
    AliveWord() = default;
    struct Node {  // at the start of the private page; futex_offset leads from here to the word
        robust_list link;
        Node* previous;
    };
    Node* node() const { return reinterpret_cast<Node*>(pages_.get()); }
    uint32_t* word() const { return reinterpret_cast<uint32_t*>(pages_.get() + page_bytes); }
    bool leave();  // sets STOPPED. False: it was set before

    RobustList* list_ = nullptr;        // null: the word was never added
    std::shared_ptr<std::byte> pages_;  // mapped: the private page, then the alive page
    Fd fd_;                             // the alive page's memfd; empty after take_fd()
    bool stopped_ = false;              // STOPPED is set, and the word is off the list
};

}  // namespace nexar::local
