/*
 * Memory shared by the ranks of a host, for contiguous shared windows. The first rank makes a memfd, and the
 * others open it through its path below /proc, so no name is left behind. When another rank opens the path,
 * the process number or the descriptor may already belong to another process or file. So each rank checks
 * that it opened the first rank's file, that the file has the expected size, and that it is sealed against
 * shrinking (a rank that touches memory behind the end of a file is killed). All calls are collective.
 */
#include "shim.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* A file: the process and descriptor to open it through, and the identity to check. */
struct place {
	long process;
	int descriptor;
	dev_t device;
	ino_t number;
};

static bool is_it(int descriptor, const struct place *place, size_t bytes)
{
	struct stat found;

	return fstat(descriptor, &found) == 0 && found.st_dev == place->device &&
	       found.st_ino == place->number && (size_t)found.st_size == bytes &&
	       (fcntl(descriptor, F_GET_SEALS) & SEALS) == SEALS;
}

/* The first rank's file: a descriptor, or -1. */
static int make(size_t bytes, struct place *place)
{
	int descriptor = memfd_create("unisono-window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct stat made;

	if (descriptor < 0)
		return -1;
	if (ftruncate(descriptor, (off_t)bytes) || fcntl(descriptor, F_ADD_SEALS, SEALS) ||
	    fstat(descriptor, &made)) {
		close(descriptor);
		return -1;
	}
	place->descriptor = descriptor;
	place->device = made.st_dev;
	place->number = made.st_ino;
	return descriptor;
}

/* Maps `bytes` zeroed bytes at each rank of `comm`; NULL at all ranks if any rank fails. */
void *memory_share(MPI_Comm comm, size_t bytes)
{
	struct place place = { .process = getpid(), .descriptor = -1 };
	int rank, mine = -1, good, all;
	char path[64];
	void *memory = MAP_FAILED;

	PMPI_Comm_rank(comm, &rank);
	if (rank == 0)
		mine = make(bytes, &place);
	if (PMPI_Bcast(&place, sizeof place, MPI_BYTE, 0, comm)) {
		if (mine >= 0)
			close(mine);
		return NULL;
	}
	if (rank != 0 && place.descriptor >= 0) {
		snprintf(path, sizeof path, "/proc/%ld/fd/%d", place.process, place.descriptor);
		mine = open(path, O_RDWR | O_CLOEXEC);
	}
	if (mine >= 0 && is_it(mine, &place, bytes))
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mine, 0);
	good = memory != MAP_FAILED;
	/* also keeps the first rank's descriptor open until all ranks have opened the file */
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
