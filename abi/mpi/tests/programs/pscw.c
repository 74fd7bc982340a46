/* Post-start-complete-wait: subsets, uneven groups, test, assertions, targets without operations, late
 * starters. */
#include "check.h"
#include <unistd.h>

static MPI_Group group_of(const int *ranks, int count)
{
	MPI_Group world, group;

	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, count, ranks, &group);
	MPI_Group_free(&world);
	return group;
}

static void window(MPI_Win win, int *memory)
{
	int *others = malloc(size * sizeof(int)), count = 0, value, done;
	int zero = 0;
	MPI_Group all_but_me, root, neighbours;

	for (int other = 0; other < size; other++)
		if (other != rank)
			others[count++] = other;
	all_but_me = group_of(others, count);
	root = group_of(&zero, 1);

	/* all ranks access rank 0, which tests until done */
	for (int round = 0; round < 20; round++) {
		if (rank == 0) {
			for (int i = 0; i < size; i++)
				memory[i] = -1;
			MPI_Win_post(all_but_me, round % 2 ? MPI_MODE_NOSTORE : 0, win);
			do
				MPI_Win_test(win, &done);
			while (!done);
			for (int i = 1; i < size; i++)
				CHECK_EQUAL(memory[i], 100 * round + i);
		} else {
			MPI_Win_start(root, 0, win);
			value = 100 * round + rank;
			MPI_Put(&value, 1, MPI_INT, 0, rank, 1, MPI_INT, win);
			MPI_Win_complete(win);
		}
	}

	/* rank 0 accesses all ranks, but with operations only on odd ranks */
	if (rank == 0) {
		MPI_Win_start(all_but_me, 0, win);
		value = 4711;
		for (int other = 1; other < size; other += 2)
			MPI_Put(&value, 1, MPI_INT, other, 0, 1, MPI_INT, win);
		MPI_Win_complete(win);
	} else {
		memory[0] = 0;
		MPI_Win_post(root, MPI_MODE_NOSTORE, win);
		MPI_Win_wait(win);
		CHECK_EQUAL(memory[0], rank % 2 ? 4711 : 0);
	}

	/* exposure to both neighbors and access to both at the same time; gets; a late post */
	int sides[2] = { left(), right() };
	neighbours = group_of(sides, sides[0] == sides[1] ? 1 : 2);
	for (int round = 0; round < 10; round++) {
		int got = -1;

		memory[2] = 1000 * round + rank;
		if (rank == 0 && round == 5)
			usleep(20000);
		MPI_Win_post(neighbours, 0, win);
		MPI_Win_start(neighbours, 0, win);
		MPI_Get(&got, 1, MPI_INT, left(), 2, 1, MPI_INT, win);
		MPI_Win_complete(win);
		MPI_Win_wait(win);
		CHECK_EQUAL(got, 1000 * round + left());
	}

	/* the program itself ensures the order */
	if (rank == 0) {
		MPI_Win_post(all_but_me, MPI_MODE_NOCHECK, win);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_wait(win);
		for (int i = 1; i < size; i++)
			CHECK_EQUAL(memory[i], 5000 + i);
	} else {
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_start(root, MPI_MODE_NOCHECK, win);
		value = 5000 + rank;
		MPI_Put(&value, 1, MPI_INT, 0, rank, 1, MPI_INT, win);
		MPI_Win_complete(win);
	}

	/* empty groups wait for no rank */
	MPI_Win_post(MPI_GROUP_EMPTY, 0, win);
	MPI_Win_wait(win);
	MPI_Win_start(MPI_GROUP_EMPTY, 0, win);
	MPI_Win_complete(win);

	MPI_Group_free(&neighbours);
	MPI_Group_free(&root);
	MPI_Group_free(&all_but_me);
	free(others);
}

int main(int argc, char **argv)
{
	int *memory, *own;
	MPI_Win win;

	begin(&argc, &argv);
	int slots = size + 14;
	own = calloc(slots, sizeof(int));
	MPI_Win_create(own, slots * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	window(win, own);
	MPI_Win_free(&win);
	free(own);
	MPI_Win_allocate(slots * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	window(win, memory);
	MPI_Win_free(&win);
	return end("pscw");
}
