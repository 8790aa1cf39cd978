#include "support/lies.hpp"

#include <capnp/compat/json.h>
#include <capnp/dynamic.h>
#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstring>
#include <map>
#include <stdexcept>

#include "core/random.hpp"
#include "wire.capnp.h"

namespace nexar::lies {
namespace {

using capnp::DynamicList;
using capnp::DynamicStruct;
using capnp::DynamicValue;
using capnp::StructSchema;
using Word = std::shared_ptr<capnp::MallocMessageBuilder>;

constexpr size_t kept_max = 64;         // genuine values of one name or type
constexpr size_t message_kind_at = 16;  // of the union's number: behind segment table and root pointer
constexpr size_t long_text = 70'000;

StructSchema root() {
    return capnp::Schema::from<wire::schema::Message>();
}

Encoded flat(capnp::MessageBuilder& builder) {
    const auto words = capnp::messageToFlatArray(builder);
    const auto bytes = words.asBytes();
    Encoded out(bytes.size());
    std::memcpy(out.data(), bytes.begin(), bytes.size());
    return out;
}

template <class Act>
void read(const Encoded& message, Act act) {
    auto words = kj::heapArray<capnp::word>(message.size() / sizeof(capnp::word));
    std::memcpy(static_cast<void*>(words.begin()), message.data(), words.asBytes().size());
    capnp::FlatArrayMessageReader reader(words);
    act(reader.getRoot<DynamicStruct>(root()));
}

// 0: no whole number.
unsigned bits_of(capnp::Type type) {
    using T = capnp::schema::Type;
    switch (type.which()) {
        case T::INT8:
        case T::UINT8:
            return 8;
        case T::INT16:
        case T::UINT16:
            return 16;
        case T::INT32:
        case T::UINT32:
            return 32;
        case T::INT64:
        case T::UINT64:
            return 64;
        default:
            return 0;
    }
}
bool has_sign(capnp::Type type) {
    using T = capnp::schema::Type;
    return type.isInt8() || type.isInt16() || type.isInt32() || type.which() == T::INT64;
}
DynamicValue::Reader number(capnp::Type type, uint64_t value) {
    const unsigned unused = 64 - bits_of(type);
    if (!has_sign(type)) return DynamicValue::Reader(value << unused >> unused);
    return DynamicValue::Reader(static_cast<int64_t>(value << unused) >> unused);
}
uint64_t number_of(const DynamicValue::Reader& value) {
    return value.getType() == DynamicValue::INT ? static_cast<uint64_t>(value.as<int64_t>())
                                                : value.as<uint64_t>();
}

}  // namespace

std::vector<std::string> kinds() {
    std::vector<std::string> out;
    for (const auto field : root().getUnionFields()) out.emplace_back(field.getProto().getName().cStr());
    return out;
}

Encoded from_text(const std::string& json) {
    try {
        capnp::MallocMessageBuilder builder;
        capnp::JsonCodec codec;
        codec.setRejectUnknownFields(true);
        codec.decode(kj::ArrayPtr<const char>(json.data(), json.size()),
                     builder.initRoot<DynamicStruct>(root()));
        return flat(builder);
    } catch (const kj::Exception& e) {
        throw std::invalid_argument(e.getDescription().cStr());
    }
}

std::string to_text(const Encoded& message) {
    try {
        std::string out;
        read(message, [&](DynamicStruct::Reader r) {
            out = capnp::JsonCodec().encode(DynamicValue::Reader(r), root()).cStr();
        });
        return out;
    } catch (const kj::Exception& e) {
        throw std::invalid_argument(e.getDescription().cStr());
    }
}

struct Liar::Impl {
    explicit Impl(uint64_t seed) : random(seed) {}

    Random random;
    std::map<uint64_t, std::vector<Word>> structs;  // by the type's id
    std::map<uint64_t, Word> newest;                // of each, since old ones may be about what is over
    std::map<std::string, std::vector<uint64_t>> numbers;  // by the field's name
    std::vector<std::string> data, texts;

    template <class T>
    void keep(std::vector<T>& kept, T value) {
        if (kept.size() < kept_max)
            kept.push_back(std::move(value));
        else
            kept[random.below(kept_max)] = std::move(value);
    }
    template <class T>
    const T& any(const std::vector<T>& of) {
        return of[random.below(of.size())];
    }

    // ---- What was received
    void learn(DynamicStruct::Reader r) {
        const StructSchema schema = r.getSchema();
        if (schema != root()) {
            auto copy = std::make_shared<capnp::MallocMessageBuilder>();
            copy->setRoot(r);
            newest[schema.getProto().getId()] = copy;
            keep(structs[schema.getProto().getId()], std::move(copy));
        }
        for (const auto field : schema.getNonUnionFields()) learn(field, r.get(field));
        KJ_IF_MAYBE (which, r.which()) learn(*which, r.get(*which));
    }
    void learn(StructSchema::Field field, DynamicValue::Reader value) {
        if (bits_of(field.getType()) != 0)
            return keep(numbers[field.getProto().getName().cStr()], number_of(value));
        learn_words(value);
    }
    void learn_words(const DynamicValue::Reader& value) {
        if (value.getType() == DynamicValue::STRUCT) return learn(value.as<DynamicStruct>());
        if (value.getType() == DynamicValue::DATA) {
            const auto bytes = value.as<capnp::Data>();
            return keep(data, std::string(bytes.asChars().begin(), bytes.size()));
        }
        if (value.getType() == DynamicValue::TEXT)
            return keep(texts, std::string(value.as<capnp::Text>().cStr()));
        if (value.getType() == DynamicValue::LIST)
            for (const auto element : value.as<DynamicList>()) learn_words(element);
    }

    // ---- A plausible message
    void fill(DynamicStruct::Builder b) {
        for (const auto field : b.getSchema().getNonUnionFields()) fill(b, field);
    }
    void fill(DynamicStruct::Builder b, StructSchema::Field field) {
        const capnp::Type type = field.getType();
        if (bits_of(type) != 0) return b.set(field, number(type, plausible(field)));
        if (type.isBool()) return b.set(field, DynamicValue::Reader(random.one_in(2)));
        if (type.isData()) return set_data(b, field, data.empty() ? std::string(32, 'n') : any(data));
        if (type.isText()) return set_text(b, field, texts.empty() ? "x" : any(texts));
        if (type.isStruct()) {
            if (!copy_genuine(b, field)) fill(b.init(field).as<DynamicStruct>());
        } else if (type.isList()) {
            fill_list(b, field, static_cast<unsigned>(random.below(4)));
        }
    }
    bool copy_genuine(DynamicStruct::Builder b, StructSchema::Field field) {
        const StructSchema schema = field.getType().asStruct();
        const auto known = structs.find(schema.getProto().getId());
        if (known == structs.end() || random.one_in(8)) return false;
        const Word& word = random.one_in(2) ? newest.at(known->first) : any(known->second);
        b.set(field, DynamicValue::Reader(word->getRoot<DynamicStruct>(schema).asReader()));
        return true;
    }
    uint64_t plausible(StructSchema::Field field) {
        const auto known = numbers.find(field.getProto().getName().cStr());
        return known == numbers.end() || random.one_in(6) ? random.below(4) : any(known->second);
    }
    static void set_data(DynamicStruct::Builder b, StructSchema::Field field, const std::string& bytes) {
        const auto* from = reinterpret_cast<const kj::byte*>(bytes.data());
        b.set(field, DynamicValue::Reader(capnp::Data::Reader(from, bytes.size())));
    }
    static void set_text(DynamicStruct::Builder b, StructSchema::Field field, const std::string& text) {
        b.set(field, DynamicValue::Reader(capnp::Text::Reader(text.c_str(), text.size())));
    }
    void fill_list(DynamicStruct::Builder b, StructSchema::Field field, unsigned size) {
        auto list = b.init(field, size).as<DynamicList>();
        const capnp::Type element = field.getType().asList().getElementType();
        for (unsigned i = 0; i < size; ++i) {
            if (element.isStruct()) {
                if (i < 4) fill(list[i].as<DynamicStruct>());
            } else if (element.isData()) {
                const std::string bytes = data.empty() ? std::string(32, 'n') : any(data);
                const auto* from = reinterpret_cast<const kj::byte*>(bytes.data());
                list.set(i, DynamicValue::Reader(capnp::Data::Reader(from, bytes.size())));
            } else if (element.isText()) {
                const std::string text = texts.empty() ? "x" : any(texts);
                list.set(i, DynamicValue::Reader(capnp::Text::Reader(text.c_str(), text.size())));
            }
        }
    }

    // ---- What nobody honest says
    using Path = std::vector<StructSchema::Field>;
    static void paths(StructSchema schema, const Path& above, std::vector<Path>& out) {
        for (const auto field : schema.getNonUnionFields()) {
            Path path = above;
            path.push_back(field);
            if (field.getType().isStruct()) paths(field.getType().asStruct(), path, out);
            out.push_back(std::move(path));
        }
    }
    std::string spoil(DynamicStruct::Builder b, const Path& path, size_t variant) {
        std::string name;
        for (size_t i = 0; i + 1 < path.size(); ++i) {
            name += std::string(path[i].getProto().getName().cStr()) + ".";
            b = b.get(path[i]).as<DynamicStruct>();
        }
        const auto field = path.back();
        const capnp::Type type = field.getType();
        name += field.getProto().getName().cStr();
        if (bits_of(type) != 0) {
            const uint64_t value = extreme(field, variant);
            b.set(field, number(type, value));
            return name + "=" + std::to_string(value);
        }
        if (type.isBool())
            b.set(field, DynamicValue::Reader(!b.get(field).as<bool>()));
        else if (type.isData())
            set_data(b, field, strange_data(variant));
        else if (type.isText())
            set_text(b, field, strange_text(variant));
        else if (type.isList())
            fill_list(b, field, strange_size(type, variant));
        else
            b.clear(field);
        return name + " (" + std::to_string(variant) + ")";
    }
    static size_t variants(capnp::Type type) {
        if (bits_of(type) != 0) return std::size(edges) + 2;
        return type.isData()   ? std::size(data_sizes) + 2
               : type.isText() ? 7
               : type.isList() ? std::size(list_sizes)
                               : 1;
    }

    static constexpr uint64_t edges[] = {0,          1,          2,         12,       63,  64,
                                         255,        65535,      65536,     1u << 31, ~0u, 1ull << 32,
                                         1ull << 62, 1ull << 63, ~0ull - 1, ~0ull};
    static constexpr size_t data_sizes[] = {0, 16, 31, 32, 33, 8193};
    static constexpr unsigned list_sizes[] = {0, 1, 2, 9, 65, 1025, 4097, 30'000};

    uint64_t extreme(StructSchema::Field field, size_t variant) {
        if (variant < std::size(edges)) return edges[variant];
        const auto known = numbers.find(field.getProto().getName().cStr());
        const bool near = known != numbers.end() && variant > std::size(edges);
        return near ? any(known->second) + random.below(5) - 2 : random.next();
    }
    std::string strange_data(size_t variant) {
        if (variant >= std::size(data_sizes) && !data.empty()) return any(data);
        std::string out(data_sizes[variant % std::size(data_sizes)], '\0');
        for (char& c : out) c = static_cast<char>(random.next());
        return out;
    }
    std::string strange_text(size_t variant) {
        switch (variant) {
            case 0:
                return "";
            case 1:
                return "\x1b[2J\n\x07";
            case 2:
                return "\xff\xfe\xc0\x80";
            case 3:
                return std::string(long_text, 'x');
            case 4:
                return texts.empty() ? "y" : any(texts);
            case 5:
                return std::string(128, '%');
            default:
                return std::string(1024, 's');
        }
    }
    static unsigned strange_size(capnp::Type list, size_t variant) {
        const unsigned size = list_sizes[variant];
        return list.asList().getElementType().isStruct() ? size : std::min(size, 1025u);
    }

    std::vector<Path> paths_of(StructSchema::Field kind) const {
        std::vector<Path> out;
        paths(kind.getType().asStruct(), {}, out);
        return out;
    }
    Word plausible_message(StructSchema::Field kind) {
        auto builder = std::make_shared<capnp::MallocMessageBuilder>();
        auto message = builder->initRoot<DynamicStruct>(root());
        if (!copy_genuine(message, kind)) fill(message.init(kind).as<DynamicStruct>());
        return builder;
    }
};

Liar::Liar(uint64_t seed) : impl_(std::make_unique<Impl>(seed)) {}
Liar::~Liar() = default;

void Liar::reseed(uint64_t seed) {
    impl_->random = Random(seed);
}

void Liar::learn(const Encoded& message) {
    read(message, [&](DynamicStruct::Reader r) { impl_->learn(r); });
}

std::vector<Lie> Liar::each_field(size_t kind) {
    std::vector<Lie> out;
    const auto field = root().getUnionFields()[static_cast<unsigned>(kind)];
    const auto paths = impl_->paths_of(field);
    if (paths.empty())
        out.push_back({flat(*impl_->plausible_message(field)), field.getProto().getName().cStr()});
    for (const auto& path : paths)
        for (size_t variant = 0; variant < Impl::variants(path.back().getType()); ++variant) {
            const Word word = impl_->plausible_message(field);
            auto message = word->getRoot<DynamicStruct>(root());
            std::string what = field.getProto().getName().cStr();
            what += " " + impl_->spoil(message.get(field).as<DynamicStruct>(), path, variant);
            out.push_back({flat(*word), std::move(what)});
        }
    return out;
}

Lie Liar::lie(size_t kind) {
    Random& random = impl_->random;
    const auto fields = root().getUnionFields();
    const auto field = fields[static_cast<unsigned>(kind)];
    const Word word = impl_->plausible_message(field);
    auto message = word->getRoot<DynamicStruct>(root());
    const auto paths = impl_->paths_of(field);
    Lie out;
    out.what = field.getProto().getName().cStr();
    for (uint64_t n = paths.empty() ? 0 : random.below(4); n > 0; --n) {
        const auto& path = impl_->any(paths);
        const size_t variant = random.below(Impl::variants(path.back().getType()));
        out.what += " " + impl_->spoil(message.get(field).as<DynamicStruct>(), path, variant);
    }
    out.message = flat(*word);
    if (random.one_in(40) && out.message.size() > message_kind_at + 1) {
        out.message[message_kind_at] = static_cast<std::byte>(fields.size() + random.below(200));
        out.what += ", of an unknown kind";
    } else if (random.one_in(30)) {
        out.message[random.below(out.message.size())] ^= static_cast<std::byte>(1 + random.below(255));
        out.what += ", a byte is changed";
    } else if (random.one_in(60)) {
        out.message.resize(random.below(out.message.size()));
        out.what += ", cut";
    }
    return out;
}

}  // namespace nexar::lies
