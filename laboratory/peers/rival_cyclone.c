/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Cyclone DDS: one writer and readers of a topic of octet sequences, reliable, with the last 64 events
 * kept, as far as the defaults allow. ADDRESS is the number of the domain.
 */
#include "rival.h"
#include <dds/dds.h>
#include <stddef.h>

struct event {
	dds_sequence_t body;
};

/* The output of idlc for `struct event { sequence<octet> body; };`. */
static const uint32_t program[] = {
	DDS_OP_ADR | DDS_OP_TYPE_SEQ | DDS_OP_SUBTYPE_1BY,
	offsetof(struct event, body),
	DDS_OP_RTS,
};

static const dds_topic_descriptor_t type = {
	.m_size = sizeof(struct event),
	.m_align = _Alignof(struct event),
	.m_flagset = 0,
	.m_nkeys = 0,
	.m_typename = "unisono_event",
	.m_keys = NULL,
	.m_nops = 2,
	.m_ops = program,
	.m_meta = "",
};

static dds_entity_t end;
static dds_entity_t waitset;

static dds_entity_t check(const char *what, dds_entity_t code)
{
	if (code < 0)
		fail(what, dds_strretcode(-code));
	return code;
}

static void open_end(const char *domain, bool writes)
{
	dds_entity_t participant, topic;
	dds_qos_t *qos = dds_create_qos();

	dds_qset_reliability(qos, DDS_RELIABILITY_RELIABLE, DDS_SECS(1));
	dds_qset_history(qos, DDS_HISTORY_KEEP_LAST, 64);
	participant = check("dds_create_participant",
			    dds_create_participant((dds_domainid_t)atoi(domain), NULL, NULL));
	topic = check("dds_create_topic", dds_create_topic(participant, &type, "unisono", NULL, NULL));
	if (writes) {
		end = check("dds_create_writer", dds_create_writer(participant, topic, qos, NULL));
	} else {
		dds_entity_t ready;

		end = check("dds_create_reader", dds_create_reader(participant, topic, qos, NULL));
		waitset = check("dds_create_waitset", dds_create_waitset(participant));
		ready = check("dds_create_readcondition", dds_create_readcondition(end, DDS_ANY_STATE));
		check("dds_waitset_attach", dds_waitset_attach(waitset, ready, 0));
	}
	dds_delete_qos(qos);
}

static void open_publisher(const char *domain, size_t bytes)
{
	(void)bytes;
	open_end(domain, true);
}

static void publish(const unsigned char *event, size_t bytes)
{
	struct event out = { { (uint32_t)bytes, (uint32_t)bytes, (uint8_t *)event, false } };
	dds_return_t code = dds_write(end, &out);

	/* if a reader does not acknowledge in time, the writer loses this event */
	if (code != DDS_RETCODE_TIMEOUT)
		check("dds_write", code);
}

static void close_publisher(void)
{
	dds_wait_for_acks(end, DDS_MSECS(100));
}

static void open_subscriber(const char *domain, size_t bytes)
{
	(void)bytes;
	open_end(domain, false);
}

static size_t receive(unsigned char head[HEAD])
{
	void *events[1] = { NULL };
	dds_sample_info_t about;
	size_t length = 0;
	dds_return_t taken = dds_take(end, events, &about, 1, 1);

	if (taken == 0) {
		dds_waitset_wait(waitset, NULL, 0, DDS_MSECS(20));
		taken = dds_take(end, events, &about, 1, 1);
	}
	check("dds_take", taken);
	if (taken == 1) {
		const struct event *event = events[0];

		if (about.valid_data && event->body._length >= HEAD) {
			length = event->body._length;
			memcpy(head, event->body._buffer, HEAD);
		}
		dds_return_loan(end, events, taken);
	}
	return length;
}
