/*
 * The nearest-neighbor exchange of ghost areas, by messages and by windows; runs on any MPI.
 *
 *   mpiexec -n N ghost [--seconds S] [--repetitions R] [--sizes BYTES,...] [--only NAME,...]
 *                      [--windows allocated,created] [--pin CPU,...] [--result FILE]
 *
 * The processes form a periodic grid of two dimensions. In each step, a process sends each of its four
 * neighbors one message of the given size. Some methods are no exchange: a message around a ring, a
 * collective, a single operation. The result is the time of a step: a batch of steps is timed between two
 * barriers, a batch lasts as long as --seconds divided by the repetitions, and the slowest process's time
 * counts. Prints one line of JSON per measurement: program, MPI, processes, method, window (allocated,
 * created or none), bytes, steps, repetitions, and the minimum, median and maximum of the repetitions in
 * nanoseconds a step (for bandwidths also MB/s). If a single step takes longer than the whole time, that step
 * is the measurement.
 *
 * After Thakur, Gropp and Toonen, "Minimizing Synchronization Overhead in the Implementation of MPI One-Sided
 * Communication", section 1 (the asserts of its figure 1) and section 5.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NEIGHBOURS = 4, MAX_REPETITIONS = 101, MAX_SIZES = 16, MAX_GROWTH = 64 };

static int crowded, rank, size, neighbour[NEIGHBOURS], from_side[NEIGHBOURS];
static double seconds = 0.3;
static int repetitions = 7;
static const char *only;
static FILE *result;
static char *source, *ghost;
static MPI_Win window;
static MPI_Group around;

/* A step of a method; `bytes` go to each neighbor. */
typedef void step(int bytes);

static void messages(int bytes)
{
	MPI_Request requests[2 * NEIGHBOURS];
	MPI_Status statuses[2 * NEIGHBOURS];

	for (int side = 0; side < NEIGHBOURS; side++)
		MPI_Irecv(ghost + side * bytes, bytes, MPI_BYTE, neighbour[side], side, MPI_COMM_WORLD,
			  &requests[side]);
	for (int side = 0; side < NEIGHBOURS; side++)
		MPI_Isend(source + side * bytes, bytes, MPI_BYTE, neighbour[side], from_side[side],
			  MPI_COMM_WORLD, &requests[NEIGHBOURS + side]);
	MPI_Waitall(2 * NEIGHBOURS, requests, statuses);
}

static void put_all(int bytes)
{
	for (int side = 0; side < NEIGHBOURS; side++)
		MPI_Put(source + side * bytes, bytes, MPI_BYTE, neighbour[side],
			(MPI_Aint)from_side[side] * bytes, bytes, MPI_BYTE, window);
}

static void fence(int bytes)
{
	MPI_Win_fence(MPI_MODE_NOPRECEDE, window);
	put_all(bytes);
	MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOSUCCEED, window);
}

static void pscw(int bytes)
{
	MPI_Win_post(around, 0, window);
	MPI_Win_start(around, 0, window);
	put_all(bytes);
	MPI_Win_complete(window);
	MPI_Win_wait(window);
}

static void lock(int bytes)
{
	for (int side = 0; side < NEIGHBOURS; side++) {
		MPI_Win_lock(MPI_LOCK_SHARED, neighbour[side], 0, window);
		MPI_Put(source + side * bytes, bytes, MPI_BYTE, neighbour[side],
			(MPI_Aint)from_side[side] * bytes, bytes, MPI_BYTE, window);
		MPI_Win_unlock(neighbour[side], window);
	}
}

/* One operation with its completion, from rank 0 to its right neighbor only. */
static void put_flush(int bytes)
{
	if (rank == 0) {
		MPI_Put(source, bytes, MPI_BYTE, neighbour[1], 0, bytes, MPI_BYTE, window);
		MPI_Win_flush(neighbour[1], window);
	}
}

static void get_flush(int bytes)
{
	if (rank == 0) {
		MPI_Get(source, bytes, MPI_BYTE, neighbour[1], 0, bytes, MPI_BYTE, window);
		MPI_Win_flush(neighbour[1], window);
	}
}

static void accumulate_flush(int bytes)
{
	if (rank == 0) {
		MPI_Accumulate(source, bytes / 8, MPI_DOUBLE, neighbour[1], 0, bytes / 8, MPI_DOUBLE, MPI_SUM,
			       window);
		MPI_Win_flush(neighbour[1], window);
	}
}

static void fetch_flush(int bytes)
{
	(void)bytes;
	if (rank == 0) {
		MPI_Fetch_and_op(source, ghost, MPI_LONG, neighbour[1], 0, MPI_SUM, window);
		MPI_Win_flush(neighbour[1], window);
	}
}

static void barrier(int bytes)
{
	(void)bytes;
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Each process sends to one neighbor, so the cost for a process does not grow with the number of
 * processes. */
static void ring(int bytes)
{
	MPI_Request requests[2];

	MPI_Irecv(ghost, bytes, MPI_BYTE, (rank + size - 1) % size, 0, MPI_COMM_WORLD, &requests[0]);
	MPI_Isend(source, bytes, MPI_BYTE, (rank + 1) % size, 0, MPI_COMM_WORLD, &requests[1]);
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void allreduce(int bytes)
{
	MPI_Allreduce(source, ghost, bytes / (int)sizeof(double), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void bcast(int bytes)
{
	MPI_Bcast(source, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void ibarrier(int bytes)
{
	MPI_Request request;

	(void)bytes;
	MPI_Ibarrier(MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void settle(MPI_Request *request)
{
	for (int done = 0;;) {
		MPI_Test(request, &done, MPI_STATUS_IGNORE);
		if (done)
			return;
		usleep(20);
	}
}

/*
 * Waits for all processes. If processes outnumber processors, some MPIs spin in their barrier on processors
 * that other processes need to reach or leave it. That is not the subject of this benchmark, so in this case
 * the barrier sleeps.
 */
static void together(void)
{
	MPI_Request request;

	if (!crowded) {
		MPI_Barrier(MPI_COMM_WORLD);
		return;
	}
	MPI_Ibarrier(MPI_COMM_WORLD, &request);
	settle(&request);
}

/* Returns the maximum over all processes; if processes outnumber processors, it sleeps, too. */
static double greatest(double mine)
{
	MPI_Request request;
	double all;

	if (!crowded) {
		MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
		return all;
	}
	MPI_Iallreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &request);
	settle(&request);
	return all;
}

/* The slowest process's time for `steps` steps, in seconds. */
static double batch(step *step, int bytes, long steps)
{
	double began, mine;

	together();
	began = MPI_Wtime();
	for (long i = 0; i < steps; i++)
		step(bytes);
	mine = MPI_Wtime() - began;
	/*
	 * Some MPIs spin in a reduction on processors that slower processes may still need for their last
	 * step. So no process starts the reduction before all have read the clock.
	 */
	together();
	return greatest(mine);
}

static int wanted(const char *name)
{
	size_t length = strlen(name);
	const char *at = only;

	if (!only)
		return 1;
	for (; (at = strstr(at, name)) != NULL; at += length)
		if ((at == only || at[-1] == ',') && (at[length] == 0 || at[length] == ','))
			return 1;
	return 0;
}

static const char *implementation(void)
{
	static char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	MPI_Get_library_version(version, &length);
	return strstr(version, "Open MPI") ? "openmpi" : strstr(version, "MPICH") ? "mpich" : "other";
}

static void measure(const char *method, const char *memory, step *step, int bytes)
{
	double time[MAX_REPETITIONS + 1], share = seconds / repetitions;
	long steps = 1;
	int measured = repetitions;

	/*
	 * Finds the number of steps that fills a repetition's share of the time, starting from fewer steps.
	 * The faster of two batches decides, because one may have been interrupted.
	 */
	for (;;) {
		double took = batch(step, bytes, steps), again;
		if (took < share / 2 && steps < 1L << 24) {
			double growth = took > 0 ? share / took : MAX_GROWTH;
			steps *= growth < 2 ? 2 : growth > MAX_GROWTH ? MAX_GROWTH : (long)growth;
			continue;
		}
		/* far too long for an interruption to be the reason */
		again = steps == 1 && took >= 4 * seconds ? took : batch(step, bytes, steps);
		if (steps == 1 && took >= seconds && again >= seconds) {
			time[0] = took * 1e9;
			time[1] = again * 1e9;
			measured = 0;
			break;
		}
		took = again < took ? again : took;
		if (took >= share / 2 || steps >= 1L << 24) {
			steps = took > 0 ? (long)(steps * share / took) : steps;
			break;
		}
	}
	steps = steps < 1 ? 1 : steps;
	for (int i = 0; i < measured; i++)
		time[i] = batch(step, bytes, steps) / steps * 1e9;
	measured = measured ? measured : 2;
	qsort(time, measured, sizeof *time, ascending);
	if (rank == 0) {
		fprintf(result,
			"{\"program\":\"ghost\",\"mpi\":\"%s\",\"processes\":%d,\"method\":\"%s\",\"window\":"
			"\"%s\","
			"\"bytes\":%d,\"steps\":%ld,\"repetitions\":%d,\"min_ns\":%.1f,\"median_ns\":%.1f,"
			"\"max_ns\":%.1f,\"median_mb_s\":%.1f}\n",
			implementation(), size, method, memory, bytes, steps, measured, time[0],
			time[measured / 2], time[measured - 1], bytes / time[measured / 2] * 1e3);
		fflush(result);
	}
}

/* Checks that the neighbors' messages have arrived in the right places: a wrong benchmark is worthless. */
static void verify(const char *method, step *step, int bytes)
{
	for (int side = 0; side < NEIGHBOURS; side++) {
		memset(source + side * bytes, 16 * rank + side, bytes);
		memset(ghost + side * bytes, 255, bytes);
	}
	together();
	step(bytes);
	together();
	for (int side = 0; side < NEIGHBOURS; side++) {
		char expected = 16 * neighbour[side] + from_side[side];
		if (ghost[side * bytes] != expected || ghost[side * bytes + bytes - 1] != expected) {
			fprintf(stderr, "ghost: rank %d: %s: side %d has the wrong data\n", rank, method,
				side);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
}

static void exchange(const char *method, const char *memory, step *step, const int *sizes, int count)
{
	if (!wanted(method))
		return;
	for (int i = 0; i < count; i++) {
		verify(method, step, sizes[i]);
		measure(method, memory, step, sizes[i]);
	}
}

/* All methods that need the window, which covers `ghost`. */
static void windows(const char *memory, const int *sizes, int count)
{
	exchange("fence", memory, fence, sizes, count);
	exchange("pscw", memory, pscw, sizes, count);
	exchange("lock", memory, lock, sizes, count);

	static const int lengths[] = { 8, 1024, 65536, 1 << 20 };
	struct {
		const char *name;
		step *step;
	} single[] = {
		{ "put_flush", put_flush },
		{ "get_flush", get_flush },
		{ "accumulate_flush", accumulate_flush },
	};
	MPI_Win_lock_all(0, window);
	for (size_t which = 0; which < sizeof single / sizeof *single; which++)
		for (size_t i = 0; wanted(single[which].name) && i < sizeof lengths / sizeof *lengths; i++)
			measure(single[which].name, memory, single[which].step, lengths[i]);
	if (wanted("fetch_flush"))
		measure("fetch_flush", memory, fetch_flush, 8);
	MPI_Win_unlock_all(window);
}

/* Binds this process to the processor of the list at its rank, modulo the list's length. */
static void pin(const char *list)
{
	int cpus[1024], count = 0;
	char *at = (char *)list;
	cpu_set_t set;

	while (*at >= '0' && *at <= '9' && count < 1024) {
		cpus[count++] = (int)strtol(at, &at, 10);
		at += *at == ',';
	}
	if (!count)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpus[rank % count], &set);
	if (sched_setaffinity(0, sizeof set, &set)) {
		fprintf(stderr, "ghost: rank %d cannot run on processor %d\n", rank, cpus[rank % count]);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

/* Arranges the ranks in a periodic grid, as square as their number allows. */
static void grid(void)
{
	static const int opposite[NEIGHBOURS] = { 1, 0, 3, 2 };
	int rows = 1, distinct[NEIGHBOURS], count = 0;
	MPI_Group world;

	for (int candidate = 1; candidate * candidate <= size; candidate++)
		if (size % candidate == 0)
			rows = candidate;
	int columns = size / rows, row = rank / columns, column = rank % columns;
	neighbour[0] = row * columns + (column + columns - 1) % columns;
	neighbour[1] = row * columns + (column + 1) % columns;
	neighbour[2] = (row + rows - 1) % rows * columns + column;
	neighbour[3] = (row + 1) % rows * columns + column;
	/* in a single row all four neighbors lie in that row: those above and below are the left and right
	 * ones */
	if (rows == 1)
		for (int side = 2; side < NEIGHBOURS; side++)
			neighbour[side] = neighbour[side - 2];
	for (int side = 0; side < NEIGHBOURS; side++) {
		int known = 0;

		from_side[side] = opposite[side];
		for (int i = 0; i < count; i++)
			known |= distinct[i] == neighbour[side];
		if (!known)
			distinct[count++] = neighbour[side];
	}
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, count, distinct, &around);
	MPI_Group_free(&world);
}

int main(int argc, char **argv)
{
	int sizes[MAX_SIZES] = { 16, 64, 256, 1024, 16384, 65536, 262144 }, count = 7;
	const char *memories = "allocated,created";

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	cpu_set_t allowed;
	crowded = !sched_getaffinity(0, sizeof allowed, &allowed) && size > CPU_COUNT(&allowed);
	result = stdout;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--seconds")) {
			seconds = atof(argv[i + 1]);
		} else if (!strcmp(argv[i], "--repetitions")) {
			repetitions = atoi(argv[i + 1]);
			if (repetitions < 1 || repetitions > MAX_REPETITIONS)
				repetitions = 7;
		} else if (!strcmp(argv[i], "--only")) {
			only = argv[i + 1];
		} else if (!strcmp(argv[i], "--windows")) {
			memories = argv[i + 1];
		} else if (!strcmp(argv[i], "--pin")) {
			pin(argv[i + 1]);
		} else if (!strcmp(argv[i], "--result")) {
			if (rank == 0 && !(result = fopen(argv[i + 1], "w"))) {
				fprintf(stderr, "ghost: cannot write %s\n", argv[i + 1]);
				MPI_Abort(MPI_COMM_WORLD, 1);
			}
		} else if (!strcmp(argv[i], "--sizes")) {
			char *at = argv[i + 1];
			for (count = 0; count < MAX_SIZES && *at; count++) {
				sizes[count] = (int)strtol(at, &at, 10);
				at += *at == ',';
			}
		} else {
			if (rank == 0)
				fprintf(stderr, "ghost: unknown option %s\n", argv[i]);
			MPI_Abort(MPI_COMM_WORLD, 2);
		}
	}
	grid();
	size_t most = 1 << 20;
	for (int i = 0; i < count; i++)
		if ((size_t)NEIGHBOURS * sizes[i] > most)
			most = (size_t)NEIGHBOURS * sizes[i];
	source = malloc(most);
	char *own = malloc(most);
	/* pages never written all map to one zero page, so reading them would not read memory */
	memset(source, 1, most);
	memset(own, 0, most);

	ghost = own;
	exchange("messages", "none", messages, sizes, count);
	if (wanted("barrier"))
		measure("barrier", "none", barrier, 0);
	if (wanted("ibarrier"))
		measure("ibarrier", "none", ibarrier, 0);
	for (int i = 0; i < count; i++) {
		if (wanted("ring"))
			measure("ring", "none", ring, sizes[i]);
		if (wanted("bcast"))
			measure("bcast", "none", bcast, sizes[i]);
		if (wanted("allreduce"))
			measure("allreduce", "none", allreduce, sizes[i]);
	}
	if (strstr(memories, "allocated")) {
		MPI_Win_allocate(most, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &ghost, &window);
		windows("allocated", sizes, count);
		MPI_Win_free(&window);
	}
	if (strstr(memories, "created")) {
		ghost = own;
		MPI_Win_create(ghost, most, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
		windows("created", sizes, count);
		MPI_Win_free(&window);
	}
	MPI_Group_free(&around);
	free(own);
	free(source);
	MPI_Finalize();
	return 0;
}
