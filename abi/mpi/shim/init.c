/* MPI_Init, MPI_Finalize and MPI_Session_finalize. */
#include "waiting.h"
#include <dlfcn.h>
#include <stdio.h>

/*
 * Profiling tools define MPI_X and call PMPI_X. A preloaded tool stands before this preload and works. A tool
 * that the program is linked to stands behind it, so its MPI_Put is never called; warn about that.
 */
static void warn_about_tools(void)
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
		warn_once(words);
		return;
	}
}

/* Publishes this rank's part before the host's MPI begins; waits for no other rank. */
static void publish(void)
{
	agreement_publish();
	host_ranks_publish();
}

static int after_init(int code)
{
	if (!code) {
		jobs_at_finalize();
		warn_about_tools();
		agreement_begin();
		host_ranks_begin();
	}
	return code;
}

static int init(int *argc, char ***argv, int required, int *provided)
{
	int (*host_init)(int *, char ***, int, int *) =
		(int (*)(int *, char ***, int, int *))host("PMPI_Init_thread");

	publish();
	return after_init(host_init(argc, argv, threads_to_request(required), provided));
}

BOTH(int, Init, (int *argc, char ***argv))
{
	int (*host_init)(int *, char ***) = (int (*)(int *, char ***))host("PMPI_Init");
	int provided;

	if (agent_possible())
		return init(argc, argv, MPI_THREAD_SINGLE, &provided);
	publish();
	return after_init(host_init(argc, argv));
}

BOTH(int, Init_thread, (int *argc, char ***argv, int required, int *provided))
{
	return init(argc, argv, required, provided);
}

BOTH(int, Finalize, (void))
{
	int (*host_finalize)(void) = (int (*)(void))host("PMPI_Finalize");

	jobs_stop_agents();
	host_ranks_end();
	return host_finalize();
}

#if MPI_VERSION >= 4
/* The end of a program without MPI_COMM_WORLD. By now the program has freed all communicators of the
 * session. */
BOTH(int, Session_finalize, (MPI_Session * session))
{
	int (*host_finalize)(MPI_Session *) = (int (*)(MPI_Session *))host("PMPI_Session_finalize");
	int code, begun = 0;

	PMPI_Initialized(&begun);
	code = host_finalize(session);
	if (!begun)
		statistics_print_own("whose session has ended");
	return code;
}
#endif
