/*
 * Counts how often sums of crowded ranks use the MPI's MPI_Iallreduce: this program stands between Unisono
 * and the MPI. With an argument the sums must be served by Unisono, otherwise not.
 */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>

enum { CALLS = 40 };

static int seen;

int PMPI_Iallreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
		    MPI_Request *request)
{
	__typeof__(&PMPI_Iallreduce) next = dlsym(RTLD_NEXT, "PMPI_Iallreduce");

	seen++;
	return next(in, out, count, type, op, comm, request);
}

static int asked_in(int calls, int count, MPI_Datatype type)
{
	double in[16] = { 0 }, out[16];

	seen = 0;
	for (int i = 0; i < calls; i++)
		MPI_Allreduce(in, out, count, type, MPI_SUM, MPI_COMM_WORLD);
	return seen;
}

int main(int argc, char **argv)
{
	int served = argc > 1, few, trials;

	begin(&argc, &argv);
	few = size - 2; /* calls before the order is tried */
	trials = size * (size - 1) / 2 + 1;
	CHECK_EQUAL(asked_in(CALLS, 3, MPI_INT), served * CALLS);
	CHECK_EQUAL(asked_in(few, 1, MPI_DOUBLE), 0);
	CHECK_EQUAL(asked_in(1, 1, MPI_DOUBLE), served * (trials + 1));
	CHECK_EQUAL(asked_in(CALLS, 1, MPI_DOUBLE), served * CALLS);
	/* each length has its own trial, and so does each type */
	CHECK_EQUAL(asked_in(few + CALLS, 4, MPI_DOUBLE), served * (trials + CALLS));
	CHECK_EQUAL(asked_in(few + CALLS, 1, MPI_FLOAT), served * (trials + CALLS));
	return end("orders");
}
