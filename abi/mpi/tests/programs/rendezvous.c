/*
 * Rank 1 is in MPI_Recv for a long message of rank 0; rank 0 waits in a one-sided call for rank 1's next
 * step. So rank 0's wait has to make the message progress. `rendezvous WHERE`.
 */
#include "check.h"
#include <unistd.h>

enum { BYTES = 16 << 20 };

int main(int argc, char **argv)
{
	const char *where = argc > 1 ? argv[1] : "fence";
	char *message;
	int *memory, value = 3;
	MPI_Win win;
	MPI_Request request = MPI_REQUEST_NULL;
	MPI_Group world, other;

	begin(&argc, &argv);
	int peer = 1 - rank;
	message = malloc(BYTES);
	memset(message, 1 + rank, BYTES);
	MPI_Win_allocate(sizeof(int) << 16, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &peer, &other);
	for (int i = 0; i < 5; i++)
		MPI_Barrier(MPI_COMM_WORLD);
	if (!strcmp(where, "fence"))
		MPI_Win_fence(0, win);
	if (!strcmp(where, "lock")) {
		if (rank == 1) {
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
			MPI_Put(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, win);
			MPI_Win_flush(1, win);
		}
		MPI_Barrier(MPI_COMM_WORLD);
	}

	if (rank == 0) {
		MPI_Isend(message, BYTES, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &request);
		printf("rank 0 waits\n");
		fflush(stdout);
	} else {
		/* by then rank 0 makes no more calls of the host MPI */
		usleep(300000);
		MPI_Recv(message, BYTES, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}

	if (!strcmp(where, "fence")) {
		MPI_Win_fence(0, win);
	} else if (!strcmp(where, "wait")) {
		if (rank == 0) {
			MPI_Win_post(other, 0, win);
			MPI_Win_wait(win);
		} else {
			MPI_Win_start(other, 0, win);
			MPI_Win_complete(win);
		}
	} else if (!strcmp(where, "complete")) {
		static int many[1 << 16];
		if (rank == 0) {
			MPI_Win_start(other, 0, win);
			MPI_Put(many, 1 << 16, MPI_INT, 1, 0, 1 << 16, MPI_INT, win);
			MPI_Win_complete(win);
		} else {
			MPI_Win_post(other, 0, win);
			MPI_Win_wait(win);
		}
	} else if (!strcmp(where, "lock")) {
		if (rank == 0)
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
		MPI_Win_unlock(1, win);
	} else if (!strcmp(where, "barrier")) {
		MPI_Barrier(MPI_COMM_WORLD);
	} else {
		MPI_Win_free(&win);
	}
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	if (rank == 1)
		CHECK_EQUAL(message[BYTES - 1], 1);
	if (strcmp(where, "free"))
		MPI_Win_free(&win);
	MPI_Group_free(&other);
	MPI_Group_free(&world);
	free(message);
	return end("rendezvous");
}
