// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
/*
 * A switch: handles each frame that comes in through one of its ports.
 *
 * Decided here, for each frame. An arrival: is it the last of its barrier at this switch, so that it goes up?
 * A release: does it go down, and by which ports? Any frame: is it repeated, answered or dropped? The rules
 * are the same as in crates/btin/src/switch/mod.rs, and one table of cases tests both. Also decided here: the
 * next hop of an IPv4 packet or a request, and the new contents of a register when a request for this switch
 * arrives.
 *
 * Decided in user space: the tree, and so the contents of requests; the tables of routes and places; when a
 * node repeats its arrival; how to handle a barrier that does not end.
 *
 * When the loader dies, the program and its maps stay as long as a device holds them, so that barriers
 * continue. The devices are removed with their namespaces, and a namespace with its last process or its last
 * name. After that, nothing is left.
 *
 * A register's state is one word, changed by compare-and-swap, so that each frame is one atomic step, even if
 * other processors change it at the same time (PROTOCOL.md). Frames travel from switch to switch within one
 * pass through the receive path (bpf_redirect_peer); only copies go through a queue.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "intf.h"

#define ETHERNET 14
#define IPV4 0x0800
#define IPV4_TARGET (ETHERNET + 16)
/*
 * A frame counts as lost after this many failed attempts to change the register. Each failure means that
 * another processor has made a step. Chosen, not measured; the verifier needs some bound.
 */
#define TRIES 16

/* The loader makes the maps and fills in their descriptors by these names. */
extern char registers, routes, places, counters, settings;

static __always_inline int drop(__u32 why)
{
	__u64 *counter = bpf_map_lookup_elem(&counters, &why);

	if (counter)
		__sync_fetch_and_add(counter, 1);
	return TC_ACT_SHOT;
}

static __always_inline void count(__u32 what)
{
	drop(what);
}

/* Sends a frame from one port of this switch to the far end of another port's cable, without a queue. */
static __always_inline int send_to(struct __sk_buff *skb, __u32 port)
{
	return bpf_redirect_peer((skb->ifindex & ~(UNISONO_PORTS - 1)) + port, 0);
}

static __always_inline int send_to_all(struct __sk_buff *skb, __u32 ports)
{
	__u32 first = skb->ifindex & ~(UNISONO_PORTS - 1);
	__u32 port;

	for (port = 0; port < UNISONO_PORTS; port++) {
		if (!(ports & (1U << port)))
			continue;
		ports &= ~(1U << port);
		if (!ports)
			return send_to(skb, port);
		bpf_clone_redirect(skb, first + port, 0);
	}
	return TC_ACT_SHOT;
}

static __always_inline __u32 combine(__u32 operation, __u32 one, __u32 other)
{
	switch (operation) {
	case UNISONO_AND:
		return one & other;
	case UNISONO_MIN:
		return one < other ? one : other;
	case UNISONO_MAX:
		return one > other ? one : other;
	case UNISONO_SUM:
		return one + other > 63 ? 63 : one + other;
	default:
		return one | other;
	}
}

static __always_inline __u64 neutral(__u32 operation)
{
	return operation == UNISONO_AND || operation == UNISONO_MIN ? 63 : 0;
}

/*
 * The state at the beginning of an episode. `last` has the bits of the previous result, and whether there was
 * one.
 */
static __always_inline __u64 gathering(__u16 episode, __u32 operation, __u64 last)
{
	return (__u64)episode << UNISONO_EPISODE_SHIFT | neutral(operation) << UNISONO_DATA_SHIFT | last;
}

static __always_inline __u64 released(__u16 episode, __u32 operation, __u64 result)
{
	__u16 next = episode + 1;

	return gathering(next, operation, UNISONO_HAS_LAST | result << UNISONO_LAST_SHIFT);
}

/*
 * The effect of one frame. A frame that is only recorded (an arrival while others are missing) has the
 * verdict TC_ACT_SHOT, too: if the device itself calls the program (tcx), there is no other way to end a
 * frame.
 */
struct step {
	__u64 next;  /* the new state; the same as before if nothing changes */
	__u32 ports; /* the ports to which the frame goes */
	__u32 kind, data;
	__u32 outcome; /* to count, unless it is NOTHING */
	int verdict;
};

#define NOTHING UNISONO_OUTCOMES

static __always_inline void dropped(struct step *step, __u32 why)
{
	step->outcome = why;
	step->verdict = TC_ACT_SHOT;
}

static __always_inline void reduction(struct step *step, __u64 setup, __u64 state, __u32 port, __u16 episode)
{
	__u32 below = setup, bit = 1U << port, arrived = state,
	      operation = setup >> UNISONO_OPERATION_SHIFT & 0x7f;
	__u32 above = setup >> UNISONO_ABOVE_SHIFT & 0xff;
	__u16 now = state >> UNISONO_EPISODE_SHIFT, before = now - 1;
	__u64 data = state >> UNISONO_DATA_SHIFT & 63;

	if (!(below & bit)) {
		dropped(step, UNISONO_DROPPED_PORT);
		return;
	}
	if (episode != now) {
		if (episode != before || !(state & UNISONO_HAS_LAST)) {
			dropped(step, UNISONO_DROPPED_EPISODE);
			return;
		}
		step->ports = bit;
		step->kind = UNISONO_DISTRIBUTION;
		step->data = state >> UNISONO_LAST_SHIFT & 63;
		step->outcome = UNISONO_ANSWERED;
		return;
	}
	if (arrived & bit) {
		step->outcome = arrived == below ? UNISONO_RESENT : UNISONO_AGAIN;
	} else {
		arrived |= bit;
		data = combine(operation, data, step->data);
		step->next = (state & ~(63ULL << UNISONO_DATA_SHIFT)) | bit | data << UNISONO_DATA_SHIFT;
	}
	if (arrived != below)
		return;
	step->data = data;
	if (above != UNISONO_NOWHERE) {
		step->ports = 1U << (above & (UNISONO_PORTS - 1));
		return;
	}
	step->kind = UNISONO_DISTRIBUTION;
	step->ports = below;
	step->next = released(now, operation, data);
}

static __always_inline void distribution(struct step *step, __u64 setup, __u64 state, __u32 port,
					 __u16 episode)
{
	__u32 below = setup, arrived = state, operation = setup >> UNISONO_OPERATION_SHIFT & 0x7f;
	__u16 now = state >> UNISONO_EPISODE_SHIFT, before = now - 1;

	if (port != (setup >> UNISONO_ABOVE_SHIFT & 0xff)) {
		dropped(step, UNISONO_DROPPED_PORT);
	} else if (episode == before && state & UNISONO_HAS_LAST) {
		dropped(step, UNISONO_DROPPED_REPEATED);
	} else if (episode != now) {
		dropped(step, UNISONO_DROPPED_EPISODE);
	} else if (arrived != below) {
		dropped(step, UNISONO_DROPPED_EARLY);
	} else {
		step->ports = below;
		step->next = released(now, operation, step->data);
	}
}

static __always_inline void failure(struct step *step, __u64 setup, __u64 state, __u32 port, __u16 episode)
{
	__u32 below = setup, above = setup >> UNISONO_ABOVE_SHIFT & 0xff;
	__u16 now = state >> UNISONO_EPISODE_SHIFT;

	if (port != above && !(below & 1U << port)) {
		dropped(step, UNISONO_DROPPED_PORT);
	} else if (episode != now) {
		dropped(step, UNISONO_DROPPED_EPISODE);
	} else {
		step->outcome = UNISONO_PASSED;
		step->ports = port == above || above == UNISONO_NOWHERE ? below
									: 1U << (above & (UNISONO_PORTS - 1));
	}
}

static __always_inline int synchronize(struct __sk_buff *skb, __u32 here, __u32 port)
{
	struct unisono_frame *frame = (void *)(long)skb->data + ETHERNET;
	struct unisono_register *reg;
	struct step step = {};
	__u32 slot, group, attempt;
	__u64 setup, state;
	__u16 message, episode;

	if ((void *)(frame + 1) > (void *)(long)skb->data_end)
		return drop(UNISONO_DROPPED_UNKNOWN);
	message = bpf_ntohs(frame->message);
	episode = bpf_ntohs(frame->episode);
	group = message >> 6 & 0xff;
	slot = here * UNISONO_GROUPS + group;
	reg = bpf_map_lookup_elem(&registers, &slot);
	if (!reg)
		return drop(UNISONO_DROPPED_UNKNOWN);
	setup = *(volatile __u64 *)&reg->setup;
	if (!(setup & UNISONO_IN_USE))
		return drop(UNISONO_DROPPED_UNKNOWN);

	for (attempt = 0; attempt < TRIES; attempt++) {
		state = *(volatile __u64 *)&reg->state;
		step.next = state;
		step.ports = 0;
		step.kind = message >> 14;
		step.data = message & 63;
		step.outcome = NOTHING;
		step.verdict = TC_ACT_SHOT;
		if (step.kind == UNISONO_REDUCTION)
			reduction(&step, setup, state, port, episode);
		else if (step.kind == UNISONO_DISTRIBUTION)
			distribution(&step, setup, state, port, episode);
		else if (step.kind == UNISONO_FAILURE)
			failure(&step, setup, state, port, episode);
		else
			dropped(&step, UNISONO_DROPPED_KIND);
		if (step.next == state)
			goto decided;
		/* a full barrier: the frame is sent below, after the register has changed */
		if (__sync_val_compare_and_swap(&reg->state, state, step.next) == state)
			goto decided;
	}
	return drop(UNISONO_DROPPED_CONTENDED);

decided:
	if (step.outcome != NOTHING)
		count(step.outcome);
	if (!step.ports)
		return step.verdict;
	frame->message = bpf_htons(step.kind << 14 | group << 6 | step.data);
	return send_to_all(skb, step.ports);
}

static __always_inline int towards_switch(struct __sk_buff *skb, __u32 here, __u32 target, __u32 switches)
{
	__u32 way = here * switches + target;
	__u32 *port;

	if (target >= switches)
		return drop(UNISONO_DROPPED_UNKNOWN);
	port = bpf_map_lookup_elem(&routes, &way);
	if (!port || *port >= UNISONO_PORTS)
		return drop(UNISONO_DROPPED_UNKNOWN);
	return send_to(skb, *port);
}

static __always_inline int towards_node(struct __sk_buff *skb, __u32 here, __u32 node, __u32 switches)
{
	struct unisono_place *place = bpf_map_lookup_elem(&places, &node);

	if (!place)
		return drop(UNISONO_DROPPED_UNKNOWN);
	if (place->switch_id == here)
		return send_to(skb, place->port & (UNISONO_PORTS - 1));
	return towards_switch(skb, here, place->switch_id, switches);
}

/* Handles a request for a register here, a request for another switch, or an answer on its way back. */
static __always_inline int request(struct __sk_buff *skb, __u32 here, __u32 switches)
{
	struct unisono_request *asked = (void *)(long)skb->data + ETHERNET;
	struct unisono_register *reg;
	__u32 slot, target;
	__u64 setup, before;
	__u8 answer;

	if ((void *)(asked + 1) > (void *)(long)skb->data_end)
		return drop(UNISONO_DROPPED_UNKNOWN);
	target = bpf_ntohl(asked->target);
	if (asked->kind == UNISONO_DONE || asked->kind == UNISONO_REFUSED)
		return towards_node(skb, here, target, switches);
	if (target != here)
		return towards_switch(skb, here, target, switches);
	slot = here * UNISONO_GROUPS + asked->group;
	reg = bpf_map_lookup_elem(&registers, &slot);
	if (!reg || asked->kind > UNISONO_RETURN)
		return drop(UNISONO_DROPPED_UNKNOWN);
	setup = 0;
	if (asked->kind != UNISONO_RELEASE)
		setup = UNISONO_IN_USE | (__u64)(asked->operation & 0x7f) << UNISONO_OPERATION_SHIFT |
			(__u64)asked->above << UNISONO_ABOVE_SHIFT |
			(__u64)bpf_ntohs(asked->episode) << UNISONO_FIRST_SHIFT | bpf_ntohl(asked->below);
	answer = UNISONO_DONE;
	if (asked->kind == UNISONO_CLAIM) {
		before = __sync_val_compare_and_swap(&reg->setup, 0, UNISONO_CLAIMING);
		if (before == UNISONO_CLAIMING)
			return drop(UNISONO_DROPPED_CONTENDED); /* the node asks again */
		if (before == 0) {
			reg->state = gathering(bpf_ntohs(asked->episode), asked->operation, 0);
			__sync_lock_test_and_set(&reg->setup, setup);
		} else if (before != setup) {
			answer = UNISONO_REFUSED;
		}
	} else if (asked->kind == UNISONO_RETURN) {
		__sync_val_compare_and_swap(&reg->setup, setup, 0);
	} else if (reg->setup != setup) {
		/* otherwise repeated because the answer was lost: the register may be in use already */
		__sync_lock_test_and_set(&reg->setup, 0);
		reg->state = gathering(bpf_ntohs(asked->episode), asked->operation, 0);
		__sync_lock_test_and_set(&reg->setup, setup);
	}
	asked->kind = answer;
	asked->target = asked->origin;
	return towards_node(skb, here, bpf_ntohl(asked->origin), switches);
}

/* Routes other messages between nodes. Addresses are 10.0.0.0 plus the node's number from 1. */
static __always_inline int packet(struct __sk_buff *skb, __u32 here, __u32 switches)
{
	__u32 *target = (void *)(long)skb->data + IPV4_TARGET;

	if ((void *)(target + 1) > (void *)(long)skb->data_end)
		return drop(UNISONO_FOREIGN);
	return towards_node(skb, here, (bpf_ntohl(*target) & 0xffffff) - 1, switches);
}

SEC("tc")
int unisono_switch(struct __sk_buff *skb)
{
	__u32 place = skb->ifindex - UNISONO_FIRST_DEVICE;
	__u32 here = place >> UNISONO_PORT_BITS, port = place & (UNISONO_PORTS - 1);
	__u32 only = 0;
	struct unisono_settings *set = bpf_map_lookup_elem(&settings, &only);

	if (!set)
		return TC_ACT_SHOT;
	if (skb->protocol == bpf_htons(UNISONO_BARRIER)) {
		if (set->lose_every && bpf_get_prandom_u32() % set->lose_every == 0)
			return drop(UNISONO_INJECTED);
		if (skb->ifindex == set->cut)
			return drop(UNISONO_INJECTED);
		return synchronize(skb, here, port);
	}
	if (skb->protocol == bpf_htons(IPV4))
		return packet(skb, here, set->switches);
	if (skb->protocol == bpf_htons(UNISONO_REQUEST))
		return request(skb, here, set->switches);
	return drop(UNISONO_FOREIGN);
}

char _license[] SEC("license") = "Dual MIT/GPL";
