"""Memory in which a program writes the payload of an event, so that no copy is needed."""

from __future__ import annotations

import ctypes
import time
from typing import Any, Callable, Optional

from . import _library as c
from .client import Client
from .errors import BadArgument
from .event import bytes_at, nanos


class Lent:
    """A loan of the library, returned when no object uses its memory any more."""

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer
        self._return = c.library().unisono_loan_return

    def __del__(self) -> None:
        self._return(ctypes.byref(self.pointer))


class Loan:
    """Memory for the payload of an event. The end of `with` publishes the event:

        with video.loan(1 << 20, fields={"number": 7}) as memory:
            camera.readinto(memory)

    If the block raises an exception, the memory is returned and nothing is published. Without `with`, write to `memory`
    or array() and call publish(). Do not write afterwards, because consumers read the payload from this memory. It
    stays mapped as long as a view or an array of it is in use.
    """

    def __init__(self, client: Client, lent: Lent, due_in: Optional[float], left: Callable[[int], None]) -> None:
        self._client, self._lent, self._due_in, self._left = client, lent, due_in, left
        view = lent.pointer.contents
        self.in_place: bool = bool(view.in_place)
        """Whether consumers read the payload from this memory. False: publish() copies the payload, because the
        topic's events go through the broker, or because four places of the topic are already lent."""
        self.memory: memoryview = bytes_at(view.memory, view.bytes, lent)
        """A writable view of the memory. Its initial content is undefined."""

    def array(self, dtype: Any = "uint8", shape: Any = None) -> Any:
        """Returns the memory as a writable numpy array."""
        import numpy

        array = numpy.frombuffer(self.memory, dtype=dtype)
        return array if shape is None else array.reshape(shape)

    def _deadline(self) -> int:
        if not self._lent.pointer.contents.memory:
            raise BadArgument("the event of this loan is published; take another loan")
        return 0 if self._due_in is None else time.monotonic_ns() + nanos(self._due_in)

    def publish(self) -> None:
        """Publishes the event, and waits until there is room for it, as Publisher.publish() does."""
        deadline_ns = self._deadline()
        self._client.publish_by("unisono_publish_loan_within", self._lent.pointer, deadline_ns)
        self._left(deadline_ns)

    async def publish_async(self) -> None:
        """Does the same as publish(), and lets other tasks run until there is room."""
        deadline_ns = self._deadline()
        await self._client.publish_by_async("unisono_publish_loan_within", self._lent.pointer, deadline_ns)
        self._left(deadline_ns)

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
