"""Finds libunisono and declares its functions and structures as unisono.h does."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Iterator

from .errors import INTERRUPTED, OK, error

VERSION = "0.2.0"
"""The version of the library that these declarations match."""

NAMES = ("libunisono.so.0", "libunisono.so")


class Field(ctypes.Structure):
    name: bytes
    kind: int
    whole: int
    decimal: float
    text: bytes
    _fields_ = [
        ("name", c_char_p),
        ("kind", c_int),
        ("whole", c_int64),
        ("decimal", c_double),
        ("text", c_char_p),
    ]


WHOLE, DECIMAL, BOOL, TEXT = 1, 2, 3, 4


class Topic(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("event_type", c_char_p),
        ("last", c_size_t),
        ("last_values", c_size_t),
        ("deadline_ns", c_uint64),
        ("flags", c_uint32),
        ("strength", c_uint32),
        ("more", c_char_p),
    ]


class Draft(ctypes.Structure):
    _fields_ = [
        ("payload", c_void_p),
        ("bytes", c_size_t),
        ("key", c_char_p),
        ("fields", POINTER(Field)),
        ("field_count", c_size_t),
        ("deadline_ns", c_uint64),
        ("criticality", c_uint8),
        ("number", c_uint64),
    ]


class Lent(ctypes.Structure):
    _fields_ = [("memory", c_void_p), ("bytes", c_size_t), ("in_place", c_int)]


class ClientOptions(ctypes.Structure):
    _fields_ = [
        ("address", c_char_p),
        ("name", c_char_p),
        ("token", c_char_p),
        ("lease_ns", c_uint64),
        ("wait", c_int),
        ("reconnect_ns", c_uint64),
    ]


class PublishedView(ctypes.Structure):
    _fields_ = [("sequence", c_uint64), ("consumers", c_uint32), ("outcome", c_int)]


class Subscription(ctypes.Structure):
    _fields_ = [
        ("topics", c_char_p),
        ("filter", c_char_p),
        ("event_type", c_char_p),
        ("class_name", c_char_p),
        ("group", c_char_p),
        ("queue", c_size_t),
        ("full", c_int),
        ("late", c_int),
        ("last", c_size_t),
        ("acknowledge_ns", c_uint64),
        ("more", c_char_p),
    ]


class EventView(ctypes.Structure):
    kind: int
    number: int
    topic: bytes  # None for a notice that concerns no topic
    bytes: int
    published_ns: int
    deadline_ns: int
    sequence: int
    last: int
    supplier: int
    flags: int
    criticality: int
    repeated: int


EventView._fields_ = [
    ("kind", c_int),
    ("number", c_uint32),
    ("topic", c_char_p),
    ("key", c_char_p),
    ("text", c_char_p),
    ("payload", c_void_p),
    ("bytes", c_size_t),
    ("fields", POINTER(Field)),
    ("field_count", c_size_t),
    ("with_", POINTER(POINTER(EventView))),
    ("with_count", c_size_t),
    ("published_ns", c_uint64),
    ("deadline_ns", c_uint64),
    ("sequence", c_uint64),
    ("last", c_uint64),
    ("lost", c_uint64),
    ("supplier", c_uint32),
    ("flags", c_uint32),
    ("criticality", c_uint8),
    ("repeated", c_uint8),
    ("died", c_uint8),
]

LATE, RETAINED, ACKNOWLEDGE = 1, 2, 4
RECONNECTED = 11

_FUNCTIONS = {
    "unisono_version": (c_char_p, []),
    "unisono_error_text": (c_char_p, []),
    "unisono_client_open": (c_int, [POINTER(ClientOptions), POINTER(c_void_p)]),
    "unisono_client_name": (c_char_p, [c_void_p]),
    "unisono_client_alive": (c_int, [c_void_p]),
    "unisono_client_statistics": (c_int, [c_void_p, POINTER(c_char_p)]),
    "unisono_client_close": (c_int, [POINTER(c_void_p)]),
    "unisono_client_descriptor": (c_int, [c_void_p]),
    "unisono_client_largest": (c_size_t, [c_void_p]),
    "unisono_advertise": (c_int, [c_void_p, POINTER(Topic), POINTER(c_uint32)]),
    "unisono_withdraw": (c_int, [c_void_p, c_uint32]),
    "unisono_publish_within": (c_int, [c_void_p, c_uint32, POINTER(Draft), c_uint64, POINTER(c_int)]),
    "unisono_loan": (c_int, [c_void_p, c_uint32, POINTER(Draft), POINTER(POINTER(Lent))]),
    "unisono_publish_loan_within": (c_int, [c_void_p, POINTER(Lent), c_uint64, c_uint64, POINTER(c_int)]),
    "unisono_loan_return": (c_int, [POINTER(POINTER(Lent))]),
    "unisono_publish_later": (c_int, [c_void_p, c_uint32, POINTER(Draft)]),
    "unisono_flush_within": (c_int, [c_void_p, c_uint64]),
    "unisono_end_waits_by": (None, [ctypes.CFUNCTYPE(c_int)]),
    "unisono_try_publish": (c_int, [c_void_p, c_uint32, POINTER(Draft), POINTER(PublishedView)]),
    "unisono_ask": (c_int, [c_void_p, c_uint32, POINTER(Draft), c_int64, POINTER(POINTER(EventView))]),
    "unisono_reply": (c_int, [c_void_p, POINTER(EventView), POINTER(Draft)]),
    "unisono_subscribe": (c_int, [c_void_p, POINTER(Subscription), POINTER(c_uint32)]),
    "unisono_unsubscribe": (c_int, [c_void_p, c_uint32]),
    "unisono_receive": (c_int, [c_void_p, c_int64, POINTER(POINTER(EventView))]),
    "unisono_event_free": (c_int, [POINTER(POINTER(EventView))]),
    "unisono_acknowledge": (c_int, [c_void_p, POINTER(EventView)]),
    "unisono_share_socket": (c_int, [c_int, c_char_p, c_double]),
}


def _places() -> Iterator[str]:
    """Yields the places to search for the library, in order. The dynamic loader finds a name without a slash."""
    named = os.environ.get("UNISONO_LIBRARY")
    if named:
        if os.path.isdir(named):
            yield from (str(Path(named) / name) for name in NAMES)
        else:
            yield named
        return  # UNISONO_LIBRARY excludes all other places
    here = Path(__file__).resolve().parent
    for folder in (here, *here.parents):
        yield from (str(folder / name) for name in NAMES if (folder / name).is_file())
    yield from NAMES


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Loads the library at the first call, and returns the same one at each later call."""
    tried = []
    for place in _places():
        try:
            found = ctypes.CDLL(place)
        except OSError as refused:
            tried.append(str(refused))
            continue
        return _declared(found, place)
    raise ImportError(
        "libunisono is not to be found; build it (cargo build --release) and set UNISONO_LIBRARY to its directory: "
        + "; ".join(tried)
    )


def _declared(found: ctypes.CDLL, place: str) -> ctypes.CDLL:
    try:
        found.unisono_version.restype = c_char_p
        version = found.unisono_version().decode()
    except AttributeError:
        version = "without events"
    if version != VERSION:
        raise ImportError(f"{place} is libunisono {version}, and this package is for {VERSION}; install both again")
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    found.unisono_end_waits_by(_ctrl_c)
    return found


# Threads call this function while they wait in the library. A function written in Python could not take its place: its
# first instruction would run the signal's handler, and ctypes drops the handler's exception. In the main thread
# PyOS_InterruptOccurred() returns whether Ctrl-C came, and clears that mark; check() then raises the signal again.
_interrupted = ctypes.pythonapi.PyOS_InterruptOccurred
_interrupted.restype, _interrupted.argtypes = c_int, []
_ctrl_c = ctypes.CFUNCTYPE(c_int)(_interrupted)


def library_version() -> str:
    """Returns the version of libunisono, and loads the library if no call has loaded it yet."""
    version: bytes = library().unisono_version()
    return version.decode()


def check(status: int) -> None:
    """Raises the exception for the status of this thread's last call, unless the status is OK."""
    if status == INTERRUPTED:
        # runs the handler of Ctrl-C, which raises KeyboardInterrupt unless the program has set another handler
        signal.raise_signal(signal.SIGINT)
    if status != OK:
        raise error(status, library().unisono_error_text().decode())
