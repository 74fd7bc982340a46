/*
 * Says it when a program ends and has never initialized MPI: 'unisono mpi' did nothing for it.
 *
 * Only the end of the program tells. Its file does not: env, time, numactl, shells and interpreters are
 * linked to no MPI and start or load programs that are, and others get their MPI through a library.
 *
 * One process of a job speaks: the one that 'unisono mpi' turned into the program, on the first rank. It
 * stays silent if it has had a child, which may be the program. Programs may close standard error before
 * destructors run, as ls does, and so a copy is kept until MPI is initialized. Destructors do not run in a
 * program that calls _exit or its other names, as dash does: these are ours.
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

/* Above the descriptors that shell scripts name and that programs expect to get first. */
enum { LOWEST_COPY = 200 };

static _Atomic int copy = -1; /* of standard error; -1: nothing is to be said */
static pid_t owner;	      /* a child of vfork shares this memory and ends in here as well */
static dev_t device;
static ino_t inode;
static long faults_before;

/* Whether the copy is still what it was: programs close descriptors that they do not know, and reuse the
 * numbers. */
static bool is_ours(int descriptor)
{
	struct stat status;

	return descriptor >= 0 && !fstat(descriptor, &status) && status.st_dev == device &&
	       status.st_ino == inode;
}

/* MPI is used, or this is a child, which may outlive the program: the copy would keep a pipe open. */
void nothing_unused(void)
{
	int descriptor = atomic_exchange(&copy, -1);

	if (is_ours(descriptor))
		close(descriptor);
}

/*
 * Page faults of the children that were waited for. 'unisono mpi' was this process, and has run a compiler: a
 * number that grows, such as this one, tells later children from those.
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
