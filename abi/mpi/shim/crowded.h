/*
 * Waits for the host MPI's own messages: declarations that the waiting calls share (waits.c, sends.c,
 * collectives.c).
 *
 * A waiting call polls the host MPI for completion, and libunisono decides how the rank waits between two
 * polls. Requests, statuses, errors and the order of messages remain the host MPI's.
 */
#ifndef UNISONO_MPI_CROWDED_H
#define UNISONO_MPI_CROWDED_H

#include "shim.h"

/* Whether Unisono serves waits. Changes in MPI_Init and MPI_Finalize. */
extern bool waits_served;
/* Whether waits are served and the ranks of this host outnumber the processors that they may use. */
extern bool ranks_outnumber;
/* Whether --stats counts and samples waits. */
extern bool waits_counted;
/* The number of napping ranks of this host, and whether a rank has ever napped. */
extern const _Atomic uint32_t *napping, *napped;
/* Set by a call whose completion may depend on more than a message to this thread. */
extern _Thread_local bool undirected;

/* A question to the host MPI. `done` becomes 1 when the call is complete, also when it fails. */
struct question {
	int done, code;
};

/* A question about a request of the call's own, without a status. */
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
 * Whether Unisono serves this wait. While each rank has a processor to itself, Unisono cannot improve on the
 * host's own calls, but these do not notice when other programs arrive. So every MAX_BYTES_SCANNED-th wait is
 * served as a check. After a served wait that lasted long, Unisono serves the next waits too.
 */
enum { MAX_BYTES_SCANNED = 16 };
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
	return UNLIKELY(++waits_seen % MAX_BYTES_SCANNED == 0);
}

/* The kind of this thread's wait for requests. */
static inline unisono_mpi_wait_kind kind_of_requests(void)
{
	return undirected ? UNISONO_MPI_WAIT_KIND_UNDIRECTED : UNISONO_MPI_WAIT_KIND_DIRECTED;
}

void ring_slowly(MPI_Comm comm, int rank);

/* Wakes a rank after a message was sent to it, because the rank may be napping. */
static inline void ring(MPI_Comm comm, int rank)
{
	if (UNLIKELY(atomic_load_explicit(napping, memory_order_relaxed)))
		ring_slowly(comm, rank);
}

/* Whether the host MPI yields by itself. Its waits then stay unchanged, and --stats only times them. */
extern bool waits_only_timed;

/* Runs a wait of the host MPI unchanged and enters its duration into the statistics. */
#define TIMED(name, entered, call)                                                                           \
	({                                                                                                   \
		uint64_t begun_ = unisono_mpi_crowd_now();                                                   \
		int code_ = (call);                                                                          \
                                                                                                             \
		entered(UNISONO_MPI_WAIT_CALL_##name, begun_);                                               \
		code_;                                                                                       \
	})

/* With --stats, runs some waits as the host's own for comparison. */
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

/* The record of a communicator. */
struct fellows {
	int size;
	bool all_here;	/* an intracommunicator whose ranks are all on this host */
	unsigned calls; /* collective calls that could be served, the same number at all members */
	struct order *orders;
	unsigned members[]; /* by rank: its place among the ranks of this host, or NOT_HERE */
};
enum { NOT_HERE = ~0u };
struct fellows *fellows_of(MPI_Comm comm);

/* Longer collectives were not measured, so they stay the host's. */
enum { MAX_COLLECTIVE_BYTES = 1024 };

/* collectives.c: waits for a collective whose start returned `code`. */
int finish_collective(unisono_mpi_wait_call call, int code, struct request_question *asked);

/*
 * orders.c: whether both forms of MPI_Allreduce are known to add in the same order, for `count` numbers of a
 * type (double if `wide`, else float). Collective. Returns an error code of the host MPI.
 */
int order_is_one(struct fellows *fellows, MPI_Datatype type, int count, bool wide, MPI_Comm comm,
		 bool *is_one);
void orders_forgotten(struct order *order);

#endif
