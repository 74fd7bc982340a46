/* Makes every call about loans of unisono.h, with the broker at the address in the first argument, and checks
 * each result. Exit code 0: all results were right. */
#include "events.h"

/* Loans are written in place where a consumer gets events directly, through shared memory. */
static void a_loan_is_written_in_place_and_given_away(void)
{
	unisono_client *consumer = connected(), *supplier = connected();
	uint32_t frames = topic(supplier, "frames"), others = topic(supplier, "others");
	unisono_field number = { "number", UNISONO_FIELD_KIND_WHOLE, 7, 0, NULL };
	unisono_draft draft = { .bytes = 100000, .key = "camera", .fields = &number, .field_count = 1 };
	unisono_draft full = { .payload = "x", .bytes = 1 }, large = { .bytes = SIZE_MAX };
	unisono_draft small = of("small");
	unisono_lent *lent, *second;
	unisono_event *event;
	int taken = 0;

	REFUSED(unisono_loan(supplier, frames, NULL, &lent), ARG);
	REFUSED(unisono_loan(supplier, frames, &full, &lent), ARG);
	REFUSED(unisono_loan(supplier, frames, &large, &lent), SIZE);
	REFUSED(unisono_loan(supplier, 99, &draft, &lent), ARG);
	CHECK(lent == NULL);
	REFUSED(unisono_loan_return(&lent), ARG);
	REFUSED(unisono_publish_loan(supplier, NULL, 0), ARG);
	/* without a consumer the memory is the program's own */
	DO(unisono_loan(supplier, others, &draft, &lent));
	CHECK(!lent->in_place && lent->bytes == 100000);
	memset(lent->memory, 1, lent->bytes);
	DO(unisono_publish_loan(supplier, lent, 0));
	DO(unisono_loan_return(&lent));

	subscribed(consumer, "frames");
	DO(unisono_publish(supplier, frames, &small));
	event = next(consumer, UNISONO_RECEPTION_EVENT);
	DO(unisono_event_free(&event));
	DO(unisono_loan(supplier, frames, &draft, &lent));
	CHECK(lent->in_place == (address[0] == '/'));
	/* events and loans in between, and a loan that is returned unpublished */
	DO(unisono_loan(supplier, frames, &draft, &second));
	memset(second->memory, 9, second->bytes);
	DO(unisono_loan_return(&second));
	CHECK(second == NULL);
	DO(unisono_publish(supplier, frames, &small));
	memset(lent->memory, 5, lent->bytes);
	DO(unisono_publish_loan_within(supplier, lent, unisono_due_in(60 * SECOND), SECOND, &taken));
	CHECK(taken && lent->memory == NULL && lent->bytes == 0);
	REFUSED(unisono_publish_loan(supplier, lent, 0), ARG);
	for (int i = 0; i < 2; i++) {
		event = next(consumer, UNISONO_RECEPTION_EVENT);
		if (event->bytes == 100000) {
			const unsigned char *payload = event->payload;

			CHECK(payload[0] == 5 && payload[99999] == 5 && !strcmp(event->key, "camera"));
			CHECK(event->fields[0].whole == 7 && event->deadline_ns > unisono_now());
		} else {
			CHECK(holds(event, "small"));
		}
		DO(unisono_event_free(&event));
	}
	DO(unisono_client_close(&supplier));
	DO(unisono_loan_return(&lent));
	DO(unisono_client_close(&consumer));
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	address = argv[1];
	a_loan_is_written_in_place_and_given_away();
	printf("every call about loans answered as it should\n");
	return 0;
}
