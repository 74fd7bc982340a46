// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
/*
 * Gangs in a scheduler of the kernel (sched_ext): Linux 7.0 and later, CONFIG_SCHED_CLASS_EXT.
 *
 * Decided here, for each thread of a gang: whether it may run now, and on which processor. A gang's threads
 * wait in a queue of their own. A processor that is free takes the next thread from the queues of the gangs
 * whose turn it is, then from those that may use what these leave.
 *
 * Decided in user space: whose turn it is. It writes that into the map `turn` and calls `switch_gangs`, which
 * has every processor choose anew.
 *
 * Only threads with the policy SCHED_EXT are scheduled here; all others stay in the fair class, which goes
 * first. A thread with that policy that is in no gang is served like a gang whose turn it always is.
 *
 * Nobody starves, whatever user space does:
 *   1. A thread that is stopped where it reads under RCU goes on at once, its turn or not (`cannot_wait`).
 *   2. A thread that has waited a tenth of the kernel's patience goes first, its turn or not, the oldest
 *      before the others (`breathe`). Every processor looks for those that may run on it whenever it chooses,
 *      eight times in that tenth. The kernel's own check for forgotten threads makes one processor choose at
 *      least twice in its patience.
 *   3. Other programs leave this class a twentieth of each processor (the kernel's `ext_server`).
 *   4. Should a thread have waited for six tenths of the patience after all, because there are too many, this
 *      scheduler gives up: the kernel unloads it, and all threads are in the fair class again.
 *
 * When the loader dies: its link to the kernel is closed, the kernel unloads this scheduler, and all threads
 * are in the fair class again. The kernel does the same if a thread that could run does not for 30 seconds.
 *
 * Kernel structures are read at offsets which the loader fills in as the addresses of symbols.
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

typedef __u16 u16;
typedef __s32 s32;
typedef __u32 u32;
typedef __s64 s64;
typedef __u64 u64;

#include "repeat.h"

/* The kernel's; only their addresses are known here. */
struct task_struct;
struct bpf_iter_scx_dsq;
extern int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *walk, u64 queue, u64 flags);
extern struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *walk);
extern void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *walk);

struct walk {
	u64 opaque[6];
} __attribute__((aligned(8)));

static __always_inline void stop_walk(struct walk *walk)
{
	bpf_iter_scx_dsq_destroy((void *)walk);
}

static __always_inline void *walk_of(struct walk *walk, u64 queue)
{
	bpf_iter_scx_dsq_new((void *)walk, queue, 0);
	return 0;
}

/* The threads of a queue, the first that came before the others. */
#define each_in(thread, queue)                                                                               \
	for (struct walk walk __attribute__((cleanup(stop_walk))), *unused_too = walk_of(&walk, queue);      \
	     !unused_too && (thread = bpf_iter_scx_dsq_next((void *)&walk));)

struct cpumask;
extern s32 scx_bpf_create_dsq(u64 queue, s32 node);
extern void scx_bpf_dsq_insert(struct task_struct *p, u64 queue, u64 slice, u64 flags);
extern bool scx_bpf_dsq_move_to_local(u64 queue);
extern bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask);
extern void scx_bpf_exit_bstr(s64 code, char *format, u64 *data, u32 data__size);
extern void scx_bpf_kick_cpu(s32 cpu, u64 flags);
extern u32 scx_bpf_nr_cpu_ids(void);
extern s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, u64 flags);
extern s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 previous, u64 flags, bool *is_idle);
extern s32 scx_bpf_task_cpu(const struct task_struct *p);

/* offset_of__STRUCT__MEMBER: filled in by the loader. */
extern const char offset_of__task_struct__cgroups, offset_of__task_struct__cpus_ptr;
extern const char offset_of__task_struct__scx__weight, offset_of__task_struct__scx__runnable_at;
extern const char offset_of__task_struct__pid, offset_of__task_struct__flags;
extern const char offset_of__task_struct__migration_disabled;
/* 0 in a kernel that does not stop threads which read under RCU. */
extern const char offset_of__task_struct__rcu_read_lock_nesting;
extern const char offset_of__css_set__dfl_cgrp, offset_of__cgroup__kn, offset_of__kernfs_node__id;
extern const char offset_of__cgroup__self__parent, offset_of__cgroup_subsys_state__cgroup;
extern const char offset_of__scx_exit_info__kind, offset_of__scx_exit_info__msg,
	offset_of__scx_exit_info__reason;
#define member(type, pointer, what) (*(type *)((char *)(pointer) + (u64)&offset_of__##what))

/* Numbers that the loader fills in, as addresses. */
extern const char number_of_gangs, breath_ticks;
#define GANGS ((u32)(u64)&number_of_gangs)
/* A thread that has waited so many ticks goes first. */
#define BREATH ((u64)(u32)(u64)&breath_ticks)
/* Of the longest patience: 18 s, less than the 21 s for which RCU waits before it complains. */
#define GIVE_UP (6 * BREATH)

/* Maps are made by the loader, which fills in their descriptors by these names. */
extern char turn, gangs, state, processors;

/* Known to loaded.rs too. */
#define MOST_GANGS 256
#define MOST_PROCESSORS 4096
#define MESSAGE 128

enum standing { WAITS, LENT, RUNS };

/* Written by user space: whose turn it is. */
struct turn {
	u32 runs, lent;		  /* gangs of these standings: the first of `order`, and those after them */
	u32 order[MOST_GANGS];	  /* gangs */
	u32 standing[MOST_GANGS]; /* by gang */
};

/* Written here. */
struct state {
	u32 next;	       /* where the next processor begins in `order` */
	u32 breaths;	       /* how often a thread that had waited long went first */
	u32 went_on;	       /* how often a thread went on because it could not wait */
	u32 ended;	       /* why the kernel unloaded this (enum scx_exit_kind); 0: it did not */
	char reason[MESSAGE];  /* the same in the kernel's words */
	char message[MESSAGE]; /* and in those of whoever ended it */
};

/* Written here, for each processor. */
struct processor {
	u64 look_at;  /* when to look for threads that have waited long (ticks) */
	u32 gang;     /* whose thread runs here, counted from 1; 0: none */
	u32 breather; /* the thread that goes first here; 0: none */
	u32 breathes; /* it runs */
	u32 unused;
};
_Static_assert(sizeof(struct turn) == 2056 && sizeof(struct state) == 272 && sizeof(struct processor) == 24,
	       "loaded.rs says otherwise");

/* The queue of threads in no gang. */
#define OTHERS MOST_GANGS
/* Groups inside a gang's group are looked at so deep. */
#define DEPTH 4

/* A turn of a thread among those of its gang, at the default weight. It ends at the tick after it; a tick has
 * 1 to 10 ms. The most is what bounds how long a thread waits behind a hundred others. */
#define SLICE 4000000
#define LEAST_SLICE 500000
#define MOST_SLICE 8000000
#define DEFAULT_WEIGHT 100

/* The kernel's (kernel/sched/ext.c), the same from 6.12 to 7.2. */
#define LOCAL ((1ULL << 63) | 2) /* SCX_DSQ_LOCAL */
#define IS_LAST (1ULL << 41)	 /* SCX_ENQ_LAST */
#define IS_FIRST (1ULL << 4)	 /* SCX_ENQ_HEAD */
#define EXITS 4			 /* PF_EXITING */
#define KICK_IDLE 1		 /* SCX_KICK_IDLE */
#define KICK_PREEMPT 2		 /* SCX_KICK_PREEMPT */

static __always_inline void *only(void *map)
{
	u32 first = 0;

	return bpf_map_lookup_elem(map, &first);
}

/* The gang in whose group a thread is, or in a group below. */
static __always_inline u32 gang_of(struct task_struct *p)
{
	void *group = member(void *, member(void *, p, task_struct__cgroups), css_set__dfl_cgrp);

#pragma unroll
	for (int depth = 0; depth < DEPTH; depth++) {
		u64 id = member(u64, member(void *, group, cgroup__kn), kernfs_node__id);
		u32 *gang = bpf_map_lookup_elem(&gangs, &id);
		void *parent;

		if (gang)
			return *gang;
		parent = member(void *, group, cgroup__self__parent);
		if (!parent)
			break;
		group = member(void *, parent, cgroup_subsys_state__cgroup);
	}
	return OTHERS;
}

static __always_inline u32 standing_of(const struct turn *now, u32 gang)
{
	return now && gang < MOST_GANGS ? now->standing[gang] : RUNS;
}

static __always_inline u64 slice_of(struct task_struct *p)
{
	u64 slice = SLICE / DEFAULT_WEIGHT * (u64)member(u32, p, task_struct__scx__weight);

	if (slice > MOST_SLICE)
		return MOST_SLICE;
	return slice < LEAST_SLICE ? LEAST_SLICE : slice;
}

/* Whether others would wait for this thread: it has been stopped where it reads under RCU, or it ends. The
 * kernel leaves such a place after microseconds. (One that must stay on its processor never comes to
 * `enqueue`.) */
static __always_inline bool cannot_wait(struct task_struct *p)
{
	/* while a program like this one runs, the thread that it interrupts reads under RCU, too */
	s32 own = bpf_get_current_task() == (u64)p;

	if ((u64)&offset_of__task_struct__rcu_read_lock_nesting &&
	    member(s32, p, task_struct__rcu_read_lock_nesting) > own)
		return true;
	return member(u16, p, task_struct__migration_disabled) > own ||
	       member(u32, p, task_struct__flags) & EXITS;
}

/* Where a thread that wakes is to run. One whose gang waits stays where it was, in its queue. */
SEC("struct_ops/select_cpu")
s32 select_cpu(u64 *arguments)
{
	struct task_struct *p = (void *)arguments[0];
	s32 previous = arguments[1];
	bool is_idle = false;

	if (standing_of(only(&turn), gang_of(p)) == WAITS)
		return previous;
	s32 cpu = scx_bpf_select_cpu_dfl(p, previous, arguments[2], &is_idle);

	if (is_idle)
		scx_bpf_dsq_insert(p, LOCAL, slice_of(p), 0);
	return cpu;
}

/* Has a processor choose anew that runs a gang which only uses what others leave. */
static __always_inline void preempt_lent(const struct turn *now)
{
	u32 cpu = 0;

	repeat(cpu, scx_bpf_nr_cpu_ids())
	{
		struct processor *one = bpf_map_lookup_elem(&processors, &cpu);

		if (one && one->gang && standing_of(now, one->gang - 1) == LENT) {
			scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
			return;
		}
	}
}

/* A thread can run, or has to leave its processor. */
SEC("struct_ops/enqueue")
int enqueue(u64 *arguments)
{
	struct task_struct *p = (void *)arguments[0];
	u64 flags = arguments[1];
	u32 gang = gang_of(p);
	const struct turn *now = only(&turn);
	u32 standing = standing_of(now, gang);

	if (standing != WAITS && flags & IS_LAST) {
		/* nobody else wants this processor */
		scx_bpf_dsq_insert(p, LOCAL, slice_of(p), flags);
		return 0;
	}
	if (standing == WAITS) {
		struct state *here = only(&state);

		if (cannot_wait(p)) {
			if (here)
				here->went_on++;
			scx_bpf_dsq_insert(p, LOCAL, LEAST_SLICE, flags | IS_FIRST);
		} else {
			scx_bpf_dsq_insert(p, gang, LEAST_SLICE, flags);
		}
		return 0;
	}
	scx_bpf_dsq_insert(p, gang, slice_of(p), flags);
	s32 cpu = scx_bpf_pick_idle_cpu(member(struct cpumask *, p, task_struct__cpus_ptr), 0);

	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, KICK_IDLE);
	else if (standing == RUNS && now && now->lent)
		preempt_lent(now);
	return 0;
}

/* Has all processors choose anew that have nothing to do. */
static __always_inline void wake_idle(void)
{
	u32 cpu = 0;

	repeat(cpu, scx_bpf_nr_cpu_ids()) scx_bpf_kick_cpu(cpu, KICK_IDLE);
}

static __always_inline void give_up(struct task_struct *p, u32 gang, u64 waited)
{
	char why[] = "too many threads wait: %u (processor %u, gang %u) for %u ticks";
	u64 which[] = { member(u32, p, task_struct__pid), scx_bpf_task_cpu(p), gang + 1, waited };

	scx_bpf_exit_bstr(0, why, which, sizeof(which));
}

/* Takes the thread that has waited longest of those that may run here, if it has waited long: for its
 * processor a whole slice, in which it leaves whatever lock of the kernel it holds. */
static __always_inline bool breathe(struct state *state, u32 cpu)
{
	u64 now = bpf_jiffies64(), longest = BREATH;
	u32 queue = 0, oldest = 0, thread = 0;
	struct processor *here = bpf_map_lookup_elem(&processors, &cpu);
	bool elsewhere = false;

	if (!here || now < here->look_at)
		return false;
	repeat(queue, GANGS + 1)
	{
		u32 which = queue < GANGS ? queue : OTHERS;
		struct task_struct *p;

		each_in(p, which)
		{
			u64 waited = now - member(u64, p, task_struct__scx__runnable_at);

			if ((s64)waited < (s64)BREATH)
				break;
			if (waited >= GIVE_UP)
				give_up(p, which, waited);
			if (!bpf_cpumask_test_cpu(cpu, member(struct cpumask *, p, task_struct__cpus_ptr))) {
				elsewhere = true;
				continue;
			}
			if (waited >= longest) {
				longest = waited;
				oldest = which;
				thread = member(u32, p, task_struct__pid);
			}
			break;
		}
	}
	if (elsewhere)
		wake_idle();
	/* the first of its queue that may run here is this thread */
	if (thread) {
		here->breather = thread;
		if (scx_bpf_dsq_move_to_local(oldest)) {
			state->breaths++;
			return true;
		}
	}
	here->look_at = now + BREATH / 8;
	return false;
}

/* A processor has nobody to run. */
SEC("struct_ops/dispatch")
int dispatch(u64 *arguments)
{
	u32 cpu = arguments[0];
	struct task_struct *before = (void *)arguments[1];
	const struct turn *now = only(&turn);
	struct state *here = only(&state);
	u32 standing = WAITS, runs, lent, first, at = 0;

	if (!now || !here || breathe(here, cpu))
		return 0;
	runs = now->runs < MOST_GANGS ? now->runs : MOST_GANGS;
	lent = now->lent;
	/* gangs that run beside each other take turns, and so do threads in no gang */
	first = here->next++;
	repeat(at, runs + 1)
	{
		u32 which = (first + at) % (runs + 1);
		u32 queue = which < runs && which < MOST_GANGS ? now->order[which] : OTHERS;

		if (scx_bpf_dsq_move_to_local(queue))
			return 0;
	}
	if (before)
		standing = standing_of(now, gang_of(before));
	if (standing != RUNS)
		repeat(at, lent)
		{
			u32 which = runs + at;

			if (which < MOST_GANGS && scx_bpf_dsq_move_to_local(now->order[which]))
				return 0;
		}
	/* if nobody is left, whoever ran before comes to `enqueue` as the last of this processor */
	return 0;
}

/* A thread has a processor. It may have waited there since its gang's turn, behind a thread of another class:
 * then it goes back. */
SEC("struct_ops/running")
int running(u64 *arguments)
{
	struct task_struct *p = (void *)arguments[0];
	u32 gang = gang_of(p), cpu = scx_bpf_task_cpu(p);
	struct processor *here = bpf_map_lookup_elem(&processors, &cpu);

	if (!here)
		return 0;
	here->gang = gang + 1;
	here->breathes = here->breather == member(u32, p, task_struct__pid);
	if (here->breathes)
		here->breather = 0;
	else if (standing_of(only(&turn), gang) == WAITS && !cannot_wait(p))
		scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
	return 0;
}

SEC("struct_ops/stopping")
int stopping(u64 *arguments)
{
	struct task_struct *p = (void *)arguments[0];
	u32 cpu = scx_bpf_task_cpu(p);
	struct processor *here = bpf_map_lookup_elem(&processors, &cpu);

	if (here)
		here->gang = here->breathes = 0;
	return 0;
}

SEC("struct_ops/init")
s32 init(u64 *arguments)
{
	s32 error = scx_bpf_create_dsq(OTHERS, -1);
	u32 gang = 0;

	repeat(gang, GANGS)
	{
		if (error)
			break;
		error = scx_bpf_create_dsq(gang, -1);
	}
	return error;
}

SEC("struct_ops/exit")
int ended(u64 *arguments)
{
	void *why = (void *)arguments[0];
	struct state *here = only(&state);

	if (!here)
		return 0;
	bpf_probe_read_kernel_str(here->reason, MESSAGE, member(void *, why, scx_exit_info__reason));
	bpf_probe_read_kernel_str(here->message, MESSAGE, member(void *, why, scx_exit_info__msg));
	here->ended = member(u32, why, scx_exit_info__kind);
	return 0;
}

/* Called by user space when it has written whose turn it is. Answers why this scheduler has ended; 0: it has
 * not. */
SEC("syscall")
int switch_gangs(void *unused_context)
{
	struct state *here = only(&state);
	u32 cpu = 0;

	if (!here)
		return -1;
	if (here->ended)
		return here->ended;
	repeat(cpu, scx_bpf_nr_cpu_ids())
	{
		struct processor *one = bpf_map_lookup_elem(&processors, &cpu);

		/* a thread that has waited long keeps its slice */
		if (!one || !one->breathes)
			scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
	}
	return 0;
}
