#include "config/config.hpp"

// toml++ 3.3.0 asserts on some wrong texts ("[" and a control character), and without assertions its
// behaviour is undefined. Here a failed assertion throws, in every build, and read_toml() catches it. NDEBUG
// comes first: the header drops any TOML_ASSERT under it.
#undef NDEBUG
namespace nexar::config {
struct ParserFault {};
}  // namespace nexar::config
#define TOML_ASSERT(...) (static_cast<bool>(__VA_ARGS__) ? void(0) : throw ::nexar::config::ParserFault{})
// Some assertions stand in noexcept functions, where a throw ends the program like any assertion; g++ warns.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wterminate"
#endif
#include <toml++/toml.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "core/cores.hpp"
#include "core/secret.hpp"

namespace nexar::config {
namespace {

constexpr uint64_t port_max = 65535;

const Key* find(std::string_view name) {
    for (const Key& k : keys())
        if (name == k.name) return &k;
    return nullptr;
}

std::unexpected<Error> refused(const Key& key, const std::string& value, const std::string& where) {
    return fail(Errc::bad_config, where + ": " + key.name + " = '" +
                                      (key.secret ? std::string("(secret)") : value) +
                                      "' is not allowed; allowed: " + key.allowed);
}

// A TOML scalar as the text that a key's setter reads. An array of texts becomes a comma-separated text.
std::optional<std::string> text_of(const toml::node& node) {
    if (auto s = node.as_string()) return s->get();
    if (auto i = node.as_integer()) return std::to_string(i->get());
    if (auto b = node.as_boolean()) return b->get() ? "true" : "false";
    if (auto f = node.as_floating_point()) {
        std::ostringstream out;
        out.precision(17);
        out << f->get();
        return out.str();
    }
    if (auto a = node.as_array()) {
        std::string joined;
        for (const auto& item : *a) {
            if (!item.is_string()) return std::nullopt;
            if (!joined.empty()) joined += ',';
            joined += item.as_string()->get();
        }
        return joined;
    }
    return std::nullopt;
}

// Outside of comments and one-line strings, toml++ 3.3.0 looks up every non-ASCII character in a table of
// white space, with undefined behaviour for many. TOML allows none there: so such a text is an error already
// here.
bool breaks_parser(std::string_view text) {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
    char inside = 0;                                              // '#' a comment, or the quote of a string
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '\n')
            inside = 0;
        else if (static_cast<unsigned char>(c) >= 0x80 && inside == 0)
            return true;
        else if (inside == 0 && (text.substr(i, 3) == "\"\"\"" || text.substr(i, 3) == "'''"))
            i += 2;  // what follows counts as outside
        else if (inside == 0 && (c == '#' || c == '"' || c == '\''))
            inside = c;
        else if (inside == '"' && c == '\\' && i + 1 < text.size() && text[i + 1] != '\n')
            ++i;
        else if (inside == c && c != '#')
            inside = 0;
    }
    return false;
}

toml::parse_result parse(const std::string& text) try {
    if (breaks_parser(text)) throw ParserFault{};
    return toml::parse(text);
} catch (const ParserFault&) {
    return toml::parse("= characters where none may stand");  // yields a parse error at line 1
}

Result<void> apply_file(Config& config, const Sources& sources) {
    const toml::parse_result parsed = parse(*sources.file_text);
    if (!parsed) {
        std::ostringstream why;
        why << parsed.error().description() << " at line " << parsed.error().source().begin.line;
        return fail(Errc::bad_config, sources.file_path + ": not TOML: " + why.str());
    }
    for (const auto& [name, node] : parsed.table()) {
        const std::string where =
            sources.file_path + " line " + std::to_string(static_cast<long>(node.source().begin.line));
        const Key* key = find(name.str());
        if (!key) {
            std::string known;
            for (const Key& k : keys()) known += (known.empty() ? "" : ", ") + std::string(k.name);
            return fail(Errc::bad_config, where + ": there is no key '" + std::string(name.str()) +
                                              "'; allowed keys: " + known);
        }
        const auto text = text_of(node);
        if (!text || !key->set(config, *text))
            return refused(*key, text.value_or("(neither text nor number)"), where);
    }
    return {};
}

// A TOML basic string.
std::string quoted(const std::string& value) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string out = "\"";
    for (const char c : value) {
        const auto u = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\')
            out += {'\\', c};
        else if (u < 0x20 || u == 0x7f)
            out += {'\\', 'u', '0', '0', digits[u >> 4], digits[u & 15]};
        else
            out += c;
    }
    return out + '"';
}

std::string short_text(double value) {
    std::ostringstream out;
    out << value;
    return out.str();
}

Result<void> check_status_sockets(const Config& c) {
    std::set<std::string> taken{c.socket, c.admin_socket};
    for (const SessionSocket& further : c.session_sockets) taken.insert(further.path);
    for (const auto& [path, label] : status_sockets(c))
        if (!taken.insert(path).second)
            return fail(Errc::bad_config,
                        "the status socket '" + path + "'" + (label.empty() ? "" : " of label " + label) +
                            " has the path of another socket; allowed: a path of its own, or "
                            "status_socket = off");
    return {};
}

// Conditions on two keys at once.
Result<void> check_together(const Config& c) {
    if (c.heartbeat_timeout < 2 * c.heartbeat_interval)
        return fail(Errc::bad_config, "heartbeat_timeout = " + short_text(c.heartbeat_timeout) +
                                          " s is too short; allowed: at least twice heartbeat_interval (" +
                                          short_text(c.heartbeat_interval) + " s)");
    if (c.socket == c.admin_socket)
        return fail(Errc::bad_config,
                    "socket and admin_socket are both '" + c.socket + "'; allowed: two different paths");
    for (const SessionSocket& further : c.session_sockets)
        if (further.path == c.socket || further.path == c.admin_socket)
            return fail(Errc::bad_config, "session_sockets has the path '" + further.path +
                                              "' of socket or admin_socket; allowed: another path");
    NEXAR_TRY_VOID(check_status_sockets(c));
    const uint64_t shards = bulk_shards_of(c);
    const uint64_t port = std::stoul(c.listen.substr(c.listen.rfind(':') + 1));
    if (port + shards + 1 > port_max)
        return fail(Errc::bad_config, "listen = '" + c.listen +
                                          "' leaves no port for bulk data; allowed: up to " +
                                          std::to_string(port_max - shards - 1) + " with " +
                                          std::to_string(shards) + " of bulk_shards");
    if (c.init_cluster && !c.join_token.empty())
        return fail(Errc::bad_config, "init_cluster = true together with a join_token; allowed: one of them");
    return {};
}

}  // namespace

uint64_t bulk_shards_of(const Config& config) {
    constexpr uint64_t cores_each = 4, most = 4;
    if (config.bulk_shards > 0) return config.bulk_shards;
    return std::clamp<uint64_t>(usable_cores() / cores_each, 1, most);
}

Result<Config> load(const Sources& sources) {
    Config config;
    if (sources.file_text) NEXAR_TRY_VOID(apply_file(config, sources));
    for (const Key& key : keys()) {
        const auto set = sources.environment.find(key.environment);
        if (set == sources.environment.end()) continue;
        if (!key.set(config, set->second))
            return refused(key, set->second, std::string("environment variable ") + key.environment);
    }
    for (const auto& [name, value] : sources.flags) {
        const Key* key = find(name);
        if (!key) return fail(Errc::bad_config, "there is no key '" + name + "'");
        if (!key->set(config, value)) return refused(*key, value, "command line");
    }
    NEXAR_TRY_VOID(check_together(config));
    return config;
}

void wipe_token(Sources& sources, Config& config) {
    const Key& key = *find("join_token");
    if (sources.file_text && !config.join_token.empty()) wipe(*sources.file_text);
    wipe(sources.environment[key.environment]);
    wipe(sources.flags[key.name]);
    wipe(config.join_token);
}

std::vector<std::pair<std::string, std::string>> status_sockets(const Config& config) {
    std::vector<std::pair<std::string, std::string>> out;
    if (config.status_socket.empty())
        out.emplace_back(config.admin_socket.substr(0, config.admin_socket.rfind('/') + 1) + "status.sock",
                         "");
    else if (config.status_socket != "off")
        out.emplace_back(config.status_socket, "");
    for (const SessionSocket& s : config.session_sockets)
        if (!s.status.empty()) out.emplace_back(s.status, s.label);
    return out;
}

std::vector<std::string> unknown_variables(const std::map<std::string, std::string>& environment) {
    // Variables of applications (include/nexar.h, the Python binding, `nexarctl run`) and of tools/, which
    // may start a daemon.
    static constexpr std::string_view of_others[] = {
        "NEXAR_RANK",      "NEXAR_WORLD_SIZE", "NEXAR_LOCAL_RANK",        "NEXAR_LOCAL_WORLD_SIZE",
        "NEXAR_GROUP",     "NEXAR_JOB_SECRET", "NEXAR_LIBRARY",           "NEXAR_DIGITS_DATA",
        "NEXAR_BUILD_DIR", "NEXAR_DEPS_DIR",   "NEXAR_OPEN_TIMEOUT_SECS", "NEXAR_DETERMINISTIC",
        "NEXAR_INSTANCE",  "NEXAR_NEXARD",     "NEXAR_WITHOUT_WAITV"};
    std::vector<std::string> out;
    for (const auto& [name, value] : environment) {
        const bool known =
            std::any_of(keys().begin(), keys().end(), [&](const Key& k) { return name == k.environment; }) ||
            std::count(std::begin(of_others), std::end(of_others), name) != 0;
        if (name.starts_with("NEXAR_") && !known) out.push_back(name);
    }
    return out;
}

std::string to_toml(const Config& config) {
    std::string out;
    for (const Key& key : keys()) {
        if (key.secret) continue;
        const std::string value = key.get(config);
        const bool bare =
            !key.is_text && (value == "true" || value == "false" ||
                             (!value.empty() && value.find_first_not_of("0123456789.") == std::string::npos &&
                              std::count(value.begin(), value.end(), '.') <= 1));
        out += "# " + std::string(key.help) + "; " + key.allowed + "; " + key.environment + "\n";
        out += std::string(key.name) + " = " + (bare ? value : quoted(value)) + "\n";
    }
    return out;
}

}  // namespace nexar::config
