// How a struct's field list becomes both directions of the codec: entries of a list, and the kinds of fields.
// A part of codec.cpp, which includes it inside its namespace.
//
// A kind writes in one of two ways, as Cap'n Proto's builders do. Numbers, texts and bytes are set:
// out(value) is what is set. Structs and lists are made in place: fill(make, value), where make() or make(n)
// makes them. Each kind has read(decoder, in, value), which checks what it reads.
#pragma once

// ---- The list of a struct ----

// FieldsOf<Struct>::list calls what it is given with all entries of the struct (see NEXAR_FIELDS). Not a
// tuple: std::apply on so many different ones is slow to compile.
template <class T>
struct FieldsOf;

constexpr auto entries(auto... entry) {
    return [=](const auto& visit) { return visit(entry...); };
}

template <class Builder, class T>
void fill_struct(Builder out, const T& value) {
    FieldsOf<T>::list([&](const auto&... entry) { (entry.fill(out, value), ...); });
}
template <class Reader, class T>
void read_struct(Decoder& d, Reader in, T& value) {
    FieldsOf<T>::list([&](const auto&... entry) { (entry.read(d, in, value), ...); });
}

// ---- Kinds ----

struct Number {
    auto out(auto value) const { return value; }
    template <class T>
    void read(Decoder&, T in, T& value) const {
        value = in;
    }
};
struct Bounded {
    const char* name;
    uint32_t max, least;
    auto out(auto value) const { return value; }
    template <class T>
    void read(Decoder& d, T in, T& value) const {
        value = in;
        d.limit(name, value, max);
        if (value < least) d.range(name, value, least, max);
    }
};
struct RankOrNone {  // -1: none
    const char* name;
    int64_t out(int64_t value) const { return value; }
    void read(Decoder& d, int64_t in, int64_t& value) const {
        value = in;
        d.range(name, value, -1, ranks_max - 1);
    }
};
struct ErrorCode {
    int32_t out(Errc code) const { return static_cast<int32_t>(code); }
    void read(Decoder& d, int32_t in, Errc& code) const {
        // Answers say so when nothing is wrong (ok), or that an attempt is over (pending).
        const bool no_failure =
            in == static_cast<int32_t>(Errc::ok) || in == static_cast<int32_t>(Errc::pending);
        if (const auto failure = failure_from(in))
            code = *failure;
        else if (no_failure)
            code = static_cast<Errc>(in);
        else
            d.complain("error code " + std::to_string(in) + " is unknown");
    }
};

// Free text is cut and cleaned, so that what we say never makes a peer refuse the whole message.
struct CleanText {
    CleanText(const std::string& text, size_t bytes_max) : clean(clean_text(text, bytes_max)) {}
    operator capnp::Text::Reader() const { return {clean.c_str(), clean.size()}; }
    std::string clean;
};
struct Text {
    const char* name;
    size_t bytes_max;
    CleanText out(const std::string& value) const { return {value, bytes_max}; }
    void read(Decoder& d, capnp::Text::Reader in, std::string& value) const {
        value = d.text(name, in, bytes_max);
    }
};
struct UncutText : Text {  // cut, it would mean something else
    CleanText out(const std::string& value) const {
        NEXAR_CHECK(value.size() <= bytes_max);
        return Text::out(value);
    }
};
struct Pem {  // has line ends, which Text does not carry
    const char* name;
    size_t bytes_max;
    capnp::Data::Reader out(const std::string& value) const {
        NEXAR_CHECK(value.size() <= bytes_max);
        return {reinterpret_cast<const kj::byte*>(value.data()), value.size()};
    }
    void read(Decoder& d, capnp::Data::Reader in, std::string& value) const {
        d.limit(name, in.size(), bytes_max);
        value.assign(reinterpret_cast<const char*>(in.begin()), std::min(in.size(), bytes_max));
    }
};
struct FixedBytes {
    const char* name;
    template <size_t N>
    capnp::Data::Reader out(const std::array<uint8_t, N>& value) const {
        return {value.data(), N};
    }
    template <size_t N>
    void read(Decoder& d, capnp::Data::Reader in, std::array<uint8_t, N>& value) const {
        d.fixed(name, in, value);
    }
};
struct Node {
    const char* name;
    capnp::Data::Reader out(const NodeId& value) const { return FixedBytes{name}.out(value.bytes); }
    void read(Decoder& d, capnp::Data::Reader in, NodeId& value) const { d.fixed(name, in, value.bytes); }
};

struct Part {  // a struct with a field list of its own
    template <class T>
    void fill(auto make, const T& value) const {
        fill_struct(make(), value);
    }
    template <class T>
    void read(Decoder& d, auto in, T& value) const {
        read_struct(d, in, value);
    }
};
template <class Kind>
struct ListOf {
    Kind kind;
    const char* name;
    size_t count_max;
    template <class T>
    void fill(auto make, const std::vector<T>& values) const {
        NEXAR_CHECK(values.size() <= count_max);
        auto list = make(static_cast<uint32_t>(values.size()));
        for (uint32_t i = 0; i < list.size(); ++i) {
            if constexpr (requires { kind.out(values[i]); })
                list.set(i, kind.out(values[i]));
            else
                kind.fill([&] { return list[i]; }, values[i]);
        }
    }
    template <class T>
    void read(Decoder& d, auto in, std::vector<T>& values) const {
        d.limit(name, in.size(), count_max);
        for (uint32_t i = 0; i < in.size() && d.ok(); ++i) kind.read(d, in[i], values.emplace_back());
    }
};

constexpr Bounded bounded(const char* name, uint32_t max, uint32_t least = 0) {
    return {name, max, least};
}
constexpr Bounded real_rank(const char* name) {
    return bounded(name, ranks_max - 1);
}
template <class Kind>
constexpr ListOf<Kind> list_of(Kind kind, const char* name, size_t count_max) {
    return {kind, name, count_max};
}

// ---- Entries of a list ----

// Each entry has the name of its member, fill(builder, struct) and read(decoder, reader, struct).

// One member and one field of the schema. Get and Put are NEXAR_FIELD's accessors.
template <class T, class Value, class Get, class Put, class Kind>
struct Field {
    const char* name;
    Value T::* member;
    Get get;
    Put put;
    Kind kind;
    template <class Builder>
    void fill(Builder out, const T& value) const {
        put(out, kind, value.*member);
    }
    template <class Reader>
    void read(Decoder& d, Reader in, T& value) const {
        kind.read(d, get(in), value.*member);
    }
};
// Without a kind: a number, or a struct with a list of its own.
template <class T, class Value, class Get, class Put,
          class Kind = std::conditional_t<std::is_arithmetic_v<Value>, Number, Part>>
constexpr Field<T, Value, Get, Put, Kind> field(const char* name, Value T::* member, Get get, Put put,
                                                Kind kind = {}) {
    return {name, member, get, put, kind};
}

struct NotSent {  // a member that is not on the wire
    const char* name;
    void fill(auto&&, const auto&) const {}
    void read(Decoder&, auto&&, auto&) const {}
};
template <class T, class Value>
constexpr NotSent not_sent(Value T::*, const char* name) {
    return {name};
}

// A check of what was read so far, called as check(decoder, struct). Of one field alone: better a kind.
template <class Check>
struct Rule {
    Check check;
    const char* name = nullptr;
    void fill(auto&&, const auto&) const {}
    void read(Decoder& d, auto&&, const auto& value) const { check(d, value); }
};
template <class Check>
Rule(Check) -> Rule<Check>;

// ---- A list names each member of its struct ----

// Structured bindings have as many names as the struct has members: another count does not compile.
// clang-format off
template <size_t count, class T>
auto decompose(const T& value) {
    static_assert(count <= 16, "for a struct of so many members a line is missing here");
    if constexpr (count == 0) { static_assert(std::is_empty_v<T>); }
    if constexpr (count == 1) { [[maybe_unused]] const auto& [a] = value; }
    if constexpr (count == 2) { [[maybe_unused]] const auto& [a, b] = value; }
    if constexpr (count == 3) { [[maybe_unused]] const auto& [a, b, c] = value; }
    if constexpr (count == 4) { [[maybe_unused]] const auto& [a, b, c, d] = value; }
    if constexpr (count == 5) { [[maybe_unused]] const auto& [a, b, c, d, e] = value; }
    if constexpr (count == 6) { [[maybe_unused]] const auto& [a, b, c, d, e, f] = value; }
    if constexpr (count == 7) { [[maybe_unused]] const auto& [a, b, c, d, e, f, g] = value; }
    if constexpr (count == 8) { [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h] = value; }
    if constexpr (count == 9) { [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i] = value; }
    if constexpr (count == 10) { [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, j] = value; }
    if constexpr (count == 11) { [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, j, k] = value; }
    if constexpr (count == 12) { [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value; }
    if constexpr (count == 13) { [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = value; }
    if constexpr (count == 14) { [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = value; }
    if constexpr (count == 15) { [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = value; }
    if constexpr (count == 16) { [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = value; }
}
// clang-format on

consteval bool differ(std::initializer_list<const char*> names) {
    for (const char* const* a = names.begin(); a != names.end(); ++a)
        for (const char* const* b = names.begin(); b != a; ++b)
            if (*a && *b && std::string_view(*a) == *b) return false;
    return true;
}

template <class T>
consteval bool names_each_member() {
    constexpr size_t count = FieldsOf<T>::list(
        [](const auto&... entry) { return (size_t{0} + ... + size_t{entry.name != nullptr}); });
    using Decomposed = decltype(decompose<count>(std::declval<const T&>()));
    return std::is_void_v<Decomposed> &&
           FieldsOf<T>::list([](const auto&... entry) { return differ({entry.name...}); });
}

// NEXAR_FIELDS(Struct, entries...): the one description of a struct on the wire, in the order of its members.
// Inside, T is the struct, and an entry is NEXAR_FIELD(member, Name in the schema's accessors, kind if it
// needs one), NEXAR_NOT_SENT(member), Rule{check}, or a type of its own for what fits none of them.
#define NEXAR_FIELDS(Struct, ...)                          \
    template <>                                            \
    struct FieldsOf<Struct> {                              \
        using T = Struct;                                  \
        static constexpr auto list = entries(__VA_ARGS__); \
    };                                                     \
    static_assert(names_each_member<Struct>(), "a member is named twice")

#define NEXAR_FIELD(name, Name, ...)                                               \
    field(                                                                         \
        #name, &T::name, [](auto in) { return in.get##Name(); },                   \
        [](auto out, const auto& kind, const auto& value) {                        \
            if constexpr (requires { kind.out(value); })                           \
                out.set##Name(kind.out(value));                                    \
            else                                                                   \
                kind.fill([&](auto... n) { return out.init##Name(n...); }, value); \
        } __VA_OPT__(, ) __VA_ARGS__)

#define NEXAR_NOT_SENT(name) not_sent(&T::name, #name)
