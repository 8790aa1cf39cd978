"""Every #include in daemon/ and libnexar_c/ follows the layer table, which is read from daemon/CMakeLists.txt."""

import re

import tidy

# libnexar_c is part of applications: it may not pull in more of the daemon than this.
LIBNEXAR_C = {"core", "shm"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)


def read_table(text):
    """name -> (set of modules it may use, is it wet?), from the nexar_module(...) lines."""
    table = {}
    text = re.sub(r"#[^\n]*", "", text)
    for words in re.findall(r"nexar_module\s*\(([^)]*)\)", text):
        lists, current, flags = {"NAME": [], "USES": [], "DEPS": []}, None, set()
        for word in words.split():
            if word in lists:
                current = word
            elif word in ("DRY", "WET"):
                flags.add(word)
            else:
                lists[current].append(word)
        table[lists["NAME"][0]] = (set(lists["USES"]), "WET" in flags)
    return table


def check_table(table):
    """The table itself: known names, dry never uses wet, no cycles (a module uses only those above it)."""
    complaints, seen = [], set()
    for name, (uses, wet) in table.items():
        for used in sorted(uses - seen):
            reason = "comes later in the table" if used in table else "is not in the table"
            complaints.append(f"daemon/CMakeLists.txt: {name} uses {used}, which {reason}")
        for used in sorted(uses & seen):
            if not wet and table[used][1]:
                complaints.append(f"daemon/CMakeLists.txt: dry {name} may not use wet {used}")
        seen.add(name)
    return complaints


def module_of(path):
    parts = path.split("/")
    return parts[1] if parts[0] == "daemon" and len(parts) > 2 else None


def check_include(path, header, table):
    """The complaint about one include, or None."""
    module = module_of(path)
    used = header.split("/")[0] if "/" in header else None
    if path.startswith("libnexar_c/"):
        if used in table and used not in LIBNEXAR_C:
            return f"libnexar_c may use only {' and '.join(sorted(LIBNEXAR_C))}, not {used}/"
    elif module in table and used in table and used != module and used not in table[module][0]:
        return f"{module}/ may not use {used}/ (see the layer table in daemon/CMakeLists.txt)"
    if header == "uv.h" and module != "loop":
        return "only loop/ may include <uv.h>"
    is_capnp = header.endswith(".capnp.h") or header.startswith(("capnp/", "kj/"))
    if is_capnp and not (module == "wire" and path.endswith("codec.cpp")):
        return f"only wire/*codec.cpp may include Cap'n Proto ({header})"
    return None


def check_file(path, text, table):
    complaints = []
    if path.startswith("daemon/") and path.count("/") > 1 and module_of(path) not in table:
        complaints.append(f"{path}: {module_of(path)}/ is not in the layer table")
    for match in INCLUDE.finditer(text):
        complaint = check_include(path, match.group(1), table)
        if complaint:
            complaints.append(f"{path}:{tidy.line_of(text, match.start(1))}: {complaint}")
    return complaints


def check_repository():
    table = read_table(tidy.read("daemon/CMakeLists.txt"))
    complaints = check_table(table)
    for path in tidy.repository_files(".h", ".hpp", ".c", ".cpp", ".cu", under=("daemon", "libnexar_c")):
        complaints += check_file(path, tidy.read(path), table)
    return complaints


def self_test():
    table = read_table(
        "nexar_module(NAME core USES DEPS spdlog DRY) # nexar_module(NAME no USES x)\n"
        "nexar_module(NAME shm USES core DRY)\nnexar_module(NAME wire USES core DRY)\n"
        "nexar_module(NAME task\n  USES core DRY)\nnexar_module(NAME loop USES core task DEPS uv WET)\n"
    )
    assert table["loop"] == ({"core", "task"}, True) and list(table) == ["core", "shm", "wire", "task", "loop"], table
    tidy.expect(check_table(table))
    tidy.expect(check_table({"a": ({"b"}, False), "b": ({"x"}, True)}), "comes later", "not in the table")
    tidy.expect(check_table({"w": (set(), True), "d": ({"w"}, False)}), "dry d may not use wet w")

    def one(path, text):
        return check_file(path, text, table)

    good = '#include "core/result.hpp"\n#include <vector>\n#include "task/op.hpp"\n#include <sys/uio.h>\n'
    tidy.expect(one("daemon/task/task.cpp", good))
    tidy.expect(one("daemon/loop/loop.cpp", "#include <uv.h>\n" + good))
    tidy.expect(one("daemon/wire/control_codec.cpp", '#include "wire.capnp.h"\n#include <capnp/serialize.h>\n'))
    tidy.expect(one("libnexar_c/a.cpp", '#include "shm/ring.hpp"\n'))
    tidy.expect(one("daemon/task/bad.hpp", 'int a;\n#  include "loop/loop.hpp"\n'), "bad.hpp:2: task/ may not use loop/")
    tidy.expect(one("daemon/core/bad.cpp", '#include "task/op.hpp"\n'), "core/ may not use task/")
    tidy.expect(one("daemon/core/bad.cpp", "#include <uv.h>\n"), "<uv.h>")
    tidy.expect(one("daemon/wire/messages.cpp", "#include <kj/common.h>\n"), "Cap'n Proto")
    tidy.expect(one("daemon/wire/codec.hpp", '#include "wire.capnp.h"\n'), "Cap'n Proto")
    tidy.expect(one("daemon/nowhere/bad.cpp", ""), "not in the layer table")
    tidy.expect(one("libnexar_c/bad.cpp", '#include "wire/codec.hpp"\n'), "libnexar_c may use only")


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
