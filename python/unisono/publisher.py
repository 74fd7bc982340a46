"""Publishing events, and sending requests."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Union

from . import _library as c
from .client import Client
from .errors import BadArgument
from .event import Event, FieldValue, Notice, Payload, arrived, draft, nanos, text
from .loan import Lent, Loan

_LOG = logging.getLogger("unisono")

REFUSAL_POLL_INTERVAL = 256
"""Events published between two polls for refusals, so that unread refusals never fill the connection."""

REFUSAL_WAIT = 0.05
"""Seconds after the last publication for which close() waits for refusals, if that event's deadline has passed: some
hundred times the broker's answer on an idle host. Chosen, not measured."""


class Published(NamedTuple):
    """The outcome of an event that try_publish() published."""

    sequence: int
    consumers: int
    """The number of consumers and groups whose queues got the event."""
    outcome: str
    """taken, standby (a stronger supplier of the topic lives; no consumer gets the event), duplicate (an event with
    this number came before; no consumer gets it again), written (in the broker's log) or synced (on disk)."""


_OUTCOMES = ("taken", "standby", "duplicate", "written", "synced")


class Publisher:
    """A topic on which this program publishes.

    close() and the end of `with` log the refusals of events that rejected() did not return.
    """

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
        """Announces that this program will publish on `topic`.

        at, client: the broker's address as for Client, or an open connection
        event_type: the name of its events' type. A subscription may ask for a type
        content_type, schema: the form of the payloads, such as "application/cbor"; each event gets them as fields,
            unless it has fields with these names
        last: the number of events that the broker keeps for late subscribers; not together with `last_values`
        last_values: the number of keys whose last event the broker keeps for late subscribers
        due_in: the deadline of events without a deadline of their own, in seconds after their publication
        exclusive, strength: consumers get only the events of the topic's strongest living supplier
        share: this supplier's weight where suppliers share the queue of a subscription (`between`); None: 1
        order: "publication" ensures that no consumer gets an event before an earlier event of this supplier
        reliable: the broker may redeliver events until they are acknowledged
        period, burst: the minimum mean time between events in seconds, averaged over `burst` events; the broker refuses
            events above this rate
        durability: what an answer of the broker promises: "received", "written" (in its log) or "synced" (on disk)
        writer: a name that stays the same across connections. The log accepts each event number of a writer once
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
        self._due_ns, self._left_at = 0, 0.0
        """The deadline of the last event, 0 without one, and the time of its publication."""
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
        """Publishes an event without waiting for its outcome. rejected() returns the events that the broker refused.

        Waits while a consumer that blocks suppliers has a full queue. If that consumer is a Subscriber of this thread,
        its events are received and kept in this process in the meantime.

        payload: bytes, a str (sent as UTF-8), or an object with a buffer, such as a numpy array
        key: identifies the thing that the event is about, if the topic is about several
        fields: named values, which filters can test
        due_in, deadline_ns: the deadline, in seconds from now or on the clock of time.monotonic_ns()
        criticality: from 0 to 255; a full queue drops the least critical events first
        later: the event may wait in this process until flush(), so that many events leave with one system call
        """
        made, _alive = draft(payload, key, fields, due_in, deadline_ns, criticality)
        if later:
            self._client.call("unisono_publish_later", self._number, ctypes.byref(made))
        else:
            self._client.publish_by("unisono_publish_within", self._number, ctypes.byref(made))
        self._count(made.deadline_ns)

    def _count(self, deadline_ns: int) -> None:
        self._published += 1
        self._due_ns, self._left_at = deadline_ns, time.monotonic()
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
        """Does the same as publish(), and lets other tasks run while a consumer blocks this supplier."""
        made, _alive = draft(payload, key, fields, due_in, deadline_ns, criticality)
        await self._client.publish_by_async("unisono_publish_within", self._number, ctypes.byref(made))
        self._count(made.deadline_ns)

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
        """Lends `size` bytes of memory for a payload, which consumers on this host read where it was written.

        The end of `with` or `async with` publishes the event, and the seconds of `due_in` count from then on. The other
        arguments are those of publish().
        """
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
        """Publishes an event if no consumer would block it, and returns the event's outcome.

        Raises Refused if the event was refused, so that no consumer got it; the text names the refuser and the reason.
        `number` is the event's number from the topic's `writer`, starting at 1. The other arguments are those of
        publish().
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
        """Publishes a request and returns its reply. Raises TimedOut if no reply comes within `timeout` seconds."""
        made, _alive = draft(payload, key, fields, due_in, None, 0)
        reply = ctypes.POINTER(c.EventView)()
        self._client.call(
            "unisono_ask", self._number, ctypes.byref(made), nanos(timeout), ctypes.byref(reply)
        )
        event = arrived(self._client.call, reply)
        assert isinstance(event, Event)  # unisono_ask() never returns a notice
        return event

    def rejected(self) -> List[Notice]:
        """Returns the refusals that arrived since the last call, of events that publish() sent."""
        refusals: List[Notice] = []
        while True:
            reception = self._client.receive(self._number.value, 0)
            if reception is None:
                return refusals
            if isinstance(reception, Notice):
                refusals.append(reception)

    def flush(self) -> None:
        """Sends all events that were published with later=True, and waits until they have left this process."""
        self._client.flush()

    async def flush_async(self) -> None:
        """Does the same as flush(), and lets other tasks run in the meantime."""
        await self._client.flush_async()

    def close(self) -> None:
        """Ends the topic: its subscribers learn that this supplier left."""
        if not self._client.closed and self._number:
            try:
                self._client.flush()
                self._log_refusals()
                self._client.call("unisono_withdraw", self._number)
            except ConnectionError:
                pass  # the broker is gone, so the topic has ended
            self._client.forget(self._number.value)
        self._number = ctypes.c_uint32()
        self._end()

    def _log_refusals(self) -> None:
        """Logs the refusals that rejected() has not returned."""
        refusals = self.rejected()
        if 0 < self._due_ns < time.monotonic_ns():
            # the broker may have found the last event late, and its refusal may be on its way
            until = self._left_at + REFUSAL_WAIT
            while time.monotonic() < until:
                self._client._take(max(until - time.monotonic(), 0.0))
                refusals += self.rejected()
        if len(refusals) == 1:
            _LOG.warning("%s: an event was refused: %s", self.topic, refusals[0].text)
        elif refusals:
            _LOG.warning("%s: %d events were refused, the first one: %s", self.topic, len(refusals), refusals[0].text)

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
                pass  # the broker is gone, so the unsent events are lost
        self.close()


def request(
    topic: str,
    payload: Payload = b"",
    *,
    timeout: float = 1.0,
    at: Union[str, os.PathLike[str], None] = None,
    fields: Optional[Mapping[str, FieldValue]] = None,
) -> Event:
    """Sends one request over a connection of its own and returns the reply. For many requests use Publisher.request."""
    with Publisher(topic, at=at) as publisher:
        return publisher.request(payload, timeout=timeout, fields=fields)
