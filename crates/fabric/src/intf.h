/*
 * The interface between the switch program and user space: frames, map elements, numbers.
 *
 * layout.rs has the same definitions in Rust; a test compiles this file and compares the two.
 */
#ifndef UNISONO_INTF_H
#define UNISONO_INTF_H

/* Local experimental EtherTypes: barriers, and requests about registers. */
#define UNISONO_BARRIER 0x88b5
#define UNISONO_REQUEST 0x88b6

/*
 * The number of the device at port p of switch s is UNISONO_FIRST_DEVICE + s * UNISONO_PORTS + p, so that the
 * program knows where a frame came in and where to send it without a look-up.
 */
#define UNISONO_PORT_BITS 5
#define UNISONO_PORTS (1 << UNISONO_PORT_BITS)
#define UNISONO_FIRST_DEVICE UNISONO_PORTS
/* A message has 8 bits of group: a register for each group at each switch. */
#define UNISONO_GROUPS 256
#define UNISONO_NOWHERE 0xff

enum unisono_kind { UNISONO_REDUCTION, UNISONO_DISTRIBUTION, UNISONO_SETUP, UNISONO_FAILURE };
enum unisono_operation { UNISONO_OR, UNISONO_AND, UNISONO_MIN, UNISONO_MAX, UNISONO_SUM };
/*
 * A claim installs a register only where none is; a return releases it only if it still has the claimed
 * setup. Several owners can so share the registers of a switch. The answers: done, refused.
 */
enum unisono_request_kind {
	UNISONO_INSTALL,
	UNISONO_RELEASE,
	UNISONO_DONE,
	UNISONO_CLAIM,
	UNISONO_RETURN,
	UNISONO_REFUSED,
};

/* Follows the Ethernet header of a UNISONO_BARRIER frame; in network byte order. */
struct unisono_frame {
	__u16 message; /* kind 2, group 8, data 6 bits */
	__u16 episode;
};

/* Follows the Ethernet header of a UNISONO_REQUEST frame; in network byte order. */
struct unisono_request {
	__u8 kind;
	__u8 group;
	__u8 above; /* a port, or UNISONO_NOWHERE where messages turn around */
	__u8 operation;
	__u16 episode; /* the first episode */
	__u16 number;  /* repeated in the answer */
	__u32 below;   /* one bit for each port */
	__u32 target;  /* a switch; in the answer the node that sent the request */
	__u32 origin;  /* the node that sends the request */
};

/*
 * A barrier register: two words, each read and written whole.
 *
 *   setup  in use 1 | operation 7 | above 8 | first episode 16 | below 32
 *   state  arrived 32 | episode 16 | data 6 | last data 6 | there was a last episode 1 | 3 unused
 */
struct unisono_register {
	__u64 setup;
	__u64 state;
};

#define UNISONO_IN_USE (1ULL << 63)
/* A setup word without UNISONO_IN_USE: a claim is writing the register. */
#define UNISONO_CLAIMING 1ULL
#define UNISONO_OPERATION_SHIFT 56
#define UNISONO_ABOVE_SHIFT 48
#define UNISONO_FIRST_SHIFT 32
#define UNISONO_EPISODE_SHIFT 32
#define UNISONO_DATA_SHIFT 48
#define UNISONO_LAST_SHIFT 54
#define UNISONO_HAS_LAST (1ULL << 60)

/* The location of a node. */
struct unisono_place {
	__u32 switch_id;
	__u32 port;
};

/* Outcomes of frames, other than arrivals, completions and releases; indices of the map `counters`. */
enum unisono_outcome {
	UNISONO_AGAIN,
	UNISONO_RESENT,
	UNISONO_ANSWERED,
	UNISONO_PASSED,
	UNISONO_DROPPED_PORT,
	UNISONO_DROPPED_EPISODE,
	UNISONO_DROPPED_REPEATED,
	UNISONO_DROPPED_EARLY,
	UNISONO_DROPPED_KIND,
	UNISONO_DROPPED_UNKNOWN,   /* no such group here, or too short */
	UNISONO_DROPPED_CONTENDED, /* too many processors changed one register at once: as if lost */
	UNISONO_FOREIGN,
	UNISONO_INJECTED, /* lost on purpose */
	UNISONO_OUTCOMES,
};

/* The single element of the map `settings`. */
struct unisono_settings {
	__u32 switches;
	__u32 nodes;
	__u32 lose_every; /* lose each n-th barrier frame on purpose; 0: none */
	__u32 cut;	  /* lose every barrier frame that comes in at this device; 0: none */
};

#endif
