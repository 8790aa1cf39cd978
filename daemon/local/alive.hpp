// The words by which clients learn that the daemon died, from the kernel, at once [S8]: robust futexes of the
// loop's thread. get_robust_list(2), Documentation/locking/robust-futexes.rst.
#pragma once

#include <linux/futex.h>

#include <memory>

#include "core/result.hpp"
#include "local/memory.hpp"

namespace nexar::local {

class AliveWord;

// The calling thread's robust list: made and used on the loop's thread only. Takes the list's head from the C
// library for as long as it lives; so this thread may not hold robust pthread mutexes (nobody here does).
class RobustList {
  public:
    RobustList();
    ~RobustList();
    RobustList(const RobustList&) = delete;
    RobustList& operator=(const RobustList&) = delete;

    // The kernel walks 2048 entries at a thread's death, no more (ROBUST_LIST_LIMIT).
    static constexpr size_t words_max = 2000;
    Result<std::unique_ptr<AliveWord>> add();

  private:
    friend class AliveWord;
    robust_list_head head_{};
    robust_list_head* previous_ = nullptr;
    size_t previous_size_ = 0;
    int thread_ = 0;
    size_t words_ = 0;
};

// One session's word. Destroyed or stopped: STOPPED, and all sleepers wake.
class AliveWord {
  public:
    ~AliveWord();
    AliveWord(const AliveWord&) = delete;
    AliveWord& operator=(const AliveWord&) = delete;
    int fd() const { return fd_.get(); }
    void close_fd() { fd_.reset(); }
    void stop();

  private:
    friend class RobustList;
    AliveWord() = default;
    struct Node {  // at the start of the private page; the word is page_bytes further on, as the head says
        robust_list link;
        Node* previous;
    };
    Node* node() const { return reinterpret_cast<Node*>(pages_); }
    uint32_t* word() const { return reinterpret_cast<uint32_t*>(pages_ + page_bytes); }

    RobustList* list_ = nullptr;
    std::byte* pages_ = nullptr;  // private page, then the alive page
    Fd fd_;
    bool stopped_ = false;
};

}  // namespace nexar::local
