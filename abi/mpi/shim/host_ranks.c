/*
 * The ranks of this host that share processors: their places, their shared cache lines, and the wake-up flags
 * (bells) that senders ring.
 *
 * If the launcher's store shows that all ranks are on this host, MPI_Init sets up nothing. Rank 0 offers the
 * lines' memory in the store before MPI begins, and each rank joins by itself at its first send or wait. A
 * rank that cannot join leaves its waits to the host MPI. Otherwise the setup is collective, so it is done in
 * MPI_Init.
 */
#include "waiting.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool waits_served, windows_served, ranks_outnumber, waits_counted, waits_only_timed,
	collectives_may_be_served;
_Thread_local bool needs_other_ranks;
_Thread_local unsigned immediate_waits, unserved_waits;

static const _Atomic uint32_t no_ranks, unknown_ranks = 1;
const _Atomic uint32_t *sleeping_ranks = &no_ranks, *ranks_have_slept = &no_ranks;

static MPI_Group host_group;   /* the ranks of this host, ordered by place; valid once this rank has joined */
static unsigned *world_places; /* place of each rank of MPI_COMM_WORLD */
static int world_size;

static const char KEY[] = "unisono-lines";
static char lines_place[MEMORY_PLACE_BYTES]; /* of the memory that rank 0 offers; empty: none is known */
static int lines_offered = -1;		     /* rank 0's descriptor */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool joins_later; /* this rank joins at its first send or wait */
static bool can_serve_windows;
static bool (*serve_windows)(void);  /* never waits; returns whether there was a packet */
static bool joined, outnumber_known; /* outnumber_known: `ranks_outnumber` no longer changes */

enum { LINE = 128, LINES_SHARED = 2 };
/*
 * The number of waits that are served after a long wait. Next to other programs each wait lasts a scheduler
 * slice (3 to 4 ms), so 64 waits take a quarter of a second.
 */
enum { SERVED_AFTER_LONG_WAIT = 64 };
/* The initial value is that after a long wait, so a program that starts next to others does not have to
 * detect them first. */
_Thread_local unsigned waits_to_serve = SERVED_AFTER_LONG_WAIT;

/* Stores the places of the first `count` ranks of a group; returns whether all of them are on this host. */
bool host_places(MPI_Group group, int count, unsigned *members)
{
	int *ranks = calloc(2 * (size_t)count, sizeof *ranks), *found = ranks + count;
	bool all = true;

	if (!ranks)
		abort();
	for (int i = 0; i < count; i++)
		ranks[i] = i;
	PMPI_Group_translate_ranks(group, count, ranks, host_group, found);
	for (int i = 0; i < count; i++) {
		members[i] = found[i] == MPI_UNDEFINED ? NOT_HERE : (unsigned)found[i];
		all = all && found[i] != MPI_UNDEFINED;
	}
	free(ranks);
	return all;
}

/* Whether the host MPI yields the processor by itself while it waits. */
static bool host_yields(void)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	return !PMPI_Get_library_version(version, &length) && strncmp(version, "Open MPI", 8) == 0;
}

/* Whether the user gave `--only windows`. */
static bool windows_only(void)
{
	const char *only = getenv("UNISONO_MPI_ONLY");

	return only && strcmp(only, "windows") == 0;
}

/* Whether the ranks share cache lines; the same answer at all ranks of the job. */
static bool ranks_meet(void)
{
	PMPI_Comm_size(MPI_COMM_WORLD, &world_size);
	waits_only_timed = host_yields();
	return !windows_only() && world_size > 1 && !(waits_only_timed && !unisono_mpi_statistics_wanted());
}

static size_t lines_bytes(int members)
{
	return LINE * (size_t)(LINES_SHARED + members);
}

/* Whether ranks join without waiting for each other; the same answer at all ranks. */
static bool each_joins_alone(void)
{
	return store_is_of_one_host() && !agreement_is_partly();
}

/* Called before MPI_Init. */
void host_ranks_publish(void)
{
	if (!each_joins_alone() || windows_only() || rank_of_launcher() != 0)
		return;
	lines_offered = memory_offer(lines_bytes(number_in_environment("PMI_SIZE")), lines_place);
	if (lines_offered >= 0)
		store_put(KEY, lines_place);
}

/* Joins the ranks of a host, at a place of `count`; `lines` may be NULL. */
static void join(void *lines, MPI_Group group, int count, int place)
{
	MPI_Group world;

	host_group = group;
	PMPI_Comm_group(MPI_COMM_WORLD, &world);
	world_places = calloc((size_t)world_size, sizeof *world_places);
	if (!world_places)
		abort();
	host_places(world, world_size, world_places);
	PMPI_Group_free(&world);
	if (!lines) {
		sleeping_ranks = ranks_have_slept = &no_ranks;
		waits_served = waits_counted = false;
		return;
	}
	unisono_mpi_crowd_join(lines, (size_t)count, (size_t)place, count == world_size);
	sleeping_ranks = (const _Atomic uint32_t *)unisono_mpi_crowd_napping();
	ranks_have_slept = (const _Atomic uint32_t *)unisono_mpi_crowd_napped();
	joined = true;
}

static __attribute__((noinline)) void join_alone(void)
{
	MPI_Group world;
	int rank;

	pthread_mutex_lock(&guard);
	if (atomic_load_explicit(&joins_later, memory_order_relaxed)) {
		PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
		PMPI_Comm_group(MPI_COMM_WORLD, &world);
		join(*lines_place ? memory_accept(lines_place, lines_bytes(world_size)) : NULL, world,
		     world_size, rank);
		atomic_store_explicit(&joins_later, false, memory_order_release);
	}
	pthread_mutex_unlock(&guard);
}

static inline void join_if_due(void)
{
	if (UNLIKELY(atomic_load_explicit(&joins_later, memory_order_acquire)))
		join_alone();
}

/* Collective: called at the end of MPI_Init. */
static void join_together(void)
{
	MPI_Comm host_comm;
	MPI_Group group;
	int count, place;
	void *lines;

	if (PMPI_Comm_split_type(agreement_world(), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host_comm))
		return;
	PMPI_Comm_size(host_comm, &count);
	PMPI_Comm_rank(host_comm, &place);
	lines = count < 2 ? NULL : memory_share(host_comm, lines_bytes(count));
	if (lines) {
		waits_served = true;
		PMPI_Comm_group(host_comm, &group);
		join(lines, group, count, place);
	}
	PMPI_Comm_free(&host_comm);
}

/* Called at the end of MPI_Init by all served ranks of MPI_COMM_WORLD. */
void host_ranks_begin(void)
{
	if (!ranks_meet())
		return;
	if (each_joins_alone()) {
		if (lines_offered < 0 && !store_find(KEY, 0, lines_place, sizeof lines_place))
			*lines_place = 0;
		sleeping_ranks = ranks_have_slept = &unknown_ranks;
		waits_served = joins_later = true;
	} else {
		join_together();
	}
	can_serve_windows = !waits_only_timed;
	collectives_may_be_served = waits_served && !waits_only_timed;
	waits_counted = waits_served && unisono_mpi_statistics_wanted();
}

/* Closes the descriptor of the shared memory, which no rank needs any more. */
static void close_lines(void)
{
	pthread_mutex_lock(&guard);
	memory_withdraw(lines_offered, lines_place);
	lines_offered = -1;
	pthread_mutex_unlock(&guard);
}

/* Called before MPI_Finalize. */
void host_ranks_end(void)
{
	close_lines();
	pthread_mutex_lock(&guard);
	joins_later = waits_served = windows_served = waits_counted = collectives_may_be_served = false;
	sleeping_ranks = ranks_have_slept = &no_ranks;
	if (world_places)
		PMPI_Group_free(&host_group);
	pthread_mutex_unlock(&guard);
}

bool waits_can_serve_windows(void)
{
	return can_serve_windows;
}

void waits_begin_to_serve_windows(bool (*serve)(void))
{
	serve_windows = serve;
	windows_served = waits_served = true;
}

/* Whether this rank has joined the others; joins them if that is due. */
bool host_ranks_joined(void)
{
	join_if_due();
	return joined;
}

/* Updates `ranks_outnumber`, until all ranks of this host have joined. */
static void count_ranks(void)
{
	if (LIKELY(outnumber_known) || !joined)
		return;
	outnumber_known = unisono_mpi_crowd_is_complete();
	if (outnumber_known)
		close_lines();
	ranks_outnumber = unisono_mpi_crowd_is_full() && !waits_only_timed;
}

/* Only counted ranks know whether they outnumber their processors. */
uint64_t timed_wait_begins(void)
{
	join_if_due();
	count_ranks();
	return unisono_mpi_crowd_now();
}

int poll_request(void *context)
{
	struct polled_request *request = context;
	struct completion *completion = &request->completion;

	completion->code = PMPI_Test(&request->request, &completion->done, MPI_STATUS_IGNORE);
	if (UNLIKELY(completion->code))
		completion->done = 1;
	return completion->done;
}

/* A wait that serves windows between two polls. */
struct serving_wait {
	unisono_mpi_question poll;
	struct completion *completion;
	bool served; /* a packet since the last reset */
};

static int poll_and_serve(void *context)
{
	struct serving_wait *wait = context;

	if (wait->poll(wait->completion))
		return 1;
	wait->served |= serve_windows();
	return 0;
}

static int64_t nanoseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/*
 * Waits as a rank that shares its host with no other. It polls for AWAKE after a packet, and then sleeps ever
 * longer. AWAKE is longer than the origin sleeps in its own wait, with the kernel's timer slack: otherwise
 * origin and target can go on to find each other asleep. A lock, a put of 16 bytes and an unlock then took
 * 520 us, and 25 us otherwise (two namespaces, MPICH 4.0 over TCP).
 */
static void await_alone(struct serving_wait *wait)
{
	enum { AWAKE = 500000, FIRST_PAUSE = 5000, MAX_PAUSE = 200000 }; /* ns */
	struct timespec pause = { .tv_nsec = FIRST_PAUSE };
	int64_t since = nanoseconds();

	while (!poll_and_serve(wait)) {
		if (wait->served) {
			wait->served = false;
			since = nanoseconds();
			pause.tv_nsec = FIRST_PAUSE;
		} else if (nanoseconds() - since > AWAKE) {
			nanosleep(&pause, NULL);
			pause.tv_nsec = pause.tv_nsec * 2 > MAX_PAUSE ? MAX_PAUSE : pause.tv_nsec * 2;
		}
	}
}

void await_slow(unisono_mpi_wait_call call, unisono_mpi_wait_kind kind, unisono_mpi_question poll,
		struct completion *completion)
{
	struct serving_wait serving = { .poll = poll, .completion = completion };
	void *context = completion;

	join_if_due();
	count_ranks();
	if (UNLIKELY(windows_served) && !joined) {
		await_alone(&serving);
		return;
	}
	if (UNLIKELY(windows_served)) {
		poll = poll_and_serve;
		context = &serving;
	}
	/* repeats only if this thread is ending and the library could not wait in it */
	while (!completion->done) {
		if (unisono_mpi_crowd_wait(call, kind, immediate_waits, poll, context))
			waits_to_serve = SERVED_AFTER_LONG_WAIT;
		immediate_waits = 0;
	}
}

/* Ends a wait: another rank may sleep until this rank has received a message, so this rank wakes it. */
void await_ended(void)
{
	needs_other_ranks = false;
	ring_undirected();
}

/* Wakes the ranks whose waits may be completed by an action of any rank. */
void ring_undirected(void)
{
	join_if_due();
	unisono_mpi_crowd_ring_undirected();
}

void ring_all(void)
{
	join_if_due();
	unisono_mpi_crowd_ring_all();
}

/* Returns the place of a rank of MPI_COMM_WORLD on this host, or NOT_HERE. */
unsigned world_place(int rank)
{
	return rank < world_size ? world_places[rank] : NOT_HERE;
}

int finish_collective(unisono_mpi_wait_call call, int code, struct polled_request *request)
{
	if (UNLIKELY(code))
		return code;
	if (UNLIKELY(atomic_load_explicit(sleeping_ranks, memory_order_relaxed)))
		ring_undirected();
	return await(call, UNISONO_MPI_WAIT_KIND_UNDIRECTED, poll_request, &request->completion);
}

/* Whether the ranks outnumber their processors, or ANSWER_UNKNOWN; the same answer at all members.
 * Collective. */
enum answer ranks_outnumber_in(MPI_Comm comm)
{
	struct polled_request barrier = { .completion = { 0 } }, agreement = { .completion = { 0 } };
	int own[3], all[3] = { 0 };

	/* all members have joined after it */
	if (finish_collective(UNISONO_MPI_WAIT_CALL_OWN, PMPI_Ibarrier(comm, &barrier.request), &barrier))
		return ANSWER_UNKNOWN;
	count_ranks();
	own[0] = joined;
	own[1] = outnumber_known;
	own[2] = !ranks_outnumber; /* quotas may differ */
	if (finish_collective(UNISONO_MPI_WAIT_CALL_OWN,
			      PMPI_Iallreduce(own, all, 3, MPI_INT, MPI_MIN, comm, &agreement.request),
			      &agreement))
		return ANSWER_UNKNOWN;
	return !all[0] ? ANSWER_NO : !all[1] ? ANSWER_UNKNOWN : all[2] ? ANSWER_NO : ANSWER_YES;
}
