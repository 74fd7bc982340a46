/* Supplies numbers to the only consumer of the topic `numbers`, with the broker at the address in the first
 * argument, and checks which way they take: with the second argument `direct`, over a direct link from some
 * number on, and otherwise through the broker. Prints how many there were. Exit code 0: all went as they
 * should. */
#include "check.h"

#include <string.h>

#define COUNT 200

static unisono_client *client;
static uint32_t numbers;
static long long number;

static void publish(const char *key)
{
	char text[24];
	unisono_draft draft = { .payload = text, .key = key };

	draft.bytes = (size_t)snprintf(text, sizeof(text), "%lld", ++number);
	DO(unisono_publish(client, numbers, &draft));
}

/* The number behind `key` in the broker's statistics, in the part that begins with `part`. */
static long long counted(const char *part, const char *key)
{
	const char *json, *at;

	DO(unisono_client_statistics(client, &json));
	at = strstr(json, part);
	CHECK(at != NULL);
	at = strstr(at, key);
	CHECK(at != NULL);
	return strtoll(at + strlen(key), NULL, 10);
}

static long long links(void)
{
	return counted("{", "\"direct\":");
}

static long long through_broker(void)
{
	return counted("\"published_by_topic\":", "\"numbers\":");
}

int main(int argc, char **argv)
{
	long long before;
	int direct;

	CHECK(argc > 2);
	direct = !strcmp(argv[2], "direct");
	DO(unisono_client_connect(argv[1], &client));
	DO(unisono_advertise(client, &(unisono_topic){ .name = "numbers" }, &numbers));
	do
		publish(NULL);
	while (direct && links() == 0);
	before = through_broker();
	for (int i = 0; i < COUNT; i++)
		publish(NULL);
	CHECK(through_broker() - before == (direct ? 0 : COUNT));
	CHECK(links() == direct);
	publish("last");
	printf("%lld\n", number);
	DO(unisono_client_close(&client));
	return 0;
}
