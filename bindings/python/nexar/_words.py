"""The library's texts name what C has. Here are Python's names for it."""
from __future__ import annotations

import re
from collections.abc import Callable

from ._arrays import OPS

# match_id of the two collectives of each that has two, of lengths and of pickles: so what another rank does instead is never taken for
# one of them, and texts have the function that the program has called.
OBJECTS: dict[str, tuple[int, int]] = {
    function: (int.from_bytes(letters + b" lengt", "big"), int.from_bytes(letters + b" pickl", "big")) for function, letters in (
        ("bcast_object", b"b"), ("gather_object", b"g"), ("all_gather_object", b"a"), ("scatter_object", b"s"))}
_OF_OBJECTS = {str(match_id): function for function, both in OBJECTS.items() for match_id in both}


def _of_objects(found: re.Match[str]) -> str:
    """A collective that objects travel in."""
    function = _OF_OBJECTS.get(found["id"])
    root = re.search(r" root \d+", found[0])
    return found[0] if function is None else function + (root[0] if root else "")


_WORDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"between nexar_ops_begin and nexar_ops_end", "inside session.ops()"),
    (r"has not called nexar_ops_begin", "is not inside session.ops()"),
    (r"nexar_ops_end", "the end of session.ops()"),
    (r"only one of nexar_\.\.\._init", "only one of x_init"),
    (r"nexar_(?:\w+)_options\.(\w+?)(?:_ms)?\b", r"\1="),
    (r"nexar_(alloc|register_memfd)\b", r"session.\1"),
    (r"nexar_group_(dup|split|create|free|abort)\b", r"group.\1"),
    (r"nexar_request_(\w+)", r"Request.\1"),
    (r"\b(\w*timeout|daemon_unresponsive)_ms\b", r"\1="),
    (r"NEXAR_(?:TIMEOUT|PRIORITY)_DEFAULT \(-1\)", "None"),
    (r"NEXAR_TIMEOUT_NONE \(-2\)", "nexar.NO_TIMEOUT"),
    (r"NEXAR_PRIORITY_(CRITICAL|REALTIME|BULK)\b", r"nexar.Priority.\1"),
    (r"NEXAR_(RANK_AUTO|ANY_TAG|ANY_SOURCE)\b", r"nexar.\1"),
    (rf"NEXAR_({'|'.join(name.upper() for name in OPS)})\b", lambda found: f'op="{found[1].lower()}"'),
    (r"NEXAR_(FLAG_\w+)", r"nexar.\1"),
    (r"number of milliseconds", "number of seconds"),
    (r" \(were the options initialised with NEXAR_OP_OPTIONS_INIT\?\)", ""),
    (r"\bNULL\b", "None"),
    (r"\b\w+ u(?:8|64)(?: (?:(?! called )[^;:])*?)? match_id (?P<id>\d+)", _of_objects),
)


def in_python(text: str) -> str:
    """NEXAR_GROUP and its like stay: variables have one name."""
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text)
    return text
