/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The parts that every peer program shares: flags, calibrated computation,
 * arrival times, the meter of participant 0 (in the headers below), and the
 * result as JSON. The semantics follow crates/workload/src. Tests compare
 * the two, so change both together.
 *
 * Compiles as C11 and as C++20.
 */
#ifndef UNISONO_BENCH_H
#define UNISONO_BENCH_H

#include "meter.h"

struct padded_count {
	uint64_t value; /* relaxed atomic: read by the writer of the result only */
	char padding[CACHE_LINE - sizeof(uint64_t)];
} __attribute__((aligned(CACHE_LINE)));

struct run {
	/* The last episode. Participant 0 sets it before it arrives at that
	 * episode. So every participant sees it when it leaves that episode, and
	 * no participant can see it earlier as the number of an episode that it
	 * has passed. Read-only until then. */
	uint64_t last_episode __attribute__((aligned(CACHE_LINE)));
	struct padded_count iterations[MAX_THREADS];
};

static struct run shared_run;

struct label {
	const char *implementation, *version, *algorithm, *wait;
	int barriers_per_iteration;
	double checksum;
	int has_checksum;
};

static void write_result(const struct options *o, const struct meter *m, const struct label *l,
			 double rounds_per_ns)
{
	char temporary[4096];
	FILE *f = stdout;
	double elapsed = (double)(m->end - m->start) / 1e9;
	double per_s = elapsed > 0 ? m->episodes / elapsed : 0;
	double each = m->episodes > 0 ? elapsed * 1e9 / m->episodes : 0;
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
	fprintf(f, "{\"implementation\":\"%s\",\"version\":\"%s\",\"algorithm\":\"%s\",\"wait\":\"%s\",",
		l->implementation, l->version, l->algorithm, l->wait);
	fprintf(f, "\"threads\":%d,\"interval_ns\":%llu,\"variance_ns\":%llu,\"seed\":%llu,\"pin\":\"%s\",",
		o->threads, (unsigned long long)o->interval_ns, (unsigned long long)o->variance_ns,
		(unsigned long long)o->seed, o->pin);
	fprintf(f,
		"\"ns_per_barrier\":{\"n\":%llu,\"min\":%.3f,\"p25\":%.3f,\"median\":%.3f,\"p75\":%.3f,"
		"\"p99\":%.3f,"
		"\"max\":%.3f,\"mean\":%.3f},",
		(unsigned long long)m->histogram.total * (unsigned)b, isfinite(m->least) ? m->least / b : 0,
		histogram_quantile(&m->histogram, 0.25) / b, median / b,
		histogram_quantile(&m->histogram, 0.75) / b, histogram_quantile(&m->histogram, 0.99) / b,
		longest / (b > 1 ? b : 1), each / b);
	fprintf(f,
		"\"barriers_per_s\":%.3f,\"iterations_per_s\":%.3f,\"blocks_per_s\":%.3f,\"preemptions_per_"
		"s\":%.3f,",
		per_s * b, per_s, elapsed > 0 ? (double)m->blocks / elapsed : 0,
		elapsed > 0 ? (double)m->preemptions / elapsed : 0);
	fprintf(f, "\"iterations\":[");
	for (int t = 0; t < o->threads; t++)
		fprintf(f, "%s%llu", t ? "," : "", (unsigned long long)shared_run.iterations[t].value);
	fprintf(f,
		"],\"episodes\":%llu,\"elapsed_s\":%.9f,\"cpu_s\":%.6f,\"start_ns\":%llu,\"end_ns\":%llu,"
		"\"ready_ns\":%llu,",
		(unsigned long long)(m->episodes + 0.5), elapsed, m->cpu_s, (unsigned long long)m->start,
		(unsigned long long)m->end, (unsigned long long)m->ready);
	if (l->has_checksum)
		fprintf(f, "\"checksum\":%.17g,", l->checksum);
	fprintf(f, "\"rounds_per_ns\":%.6f}\n", rounds_per_ns);
	if (o->result && (fclose(f) || rename(temporary, o->result))) {
		fprintf(stderr, "cannot write %s: %s\n", o->result, strerror(errno));
		exit(1);
	}
}

/* One participant of BARRIER (Figure 1); WAIT is the barrier under test. */
#define BARRIER_PROGRAM(o, m, thread, rounds_per_ns, WAIT)                                                   \
	do {                                                                                                 \
		struct computation *c_ = computation_new((o), (thread), (rounds_per_ns));                    \
		uint64_t *count_ = &shared_run.iterations[(thread)].value;                                   \
		uint64_t state_ = 88172645463325252u + (uint64_t)(thread);                                   \
		pin_participant((o), (thread));                                                              \
		for (uint64_t e_ = 1;; e_++) {                                                               \
			if ((thread) == 0 && e_ >= (m)->next && meter_read((m), e_))                         \
				__atomic_store_n(&shared_run.last_episode, e_, __ATOMIC_RELAXED);            \
			state_ = compute(state_, c_->rounds[e_ & c_->mask]);                                 \
			WAIT;                                                                                \
			__atomic_store_n(count_, e_, __ATOMIC_RELAXED);                                      \
			if (__atomic_load_n(&shared_run.last_episode, __ATOMIC_RELAXED) == e_)               \
				break;                                                                       \
		}                                                                                            \
		compute_sink = state_;                                                                       \
		free(c_);                                                                                    \
	} while (0)

#endif
