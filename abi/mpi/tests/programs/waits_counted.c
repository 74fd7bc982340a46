/* A known number of waits of each kind at each rank, for comparison with the statistics. */
#include "check.h"

int main(int argc, char **argv)
{
	int out = 1, in = 0, sum;
	MPI_Request requests[2];

	begin(&argc, &argv);
	for (int i = 0; i < 200; i++) {
		MPI_Irecv(&in, 1, MPI_INT, left(), 0, MPI_COMM_WORLD, &requests[0]);
		MPI_Isend(&out, 1, MPI_INT, right(), 0, MPI_COMM_WORLD, &requests[1]);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	}
	for (int i = 0; i < 30; i++) {
		MPI_Isend(&out, 1, MPI_INT, right(), 0, MPI_COMM_WORLD, &requests[0]);
		MPI_Recv(&in, 1, MPI_INT, left(), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	}
	for (int i = 0; i < 20; i++) {
		MPI_Bcast(&out, 1, MPI_INT, i % size, MPI_COMM_WORLD);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	for (int i = 0; i < 10; i++)
		MPI_Allreduce(&out, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	CHECK_EQUAL(sum, size);
	CHECK_EQUAL(in, 1);
	return end("waits_counted");
}
