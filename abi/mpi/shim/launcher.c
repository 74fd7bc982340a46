/* Values from the launcher's environment variables. Part of the bridges and of the preload. */
#include "launcher.h"
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
