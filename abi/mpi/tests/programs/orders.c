/*
 * Counts how often sums of crowded ranks are made with a nonblocking call. Compiled with TOOL, this file is a
 * library that stands between Unisono and the MPI and counts the requests that end in PMPI_Test; otherwise it
 * is the program, which is linked to that library. With an argument the sums must be served by Unisono,
 * otherwise not.
 */
#ifdef TOOL
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>

int seen;

int PMPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
	__typeof__(&PMPI_Test) next = dlsym(RTLD_NEXT, "PMPI_Test");
	int code = next(request, done, status);

	seen += *done;
	return code;
}
#else
#include "check.h"

enum { CALLS = 40, MIN_PASSED = 5 };

extern int seen;

static int asked_by(MPI_Op op, int calls, int count, MPI_Datatype type)
{
	double in[16] = { 0 }, out[16];

	seen = 0;
	for (int i = 0; i < calls; i++)
		MPI_Allreduce(in, out, count, type, op, MPI_COMM_WORLD);
	return seen;
}

static int asked_in(int calls, int count, MPI_Datatype type)
{
	return asked_by(MPI_SUM, calls, count, type);
}

int main(int argc, char **argv)
{
	int served = argc > 1, few, trials;

	begin(&argc, &argv);
	few = size - 2 > MIN_PASSED ? size - 2 : MIN_PASSED; /* calls before the order is tried */
	asked_in(1, 3, MPI_INT); /* the ranks agree that they outnumber their processors */
	CHECK_EQUAL(asked_in(CALLS, 3, MPI_INT), served * CALLS);
	CHECK_EQUAL(asked_in(few, 1, MPI_DOUBLE), 0);
	trials = asked_in(1, 1, MPI_DOUBLE) - served;
	/* an agreement for each trial, a comparison of bits and the agreement on it */
	CHECK(served ? trials >= size - 2 + 2 && trials <= 2 * size + 2 : trials == 0);
	CHECK_EQUAL(asked_in(CALLS, 1, MPI_DOUBLE), served * CALLS);
	/* each length has its own trial, and so does each type */
	CHECK_EQUAL(asked_in(few + CALLS, 4, MPI_DOUBLE), trials + served * CALLS);
	CHECK_EQUAL(asked_in(few + CALLS, 1, MPI_FLOAT), trials + served * CALLS);
	CHECK_EQUAL(asked_by(MPI_MIN, CALLS, 1, MPI_DOUBLE), served * CALLS);
	CHECK_EQUAL(asked_in(CALLS, 1, MPI_DOUBLE), served * CALLS);
	return end("orders");
}
#endif
