/*
 * Calls that wait for a message or a request. The shim polls the host MPI: MPI_Testany for MPI_Waitany,
 * MPI_Iprobe for MPI_Probe. MPI_Waitall is in waitall.c. For MPI_Recv the shim polls MPI_Iprobe. When the
 * message is there, the shim calls MPI_Recv, or MPI_Irecv for a long message that fits into the buffer. An
 * error goes to the same handler with the same code as in the host's call. (MPI_Irecv with MPI_Test for every
 * message would not do: the host reports errors of requests to another handler than errors of MPI_Recv.)
 */
#include "requests.h"
#include "waiting.h"

#define WAIT_CALL(name) UNISONO_MPI_WAIT_CALL_##name

static int done_on_error(struct completion *completion)
{
	if (UNLIKELY(completion->code))
		completion->done = 1;
	return completion->done;
}

struct probe {
	struct completion completion;
	int source, tag;
	MPI_Comm comm;
	MPI_Message *message;
	MPI_Status *status;
};

static int probe_once(struct probe *probe)
{
	int *found = &probe->completion.done;

	return probe->message ? PMPI_Improbe(probe->source, probe->tag, probe->comm, found, probe->message,
					     probe->status)
			      : PMPI_Iprobe(probe->source, probe->tag, probe->comm, found, probe->status);
}

/* Probes twice, because an MPI may check first and make progress afterwards (MPICH 4.0 does). With one
 * probe, a rank that was woken would go back to sleep although its message is there. */
static int poll_probe(void *context)
{
	struct probe *probe = context;
	struct completion *completion = &probe->completion;

	completion->code = probe_once(probe);
	if (!completion->code && !completion->done)
		completion->code = probe_once(probe);
	return done_on_error(completion);
}

BOTH(int, Probe, (int source, int tag, MPI_Comm comm, MPI_Status *status))
{
	struct probe probe = { .source = source, .tag = tag, .comm = comm, .status = status };

	if (!serves_wait())
		return PMPI_Probe(source, tag, comm, status);
	UNLESS_SAMPLED(PROBE, PMPI_Probe(source, tag, comm, status));
	return await(WAIT_CALL(PROBE), UNISONO_MPI_WAIT_KIND_DIRECTED, poll_probe, &probe.completion);
}

BOTH(int, Mprobe, (int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status))
{
	struct probe probe = {
		.source = source, .tag = tag, .comm = comm, .message = message, .status = status
	};

	if (!serves_wait())
		return PMPI_Mprobe(source, tag, comm, message, status);
	UNLESS_SAMPLED(PROBE, PMPI_Mprobe(source, tag, comm, message, status));
	return await(WAIT_CALL(PROBE), UNISONO_MPI_WAIT_KIND_DIRECTED, poll_probe, &probe.completion);
}

/* Messages up to this many bytes arrive together with their header: MPI_Recv then only copies them. */
enum { EAGER_BYTES = 1024 };

/* A message to receive and, for MPI_Sendrecv, one to send. */
struct exchange {
	struct completion completion;
	void *buffer;
	int count, source, tag;
	MPI_Datatype type;
	MPI_Comm comm;
	MPI_Status *status;
	MPI_Request send, receive;
	bool received;
	int received_code;
};

/*
 * Receives a message that has arrived, by a nonblocking call if it is long. If it is longer than the buffer,
 * MPI_Recv reports the error.
 */
static int receive_matched(struct exchange *exchange, const MPI_Status *found)
{
	MPI_Count bytes = 0;
	int size = 0;

	if (PMPI_Get_elements_x(found, MPI_BYTE, &bytes) || bytes == MPI_UNDEFINED)
		bytes = 0;
	if (bytes > EAGER_BYTES && !PMPI_Type_size(exchange->type, &size) && size != MPI_UNDEFINED &&
	    bytes <= (MPI_Count)exchange->count * size)
		return PMPI_Irecv(exchange->buffer, exchange->count, exchange->type, exchange->source,
				  exchange->tag, exchange->comm, &exchange->receive);
	exchange->received = true;
	return PMPI_Recv(exchange->buffer, exchange->count, exchange->type, exchange->source, exchange->tag,
			 exchange->comm, exchange->status);
}

static int poll_receive(struct exchange *exchange)
{
	MPI_Status found;
	int there = 0, code;

	if (exchange->receive != MPI_REQUEST_NULL) {
		code = PMPI_Test(&exchange->receive, &there, exchange->status);
		exchange->received = there;
		return code;
	}
	code = PMPI_Iprobe(exchange->source, exchange->tag, exchange->comm, &there, &found);
	if (!code && !there) /* twice, as in poll_probe() */
		code = PMPI_Iprobe(exchange->source, exchange->tag, exchange->comm, &there, &found);
	return code || !there ? code : receive_matched(exchange, &found);
}

static int poll_exchange(void *context)
{
	struct exchange *exchange = context;
	int sent = 1;

	if (exchange->send != MPI_REQUEST_NULL)
		exchange->completion.code = PMPI_Test(&exchange->send, &sent, MPI_STATUS_IGNORE);
	if (!exchange->received) {
		exchange->received_code = poll_receive(exchange);
		exchange->received = exchange->received || exchange->received_code;
	}
	exchange->completion.done = exchange->received && (sent || exchange->completion.code);
	if (exchange->completion.done && exchange->received_code)
		exchange->completion.code = exchange->received_code;
	return exchange->completion.done;
}

#define RECEIVE_ARGUMENTS                                                                                    \
	(void *buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status)

static __attribute__((noinline)) int receive_ours RECEIVE_ARGUMENTS
{
	struct exchange exchange = { .buffer = buffer,
				     .count = count,
				     .source = source,
				     .tag = tag,
				     .type = type,
				     .comm = comm,
				     .status = status,
				     .send = MPI_REQUEST_NULL,
				     .receive = MPI_REQUEST_NULL };
	int code;

	UNLESS_SAMPLED(RECV, PMPI_Recv(buffer, count, type, source, tag, comm, status));
	code = await(WAIT_CALL(RECV), UNISONO_MPI_WAIT_KIND_DIRECTED, poll_exchange, &exchange.completion);
	/* the sender of a long message waits until it is received */
	ring(comm, source);
	return code;
}

BOTH(int, Recv, RECEIVE_ARGUMENTS)
{
	if (!serves_wait() || UNLIKELY(count < 0 || type == MPI_DATATYPE_NULL))
		return PMPI_Recv(buffer, count, type, source, tag, comm, status);
	return receive_ours(buffer, count, type, source, tag, comm, status);
}

BOTH(int, Sendrecv,
     (const void *out, int out_count, MPI_Datatype out_type, int destination, int out_tag, void *in,
      int in_count, MPI_Datatype in_type, int source, int in_tag, MPI_Comm comm, MPI_Status *status))
{
	struct exchange exchange = { .buffer = in,
				     .count = in_count,
				     .source = source,
				     .tag = in_tag,
				     .type = in_type,
				     .comm = comm,
				     .status = status,
				     .receive = MPI_REQUEST_NULL };
	int code;

	if (!serves_wait() || UNLIKELY(in_count < 0 || in_type == MPI_DATATYPE_NULL)) {
		code = PMPI_Sendrecv(out, out_count, out_type, destination, out_tag, in, in_count, in_type,
				     source, in_tag, comm, status);
		ring(comm, destination);
		return code;
	}
	UNLESS_SAMPLED(SENDRECV, PMPI_Sendrecv(out, out_count, out_type, destination, out_tag, in, in_count,
					       in_type, source, in_tag, comm, status));
	code = PMPI_Isend(out, out_count, out_type, destination, out_tag, comm, &exchange.send);
	if (UNLIKELY(code))
		return code;
	ring(comm, destination);
	code = await(WAIT_CALL(SENDRECV), UNISONO_MPI_WAIT_KIND_UNDIRECTED, poll_exchange,
		     &exchange.completion);
	ring(comm, source);
	return code;
}

struct one {
	struct completion completion;
	MPI_Request *request;
	MPI_Status *status;
};

static int poll_one(void *context)
{
	struct one *one = context;
	struct completion *completion = &one->completion;

	completion->code = PMPI_Test(one->request, &completion->done, one->status);
	return done_on_error(completion);
}

/* Waits for one request. Out of line, so that MPI_Wait is only a test and a jump if the wait is the
 * host's. */
static __attribute__((noinline)) int one_ours(MPI_Request *request, MPI_Status *status)
{
	struct one one = { .request = request, .status = status };

	UNLESS_SAMPLED(WAIT, PMPI_Wait(request, status));
	forget_file_request(*request);
	return await(WAIT_CALL(WAIT), kind_of_requests(), poll_one, &one.completion);
}

BOTH(int, Wait, (MPI_Request * request, MPI_Status *status))
{
	operations_complete(1, request);
	return operations_result(serves_wait() ? one_ours(request, status) : PMPI_Wait(request, status));
}

struct several {
	struct completion completion;
	int count, *index, *number;
	MPI_Request *requests;
	MPI_Status *statuses;
};

/* Polls until one of the requests is complete, and asks the windows' operations among them meanwhile. Returns
 * false at once if none of them is an operation that goes on. */
static bool polled_with_operations(struct several *several, unisono_mpi_question poll)
{
	if (!operations_advance(several->count, several->requests))
		return false;
	do {
		operations_pause();
		operations_advance(several->count, several->requests);
	} while (!poll(several));
	return true;
}

static int poll_any(void *context)
{
	struct several *any = context;
	struct completion *completion = &any->completion;

	completion->code =
		PMPI_Testany(any->count, any->requests, any->index, &completion->done, any->statuses);
	return done_on_error(completion);
}

BOTH(int, Waitany, (int count, MPI_Request requests[], int *index, MPI_Status *status))
{
	struct several any = { .count = count, .requests = requests, .index = index, .statuses = status };

	if (polled_with_operations(&any, poll_any))
		return operations_result(any.completion.code);
	if (!serves_wait())
		return operations_result(PMPI_Waitany(count, requests, index, status));
	UNLESS_SAMPLED(WAITANY, PMPI_Waitany(count, requests, index, status));
	return operations_result(await(WAIT_CALL(WAITANY), kind_of_requests(), poll_any, &any.completion));
}

/* MPI_Testsome returns MPI_UNDEFINED if no request is active, and 0 if none is complete. */
static int poll_some(void *context)
{
	struct several *some = context;
	struct completion *completion = &some->completion;

	completion->code =
		PMPI_Testsome(some->count, some->requests, some->number, some->index, some->statuses);
	completion->done = completion->code || *some->number;
	return completion->done;
}

BOTH(int, Waitsome, (int count, MPI_Request requests[], int *number, int indices[], MPI_Status statuses[]))
{
	struct several some = {
		.count = count, .requests = requests, .number = number, .index = indices, .statuses = statuses
	};

	if (polled_with_operations(&some, poll_some))
		return operations_result(some.completion.code);
	if (count == 0 || !serves_wait()) /* without requests there is nothing to poll */
		return operations_result(PMPI_Waitsome(count, requests, number, indices, statuses));
	UNLESS_SAMPLED(WAITSOME, PMPI_Waitsome(count, requests, number, indices, statuses));
	return operations_result(await(WAIT_CALL(WAITSOME), kind_of_requests(), poll_some, &some.completion));
}
