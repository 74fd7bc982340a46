#!/usr/bin/env python3
"""A streaming server whose streams share a link by weights: each stream has a socket, and each socket a weight.

    sudo unisono queue apply examples/policies/streams.toml --dev eth0
    sudo unisono queue guard &
    python3 weighted_streams.py video 10 10.0.0.7:5004 1500 3  10.0.0.8:5004 500 1

The arguments are the class, the duration in seconds, and for each stream its receiver, its bit rate in kbit/s and its
weight. The policy has to permit this user to put sockets into the class. If the class gets less than all streams need,
the streams share it in proportion to their weights. A packet is lost if its socket's buffer is full.
"""

import socket
import sys
import time

import unisono

PACKET = bytes(1000)


class Stream:
    def __init__(self, class_name, receiver, kbit, weight):
        address, port = receiver.rsplit(":", 1)
        self.receiver, self.packets_per_s = receiver, float(kbit) * 1000 / (8 * len(PACKET))
        self.sent = self.lost = 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect((address, int(port)))
        self.socket.setblocking(False)
        unisono.share_socket(self.socket, class_name, float(weight))

    def send_until(self, elapsed):
        while self.sent + self.lost < elapsed * self.packets_per_s:
            try:
                self.socket.send(PACKET)
                self.sent += 1
            except OSError:
                self.lost += 1


def main():
    words = sys.argv[3:]
    if not words or len(words) % 3:
        sys.exit("weighted_streams.py CLASS SECONDS ADDRESS:PORT KBIT WEIGHT ...")
    try:
        streams = [Stream(sys.argv[1], *words[at : at + 3]) for at in range(0, len(words), 3)]
    except OSError as refused:
        sys.exit(refused.strerror)
    start = time.monotonic()
    while (elapsed := time.monotonic() - start) < float(sys.argv[2]):
        for stream in streams:
            stream.send_until(elapsed)
        time.sleep(0.001)
    for stream in streams:
        print(f"{stream.receiver}: {stream.sent} packets, {stream.lost} lost")


main()
