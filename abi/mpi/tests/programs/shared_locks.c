/*
 * Locks of shared windows, whose memory the program accesses by its own loads and stores: a lock call returns
 * with the lock, and an exclusive unlock with its puts done. With the argument "no-copy" the kernel refuses
 * copies between processes, as Yama and some containers do.
 */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROUNDS = 300 };

static void refuse_copies(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		perror("seccomp");
		exit(1);
	}
}

static void lock_shared(MPI_Win win)
{
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
}

static void unlock(MPI_Win win)
{
	MPI_Win_unlock(0, win);
}

static void lock_all(MPI_Win win)
{
	MPI_Win_lock_all(0, win);
}

static void unlock_all(MPI_Win win)
{
	MPI_Win_unlock_all(win);
}

/* A rank that has a shared lock does not read before the exclusive lock of another rank has ended. */
static void excludes(MPI_Win win, volatile long *first, void (*begin_epoch)(MPI_Win),
		     void (*end_epoch)(MPI_Win))
{
	*first = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
		for (int to = 1; to < size; to++)
			MPI_Send(NULL, 0, MPI_INT, to, 0, MPI_COMM_WORLD);
		usleep(100000);
		*first = 1;
		MPI_Win_unlock(0, win);
	} else {
		MPI_Recv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		begin_epoch(win);
		CHECK_EQUAL(*first, 1);
		end_epoch(win);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	static long mine[2];
	long *own, *first, value;
	MPI_Aint bytes;
	MPI_Win win;
	int unit, stale = 0;

	if (argc > 1 && strcmp(argv[1], "no-copy") == 0)
		refuse_copies();
	begin(&argc, &argv);
	MPI_Win_allocate_shared(2 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &own, &win);
	MPI_Win_shared_query(win, 0, &bytes, &unit, &first);
	excludes(win, first, lock_shared, unlock);
	excludes(win, first, lock_all, unlock_all);

	/* a counter of all ranks */
	if (rank == 0)
		*first = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
		*(volatile long *)first += 1;
		MPI_Win_unlock(0, win);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	CHECK_EQUAL(*first, (long)ROUNDS * size);
	MPI_Win_free(&win);

	/* after an exclusive unlock and a barrier, the target finds the puts in its memory */
	MPI_Win_create(mine, sizeof mine, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	for (value = 1; value <= ROUNDS; value++) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right(), 0, win);
		MPI_Put(&value, 1, MPI_LONG, right(), 0, 1, MPI_LONG, win);
		MPI_Put(&value, 1, MPI_LONG, right(), 1, 1, MPI_LONG, win);
		MPI_Win_unlock(right(), win);
		MPI_Barrier(MPI_COMM_WORLD);
		stale += *(volatile long *)&mine[1] != value;
		MPI_Barrier(MPI_COMM_WORLD);
	}
	CHECK_EQUAL(stale, 0);
	MPI_Win_free(&win);
	return end("shared_locks");
}
