/*
 * Prototypes of the host MPI's functions that the shim calls, in the types of one ABI. Each mpi.h in the
 * folders beside this file includes it. When an MPI's own mpicc compiles the shim, that MPI's mpi.h declares
 * these functions instead.
 */
typedef int MPI_Comm_copy_attr_function(MPI_Comm, int, void *, void *, void *, int *);
typedef int MPI_Comm_delete_attr_function(MPI_Comm, int, void *, void *);
typedef int MPI_Type_copy_attr_function(MPI_Datatype, int, void *, void *, void *, int *);
typedef int MPI_Type_delete_attr_function(MPI_Datatype, int, void *, void *);
typedef int MPI_Win_copy_attr_function(MPI_Win, int, void *, void *, void *, int *);
typedef int MPI_Win_delete_attr_function(MPI_Win, int, void *, void *);
typedef void MPI_Win_errhandler_function(MPI_Win *, int *, ...);
typedef int MPI_Grequest_query_function(void *, MPI_Status *);
typedef int MPI_Grequest_free_function(void *);
typedef int MPI_Grequest_cancel_function(void *, int);

/* environment */
int PMPI_Initialized(int *);
int PMPI_Finalized(int *);
int PMPI_Get_version(int *, int *);
int PMPI_Query_thread(int *);
int PMPI_Get_library_version(char *, int *);
int PMPI_Add_error_class(int *);
int PMPI_Add_error_code(int, int *);
int PMPI_Add_error_string(int, const char *);
int PMPI_Error_class(int, int *);
int PMPI_Error_string(int, char *, int *);
int PMPI_Info_create(MPI_Info *);
int PMPI_Info_get(MPI_Info, const char *, int, char *, int *);
int PMPI_Info_set(MPI_Info, const char *, const char *);
MPI_Fint PMPI_Errhandler_c2f(MPI_Errhandler);

/* functions of the shim itself, which it also calls */
int MPI_Abort(MPI_Comm, int);
int MPI_Errhandler_free(MPI_Errhandler *);

/* communicators and groups */
int PMPI_Comm_call_errhandler(MPI_Comm, int);
int PMPI_Comm_create_group(MPI_Comm, MPI_Group, int, MPI_Comm *);
int PMPI_Comm_create_keyval(MPI_Comm_copy_attr_function *, MPI_Comm_delete_attr_function *, int *, void *);
int PMPI_Comm_dup(MPI_Comm, MPI_Comm *);
int PMPI_Comm_free(MPI_Comm *);
int PMPI_Comm_get_attr(MPI_Comm, int, void *, int *);
int PMPI_Comm_get_errhandler(MPI_Comm, MPI_Errhandler *);
int PMPI_Comm_group(MPI_Comm, MPI_Group *);
int PMPI_Comm_rank(MPI_Comm, int *);
int PMPI_Comm_remote_group(MPI_Comm, MPI_Group *);
int PMPI_Comm_remote_size(MPI_Comm, int *);
int PMPI_Comm_set_attr(MPI_Comm, int, void *);
int PMPI_Comm_size(MPI_Comm, int *);
int PMPI_Comm_split_type(MPI_Comm, int, int, MPI_Info, MPI_Comm *);
int PMPI_Comm_test_inter(MPI_Comm, int *);
int PMPI_Group_excl(MPI_Group, int, const int *, MPI_Group *);
int PMPI_Group_free(MPI_Group *);
int PMPI_Group_size(MPI_Group, int *);
int PMPI_Group_translate_ranks(MPI_Group, int, const int *, MPI_Group, int *);

/* messages and collectives */
int PMPI_Allgather(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);
int PMPI_Allgatherv(const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype,
		    MPI_Comm);
int PMPI_Allreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Alltoall(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);
int PMPI_Alltoallv(const void *, const int *, const int *, MPI_Datatype, void *, const int *, const int *,
		   MPI_Datatype, MPI_Comm);
int PMPI_Alltoallw(const void *, const int *, const int *, const MPI_Datatype *, void *, const int *,
		   const int *, const MPI_Datatype *, MPI_Comm);
int PMPI_Barrier(MPI_Comm);
int PMPI_Bcast(void *, int, MPI_Datatype, int, MPI_Comm);
int PMPI_Bsend(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int PMPI_Exscan(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Gather(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm);
int PMPI_Gatherv(const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, int,
		 MPI_Comm);
int PMPI_Get_count(const MPI_Status *, MPI_Datatype, int *);
int PMPI_Get_elements_x(const MPI_Status *, MPI_Datatype, MPI_Count *);
int PMPI_Grequest_complete(MPI_Request);
int PMPI_Grequest_start(MPI_Grequest_query_function *, MPI_Grequest_free_function *,
			MPI_Grequest_cancel_function *, void *, MPI_Request *);
int PMPI_Iallgather(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Iallgatherv(const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype,
		     MPI_Comm, MPI_Request *);
int PMPI_Iallreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int PMPI_Ialltoall(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Ialltoallv(const void *, const int *, const int *, MPI_Datatype, void *, const int *, const int *,
		    MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Ialltoallw(const void *, const int *, const int *, const MPI_Datatype *, void *, const int *,
		    const int *, const MPI_Datatype *, MPI_Comm, MPI_Request *);
int PMPI_Ibarrier(MPI_Comm, MPI_Request *);
int PMPI_Ibcast(void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *);
int PMPI_Ibsend(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Iexscan(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int PMPI_Igather(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *);
int PMPI_Igatherv(const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, int,
		  MPI_Comm, MPI_Request *);
int PMPI_Improbe(int, int, MPI_Comm, int *, MPI_Message *, MPI_Status *);
int PMPI_Imrecv(void *, int, MPI_Datatype, MPI_Message *, MPI_Request *);
int PMPI_Ineighbor_allgather(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm,
			     MPI_Request *);
int PMPI_Ineighbor_allgatherv(const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype,
			      MPI_Comm, MPI_Request *);
int PMPI_Ineighbor_alltoall(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm,
			    MPI_Request *);
int PMPI_Ineighbor_alltoallv(const void *, const int *, const int *, MPI_Datatype, void *, const int *,
			     const int *, MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Ineighbor_alltoallw(const void *, const int *, const MPI_Aint *, const MPI_Datatype *, void *,
			     const int *, const MPI_Aint *, const MPI_Datatype *, MPI_Comm, MPI_Request *);
int PMPI_Iprobe(int, int, MPI_Comm, int *, MPI_Status *);
int PMPI_Irecv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Ireduce(const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Request *);
int PMPI_Ireduce_scatter(const void *, void *, const int *, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int PMPI_Ireduce_scatter_block(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int PMPI_Irsend(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Iscan(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int PMPI_Iscatter(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *);
int PMPI_Iscatterv(const void *, const int *, const int *, MPI_Datatype, void *, int, MPI_Datatype, int,
		   MPI_Comm, MPI_Request *);
int PMPI_Isend(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Issend(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int PMPI_Mprobe(int, int, MPI_Comm, MPI_Message *, MPI_Status *);
int PMPI_Mrecv(void *, int, MPI_Datatype, MPI_Message *, MPI_Status *);
int PMPI_Neighbor_allgather(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);
int PMPI_Neighbor_allgatherv(const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype,
			     MPI_Comm);
int PMPI_Neighbor_alltoall(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);
int PMPI_Neighbor_alltoallv(const void *, const int *, const int *, MPI_Datatype, void *, const int *,
			    const int *, MPI_Datatype, MPI_Comm);
int PMPI_Neighbor_alltoallw(const void *, const int *, const MPI_Aint *, const MPI_Datatype *, void *,
			    const int *, const MPI_Aint *, const MPI_Datatype *, MPI_Comm);
int PMPI_Pack(const void *, int, MPI_Datatype, void *, int, int *, MPI_Comm);
int PMPI_Probe(int, int, MPI_Comm, MPI_Status *);
int PMPI_Recv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
int PMPI_Reduce(const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm);
int PMPI_Reduce_scatter(const void *, void *, const int *, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Reduce_scatter_block(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Request_free(MPI_Request *);
int PMPI_Request_get_status(MPI_Request, int *, MPI_Status *);
int PMPI_Rsend(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int PMPI_Scan(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Scatter(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm);
int PMPI_Scatterv(const void *, const int *, const int *, MPI_Datatype, void *, int, MPI_Datatype, int,
		  MPI_Comm);
int PMPI_Send(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int PMPI_Sendrecv(const void *, int, MPI_Datatype, int, int, void *, int, MPI_Datatype, int, int, MPI_Comm,
		  MPI_Status *);
int PMPI_Ssend(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int PMPI_Start(MPI_Request *);
int PMPI_Startall(int, MPI_Request *);
int PMPI_Status_set_cancelled(MPI_Status *, int);
int PMPI_Status_set_elements(MPI_Status *, MPI_Datatype, int);
int PMPI_Test(MPI_Request *, int *, MPI_Status *);
int PMPI_Testall(int, MPI_Request *, int *, MPI_Status *);
int PMPI_Testany(int, MPI_Request *, int *, int *, MPI_Status *);
int PMPI_Testsome(int, MPI_Request *, int *, int *, MPI_Status *);
int PMPI_Wait(MPI_Request *, MPI_Status *);
int PMPI_Waitall(int, MPI_Request *, MPI_Status *);
int PMPI_Waitany(int, MPI_Request *, int *, MPI_Status *);
int PMPI_Waitsome(int, MPI_Request *, int *, int *, MPI_Status *);

/* collectives with large counts, which an MPI older than MPI-4 lacks */
int PMPI_Allgather_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, MPI_Comm);
int PMPI_Allgatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *,
		      MPI_Datatype, MPI_Comm);
int PMPI_Allreduce_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Alltoall_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, MPI_Comm);
int PMPI_Alltoallv_c(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *,
		     const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm);
int PMPI_Alltoallw_c(const void *, const MPI_Count *, const MPI_Aint *, const MPI_Datatype *, void *,
		     const MPI_Count *, const MPI_Aint *, const MPI_Datatype *, MPI_Comm);
int PMPI_Bcast_c(void *, MPI_Count, MPI_Datatype, int, MPI_Comm);
int PMPI_Exscan_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Gather_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int, MPI_Comm);
int PMPI_Gatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *,
		   MPI_Datatype, int, MPI_Comm);
int PMPI_Neighbor_allgather_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype,
			      MPI_Comm);
int PMPI_Neighbor_allgatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *,
			       const MPI_Aint *, MPI_Datatype, MPI_Comm);
int PMPI_Neighbor_alltoall_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype,
			     MPI_Comm);
int PMPI_Neighbor_alltoallv_c(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *,
			      const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm);
int PMPI_Neighbor_alltoallw_c(const void *, const MPI_Count *, const MPI_Aint *, const MPI_Datatype *, void *,
			      const MPI_Count *, const MPI_Aint *, const MPI_Datatype *, MPI_Comm);
int PMPI_Reduce_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm);
int PMPI_Reduce_scatter_c(const void *, void *, const MPI_Count *, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Reduce_scatter_block_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Scan_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Scatter_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int, MPI_Comm);
int PMPI_Scatterv_c(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *, MPI_Count,
		    MPI_Datatype, int, MPI_Comm);
int PMPI_Iallgather_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, MPI_Comm,
		      MPI_Request *);
int PMPI_Iallgatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *,
		       MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Iallreduce_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int PMPI_Ialltoall_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, MPI_Comm,
		     MPI_Request *);
int PMPI_Ialltoallv_c(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *,
		      const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Ialltoallw_c(const void *, const MPI_Count *, const MPI_Aint *, const MPI_Datatype *, void *,
		      const MPI_Count *, const MPI_Aint *, const MPI_Datatype *, MPI_Comm, MPI_Request *);
int PMPI_Ibcast_c(void *, MPI_Count, MPI_Datatype, int, MPI_Comm, MPI_Request *);
int PMPI_Iexscan_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int PMPI_Igather_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int, MPI_Comm,
		   MPI_Request *);
int PMPI_Igatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *,
		    MPI_Datatype, int, MPI_Comm, MPI_Request *);
int PMPI_Ineighbor_allgather_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype,
			       MPI_Comm, MPI_Request *);
int PMPI_Ineighbor_allgatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *,
				const MPI_Aint *, MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Ineighbor_alltoall_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype,
			      MPI_Comm, MPI_Request *);
int PMPI_Ineighbor_alltoallv_c(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *,
			       const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Ineighbor_alltoallw_c(const void *, const MPI_Count *, const MPI_Aint *, const MPI_Datatype *,
			       void *, const MPI_Count *, const MPI_Aint *, const MPI_Datatype *, MPI_Comm,
			       MPI_Request *);
int PMPI_Ireduce_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Request *);
int PMPI_Ireduce_scatter_c(const void *, void *, const MPI_Count *, MPI_Datatype, MPI_Op, MPI_Comm,
			   MPI_Request *);
int PMPI_Ireduce_scatter_block_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm,
				 MPI_Request *);
int PMPI_Iscan_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int PMPI_Iscatter_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int, MPI_Comm,
		    MPI_Request *);
int PMPI_Iscatterv_c(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *, MPI_Count,
		     MPI_Datatype, int, MPI_Comm, MPI_Request *);

/* datatypes; an MPI older than MPI-4 lacks the functions with large counts */
int PMPI_Type_create_keyval(MPI_Type_copy_attr_function *, MPI_Type_delete_attr_function *, int *, void *);
int PMPI_Type_free(MPI_Datatype *);
int PMPI_Type_get_attr(MPI_Datatype, int, void *, int *);
int PMPI_Type_get_contents(MPI_Datatype, int, int, int, int *, MPI_Aint *, MPI_Datatype *);
int PMPI_Type_get_contents_c(MPI_Datatype, MPI_Count, MPI_Count, MPI_Count, MPI_Count, int *, MPI_Aint *,
			     MPI_Count *, MPI_Datatype *);
int PMPI_Type_get_envelope(MPI_Datatype, int *, int *, int *, int *);
int PMPI_Type_get_envelope_c(MPI_Datatype, MPI_Count *, MPI_Count *, MPI_Count *, MPI_Count *, int *);
int PMPI_Type_get_extent(MPI_Datatype, MPI_Aint *, MPI_Aint *);
int PMPI_Type_get_true_extent(MPI_Datatype, MPI_Aint *, MPI_Aint *);
int PMPI_Type_set_attr(MPI_Datatype, int, void *);
int PMPI_Type_size(MPI_Datatype, int *);
