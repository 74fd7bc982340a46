/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Computation of a known length, and the arrival times of participants. The same
 * as spin.rs and arrival.rs in crates/workload/src: a test compares the
 * draws.
 */
#ifndef UNISONO_COMPUTATION_H
#define UNISONO_COMPUTATION_H

#include "options.h"
#include <time.h>

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A chain of dependent operations: no compiler shortens it. A thread that was
 * preempted still has the rest of the chain to do (a wait for a point in time
 * would have ended meanwhile). */
static inline uint64_t compute(uint64_t state, uint64_t rounds)
{
	for (uint64_t i = 0; i < rounds; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
	}
	return state;
}

static volatile uint64_t compute_sink;

/* Rounds per nanosecond: the best of many short trials, so that preemptions in
 * some trials do not count. */
static double calibrate(void)
{
	const uint64_t rounds = 20000;
	uint64_t best = UINT64_MAX;
	uint64_t state = 88172645463325252u;

	for (int trial = 0; trial < 64; trial++) {
		uint64_t begin = now_ns(), took;

		state = compute(state, rounds);
		compute_sink = state;
		took = now_ns() - begin;
		if (took < best)
			best = took;
	}
	return (double)rounds / (double)(best ? best : 1);
}

struct pcg32 {
	uint64_t state, increment;
};

static void pcg32_step(struct pcg32 *g)
{
	g->state = g->state * 6364136223846793005u + g->increment;
}

static struct pcg32 pcg32_new(uint64_t seed, uint64_t stream)
{
	struct pcg32 g;

	g.increment = (stream << 1) | 1;
	g.state = seed + g.increment;
	pcg32_step(&g);
	return g;
}

static uint32_t pcg32_next(struct pcg32 *g)
{
	uint64_t s = g->state;
	uint32_t rotation = (uint32_t)(s >> 59);
	uint32_t word = (uint32_t)(((s >> 18) ^ s) >> 27);

	pcg32_step(g);
	return (word >> rotation) | (word << ((32 - rotation) & 31));
}

/* A normal distribution with mean a/2 and sigma a/6, drawn again outside [0, a]. */
static double truncated_normal(struct pcg32 *g, double a)
{
	for (;;) {
		double u = ((double)pcg32_next(g) + 1.0) / 4294967296.0;
		double v = (double)pcg32_next(g) / 4294967296.0;
		double z = sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
		double x = a / 2.0 + a / 6.0 * z;

		if (x >= 0.0 && x <= a)
			return x;
	}
}

/* The computations before the barriers, drawn in advance, so that an episode
 * costs one load. */
struct computation {
	uint64_t mask;
	uint64_t rounds[DRAWS];
};

static struct computation *computation_new(const struct options *o, int thread, double rounds_per_ns)
{
	struct computation *c = (struct computation *)aligned_alloc(
		CACHE_LINE, (sizeof(*c) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
	struct pcg32 g = pcg32_new(o->seed, (uint64_t)thread);

	if (!c) {
		fprintf(stderr, "out of memory\n");
		exit(1);
	}
	c->mask = o->variance_ns ? DRAWS - 1 : 0;
	for (uint64_t i = 0; i <= c->mask; i++) {
		double ns = (double)o->interval_ns;

		if (o->variance_ns)
			ns += truncated_normal(&g, (double)o->variance_ns);
		c->rounds[i] = (uint64_t)llround(ns * rounds_per_ns);
	}
	return c;
}

static void print_draws_if_asked(const struct options *o)
{
	struct pcg32 g = pcg32_new(o->seed, 0);

	if (!o->draws)
		return;
	for (int i = 0; i < o->draws; i++)
		printf("%.17g\n", truncated_normal(&g, (double)o->variance_ns));
	exit(0);
}

#endif
