/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Records of participant 0: batches of some microseconds, counted in buckets. The
 * same as histogram.rs and meter.rs in crates/workload/src.
 */
#ifndef UNISONO_METER_H
#define UNISONO_METER_H

#include "computation.h"
#include <sys/resource.h>

/* 128 buckets per power of two of 1/64 ns. */
#define SUB_BITS 7
#define SUB (1 << SUB_BITS)
#define BUCKETS ((64 - SUB_BITS) * SUB + SUB)

struct histogram {
	uint64_t total;
	uint64_t counts[BUCKETS];
};

static unsigned bucket_of(uint64_t value)
{
	unsigned exponent;

	if (value < SUB)
		return (unsigned)value;
	exponent = 63 - (unsigned)__builtin_clzll(value);
	return (exponent - SUB_BITS + 1) * SUB + (unsigned)((value >> (exponent - SUB_BITS)) & (SUB - 1));
}

static double bucket_middle(unsigned bucket)
{
	unsigned shift;

	if (bucket < SUB)
		return (double)bucket;
	shift = bucket / SUB - 1;
	return ldexp((double)(SUB + bucket % SUB) + (shift ? 0.5 : 0.0), (int)shift);
}

static void histogram_add(struct histogram *h, double ns, uint64_t weight)
{
	h->counts[bucket_of((uint64_t)(ns * 64.0))] += weight;
	h->total += weight;
}

static double histogram_quantile(const struct histogram *h, double q)
{
	uint64_t rank = (uint64_t)ceil(q * (double)h->total), seen = 0;

	if (!rank)
		rank = 1;
	for (unsigned b = 0; b < BUCKETS; b++) {
		seen += h->counts[b];
		if (seen >= rank)
			return bucket_middle(b) / 64.0;
	}
	return 0;
}

#define BATCH_SHORT 4000
#define BATCH_LONG 10000
#define BATCH_MOST 4096

struct meter {
	const struct options *o;
	uint64_t begin_measuring, end_measuring; /* planned */
	uint64_t ready;
	int appointed; /* the planned time is the measured time, whatever happens at its ends */
	int measuring;
	uint64_t batch, next;	 /* episodes per batch, episode of the next reading */
	uint64_t last_e, last_t; /* previous reading */
	uint64_t first_e, start, end;
	double head;	 /* part of the episodes at the start that lies inside the measured time */
	double episodes; /* in the measured time; those that cross its ends count by their parts inside */
	uint64_t longest, longest_batch;
	double least;
	double cpu_start, cpu_s;
	long blocks_start, blocks, preemptions_start, preemptions;
	struct histogram histogram;
};

static double cpu_seconds(const struct rusage *u)
{
	return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
	       (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1e6;
}

/* The number of episodes in `ns`, if `k` of them lasted `took`. */
static double meter_part(uint64_t k, uint64_t ns, uint64_t took)
{
	if (!took)
		return 0;
	return (double)k * (double)(ns < took ? ns : took) / (double)took;
}

static struct meter *meter_new(const struct options *o)
{
	static struct meter m;
	uint64_t t = now_ns();

	m.o = o;
	m.begin_measuring = o->start_at ? o->start_at : t + (uint64_t)(o->warm_up * 1e9);
	m.end_measuring = m.begin_measuring + (uint64_t)(o->seconds * 1e9);
	m.ready = t;
	m.appointed = o->start_at && !o->iterations;
	m.batch = 1;
	m.next = 1;
	m.last_t = t;
	m.least = INFINITY;
	return &m;
}

/* Called before arriving at a reading's episode e; returns whether e is the
 * last. */
static __attribute__((noinline)) int meter_read(struct meter *m, uint64_t e)
{
	uint64_t t = now_ns();
	uint64_t took = t - m->last_t, k = e - m->last_e;
	struct rusage u;
	int over = m->o->iterations ? e >= m->o->iterations : t >= m->end_measuring;

	if (m->measuring) {
		double each = (double)took / (double)k;

		histogram_add(&m->histogram, each, k);
		if (each < m->least)
			m->least = each;
		if (took > m->longest) {
			m->longest = took;
			m->longest_batch = k;
		}
		if (over) {
			getrusage(RUSAGE_SELF, &u);
			m->end = m->appointed ? m->end_measuring : t;
			m->episodes = m->head + (double)(e - m->first_e) - meter_part(k, t - m->end, took);
			m->cpu_s = cpu_seconds(&u) - m->cpu_start;
			m->blocks = u.ru_nvcsw - m->blocks_start;
			m->preemptions = u.ru_nivcsw - m->preemptions_start;
			return 1;
		}
	} else if (t >= m->begin_measuring || m->o->iterations) {
		getrusage(RUSAGE_SELF, &u);
		m->cpu_start = cpu_seconds(&u);
		m->blocks_start = u.ru_nvcsw;
		m->preemptions_start = u.ru_nivcsw;
		m->measuring = 1;
		m->first_e = e;
		m->start = m->appointed ? m->begin_measuring : now_ns();
		m->end_measuring = m->start + (uint64_t)(m->o->seconds * 1e9);
		/* before episode 1 the program got ready */
		if (m->appointed && m->last_e)
			m->head =
				meter_part(k, (t < m->end_measuring ? t : m->end_measuring) - m->start, took);
		t = now_ns();
		if (m->o->iterations && over) {
			m->end = t;
			return 1;
		}
	}
	if (m->o->iterations)
		m->batch = 1;
	else if (took < BATCH_SHORT && m->batch < BATCH_MOST)
		m->batch *= 2;
	else if (took > BATCH_LONG && m->batch > 1)
		m->batch /= 2;
	m->last_t = t;
	m->last_e = e;
	m->next = e + m->batch;
	return 0;
}

#endif
