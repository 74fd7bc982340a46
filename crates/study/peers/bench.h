/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * What every peer program shares: flags, calibrated computation, arrival
 * times, the meter of participant 0, and the result as JSON.
 *
 * The same semantics as crates/study/src/workload (options.rs, spin.rs,
 * arrival.rs, histogram.rs, meter.rs): the same flags, the same generator with
 * the same seeds, the same buckets, the same keys. Tests compare the two.
 * A change here is a change there.
 *
 * Compiles as C11 and as C++20.
 */
#ifndef UNISONO_BENCH_H
#define UNISONO_BENCH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define CACHE_LINE 128
#define MAX_THREADS 1024
#define DRAWS 1024 /* a power of two */

/* ---- options ---------------------------------------------------------- */

struct options {
	int threads;
	uint64_t interval_ns;
	uint64_t variance_ns;
	double seconds;
	double warm_up;
	uint64_t seed;
	uint64_t start_at;   /* CLOCK_MONOTONIC, 0: after the warm-up */
	uint64_t iterations; /* 0: until the time is over */
	int size;	     /* kernels: 0 is their default */
	int draws;	     /* print this many arrival times and stop */
	const char *pin;
	const char *result;
	int cpus[MAX_THREADS];
	int cpu_count; /* 0: not pinned */
};

static void bad_usage(const char *flag, const char *value, const char *expected)
{
	fprintf(stderr, "%s %s: expected %s\n", flag, value ? value : "", expected);
	exit(2);
}

static uint64_t parse_count(const char *flag, const char *text, uint64_t least, uint64_t most)
{
	char *end = NULL;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[0] == '-' || value < least || value > most)
		bad_usage(flag, text, "a whole number within its limits");
	return value;
}

static uint64_t parse_duration(const char *flag, const char *text)
{
	char *end = NULL;
	double value = strtod(text, &end);
	double scale = 0;

	if (!strcmp(end, "ns"))
		scale = 1;
	else if (!strcmp(end, "us"))
		scale = 1e3;
	else if (!strcmp(end, "ms"))
		scale = 1e6;
	else if (!strcmp(end, "s"))
		scale = 1e9;
	else if (!strcmp(text, "0"))
		return 0;
	if (end == text || scale == 0 || !(value >= 0) || value * scale > 1e15)
		bad_usage(flag, text, "a duration, for example 50us");
	return (uint64_t)llround(value * scale);
}

static void parse_pin(struct options *o, const char *text)
{
	cpu_set_t allowed;
	const char *at = text;

	o->pin = text;
	o->cpu_count = 0;
	if (!strcmp(text, "none"))
		return;
	if (!strcmp(text, "spread")) {
		if (sched_getaffinity(0, sizeof(allowed), &allowed))
			bad_usage("--pin", text, "a readable affinity");
		for (int cpu = 0; cpu < CPU_SETSIZE && o->cpu_count < MAX_THREADS; cpu++)
			if (CPU_ISSET(cpu, &allowed))
				o->cpus[o->cpu_count++] = cpu;
		return;
	}
	while (*at) {
		char *end = NULL;
		long first = strtol(at, &end, 10), last = first;

		if (end == at || first < 0)
			bad_usage("--pin", text, "none, spread or a list like 0-3,8");
		if (*end == '-') {
			at = end + 1;
			last = strtol(at, &end, 10);
			if (end == at || last < first)
				bad_usage("--pin", text, "none, spread or a list like 0-3,8");
		}
		for (long cpu = first; cpu <= last && o->cpu_count < MAX_THREADS; cpu++)
			o->cpus[o->cpu_count++] = (int)cpu;
		if (*end && *end != ',')
			bad_usage("--pin", text, "none, spread or a list like 0-3,8");
		at = *end ? end + 1 : end;
	}
}

static struct options parse_options(int argc, char **argv)
{
	static struct options o;

	o.threads = 2;
	o.seconds = 1;
	o.warm_up = 0.1;
	o.seed = 1;
	o.pin = "none";
	for (int i = 1; i < argc; i++) {
		const char *flag = argv[i];
		const char *value = argv[i + 1];

		if (!strcmp(flag, "--die-with-parent")) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() == 1)
				exit(1);
			continue;
		}
		if (!value)
			bad_usage(flag, NULL, "a value");
		i++;
		if (!strcmp(flag, "--threads"))
			o.threads = (int)parse_count(flag, value, 1, MAX_THREADS);
		else if (!strcmp(flag, "--interval"))
			o.interval_ns = parse_duration(flag, value);
		else if (!strcmp(flag, "--variance"))
			o.variance_ns = parse_duration(flag, value);
		else if (!strcmp(flag, "--seconds"))
			o.seconds = atof(value);
		else if (!strcmp(flag, "--warm-up"))
			o.warm_up = (double)parse_duration(flag, value) / 1e9;
		else if (!strcmp(flag, "--seed"))
			o.seed = parse_count(flag, value, 0, UINT64_MAX);
		else if (!strcmp(flag, "--start-at"))
			o.start_at = parse_count(flag, value, 0, UINT64_MAX);
		else if (!strcmp(flag, "--iterations"))
			o.iterations = parse_count(flag, value, 1, UINT64_MAX);
		else if (!strcmp(flag, "--size"))
			o.size = (int)parse_count(flag, value, 4, 1 << 14);
		else if (!strcmp(flag, "--draws"))
			o.draws = (int)parse_count(flag, value, 1, DRAWS);
		else if (!strcmp(flag, "--pin"))
			parse_pin(&o, value);
		else if (!strcmp(flag, "--result"))
			o.result = value;
		else
			bad_usage(flag, value, "a known option");
	}
	if (!(o.seconds > 0) || o.seconds > 3600)
		bad_usage("--seconds", "", "more than 0 and at most 3600");
	return o;
}

static void pin_participant(const struct options *o, int thread)
{
	cpu_set_t set;

	if (!o->cpu_count)
		return;
	CPU_ZERO(&set);
	CPU_SET(o->cpus[thread % o->cpu_count], &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		fprintf(stderr, "cannot pin participant %d to processor %d: %s\n", thread,
			o->cpus[thread % o->cpu_count], strerror(errno));
		exit(1);
	}
}

/* ---- time and computation --------------------------------------------- */

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A chain of dependent operations: no compiler shortens it, and a preempted
 * thread still has the rest of it to do (a wait for a point in time would not). */
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

/* Rounds per nanosecond: the best of many short trials, so that a preemption
 * within some of them does not count. */
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

/* ---- arrival times ----------------------------------------------------- */

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

/* The computation before each barrier, drawn beforehand: an episode costs one load. */
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

/* ---- histogram: 128 buckets per power of two of 1/64 ns ---------------- */

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

/* ---- meter: what participant 0 notes ----------------------------------- */

#define BATCH_SHORT 4000
#define BATCH_LONG 10000
#define BATCH_MOST 4096

struct meter {
	const struct options *o;
	uint64_t begin_measuring, end_measuring; /* planned */
	int measuring;
	uint64_t batch, next;	 /* episodes per batch, episode of the next reading */
	uint64_t last_e, last_t; /* previous reading */
	uint64_t first_e, start, end, episodes;
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

static struct meter *meter_new(const struct options *o)
{
	static struct meter m;
	uint64_t t = now_ns();

	m.o = o;
	m.begin_measuring = o->start_at ? o->start_at : t + (uint64_t)(o->warm_up * 1e9);
	m.end_measuring = m.begin_measuring + (uint64_t)(o->seconds * 1e9);
	m.batch = 1;
	m.next = 1;
	m.last_t = t;
	m.least = INFINITY;
	return &m;
}

/* Called before arriving at a reading's episode e; answers whether e is the last. */
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
			m->end = t;
			m->episodes = e - m->first_e;
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
		t = now_ns();
		m->start = t;
		m->end_measuring = t + (uint64_t)(m->o->seconds * 1e9);
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

/* ---- the run: what participants share ----------------------------------- */

struct padded_count {
	uint64_t value; /* relaxed atomic: read by the writer of the result only */
	char padding[CACHE_LINE - sizeof(uint64_t)];
} __attribute__((aligned(CACHE_LINE)));

struct run {
	/* The last episode. Participant 0 sets it before it arrives at that episode, so
	 * everybody sees it when they leave that episode, and nobody sees it earlier as
	 * the number of an episode they have passed. Read-only until then. */
	uint64_t last_episode __attribute__((aligned(CACHE_LINE)));
	struct padded_count iterations[MAX_THREADS];
};

static struct run shared_run;

/* ---- the result -------------------------------------------------------- */

struct label {
	const char *implementation, *version, *algorithm, *wait;
	int barriers_per_iteration;
	double checksum;
	int has_checksum;
};

static void write_result(const struct options *o, const struct meter *m, const struct label *l, double rounds_per_ns)
{
	char temporary[4096];
	FILE *f = stdout;
	double elapsed = (double)(m->end - m->start) / 1e9;
	double per_s = elapsed > 0 ? (double)m->episodes / elapsed : 0;
	double each = m->episodes ? elapsed * 1e9 / (double)m->episodes : 0;
	int b = l->barriers_per_iteration;
	double median = histogram_quantile(&m->histogram, 0.5);
	double longest = (double)m->longest;

	if (m->longest_batch > 1) {
		longest -= (double)(m->longest_batch - 1) * median;
		longest = fmax(longest, (double)m->longest / (double)m->longest_batch);
	}
	if (o->result) {
		snprintf(temporary, sizeof(temporary), "%s.%d.part", o->result, (int)getpid());
		f = fopen(temporary, "w");
		if (!f) {
			fprintf(stderr, "cannot write %s: %s\n", temporary, strerror(errno));
			exit(1);
		}
	}
	fprintf(f, "{\"implementation\":\"%s\",\"version\":\"%s\",\"algorithm\":\"%s\",\"wait\":\"%s\",", l->implementation,
		l->version, l->algorithm, l->wait);
	fprintf(f, "\"threads\":%d,\"interval_ns\":%llu,\"variance_ns\":%llu,\"seed\":%llu,\"pin\":\"%s\",", o->threads,
		(unsigned long long)o->interval_ns, (unsigned long long)o->variance_ns, (unsigned long long)o->seed,
		o->pin);
	fprintf(f,
		"\"ns_per_barrier\":{\"n\":%llu,\"min\":%.3f,\"p25\":%.3f,\"median\":%.3f,\"p75\":%.3f,\"p99\":%.3f,"
		"\"max\":%.3f,\"mean\":%.3f},",
		(unsigned long long)m->histogram.total * (unsigned)b, isfinite(m->least) ? m->least / b : 0,
		histogram_quantile(&m->histogram, 0.25) / b, median / b, histogram_quantile(&m->histogram, 0.75) / b,
		histogram_quantile(&m->histogram, 0.99) / b, longest / (b > 1 ? b : 1), each / b);
	fprintf(f, "\"barriers_per_s\":%.3f,\"iterations_per_s\":%.3f,\"blocks_per_s\":%.3f,\"preemptions_per_s\":%.3f,",
		per_s * b, per_s, elapsed > 0 ? (double)m->blocks / elapsed : 0,
		elapsed > 0 ? (double)m->preemptions / elapsed : 0);
	fprintf(f, "\"iterations\":[");
	for (int t = 0; t < o->threads; t++)
		fprintf(f, "%s%llu", t ? "," : "", (unsigned long long)shared_run.iterations[t].value);
	fprintf(f, "],\"episodes\":%llu,\"elapsed_s\":%.9f,\"cpu_s\":%.6f,\"start_ns\":%llu,\"end_ns\":%llu,",
		(unsigned long long)m->episodes, elapsed, m->cpu_s, (unsigned long long)m->start,
		(unsigned long long)m->end);
	if (l->has_checksum)
		fprintf(f, "\"checksum\":%.17g,", l->checksum);
	fprintf(f, "\"rounds_per_ns\":%.6f}\n", rounds_per_ns);
	if (o->result && (fclose(f) || rename(temporary, o->result))) {
		fprintf(stderr, "cannot write %s: %s\n", o->result, strerror(errno));
		exit(1);
	}
}

/* One participant of BARRIER (Figure 1); WAIT is the barrier under test. */
#define BARRIER_PROGRAM(o, m, thread, rounds_per_ns, WAIT)                                            \
	do {                                                                                          \
		struct computation *c_ = computation_new((o), (thread), (rounds_per_ns));             \
		uint64_t *count_ = &shared_run.iterations[(thread)].value;                   \
		uint64_t state_ = 88172645463325252u + (uint64_t)(thread);                            \
		pin_participant((o), (thread));                                                       \
		for (uint64_t e_ = 1;; e_++) {                                                        \
			if ((thread) == 0 && e_ >= (m)->next && meter_read((m), e_))                  \
				__atomic_store_n(&shared_run.last_episode, e_, __ATOMIC_RELAXED);     \
			state_ = compute(state_, c_->rounds[e_ & c_->mask]);                          \
			WAIT;                                                                         \
			__atomic_store_n(count_, e_, __ATOMIC_RELAXED);                               \
			if (__atomic_load_n(&shared_run.last_episode, __ATOMIC_RELAXED) == e_)        \
				break;                                                                \
		}                                                                                     \
		compute_sink = state_;                                                                \
		free(c_);                                                                             \
	} while (0)

#endif
