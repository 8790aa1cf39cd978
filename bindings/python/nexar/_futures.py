"""A Request as a concurrent.futures.Future, and as one of asyncio."""
from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
import threading
from typing import Any

from ._errors import Error


class Future(concurrent.futures.Future[Any]):
    """What Request.concurrent_future returns. Its thread waits for the request, so that result(), exception() and the
    functions of concurrent.futures need no other."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self._request = request
        threading.Thread(target=self._settle, name="nexar future", daemon=True).start()

    def cancel(self) -> bool:
        """Cancels the operation, a collective on all ranks. False: it has ended. Its arrays are free once
        concurrent.futures.wait has returned the future."""
        if not super().cancel():
            return False
        with contextlib.suppress(Error):
            self._request.cancel()
        return True

    def _settle(self) -> None:
        value, error = None, None
        try:
            value = self._request.wait()
        except BaseException as why:
            error = why
        if self.set_running_or_notify_cancel():
            if error is not None:
                self.set_exception(error.with_traceback(None))  # in which this is, and so the future that has the error
            else:
                self.set_result(value)


class Awaited:
    """What Request.future returns is its `future`. A cancelled one lets go of the request: the loop may end before the operation has,
    and then nobody would free its slot."""

    def __init__(self, request: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Any] = loop.create_future()
        self._request, self._loop, self._reader = request, loop, request._connection.reader_of(loop)
        self._reader.watch(request)
        self._has_ended, self._watches = False, True
        self.future.add_done_callback(self._give_up)
        request.add_done_callback(self._ended)

    def _settle(self, value: Any, error: Error | None) -> None:
        self._forget()
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(value)

    def _forget(self) -> None:
        """In the loop's thread; once."""
        if self._watches:
            self._watches = False
            self._reader.forget(self._request)

    def _give_up(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() or self._has_ended:  # a persistent one may have been started again
            return
        with contextlib.suppress(Error):
            self._request.cancel()
        self._request._remove_done_callback(self._ended)
        self._forget()

    def _ended(self, request: Any) -> None:
        answer = request._answer  # now: a persistent one may be started again before the loop comes to it
        if answer is None:
            request.add_done_callback(self._ended)  # it was already: then this is of that start
            return
        self._has_ended = True
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._settle, answer[0], copy.copy(answer[1]))
            request._report()
