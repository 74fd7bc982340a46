"""The exceptions of this package. Their texts come from the library and the broker."""

from __future__ import annotations


class Error(Exception):
    """A call failed. The subclasses are failures that a program can handle."""


class Gone(Error, ConnectionError):
    """There is no broker, or the connection to it has ended: connect again."""


class Refused(Error):
    """The broker refuses the event, the topic or the subscription; the text gives the reason."""


class TimedOut(Error, TimeoutError):
    """No reply came in time."""


class Unanswered(Error):
    """The connection broke and was restored; it is unknown whether the broker processed the event or the request."""


class Interrupted(Error, InterruptedError):
    """Ctrl-C ended the wait, and the program's handler of SIGINT raised no exception."""


class TooLarge(Error, ValueError):
    """The payload is larger than the broker accepts."""


class BadArgument(Error, ValueError):
    """An address, a name or an option is invalid."""


# values of unisono_status in unisono.h
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
    """Returns the exception for a status, with the library's text."""
    return _CLASSES.get(status, Error)(text)
