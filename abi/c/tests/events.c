/* Makes every event call of unisono.h but those of loans, with the broker at the address in the first
 * argument, and checks each result. With a second argument, it publishes until the broker is killed, and
 * waits for the next broker, also with connections that reconnect by themselves. Exit code 0: all results
 * were right. */
#include "events.h"

#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static void all_of_an_event(void)
{
	unisono_client *client = connected();
	unisono_field fields[] = {
		{ "celsius", UNISONO_FIELD_KIND_DECIMAL, .decimal = 81.5 },
		{ "count", UNISONO_FIELD_KIND_WHOLE, .whole = -3 },
		{ "hot", UNISONO_FIELD_KIND_BOOL, .whole = 1 },
		{ "site", UNISONO_FIELD_KIND_TEXT, .text = "lab" },
	};
	unisono_draft draft = { .payload = "hot",
				.bytes = 3,
				.key = "oven",
				.fields = fields,
				.field_count = 4,
				.deadline_ns = unisono_due_in(60 * SECOND),
				.criticality = 7 };
	uint32_t number = subscribed(client, "plant/+/heat"), heat = topic(client, "plant/1/heat");
	unisono_event *event;

	CHECK(number != 0 && heat != 0 && number != heat);
	DO(unisono_publish(client, heat, &draft));
	event = next(client, UNISONO_RECEPTION_EVENT);
	CHECK(event->number == number && holds(event, "hot") && event->text == NULL);
	CHECK(!strcmp(event->topic, "plant/1/heat") && !strcmp(event->key, "oven"));
	CHECK(event->field_count == 4 && event->criticality == 7 && event->flags == 0);
	CHECK(!strcmp(event->fields[0].name, "celsius") && event->fields[0].decimal == 81.5);
	CHECK(event->fields[1].kind == UNISONO_FIELD_KIND_WHOLE && event->fields[1].whole == -3);
	CHECK(event->fields[1].decimal == -3);
	CHECK(event->fields[2].kind == UNISONO_FIELD_KIND_BOOL && event->fields[2].whole == 1);
	CHECK(!strcmp(event->fields[3].text, "lab"));
	CHECK(event->deadline_ns == draft.deadline_ns && event->published_ns <= unisono_now());
	CHECK(event->published_ns + 60 * SECOND > draft.deadline_ns - 60 * SECOND);
	DO(unisono_acknowledge(client, event)); /* has no effect here */
	/* an event outlives its connection */
	DO(unisono_client_close(&client));
	CHECK(client == NULL && holds(event, "hot"));
	DO(unisono_event_free(&event));
	CHECK(event == NULL);
	REFUSED(unisono_event_free(&event), ARG);
	REFUSED(unisono_client_close(&client), ARG);
}

static void refusals(void)
{
	unisono_client *client = connected(), *other;
	uint32_t heat = topic(client, "heat"), number = 99;
	unisono_field wrong = { "celsius", 9, 0, 0, NULL };
	unisono_draft draft = { .fields = &wrong, .field_count = 1 };
	unisono_event *event = (unisono_event *)&wrong;
	char *key = malloc(2000);

	REFUSED(unisono_client_connect("/nowhere/at/all", &other), GONE);
	SAYS("unisono events serve");
	CHECK(other == NULL);
	REFUSED(unisono_client_connect("tcp:nowhere", &other), ARG);
	REFUSED(unisono_client_connect("\xff", &other), ARG);
	REFUSED(unisono_client_connect(address, NULL), ARG);
	REFUSED(unisono_subscribe(client, &(unisono_subscription){ .topics = "heat", .filter = "celsius >" },
				  &number),
		REFUSED);
	SAYS("celsius >");
	REFUSED(unisono_subscribe(client, &(unisono_subscription){ .topics = "heat", .more = "{\"lat\": 1}" },
				  &number),
		ARG);
	SAYS("lat");
	REFUSED(unisono_subscribe(client, &(unisono_subscription){ .topics = "heat", .full = 3 }, &number),
		ARG);
	REFUSED(unisono_subscribe(client, &(unisono_subscription){ .topics = "heat", .late = -1 }, &number),
		ARG);
	CHECK(number == 99);
	REFUSED(unisono_unsubscribe(client, 1234), ARG);
	REFUSED(unisono_advertise(client, &(unisono_topic){ .name = "heat", .last = 1, .last_values = 1 },
				  &number),
		ARG);
	REFUSED(unisono_advertise(client, &(unisono_topic){ .name = "heat/+" }, &number), REFUSED);
	REFUSED(unisono_advertise(client, &(unisono_topic){ .name = "x", .flags = 8 }, &number), ARG);
	REFUSED(unisono_advertise(client, &(unisono_topic){ .name = NULL }, &number), ARG);
	REFUSED(unisono_publish(client, heat, &draft), ARG);
	SAYS("unisono_field_kind");
	REFUSED(unisono_publish(client, 1234, &draft), ARG);
	REFUSED(unisono_publish(client, heat, NULL), ARG);
	REFUSED(unisono_publish(client, heat, &(unisono_draft){ .bytes = 5 }), ARG);
	CHECK(key != NULL);
	memset(key, 'k', 1999);
	key[1999] = 0;
	REFUSED(unisono_publish(client, heat, &(unisono_draft){ .key = key }), ARG);
	SAYS("1999");
	free(key);
	CHECK(unisono_client_largest(client) >= 1024 && unisono_client_largest(NULL) == 0);
	draft = (unisono_draft){ .payload = &draft, .bytes = unisono_client_largest(client) + 1 };
	REFUSED(unisono_publish(client, heat, &draft), SIZE);
	/* the broker's text about an event whose outcome was not awaited */
	draft = (unisono_draft){ .deadline_ns = 1 };
	REFUSED(unisono_try_publish(client, heat, &draft, NULL), REFUSED);
	DO(unisono_publish(client, heat, &draft));
	event = next(client, UNISONO_RECEPTION_REJECTED);
	CHECK(event->number == heat && strlen(event->text) > 10);
	REFUSED(unisono_acknowledge(client, event), ARG);
	REFUSED(unisono_reply(client, event, &draft), ARG);
	DO(unisono_event_free(&event));
	REFUSED(unisono_receive(client, 0, &event), TIMED_OUT);
	REFUSED(unisono_receive(NULL, 0, &event), ARG);
	REFUSED(unisono_receive(client, 0, NULL), ARG);
	CHECK(event == NULL && unisono_client_descriptor(NULL) == -1);
	DO(unisono_client_close(&client));
}

static void filters_and_the_descriptor(void)
{
	unisono_client *consumer = connected(), *supplier = connected();
	unisono_subscription options = { .topics = "plant/#", .filter = "celsius > 80", .queue = 100 };
	unisono_field celsius = { "celsius", UNISONO_FIELD_KIND_WHOLE, 0, 0, NULL };
	unisono_draft draft = { .fields = &celsius, .field_count = 1 };
	unisono_published published = { 0, 0, -1 };
	uint32_t heat = topic(supplier, "plant/2/heat"), number;
	unisono_event *event;
	struct pollfd ready;

	DO(unisono_subscribe(consumer, &options, &number));
	ready = (struct pollfd){ unisono_client_descriptor(consumer), POLLIN, 0 };
	CHECK(unisono_receive(consumer, 0, &event) == UNISONO_STATUS_TIMED_OUT);
	CHECK(poll(&ready, 1, 0) == 0);
	for (int i = 0; i < 100; i++) {
		celsius.whole = i;
		DO(unisono_publish_later(supplier, heat, &draft));
	}
	DO(unisono_flush(supplier));
	for (int i = 81; i < 100; i++) {
		while (unisono_receive(consumer, 0, &event) == UNISONO_STATUS_TIMED_OUT)
			CHECK(poll(&ready, 1, 20000) == 1 && (ready.revents & POLLIN));
		CHECK(event->fields[0].whole == i && event->number == number);
		DO(unisono_event_free(&event));
	}
	DO(unisono_try_publish(supplier, heat, &draft, &published));
	CHECK(published.consumers == 1 && published.outcome == UNISONO_OUTCOME_TAKEN);
	CHECK(published.sequence >= 100);
	event = next(consumer, UNISONO_RECEPTION_EVENT);
	CHECK(event->sequence == published.sequence);
	DO(unisono_event_free(&event));
	DO(unisono_unsubscribe(consumer, number));
	while (published.consumers != 0) /* until the broker has processed the end of the subscription */
		DO(unisono_try_publish(supplier, heat, &draft, &published));
	DO(unisono_withdraw(supplier, heat));
	REFUSED(unisono_withdraw(supplier, heat), ARG);
	DO(unisono_client_close(&supplier));
	DO(unisono_client_close(&consumer));
}

static void late_joiners_gaps_and_deaths(void)
{
	unisono_client *consumer = connected(), *supplier = connected();
	unisono_subscription options = { .topics = "feed", .last = 2 };
	unisono_topic keeping = {
		.name = "feed", .last = 2, .deadline_ns = SECOND * 60, .more = "{\"burst\": 4}"
	};
	unisono_draft draft = of("one");
	unisono_event *event;
	uint32_t feed, number;

	DO(unisono_advertise(supplier, &keeping, &feed));
	DO(unisono_try_publish(supplier, feed, &draft, NULL));
	draft = of("two");
	DO(unisono_try_publish(supplier, feed, &draft, NULL));
	DO(unisono_subscribe(consumer, &options, &number));
	event = next(consumer, UNISONO_RECEPTION_EVENT);
	CHECK(holds(event, "one") && event->flags == UNISONO_EVENT_RETAINED);
	/* the deadline comes from the topic */
	CHECK(event->deadline_ns == event->published_ns + keeping.deadline_ns);
	DO(unisono_event_free(&event));
	event = next(consumer, UNISONO_RECEPTION_EVENT);
	CHECK(holds(event, "two"));
	DO(unisono_event_free(&event));
	DO(unisono_client_close(&supplier));
	event = next(consumer, UNISONO_RECEPTION_GONE);
	CHECK(event->died == 0 && !strcmp(event->topic, "feed") && strstr(event->text, "left"));
	DO(unisono_event_free(&event));
	options = (unisono_subscription){ .topics = "silent", .more = "{\"silence_ns\": 1000000}" };
	DO(unisono_subscribe(consumer, &options, &number));
	event = next(consumer, UNISONO_RECEPTION_SILENCE);
	CHECK(event->number == number && event->topic == NULL);
	DO(unisono_event_free(&event));
	DO(unisono_client_close(&consumer));
}

static void acknowledged_events_do_not_come_again(void)
{
	unisono_client *client = connected();
	unisono_subscription options = { .topics = "jobs", .group = "workers", .acknowledge_ns = 20000000 };
	uint32_t jobs, number;
	unisono_draft draft = of("a job");
	unisono_event *event;

	DO(unisono_advertise(client, &(unisono_topic){ .name = "jobs", .flags = UNISONO_TOPIC_RELIABLE },
			     &jobs));
	DO(unisono_subscribe(client, &options, &number));
	DO(unisono_publish(client, jobs, &draft));
	event = next(client, UNISONO_RECEPTION_EVENT);
	CHECK(event->flags & UNISONO_EVENT_ACKNOWLEDGE && event->repeated == 0);
	DO(unisono_event_free(&event));
	event = next(client, UNISONO_RECEPTION_EVENT);
	CHECK(event->repeated == 1 && holds(event, "a job"));
	DO(unisono_acknowledge(client, event));
	DO(unisono_event_free(&event));
	CHECK(unisono_receive(client, SECOND / 5, &event) == UNISONO_STATUS_TIMED_OUT);
	DO(unisono_client_close(&client));
}

static int asked;

static int once(void)
{
	return ++asked == 1;
}

/* One thread publishes to a queue of its own that blocks suppliers. */
static void a_publication_waits_for_room_no_longer_than_it_may(void)
{
	unisono_client *consumer = connected(), *supplier = connected();
	unisono_subscription options = { .topics = "own", .queue = 64, .full = UNISONO_FULL_BLOCK_SUPPLIER };
	static const char kilobyte[1000];
	unisono_draft draft = { .payload = kilobyte, .bytes = sizeof(kilobyte) };
	uint32_t own = topic(supplier, "own"), number, events = 0, came = 0;
	unisono_status status;
	unisono_event *event;
	int taken = 1;

	DO(unisono_subscribe(consumer, &options, &number));
	do {
		status = unisono_publish_within(supplier, own, &draft, SECOND / 20, &taken);
		events += taken;
	} while (status == UNISONO_STATUS_OK);
	CHECK(status == UNISONO_STATUS_TIMED_OUT && events >= 64);
	unisono_end_waits_by(once);
	CHECK(unisono_publish_later(supplier, own, &draft) == UNISONO_STATUS_INTERRUPTED ||
	      unisono_flush(supplier) == UNISONO_STATUS_INTERRUPTED);
	while (unisono_flush_within(supplier, SECOND / 20) == UNISONO_STATUS_TIMED_OUT)
		while (unisono_receive(consumer, 0, &event) == UNISONO_STATUS_OK) {
			came++;
			DO(unisono_event_free(&event));
		}
	for (; came < events; came++) {
		event = next(consumer, UNISONO_RECEPTION_EVENT);
		DO(unisono_event_free(&event));
	}
	DO(unisono_client_close(&supplier));
	DO(unisono_client_close(&consumer));
}

static void correlated_events_come_together(void)
{
	unisono_client *client = connected();
	unisono_subscription options = {
		.more = "{\"interests\": [{\"topics\": \"door\"}, {\"topics\": \"motion\"}],"
			" \"together\": {\"rule\": \"all\", \"within_ns\": 60000000000}}"
	};
	uint32_t door = topic(client, "door"), motion = topic(client, "motion"), number;
	unisono_draft open = of("open"), moved = of("moved");
	unisono_event *event;

	DO(unisono_subscribe(client, &options, &number));
	DO(unisono_publish(client, door, &open));
	DO(unisono_publish(client, motion, &moved));
	event = next(client, UNISONO_RECEPTION_EVENT);
	CHECK(holds(event, "moved") && event->with_count == 1 && holds(event->with[0], "open"));
	CHECK(!strcmp(event->with[0]->topic, "door"));
	DO(unisono_event_free(&event));
	DO(unisono_client_close(&client));
}

static void requests_and_replies(void)
{
	unisono_client *client = connected(), *server = connected();
	uint32_t sums = topic(client, "sums"), number = subscribed(server, "sums");
	unisono_draft question = of("1 + 1"), answer = of("2");
	unisono_event *event, *reply;

	/* no server answers */
	REFUSED(unisono_ask(client, sums, &question, SECOND / 20, &reply), TIMED_OUT);
	CHECK(reply == NULL);
	event = next(server, UNISONO_RECEPTION_EVENT);
	CHECK(event->number == number && holds(event, "1 + 1"));
	/* a reply that comes too late is not taken for the next request's, and other events are kept */
	DO(unisono_reply(server, event, &answer));
	DO(unisono_event_free(&event));
	subscribed(client, "other");
	DO(unisono_publish(server, topic(server, "other"), &question));
	REFUSED(unisono_ask(client, sums, &question, SECOND / 20, &reply), TIMED_OUT);
	event = next(client, UNISONO_RECEPTION_EVENT);
	CHECK(!strcmp(event->topic, "other"));
	REFUSED(unisono_reply(server, event, &answer), ARG);
	DO(unisono_event_free(&event));
	DO(unisono_client_close(&server));
	DO(unisono_client_close(&client));
}

/* Answers one request with its own text. */
static void *answering(void *client)
{
	unisono_event *event = next(client, UNISONO_RECEPTION_EVENT);
	unisono_draft echo = { .payload = event->payload, .bytes = event->bytes };

	DO(unisono_reply(client, event, &echo));
	DO(unisono_event_free(&event));
	return NULL;
}

static void a_request_is_answered(void)
{
	unisono_client *client = connected(), *server = connected();
	uint32_t echoes = topic(client, "echoes");
	unisono_draft question = of("who is there?");
	unisono_event *reply;
	pthread_t thread;

	subscribed(server, "echoes");
	CHECK(pthread_create(&thread, NULL, answering, server) == 0);
	DO(unisono_ask(client, echoes, &question, 20 * SECOND, &reply));
	CHECK(holds(reply, "who is there?") && reply->number == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	DO(unisono_event_free(&reply));
	DO(unisono_client_close(&server));
	DO(unisono_client_close(&client));
}

static void names_leases_and_statistics(void)
{
	unisono_client_options options = { .address = address,
					   .name = "line 1 \xc3\xbc",
					   .wait = UNISONO_WAIT_ADAPTIVE };
	struct timespec pause = { 2, 0 };
	unisono_client *client, *leased;
	unisono_event *event;
	const char *json, *row;
	char name[80];

	DO(unisono_client_open(&options, &client));
	CHECK(!strcmp(unisono_client_name(client), options.name) && unisono_client_name(NULL) == NULL);
	subscribed(client, "statistics");
	DO(unisono_publish(client, topic(client, "statistics"),
			   &(unisono_draft){ .payload = "x", .bytes = 1 }));
	event = next(client, UNISONO_RECEPTION_EVENT);
	DO(unisono_event_free(&event));
	DO(unisono_client_statistics(client, &json));
	row = strstr(json, "\"name\":\"line 1 \xc3\xbc\"");
	CHECK(row != NULL && strstr(row, "\"delivered\":1") != NULL);
	REFUSED(unisono_client_statistics(client, NULL), ARG);
	/* a program that gives no name gets one */
	DO(unisono_client_open(&(unisono_client_options){ .address = address }, &leased));
	snprintf(name, sizeof(name), "[%d]", (int)getpid());
	CHECK(strstr(unisono_client_name(leased), name) != NULL && unisono_client_name(leased)[0] != '[');
	DO(unisono_client_close(&leased));
	options.name = "a\nb";
	REFUSED(unisono_client_open(&options, &leased), ARG);
	SAYS("control character");
	options = (unisono_client_options){ .address = address, .wait = 3 };
	REFUSED(unisono_client_open(&options, &leased), ARG);
	SAYS("unisono_wait");
	options = (unisono_client_options){ .address = address, .lease_ns = 1000 };
	REFUSED(unisono_client_open(&options, &leased), ARG);
	SAYS("300ms");
	options.lease_ns = SECOND;
	DO(unisono_client_open(&options, &leased));
	subscribed(client, "leased");
	topic(leased, "leased");
	/* a program that waits in a call is alive */
	CHECK(unisono_receive(leased, 2 * SECOND, &event) == UNISONO_STATUS_TIMED_OUT);
	CHECK(unisono_receive(client, 0, &event) == UNISONO_STATUS_TIMED_OUT);
	DO(unisono_client_alive(leased));
	/* a silent program is considered dead, and is told so */
	nanosleep(&pause, NULL);
	event = next(client, UNISONO_RECEPTION_GONE);
	CHECK(event->died == 1);
	DO(unisono_event_free(&event));
	REFUSED(unisono_receive(leased, 0, &event), GONE);
	SAYS("lease of 1s ran out");
	DO(unisono_client_close(&leased));
	DO(unisono_client_close(&client));
}

static unisono_client *lasting(uint64_t reconnect_ns)
{
	unisono_client_options options = { .address = address, .reconnect_ns = reconnect_ns };
	unisono_client *client;

	DO(unisono_client_open(&options, &client));
	return client;
}

/* A request that gets no reply before the broker is killed. */
static void *asking(void *client)
{
	unisono_draft draft = of("?");
	unisono_event *reply;

	REFUSED(unisono_ask(client, topic(client, "question"), &draft, -1, &reply), UNANSWERED);
	return NULL;
}

/* Publishes until the broker is gone; then waits for the next broker, and for an event through it. */
static void until_the_broker_is_killed(void)
{
	unisono_client *client = connected(), *lasts = lasting(60 * SECOND), *asks = lasting(60 * SECOND);
	unisono_client *gives_up = lasting(1);
	uint32_t number = subscribed(client, "tick"), tick = topic(client, "tick");
	uint32_t kept = subscribed(lasts, "kept"), keeps = topic(lasts, "kept");
	struct timespec pause = { 0, 1000000 };
	unisono_draft draft = of("tick");
	unisono_status status = UNISONO_STATUS_OK;
	unisono_event *event = NULL;
	pthread_t thread;

	subscribed(asks, "question");
	CHECK(pthread_create(&thread, NULL, asking, asks) == 0);
	printf("it publishes\n");
	fflush(stdout);
	while (status == UNISONO_STATUS_OK) {
		status = unisono_publish(client, tick, &draft);
		if (status == UNISONO_STATUS_OK)
			status = unisono_receive(client, -1, &event);
		if (status == UNISONO_STATUS_OK)
			DO(unisono_event_free(&event));
		nanosleep(&pause, NULL);
	}
	CHECK(status == UNISONO_STATUS_GONE);
	SAYS("the broker is gone");
	/* all further calls fail in the same way */
	REFUSED(unisono_publish(client, tick, &draft), GONE);
	REFUSED(unisono_try_publish(client, tick, &draft, NULL), GONE);
	REFUSED(unisono_receive(client, -1, &event), GONE);
	REFUSED(unisono_ask(client, tick, &draft, -1, &event), GONE);
	REFUSED(unisono_subscribe(client, &(unisono_subscription){ .topics = "x" }, &number), GONE);
	DO(unisono_client_close(&client));
	/* its only attempt may reach a broker that is dying, so the text varies */
	REFUSED(unisono_receive(gives_up, -1, &event), GONE);
	DO(unisono_client_close(&gives_up));
	/* a reconnecting client is disconnected for now: poll wakes it for the next attempt */
	CHECK(unisono_receive(lasts, 0, &event) == UNISONO_STATUS_TIMED_OUT);
	CHECK(poll(&(struct pollfd){ unisono_client_descriptor(lasts), POLLIN, 0 }, 1, 20000) == 1);
	printf("it is told\n");
	fflush(stdout);
	event = next(lasts, UNISONO_RECEPTION_RECONNECTED);
	CHECK(event->number == 0 && strstr(event->text, "again") != NULL);
	CHECK(event->published_ns > 0 && event->published_ns < unisono_now());
	DO(unisono_event_free(&event));
	DO(unisono_publish(lasts, keeps, &draft));
	event = next(lasts, UNISONO_RECEPTION_EVENT);
	CHECK(event->number == kept && holds(event, "tick"));
	DO(unisono_event_free(&event));
	DO(unisono_client_close(&lasts));
	CHECK(pthread_join(thread, NULL) == 0);
	DO(unisono_client_close(&asks));
	pause.tv_nsec = 20000000;
	while (unisono_client_connect(address, &client) != UNISONO_STATUS_OK)
		nanosleep(&pause, NULL);
	subscribed(client, "tick");
	DO(unisono_publish(client, topic(client, "tick"), &draft));
	event = next(client, UNISONO_RECEPTION_EVENT);
	DO(unisono_event_free(&event));
	DO(unisono_client_close(&client));
	printf("it came back\n");
}

int main(int argc, char **argv)
{
	unisono_client *client;

	CHECK(argc > 1 && strlen(unisono_version()) >= 5);
	address = argv[1];
	if (argc > 2) {
		until_the_broker_is_killed();
		return 0;
	}
	/* this user's broker, which may or may not run */
	CHECK(unisono_client_connect(NULL, &client) == UNISONO_STATUS_GONE || client != NULL);
	if (client)
		DO(unisono_client_close(&client));
	all_of_an_event();
	refusals();
	filters_and_the_descriptor();
	late_joiners_gaps_and_deaths();
	acknowledged_events_do_not_come_again();
	a_publication_waits_for_room_no_longer_than_it_may();
	correlated_events_come_together();
	requests_and_replies();
	a_request_is_answered();
	names_leases_and_statistics();
	printf("every call about events answered as it should\n");
	return 0;
}
