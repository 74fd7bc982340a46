/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Hierarchical start-time fair queuing on arrays: the same decisions as crates/fairqueue, packet by packet.
 *
 * One structure holds everything, and every index is masked before it is used, so that the kernel's verifier
 * accepts it; loops have constant bounds. The same text is compiled for the kernel, where the structure is
 * the value of a map (fairqueue.bpf.c), and for user space, where a test compares it with crates/fairqueue. A
 * packet is only a number here: an index of an array of the caller.
 *
 * The waiting children of each class form a binary heap: O(log siblings) a level. fairqueue_change.h replaces
 * the classes while packets wait. The includer of this file defines u32, u64 and bool, and hsfq_repeat(i, n),
 * a loop whose bound the compiler of its target accepts.
 */
#ifndef UNISONO_FAIRQUEUE_H
#define UNISONO_FAIRQUEUE_H

#define HSFQ_CLASSES 1024   /* a power of two */
#define HSFQ_HEAP_LEVELS 10 /* its logarithm */
#define HSFQ_DEPTH 8	    /* levels from the root, which does not count, to a leaf */
#define HSFQ_PACKETS 16384  /* the most that wait at a time; a power of two */
#define HSFQ_GENERATIONS 32 /* a power of two */
#define HSFQ_NONE 0xffffffffU
#define HSFQ_ROOT 0
/* Beyond this virtual time all tags of a class are reduced by the same amount. */
#define HSFQ_MOST_NOW (1ULL << 62)

/* Flags of a class. */
#define HSFQ_LEAF 1
#define HSFQ_LIMITED 2
#define HSFQ_DROP_LONGEST 4 /* drop the last packet of the longest leaf, not the arriving one */

enum hsfq_state { HSFQ_IDLE, HSFQ_WAITING, HSFQ_SERVING };

/* layout.rs has the same layout. */
struct hsfq_class {
	u64 tag;  /* in the parent's virtual time: the start tag while it waits, else the last finish tag */
	u64 cost; /* the cost of a byte in the parent's virtual time */
	u64 now;  /* the virtual time among its children */
	u64 last_finish; /* the greatest finish tag among its children */
	u64 order;	 /* a value of `beginnings`: when it began to wait */
	u64 bytes;	 /* waiting here and below */
	u64 most_bytes;
	u64 allowed_bytes; /* drop from the longest beyond this: the limit, or the backlog when it was set */
	u64 served_packets, served_bytes, dropped; /* at leaves only */
	u64 waited, shortest_wait, longest_wait;   /* nanoseconds, of packets that were served */
	u32 packets;				   /* waiting here and below */
	u32 most_packets, allowed_packets;
	u32 parent;
	u32 state;
	u32 flags;
	u32 end;	/* one more than the number of the last class below it */
	u32 heap;	/* the start of its part of the heap */
	u32 children;	/* children that wait */
	u32 head, tail; /* of the packet list, if any wait */
	u32 delays;	/* the index of its histogram, not used in this file */
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
	u32 free;	/* the first free packet that was used before */
	u32 fresh;	/* packets from here on have never been used */
	u32 count;	/* the number of classes */
	u32 zero;	/* always 0: loops that begin with it hide this constant from the verifier */
	u32 generation; /* the number of changes of the classes, modulo HSFQ_GENERATIONS */
	u32 maps[4];	/* used by user space only */
	struct hsfq_class classes[HSFQ_CLASSES];
	u32 heap[HSFQ_CLASSES];
	u32 home[HSFQ_CLASSES]; /* for each leaf of the previous generation, the leaf for its packets */
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

/* Moves an empty place of the heap upwards to the position of a child, and puts the child there. */
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

/* Moves an empty place of the heap downwards to the position of a child; returns that position. */
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

/* Inserts a child into the heap, at its tag. */
static inline void hsfq_insert(struct hsfq *queue, struct hsfq_class *inner, u32 child)
{
	hsfq_class(queue, child)->order = queue->beginnings++;
	hsfq_class(queue, child)->state = HSFQ_WAITING;
	hsfq_up(queue, inner, inner->children++, child);
}

/* Takes out the child at a place of the heap. */
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

/* Ends a busy period if no child waits. */
static inline void hsfq_end_if_empty(struct hsfq_class *inner)
{
	if (!inner->children)
		inner->now = inner->last_finish;
}

static inline u64 hsfq_ahead(u64 tag, u64 now)
{
	return tag > now ? tag - now : 0;
}

/* Reduces all tags below a class, so that its virtual time becomes 0. */
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

/* Ends the service of the packet in service, if there is one. */
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

/*
 * Sets the backlog beyond which the longest leaf drops: the limit, or the part of the earlier backlog that
 * still waits.
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

/* Counts packets that arrive, or that leave (with negative numbers), in a leaf and all classes above it. */
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

/* Whether an arriving packet has to be dropped itself. */
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

/* Takes a packet out of the list of a leaf, the first or the last one. */
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

/* Queues a packet at a leaf; returns its number, or none if it is dropped. */
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

/* Chooses the next packet and takes it into service. */
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

/* Counts the packet that has just been chosen; returns its delay. */
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

/* Stops a class from waiting after its last packet was dropped, and each ancestor that has no packet left. */
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
 * After an arrival at a leaf: the packet to drop because a class above the leaf exceeds its limit, the last
 * packet of the longest leaf. Returns none if no class exceeds its limit. Call it until it returns none.
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
