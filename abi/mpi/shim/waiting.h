/*
 * Waits for the host MPI's own messages: declarations that the waiting calls share (waits.c, waitall.c,
 * files.c, sends.c, collectives.c).
 *
 * A waiting call polls the host MPI for completion, and libunisono decides how the rank waits between two
 * polls. Requests, statuses, errors and the order of messages remain the host MPI's.
 */
#ifndef UNISONO_MPI_WAITING_H
#define UNISONO_MPI_WAITING_H

#include "shim.h"

/* Whether Unisono serves waits. Changes in MPI_Init and MPI_Finalize. */
extern bool waits_served;
/* Whether waits also serve windows, which ranks of other hosts may use at any time. */
extern bool windows_served;
/* Whether waits are served and the ranks of this host outnumber the processors that they may use, as far
 * as this rank knows; other ranks may have another answer. */
extern bool ranks_outnumber;
/* Whether collectives are served on communicators whose members agree that they outnumber the processors. */
extern bool collectives_may_be_served;
/* Whether --stats counts and samples waits. */
extern bool waits_counted;
/* Addresses of the number of sleeping ranks of this host, and of a word that is 0 until a rank has slept. */
extern const _Atomic uint32_t *sleeping_ranks, *ranks_have_slept;
/* Set by a call whose completion may depend on more than a message to this thread. */
extern _Thread_local bool needs_other_ranks;

/* The result of a poll. `done` becomes 1 when the call is complete, also when it fails. */
struct completion {
	int done, code;
};

/* A request of the call's own that is polled, without a status. */
struct polled_request {
	struct completion completion;
	MPI_Request request;
};

int poll_request(void *polled_request);

void await_slow(unisono_mpi_wait_call call, unisono_mpi_wait_kind kind, unisono_mpi_question poll,
		struct completion *completion);
void await_ended(void);

/* Waits until `poll` has set completion->done. */
static inline int await(unisono_mpi_wait_call call, unisono_mpi_wait_kind kind, unisono_mpi_question poll,
			struct completion *completion)
{
	extern _Thread_local unsigned immediate_waits;

	if (LIKELY(!waits_counted) && LIKELY(poll(completion)))
		immediate_waits++;
	else
		await_slow(call, kind, poll, completion);
	if (UNLIKELY(atomic_load_explicit(sleeping_ranks, memory_order_relaxed)))
		await_ended();
	return completion->code;
}

/*
 * Whether Unisono serves this wait. While each rank has a processor to itself, Unisono cannot improve on the
 * host's own calls, but these do not notice when other programs arrive. So every CHECK_INTERVAL-th wait is
 * served as a check. After a served wait that lasted long, Unisono serves the next waits too.
 */
enum { CHECK_INTERVAL = 16 };
static inline bool serves_wait(void)
{
	extern _Thread_local unsigned waits_to_serve, unserved_waits;

	if (UNLIKELY(!waits_served))
		return false;
	if (ranks_outnumber || UNLIKELY(waits_counted) || UNLIKELY(windows_served))
		return true;
	if (waits_to_serve) {
		waits_to_serve--;
		return true;
	}
	return UNLIKELY(++unserved_waits % CHECK_INTERVAL == 0);
}

/* Returns the kind of this thread's wait for requests. */
static inline unisono_mpi_wait_kind kind_of_requests(void)
{
	return needs_other_ranks ? UNISONO_MPI_WAIT_KIND_UNDIRECTED : UNISONO_MPI_WAIT_KIND_DIRECTED;
}

void ring_slow(MPI_Comm comm, int rank);

/* Wakes a rank after a message was sent to it, because the rank may sleep. */
static inline void ring(MPI_Comm comm, int rank)
{
	if (UNLIKELY(atomic_load_explicit(sleeping_ranks, memory_order_relaxed)))
		ring_slow(comm, rank);
}

/* Whether the host MPI yields by itself. Its waits then stay unchanged, and --stats only times them. */
extern bool waits_only_timed;

/* host_ranks.c: the current time, for the statistics of a wait that begins. */
uint64_t timed_wait_begins(void);

/* Runs a wait of the host MPI unchanged and enters its duration into the statistics, with further arguments
 * of `entered`. */
#define TIMED(name, entered, call, ...)                                                                      \
	({                                                                                                   \
		uint64_t begun_ = timed_wait_begins();                                                       \
		int code_ = (call);                                                                          \
                                                                                                             \
		entered(UNISONO_MPI_WAIT_CALL_##name, begun_, ##__VA_ARGS__);                                \
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

enum answer { ANSWER_UNKNOWN, ANSWER_NO, ANSWER_YES };

/* The calls that the host would have counted for a kind of reduction; collectives.c. */
struct host_count {
	unsigned missed, made_up;
};

/* The record of a communicator. */
struct comm_record {
	int size;
	bool all_here;		   /* an intracommunicator whose ranks are all on this host */
	unsigned calls;		   /* collective calls that could be served, the same number at all members */
	unsigned passed;	   /* collective calls without an answer, weighted: the same at all members */
	struct host_count host[2]; /* of MPI_Reduce and of MPI_Allreduce */
	enum answer outnumber;	   /* whether the ranks outnumber their processors, the same at all members */
	struct order *orders;
	unsigned members[]; /* by rank: its place among the ranks of this host, or NOT_HERE */
};
enum { NOT_HERE = ~0u };
extern _Atomic unsigned comm_records_freed;
struct comm_record *comm_record_of(MPI_Comm comm);

/* host_ranks.c */
bool host_places(MPI_Group group, int count, unsigned *members);
unsigned world_place(int rank);
bool host_ranks_joined(void);
enum answer ranks_outnumber_in(MPI_Comm comm);
void ring_undirected(void);
void ring_all(void);

/* Longer collectives were not measured, so they stay the host's. */
enum { MAX_COLLECTIVE_BYTES = 1024 };

/* giving_way.c: a call of the host's that crowded ranks wait in */
void giving_way_begins(void);
void giving_way_ends(void);
#define GIVING_WAY(call)                                                                                     \
	({                                                                                                   \
		giving_way_begins();                                                                         \
		int given_way_ = (call);                                                                     \
		giving_way_ends();                                                                           \
		given_way_;                                                                                  \
	})

/* host_ranks.c: waits for a collective whose start returned `code`. */
int finish_collective(unisono_mpi_wait_call call, int code, struct polled_request *request);

/*
 * orders.c: finds the order in which the host's MPI_Allreduce adds `count` numbers of a type (double if
 * `wide`, else float); `found` is NULL at all members if it is not known, and `why` the reason. Collective.
 * Returns an error code of the host MPI.
 */
int order_of(struct comm_record *record, MPI_Datatype type, int count, bool wide, MPI_Comm comm,
	     const struct order **found, unisono_mpi_left_reason *why);
/*
 * Makes a reduction in that order. Numbers whose result depends on the order of two operands are not reduced:
 * `reduced` is then false at all members, and `out` unchanged.
 */
int reduce_in_order(const struct order *order, const void *in, void *out, MPI_Op op, MPI_Comm comm,
		    bool *reduced);
void orders_free(struct order *order);

/* waitall.c */
void note_file_request(MPI_Request request);
bool forget_file_request(MPI_Request request);

/* collectives.c */
int barrier_of_host(MPI_Comm comm);

#endif
