"""Style rules on co_await: its statement holds names, moves, literals and calls; no coroutine is a lambda.

Why: compilers have miscompiled temporaries made by lambdas, braced lists and ?: inside an await (their lifetime
ends too early or twice), and a lambda coroutine reads its captures after the lambda object has gone.
"""

import re

import tidy


def is_initializer(code, offset):
    """Whether the brace at offset opens a value (`Pair{1}`, `= {1}`) and not a block; the format distinguishes them."""
    before = code[:offset]
    if re.search(r"[\w>\])]$", before):
        return True
    return re.search(r"([=,(\[{]|\breturn|\bco_return)\s*$", before) is not None and not before.endswith("{\n")


def opening(code, offset):
    """The offset of the brace that the one at offset closes."""
    depth = 0
    for position in range(offset, -1, -1):
        depth += (code[position] == "}") - (code[position] == "{")
        if depth == 0:
            return position
    return 0


def statement_start(code, offset):
    """Back to the last ; or block brace; braces of values are part of the statement."""
    position = offset - 1
    while position >= 0:
        mark = code[position]
        if mark == ";" or (mark == "{" and not is_initializer(code, position)):
            return position + 1
        if mark == "}":
            position = opening(code, position)
            if not is_initializer(code, position):
                return closing(code, position) + 1
        position -= 1
    return 0


def statement_around(code, offset):
    """(start, end) of the statement that holds offset."""
    start = statement_start(code, offset)
    depth = 0
    for end in range(offset, len(code)):
        mark = code[end]
        if mark == "{" and opens_block(code, end):
            return start, end
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
        if depth < 0 and mark == "}":
            return start, end
        if mark == ";" and depth <= 0:
            return start, end
    return start, len(code)


def opens_block(code, offset):
    """A brace after `)` that is not inside parentheses opens the block of if/while/for: the statement ends there."""
    before = code[:offset].rstrip()
    if not before.endswith(")"):
        return False
    depth = 0
    for position in range(len(before) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(before[position], 0)
        if depth == 0:
            return re.search(r"\b(if|while|for|switch)\s*(constexpr\s*)?$", before[:position]) is not None
    return False


LAMBDA = re.compile(r"(?<![\w\])])\[[^\[\]]*\]\s*(\([^()]*\)|\{|<)")


def check_statement(statement):
    if LAMBDA.search(statement):
        return "no lambda in a co_await statement: name it on the line before"
    if "{" in statement:
        return "no braces in a co_await statement: name the value on the line before"
    if "?" in statement:
        return "no ?: in a co_await statement: choose on the line before"
    return None


def closing(code, offset):
    """The offset of the bracket that closes the one at offset."""
    depth = 0
    for position in range(offset, len(code)):
        depth += (code[position] in "([{") - (code[position] in ")]}")
        if depth == 0:
            return position
    return len(code)


LAMBDA_START = re.compile(
    r"(?<![\w\])])\[[^\[\]]*\]\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*(?:mutable\s*|noexcept\s*)*(?:->\s*[^{;]*)?\{"
)


def lambda_coroutines(code):
    for match in LAMBDA_START.finditer(code):
        opening = match.end() - 1
        if re.search(r"\bco_(await|return|yield)\b", code[opening : closing(code, opening)]):
            yield match.start()


def check_file(path, text):
    code = tidy.code_only(text)
    complaints = []
    for match in re.finditer(r"\bco_await\b", code):
        if re.search(r"operator\s*$", code[: match.start()]):
            continue
        start, end = statement_around(code, match.start())
        complaint = check_statement(code[start:end])
        if complaint:
            complaints.append(f"{path}:{tidy.line_of(code, match.start())}: {complaint}")
    for offset in lambda_coroutines(code):
        complaints.append(f"{path}:{tidy.line_of(code, offset)}: a coroutine is a named function, never a lambda")
    return complaints


def check_repository():
    complaints = []
    for path in tidy.repository_files(".hpp", ".cpp", under=("daemon", "libnexar_c", "tests", "tools")):
        text = tidy.read(path)
        if "co_" in text:
            complaints += check_file(path, text)
    return complaints


GOOD = """
// co_await f([] { return 1; });
Task<int> f(Span<int> a) {
    const char* text = "co_await x ? y : z;";
    int big = 1'000'000;
    auto value = co_await send(peer, std::move(a[0]), 3);
    if (co_await ready(a)) { g(); } else { h(); }
    while (!(co_await ready(a))) {
        g();
    }
    for (int i = co_await first(); i < 3; ++i) { g(); }
    auto pick = [&](int x) { return x ? 1 : 2; };
    co_return co_await next(table[1](2));
}
void Op::operator co_await() { return Awaiter{}; }
"""


def self_test():
    tidy.expect(check_file("good.cpp", GOOD))
    for bad, fragment in (
        ("void f() {\n co_await send([&] { return 1; }); }", "no lambda"),
        ("void f() { co_await send(Message{1, 2}); }", "no braces"),
        ("void f() { auto x = Pair{co_await a(), 1}; }", "no braces"),
        ("Task<int> f() { co_return {co_await a(), 1}; }", "no braces"),
        ("void f() { send(Message{1}, co_await a()); }", "no braces"),
        ("void f() { if (x) { g(); } send(Pair<int>{1}, co_await a()); }", "no braces"),
        ("void f() { co_await send(a ? b : c); }", "no ?:"),
        ("void f() { if (co_await send(Message{1})) { g(); } }", "no braces"),
        ("void f() { auto x = flag ? co_await a() : 0; }", "no ?:"),
        ("auto l = [x]() -> Task<int> { co_return x; };", "never a lambda"),
        ("auto l = [x](std::function<void(int)> y) mutable -> Task<int> { auto z = 1; co_await y(z); };", "never a lambda"),
    ):
        tidy.expect(check_file("bad.cpp", bad), fragment)


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
