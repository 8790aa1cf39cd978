"""The places that documents name exist: `Class::function` in `path`, and each `path` of a file in the repository."""

import re

import tidy

PAGES = ("docs/ARCHITECTURE.md", "docs/adding.md")
ROOTS = ("daemon", "libnexar_c", "include", "proto", "tests", "tools", "bindings", "examples", "docs", "systemd", "cmake")
NAMED = re.compile(r"`([A-Za-z_][\w:]*)`\s+in\s+`([\w./-]+)`")
PATH = re.compile(rf"`((?:{'|'.join(ROOTS)})/[\w./-]*)`")


def check_page(page, text, exists, read):
    complaints = []
    for match in PATH.finditer(text):
        path = match.group(1)
        if not exists(path):
            complaints.append(f"{page}:{tidy.line_of(text, match.start())}: there is no {path}")
    for match in NAMED.finditer(text):
        name, path = match.group(1), match.group(2)
        if exists(path) and not re.search(rf"\b{re.escape(name.split('::')[-1])}\b", read(path)):
            complaints.append(f"{page}:{tidy.line_of(text, match.start())}: {path} has no {name}")
    return complaints


def check_repository():
    pages = [page for page in PAGES if (tidy.ROOT / page).is_file()]
    return [complaint for page in pages for complaint in
            check_page(page, tidy.read(page), lambda path: (tidy.ROOT / path).exists(), tidy.read)]


def self_test():
    files = {"daemon/a.cpp": "void A::go() {}"}

    def complaints(text):
        return check_page("docs/p.md", text, lambda path: path in files, files.get)

    tidy.expect(complaints("`A::go` in\n`daemon/a.cpp` and `other` in `words`, `a/b`"))
    tidy.expect(complaints("\n`A::come` in `daemon/a.cpp`"), "docs/p.md:2: daemon/a.cpp has no A::come")
    tidy.expect(complaints("`A::go` in `daemon/b.cpp`"), "docs/p.md:1: there is no daemon/b.cpp")


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
