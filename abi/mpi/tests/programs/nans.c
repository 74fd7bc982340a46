/*
 * Sums, products, minima and maxima of numbers of which some are NaNs that differ from rank to rank: prints
 * the bits of the results, which are to be the same on the MPI alone.
 */
#include "check.h"
#include <stdint.h>

enum { MAX_COUNT = 4, CALLS = 10 }; /* calls: more than it takes to have a reduction served on 4 ranks */

union numbers {
	uint64_t wide[MAX_COUNT];
	uint32_t narrow[MAX_COUNT];
};

static uint64_t reduced(int count, int wide, MPI_Op op, int round)
{
	MPI_Datatype type = wide ? MPI_DOUBLE : MPI_FLOAT;
	union numbers in = { .wide = { 0 } }, out = { .wide = { 0 } };
	int is_number = (rank + round) % 3 == 0 && round % 2;
	uint64_t sum = 0;

	for (int i = 0; i < count; i++)
		if (wide)
			in.wide[i] = is_number ? 0x3ff0000000000000u : 0x7ff8000000000001u + rank * 16 + i;
		else
			in.narrow[i] = is_number ? 0x3f800000u : 0x7fc00001u + rank * 16 + i;
	if (round % 4 == 3) {
		out = in;
		MPI_Allreduce(MPI_IN_PLACE, &out, count, type, op, MPI_COMM_WORLD);
	} else {
		MPI_Allreduce(&in, &out, count, type, op, MPI_COMM_WORLD);
	}
	for (int i = 0; i < count; i++)
		sum = sum * 1000003 + (wide ? out.wide[i] : out.narrow[i]);
	return sum;
}

int main(int argc, char **argv)
{
	const MPI_Op operations[] = { MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN };

	begin(&argc, &argv);
	for (int kind = 0; kind < 4; kind++)
		for (int which = 0; which < 4; which++) {
			uint64_t sum = 0;

			for (int round = 0; round < CALLS; round++)
				sum = sum * 31 +
				      reduced(kind % 2 ? MAX_COUNT : 1, kind / 2, operations[which], round);
			if (rank == 0)
				printf("bits %d %d %016llx\n", kind, which, (unsigned long long)sum);
		}
	return end("nans");
}
