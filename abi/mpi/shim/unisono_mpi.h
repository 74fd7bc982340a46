/* The functions that the MPI shim needs beside unisono.h. Made by cbindgen from abi/c/src/mpi; do not edit. */


#ifndef UNISONO_MPI_H
#define UNISONO_MPI_H

#include "unisono.h"

// The size of an offer (bytes).
#define UNISONO_MPI_TREE_OFFER 2048

// The bytes of an offer: a port, a number of addresses, and the addresses.
#define UNISONO_MPI_WATCH_OFFER 64

// The calls that wait, as the table of `--stats` names them.
typedef enum unisono_mpi_wait_call {
        UNISONO_MPI_WAIT_CALL_RECV = 0,
        UNISONO_MPI_WAIT_CALL_SEND = 1,
        UNISONO_MPI_WAIT_CALL_SENDRECV = 2,
        UNISONO_MPI_WAIT_CALL_WAIT = 3,
        UNISONO_MPI_WAIT_CALL_WAITALL = 4,
        UNISONO_MPI_WAIT_CALL_WAITANY = 5,
        UNISONO_MPI_WAIT_CALL_WAITSOME = 6,
        UNISONO_MPI_WAIT_CALL_PROBE = 7,
        UNISONO_MPI_WAIT_CALL_BARRIER = 8,
        UNISONO_MPI_WAIT_CALL_BCAST = 9,
        UNISONO_MPI_WAIT_CALL_ALLREDUCE = 10,
        UNISONO_MPI_WAIT_CALL_ALLGATHER = 11,
        UNISONO_MPI_WAIT_CALL_ALLGATHERV = 12,
        UNISONO_MPI_WAIT_CALL_ALLTOALL = 13,
        UNISONO_MPI_WAIT_CALL_ALLTOALLV = 14,
        UNISONO_MPI_WAIT_CALL_ALLTOALLW = 15,
        UNISONO_MPI_WAIT_CALL_GATHER = 16,
        UNISONO_MPI_WAIT_CALL_GATHERV = 17,
        UNISONO_MPI_WAIT_CALL_SCATTER = 18,
        UNISONO_MPI_WAIT_CALL_SCATTERV = 19,
        UNISONO_MPI_WAIT_CALL_REDUCE = 20,
        UNISONO_MPI_WAIT_CALL_SCAN = 21,
        UNISONO_MPI_WAIT_CALL_EXSCAN = 22,
        UNISONO_MPI_WAIT_CALL_REDUCE_SCATTER = 23,
        UNISONO_MPI_WAIT_CALL_REDUCE_SCATTER_BLOCK = 24,
        UNISONO_MPI_WAIT_CALL_NEIGHBOR_ALLGATHER = 25,
        UNISONO_MPI_WAIT_CALL_NEIGHBOR_ALLGATHERV = 26,
        UNISONO_MPI_WAIT_CALL_NEIGHBOR_ALLTOALL = 27,
        UNISONO_MPI_WAIT_CALL_NEIGHBOR_ALLTOALLV = 28,
        UNISONO_MPI_WAIT_CALL_NEIGHBOR_ALLTOALLW = 29,
        // A call that the program did not make; it is in no table.
        UNISONO_MPI_WAIT_CALL_OWN = 30,
} unisono_mpi_wait_call;

// What completes a call.
typedef enum unisono_mpi_wait_kind {
        // A send to this rank; the sender rings.
        UNISONO_MPI_WAIT_KIND_DIRECTED = 0,
        // Any action of another rank.
        UNISONO_MPI_WAIT_KIND_UNDIRECTED = 1,
} unisono_mpi_wait_kind;

// Why a collective of crowded ranks was left to the host MPI.
typedef enum unisono_mpi_left_reason {
        // The order of sums is looked for after these calls.
        UNISONO_MPI_LEFT_REASON_FIRST_CALLS = 0,
        // The order of sums is not known.
        UNISONO_MPI_LEFT_REASON_ORDER = 1,
        // The type, the operation or the length.
        UNISONO_MPI_LEFT_REASON_OPERATION = 2,
        // Numbers whose result depends on the order of two operands.
        UNISONO_MPI_LEFT_REASON_NUMBERS = 3,
} unisono_mpi_left_reason;

// A constructor that makes a type from other types.
typedef enum unisono_mpi_combiner {
        // One integer: the count.
        UNISONO_MPI_COMBINER_CONTIGUOUS = 0,
        // Integers: count, length. Addresses: stride in bytes.
        UNISONO_MPI_COMBINER_VECTOR = 1,
        // Integers: the length of each block. Addresses: the displacement of each block in bytes. A single
        // child, or a child for each block.
        UNISONO_MPI_COMBINER_BLOCKS = 2,
        // Integers: dimensions, sizes, parts, starts, order (0 C, 1 Fortran).
        UNISONO_MPI_COMBINER_SUBARRAY = 3,
        // The child's data with another extent.
        UNISONO_MPI_COMBINER_RESIZED = 4,
} unisono_mpi_combiner;

// Serves the packets of other ranks to the windows of a job.
typedef struct unisono_mpi_server unisono_mpi_server;

// The tree of a communicator's hosts, as seen by the first rank of one of them.
typedef struct unisono_mpi_tree unisono_mpi_tree;

// A rank's part in the ring.
typedef struct unisono_mpi_watch unisono_mpi_watch;

// The host MPI's progress.
typedef void (*unisono_mpi_progress)(void);

// The host MPI's messages, for jobs of several hosts. Each function returns 0 or an MPI error code.
typedef struct unisono_mpi_messages {
        // The first argument of each function.
        void *context;
        // Begins to send a packet and stores the operation in `*pending`. The packet's memory stays valid until
        // `ended` reports that the operation has ended.
        int (*send)(void *context, int to, void *packet, size_t bytes, void **pending);
        // Sets `*done` to 1 and `*pending` to NULL if an operation of `send` or `take` has ended, else `*done`
        // to 0.
        int (*ended)(void *context, void **pending, int *done);
        // Matches a packet that has arrived. Stores its sender, its length, and in `*message` the message for
        // `take`. `*message` is NULL if none has arrived.
        int (*receive)(void *context, int *from, size_t *bytes, void **message);
        // Receives the packet that `receive` matched. Sets `*message` to NULL if the packet is there as a whole,
        // else to an operation; the packet's memory then stays valid until `ended` reports that it has ended.
        int (*take)(void *context, void **message, void *packet, size_t bytes);
} unisono_mpi_messages;

// A poll of the host MPI; returns 0 while the call is not complete.
typedef int (*unisono_mpi_question)(void *context);

// Returns a digest of the headers of which this library was made. A preload of other headers cannot use it.
uint64_t unisono_mpi_interface(void);

// Stores a random key of 16 bytes in `key`. The ranks of a job find each other by it.
unisono_status unisono_mpi_key(uint8_t *key);

// Makes a job of ranks that share this host's memory. A waiting call also calls `progress` from time to
// time. Collective.
unisono_status unisono_mpi_job_shared(int rank,
                                      int size,
                                      const uint8_t *key,
                                      unisono_mpi_progress progress,
                                      unisono_job **job);

// Makes a job whose ranks communicate by the host MPI's messages. `here` of them are on this host, and may
// use `processors` processors together. The callbacks stay valid as long as the job, which takes over
// `watch`; NULL for none. Collective.
unisono_status unisono_mpi_job_messages(int rank,
                                        int size,
                                        int here,
                                        int processors,
                                        const struct unisono_mpi_messages *callbacks,
                                        struct unisono_mpi_watch *watch,
                                        unisono_job **job);

// Stops the thread that serves other ranks while this rank makes no call. The host MPI may end afterwards.
void unisono_mpi_job_without_agent(unisono_job *job);

// Makes a server of the packets to windows of this job; NULL after an error.
struct unisono_mpi_server *unisono_mpi_server_new(unisono_job *job);

// Serves the packets that have arrived; returns 1 if there was one, else 0. Never waits. Any thread may call
// it.
int unisono_mpi_server_serve(const struct unisono_mpi_server *server);

// Frees a server; no other thread uses it.
void unisono_mpi_server_free(struct unisono_mpi_server *server);

// Sets how long calls on this window, and on the other windows of its job, wait before they return
// UNISONO_STATUS_AGAIN. Without this call they wait without limit.
void unisono_mpi_window_set_wait_limit(unisono_window *window, uint64_t nanoseconds);

// Returns 1 if operations on the window are loads and stores, or copies by the kernel; 0 if they are
// messages.
int unisono_mpi_window_is_direct(unisono_window *window);

// Waits until this rank has the lock of its passive epoch to a target. The program's own loads and stores in
// that rank's part may follow.
unisono_status unisono_mpi_window_hold(unisono_window *window,
                                       int target);

// Frees a request whose operation completes with its epoch, and sets `*request` to NULL.
void unisono_mpi_request_free(unisono_request **request);

// Succeeds if the window can be freed now: no epoch is open.
unisono_status unisono_mpi_window_freeable(unisono_window *window);

// Like unisono_window_free(); also enters the window into the statistics under this name.
unisono_status unisono_mpi_window_free(unisono_window **window, const char *name);

// Enters a window that is never freed into the statistics under this name.
void unisono_mpi_window_counted(unisono_window *window, const char *name);

// Makes the layout of a predefined type of `bytes` bytes. `element` is a value of unisono_element, or 0 for
// data without arithmetic. Every call that makes a layout returns NULL after an error.
unisono_layout *unisono_mpi_layout_named(int element,
                                         uint64_t bytes);

// Makes a layout from other layouts. `combiner` is a value of unisono_mpi_combiner and defines the meaning
// of the integers and addresses.
unisono_layout *unisono_mpi_layout_combine(int combiner,
                                           int64_t extent,
                                           const int64_t *integers,
                                           size_t integer_count,
                                           const int64_t *addresses,
                                           size_t address_count,
                                           const unisono_layout *const *children,
                                           size_t child_count);

// Makes a layout from the offset of each byte of the data, in order.
unisono_layout *unisono_mpi_layout_traced(const int64_t *offsets,
                                          size_t count,
                                          int64_t extent,
                                          int element);

// Returns the element type of all data in a layout; 0 if there is no single type.
int unisono_mpi_layout_element(const unisono_layout *layout);

// Returns the element type if the layout is exactly a single element; 0 otherwise.
int unisono_mpi_layout_single(const unisono_layout *layout);

// Makes this host's part in a tree of `hosts` hosts, and stores its offer for the others in `offer`
// (UNISONO_MPI_TREE_OFFER bytes). `network` is the path of a network's file, `options` the version and the
// options of `unisono mpi`, `rank` this rank in the communicator, `host` this host's position among the
// hosts, `key` the same 16 random bytes at all hosts. Waits for no other rank. NULL after an error.
struct unisono_mpi_tree *unisono_mpi_tree_new(const char *network,
                                              const char *options,
                                              int rank,
                                              int host,
                                              int hosts,
                                              const uint8_t *key,
                                              uint8_t *offer);

// Plans the tree from the offers of all hosts, in order, and connects to the neighbors in it. From then
// on each barrier call that waits calls `progress` from time to time. All hosts get the same error for wrong
// offers; a connection may fail at one host alone.
unisono_status unisono_mpi_tree_meet(struct unisono_mpi_tree *tree,
                                     const uint8_t *offers,
                                     size_t hosts,
                                     unisono_mpi_progress progress);

// Waits until the first ranks of all hosts have called this.
unisono_status unisono_mpi_tree_barrier(struct unisono_mpi_tree *tree);

// Copies a line for the user into `room` (`bytes` bytes, at least one) and returns 1, or returns 0 if there
// is none.
int unisono_mpi_tree_note(struct unisono_mpi_tree *tree,
                          char *room,
                          size_t bytes);

// Ends this host's part in an orderly way: all hosts have entered their last barrier. Waits for no host.
void unisono_mpi_tree_leave(struct unisono_mpi_tree *tree);

// Closes this host's connections: the other hosts' barriers fail from now on.
void unisono_mpi_tree_free(struct unisono_mpi_tree *tree);

// Joins the ranks of this host that share `memory`: 128 zeroed bytes for each rank and for two more lines,
// mapped for the life of the process. Waits for no other rank.
void unisono_mpi_crowd_join(void *memory,
                            size_t members,
                            size_t member,
                            int one_host);

// Returns 1 if all ranks of this host have joined, else 0.
int unisono_mpi_crowd_is_complete(void);

// Returns 1 if the ranks of this host that have joined outnumber the processors that they may use, else 0.
// Once all have joined, all ranks get the same answer, unless their quotas differ. Until the next call,
// waits of this process yield or sleep according to the answer.
int unisono_mpi_crowd_is_full(void);

// Returns the address of the number of napping ranks of this host, which changes at any time.
const uint32_t *unisono_mpi_crowd_napping(void);

// Returns the address of a word that is 0 until a rank of this host naps for the first time.
const uint32_t *unisono_mpi_crowd_napped(void);

// Waits until `question` returns a nonzero value. `passed` is the number of this thread's waits since its
// last call of this function that were complete at their first question. Returns 1 if the wait lasted longer
// than a wait does if each rank has a processor to itself, else 0.
int unisono_mpi_crowd_wait(enum unisono_mpi_wait_call call,
                           enum unisono_mpi_wait_kind kind,
                           uint32_t passed,
                           unisono_mpi_question question,
                           void *context);

// Wakes a napping rank of this host after a message was sent to it. A rank that is just falling asleep may
// miss the bell; it then wakes by itself after a tenth of a millisecond.
void unisono_mpi_crowd_ring(size_t member);

// Wakes the other napping ranks of this host, except ranks whose waits end with a message to them alone.
void unisono_mpi_crowd_ring_undirected(void);

// Wakes all napping ranks of this host.
void unisono_mpi_crowd_ring_all(void);

// Returns the current time, for unisono_mpi_crowd_timed() and unisono_mpi_crowd_sampled().
uint64_t unisono_mpi_crowd_now(void);

// Returns 1 if this wait should run as the host MPI's own, so that --stats can compare, else 0.
int unisono_mpi_crowd_samples(void);

// Records a wait that began at `begun` and was only timed.
void unisono_mpi_crowd_timed(enum unisono_mpi_wait_call call, uint64_t begun);

// Records a wait that began at `begun` and that was left to the host MPI although the ranks were crowded.
void unisono_mpi_crowd_left(enum unisono_mpi_wait_call call,
                            uint64_t begun,
                            enum unisono_mpi_left_reason why);

// Records a sample: a wait of the host MPI's own that began at `begun`.
void unisono_mpi_crowd_sampled(enum unisono_mpi_wait_call call, uint64_t begun);

// Makes this rank's part in the ring of a job, and stores its offer for the others in `offer`
// (UNISONO_MPI_WATCH_OFFER bytes). `key` has the same 16 random bytes at all ranks. Waits for no other rank.
// NULL after an error.
struct unisono_mpi_watch *unisono_mpi_watch_new(int rank,
                                                int size,
                                                const uint8_t *key,
                                                uint8_t *offer);

// Connects to the two neighbors. `offers` has the offers of all ranks, in order; without an offer of each
// rank no rank connects.
unisono_status unisono_mpi_watch_meet(struct unisono_mpi_watch *watch,
                                      const uint8_t *offers);

// Ends this rank's part; for its neighbors it is gone from now on.
void unisono_mpi_watch_free(struct unisono_mpi_watch *watch);

// Returns 1 if the user asked for the tables, else 0.
int unisono_mpi_statistics_wanted(void);

// Takes this process's entries out of the statistics and encodes them, with this rank's number, in `*bytes`
// bytes. The memory is never freed: MPI ends once in a process.
const uint8_t *unisono_mpi_statistics_take(int rank,
                                           size_t *bytes);

// Prints the sums of the entries of `ranks` ranks, which lie one after another in `all`. Writes them as JSON
// if the user asked for that.
void unisono_mpi_statistics_print(const uint8_t *all,
                                  const int *lengths,
                                  size_t ranks);

// Prints this process's windows, unless they were taken or the user did not ask for the table. `why` is the
// reason why they are printed alone.
void unisono_mpi_statistics_alone(int rank,
                                  const char *why);

#endif  /* UNISONO_MPI_H */
