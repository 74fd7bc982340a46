// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * fairqueue.h in user space, driven by a test: words in, words out (see fairqueue_core.rs).
 *
 *   START bytes, then that many bytes of struct hsfq  (the rest of it is zero)
 *   ARRIVE leaf length   -> its number or none, then the numbers of the packets dropped for it, then none
 *   FINISH
 *   CHOOSE               -> the number of the packet, and its leaf
 *   CHANGE bytes, then that many bytes of struct hsfq_plan
 *   END bytes            -> that many bytes of struct hsfq, as it is now
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint32_t u32;
typedef uint64_t u64;
#define hsfq_repeat(i, n) for (i = 0; i < (n); i++)
#include "fairqueue_change.h"

enum { START, ARRIVE, FINISH, CHOOSE, CHANGE, END };

static struct hsfq queue;
static struct hsfq_plan plan;

static u32 word(void)
{
	u32 value;

	if (fread(&value, sizeof(value), 1, stdin) != 1)
		exit(3);
	return value;
}

static void say(u32 value)
{
	fwrite(&value, sizeof(value), 1, stdout);
}

int main(void)
{
	u32 what, bytes = 0, leaf, length, number;

	while (fread(&what, sizeof(what), 1, stdin) == 1) {
		switch (what) {
		case START:
			bytes = word();
			memset(&queue, 0, sizeof(queue));
			if (bytes > sizeof(queue) || fread(&queue, 1, bytes, stdin) != bytes)
				return 3;
			break;
		case ARRIVE:
			leaf = word();
			length = word();
			say(number = hsfq_enqueue(&queue, leaf, length, 0));
			if (number == HSFQ_NONE)
				break;
			do
				say(number = hsfq_drop_longest(&queue, leaf));
			while (number != HSFQ_NONE);
			break;
		case FINISH:
			hsfq_finish(&queue);
			break;
		case CHOOSE:
			say(number = hsfq_dequeue(&queue));
			if (number != HSFQ_NONE)
				hsfq_served(&queue, number, 0);
			say(queue.in_service);
			break;
		case CHANGE:
			if (word() != sizeof(plan) || fread(&plan, 1, sizeof(plan), stdin) != sizeof(plan))
				return 3;
			hsfq_change(&queue, &plan);
			break;
		case END:
			bytes = word();
			fwrite(&queue, 1, bytes, stdout);
			fflush(stdout);
			break;
		default:
			return 3;
		}
	}
	return 0;
}
