/*
 * While a rank waits for a window, its messages still make progress: the peer first receives a message that
 * is too long to be sent without the sender's help, and only then makes the call that the sender waits for.
 */
#include "check.h"

enum { BYTES = 4 << 20 };

int main(int argc, char **argv)
{
	char *message;
	int *memory, value = 3;
	MPI_Win win, second;
	MPI_Request request;
	MPI_Group world, other;

	begin(&argc, &argv);
	if (size < 2) {
		CHECK(!"at least two ranks");
		return end("progress");
	}
	message = malloc(BYTES);
	memset(message, rank, BYTES);
	MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	int peer = 1 - rank;
	MPI_Comm_group(MPI_COMM_WORLD, &world);

	for (int round = 0; round < 4; round++) {
		/* fence */
		MPI_Win_fence(0, win);
		if (rank == 0)
			MPI_Isend(message, BYTES, MPI_CHAR, 1, round, MPI_COMM_WORLD, &request);
		if (rank == 1)
			MPI_Recv(message, BYTES, MPI_CHAR, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Win_fence(0, win);
		if (rank == 0)
			MPI_Wait(&request, MPI_STATUS_IGNORE);

		/* post-start-complete-wait */
		if (rank < 2)
			MPI_Group_incl(world, 1, &peer, &other);
		if (rank == 0) {
			MPI_Isend(message, BYTES, MPI_CHAR, 1, round, MPI_COMM_WORLD, &request);
			MPI_Win_post(other, 0, win);
			MPI_Win_wait(win);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
			CHECK_EQUAL(*memory, 3);
		} else if (rank == 1) {
			MPI_Recv(message, BYTES, MPI_CHAR, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Win_start(other, 0, win);
			MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
			MPI_Win_complete(win);
		}
		if (rank < 2)
			MPI_Group_free(&other);

		/* a lock that the peer holds while it receives */
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 1)
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
		if (rank == 1)
			MPI_Win_flush(0, win);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0) {
			MPI_Isend(message, BYTES, MPI_CHAR, 1, round, MPI_COMM_WORLD, &request);
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
			MPI_Win_unlock(0, win);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		} else if (rank == 1) {
			MPI_Recv(message, BYTES, MPI_CHAR, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Win_unlock(0, win);
		}

		/* a barrier, and the making of a window, which are collective too */
		if (rank == 0)
			MPI_Isend(message, BYTES, MPI_CHAR, 1, round, MPI_COMM_WORLD, &request);
		if (rank == 1)
			MPI_Recv(message, BYTES, MPI_CHAR, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0)
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		if (rank == 0)
			MPI_Isend(message, BYTES, MPI_CHAR, 1, round, MPI_COMM_WORLD, &request);
		if (rank == 1)
			MPI_Recv(message, BYTES, MPI_CHAR, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Win_create(message, BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &second);
		if (rank == 0)
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		MPI_Win_free(&second);
	}
	if (rank == 1)
		CHECK_EQUAL(message[BYTES - 1], 0);
	MPI_Group_free(&world);
	MPI_Win_free(&win);
	free(message);
	return end("progress");
}
