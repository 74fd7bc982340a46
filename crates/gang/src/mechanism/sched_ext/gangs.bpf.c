// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
/*
 * Gangs in a scheduler of the kernel (sched_ext): Linux 7.0 and later, CONFIG_SCHED_CLASS_EXT.
 *
 * Decided here, for each thread of a gang: whether it may run now, and on which processor. A gang's threads
 * wait in a queue of their own. A free processor takes the next thread from the queues of the gangs that have
 * the turn, then from the queues of the lent gangs, which may use idle processors.
 *
 * Decided in user space: the gangs of the turn. User space writes them into the map `turn` and calls
 * `switch_gangs`, which makes every processor choose anew.
 *
 * Only threads with the policy SCHED_EXT are scheduled here; all others stay in the fair class, which has
 * precedence. A thread with that policy but without a gang is served like a gang that always has the turn.
 *
 * No thread starves, whatever user space does:
 *   1. A thread that is stopped while it reads under RCU continues at once, even outside its turn
 *      (`cannot_wait`).
 *   2. A thread that has waited a tenth of the watchdog timeout goes first, even outside its turn, the oldest
 *      before the others (`breathe`). Every processor scans for such threads whenever it chooses, eight times
 *      in that tenth. The kernel's own watchdog makes one processor choose at least twice in the timeout.
 *   3. Other programs leave this class a twentieth of each processor (the kernel's `ext_server`).
 *   4. If a thread has still waited for six tenths of the timeout, because there are too many threads, this
 *      scheduler gives up: the kernel unloads it, and all threads are in the fair class again.
 *
 * When the loader dies: its link to the kernel is closed, the kernel unloads this scheduler, and all threads
 * are in the fair class again. The kernel does the same if a runnable thread does not run for 30 seconds.
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

/* The kernel's types; only their addresses are used here. */
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

/* Iterates over the threads of a queue in order of arrival. */
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
/* 0 in a kernel that does not stop threads while they read under RCU. */
extern const char offset_of__task_struct__rcu_read_lock_nesting;
extern const char offset_of__css_set__dfl_cgrp, offset_of__cgroup__kn, offset_of__kernfs_node__id;
extern const char offset_of__cgroup__self__parent, offset_of__cgroup_subsys_state__cgroup;
extern const char offset_of__scx_exit_info__kind, offset_of__scx_exit_info__msg,
	offset_of__scx_exit_info__reason;
#define member(type, pointer, what) (*(type *)((char *)(pointer) + (u64)&offset_of__##what))

/* Numbers that the loader fills in, as addresses. */
extern const char number_of_gangs, breath_ticks;
#define GANGS ((u32)(u64)&number_of_gangs)
/* A thread that has waited this many ticks goes first. */
#define BREATH ((u64)(u32)(u64)&breath_ticks)
/* With the longest timeout: 18 s, less than the 21 s after which RCU reports a stall. */
#define GIVE_UP (6 * BREATH)

/* Maps are made by the loader, which fills in their descriptors by these names. */
extern char turn, gangs, state, processors;

/* loaded.rs has the same values. */
#define MAX_GANGS 256
#define MAX_PROCESSORS 4096
#define MESSAGE 128

enum standing { WAITS, LENT, RUNS };

/* Written by user space: the gangs' standings in the present turn. */
struct turn {
	u32 runs, lent;		 /* number of gangs: first in `order` those that run, then the lent */
	u32 order[MAX_GANGS];	 /* gangs */
	u32 standing[MAX_GANGS]; /* by gang */
};

/* Written by this program. */
struct state {
	u32 next;	       /* where the next processor begins in `order` */
	u32 breaths;	       /* threads run early because they had waited long */
	u32 went_on;	       /* threads run early because they could not wait */
	u32 ended;	       /* reason of the unloading (enum scx_exit_kind); 0: still loaded */
	char reason[MESSAGE];  /* the kernel's text for it */
	char message[MESSAGE]; /* the text of the component that ended it */
};

/* Written by this program, one for each processor. */
struct processor {
	u64 look_at;  /* when to look for threads that have waited long (ticks) */
	u32 gang;     /* the running thread's gang, counted from 1; 0: none */
	u32 breather; /* the thread that goes first here; 0: none */
	u32 breathes; /* whether that thread runs */
	u32 unused;
};
_Static_assert(sizeof(struct turn) == 2056 && sizeof(struct state) == 272 && sizeof(struct processor) == 24,
	       "loaded.rs says otherwise");

/* The queue of threads in no gang. */
#define OTHERS MAX_GANGS
/* Maximum depth of a thread's group below its gang's group. */
#define DEPTH 4

/* The slice of a thread inside its gang's turn, at the default weight. It ends at the next tick; a tick has
 * 1 to 10 ms. The maximum bounds the wait of a thread behind a hundred others. */
#define SLICE 4000000
#define MIN_SLICE 500000
#define MAX_SLICE 8000000
#define DEFAULT_WEIGHT 100

/* The kernel's constants (kernel/sched/ext.c), the same from 6.12 to 7.2. */
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

/* Returns the gang whose group contains the thread, directly or in a group below. */
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
	return now && gang < MAX_GANGS ? now->standing[gang] : RUNS;
}

static __always_inline u64 slice_of(struct task_struct *p)
{
	u64 slice = SLICE / DEFAULT_WEIGHT * (u64)member(u32, p, task_struct__scx__weight);

	if (slice > MAX_SLICE)
		return MAX_SLICE;
	return slice < MIN_SLICE ? MIN_SLICE : slice;
}

/* Whether other threads would wait for this one: it has been stopped while it reads under RCU, or it exits.
 * Such a section of the kernel takes microseconds. (A thread that must stay on its processor never comes to
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

/* Chooses the processor of a waking thread. A thread of a waiting gang stays in its queue. */
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

/* Makes a processor that runs a thread of a lent gang choose a thread anew. */
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

/* Queues a thread that becomes runnable, or that has to leave its processor. */
SEC("struct_ops/enqueue")
int enqueue(u64 *arguments)
{
	struct task_struct *p = (void *)arguments[0];
	u64 flags = arguments[1];
	u32 gang = gang_of(p);
	const struct turn *now = only(&turn);
	u32 standing = standing_of(now, gang);

	if (standing != WAITS && flags & IS_LAST) {
		/* no other thread wants this processor */
		scx_bpf_dsq_insert(p, LOCAL, slice_of(p), flags);
		return 0;
	}
	if (standing == WAITS) {
		struct state *here = only(&state);

		if (cannot_wait(p)) {
			if (here)
				here->went_on++;
			scx_bpf_dsq_insert(p, LOCAL, MIN_SLICE, flags | IS_FIRST);
		} else {
			scx_bpf_dsq_insert(p, gang, MIN_SLICE, flags);
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

/* Makes all idle processors choose anew. */
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

/* If threads that may run here have waited long, takes the oldest. It gets a whole slice, in which it
 * releases any lock of the kernel that it holds. */
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
	/* this thread is the first one in its queue that may run here */
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

/* Finds a thread for a processor that has none to run. */
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
	runs = now->runs < MAX_GANGS ? now->runs : MAX_GANGS;
	lent = now->lent;
	/* gangs of the same turn alternate, and so do threads in no gang */
	first = here->next++;
	repeat(at, runs + 1)
	{
		u32 which = (first + at) % (runs + 1);
		u32 queue = which < runs && which < MAX_GANGS ? now->order[which] : OTHERS;

		if (scx_bpf_dsq_move_to_local(queue))
			return 0;
	}
	if (before)
		standing = standing_of(now, gang_of(before));
	if (standing != RUNS)
		repeat(at, lent)
		{
			u32 which = runs + at;

			if (which < MAX_GANGS && scx_bpf_dsq_move_to_local(now->order[which]))
				return 0;
		}
	/* if no thread is left, the previous thread comes to `enqueue` as the last of this processor */
	return 0;
}

/* Called when a thread gets a processor. The thread may have waited for it since its gang's turn, behind a
 * thread of another class: then it is preempted and goes back to its gang's queue. */
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

/* Called by user space after it has written the turn. Returns the reason why this scheduler has ended; 0: it
 * is still loaded. */
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
