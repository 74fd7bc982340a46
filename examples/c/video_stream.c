/* A video stream: frames of the sizes of MPEG-1 at 1.5 Mbit/s, each due before the next one is shown.
 *
 *	unisono events serve &
 *	./video_stream consume & ./video_stream supply 300
 *
 * A late frame is useless: the broker drops it and notifies the consumer, which checks that frames and gaps
 * together are the whole stream. If the consumer's queue is full, frames on which other frames depend stay,
 * because they are more critical. Supplier and consumer may also be the examples in Rust and in Python.
 */
#include "example.h"

#include <inttypes.h>
#include <threads.h>

static const uint64_t PERIOD_NS = 1000000000 / 30; /* frames are shown at 30 Hz */

/* Returns the size of a frame. Every twelfth frame depends on no other frame, every third frame depends on
 * the last of these, and all other frames depend on both. */
static size_t bytes_of(int64_t number)
{
	return number % 12 == 0 ? 20000 : number % 3 == 0 ? 9000 : 3500;
}

static uint8_t criticality_of(int64_t number)
{
	return number % 12 == 0 ? 2 : number % 3 == 0;
}

static void supply(unisono_client *client, int64_t count)
{
	unisono_field fields[] = {
		{ "number", UNISONO_FIELD_KIND_WHOLE, 0, 0, NULL },
		{ "last", UNISONO_FIELD_KIND_BOOL, 1, 0, NULL },
	};
	static unsigned char frame[20000];
	unisono_published published = { 0, 0, 0 };
	uint64_t shown = unisono_now(), now;
	uint32_t video;

	MUST(unisono_advertise(client, &(unisono_topic){ .name = "video", .deadline_ns = PERIOD_NS },
			       &video));
	for (int64_t number = 0; number < count; number++) {
		unisono_draft draft = { .payload = frame,
					.bytes = bytes_of(number),
					.fields = fields,
					.field_count = 1,
					.criticality = criticality_of(number) };

		fields[0].whole = number;
		memset(frame, (int)(number & 0xff), draft.bytes);
		shown += PERIOD_NS;
		now = unisono_now();
		if (now < shown)
			thrd_sleep(&(struct timespec){ .tv_nsec = (long)(shown - now) }, NULL);
		if (number > 0) {
			MUST(unisono_publish(client, video, &draft));
		} else { /* until a consumer has subscribed */
			MUST(unisono_try_publish(client, video, &draft, &published));
			number -= published.consumers == 0;
		}
	}
	fields[0].whole = count;
	/* without its own deadline this event could be dropped like the frames */
	MUST(unisono_publish(client, video,
			     &(unisono_draft){ .fields = fields,
					       .field_count = 2,
					       .criticality = 255,
					       .deadline_ns = unisono_due_in(3600 * UINT64_C(1000000000)) }));
}

/* Whether the event is frame `number`, with all its bytes. */
static int is_right(const unisono_event *event, int64_t number)
{
	const unsigned char *payload = event->payload;

	if (event->bytes != bytes_of(number))
		return 0;
	for (size_t i = 0; i < event->bytes; i++)
		if (payload[i] != (number & 0xff))
			return 0;
	return 1;
}

static int consume(unisono_client *client)
{
	unisono_subscription in_time = { .topics = "video",
					 .queue = 64,
					 .full = UNISONO_FULL_DROP_BY_DEADLINE,
					 .late = UNISONO_LATE_REPORT };
	int64_t shown = 0, missing = 0, before = -1, number;
	unisono_event *event;
	uint32_t subscription;

	MUST(unisono_subscribe(client, &in_time, &subscription));
	for (;;) {
		MUST(unisono_receive(client, 30 * INT64_C(1000000000), &event));
		if (event->kind == UNISONO_RECEPTION_EVENT) {
			number = field(event, "number")->whole;
			if (!strcmp(event->fields[0].name, "last"))
				break;
			if (number <= before || !is_right(event, number)) {
				fprintf(stderr, "frame %" PRId64 " after %" PRId64 " is another one\n",
					number, before);
				return 1;
			}
			before = number;
			shown++;
		} else if (event->kind == UNISONO_RECEPTION_GAP) {
			missing += (int64_t)event->lost;
		} else if (event->kind != UNISONO_RECEPTION_GONE || event->died) {
			fprintf(stderr, "%s\n", event->text);
			return 1;
		}
		MUST(unisono_event_free(&event));
	}
	MUST(unisono_event_free(&event));
	if (shown + missing != number) {
		fprintf(stderr, "%" PRId64 " frames and %" PRId64 " missing ones, of %" PRId64 "\n", shown,
			missing, number);
		return 1;
	}
	printf("video stream: %" PRId64 " frames came in time, %" PRId64 " were reported as missing\n", shown,
	       missing);
	return 0;
}

int main(int argc, char **argv)
{
	int supplies = argc > 1 && !strcmp(argv[1], "supply"), code = 0;
	unisono_client *client;

	if (!supplies && (argc < 2 || strcmp(argv[1], "consume"))) {
		fprintf(stderr, "video_stream supply|consume [COUNT [BROKER]]\n");
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
