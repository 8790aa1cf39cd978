"""The places that documents name exist: `Class::function` in `path`, and each `path` of a file in the repository."""

import re

import tidy

# Not the decisions: they name what there was.
PAGES = ("README.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/abi.md", "docs/adding.md", "docs/glossary.md",
         "docs/operations.md", "docs/containers.md", "docs/errors.md", "docs/coming-from-mpi.md", "docs/coming-from-nccl.md",
         "docs/coming-from-torch.md")
FOLDER = "docs/protocol"
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
        if exists(path) and not all(re.search(rf"\b{part}\b", read(path)) for part in name.split("::")):
            complaints.append(f"{page}:{tidy.line_of(text, match.start())}: {path} has no {name}")
    return complaints


def check_repository():
    pages = [page for page in PAGES if (tidy.ROOT / page).is_file()]
    pages += tidy.repository_files(".md", under=(FOLDER,))
    return [complaint for page in pages for complaint in check_page(page, tidy.read(page), exists, read)]


def exists(path):
    """A file, a folder, or a pair of .hpp and .cpp that is named without its ending."""
    return (tidy.ROOT / path).exists() or (tidy.ROOT / f"{path}.hpp").is_file()


def read(path):
    files = [path] if (tidy.ROOT / path).is_file() else tidy.repository_files("", under=(path,)) or [
        path + ending for ending in (".hpp", ".cpp") if (tidy.ROOT / (path + ending)).is_file()]
    return "".join(tidy.read(file) for file in files)


def self_test():
    files = {"daemon/a.cpp": "void A::go() {}"}

    def complaints(text):
        return check_page("docs/p.md", text, lambda path: path in files, files.get)

    tidy.expect(complaints("`A::go` in\n`daemon/a.cpp` and `other` in `words`, `a/b`"))
    tidy.expect(complaints("\n`A::come` in `daemon/a.cpp`"), "docs/p.md:2: daemon/a.cpp has no A::come")
    tidy.expect(complaints("`B::go` in `daemon/a.cpp`"), "docs/p.md:1: daemon/a.cpp has no B::go")
    tidy.expect(complaints("`A::go` in `daemon/b.cpp`"), "docs/p.md:1: there is no daemon/b.cpp")


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
