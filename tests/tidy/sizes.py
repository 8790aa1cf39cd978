"""No source file over 600 lines (split the object that owns the state first), no function over 70. No line of the C header
over 120 columns: it is read as it stands, and clang-format leaves it alone."""

import ast
import re

import tidy

LIMIT = 600
MANUAL = "include/"  # what programs include, and people read
COLUMNS = 120
FUNCTION_LIMIT = 70  # from the line of its name to its closing brace
SUFFIXES = (".h", ".hpp", ".c", ".cpp", ".cu", ".py", ".sh", ".cmake", "CMakeLists.txt", ".capnp", ".rs", ".jl")
SCRIPTS_WITHOUT_SUFFIX = ("tools", ".ci")
C_LIKE = (".h", ".hpp", ".c", ".cpp", ".cu")

# What stands before the brace of a scope, in which functions stand.
SCOPE = re.compile(r'(template\s*<.*>\s*)?((inline|typedef)\s+)*(namespace|extern ""|class|struct|union|enum)\b', re.DOTALL)
LABELS = re.compile(r"(\s*(public|private|protected)\s*:(?!:))*\s*")


def preprocessed(code):
    """Without directives; of #if ... #else ... #endif the first part only, so that braces stay in pairs."""
    lines, skipping, joined = [], [], False
    for line in code.split("\n"):
        directive = re.match(r"\s*#\s*(\w+)", line)
        word = directive.group(1) if directive else ""
        if word in ("if", "ifdef", "ifndef"):
            skipping.append(False)
        elif word in ("else", "elif") and skipping:
            skipping[-1] = True
        elif word == "endif" and skipping:
            skipping.pop()
        lines.append("" if directive or joined or any(skipping) else line)
        joined = (directive or joined) and line.endswith("\\")
    return "\n".join(lines)


def c_functions(text):
    """(words before the brace, line, lines) of every function: what has parentheses before a brace that stands in
    nothing but scopes."""
    code = preprocessed(tidy.code_only(text))
    statement, depth, function = 0, 0, None  # where it begins; braces open in a function or a value; (words, begin)
    for match in re.finditer(r"[{};]", code):
        mark, at = match.group(0), match.start()
        if depth > 0 and mark != ";":
            depth += 1 if mark == "{" else -1
            if depth == 0 and function:
                first, last = tidy.line_of(code, function[1]), tidy.line_of(code, at)
                yield function[0], first, last - first + 1
            if depth > 0 or re.match(r"\s*[,{]", code[at + 1 : at + 99]):  # another member's value, or the body itself
                continue
        elif mark == "{":
            begin = LABELS.match(code, statement).end()
            words = " ".join(code[begin:at].split())
            if not SCOPE.match(words) or words.endswith(")"):
                depth, function = 1, (words, begin) if ")" in words else None
                continue
        if depth == 0:
            statement = at + 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def functions(path, text):
    if path.endswith(C_LIKE):
        return list(c_functions(text))
    return list(python_functions(text)) if path.endswith(".py") else []


def check_file(path, text):
    lines = len(text.splitlines())
    complaints = [f"{path}: {lines} lines, the limit is {LIMIT}"] if lines > LIMIT else []
    if path.startswith(MANUAL):
        complaints += [f"{path}:{number}: {len(line)} columns, the limit is {COLUMNS}"
                       for number, line in enumerate(text.splitlines(), 1) if len(line) > COLUMNS]
    return complaints + [f"{path}:{line}: a function of {lines} lines, the limit is {FUNCTION_LIMIT}: {words[:60]}"
                         for words, line, lines in functions(path, text) if lines > FUNCTION_LIMIT]


def check_repository():
    files = set(tidy.repository_files(*SUFFIXES))
    files |= {name for name in tidy.repository_files("", under=SCRIPTS_WITHOUT_SUFFIX) if "." not in name.split("/")[-1]}
    return [complaint for path in sorted(files) for complaint in check_file(path, tidy.read(path))]


def self_test():
    tidy.expect(check_file("good.sh", "x\n" * LIMIT))
    tidy.expect(check_file("bad.sh", "x\n" * (LIMIT + 1)), "bad.sh: 601 lines")
    tidy.expect(check_file(f"{MANUAL}a.h", "x" * COLUMNS + "\n"))
    tidy.expect(check_file(f"{MANUAL}a.h", "\n" + "x" * (COLUMNS + 1)), f"{MANUAL}a.h:2: 121 columns")
    full, over = "    x();\n" * (FUNCTION_LIMIT - 2), "    if (x) {\n    }\n" * (FUNCTION_LIMIT // 2)
    scope = "namespace a {\nstruct alignas(8) B : C<D> {\n  private:\n    int x = f();\n"
    tidy.expect(check_file("good.cpp", f"{scope}    int f(int a) const {{\n{full}}}\n" * 2))
    tidy.expect(check_file("good.cpp", "enum { a };\n" + "namespace {\n" + "int x;\n" * 80 + "}\n"))
    for head in ("int f() {", "template <class T>\nauto f(T a) -> B<T> {", f"{scope}    ~B() override {{",
                 f"{scope}    B() : a{{1}}, b{{2}} {{", 'TEST_CASE("a {", "[b]") {', "struct S f(void) {"):
        begin = max(1, head[: head.rfind("\n", 0, -1) + 1].count("\n") + 1 - head.startswith("template"))
        tidy.expect(check_file("bad.cpp", f"{head}\n{over}}}\n"), f"bad.cpp:{begin}: a function of 7")
    tidy.expect(check_file("bad.cpp", f"int f() {{\n#ifdef A\n    if (a) {{\n#else\n    if (b) {{\n#endif\n{over}}}\n}}\n"),
                "bad.cpp:1: a function of 78")
    tidy.expect(check_file("bad.py", "def f():\n" + "    x()\n" * FUNCTION_LIMIT), "bad.py:1: a function of 71 lines")


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
