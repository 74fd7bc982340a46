/*
 * Delete callbacks that change the window's attributes themselves, more keys over time than can exist at
 * once, and attributes that several threads use. On the host MPIs this program skips behavior that MPI does
 * not guarantee (there, deleting an attribute in its own callback leads to an endless recursion).
 */
#include "check.h"
#include <pthread.h>
#include <stdint.h>

enum { KEYS = 10000, THREADS = 4, TURNS = 5000 };

static int own, first, second, calls;
static MPI_Win win;

/* Deletes its own attribute again. */
static int deletes_itself(MPI_Win of, int keyval, void *value, void *extra)
{
	void *found;
	int flag;

	(void)extra;
	calls++;
	MPI_Win_get_attr(of, keyval, &found, &flag);
	CHECK(flag && found == value);
	return MPI_Win_delete_attr(of, keyval);
}

static int deletes_the_second(MPI_Win of, int keyval, void *value, void *extra)
{
	int flag;
	void *found;

	(void)keyval;
	(void)value;
	(void)extra;
	calls++;
	MPI_Win_get_attr(of, second, &found, &flag);
	return flag ? MPI_Win_delete_attr(of, second) : MPI_SUCCESS;
}

static int counts(MPI_Win of, int keyval, void *value, void *extra)
{
	(void)of;
	(void)keyval;
	(void)value;
	(void)extra;
	calls++;
	return MPI_SUCCESS;
}

static int frees_the_window(MPI_Win of, int keyval, void *value, void *extra)
{
	(void)keyval;
	(void)extra;
	calls++;
	if (*(int *)value)
		CHECK(MPI_Win_free(&of) != MPI_SUCCESS);
	return MPI_SUCCESS;
}

static void *sets_and_deletes(void *argument)
{
	intptr_t number = (intptr_t)argument;
	int keyval, flag;
	void *found;

	MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, &keyval, NULL);
	for (intptr_t turn = 1; turn <= TURNS; turn++) {
		void *value = (void *)(turn * THREADS + number);

		MPI_Win_set_attr(win, keyval, value);
		MPI_Win_get_attr(win, keyval, &found, &flag);
		CHECK(flag && found == value);
		if (turn % 3 == 0)
			MPI_Win_delete_attr(win, keyval);
	}
	MPI_Win_free_keyval(&keyval);
	return NULL;
}

int main(int argc, char **argv)
{
	int *memory, keyval, kept, found, yes = 1, no = 0, provided;
	pthread_t threads[THREADS];
	void *value;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);

	/* its own attribute, in each of the three ways to delete it */
	MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, deletes_itself, &own, NULL);
	MPI_Win_set_attr(win, own, &yes);
	CHECK_CLASS(MPI_Win_delete_attr(win, own), MPI_SUCCESS);
	CHECK_EQUAL(calls, 1);
	MPI_Win_set_attr(win, own, &yes);
	MPI_Win_set_attr(win, own, &no);
	CHECK_EQUAL(calls, 2);
	MPI_Win_get_attr(win, own, &value, &found);
	CHECK(found && value == &no);

	/* a neighbor's attribute, before and behind it in any list */
	MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, deletes_the_second, &first, NULL);
	MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, counts, &second, NULL);
	for (int order = 0; order < 2; order++) {
		calls = 0;
		MPI_Win_set_attr(win, order ? first : second, &yes);
		MPI_Win_set_attr(win, order ? second : first, &yes);
		MPI_Win_set_attr(win, first, &no);
		CHECK_EQUAL(calls, 2);
		MPI_Win_get_attr(win, second, &value, &found);
		CHECK(!found);
		MPI_Win_set_attr(win, second, &no);
		CHECK_CLASS(MPI_Win_delete_attr(win, first), MPI_SUCCESS);
		CHECK_EQUAL(calls, 4);
		MPI_Win_get_attr(win, second, &value, &found);
		CHECK(!found);
	}

	/* a window cannot be freed by a callback that runs during its own freeing */
	MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, frees_the_window, &keyval, NULL);
	calls = 0;
	MPI_Win_set_attr(win, keyval, &yes);
	CHECK_CLASS(MPI_Win_delete_attr(win, keyval), MPI_SUCCESS);
	CHECK_EQUAL(calls, 1);
	MPI_Win_free_keyval(&keyval);

	/* freed keys make room for new ones, and a key in use does so after its attributes are gone */
	MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, counts, &kept, NULL);
	MPI_Win_set_attr(win, kept, &no);
	for (int i = 0; i < KEYS; i++) {
		int used;

		if (MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, counts, &keyval, NULL)) {
			CHECK(!"a key");
			break;
		}
		CHECK(keyval != kept);
		used = keyval;
		if (i % 2)
			MPI_Win_set_attr(win, keyval, &yes);
		MPI_Win_free_keyval(&keyval);
		if (i % 2)
			MPI_Win_delete_attr(win, used);
		else
			CHECK_CLASS(MPI_Win_set_attr(win, used, &yes), MPI_ERR_KEYVAL);
	}
	MPI_Win_get_attr(win, kept, &value, &found);
	CHECK(found && value == &no);

	for (intptr_t i = 0; i < THREADS && provided == MPI_THREAD_MULTIPLE; i++)
		pthread_create(&threads[i], NULL, sets_and_deletes, (void *)i);
	for (int i = 0; i < THREADS && provided == MPI_THREAD_MULTIPLE; i++)
		pthread_join(threads[i], NULL);

	/* and by freeing the window, in any order */
	calls = 0;
	MPI_Win_set_attr(win, first, &yes);
	MPI_Win_set_attr(win, second, &yes);
	MPI_Win_free(&win);
	CHECK(calls >= 4);
	return end("callbacks");
}
