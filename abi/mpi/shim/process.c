/*
 * State of this process that all parts of the shim may ask for: the user's choices, the level of threads, the
 * host's progress, and messages to the user. Of the shim's files, this one calls only launcher.c.
 */
#include "shim.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A launcher that reads nothing for this long hangs. Chosen, not measured. */
enum { READ_TIMEOUT_MS = 1000 };

bool many_threads;
static bool progress_disabled; /* waits make no progress for the host MPI */
static bool threads_upgraded;  /* Unisono asked for threads, for its agent; the program did not */
static pthread_once_t once = PTHREAD_ONCE_INIT;

bool messages_forced(void)
{
	const char *transport = getenv("UNISONO_MPI_TRANSPORT");

	return transport && strcmp(transport, "messages") == 0;
}

/* Whether some ranks may be on other hosts, so that an agent thread will call the host MPI. Before
 * MPI_Init only the launcher's environment shows this. */
bool agent_possible(void)
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

/* Whether no agent runs; only for the test that shows that waits serve windows. */
bool agent_disabled(void)
{
	const char *agent = getenv("UNISONO_MPI_AGENT");

	return agent && strcmp(agent, "never") == 0;
}

/* Whether the host MPI lacks MPI_THREAD_MULTIPLE. An agent thread's calls need it. */
bool threads_missing(void)
{
	int provided = MPI_THREAD_SINGLE;

	return PMPI_Query_thread(&provided) || provided < MPI_THREAD_MULTIPLE;
}

static void read_settings(void)
{
	int provided = MPI_THREAD_SINGLE;

	PMPI_Query_thread(&provided);
	many_threads = provided == MPI_THREAD_MULTIPLE && !threads_upgraded;
	/* only for the test that demonstrates the hang without progress */
	const char *progress = getenv("UNISONO_MPI_PROGRESS");
	progress_disabled = progress && strcmp(progress, "never") == 0;
}

/* The level of threads to ask the host for: an agent thread needs the highest. */
int threads_to_request(int required)
{
	if (required < MPI_THREAD_MULTIPLE && agent_possible()) {
		threads_upgraded = true;
		return MPI_THREAD_MULTIPLE;
	}
	return required;
}

void setup(void)
{
	pthread_once(&once, read_settings);
}

/*
 * Makes progress on the host's messages, because a peer may have to receive a message before it makes the
 * call that this rank waits for.
 */
void progress(void)
{
	int found;

	if (UNLIKELY(progress_disabled))
		return;
	/* on MPI_COMM_WORLD, because MPICH does not poll the network for MPI_COMM_SELF */
	PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

void warn_once(const char *words)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;
	int rank = 0;

	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0 && !atomic_flag_test_and_set(&warned))
		fprintf(stderr, "unisono: %s\n", words);
}

/*
 * Waits until the launcher has read what this process has written to standard error, because a launcher that
 * is told to end a job drops what it has not read.
 */
void await_launcher(void)
{
	struct stat file;
	int unread;

	if (fstat(STDERR_FILENO, &file) || !S_ISFIFO(file.st_mode))
		return;
	for (int ms = 0; ms < READ_TIMEOUT_MS && !ioctl(STDERR_FILENO, FIONREAD, &unread) && unread; ms++)
		poll(NULL, 0, 1);
}
