/* A sensor that publishes a temperature each millisecond, due within 20 ms, and a consumer of the hot ones:
 *
 *	unisono events serve &
 *	./sensor_feed consume & ./sensor_feed supply 300
 *
 * The consumer checks that no hot event is missing, doubled or out of order, and counts late ones. Supplier
 * and consumer may also be the examples in Rust and in Python.
 */
#include "example.h"

#include <inttypes.h>
#include <threads.h>

static int64_t celsius(int64_t number)
{
	return 20 + (number + 40) % 60;
}

/* The first hot event from `number` on. */
static int64_t hot(int64_t number)
{
	while (celsius(number) <= 40)
		number++;
	return number;
}

static void supply(unisono_client *client, int64_t count)
{
	unisono_field fields[] = {
		{ "number", UNISONO_FIELD_KIND_WHOLE, 0, 0, NULL },
		{ "celsius", UNISONO_FIELD_KIND_WHOLE, 0, 0, NULL },
	};
	unisono_draft draft = { .fields = fields, .field_count = 2 };
	unisono_published published = { 0, 0, 0 };
	uint32_t heat;

	/* each event is due 20 ms after the broker gets it */
	MUST(unisono_advertise(client, &(unisono_topic){ .name = "sensor/1/heat", .deadline_ns = 20000000 },
			       &heat));
	for (int64_t number = 0; number < count; number++) {
		fields[0].whole = number;
		fields[1].whole = celsius(number);
		if (number > 0) {
			MUST(unisono_publish(client, heat, &draft));
		} else { /* until a consumer has subscribed */
			MUST(unisono_try_publish(client, heat, &draft, &published));
			number -= published.consumers == 0;
		}
		thrd_sleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	fields[0].whole = count;
	fields[1] = (unisono_field){ "last", UNISONO_FIELD_KIND_BOOL, 1, 0, NULL };
	MUST(unisono_publish(client, heat, &draft));
}

static int consume(unisono_client *client)
{
	/* no event may be lost: if the consumer is too slow, the sensor waits */
	unisono_subscription hot_ones = { .topics = "sensor/+/heat",
					  .filter = "celsius > 40 or last",
					  .full = UNISONO_FULL_BLOCK_SUPPLIER };
	int64_t next = hot(0), number, events = 0, late = 0;
	unisono_event *event;
	uint32_t subscription;

	MUST(unisono_subscribe(client, &hot_ones, &subscription));
	for (;;) {
		MUST(unisono_receive(client, 30 * INT64_C(1000000000), &event));
		if (event->kind == UNISONO_RECEPTION_EVENT) {
			number = field(event, "number")->whole;
			if (!strcmp(event->fields[0].name, "last"))
				break;
			if (number != next) {
				fprintf(stderr, "event %" PRId64 " came where %" PRId64 " had to\n", number,
					next);
				return 1;
			}
			next = hot(number + 1);
			events++;
			late += (event->flags & UNISONO_EVENT_LATE) != 0;
		} else if (event->kind != UNISONO_RECEPTION_GONE || event->died) {
			fprintf(stderr, "%s\n", event->text);
			return 1;
		}
		MUST(unisono_event_free(&event));
	}
	MUST(unisono_event_free(&event));
	if (next < number) {
		fprintf(stderr, "event %" PRId64 " is missing before the last one\n", next);
		return 1;
	}
	printf("sensor feed: %" PRId64 " hot events, none is missing, %" PRId64 " were late\n", events, late);
	return 0;
}

int main(int argc, char **argv)
{
	int supplies = argc > 1 && !strcmp(argv[1], "supply"), code = 0;
	unisono_client *client;

	if (!supplies && (argc < 2 || strcmp(argv[1], "consume"))) {
		fprintf(stderr, "sensor_feed supply|consume [COUNT [BROKER]]\n");
		return 2;
	}
	client = broker(argc > 3 ? argv[3] : NULL);
	if (supplies)
		supply(client, argc > 2 ? strtoll(argv[2], NULL, 10) : 300);
	else
		code = consume(client);
	MUST(unisono_client_close(&client));
	return code;
}
