/*
 * Communicators of several worlds: barriers, windows, messages and collectives on them and on communicators
 * made from them. The program spawns itself by MPI_Comm_spawn (argument "one") or MPI_Comm_spawn_multiple
 * ("several").
 */
#include "check.h"

enum { BARRIERS = 7 };

static void use(MPI_Comm comm)
{
	int own, members, sum, *part;
	MPI_Win win;

	MPI_Comm_rank(comm, &own);
	MPI_Comm_size(comm, &members);
	for (int i = 0; i < BARRIERS; i++)
		MPI_Barrier(comm);
	for (int i = 0; i < 20; i++) {
		int from = -1;

		MPI_Sendrecv(&own, 1, MPI_INT, (own + 1) % members, 1, &from, 1, MPI_INT,
			     (own + members - 1) % members, 1, comm, MPI_STATUS_IGNORE);
		CHECK_EQUAL(from, (own + members - 1) % members);
		MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, comm);
		CHECK_EQUAL(sum, members * (members - 1) / 2);
	}
	MPI_Win_allocate(64, 4, MPI_INFO_NULL, comm, &part, &win);
	MPI_Win_fence(0, win);
	MPI_Put(&own, 1, MPI_INT, (own + 1) % members, 0, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	CHECK_EQUAL(*part, (own + members - 1) % members);
	MPI_Win_free(&win);
}

static void use_merged(MPI_Comm others, int high)
{
	MPI_Comm all, copy, half;
	int own;

	MPI_Intercomm_merge(others, high, &all);
	MPI_Comm_rank(all, &own);
	use(all);
	MPI_Comm_dup(all, &copy);
	use(copy);
	MPI_Comm_split(all, own % 2, own, &half); /* members of both worlds */
	use(half);
	MPI_Comm_free(&half);
	MPI_Comm_free(&copy);
	MPI_Comm_free(&all);
	MPI_Comm_disconnect(&others);
}

static MPI_Comm spawned(char *program, char *how)
{
	char *arguments[] = { (char *)"child", NULL }, **lists[] = { arguments, arguments };
	char *programs[] = { program, program };
	int counts[] = { 1, 1 }, codes[2];
	MPI_Info infos[] = { MPI_INFO_NULL, MPI_INFO_NULL };
	MPI_Comm children;

	if (strcmp(how, "one") == 0)
		MPI_Comm_spawn(program, arguments, 2, MPI_INFO_NULL, size - 1, MPI_COMM_WORLD, &children,
			       codes);
	else
		MPI_Comm_spawn_multiple(2, programs, lists, counts, infos, 0, MPI_COMM_WORLD, &children,
					codes);
	return children;
}

int main(int argc, char **argv)
{
	MPI_Comm parents;

	begin(&argc, &argv);
	MPI_Comm_get_parent(&parents);
	if (parents != MPI_COMM_NULL) {
		use_merged(parents, 1);
		end("children");
		return failures != 0;
	}
	use_merged(spawned(argv[0], argv[1]), 0);
	return end("spawn");
}
