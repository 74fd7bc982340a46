/*
 * Epochs that do not match, and other mistakes that must be errors at the caller: never a hang, and nothing
 * is written.
 */
#include "check.h"

static int *memory, value = 1, done;
static MPI_Win win;
static MPI_Group all, self_group, world;

static void expect_clean(void)
{
	/* after each refused call the window still works */
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < 8; i++)
		memory[i] = -1;
	CHECK_CLASS(MPI_Win_fence(0, win), MPI_SUCCESS);
	CHECK_CLASS(MPI_Put(&rank, 1, MPI_INT, right(), 3, 1, MPI_INT, win), MPI_SUCCESS);
	CHECK_CLASS(MPI_Win_fence(MPI_MODE_NOSUCCEED, win), MPI_SUCCESS);
	CHECK_EQUAL(memory[3], left());
	CHECK_EQUAL(memory[0], -1);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void add(void *in, void *inout, int *length, MPI_Datatype *type)
{
	(void)in;
	(void)inout;
	(void)length;
	(void)type;
}

int main(int argc, char **argv)
{
	MPI_Win other;
	int me;

	begin(&argc, &argv);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &rank, &self_group);
	MPI_Comm_group(MPI_COMM_WORLD, &all);
	me = right();
	MPI_Win_allocate(8 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);

	CHECK_CLASS(MPI_Get(&value, 1, MPI_INT, me, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Accumulate(&value, 1, MPI_INT, me, 0, 1, MPI_INT, MPI_SUM, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(
		MPI_Get_accumulate(&value, 1, MPI_INT, &done, 1, MPI_INT, me, 0, 1, MPI_INT, MPI_SUM, win),
		MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Fetch_and_op(&value, &done, MPI_INT, me, 0, MPI_SUM, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Compare_and_swap(&value, &value, &done, MPI_INT, me, 0, win), MPI_ERR_RMA_SYNC);
	MPI_Request request;
	CHECK_CLASS(MPI_Rput(&value, 1, MPI_INT, me, 0, 1, MPI_INT, win, &request), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_test(win, &done), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_unlock_all(win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_flush_all(win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_flush_local(me, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_flush_local_all(win), MPI_ERR_RMA_SYNC);
	expect_clean();

	/* inside a passive epoch */
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	CHECK_CLASS(MPI_Win_fence(0, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_start(self_group, 0, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_lock_all(0, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_complete(win), MPI_ERR_RMA_SYNC);
	if (size > 1)
		CHECK_CLASS(MPI_Put(&value, 1, MPI_INT, me, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_unlock(size, win), MPI_ERR_RANK);
	CHECK_CLASS(MPI_Win_flush(-9, win), MPI_ERR_RANK);
	CHECK_CLASS(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_unlock(rank, win), MPI_SUCCESS);
	CHECK_CLASS(MPI_Win_lock_all(0, win), MPI_SUCCESS);
	CHECK_CLASS(MPI_Win_lock_all(0, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_unlock(rank, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_unlock_all(win), MPI_SUCCESS);
	expect_clean();

	/* inside post-start-complete-wait */
	CHECK_CLASS(MPI_Win_post(self_group, 0, win), MPI_SUCCESS);
	CHECK_CLASS(MPI_Win_post(self_group, 0, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_fence(0, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_start(self_group, 0, win), MPI_SUCCESS);
	CHECK_CLASS(MPI_Win_start(self_group, 0, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_fence(0, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_flush(rank, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
	if (size > 1)
		CHECK_CLASS(MPI_Put(&value, 1, MPI_INT, me, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_complete(win), MPI_SUCCESS);
	CHECK_CLASS(MPI_Win_wait(win), MPI_SUCCESS);
	CHECK_CLASS(MPI_Win_complete(win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_wait(win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_post(MPI_GROUP_NULL, 0, win), MPI_ERR_GROUP);
	CHECK_CLASS(MPI_Win_start(MPI_GROUP_NULL, 0, win), MPI_ERR_GROUP);
	expect_clean();

	/* inside a fence epoch with operations */
	MPI_Win_fence(0, win);
	CHECK_CLASS(MPI_Put(&value, 1, MPI_INT, me, 8, 1, MPI_INT, win), MPI_ERR_RMA_RANGE);
	CHECK_CLASS(MPI_Put(&value, 1, MPI_INT, me, 0x7fffffffffffffffL, 1, MPI_INT, win), MPI_ERR_RMA_RANGE);
	CHECK_CLASS(MPI_Get(&value, 0x7fffffff, MPI_INT, me, 0, 0x7fffffff, MPI_INT, win), MPI_ERR_RMA_RANGE);
	CHECK_CLASS(MPI_Put(&value, 1, MPI_INT, me, 7, 1, MPI_INT, win), MPI_SUCCESS);
	CHECK_CLASS(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_start(self_group, 0, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_post(self_group, 0, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_fence(MPI_MODE_NOPRECEDE, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_fence(0x40000000, win), MPI_ERR_ASSERT);
	CHECK_CLASS(MPI_Win_fence(MPI_MODE_NOSUCCEED, win), MPI_SUCCESS);
	CHECK_CLASS(MPI_Put(&value, 1, MPI_INT, me, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
	CHECK_EQUAL(memory[7], 1);
	expect_clean();

	/* arguments */
	MPI_Op user;
	MPI_Datatype pair;
	MPI_Op_create(add, 1, &user);
	MPI_Type_contiguous(2, MPI_INT, &pair);
	MPI_Type_commit(&pair);
	MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win);
	CHECK_CLASS(MPI_Accumulate(&value, 1, MPI_INT, me, 0, 1, MPI_INT, user, win), MPI_ERR_OP);
	CHECK_CLASS(MPI_Accumulate(&value, 1, MPI_INT, me, 0, 1, MPI_INT, MPI_NO_OP, win), MPI_SUCCESS);
	CHECK_CLASS(MPI_Fetch_and_op(&value, &done, pair, me, 0, MPI_SUM, win), MPI_ERR_TYPE);
	CHECK_CLASS(MPI_Compare_and_swap(&value, &value, &done, pair, me, 0, win), MPI_ERR_TYPE);
	double d = 1, e = 2;
	CHECK_CLASS(MPI_Compare_and_swap(&d, &d, &e, MPI_DOUBLE, me, 0, win), MPI_ERR_TYPE);
	CHECK(class_of(MPI_Accumulate(&d, 1, MPI_DOUBLE, me, 0, 1, MPI_DOUBLE, MPI_BAND, win)) !=
	      MPI_SUCCESS);
	CHECK(class_of(MPI_Accumulate(&value, 1, MPI_INT, me, 0, 1, MPI_INT, MPI_MAXLOC, win)) !=
	      MPI_SUCCESS);
	CHECK(class_of(MPI_Put(&value, 1, MPI_INT, me, 0, 2, MPI_INT, win)) != MPI_SUCCESS);
	CHECK_CLASS(MPI_Rget(&value, 1, MPI_INT, me, 99, 1, MPI_INT, win, &request), MPI_ERR_RMA_RANGE);
	CHECK_CLASS(MPI_Win_unlock(me, win), MPI_SUCCESS);
	MPI_Op_free(&user);
	MPI_Type_free(&pair);
	expect_clean();
	CHECK_CLASS(MPI_Win_lock(MPI_LOCK_SHARED, size, 0, win), MPI_ERR_RANK);
	CHECK_CLASS(MPI_Win_lock(MPI_LOCK_SHARED, 0, MPI_MODE_NOPUT, win), MPI_ERR_ASSERT);
	MPI_Aint bytes;
	int unit;
	void *base;

	CHECK_CLASS(MPI_Win_create(&value, 4, 1, MPI_INFO_NULL, MPI_COMM_NULL, &other), MPI_ERR_COMM);
	other = MPI_WIN_NULL;
	CHECK_CLASS(MPI_Win_fence(0, other), MPI_ERR_WIN);
	CHECK_CLASS(MPI_Put(&value, 1, MPI_INT, me, 0, 1, MPI_INT, other), MPI_ERR_WIN);
	CHECK_CLASS(MPI_Win_get_name(other, (char[200]){ 0 }, &unit), MPI_ERR_WIN);

	/* an intercommunicator */
	if (size > 1) {
		MPI_Comm half, between;
		MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
		MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 7, &between);
		MPI_Comm_set_errhandler(between, MPI_ERRORS_RETURN);
		CHECK_CLASS(MPI_Win_create(&value, 4, 1, MPI_INFO_NULL, between, &other), MPI_ERR_COMM);
		CHECK_CLASS(MPI_Win_create_dynamic(MPI_INFO_NULL, between, &other), MPI_ERR_COMM);
		MPI_Barrier(between);
		MPI_Barrier(between);
		MPI_Barrier(between);
		MPI_Barrier(between);
		MPI_Barrier(between);
		MPI_Comm_free(&between);
		MPI_Comm_free(&half);
	}

	/* a group whose ranks are not this window's */
	if (size > 1) {
		MPI_Win mine;
		int *own;
		MPI_Win_allocate(4, 1, MPI_INFO_NULL, MPI_COMM_SELF, &own, &mine);
		MPI_Win_set_errhandler(mine, MPI_ERRORS_RETURN);
		CHECK_CLASS(MPI_Win_start(all, 0, mine), MPI_ERR_GROUP);
		CHECK_CLASS(MPI_Win_post(all, 0, mine), MPI_ERR_GROUP);
		CHECK_CLASS(MPI_Win_free(&mine), MPI_SUCCESS);
	}

	/* a shared window */
	MPI_Win shared;
	MPI_Comm host;
	int together;
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
	MPI_Comm_size(host, &together);
	MPI_Win_allocate_shared(4, 1, MPI_INFO_NULL, host, &base, &shared);
	MPI_Win_set_errhandler(shared, MPI_ERRORS_RETURN);
	CHECK_CLASS(MPI_Win_shared_query(shared, together, &bytes, &unit, &base), MPI_ERR_RANK);
	CHECK_CLASS(MPI_Win_free(&shared), MPI_SUCCESS);
	MPI_Comm_free(&host);

	/* a dynamic window */
	int piece[8] = { 0 };
	MPI_Win dynamic;
	MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic);
	MPI_Win_set_errhandler(dynamic, MPI_ERRORS_RETURN);
	CHECK_CLASS(MPI_Win_attach(dynamic, piece, sizeof piece), MPI_SUCCESS);
	CHECK_CLASS(MPI_Win_attach(dynamic, piece + 2, 8), MPI_ERR_RMA_ATTACH);
	CHECK_CLASS(MPI_Win_attach(dynamic, piece, -1), MPI_ERR_SIZE);
	CHECK_CLASS(MPI_Win_detach(dynamic, piece + 1), MPI_ERR_RMA_ATTACH);
	CHECK_CLASS(MPI_Win_detach(dynamic, piece), MPI_SUCCESS);
	CHECK_CLASS(MPI_Win_detach(dynamic, piece), MPI_ERR_RMA_ATTACH);
	MPI_Aint there;
	MPI_Get_address(piece, &there);
	MPI_Barrier(MPI_COMM_WORLD);
	/* memory that is not attached: an error when the epoch ends, at the latest */
	int code = MPI_Win_lock(MPI_LOCK_SHARED, me, 0, dynamic);
	if (!code)
		code = MPI_Put(&value, 1, MPI_INT, me, there, 1, MPI_INT, dynamic);
	int last = MPI_Win_unlock(me, dynamic);
	int class = class_of(code ? code : last);
	CHECK(class == MPI_ERR_RMA_RANGE || class == MPI_ERR_RMA_ATTACH);
	MPI_Barrier(MPI_COMM_WORLD);
	CHECK_EQUAL(piece[0], 0);
	/* the same with a request: an error when the request ends, at the latest */
	request = MPI_REQUEST_NULL;
	CHECK_CLASS(MPI_Win_lock_all(0, dynamic), MPI_SUCCESS);
	code = MPI_Rget(&value, 1, MPI_INT, right(), there, 1, MPI_INT, dynamic, &request);
	if (!code)
		code = MPI_Wait(&request, MPI_STATUS_IGNORE);
	class = class_of(code);
	CHECK(class == MPI_ERR_RMA_RANGE || class == MPI_ERR_RMA_ATTACH);
	CHECK(request == MPI_REQUEST_NULL);
	CHECK_CLASS(MPI_Win_unlock_all(dynamic), MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
	CHECK_CLASS(MPI_Win_shared_query(dynamic, 0, &bytes, &unit, &base), MPI_ERR_RMA_FLAVOR);
	CHECK_CLASS(MPI_Win_free(&dynamic), MPI_SUCCESS);
	CHECK_CLASS(MPI_Win_free(&dynamic), MPI_ERR_WIN);

#if MPI_VERSION >= 4
	/* more bytes than an int can count */
	MPI_Datatype enormous;
	MPI_Type_contiguous_c((MPI_Count)5 << 30, MPI_BYTE, &enormous);
	MPI_Type_commit(&enormous);
	MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win);
	CHECK_CLASS(MPI_Get_c(&value, 1, enormous, me, 0, 1, enormous, win), MPI_ERR_RMA_RANGE);
	CHECK_CLASS(MPI_Get_c(&value, (MPI_Count)5 << 30, MPI_BYTE, me, 0, (MPI_Count)5 << 30, MPI_BYTE, win),
		    MPI_ERR_RMA_RANGE);
	MPI_Win_unlock(me, win);
	MPI_Type_free(&enormous);
#endif

	MPI_Group_free(&self_group);
	MPI_Group_free(&all);
	MPI_Group_free(&world);
	CHECK_CLASS(MPI_Win_free(&win), MPI_SUCCESS);
	return end("misuse");
}
