#!/usr/bin/env python3
"""Publishes readings of a sensor in CBOR or as protobuf. Consumers decode each by its content type and its schema.

    pip install cbor2 protobuf
    unisono events serve &
    python3 readings.py consume & python3 readings.py supply cbor && python3 readings.py supply protobuf

The consumer decodes both encodings. It ends after it got the last reading in as many encodings as --encodings says
(both, if left out). An MQTT 5 client gets the content type as the property Content Type, and the schema as a user
property.
"""

import argparse
import sys
import time

import unisono

CBOR, PROTOBUF = "application/cbor", "application/protobuf"
# A message type that is part of protobuf. Compile a type of your own with protoc; its full name is the schema.
MESSAGE = "google.protobuf.Struct"


def encode_cbor(reading):
    import cbor2

    return cbor2.dumps(reading)


def decode_cbor(payload):
    import cbor2

    return cbor2.loads(payload)


def encode_protobuf(reading):
    from google.protobuf.struct_pb2 import Struct

    message = Struct()
    message.update(reading)
    return message.SerializeToString()


def decode_protobuf(payload):
    from google.protobuf.struct_pb2 import Struct

    return dict(Struct.FromString(payload))


ENCODE = {"cbor": (CBOR, "Reading", encode_cbor), "protobuf": (PROTOBUF, MESSAGE, encode_protobuf)}
DECODE = {(CBOR, "Reading"): decode_cbor, (PROTOBUF, MESSAGE): decode_protobuf}


def supply(args):
    content_type, schema, encode = ENCODE[args.encoding]
    with unisono.Publisher("sensor/1/reading", at=args.at, content_type=content_type, schema=schema) as readings:
        while not readings.try_publish(encode({"number": 0, "celsius": 20.0})).consumers:
            time.sleep(0.01)  # waits until a consumer has subscribed
        for number in range(1, args.count + 1):
            readings.publish(encode({"number": number, "celsius": 20 + number / 8, "last": number == args.count}))


def consume(args):
    ended, counted = set(), {}
    with unisono.Subscriber("sensor/+/reading", at=args.at, full="block-supplier", on_notice=lambda _: None) as readings:
        for event in readings:
            form = (event.content_type, event.schema)
            if form not in DECODE:
                print(f"a payload of {form[0]} with the schema {form[1]}: not decoded", file=sys.stderr)
                continue
            reading = DECODE[form](bytes(event))
            if reading["celsius"] != 20 + reading["number"] / 8:
                sys.exit(f"a wrong reading: {reading}")
            counted[form[0]] = counted.get(form[0], 0) + 1
            if reading.get("last"):
                ended.add(form[0])
                if len(ended) == args.encodings:
                    break
    print("readings: " + ", ".join(f"{counted[kind]} in {kind}" for kind in sorted(counted)))


def main():
    parser = argparse.ArgumentParser(description="Publish readings in CBOR or as protobuf, and decode them")
    roles = parser.add_subparsers(dest="role", required=True)
    supplier = roles.add_parser("supply", help="publish readings")
    supplier.add_argument("encoding", choices=sorted(ENCODE))
    supplier.add_argument("--count", type=int, default=100, help="readings (100)")
    consumer = roles.add_parser("consume", help="decode readings")
    consumer.add_argument("--encodings", type=int, default=2, help="end after the last reading of this many (2)")
    for role in (supplier, consumer):
        role.add_argument("--at", help="the broker's address; without it, the host's own")
    args = parser.parse_args()
    supply(args) if args.role == "supply" else consume(args)


if __name__ == "__main__":
    main()
