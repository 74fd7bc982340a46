/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Replaces classes, weights and the tree while packets wait, as crates/fairqueue/src/scheduler/change.rs
 * does, on the arrays of fairqueue.h.
 *
 * User space numbers the new classes and maps the old ones to them. This file does the rest, in one step,
 * because only the program knows the backlog: no packet is lost or overtakes another of its class, and each
 * class keeps its lead over its siblings, in bytes.
 *
 * Cost: some microseconds for ten classes, and about a millisecond for a thousand. No packet leaves in that
 * time.
 */
#ifndef UNISONO_FAIRQUEUE_CHANGE_H
#define UNISONO_FAIRQUEUE_CHANGE_H

#include "fairqueue.h"

/* A plan to replace the classes: the new classes, and the mapping between old and new numbers. */
struct hsfq_plan {
	u32 count;
	u32 unused;
	struct hsfq_class classes[HSFQ_CLASSES]; /* without packets */
	u32 from[HSFQ_CLASSES];			 /* the old number of a new class, or none */
	u32 to[HSFQ_CLASSES];			 /* the new number of an old class, or none */
	u32 home[HSFQ_CLASSES];			 /* the new leaf for the packets of an old leaf */
};

static inline struct hsfq_class *hsfq_planned(struct hsfq_plan *plan, u32 at)
{
	return &plan->classes[at & (HSFQ_CLASSES - 1)];
}

/* Converts a distance between tags to another cost of a byte, keeping the bytes. Costs are less than 2^38. */
static inline u64 hsfq_in_unit(u64 ahead, u64 cost, u64 new_cost)
{
	u64 whole = ahead / cost, part = ahead % cost, each = new_cost / cost, rest = new_cost % cost;
	u64 quotient = 0, remainder = 0;
	u32 bit;

	if (whole && new_cost > HSFQ_MOST_NOW / whole)
		return HSFQ_MOST_NOW;
	whole *= new_cost;
	if (part) {
		/* part * new_cost / cost, bit by bit, because the product may have more than 64 bits */
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

/* Ranks the waiting children of all classes; equal tags keep this order. */
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

/* Copies the lead of each class, in bytes; and the packets and counters of leaves. */
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

/* Moves the packets of classes that are no longer leaves behind the packets of their new leaf. */
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

/* Sums the backlogs of all classes. Children have higher numbers than their parents. */
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

/* Inserts all classes with packets, and restarts the order of waiting. */
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
 * Replaces the classes. No packet is lost, packets of a class keep their order, and each class keeps its lead
 * over its siblings, in bytes (crates/fairqueue/src/scheduler/change.rs, step by step). Destroys the plan.
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
