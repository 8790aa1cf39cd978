// Lies: messages of proto/wire.capnp with values that nobody honest would send. All by reflection over the
// schema, so a new message or field is lied about without a line here. Plain types only: the source is C++17,
// since Cap'n Proto 0.9 does not compile as C++23.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace nexar::lies {

using Encoded = std::vector<std::byte>;

// The members of the union, in order: every kind of message that there is.
std::vector<std::string> kinds();

// {"hello": {"bulkPort": 1, ...}}: the text of Cap'n Proto's JSON codec. Data is a list of numbers.
Encoded from_text(const std::string& json);  // throws std::invalid_argument
std::string to_text(const Encoded& message);

struct Lie {
    Encoded message;
    std::string what;  // for people: the kind, and what was done to it
};

// Mixes received messages with nonsense: what was sent about one group or node is sent about another,
// one to three fields are extreme, and now and then the encoding itself is broken.
class Liar {
  public:
    explicit Liar(uint64_t seed);
    ~Liar();
    Liar(const Liar&) = delete;

    void reseed(uint64_t seed);  // received messages stay
    void learn(const Encoded& message);
    Lie lie(size_t kind);
    // Each field of this kind in turn, with each extreme that its type has; the rest as an honest one says
    // it.
    std::vector<Lie> each_field(size_t kind);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace nexar::lies
