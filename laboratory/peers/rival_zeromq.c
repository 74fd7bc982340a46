/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * ZeroMQ: a PUB socket that binds, SUB sockets that connect. PUB drops events
 * above the high-water mark that a subscriber does not take in time.
 */
#include "rival.h"
#include <zmq.h>

static void *context;
static void *stream;

static void open_socket(int type, const char *address)
{
	int linger = 100, wait = 20;

	context = zmq_ctx_new();
	stream = zmq_socket(context, type);
	if (!stream)
		fail("zmq_socket", zmq_strerror(zmq_errno()));
	zmq_setsockopt(stream, ZMQ_LINGER, &linger, sizeof(linger));
	zmq_setsockopt(stream, ZMQ_RCVTIMEO, &wait, sizeof(wait));
	if (type == ZMQ_SUB)
		zmq_setsockopt(stream, ZMQ_SUBSCRIBE, "", 0);
	if ((type == ZMQ_PUB ? zmq_bind : zmq_connect)(stream, address) != 0)
		fail(address, zmq_strerror(zmq_errno()));
}

static void open_publisher(const char *address, size_t bytes)
{
	(void)bytes;
	open_socket(ZMQ_PUB, address);
}

static void publish(const unsigned char *event, size_t bytes)
{
	if (zmq_send(stream, event, bytes, 0) < 0)
		fail("zmq_send", zmq_strerror(zmq_errno()));
}

static void close_publisher(void)
{
	zmq_close(stream);
	zmq_ctx_term(context);
}

static void open_subscriber(const char *address, size_t bytes)
{
	(void)bytes;
	open_socket(ZMQ_SUB, address);
}

static size_t receive(unsigned char head[HEAD])
{
	zmq_msg_t event;
	size_t length = 0;

	zmq_msg_init(&event);
	if (zmq_msg_recv(&event, stream, 0) >= HEAD) {
		length = zmq_msg_size(&event);
		memcpy(head, zmq_msg_data(&event), HEAD);
	}
	zmq_msg_close(&event);
	return length;
}
