/*
 * Prints a message when a program ends without having initialized MPI: 'unisono mpi' had no effect on it.
 *
 * Whether MPI is used is known only when the program ends. Its file does not show it: env, time, numactl,
 * shells and interpreters are linked to no MPI but start or load programs that are, and other programs load
 * their MPI through a library.
 *
 * One process of a job prints the message: on the first rank, the process that 'unisono mpi' turned into the
 * program by exec. It stays silent if it has had a child, because the child may be the real program. Some
 * programs (ls) close standard error before destructors run, so this file keeps a copy of the descriptor
 * until MPI is initialized. Destructors do not run in a program that calls _exit() or _Exit(), as dash does;
 * so this file defines both functions.
 */
#include "entry.h"
#include "launcher.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * The lowest number that the copied descriptor may have. It is above the descriptors that shell scripts name
 * and that programs expect to get first.
 */
enum { LOWEST_COPY = 200 };

static _Atomic int copy = -1; /* of standard error; -1: no message is to be printed */
static pid_t owner;	      /* a child of vfork shares this memory and also ends in here */
static dev_t device;
static ino_t inode;
static long faults_before;

/* Whether the descriptor is still the copy. Some programs close all descriptors that they did not open,
 * and the kernel reuses the numbers. */
static bool is_ours(int descriptor)
{
	struct stat status;

	return descriptor >= 0 && !fstat(descriptor, &status) && status.st_dev == device &&
	       status.st_ino == inode;
}

/*
 * Closes the copy, when MPI is used or in a forked child. A child may outlive the program and would keep a
 * pipe open.
 */
void nothing_unused(void)
{
	int descriptor = atomic_exchange(&copy, -1);

	if (is_ours(descriptor))
		close(descriptor);
}

/*
 * Returns the number of page faults of all children that this process has waited for. Before exec, 'unisono
 * mpi' was this process and may have run a compiler, so the count may not be zero at first. The count only
 * grows, so a change shows that the program itself had a child.
 */
static long faults_of_children(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_CHILDREN, &usage) ? -1 : usage.ru_minflt + usage.ru_majflt;
}

static bool had_children(void)
{
	siginfo_t child;

	return faults_of_children() != faults_before ||
	       !waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) || errno != ECHILD;
}

__attribute__((constructor)) static void look_out(void)
{
	const char *process = getenv("UNISONO_MPI_PROCESS");
	struct stat status;

	if (!process || atol(process) != (long)getpid())
		return;
	if (rank_of_launcher() > 0 || fstat(STDERR_FILENO, &status) ||
	    pthread_atfork(NULL, NULL, nothing_unused))
		return;
	owner = getpid();
	device = status.st_dev;
	inode = status.st_ino;
	faults_before = faults_of_children();
	atomic_store(&copy, fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, LOWEST_COPY));
}

__attribute__((destructor)) static void speak(void)
{
	int descriptor = getpid() == owner ? atomic_exchange(&copy, -1) : -1;

	if (is_ours(descriptor) && !had_children())
		dprintf(descriptor,
			"unisono: %s ended without MPI_Init; 'unisono mpi' changed nothing for it\n",
			program_invocation_short_name);
}

__attribute__((visibility("default"))) _Noreturn void _exit(int code)
{
	speak();
	for (;;)
		syscall(SYS_exit_group, code);
}

__attribute__((visibility("default"))) _Noreturn void _Exit(int code)
{
	_exit(code);
}
