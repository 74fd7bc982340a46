/*
 * In which order the host's MPI_Allreduce adds floating point numbers, found out by trials.
 *
 * Two forms of a call give the same bits if both add along one tree. A tree is known by its groups: the ranks
 * below each of its nodes. One call tells the group below the node where two ranks meet. One of the two gives
 * a huge number, the other its negative, and each other rank a power of two of its own. What is added to a
 * huge number before both have met is lost. So the sum is that of the ranks outside the group.
 *
 * Among crowded ranks the form that waits takes milliseconds, and the one without waiting some 30 us. So all
 * pairs are tried with the latter, which gives its whole tree. The former is tried with one pair for each
 * group. If it has all these groups as well, it adds along the same tree, because a tree is determined by its
 * groups. With n ranks these are n - 2 calls that wait: the group of all is in every tree.
 *
 * A trial begins when the program has made as many calls of the kind, which are the host's. So a program of
 * few calls pays at most what it pays without us once more.
 */
#include "crowded.h"
#include <stdlib.h>
#include <string.h>

/* 120 pairs. More ranks than this were not measured. */
enum { MOST_RANKS = 16, MOST_PAIRS = MOST_RANKS * (MOST_RANKS - 1) / 2 };
/* Most types and counts of a communicator that are tried; further ones are the host's. */
enum { MOST_ORDERS = 32 };

/* Whether both forms add in one order, for one type and count. */
struct order {
	MPI_Datatype type;
	int count;
	int passed; /* calls that were the host's */
	enum { UNTRIED, SAME, DIFFERENT } verdict;
	struct order *next;
};

/* A bit for each rank. */
typedef uint16_t group;

struct pair {
	int first, second;
};

/* The next pair of ranks; false behind the last. Begins with { 0, 0 }. */
static bool next_pair(struct pair *pair, int size)
{
	if (++pair->second == size)
		pair->second = ++pair->first + 1;
	return pair->second < size;
}

/* A form of MPI_Allreduce. */
typedef int form(const void *in, void *out, int count, MPI_Datatype type, MPI_Comm comm);

static int with_waiting(const void *in, void *out, int count, MPI_Datatype type, MPI_Comm comm)
{
	return PMPI_Allreduce(in, out, count, type, MPI_SUM, comm);
}

static int without_waiting(const void *in, void *out, int count, MPI_Datatype type, MPI_Comm comm)
{
	struct request_question collective = { .question = { 0 } };

	return finish_collective(UNISONO_MPI_WAIT_CALL_ALLREDUCE,
				 PMPI_Iallreduce(in, out, count, type, MPI_SUM, comm, &collective.request),
				 &collective);
}

static group all_of(int size)
{
	return (group)((1u << size) - 1);
}

/* The ranks whose powers of two make up a sum; all if it is no such sum. */
static group summed(double sum, int size)
{
	group all = all_of(size);

	return sum >= 0 && sum <= all && sum == (double)(group)sum ? (group)sum : all;
}

/* The group below the node where two ranks meet, in all places of the result; 0 if there is no such group. */
static int meet(form *form, const struct order *order, bool wide, struct pair pair, MPI_Comm comm,
		group *below)
{
	union {
		double wide[MOST_COLLECTIVE_BYTES / sizeof(double)];
		float narrow[MOST_COLLECTIVE_BYTES / sizeof(float)];
	} in, out;
	int rank, size, code;
	double own;

	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &size);
	/* beside 2^100 the powers of two are lost, in both types */
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
		group found = all_of(size) & ~summed(wide ? out.wide[i] : out.narrow[i], size);

		if (i > 0 && found != *below)
			found = 0;
		*below = found;
		if (!found)
			break;
	}
	return code;
}

/* Whether the group of a pair is one that no pair before it has, and not that of all ranks. */
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
	struct request_question told = { .question = { 0 } }, agreement = { .question = { 0 } };
	group own[MOST_PAIRS], agreed[MOST_PAIRS];
	int pairs = 0, distinct = 0, same, all_same = 0, code;

	order->verdict = DIFFERENT;
	for (struct pair pair = { 0, 0 }; next_pair(&pair, size); pairs++) {
		code = meet(without_waiting, order, wide, pair, comm, &own[pairs]);
		if (code)
			return code;
	}
	/* each member adds for itself, perhaps along a tree of its own; the calls have to be the same */
	memcpy(agreed, own, sizeof own);
	code = finish_collective(
		UNISONO_MPI_WAIT_CALL_BCAST,
		PMPI_Ibcast(agreed, pairs * (int)sizeof *agreed, MPI_BYTE, 0, comm, &told.request), &told);
	if (code)
		return code;
	same = memcmp(own, agreed, (size_t)pairs * sizeof *own) == 0;
	pairs = 0;
	for (struct pair pair = { 0, 0 }; next_pair(&pair, size); pairs++) {
		group below;

		if (!is_new(agreed, pairs, size) || ++distinct > size - 2)
			continue;
		code = meet(with_waiting, order, wide, pair, comm, &below);
		if (code)
			return code;
		same = same && below && below == own[pairs];
	}
	same = same && distinct == size - 2; /* else it is no tree */
	code = finish_collective(
		UNISONO_MPI_WAIT_CALL_ALLREDUCE,
		PMPI_Iallreduce(&same, &all_same, 1, MPI_INT, MPI_MIN, comm, &agreement.request), &agreement);
	if (!code && all_same)
		order->verdict = SAME;
	return code;
}

/* The order of a type and count, which is the same at all members; NULL if there are too many. */
static struct order *order_of(struct fellows *fellows, MPI_Datatype type, int count)
{
	struct order **at = &fellows->orders;
	int number = 0;

	for (; *at; at = &(*at)->next, number++)
		if ((*at)->type == type && (*at)->count == count)
			return *at;
	if (number == MOST_ORDERS)
		return NULL;
	*at = calloc(1, sizeof **at);
	if (!*at)
		abort();
	(*at)->type = type;
	(*at)->count = count;
	return *at;
}

int order_is_one(struct fellows *fellows, MPI_Datatype type, int count, bool wide, MPI_Comm comm,
		 bool *is_one)
{
	struct order *order;
	int code = MPI_SUCCESS;

	*is_one = fellows->size <= 2; /* a + b is b + a */
	if (*is_one || fellows->size > MOST_RANKS)
		return code;
	order = order_of(fellows, type, count);
	if (!order)
		return code;
	if (order->verdict == UNTRIED && ++order->passed > fellows->size - 2)
		code = try_both(order, wide, fellows->size, comm);
	*is_one = order->verdict == SAME;
	return code;
}

void orders_forgotten(struct order *order)
{
	while (order) {
		struct order *next = order->next;

		free(order);
		order = next;
	}
}
