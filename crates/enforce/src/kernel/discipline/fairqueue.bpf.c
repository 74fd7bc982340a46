// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
/*
 * Hierarchical start-time fair queuing as a queueing discipline: Linux 6.16 and later, CONFIG_NET_SCH_BPF.
 *
 * Decided here, for each packet: its class, whether it is dropped, the order of service (fairqueue.h,
 * compared packet by packet with crates/fairqueue), and, if the link has a rate, the time of service.
 *
 * Decided in user space: the classes and their costs, the rate, and the class of each priority. It writes
 * them before a device gets the discipline. Later it only reads, except that it may write other classes as a
 * plan: when the word `change` is set, the next packet that arrives makes this program replace the classes,
 * and no waiting packet is lost. If no other packet comes, user space sends a packet that names the class
 * `KICK`; the program drops that packet.
 *
 * When the loader dies: the device holds its discipline, the discipline its programs, and they their maps;
 * all of them go when the device gets another discipline. One set of maps serves one device.
 *
 * The kernel calls these functions one at a time (under the lock of the discipline), so nothing here is
 * atomic. Kernel structures are read and written at offsets which the loader fills in as the addresses of
 * symbols.
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

typedef __u32 u32;
typedef __u64 u64;

#include "repeat.h"
#define hsfq_repeat repeat
#define inline inline __attribute__((always_inline))
#include "fairqueue_change.h"
#undef inline

/* The kernel's own types; only their addresses are known here. */
struct sk_buff;
struct Qdisc;
struct bpf_sk_buff_ptr;
extern void bpf_kfree_skb(struct sk_buff *skb);
extern void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free);
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, u64 expire, u64 delta);
extern void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb);

/* offset_of__STRUCT__MEMBER: filled in by the loader. */
extern const char offset_of__sk_buff__priority, offset_of__sk_buff__cb;
extern const char offset_of__Qdisc__handle, offset_of__Qdisc__q__qlen, offset_of__Qdisc__qstats__backlog;
#define member(pointer, what) ((u32 *)((char *)(pointer) + (u64)&offset_of__##what))

/* The loader makes the maps and fills in their descriptors by these names. */
extern char scheduler, held, link, clock, plan, change, delays;

/* The packet of a packet number. */
struct held {
	struct sk_buff *skb; /* the map's type information says that the map owns it */
};

/* layout.rs has the same layout. */
#define PRIORITIES 16
struct link {
	u64 rate;    /* bits a second; 0: as fast as the device takes packets */
	u64 free_at; /* when the link is free again */
	u64 rest;    /* the remainder of the division that gave free_at */
	u32 devices; /* devices that have this discipline: at most one */
	u32 others;  /* the default class */
	u32 by_priority[PRIORITIES];
};

/* The classes and parameters that are in force from the next packet on. */
struct plan {
	u64 rate;
	u32 others, unused;
	u32 by_priority[PRIORITIES];
	struct hsfq_plan classes;
};

/* A histogram of the delays of a class's packets: four buckets for each doubling. */
#define SHORTEST 9 /* 2^9 ns and less */
#define DELAYS 96
struct delays {
	u64 count[DELAYS];
};
_Static_assert(sizeof(struct link) == 96 && sizeof(struct hsfq) == 565296 && sizeof(struct plan) == 176216 &&
		       sizeof(struct delays) == 768,
	       "layout.rs says otherwise");

#define DROPPED 1 /* NET_XMIT_DROP */
#define BUSY -16  /* -EBUSY */
#define BROKEN -22
#define SECOND 1000000000ULL
#define MILLISECOND 1000000ULL
/* A timer that is late by up to this is made up for; a longer pause is not. */
#define MAX_LATE (10 * MILLISECOND)
/* The most packets that are dropped for one arriving packet. */
#define MAX_VICTIMS 1024

static __always_inline void *only(void *map)
{
	u32 first = 0;

	return bpf_map_lookup_elem(map, &first);
}

/*
 * For tests: if not 0, `said` is the time in nanoseconds, and the program reads it each millisecond. If 0,
 * the kernel's clock is used.
 */
static __always_inline u64 time(u64 *said)
{
	return *said ? *said : bpf_ktime_get_ns();
}

static __always_inline u32 length_of(struct sk_buff *skb)
{
	/* the first field of struct qdisc_skb_cb: the length on the wire, as every discipline counts it */
	u32 length = *member(skb, sk_buff__cb);

	return length & 0xffffff;
}

/* The bits of a class's minor number above these are its generation. */
#define MINOR_BITS 11
#define KICK 0xffff

static __always_inline bool names_class(struct Qdisc *sch, u32 priority)
{
	return priority >> 16 && priority >> 16 == *member(sch, Qdisc__handle) >> 16;
}

/*
 * As with HTB a priority may name a class, MAJOR:MINOR, where the minor number of the root is 1. Classes of
 * the previous generation are valid, too, because the classifier may not use the new ones yet.
 */
static __always_inline u32 classify(struct hsfq *queue, struct link *line, struct Qdisc *sch,
				    struct sk_buff *skb)
{
	u32 priority = *member(skb, sk_buff__priority), at = line->others;

	if (names_class(sch, priority)) {
		u32 generation = (priority & 0xffff) >> MINOR_BITS;

		at = (priority & ((1 << MINOR_BITS) - 1)) - 1;
		if (at < HSFQ_CLASSES && generation == ((queue->generation - 1) & (HSFQ_GENERATIONS - 1)))
			at = queue->home[at];
		else if (generation != queue->generation)
			at = line->others;
	} else if (priority < PRIORITIES) {
		at = line->by_priority[priority];
	}
	if (at >= queue->count || !(hsfq_class(queue, at)->flags & HSFQ_LEAF))
		at = line->others;
	return at;
}

static __always_inline void waits(struct Qdisc *sch, u32 packets, u32 bytes)
{
	*member(sch, Qdisc__q__qlen) += packets;
	*member(sch, Qdisc__qstats__backlog) += bytes;
}

/* Takes a packet by its number. */
static __always_inline struct sk_buff *take(u32 number)
{
	struct held *place = bpf_map_lookup_elem(&held, &number);

	return place ? bpf_kptr_xchg(&place->skb, 0) : 0;
}

/* Replaces the classes, if user space has planned to. */
static __always_inline void change_classes(struct hsfq *queue, struct link *line)
{
	u64 *wanted = only(&change);
	struct plan *other = only(&plan);
	u32 at;

	if (!wanted || !*wanted || !other)
		return;
	hsfq_change(queue, &other->classes);
	line->rate = other->rate;
	line->rest = 0;
	line->others = other->others;
	for (at = 0; at < PRIORITIES; at++)
		line->by_priority[at] = other->by_priority[at];
	*wanted = 0;
}

/*
 * Counts the delay of a packet, in the bucket given by the highest bit of the delay and the two bits below.
 */
static __always_inline void count_delay(struct hsfq_class *class, u64 waited)
{
	u32 place = class->delays, bit = 0, bucket = 0;
	struct delays *counts = bpf_map_lookup_elem(&delays, &place);
	u64 rest = waited;

	if (!counts)
		return;
	if (rest >> 32) {
		rest >>= 32;
		bit += 32;
	}
	if (rest >> 16) {
		rest >>= 16;
		bit += 16;
	}
	if (rest >> 8) {
		rest >>= 8;
		bit += 8;
	}
	if (rest >> 4) {
		rest >>= 4;
		bit += 4;
	}
	if (rest >> 2) {
		rest >>= 2;
		bit += 2;
	}
	bit += rest >> 1;
	if (bit >= SHORTEST)
		bucket = (bit - SHORTEST) * 4 + (waited >> (bit - 2) & 3);
	if (bucket >= DELAYS)
		bucket = DELAYS - 1;
	counts->count[bucket]++;
}

SEC("struct_ops/enqueue")
int enqueue(u64 *arguments)
{
	struct sk_buff *skb = (void *)arguments[0];
	struct Qdisc *sch = (void *)arguments[1];
	struct bpf_sk_buff_ptr *to_free = (void *)arguments[2];
	struct hsfq *queue = only(&scheduler);
	struct link *line = only(&link);
	u64 *said = only(&clock);
	struct held *place;
	u32 leaf, length, number, victim, times;
	u64 now;

	if (!queue || !line || !said)
		goto drop;
	length = length_of(skb);
	now = time(said);
	if (line->rate && now >= line->free_at) {
		hsfq_finish(queue);
		/* capacity of times in which no packet waited is lost */
		if (!hsfq_class(queue, HSFQ_ROOT)->packets)
			line->free_at = now;
	}
	change_classes(queue, line);
	if (names_class(sch, *member(skb, sk_buff__priority)) &&
	    (*member(skb, sk_buff__priority) & 0xffff) == KICK)
		goto drop;
	leaf = classify(queue, line, sch, skb);
	number = hsfq_enqueue(queue, leaf, length, now);
	if (number == HSFQ_NONE)
		goto drop;
	place = bpf_map_lookup_elem(&held, &number);
	if (!place)
		goto drop;
	skb = bpf_kptr_xchg(&place->skb, skb);
	if (skb)
		bpf_qdisc_skb_drop(skb, to_free); /* never happens: the entry was empty */
	waits(sch, 1, length);
	hsfq_repeat(times, MAX_VICTIMS)
	{
		victim = hsfq_drop_longest(queue, leaf);
		if (victim == HSFQ_NONE)
			break;
		skb = take(victim);
		waits(sch, -1, -hsfq_packet(queue, victim)->length);
		if (skb)
			bpf_qdisc_skb_drop(skb, to_free);
	}
	return 0;
drop:
	bpf_qdisc_skb_drop(skb, to_free);
	return DROPPED;
}

SEC("struct_ops/dequeue")
u64 dequeue(u64 *arguments)
{
	struct Qdisc *sch = (void *)arguments[0];
	struct hsfq *queue = only(&scheduler);
	struct link *line = only(&link);
	u64 *said = only(&clock);
	struct sk_buff *skb;
	u32 number, length;
	u64 now;

	if (!queue || !line || !said)
		return 0;
	now = time(said);
	if (line->rate && now < line->free_at) {
		if (hsfq_class(queue, HSFQ_ROOT)->packets)
			bpf_qdisc_watchdog_schedule(
				sch, *said ? bpf_ktime_get_ns() + MILLISECOND : line->free_at, 0);
		return 0;
	}
	number = hsfq_dequeue(queue);
	if (number == HSFQ_NONE)
		return 0;
	count_delay(hsfq_class(queue, queue->in_service), hsfq_served(queue, number, now));
	length = hsfq_packet(queue, number)->length;
	waits(sch, -1, -length);
	if (line->rate) {
		u64 work = length * 8 * SECOND + line->rest;

		if (now - line->free_at > MAX_LATE)
			line->free_at = now - MAX_LATE;
		line->free_at += work / line->rate;
		line->rest = work % line->rate;
	}
	skb = take(number);
	if (!skb)
		return 0;
	bpf_qdisc_bstats_update(sch, skb);
	return (u64)skb;
}

SEC("struct_ops/init")
int init(u64 *arguments)
{
	struct link *line = only(&link);

	if (!line)
		return BROKEN;
	if (line->devices)
		return BUSY;
	line->devices = 1;
	return 0;
}

SEC("struct_ops/reset")
int reset(u64 *arguments)
{
	struct hsfq *queue = only(&scheduler);
	u32 times;

	if (!queue)
		return 0;
	hsfq_repeat(times, HSFQ_PACKETS)
	{
		u32 number = hsfq_dequeue(queue);
		struct sk_buff *skb;

		if (number == HSFQ_NONE)
			break;
		hsfq_class(queue, queue->in_service)->dropped++;
		skb = take(number);
		if (skb)
			bpf_kfree_skb(skb);
	}
	return 0;
}

SEC("struct_ops/destroy")
int destroy(u64 *arguments)
{
	struct link *line = only(&link);

	if (line)
		line->devices = 0;
	return 0;
}
