/*
 * Checks that all ranks of MPI_COMM_WORLD run under the same version of 'unisono mpi' with the same options,
 * because each of them decides alone which calls the shim replaces. Each rank publishes both in the
 * launcher's store before MPI begins, and in MPI_Init reads the texts of the next rank: if any two ranks
 * differ, then some rank and the next one differ. A difference ends the job. With --partly a rank that
 * published nothing is taken to run without Unisono.
 */
#include "shim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 512, RANKS_BYTES = 256, END_DELAY_S = 5 };

static const char KEY[] = "unisono";
static bool published, partly;
static char own[TEXT_BYTES];
static enum { UNKNOWN, SAME, OTHER, ABSENT } * states; /* by rank of MPI_COMM_WORLD */
static int world_rank, world_size;
static MPI_Comm served_world;

/* Whether the job has a single rank, as far as the launcher's environment shows. */
static bool is_alone(void)
{
	return number_in_environment("PMI_SIZE") < 2 && number_in_environment("OMPI_COMM_WORLD_SIZE") < 2;
}

/* Called before MPI_Init. */
void agreement_publish(void)
{
	const char *text = getenv("UNISONO_MPI_AGREEMENT");

	if (!text || is_alone())
		return;
	partly = getenv("UNISONO_MPI_PARTLY") != NULL;
	snprintf(own, sizeof own, "%s", text);
	for (char *at = own; (at = strchr(at, ' '));)
		*at = ',';
	published = store_begin() && store_put(KEY, own);
}

static int state_of(int rank)
{
	char text[TEXT_BYTES];

	if (states[rank] == UNKNOWN)
		states[rank] = !store_find(KEY, rank, text, sizeof text) ? ABSENT
			       : strcmp(text, own) == 0			 ? SAME
									 : OTHER;
	return states[rank];
}

/* Writes the ranks of MPI_COMM_WORLD in a state, as "0-2, 5". */
static void list_ranks(int state, char text[RANKS_BYTES])
{
	size_t length = 0;

	text[0] = 0;
	for (int first = 0, last; first < world_size && length + 40 < RANKS_BYTES; first = last + 1) {
		last = first;
		if (state_of(first) != state)
			continue;
		while (last + 1 < world_size && state_of(last + 1) == state)
			last++;
		length +=
			(size_t)snprintf(text + length, RANKS_BYTES - length,
					 last > first ? "%s%d-%d" : "%s%d", length ? ", " : "", first, last);
	}
}

/*
 * Ends the job with one line, which names the ranks. If `first` is set, this rank prints the line; the other
 * ranks give it time to do so.
 */
static _Noreturn void end_job(bool first)
{
	int (*host_abort)(MPI_Comm, int) = (int (*)(MPI_Comm, int))host("PMPI_Abort");
	char ranks[RANKS_BYTES];

	if (!first) {
		sleep(END_DELAY_S);
	} else {
		list_ranks(OTHER, ranks);
		if (*ranks)
			fprintf(stderr,
				"unisono: these ranks run under another version or with other options of "
				"'unisono mpi' than rank %d (%s): %s; start all ranks by the same 'unisono "
				"mpi OPTIONS -- PROGRAM'\n",
				world_rank, own, ranks);
		else {
			list_ranks(ABSENT, ranks);
			fprintf(stderr,
				"unisono: these ranks do not run under 'unisono mpi', as rank %d does: %s; "
				"start all ranks as 'unisono mpi -- PROGRAM', or the others with 'unisono "
				"mpi --partly -- PROGRAM'\n",
				world_rank, ranks);
		}
		fflush(stderr);
		await_launcher();
	}
	host_abort(MPI_COMM_WORLD, 2);
	_exit(2);
}

static bool is_wrong(int rank)
{
	int state = state_of(rank);

	return state == OTHER || (state == ABSENT && !partly);
}

/* Ends the job if this rank and the next one do not agree. */
static void check(void)
{
	if (!is_wrong((world_rank + 1) % world_size))
		return;
	/* the first served rank whose next rank has another state prints the line */
	for (int rank = 0; rank < world_size; rank++) {
		int state = state_of(rank), next = state_of((rank + 1) % world_size);

		if (state != ABSENT && next != state && (next != ABSENT || !partly))
			end_job(rank == world_rank);
	}
	end_job(true);
}

/*
 * Whether the members of a communicator, given as ranks of MPI_COMM_WORLD, are all served; the same answer at
 * all members.
 */
bool agreement_of(const int *ranks, int count)
{
	for (int i = 0; published && partly && i < count; i++)
		if (state_of(ranks[i]) == ABSENT)
			return false;
	return true;
}

/* Makes a communicator of the served ranks of MPI_COMM_WORLD; collective over those alone. */
static void make_served_world(const int *absent, int count)
{
	MPI_Group world, group;

	PMPI_Comm_group(MPI_COMM_WORLD, &world);
	PMPI_Group_excl(world, count, absent, &group);
	if (PMPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &served_world))
		served_world = MPI_COMM_SELF;
	PMPI_Group_free(&group);
	PMPI_Group_free(&world);
}

/* Called in MPI_Init by all served ranks. */
void agreement_begin(void)
{
	int *absent, count = 0;

	served_world = MPI_COMM_WORLD;
	published = published && store_published();
	if (!published)
		return;
	PMPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
	PMPI_Comm_size(MPI_COMM_WORLD, &world_size);
	states = calloc((size_t)world_size, sizeof *states);
	absent = calloc((size_t)world_size, sizeof *absent);
	if (!states || !absent)
		abort();
	states[world_rank] = SAME;
	check();
	for (int rank = 0; partly && rank < world_size; rank++)
		if (state_of(rank) == ABSENT)
			absent[count++] = rank;
	if (count)
		make_served_world(absent, count);
	free(absent);
}

/* Whether --partly was given: some ranks may run without Unisono. */
bool agreement_is_partly(void)
{
	return partly;
}

/* MPI_COMM_WORLD, or with --partly a communicator of its served ranks. */
MPI_Comm agreement_world(void)
{
	return served_world;
}
