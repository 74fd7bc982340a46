/* A hash table spread over all ranks: a rank claims a slot for a key by compare-and-swap, on any rank. The
 * slot's owner does nothing. All ranks insert their own keys, and at the same time a few keys common to all;
 * in the end every key must be in the table exactly once.
 */
#include "example.h"

struct slot {
	uint64_t key; /* 0: empty */
	uint64_t value;
};

static long keys = 20000, common = 1000;
static unisono_window *table;
static uint64_t slots; /* of each rank */
static uint64_t ranks;

/* Mixes the bits of a number one to one (David Stafford's thirteenth mixer). */
static uint64_t mix(uint64_t number)
{
	number = (number ^ number >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	number = (number ^ number >> 27) * UINT64_C(0x94d049bb133111eb);
	return number ^ number >> 31;
}

/* Key number `index` of rank `rank`: all keys are different, and none is empty. */
static uint64_t key_of(uint64_t rank, uint64_t index)
{
	return mix(((rank + 1) << 40) + index + 1);
}

/* The value of a key, by which a wrong entry is noticed. */
static uint64_t value_of(uint64_t key)
{
	return mix(~key);
}

/* Returns 1 if this call has inserted the key, 0 if it was there already. */
static int insert(uint64_t key)
{
	const unisono_layout *u64 = unisono_layout_of(UNISONO_ELEMENT_U64);

	for (uint64_t probe = 0; probe < slots * ranks; probe++) {
		uint64_t slot = (mix(key) % (slots * ranks) + probe) % (slots * ranks);
		int owner = (int)(slot / slots);
		int64_t place = (int64_t)(slot % slots * sizeof(struct slot));
		uint64_t empty = 0, found, value = value_of(key);

		MUST(unisono_compare_and_swap(table, &key, &empty, &found, UNISONO_ELEMENT_U64, owner,
					      place));
		MUST(unisono_window_flush_local(table, owner));
		if (found == 0) {
			MUST(unisono_put(table, &value, 1, u64, owner, place + 8, 1, u64));
			MUST(unisono_window_flush_local(table, owner));
			return 1;
		}
		if (found == key)
			return 0;
	}
	fprintf(stderr, "the table is full\n");
	exit(1);
}

/* Returns 1 if the key is there with its value. */
static int is_there(uint64_t key)
{
	const unisono_layout *u64 = unisono_layout_of(UNISONO_ELEMENT_U64);

	for (uint64_t probe = 0; probe < slots * ranks; probe++) {
		uint64_t at = (mix(key) % (slots * ranks) + probe) % (slots * ranks);
		int owner = (int)(at / slots);
		struct slot slot;

		MUST(unisono_get(table, &slot, 2, u64, owner, (int64_t)(at % slots * sizeof(slot)), 2, u64));
		MUST(unisono_window_flush(table, owner));
		if (slot.key == key)
			return slot.value == value_of(key);
		if (slot.key == 0)
			return 0;
	}
	return 0;
}

static void look_up(uint64_t rank, long count)
{
	for (long i = 0; i < count; i++) {
		if (is_there(key_of(rank, i)))
			continue;
		fprintf(stderr, "key %ld of rank %llu is not in the table, or has a wrong value\n", i,
			(unsigned long long)rank);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	const struct option options[] = {
		{ "--keys", "keys that each rank inserts", 0, &keys },
		{ "--common", "keys that all ranks insert at the same time", 0, &common },
	};
	const char *about = "Fill a distributed hash table by compare-and-swap, and look every key up.\n"
			    "Example: unisono run -n 4 ./hash_table --keys 20000";
	uint64_t counts[2] = { 0, 0 }, sums[2] = { 0, 0 }, distinct, *all;
	struct slot *mine;
	unisono_job *job;
	double start, took;

	read_options(argc, argv, about, options, 2);
	MUST(unisono_job_join(&job, 30));
	uint64_t rank = (uint64_t)unisono_job_rank(job);
	ranks = (uint64_t)unisono_job_size(job);
	/* all keys together fill at most two thirds of the table */
	distinct = (uint64_t)keys * ranks + (uint64_t)common;
	slots = distinct * 3 / 2 / ranks + 2;
	MUST(unisono_window_allocate(job, slots * sizeof(struct slot), NULL, (void **)&mine, &table));
	MUST(unisono_job_barrier(job));

	MUST(unisono_window_lock_all(table, 0));
	start = seconds_now();
	for (long i = 0; i < keys || i < common; i++) {
		if (i < common)
			counts[0] += (uint64_t)insert(key_of(ranks, i));
		if (i < keys)
			counts[0] += (uint64_t)insert(key_of(rank, i));
	}
	MUST(unisono_window_flush_all(table));
	took = seconds_now() - start;
	MUST(unisono_job_barrier(job));
	look_up((rank + 1) % ranks, keys);
	look_up(ranks, common);
	if (is_there(key_of(ranks + 1, 0))) {
		fprintf(stderr, "a key was found that nobody inserted\n");
		return 1;
	}
	MUST(unisono_window_sync(table));
	for (uint64_t i = 0; i < slots; i++)
		counts[1] += mine[i].key != 0;
	MUST(unisono_window_unlock_all(table));

	all = calloc(ranks, sizeof(counts));
	if (!all)
		return 1;
	MUST(unisono_job_gather(job, counts, sizeof(counts), all));
	for (uint64_t i = 0; i < 2 * ranks; i++)
		sums[i % 2] += all[i];
	free(all);
	MUST(unisono_window_free(&table));
	MUST(unisono_job_finalize(&job));
	if (sums[0] != distinct || sums[1] != distinct) {
		fprintf(stderr, "%llu different keys were inserted %llu times, and fill %llu slots\n",
			(unsigned long long)distinct, (unsigned long long)sums[0],
			(unsigned long long)sums[1]);
		return 1;
	}
	if (rank == 0)
		printf("hash table: %llu keys inserted by %llu ranks, each found exactly once: %.3f s, %.2f "
		       "us "
		       "an insertion\n",
		       (unsigned long long)distinct, (unsigned long long)ranks, took,
		       took * 1e6 / (double)(keys + common ? keys + common : 1));
	return 0;
}
