/* What the programs that test events have in common: checks, and connections to the broker at `address`. */
#ifndef EVENTS_H
#define EVENTS_H

#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSED(call, why)                                                                                   \
	do {                                                                                                 \
		unisono_status status_ = (call);                                                             \
		if (status_ != UNISONO_STATUS_##why || strlen(unisono_error_text()) <= 10) {                 \
			fprintf(stderr, "line %d: %s: not " #why ", but %s: %s\n", __LINE__, #call,          \
				unisono_status_name(status_), unisono_error_text());                         \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

#define SAYS(word) CHECK(strstr(unisono_error_text(), word) != NULL)

static const int64_t SECOND = 1000000000;
static const char *address;

static unisono_client *connected(void)
{
	unisono_client *client;

	DO(unisono_client_connect(address, &client));
	return client;
}

static uint32_t topic(unisono_client *client, const char *name)
{
	uint32_t topic;

	DO(unisono_advertise(client, &(unisono_topic){ .name = name }, &topic));
	return topic;
}

static uint32_t subscribed(unisono_client *client, const char *topics)
{
	uint32_t number;

	DO(unisono_subscribe(client, &(unisono_subscription){ .topics = topics }, &number));
	return number;
}

static unisono_draft of(const char *payload)
{
	return (unisono_draft){ .payload = payload, .bytes = strlen(payload) };
}

/* The next event or notice, which has to arrive. */
static unisono_event *next(unisono_client *client, int kind)
{
	unisono_event *event;

	DO(unisono_receive(client, 20 * SECOND, &event));
	CHECK(event->kind == kind);
	return event;
}

static int holds(const unisono_event *event, const char *payload)
{
	return event->bytes == strlen(payload) && !memcmp(event->payload, payload, event->bytes);
}

#endif
