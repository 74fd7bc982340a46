/* Makes every window call of unisono.h between the ranks of a job, and checks each result. Exit code 0:
 * all results were right. */
#include "check.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSED(call, why) CHECK((call) == UNISONO_STATUS_##why && strlen(unisono_error_text()) > 10)

static int rank, size, next, before;
static const unisono_layout *i64, *f64;

static void fence(unisono_job *job)
{
	unisono_window *window;
	int64_t *mine, value = 100 + rank, got = -1, sum = 1;

	DO(unisono_window_allocate(job, 4 * sizeof(int64_t), &(unisono_spec){ .unit = 8 }, (void **)&mine,
				   &window));
	CHECK(mine != NULL && mine[0] == 0 && mine[3] == 0);
	REFUSED(unisono_put(window, &value, 1, i64, next, 0, 1, i64), RMA_SYNC);
	DO(unisono_window_fence(window, UNISONO_ASSERT_NO_PRECEDE));
	DO(unisono_put(window, &value, 1, i64, next, 1, 1, i64));
	DO(unisono_accumulate(window, &sum, 1, i64, 0, 2, 1, i64, UNISONO_OPERATION_SUM));
	REFUSED(unisono_put(window, &value, 1, i64, next, 4, 1, i64), RMA_RANGE);
	REFUSED(unisono_put(window, &value, 1, i64, size, 0, 1, i64), RANK);
	REFUSED(unisono_put(window, &value, 1, i64, -1, 0, 1, i64), RANK);
	REFUSED(unisono_put(window, NULL, 1, i64, next, 0, 1, i64), ARG);
	REFUSED(unisono_put(window, &value, 1, NULL, next, 0, 1, i64), ARG);
	REFUSED(unisono_put(window, &value, 1, f64, next, 0, 2, f64), TYPE);
	REFUSED(unisono_accumulate(window, &sum, 1, i64, 0, 2, 1, i64, 99), ARG);
	REFUSED(unisono_accumulate(window, &sum, 1, f64, 0, 2, 1, f64, UNISONO_OPERATION_BIT_AND), OP);
	DO(unisono_window_fence(window, 0));
	CHECK(mine[1] == 100 + before);
	CHECK(rank != 0 || mine[2] == size);
	DO(unisono_get(window, &got, 1, i64, next, 1, 1, i64));
	DO(unisono_window_fence(window, UNISONO_ASSERT_NO_SUCCEED));
	CHECK(got == 100 + rank);
	REFUSED(unisono_window_fence(window, 1 << 10), ARG);
	DO(unisono_window_free(&window));
	CHECK(window == NULL);
	REFUSED(unisono_window_free(&window), WIN);
}

static void post_start_complete_wait(unisono_job *job)
{
	unisono_window *window;
	double mine[2] = { 0, 0 }, value = rank + 0.5, old = -1;
	int done = 0;

	DO(unisono_window_create(job, mine, sizeof(mine), &(unisono_spec){ .unit = 8 }, &window));
	DO(unisono_window_post(window, &before, 1, 0));
	DO(unisono_window_start(window, &next, 1, 0));
	DO(unisono_put(window, &value, 1, f64, next, 0, 1, f64));
	DO(unisono_get_accumulate(window, &value, 1, f64, &old, 1, f64, next, 1, 1, f64,
				  UNISONO_OPERATION_MAX));
	DO(unisono_window_complete(window));
	CHECK(old == 0);
	DO(unisono_window_wait(window));
	CHECK(mine[0] == before + 0.5 && mine[1] == before + 0.5);
	REFUSED(unisono_window_wait(window), RMA_SYNC);
	DO(unisono_window_post(window, &before, 1, UNISONO_ASSERT_NO_STORE));
	DO(unisono_window_start(window, &next, 1, 0));
	DO(unisono_window_complete(window));
	while (!done)
		DO(unisono_window_test(window, &done));
	DO(unisono_window_free(&window));
}

static void lock_unlock(unisono_job *job)
{
	unisono_window *window;
	unisono_request *request;
	int64_t *mine, one = 1, two = 2, old = -1, got[2] = { -1, -1 }, zero = 0, winner = rank + 1;
	int done = 0;

	DO(unisono_window_allocate(job, 8 * sizeof(int64_t), &(unisono_spec){ .unit = 8 }, (void **)&mine,
				   &window));
	REFUSED(unisono_window_unlock(window, 0), RMA_SYNC);
	REFUSED(unisono_window_lock(window, 7, 0, 0), ARG);
	DO(unisono_window_lock(window, UNISONO_LOCK_EXCLUSIVE, 0, 0));
	REFUSED(unisono_window_free(&window), RMA_SYNC);
	DO(unisono_get(window, &old, 1, i64, 0, 0, 1, i64));
	DO(unisono_window_flush_local(window, 0));
	old += 1;
	DO(unisono_put(window, &old, 1, i64, 0, 0, 1, i64));
	DO(unisono_window_flush(window, 0));
	DO(unisono_window_unlock(window, 0));

	DO(unisono_window_lock_all(window, 0));
	DO(unisono_fetch_and_op(window, &one, &old, UNISONO_ELEMENT_I64, 0, 1, UNISONO_OPERATION_SUM));
	DO(unisono_window_flush_local_all(window));
	CHECK(old >= 0 && old < size);
	DO(unisono_compare_and_swap(window, &winner, &zero, &old, UNISONO_ELEMENT_I64, 0, 2));
	DO(unisono_window_flush_all(window));
	CHECK(old >= 0 && old <= size);
	DO(unisono_rput(window, &one, 1, i64, next, 3, 1, i64, &request));
	DO(unisono_request_wait(window, &request));
	CHECK(request == NULL);
	REFUSED(unisono_request_wait(window, &request), ARG);
	DO(unisono_raccumulate(window, &two, 1, i64, next, 4, 1, i64, UNISONO_OPERATION_REPLACE, &request));
	while (!done)
		DO(unisono_request_test(window, &request, &done));
	CHECK(request == NULL);
	DO(unisono_window_flush(window, next));
	DO(unisono_rget(window, got, 2, i64, next, 3, 2, i64, &request));
	DO(unisono_request_wait(window, &request));
	CHECK(got[0] == 1 && got[1] == 2);
	DO(unisono_rget_accumulate(window, NULL, 0, NULL, &old, 1, i64, next, 4, 1, i64,
				   UNISONO_OPERATION_NO_OP, &request));
	DO(unisono_request_wait(window, &request));
	CHECK(old == 2);
	DO(unisono_window_sync(window));
	DO(unisono_window_progress(window));
	DO(unisono_window_unlock_all(window));
	DO(unisono_window_settle(window));
	DO(unisono_job_barrier(job));
	CHECK(rank != 0 || (mine[0] == size && mine[1] == size && mine[2] >= 1 && mine[2] <= size));
	DO(unisono_window_free(&window));

	DO(unisono_window_allocate(job, 8, &(unisono_spec){ .flags = UNISONO_NO_LOCKS }, (void **)&mine,
				   &window));
	REFUSED(unisono_window_lock(window, UNISONO_LOCK_SHARED, 0, 0), RMA_SYNC);
	DO(unisono_window_free(&window));
}

static void dynamic(unisono_job *job)
{
	unisono_window *window;
	int64_t mine[4] = { 0 }, value = rank, *all = calloc(size, sizeof(*all));
	int64_t address = (int64_t)(intptr_t)&mine[2];

	CHECK(all != NULL);
	DO(unisono_window_dynamic(job, NULL, &window));
	DO(unisono_window_attach(window, mine, sizeof(mine)));
	REFUSED(unisono_window_attach(window, mine, 8), RMA_ATTACH);
	DO(unisono_job_gather(job, &address, sizeof(address), all));
	CHECK(all[rank] == address);
	DO(unisono_window_fence(window, 0));
	DO(unisono_put(window, &value, 1, i64, next, all[next], 1, i64));
	DO(unisono_window_fence(window, 0));
	CHECK(mine[2] == before);
	DO(unisono_window_detach(window, mine));
	REFUSED(unisono_window_detach(window, mine), RMA_ATTACH);
	DO(unisono_window_free(&window));
	free(all);
}

/* A column of the neighbor's matrix, scattered blocks, and structs. */
static void layouts(unisono_job *job)
{
	unisono_window *window;
	unisono_layout *column, *scattered, *pairs;
	int64_t offsets[2] = { 3, 0 };
	uint64_t lengths[2] = { 1, 2 }, bytes = 0;
	unisono_run runs[2] = { { 0, 1, 0, 1 }, { 8, 8, 0, 1 } };
	struct pair {
		char letter;
		double number;
	} pair = { 'x', 2.5 }, back = { 0, 0 };
	double *mine, values[3] = { 1, 2, 3 };
	void *base = NULL;
	uint32_t unit = 0;

	DO(unisono_layout_strided(UNISONO_ELEMENT_F64, 3, 1, 3, &column));
	DO(unisono_layout_indexed(UNISONO_ELEMENT_F64, 2, offsets, lengths, &scattered));
	DO(unisono_layout_runs(runs, 2, sizeof(struct pair), 0, &pairs));
	CHECK(unisono_layout_size(column) == 24 && unisono_layout_extent(column) == 56);
	CHECK(unisono_layout_size(pairs) == 9 && unisono_layout_extent(pairs) == 16);
	CHECK(unisono_layout_of(0) == NULL && unisono_layout_size(f64) == 8);
	REFUSED(unisono_layout_strided(77, 1, 1, 1, &column), ARG);
	DO(unisono_window_allocate(job, 9 * sizeof(double), NULL, (void **)&mine, &window));
	DO(unisono_window_mapped(window, rank, &base, &bytes, &unit));
	CHECK(base == mine && bytes == 72 && unit == 1);
	DO(unisono_window_fence(window, 0));
	DO(unisono_put(window, values, 3, f64, next, 8, 1, column));
	DO(unisono_window_fence(window, 0));
	CHECK(mine[1] == 1 && mine[4] == 2 && mine[7] == 3 && mine[0] == 0 && mine[2] == 0);
	/* no rank puts again before all ranks have checked */
	DO(unisono_job_barrier(job));
	DO(unisono_put(window, values, 3, f64, next, 0, 1, scattered));
	DO(unisono_window_fence(window, 0));
	CHECK(mine[3] == 1 && mine[0] == 2 && mine[1] == 3);
	DO(unisono_job_barrier(job));
	DO(unisono_put(window, &pair, 1, pairs, next, 16, 1, pairs));
	DO(unisono_window_fence(window, 0));
	DO(unisono_get(window, &back, 1, pairs, rank, 16, 1, pairs));
	REFUSED(unisono_accumulate(window, &pair, 1, pairs, next, 16, 1, pairs, UNISONO_OPERATION_SUM), TYPE);
	DO(unisono_window_fence(window, 0));
	CHECK(back.letter == 'x' && back.number == 2.5);
	DO(unisono_window_free(&window));
	DO(unisono_layout_free(&column));
	DO(unisono_layout_free(&scattered));
	DO(unisono_layout_free(&pairs));
	REFUSED(unisono_layout_free(&pairs), ARG);
}

int main(void)
{
	unisono_job *job;

	REFUSED(unisono_job_join(NULL, 0), ARG);
	DO(unisono_job_join(&job, 30));
	rank = unisono_job_rank(job);
	size = unisono_job_size(job);
	next = (rank + 1) % size;
	before = (rank + size - 1) % size;
	i64 = unisono_layout_of(UNISONO_ELEMENT_I64);
	f64 = unisono_layout_of(UNISONO_ELEMENT_F64);
	CHECK(unisono_job_rank(NULL) == -1 && unisono_job_size(NULL) == -1);
	REFUSED(unisono_job_barrier(NULL), ARG);
	REFUSED(unisono_window_fence(NULL, 0), ARG);
	fence(job);
	post_start_complete_wait(job);
	lock_unlock(job);
	dynamic(job);
	layouts(job);
	DO(unisono_job_finalize(&job));
	CHECK(job == NULL);
	REFUSED(unisono_job_finalize(&job), ARG);
	printf("rank %d of %d: every call answered as it should\n", rank, size);
	return 0;
}
