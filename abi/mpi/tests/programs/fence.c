/* Fence: assertions, epochs without operations, gets, several windows, operations on the own rank, a halo
 * exchange. */
#include "check.h"

static void patterns(MPI_Win win, int *memory, int n)
{
	int *origin = malloc(n * sizeof(int)), *got = malloc(n * sizeof(int));

	/* a ring of puts with all assertions that are true here */
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < n; i++) {
			origin[i] = 1000000 * round + 1000 * rank + i % 1000;
			memory[i] = -1;
		}
		MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
		MPI_Put(origin, n, MPI_INT, right(), 0, n, MPI_INT, win);
		MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOSUCCEED, win);
		for (int i = 0; i < n; i++)
			CHECK_EQUAL(memory[i], 1000000 * round + 1000 * left() + i % 1000);
	}

	/* only rank 0 communicates, with every rank */
	MPI_Win_fence(0, win);
	if (rank == 0)
		for (int other = 0; other < size; other++)
			MPI_Put(origin, n, MPI_INT, other, 0, n, MPI_INT, win);
	MPI_Win_fence(0, win);
	CHECK_EQUAL(memory[0], 4000000);
	CHECK_EQUAL(memory[n - 1], 4000000 + (n - 1) % 1000);

	/* every rank reads from every rank; fences that separate no operations */
	MPI_Win_fence(0, win);
	MPI_Win_fence(0, win);
	memory[0] = 7 * rank;
	MPI_Win_fence(MPI_MODE_NOPUT, win);
	for (int other = 0; other < size; other++)
		MPI_Get(&got[other % n], 1, MPI_INT, other, 0, 1, MPI_INT, win);
	MPI_Win_fence(MPI_MODE_NOSTORE, win);
	for (int other = 0; other < size && other < n; other++)
		CHECK_EQUAL(got[other], 7 * other);

	/* a chain: each epoch reads the data that the epoch before wrote */
	memory[0] = rank;
	MPI_Win_fence(0, win);
	for (int step = 0; step < size; step++) {
		MPI_Get(&got[0], 1, MPI_INT, right(), 0, 1, MPI_INT, win);
		MPI_Win_fence(0, win);
		MPI_Put(&got[0], 1, MPI_INT, rank, 0, 1, MPI_INT, win);
		MPI_Win_fence(0, win);
		CHECK_EQUAL(memory[0], (rank + step + 1) % size);
	}
	MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
	free(origin);
	free(got);
}

int main(int argc, char **argv)
{
	static const int lengths[] = { 4, 100, 5000, 100000 };
	int *memory, *own;
	MPI_Win win, other;

	begin(&argc, &argv);
	for (int which = 0; which < 4; which++) {
		int n = lengths[which];
		own = malloc(n * sizeof(int));
		MPI_Win_create(own, n * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
		patterns(win, own, n);
		MPI_Win_allocate(n * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
				 &other);
		patterns(other, memory, n);

		/* two windows in an epoch at the same time */
		int value = rank;
		MPI_Win_fence(0, win);
		MPI_Win_fence(0, other);
		MPI_Put(&value, 1, MPI_INT, right(), 1, 1, MPI_INT, win);
		MPI_Put(&value, 1, MPI_INT, left(), 1, 1, MPI_INT, other);
		MPI_Win_fence(0, other);
		MPI_Win_fence(0, win);
		CHECK_EQUAL(own[1], left());
		CHECK_EQUAL(memory[1], right());
		MPI_Win_free(&other);
		MPI_Win_free(&win);
		free(own);
	}
	return end("fence");
}
