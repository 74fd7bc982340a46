"""Receiving events, and serving requests."""

from __future__ import annotations

import ctypes
import json
import logging
import os
from typing import Any, AsyncIterator, Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple, Union

from . import _library as c
from .client import Client, Reception
from .errors import BadArgument, Gone
from .event import Event, Notice, Payload, nanos, text

_LOG = logging.getLogger("unisono")


def _warn(notice: Notice) -> None:
    _LOG.warning("%s", notice)


def _check(name: str, value: str, possible: Tuple[str, ...]) -> None:
    """Raises BadArgument, with the possible values, if an option has none of them."""
    if value not in possible:
        raise BadArgument("%s=%r is none of %s" % (name, value, ", ".join(repr(one) for one in possible)))


class Subscriber:
    """A subscription: iterate over it, or call receive().

    Iteration yields only events. It passes notices (a gap, a supplier that is gone) to `on_notice`, which logs them
    unless the program sets another function. receive() returns notices as well as events.
    """

    def __init__(
        self,
        topics: Union[str, Sequence[str]],
        *,
        at: Union[str, os.PathLike[str], None] = None,
        client: Optional[Client] = None,
        filter: Optional[str] = None,
        event_type: Optional[str] = None,
        policy_class: Optional[str] = None,
        group: Optional[str] = None,
        queue: int = 1024,
        full: str = "drop-oldest",
        late: str = "deliver",
        between: str = "deadlines",
        order: str = "deadlines",
        best_effort: bool = False,
        last: int = 0,
        acknowledge: Optional[float] = None,
        attempts: int = 16,
        window: int = 64,
        linger: Optional[float] = None,
        period: Optional[float] = None,
        execution: float = 1e-6,
        due: Optional[float] = None,
        largest: int = 65536,
        together: Optional[str] = None,
        within: Optional[float] = None,
        every: Optional[float] = None,
        silence: Optional[float] = None,
        resume: Optional[str] = None,
        after: Optional[int] = None,
        direct: bool = True,
        more: Optional[Mapping[str, Any]] = None,
        on_notice: Callable[[Notice], None] = _warn,
    ) -> None:
        """Subscribes to topics. In a pattern, + stands for one level and # for all further levels.

        at, client: the broker's address as for Client, or an open connection
        filter: a condition on fields, such as "celsius > 80"
        event_type: receive only topics with this type
        policy_class: a class of the broker's policy
        group: consumers of a group share the events: each event goes to a single member
        queue: the maximum number of events that wait in the broker
        full: what happens to events while the queue is full: "drop-oldest" drops the oldest; "drop-by-deadline" drops a
            late one, or else the one with the latest deadline; with "block-supplier" the supplier waits
        late: what happens to events whose deadline has passed: "deliver", "drop" or "report" (dropped, with a notice)
        between: "deadlines": events that are due first come first, from any supplier; "shares": suppliers share the
            queue in proportion to their shares
        order: "deadlines": events that are due first come first; "publication": events of a supplier on a topic come in
            the order in which it published them
        best_effort: over UDP, no event waits for another event that the network lost; a notice reports each loss
        last: the number of events that a topic must keep for late subscribers, or the subscription does not get it. All
            kept events arrive, also if there are more; they have no deadline, so `late` does not apply to them
        acknowledge: the seconds after which an event that was not acknowledged is delivered again
        attempts, window: with `acknowledge`, how often an event is delivered at most, and how many events may be
            delivered and not acknowledged. `acknowledge=60, window=1, queue=1`: the newest event, each time
        linger: the seconds for which the queue of a group stays after its last consumer has gone
        period, execution, due, largest: a reservation: events of at most `largest` bytes come at least `period` seconds
            apart, the delivery of one takes the broker at most `execution` seconds, and each is delivered within `due`
            seconds; the broker refuses what it cannot guarantee
        together, within: one event of each topic, all within `within` seconds, makes one delivery: "all": in any order;
            "sequence": in the order of `topics`
        every, silence: a notice each `every` seconds; a notice when no event came for `silence` seconds
        resume: this consumer's name in the broker's log. It gets the events of the log, each again until it is
            acknowledged, also after a crash. Iteration acknowledges them
        after: with `resume`, the position in the log after which to begin; 0 is the start of the log
        direct: whether events may come directly from suppliers, without the broker between them, where that is possible
        more: further keys of a SUBSCRIBE frame (crates/events-wire/PROTOCOL.md)
        """
        _check("full", full, ("drop-oldest", "drop-by-deadline", "block-supplier"))
        _check("late", late, ("deliver", "drop", "report"))
        _check("between", between, ("deadlines", "shares"))
        _check("order", order, ("deadlines", "publication"))
        if together is not None:
            _check("together", together, ("all", "sequence"))
        patterns = [topics] if isinstance(topics, str) else list(topics)
        interest = {key: value for key, value in (("event_type", event_type), ("filter", filter)) if value is not None}
        spec: Dict[str, Any] = {
            "interests": [{"topics": pattern, **interest} for pattern in patterns],
            "queue_events": queue,
            "full": full,
            "late": late,
            **(more or {}),
        }
        if not direct:
            spec["direct"] = False
        if between != "deadlines":
            spec["between"] = between
        if order != "deadlines":
            spec["order"] = order
        if best_effort:
            spec["best_effort"] = True
        named = {"class": policy_class, "group": group}
        times = {"every_ns": every, "silence_ns": silence, "linger_ns": linger}
        spec.update({key: value for key, value in named.items() if value is not None})
        spec.update({key: nanos(value) for key, value in times.items() if value is not None})
        if acknowledge is not None and "again" not in spec:
            spec["again"] = {"after_ns": nanos(acknowledge), "attempts": attempts, "window": window}
        elif acknowledge is None and (attempts, window) != (16, 64):
            raise BadArgument("attempts and window need acknowledge, the time after which an event comes again")
        if (period is None) != (due is None):
            raise BadArgument("period and due make a reservation together")
        if period is not None and due is not None:
            spec["reserve"] = {"period_ns": nanos(period), "deadline_ns": nanos(due), "largest": largest}
            spec["execution_ns"] = nanos(execution)
        if resume is not None:
            spec["resume"] = {"name": resume} if after is None else {"name": resume, "after": after}
        elif after is not None:
            raise BadArgument("after needs resume, the name to go on by")
        if together is not None:
            spec["together"] = {"rule": together, "within_ns": nanos(within or 0), "report": True}
        options = c.Subscription(last=last, acknowledge_ns=nanos(acknowledge or 0))
        options.more = text(json.dumps(spec), "an option")
        self.on_notice = on_notice
        self._acknowledges = acknowledge is not None or "again" in spec or "resume" in spec
        self._owns, self._client = client is None, Client(at) if client is None else client
        self._number = ctypes.c_uint32()
        try:
            self._client.call("unisono_subscribe", ctypes.byref(options), ctypes.byref(self._number))
        except BaseException:
            self._end()
            raise
        self._client.expect_all(self._number.value)

    def fileno(self) -> int:
        """Returns a descriptor for selectors. Before each wait, call receive(0) until it returns None."""
        return self._client.fileno()

    def receive(self, timeout: Optional[float] = None) -> Optional[Reception]:
        """Returns the next event or notice, or None if none arrives within `timeout` seconds."""
        if not self._number:
            raise Gone("the subscription is closed")
        return self._client.receive(self._number.value, timeout)

    def next_event(self, timeout: Optional[float] = None) -> Optional[Event]:
        """Returns the next event, and passes notices to `on_notice`. Each notice starts the timeout anew.

        Returns None if neither an event nor a notice arrives within `timeout` seconds.
        """
        while True:
            reception = self.receive(timeout)
            if not isinstance(reception, Notice):
                return reception
            self.on_notice(reception)

    def __iter__(self) -> Iterator[Event]:
        """Yields events without end. An event that needs an acknowledgment gets it when the next one is requested."""
        while self._number:
            event = self.next_event()
            if event is not None:
                yield event
                if self._acknowledges and self._number:
                    event.acknowledge()

    async def receive_async(self) -> Reception:
        """Returns the next event or notice; other tasks run until one arrives."""
        if not self._number:
            raise Gone("the subscription is closed")
        return await self._client.receive_async(self._number.value)

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yields events for `async for`, as iteration does. Ends when another task closes the subscription."""
        while self._number:
            try:
                reception = await self.receive_async()
            except Gone:
                if self._number:
                    raise
                return
            if isinstance(reception, Notice):
                self.on_notice(reception)
                continue
            yield reception
            if self._acknowledges and self._number:
                reception.acknowledge()

    def close(self) -> None:
        """Ends the subscription."""
        if not self._client.closed and self._number:
            self._client.forget(self._number.value)
            try:
                self._client.call("unisono_unsubscribe", self._number)
            except ConnectionError:
                pass  # the broker is gone, so the subscription has ended
        self._number = ctypes.c_uint32()
        self._end()

    def _end(self) -> None:
        if self._owns:
            self._client.close()

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Subscriber:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def serve(
    topic: str,
    answer: Callable[[Event], Payload],
    *,
    at: Union[str, os.PathLike[str], None] = None,
    count: Optional[int] = None,
    **options: Any,
) -> None:
    """Answers `count` requests on a topic, or requests without end, with the results of `answer`.

    If `answer` raises an exception, the program that asked gets Refused with the exception's text, and serve() raises
    the exception. `options` are those of Subscriber; servers with the same `group` share the requests.
    """
    with Subscriber(topic, at=at, **options) as requests:
        for request in requests:
            if not request.is_request:
                continue
            try:
                made = answer(request)
            except BaseException as problem:
                request.reply_failure(f"{type(problem).__name__}: {problem}")
                raise
            request.reply(made)
            count = None if count is None else count - 1
            if count == 0:
                return
