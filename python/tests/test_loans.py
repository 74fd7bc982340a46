"""Tests of payloads that are written where consumers read them."""

import asyncio
import ctypes
import gc
import unittest

import unisono
from support import WithBroker, memory_at, needs_numpy, numpy

SIZE = 100_000


class Loans(WithBroker):
    def pair(self, topic, at=None, **options):
        """Makes a supplier and a consumer, and passes one event between them."""
        at = self.broker.shared if at is None else at
        supplier, consumer = self.publisher(topic, at=at), self.subscriber(topic, at=at, **options)
        supplier.publish("first")
        self.assertEqual(self.event(consumer).text(), "first")
        return supplier, consumer

    def test_a_loan_is_memory_that_consumers_read(self):
        supplier, consumer = self.pair("frames")
        with supplier.loan(SIZE, key="camera", fields={"number": 7}, due_in=60) as memory:
            self.assertFalse(memory.readonly)
            self.assertEqual(memory.nbytes, SIZE)
            first, end = (memory_at(address_of(memory) + at) for at in (0, SIZE - 1))
            memory[:] = bytes(range(250)) * (SIZE // 250)
        self.assertTrue(first.startswith("/memfd:") and end == first, (first, end))
        event = self.event(consumer)
        self.assertEqual((event.key, event.fields, len(event)), ("camera", {"number": 7}, SIZE))
        self.assertEqual(event.payload, bytes(range(250)) * (SIZE // 250))
        self.assertTrue(59 < event.remaining <= 60)
        self.assertTrue(memory_at(event._view.payload).startswith("/memfd:"))

    def test_a_loan_of_a_topic_that_goes_through_the_broker_is_copied(self):
        for at, options in ((self.broker.at, {}), (self.broker.shared, {"direct": False})):
            with self.subTest(at=at):
                supplier, consumer = self.pair("frames", at=at, **options)
                loan = supplier.loan(SIZE)
                self.assertFalse(loan.in_place)
                with loan as memory:
                    memory[:] = b"x" * SIZE
                self.assertEqual(bytes(self.event(consumer)), b"x" * SIZE)
                supplier.close()
                consumer.close()

    @needs_numpy
    def test_an_array_of_a_loan_is_no_copy(self):
        supplier, consumer = self.pair("pictures")
        loan = supplier.loan(1 << 20)
        self.assertTrue(loan.in_place)
        pixels = loan.array("float32", (512, 512))
        self.assertTrue(memory_at(pixels.ctypes.data).startswith("/memfd:"))
        pixels[:] = numpy.arange(1 << 18, dtype="float32").reshape(512, 512)
        loan.publish()
        event = self.event(consumer)
        self.assertTrue((event.array("float32", (512, 512)) == numpy.arange(1 << 18).reshape(512, 512)).all())

    def test_an_exception_returns_the_memory_and_nothing_is_published(self):
        supplier, consumer = self.pair("frames")
        with self.assertRaises(ZeroDivisionError):
            with supplier.loan(SIZE) as memory:
                memory[0] = 1 // 0
        del memory
        for _ in range(20):  # more than a topic lends at a time
            supplier.loan(SIZE)
        gc.collect()
        self.assertTrue(supplier.loan(SIZE).in_place)
        supplier.publish("the next one")
        self.assertEqual(self.event(consumer).text(), "the next one")

    def test_more_loans_than_places_are_copied_and_all_arrive_in_the_order_of_publication(self):
        supplier, consumer = self.pair("frames")
        loans = [supplier.loan(SIZE) for _ in range(6)]
        self.assertEqual([loan.in_place for loan in loans], [True] * 4 + [False] * 2)
        for number, loan in enumerate(loans):
            loan.memory[:] = bytes([number]) * SIZE
        supplier.publish("between")
        for loan in reversed(loans):
            loan.publish()
        self.assertEqual(self.event(consumer).text(), "between")
        for number in (5, 4, 3, 2, 1, 0):
            self.assertEqual(bytes(self.event(consumer)), bytes([number]) * SIZE)

    def test_memory_stays_mapped_as_long_as_a_view_is_in_use(self):
        supplier, consumer = self.pair("frames")
        with supplier.loan(SIZE) as memory:
            memory[:] = b"x" * SIZE
        unpublished = supplier.loan(SIZE).memory
        event = self.event(consumer)
        supplier.close()
        consumer.close()
        self.assertEqual(bytes(event), b"x" * SIZE)
        self.assertEqual(bytes(memory[:3]), b"xxx")
        unpublished[:] = b"y" * SIZE
        self.assertEqual(unpublished[SIZE - 1], ord("y"))

    def test_a_larger_event_between_makes_another_ring_and_the_loan_still_arrives(self):
        supplier, consumer = self.pair("frames")
        with supplier.loan(SIZE) as memory:
            supplier.publish(bytes(10 * SIZE))
            memory[:] = b"x" * SIZE
        self.assertEqual(len(self.event(consumer)), 10 * SIZE)
        self.assertEqual(bytes(self.event(consumer)), b"x" * SIZE)

    def test_a_loan_whose_consumer_left_meanwhile_is_published(self):
        supplier, consumer = self.pair("frames", at=self.broker.shared)
        with supplier.loan(SIZE) as memory:
            consumer.close()
            other = self.subscriber("frames", at=self.broker.at)
            memory[:] = b"x" * SIZE
        self.assertEqual(bytes(self.event(other)), b"x" * SIZE)

    def test_a_loan_waits_for_room_of_a_consumer_of_the_same_thread(self):
        supplier, consumer = self.pair("own", full="block-supplier", queue=64)
        for number in range(300):
            with supplier.loan(1000) as memory:
                memory[:] = str(number).ljust(1000).encode()
        for number in range(300):
            self.assertEqual(self.event(consumer).text().strip(), str(number))

    def test_tasks_publish_loans(self):
        async def main():
            async with unisono.Publisher("own", at=self.broker.shared) as supplier:
                consumer = unisono.Subscriber("own", at=self.broker.shared, full="block-supplier", queue=64)

                async def collect():
                    return [(await consumer.receive_async()).text().strip() for _ in range(300)]

                collecting = asyncio.create_task(collect())
                for number in range(300):
                    async with supplier.loan(1000) as memory:
                        memory[:] = str(number).ljust(1000).encode()
                return await asyncio.wait_for(collecting, 60)

        self.assertEqual(asyncio.run(main()), [str(number) for number in range(300)])

    def test_what_cannot_be_lent_is_refused(self):
        supplier, _consumer = self.pair("frames")
        with self.assertRaisesRegex(unisono.BadArgument, "at least one byte"):
            supplier.loan(0)
        with unisono.Client(self.at) as client:
            with self.assertRaisesRegex(unisono.TooLarge, str(client.largest)):
                supplier.loan(client.largest + 1)
        with self.assertRaises(unisono.BadArgument):
            supplier.loan(10, due_in=1, deadline_ns=1)
        loan = supplier.loan(10)
        loan.publish()
        with self.assertRaisesRegex(unisono.BadArgument, "take another loan"):
            loan.publish()


def address_of(memory):
    """Returns the address of a writable view."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


if __name__ == "__main__":
    unittest.main()
