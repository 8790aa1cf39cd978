"""The C ABI as a text: what include/nexar.h and its parts say, measured by a C compiler, and what the library exports. The text is
stored in libnexar_c.abi beside this file; the test fails when they differ.

    description.py check  nexar.h COMPILER [libnexar_c.so]     the test
    description.py update nexar.h COMPILER libnexar_c.so       stores it anew: docs/abi.md says when that is right
    description.py tried  nexar.h COMPILER                     the test of the test

It is the same with every compiler and build, and holds nothing private: every constant with its value, every struct
with its size, alignment and each member's type, offset and size, every function as declared, every exported symbol with
its version, and the SONAME.
"""
import difflib
import os
import re
import subprocess
import sys
import tempfile

from header import whole

STORED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libnexar_c.abi")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def without_comments(text):
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    return text.replace("\\\n", " ")


def one_space(text):
    return re.sub(r"\s+", " ", text).strip()


class Header:
    """What is declared, in the order of the header."""

    def __init__(self, path):
        text = without_comments(whole(path))
        self.macros = {name: one_space(value) for name, value in
                       re.findall(r"^#define (NEXAR_\w+)[ \t]+(.*)$", text, re.MULTILINE)
                       if name not in ("NEXAR_API", "NEXAR_LINKAGE", "NEXAR_MUST_CHECK", "NEXAR_VERSION_PATCH")}
        text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
        self.constants = [one_space(item).split(" ")[0] for body in re.findall(r"\benum \{(.*?)\};", text, re.DOTALL)
                          for item in body.split(",") if item.strip()]
        self.scalars = re.findall(r"^typedef (\w+) (\w+);", text, re.MULTILINE)
        self.opaque = re.findall(r"^typedef struct (\w+) \1;", text, re.MULTILINE)
        self.structs = {name: [self.member(line) for line in body.split(";") if line.strip()]
                        for name, body in re.findall(r"^typedef struct (\w+) \{(.*?)\} \1;", text,
                                                     re.DOTALL | re.MULTILINE)}
        self.functions = sorted(one_space(f).replace("( ", "(") for f in
                                re.findall(r"^NEXAR_API (?:NEXAR_MUST_CHECK )?([^;{]*?\));", text, re.MULTILINE))

    @staticmethod
    def member(line):
        """(name, type as written)"""
        kind, name, array = re.fullmatch(r"(.*?[ *])(\w+)(\[[^]]+\])?", one_space(line)).groups()
        return name, kind.strip() + (array or "")


def measured(header, path, compiler):
    """A program prints sizes, offsets and values: the compiler decides them."""
    lines = [f'#include "{os.path.abspath(path)}"', "#include <inttypes.h>", "#include <stdio.h>", "int main(void) {"]

    def describe(form, *values):
        lines.append(f'    printf("{form}\\n"{"".join(", " + value for value in values)});')

    for name in header.constants:
        describe(f"constant {name} = %lld", f"(long long){name}")
    for name, value in header.macros.items():
        if value.startswith("{"):
            describe("initialiser " + name + " = " + value.replace("%", "%%").replace('"', '\\"'))
        else:
            describe(f"constant {name} = %s%\" PRIu64 \"", f'{name} < 0 ? "-" : ""',
                 f"(uint64_t)({name} < 0 ? 0 - (uint64_t){name} : (uint64_t){name})")
    for kind, name in header.scalars:
        describe(f"type {name} = {kind}, %zu bytes", f"sizeof({name})")
    for name in header.opaque:
        describe(f"type {name}: opaque")
    for name, members in header.structs.items():
        describe(f"struct {name}: %zu bytes, aligned to %zu", f"sizeof({name})", f"_Alignof({name})")
        for member, kind in members:
            describe(f"    {name}.{member}: {kind}, at %zu, %zu bytes", f"offsetof({name}, {member})",
                 f"sizeof((({name}*)0)->{member})")
    lines += ["    return 0;", "}"]
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "abi.c"), os.path.join(folder, "abi")
        with open(source, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
        run(compiler, "-std=c11", "-w", source, "-o", program)
        return run(program).splitlines()


def exported(library):
    symbols = sorted(line.split()[-1] for line in run("nm", "-D", "--defined-only", "--with-symbol-versions",
                                                      library).splitlines() if line.split()[-2] != "A")
    soname = re.search(r"SONAME\).*\[(.*)\]", run("readelf", "-d", library))
    return [f"soname {soname[1] if soname else 'none'}", *(f"symbol {symbol}" for symbol in symbols)]


def description(path, compiler, library):
    header = Header(path)
    text = measured(header, path, compiler) + [f"function {function}" for function in header.functions]
    return text + (exported(library) if library else [])


def complain(stored, now):
    gone = [line for line in difflib.ndiff(stored, now) if line.startswith("- ")]
    print(*(line for line in difflib.unified_diff(stored, now, "stored: tests/abi/libnexar_c.abi", "this build",
                                                  lineterm="", n=0)), sep="\n")
    print()
    if gone:
        print("The C ABI is not the one that is stored: what has '-' is gone or different, so programs that were built\n"
              "against it would break. If it is meant, it is a new 0.N (docs/abi.md, \"Changing it\").")
    else:
        print("The C ABI has more than what is stored, which breaks no program. If it is meant, store it.")
    print("To store it:  ninja -C BUILD_FOLDER update_abi")


CHANGES = {  # to the header: (what, instead), and whether that takes something away
    "a longer member": ("int32_t priority;", "int64_t priority;", True),
    "a member renamed": ("uint64_t user_data;", "uint64_t cookie;", True),
    "a constant moved": ("NEXAR_ERR_ABORTED = -303", "NEXAR_ERR_ABORTED = -309", True),
    "another parameter": ("nexar_request_free(nexar_request request)", "nexar_request_free(nexar_request r, int i)", True),
    "a function more": ("NEXAR_API void nexar_perror", "NEXAR_API void nexar_more(void);\nNEXAR_API void nexar_perror", False),
    "a constant more": ("NEXAR_ERR_IO = -801", "NEXAR_ERR_IO = -801, NEXAR_ERR_MORE = -802", False),
}


def tried(path, compiler):
    """Each of these changes is found, and called what it is."""
    header = whole(path)
    bad, before = 0, description(path, compiler, None)
    for what, (old, new, takes_away) in CHANGES.items():
        with tempfile.NamedTemporaryFile("w", suffix=".h") as changed:
            changed.write(header.replace(old, new, 1))
            changed.flush()
            after = description(changed.name, compiler, None)
        gone = any(line.startswith("- ") for line in difflib.ndiff(before, after))
        if after == before or gone != takes_away:
            print(f"{what}: {'not seen' if after == before else 'taken for the other kind of change'}")
            bad = 1
    return bad


def main():
    what, path, compiler = sys.argv[1:4]
    library = sys.argv[4] if len(sys.argv) > 4 else None
    if what == "tried":
        return tried(path, compiler)
    now = description(path, compiler, library)
    if what == "update":
        with open(STORED, "w", encoding="utf-8") as file:
            file.write("\n".join(now) + "\n")
        return 0
    with open(STORED, encoding="utf-8") as file:
        stored = [line for line in file.read().splitlines() if library or not line.startswith(("soname ", "symbol "))]
    if stored != now:
        complain(stored, now)
        return 1
    print(f"{len(now)} lines, all as stored")
    return 0


if __name__ == "__main__":
    sys.exit(main())
