/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Hierarchical start-time fair queuing on arrays: the same decisions as crates/fairqueue, packet by packet.
 *
 * One structure holds everything, and every index is masked before it is used, so that the kernel's verifier
 * follows; loops have bounds known in advance. The same text is compiled for the kernel, where the structure
 * is the value of a map (fairqueue.bpf.c), and for user space, where a test compares it with
 * crates/fairqueue. What a packet carries is not known here: a packet is a number, a place in an array of the
 * caller's.
 *
 * Children that want service are a binary heap for each class: O(log siblings) a level. Other classes are put
 * in the place of these while packets wait by fairqueue_change.h. The user of this file defines u32, u64 and
 * bool, and hsfq_repeat(i, n), a loop whose bound the compiler of its target accepts.
 */
#ifndef UNISONO_FAIRQUEUE_H
#define UNISONO_FAIRQUEUE_H

#define HSFQ_CLASSES 1024   /* a power of two */
#define HSFQ_HEAP_LEVELS 10 /* its logarithm */
#define HSFQ_DEPTH 8	    /* classes from the root, which does not count, to a leaf */
#define HSFQ_PACKETS 16384  /* that may wait at a time; a power of two */
#define HSFQ_GENERATIONS 32 /* a power of two */
#define HSFQ_NONE 0xffffffffU
#define HSFQ_ROOT 0
/* Beyond this virtual time tags are moved back, all by the same amount. */
#define HSFQ_MOST_NOW (1ULL << 62)

/* Of a class. */
#define HSFQ_LEAF 1
#define HSFQ_LIMITED 2
#define HSFQ_DROP_LONGEST 4 /* the last packet of the longest leaf goes, not the one that arrives */

enum hsfq_state { HSFQ_IDLE, HSFQ_WAITING, HSFQ_SERVING };

/* The layout is known to layout.rs too. */
struct hsfq_class {
	u64 tag;  /* in the parent's virtual time: of the start while it waits, else of the last finish */
	u64 cost; /* what a byte costs in the parent's virtual time */
	u64 now;  /* the virtual time among its children */
	u64 last_finish; /* the greatest finish tag among its children */
	u64 order;	 /* when it began to wait, counted in beginnings */
	u64 bytes;	 /* waiting here and below */
	u64 most_bytes;
	u64 allowed_bytes; /* before the longest drops: as many, or what waited already when it was limited */
	u64 served_packets, served_bytes, dropped; /* of a leaf */
	u64 waited, shortest_wait, longest_wait;   /* nanoseconds, of packets that were served */
	u32 packets;				   /* waiting here and below */
	u32 most_packets, allowed_packets;
	u32 parent;
	u32 state;
	u32 flags;
	u32 end;	/* one more than the last class below it */
	u32 heap;	/* where its part of the heap begins */
	u32 children;	/* that want service */
	u32 head, tail; /* of the packets, if any wait */
	u32 delays;	/* where its histogram is; this file does not look at it */
};

struct hsfq_packet {
	u64 arrived;
	u32 length;
	u32 next, previous;
	u32 unused;
};

struct hsfq {
	u64 beginnings;
	u32 in_service; /* a leaf, or none */
	u32 free;	/* the first of the packets that were given back */
	u32 fresh;	/* packets from here on have never been used */
	u32 count;	/* of classes */
	u32 zero;	/* 0 for ever: where a loop begins with it, the verifier must not know that it does */
	u32 generation; /* how often the classes were changed, modulo HSFQ_GENERATIONS */
	u32 maps[4];	/* of user space's */
	struct hsfq_class classes[HSFQ_CLASSES];
	u32 heap[HSFQ_CLASSES];
	u32 home[HSFQ_CLASSES]; /* the leaf now for what belonged to a leaf of the generation before */
	struct hsfq_packet packets[HSFQ_PACKETS];
};

static inline struct hsfq_class *hsfq_class(struct hsfq *queue, u32 at)
{
	return &queue->classes[at & (HSFQ_CLASSES - 1)];
}

static inline struct hsfq_packet *hsfq_packet(struct hsfq *queue, u32 at)
{
	return &queue->packets[at & (HSFQ_PACKETS - 1)];
}

static inline u32 *hsfq_entry(struct hsfq *queue, struct hsfq_class *inner, u32 at)
{
	return &queue->heap[(inner->heap + at) & (HSFQ_CLASSES - 1)];
}

static inline bool hsfq_before(struct hsfq *queue, u32 one, u32 other)
{
	struct hsfq_class *a = hsfq_class(queue, one), *b = hsfq_class(queue, other);

	return a->tag < b->tag || (a->tag == b->tag && a->order < b->order);
}

/* Finds the place of a child from an empty place of the heap upwards. */
static inline void hsfq_up(struct hsfq *queue, struct hsfq_class *inner, u32 at, u32 child)
{
	u32 level;

	hsfq_repeat(level, HSFQ_HEAP_LEVELS)
	{
		u32 above = (at - 1) / 2, other;

		if (!at)
			break;
		other = *hsfq_entry(queue, inner, above);
		if (!hsfq_before(queue, child, other))
			break;
		*hsfq_entry(queue, inner, at) = other;
		at = above;
	}
	*hsfq_entry(queue, inner, at) = child;
}

/* And downwards; answers where it would be. */
static inline u32 hsfq_down(struct hsfq *queue, struct hsfq_class *inner, u32 at, u32 child)
{
	u32 level;

	hsfq_repeat(level, HSFQ_HEAP_LEVELS)
	{
		u32 below = 2 * at + 1, other;

		if (below >= inner->children)
			break;
		other = *hsfq_entry(queue, inner, below);
		if (below + 1 < inner->children) {
			u32 right = *hsfq_entry(queue, inner, below + 1);

			if (hsfq_before(queue, right, other)) {
				other = right;
				below++;
			}
		}
		if (!hsfq_before(queue, other, child))
			break;
		*hsfq_entry(queue, inner, at) = other;
		at = below;
	}
	return at;
}

/* A child wants service, from its tag on. */
static inline void hsfq_insert(struct hsfq *queue, struct hsfq_class *inner, u32 child)
{
	hsfq_class(queue, child)->order = queue->beginnings++;
	hsfq_class(queue, child)->state = HSFQ_WAITING;
	hsfq_up(queue, inner, inner->children++, child);
}

/* Takes the child that is at a place of the heap. */
static inline void hsfq_remove(struct hsfq *queue, struct hsfq_class *inner, u32 at)
{
	u32 last;

	inner->children--;
	last = *hsfq_entry(queue, inner, inner->children);
	if (at == inner->children)
		return;
	at = hsfq_down(queue, inner, at, last);
	hsfq_up(queue, inner, at, last);
}

static inline bool hsfq_has_more(struct hsfq_class *class)
{
	return class->flags & HSFQ_LEAF ? class->packets : class->children;
}

/* Ends a busy period if nothing wants service. */
static inline void hsfq_end_if_empty(struct hsfq_class *inner)
{
	if (!inner->children)
		inner->now = inner->last_finish;
}

static inline u64 hsfq_ahead(u64 tag, u64 now)
{
	return tag > now ? tag - now : 0;
}

/* Moves all tags below a class back, so that its virtual time becomes 0. */
static inline void hsfq_move_tags(struct hsfq *queue, u32 inner)
{
	struct hsfq_class *parent = hsfq_class(queue, inner);
	u64 now = parent->now;
	u32 at;

	hsfq_repeat(at, HSFQ_CLASSES)
	{
		struct hsfq_class *class = hsfq_class(queue, at);

		if (at != HSFQ_ROOT && class->parent == inner)
			class->tag = hsfq_ahead(class->tag, now);
	}
	parent->last_finish = hsfq_ahead(parent->last_finish, now);
	parent->now = 0;
}

/* The packet in service has been served. Without one, nothing. */
static inline void hsfq_finish(struct hsfq *queue)
{
	u32 at = queue->in_service, level;

	if (at == HSFQ_NONE)
		return;
	queue->in_service = HSFQ_NONE;
	hsfq_repeat(level, HSFQ_DEPTH)
	{
		struct hsfq_class *class = hsfq_class(queue, at), *parent;

		if (at == HSFQ_ROOT)
			break;
		parent = hsfq_class(queue, class->parent);
		if (hsfq_has_more(class)) {
			hsfq_insert(queue, parent, at);
		} else {
			class->state = HSFQ_IDLE;
			hsfq_end_if_empty(parent);
		}
		at = class->parent;
	}
}

/* How much may wait before the longest drops: the limit, or as much of what was let in before as still waits.
 */
static inline void hsfq_allow(struct hsfq_class *class, u32 packets, u64 bytes)
{
	if (packets > class->packets)
		packets = class->packets;
	if (bytes > class->bytes)
		bytes = class->bytes;
	class->allowed_packets = packets > class->most_packets ? packets : class->most_packets;
	class->allowed_bytes = bytes > class->most_bytes ? bytes : class->most_bytes;
}

/* Counts packets that came, or that went (with negative numbers), in a leaf and all above it. */
static inline void hsfq_count(struct hsfq *queue, u32 at, u32 packets, u64 bytes)
{
	u32 level;

	hsfq_repeat(level, HSFQ_DEPTH + 1)
	{
		struct hsfq_class *class = hsfq_class(queue, at);

		class->packets += packets;
		class->bytes += bytes;
		if (packets != 1)
			hsfq_allow(class, class->allowed_packets, class->allowed_bytes);
		if (at == HSFQ_ROOT)
			break;
		at = class->parent;
	}
}

/* Whether a packet that arrives has to be dropped itself. */
static inline bool hsfq_refuses(struct hsfq *queue, u32 at, u32 length)
{
	bool refuses = false;
	u32 level;

	hsfq_repeat(level, HSFQ_DEPTH + 1)
	{
		struct hsfq_class *class = hsfq_class(queue, at);

		if ((class->flags & (HSFQ_LIMITED | HSFQ_DROP_LONGEST)) == HSFQ_LIMITED &&
		    (class->packets + 1 > class->most_packets || class->bytes + length > class->most_bytes))
			refuses = true;
		if (at == HSFQ_ROOT)
			break;
		at = class->parent;
	}
	return refuses;
}

/* Takes a packet out of the line of a leaf, its first or its last. */
static inline void hsfq_leave(struct hsfq *queue, u32 leaf, u32 at)
{
	struct hsfq_class *class = hsfq_class(queue, leaf);
	struct hsfq_packet *packet = hsfq_packet(queue, at);

	if (class->head == at)
		class->head = packet->next;
	else
		hsfq_packet(queue, packet->previous)->next = packet->next;
	if (class->tail == at)
		class->tail = packet->previous;
	packet->next = queue->free;
	queue->free = at;
	hsfq_count(queue, leaf, -1, -(u64)packet->length);
}

/* A packet arrives at a leaf; answers its number, or none if it is dropped. */
static inline u32 hsfq_enqueue(struct hsfq *queue, u32 leaf, u32 length, u64 now)
{
	struct hsfq_class *class = hsfq_class(queue, leaf);
	struct hsfq_packet *packet;
	u32 number, at, level;

	if (queue->free != HSFQ_NONE)
		number = queue->free;
	else
		number = queue->fresh;
	if (number >= HSFQ_PACKETS || hsfq_refuses(queue, leaf, length)) {
		class->dropped++;
		return HSFQ_NONE;
	}
	packet = hsfq_packet(queue, number);
	if (queue->free != HSFQ_NONE)
		queue->free = packet->next;
	else
		queue->fresh++;
	packet->arrived = now;
	packet->length = length;
	packet->next = HSFQ_NONE;
	packet->previous = class->tail;
	if (class->packets)
		hsfq_packet(queue, class->tail)->next = number;
	else
		class->head = number;
	class->tail = number;
	hsfq_count(queue, leaf, 1, length);

	at = leaf;
	hsfq_repeat(level, HSFQ_DEPTH)
	{
		struct hsfq_class *waking = hsfq_class(queue, at), *parent;

		if (at == HSFQ_ROOT || waking->state != HSFQ_IDLE)
			break;
		parent = hsfq_class(queue, waking->parent);
		if (waking->tag < parent->now)
			waking->tag = parent->now;
		hsfq_insert(queue, parent, at);
		at = waking->parent;
	}
	return number;
}

/* Chooses the packet to serve next; it is in service then. */
static inline u32 hsfq_dequeue(struct hsfq *queue)
{
	struct hsfq_class *class;
	struct hsfq_packet *packet;
	u32 at = HSFQ_ROOT, leaf, number, level, length;

	hsfq_finish(queue);
	if (!hsfq_class(queue, HSFQ_ROOT)->packets)
		return HSFQ_NONE;
	hsfq_repeat(level, HSFQ_DEPTH)
	{
		struct hsfq_class *inner = hsfq_class(queue, at);
		u32 child;

		if (inner->flags & HSFQ_LEAF)
			break;
		child = *hsfq_entry(queue, inner, 0);
		hsfq_remove(queue, inner, queue->zero);
		inner->now = hsfq_class(queue, child)->tag;
		if (inner->now > HSFQ_MOST_NOW)
			hsfq_move_tags(queue, at);
		hsfq_class(queue, child)->state = HSFQ_SERVING;
		at = child;
	}
	leaf = at;
	class = hsfq_class(queue, leaf);
	number = class->head;
	packet = hsfq_packet(queue, number);
	length = packet->length;
	hsfq_leave(queue, leaf, number);
	hsfq_repeat(level, HSFQ_DEPTH)
	{
		struct hsfq_class *parent;

		class = hsfq_class(queue, at);
		if (at == HSFQ_ROOT)
			break;
		parent = hsfq_class(queue, class->parent);
		class->tag = parent->now + length * class->cost;
		if (parent->last_finish < class->tag)
			parent->last_finish = class->tag;
		at = class->parent;
	}
	queue->in_service = leaf;
	return number;
}

/* Counts what has just been chosen; answers how long it waited. */
static inline u64 hsfq_served(struct hsfq *queue, u32 number, u64 now)
{
	struct hsfq_class *class = hsfq_class(queue, queue->in_service);
	struct hsfq_packet *packet = hsfq_packet(queue, number);
	u64 waited = now - packet->arrived;

	if (!class->served_packets || class->shortest_wait > waited)
		class->shortest_wait = waited;
	if (class->longest_wait < waited)
		class->longest_wait = waited;
	class->served_packets++;
	class->served_bytes += packet->length;
	class->waited += waited;
	return waited;
}

/* A class that waited has nothing left to serve, since its packets were dropped. */
static inline void hsfq_give_up(struct hsfq *queue, u32 at)
{
	u32 level;

	hsfq_repeat(level, HSFQ_DEPTH)
	{
		struct hsfq_class *class = hsfq_class(queue, at), *parent;
		u32 place, found = HSFQ_NONE;

		if (at == HSFQ_ROOT || class->state != HSFQ_WAITING || hsfq_has_more(class))
			break;
		parent = hsfq_class(queue, class->parent);
		hsfq_repeat(place, HSFQ_CLASSES)
		{
			if (place >= parent->children)
				break;
			if (*hsfq_entry(queue, parent, place) == at) {
				found = place;
				break;
			}
		}
		if (found != HSFQ_NONE)
			hsfq_remove(queue, parent, found);
		class->state = HSFQ_IDLE;
		at = class->parent;
		if (at == HSFQ_ROOT ? queue->in_service == HSFQ_NONE : parent->state != HSFQ_SERVING)
			hsfq_end_if_empty(parent);
	}
}

/*
 * The packet that has to go, now that one has come to a leaf, because a class above it holds more than it
 * may: the last one of the longest leaf. None, if there is no such class. To be asked until there is none.
 */
static inline u32 hsfq_drop_longest(struct hsfq *queue, u32 at)
{
	u32 level, full = HSFQ_NONE, longest = HSFQ_NONE, number;
	struct hsfq_class *limited;
	u64 most = 0;

	hsfq_repeat(level, HSFQ_DEPTH + 1)
	{
		struct hsfq_class *class = hsfq_class(queue, at);

		if (class->flags & HSFQ_DROP_LONGEST &&
		    (class->packets > class->allowed_packets || class->bytes > class->allowed_bytes)) {
			full = at;
			break;
		}
		if (at == HSFQ_ROOT)
			break;
		at = class->parent;
	}
	if (full == HSFQ_NONE)
		return HSFQ_NONE;
	limited = hsfq_class(queue, full);
	hsfq_repeat(at, HSFQ_CLASSES)
	{
		struct hsfq_class *class = hsfq_class(queue, at);

		if (at >= full && at < limited->end && class->flags & HSFQ_LEAF && class->packets &&
		    class->bytes >= most) {
			longest = at;
			most = class->bytes;
		}
	}
	if (longest == HSFQ_NONE)
		return HSFQ_NONE;
	number = hsfq_class(queue, longest)->tail;
	hsfq_class(queue, longest)->dropped++;
	hsfq_leave(queue, longest, number);
	hsfq_give_up(queue, longest);
	return number;
}

#endif
