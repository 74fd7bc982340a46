/* Values from the launcher's environment variables. Part of the bridges and of the preload. */
#include "launcher.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

int number_in_environment(const char *name)
{
	const char *text = getenv(name);

	return text ? atoi(text) : 0;
}

/* Returns this process's rank by the launcher's variables. Before MPI_Init, and without MPI_COMM_WORLD, no
 * other source exists. */
int rank_of_launcher(void)
{
	static const char *const ranks[] = { "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID" };
	int rank = 0;

	for (size_t i = 0; i < sizeof ranks / sizeof *ranks && !rank; i++)
		rank = number_in_environment(ranks[i]);
	return rank;
}

/*
 * Returns the MPI that alone can connect this process with its other ranks, "mpich" or "openmpi", because its
 * own mpiexec started the process as one of several ranks; NULL if none or several can. The rule, with its
 * reasons, is that of HostMpi::of_launcher_alone() in ../preload/src/lib.rs.
 */
const char *launchers_mpi(void)
{
	bool hydra = getenv("MPI_LOCALNRANKS");

	if (number_in_environment("OMPI_COMM_WORLD_SIZE") > 1 && !hydra && !getenv("PMI_RANK") &&
	    !getenv("PMI_SIZE"))
		return "openmpi";
	if (number_in_environment("PMI_SIZE") > 1 && hydra && !getenv("OMPI_COMM_WORLD_SIZE") &&
	    !getenv("PMIX_RANK"))
		return "mpich";
	return NULL;
}
