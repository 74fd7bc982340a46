/* Names, infos, keyvals with callbacks, user attributes, handle conversion, and error handlers of windows. */
#include "check.h"

static int deleted, called, last_class;
static void *last_extra;

static int on_delete(MPI_Win win, int keyval, void *value, void *extra)
{
	(void)win;
	(void)keyval;
	deleted += *(int *)value;
	last_extra = extra;
	return MPI_SUCCESS;
}

static int refuse(MPI_Win win, int keyval, void *value, void *extra)
{
	(void)win;
	(void)keyval;
	(void)extra;
	return *(int *)value ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static void on_error(MPI_Win *win, int *code, ...)
{
	(void)win;
	called++;
	last_class = class_of(*code);
}

int main(int argc, char **argv)
{
	int *memory, keyval, second, found, length, extra, seven = 7, five = 5, no = 1;
	void *value;
	char name[MPI_MAX_OBJECT_NAME + 1], answer[MPI_MAX_INFO_VAL + 1];
	MPI_Win win, other;
	MPI_Info info, used;
	MPI_Errhandler handler, read;

	begin(&argc, &argv);
	MPI_Info_create(&info);
	MPI_Info_set(info, "no_locks", "false");
	MPI_Info_set(info, "accumulate_ordering", "none");
	MPI_Win_allocate(64, 1, info, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &other);
	CHECK(win != other && win != MPI_WIN_NULL);

	MPI_Win_get_name(win, name, &length);
	MPI_Win_set_name(win, "ghost area");
	MPI_Win_get_name(win, name, &length);
	CHECK(strcmp(name, "ghost area") == 0);
	CHECK_EQUAL(length, 10);

	MPI_Win_get_info(win, &used);
	CHECK(used != MPI_INFO_NULL);
	MPI_Info_get(used, "no_locks", MPI_MAX_INFO_VAL, answer, &found);
	CHECK(found && strcmp(answer, "false") == 0);
	MPI_Info_free(&used);
	MPI_Info_set(info, "same_size", "true");
	MPI_Info_set(info, "no_locks", "true");
	CHECK_CLASS(MPI_Win_set_info(win, info), MPI_SUCCESS);
	MPI_Info_free(&info);
	MPI_Win_get_info(win, &used);
	for (int i = 0; i < 2; i++) {
		MPI_Info_get(used, i ? "no_locks" : "same_size", MPI_MAX_INFO_VAL, answer, &found);
		CHECK(found && strcmp(answer, "true") == 0);
	}
	MPI_Info_free(&used);

#ifdef MPI_ABI_VERSION /* other names in the standard ABI */
#define MPI_Win_c2f MPI_Win_toint
#define MPI_Win_f2c MPI_Win_fromint
#endif
	CHECK(MPI_Win_f2c(MPI_Win_c2f(win)) == win);
	CHECK(MPI_Win_f2c(MPI_Win_c2f(other)) == other);
	CHECK(MPI_Win_c2f(win) != MPI_Win_c2f(other));
	CHECK(MPI_Win_f2c(MPI_Win_c2f(MPI_WIN_NULL)) == MPI_WIN_NULL);

	MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, on_delete, &keyval, &extra);
	MPI_Win_create_keyval(MPI_WIN_DUP_FN, MPI_WIN_NULL_DELETE_FN, &second, NULL);
#ifndef OPEN_MPI /* which refuses to delete an attribute that is not set */
	CHECK_CLASS(MPI_Win_delete_attr(win, second), MPI_SUCCESS);
#endif
	CHECK(keyval != MPI_KEYVAL_INVALID && second != keyval);
	MPI_Win_get_attr(win, keyval, &value, &found);
	CHECK(!found);
	MPI_Win_set_attr(win, keyval, &seven);
	MPI_Win_set_attr(win, second, &five);
	MPI_Win_set_attr(other, keyval, &five);
	MPI_Win_get_attr(win, keyval, &value, &found);
	CHECK(found && value == &seven);
	MPI_Win_get_attr(win, second, &value, &found);
	CHECK(found && value == &five);
	MPI_Win_set_attr(win, keyval, &five); /* deletes the old value */
	CHECK_EQUAL(deleted, 7);
	CHECK(last_extra == &extra);
	MPI_Win_delete_attr(win, keyval);
	CHECK_EQUAL(deleted, 12);
	MPI_Win_get_attr(win, keyval, &value, &found);
	CHECK(!found);
	MPI_Win_set_attr(win, keyval, &seven);
	MPI_Win_free_keyval(&keyval); /* stays valid for windows that use it */
	CHECK_EQUAL(keyval, MPI_KEYVAL_INVALID);
	MPI_Win_free_keyval(&second);

	/* error handlers: the default handler ends the program, so only the other handlers are tested */
	MPI_Win_get_errhandler(win, &read);
	CHECK(read == MPI_ERRORS_ARE_FATAL);
	MPI_Errhandler_free(&read);
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	MPI_Win_get_errhandler(win, &read);
	CHECK(read == MPI_ERRORS_RETURN);
	MPI_Errhandler_free(&read);
	CHECK(class_of(MPI_Win_lock(MPI_LOCK_SHARED, size + 5, 0, win)) == MPI_ERR_RANK);
	MPI_Win_create_errhandler(on_error, &handler);
	MPI_Win_set_errhandler(win, handler);
	MPI_Win_get_errhandler(win, &read);
	CHECK(read == handler);
	MPI_Errhandler_free(&read);
	MPI_Errhandler_free(&handler);
	CHECK(handler == MPI_ERRHANDLER_NULL);
	CHECK(class_of(MPI_Win_lock(MPI_LOCK_SHARED, size + 5, 0, win)) == MPI_ERR_RANK);
	CHECK_EQUAL(called, 1);
	CHECK_EQUAL(last_class, MPI_ERR_RANK);
	MPI_Win_call_errhandler(win, MPI_ERR_RMA_SYNC);
	CHECK_EQUAL(called, 2);
	CHECK_EQUAL(last_class, MPI_ERR_RMA_SYNC);

	/* freeing the window deletes its attributes */
	deleted = 0;
	MPI_Win_free(&win);
	CHECK_EQUAL(deleted, 7);
	MPI_Win_free(&other);
	CHECK_EQUAL(deleted, 12);

	/* a callback that refuses */
	MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, refuse, &keyval, NULL);
	MPI_Win_set_attr(win, keyval, &no);
	CHECK(MPI_Win_delete_attr(win, keyval) != MPI_SUCCESS);
	no = 0;
	CHECK_CLASS(MPI_Win_delete_attr(win, keyval), MPI_SUCCESS);
	MPI_Win_free_keyval(&keyval);
	MPI_Win_free(&win);
	return end("attributes");
}
