#!/usr/bin/env python3
"""Messages through a Unisono broker, by its protocol alone (crates/broker/PROTOCOL.md): no library is needed.

    unisono queue broker examples/policies/three-classes.toml --listen /tmp/broker &
    python3 examples/python/stream.py /tmp/broker video 192.0.2.7 5004 100

Arguments: the broker's socket, a class of its policy, an IPv4 address and a port (UDP), how many messages.
"""

import socket
import struct
import sys
import time

HELLO, OPEN, MESSAGE, CLOSE, ASK, FLUSH = range(1, 7)
WELCOME, OPENED, CLOSED, CREDIT, STATISTICS, BYE = range(129, 135)
OVERHEAD = 128  # of each message, beside its payload


class Broker:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.credit = self.all = 0
        self.tell(HELLO, 0, b"UBR1")
        self.largest = struct.unpack("<I", self.hear(WELCOME))[0]

    def tell(self, kind, channel, rest=b""):
        self.socket.send(struct.pack("<B3xI", kind, channel) + rest)

    def hear(self, *wanted):
        """The rest of the next frame of a kind that is wanted; credit is counted on the way."""
        while True:
            frame = self.socket.recv(1 << 17)
            if not frame:
                sys.exit("the broker is gone, and with it what it had taken and not sent yet")
            kind, rest = frame[0], frame[8:]
            if kind in (CLOSED, BYE):
                sys.exit("the broker says: " + rest.decode())
            if kind == CREDIT:
                self.credit += struct.unpack("<I", rest)[0]
            if kind in wanted:
                return rest

    def open(self, name, address, port):
        destination = struct.pack("<BBH16sB", 1, 4, port, socket.inet_aton(address), 0)
        self.tell(OPEN, 0, destination + name.encode())
        self.credit = self.all = struct.unpack("<I", self.hear(OPENED))[0]

    def send(self, payload, deadline):
        cost = len(payload) + OVERHEAD
        while self.credit < cost:  # the class has more than its share on the way
            self.hear(CREDIT)
        self.credit -= cost
        self.tell(MESSAGE, 0, struct.pack("<Q", deadline) + payload)

    def flush(self):
        self.tell(FLUSH, 0)
        while self.credit < self.all:
            self.hear(CREDIT)


def main():
    path, name, address, port, count = sys.argv[1:]
    try:
        broker = Broker(path)
        broker.open(name, address, int(port))
        for number in range(int(count)):
            broker.send(b"message %d" % number, time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 40_000_000)
        broker.flush()
    except OSError as error:
        sys.exit(f"no broker at {path}: {error}")
    print(count, "messages have left")


if __name__ == "__main__":
    main()
