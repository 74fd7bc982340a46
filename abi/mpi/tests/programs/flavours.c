/* Windows of every flavor: their attributes, and one put under each synchronization. */
#include "check.h"

static void says(MPI_Win win, void *base, MPI_Aint bytes, int unit, int flavour)
{
	void *value;
	int found, given, names;
	MPI_Group group;

	MPI_Win_get_attr(win, MPI_WIN_BASE, &value, &found);
	CHECK(found && value == base);
	MPI_Win_get_attr(win, MPI_WIN_SIZE, &value, &found);
	CHECK(found);
	CHECK_EQUAL(*(MPI_Aint *)value, bytes);
	MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &value, &found);
	CHECK(found);
	CHECK_EQUAL(*(int *)value, unit);
	MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &value, &found);
	CHECK(found);
	CHECK_EQUAL(*(int *)value, flavour);
	MPI_Win_get_attr(win, MPI_WIN_MODEL, &value, &found);
	CHECK(found && (*(int *)value == MPI_WIN_UNIFIED || *(int *)value == MPI_WIN_SEPARATE));
	MPI_Win_get_group(win, &group);
	MPI_Group_size(group, &given);
	MPI_Group_rank(group, &names);
	CHECK_EQUAL(given, size);
	CHECK_EQUAL(names, rank);
	MPI_Group_free(&group);
}

/* Every rank puts its rank into slot 0 of its right neighbor; `where` is the neighbor's displacement. */
static void neighbours(MPI_Win win, int *memory, const MPI_Aint *where)
{
	int value, to = right(), from = left();
	MPI_Group world, before, after;

	memory[0] = -1;
	MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
	value = 100 + rank;
	MPI_Put(&value, 1, MPI_INT, to, where[to], 1, MPI_INT, win);
	MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
	CHECK_EQUAL(memory[0], 100 + from);

	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &from, &before);
	MPI_Group_incl(world, 1, &to, &after);
	MPI_Win_post(before, 0, win);
	MPI_Win_start(after, 0, win);
	value = 200 + rank;
	MPI_Put(&value, 1, MPI_INT, to, where[to], 1, MPI_INT, win);
	MPI_Win_complete(win);
	MPI_Win_wait(win);
	CHECK_EQUAL(memory[0], 200 + from);
	MPI_Group_free(&before);
	MPI_Group_free(&after);
	MPI_Group_free(&world);

	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, win);
	value = 300 + rank;
	MPI_Put(&value, 1, MPI_INT, to, where[to], 1, MPI_INT, win);
	MPI_Win_unlock(to, win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	CHECK_EQUAL(memory[0], 300 + from);
	MPI_Win_unlock(rank, win);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Memory that was attached in two parts is accessed as one. */
static void adjacent(void)
{
	static int memory[32], got[16];
	MPI_Aint there, own;
	MPI_Win win;

	MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_attach(win, memory + 16, 16 * sizeof(int));
	MPI_Win_attach(win, memory, 16 * sizeof(int));
	for (int i = 0; i < 32; i++)
		memory[i] = 100 * rank + i;
	MPI_Get_address(memory, &own);
	MPI_Sendrecv(&own, 1, MPI_AINT, left(), 0, &there, 1, MPI_AINT, right(), 0, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	MPI_Win_fence(0, win);
	MPI_Get(got, 16, MPI_INT, right(), there + 8 * sizeof(int), 16, MPI_INT, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < 16; i++)
		CHECK_EQUAL(got[i], 100 * right() + i + 8);
	MPI_Win_detach(win, memory);
	MPI_Win_detach(win, memory + 16);
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	enum { SLOTS = 8 };
	int own[SLOTS], *memory, unit;
	MPI_Win win;
	MPI_Aint *where, bytes;
	MPI_Comm host;

	begin(&argc, &argv);
	where = calloc(size, sizeof *where);

	MPI_Win_create(own, sizeof own, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	says(win, own, sizeof own, sizeof(int), MPI_WIN_FLAVOR_CREATE);
	neighbours(win, own, where);
	MPI_Win_free(&win);
	CHECK(win == MPI_WIN_NULL);

	MPI_Win_allocate(SLOTS * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	says(win, memory, SLOTS * sizeof(int), sizeof(int), MPI_WIN_FLAVOR_ALLOCATE);
	neighbours(win, memory, where);
	MPI_Win_free(&win);

	/* shared: only among the ranks of one host, perhaps not all ranks */
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
	int together, me;
	MPI_Comm_size(host, &together);
	MPI_Comm_rank(host, &me);
	MPI_Win_allocate_shared((me + 1) * sizeof(int), sizeof(int), MPI_INFO_NULL, host, &memory, &win);
	MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
	memory[me] = 1000 + me;
	MPI_Win_sync(win);
	MPI_Barrier(host);
	MPI_Win_sync(win);
	for (int other = 0; other < together; other++) {
		int *theirs;

		MPI_Win_shared_query(win, other, &bytes, &unit, &theirs);
		CHECK_EQUAL(bytes, (other + 1) * sizeof(int));
		CHECK_EQUAL(unit, sizeof(int));
		CHECK_EQUAL(theirs[other], 1000 + other);
	}
	int *first;
	MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &first);
	CHECK_EQUAL(first[0], 1000);
	MPI_Win_unlock_all(win);
	MPI_Barrier(host);
	MPI_Win_free(&win);
	MPI_Comm_free(&host);

	/* dynamic: displacements are addresses */
	int late[SLOTS];
	MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	says(win, MPI_BOTTOM, 0, 1, MPI_WIN_FLAVOR_DYNAMIC);
	MPI_Win_attach(win, late, sizeof late);
	MPI_Aint here;
	MPI_Get_address(late, &here);
	MPI_Allgather(&here, 1, MPI_AINT, where, 1, MPI_AINT, MPI_COMM_WORLD);
	neighbours(win, late, where);
	MPI_Win_detach(win, late);
	MPI_Win_free(&win);

	free(where);
	adjacent();
	return end("flavours");
}
