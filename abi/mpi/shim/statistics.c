/*
 * The tables of window operations and wait times (UNISONO_MPI_STATS). In MPI_Finalize the first rank gathers
 * the parts of all ranks and prints the sums. Where ranks cannot gather, each process prints its own part.
 */
#include "shim.h"
#include <limits.h>
#include <stdlib.h>

/* Called at the end of the job, while MPI still works; collective over the served ranks. */
void statistics_gather(void)
{
	MPI_Comm world = agreement_world();
	const unsigned char *own;
	unsigned char *all = NULL;
	int rank, size, length, *lengths, *starts;
	size_t bytes, total = 0;

	if (!unisono_mpi_statistics_wanted())
		return;
	PMPI_Comm_rank(world, &rank);
	own = unisono_mpi_statistics_take(rank, &bytes);
	length = (int)bytes; /* half a megabyte at most */
	PMPI_Comm_size(world, &size);
	lengths = calloc(2 * (size_t)size, sizeof *lengths);
	if (!lengths)
		abort();
	starts = lengths + size;
	PMPI_Allgather(&length, 1, MPI_INT, lengths, 1, MPI_INT, world);
	for (int i = 0; i < size; i++) {
		starts[i] = (int)total;
		total += (size_t)lengths[i];
	}
	/*
	 * from 4,096 ranks on the total may exceed MPI's int counts: the first rank then prints only its own
	 * part
	 */
	if (total > INT_MAX) {
		size = 1;
	} else {
		all = rank == 0 ? malloc(total) : NULL;
		PMPI_Gatherv(own, length, MPI_BYTE, all, lengths, starts, MPI_BYTE, 0, world);
	}
	if (rank == 0)
		unisono_mpi_statistics_print(all ? all : own, lengths, (size_t)size);
	free(all);
	free(lengths);
}

/* Prints this process's part, unless it was gathered. */
void statistics_print_own(const char *why)
{
	int rank = 0, initialized = 0, finalized = 0;

	PMPI_Initialized(&initialized);
	PMPI_Finalized(&finalized);
	if (initialized && !finalized)
		PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	else
		rank = rank_of_launcher();
	unisono_mpi_statistics_alone(rank, why);
}
