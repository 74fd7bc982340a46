/*
 * Sums of floating-point numbers among crowded ranks, with the bits of the host's MPI_Allreduce: a
 * nonblocking MPI_Iallgather brings each rank the numbers of all ranks, and the rank adds them itself in the
 * host's order. The host's nonblocking MPI_Iallreduce would not do: MPICH 5 adds in another order there.
 *
 * The order is a binary tree, which trials find out. The tree is determined by its groups: the sets of ranks
 * below each of its nodes. One call finds the group below the node where two ranks meet: the first
 * contributes a huge number, the second its negative, and each other rank a distinct power of two. A power of
 * two that is added to the huge number before the two ranks meet is lost to rounding. So the result is the
 * sum of the ranks outside the group. A node with more than two known children is not yet resolved; the next
 * trial takes two of its children. With n ranks this takes n - 2 calls at least, because the group of all
 * ranks is in every tree. A last call compares the bits of pseudorandom numbers.
 *
 * The sum of two numbers has the same bits in either order of the operands, unless both are NaNs. The same
 * holds for products, and for minima and maxima unless both are zeros. Each rank sees the numbers of all
 * ranks. So if a number is a NaN, or a negative zero in a minimum or maximum, all ranks leave the call to the
 * host.
 *
 * The trials begin only after the program has made several calls of the same kind; these ran as the host's
 * own.
 */
#include "waiting.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* More ranks than this were not measured. */
enum { MAX_RANKS = 16 };
/* The maximum number of (type, count) combinations tried per communicator; further ones stay the host's. */
enum { MAX_ORDERS = 32 };
/*
 * The minimum number of calls before the trials. MPICH 5 changes the order after 5 collectives on a
 * communicator (MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD), so no trial may be among these.
 */
enum { MIN_PASSED = 5 };

/* A set of ranks, one bit for each. */
typedef uint16_t group;

/* An addition of the numbers at one rank's place to those at another's. */
struct addition {
	unsigned char to, from;
};

/* The order in which the host adds, for one type and count. */
struct order {
	MPI_Datatype type;
	bool wide; /* doubles; otherwise floats */
	int count, size;
	int passed; /* calls before the trials, which ran as the host's own */
	bool tried, known;
	struct order *next;
	struct addition additions[MAX_RANKS - 1]; /* the sum is at rank 0's place in the end */
};

/* A tree of additions, as far as it is known. */
struct tree {
	int size, groups;
	group of[MAX_RANKS - 1];	   /* the groups found */
	group meets[MAX_RANKS][MAX_RANKS]; /* by pair of ranks: the group found by a trial, or 0 */
};

union numbers {
	double wide[MAX_COLLECTIVE_BYTES / sizeof(double)];
	float narrow[MAX_COLLECTIVE_BYTES / sizeof(float)];
};

static group all_of(int size)
{
	return (group)((1u << size) - 1);
}

static int lowest(group ranks)
{
	return __builtin_ctz(ranks);
}

static bool contains(group outer, group inner)
{
	return (outer & inner) == inner;
}

/* Finds the children of a node: the largest groups within its group, and the single ranks in none of them. */
static int children_of(const struct tree *tree, group parent, group *children)
{
	int count = 0;

	for (group left = parent; left;) {
		group child = (group)(1u << lowest(left));

		for (int i = 0; i < tree->groups; i++)
			if (tree->of[i] != parent && contains(parent, tree->of[i]) &&
			    contains(tree->of[i], child))
				child = tree->of[i];
		children[count++] = child;
		left &= (group)~child;
	}
	return count;
}

/* Whether a trial has shown that two children of a node meet at no node below it. */
static bool known_apart(const struct tree *tree, group one, group other)
{
	for (int i = 0; i < tree->size; i++)
		for (int j = 0; j < tree->size; j++)
			if (one >> i & 1 && other >> j & 1 && tree->meets[i][j])
				return true;
	return false;
}

/*
 * Chooses the ranks of the next trial: of two children of an unresolved node, neighbors first, because most
 * algorithms join neighbors. Returns false if there is no such pair.
 */
static bool next_pair(const struct tree *tree, int *first, int *second)
{
	group children[MAX_RANKS];

	for (int i = 0; i < tree->groups; i++) {
		int count = children_of(tree, tree->of[i], children);

		for (int apart = 1; count > 2 && apart < count; apart++)
			for (int at = 0; at + apart < count; at++)
				if (!known_apart(tree, children[at], children[at + apart])) {
					*first = lowest(children[at]);
					*second = lowest(children[at + apart]);
					return true;
				}
	}
	return false;
}

/* Enters the result of a trial; false if it contradicts a tree. */
static bool enter_group(struct tree *tree, int first, int second, group below)
{
	group pair = (group)(1u << first | 1u << second);

	if (!contains(below, pair))
		return false;
	tree->meets[first][second] = tree->meets[second][first] = below;
	for (int i = 0; i < tree->groups; i++) {
		group other = tree->of[i];

		if (other == below)
			return true;
		if ((other & below) && !contains(other, below) && !contains(below, other))
			return false;
	}
	if (tree->groups == tree->size - 1)
		return false;
	/* before the groups that contain it: children_of() takes the last group that fits */
	memmove(tree->of + 1, tree->of, (size_t)tree->groups++ * sizeof *tree->of);
	tree->of[0] = below;
	for (int i = 1; i < tree->groups && __builtin_popcount(tree->of[i]) < __builtin_popcount(below);
	     i++) {
		tree->of[i - 1] = tree->of[i];
		tree->of[i] = below;
	}
	return true;
}

/* Whether each node has two children. Then sets the order of additions, from the smallest group on. */
static bool set_additions(const struct tree *tree, struct order *order)
{
	group children[MAX_RANKS];

	for (int i = 0; i < tree->groups; i++) {
		if (children_of(tree, tree->of[i], children) != 2)
			return false;
		order->additions[i] = (struct addition){ (unsigned char)lowest(children[0]),
							 (unsigned char)lowest(children[1]) };
	}
	return tree->groups == tree->size - 1;
}

/* Returns the ranks whose powers of two make up a sum; all ranks if the value is not such a sum. */
static group ranks_in_sum(double sum, int size)
{
	group all = all_of(size);

	return sum >= 0 && sum <= all && sum == (double)(group)sum ? (group)sum : all;
}

/* Finds the group below the node where two ranks meet, if it is the same in all elements; 0 otherwise. */
static int find_group(const struct order *order, int first, int second, MPI_Comm comm, group *below)
{
	union numbers in, out;
	int rank, size = order->size, code;
	bool wide = order->wide;
	double own;

	PMPI_Comm_rank(comm, &rank);
	/* in both types, a power of two is lost beside 2^100 */
	own = rank == first ? 0x1p100 : rank == second ? -0x1p100 : (double)(1u << rank);
	for (int i = 0; i < order->count; i++) {
		if (wide)
			in.wide[i] = own;
		else
			in.narrow[i] = (float)own;
	}
	code = GIVING_WAY(PMPI_Allreduce(&in, &out, order->count, order->type, MPI_SUM, comm));
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

/* Replaces a value by 0 unless all members have the same. */
static int agree(int *value, MPI_Comm comm)
{
	struct polled_request agreement = { .completion = { 0 } };
	int own[2] = { *value, -*value }, least[2] = { 0, -1 };
	int code = finish_collective(
		UNISONO_MPI_WAIT_CALL_OWN,
		PMPI_Iallreduce(own, least, 2, MPI_INT, MPI_MIN, comm, &agreement.request), &agreement);

	*value = least[0] == -least[1] ? least[0] : 0;
	return code;
}

#define COMBINE(type, to, from, count, op)                                                                   \
	for (int i_ = 0; i_ < (count); i_++) {                                                               \
		type one_ = ((type *)(to))[i_], other_ = ((const type *)(from))[i_];                         \
                                                                                                             \
		((type *)(to))[i_] = (op) == MPI_SUM	? one_ + other_                                      \
				     : (op) == MPI_PROD ? one_ * other_                                      \
				     : (op) == MPI_MIN	? (other_ < one_ ? other_ : one_)                    \
							: (other_ > one_ ? other_ : one_);                    \
	}

/* Gathers the numbers of all members and combines them in the host's order, as a wait of `call`. */
static int reduce(unisono_mpi_wait_call call, const struct order *order, const void *in, void *out, MPI_Op op,
		  MPI_Comm comm, bool *reduced)
{
	struct polled_request collective = { .completion = { 0 } };
	union numbers all[MAX_RANKS];
	bool wide = order->wide;
	int bytes = order->count * (int)(wide ? sizeof(double) : sizeof(float)), code;
	char *place = (char *)all;

	*reduced = false;
	code = finish_collective(call,
				 PMPI_Iallgather(in == MPI_IN_PLACE ? out : in, bytes, MPI_BYTE, all, bytes,
						 MPI_BYTE, comm, &collective.request),
				 &collective);
	if (code)
		return code;
	for (int i = 0; i < order->count * order->size; i++) {
		double number = wide ? ((double *)place)[i] : ((float *)place)[i];

		if (isnan(number) || (number == 0 && signbit(number) && (op == MPI_MIN || op == MPI_MAX)))
			return code;
	}
	for (int i = 0; i < order->size - 1; i++) {
		char *to = place + order->additions[i].to * bytes;
		const char *from = place + order->additions[i].from * bytes;

		if (wide)
			COMBINE(double, to, from, order->count, op)
		else
			COMBINE(float, to, from, order->count, op)
	}
	memcpy(out, place, (size_t)bytes);
	*reduced = true;
	return code;
}

int reduce_in_order(const struct order *order, const void *in, void *out, MPI_Op op, MPI_Comm comm,
		    bool *reduced)
{
	return reduce(UNISONO_MPI_WAIT_CALL_ALLREDUCE, order, in, out, op, comm, reduced);
}

/* Whether the order gives the host's bits for pseudorandom numbers. */
static int compare_bits(const struct order *order, MPI_Comm comm, int *same)
{
	union numbers in, ours = { .wide = { 0 } }, hosts = { .wide = { 0 } };
	uint64_t random = 0x9e3779b97f4a7c15u;
	bool reduced = false;
	int rank, code;

	PMPI_Comm_rank(comm, &rank);
	random *= (unsigned)rank + 1;
	for (int i = 0; i < order->count; i++) {
		double number;

		/* the constants of Knuth's MMIX */
		random = random * 6364136223846793005u + 1442695040888963407u;
		number = ldexp((double)(random >> 11) + 1, -40 - (int)(random % 8));
		if (order->wide)
			in.wide[i] = number;
		else
			in.narrow[i] = (float)number;
	}
	code = GIVING_WAY(PMPI_Allreduce(&in, &hosts, order->count, order->type, MPI_SUM, comm));
	if (!code)
		code = reduce(UNISONO_MPI_WAIT_CALL_OWN, order, &in, &ours, MPI_SUM, comm, &reduced);
	*same = reduced && memcmp(&ours, &hosts, sizeof ours) == 0;
	return code;
}

/* Finds the order out by trials. The result is the same at all members. */
static int try_order(struct order *order, MPI_Comm comm)
{
	int size = order->size;
	struct tree tree = { .size = size, .groups = 1, .of = { all_of(size) } };
	int first, second, same, code;

	order->tried = true;
	for (int trials = 0; trials < 2 * size && next_pair(&tree, &first, &second); trials++) {
		group own = 0;
		int below;

		code = find_group(order, first, second, comm, &own);
		below = own;
		/* each member computes its own result, perhaps along a tree of its own */
		if (!code)
			code = agree(&below, comm);
		if (code || !enter_group(&tree, first, second, (group)below))
			return code;
	}
	if (!set_additions(&tree, order))
		return MPI_SUCCESS;
	code = compare_bits(order, comm, &same);
	if (!code)
		code = agree(&same, comm);
	order->known = !code && same;
	return code;
}

/* Finds or makes the record of a type and count, the same at all members; NULL if there are too many. */
static struct order *record_of(struct comm_record *record, MPI_Datatype type, int count, bool wide)
{
	struct order **at = &record->orders;
	int number = 0;

	for (; *at; at = &(*at)->next, number++)
		if ((*at)->type == type && (*at)->count == count)
			return *at;
	if (number == MAX_ORDERS || record->size > MAX_RANKS)
		return NULL;
	*at = calloc(1, sizeof **at);
	if (!*at)
		abort();
	(*at)->type = type;
	(*at)->count = count;
	(*at)->wide = wide;
	(*at)->size = record->size;
	return *at;
}

int order_of(struct comm_record *record, MPI_Datatype type, int count, bool wide, MPI_Comm comm,
	     const struct order **found, unisono_mpi_left_reason *why)
{
	struct order *order = record_of(record, type, count, wide);
	int least = record->size - 2 > MIN_PASSED ? record->size - 2 : MIN_PASSED, code = MPI_SUCCESS;

	*why = order && !order->tried ? UNISONO_MPI_LEFT_REASON_FIRST_CALLS : UNISONO_MPI_LEFT_REASON_ORDER;
	if (order && !order->tried && ++order->passed > least)
		code = try_order(order, comm);
	*found = order && order->known ? order : NULL;
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
