/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * repeat(i, n): a loop over `i` from 0 to n - 1 that uses the kernel's iterator. The verifier checks each
 * body once and not once per iteration. A file that includes this one defines u32, u64 and bool.
 */
#ifndef UNISONO_REPEAT_H
#define UNISONO_REPEAT_H

struct bpf_iter_num;
extern int bpf_iter_num_new(struct bpf_iter_num *iterator, int start, int end);
extern int *bpf_iter_num_next(struct bpf_iter_num *iterator);
extern void bpf_iter_num_destroy(struct bpf_iter_num *iterator);

struct iterator {
	u64 opaque;
} __attribute__((aligned(8)));

static __always_inline void stop(struct iterator *iterator)
{
	bpf_iter_num_destroy((void *)iterator);
}

static __always_inline void *begin(struct iterator *iterator, int end)
{
	bpf_iter_num_new((void *)iterator, 0, end);
	return 0;
}

static __always_inline bool more(struct iterator *iterator, u32 *at)
{
	int *next = bpf_iter_num_next((void *)iterator);

	if (!next)
		return false;
	*at = *next;
	return true;
}

#define repeat(i, n)                                                                                         \
	for (struct iterator iterator __attribute__((cleanup(stop))), *unused = begin(&iterator, n);         \
	     !unused && more(&iterator, &(i));)

#endif
