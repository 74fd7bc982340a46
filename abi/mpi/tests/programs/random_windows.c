/*
 * Random one-sided programs: operations of every rank on every rank's part, in fences,
 * post-start-complete-wait, locks and lock-all, in windows of every flavor. The random numbers are the same
 * at all ranks, so each rank knows what every part must contain after every epoch. The argument is the seed.
 * Each rank prints a hash over the data that it got, so that two runs can be compared.
 *
 * A part has a slice for each origin, and a common place. In an epoch an origin writes one half of its slice,
 * each operation at a place of its own, and reads the other half; the common place takes accumulations of one
 * operation by all origins.
 */
#include "check.h"
#include <stdint.h>

enum {
	ROUNDS = 40,
	MAX_RANKS = 16,
	MAX_OPERATIONS = 5,
	PLACE = 12, /* of an operation */
	HALF = MAX_OPERATIONS * PLACE,
	SLICE = 2 * HALF,
	COMMON = 64,
	PART = MAX_RANKS * SLICE + COMMON,
	FLAVORS = 3
};
enum kind { PUT, GET, ACCUMULATE, GET_ACCUMULATE, FETCH, SWAP, SHARED, KINDS };
enum way { FENCE, PSCW, LOCKS, LOCK_ALL, WAYS };

struct operation {
	enum kind kind;
	int origin, target, place, count, stride, value;
	int by_request;
};

static uint64_t sum = 14695981039346656037u;
static uint32_t state;			  /* the same at all ranks */
static int expected[MAX_RANKS][PART];	  /* the parts as they must be */
static int given[MAX_OPERATIONS][COMMON]; /* data to send */
static int got[MAX_OPERATIONS][COMMON], must_get[MAX_OPERATIONS][COMMON];
static MPI_Datatype strided[3]; /* an int, followed by gaps */
static MPI_Op common_op;
static MPI_Win win;
static int *own;
static MPI_Aint bases[MAX_RANKS]; /* of the parts in a dynamic window; else 0 */
static int unit;

static unsigned below(unsigned limit)
{
	state = state * 1664525u + 1013904223u;
	return (state >> 8) % limit;
}

static void note(const void *data, size_t bytes)
{
	const unsigned char *at = data;

	for (size_t i = 0; i < bytes; i++)
		sum = (sum ^ at[i]) * 1099511628211u;
}

static struct operation draw(int origin, int number, int round)
{
	struct operation drawn = { .kind = (enum kind)below(KINDS), .origin = origin };
	int written = round % 2 * HALF, start = origin * SLICE + written + number * PLACE, length = PLACE;

	drawn.target = (int)below((unsigned)size);
	drawn.stride = 1 + (int)below(3);
	drawn.value = (int)below(1000);
	drawn.by_request = (int)below(2);
	if (drawn.kind == GET) {
		start = origin * SLICE + HALF - written;
		length = HALF;
	}
	if (drawn.kind == SHARED) {
		start = MAX_RANKS * SLICE;
		length = COMMON;
	}
	if (drawn.kind == FETCH || drawn.kind == SWAP)
		drawn.stride = 1;
	drawn.count = 1 + (int)below((unsigned)(length / drawn.stride));
	if (drawn.kind == FETCH || drawn.kind == SWAP)
		drawn.count = 1;
	drawn.place = start + (int)below((unsigned)(length - (drawn.count - 1) * drawn.stride));
	return drawn;
}

/* What the operation does to the parts as they must be; `before` gets what it reads. */
static void apply(const struct operation *of, int before[COMMON])
{
	for (int i = 0; i < of->count; i++) {
		int *at = &expected[of->target][of->place + i * of->stride], data = of->value + i;

		before[i] = *at;
		switch (of->kind) {
		case PUT:
			*at = data;
			break;
		case GET:
			break;
		case ACCUMULATE:
		case GET_ACCUMULATE:
		case FETCH:
			*at = (int)((unsigned)*at + (unsigned)data);
			break;
		case SWAP:
			*at = *at == of->value ? data + 1 : *at;
			break;
		default:
			*at = common_op == MPI_SUM   ? (int)((unsigned)*at + (unsigned)data)
			      : common_op == MPI_MAX ? (*at > data ? *at : data)
						     : *at ^ data;
		}
	}
}

/* Issues the operation at its origin; returns whether it has a request. */
static int issue(int number, const struct operation *of, int requests_possible, MPI_Request *request)
{
	int *data = given[number], *into = got[number], one = of->count, to = of->target;
	MPI_Aint at = bases[to] + of->place * (MPI_Aint)(sizeof(int) / (size_t)unit);
	MPI_Datatype type = strided[of->stride - 1];
	static int changed[MAX_OPERATIONS];

	for (int i = 0; i < one; i++)
		data[i] = of->value + i;
	if (requests_possible && of->by_request)
		switch (of->kind) {
		case PUT:
			MPI_Rput(data, one, MPI_INT, to, at, one, type, win, request);
			return 1;
		case GET:
			MPI_Rget(into, one, MPI_INT, to, at, one, type, win, request);
			return 1;
		case ACCUMULATE:
			MPI_Raccumulate(data, one, MPI_INT, to, at, one, type, MPI_SUM, win, request);
			return 1;
		case GET_ACCUMULATE:
			MPI_Rget_accumulate(data, one, MPI_INT, into, one, MPI_INT, to, at, one, type,
					    MPI_SUM, win, request);
			return 1;
		default:
			break;
		}
	switch (of->kind) {
	case PUT:
		MPI_Put(data, one, MPI_INT, to, at, one, type, win);
		break;
	case GET:
		MPI_Get(into, one, MPI_INT, to, at, one, type, win);
		break;
	case ACCUMULATE:
		MPI_Accumulate(data, one, MPI_INT, to, at, one, type, MPI_SUM, win);
		break;
	case GET_ACCUMULATE:
		MPI_Get_accumulate(data, one, MPI_INT, into, one, MPI_INT, to, at, one, type, MPI_SUM, win);
		break;
	case FETCH:
		MPI_Fetch_and_op(data, into, MPI_INT, to, at, MPI_SUM, win);
		break;
	case SWAP:
		changed[number] = of->value + 1;
		MPI_Compare_and_swap(&changed[number], data, into, MPI_INT, to, at, win);
		break;
	default:
		MPI_Accumulate(data, one, MPI_INT, to, at, one, type, common_op, win);
	}
	return 0;
}

/* Makes this rank's operations in an epoch of the given way. */
static void epoch(enum way way, MPI_Group all, int count, const struct operation *operations)
{
	MPI_Request requests[MAX_OPERATIONS];
	int pending = 0, flush = (int)(state >> 20) % 2;

	if (way == FENCE)
		MPI_Win_fence(0, win);
	if (way == PSCW) {
		MPI_Win_post(all, 0, win);
		MPI_Win_start(all, 0, win);
	}
	if (way == LOCK_ALL)
		MPI_Win_lock_all(0, win);
	for (int i = 0; i < count; i++) {
		int to = operations[i].target;

		if (way == LOCKS)
			MPI_Win_lock((operations[i].value & 1) ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, to, 0,
				     win);
		pending += issue(i, &operations[i], way == LOCKS || way == LOCK_ALL, &requests[pending]);
		if (way == LOCKS) {
			MPI_Waitall(pending, requests, MPI_STATUSES_IGNORE);
			pending = 0;
			if (flush)
				MPI_Win_flush(to, win);
			MPI_Win_unlock(to, win);
		}
	}
	MPI_Waitall(pending, requests, MPI_STATUSES_IGNORE);
	if (way == LOCK_ALL) {
		if (flush)
			MPI_Win_flush_all(win);
		MPI_Win_unlock_all(win);
	}
	if (way == PSCW) {
		MPI_Win_complete(win);
		MPI_Win_wait(win);
	}
	if (way == FENCE)
		MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
}

static void one_round(int round, MPI_Group all)
{
	MPI_Op ops[] = { MPI_SUM, MPI_MAX, MPI_BXOR };
	enum way way = (enum way)below(WAYS);
	struct operation mine[MAX_OPERATIONS];
	int count = 0, unused[COMMON];

	common_op = ops[below(3)];
	for (int origin = 0; origin < size; origin++)
		for (int number = (int)below(MAX_OPERATIONS + 1); number-- > 0;) {
			struct operation drawn = draw(origin, number, round);
			int *read = origin == rank ? must_get[count] : unused;

			apply(&drawn, read);
			if (origin == rank)
				mine[count++] = drawn;
		}
	epoch(way, all, count, mine);
	for (int i = 0; i < count; i++) {
		enum kind kind = mine[i].kind;

		if (kind == GET || kind == GET_ACCUMULATE || kind == FETCH || kind == SWAP) {
			for (int at = 0; at < mine[i].count; at++)
				CHECK_EQUAL(got[i][at], must_get[i][at]);
			note(got[i], (size_t)mine[i].count * sizeof(int));
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	for (int i = 0; i < PART; i++)
		if (own[i] != expected[rank][i]) {
			printf("rank %d: round %d, way %d: element %d is %d, not %d\n", rank, round, (int)way,
			       i, own[i], expected[rank][i]);
			failures++;
			break;
		}
	MPI_Win_unlock(rank, win);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Makes a window of a flavor whose parts are all zero. */
static void make(int flavor)
{
	static int memory[PART];
	MPI_Aint base = 0;

	own = memory;
	unit = flavor == 2 ? 1 : (int)(below(2) ? sizeof(int) : 1);
	if (flavor == 0)
		MPI_Win_allocate(sizeof memory, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &win);
	memset(own, 0, sizeof memory);
	if (flavor == 1)
		MPI_Win_create(own, sizeof memory, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	if (flavor == 2) {
		MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
		MPI_Win_attach(win, own, sizeof memory);
		MPI_Get_address(own, &base);
	}
	MPI_Allgather(&base, 1, MPI_AINT, bases, 1, MPI_AINT, MPI_COMM_WORLD);
	memset(expected, 0, sizeof expected);
}

int main(int argc, char **argv)
{
	MPI_Group all;

	begin(&argc, &argv);
	if (size > MAX_RANKS)
		MPI_Abort(MPI_COMM_WORLD, 2);
	state = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
	if (rank == 0)
		printf("seed %u\n", (unsigned)state);
	for (int i = 0; i < 3; i++) {
		MPI_Type_create_resized(MPI_INT, 0, (i + 1) * (MPI_Aint)sizeof(int), &strided[i]);
		MPI_Type_commit(&strided[i]);
	}
	MPI_Comm_group(MPI_COMM_WORLD, &all);
	for (int flavor = 0; flavor < FLAVORS; flavor++) {
		make(flavor);
		for (int round = 0; round < ROUNDS; round++)
			one_round(round, all);
		if (flavor == 2)
			MPI_Win_detach(win, own);
		MPI_Win_free(&win);
	}
	MPI_Group_free(&all);
	for (int i = 0; i < 3; i++)
		MPI_Type_free(&strided[i]);
	for (int who = 0; argc > 1 && who < size; who++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (who == rank)
			printf("bits %d %016llx\n", rank, (unsigned long long)sum);
	}
	return end("random_windows");
}
