#!/usr/bin/env python3
"""Sends messages through a Unisono broker without the library, by its protocol (crates/events-wire/PROTOCOL.md).

    unisono queue broker examples/policies/three-classes.toml --listen /tmp/broker &
    python3 examples/python/stream.py /tmp/broker video 192.0.2.7 5004 100

Arguments: the broker's socket, a class of its policy, an IPv4 address, a UDP port and the number of messages.
"""

import json
import socket
import struct
import sys
import time

HELLO, PUBLISH, OPEN, FLUSH = 1, 3, 7, 9
WELCOME, OPENED, CLOSED, CREDIT, BYE = 129, 137, 138, 139, 141
OVERHEAD = 128  # bytes of credit that each message costs beside its payload


class Broker:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.stream = self.socket.makefile("rb")
        self.credit = self.all = 0
        self.tell(HELLO, 0, b"UEC1{}")
        self.largest = json.loads(self.hear(WELCOME))["path_largest"]

    def tell(self, kind, number, rest=b""):
        frame = struct.pack("<B3xI", kind, number) + rest
        self.socket.sendall(struct.pack("<I", len(frame)) + frame)

    def hear(self, *wanted):
        """Reads frames up to the next one of a wanted kind, and returns what follows its kind and number.

        Adds the credit of each CREDIT frame to `credit`.
        """
        while True:
            length = self.stream.read(4)
            if len(length) < 4:
                sys.exit("the broker is gone, and with it what it had taken and not sent yet")
            frame = self.stream.read(struct.unpack("<I", length)[0])
            kind, rest = frame[0], frame[8:]
            if kind in (CLOSED, BYE):
                sys.exit("the broker says: " + rest.decode())
            if kind == CREDIT:
                self.credit += struct.unpack("<I", rest)[0]
            if kind in wanted:
                return rest

    def open(self, name, address, port):
        destination = {"transport": "udp", "address": f"{address}:{port}"}
        self.tell(OPEN, 0, json.dumps({"class": name, "destination": destination}).encode())
        self.credit = self.all = struct.unpack("<I", self.hear(OPENED))[0]

    def send(self, payload, deadline):
        cost = len(payload) + OVERHEAD
        while self.credit < cost:  # waits until the broker has sent enough of the earlier messages
            self.hear(CREDIT)
        self.credit -= cost
        # The deadline is on this host's clock. The message has no token, no key and no fields.
        self.tell(PUBLISH, 0, struct.pack("<QIHH", deadline, 0, 0, 0) + payload)

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
