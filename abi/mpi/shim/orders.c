/*
 * Finds out by trials in which order the host's MPI_Allreduce adds floating-point numbers.
 *
 * Two forms of a call return the same bits if both add along the same tree. A tree is determined by its
 * groups: the sets of ranks below each of its nodes. One call finds the group below the node where two ranks
 * meet: the first contributes a huge number, the second its negative, and each other rank a distinct power of
 * two. A power of two that is added to the huge number before the two ranks meet is lost to rounding. So the
 * result is the sum of the ranks outside the group.
 *
 * Among crowded ranks the blocking form takes milliseconds and the nonblocking form some 30 us. So all pairs
 * are tried with the nonblocking form, which yields its whole tree. The blocking form is tried with one pair
 * for each group. If all these groups match, both forms add along the same tree. With n ranks this takes n -
 * 2 blocking calls, because the group of all ranks is in every tree.
 *
 * A trial begins after the program has made as many calls of the same kind, which ran as the host's own. So a
 * program with few calls pays at most twice their cost.
 */
#include "waiting.h"
#include <stdlib.h>
#include <string.h>

/* 120 pairs. More ranks than this were not measured. */
enum { MAX_RANKS = 16, MAX_PAIRS = MAX_RANKS * (MAX_RANKS - 1) / 2 };
/* The maximum number of (type, count) combinations tried per communicator; further ones stay the host's. */
enum { MAX_ORDERS = 32 };

/* Whether both forms add in the same order, for one type and count. */
struct order {
	MPI_Datatype type;
	int count;
	int passed; /* calls so far that ran as the host's own */
	enum { UNTRIED, SAME, DIFFERENT } verdict;
	struct order *next;
};

/* A set of ranks, one bit for each. */
typedef uint16_t group;

struct pair {
	int first, second;
};

/* Advances to the next pair of ranks; false after the last. Start with { 0, 0 }. */
static bool next_pair(struct pair *pair, int size)
{
	if (++pair->second == size)
		pair->second = ++pair->first + 1;
	return pair->second < size;
}

/* A form of MPI_Allreduce: blocking or nonblocking. */
typedef int form(const void *in, void *out, int count, MPI_Datatype type, MPI_Comm comm);

static int blocking(const void *in, void *out, int count, MPI_Datatype type, MPI_Comm comm)
{
	return PMPI_Allreduce(in, out, count, type, MPI_SUM, comm);
}

static int nonblocking(const void *in, void *out, int count, MPI_Datatype type, MPI_Comm comm)
{
	struct polled_request collective = { .completion = { 0 } };

	return finish_collective(UNISONO_MPI_WAIT_CALL_ALLREDUCE,
				 PMPI_Iallreduce(in, out, count, type, MPI_SUM, comm, &collective.request),
				 &collective);
}

static group all_of(int size)
{
	return (group)((1u << size) - 1);
}

/* The ranks whose powers of two make up a sum; all ranks if the value is not such a sum. */
static group ranks_in_sum(double sum, int size)
{
	group all = all_of(size);

	return sum >= 0 && sum <= all && sum == (double)(group)sum ? (group)sum : all;
}

/* Finds the group below the node where two ranks meet, if it is the same in all elements; 0 otherwise. */
static int find_group(form *form, const struct order *order, bool wide, struct pair pair, MPI_Comm comm,
		      group *below)
{
	union {
		double wide[MAX_COLLECTIVE_BYTES / sizeof(double)];
		float narrow[MAX_COLLECTIVE_BYTES / sizeof(float)];
	} in, out;
	int rank, size, code;
	double own;

	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &size);
	/* in both types, a power of two is lost beside 2^100 */
	own = rank == pair.first ? 0x1p100 : rank == pair.second ? -0x1p100 : (double)(1u << rank);
	for (int i = 0; i < order->count; i++) {
		if (wide)
			in.wide[i] = own;
		else
			in.narrow[i] = (float)own;
	}
	code = form(&in, &out, order->count, order->type, comm);
	if (code)
		return code;
	for (int i = 0; i < order->count; i++) {
		group found = all_of(size) & ~ranks_in_sum(wide ? out.wide[i] : out.narrow[i], size);

		if (i > 0 && found != *below)
			found = 0;
		*below = found;
		if (!found)
			break;
	}
	return code;
}

/* Whether no earlier pair has the same group and the group does not hold all ranks. */
static bool is_new(const group *groups, int pair, int size)
{
	for (int before = 0; before < pair; before++)
		if (groups[before] == groups[pair])
			return false;
	return groups[pair] != all_of(size);
}

/* Tries both forms. The verdict is the same at all members. */
static int try_both(struct order *order, bool wide, int size, MPI_Comm comm)
{
	struct polled_request broadcast = { .completion = { 0 } }, agreement = { .completion = { 0 } };
	group own[MAX_PAIRS], agreed[MAX_PAIRS];
	int pairs = 0, distinct = 0, same, all_same = 0, code;

	order->verdict = DIFFERENT;
	for (struct pair pair = { 0, 0 }; next_pair(&pair, size); pairs++) {
		code = find_group(nonblocking, order, wide, pair, comm, &own[pairs]);
		if (code)
			return code;
	}
	/*
	 * each member computes its own result, perhaps along its own tree; but all members have to make the
	 * same calls
	 */
	memcpy(agreed, own, sizeof own);
	code = finish_collective(
		UNISONO_MPI_WAIT_CALL_BCAST,
		PMPI_Ibcast(agreed, pairs * (int)sizeof *agreed, MPI_BYTE, 0, comm, &broadcast.request),
		&broadcast);
	if (code)
		return code;
	same = memcmp(own, agreed, (size_t)pairs * sizeof *own) == 0;
	pairs = 0;
	for (struct pair pair = { 0, 0 }; next_pair(&pair, size); pairs++) {
		group below;

		if (!is_new(agreed, pairs, size) || ++distinct > size - 2)
			continue;
		code = find_group(blocking, order, wide, pair, comm, &below);
		if (code)
			return code;
		same = same && below && below == own[pairs];
	}
	same = same && distinct == size - 2; /* otherwise the groups form no tree */
	code = finish_collective(
		UNISONO_MPI_WAIT_CALL_ALLREDUCE,
		PMPI_Iallreduce(&same, &all_same, 1, MPI_INT, MPI_MIN, comm, &agreement.request), &agreement);
	if (!code && all_same)
		order->verdict = SAME;
	return code;
}

/* The record of a type and count, the same at all members; NULL if there are too many. */
static struct order *order_of(struct comm_record *record, MPI_Datatype type, int count)
{
	struct order **at = &record->orders;
	int number = 0;

	for (; *at; at = &(*at)->next, number++)
		if ((*at)->type == type && (*at)->count == count)
			return *at;
	if (number == MAX_ORDERS)
		return NULL;
	*at = calloc(1, sizeof **at);
	if (!*at)
		abort();
	(*at)->type = type;
	(*at)->count = count;
	return *at;
}

int order_is_same(struct comm_record *record, MPI_Datatype type, int count, bool wide, MPI_Comm comm,
		  bool *same_order)
{
	struct order *order;
	int code = MPI_SUCCESS;

	*same_order = record->size <= 2; /* a + b is b + a */
	if (*same_order || record->size > MAX_RANKS)
		return code;
	order = order_of(record, type, count);
	if (!order)
		return code;
	if (order->verdict == UNTRIED && ++order->passed > record->size - 2)
		code = try_both(order, wide, record->size, comm);
	*same_order = order->verdict == SAME;
	return code;
}

void orders_free(struct order *order)
{
	while (order) {
		struct order *next = order->next;

		free(order);
		order = next;
	}
}
