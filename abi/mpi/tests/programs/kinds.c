/*
 * A window whose memory may be a device's stays the host MPI's in all its calls, beside a window that Unisono
 * serves. Only one rank gives the hint, as MPI 4.1 permits.
 */
#include "check.h"

int main(int argc, char **argv)
{
	int *memory, *device, value = 7, got = 0, one = 1;
	MPI_Aint *size_of;
	MPI_Win win, other;
	MPI_Info info;
	MPI_Group group;
	char name[MPI_MAX_OBJECT_NAME];
	int length, found;

	begin(&argc, &argv);
	MPI_Info_create(&info);
	if (rank == 0)
		MPI_Info_set(info, "mpi_assert_memory_alloc_kinds", "system,cuda:device");
	MPI_Win_allocate(4 * sizeof(int), sizeof(int), info, MPI_COMM_WORLD, &device, &other);
	MPI_Info_set(info, "mpi_assert_memory_alloc_kinds", "mpi:alloc_mem,system");
	MPI_Win_allocate(4 * sizeof(int), sizeof(int), info, MPI_COMM_WORLD, &memory, &win);
	MPI_Info_free(&info);
	MPI_Win windows[] = { win, other };
	for (int i = 0; i < 2; i++) {
		int *own = i ? device : memory;

		own[0] = own[1] = 0;
		CHECK_CLASS(MPI_Win_fence(0, windows[i]), MPI_SUCCESS);
		CHECK_CLASS(MPI_Put(&value, 1, MPI_INT, right(), 0, 1, MPI_INT, windows[i]), MPI_SUCCESS);
		CHECK_CLASS(MPI_Accumulate(&one, 1, MPI_INT, left(), 1, 1, MPI_INT, MPI_SUM, windows[i]),
			    MPI_SUCCESS);
		CHECK_CLASS(MPI_Win_fence(0, windows[i]), MPI_SUCCESS);
		CHECK_EQUAL(own[0], value);
		CHECK_EQUAL(own[1], 1);
		MPI_Win_fence(MPI_MODE_NOSUCCEED, windows[i]);
		MPI_Win_lock(MPI_LOCK_SHARED, right(), 0, windows[i]);
		CHECK_CLASS(MPI_Get(&got, 1, MPI_INT, right(), 0, 1, MPI_INT, windows[i]), MPI_SUCCESS);
		CHECK_CLASS(MPI_Win_flush(right(), windows[i]), MPI_SUCCESS);
		CHECK_EQUAL(got, value);
		MPI_Win_unlock(right(), windows[i]);
		MPI_Win_get_attr(windows[i], MPI_WIN_SIZE, &size_of, &found);
		CHECK(found && *size_of == 4 * sizeof(int));
		MPI_Win_set_name(windows[i], "named");
		MPI_Win_get_name(windows[i], name, &length);
		CHECK(length == 5 && strcmp(name, "named") == 0);
		MPI_Win_get_group(windows[i], &group);
		MPI_Group_size(group, &length);
		CHECK_EQUAL(length, size);
		MPI_Group_free(&group);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	CHECK_CLASS(MPI_Win_free(&other), MPI_SUCCESS);
	CHECK_CLASS(MPI_Win_free(&win), MPI_SUCCESS);
	CHECK(other == MPI_WIN_NULL && win == MPI_WIN_NULL);
	return end("kinds");
}
