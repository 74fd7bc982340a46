/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Other classes, other weights, another tree, while packets wait: what
 * crates/fairqueue/src/scheduler/change.rs does, on the arrays of fairqueue.h.
 *
 * User space numbers the new classes and says which is which; the rest is done here, in one step, since only
 * here it is known what waits: no packet is lost or overtakes another of its class, and who was ahead of its
 * siblings stays so, in bytes.
 *
 * Cost: some microseconds for ten classes, and a millisecond or so for a thousand, in which nothing leaves.
 */
#ifndef UNISONO_FAIRQUEUE_CHANGE_H
#define UNISONO_FAIRQUEUE_CHANGE_H

#include "fairqueue.h"

/* Other classes for those that are there: new numbers, and which is which. */
struct hsfq_plan {
	u32 count;
	u32 unused;
	struct hsfq_class classes[HSFQ_CLASSES]; /* as they begin without packets */
	u32 from[HSFQ_CLASSES];			 /* what a new class was, or none */
	u32 to[HSFQ_CLASSES];			 /* what an old class becomes, or none */
	u32 home[HSFQ_CLASSES];			 /* where the packets of an old leaf wait from now on */
};

static inline struct hsfq_class *hsfq_planned(struct hsfq_plan *plan, u32 at)
{
	return &plan->classes[at & (HSFQ_CLASSES - 1)];
}

/* A distance between tags where a byte costs something else: the same bytes. Costs are less than 2^38. */
static inline u64 hsfq_in_unit(u64 ahead, u64 cost, u64 new_cost)
{
	u64 whole = ahead / cost, part = ahead % cost, each = new_cost / cost, rest = new_cost % cost;
	u64 quotient = 0, remainder = 0;
	u32 bit;

	if (whole && new_cost > HSFQ_MOST_NOW / whole)
		return HSFQ_MOST_NOW;
	whole *= new_cost;
	if (part) {
		/* part * new_cost / cost, bit by bit, since the product may be longer than 64 */
		hsfq_repeat(bit, 38)
		{
			quotient *= 2;
			remainder *= 2;
			if (part >> 37 & 1) {
				quotient += each;
				remainder += rest;
			}
			part <<= 1;
			quotient += remainder / cost;
			remainder %= cost;
		}
	}
	whole += quotient;
	return whole > HSFQ_MOST_NOW ? HSFQ_MOST_NOW : whole;
}

/* The children of all classes that wait, in their order, which they keep where tags are equal. */
static inline void hsfq_rank(struct hsfq *queue, struct hsfq_plan *plan)
{
	u32 at, times;

	hsfq_repeat(at, HSFQ_CLASSES)
	{
		struct hsfq_class *inner = hsfq_class(queue, at);

		if (at >= queue->count)
			break;
		if (inner->flags & HSFQ_LEAF)
			continue;
		hsfq_repeat(times, HSFQ_CLASSES)
		{
			u32 child;

			if (!inner->children)
				break;
			child = *hsfq_entry(queue, inner, queue->zero);
			hsfq_remove(queue, inner, queue->zero);
			child = plan->to[child & (HSFQ_CLASSES - 1)];
			if (child == HSFQ_NONE)
				continue;
			hsfq_planned(plan, child)->order = queue->beginnings++;
			hsfq_planned(plan, child)->state = HSFQ_WAITING;
		}
	}
}

/* What stays: how far each class is ahead, in bytes; the packets of leaves, and what they got. */
static inline void hsfq_keep(struct hsfq *queue, struct hsfq_plan *plan)
{
	u32 at;

	hsfq_repeat(at, HSFQ_CLASSES)
	{
		struct hsfq_class *class = hsfq_planned(plan, at), *old;
		u32 from = plan->from[at & (HSFQ_CLASSES - 1)];

		if (at >= plan->count)
			break;
		if (from == HSFQ_NONE)
			continue;
		old = hsfq_class(queue, from);
		if (at != HSFQ_ROOT)
			class->tag = hsfq_in_unit(hsfq_ahead(old->tag, hsfq_class(queue, old->parent)->now),
						  old->cost, class->cost);
		if (!(old->flags & class->flags & HSFQ_LEAF))
			continue;
		class->packets = old->packets;
		class->bytes = old->bytes;
		class->head = old->head;
		class->tail = old->tail;
		class->served_packets = old->served_packets;
		class->served_bytes = old->served_bytes;
		class->dropped = old->dropped;
		class->waited = old->waited;
		class->shortest_wait = old->shortest_wait;
		class->longest_wait = old->longest_wait;
	}
}

/* The packets of leaves that are none any more go behind those of their new home. */
static inline void hsfq_move(struct hsfq *queue, struct hsfq_plan *plan)
{
	u32 at;

	hsfq_repeat(at, HSFQ_CLASSES)
	{
		struct hsfq_class *old = hsfq_class(queue, at), *home;
		u32 to = plan->home[at & (HSFQ_CLASSES - 1)];

		if (at >= queue->count)
			break;
		if (!(old->flags & HSFQ_LEAF) || !old->packets || to == HSFQ_NONE ||
		    plan->from[to & (HSFQ_CLASSES - 1)] == at)
			continue;
		home = hsfq_planned(plan, to);
		hsfq_packet(queue, old->head)->previous = home->tail;
		if (home->packets)
			hsfq_packet(queue, home->tail)->next = old->head;
		else
			home->head = old->head;
		home->tail = old->tail;
		home->packets += old->packets;
		home->bytes += old->bytes;
	}
}

/* Counts what waits below each class; those that come later are below those before. */
static inline void hsfq_sum(struct hsfq_plan *plan)
{
	u32 times;

	hsfq_repeat(times, HSFQ_CLASSES)
	{
		u32 at = plan->count - 1 - times;
		struct hsfq_class *class = hsfq_planned(plan, at), *parent;

		if (times >= plan->count)
			break;
		hsfq_allow(class, class->packets, class->bytes);
		if (at == HSFQ_ROOT)
			break;
		parent = hsfq_planned(plan, class->parent);
		parent->packets += class->packets;
		parent->bytes += class->bytes;
	}
}

/* Enters all that want service, and begins a time in which nobody has waited yet. */
static inline void hsfq_begin(struct hsfq *queue)
{
	u32 times, at = queue->in_service, level;

	hsfq_repeat(level, HSFQ_DEPTH)
	{
		if (at == HSFQ_NONE || at == HSFQ_ROOT)
			break;
		hsfq_class(queue, at)->state = HSFQ_SERVING;
		at = hsfq_class(queue, at)->parent;
	}
	hsfq_repeat(times, HSFQ_CLASSES)
	{
		struct hsfq_class *class = hsfq_class(queue, times);

		if (times >= queue->count)
			break;
		if (class->state == HSFQ_IDLE)
			class->order = queue->beginnings++;
	}
	hsfq_repeat(times, HSFQ_CLASSES)
	{
		struct hsfq_class *class, *parent;
		bool serves;

		if (times >= queue->count)
			break;
		at = queue->count - 1 - times;
		class = hsfq_class(queue, at);
		serves = at == HSFQ_ROOT ? queue->in_service != HSFQ_NONE : class->state == HSFQ_SERVING;
		if (!(class->flags & HSFQ_LEAF) && !serves)
			hsfq_end_if_empty(class);
		if (at == HSFQ_ROOT)
			break;
		parent = hsfq_class(queue, class->parent);
		if (parent->last_finish < class->tag)
			parent->last_finish = class->tag;
		if (serves)
			continue;
		class->state = hsfq_has_more(class) ? HSFQ_WAITING : HSFQ_IDLE;
		if (class->state == HSFQ_WAITING)
			hsfq_up(queue, parent, parent->children++, at);
	}
}

/*
 * Other classes from now on. No packet is lost, and those of a class leave in their order; how far a class is
 * ahead of its siblings it stays, in bytes (crates/fairqueue/src/scheduler/change.rs, step by step). The plan
 * is used up.
 */
static inline void hsfq_change(struct hsfq *queue, struct hsfq_plan *plan)
{
	u32 at, leaf = queue->in_service;

	hsfq_rank(queue, plan);
	hsfq_keep(queue, plan);
	hsfq_move(queue, plan);
	hsfq_sum(plan);
	if (leaf != HSFQ_NONE)
		leaf = plan->to[leaf & (HSFQ_CLASSES - 1)];
	if (leaf != HSFQ_NONE && !(hsfq_planned(plan, leaf)->flags & HSFQ_LEAF))
		leaf = HSFQ_NONE;
	queue->in_service = leaf;
	hsfq_repeat(at, HSFQ_CLASSES)
	{
		u32 here = at & (HSFQ_CLASSES - 1);

		queue->home[here] = plan->home[here];
		if (at < plan->count)
			queue->classes[here] = plan->classes[here];
	}
	queue->count = plan->count;
	queue->generation = (queue->generation + 1) & (HSFQ_GENERATIONS - 1);
	hsfq_begin(queue);
}

#endif
