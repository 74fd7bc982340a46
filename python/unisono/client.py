"""A connection to a broker."""

from __future__ import annotations

import ctypes
import os
import select
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, Optional, Union

from . import _library as c
from .errors import OK, TIMED_OUT, Gone
from .event import Event, Notice, arrived, nanos, text

Reception = Union[Event, Notice]

EXACTLY = 0.005
"""Seconds at the end of a wait that the library waits, to the nanosecond; poll(2) counts milliseconds."""


class Client:
    """A connection, which Publishers and Subscribers of one thread can share: give it to them as `client`."""

    def __init__(self, at: Union[str, os.PathLike[str], None] = None) -> None:
        """`at`: the path of the broker's socket, "shm:PATH", "tcp:HOST:PORT" or
        "tls:HOST:PORT?authority=FILE&certificate=FILE&key=FILE&token-file=FILE". None: this user's broker, or else the
        host's at /run/unisono/events."""
        self._library = c.library()
        self._lock = threading.Lock()
        self._handle = ctypes.c_void_p()
        address = None if at is None else text(os.fspath(at), "an address")
        c.check(self._library.unisono_client_connect(address, ctypes.byref(self._handle)))
        self._waiting: Dict[int, Deque[Reception]] = {}
        self._poll = select.poll()
        self._poll.register(self.fileno(), select.POLLIN)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the library for this connection."""
        with self._lock:
            c.check(getattr(self._library, name)(self._open(), *arguments))

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
        process already.
        """
        return self._library.unisono_client_descriptor(self._open())

    @property
    def largest(self) -> int:
        """Bytes of the largest payload that the broker takes."""
        return self._library.unisono_client_largest(self._open())

    def flush(self) -> None:
        """Lets all leave that was published later."""
        self.call("unisono_flush")

    def expect(self, number: int) -> None:
        """From now on what comes for this subscription or topic is kept for it."""
        self._waiting[number] = deque()

    def forget(self, number: int) -> None:
        self._waiting.pop(number, None)

    def receive(self, number: int, timeout: Optional[float] = None) -> Optional[Reception]:
        """What comes next for a subscription or topic; None: nothing in time. What comes for others is kept."""
        until = None if timeout is None else time.monotonic() + timeout
        mine = self._waiting[number]
        while not mine:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= EXACTLY:
                if not self._take(max(left, 0.0)):
                    return None
            elif not self._take(0.0):
                self._poll.poll(None if left is None else (left - EXACTLY) * 1000)
        return mine.popleft()

    def _take(self, timeout: float) -> bool:
        """Takes one event or notice to where it is waited for; whether there was one."""
        pointer = ctypes.POINTER(c.EventView)()
        with self._lock:
            status = self._library.unisono_receive(self._open(), nanos(timeout), ctypes.byref(pointer))
            if status not in (OK, TIMED_OUT):
                c.check(status)
        if status == TIMED_OUT:
            return False
        number = pointer.contents.number
        reception = arrived(self, pointer)
        if number in self._waiting:
            self._waiting[number].append(reception)
        return True

    def close(self) -> None:
        """Ends the connection; its topics and subscriptions end. Events that have come stay valid."""
        with self._lock:
            if self._handle:
                self._poll.unregister(self._library.unisono_client_descriptor(self._handle))
                c.check(self._library.unisono_client_close(ctypes.byref(self._handle)))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()
