#!/usr/bin/env python3
"""A sensor that publishes a temperature each millisecond, due in 20 ms, and a consumer of temperatures above 40.

    unisono events serve &
    python3 sensor_feed.py consume & python3 sensor_feed.py supply 300

The consumer checks that no hot event is missing, duplicate or out of order, and counts the late ones. The examples in
Rust and in C can take the place of the supplier or the consumer.
"""

import argparse
import itertools
import sys
import time

import unisono


def celsius(number):
    return 20 + (number + 40) % 60


def hot(number):
    """Returns the number of the first hot event from `number` on."""
    return next(number for number in itertools.count(number) if celsius(number) > 40)


def supply(args):
    # each event is due 20 ms after the broker gets it
    with unisono.Publisher("sensor/1/heat", at=args.at, due_in=0.02) as heat:
        while not heat.try_publish(fields={"number": 0, "celsius": celsius(0)}).consumers:
            time.sleep(0.01)  # waits until a consumer has subscribed
        for number in range(1, args.count):
            heat.publish(fields={"number": number, "celsius": celsius(number)})
            time.sleep(0.001)
        heat.publish(fields={"number": args.count, "last": True})


def consume(args):
    expected, events, late = hot(0), 0, 0
    # If the consumer is too slow, the sensor waits, so that no event is lost.
    with unisono.Subscriber(
        "sensor/+/heat", at=args.at, filter="celsius > 40 or last", full="block-supplier", on_notice=lambda _: None
    ) as heat:
        for event in heat:
            number = event.fields["number"]
            if event.fields.get("last"):
                break
            if number != expected:
                sys.exit(f"event {number} came where {expected} had to")
            expected, events, late = hot(number + 1), events + 1, late + event.late
    if expected < number:
        sys.exit(f"event {expected} is missing before the last one")
    print(f"sensor feed: {events} hot events, none is missing, {late} were late")


def main():
    parser = argparse.ArgumentParser(description="Feed temperatures with deadlines, and check that every hot one arrives")
    parser.add_argument("role", choices=["supply", "consume"])
    parser.add_argument("count", nargs="?", type=int, default=300, help="events of the supplier")
    parser.add_argument("at", nargs="?", help="the broker: a path, or tcp:HOST:PORT")
    args = parser.parse_args()
    (supply if args.role == "supply" else consume)(args)


if __name__ == "__main__":
    main()
