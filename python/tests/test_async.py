"""Tests of tasks of one event loop, which wait at descriptors and start no thread."""

import asyncio
import threading
import unittest

import unisono
from support import WithBroker


class Tasks(WithBroker):
    def run_tasks(self, main):
        """Runs a coroutine and returns its result. Checks that it starts no thread, and ends it if it hangs."""
        threads = threading.active_count()

        async def watched():
            answer = await asyncio.wait_for(main(), 60)
            self.assertLessEqual(threading.active_count(), threads)
            return answer

        return asyncio.run(watched())

    def test_tasks_wait_side_by_side(self):
        consumers = [self.subscriber(topic) for topic in ("one", "two")]
        suppliers = [self.publisher(topic) for topic in ("one", "two")]

        async def collect(consumer):
            texts = []
            async for event in consumer:
                texts.append(event.text())
                if len(texts) == 3:
                    return texts

        async def main():
            tasks = [asyncio.create_task(collect(consumer)) for consumer in consumers]
            for number in range(3):
                await asyncio.sleep(0.01)
                for supplier in suppliers:
                    await supplier.publish_async(str(number))
            return await asyncio.gather(*tasks)

        self.assertEqual(self.run_tasks(main), [["0", "1", "2"]] * 2)

    def test_tasks_share_a_connection(self):
        for at in (self.broker.shared, self.broker.at):
            with self.subTest(at=at):

                async def main(at=at):
                    async with unisono.Client(at) as client:
                        subscribed = [unisono.Subscriber(f"shared/{number}", client=client) for number in range(3)]
                        suppliers = [unisono.Publisher(f"shared/{number}", client=client) for number in range(3)]

                        async def collect(consumer):
                            return [(await consumer.receive_async()).text() for _ in range(100)]

                        async def supply(supplier):
                            for number in range(100):
                                await supplier.publish_async(str(number))
                                if number % 10 == 0:
                                    await asyncio.sleep(0.001)

                        tasks = [asyncio.create_task(collect(consumer)) for consumer in subscribed]
                        await asyncio.gather(*(supply(supplier) for supplier in suppliers))
                        return await asyncio.gather(*tasks)

                self.assertEqual(self.run_tasks(main), [[str(number) for number in range(100)]] * 3)

    def test_an_answer_that_brings_an_event_along_wakes_the_task_that_waits_for_it(self):
        async def main():
            async with unisono.Client(self.at) as client:
                consumer = unisono.Subscriber("alone", client=client)
                waiting = asyncio.create_task(consumer.receive_async())
                await asyncio.sleep(0.05)
                # The call below reads the event while it waits for its answer, so the descriptor does not become ready.
                unisono.Publisher("alone", client=client).try_publish("x")
                client.statistics()
                return (await waiting).text()

        self.assertEqual(self.run_tasks(main), "x")

    def test_other_tasks_run_while_a_consumer_has_no_room(self):
        for at in (self.broker.shared, self.broker.at):
            with self.subTest(at=at):

                async def main(at=at):
                    async with unisono.Publisher("slow", at=at) as supplier:
                        consumer = unisono.Subscriber("slow", at=at, full="block-supplier", queue=64)
                        ticks, ends = 0, asyncio.Event()

                        async def tick():
                            nonlocal ticks
                            while not ends.is_set():
                                ticks += 1
                                await asyncio.sleep(0.001)

                        async def consume():
                            texts = []
                            async for event in consumer:
                                texts.append(event.text().strip())
                                if len(texts) == 3000:
                                    return texts

                        ticking = asyncio.create_task(tick())
                        consuming = asyncio.create_task(consume())
                        for number in range(3000):
                            await supplier.publish_async(str(number).ljust(1000))
                        ends.set()
                        await ticking
                        return ticks, await consuming

                ticks, texts = self.run_tasks(main)
                self.assertEqual(texts, [str(number) for number in range(3000)])
                self.assertGreater(ticks, 1)

    def test_a_publication_that_waits_for_another_thread_lets_other_tasks_run(self):
        subscribed, ends = threading.Event(), threading.Event()

        def consume():
            with unisono.Subscriber("full", at=self.broker.shared, full="block-supplier", queue=64) as consumer:
                subscribed.set()
                ends.wait()
                while consumer.receive(0.2) is not None:
                    pass

        thread = threading.Thread(target=consume)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(ends.set)
        subscribed.wait()

        async def main():
            async with unisono.Publisher("full", at=self.broker.shared) as supplier:

                async def fill():
                    for _ in range(1000):
                        await supplier.publish_async(bytes(1000))

                filling = asyncio.create_task(fill())
                for _ in range(20):
                    await asyncio.sleep(0.005)
                self.assertFalse(filling.done(), "the consumer reads nothing yet")
                ends.set()
                await filling

        self.run_tasks(main)

    def test_a_flood_leaves_other_tasks_their_turn(self):
        async def main():
            async with unisono.Subscriber("flood", at=self.at, queue=5000) as consumer:
                with unisono.Publisher("flood", at=self.at) as supplier:
                    for number in range(2000):
                        supplier.publish(str(number), later=True)
                    supplier.flush()
                    turns, seen = 0, 0

                    async def other():
                        nonlocal turns
                        while seen < 2000:
                            turns += 1
                            await asyncio.sleep(0)

                    task = asyncio.create_task(other())
                    async for _event in consumer:
                        seen += 1
                        if seen == 2000:
                            break
                    await task
                    return turns

        self.assertGreater(self.run_tasks(main), 20)

    def test_iteration_ends_when_another_task_closes_the_subscription(self):
        async def main():
            consumer = unisono.Subscriber("nothing", at=self.at)

            async def collect():
                return [event async for event in consumer]

            waiting = asyncio.create_task(collect())
            await asyncio.sleep(0.05)
            consumer.close()
            self.assertEqual(await waiting, [])
            with self.assertRaisesRegex(unisono.Gone, "closed"):
                await consumer.receive_async()

        self.run_tasks(main)

    def test_a_task_that_is_cancelled_leaves_the_connection_to_the_others(self):
        async def main():
            async with unisono.Client(self.at) as client:
                consumers = [unisono.Subscriber("cancelled", client=client) for _ in range(2)]
                first, second = [asyncio.create_task(consumer.receive_async()) for consumer in consumers]
                await asyncio.sleep(0.05)
                first.cancel()
                await asyncio.sleep(0.05)
                self.publisher("cancelled").publish("x")
                self.assertEqual((await second).text(), "x")
                self.assertEqual((await consumers[0].receive_async()).text(), "x")

        self.run_tasks(main)

    def test_a_task_that_waits_keeps_its_lease(self):
        listener = self.subscriber("leased")

        async def main():
            async with unisono.Client(self.at, lease=0.5) as client:
                unisono.Publisher("leased", client=client)
                waiting = asyncio.create_task(unisono.Subscriber("other", client=client).receive_async())
                await asyncio.sleep(1.5)
                self.assertIsNone(listener.receive(0), "nobody is told that it died")
                self.publisher("other").publish("x")
                return (await waiting).text()

        self.assertEqual(self.run_tasks(main), "x")

    def test_tasks_that_wait_for_a_client_go_on_when_it_has_connected_again(self):
        with unisono.Client(self.at, reconnect=60) as client:
            consumer = unisono.Subscriber("tick", client=client)

            async def main():
                waiting = asyncio.create_task(consumer.receive_async())
                await asyncio.sleep(0.05)
                self.broker.kill()
                await asyncio.sleep(0.05)
                self.broker.start()
                return await waiting

            self.assertEqual(self.run_tasks(main).kind, "reconnected")

    def test_events_are_acknowledged_as_the_next_one_is_asked_for(self):
        supplier = self.publisher("jobs", reliable=True)

        async def main():
            async with unisono.Subscriber("jobs", at=self.at, acknowledge=0.05) as consumer:
                seen = []
                for number in range(3):
                    await supplier.publish_async(str(number))
                async for event in consumer:
                    seen.append(event.text())
                    if len(seen) == 3:
                        event.acknowledge()
                        break
                self.assertIsNone(consumer.receive(0.2))
                return seen

        self.assertEqual(self.run_tasks(main), ["0", "1", "2"])

    def test_what_is_published_later_has_left_at_the_end_of_async_with(self):
        consumer = self.subscriber("later")

        async def main():
            async with unisono.Publisher("later", at=self.at) as supplier:
                supplier.publish("x", later=True)

        self.run_tasks(main)
        self.assertEqual(self.event(consumer).text(), "x")

    def test_a_broker_that_is_killed_ends_the_wait_of_a_task(self):
        async def main():
            consumer = unisono.Subscriber("tick", at=self.at)
            asyncio.get_running_loop().call_later(0.05, self.broker.kill)
            with self.assertRaisesRegex(unisono.Gone, "the broker is gone"):
                async for _event in consumer:
                    pass

        self.run_tasks(main)


if __name__ == "__main__":
    unittest.main()
