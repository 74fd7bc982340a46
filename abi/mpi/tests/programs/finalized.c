/* State that is left at MPI_Finalize: communicators with windows' jobs, and a callback of MPI_COMM_SELF
 * that still uses a window and frees it. */
#include "check.h"

static MPI_Win late;
static int *memory, reached;

static int last_words(MPI_Comm comm, int key, void *value, void *extra)
{
	int mine = 40 + rank, *flag = value;

	(void)comm;
	(void)key;
	(void)extra;
	MPI_Win_fence(0, late);
	MPI_Put(&mine, 1, MPI_INT, right(), 0, 1, MPI_INT, late);
	MPI_Win_fence(MPI_MODE_NOSUCCEED, late);
	*flag = memory[0] == 40 + left();
	for (int i = 0; i < 6; i++)
		MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_free(&late);
	return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
	int key, *own, finalized = 0;
	MPI_Comm comm;
	MPI_Win left_open;

	begin(&argc, &argv);
	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, last_words, &key, NULL);
	MPI_Comm_set_attr(MPI_COMM_SELF, key, &reached);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	for (int i = 0; i < 6; i++)
		MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_allocate(16, 4, MPI_INFO_NULL, comm, &memory, &late);
	if (argc > 1) {
		MPI_Win_allocate(16, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &left_open);
		MPI_Win_set_name(left_open, "left open");
		MPI_Win_fence(0, left_open);
		MPI_Put(&rank, 1, MPI_INT, right(), 0, 1, MPI_INT, left_open);
		MPI_Win_fence(0, left_open);
	}
	int code = failures;
	MPI_Finalize();
	MPI_Finalized(&finalized);
	if (!finalized || !reached || code)
		return 1;
	if (rank == 0)
		printf("ok finalized\n");
	return 0;
}
