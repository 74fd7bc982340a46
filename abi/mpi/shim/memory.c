/*
 * Memory that the ranks of a host share, for contiguous shared windows: a memfd of the first rank's, opened
 * by the others through its path below /proc, so that no name is left behind. All calls are collective.
 */
#include "shim.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Maps `bytes` bytes, zeroed, at each rank of `comm`; NULL if that fails anywhere. */
void *memory_share(MPI_Comm comm, size_t bytes)
{
	struct {
		long process;
		int descriptor;
	} where = { getpid(), -1 };
	int rank, mine = -1, good, all;
	char path[64];
	void *memory = MAP_FAILED;

	PMPI_Comm_rank(comm, &rank);
	if (rank == 0) {
		mine = memfd_create("unisono-window", MFD_CLOEXEC);
		if (mine >= 0 && ftruncate(mine, (off_t)bytes) == 0)
			where.descriptor = mine;
	}
	if (PMPI_Bcast(&where, sizeof where, MPI_BYTE, 0, comm))
		return NULL;
	if (rank != 0 && where.descriptor >= 0) {
		snprintf(path, sizeof path, "/proc/%ld/fd/%d", where.process, where.descriptor);
		mine = open(path, O_RDWR | O_CLOEXEC);
	}
	if (mine >= 0)
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mine, 0);
	good = memory != MAP_FAILED;
	/* also keeps the first rank's descriptor open until everybody has come through it */
	if (PMPI_Allreduce(&good, &all, 1, MPI_INT, MPI_LAND, comm))
		all = 0;
	if (mine >= 0)
		close(mine);
	if (good && !all)
		munmap(memory, bytes);
	return all ? memory : NULL;
}

void memory_unshare(void *memory, size_t bytes)
{
	munmap(memory, bytes);
}
