/*
 * The launcher's key-value store, in which the ranks of a job publish texts before MPI begins. After MPI_Init
 * every look-up finds these entries, because the host MPI's own entries go through the same store and
 * MPI_Init waits for them.
 *
 *	PMIx (Open MPI 4): the library that the MPI itself uses. PMIx counts its beginnings and ends, so the
 *		MPI's own calls find it begun.
 *	PMI-1 (the Hydra of MPICH): lines of text on the descriptor PMI_FD. A Hydra answers a second
 *		"cmd=init" like the first (tested: 4.0.2, 5.0.2).
 *
 * Under other launchers, with Open MPI 5, and under a Hydra on several hosts, there is no store.
 */
#include "shim.h"
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 2048, ANSWER_TIMEOUT_MS = 10000 };

static enum { NO_STORE, PMI_1, PMIX } store;

/* The parts of PMIx's ABI that are the same in versions 2 to 5. */
struct pmix_proc {
	char space[256];
	uint32_t rank;
};
struct pmix_value {
	uint16_t type;
	union {
		bool flag;
		const char *text;
		uint64_t room[7];
	} data;
};
struct pmix_info {
	char key[512];
	uint32_t flags;
	struct pmix_value value;
};
enum { PMIX_BOOL = 1, PMIX_STRING = 3, PMIX_GLOBAL = 3 };

static struct pmix_proc pmix_self;
static void *pmix_library;

/* The PMIx library of the system, if the Open MPI in this process has a plugin for it, as version 4 may have.
 * Another copy of PMIx must not connect to the launcher as well. Version 5 is linked to PMIx; there MPI_Init
 * finds no local rank after an earlier PMIx_Init (5.0.11, from two ranks on), so it has no store. */
static void *pmix_open(void)
{
	static const char *const plugins[] = { "openmpi/mca_pmix_ext3x.so",
					       "openmpi/lib/openmpi3/mca_pmix_ext3x.so" };
	char path[PATH_MAX];
	Dl_info mpi;

	if (host_if_any("PMIx_Init"))
		return NULL;
	if (!dladdr(host("PMPI_Init"), &mpi) || !strrchr(mpi.dli_fname, '/'))
		return NULL;
	for (size_t i = 0; i < sizeof plugins / sizeof *plugins; i++) {
		snprintf(path, sizeof path, "%.*s/%s", (int)(strrchr(mpi.dli_fname, '/') - mpi.dli_fname),
			 mpi.dli_fname, plugins[i]);
		if (access(path, R_OK) == 0)
			return dlopen("libpmix.so.2", RTLD_LAZY | RTLD_LOCAL);
	}
	return NULL;
}

static bool pmix_begin(void)
{
	int (*begin)(struct pmix_proc *, struct pmix_info *, size_t);

	if (!getenv("PMIX_NAMESPACE") || !(pmix_library = pmix_open()))
		return false;
	begin = (__typeof__(begin))dlsym(pmix_library, "PMIx_Init");
	if (!begin || begin(&pmix_self, NULL, 0))
		return false;
	store = PMIX;
	return true;
}

static bool pmix_put(const char *key, const char *text)
{
	struct pmix_value value = { .type = PMIX_STRING, .data.text = text };
	int (*put)(uint8_t, const char *, struct pmix_value *) =
		(__typeof__(put))dlsym(pmix_library, "PMIx_Put");
	int (*commit)(void) = (__typeof__(commit))dlsym(pmix_library, "PMIx_Commit");

	return put && commit && !put(PMIX_GLOBAL, key, &value) && !commit();
}

static bool pmix_find(const char *key, int rank, char *text, size_t bytes)
{
	struct pmix_info immediate = { .key = "pmix.immediate",
				       .value = { .type = PMIX_BOOL, .data.flag = true } };
	struct pmix_proc proc = pmix_self;
	struct pmix_value *value = NULL;
	int (*get)(const struct pmix_proc *, const char *, const struct pmix_info *, size_t,
		   struct pmix_value **) = (__typeof__(get))dlsym(pmix_library, "PMIx_Get");

	proc.rank = (uint32_t)rank;
	if (!get || get(&proc, key, &immediate, 1, &value) || !value || value->type != PMIX_STRING)
		return false;
	snprintf(text, bytes, "%s", value->data.text);
	return true; /* the value is never freed: a few words for each rank */
}

static int pmi_descriptor = -1;
static char pmi_name[256];

/* Sends a line and reads the answer's line; NULL if there is none. Signals of the program may interrupt each
 * call; an answer that stays unread would reach the host MPI. */
static const char *pmi_ask(const char *line)
{
	static char answer[LINE_BYTES];
	size_t length = strlen(line), read_bytes = 0;
	ssize_t more;
	struct pollfd ready = { .fd = pmi_descriptor, .events = POLLIN };

	if (TEMP_FAILURE_RETRY(write(pmi_descriptor, line, length)) != (ssize_t)length)
		return NULL;
	while (read_bytes < sizeof answer - 1) {
		if (TEMP_FAILURE_RETRY(poll(&ready, 1, ANSWER_TIMEOUT_MS)) != 1)
			return NULL;
		more = TEMP_FAILURE_RETRY(
			read(pmi_descriptor, answer + read_bytes, sizeof answer - 1 - read_bytes));
		if (more < 1)
			return NULL;
		read_bytes += (size_t)more;
		/* the launcher sends nothing but answers, so nothing follows the line */
		if (answer[read_bytes - 1] == '\n')
			break;
	}
	answer[read_bytes ? read_bytes - 1 : 0] = 0;
	return answer;
}

/* Copies the value of a word "name=value" of an answer; returns whether there is one. */
static bool pmi_word(const char *answer, const char *name, char *value, size_t bytes)
{
	const char *at = answer ? strstr(answer, name) : NULL;

	if (!at)
		return false;
	at += strlen(name);
	snprintf(value, bytes, "%.*s", (int)strcspn(at, " "), at);
	return true;
}

/*
 * Whether the launcher is a Hydra on one host, and the MPI is MPICH. Other launchers may reject the second
 * "cmd=init". On several hosts a look-up does not find what ranks of another host have put (tested: 4.0.2).
 */
static bool pmi_is_hydras(void)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	return getenv("PMI_FD") && getenv("HYDI_CONTROL_FD") && getenv("MPI_LOCALNRANKS") &&
	       number_in_environment("MPI_LOCALNRANKS") == number_in_environment("PMI_SIZE") &&
	       !PMPI_Get_library_version(version, &length) && strncmp(version, "MPICH ", 6) == 0;
}

static bool pmi_begin(void)
{
	if (!pmi_is_hydras())
		return false;
	pmi_descriptor = number_in_environment("PMI_FD");
	if (!pmi_ask("cmd=init pmi_version=1 pmi_subversion=1\n") ||
	    !pmi_word(pmi_ask("cmd=get_my_kvsname\n"), "kvsname=", pmi_name, sizeof pmi_name))
		return false;
	store = PMI_1;
	return true;
}

static bool pmi_put(const char *key, const char *text)
{
	char line[LINE_BYTES], result[16];

	snprintf(line, sizeof line, "cmd=put kvsname=%s key=%s-%d value=%s\n", pmi_name, key,
		 rank_of_launcher(), text);
	return pmi_word(pmi_ask(line), "rc=", result, sizeof result) && strcmp(result, "0") == 0;
}

static bool pmi_find(const char *key, int rank, char *text, size_t bytes)
{
	char line[LINE_BYTES], result[16];
	const char *answer;

	snprintf(line, sizeof line, "cmd=get kvsname=%s key=%s-%d\n", pmi_name, key, rank);
	answer = pmi_ask(line);
	return pmi_word(answer, "rc=", result, sizeof result) && strcmp(result, "0") == 0 &&
	       pmi_word(answer, "value=", text, bytes);
}

/* Called before MPI_Init. Returns whether there is a store. */
bool store_begin(void)
{
	return HOST_OPEN_MPI ? pmix_begin() : pmi_begin();
}

/* Whether there is a store and it shows that all ranks of MPI_COMM_WORLD are on this host; the same answer
 * at all ranks. */
bool store_is_of_one_host(void)
{
	return store == PMI_1;
}

/* Publishes a text without spaces under a key; called before MPI_Init. Returns whether the store has it. */
bool store_put(const char *key, const char *text)
{
	return store == PMIX ? pmix_put(key, text) : store == PMI_1 && pmi_put(key, text);
}

/* Called after MPI_Init, when the MPI itself has connected to the store. */
void store_published(void)
{
	int (*end)(struct pmix_info *, size_t);

	if (store != PMIX)
		return;
	end = (__typeof__(end))dlsym(pmix_library, "PMIx_Finalize");
	if (end)
		end(NULL, 0);
}

/* Copies the text that a rank of MPI_COMM_WORLD published under a key; returns whether there is one.
 * Called in MPI_Init after the host's MPI_Init, and later from one thread only. */
bool store_find(const char *key, int rank, char *text, size_t bytes)
{
	return store == PMIX ? pmix_find(key, rank, text, bytes)
			     : store == PMI_1 && pmi_find(key, rank, text, bytes);
}
