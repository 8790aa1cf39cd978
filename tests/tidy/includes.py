"""A file includes what it uses of the standard headers that tools/test precompiles, itself or by its headers."""

import re

import tidy

FOLDERS = ("daemon", "libnexar_c", "tools", "tests")
INCLUDE = re.compile(r'^#include ([<"])([^>"]+)[>"]', re.M)
# Of each header, names that are its own. What several headers declare (std::move, std::swap) is left out.
NAMES = {
    "algorithm": r"std::(?:ranges::)?(?:sort|stable_sort|find|find_if|any_of|all_of|none_of|count_if|fill|copy_n|clamp|"
                 r"lower_bound|upper_bound|max_element|min_element|binary_search|nth_element|remove_if|transform)\b",
    "array": r"std::(?:array|to_array)\b",
    "atomic": r"std::(?:atomic|atomic_\w+|memory_order\w*)\b",
    "charconv": r"std::(?:from_chars|to_chars)\b",
    "chrono": r"std::chrono::",
    "cstring": r"std::(?:mem(?:cpy|set|cmp|move|chr)|strlen|strcmp|strerror)\b",
    "deque": r"std::deque\b",
    "functional": r"std::(?:function|move_only_function|hash|bind_front|invoke|reference_wrapper)\b",
    "map": r"std::(?:multi)?map\b",
    "memory": r"std::(?:unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared|enable_shared_from_this)\b",
    "optional": r"std::(?:optional|nullopt)\b",
    "set": r"std::(?:multi)?set\b",
    "span": r"std::(?:span|as_bytes|as_writable_bytes)\b",
    "string": r"std::(?:string|to_string|stoi|stoull)\b",
    "string_view": r"std::string_view\b",
    "variant": r"std::(?:variant|visit|get_if|holds_alternative|monostate)\b",
    "vector": r"std::vector\b",
}
# A header that is bound to include another one.
BRINGS = {"string": {"string_view"}}
NAMES = {header: re.compile(pattern) for header, pattern in NAMES.items()}


def reachable(path, text, read):
    """The standard headers that `path` and the project's headers that it includes, include."""
    out, seen, waiting = set(), {path}, [(path, text)]
    while waiting:
        at, content = waiting.pop()
        for kind, name in INCLUDE.findall(content):
            if kind == "<":
                out |= {name} | BRINGS.get(name, set())
                continue
            for found, inner in read(at, name):
                if found not in seen:
                    seen.add(found)
                    waiting.append((found, inner))
    return out


def check_source(path, text, read):
    has = reachable(path, text, read)
    code = tidy.code_only(text)
    return [f"{path}:{tidy.line_of(code, use.start())}: {use.group()} without <{header}>"
            for header, pattern in NAMES.items() if header not in has and (use := pattern.search(code))]


def read_header(of, name):
    """As the compiler: beside the including file, then in the folders of the -I options."""
    folder = of.rpartition("/")[0]
    for candidate in (f"{folder}/{name}", *(f"{root}/{name}" for root in ("daemon", "proto", "include", "tests", "tools/nexarctl",
                                                                          "libnexar_c"))):
        if (tidy.ROOT / candidate).is_file():
            yield candidate, tidy.read(candidate)
            return


def check_repository():
    # -inl files are parts of others.
    return [complaint for path in tidy.repository_files(".cpp", ".hpp", under=FOLDERS) if "-inl." not in path
            for complaint in check_source(path, tidy.read(path), read_header)]


def self_test():
    files = {"a.hpp": "#include <vector>\n#include \"b.hpp\"", "b.hpp": "#include <map>\n#include \"a.hpp\""}

    def complaints(text):
        return check_source("daemon/a.cpp", text, lambda _, name: [(name, files[name])] if name in files else [])

    tidy.expect(complaints('#include "a.hpp"\nstd::vector<int> a;\nstd::map<int, int> b;  // std::set\nauto c = "std::set";'))
    tidy.expect(complaints("#include <string>\nstd::string_view a;"))
    tidy.expect(complaints('#include "a.hpp"\n\nstd::set<int> a;'), "daemon/a.cpp:3: std::set without <set>")
    tidy.expect(complaints("std::ranges::sort(a);"), "daemon/a.cpp:1: std::ranges::sort without <algorithm>")


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
