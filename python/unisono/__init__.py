"""Events with deadlines, through the broker that `unisono events serve` starts.

    import unisono

    with unisono.Publisher("plant/1/heat") as heat:
        heat.publish(b"hot", fields={"celsius": 81.5}, due_in=0.005)

    with unisono.Subscriber("plant/+/heat", filter="celsius > 80") as heat:
        for event in heat:
            print(event.topic, event.fields["celsius"], bytes(event.payload))

    print(bytes(unisono.request("sums", b"1 + 1", timeout=1.0).payload))
    unisono.serve("sums", lambda request: str(add(request.text())))

In tasks of asyncio, `async for`, `async with`, publish_async() and receive_async() do the same.

share_socket() gives a socket a share of a link. It needs no broker, but `unisono queue guard` has to run.

Lengths of time are in seconds, as everywhere in Python. Values whose names end in _ns are in nanoseconds; points in
time are on the clock of time.monotonic_ns().

A single thread at a time uses a connection. Each Publisher and Subscriber opens a connection of its own unless it is
given one as `client`. Ctrl-C ends every call that waits.
"""

from ._library import library_version
from .client import Client
from .errors import BadArgument, Error, Gone, Refused, TimedOut, TooLarge, Unanswered
from .event import Event, Notice
from .loan import Loan
from .publisher import Publisher, Published, request
from .socket_share import share_socket
from .subscriber import Subscriber, serve

__version__ = "0.2.0"

__all__ = [
    "BadArgument",
    "Client",
    "Error",
    "Event",
    "Gone",
    "Loan",
    "Notice",
    "Published",
    "Publisher",
    "Refused",
    "Subscriber",
    "TimedOut",
    "TooLarge",
    "Unanswered",
    "library_version",
    "request",
    "serve",
    "share_socket",
]
