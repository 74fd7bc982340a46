/*
 * The launcher's key-value store, in which the ranks of a job publish texts before MPI begins. After MPI_Init
 * every look-up finds these entries, because the host MPI's own entries go through the same store and
 * MPI_Init waits for them.
 *
 *	PMIx (Open MPI): the MPI's own connection. In MPI_Init the MPI publishes its entries by PMIx_Commit().
 *		This call arrives here (entry/names.h), and the rank's text is put before it. A PMIx_Init()
 *		before the MPI's would not do: Open MPI 5 then makes none, and does not learn its rank.
 *	PMI-1 (the Hydra of MPICH): lines of text on the descriptor PMI_FD. A Hydra answers a second
 *		"cmd=init" like the first (tested: 4.0.2, 5.0.2).
 *
 * Under other launchers, and under a Hydra on several hosts, there is no store.
 */
#include "shim.h"
#include <errno.h>
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
static const char *pmix_key, *pmix_text; /* what this rank publishes */
/* PMIx_Get() of the MPI's library; NULL: this rank has published nothing */
static int (*pmix_get)(const struct pmix_proc *, const char *, const struct pmix_info *, size_t,
		       struct pmix_value **);

/* Without Open MPI's default settings an entry may stay at its rank, which would look like a rank that has
 * published nothing. */
static bool pmix_begin(void)
{
	const char *space = getenv("PMIX_NAMESPACE");

	if (!space || getenv("OMPI_MCA_pmix_base_async_modex") || getenv("OMPI_MCA_pmix_base_collect_data"))
		return false;
	snprintf(pmix_self.space, sizeof pmix_self.space, "%s", space);
	store = PMIX;
	return true;
}

/* The MPI publishes the text later, in MPI_Init. */
static bool pmix_put(const char *key, const char *text)
{
	pmix_key = key;
	pmix_text = text;
	return true;
}

/* A function of the PMIx that the code at `caller` calls; `prefix` comes before its name there. */
static void *pmix_function(const char *prefix, const char *name, void *caller)
{
	char whole[64];

	snprintf(whole, sizeof whole, "%s%s", prefix, name);
	return host_for(whole, caller);
}

/* A call of PMIx_Commit() by the MPI: in MPI_Init, or later when it connects to other jobs. */
static int pmix_commit(const char *prefix, void *caller)
{
	struct pmix_value value = { .type = PMIX_STRING, .data.text = pmix_text };
	int (*commit)(void) = (__typeof__(commit))pmix_function(prefix, "PMIx_Commit", caller);
	int (*put)(uint8_t, const char *, struct pmix_value *);

	if (pmix_key && !pmix_get) {
		put = (__typeof__(put))pmix_function(prefix, "PMIx_Put", caller);
		if (!put(PMIX_GLOBAL, pmix_key, &value))
			pmix_get = (__typeof__(pmix_get))pmix_function(prefix, "PMIx_Get", caller);
	}
	return commit();
}

PUBLIC int PMIx_Commit(void)
{
	return pmix_commit("", __builtin_return_address(0));
}

/* Open MPI 4 and 3 that contain a PMIx of their own. */
PUBLIC int OPAL_MCA_PMIX3X_PMIx_Commit(void)
{
	return pmix_commit("OPAL_MCA_PMIX3X_", __builtin_return_address(0));
}

PUBLIC int OPAL_MCA_PMIX2X_PMIx_Commit(void)
{
	return pmix_commit("OPAL_MCA_PMIX2X_", __builtin_return_address(0));
}

static bool pmix_find(const char *key, int rank, char *text, size_t bytes)
{
	/* without this PMIx would wait until the rank publishes such a key */
	struct pmix_info immediate = { .key = "pmix.immediate",
				       .value = { .type = PMIX_BOOL, .data.flag = true } };
	struct pmix_proc proc = pmix_self;
	struct pmix_value *value = NULL;

	proc.rank = (uint32_t)rank;
	if (!pmix_get || pmix_get(&proc, key, &immediate, 1, &value) || !value || value->type != PMIX_STRING)
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

/* Publishes a text without spaces under a key; called before MPI_Init, at most once with PMIx. Both have to
 * stay valid. Returns whether the store takes the text. */
bool store_put(const char *key, const char *text)
{
	return store == PMIX ? pmix_put(key, text) : store == PMI_1 && pmi_put(key, text);
}

/* Called after MPI_Init. Returns whether the store has what was put: not if the MPI's PMIx cannot be reached,
 * because it is bound inside a library of the MPI. */
bool store_published(void)
{
	return store != PMIX || pmix_get;
}

/* Copies the text that a rank of MPI_COMM_WORLD published under a key; returns whether there is one.
 * Called in MPI_Init after the host's MPI_Init, and later from one thread only. */
bool store_find(const char *key, int rank, char *text, size_t bytes)
{
	return store == PMIX ? pmix_find(key, rank, text, bytes)
			     : store == PMI_1 && pmi_find(key, rank, text, bytes);
}
