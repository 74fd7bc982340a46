"""A connection to a broker."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import select
import threading
import time
import weakref
from collections import deque
from typing import Any, Deque, Dict, Optional, Set, Tuple, Union

from . import _library as c
from .errors import OK, TIMED_OUT, BadArgument, Gone
from .event import Event, Notice, arrived, nanos, text

Reception = Union[Event, Notice]

EXACTLY = 0.005
"""The last seconds of a wait, in which the library waits instead of poll(2). poll(2) counts milliseconds, the library
nanoseconds."""


INTERRUPTIBLE = 0.1
"""The longest time, in seconds, that a call of the library spins or waits for room. Between two such calls Python
handles Ctrl-C, and a call that waits for room receives for the thread's other connections."""

ROOM_POLL_INTERVAL = 0.002
"""Seconds between two attempts of a task to publish to a consumer without room. The task polls, because no descriptor
becomes ready when a queue in shared memory gets room. Such a consumer reports room for a quarter of its queue at a
time, which takes longer than this interval. Chosen, not measured."""

TURN = 64
"""Events that a task receives before other tasks run. The broker sends a client as many in one turn."""


class _Own(threading.local):
    """The connections from which the thread receives, or has received."""

    def __init__(self) -> None:
        self.clients: weakref.WeakSet[Client] = weakref.WeakSet()


_OWN = _Own()

WAITS = ("sleep", "spin", "adaptive")


class Client:
    """A connection to a broker. Publishers and Subscribers of one thread can share it: pass it to them as `client`."""

    def __init__(
        self,
        at: Union[str, os.PathLike[str], None] = None,
        *,
        name: Optional[str] = None,
        token: Optional[str] = None,
        lease: Optional[float] = None,
        wait: str = "sleep",
        reconnect: Optional[float] = None,
    ) -> None:
        """Connects to a broker.

        at: the broker's address. The path of the broker's socket selects shared memory; "unix:PATH" sends all data
            through that socket; "tcp:HOST:PORT" and "tls:HOST:PORT?authority=FILE&certificate=FILE&key=FILE&
            token-file=FILE" use TCP and TLS. None: this user's broker, or else the host's at /run/unisono/events
        name: the program's name in tables, metrics and errors. None: the command name that ps shows, with the process
            number, such as "python3[4711]"
        token: the secret that authenticates the program over TCP; it replaces the token file in the address
        lease: the longest time between two calls of the program, in seconds. After a longer time the broker considers
            the program dead, and the program's next call raises Gone with a text that says so. Time that the program
            spends waiting inside a call does not count.
        wait: how calls wait until something arrives: "sleep", "spin" (needs a processor to itself) or "adaptive"
        reconnect: the seconds for which the library tries to reconnect after the connection breaks. After a reconnect
            the topics and subscriptions are restored, and each Subscriber gets the notice "reconnected". Calls that
            publish or ask wait in the meantime. After the time has passed, they raise Gone.
        """
        if wait not in WAITS:
            raise BadArgument(f"wait is one of {', '.join(WAITS)}, not {wait!r}")
        self._library = c.library()
        self._lock = threading.Lock()
        self._handle = ctypes.c_void_p()
        options = c.ClientOptions(
            address=None if at is None else text(os.fspath(at), "an address"),
            name=None if name is None else text(name, "a name"),
            token=None if token is None else text(token, "a token"),
            lease_ns=0 if lease is None else max(nanos(lease), 1),
            wait=WAITS.index(wait),
            reconnect_ns=0 if reconnect is None else max(nanos(reconnect), 1),
        )
        c.check(self._library.unisono_client_open(ctypes.byref(options), ctypes.byref(self._handle)))
        self._sleeps, self._third = wait == "sleep", None if lease is None else lease / 3
        self._waiting: Dict[int, Deque[Reception]] = {}
        self._subscriptions: Set[int] = set()
        self._tasks: Set[asyncio.Future[None]] = set()
        self._watched: Optional[Tuple[asyncio.AbstractEventLoop, int]] = None
        self._received = 0
        self._thread = 0
        self._is_used()

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the library with this connection, and raises an exception if it fails."""
        try:
            with self._lock:
                c.check(getattr(self._library, name)(self._open(), *arguments))
        finally:
            self._wake_tasks()

    def _open(self) -> ctypes.c_void_p:
        if not self._handle:
            raise Gone("the connection is closed")
        return self._handle

    @property
    def closed(self) -> bool:
        return not self._handle

    def fileno(self) -> int:
        """Returns the descriptor that selectors and event loops poll for reading.

        Before each wait receive with a timeout of 0 until nothing comes, because earlier events may already be waiting
        in this process. With `reconnect`, get the descriptor again before each wait: it changes with the connection.
        """
        descriptor: int = self._library.unisono_client_descriptor(self._open())
        return descriptor

    @property
    def largest(self) -> int:
        """The size in bytes of the largest payload that the broker accepts."""
        largest: int = self._library.unisono_client_largest(self._open())
        return largest

    @property
    def name(self) -> str:
        """The name by which the broker knows this program, in tables, metrics and errors."""
        name: bytes = self._library.unisono_client_name(self._open())
        return name.decode()

    def alive(self) -> None:
        """Renews the lease of a program that makes no other call in time."""
        self.call("unisono_client_alive")

    def statistics(self) -> Dict[str, Any]:
        """Gets the broker's statistics for all programs, with the keys of `unisono events top --json`, without rates.

        "consumers" has a row for each consumer, with the `name` of its program.
        """
        with self._lock:
            told = ctypes.c_char_p()
            c.check(self._library.unisono_client_statistics(self._open(), ctypes.byref(told)))
            read: Dict[str, Any] = json.loads(told.value or b"{}")
        self._wake_tasks()
        return read

    def flush(self) -> None:
        """Sends all events that were published with later=True, and waits until they have left this process."""
        while self._call_within("unisono_flush_within", nanos(INTERRUPTIBLE)) == TIMED_OUT:
            self._take_own()

    def publish_by(self, name: str, *arguments: Any) -> None:
        """Publishes an event with the library's function `name`, which has a time limit. Waits until there is room."""
        taken = ctypes.c_int()
        while self._call_within(name, *arguments, nanos(INTERRUPTIBLE), ctypes.byref(taken)) == TIMED_OUT:
            self._take_own()
            if taken:
                return self.flush()

    async def flush_async(self) -> None:
        """Does the same as flush(), and lets other tasks run in the meantime."""
        while self._call_within("unisono_flush_within", 0) == TIMED_OUT:
            await self._wait_for_room()

    async def publish_by_async(self, name: str, *arguments: Any) -> None:
        """Does the same as publish_by(), and lets other tasks run until there is room."""
        taken = ctypes.c_int()
        while self._call_within(name, *arguments, 0, ctypes.byref(taken)) == TIMED_OUT:
            if taken:
                return await self.flush_async()
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        await asyncio.sleep(0.0 if self._take_own() else ROOM_POLL_INTERVAL)

    def _is_used(self) -> None:
        """Records that this thread receives from this connection, so that _take_own() finds it."""
        thread = threading.get_ident()
        if self._thread != thread:
            self._thread = thread
            _OWN.clients.add(self)

    def _call_within(self, name: str, *arguments: Any) -> int:
        """Does the same as call() for a function with a time limit, but returns TIMED_OUT to the caller."""
        try:
            with self._lock:
                status: int = getattr(self._library, name)(self._open(), *arguments)
                if status != TIMED_OUT:
                    c.check(status)
        finally:
            self._wake_tasks()
        return status

    def _take_own(self) -> bool:
        """Receives and keeps what has arrived at the thread's other connections. Returns whether anything had arrived.

        This thread may be waiting for room in a queue that only it can empty: the queue of a subscription of its own
        that blocks suppliers.
        """
        took = False
        for other in list(_OWN.clients):
            if other is not self and other._thread == threading.get_ident() and not other.closed:
                while other._take(0.0):
                    took = True
        return took

    def expect(self, number: int) -> None:
        """Begins to keep what arrives for this subscription or topic, until it is received."""
        self._waiting[number] = deque()

    def expect_all(self, number: int) -> None:
        """Does the same as expect() for a subscription, which also gets the notices about the connection."""
        self.expect(number)
        self._subscriptions.add(number)

    def forget(self, number: int) -> None:
        self._waiting.pop(number, None)
        self._subscriptions.discard(number)

    def receive(self, number: int, timeout: Optional[float] = None) -> Optional[Reception]:
        """Returns the next event or notice for a subscription or topic.

        Returns None if none arrives within `timeout` seconds. What arrives for others in the meantime is kept for them.
        """
        self._is_used()
        until = None if timeout is None else time.monotonic() + timeout
        mine = self._waiting[number]
        while not mine:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= EXACTLY:
                if not self._take(max(left, 0.0)):
                    return None
            elif not self._sleeps:
                self._take(INTERRUPTIBLE if left is None else min(left, INTERRUPTIBLE))
            elif not self._take(0.0):
                asleep = [time for time in (None if left is None else left - EXACTLY, self._third) if time is not None]
                awaited = select.poll()
                awaited.register(self.fileno(), select.POLLIN)
                awaited.poll(min(asleep) * 1000 if asleep else None)
        return mine.popleft()

    async def receive_async(self, number: int) -> Reception:
        """Does the same as receive() without a timeout.

        Other tasks run until something arrives, and after each TURN received events.
        """
        self._is_used()
        mine = self._waiting[number]
        self._received += 1
        if self._received % TURN == 0:
            await asyncio.sleep(0)
        while not mine:
            if self._waiting.get(number) is not mine:
                raise Gone("the subscription is closed")
            if not self._take(0.0):
                await self._wait_for_reception()
        return mine.popleft()

    async def _wait_for_reception(self) -> None:
        """Waits until something may have arrived: at the descriptor, or in this process through another task's call.

        Also returns after a third of the lease, so that the caller's next call renews it.
        """
        loop = asyncio.get_running_loop()
        task: asyncio.Future[None] = loop.create_future()
        if self._watched is None:
            self._watched = (loop, self.fileno())
            loop.add_reader(self._watched[1], self._wake_tasks)
        self._tasks.add(task)
        renewal = None if self._third is None else loop.call_later(self._third, self._wake_tasks)
        try:
            await task
        finally:
            if renewal is not None:
                renewal.cancel()
            self._tasks.discard(task)
            if not self._tasks:
                self._wake_tasks()

    def _wake_tasks(self) -> None:
        """Wakes the waiting tasks, which check again and watch the descriptor anew: it may have changed."""
        if self._watched is not None:
            (loop, descriptor), self._watched = self._watched, None
            if not loop.is_closed():
                loop.remove_reader(descriptor)
        while self._tasks:
            task = self._tasks.pop()
            if not task.done():
                task.set_result(None)

    def _take(self, timeout: float) -> bool:
        """Receives one event or notice, and keeps it for its subscription or topic. Returns whether one arrived."""
        pointer = ctypes.POINTER(c.EventView)()
        with self._lock:
            status = self._library.unisono_receive(self._open(), nanos(timeout), ctypes.byref(pointer))
            if status not in (OK, TIMED_OUT):
                c.check(status)
        if status == TIMED_OUT:
            return False
        view = pointer.contents
        numbers = self._subscriptions if view.kind == c.RECONNECTED else {view.number}
        reception = arrived(self.call, pointer)
        for number in numbers:
            if number in self._waiting:
                self._waiting[number].append(reception)
        self._wake_tasks()
        return True

    def close(self) -> None:
        """Closes the connection; its topics and subscriptions end. Received events stay valid.

        Events that were published with later=True may be lost: call flush() first.
        """
        self._wake_tasks()
        with self._lock:
            if self._handle:
                c.check(self._library.unisono_client_close(ctypes.byref(self._handle)))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.closed:
            try:
                await self.flush_async()
            except ConnectionError:
                pass  # the broker is gone, so the unsent events are lost
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()
