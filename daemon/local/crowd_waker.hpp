// CrowdWaker: wakes sleepers on words that are shared with clients. A client may have thousands on one word,
// and to wake them takes milliseconds: the calling thread wakes a few, and a thread of this object the rest
// (docs/protocol/shm.md [S17]).
//
// Thread: the control loop's; the destructor's is any.
#pragma once

#include <climits>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

namespace nexar::local {

class CrowdWaker {
  public:
    // Wakes at most so many sleepers, and returns how many.
    using Wake = std::function<int(uint32_t* word, int most)>;
    static constexpr int here_max = 8;

    explicit CrowdWaker(Wake wake = {});  // the kernel's; another one in tests
    ~CrowdWaker();                        // after it has woken all
    CrowdWaker(const CrowdWaker&) = delete;
    CrowdWaker& operator=(const CrowdWaker&) = delete;

    // All that sleep on the word now. `memory` keeps the word mapped. Users' crowds are woken in turns.
    void wake_all(uint64_t user, uint32_t* word, std::shared_ptr<const void> memory);

  private:
    struct State;
    bool start_thread();

    const Wake wake_;
    const std::unique_ptr<State> state_;
    std::thread thread_;  // from the first crowd on
};

}  // namespace nexar::local
