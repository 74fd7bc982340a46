/*
 * MPI_Win_shared_query on windows of all flavors, as in MPI 4.1: memory that the caller cannot access has no
 * bytes and no address. An environment variable says whether the ranks communicate by messages only.
 */
#include "check.h"

/* Whether the part of rank `of` is mapped here; if so, that rank sees the same values. */
static int is_here(MPI_Win win, int of, MPI_Aint bytes, int unit)
{
	MPI_Aint found_bytes = -1;
	int found_unit = -1, *base = (int *)&found_unit;

	CHECK_CLASS(MPI_Win_shared_query(win, of, &found_bytes, &found_unit, &base), MPI_SUCCESS);
	CHECK_EQUAL(found_bytes, base ? bytes : 0);
	if (!base)
		return 0;
	CHECK_EQUAL(found_unit, unit);
	MPI_Win_fence(0, win);
	CHECK_EQUAL(base[1], 1000 + of);
	MPI_Win_fence(0, win);
	return 1;
}

int main(int argc, char **argv)
{
	int created[4], *allocated, unit = 0;
	void *base = &unit;
	MPI_Aint bytes = -1;
	MPI_Win win;

	begin(&argc, &argv);
	MPI_Win_create(created, sizeof created, sizeof *created, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	created[1] = 1000 + rank;
	CHECK(is_here(win, rank, sizeof created, sizeof *created));
	/* the lowest rank whose memory is mapped here: each rank finds its own */
	CHECK_CLASS(MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &base), MPI_SUCCESS);
	CHECK_EQUAL(bytes, sizeof created);
	CHECK_CLASS(MPI_Win_shared_query(win, size, &bytes, &unit, &base), MPI_ERR_RANK);
	MPI_Win_free(&win);

	MPI_Win_allocate((4 + rank) * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &allocated,
			 &win);
	allocated[1] = 1000 + rank;
	CHECK(is_here(win, rank, (4 + rank) * sizeof(int), sizeof(int)));
	CHECK_EQUAL(is_here(win, right(), (4 + right()) * sizeof(int), sizeof(int)),
		    size == 1 || !getenv("UNISONO_MPI_TRANSPORT"));
	MPI_Win_free(&win);

	MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	CHECK_CLASS(MPI_Win_shared_query(win, 0, &bytes, &unit, &base), MPI_ERR_RMA_FLAVOR);
	MPI_Win_free(&win);

	/* a hint of MPI 4.1 is kept */
	MPI_Info info, used;
	char value[MPI_MAX_INFO_VAL] = "";
	int found = 0;
	MPI_Info_create(&info);
	MPI_Info_set(info, "mpi_accumulate_granularity", "8");
	MPI_Win_allocate(8, 1, info, MPI_COMM_WORLD, &allocated, &win);
	MPI_Win_get_info(win, &used);
	MPI_Info_get(used, "mpi_accumulate_granularity", MPI_MAX_INFO_VAL - 1, value, &found);
	CHECK(found && strcmp(value, "8") == 0);
	MPI_Info_free(&used);
	MPI_Info_free(&info);
	MPI_Win_free(&win);
	return end("queries");
}
