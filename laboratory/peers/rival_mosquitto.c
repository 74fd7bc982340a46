/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * MQTT over the broker mosquitto, QoS 0, by its own client library. ADDRESS is the port of the
 * broker on this host.
 */
#include "rival.h"
#include <mosquitto.h>

#define TOPIC "unisono/rival"

static struct mosquitto *client;

/* Events read from the socket in one call and not yet taken. */
#define MAX_WAITING 4096
static struct {
	size_t length;
	unsigned char head[HEAD];
} waiting[MAX_WAITING];
static size_t next_waiting, waiting_count;

static void check(const char *what, int code)
{
	if (code != MOSQ_ERR_SUCCESS)
		fail(what, mosquitto_strerror(code));
}

static void on_message(struct mosquitto *from, void *user, const struct mosquitto_message *event)
{
	(void)from;
	(void)user;
	if (event->payloadlen < HEAD || waiting_count == MAX_WAITING)
		return;
	waiting[waiting_count].length = (size_t)event->payloadlen;
	memcpy(waiting[waiting_count].head, event->payload, HEAD);
	waiting_count++;
}

static void open_client(const char *port)
{
	int attempts = 0, code;

	mosquitto_lib_init();
	client = mosquitto_new(NULL, true, NULL);
	if (!client)
		fail("mosquitto_new", strerror(errno));
	mosquitto_int_option(client, MOSQ_OPT_TCP_NODELAY, 1);
	while ((code = mosquitto_connect(client, "127.0.0.1", atoi(port), 60)) != MOSQ_ERR_SUCCESS) {
		if (++attempts == 50)
			check("the broker", code);
		sleep_until(now() + 20000000);
	}
}

static void open_publisher(const char *port, size_t bytes)
{
	(void)bytes;
	open_client(port);
	check("mosquitto_loop", mosquitto_loop(client, 100, 1));
}

static void publish(const unsigned char *event, size_t bytes)
{
	check("mosquitto_publish", mosquitto_publish(client, NULL, TOPIC, (int)bytes, event, 0, false));
	/* bytes that the socket did not accept wait in this program */
	while (mosquitto_want_write(client))
		check("mosquitto_loop", mosquitto_loop(client, 1, 1));
}

static void close_publisher(void)
{
	mosquitto_disconnect(client);
	mosquitto_destroy(client);
}

static void open_subscriber(const char *port, size_t bytes)
{
	(void)bytes;
	open_client(port);
	mosquitto_message_callback_set(client, on_message);
	check("mosquitto_loop", mosquitto_loop(client, 100, 1));
	check("mosquitto_subscribe", mosquitto_subscribe(client, NULL, TOPIC, 0));
}

static size_t receive(unsigned char head[HEAD])
{
	if (next_waiting == waiting_count) {
		next_waiting = waiting_count = 0;
		check("mosquitto_loop", mosquitto_loop(client, 20, 1));
		if (waiting_count == 0)
			return 0;
	}
	memcpy(head, waiting[next_waiting].head, HEAD);
	return waiting[next_waiting++].length;
}
