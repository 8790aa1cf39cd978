"""include/nexar.h with its parts."""
import os
import re


def whole(path):
    """The text of the header with each part, once, where it is first included: what a compiler reads, without other headers."""
    seen = set()

    def expanded(file_path):
        with open(file_path, encoding="utf-8") as file:
            text = file.read()

        def part(match):
            name = os.path.join(os.path.dirname(file_path), match[1])
            if name in seen:
                return ""
            seen.add(name)
            return expanded(name)
        return re.sub(r'^#include "([^"]+)".*\n', part, text, flags=re.MULTILINE)
    return expanded(os.path.realpath(path))
