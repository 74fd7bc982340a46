/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The OpenMP runtime of this program, and its wait policy.
 */
#ifndef UNISONO_OPENMP_H
#define UNISONO_OPENMP_H

#include "bench.h"
#include <omp.h>

#ifdef __clang__
#define RUNTIME "libomp"
#define COMPILER "clang"
#else
#define RUNTIME "libgomp"
#define COMPILER "gcc"
#endif

#define STRING_(x) #x
#define STRING(x) STRING_(x)
#define RUNTIME_VERSION COMPILER " " STRING(__GNUC_OR_CLANG__) ", OpenMP " STRING(_OPENMP)
#ifdef __clang__
#define __GNUC_OR_CLANG__ __clang_major__
#else
#define __GNUC_OR_CLANG__ __GNUC__
#endif

static const char *wait_policy(void)
{
	const char *policy = getenv("OMP_WAIT_POLICY");

	return policy ? policy : "default";
}

static const char *runtime_name(void)
{
	static char name[64];

	if (!strcmp(wait_policy(), "default"))
		return RUNTIME;
	snprintf(name, sizeof(name), "%s-%s", RUNTIME, wait_policy());
	return name;
}

/* Fewer threads than asked for would measure something else. */
static void check_team(const struct options *o)
{
	if (omp_get_num_threads() != o->threads) {
		fprintf(stderr, "the runtime gave %d of %d threads\n", omp_get_num_threads(), o->threads);
		exit(1);
	}
}

#endif
