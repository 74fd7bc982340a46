"""What can go wrong; the words are the library's and the broker's."""

from __future__ import annotations


class Error(Exception):
    """A call failed. The subclasses are what a program can do something about."""


class Gone(Error, ConnectionError):
    """There is no broker, or there is none any more: connect again."""


class Refused(Error):
    """The broker refuses the event, the topic or the subscription."""


class TimedOut(Error, TimeoutError):
    """No reply came in time."""


class Unanswered(Error):
    """The connection broke before an answer came, and is there again: nobody knows what became of the event."""


class Interrupted(Error, InterruptedError):
    """A signal ended the wait, and its handler did not raise anything."""


class TooLarge(Error, ValueError):
    """The payload is larger than the broker takes."""


class BadArgument(Error, ValueError):
    """An address, a name or an option that cannot be."""


# by the numbers of unisono_status in unisono.h
OK, ARG, SIZE, GONE, TIMED_OUT, REFUSED, UNANSWERED, INTERRUPTED = 0, 1, 12, 16, 17, 23, 24, 25

_CLASSES = {
    ARG: BadArgument,
    SIZE: TooLarge,
    GONE: Gone,
    TIMED_OUT: TimedOut,
    REFUSED: Refused,
    UNANSWERED: Unanswered,
    INTERRUPTED: Interrupted,
}


def error(status: int, text: str) -> Error:
    """The exception for a status and the library's words."""
    return _CLASSES.get(status, Error)(text)
