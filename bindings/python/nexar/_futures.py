"""A Request as a concurrent.futures.Future."""
from __future__ import annotations

import concurrent.futures
import contextlib
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
