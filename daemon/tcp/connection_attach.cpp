// The attach of a Connection: docs/protocol/tcp.md [B2] [B3].
#include <algorithm>
#include <cstring>

#include "core/secret.hpp"
#include "tcp/connection.hpp"

namespace nexar::tcp {
namespace {

template <class T>
Bytes bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

constexpr const char* refused = "refused here";

}  // namespace

void Connection::say_hello() {
    const AttachKeys* keys = shared_->keys->keys_of(dial_->node);
    if (!keys || !keys->keys[0])
        return fail(CloseCode::not_attached, "there is no control connection to that node", refused);
    key_ = keys->keys[0];
    const auto binding = stream_->binding();
    std::copy_n(binding.begin(), terms_.binding.size(), terms_.binding.begin());
    terms_.mode = mode_;
    terms_.shard = shared_->shard;
    terms_.dialler = shared_->self;
    terms_.acceptor = dial_->node;
    terms_.dialler_incarnation = shared_->incarnation;
    terms_.acceptor_incarnation = keys->incarnation;
    shared_->random(MutableBytes(terms_.dialler_nonce));
    Hello hello;
    hello.mode = mode_;
    hello.shard = terms_.shard;
    hello.key = id_of(*key_);
    hello.node = terms_.dialler;
    hello.incarnation = terms_.dialler_incarnation;
    hello.nonce = terms_.dialler_nonce;
    queue_record(RecordKind::hello, bytes_of(hello));
}

void Connection::on_hello(const Hello& hello) {
    if (const auto proved = stream_->peer(); proved && *proved != hello.node)
        return fail(CloseCode::not_attached, "the attach names another node than the certificate", refused);
    if (hello.mode != mode_ || hello.shard != shared_->shard)
        return fail(CloseCode::not_attached, "the attach is for another shard, or another kind of connection",
                    refused);
    pending_hello_ = hello;
    answer_hello();
}

// The control connection of the dialler may have been accepted there before it was here: then it waits.
void Connection::answer_hello() {
    const Hello& hello = *pending_hello_;
    const AttachKeys* keys = shared_->keys->keys_of(hello.node);
    const AttachKey* key = keys && keys->incarnation == hello.incarnation ? keys->find(hello.key) : nullptr;
    if (!key) return;
    key_ = *key;
    const auto binding = stream_->binding();
    std::copy_n(binding.begin(), terms_.binding.size(), terms_.binding.begin());
    terms_.mode = mode_;
    terms_.shard = shared_->shard;
    terms_.dialler = hello.node;
    terms_.acceptor = shared_->self;
    terms_.dialler_incarnation = hello.incarnation;
    terms_.acceptor_incarnation = shared_->incarnation;
    terms_.dialler_nonce = hello.nonce;
    shared_->random(MutableBytes(terms_.acceptor_nonce));
    Answer answer;
    answer.node = shared_->self;
    answer.incarnation = shared_->incarnation;
    answer.nonce = terms_.acceptor_nonce;
    answer.proof = prove(*key_, terms_, Side::acceptor);
    answered_ = true;
    pending_hello_.reset();
    queue_record(RecordKind::answer, bytes_of(answer));
}

void Connection::on_keys(Time) {
    if (!ended_ && pending_hello_) answer_hello();
}

void Connection::on_answer(const Answer& answer) {
    terms_.acceptor_nonce = answer.nonce;
    const bool named = answer.node == terms_.acceptor && answer.incarnation == terms_.acceptor_incarnation;
    if (!named || !proves(*key_, terms_, Side::acceptor, answer.proof))
        return fail(CloseCode::not_attached, "the peer's attach proof is wrong", refused);
    const Proof proof = prove(*key_, terms_, Side::dialler);
    queue_record(RecordKind::proof, bytes_of(proof));
    opened();
}

void Connection::on_proof(const Proof& proof) {
    if (!proves(*key_, terms_, Side::dialler, proof))
        return fail(CloseCode::not_attached, "the peer's attach proof is wrong", refused);
    opened();
}

void Connection::opened() {
    peer_ = dial_ ? terms_.acceptor : terms_.dialler;
    wipe(MutableBytes(*key_));
    key_.reset();
    state_ = State::open;
    if (shared_->reads_far) stream_->read_further();
}

}  // namespace nexar::tcp
