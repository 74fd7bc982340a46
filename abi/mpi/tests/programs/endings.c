/*
 * A rank that goes away while the others wait for it, for the tests of how a job ends; its results are not
 * compared with another MPI's. `endings HOW WHERE [returned|handled|last]`: rank 1 ends by HOW (abort, kill,
 * exit, leave) while the others wait in WHERE. With `returned` the others get an error code, with `handled`
 * an error handler is called as well; every later call must return, too. With `last` there is no later call.
 */
#include "check.h"
#include <signal.h>
#include <unistd.h>

static MPI_Win win, created, never;
static int *memory, value = 1;
static MPI_Group other;

/* Prints a line with a single write, so that the other ranks' lines do not interrupt it. */
static void say(const char *what, const char *where, int number)
{
	char line[128];
	int length = snprintf(line, sizeof line, "rank %d: %s %s %d\n", rank, what, where, number);

	if (write(STDOUT_FILENO, line, length) < length)
		_exit(4);
}

/* The meaning of an error code, in the MPI's words. */
static void explain(const char *what, int code)
{
	char text[MPI_MAX_ERROR_STRING] = "", line[MPI_MAX_ERROR_STRING + 64];
	int length;

	MPI_Error_string(code, text, &length);
	length = snprintf(line, sizeof line, "rank %d: %s: %s\n", rank, what, text);
	if (write(STDOUT_FILENO, line, length) < length)
		_exit(4);
}

static void window_handler(MPI_Win *given, int *code, ...)
{
	(void)given;
	explain("window's handler", *code);
}

static void comm_handler(MPI_Comm *given, int *code, ...)
{
	(void)given;
	explain("communicator's handler", *code);
}

static void handle_errors(const char *how)
{
	MPI_Errhandler of_windows = MPI_ERRORS_RETURN, of_comms = MPI_ERRORS_RETURN;

	if (!strcmp(how, "handled")) {
		MPI_Win_create_errhandler(window_handler, &of_windows);
		MPI_Comm_create_errhandler(comm_handler, &of_comms);
	}
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, of_comms);
	MPI_Win_set_errhandler(created, of_windows);
	MPI_Win_set_errhandler(win, of_windows);
}

static void go(const char *how)
{
	/* by then the others should be asleep */
	usleep(150000);
	if (!strcmp(how, "abort"))
		MPI_Abort(MPI_COMM_WORLD, 42);
	if (!strcmp(how, "kill"))
		raise(SIGKILL);
	if (!strcmp(how, "exit"))
		exit(0);
	_exit(7);
}

static int wait_in(const char *where)
{
	if (!strcmp(where, "fence"))
		return MPI_Win_fence(0, win);
	if (!strcmp(where, "wait")) {
		MPI_Win_post(other, 0, win);
		return MPI_Win_wait(win);
	}
	if (!strcmp(where, "complete")) {
		/* longer than data that may be left for the target to fetch */
		static int many[1 << 16];
		MPI_Win_start(other, 0, win);
		MPI_Put(many, 1 << 16, MPI_INT, 1, 0, 1 << 16, MPI_INT, win);
		return MPI_Win_complete(win);
	}
	if (!strcmp(where, "lock")) {
		int code = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);

		/* the lock may only be requested by the first operation */
		if (!code)
			code = MPI_Put(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, win);
		return code ? code : MPI_Win_unlock(1, win);
	}
	if (!strcmp(where, "copy")) {
		/* a window that only the kernel can access, until the copy finds that the process is gone */
		static int many[1 << 16];
		int code = MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, created);

		for (int turn = 0; turn < 5000 && !code; turn++) {
			code = MPI_Put(many, 1 << 16, MPI_INT, 1, 0, 1 << 16, MPI_INT, created);
			if (!code)
				code = MPI_Accumulate(many, 1 << 16, MPI_INT, 1, 0, 1 << 16, MPI_INT, MPI_SUM,
						      created);
			if (!code)
				code = MPI_Win_flush(1, created);
			usleep(1000);
		}
		return code;
	}
	if (!strcmp(where, "barrier"))
		return MPI_Barrier(MPI_COMM_WORLD);
	if (!strcmp(where, "allocate"))
		return MPI_Win_allocate(4, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &never);
	return MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	MPI_Group world;
	int code, one = 1;

	begin(&argc, &argv);
	if (argc < 3) {
		if (rank == 0)
			fprintf(stderr, "endings HOW WHERE [returned|handled|last]\n");
		MPI_Finalize();
		return 2;
	}
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &one, &other);
	MPI_Win_allocate(sizeof(int) << 16, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	static int own[1 << 16];
	MPI_Win_create(own, sizeof own, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &created);
	for (int i = 0; i < 5; i++)
		MPI_Barrier(MPI_COMM_WORLD);
	if (!strcmp(argv[2], "fence")) {
		MPI_Win_fence(0, win);
		MPI_Put(&value, 1, MPI_INT, right(), rank, 1, MPI_INT, win);
	}
	if (rank == 1) {
		if (!strcmp(argv[2], "lock")) {
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
			MPI_Put(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, win);
			MPI_Win_flush(1, win);
		}
		go(argv[1]);
	}
	if (!strcmp(argv[2], "lock"))
		usleep(50000);
	if (argc > 3)
		handle_errors(argv[3]);
	code = wait_in(argv[2]);
	say("answered", argv[2], class_of(code));
	explain("that means", code);
	if (argc > 3 && !strcmp(argv[3], "last")) {
		/* by then the others should have learned of rank 1: later they could name this rank */
		sleep(2);
		_exit(3);
	}
	/* none of these may wait for rank 1 again */
	code = MPI_Win_fence(0, win);
	MPI_Win_lock_all(0, win);
	MPI_Put(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, win);
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_free(&win);
	say("went on", "to its end", 0);
	_exit(3);
}
