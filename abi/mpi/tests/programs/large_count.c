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
