/*
 * MPI_Barrier among ranks of several hosts with one clock: no rank leaves before all have entered, on the
 * world, on random parts of it and on their duplicates; communicators that were freed leave no descriptor.
 * Arguments: "tree" if barriers between hosts have connections of their own; "die" if rank 2 ends during
 * a barrier; "long" for a thousand barriers more on the world, with pauses. The second argument: random
 * parts of the world; the third: communicators made and freed.
 */
#include "check.h"
#include <dirent.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 40 };

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* Barriers with ranks that come at different times. */
static void hold(MPI_Comm comm, unsigned seed)
{
	long long entered[ROUNDS], left[ROUNDS], last_entered[ROUNDS], first_left[ROUNDS];

	srand(seed * 1000 + rank);
	for (int round = 0; round < ROUNDS; round++) {
		if (rand() % 4 == 0)
			usleep(rand() % 500);
		entered[round] = now();
		MPI_Barrier(comm);
		left[round] = now();
	}
	MPI_Allreduce(entered, last_entered, ROUNDS, MPI_LONG_LONG, MPI_MAX, comm);
	MPI_Allreduce(left, first_left, ROUNDS, MPI_LONG_LONG, MPI_MIN, comm);
	for (int round = 0; round < ROUNDS; round++)
		CHECK(last_entered[round] <= first_left[round]);
}

static int descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

/* A long message is under way while its receiver is in a barrier already. */
static void hold_with_messages(void)
{
	enum { BYTES = 1 << 20 };
	static char out[BYTES], in[BYTES];
	MPI_Request request;

	for (int round = 0; round < 5; round++) {
		memset(out, round + 1, BYTES);
		MPI_Irecv(in, BYTES, MPI_CHAR, left(), 0, MPI_COMM_WORLD, &request);
		if (rank % 2)
			MPI_Send(out, BYTES, MPI_CHAR, right(), 0, MPI_COMM_WORLD);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank % 2 == 0)
			MPI_Send(out, BYTES, MPI_CHAR, right(), 0, MPI_COMM_WORLD);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		CHECK_EQUAL(in[BYTES - 1], round + 1);
	}
}

int main(int argc, char **argv)
{
	const char *want = argc > 1 ? argv[1] : "";
	int parts = argc > 2 ? atoi(argv[2]) : 4, freed = argc > 3 ? atoi(argv[3]) : 100;
	int before, more = 0, all = 0;
	MPI_Comm comm, copy;

	begin(&argc, &argv);
	if (strcmp(want, "die") == 0)
		for (int round = 0;; round++) {
			if (rank == 2 && round == 20)
				raise(SIGKILL);
			MPI_Barrier(MPI_COMM_WORLD);
		}
	hold(MPI_COMM_WORLD, 0);
	for (int pause = 0; strcmp(want, "long") == 0 && pause < 25; pause++) {
		usleep(40000);
		hold(MPI_COMM_WORLD, pause);
	}
	hold_with_messages();
	for (int part = 1; part <= parts; part++) {
		srand(part * 1000 + rank);
		MPI_Comm_split(MPI_COMM_WORLD, rand() % 2, rand(), &comm);
		MPI_Comm_dup(comm, &copy);
		hold(comm, part);
		hold(copy, part + parts);
		MPI_Comm_free(&comm);
		hold(copy, part);
		MPI_Comm_free(&copy);
	}
	before = descriptors();
	for (int made = 0; made < freed; made++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		for (int round = 0; round < 5; round++)
			MPI_Barrier(comm);
		if (descriptors() > before)
			more = 1;
		MPI_Comm_free(&comm);
	}
	CHECK(descriptors() <= before);
	MPI_Allreduce(&more, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	CHECK_EQUAL(all, strcmp(want, "tree") == 0 || strcmp(want, "long") == 0);
	return end("host_barriers");
}
