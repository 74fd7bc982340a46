/*
 * Memory shared by the ranks of a host. One rank makes a memfd and publishes its place; the others open it
 * through its path below /proc, so no name is left behind. When another rank opens the path, the process ID
 * or the descriptor may already belong to another process or file. So each rank checks that it opened the
 * right file, that the file has the expected size, and that it is sealed against shrinking (a rank that
 * accesses memory beyond the end of a file is killed).
 */
#include "shim.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/*
 * Makes zeroed memory and writes its place to `place`, as a word without spaces. Returns a descriptor, or -1.
 * Other processes can accept the memory until the descriptor is closed.
 */
int memory_offer(size_t bytes, char place[MEMORY_PLACE_BYTES])
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
	snprintf(place, MEMORY_PLACE_BYTES, "%ld:%d:%llu:%llu", (long)getpid(), descriptor,
		 (unsigned long long)made.st_dev, (unsigned long long)made.st_ino);
	return descriptor;
}

static bool is_at(int descriptor, const char *place)
{
	unsigned long long device, number;
	struct stat found;

	return sscanf(place, "%*d:%*d:%llu:%llu", &device, &number) == 2 && fstat(descriptor, &found) == 0 &&
	       found.st_dev == device && found.st_ino == number;
}

/* Ends an offer. The check is needed because the program may have closed the descriptor and reused its
 * number. */
void memory_withdraw(int descriptor, const char *place)
{
	if (descriptor >= 0 && is_at(descriptor, place))
		close(descriptor);
}

/* Maps memory of `bytes` bytes that a process of this host, perhaps this one, offers; NULL on failure. */
void *memory_accept(const char *place, size_t bytes)
{
	void *memory = MAP_FAILED;
	struct stat found;
	char path[64];
	long process;
	int descriptor;

	if (sscanf(place, "%ld:%d:", &process, &descriptor) != 2)
		return NULL;
	snprintf(path, sizeof path, "/proc/%ld/fd/%d", process, descriptor);
	descriptor = open(path, O_RDWR | O_CLOEXEC);
	if (descriptor < 0)
		return NULL;
	if (is_at(descriptor, place) && fstat(descriptor, &found) == 0 && (size_t)found.st_size == bytes &&
	    (fcntl(descriptor, F_GET_SEALS) & SEALS) == SEALS)
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
	close(descriptor);
	return memory == MAP_FAILED ? NULL : memory;
}

/* Maps `bytes` zeroed bytes at each rank of `comm`; NULL at all ranks if any rank fails. Collective. */
void *memory_share(MPI_Comm comm, size_t bytes)
{
	char place[MEMORY_PLACE_BYTES] = "";
	int rank, offered = -1, good, all;
	void *memory = NULL;

	PMPI_Comm_rank(comm, &rank);
	if (rank == 0)
		offered = memory_offer(bytes, place);
	if (!PMPI_Bcast(place, sizeof place, MPI_BYTE, 0, comm))
		memory = memory_accept(place, bytes);
	good = memory != NULL;
	/* also keeps the descriptor open until all ranks have opened the file */
	if (PMPI_Allreduce(&good, &all, 1, MPI_INT, MPI_LAND, comm))
		all = 0;
	memory_withdraw(offered, place);
	if (good && !all)
		munmap(memory, bytes);
	return all ? memory : NULL;
}

void memory_unshare(void *memory, size_t bytes)
{
	munmap(memory, bytes);
}
