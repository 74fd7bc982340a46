/* A file, fetched piece by piece through requests and replies.
 *
 *	unisono events serve &
 *	./file_download supply README.md & ./file_download consume copy.md
 *
 * The client's request names the offset of the next piece; the reply has the file's size and the piece's
 * checksum. Supplier and consumer may also be the examples in Rust and in Python.
 */
#include "example.h"

#include <inttypes.h>

static unsigned char piece[64 << 10];

/* The checksum of RFC 1950. */
static int64_t adler32(const unsigned char *bytes, size_t count)
{
	uint32_t low = 1, high = 0;

	for (size_t i = 0; i < count; i++) {
		low = (low + bytes[i]) % 65521;
		high = (high + low) % 65521;
	}
	return (int64_t)(high << 16 | low);
}

/* Serves until it is stopped, or the broker ends. */
static void supply(unisono_client *client, FILE *file)
{
	unisono_field fields[] = {
		{ "size", UNISONO_FIELD_KIND_WHOLE, 0, 0, NULL },
		{ "adler32", UNISONO_FIELD_KIND_WHOLE, 0, 0, NULL },
	};
	unisono_draft reply = { .payload = piece, .fields = fields, .field_count = 2 };
	unisono_event *request;
	uint32_t subscription;

	fseek(file, 0, SEEK_END);
	fields[0].whole = ftell(file);
	MUST(unisono_subscribe(client, &(unisono_subscription){ .topics = "file" }, &subscription));
	for (;;) {
		MUST(unisono_receive(client, -1, &request));
		if (request->kind == UNISONO_RECEPTION_EVENT) {
			fseek(file, (long)field(request, "offset")->whole, SEEK_SET);
			reply.bytes = fread(piece, 1, sizeof(piece), file);
			fields[1].whole = adler32(piece, reply.bytes);
			MUST(unisono_reply(client, request, &reply));
		}
		MUST(unisono_event_free(&request));
	}
}

static int consume(unisono_client *client, FILE *file)
{
	unisono_field offset = { "offset", UNISONO_FIELD_KIND_WHOLE, 0, 0, NULL };
	unisono_draft request = { .fields = &offset, .field_count = 1 };
	unisono_status status;
	unisono_event *reply;
	int64_t requests = 0, size;
	uint32_t topic;
	size_t bytes;

	MUST(unisono_advertise(client, &(unisono_topic){ .name = "file" }, &topic));
	do {
		int tries = 300;

		do /* the supplier may not have started yet */
			status = unisono_ask(client, topic, &request, 100000000, &reply);
		while (status == UNISONO_STATUS_TIMED_OUT && --tries > 0);
		MUST(status);
		bytes = reply->bytes;
		size = field(reply, "size")->whole;
		if (field(reply, "adler32")->whole != adler32(reply->payload, bytes)) {
			fprintf(stderr, "the piece at %" PRId64 " is damaged\n", offset.whole);
			return 1;
		}
		if (fwrite(reply->payload, 1, bytes, file) != bytes) {
			perror("the file cannot be written");
			return 1;
		}
		offset.whole += (int64_t)bytes;
		requests++;
		MUST(unisono_event_free(&reply));
	} while (offset.whole < size && bytes > 0);
	if (offset.whole != size) {
		fprintf(stderr, "the file ends at %" PRId64 " of %" PRId64 " bytes\n", offset.whole, size);
		return 1;
	}
	printf("file download: %" PRId64 " bytes by %" PRId64 " requests, each with the right checksum\n",
	       size, requests);
	return 0;
}

int main(int argc, char **argv)
{
	int supplies = argc > 2 && !strcmp(argv[1], "supply"), code = 0;
	unisono_client *client;
	FILE *file;

	if (!supplies && (argc < 3 || strcmp(argv[1], "consume"))) {
		fprintf(stderr, "file_download supply|consume FILE [BROKER]\n");
		return 2;
	}
	file = fopen(argv[2], supplies ? "rb" : "wb");
	if (!file) {
		perror(argv[2]);
		return 1;
	}
	client = broker(argc > 3 ? argv[3] : NULL);
	if (supplies)
		supply(client, file);
	else
		code = consume(client, file);
	MUST(unisono_client_close(&client));
	if (fclose(file) != 0) {
		perror(argv[2]);
		return 1;
	}
	return code;
}
