"""Publishing, and requests."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Union

from . import _library as c
from .client import Client
from .errors import BadArgument
from .event import Event, FieldValue, Notice, Payload, arrived, draft, nanos, text
from .loan import Lent, Loan

REFUSAL_POLL_INTERVAL = 256
"""Events published between two polls for refusals, so that they never fill the connection."""


class Published(NamedTuple):
    """What became of an event."""

    sequence: int
    consumers: int
    """In the queues of so many consumers and groups it is."""
    outcome: str
    """taken, standby (a stronger supplier of the topic lives), duplicate, written (in the broker's log) or synced (on
    the disk)."""


_OUTCOMES = ("taken", "standby", "duplicate", "written", "synced")


class Publisher:
    """A topic to publish on."""

    def __init__(
        self,
        topic: str,
        *,
        at: Union[str, os.PathLike[str], None] = None,
        client: Optional[Client] = None,
        event_type: Optional[str] = None,
        content_type: Optional[str] = None,
        schema: Optional[str] = None,
        last: int = 0,
        last_values: int = 0,
        due_in: Optional[float] = None,
        exclusive: bool = False,
        strength: int = 0,
        share: Optional[int] = None,
        order: str = "deadlines",
        reliable: bool = False,
        period: Optional[float] = None,
        burst: int = 0,
        durability: Optional[str] = None,
        writer: Optional[str] = None,
        more: Optional[Mapping[str, Any]] = None,
    ) -> None:
        """Says that this program will publish on `topic`.

        at, client: a broker's address, or a connection that is open
        event_type: the name of the type of its events
        content_type, schema: the form of its payloads, such as "application/cbor": fields of each event that has no others
        last, last_values: the broker keeps so many events, or the last one of so many keys, for late subscribers
        due_in: seconds after which an event is due that has no deadline of its own
        exclusive, strength: only the strongest living supplier of the topic is heard
        share: how much its events get of the time of consumers that share theirs out (`between`); None: 1
        order: "publication": no consumer gets an event of this topic before an earlier one of this supplier
        reliable: events may be redelivered until they are acknowledged
        period, burst: events come at least `period` seconds apart, but for bursts; faster ones are refused
        durability: "received", "written" (in the broker's log) or "synced" (on the disk): what an answer promises
        writer: a name across connections; of the events that it numbers the log takes each once
        more: further keys of an ADVERTISE frame (crates/events-wire/PROTOCOL.md)
        """
        spec: Dict[str, Any] = dict(more or {})
        if event_type is not None:
            spec["event_type"] = event_type
        if content_type is not None or schema is not None:
            form = {"type": content_type, "schema": schema}
            spec["content"] = {key: value for key, value in form.items() if value is not None}
        if due_in is not None:
            spec["deadline_ns"] = nanos(due_in)
        if period is not None:
            spec["period_ns"] = nanos(period)
        if burst:
            spec["burst"] = burst
        if share is not None:
            spec["share"] = share
        if order != "deadlines":
            spec["order"] = order
        if durability is not None:
            spec["durability"] = durability
        if writer is not None:
            spec["writer"] = writer
        if exclusive or reliable:
            spec.update(exclusive=exclusive, reliable=reliable)
        options = c.Topic(name=text(topic, "a topic"), last=last, last_values=last_values, strength=strength)
        options.more = text(json.dumps(spec), "an option")
        self.topic = topic
        self._owns, self._client = client is None, Client(at) if client is None else client
        self._number, self._published = ctypes.c_uint32(), 0
        try:
            self._client.call("unisono_advertise", ctypes.byref(options), ctypes.byref(self._number))
        except BaseException:
            self._end()
            raise
        self._client.expect(self._number.value)

    def publish(
        self,
        payload: Payload = b"",
        *,
        key: Optional[str] = None,
        fields: Optional[Mapping[str, FieldValue]] = None,
        due_in: Optional[float] = None,
        deadline_ns: Optional[int] = None,
        criticality: int = 0,
        later: bool = False,
    ) -> None:
        """Publishes an event and does not wait for what becomes of it; `rejected` says what was refused.

        Waits while a consumer that blocks suppliers has no room. If that consumer is a Subscriber of this thread, its
        events are kept in this process meanwhile.

        payload: bytes, a str (as UTF-8), or whatever has a buffer, such as a numpy array
        key: which of the things that the topic is about
        fields: named values by which filters decide
        due_in, deadline_ns: seconds from now, or a time of time.monotonic_ns(), by which it is due
        criticality: from 0 to 255; a full queue drops the least critical events first
        later: it may wait in this process until flush(): many events then leave with one system call
        """
        made, _alive = draft(payload, key, fields, due_in, deadline_ns, criticality)
        if later:
            self._client.call("unisono_publish_later", self._number, ctypes.byref(made))
        else:
            self._client.publish_by("unisono_publish_within", self._number, ctypes.byref(made))
        self._count()

    def _count(self) -> None:
        self._published += 1
        if self._published % REFUSAL_POLL_INTERVAL == 0:
            while self._client._take(0.0):
                pass

    async def publish_async(
        self,
        payload: Payload = b"",
        *,
        key: Optional[str] = None,
        fields: Optional[Mapping[str, FieldValue]] = None,
        due_in: Optional[float] = None,
        deadline_ns: Optional[int] = None,
        criticality: int = 0,
    ) -> None:
        """As publish(); other tasks run while a consumer that blocks suppliers has no room."""
        made, _alive = draft(payload, key, fields, due_in, deadline_ns, criticality)
        await self._client.publish_by_async("unisono_publish_within", self._number, ctypes.byref(made))
        self._count()

    def loan(
        self,
        size: int,
        *,
        key: Optional[str] = None,
        fields: Optional[Mapping[str, FieldValue]] = None,
        due_in: Optional[float] = None,
        deadline_ns: Optional[int] = None,
        criticality: int = 0,
    ) -> Loan:
        """Memory of `size` bytes for a payload, which consumers of this host read where it is written. The end of
        `with` or `async with` publishes it, and the seconds of `due_in` begin then; the rest is as for publish()."""
        if size < 1:
            raise BadArgument(f"a loan has at least one byte, not {size}; publish() takes an event without payload")
        made, _alive = draft(b"", key, fields, due_in, deadline_ns, criticality)
        made.bytes, pointer = size, ctypes.POINTER(c.Lent)()
        self._client.call("unisono_loan", self._number, ctypes.byref(made), ctypes.byref(pointer))
        return Loan(self._client, Lent(pointer), due_in, self._count)

    def try_publish(
        self,
        payload: Payload = b"",
        *,
        key: Optional[str] = None,
        fields: Optional[Mapping[str, FieldValue]] = None,
        due_in: Optional[float] = None,
        deadline_ns: Optional[int] = None,
        criticality: int = 0,
        number: Optional[int] = None,
    ) -> Published:
        """Publishes an event unless it would have to wait for a consumer, and says what became of it.

        Raises Refused if nobody got it, with the words of whoever refused it. With `number` it is the writer's event of
        that number, from 1 on; the others are as for publish().
        """
        made, _alive = draft(payload, key, fields, due_in, deadline_ns, criticality, number)
        became = c.PublishedView()
        self._client.call("unisono_try_publish", self._number, ctypes.byref(made), ctypes.byref(became))
        return Published(became.sequence, became.consumers, _OUTCOMES[became.outcome])

    def request(
        self,
        payload: Payload = b"",
        *,
        timeout: float = 1.0,
        key: Optional[str] = None,
        fields: Optional[Mapping[str, FieldValue]] = None,
        due_in: Optional[float] = None,
    ) -> Event:
        """Publishes a request and waits for its reply; raises TimedOut if none comes within `timeout` seconds."""
        made, _alive = draft(payload, key, fields, due_in, None, 0)
        reply = ctypes.POINTER(c.EventView)()
        self._client.call(
            "unisono_ask", self._number, ctypes.byref(made), nanos(timeout), ctypes.byref(reply)
        )
        event = arrived(self._client.call, reply)
        assert isinstance(event, Event)  # the library answers a request by nothing else
        return event

    def rejected(self) -> List[Notice]:
        """The refusals, since the last call, of events that publish() did not wait for."""
        refusals: List[Notice] = []
        while True:
            reception = self._client.receive(self._number.value, 0)
            if reception is None:
                return refusals
            if isinstance(reception, Notice):
                refusals.append(reception)

    def flush(self) -> None:
        """Lets all leave that was published later."""
        self._client.flush()

    async def flush_async(self) -> None:
        """As flush(); other tasks run until all has left."""
        await self._client.flush_async()

    def close(self) -> None:
        """Ends the topic: those who listen hear that this supplier left."""
        if not self._client.closed and self._number:
            self._client.forget(self._number.value)
            try:
                self._client.flush()
                self._client.call("unisono_withdraw", self._number)
            except ConnectionError:
                pass  # with the broker the topic is gone
        self._number = ctypes.c_uint32()
        self._end()

    def _end(self) -> None:
        if self._owns:
            self._client.close()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Publisher:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._client.closed:
            try:
                await self.flush_async()
            except ConnectionError:
                pass  # with the broker all that waited to leave is gone
        self.close()


def request(
    topic: str,
    payload: Payload = b"",
    *,
    timeout: float = 1.0,
    at: Union[str, os.PathLike[str], None] = None,
    fields: Optional[Mapping[str, FieldValue]] = None,
) -> Event:
    """Asks once, over a connection of its own. For many requests use Publisher.request."""
    with Publisher(topic, at=at) as publisher:
        return publisher.request(payload, timeout=timeout, fields=fields)
