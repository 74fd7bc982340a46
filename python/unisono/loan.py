"""Memory for the payload of an event, written in place."""

from __future__ import annotations

import ctypes
import time
from typing import Any, Callable, Optional

from . import _library as c
from .client import Client
from .errors import BadArgument
from .event import bytes_at, nanos


class Lent:
    """What the library has lent; returned when nothing of it is in use any more."""

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer
        self._return = c.library().unisono_loan_return

    def __del__(self) -> None:
        self._return(ctypes.byref(self.pointer))


class Loan:
    """Memory for the payload of an event, which leaves at the end of `with`:

        with video.loan(1 << 20, fields={"number": 7}) as memory:
            camera.readinto(memory)

    An exception in the block returns the memory, and nothing is published. Without `with`, write `memory` or array()
    and call publish(). Do not write afterwards: consumers read the payload from there. The memory stays mapped as long
    as a view or an array of it is in use.
    """

    def __init__(self, client: Client, lent: Lent, due_in: Optional[float], left: Callable[[], None]) -> None:
        self._client, self._lent, self._due_in, self._left = client, lent, due_in, left
        view = lent.pointer.contents
        self.in_place: bool = bool(view.in_place)
        """Whether consumers read the payload from this memory. False: publish() copies it, because the topic's events
        go through the broker, or because four loans are there."""
        self.memory: memoryview = bytes_at(view.memory, view.bytes, lent)
        """The bytes, to be written; what they hold at first is undefined."""

    def array(self, dtype: Any = "uint8", shape: Any = None) -> Any:
        """The memory as a numpy array, to be written."""
        import numpy

        array = numpy.frombuffer(self.memory, dtype=dtype)
        return array if shape is None else array.reshape(shape)

    def _deadline(self) -> int:
        if not self._lent.pointer.contents.memory:
            raise BadArgument("the event of this loan is published; take another loan")
        return 0 if self._due_in is None else time.monotonic_ns() + nanos(self._due_in)

    def publish(self) -> None:
        """Publishes the event, and waits until there is room for it, as Publisher.publish() does."""
        self._client.publish_by("unisono_publish_loan_within", self._lent.pointer, self._deadline())
        self._left()

    async def publish_async(self) -> None:
        """As publish(); other tasks run until there is room."""
        await self._client.publish_by_async("unisono_publish_loan_within", self._lent.pointer, self._deadline())
        self._left()

    def __enter__(self) -> memoryview:
        return self.memory

    def __exit__(self, failure: object, *_: object) -> None:
        if failure is None:
            self.publish()

    async def __aenter__(self) -> memoryview:
        return self.memory

    async def __aexit__(self, failure: object, *_: object) -> None:
        if failure is None:
            await self.publish_async()
