#!/usr/bin/env python3
"""Downloads a file piece by piece, through requests and replies.

    unisono events serve &
    python3 file_download.py supply README.md & python3 file_download.py consume copy.md

Each request names the offset of the next piece; the reply has the piece, its checksum and the file's size. The examples
in Rust and in C can take the place of the supplier or the consumer.
"""

import argparse
import os
import sys
import zlib

import unisono

PIECE = 64 << 10  # bytes


def supply(args):
    """Answers requests for pieces of the file, until the program or the broker is stopped."""
    with open(args.file, "rb") as file, unisono.Subscriber("file", at=args.at) as requests:
        size = os.fstat(file.fileno()).st_size
        for request in requests:
            file.seek(request.fields["offset"])
            piece = file.read(PIECE)
            request.reply(piece, fields={"size": size, "adler32": zlib.adler32(piece)})


def piece_at(topic, offset):
    """Requests the piece that begins at `offset`. Tries again without a reply, because the supplier may start later."""
    for _ in range(300):
        try:
            return topic.request(fields={"offset": offset}, timeout=0.1)
        except unisono.TimedOut:
            pass
    sys.exit("nobody serves a file: no reply within 30 s")


def consume(args):
    offset, requests = 0, 0
    with open(args.file, "wb") as file, unisono.Publisher("file", at=args.at) as topic:
        while True:
            reply = piece_at(topic, offset)
            if zlib.adler32(reply.payload) != reply.fields["adler32"]:
                sys.exit(f"the piece at {offset} is damaged")
            file.write(reply.payload)
            offset, requests, size = offset + len(reply), requests + 1, reply.fields["size"]
            if offset == size:
                break
            if not len(reply):
                sys.exit(f"the file ends at {offset} of {size} bytes")
    print(f"file download: {size} bytes by {requests} requests, each with the right checksum")


def main():
    parser = argparse.ArgumentParser(description="Serve a file, or download it and check each piece")
    parser.add_argument("role", choices=["supply", "consume"])
    parser.add_argument("file", help="to serve, or to write")
    parser.add_argument("at", nargs="?", help="the broker: a path, or tcp:HOST:PORT")
    args = parser.parse_args()
    (supply if args.role == "supply" else consume)(args)


if __name__ == "__main__":
    main()
