/*
 * A rank that waits in a call of the host MPI lets other hosts use its windows meanwhile. The test runs this
 * without the agent, so that the call alone serves them.
 */
#include "check.h"
#include <unistd.h>

enum place { RECV, SENDRECV, WAIT, WAITALL, WAITANY, WAITSOME, PROBE, MPROBE, BARRIER, PLACES };

static const char *const names[] = { "MPI_Recv",    "MPI_Sendrecv", "MPI_Wait",
				     "MPI_Waitall", "MPI_Waitany",  "MPI_Waitsome",
				     "MPI_Probe",   "MPI_Mprobe",   "MPI_Barrier" };

/* Waits for the message of rank 0 that follows its operations. */
static void wait_in(enum place place)
{
	int value = -1, sent = rank, index = -1, count = 0;
	MPI_Message message;
	MPI_Request request;
	MPI_Status status;

	switch (place) {
	case RECV:
		MPI_Recv(&value, 1, MPI_INT, 0, place, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		break;
	case SENDRECV:
		MPI_Sendrecv(&sent, 1, MPI_INT, 0, place, &value, 1, MPI_INT, 0, place, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		break;
	case PROBE:
		MPI_Probe(0, place, MPI_COMM_WORLD, &status);
		MPI_Recv(&value, 1, MPI_INT, 0, place, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		break;
	case MPROBE:
		MPI_Mprobe(0, place, MPI_COMM_WORLD, &message, &status);
		MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
		break;
	case BARRIER:
		MPI_Barrier(MPI_COMM_WORLD);
		return;
	default:
		MPI_Irecv(&value, 1, MPI_INT, 0, place, MPI_COMM_WORLD, &request);
		if (place == WAIT)
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		else if (place == WAITALL)
			MPI_Waitall(1, &request, &status);
		else if (place == WAITANY)
			MPI_Waitany(1, &request, &index, MPI_STATUS_IGNORE);
		else
			MPI_Waitsome(1, &request, &count, &index, &status);
	}
	CHECK_EQUAL(value, place);
}

/* Ends the others' wait. */
static void end_wait_in(enum place place)
{
	int value = place, found;

	if (place == BARRIER)
		MPI_Barrier(MPI_COMM_WORLD);
	for (int other = 1; place != BARRIER && other < size; other++)
		MPI_Send(&value, 1, MPI_INT, other, place, MPI_COMM_WORLD);
	for (int other = 1; place == SENDRECV && other < size; other++)
		MPI_Recv(&found, 1, MPI_INT, other, place, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
	int *memory, found;
	MPI_Win win;

	begin(&argc, &argv);
	MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	for (int place = 0; place < PLACES; place++) {
		if (rank == 0) {
			usleep(10000); /* the others sleep */
			printf("ranks wait in %s\n", names[place]);
		}
		for (int other = 1; rank == 0 && other < size; other++) {
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, other, 0, win);
			MPI_Put(&place, 1, MPI_INT, other, 0, 1, MPI_INT, win);
			MPI_Win_unlock(other, win);
			MPI_Win_lock(MPI_LOCK_SHARED, other, 0, win);
			MPI_Get(&found, 1, MPI_INT, other, 0, 1, MPI_INT, win);
			MPI_Win_unlock(other, win);
			CHECK_EQUAL(found, place);
		}
		if (rank == 0)
			end_wait_in(place);
		else
			wait_in(place);
	}
	MPI_Win_free(&win);
	return end("waits_serve");
}
