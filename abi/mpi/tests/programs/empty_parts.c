/*
 * Shared and allocated windows of which some or all parts have no bytes: prints what their queries say, which
 * is to be the same on the MPI alone. Also queries the name of MPI_WIN_NULL.
 */
#include "check.h"

static MPI_Aint bytes_of(int mode)
{
	return mode == 0 || (mode == 1 && rank == 0) || (mode == 2 && rank == 1) ? 0 : 16;
}

static void query(MPI_Win win, int mode, int contiguous)
{
	for (int which = MPI_PROC_NULL, i = -1; i < size; which = ++i) {
		MPI_Aint bytes = -5;
		void *base = &base;
		int unit = -5, class = class_of(MPI_Win_shared_query(win, which, &bytes, &unit, &base));

		if (rank == 0)
			printf("part %d of mode %d, contiguous %d: class %d, bytes %d, unit %d, null %d\n", i,
			       mode, contiguous, class, bytes > 0, unit, !base);
	}
}

static void own_base(MPI_Win win, int mode, void *base)
{
	void *found;
	int flag;

	MPI_Win_get_attr(win, MPI_WIN_BASE, &found, &flag);
	CHECK(flag && found == base);
	if (rank == 0 && mode) /* Open MPI allocates alike if all parts are empty */
		printf("part of rank 0 in mode %d: null %d\n", mode, !base);
}

int main(int argc, char **argv)
{
	char name[MPI_MAX_OBJECT_NAME];
	MPI_Info info;
	MPI_Win win;
	void *base;
	int length;

	begin(&argc, &argv);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	length = class_of(MPI_Win_get_name(MPI_WIN_NULL, name, &length));
	if (rank == 0) /* an error before MPI 4.1 */
		printf("part of no window: class %d\n", length);
	MPI_Info_create(&info);
	for (int mode = 0; mode < 3; mode++)
		for (int contiguous = 0; contiguous < 2; contiguous++) {
			MPI_Info_set(info, "alloc_shared_noncontig", contiguous ? "false" : "true");
			MPI_Win_allocate_shared(bytes_of(mode), 4, info, MPI_COMM_WORLD, &base, &win);
			query(win, mode, contiguous);
			own_base(win, mode, base);
			MPI_Win_free(&win);
		}
	MPI_Info_free(&info);
	return end("empty_parts");
}
