/* What the MPI shim needs beside unisono.h. Made by cbindgen from abi/c/src/mpi; do not edit. */


#ifndef UNISONO_MPI_H
#define UNISONO_MPI_H

#include "unisono.h"

// How a type is made of others.
typedef enum unisono_mpi_combiner {
        // One integer: the count.
        UNISONO_MPI_COMBINER_CONTIGUOUS = 0,
        // Integers: count, length. Addresses: stride in bytes.
        UNISONO_MPI_COMBINER_VECTOR = 1,
        // Integers: the length of each. Addresses: the displacement of each in bytes. One child, or one each.
        UNISONO_MPI_COMBINER_BLOCKS = 2,
        // Integers: dimensions, sizes, parts, starts, order (0 C, 1 Fortran).
        UNISONO_MPI_COMBINER_SUBARRAY = 3,
        // The child as it is, with another extent.
        UNISONO_MPI_COMBINER_RESIZED = 4,
} unisono_mpi_combiner;

// The host MPI's messages, for jobs that leave the host. All answer 0 or an MPI error code.
typedef struct unisono_mpi_messages {
        // The first argument of each.
        void *context;
        // Begins to send a packet, which stays where it is until `sent` says so; `pending` is for that call.
        int (*send)(void *context, int to, void *packet, size_t bytes, void **pending);
        // Whether a packet was sent.
        int (*sent)(void *context, void **pending, int *done);
        // Matches a packet that has arrived: from whom, its length, and what to take it by; NULL where none has.
        int (*receive)(void *context, int *from, size_t *bytes, void **message);
        // Takes the packet that was matched.
        int (*take)(void *context, void **message, void *packet, size_t bytes);
} unisono_mpi_messages;

// Fills in a random key of 16 bytes, by which the members of a job find each other.
unisono_status unisono_mpi_key(uint8_t *key);

// A job of ranks that share this host's memory. `progress` is called now and then while a call waits.
// Collective.
unisono_status unisono_mpi_job_shared(int rank,
                                      int size,
                                      const uint8_t *key,
                                      void (*progress)(void),
                                      unisono_job **job);

// A job of ranks that the host MPI's messages reach; the callbacks stay valid as long as the job.
// Collective.
unisono_status unisono_mpi_job_messages(int rank,
                                        int size,
                                        const struct unisono_mpi_messages *callbacks,
                                        unisono_job **job);

// Stops the thread that serves other ranks while this one makes no call: from now on the host MPI may end.
void unisono_mpi_job_without_agent(unisono_job *job);

// How long calls at the windows of this one's job wait at most before they answer UNISONO_STATUS_AGAIN; at
// first for ever.
void unisono_mpi_window_patience(unisono_window *window,
                                 uint64_t nanoseconds);

// Whether the window can be freed now: no epoch is open.
unisono_status unisono_mpi_window_freeable(unisono_window *window);

// As unisono_window_free, and enters the window into the statistics under this name.
unisono_status unisono_mpi_window_free(unisono_window **window, const char *name);

// Enters a window that is never freed into the statistics under this name.
void unisono_mpi_window_counted(unisono_window *window, const char *name);

// A predefined type of so many bytes, one of unisono_element or 0 for data that only moves. NULL after an
// error, as in all calls that make a layout.
unisono_layout *unisono_mpi_layout_named(int element,
                                         uint64_t bytes);

// A type made of others; `combiner` is one of unisono_mpi_combiner, which says what the numbers are.
unisono_layout *unisono_mpi_layout_combine(int combiner,
                                           int64_t extent,
                                           const int64_t *integers,
                                           size_t integer_count,
                                           const int64_t *addresses,
                                           size_t address_count,
                                           const unisono_layout *const *children,
                                           size_t child_count);

// A type whose data lies at these offsets, one a byte, in the order of the data.
unisono_layout *unisono_mpi_layout_traced(const int64_t *offsets,
                                          size_t count,
                                          int64_t extent,
                                          int element);

// The element that all data is made of; 0 for none.
int unisono_mpi_layout_element(const unisono_layout *layout);

// The element, if the layout is one of them and nothing else; 0 otherwise.
int unisono_mpi_layout_single(const unisono_layout *layout);

// Whether a table is wanted (1) or not (0).
int unisono_mpi_statistics_wanted(void);

// This process's part of the table, `*bytes` long; from here on it is empty. The memory is never freed: MPI
// ends once in a process.
const uint8_t *unisono_mpi_statistics_take(size_t *bytes);

// Prints the sum of the parts of `ranks` ranks, which lie one after the other in `all`.
void unisono_mpi_statistics_print(const uint8_t *all, const int *lengths, size_t ranks);

// Prints this process's part, if a table is wanted and the part was not taken yet; `why` it is printed
// alone.
void unisono_mpi_statistics_alone(int rank,
                                  const char *why);

#endif  /* UNISONO_MPI_H */
