"""Events to publish, and received events and notices."""

from __future__ import annotations

import ctypes
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from . import _library as c
from .errors import BadArgument

FieldValue = Union[bool, int, float, str]
Call = Callable[..., None]  # Client.call of the connection that received an event
Payload = Any  # bytes, a str (sent as UTF-8), or an object with a buffer: bytearray, memoryview, a numpy array

_KINDS = {
    1: "event",
    2: "gap",
    3: "gone",
    4: "owner",
    5: "mismatch",
    6: "tick",
    7: "silence",
    8: "incomplete",
    9: "rejected",
    10: "lost",
    c.RECONNECTED: "reconnected",
}


def text(value: str, what: str) -> bytes:
    """Encodes a text for C. Refuses a zero character, because C would end the text there."""
    if "\0" in value:
        raise BadArgument(f"{what} must not hold a zero: {value!r}")
    return value.encode()


def nanos(seconds: float) -> int:
    """Converts seconds to nanoseconds, the library's unit."""
    if seconds < 0:
        raise BadArgument(f"{seconds} s is no length of time")
    return round(seconds * 1e9)


class _Bytes:
    """Array types of bytes. Lengths are rounded up to a power of two, because ctypes never frees a type."""

    def __init__(self) -> None:
        self.types: Dict[int, Any] = {}

    def of(self, length: int) -> Any:
        power = max(length - 1, 0).bit_length()
        return self.types.setdefault(power, ctypes.c_ubyte * (1 << power))


_BYTES = _Bytes()


def bytes_at(address: int, length: int, holder: Any) -> memoryview:
    """Returns a view of the library's memory. The view, and each array made from it, keeps `holder` alive."""
    memory = _BYTES.of(length).from_address(address)
    memory.holder = holder
    return memoryview(memory).cast("B")[:length]


def draft(
    payload: Payload,
    key: Optional[str],
    fields: Optional[Mapping[str, FieldValue]],
    due_in: Optional[float],
    deadline_ns: Optional[int],
    criticality: int,
    number: Optional[int] = None,
) -> Tuple[c.Draft, List[Any]]:
    """Makes an event for the library. Returns it with the objects that must live as long as the event."""
    made, alive = c.Draft(), []
    if isinstance(payload, str):
        payload = payload.encode()
    view = memoryview(payload)
    if view.nbytes:
        if view.readonly or not view.c_contiguous:
            payload = payload if isinstance(payload, bytes) else view.tobytes()
            made.payload = ctypes.cast(ctypes.c_char_p(payload), ctypes.c_void_p)
        else:
            made.payload = ctypes.addressof(ctypes.c_char.from_buffer(view))
        alive += [view, payload]
    made.bytes = view.nbytes
    if key is not None:
        made.key = text(key, "a key")
    if fields:
        array = (c.Field * len(fields))(*(_field(name, value) for name, value in fields.items()))
        made.fields, made.field_count = array, len(fields)
    if due_in is not None and deadline_ns is not None:
        raise BadArgument("an event has either due_in or deadline_ns")
    if due_in is not None:
        deadline_ns = time.monotonic_ns() + nanos(due_in)
    if not 0 <= criticality <= 255:
        raise BadArgument(f"the criticality {criticality} is not between 0 and 255")
    made.deadline_ns, made.criticality = deadline_ns or 0, criticality
    if number is not None:
        if not 0 < number < 1 << 64:
            raise BadArgument(f"the number {number} is not between 1 and 2^64 - 1")
        made.number = number
    return made, alive


def _field(name: str, value: FieldValue) -> c.Field:
    named = text(name, "a field's name")
    if isinstance(value, bool):
        return c.Field(named, c.BOOL, int(value))
    if isinstance(value, str):
        return c.Field(named, c.TEXT, 0, 0.0, text(value, name))
    if isinstance(value, float):
        return c.Field(named, c.DECIMAL, 0, value)
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise BadArgument(f"the field {name} is beyond 64 bits: {value}")
        return c.Field(named, c.WHOLE, value)
    if hasattr(value, "item"):  # a scalar of numpy
        return _field(name, value.item())
    raise BadArgument(f"the field {name} is a {type(value).__name__}, not a bool, an int, a float or a str")


class Held:
    """A received event or notice of the library, freed when no object uses any part of it."""

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer
        self._free = c.library().unisono_event_free

    def __del__(self) -> None:
        self._free(ctypes.byref(self.pointer))


class Event:
    """A received event. Its payload stays valid as long as the event or a view of the payload is in use."""

    def __init__(self, call: Call, held: Held, view: c.EventView) -> None:
        self._call, self._held, self._view = call, held, view

    @property
    def topic(self) -> str:
        return self._view.topic.decode()

    @property
    def key(self) -> Optional[str]:
        """Identifies the thing that the event is about, if the topic is about several. None: no key."""
        key = self._view.key
        return None if key is None else key.decode()

    @property
    def payload(self) -> memoryview:
        """A read-only view of the payload, without a copy.

        A payload of 16 KiB or more that came through shared memory stays in memory that its supplier can change at
        any time. If the supplier is not trusted, copy the payload first, and check and use the copy: bytes(event).
        """
        view = self._view
        return bytes_at(view.payload, view.bytes, self._held).toreadonly() if view.bytes else memoryview(b"")

    def __bytes__(self) -> bytes:
        return ctypes.string_at(self._view.payload, self._view.bytes) if self._view.bytes else b""

    def __len__(self) -> int:
        return self._view.bytes

    def __bool__(self) -> bool:
        return True  # although len() of an event without a payload is 0

    def text(self) -> str:
        """Returns the payload, decoded as UTF-8."""
        return bytes(self).decode()

    def array(self, dtype: Any = "uint8", shape: Any = None) -> Any:
        """Returns the payload as a read-only numpy array, without a copy."""
        import numpy

        array = numpy.frombuffer(self.payload, dtype=dtype)
        return array if shape is None else array.reshape(shape)

    @property
    def fields(self) -> Dict[str, FieldValue]:
        return {field.name.decode(): _value(field) for field in self._view.fields[: self._view.field_count]}

    @property
    def content_type(self) -> Optional[str]:
        """The content type of the payload, such as "application/cbor". None: the supplier does not state it."""
        return self._text_field("content_type")

    @property
    def schema(self) -> Optional[str]:
        """The name of the payload's schema. None: the supplier does not state it."""
        return self._text_field("schema")

    def _text_field(self, name: str) -> Optional[str]:
        value = self.fields.get(name)
        return value if isinstance(value, str) else None

    @property
    def supplier(self) -> int:
        """The broker's number of the event's supplier."""
        return self._view.supplier

    @property
    def sequence(self) -> int:
        """The event's number in the supplier's count of its events on the topic."""
        return self._view.sequence

    @property
    def criticality(self) -> int:
        return self._view.criticality

    @property
    def published_ns(self) -> int:
        """The time of publication, on the clock of time.monotonic_ns()."""
        return self._view.published_ns

    @property
    def deadline_ns(self) -> Optional[int]:
        """The deadline, on the clock of time.monotonic_ns(). None: the event has no deadline."""
        return self._view.deadline_ns or None

    @property
    def remaining(self) -> Optional[float]:
        """Seconds until the deadline, negative after it. None: the event has no deadline."""
        deadline = self._view.deadline_ns
        return (deadline - time.monotonic_ns()) / 1e9 if deadline else None

    @property
    def late(self) -> bool:
        """Whether the deadline had passed at the delivery."""
        return bool(self._view.flags & c.LATE)

    @property
    def retained(self) -> bool:
        """Whether the event was published before the subscription began."""
        return bool(self._view.flags & c.RETAINED)

    @property
    def repeated(self) -> int:
        """The number of earlier deliveries that were not acknowledged; 255 means 255 or more."""
        return self._view.repeated

    @property
    def parts(self) -> List[Event]:
        """The other events of a correlation, in the order of the subscription's topics."""
        parts = self._view.with_[: self._view.with_count]
        return [Event(self._call, self._held, part.contents) for part in parts]

    @property
    def is_request(self) -> bool:
        """Whether the event is a request, so that its supplier waits for a reply."""
        fields = self.fields
        return "reply_to" in fields and "request" in fields

    @property
    def delivery(self) -> Optional[int]:
        """The number of the delivery. None: the event needs no acknowledgment.

        If the Subscriber has `resume`, this is the event's position in the log. A program that stores the position
        with its result can continue there: it passes the position as `after`.
        """
        return self._view.last if self._view.flags & c.ACKNOWLEDGE else None

    def acknowledge(self) -> None:
        """Acknowledges the event, so that it is not delivered again."""
        self._call("unisono_acknowledge", ctypes.byref(self._view))

    def reply(self, payload: Payload = b"", fields: Optional[Mapping[str, FieldValue]] = None) -> None:
        """Answers a request."""
        made, _alive = draft(payload, None, fields, None, None, 0)
        self._call("unisono_reply", ctypes.byref(self._view), ctypes.byref(made))

    def reply_failure(self, why: str) -> None:
        """Answers a request that failed: the program that asked gets Refused with the text `why`."""
        self.reply(fields={"reply_error": why})

    def __repr__(self) -> str:
        return f"<Event {self.topic} #{self.sequence} {self.fields} {len(self)} bytes>"


def _value(field: c.Field) -> FieldValue:
    if field.kind == c.TEXT:
        return field.text.decode()
    if field.kind == c.BOOL:
        return bool(field.whole)
    return field.whole if field.kind == c.WHOLE else field.decimal


class Notice:
    """Information about a subscription or a topic that is not an event, such as a gap."""

    def __init__(self, view: c.EventView) -> None:
        self.kind: str = _KINDS.get(view.kind, "unknown")
        """gap, gone, owner, mismatch, tick, silence, incomplete, rejected, lost or reconnected: see `unisono_reception`
        in unisono.h."""
        self.topic: Optional[str] = None if view.topic is None else view.topic.decode()
        self.text: str = (view.text or b"").decode()
        self.supplier: int = view.supplier
        self.first: int = view.sequence
        """gap: the number of the first missing event. lost: the first position that the log no longer has."""
        self.last: int = view.last
        self.lost: int = view.lost
        self.died: bool = bool(view.died)
        """gone: True if the supplier died, False if it left."""
        self.time_ns: int = view.published_ns
        """tick: the end of the period. silence: the arrival of the last event. reconnected: the time when the library
        noticed the broken connection. On the clock of time.monotonic_ns()."""

    def __str__(self) -> str:
        return f"{self.topic}: {self.text}" if self.topic else self.text

    def __repr__(self) -> str:
        return f"<Notice {self.kind} {self}>"


def arrived(call: Call, pointer: Any) -> Union[Event, Notice]:
    """Makes an Event or a Notice of a result of the library, which is freed when no object uses it any more."""
    held = Held(pointer)
    view = pointer.contents
    return Event(call, held, view) if view.kind == 1 else Notice(view)
