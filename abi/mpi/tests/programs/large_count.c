/* The forms with MPI_Count, where the MPI has them. */
#include "check.h"

#if MPI_VERSION >= 4
enum { CELLS = 200 };
static int *cells;
static MPI_Win field;

/* Puts and adds `count` elements of a type, and compares with MPI's own message to itself. */
static void moved(MPI_Datatype type, MPI_Count count)
{
	static int origin[CELLS], expected[CELLS];

	MPI_Type_commit(&type);
	for (int i = 0; i < CELLS; i++) {
		origin[i] = 1000 + i;
		expected[i] = cells[i] = -1;
	}
	MPI_Sendrecv_c(origin, count, type, 0, 0, expected, count, type, 0, 0, MPI_COMM_SELF,
		       MPI_STATUS_IGNORE);
	MPI_Win_fence(0, field);
	MPI_Put_c(origin, count, type, right(), 0, count, type, field);
	MPI_Win_fence(0, field);
	CHECK(memcmp(cells, expected, sizeof expected) == 0);
	MPI_Win_fence(0, field);
	MPI_Accumulate_c(origin, count, type, right(), 0, count, type, MPI_SUM, field);
	MPI_Win_fence(0, field);
	for (int i = 0; i < CELLS; i++)
		CHECK_EQUAL(cells[i], expected[i] == -1 ? -1 : 2 * expected[i]);
	MPI_Type_free(&type);
}

/* Every constructor with large counts. */
static void constructors(void)
{
	MPI_Count lengths[] = { 1, 3, 0, 2 }, places[] = { 20, 0, 7, 9 }, bytes[] = { 80, 0, 28, 36 };
	MPI_Count sizes[] = { 6, 8 }, part[] = { 2, 3 }, from[] = { 1, 4 };
	MPI_Datatype type, inner, members[] = { MPI_INT, MPI_INT, MPI_INT, MPI_INT };

	MPI_Win_allocate_c(CELLS * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &cells, &field);
	MPI_Type_contiguous_c(7, MPI_INT, &type);
	moved(type, 3);
	MPI_Type_vector_c(5, 2, 4, MPI_INT, &type);
	moved(type, 2);
	MPI_Type_create_hvector_c(4, 3, 40, MPI_INT, &type);
	moved(type, 1);
	MPI_Type_indexed_c(4, lengths, places, MPI_INT, &type);
	moved(type, 2);
	MPI_Type_create_hindexed_c(4, lengths, bytes, MPI_INT, &type);
	moved(type, 2);
	MPI_Type_create_indexed_block_c(2, 2, places, MPI_INT, &type);
	moved(type, 2);
	MPI_Type_create_hindexed_block_c(2, 2, bytes, MPI_INT, &type);
	moved(type, 2);
	MPI_Type_create_struct_c(4, lengths, bytes, members, &type);
	moved(type, 2);
	MPI_Type_create_subarray_c(2, sizes, part, from, MPI_ORDER_C, MPI_INT, &type);
	moved(type, 1);
	MPI_Type_create_subarray_c(2, sizes, part, from, MPI_ORDER_FORTRAN, MPI_INT, &type);
	moved(type, 1);
	MPI_Type_vector_c(5, 1, 4, MPI_INT, &inner);
	MPI_Type_create_resized_c(inner, 0, sizeof(int), &type);
	MPI_Type_free(&inner);
	moved(type, 4);
	MPI_Win_free(&field);
}

/* Messages and collectives whose counts are large numbers in type only. */
static void messages(void)
{
	MPI_Count counts[64], ones[64];
	MPI_Aint places[64], bytes[64];
	MPI_Datatype types[64];
	long out[64], in[64], sum[2], two[2] = { rank, 2 * rank };
	MPI_Request request;

	if (size > 64)
		return;
	for (int i = 0; i < size; i++) {
		counts[i] = ones[i] = 1;
		places[i] = size - 1 - i;
		bytes[i] = (MPI_Aint)sizeof(long) * i;
		types[i] = MPI_LONG;
	}
	for (int i = 0; i < 64; i++)
		out[i] = 100 * rank + i;
	MPI_Isend_c(out, 1, MPI_LONG, right(), 1, MPI_COMM_WORLD, &request);
	MPI_Recv_c(in, 1, MPI_LONG, left(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	CHECK_EQUAL(in[0], 100 * left());
	MPI_Sendrecv_c(out, 2, MPI_LONG, left(), 2, in, 2, MPI_LONG, right(), 2, MPI_COMM_WORLD,
		       MPI_STATUS_IGNORE);
	CHECK_EQUAL(in[1], 100 * right() + 1);
	if (size > 1 && rank == 0)
		MPI_Ssend_c(out, 1, MPI_LONG, 1, 3, MPI_COMM_WORLD);
	if (rank == 1)
		MPI_Recv_c(in, 1, MPI_LONG, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);

	in[0] = rank == size - 1 ? 7 : 0;
	MPI_Bcast_c(in, 1, MPI_LONG, size - 1, MPI_COMM_WORLD);
	CHECK_EQUAL(in[0], 7);
	MPI_Allreduce_c(two, sum, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	CHECK_EQUAL(sum[1], (long)size * (size - 1));
	MPI_Reduce_scatter_c(out, in, counts, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
	CHECK_EQUAL(in[0], 100 * (size - 1) + rank);
	MPI_Gatherv_c(&out[1], 1, MPI_LONG, in, rank ? NULL : counts, rank ? NULL : places, MPI_LONG, 0,
		      MPI_COMM_WORLD);
	for (int i = 0; rank == 0 && i < size; i++)
		CHECK_EQUAL(in[size - 1 - i], 100 * i + 1);
	MPI_Scatterv_c(out, rank ? NULL : counts, rank ? NULL : places, MPI_LONG, in, 1, MPI_LONG, 0,
		       MPI_COMM_WORLD);
	CHECK_EQUAL(in[0], size - 1 - rank);
	MPI_Allgatherv_c(out, 1, MPI_LONG, in, counts, places, MPI_LONG, MPI_COMM_WORLD);
	CHECK_EQUAL(in[0], 100 * (size - 1));
	MPI_Alltoallv_c(out, counts, places, MPI_LONG, in, ones, places, MPI_LONG, MPI_COMM_WORLD);
	CHECK_EQUAL(in[size - 1], size - 1 - rank);
	MPI_Alltoallw_c(out, counts, bytes, types, in, ones, bytes, types, MPI_COMM_WORLD);
	CHECK_EQUAL(in[size - 1], 100 * (size - 1) + rank);
	MPI_Ialltoall_c(out, 1, MPI_LONG, in, 1, MPI_LONG, MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	CHECK_EQUAL(in[size - 1], 100 * (size - 1) + rank);
}
#endif

int main(int argc, char **argv)
{
	begin(&argc, &argv);
#if MPI_VERSION >= 4
	long *memory, origin[8], got[8], *shared;
	int zero = 0;
	MPI_Win win;
	MPI_Request request;
	MPI_Aint bytes, unit;

	for (int i = 0; i < 20; i++)
		messages();
	for (int i = 0; i < 8; i++)
		origin[i] = 10 * rank + i;
	MPI_Win_allocate_c(sizeof origin, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	memset(memory, 0, sizeof origin);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	MPI_Put_c(origin, 4, MPI_LONG, right(), 0, 4, MPI_LONG, win);
	MPI_Accumulate_c(origin + 4, 2, MPI_LONG, right(), 4, 2, MPI_LONG, MPI_SUM, win);
	MPI_Get_accumulate_c(origin + 6, 1, MPI_LONG, got, 1, MPI_LONG, right(), 6, 1, MPI_LONG, MPI_SUM,
			     win);
	MPI_Rput_c(origin + 7, 1, MPI_LONG, right(), 7, 1, MPI_LONG, win, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Win_flush_all(win);
	MPI_Get_c(got, 8, MPI_LONG, right(), 0, 8, MPI_LONG, win);
	MPI_Win_flush(right(), win);
	CHECK(memcmp(got, origin, sizeof got) == 0);
	MPI_Rget_c(got, 8, MPI_LONG, right(), 0, 8, MPI_LONG, win, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Raccumulate_c(origin, 1, MPI_LONG, right(), 0, 1, MPI_LONG, MPI_SUM, win, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Rget_accumulate_c(NULL, 0, MPI_LONG, got, 1, MPI_LONG, right(), 1, 1, MPI_LONG, MPI_NO_OP, win,
			      &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	CHECK_EQUAL(got[0], origin[1]);
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);

	MPI_Win_create_c(origin, sizeof origin, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_fence(0, win);
	MPI_Win_fence(0, win);
	MPI_Win_free(&win);

	constructors();

	MPI_Comm host;
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
	MPI_Win_allocate_shared_c(sizeof(long), sizeof(long), MPI_INFO_NULL, host, &memory, &win);
	MPI_Win_shared_query_c(win, zero, &bytes, &unit, &shared);
	CHECK_EQUAL(bytes, sizeof(long));
	CHECK_EQUAL(unit, sizeof(long));
	MPI_Win_free(&win);
	MPI_Comm_free(&host);
#endif
	return end("large_count");
}
