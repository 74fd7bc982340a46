import os
import selectors
import signal
import socket
import tempfile
import threading
import time
import unittest

import unisono
from support import WithBroker, memory_at, needs_numpy, numpy


def memory_of(event):
    """Returns the name of the file in whose memory an event's payload lies, or an empty text."""
    return memory_at(event._view.payload)


class Events(WithBroker):
    def test_an_event_arrives_with_all_that_it_carries(self):
        consumer, supplier = self.subscriber("plant/+/heat"), self.publisher("plant/1/heat")
        fields = {"celsius": 81.5, "count": -3, "hot": True, "site": "lab ✓", "whole": 2.0}
        before = time.monotonic_ns()
        supplier.publish(b"a\0b", key="oven", fields=fields, due_in=60, criticality=7)
        event = self.event(consumer)
        self.assertEqual((event.topic, event.key, bytes(event)), ("plant/1/heat", "oven", b"a\0b"))
        self.assertEqual(event.fields, fields)
        self.assertIs(event.fields["hot"], True)
        self.assertEqual((event.criticality, event.late, event.retained, event.repeated), (7, False, False, 0))
        self.assertTrue(before <= event.published_ns <= time.monotonic_ns())
        self.assertTrue(before + 60e9 <= event.deadline_ns <= time.monotonic_ns() + 60e9)
        self.assertTrue(0 < event.remaining <= 60)
        self.assertFalse(event.is_request)

    def test_an_event_without_anything_is_one(self):
        consumer, supplier = self.subscriber("#"), self.publisher("plain")
        supplier.publish()
        event = self.event(consumer)
        self.assertEqual((bytes(event), event.fields, event.key, event.deadline_ns), (b"", {}, None, None))
        self.assertTrue(event)
        self.assertEqual((len(event.payload), event.remaining), (0, None))

    def test_a_payload_has_the_form_that_its_topic_or_its_event_says(self):
        consumer = self.subscriber("typed")
        typed = self.publisher("typed", content_type="application/cbor", schema="Reading")
        typed.publish(b"x")
        typed.publish(b"x", fields={"content_type": "text/plain"})
        self.publisher("typed").publish(b"x")
        forms = [(event.content_type, event.schema) for event in (consumer.receive(60) for _ in range(3))]
        self.assertEqual(sorted(forms, key=str), [("application/cbor", "Reading"), ("text/plain", "Reading"), (None, None)])

    def test_what_has_a_buffer_is_a_payload(self):
        consumer, supplier = self.subscriber("buffers"), self.publisher("buffers")
        strided = memoryview(b"a-b-c-")[::2]
        for payload in ("text ✓", b"bytes", bytearray(b"array"), memoryview(b"view"), strided, memoryview(bytearray(9))):
            supplier.publish(payload)
            expected = payload.encode() if isinstance(payload, str) else bytes(payload)
            self.assertEqual(bytes(self.event(consumer)), expected)
        with self.assertRaises(TypeError):
            supplier.publish(3)

    def test_a_payload_stays_where_it_is_as_long_as_somebody_looks(self):
        consumer, supplier = self.subscriber("large"), self.publisher("large")
        sent = bytes(range(256)) * 4000 + b"end"
        supplier.publish(sent)
        event = self.event(consumer)
        view = event.payload
        self.assertTrue(view.readonly)
        del event
        consumer.close()
        supplier.publish(bytes(len(sent)))
        self.assertEqual(view, sent)

    def test_a_payload_in_shared_memory_stays_there(self):
        with unisono.Publisher("shared", at=self.broker.shared) as supplier:
            with unisono.Subscriber("shared", at=self.broker.shared) as consumer:
                events = []
                for number in range(8):  # more than may stay in shared memory; the others are copies
                    supplier.publish(bytes([number]) * 100_000)
                    events.append(self.event(consumer))
        shared = [event for event in events if memory_of(event).startswith("/memfd:")]
        self.assertGreater(len(shared), 0)
        for number, event in enumerate(events):
            self.assertEqual(event.payload, bytes([number]) * 100_000)

    @needs_numpy
    def test_an_array_of_an_event_is_no_copy(self):
        consumer, supplier = self.subscriber("arrays"), self.publisher("arrays")
        sent = numpy.arange(12, dtype="float64").reshape(3, 4)
        supplier.publish(sent, fields={"number": numpy.int32(3)})
        event = self.event(consumer)
        array, again = event.array("float64", (3, 4)), event.array("float64")
        self.assertTrue((array == sent).all())
        self.assertFalse(array.flags.writeable)
        self.assertEqual(array.ctypes.data, again.ctypes.data)
        self.assertEqual(event.fields, {"number": 3})
        del event, again
        self.assertTrue((array == sent).all())

    @needs_numpy
    def test_an_array_of_an_event_is_no_copy_of_a_megabyte_in_shared_memory(self):
        sent = numpy.arange(1 << 18, dtype="float32")
        self.assertEqual(sent.nbytes, 1 << 20)
        for direct in (True, False):
            with self.subTest(direct=direct), unisono.Publisher("pictures", at=self.broker.shared) as supplier:
                with unisono.Subscriber("pictures", at=self.broker.shared, direct=direct) as consumer:
                    supplier.publish(sent)
                    event = self.event(consumer)
                    array = event.array("float32")
                    # the array lies in the ring's memory, which the supplier or the broker wrote
                    self.assertTrue(memory_at(array.ctypes.data).startswith("/memfd:"))
                    self.assertTrue(memory_at(array.ctypes.data + array.nbytes - 1).startswith("/memfd:"))
                    self.assertFalse(memory_at(array.copy().ctypes.data).startswith("/memfd:"))
                    self.assertTrue((array == sent).all())

    def test_a_program_has_a_name_and_finds_itself_in_the_statistics(self):
        with unisono.Client(self.at, name="line 1 ✓", wait="adaptive") as client:
            self.assertEqual(client.name, "line 1 ✓")
            consumer, supplier = unisono.Subscriber("named", client=client), unisono.Publisher("named", client=client)
            supplier.publish(b"x")
            self.event(consumer)
            rows = [row for row in client.statistics()["consumers"] if row["name"] == client.name]
            self.assertEqual([row["delivered"] for row in rows], [1])
        with unisono.Client(self.at) as client:
            self.assertTrue(client.name.endswith(f"[{os.getpid()}]"), client.name)
        for options in ({"name": "x" * 65}, {"name": "a\nb"}, {"wait": "doze"}, {"lease": 0.001}):
            with self.assertRaises(unisono.BadArgument):
                unisono.Client(self.at, **options)

    def test_a_program_that_spins_receives_what_comes_and_stops_in_time(self):
        with unisono.Client(self.broker.shared, wait="spin") as client:
            consumer, supplier = unisono.Subscriber("spun", client=client), self.publisher("spun")
            self.assertIsNone(consumer.receive(0.25))
            supplier.publish(b"x")
            self.assertEqual(bytes(self.event(consumer)), b"x")

    def test_who_waits_keeps_its_lease_and_who_is_silent_is_told(self):
        listener = self.subscriber("leased")
        with unisono.Client(self.at, lease=1.0) as client:
            unisono.Publisher("leased", client=client)
            consumer = unisono.Subscriber("other", client=client)
            self.assertIsNone(consumer.receive(2.0))
            self.assertIsNone(listener.receive(0))
            client.alive()
            gone = self.notice(listener)  # in the meantime the test makes no call with the leased client
            self.assertEqual((gone.kind, gone.died), ("gone", True))
            with self.assertRaisesRegex(unisono.Gone, "lease of 1s ran out"):
                consumer.receive(0)

    def test_a_filter_lets_through_what_it_says(self):
        consumer, supplier = self.subscriber("heat", filter="celsius > 80"), self.publisher("heat")
        for celsius in range(75, 85):
            supplier.publish(fields={"celsius": celsius}, later=True)
        supplier.flush()
        for celsius in range(81, 85):
            self.assertEqual(self.event(consumer).fields, {"celsius": celsius})
        self.assertIsNone(consumer.receive(0.05))

    def test_late_joiners_get_what_the_topic_keeps(self):
        supplier = self.publisher("kept", last=2)
        for number in range(5):
            supplier.try_publish(str(number))
        consumer = self.subscriber("kept", last=2)
        events = [self.event(consumer), self.event(consumer)]
        self.assertEqual([event.text() for event in events], ["3", "4"])
        self.assertTrue(events[0].retained)

    def test_try_publish_says_what_became_of_an_event(self):
        supplier = self.publisher("counted")
        self.assertEqual(supplier.try_publish().consumers, 0)
        _consumer = self.subscriber("counted")
        published = supplier.try_publish()
        self.assertEqual((published.consumers, published.outcome), (1, "taken"))
        with self.assertRaisesRegex(unisono.Refused, "deadline"):
            supplier.try_publish(deadline_ns=1)
        supplier.publish(deadline_ns=1)
        supplier.try_publish()  # when this returns, the refusal has arrived
        (refusal,) = supplier.rejected()
        self.assertEqual(refusal.kind, "rejected")
        self.assertIn("deadline", refusal.text)

    def test_refusals_that_nobody_has_read_are_logged_at_the_end(self):
        with self.assertLogs("unisono", "WARNING") as said:
            with unisono.Publisher("late", at=self.at) as supplier:
                for _ in range(2):
                    supplier.publish(deadline_ns=1)
                supplier.try_publish()  # when this returns, the refusals have arrived
            with unisono.Publisher("read", at=self.at) as supplier:
                supplier.publish(deadline_ns=1)
                supplier.try_publish()
                self.assertEqual(len(supplier.rejected()), 1)
        (line,) = said.output
        self.assertIn("late: 2 events were refused, the first one: the deadline passed", line)

    def test_refusals_never_fill_a_connection(self):
        supplier = self.publisher("refused")
        for _ in range(30000):
            supplier.publish(deadline_ns=1, later=True)
        supplier.try_publish()
        self.assertGreater(len(supplier.rejected()), 20000)

    def test_a_window_and_a_queue_of_one_give_the_newest_event(self):
        supplier = self.publisher("pose", reliable=True)
        consumer = self.subscriber("pose", acknowledge=60, window=1, queue=1, on_notice=lambda notice: None)
        supplier.try_publish("an old one")
        old = consumer.next_event(20)
        for number in range(200):
            supplier.try_publish(str(number))
        old.acknowledge()
        self.assertEqual((old.text(), consumer.next_event(20).text()), ("an old one", "199"))
        with self.assertRaisesRegex(unisono.BadArgument, "need acknowledge"):
            self.subscriber("pose", window=1)
        with self.assertRaisesRegex(unisono.Refused, "of the whole"):
            self.subscriber("pose", period=1e-6, execution=2e-6, due=1e-6)
        with self.assertRaisesRegex(unisono.BadArgument, "together"):
            self.subscriber("pose", period=1)
        self.subscriber("pose", group="g", linger=60)

    def test_what_is_acknowledged_does_not_come_again(self):
        supplier = self.publisher("jobs", reliable=True)
        consumer = self.subscriber("jobs", group="workers", acknowledge=0.02)
        supplier.publish("a job")
        self.assertEqual(self.event(consumer).repeated, 0)
        again = self.event(consumer)
        self.assertEqual(again.repeated, 1)
        again.acknowledge()
        self.assertIsNone(consumer.receive(0.2))
        supplier.publish("another")
        for event in consumer:
            if event.text() == "another":
                supplier.publish("the last")
            else:
                break

    def test_correlated_events_come_together(self):
        both = self.subscriber(["door", "motion"], together="all", within=60)
        self.publisher("door").publish("open")
        self.publisher("motion").publish("moved")
        event = self.event(both)
        texts = [event.text()] + [part.text() for part in event.parts]
        self.assertEqual(sorted(texts), ["moved", "open"])
        parts = event.parts
        del event
        self.assertIn(parts[0].topic, ("door", "motion"))

    def test_notices_come_between_events_and_are_logged_by_iteration(self):
        consumer, supplier = self.subscriber("feed"), self.publisher("feed")
        supplier.publish("last words")
        self.event(consumer)
        supplier.close()
        notice = self.notice(consumer)
        self.assertEqual((notice.kind, notice.topic, notice.died), ("gone", "feed", False))
        told = []
        listener = self.subscriber("quiet", silence=0.001, on_notice=told.append)
        self.assertIsNotNone(self.notice(listener))
        self.publisher("quiet").publish("something")
        self.assertEqual(next(iter(listener)).text(), "something")
        consumer.on_notice = told.append
        self.publisher("feed").close()
        self.publisher("feed").publish("again")
        self.assertEqual(next(iter(consumer)).text(), "again")
        self.assertIn("gone", [notice.kind for notice in told])

    def test_a_gap_says_how_many_events_are_missing(self):
        consumer = self.subscriber("burst", queue=4, full="drop-oldest")
        supplier = self.publisher("burst")
        for number in range(20000):  # more than the kernel and the broker buffer for a consumer that does not read
            supplier.publish(bytes(1000), fields={"number": number}, later=True)
        supplier.flush()
        supplier.try_publish("the end")
        seen, lost = 0, 0
        while seen + lost < 20001:
            reception = consumer.receive(60)
            if isinstance(reception, unisono.Notice):
                self.assertEqual(reception.kind, "gap")
                self.assertEqual(reception.lost, reception.last - reception.first + 1)
                lost += reception.lost
            else:
                seen += 1
        self.assertGreater(lost, 0)

    def test_two_subscriptions_of_one_connection_do_not_take_each_others_events(self):
        with unisono.Client(self.at) as client:
            one, other = (unisono.Subscriber(topic, client=client) for topic in ("one", "other"))
            supplier = unisono.Publisher("one", client=client)
            supplier.publish("1")
            unisono.Publisher("other", client=client).publish("2")
            self.assertEqual(other.receive(60).text(), "2")
            self.assertEqual(one.receive(60).text(), "1")
            one.close()
            self.assertEqual(supplier.try_publish().consumers, 0)
            self.assertFalse(client.closed)
        with self.assertRaises(unisono.Gone):
            other.receive(0)


class Log(WithBroker):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.serve("--log", scratch.name, "--log-bytes", "2MiB")

    def test_try_publish_says_how_durable_an_event_is(self):
        for durability, outcome in (("received", "taken"), ("written", "written"), ("synced", "synced")):
            supplier = self.publisher("orders", durability=durability)
            self.assertEqual(supplier.try_publish("new").outcome, outcome)
        with self.assertRaisesRegex(unisono.BadArgument, "carved"):
            self.publisher("orders", durability="carved in stone")

    def test_a_number_of_a_writer_is_in_the_log_once(self):
        supplier = self.publisher("orders", durability="written", writer="till 3")
        outcomes = [supplier.try_publish("new", number=number).outcome for number in (1, 2, 1, 3)]
        self.assertEqual(outcomes, ["written", "written", "duplicate", "written"])
        with self.assertRaisesRegex(unisono.BadArgument, "number"):
            supplier.try_publish("new", number=0)

    def test_a_consumer_that_resumes_acknowledges_by_iterating(self):
        supplier = self.publisher("orders", durability="written")
        for number in range(5):
            supplier.try_publish(str(number))
        read = []
        consumer = self.subscriber("orders", resume="billing", after=0)
        for event in consumer:
            if event.text() == "3":
                break  # without an acknowledgment of this event
            read.append(event.text())
        consumer.close()
        self.assertEqual(read, ["0", "1", "2"])
        again = self.subscriber("orders", resume="billing")
        self.assertEqual([self.event(again).text() for _ in range(2)], ["3", "4"])
        with self.assertRaisesRegex(unisono.BadArgument, "resume"):
            self.subscriber("orders", after=3)

    def test_a_position_that_was_stored_with_the_result_is_where_a_consumer_goes_on(self):
        supplier = self.publisher("orders", durability="written")
        consumer = self.subscriber("orders", resume="billing", after=0)
        for number in range(4):
            supplier.try_publish(str(number))
        stored = [(event.delivery, event.text()) for event in (self.event(consumer) for _ in range(4))]
        self.assertEqual([text for _, text in stored], ["0", "1", "2", "3"])
        positions = [position for position, _ in stored]
        self.assertEqual(positions, list(range(positions[0], positions[0] + 4)))
        consumer.close()  # the consumer has acknowledged no event, and the program has stored the results of two
        again = self.event(self.subscriber("orders", resume="billing", after=positions[1]))
        self.assertEqual((again.delivery, again.text()), stored[2])
        plain = self.subscriber("plain")
        self.publisher("plain").try_publish("x")
        self.assertIsNone(self.event(plain).delivery)

    def test_what_the_log_no_longer_has_is_told(self):
        supplier = self.publisher("orders", durability="written")
        for _ in range(80):
            supplier.try_publish(bytes(100_000))
        notice = self.notice(self.subscriber("orders", resume="billing", after=0))
        self.assertEqual((notice.kind, notice.first), ("lost", 1))
        self.assertGreater(notice.last, 1)


class Requests(WithBroker):
    def test_a_request_gets_its_reply(self):
        def answer(request):
            return str(sum(int(word) for word in request.text().split("+")))

        server = threading.Thread(target=unisono.serve, args=("sums", answer), kwargs={"at": self.at, "count": 3})
        server.start()
        supplier = self.publisher("sums")
        while not supplier.try_publish("no request").consumers:
            time.sleep(0.01)
        self.assertEqual(supplier.request("1 + 1", timeout=60).text(), "2")
        self.assertEqual(supplier.request("2 + 2", timeout=60, fields={"why": "it counts"}).text(), "4")
        self.assertEqual(unisono.request("sums", "3 + 3", timeout=60, at=self.at).text(), "6")
        server.join(60)
        self.assertFalse(server.is_alive())

    def test_nobody_answers(self):
        with self.assertRaisesRegex(TimeoutError, "nobody subscribes to nobody; start a program that replies"):
            unisono.request("nobody", timeout=0.05, at=self.at)

    def test_who_fails_says_so_to_who_asked(self):
        def answer(_request):
            raise ZeroDivisionError("not today")

        def serving():
            with self.assertRaises(ZeroDivisionError):
                unisono.serve("sums", answer, at=self.at)

        server = threading.Thread(target=serving)
        server.start()
        with self.assertRaisesRegex(unisono.Refused, "ZeroDivisionError: not today"):
            unisono.request("sums", "1 + 1", timeout=60, at=self.at)
        server.join(60)
        self.assertFalse(server.is_alive())

    def test_an_event_that_is_no_request_is_not_answered(self):
        consumer = self.subscriber("plain")
        self.publisher("plain").publish("x")
        with self.assertRaisesRegex(unisono.BadArgument, "no request"):
            self.event(consumer).reply("y")


class Waiting(WithBroker):
    def test_a_time_limit_is_kept(self):
        consumer = self.subscriber("nothing")
        for limit in (0, 0.001, 0.03):
            start = time.monotonic()
            self.assertIsNone(consumer.receive(limit))
            self.assertGreaterEqual(time.monotonic() - start, limit)

    def test_a_selector_sees_events(self):
        consumer, supplier = self.subscriber("selected"), self.publisher("selected")
        with selectors.DefaultSelector() as selector:
            selector.register(consumer, selectors.EVENT_READ)
            self.assertIsNone(consumer.receive(0))
            self.assertEqual(selector.select(0), [])
            for number in range(3):
                supplier.publish(str(number))
                while True:
                    reception = consumer.receive(0)
                    if reception is not None:
                        break
                    self.assertTrue(selector.select(60))
                self.assertEqual(reception.text(), str(number))

    def test_a_signal_ends_a_wait_without_limit(self):
        class Interrupted(Exception):
            pass

        def interrupt(*_):
            raise Interrupted

        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        consumer = self.subscriber("nothing")
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with self.assertRaises(Interrupted):
            consumer.receive()

    def test_a_thread_fills_its_own_blocking_subscription_and_goes_on(self):
        for at in (self.broker.shared, self.broker.at):
            consumer = self.subscriber("own", at=at, full="block-supplier", queue=64)
            supplier = self.publisher("own", at=at)
            for number in range(3000):
                supplier.publish(str(number).ljust(1000))
            supplier.flush()
            for number in range(3000):
                self.assertEqual(self.event(consumer).text().strip(), str(number))
            supplier.close()
            consumer.close()

    def test_ctrl_c_ends_a_publication_that_waits_for_another_thread(self):
        for at in (self.broker.shared, self.broker.at):
            subscribed, ends = threading.Event(), threading.Event()

            def consume(at=at, subscribed=subscribed, ends=ends):
                with unisono.Subscriber("busy", at=at, full="block-supplier", queue=64):
                    subscribed.set()
                    ends.wait()

            thread = threading.Thread(target=consume)
            thread.start()
            self.addCleanup(thread.join)
            self.addCleanup(ends.set)
            subscribed.wait()
            supplier = self.publisher("busy", at=at)
            filled = threading.Event()

            def interrupt(filled=filled):
                # the queue is full once the main thread has not published for a while
                while filled.is_set():
                    filled.clear()
                    time.sleep(0.3)
                os.kill(os.getpid(), signal.SIGINT)

            filled.set()
            killer = threading.Thread(target=interrupt)
            with self.assertRaises(KeyboardInterrupt):
                killer.start()
                while True:
                    supplier.publish(bytes(1000))
                    filled.set()
            killer.join()
            ends.set()

    def test_ctrl_c_ends_a_request_that_nobody_answers(self):
        consumer, supplier = self.subscriber("silence"), self.publisher("silence")
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            supplier.request("?", timeout=600)
        self.assertEqual(self.event(consumer).text(), "?")


class Trouble(WithBroker):
    def test_what_cannot_be_is_refused_with_the_brokers_words(self):
        with self.assertRaisesRegex(unisono.Refused, "celsius >"):
            self.subscriber("heat", filter="celsius >")
        with self.assertRaisesRegex(unisono.BadArgument, "lately"):
            self.subscriber("heat", late="lately")
        with self.assertRaisesRegex(unisono.BadArgument, "unheard"):
            self.subscriber("heat", more={"unheard": 1})
        with self.assertRaisesRegex(unisono.Refused, "leave out one of the two"):
            self.subscriber("heat", best_effort=True, acknowledge=1)
        with self.assertRaisesRegex(unisono.BadArgument, "fairly"):
            self.subscriber("heat", between="fairly")
        reserve = {"period_ns": 1000000, "deadline_ns": 1000000, "largest": 10}
        with self.assertRaisesRegex(unisono.Refused, "leave out one of the two"):
            self.subscriber("heat", between="shares", more={"reserve": reserve})
        with self.assertRaisesRegex(unisono.BadArgument, "-1"):
            self.publisher("heat", share=-1)
        with self.assertRaises(unisono.Refused):
            self.publisher("heat/+")
        supplier = self.publisher("heat")
        for wrong in (
            {"key": "k" * 2000},
            {"key": "a\0b"},
            {"fields": {"x" * 300: 1}},
            {"fields": {"x": 1 << 63}},
            {"fields": {"x": None}},
            {"criticality": 256},
            {"due_in": 1, "deadline_ns": 1},
            {"due_in": -1},
        ):
            with self.assertRaises(unisono.BadArgument, msg=str(wrong)):
                supplier.publish(**wrong)
        with unisono.Client(self.at) as client:
            with self.assertRaisesRegex(unisono.TooLarge, str(client.largest)):
                supplier.publish(bytearray(client.largest + 1))
        supplier.publish("it still works")

    def test_a_refusal_names_the_topic_and_what_the_rule_allows(self):
        rule = f'[[allow]]\nwho = ["unix:{os.getuid()}"]\npublish = ["plant/#"]\nsubscribe = ["plant/+", "lab"]\n'
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as rules:
            rules.write(rule)
            rules.flush()
            self.serve("--permissions", rules.name)
        with self.assertRaisesRegex(unisono.Refused, "may not publish `lab`; its rule allows `plant/#`"):
            self.publisher("lab")
        with self.assertRaisesRegex(unisono.Refused, "may not subscribe to `#`; its rule allows `plant/\\+`, `lab`"):
            self.subscriber("#")

    def test_no_broker_says_how_to_start_one(self):
        with self.assertRaisesRegex(ConnectionError, "unisono events serve"):
            unisono.Publisher("heat", at=self.at + "-not")
        with self.assertRaisesRegex(ValueError, "tcp:"):
            unisono.Subscriber("heat", at="tcp:nowhere")

    def test_a_server_that_is_no_broker_is_named_with_its_address(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            at = f"127.0.0.1:{server.getsockname()[1]}"

            def answer():
                program, _ = server.accept()
                with program:
                    program.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    program.recv(4096)

            thread = threading.Thread(target=answer)
            thread.start()
            with self.assertRaisesRegex(unisono.Gone, f"no Unisono broker answers at {at}, but an HTTP server"):
                unisono.Client(f"tcp:{at}")
            thread.join()

    def test_a_broker_that_is_killed_is_told_to_all_who_use_it_and_its_successor_serves(self):
        consumer, supplier = self.subscriber("tick"), self.publisher("tick")
        supplier.publish("before")
        kept = self.event(consumer)
        killer = threading.Timer(0.1, self.broker.kill)
        killer.start()
        with self.assertRaisesRegex(unisono.Gone, "the broker is gone"):
            for _ in consumer:
                pass
        with self.assertRaises(unisono.Gone):
            while True:
                supplier.publish("tick")
        killer.join()
        self.assertEqual(kept.text(), "before")
        consumer.close()
        supplier.close()
        self.broker.start()
        consumer, supplier = self.subscriber("tick"), self.publisher("tick")
        supplier.publish("after")
        self.assertEqual(self.event(consumer).text(), "after")

    def test_a_client_that_connects_again_has_its_topics_and_is_told_how_long_it_was_away(self):
        with unisono.Client(self.at, reconnect=60) as client:
            consumer = unisono.Subscriber("tick", client=client)
            supplier = unisono.Publisher("tick", client=client)
            supplier.publish("before")
            self.assertEqual(self.event(consumer).text(), "before")
            self.broker.kill()
            self.assertIsNone(consumer.receive(0.05), "it is away")
            back = threading.Timer(0.1, self.broker.start)
            back.start()
            notice = self.notice(consumer)
            self.assertEqual((notice.kind, notice.topic), ("reconnected", None))
            self.assertGreater(time.monotonic_ns() - notice.time_ns, 0.1e9)
            supplier.publish("after")
            self.assertEqual(self.event(consumer).text(), "after")
            self.assertEqual(supplier.rejected(), [])
            back.join()

    def test_a_request_that_the_brokers_death_interrupts_is_unanswered(self):
        with unisono.Client(self.at, reconnect=60) as client:
            server = unisono.Subscriber("sums", client=client)
            asker = unisono.Publisher("sums", client=client)

            def restart():
                self.broker.kill()
                self.broker.start()

            again = threading.Timer(0.1, restart)
            again.start()
            with self.assertRaisesRegex(unisono.Unanswered, "broke before"):
                asker.request(b"1 + 1", timeout=60)
            self.assertEqual([self.event(server).text(), self.notice(server).kind], ["1 + 1", "reconnected"])
            again.join()

    def test_who_resumes_misses_nothing_while_its_broker_is_away(self):
        with tempfile.TemporaryDirectory() as log:
            self.serve("--log", log)
            with unisono.Client(self.at, reconnect=60) as client:
                consumer = unisono.Subscriber("orders", client=client, resume="billing")
                supplier = unisono.Publisher("orders", client=client, durability="written")
                for number in range(3):
                    supplier.try_publish(str(number))
                first, second, _third = (self.event(consumer) for _ in range(3))
                first.acknowledge()
                self.broker.kill()
                self.broker.start()
                self.assertEqual(self.notice(consumer).kind, "reconnected")
                supplier.try_publish("3")
                # events that were not acknowledged are delivered again
                came = [self.event(consumer) for _ in range(3)]
                self.assertEqual([event.text() for event in came], ["1", "2", "3"])
                second.acknowledge()  # it is no error to acknowledge a delivery of the former connection

    def test_a_child_that_ends_its_copy_leaves_the_parents_connection(self):
        for at in (self.broker.shared, self.broker.at):
            consumer, supplier = self.subscriber("forked", at=at), self.publisher("forked", at=at)
            supplier.publish("before")
            self.assertEqual(self.event(consumer).text(), "before")
            child = os.fork()
            if child == 0:
                supplier.close()
                consumer.close()
                os._exit(0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            for number in range(100):
                supplier.publish(str(number))
                self.assertEqual(self.event(consumer).text(), str(number))
            supplier.close()
            consumer.close()

    def test_a_child_that_uses_its_copy_is_refused_and_leaves_the_parents_connection(self):
        for at in (self.broker.shared, self.broker.at):
            consumer, supplier = self.subscriber("forked", at=at), self.publisher("forked", at=at)
            calls = {
                "publish": lambda: supplier.publish("of the child"),
                "try_publish": lambda: supplier.try_publish("of the child"),
                "receive": lambda: consumer.receive(0.1),
                "subscribe": lambda: unisono.Subscriber("more", client=consumer._client),
                "statistics": lambda: consumer._client.statistics(),
            }
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                for name, call in calls.items():
                    try:
                        call()
                    except unisono.Gone as gone:
                        name += f": {gone}"
                    except unisono.Error as other:
                        name += f" fails otherwise: {other}"
                    os.write(writer, f"{name}\n".encode())
                os._exit(0)
            os.close(writer)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            with os.fdopen(reader) as said:
                refusal = "the connection belongs to the parent of this forked process; connect anew"
                self.assertEqual(said.read().splitlines(), [f"{name}: {refusal}" for name in calls])
            for number in range(100):
                supplier.publish(str(number))
                self.assertEqual(self.event(consumer).text(), str(number))
            supplier.close()
            consumer.close()

    def test_a_client_that_connects_again_waits_for_a_broker_that_is_not_there_yet(self):
        self.broker.kill()
        later = threading.Timer(0.3, self.broker.start)
        later.start()
        self.addCleanup(later.join)
        with unisono.Client(self.at, reconnect=60) as client:
            self.assertGreater(client.largest, 0)

    def test_acknowledge_says_when_and_again_how_often(self):
        supplier = self.publisher("again", reliable=True)
        again = {"again": {"after_ns": 10**10, "attempts": 3, "window": 8}}
        consumer = self.subscriber("again", acknowledge=0.02, more=again)
        supplier.publish("x")
        for _ in range(3):
            self.assertEqual(self.event(consumer).text(), "x")
        notice = consumer.receive(60)
        self.assertIsInstance(notice, unisono.Notice)
        self.assertEqual(notice.kind, "gap")

    def test_a_client_gives_up_when_its_time_to_connect_again_is_over(self):
        with unisono.Client(self.at, reconnect=0.05) as client:
            consumer = unisono.Subscriber("tick", client=client)
            self.broker.kill()
            with self.assertRaisesRegex(unisono.Gone, "no broker at"):
                consumer.receive()

    def test_a_word_that_an_option_does_not_know_is_refused_with_the_words_that_it_knows(self):
        with self.assertRaisesRegex(unisono.BadArgument, "late='never'.*'deliver', 'drop', 'report'"):
            self.subscriber("x", late="never")
        with self.assertRaisesRegex(unisono.BadArgument, "full='wait'.*'drop-oldest'"):
            self.subscriber("x", full="wait")

    def test_what_is_closed_says_so(self):
        consumer, supplier = self.subscriber("x"), self.publisher("x")
        consumer.close()
        supplier.close()
        consumer.close()
        supplier.close()
        for call in (consumer.receive, consumer.fileno, supplier.publish, supplier.flush):
            with self.assertRaisesRegex(unisono.Gone, "closed"):
                call()
        self.assertEqual(list(consumer), [])


if __name__ == "__main__":
    unittest.main()
