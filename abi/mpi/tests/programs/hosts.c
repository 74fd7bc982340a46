/*
 * Ranks of several hosts in one window: each rank writes to, adds to and reads from every rank, on its own
 * and on other hosts, with each synchronization; also a shared window and barriers among the ranks of one
 * host. The argument is the expected number of hosts.
 */
#include "check.h"

int main(int argc, char **argv)
{
	enum { ROUNDS = 50 };
	int here, mine, hosts, *slots, *shared, local, value, sum = 0;
	MPI_Comm together;
	MPI_Group all;
	MPI_Win win, near;

	begin(&argc, &argv);
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &together);
	MPI_Comm_size(together, &here);
	MPI_Comm_rank(together, &local);
	mine = local == 0;
	MPI_Allreduce(&mine, &hosts, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (argc > 1)
		CHECK_EQUAL(hosts, atoi(argv[1]));

	MPI_Win_allocate((size + 1) * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &slots, &win);
	MPI_Comm_group(MPI_COMM_WORLD, &all);
	for (int i = 0; i <= size; i++)
		slots[i] = -1;
	for (int round = 0; round < ROUNDS; round++) {
		value = round * size + rank;
		MPI_Win_fence(0, win);
		for (int to = 0; to < size; to++)
			MPI_Put(&value, 1, MPI_INT, to, rank, 1, MPI_INT, win);
		MPI_Win_fence(0, win);
		for (int from = 0; from < size; from++)
			CHECK_EQUAL(slots[from], round * size + from);

		MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
		value += 1000000;
		MPI_Win_post(all, 0, win);
		MPI_Win_start(all, 0, win);
		for (int to = 0; to < size; to++)
			MPI_Put(&value, 1, MPI_INT, to, rank, 1, MPI_INT, win);
		MPI_Win_complete(win);
		MPI_Win_wait(win);
		for (int from = 0; from < size; from++)
			CHECK_EQUAL(slots[from], 1000000 + round * size + from);
	}

	slots[size] = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	for (int round = 0; round < ROUNDS; round++)
		for (int to = 0; to < size; to++) {
			int one = 1, before = -1;

			MPI_Win_lock(round % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, to, 0, win);
			MPI_Fetch_and_op(&one, &before, MPI_INT, to, size, MPI_SUM, win);
			MPI_Win_unlock(to, win);
			CHECK(before >= round);
		}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	for (int from = 0; from < size; from++) {
		MPI_Get(&value, 1, MPI_INT, from, size, 1, MPI_INT, win);
		MPI_Win_flush(from, win);
		sum += value;
	}
	MPI_Win_unlock_all(win);
	CHECK_EQUAL(sum, ROUNDS * size * size);

	MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, together, &shared, &near);
	*shared = 0;
	for (int round = 0; round < ROUNDS; round++) {
		int *next, unit;
		MPI_Aint bytes;

		MPI_Win_shared_query(near, (local + 1) % here, &bytes, &unit, &next);
		MPI_Win_fence(0, near);
		*next = round;
		MPI_Win_fence(0, near);
		CHECK_EQUAL(*shared, round);
		MPI_Barrier(together);
	}
	MPI_Win_free(&near);
	MPI_Win_free(&win);
	MPI_Group_free(&all);
	MPI_Comm_free(&together);
	return end("hosts");
}
