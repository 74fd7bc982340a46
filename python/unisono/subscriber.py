"""Subscribing, and serving requests."""

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
    """Refuses a value of an option that the library would know by a number only."""
    if value not in possible:
        raise BadArgument("%s=%r is none of %s" % (name, value, ", ".join(repr(one) for one in possible)))


class Subscriber:
    """A subscription: iterate over it, or call receive().

    Iteration gives events alone. Notices (a gap, a supplier that is gone) go to `on_notice`, which logs them unless
    another function is given; receive() returns them as well.
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
        """Asks for events of topics: + stands for one level, # for all further ones.

        at, client: a broker's address, or a connection that is open
        filter: a condition on fields, as in "celsius > 80"
        event_type: only topics of this type
        policy_class: a class of the broker's policy
        group: consumers of one group share the events
        queue: events that may wait in the broker
        full: "drop-oldest", "drop-by-deadline" or "block-supplier", when as many wait
        late: "deliver", "drop" or "report" what is past its deadline
        between: "deadlines" (what is due first, whoever published it) or "shares" (suppliers by their shares)
        order: "deadlines" (what is due first) or "publication" (each supplier's events on a topic as published)
        best_effort: over UDP, no event waits for one that the network lost; each loss is a notice
        last: topics that keep fewer events for late consumers are refused. All kept events come in any case; they have no
            deadline, so `late` does not concern them
        acknowledge: seconds after which an event comes again that was not acknowledged
        together, within: "all" or "sequence": one event of each topic makes a delivery, within so many seconds
        every, silence: a notice each so many seconds; a notice when nothing came for so many
        resume: a name for the broker's log, whose events come until they are acknowledged, also after a crash; iteration
            acknowledges
        after: with resume, the position in the log behind which to begin; 0 is its start
        direct: whether events may come straight from suppliers through shared memory, where that is possible
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
        times = {"every_ns": every, "silence_ns": silence}
        spec.update({key: value for key, value in named.items() if value is not None})
        spec.update({key: nanos(value) for key, value in times.items() if value is not None})
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
        """A descriptor for selectors; before each wait, receive(0) until it returns None."""
        return self._client.fileno()

    def receive(self, timeout: Optional[float] = None) -> Optional[Reception]:
        """The next event or notice. None: none came within `timeout` seconds."""
        if not self._number:
            raise Gone("the subscription is closed")
        return self._client.receive(self._number.value, timeout)

    def next_event(self, timeout: Optional[float] = None) -> Optional[Event]:
        """The next event; notices go to `on_notice`. None: none came, and no notice, within `timeout` seconds."""
        while True:
            reception = self.receive(timeout)
            if not isinstance(reception, Notice):
                return reception
            self.on_notice(reception)

    def __iter__(self) -> Iterator[Event]:
        """Events for ever. Where they are to be acknowledged, each is when the next one is asked for."""
        while self._number:
            event = self.next_event()
            if event is not None:
                yield event
                if self._acknowledges and self._number:
                    event.acknowledge()

    async def receive_async(self) -> Reception:
        """The next event or notice; other tasks run until it comes."""
        if not self._number:
            raise Gone("the subscription is closed")
        return await self._client.receive_async(self._number.value)

    async def __aiter__(self) -> AsyncIterator[Event]:
        """As iteration, for `async for`. It ends when another task closes the subscription."""
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
                pass  # with the broker the subscription is gone
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
    """Answers the requests on a topic by what `answer` makes of them: for ever, or `count` of them.

    An exception of `answer` ends it, and who asked is told of it (Refused). `options` are a Subscriber's; several servers share
    the requests by `group`.
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
