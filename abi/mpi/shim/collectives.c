/*
 * Small collectives of ranks that outnumber the processors of their one host: the host MPI's form without
 * waiting, and questions. Whether a call is served depends only on what is the same at all members of the
 * communicator, because the two forms do not match each other.
 *
 * MPI_Allreduce has to give the very bits that the host's own call gives. Integers do in any order. Floating
 * point numbers do only if both forms add in one order, which is tried out: for each pair of ranks one gives
 * a huge number, the other its negative, and the others small numbers. Those that are added to a huge number
 * before both have met are lost. The set that is lost for each pair says what the tree of additions is, and
 * so two forms whose results are equal for all pairs have one tree. Until all pairs are tried the host's own
 * call serves the program.
 */
#include "crowded.h"
#include <stdlib.h>
#include <string.h>

/* Longer ones were not measured. */
enum { MOST_BYTES = 1024 };

static int finish(unisono_mpi_wait_call call, int code, struct request_question *asked)
{
	if (UNLIKELY(code))
		return code;
	if (UNLIKELY(atomic_load_explicit(napping, memory_order_relaxed)))
		unisono_mpi_crowd_ring_undirected();
	return await(call, UNISONO_MPI_WAIT_KIND_UNDIRECTED, ask_request, &asked->question);
}

/* What is known of a communicator whose collectives can be ours; else NULL. */
static struct fellows *served(MPI_Comm comm)
{
	struct fellows *fellows;

	if (LIKELY(!ranks_outnumber) || !waits_served)
		return NULL;
	fellows = fellows_of(comm);
	return fellows && fellows->all_here && fellows->size > 1 ? fellows : NULL;
}

/* Bytes of a buffer; more than can be served if that is not known. */
static MPI_Aint bytes_of(int count, MPI_Datatype type)
{
	int size = 0;

	if (count < 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &size) || size == MPI_UNDEFINED)
		return MOST_BYTES + 1;
	return (MPI_Aint)count * size;
}

/*
 * With --stats some calls are the host's as they are, the same at all members: one of 16, and then ever
 * fewer, so that they take a small part of the time however long they are.
 */
static bool is_sample(struct fellows *fellows)
{
	unsigned calls = ++fellows->calls;

	return UNLIKELY(waits_counted) && calls >= 16 && (calls & (calls - 1)) == 0;
}

#define UNLESS_SAMPLE(fellows, name, call)                                                                   \
	do {                                                                                                 \
		if (is_sample(fellows))                                                                      \
			return TIMED(name, unisono_mpi_crowd_sampled, call);                                 \
	} while (0)

/* A call that is not ours. */
#define HOSTS(name, call) (UNLIKELY(waits_counted) ? TIMED(name, unisono_mpi_crowd_timed, call) : (call))

BOTH(int, Bcast, (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm))
{
	struct request_question collective = { .question = { 0 } };
	struct fellows *fellows = served(comm);

	if (LIKELY(!fellows) || bytes_of(count, type) > MOST_BYTES)
		return HOSTS(BCAST, HOST(Bcast)(buffer, count, type, root, comm));
	UNLESS_SAMPLE(fellows, BCAST, HOST(Bcast)(buffer, count, type, root, comm));
	return finish(UNISONO_MPI_WAIT_CALL_BCAST,
		      HOST(Ibcast)(buffer, count, type, root, comm, &collective.request), &collective);
}

/* The first barriers of a communicator, before they are the engine's. */
int barrier_served(MPI_Comm comm)
{
	struct request_question collective = { .question = { 0 } };

	if (!served(comm))
		return HOSTS(BARRIER, HOST(Barrier)(comm));
	return finish(UNISONO_MPI_WAIT_CALL_BARRIER, HOST(Ibarrier)(comm, &collective.request), &collective);
}

/* The rest of it is the host's; whoever waits for it may need all members. */
BOTH(int, Ibarrier, (MPI_Comm comm, MPI_Request *request))
{
	int code = HOST(Ibarrier)(comm, request);

	undirected = true;
	if (UNLIKELY(atomic_load_explicit(napping, memory_order_relaxed)))
		unisono_mpi_crowd_ring_undirected();
	return code;
}

enum element { OTHER, INTEGER, FLOAT, DOUBLE };

static enum element element_of(MPI_Datatype type)
{
	const unisono_layout *layout = layout_of(type);

	switch (layout ? unisono_mpi_layout_single(layout) : 0) {
	case UNISONO_ELEMENT_I8:
	case UNISONO_ELEMENT_I16:
	case UNISONO_ELEMENT_I32:
	case UNISONO_ELEMENT_I64:
	case UNISONO_ELEMENT_U8:
	case UNISONO_ELEMENT_U16:
	case UNISONO_ELEMENT_U32:
	case UNISONO_ELEMENT_U64:
		return INTEGER;
	case UNISONO_ELEMENT_F32:
		return FLOAT;
	case UNISONO_ELEMENT_F64:
		return DOUBLE;
	default:
		return OTHER;
	}
}

static bool is_arithmetic(MPI_Op op)
{
	return op == MPI_SUM || op == MPI_PROD || op == MPI_MIN || op == MPI_MAX;
}

static bool is_logical(MPI_Op op)
{
	return op == MPI_LAND || op == MPI_LOR || op == MPI_LXOR || op == MPI_BAND || op == MPI_BOR ||
	       op == MPI_BXOR;
}

/* Whether one order of additions is known to be used by both forms, for one type and count. */
struct trial {
	MPI_Datatype type;
	int count;
	unsigned pair;				   /* the next to try */
	bool differed;				   /* at this member, for a pair so far */
	enum { UNTRIED, SAME, DIFFERENT } verdict; /* of all members */
	struct trial *next;
};

/* Reproducible numbers in [1, 2) that have no pattern, from a rank, a place and a pair. */
static double small(int rank, int place, unsigned pair)
{
	uint64_t state = ((uint64_t)rank << 40) ^ ((uint64_t)place << 20) ^ pair;

	state = (state ^ state >> 31) * 0x9e3779b97f4a7c15;
	state = (state ^ state >> 29) * 0xbf58476d1ce4e5b9;
	return 1.0 + (double)((state ^ state >> 32) >> 41) / (1 << 23);
}

/* What this rank gives: beside 2^100 numbers below 2 are lost, in both types. */
static double given(int rank, int place, unsigned pair, int first, int second)
{
	if (rank == first)
		return 0x1p100;
	return rank == second ? -0x1p100 : small(rank, place, pair);
}

/* The ranks of a pair by its number; false behind the last. */
static bool pair_of(unsigned pair, int size, int *first, int *second)
{
	for (*first = 0; *first < size; ++*first) {
		unsigned behind = (unsigned)(size - 1 - *first);

		if (pair < behind) {
			*second = *first + 1 + (int)pair;
			return true;
		}
		pair -= behind;
	}
	return false;
}

/* Both forms, once; whether they give the same bits here. */
static int try_pair(const struct trial *trial, enum element element, int first, int second, MPI_Comm comm,
		    bool *same)
{
	union {
		double wide[MOST_BYTES / sizeof(double)];
		float narrow[MOST_BYTES / sizeof(float)];
	} mine, blocking, other;
	struct request_question collective = { .question = { 0 } };
	size_t bytes = (size_t)trial->count * (element == DOUBLE ? sizeof(double) : sizeof(float));
	int rank, code;

	PMPI_Comm_rank(comm, &rank);
	for (int i = 0; i < trial->count; i++) {
		double value = given(rank, i, trial->pair, first, second);

		if (element == DOUBLE)
			mine.wide[i] = value;
		else
			mine.narrow[i] = (float)value;
	}
	code = HOST(Allreduce)(&mine, &blocking, trial->count, trial->type, MPI_SUM, comm);
	if (code)
		return code;
	code = finish(UNISONO_MPI_WAIT_CALL_ALLREDUCE,
		      HOST(Iallreduce)(&mine, &other, trial->count, trial->type, MPI_SUM, comm,
				       &collective.request),
		      &collective);
	*same = !code && memcmp(&blocking, &other, bytes) == 0;
	return code;
}

/* Tries one more pair; behind the last all members agree. */
static int try_next(struct trial *trial, enum element element, int size, MPI_Comm comm)
{
	int first, second, agreed, code;
	bool same;

	if (pair_of(trial->pair, size, &first, &second)) {
		code = try_pair(trial, element, first, second, comm, &same);
		/* a member that saw a difference goes on with the others, and says so at the end */
		trial->differed = trial->differed || code || !same;
		trial->pair++;
		return code;
	}
	agreed = !trial->differed;
	code = HOST(Allreduce)(MPI_IN_PLACE, &agreed, 1, MPI_INT, MPI_MIN, comm);
	trial->verdict = !code && agreed ? SAME : DIFFERENT;
	return code;
}

/* Most trials of a communicator; further counts are the host's. */
enum { MOST_TRIALS = 32 };

/* The trial of a type and count, which is the same at all members; NULL if there are too many. */
static struct trial *trial_of(struct fellows *fellows, MPI_Datatype type, int count)
{
	struct trial **at = &fellows->trials;
	int number = 0;

	for (; *at; at = &(*at)->next, number++)
		if ((*at)->type == type && (*at)->count == count)
			return *at;
	if (number == MOST_TRIALS)
		return NULL;
	*at = calloc(1, sizeof **at);
	if (!*at)
		abort();
	(*at)->type = type;
	(*at)->count = count;
	return *at;
}

void trials_forgotten(struct trial *trial)
{
	while (trial) {
		struct trial *next = trial->next;

		free(trial);
		trial = next;
	}
}

BOTH(int, Allreduce, (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm))
{
	struct request_question collective = { .question = { 0 } };
	struct fellows *fellows = served(comm);
	struct trial *trial;
	enum element element;
	int code;

	if (LIKELY(!fellows) || count < 1 || bytes_of(count, type) > MOST_BYTES)
		return HOSTS(ALLREDUCE, HOST(Allreduce)(in, out, count, type, op, comm));
	element = element_of(type);
	if (element == INTEGER ? !is_arithmetic(op) && !is_logical(op)
			       : !is_arithmetic(op) || element == OTHER)
		return HOSTS(ALLREDUCE, HOST(Allreduce)(in, out, count, type, op, comm));
	if (element != INTEGER && fellows->size > 2) {
		trial = trial_of(fellows, type, count);
		if (!trial || trial->verdict == DIFFERENT)
			return HOSTS(ALLREDUCE, HOST(Allreduce)(in, out, count, type, op, comm));
		if (trial->verdict != SAME) {
			code = try_next(trial, element, fellows->size, comm);
			return code ? code
				    : HOSTS(ALLREDUCE, HOST(Allreduce)(in, out, count, type, op, comm));
		}
	}
	UNLESS_SAMPLE(fellows, ALLREDUCE, HOST(Allreduce)(in, out, count, type, op, comm));
	return finish(UNISONO_MPI_WAIT_CALL_ALLREDUCE,
		      HOST(Iallreduce)(in, out, count, type, op, comm, &collective.request), &collective);
}
