"""Collectives: made by bindings/generate.py from proto/operations.def."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _quick
from ._arrays import ARRAYS, COPIED, Memory, Number, Values, copy_of
from ._calls import Calls, as_given
from ._library import Root, checked
from ._requests import Persistent, Request
from ._rows import ROWS


class Collectives(Calls):
    """Of a group; see nexar.Group."""

    def barrier(self, *, timeout: float | None = None, match_id: int = 0, user_data: int = 0,
                priority: int | None = None, flags: int = 0) -> Any:
        """Ends when every rank has started it. Raises nexar.Error."""
        if not self._dropped:
            done = _quick.nothing(0, self._gate, self._handle, timeout, match_id, priority, flags, None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["barrier"], timeout=timeout, match_id=match_id, user_data=user_data, priority=priority, flags=flags)

    def barrier_start(self, *, timeout: float | None = None, match_id: int = 0, user_data: int = 0,
                      priority: int | None = None, flags: int = 0) -> Request:
        """Begins barrier: the Request's wait() returns what it returns."""
        if (not self._dropped or self._may_start()):
            request = Request(self._connection, "barrier", self._weak, (self,), None, None, user_data)
            begun = _quick.nothing(0, self._gate, self._handle, timeout, match_id, priority, flags, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["barrier"], timeout=timeout, match_id=match_id, user_data=user_data, priority=priority, flags=flags)

    def barrier_init(self, *, timeout: float | None = None, match_id: int = 0, user_data: int = 0,
                     priority: int | None = None, flags: int = 0) -> Persistent:
        """Prepares barrier: each start() begins it, with what its memory holds then, and wait() returns what it returns.
        Raises nexar.Error."""
        return self._init(ROWS["barrier"], timeout=timeout, match_id=match_id, user_data=user_data, priority=priority, flags=flags)

    def all_reduce(self, values: Values, out: Memory | None = None, op: str = "sum", *, scalar: Number | None = None,
                   timeout: float | None = None, match_id: int = 0, user_data: int = 0, priority: int | None = None,
                   flags: int = 0) -> Any:
        """out[i] is the reduction of all ranks' values[i], on every rank. Returns out; None: values itself (in place).
        Raises ValueError for memory that does not fit, and nexar.Error."""
        if not self._dropped:
            done = _quick.sides(1, self._gate, self._handle, values, out, op, scalar, 0, 1, 1, timeout, match_id, priority, flags, None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["all_reduce"], values, out=out, op=op, scalar=scalar, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def all_reduce_start(self, values: Values, out: Memory | None = None, op: str = "sum", *,
                         scalar: Number | None = None, timeout: float | None = None, match_id: int = 0,
                         user_data: int = 0, priority: int | None = None, flags: int = 0) -> Request:
        """Begins all_reduce: the Request's wait() returns what it returns."""
        given = copy_of(values) if type(values) not in ARRAYS and isinstance(values, COPIED) else values
        if (not self._dropped or self._may_start()):
            request = Request(self._connection, "all_reduce", self._weak, (self, given, out), given if out is None else out, as_given if
                given is not values and out is None else None, user_data)
            begun = _quick.sides(1, self._gate, self._handle, given, out, op, scalar, 0, 1, 1, timeout, match_id, priority, flags, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["all_reduce"], values, out=out, op=op, scalar=scalar, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def all_reduce_init(self, values: Values, out: Memory | None = None, op: str = "sum", *,
                        scalar: Number | None = None, timeout: float | None = None, match_id: int = 0,
                        user_data: int = 0, priority: int | None = None, flags: int = 0) -> Persistent:
        """Prepares all_reduce: each start() begins it, with what its memory holds then, and wait() returns what it
        returns. Lists and numbers are a TypeError. Raises ValueError for memory that does not fit, and nexar.Error."""
        return self._init(ROWS["all_reduce"], values, out=out, op=op, scalar=scalar, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def reduce(self, values: Values, out: Memory | None = None, op: str = "sum", root: int = 0, *,
               scalar: Number | None = None, timeout: float | None = None, match_id: int = 0, user_data: int = 0,
               priority: int | None = None, flags: int = 0) -> Any:
        """out[i] is the reduction of all ranks' values[i], on the root only. The root gets out (None: values itself);
        the others get None, and their out is not looked at. Raises ValueError for memory that does not fit, and
        nexar.Error."""
        if not self._dropped:
            done = _quick.sides(2, self._gate, self._handle, values, out, op, scalar, root, 1, root == self.rank, timeout, match_id,
                priority, flags, None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["reduce"], values, out=out, op=op, root=root, scalar=scalar, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def reduce_start(self, values: Values, out: Memory | None = None, op: str = "sum", root: int = 0, *,
                     scalar: Number | None = None, timeout: float | None = None, match_id: int = 0, user_data: int = 0,
                     priority: int | None = None, flags: int = 0) -> Request:
        """Begins reduce: the Request's wait() returns what it returns."""
        root = root if type(root) is int else checked(Root, root)
        given = copy_of(values) if type(values) not in ARRAYS and isinstance(values, COPIED) else values
        if (not self._dropped or self._may_start()):
            request = Request(self._connection, "reduce", self._weak, (self, given, out), (given if out is None else out) if root ==
                self.rank else None, as_given if given is not values and out is None else None, user_data)
            begun = _quick.sides(2, self._gate, self._handle, given, out, op, scalar, root, 1, root == self.rank, timeout, match_id,
                priority, flags, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["reduce"], values, out=out, op=op, root=root, scalar=scalar, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def reduce_init(self, values: Values, out: Memory | None = None, op: str = "sum", root: int = 0, *,
                    scalar: Number | None = None, timeout: float | None = None, match_id: int = 0, user_data: int = 0,
                    priority: int | None = None, flags: int = 0) -> Persistent:
        """Prepares reduce: each start() begins it, with what its memory holds then, and wait() returns what it returns.
        Lists and numbers are a TypeError. Raises ValueError for memory that does not fit, and nexar.Error."""
        return self._init(ROWS["reduce"], values, out=out, op=op, root=root, scalar=scalar, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def broadcast(self, values: Values, root: int = 0, *, timeout: float | None = None, match_id: int = 0,
                  user_data: int = 0, priority: int | None = None, flags: int = 0) -> Any:
        """The root's values arrive in values on every rank. Returns values. Raises ValueError for memory that does not
        fit, and nexar.Error."""
        if not self._dropped:
            done = _quick.data(3, self._gate, self._handle, values, root, root != self.rank, timeout, match_id, priority, flags, None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["broadcast"], values, root=root, timeout=timeout, match_id=match_id, user_data=user_data,
            priority=priority, flags=flags)

    def broadcast_start(self, values: Values, root: int = 0, *, timeout: float | None = None, match_id: int = 0,
                        user_data: int = 0, priority: int | None = None, flags: int = 0) -> Request:
        """Begins broadcast: the Request's wait() returns what it returns."""
        if (not self._dropped or self._may_start()):
            request = Request(self._connection, "broadcast", self._weak, (self, values), values, None, user_data)
            begun = _quick.data(3, self._gate, self._handle, values, root, root != self.rank, timeout, match_id, priority, flags, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["broadcast"], values, root=root, timeout=timeout, match_id=match_id, user_data=user_data, priority=priority,
            flags=flags)

    def broadcast_init(self, values: Values, root: int = 0, *, timeout: float | None = None, match_id: int = 0,
                       user_data: int = 0, priority: int | None = None, flags: int = 0) -> Persistent:
        """Prepares broadcast: each start() begins it, with what its memory holds then, and wait() returns what it
        returns. Lists and numbers are a TypeError. Raises ValueError for memory that does not fit, and nexar.Error."""
        return self._init(ROWS["broadcast"], values, root=root, timeout=timeout, match_id=match_id, user_data=user_data, priority=priority,
            flags=flags)

    def all_gather(self, values: Values, out: Memory | None = None, *, timeout: float | None = None, match_id: int = 0,
                   user_data: int = 0, priority: int | None = None, flags: int = 0) -> Any:
        """Every rank's values arrive in out on every rank, in rank order. Returns out: size * values.size elements
        (None: a new array of shape (size, *values.shape)). In place: values is out[rank * n:(rank + 1) * n]. Raises
        ValueError for memory that does not fit, and nexar.Error."""
        into = self._room(values, self.size) if out is None else out
        if not self._dropped and into is not None:
            done = _quick.sides(4, self._gate, self._handle, values, into, None, None, 0, 1, self.size, timeout, match_id, priority, flags,
                None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["all_gather"], values, out=out, timeout=timeout, match_id=match_id, user_data=user_data,
            priority=priority, flags=flags)

    def all_gather_start(self, values: Values, out: Memory | None = None, *, timeout: float | None = None,
                         match_id: int = 0, user_data: int = 0, priority: int | None = None, flags: int = 0) -> Request:
        """Begins all_gather: the Request's wait() returns what it returns."""
        given = copy_of(values) if type(values) not in ARRAYS and isinstance(values, COPIED) else values
        into = self._room(given, self.size) if out is None else out
        if (not self._dropped or self._may_start()) and into is not None:
            request = Request(self._connection, "all_gather", self._weak, (self, given, into), into, as_given if given is not values and out
                is None else None, user_data)
            begun = _quick.sides(4, self._gate, self._handle, given, into, None, None, 0, 1, self.size, timeout, match_id, priority, flags,
                request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["all_gather"], values, out=out, timeout=timeout, match_id=match_id, user_data=user_data, priority=priority,
            flags=flags)

    def all_gather_init(self, values: Values, out: Memory | None = None, *, timeout: float | None = None,
                        match_id: int = 0, user_data: int = 0, priority: int | None = None, flags: int = 0) -> Persistent:
        """Prepares all_gather: each start() begins it, with what its memory holds then, and wait() returns what it
        returns. Lists and numbers are a TypeError. Raises ValueError for memory that does not fit, and nexar.Error."""
        return self._init(ROWS["all_gather"], values, out=out, timeout=timeout, match_id=match_id, user_data=user_data, priority=priority,
            flags=flags)

    def reduce_scatter(self, values: Values, out: Memory | None = None, op: str = "sum", *,
                       scalar: Number | None = None, timeout: float | None = None, match_id: int = 0,
                       user_data: int = 0, priority: int | None = None, flags: int = 0) -> Any:
        """Block r of the reduction of all ranks' values arrives in out of rank r. Returns out: n = values.size / size
        elements (None: a new array of shape (n,)). In place: out is values[rank * n:(rank + 1) * n]. Raises
        ValueError for memory that does not fit, and nexar.Error."""
        into = self._room(values, 0) if out is None else out
        if not self._dropped and into is not None:
            done = _quick.sides(5, self._gate, self._handle, values, into, op, scalar, 0, self.size, 1, timeout, match_id, priority, flags,
                None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["reduce_scatter"], values, out=out, op=op, scalar=scalar, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def reduce_scatter_start(self, values: Values, out: Memory | None = None, op: str = "sum", *,
                             scalar: Number | None = None, timeout: float | None = None, match_id: int = 0,
                             user_data: int = 0, priority: int | None = None, flags: int = 0) -> Request:
        """Begins reduce_scatter: the Request's wait() returns what it returns."""
        given = copy_of(values) if type(values) not in ARRAYS and isinstance(values, COPIED) else values
        into = self._room(given, 0) if out is None else out
        if (not self._dropped or self._may_start()) and into is not None:
            request = Request(self._connection, "reduce_scatter", self._weak, (self, given, into), into, as_given if given is not values and
                out is None else None, user_data)
            begun = _quick.sides(5, self._gate, self._handle, given, into, op, scalar, 0, self.size, 1, timeout, match_id, priority, flags,
                request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["reduce_scatter"], values, out=out, op=op, scalar=scalar, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def reduce_scatter_init(self, values: Values, out: Memory | None = None, op: str = "sum", *,
                            scalar: Number | None = None, timeout: float | None = None, match_id: int = 0,
                            user_data: int = 0, priority: int | None = None, flags: int = 0) -> Persistent:
        """Prepares reduce_scatter: each start() begins it, with what its memory holds then, and wait() returns what it
        returns. Lists and numbers are a TypeError. Raises ValueError for memory that does not fit, and nexar.Error."""
        return self._init(ROWS["reduce_scatter"], values, out=out, op=op, scalar=scalar, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def all_to_all(self, values: Values, out: Memory | None = None, *, timeout: float | None = None, match_id: int = 0,
                   user_data: int = 0, priority: int | None = None, flags: int = 0) -> Any:
        """Block r of rank s's values arrives in out of rank r, as block s. Returns out; None: values itself (in place).
        Raises ValueError for memory that does not fit, and nexar.Error."""
        if not self._dropped:
            done = _quick.sides(8, self._gate, self._handle, values, out, None, None, 0, self.size, self.size, timeout, match_id, priority,
                flags, None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["all_to_all"], values, out=out, timeout=timeout, match_id=match_id, user_data=user_data,
            priority=priority, flags=flags)

    def all_to_all_start(self, values: Values, out: Memory | None = None, *, timeout: float | None = None,
                         match_id: int = 0, user_data: int = 0, priority: int | None = None, flags: int = 0) -> Request:
        """Begins all_to_all: the Request's wait() returns what it returns."""
        given = copy_of(values) if type(values) not in ARRAYS and isinstance(values, COPIED) else values
        if (not self._dropped or self._may_start()):
            request = Request(self._connection, "all_to_all", self._weak, (self, given, out), given if out is None else out, as_given if
                given is not values and out is None else None, user_data)
            begun = _quick.sides(8, self._gate, self._handle, given, out, None, None, 0, self.size, self.size, timeout, match_id, priority,
                flags, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["all_to_all"], values, out=out, timeout=timeout, match_id=match_id, user_data=user_data, priority=priority,
            flags=flags)

    def all_to_all_init(self, values: Values, out: Memory | None = None, *, timeout: float | None = None,
                        match_id: int = 0, user_data: int = 0, priority: int | None = None, flags: int = 0) -> Persistent:
        """Prepares all_to_all: each start() begins it, with what its memory holds then, and wait() returns what it
        returns. Lists and numbers are a TypeError. Raises ValueError for memory that does not fit, and nexar.Error."""
        return self._init(ROWS["all_to_all"], values, out=out, timeout=timeout, match_id=match_id, user_data=user_data, priority=priority,
            flags=flags)

    def gather(self, values: Values, out: Memory | None = None, root: int = 0, *, timeout: float | None = None,
               match_id: int = 0, user_data: int = 0, priority: int | None = None, flags: int = 0) -> Any:
        """Every rank's values arrive in out of the root, in rank order. The root gets out: size * values.size elements
        (None: a new array of shape (size, *values.shape)); the others get None, and their out is not looked at. In
        place, at the root: values is out[root * n:(root + 1) * n]. Raises ValueError for memory that does not fit,
        and nexar.Error."""
        root = root if type(root) is int else checked(Root, root)
        into = self._room(values, self.size) if out is None and root == self.rank else out
        if not self._dropped and (into is not None or root != self.rank):
            done = _quick.sides(9, self._gate, self._handle, values, into, None, None, root, 1, self.size * (root == self.rank), timeout,
                match_id, priority, flags, None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["gather"], values, out=out, root=root, timeout=timeout, match_id=match_id, user_data=user_data,
            priority=priority, flags=flags)

    def gather_start(self, values: Values, out: Memory | None = None, root: int = 0, *, timeout: float | None = None,
                     match_id: int = 0, user_data: int = 0, priority: int | None = None, flags: int = 0) -> Request:
        """Begins gather: the Request's wait() returns what it returns."""
        root = root if type(root) is int else checked(Root, root)
        given = copy_of(values) if type(values) not in ARRAYS and isinstance(values, COPIED) else values
        into = self._room(given, self.size) if out is None and root == self.rank else out
        if (not self._dropped or self._may_start()) and (into is not None or root != self.rank):
            request = Request(self._connection, "gather", self._weak, (self, given, into), (into) if root == self.rank else None, as_given
                if given is not values and out is None else None, user_data)
            begun = _quick.sides(9, self._gate, self._handle, given, into, None, None, root, 1, self.size * (root == self.rank), timeout,
                match_id, priority, flags, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["gather"], values, out=out, root=root, timeout=timeout, match_id=match_id, user_data=user_data,
            priority=priority, flags=flags)

    def gather_init(self, values: Values, out: Memory | None = None, root: int = 0, *, timeout: float | None = None,
                    match_id: int = 0, user_data: int = 0, priority: int | None = None, flags: int = 0) -> Persistent:
        """Prepares gather: each start() begins it, with what its memory holds then, and wait() returns what it returns.
        Lists and numbers are a TypeError. Raises ValueError for memory that does not fit, and nexar.Error."""
        return self._init(ROWS["gather"], values, out=out, root=root, timeout=timeout, match_id=match_id, user_data=user_data,
            priority=priority, flags=flags)

    def scatter(self, values: Values, out: Memory | None = None, root: int = 0, *, timeout: float | None = None,
                match_id: int = 0, user_data: int = 0, priority: int | None = None, flags: int = 0) -> Any:
        """Block r of the root's values arrives in out of rank r. Returns out. At the root it has n = values.size / size
        elements (None: a new array of shape (n,)); the others must give it, and their values are not looked at (None
        will do). In place, at the root: out is values[root * n:(root + 1) * n]. Raises ValueError for memory that
        does not fit, and nexar.Error."""
        root = root if type(root) is int else checked(Root, root)
        into = self._room(values, 0) if out is None and root == self.rank else out
        if not self._dropped and into is not None:
            done = _quick.sides(10, self._gate, self._handle, values, into, None, None, root, self.size * (root == self.rank), 1, timeout,
                match_id, priority, flags, None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["scatter"], values, out=out, root=root, timeout=timeout, match_id=match_id, user_data=user_data,
            priority=priority, flags=flags)

    def scatter_start(self, values: Values, out: Memory | None = None, root: int = 0, *, timeout: float | None = None,
                      match_id: int = 0, user_data: int = 0, priority: int | None = None, flags: int = 0) -> Request:
        """Begins scatter: the Request's wait() returns what it returns."""
        root = root if type(root) is int else checked(Root, root)
        given = copy_of(values) if root == self.rank and type(values) not in ARRAYS and isinstance(values, COPIED) else values
        into = self._room(given, 0) if out is None and root == self.rank else out
        if (not self._dropped or self._may_start()) and into is not None:
            request = Request(self._connection, "scatter", self._weak, (self, given, into), into, as_given if given is not values and out is
                None else None, user_data)
            begun = _quick.sides(10, self._gate, self._handle, given, into, None, None, root, self.size * (root == self.rank), 1, timeout,
                match_id, priority, flags, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["scatter"], values, out=out, root=root, timeout=timeout, match_id=match_id, user_data=user_data,
            priority=priority, flags=flags)

    def scatter_init(self, values: Values, out: Memory | None = None, root: int = 0, *, timeout: float | None = None,
                     match_id: int = 0, user_data: int = 0, priority: int | None = None, flags: int = 0) -> Persistent:
        """Prepares scatter: each start() begins it, with what its memory holds then, and wait() returns what it returns.
        Lists and numbers are a TypeError. Raises ValueError for memory that does not fit, and nexar.Error."""
        return self._init(ROWS["scatter"], values, out=out, root=root, timeout=timeout, match_id=match_id, user_data=user_data,
            priority=priority, flags=flags)

    def scan(self, values: Values, out: Memory | None = None, op: str = "sum", *, scalar: Number | None = None,
             timeout: float | None = None, match_id: int = 0, user_data: int = 0, priority: int | None = None,
             flags: int = 0) -> Any:
        """out[i] is the reduction of values[i] of ranks 0 to this one. Returns out; None: values itself (in place).
        Raises ValueError for memory that does not fit, and nexar.Error."""
        if not self._dropped:
            done = _quick.sides(11, self._gate, self._handle, values, out, op, scalar, 0, 1, 1, timeout, match_id, priority, flags, None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["scan"], values, out=out, op=op, scalar=scalar, timeout=timeout, match_id=match_id, user_data=user_data,
            priority=priority, flags=flags)

    def scan_start(self, values: Values, out: Memory | None = None, op: str = "sum", *, scalar: Number | None = None,
                   timeout: float | None = None, match_id: int = 0, user_data: int = 0, priority: int | None = None,
                   flags: int = 0) -> Request:
        """Begins scan: the Request's wait() returns what it returns."""
        given = copy_of(values) if type(values) not in ARRAYS and isinstance(values, COPIED) else values
        if (not self._dropped or self._may_start()):
            request = Request(self._connection, "scan", self._weak, (self, given, out), given if out is None else out, as_given if given is
                not values and out is None else None, user_data)
            begun = _quick.sides(11, self._gate, self._handle, given, out, op, scalar, 0, 1, 1, timeout, match_id, priority, flags, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["scan"], values, out=out, op=op, scalar=scalar, timeout=timeout, match_id=match_id, user_data=user_data,
            priority=priority, flags=flags)

    def scan_init(self, values: Values, out: Memory | None = None, op: str = "sum", *, scalar: Number | None = None,
                  timeout: float | None = None, match_id: int = 0, user_data: int = 0, priority: int | None = None,
                  flags: int = 0) -> Persistent:
        """Prepares scan: each start() begins it, with what its memory holds then, and wait() returns what it returns.
        Lists and numbers are a TypeError. Raises ValueError for memory that does not fit, and nexar.Error."""
        return self._init(ROWS["scan"], values, out=out, op=op, scalar=scalar, timeout=timeout, match_id=match_id, user_data=user_data,
            priority=priority, flags=flags)

    def exclusive_scan(self, values: Values, out: Memory | None = None, op: str = "sum", *,
                       scalar: Number | None = None, timeout: float | None = None, match_id: int = 0,
                       user_data: int = 0, priority: int | None = None, flags: int = 0) -> Any:
        """out[i] is the reduction of values[i] of all ranks below this one. Returns out; None: values itself (in place).
        Raises ValueError for memory that does not fit, and nexar.Error."""
        if not self._dropped:
            done = _quick.sides(12, self._gate, self._handle, values, out, op, scalar, 0, 1, 1, timeout, match_id, priority, flags, None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["exclusive_scan"], values, out=out, op=op, scalar=scalar, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def exclusive_scan_start(self, values: Values, out: Memory | None = None, op: str = "sum", *,
                             scalar: Number | None = None, timeout: float | None = None, match_id: int = 0,
                             user_data: int = 0, priority: int | None = None, flags: int = 0) -> Request:
        """Begins exclusive_scan: the Request's wait() returns what it returns."""
        given = copy_of(values) if type(values) not in ARRAYS and isinstance(values, COPIED) else values
        if (not self._dropped or self._may_start()):
            request = Request(self._connection, "exclusive_scan", self._weak, (self, given, out), given if out is None else out, as_given if
                given is not values and out is None else None, user_data)
            begun = _quick.sides(12, self._gate, self._handle, given, out, op, scalar, 0, 1, 1, timeout, match_id, priority, flags, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["exclusive_scan"], values, out=out, op=op, scalar=scalar, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def exclusive_scan_init(self, values: Values, out: Memory | None = None, op: str = "sum", *,
                            scalar: Number | None = None, timeout: float | None = None, match_id: int = 0,
                            user_data: int = 0, priority: int | None = None, flags: int = 0) -> Persistent:
        """Prepares exclusive_scan: each start() begins it, with what its memory holds then, and wait() returns what it
        returns. Lists and numbers are a TypeError. Raises ValueError for memory that does not fit, and nexar.Error."""
        return self._init(ROWS["exclusive_scan"], values, out=out, op=op, scalar=scalar, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def all_gatherv(self, values: Values, counts: Sequence[int], out: Memory | None = None, *,
                    timeout: float | None = None, match_id: int = 0, user_data: int = 0, priority: int | None = None,
                    flags: int = 0) -> Any:
        """Every rank's values, counts[r] of rank r, arrive in out on every rank, in rank order. counts: elements of each
        rank, the same list on all ranks. Returns out: sum(counts) elements, the blocks one after the other (None: a
        new array of shape (sum(counts),)). In place: values is this rank's part of out. Raises ValueError for memory
        that does not fit, and nexar.Error."""
        into = self._packed_room(values, counts) if out is None else out
        if not self._dropped and into is not None:
            done = _quick.packed(13, self._gate, self._handle, values, into, counts, None, None, None, 0, self.rank, self.size, 1, 2,
                timeout, match_id, priority, flags, None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["all_gatherv"], values, counts=counts, out=out, timeout=timeout, match_id=match_id, user_data=user_data,
            priority=priority, flags=flags)

    def all_gatherv_start(self, values: Values, counts: Sequence[int], out: Memory | None = None, *,
                          timeout: float | None = None, match_id: int = 0, user_data: int = 0,
                          priority: int | None = None, flags: int = 0) -> Request:
        """Begins all_gatherv: the Request's wait() returns what it returns."""
        given = copy_of(values) if type(values) not in ARRAYS and isinstance(values, COPIED) else values
        into = self._packed_room(given, counts) if out is None else out
        if (not self._dropped or self._may_start()) and into is not None:
            request = Request(self._connection, "all_gatherv", self._weak, (self, given, into), into, as_given if given is not values and
                out is None else None, user_data)
            begun = _quick.packed(13, self._gate, self._handle, given, into, counts, None, None, None, 0, self.rank, self.size, 1, 2,
                timeout, match_id, priority, flags, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["all_gatherv"], values, counts=counts, out=out, timeout=timeout, match_id=match_id, user_data=user_data,
            priority=priority, flags=flags)

    def all_gatherv_init(self, values: Values, counts: Sequence[int], out: Memory | None = None, *,
                         timeout: float | None = None, match_id: int = 0, user_data: int = 0,
                         priority: int | None = None, flags: int = 0) -> Persistent:
        """Prepares all_gatherv: each start() begins it, with what its memory holds then, and wait() returns what it
        returns. Lists and numbers are a TypeError. Raises ValueError for memory that does not fit, and nexar.Error."""
        return self._init(ROWS["all_gatherv"], values, counts=counts, out=out, timeout=timeout, match_id=match_id, user_data=user_data,
            priority=priority, flags=flags)

    def gatherv(self, values: Values, counts: Sequence[int], out: Memory | None = None, root: int = 0, *,
                timeout: float | None = None, match_id: int = 0, user_data: int = 0, priority: int | None = None,
                flags: int = 0) -> Any:
        """Every rank's values, counts[r] of rank r, arrive in out of the root, in rank order. counts: elements of each
        rank, the same list on all ranks. The root gets out: sum(counts) elements, the blocks one after the other
        (None: a new array of shape (sum(counts),)); the others get None, and their out is not looked at. In place, at
        the root: values is its part of out. Raises ValueError for memory that does not fit, and nexar.Error."""
        root = root if type(root) is int else checked(Root, root)
        into = self._packed_room(values, counts) if out is None and root == self.rank else out
        if not self._dropped and (into is not None or root != self.rank):
            done = _quick.packed(14, self._gate, self._handle, values, into, counts, None, None, None, root, self.rank, self.size, 1, 2 *
                (root == self.rank), timeout, match_id, priority, flags, None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["gatherv"], values, counts=counts, out=out, root=root, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def gatherv_start(self, values: Values, counts: Sequence[int], out: Memory | None = None, root: int = 0, *,
                      timeout: float | None = None, match_id: int = 0, user_data: int = 0, priority: int | None = None,
                      flags: int = 0) -> Request:
        """Begins gatherv: the Request's wait() returns what it returns."""
        root = root if type(root) is int else checked(Root, root)
        given = copy_of(values) if type(values) not in ARRAYS and isinstance(values, COPIED) else values
        into = self._packed_room(given, counts) if out is None and root == self.rank else out
        if (not self._dropped or self._may_start()) and (into is not None or root != self.rank):
            request = Request(self._connection, "gatherv", self._weak, (self, given, into), (into) if root == self.rank else None, as_given
                if given is not values and out is None else None, user_data)
            begun = _quick.packed(14, self._gate, self._handle, given, into, counts, None, None, None, root, self.rank, self.size, 1, 2 *
                (root == self.rank), timeout, match_id, priority, flags, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["gatherv"], values, counts=counts, out=out, root=root, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def gatherv_init(self, values: Values, counts: Sequence[int], out: Memory | None = None, root: int = 0, *,
                     timeout: float | None = None, match_id: int = 0, user_data: int = 0, priority: int | None = None,
                     flags: int = 0) -> Persistent:
        """Prepares gatherv: each start() begins it, with what its memory holds then, and wait() returns what it returns.
        Lists and numbers are a TypeError. Raises ValueError for memory that does not fit, and nexar.Error."""
        return self._init(ROWS["gatherv"], values, counts=counts, out=out, root=root, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def scatterv(self, values: Values, counts: Sequence[int], out: Memory | None = None, root: int = 0, *,
                 timeout: float | None = None, match_id: int = 0, user_data: int = 0, priority: int | None = None,
                 flags: int = 0) -> Any:
        """Block r of the root's values, of counts[r], arrives in out of rank r. counts: elements of each rank, the same
        list on all ranks. Returns out: counts[rank] elements. At the root None is a new array; the others must give
        it, and their values are not looked at (None will do). In place, at the root: out is its part of values.
        Raises ValueError for memory that does not fit, and nexar.Error."""
        root = root if type(root) is int else checked(Root, root)
        into = self._packed_room(values, counts, True) if out is None and root == self.rank else out
        if not self._dropped and into is not None:
            done = _quick.packed(15, self._gate, self._handle, values, into, counts, None, None, None, root, self.rank, self.size, 2 * (root
                == self.rank), 1, timeout, match_id, priority, flags, None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["scatterv"], values, counts=counts, out=out, root=root, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def scatterv_start(self, values: Values, counts: Sequence[int], out: Memory | None = None, root: int = 0, *,
                       timeout: float | None = None, match_id: int = 0, user_data: int = 0,
                       priority: int | None = None, flags: int = 0) -> Request:
        """Begins scatterv: the Request's wait() returns what it returns."""
        root = root if type(root) is int else checked(Root, root)
        given = copy_of(values) if root == self.rank and type(values) not in ARRAYS and isinstance(values, COPIED) else values
        into = self._packed_room(given, counts, True) if out is None and root == self.rank else out
        if (not self._dropped or self._may_start()) and into is not None:
            request = Request(self._connection, "scatterv", self._weak, (self, given, into), into, as_given if given is not values and out
                is None else None, user_data)
            begun = _quick.packed(15, self._gate, self._handle, given, into, counts, None, None, None, root, self.rank, self.size, 2 * (root
                == self.rank), 1, timeout, match_id, priority, flags, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["scatterv"], values, counts=counts, out=out, root=root, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def scatterv_init(self, values: Values, counts: Sequence[int], out: Memory | None = None, root: int = 0, *,
                      timeout: float | None = None, match_id: int = 0, user_data: int = 0, priority: int | None = None,
                      flags: int = 0) -> Persistent:
        """Prepares scatterv: each start() begins it, with what its memory holds then, and wait() returns what it
        returns. Lists and numbers are a TypeError. Raises ValueError for memory that does not fit, and nexar.Error."""
        return self._init(ROWS["scatterv"], values, counts=counts, out=out, root=root, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)

    def all_to_allv(self, values: Values, send_counts: Sequence[int], receive_counts: Sequence[int],
                    out: Memory | None = None, *, timeout: float | None = None, match_id: int = 0, user_data: int = 0,
                    priority: int | None = None, flags: int = 0) -> Any:
        """Block r of rank s's values, of any length, arrives in out of rank r, as block s. send_counts, receive_counts:
        elements to and from each rank; what rank s sends to rank r is what r receives from s. Returns out:
        sum(receive_counts) elements, the blocks one after the other (None: a new array of that shape). Raises
        ValueError for memory that does not fit, and nexar.Error."""
        into = self._packed_room(values, receive_counts) if out is None else out
        if not self._dropped and into is not None:
            done = _quick.packed(16, self._gate, self._handle, values, into, send_counts, receive_counts, None, None, 0, self.rank,
                self.size, 2, 2, timeout, match_id, priority, flags, None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["all_to_allv"], values, send_counts=send_counts, receive_counts=receive_counts, out=out, timeout=timeout,
            match_id=match_id, user_data=user_data, priority=priority, flags=flags)

    def all_to_allv_start(self, values: Values, send_counts: Sequence[int], receive_counts: Sequence[int],
                          out: Memory | None = None, *, timeout: float | None = None, match_id: int = 0,
                          user_data: int = 0, priority: int | None = None, flags: int = 0) -> Request:
        """Begins all_to_allv: the Request's wait() returns what it returns."""
        given = copy_of(values) if type(values) not in ARRAYS and isinstance(values, COPIED) else values
        into = self._packed_room(given, receive_counts) if out is None else out
        if (not self._dropped or self._may_start()) and into is not None:
            request = Request(self._connection, "all_to_allv", self._weak, (self, given, into), into, as_given if given is not values and
                out is None else None, user_data)
            begun = _quick.packed(16, self._gate, self._handle, given, into, send_counts, receive_counts, None, None, 0, self.rank,
                self.size, 2, 2, timeout, match_id, priority, flags, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["all_to_allv"], values, send_counts=send_counts, receive_counts=receive_counts, out=out, timeout=timeout,
            match_id=match_id, user_data=user_data, priority=priority, flags=flags)

    def all_to_allv_init(self, values: Values, send_counts: Sequence[int], receive_counts: Sequence[int],
                         out: Memory | None = None, *, timeout: float | None = None, match_id: int = 0,
                         user_data: int = 0, priority: int | None = None, flags: int = 0) -> Persistent:
        """Prepares all_to_allv: each start() begins it, with what its memory holds then, and wait() returns what it
        returns. Lists and numbers are a TypeError. Raises ValueError for memory that does not fit, and nexar.Error."""
        return self._init(ROWS["all_to_allv"], values, send_counts=send_counts, receive_counts=receive_counts, out=out, timeout=timeout,
            match_id=match_id, user_data=user_data, priority=priority, flags=flags)

    def reduce_scatterv(self, values: Values, counts: Sequence[int], out: Memory | None = None, op: str = "sum", *,
                        scalar: Number | None = None, timeout: float | None = None, match_id: int = 0,
                        user_data: int = 0, priority: int | None = None, flags: int = 0) -> Any:
        """Block r, of counts[r], of the reduction of all ranks' values arrives in out of rank r. counts: elements of
        each rank, the same list on all ranks. values has sum(counts) elements. Returns out: counts[rank] elements
        (None: a new array). In place: out is this rank's part of values. Raises ValueError for memory that does not
        fit, and nexar.Error."""
        into = self._packed_room(values, counts, True) if out is None else out
        if not self._dropped and into is not None:
            done = _quick.packed(17, self._gate, self._handle, values, into, counts, None, op, scalar, 0, self.rank, self.size, 2, 1,
                timeout, match_id, priority, flags, None)
            if done is not NotImplemented:
                return done
        return self._blocking(ROWS["reduce_scatterv"], values, counts=counts, out=out, op=op, scalar=scalar, timeout=timeout,
            match_id=match_id, user_data=user_data, priority=priority, flags=flags)

    def reduce_scatterv_start(self, values: Values, counts: Sequence[int], out: Memory | None = None, op: str = "sum",
                              *, scalar: Number | None = None, timeout: float | None = None, match_id: int = 0,
                              user_data: int = 0, priority: int | None = None, flags: int = 0) -> Request:
        """Begins reduce_scatterv: the Request's wait() returns what it returns."""
        given = copy_of(values) if type(values) not in ARRAYS and isinstance(values, COPIED) else values
        into = self._packed_room(given, counts, True) if out is None else out
        if (not self._dropped or self._may_start()) and into is not None:
            request = Request(self._connection, "reduce_scatterv", self._weak, (self, given, into), into, as_given if given is not values
                and out is None else None, user_data)
            begun = _quick.packed(17, self._gate, self._handle, given, into, counts, None, op, scalar, 0, self.rank, self.size, 2, 1,
                timeout, match_id, priority, flags, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._begin(ROWS["reduce_scatterv"], values, counts=counts, out=out, op=op, scalar=scalar, timeout=timeout,
            match_id=match_id, user_data=user_data, priority=priority, flags=flags)

    def reduce_scatterv_init(self, values: Values, counts: Sequence[int], out: Memory | None = None, op: str = "sum",
                             *, scalar: Number | None = None, timeout: float | None = None, match_id: int = 0,
                             user_data: int = 0, priority: int | None = None, flags: int = 0) -> Persistent:
        """Prepares reduce_scatterv: each start() begins it, with what its memory holds then, and wait() returns what it
        returns. Lists and numbers are a TypeError. Raises ValueError for memory that does not fit, and nexar.Error."""
        return self._init(ROWS["reduce_scatterv"], values, counts=counts, out=out, op=op, scalar=scalar, timeout=timeout, match_id=match_id,
            user_data=user_data, priority=priority, flags=flags)
