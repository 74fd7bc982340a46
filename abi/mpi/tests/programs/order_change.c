/*
 * Sums of floating-point numbers have the bits of the MPI alone, whichever collectives precede them on their
 * communicator: MPICH 5 adds in another order from the fifth call on. Rank 0 prints a line of bits
 * for each kind and number of preceding calls, so that two runs can be compared.
 */
#include "check.h"
#include <math.h>
#include <stdint.h>

enum { SUMS = 8, COUNT = 3, MAX_BEFORE = 6 };
enum kind { ALLREDUCE, REDUCE, BCAST, BARRIER, PLACE, MIXED, KINDS };

/* Numbers of different magnitude whose sums are rounded, so that the order of additions shows. */
static double number(int place, int round)
{
	uint64_t state = (uint64_t)rank * 1000003 + (uint64_t)place * 10007 + (uint64_t)round;

	state = (state ^ 0x5bf03635) * 0x9e3779b97f4a7c15u;
	state ^= state >> 29;
	return ldexp((double)(int64_t)state, -(int)(state % 13));
}

static void before(enum kind kind, int call, MPI_Comm comm)
{
	int own = rank + call, all = -1;
	struct {
		double value;
		int rank;
	} part = { number(call, 0), rank }, least;

	switch (kind == MIXED ? (enum kind)(call % MIXED) : kind) {
	case ALLREDUCE:
		MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_SUM, comm);
		CHECK_EQUAL(all, size * (size - 1) / 2 + size * call);
		break;
	case REDUCE:
		MPI_Reduce(&own, &all, 1, MPI_INT, MPI_MAX, 0, comm);
		if (rank == 0)
			CHECK_EQUAL(all, size - 1 + call);
		break;
	case BCAST:
		MPI_Bcast(&own, 1, MPI_INT, 0, comm);
		CHECK_EQUAL(own, call);
		break;
	case BARRIER:
		MPI_Barrier(comm);
		break;
	default:
		/* left to the MPI, which counts it */
		MPI_Allreduce(&part, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, comm);
	}
}

static uint64_t sums(MPI_Comm comm)
{
	uint64_t hash = 14695981039346656037u;

	for (int round = 0; round < SUMS; round++) {
		double in[COUNT], out[2][COUNT];
		const unsigned char *at = (const unsigned char *)out;

		for (int i = 0; i < COUNT; i++)
			in[i] = number(i, round);
		MPI_Allreduce(in, out[0], COUNT, MPI_DOUBLE, MPI_SUM, comm);
		memcpy(out[1], out[0], sizeof out[1]);
		MPI_Reduce(in, out[1], COUNT, MPI_DOUBLE, MPI_SUM, 0, comm);
		for (size_t i = 0; i < sizeof out; i++)
			hash = (hash ^ at[i]) * 1099511628211u;
	}
	return hash;
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	for (enum kind kind = 0; kind < KINDS; kind++)
		for (int count = 0; count <= MAX_BEFORE; count += 2) {
			uint64_t hash;
			MPI_Comm comm;

			MPI_Comm_dup(MPI_COMM_WORLD, &comm);
			for (int call = 0; call < count; call++)
				before(kind, call, comm);
			hash = sums(comm);
			if (rank == 0)
				printf("bits kind %d after %d: %016llx\n", kind, count,
				       (unsigned long long)hash);
			MPI_Comm_free(&comm);
		}
	return end("order_change");
}
