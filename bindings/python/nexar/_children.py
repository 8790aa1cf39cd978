"""Children of a group: groups of some of its ranks."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_int64, c_uint32, c_uint64
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _library
from ._calls import Calls
from ._errors import check
from ._library import COLOUR_UNDEFINED, NO_TIMEOUT, NONE_MS, lib, milliseconds, options
from ._requests import Request, opening

if TYPE_CHECKING:
    from ._group import Group


class Plan(NamedTuple):
    """A group's plan table, as nexar_group_info has it: how its collectives are carried out."""
    version: int
    lanes: int
    chunk_bytes: int
    shards: int
    segment_bytes: int
    small_bytes_max: int
    doubling_bytes_max: int


class Info(NamedTuple):
    """Of a group. Time-outs in seconds; parent and parent_id are None where it was opened. on_failure: the policy, 0, abort."""
    name: str
    id: tuple[int, ...]
    epoch: int
    rank: int
    size: int
    nodes: int
    parent: str | None
    parent_id: tuple[int, ...] | None
    collective_timeout: float
    barrier_timeout: float
    rpc_timeout: float
    on_failure: int
    plan: Plan


class Member(NamedTuple):
    """Where a rank of a group is. local_rank and local_size: among the group's ranks on its node, in rank order."""
    rank: int
    node: str
    host: str
    pid: int
    local_rank: int
    local_size: int


class Children(Calls):
    """Collectives that make groups; see nexar.Group. Each takes, by name: timeout= (of the call) and match_id=; and
    collective_timeout=, barrier_timeout=, rpc_timeout= of the child's operations: None is the other members' value, or else
    the parent's. All in seconds."""

    def split(self, colour: int | None, key: int = 0, **given: Any) -> Group | None:
        """The child of the ranks that give the same colour, 0 .. 2**32 - 2, in the order of their keys; equal keys in this
        group's order. colour None: no child, and None is returned. The child outlives this group, and is freed like any."""
        return self._alone(lambda: self.__split(colour, key, hidden=True, **given)._finish())  # type: ignore[no-any-return]

    def split_start(self, colour: int | None, key: int = 0, *, user_data: int = 0, **given: Any) -> Request:
        """Begins split. The Request's wait() returns the Group, or None."""
        return self._alone(lambda: self.__split(colour, key, user_data=user_data, **given))  # type: ignore[no-any-return]

    def dup(self, **given: Any) -> Group:
        """A child with the same ranks: for a thread, or a library, that needs an order of collectives of its own."""
        return self._alone(lambda: self.__dup(hidden=True, **given)._finish())  # type: ignore[no-any-return]

    def dup_start(self, *, user_data: int = 0, **given: Any) -> Request:
        """Begins dup. The Request's wait() returns the Group."""
        return self._alone(lambda: self.__dup(user_data=user_data, **given))  # type: ignore[no-any-return]

    def create(self, ranks: Sequence[int], tag: int = 0, **given: Any) -> Group:
        """A child of these ranks, in the order of the list. Only they call, each with the same list, in any thread; it has
        no place in this group's order, and takes no match_id. Creates that run at the same time have tags of their own. After
        a cancel or a timeout the other ranks wait on: a call again with the same list and tag can complete their first call,
        so a program that does not know what the others have got uses a new tag."""
        return self.__create(ranks, tag, hidden=True, **given)._finish()  # type: ignore[no-any-return]

    def create_start(self, ranks: Sequence[int], tag: int = 0, *, user_data: int = 0, **given: Any) -> Request:
        """Begins create. The Request's wait() returns the Group."""
        return self.__create(ranks, tag, user_data=user_data, **given)

    def info(self) -> Info:
        """What the group is, as nexar_group_info_get."""
        given = _library.GroupInfo(struct_size=ctypes.sizeof(_library.GroupInfo))
        check(lib.nexar_group_info_get(self._handle, byref(given)))
        times = (given.collective_timeout_ms, given.barrier_timeout_ms, given.rpc_timeout_ms)
        parent = tuple(given.parent_id)
        collective, barrier, rpc = (NO_TIMEOUT if ms == NONE_MS else ms / 1000 for ms in times)
        return Info(given.name.decode(), tuple(given.id), given.epoch, given.rank, given.size, given.nodes,
                    given.parent_name.decode() if any(parent) else None, parent if any(parent) else None,
                    collective, barrier, rpc, given.on_failure, Plan(*(getattr(given, f"plan_{name}") for name in Plan._fields)))

    def member(self, rank: int) -> Member:
        """Where a rank is: its node (64 hex digits), host ("" if not known), process, and its number on that node."""
        given = _library.GroupMember(struct_size=ctypes.sizeof(_library.GroupMember))
        _library.check_numbers(lib.nexar_group_member_get, self._handle, rank)
        check(lib.nexar_group_member_get(self._handle, rank, byref(given)))
        return Member(given.rank, given.node.decode(), given.host.decode(), given.pid, given.local_rank, given.local_size)

    def translate(self, ranks: Sequence[int], to: Group) -> list[int | None]:
        """These ranks of this group, as ranks of another one that comes from the same opened group: parent, child, child of
        a child. None: the process has no rank there."""
        given = _ranks(ranks)
        count = len(given)
        if not isinstance(to, Children):
            raise TypeError(f"to is {_library.shown(to)}; allowed: a nexar.Group")
        check(lib.nexar_group_translate(self._handle, given, count, to._handle, given))
        return [None if rank == COLOUR_UNDEFINED else rank for rank in given]

    def __split(self, colour: int | None, key: int, **given: Any) -> Request:
        allowed = "an integer, 0 to 2**32 - 2, or None: no child"
        if colour is not None and not 0 <= _library.integer(colour, "colour", allowed) < COLOUR_UNDEFINED:
            raise ValueError(f"colour is {colour}; allowed: {allowed}")
        key = _library.checked(c_int64, key, "key")
        return self.__start(lib.nexar_group_split_start, COLOUR_UNDEFINED if colour is None else colour, key, **given)

    def __dup(self, **given: Any) -> Request:
        return self.__start(lib.nexar_group_dup_start, **given)

    def __create(self, ranks: Sequence[int], tag: int, hidden: bool = False, user_data: int = 0,
                 **times: float | None) -> Request:
        given = _ranks(ranks)
        wanted = options(_library.CreateOptions, lib.nexar_create_options_init, tag=_library.checked(c_uint64, tag, "tag"),
                         **_milliseconds("", times))
        return self.__request(lib.nexar_group_create_start, wanted, given, len(given), hidden=hidden, user_data=user_data)

    def __start(self, function: Any, *arguments: Any, hidden: bool = False, user_data: int = 0, match_id: int = 0,
                **times: float | None) -> Request:
        wanted = options(_library.ChildOptions, lib.nexar_child_options_init, match_id=_library.checked(c_uint64, match_id, "match_id"),
                         **_milliseconds("match_id and ", times))
        return self.__request(function, wanted, *arguments, hidden=hidden, user_data=user_data)

    def __request(self, function: Any, wanted: Any, *arguments: Any, hidden: bool, user_data: int) -> Request:
        connection = self._connection

        def start(mine: int, number: Any) -> int:
            wanted.user_data = mine
            return int(function(self._handle, *arguments, byref(wanted), number))

        return opening(Request(connection, function.__name__, self._weak, (self, wanted), None, connection.opened, user_data),
                       start, hidden)


def _ranks(ranks: Sequence[int]) -> Any:
    listed = _library.entries(ranks, "ranks", "a list of ranks of this group")
    return (c_uint32 * len(listed))(*(_library.checked(_library.Rank, rank, f"ranks[{index}]") for index, rank in enumerate(listed)))


def _milliseconds(others: str, times: dict[str, float | None]) -> dict[str, int]:
    unknown = times.keys() - set(_TIMES)
    if unknown:
        raise TypeError(f"unknown options {sorted(unknown)}; there are {others}{', '.join(_TIMES)}")
    return {f"{name}_ms": milliseconds(value, name) for name, value in times.items()}


_TIMES = ("timeout", "collective_timeout", "barrier_timeout", "rpc_timeout")
