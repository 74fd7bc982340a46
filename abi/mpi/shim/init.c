/* MPI_Init and MPI_Finalize, the host's progress, and MPI_Barrier. */
#include "crowded.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool many_threads;
static bool idle;     /* waits make no progress for the host MPI */
static bool upgraded; /* Unisono asked for threads, for its agent; the program did not */
static pthread_once_t once = PTHREAD_ONCE_INIT;

bool messages_forced(void)
{
	const char *transport = getenv("UNISONO_MPI_TRANSPORT");

	return transport && strcmp(transport, "messages") == 0;
}

/* Whether some ranks may be on other hosts, so that an agent thread will call the host MPI. Before
 * MPI_Init only the launcher's environment tells. */
static bool agent_possible(void)
{
	int all = number_in_environment("OMPI_COMM_WORLD_SIZE"),
	    here = number_in_environment("OMPI_COMM_WORLD_LOCAL_SIZE");

	if (!all) {
		all = number_in_environment("PMI_SIZE");
		here = number_in_environment("MPI_LOCALNRANKS");
	}
	if (!all)
		all = number_in_environment(
			"SLURM_NTASKS"); /* this launcher does not give the number of ranks on this host */
	return messages_forced() || (all > 1 && here < all);
}

/* Whether the host MPI lacks MPI_THREAD_MULTIPLE. An agent thread's calls need it. */
bool threads_missing(void)
{
	int provided = MPI_THREAD_SINGLE;

	return PMPI_Query_thread(&provided) || provided < MPI_THREAD_MULTIPLE;
}

static void prepare(void)
{
	int provided = MPI_THREAD_SINGLE;

	PMPI_Query_thread(&provided);
	many_threads = provided == MPI_THREAD_MULTIPLE && !upgraded;
	/* for the test that demonstrates the hang without progress; has no other use */
	const char *progress = getenv("UNISONO_MPI_PROGRESS");
	idle = progress && strcmp(progress, "never") == 0;
}

void setup(void)
{
	pthread_once(&once, prepare);
}

/*
 * Makes progress on the host's messages: a peer may wait for a message before it does its part of our wait.
 */
void progress(void)
{
	int found;

	if (UNLIKELY(idle))
		return;
	/* not on MPI_COMM_SELF, for which MPICH does not poll the network */
	PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

void say_once(const char *words)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	int rank = 0;

	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0 && !atomic_flag_test_and_set(&said))
		fprintf(stderr, "unisono: %s\n", words);
}

/*
 * Profiling tools define MPI_X and call PMPI_X. A preloaded tool stands before this preload and works. A tool
 * that the program is linked to stands behind it, so its MPI_Put is never called; warn about that.
 */
static void look_for_tools(void)
{
	static const char *const names[] = { "MPI_Put", "MPI_Win_fence", "MPI_Win_lock", "MPI_Barrier" };
	char name[32], words[512];
	Dl_info theirs, hosts;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(name, sizeof name, "P%s", names[i]);
		void *next = host_if_any(names[i]), *own = host_if_any(name);

		if (!next || !own || !dladdr(next, &theirs) || !dladdr(own, &hosts) ||
		    theirs.dli_fbase == hosts.dli_fbase)
			continue;
		snprintf(words, sizeof words,
			 "%s has an %s of its own, which is not called; preload it to have it called first: "
			 "LD_PRELOAD=%s",
			 theirs.dli_fname, names[i], theirs.dli_fname);
		say_once(words);
		return;
	}
}

static int begun(int code)
{
	if (!code) {
		jobs_at_finalize();
		look_for_tools();
		crowded_begin();
	}
	return code;
}

static int init(int *argc, char ***argv, int required, int *provided)
{
	int (*host_init)(int *, char ***, int, int *) =
		(int (*)(int *, char ***, int, int *))host("PMPI_Init_thread");

	if (required < MPI_THREAD_MULTIPLE && agent_possible()) {
		upgraded = true;
		required = MPI_THREAD_MULTIPLE;
	}
	return begun(host_init(argc, argv, required, provided));
}

BOTH(int, Init, (int *argc, char ***argv))
{
	int (*host_init)(int *, char ***) = (int (*)(int *, char ***))host("PMPI_Init");
	int provided;

	return agent_possible() ? init(argc, argv, MPI_THREAD_SINGLE, &provided)
				: begun(host_init(argc, argv));
}

BOTH(int, Init_thread, (int *argc, char ***argv, int required, int *provided))
{
	return init(argc, argv, required, provided);
}

BOTH(int, Finalize, (void))
{
	int (*host_finalize)(void) = (int (*)(void))host("PMPI_Finalize");

	jobs_without_agents();
	crowded_end();
	return host_finalize();
}

BOTH(int, Abort, (MPI_Comm comm, int code))
{
	int (*host_abort)(MPI_Comm, int) = (int (*)(MPI_Comm, int))host("PMPI_Abort");

	windows_counted(true);
	statistics_alone("which ended the job");
	return host_abort(comm, code);
}

#if MPI_VERSION >= 4
/* For a program without MPI_COMM_WORLD. By now the program has freed all communicators of the session. */
BOTH(int, Session_finalize, (MPI_Session * session))
{
	int (*host_finalize)(MPI_Session *) = (int (*)(MPI_Session *))host("PMPI_Session_finalize");
	int code, begun = 0;

	PMPI_Initialized(&begun);
	code = host_finalize(session);
	if (!begun)
		statistics_alone("whose session has ended");
	return code;
}
#endif

/*
 * Barriers. The first few barriers of a communicator are the host's, because making a job costs more than
 * they do. Afterwards the ranks of one host share an engine barrier. All ranks count the same number of
 * barriers, because a barrier is collective.
 */
enum { BEFORE_A_JOB = 3 };

struct barrier {
	struct job *job; /* NULL: the host's barrier */
	unsigned count;
	bool ours_not;
};

static int keyval = MPI_KEYVAL_INVALID;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned generation = 1;

static int barrier_freed(MPI_Comm comm, int key, void *value, void *extra)
{
	struct barrier *barrier = value;

	(void)comm;
	(void)key;
	(void)extra;
	atomic_fetch_add(&generation, 1);
	/* the job ends with the communicator's own attribute or here, whichever comes last */
	if (barrier->job)
		job_release(barrier->job);
	free(barrier);
	return MPI_SUCCESS;
}

static struct barrier *barrier_of(MPI_Comm comm)
{
	struct barrier *barrier = NULL;
	int found = 0, between = 0, size = 0;

	pthread_mutex_lock(&guard);
	if (keyval == MPI_KEYVAL_INVALID)
		PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, barrier_freed, &keyval, NULL);
	pthread_mutex_unlock(&guard);
	if (PMPI_Comm_get_attr(comm, keyval, &barrier, &found))
		return NULL;
	if (!found) {
		barrier = calloc(1, sizeof *barrier);
		if (!barrier)
			return NULL;
		PMPI_Comm_test_inter(comm, &between);
		PMPI_Comm_size(comm, &size);
		barrier->ours_not = between || size < 2 || messages_forced();
		PMPI_Comm_set_attr(comm, keyval, barrier);
	}
	return barrier;
}

static unisono_status barrier_of_job(struct job *job)
{
	unisono_status status;
	uint64_t begun;

	if (LIKELY(!waits_counted))
		return job_barrier(job);
	begun = unisono_mpi_crowd_now();
	status = job_barrier(job);
	unisono_mpi_crowd_timed(UNISONO_MPI_WAIT_CALL_BARRIER, begun);
	return status;
}

BOTH(int, Barrier, (MPI_Comm comm))
{
	static _Thread_local struct {
		MPI_Comm comm;
		struct job *job;
		unsigned generation;
	} last;
	struct barrier *barrier;
	unisono_status status;
	int code;

	if (LIKELY(last.job && last.comm == comm && last.generation == atomic_load(&generation) &&
		   last.job->core)) {
		status = barrier_of_job(last.job);
		return LIKELY(!status) ? MPI_SUCCESS
				       : comm_error(comm, "MPI_Barrier", code_of_status(status),
						    unisono_error_text());
	}
	barrier = comm == MPI_COMM_NULL || jobs_have_ended() ? NULL : barrier_of(comm);
	if (!barrier || barrier->ours_not || barrier->count++ < BEFORE_A_JOB)
		return barrier_served(comm);
	if (!barrier->job) {
		code = job_of(comm, &barrier->job);
		if (code)
			return comm_error(comm, "MPI_Barrier", code, unisono_error_text());
		if (!barrier->job->one_host) {
			job_release(barrier->job);
			barrier->job = NULL;
			barrier->ours_not = true;
			return barrier_served(comm);
		}
	}
	last.comm = comm;
	last.job = barrier->job;
	last.generation = atomic_load(&generation);
	status = barrier_of_job(barrier->job);
	return status ? comm_error(comm, "MPI_Barrier", code_of_status(status), unisono_error_text())
		      : MPI_SUCCESS;
}
