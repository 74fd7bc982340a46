/*
 * MPI_Init sets up nothing for the waits of ranks on one host; each rank joins the others at its first wait.
 * This program stands between Unisono and the MPI, and counts two calls of the setup. With an argument, the
 * memory that the ranks join is gone by then: their waits stay the MPI's.
 */
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <dlfcn.h>
#include <unistd.h>

static int communicators_freed, groups_translated;

int PMPI_Comm_free(MPI_Comm *comm)
{
	__typeof__(&PMPI_Comm_free) next = dlsym(RTLD_NEXT, "PMPI_Comm_free");

	communicators_freed++;
	return next(comm);
}

int PMPI_Group_translate_ranks(MPI_Group first, int count, const int ranks[], MPI_Group second, int found[])
{
	__typeof__(&PMPI_Group_translate_ranks) next = dlsym(RTLD_NEXT, "PMPI_Group_translate_ranks");

	groups_translated++;
	return next(first, count, ranks, second, found);
}

/* Closes the memory that this rank offers, as a program does that closes descriptors it does not know. */
static int close_offered(void)
{
	DIR *directory = opendir("/proc/self/fd");
	char path[300], target[64];
	int closed = 0;

	for (struct dirent *entry; (entry = readdir(directory));) {
		snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
		ssize_t length = readlink(path, target, sizeof target - 1);

		target[length > 0 ? length : 0] = 0;
		if (strstr(target, "memfd:unisono"))
			closed += !close(atoi(entry->d_name));
	}
	closedir(directory);
	return closed;
}

int main(int argc, char **argv)
{
	int value = 7, heard = 0;

	begin(&argc, &argv);
	CHECK_EQUAL(communicators_freed, 0);
	CHECK_EQUAL(groups_translated, 0);
	if (argc > 1)
		CHECK_EQUAL(close_offered(), rank == 0);
	MPI_Sendrecv(&value, 1, MPI_INT, right(), 0, &heard, 1, MPI_INT, left(), 0, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	CHECK_EQUAL(heard, 7);
	CHECK_EQUAL(communicators_freed, 0);
	CHECK_EQUAL(groups_translated, 1);
	for (int round = 0; round < 10; round++) {
		MPI_Allreduce(&value, &heard, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		CHECK_EQUAL(heard, 7 * size);
		MPI_Bcast(&heard, 1, MPI_INT, round % size, MPI_COMM_WORLD);
	}
	return end("begins");
}
