"""A share of a link for one socket."""

from __future__ import annotations

import socket as sockets

from ._library import library


def share_socket(socket: sockets.socket | int, class_name: str, weight: float) -> None:
    """Gives a socket a share of its own in a class of the policy that is in force for a link.

    While several sockets of the class have packets waiting, they share the class's bandwidth in proportion to their
    weights. The administrator's policy says which users may use this, and `unisono queue guard` has to run. The share
    ends when the socket is closed; another call changes the socket's class and weight.

    Raises an OSError with the number of errno and the library's text: ConnectionRefusedError if no guard runs,
    PermissionError if the policy does not permit it to this user, FileNotFoundError if no policy has the class.
    """
    number = socket if isinstance(socket, int) else socket.fileno()
    loaded = library()
    result = loaded.unisono_share_socket(number, class_name.encode(), weight)
    if result != 0:
        raise OSError(-result, loaded.unisono_error_text().decode())
