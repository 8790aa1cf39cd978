// See alive.hpp.
#include "local/alive.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "core/check.hpp"
#include "local/futex.hpp"
#include "shm/words.hpp"
#include "shm_layout.h"

namespace nexar::local {

RobustList::RobustList() : thread_(::gettid()) {
    head_.list.next = &head_.list;
    head_.futex_offset = page_bytes;
    ::syscall(SYS_get_robust_list, 0, &previous_, &previous_size_);
    NEXAR_CHECK(::syscall(SYS_set_robust_list, &head_, sizeof head_) == 0);
}

RobustList::~RobustList() {
    NEXAR_CHECK(words_ == 0);
    if (::gettid() == thread_ && previous_) ::syscall(SYS_set_robust_list, previous_, previous_size_);
}

Result<std::unique_ptr<AliveWord>> RobustList::add() {
    NEXAR_CHECK(::gettid() == thread_);
    if (words_ >= words_max) return fail(Errc::table_full, "the daemon has too many sessions");
    void* pages = ::mmap(nullptr, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return fail(Errc::no_memory, std::string("cannot map: ") + std::strerror(errno));
    std::unique_ptr<AliveWord> out(new AliveWord);
    out->pages_.reset(static_cast<std::byte*>(pages), [](std::byte* at) { ::munmap(at, 2 * page_bytes); });
    NEXAR_TRY(auto page, publish_page("nexar-alive", out->pages_.get() + page_bytes));
    out->fd_ = std::move(page.fd);
    out->list_ = this;
    shm::store_release(*out->word(), static_cast<uint32_t>(thread_) | NEXAR_ALIVE_WAITERS);

    // One store links the node, so that the kernel finds a whole list whenever the thread ends.
    auto* node = new (out->pages_.get()) AliveWord::Node;
    auto* first = head_.list.next;
    node->link.next = first;
    node->previous = nullptr;
    if (first != &head_.list) reinterpret_cast<AliveWord::Node*>(first)->previous = node;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    head_.list.next = &node->link;
    ++words_;
    return out;
}

bool AliveWord::leave() {
    if (stopped_ || !list_) return false;
    stopped_ = true;
    // The node leaves the list before the word changes: the kernel handles only words with this thread's id.
    auto* next = node()->link.next;
    if (node()->previous)
        node()->previous->link.next = next;
    else
        list_->head_.list.next = next;
    if (next != &list_->head_.list) reinterpret_cast<Node*>(next)->previous = node()->previous;
    --list_->words_;
    shm::store_release(*word(), NEXAR_ALIVE_STOPPED);
    return true;
}

void AliveWord::stop(CrowdWaker& waker, uint64_t user) {
    if (leave()) waker.wake_all(user, word(), pages_);
}

AliveWord::~AliveWord() {
    if (leave()) futex_wake(word());
}

}  // namespace nexar::local
