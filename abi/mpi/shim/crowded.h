/*
 * Waits for the host MPI's own messages: what the calls that wait (waits.c, send.c, collectives.c) share.
 *
 * A call that waits asks the host MPI again and again whether it is complete, and libunisono says what to do
 * between two questions. All of that is the host MPI's: requests, statuses, errors and the order of messages.
 */
#ifndef UNISONO_MPI_CROWDED_H
#define UNISONO_MPI_CROWDED_H

#include "shim.h"

/* Whether waits are ours. Changes when MPI begins and ends. */
extern bool waits_served;
/* Whether the ranks of this host outnumber the processors that they may use, and waits are ours. */
extern bool ranks_outnumber;
/* Whether --stats counts and samples waits. */
extern bool waits_counted;
/* How many ranks of this host nap, and whether any has ever. */
extern const _Atomic uint32_t *napping, *napped;
/* Set by a call after which this thread waits for more than messages to it. */
extern _Thread_local bool undirected;

/* What the host is asked about. `done` is 1 when the call is complete, also by an error. */
struct question {
	int done, code;
};

/* About a request of the call's own, of which no status is wanted. */
struct request_question {
	struct question question;
	MPI_Request request;
};

int ask_request(void *request_question);

void await_slowly(unisono_mpi_wait_call call, unisono_mpi_wait_kind kind, unisono_mpi_question ask,
		  struct question *question);
void await_is_over(void);

/* Waits until `ask` has set question->done. */
static inline int await(unisono_mpi_wait_call call, unisono_mpi_wait_kind kind, unisono_mpi_question ask,
			struct question *question)
{
	extern _Thread_local unsigned waits_passed;

	if (LIKELY(!waits_counted) && LIKELY(ask(question)))
		waits_passed++;
	else
		await_slowly(call, kind, ask, question);
	if (UNLIKELY(atomic_load_explicit(napping, memory_order_relaxed)))
		await_is_over();
	return question->code;
}

/*
 * Whether this wait is ours. Where each rank has a processor nothing can be won before other programs come.
 * The host's own calls, which are as fast as they can be, do not notice that; so one of LOOKED_AT is ours,
 * and after one that lasted long the next ones are.
 */
enum { LOOKED_AT = 16 };
static inline bool wait_is_ours(void)
{
	extern _Thread_local unsigned waits_ours, waits_seen;

	if (UNLIKELY(!waits_served))
		return false;
	if (ranks_outnumber || UNLIKELY(waits_counted))
		return true;
	if (waits_ours) {
		waits_ours--;
		return true;
	}
	return UNLIKELY(++waits_seen % LOOKED_AT == 0);
}

/* What a request that this thread waits for may need. */
static inline unisono_mpi_wait_kind kind_of_requests(void)
{
	return undirected ? UNISONO_MPI_WAIT_KIND_UNDIRECTED : UNISONO_MPI_WAIT_KIND_DIRECTED;
}

void ring_slowly(MPI_Comm comm, int rank);

/* Something was sent to a rank, which may sleep. */
static inline void ring(MPI_Comm comm, int rank)
{
	if (UNLIKELY(atomic_load_explicit(napping, memory_order_relaxed)))
		ring_slowly(comm, rank);
}

/* Whether the host gives way by itself: its waits stay as they are, and --stats only reads the clock. */
extern bool waits_only_timed;

/* A wait of the host's, as it is, entered into the statistics. */
#define TIMED(name, entered, call)                                                                           \
	({                                                                                                   \
		uint64_t begun_ = unisono_mpi_crowd_now();                                                   \
		int code_ = (call);                                                                          \
                                                                                                             \
		entered(UNISONO_MPI_WAIT_CALL_##name, begun_);                                               \
		code_;                                                                                       \
	})

/* With --stats some waits are the host's as they are. */
#define UNLESS_SAMPLED(name, call)                                                                           \
	do {                                                                                                 \
		if (LIKELY(!waits_counted))                                                                  \
			break;                                                                               \
		if (waits_only_timed)                                                                        \
			return TIMED(name, unisono_mpi_crowd_timed, call);                                   \
		if (unisono_mpi_crowd_samples())                                                             \
			return TIMED(name, unisono_mpi_crowd_sampled, call);                                 \
	} while (0)

struct order;

/* What is known of a communicator. */
struct fellows {
	int size;
	bool all_here;	/* an intracommunicator of ranks of this host alone */
	unsigned calls; /* collective calls that could be ours, the same at all members */
	struct order *orders;
	unsigned members[]; /* by rank: the place among the ranks of this host; NOT_HERE */
};
enum { NOT_HERE = ~0u };
struct fellows *fellows_of(MPI_Comm comm);

/* Longer collectives were not measured, and are the host's. */
enum { MOST_COLLECTIVE_BYTES = 1024 };

/* collectives.c: waits for a collective that has begun with `code`. */
int finish_collective(unisono_mpi_wait_call call, int code, struct request_question *asked);

/*
 * orders.c: whether both forms of MPI_Allreduce are known to add in one order, for `count` numbers of a type
 * (double if it is wide, else float). All members have to ask. The code is an error of the host's.
 */
int order_is_one(struct fellows *fellows, MPI_Datatype type, int count, bool wide, MPI_Comm comm,
		 bool *is_one);
void orders_forgotten(struct order *order);

#endif
