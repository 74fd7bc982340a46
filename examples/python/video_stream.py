#!/usr/bin/env python3
"""A video stream: frames with the sizes of MPEG-1 at 1.5 Mbit/s, each due before the next one is shown.

    unisono events serve &
    python3 video_stream.py consume & python3 video_stream.py supply 300

The broker drops a late frame and reports it to the consumer as a gap. The consumer checks that frames and gaps together
are the whole stream. A full queue keeps frames that others depend on, because they are more critical. The examples in
Rust and in C can take the place of the supplier or the consumer.
"""

import argparse
import sys
import time

import unisono

PERIOD = 1 / 30  # frames are shown at 30 Hz


def frame(number):
    """Returns the bytes of a frame and its criticality.

    Every twelfth frame depends on no other (an I frame). Every third depends on that one (a P frame), the others on
    both (B frames).
    """
    if number % 12 == 0:
        return bytes([number & 0xFF]) * 20000, 2
    if number % 3 == 0:
        return bytes([number & 0xFF]) * 9000, 1
    return bytes([number & 0xFF]) * 3500, 0


def supply(args):
    with unisono.Publisher("video", at=args.at, due_in=PERIOD) as video:
        payload, criticality = frame(0)
        while not video.try_publish(payload, fields={"number": 0}, criticality=criticality).consumers:
            time.sleep(0.01)  # waits until a consumer has subscribed
        start = time.monotonic()
        for number in range(1, args.count):
            payload, criticality = frame(number)
            time.sleep(max(start + number * PERIOD - time.monotonic(), 0))
            video.publish(payload, fields={"number": number}, criticality=criticality)
        # with the deadline of a frame, the broker could drop the last event if it is late
        video.publish(fields={"number": args.count, "last": True}, criticality=255, due_in=3600)


def consume(args):
    shown, missing, before = 0, 0, -1
    with unisono.Subscriber("video", at=args.at, queue=64, full="drop-by-deadline", late="report") as video:
        while True:
            reception = video.receive(30)
            if reception is None:
                sys.exit("nothing has come for 30 s")
            if isinstance(reception, unisono.Notice):
                missing += reception.lost
                continue
            number = reception.fields["number"]
            if reception.fields.get("last"):
                break
            if number <= before or reception.payload != frame(number)[0]:
                sys.exit(f"frame {number} after {before} is another one")
            shown, before = shown + 1, number
    if shown + missing != number:
        sys.exit(f"{shown} frames and {missing} missing ones, of {number}")
    print(f"video stream: {shown} frames came in time, {missing} were reported as missing")


def main():
    parser = argparse.ArgumentParser(
        description="Stream frames with deadlines, and check that frames and gaps are the whole stream"
    )
    parser.add_argument("role", choices=["supply", "consume"])
    parser.add_argument("count", nargs="?", type=int, default=300, help="frames of the supplier")
    parser.add_argument("at", nargs="?", help="the broker: a path, or tcp:HOST:PORT")
    args = parser.parse_args()
    (supply if args.role == "supply" else consume)(args)


if __name__ == "__main__":
    main()
