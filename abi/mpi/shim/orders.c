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
 * The sum of two numbers has the same bits in either order of the operands, unless both are NaNs: then it has
 * the bits of the first. A minimum of a NaN and a number depends on their order, too. So before minima and
 * maxima are served, both forms are also tried with NaNs, a pair at each node of the tree: n - 1 blocking
 * calls.
 *
 * Each of the two trials begins only after the program has made as many calls of the same kind as the trial
 * takes; these ran as the host's own. So a program with few calls pays at most twice their cost.
 */
#include "waiting.h"
#include <stdlib.h>
#include <string.h>

/* 120 pairs. More ranks than this were not measured. */
enum { MAX_RANKS = 16, MAX_PAIRS = MAX_RANKS * (MAX_RANKS - 1) / 2 };
/* The maximum number of (type, count) combinations tried per communicator; further ones stay the host's. */
enum { MAX_ORDERS = 32 };

/* A set of ranks, one bit for each. */
typedef uint16_t group;

/* Whether both forms add in the same order, for one type and count. */
struct order {
	MPI_Datatype type;
	int count;
	int passed;	     /* calls before the first trial, which ran as the host's own */
	int operands_passed; /* the same before the second trial */
	bool tried, operands_tried;
	enum same_order verdict;
	struct order *next;
	group groups[MAX_PAIRS]; /* by pair, after the first trial */
};

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

/* Returns the ranks whose powers of two make up a sum; all ranks if the value is not such a sum. */
static group ranks_in_sum(double sum, int size)
{
	group all = all_of(size);

	return sum >= 0 && sum <= all && sum == (double)(group)sum ? (group)sum : all;
}

union numbers {
	double wide[MAX_COLLECTIVE_BYTES / sizeof(double)];
	float narrow[MAX_COLLECTIVE_BYTES / sizeof(float)];
	uint64_t wide_bits[MAX_COLLECTIVE_BYTES / sizeof(double)];
	uint32_t narrow_bits[MAX_COLLECTIVE_BYTES / sizeof(float)];
};

/* Adds NaNs of the two ranks of a pair, which have different bits, and zeros of the other ranks. */
static int add_nans(form *form, const struct order *order, bool wide, struct pair pair, MPI_Comm comm,
		    union numbers *out)
{
	union numbers in = { .wide = { 0 } };
	int rank;

	PMPI_Comm_rank(comm, &rank);
	memset(out, 0, sizeof *out);
	for (int i = 0; i < order->count && (rank == pair.first || rank == pair.second); i++) {
		if (wide)
			in.wide_bits[i] = 0x7ff8000000000000u + (unsigned)rank + 1;
		else
			in.narrow_bits[i] = 0x7fc00000u + (unsigned)rank + 1;
	}
	return form(&in, out, order->count, order->type, comm);
}

/* Finds the group below the node where two ranks meet, if it is the same in all elements; 0 otherwise. */
static int find_group(form *form, const struct order *order, bool wide, struct pair pair, MPI_Comm comm,
		      group *below)
{
	union numbers in, out;
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

/* Whether no earlier pair has the same group. */
static bool is_new(const group *groups, int pair)
{
	for (int before = 0; before < pair; before++)
		if (groups[before] == groups[pair])
			return false;
	return true;
}

/* Finds the least value among those of all members. */
static int agree(int own, int *all, MPI_Comm comm)
{
	struct polled_request agreement = { .completion = { 0 } };

	*all = 0;
	return finish_collective(UNISONO_MPI_WAIT_CALL_ALLREDUCE,
				 PMPI_Iallreduce(&own, all, 1, MPI_INT, MPI_MIN, comm, &agreement.request),
				 &agreement);
}

/*
 * Tries whether both forms give the same bits for the NaNs of a pair at each node of the tree. The verdict is
 * the same at all members.
 */
static int try_operands(struct order *order, bool wide, int size, MPI_Comm comm)
{
	union numbers first, second;
	int pairs = 0, distinct = 0, same = 1, all, code;

	order->operands_tried = true;
	for (struct pair pair = { 0, 0 }; next_pair(&pair, size); pairs++) {
		if (!is_new(order->groups, pairs) || ++distinct > size - 1)
			continue;
		code = add_nans(nonblocking, order, wide, pair, comm, &first);
		if (!code)
			code = add_nans(blocking, order, wide, pair, comm, &second);
		if (code)
			return code;
		same = same && memcmp(&first, &second, sizeof first) == 0;
	}
	code = agree(same, &all, comm);
	if (!code && all)
		order->verdict = SAME_OPERANDS;
	return code;
}

/* Tries whether both forms add along the same tree. The verdict is the same at all members. */
static int try_tree(struct order *order, bool wide, int size, MPI_Comm comm)
{
	struct polled_request broadcast = { .completion = { 0 } };
	group own[MAX_PAIRS], *agreed = order->groups;
	int pairs = 0, distinct = 0, same, all, code;

	order->tried = true;
	for (struct pair pair = { 0, 0 }; next_pair(&pair, size); pairs++) {
		code = find_group(nonblocking, order, wide, pair, comm, &own[pairs]);
		if (code)
			return code;
	}
	/*
	 * Each member computes its own result, perhaps along a tree of its own, but all members have to make
	 * the same calls. So the trial uses the groups of one member.
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

		if (agreed[pairs] == all_of(size) || !is_new(agreed, pairs) || ++distinct > size - 2)
			continue;
		code = find_group(blocking, order, wide, pair, comm, &below);
		if (code)
			return code;
		same = same && below && below == own[pairs];
	}
	/* with any other number of groups, they form no tree */
	code = agree(same && distinct == size - 2, &all, comm);
	if (!code && all)
		order->verdict = SAME_TREE;
	return code;
}

/* Finds or makes the record of a type and count, the same at all members; NULL if there are too many. */
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

int order_of_both(struct comm_record *record, MPI_Datatype type, int count, bool wide, MPI_Comm comm,
		  bool needs_operands, enum same_order *same)
{
	int size = record->size, code = MPI_SUCCESS;
	struct order *order = size > MAX_RANKS ? NULL : order_of(record, type, count);

	*same = UNLIKE;
	if (!order)
		return code;
	if (!order->tried && ++order->passed > size - 2)
		code = try_tree(order, wide, size, comm);
	else if (needs_operands && order->verdict == SAME_TREE && !order->operands_tried &&
		 ++order->operands_passed > size - 1)
		code = try_operands(order, wide, size, comm);
	*same = order->verdict;
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
