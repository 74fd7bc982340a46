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
"""Seconds at the end of a wait that the library waits, to the nanosecond; poll(2) counts milliseconds."""


INTERRUPTIBLE = 0.1
"""Seconds that the library spins at a time: Python looks for Ctrl-C in between."""

ROOM_POLL_INTERVAL = 0.002
"""Seconds between two attempts of a task to publish to a consumer that has no room: its memory has no descriptor to
wait for. A consumer of shared memory reports room for a quarter of its queue at once, which takes longer. Chosen, not
measured."""

TURN = 64
"""Events that a task receives before other tasks have a turn, as many as the broker sends a client in its turn."""


class _Own(threading.local):
    """The connections that a thread uses, or has used."""

    def __init__(self) -> None:
        self.clients: weakref.WeakSet[Client] = weakref.WeakSet()


_OWN = _Own()

WAITS = ("sleep", "spin", "adaptive")


class Client:
    """A connection, which Publishers and Subscribers of one thread can share: give it to them as `client`."""

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

        at: the path of its socket, to share memory with it; "unix:PATH", to send everything through the socket;
            "tcp:HOST:PORT" or "tls:HOST:PORT?authority=FILE&certificate=FILE&key=FILE&token-file=FILE"; None: this
            user's broker, or else the host's at /run/unisono/events
        name: of this program in tables, metrics and errors; None: what ps shows and the process's number, as in
            "python3[4711]"
        token: the secret that says over TCP who the program is; instead of the one in the address's file
        lease: seconds; the program calls the library at least this often, or the broker takes it for dead. Its next call
            raises Gone then, and says so. Who waits in a call is not silent.
        wait: "sleep", "spin" (needs a processor of its own) or "adaptive", until something comes
        reconnect: seconds for which it tries to connect again when the connection breaks. Topics and subscriptions are
            there again then, and each Subscriber gets the notice "reconnected". Calls that publish or ask wait meanwhile.
            Gone is raised when the time is over.
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
        """Calls a function of the library for this connection."""
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
        """A descriptor for selectors and event loops, to be watched for reading.

        Receive with a time limit of 0 until nothing is there before each wait: what has come may lie in this
        process already. With `reconnect` ask for the descriptor before each wait: it changes with the connection.
        """
        descriptor: int = self._library.unisono_client_descriptor(self._open())
        return descriptor

    @property
    def largest(self) -> int:
        """Bytes of the largest payload that the broker takes."""
        largest: int = self._library.unisono_client_largest(self._open())
        return largest

    @property
    def name(self) -> str:
        """By which the broker knows this program: in tables, metrics and errors."""
        name: bytes = self._library.unisono_client_name(self._open())
        return name.decode()

    def alive(self) -> None:
        """Says that this program lives, if it has a lease and calls nothing else in time."""
        self.call("unisono_client_alive")

    def statistics(self) -> Dict[str, Any]:
        """What the broker has done for all programs, with the keys of `unisono events top --json`, without rates.

        "consumers" has a row for each consumer, with the `name` of its program.
        """
        with self._lock:
            told = ctypes.c_char_p()
            c.check(self._library.unisono_client_statistics(self._open(), ctypes.byref(told)))
            read: Dict[str, Any] = json.loads(told.value or b"{}")
        self._wake_tasks()
        return read

    def flush(self) -> None:
        """Lets all leave that was published later."""
        while self._call_within("unisono_flush_within", nanos(INTERRUPTIBLE)) == TIMED_OUT:
            self._take_own()

    def publish_by(self, name: str, *arguments: Any) -> None:
        """Publishes an event by a function with a time limit, and waits until there is room for it."""
        taken = ctypes.c_int()
        while self._call_within(name, *arguments, nanos(INTERRUPTIBLE), ctypes.byref(taken)) == TIMED_OUT:
            self._take_own()
            if taken:
                return self.flush()

    async def flush_async(self) -> None:
        """As flush(); other tasks run until all has left."""
        while self._call_within("unisono_flush_within", 0) == TIMED_OUT:
            await self._wait_for_room()

    async def publish_by_async(self, name: str, *arguments: Any) -> None:
        """As publish_by(); other tasks run until there is room."""
        taken = ctypes.c_int()
        while self._call_within(name, *arguments, 0, ctypes.byref(taken)) == TIMED_OUT:
            if taken:
                return await self.flush_async()
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        await asyncio.sleep(0.0 if self._take_own() else ROOM_POLL_INTERVAL)

    def _is_used(self) -> None:
        """Notes that this thread consumes by this connection."""
        thread = threading.get_ident()
        if self._thread != thread:
            self._thread = thread
            _OWN.clients.add(self)

    def _call_within(self, name: str, *arguments: Any) -> int:
        """As call, for a function with a time limit: whether that is over is for the caller."""
        try:
            with self._lock:
                status: int = getattr(self._library, name)(self._open(), *arguments)
                if status != TIMED_OUT:
                    c.check(status)
        finally:
            self._wake_tasks()
        return status

    def _take_own(self) -> bool:
        """Keeps what has come for other connections of this thread; whether there was something. This thread may be
        waiting for its own queue to have room: a subscription that blocks suppliers, in the same thread."""
        took = False
        for other in list(_OWN.clients):
            if other is not self and other._thread == threading.get_ident() and not other.closed:
                while other._take(0.0):
                    took = True
        return took

    def expect(self, number: int) -> None:
        """From now on what comes for this subscription or topic is kept for it."""
        self._waiting[number] = deque()

    def expect_all(self, number: int) -> None:
        """As expect, for a subscription: it is also told what is about the connection."""
        self.expect(number)
        self._subscriptions.add(number)

    def forget(self, number: int) -> None:
        self._waiting.pop(number, None)
        self._subscriptions.discard(number)

    def receive(self, number: int, timeout: Optional[float] = None) -> Optional[Reception]:
        """What comes next for a subscription or topic; None: nothing in time. What comes for others is kept."""
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
        """As receive() without a time limit; other tasks run until something comes, and after each TURN of events."""
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
        """Until something may have come: at the descriptor, or into this process by a call of another task. Wakes up
        to renew the lease, too."""
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
        """Has the waiting tasks look again. They watch the descriptor anew then, which may be another one."""
        if self._watched is not None:
            (loop, descriptor), self._watched = self._watched, None
            if not loop.is_closed():
                loop.remove_reader(descriptor)
        while self._tasks:
            task = self._tasks.pop()
            if not task.done():
                task.set_result(None)

    def _take(self, timeout: float) -> bool:
        """Takes one event or notice to where it is waited for; whether there was one."""
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
        """Ends the connection; its topics and subscriptions end. Events that have come stay valid."""
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
                pass  # with the broker all that waited to leave is gone
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()
