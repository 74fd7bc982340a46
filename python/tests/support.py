"""A broker for tests, started as its users start it, and helpers for tests with it."""

import os
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import unisono

try:
    import numpy
except ImportError:
    numpy = None

needs_numpy = unittest.skipUnless(numpy, "skipped: numpy is not installed")

PROGRAM = os.environ.get("UNISONO_PROGRAM") or shutil.which("unisono")


class Broker:
    def __init__(self, *options):
        self.options = options
        self.scratch = tempfile.TemporaryDirectory()
        self.shared = str(Path(self.scratch.name) / "events")
        self.at = f"unix:{self.shared}"
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [PROGRAM, "events", "serve", "--listen", self.shared, *self.options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while True:
            try:
                unisono.Client(self.at).close()
                unisono.Client(self.shared).close()
                return
            except unisono.Gone:
                assert self.process.poll() is None, "the broker has ended"
                time.sleep(0.01)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.kill()
        self.scratch.cleanup()


@unittest.skipUnless(PROGRAM, "skipped: no unisono on PATH; set UNISONO_PROGRAM to the program")
class WithBroker(unittest.TestCase):
    """Tests with a broker of their own, and clients that are closed at the end of the test."""

    def setUp(self):
        self.serve()

    def serve(self, *options):
        """Starts a broker with these options, which the test uses from now on."""
        self.broker = Broker(*options)
        self.at = self.broker.at
        self.addCleanup(self.broker.end)

    def publisher(self, topic, **options):
        publisher = unisono.Publisher(topic, **{"at": self.at, **options})
        self.addCleanup(publisher.close)
        return publisher

    def subscriber(self, topics, **options):
        subscriber = unisono.Subscriber(topics, **{"at": self.at, **options})
        self.addCleanup(subscriber.close)
        return subscriber

    def event(self, subscriber):
        reception = subscriber.receive(60)
        self.assertIsInstance(reception, unisono.Event)
        return reception

    def notice(self, subscriber):
        reception = subscriber.receive(60)
        self.assertIsInstance(reception, unisono.Notice)
        return reception


def memory_at(address):
    """Returns the name of the file that is mapped at an address, or an empty text."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, _mode, _offset, _device, _inode, *name = line.split(maxsplit=5)
            start, end = (int(number, 16) for number in span.split("-"))
            if start <= address < end:
                return name[0] if name else ""
    return ""
