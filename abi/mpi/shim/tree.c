/*
 * Barriers of ranks on several hosts along the links of their network ('unisono mpi --tree NETWORK'). The
 * ranks of a host meet in the engine's barrier, before and after its first rank meets the first ranks of the
 * other hosts, in the network's switches where these are programmed, or else by messages between the hosts.
 * If the tree cannot be made, all members learn this together, one of them prints the reason, and the
 * barriers stay the host MPI's.
 */
#include "waiting.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 16 };

struct tree {
	struct job *local;	 /* the ranks of this host; NULL for one rank */
	unisono_mpi_tree *hosts; /* NULL at ranks that are not the first of their host */
	_Atomic uint32_t *lost; /* shared by the ranks of this host: their first rank has lost another host */
};

bool tree_wanted(void)
{
	return getenv("UNISONO_MPI_TREE") != NULL;
}

/* Prints the note for the user about the switches. */
static void print_note(unisono_mpi_tree *tree)
{
	char note[1024];

	if (UNLIKELY(unisono_mpi_tree_note(tree, note, sizeof note)))
		fprintf(stderr, "unisono: %s\n", note);
}

/* Connects the first ranks of the hosts; NULL with the reason in unisono_error_text(). Collective. */
static unisono_mpi_tree *hosts_connect(MPI_Comm leaders, int rank)
{
	const char *options = getenv("UNISONO_MPI_AGREEMENT");
	unsigned char key[KEY_BYTES] = { 0 };
	unisono_mpi_tree *tree = NULL;
	int place, hosts;
	uint8_t *offers;

	PMPI_Comm_rank(leaders, &place);
	PMPI_Comm_size(leaders, &hosts);
	offers = calloc((size_t)hosts + 1, UNISONO_MPI_TREE_OFFER);
	if (!offers)
		abort();
	uint8_t *own = offers + (size_t)hosts * UNISONO_MPI_TREE_OFFER;

	/* without a key or an offer the others find this host's offer empty, and give up as well */
	if ((place != 0 || !unisono_mpi_key(key)) && !PMPI_Bcast(key, sizeof key, MPI_BYTE, 0, leaders))
		tree = unisono_mpi_tree_new(getenv("UNISONO_MPI_TREE"), options ? options : "", rank, place,
					    hosts, key, own);
	if (PMPI_Allgather(own, UNISONO_MPI_TREE_OFFER, MPI_BYTE, offers, UNISONO_MPI_TREE_OFFER, MPI_BYTE,
			   leaders) ||
	    (tree && unisono_mpi_tree_meet(tree, offers, (size_t)hosts, progress))) {
		if (tree)
			unisono_mpi_tree_free(tree);
		tree = NULL;
	}
	free(offers);
	if (tree)
		print_note(tree);
	return tree;
}

/* Prints the reason why the barriers stay the host MPI's, unless a member has printed it before. */
static void give_reason(bool first, const char *words)
{
	static atomic_flag given = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&given) && first)
		fprintf(stderr, "unisono: barriers between hosts are left to the program's MPI: %s\n", words);
}

/* From now on the barriers of the other hosts fail. */
static void close_hosts(struct tree *tree)
{
	if (tree->hosts)
		unisono_mpi_tree_free(tree->hosts);
	tree->hosts = NULL;
}

void tree_release(struct tree *tree)
{
	if (tree->hosts)
		unisono_mpi_tree_leave(tree->hosts);
	if (tree->lost)
		memory_unshare((void *)tree->lost, sizeof *tree->lost);
	if (tree->local)
		job_release(tree->local);
	free(tree);
}

/*
 * Makes the tree of a communicator; collective. `*tree` is NULL if the host MPI keeps the barriers, and
 * `*one_host` says whether that is because all members are on one host. All members get the same answer.
 */
int tree_of(MPI_Comm comm, struct tree **tree, bool *one_host)
{
	int (*host_split)(MPI_Comm, int, int, MPI_Comm *) =
		(int (*)(MPI_Comm, int, int, MPI_Comm *))host("PMPI_Comm_split");
	MPI_Comm together, leaders = MPI_COMM_NULL;
	int rank, size, here, place, failing, first, code;
	char words[512] = "";
	struct tree *made;

	*tree = NULL;
	*one_host = false;
	setup();
	code = PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &together);
	if (code)
		return code;
	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &size);
	PMPI_Comm_rank(together, &place);
	PMPI_Comm_size(together, &here);
	if (here == size) {
		*one_host = true;
		return PMPI_Comm_free(&together);
	}
	made = calloc(1, sizeof *made);
	if (!made)
		abort();
	made->lost = memory_share(together, sizeof *made->lost);
	if (!made->lost)
		snprintf(words, sizeof words, "the ranks of a host cannot share memory");
	code = host_split(comm, place == 0 ? 0 : MPI_UNDEFINED, 0, &leaders);
	if (!code && leaders != MPI_COMM_NULL) {
		made->hosts = hosts_connect(leaders, rank);
		if (!made->hosts)
			snprintf(words, sizeof words, "%s", unisono_error_text());
		PMPI_Comm_free(&leaders);
	}
	failing = *words ? rank : size;
	if (!code)
		code = PMPI_Allreduce(&failing, &first, 1, MPI_INT, MPI_MIN, comm);
	if (!code && first == size && here > 1)
		code = job_of(together, &made->local);
	PMPI_Comm_free(&together);
	if (code || first < size) {
		if (!code)
			give_reason(first == rank, words);
		tree_release(made);
		return code;
	}
	*tree = made;
	return MPI_SUCCESS;
}

/* The barrier among the ranks of this host, if there are several. After an error, `*words` describes it. */
static int local_barrier(struct tree *tree, const char **words)
{
	unisono_status status = tree->local ? job_barrier(tree->local) : UNISONO_STATUS_OK;

	if (LIKELY(!status))
		return MPI_SUCCESS;
	if (status != UNISONO_STATUS_GONE) {
		*words = unisono_error_text();
		return code_of_status(status);
	}
	/* the engine's text has the rank's number among the ranks of this host */
	*words = "a rank of this host is gone; end the job and start it anew";
	return MPI_ERR_OTHER;
}

/* A barrier of the tree. After an error, `*words` describes it, and every later barrier fails, too. */
int tree_barrier(struct tree *tree, const char **words)
{
	const char *after = NULL;
	unisono_status status;
	int code = local_barrier(tree, words), local;

	if (UNLIKELY(code)) {
		close_hosts(tree);
		return code;
	}
	status = tree->hosts ? unisono_mpi_tree_barrier(tree->hosts) : UNISONO_STATUS_OK;
	if (UNLIKELY(status)) {
		*words = unisono_error_text();
		code = code_of_status(status);
		close_hosts(tree);
		atomic_store_explicit(tree->lost, 1, memory_order_relaxed);
	} else if (tree->hosts) {
		print_note(tree->hosts);
	}
	/* the others of this host wait here, and learn of a lost host */
	local = local_barrier(tree, &after);
	if (!code && local) {
		*words = after;
		code = local;
	}
	if (!code && UNLIKELY(atomic_load_explicit(tree->lost, memory_order_relaxed))) {
		*words = "a host of this communicator is gone, as the first rank of this host has found; "
			 "end the job and start it anew";
		code = MPI_ERR_OTHER;
	}
	return code;
}
