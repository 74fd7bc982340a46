/* Checks of the programs that test unisono.h: each ends the program with the line that failed. */
#ifndef CHECK_H
#define CHECK_H

#include "unisono.h"

#include <stdio.h>
#include <stdlib.h>

#define DO(call)                                                                                             \
	do {                                                                                                 \
		unisono_status status_ = (call);                                                             \
		if (status_ != UNISONO_STATUS_OK) {                                                          \
			fprintf(stderr, "line %d: %s: %s (%s)\n", __LINE__, #call, unisono_error_text(),     \
				unisono_status_name(status_));                                               \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

#define CHECK(fact)                                                                                          \
	do {                                                                                                 \
		if (!(fact)) {                                                                               \
			fprintf(stderr, "line %d: not so: %s\n", __LINE__, #fact);                           \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

#endif
