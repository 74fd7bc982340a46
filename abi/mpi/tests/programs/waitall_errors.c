/*
 * MPI_Waitall of three requests, the first of which receives a message that is too long: prints the state of
 * the others, which is to be the same on the MPI alone.
 */
#include "check.h"

static char out[6000], in[6000];

static void once(int bytes, int print)
{
	MPI_Request requests[3];
	MPI_Status statuses[3];
	int got = 0, own = rank + 1, code;

	memset(statuses, 0, sizeof statuses);
	for (int i = 0; i < 3; i++)
		statuses[i].MPI_ERROR = -5;
	MPI_Irecv(in, bytes / 2, MPI_BYTE, left(), 1, MPI_COMM_WORLD, &requests[0]);
	MPI_Irecv(&got, 1, MPI_INT, left(), 2, MPI_COMM_WORLD, &requests[2]);
	MPI_Isend(out, bytes, MPI_BYTE, right(), 1, MPI_COMM_WORLD, &requests[1]);
	MPI_Send(&own, 1, MPI_INT, right(), 2, MPI_COMM_WORLD);
	code = MPI_Waitall(3, requests, statuses);
	if (print)
		printf("state with %d bytes: %d; %d %d %d; null %d %d %d; received %d\n", bytes,
		       class_of(code), class_of(statuses[0].MPI_ERROR), class_of(statuses[1].MPI_ERROR),
		       class_of(statuses[2].MPI_ERROR), requests[0] == MPI_REQUEST_NULL,
		       requests[1] == MPI_REQUEST_NULL, requests[2] == MPI_REQUEST_NULL, got);
	for (int i = 0; i < 3; i++)
		MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
	CHECK_EQUAL(got, left() + 1);
	MPI_Barrier(MPI_COMM_WORLD);
}

static int handled[2];

static void handler(MPI_Comm *comm, int *code, ...)
{
	handled[class_of(*code) == MPI_ERR_IN_STATUS]++;
}

int main(int argc, char **argv)
{
	MPI_Errhandler own;

	begin(&argc, &argv);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	for (int bytes = 20; bytes <= 5000; bytes *= 15)
		for (int i = 0; i < 20; i++)
			once(bytes, i == 19 && rank == 0);
	MPI_Comm_create_errhandler(handler, &own);
	for (int self = 0; self < 2; self++) {
		MPI_Comm_set_errhandler(self ? MPI_COMM_SELF : MPI_COMM_WORLD, own);
		once(20, rank == 0);
		if (rank == 0)
			printf("state: the handler got %d and %d calls\n", handled[0], handled[1]);
		MPI_Comm_set_errhandler(self ? MPI_COMM_SELF : MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	}
	MPI_Errhandler_free(&own);
	return end("waitall_errors");
}
