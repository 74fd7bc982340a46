/*
 * The collectives that collectives.c defines, and their nonblocking forms. That file includes this list once
 * for each type of counts: COUNT is that type, and PLACE the type of displacements.
 */
COLLECTIVE(Bcast, Ibcast, BCAST, (void *buffer, COUNT count, MPI_Datatype type, int root), buffer, count,
	   type, root)
COLLECTIVE(Gather, Igather, GATHER, (OUT, IN, int root), out, out_count, out_type, in, in_count, in_type,
	   root)
COLLECTIVE(Gatherv, Igatherv, GATHERV, (OUT, IN_BY_RANK, int root), out, out_count, out_type, in, in_counts,
	   in_places, in_type, root)
COLLECTIVE(Scatter, Iscatter, SCATTER, (OUT, IN, int root), out, out_count, out_type, in, in_count, in_type,
	   root)
COLLECTIVE(Scatterv, Iscatterv, SCATTERV, (OUT_BY_RANK, IN, int root), out, out_counts, out_places, out_type,
	   in, in_count, in_type, root)

COLLECTIVE(Allgather, Iallgather, ALLGATHER, (OUT, IN), out, out_count, out_type, in, in_count, in_type)
COLLECTIVE(Allgatherv, Iallgatherv, ALLGATHERV, (OUT, IN_BY_RANK), out, out_count, out_type, in, in_counts,
	   in_places, in_type)
COLLECTIVE(Alltoall, Ialltoall, ALLTOALL, (OUT, IN), out, out_count, out_type, in, in_count, in_type)
COLLECTIVE(Alltoallv, Ialltoallv, ALLTOALLV, (OUT_BY_RANK, IN_BY_RANK), out, out_counts, out_places, out_type,
	   in, in_counts, in_places, in_type)
COLLECTIVE(Alltoallw, Ialltoallw, ALLTOALLW, (ALL_BY_RANK(PLACE)), out, out_counts, out_places, out_types, in,
	   in_counts, in_places, in_types)
COLLECTIVE(Neighbor_allgather, Ineighbor_allgather, NEIGHBOR_ALLGATHER, (OUT, IN), out, out_count, out_type,
	   in, in_count, in_type)
COLLECTIVE(Neighbor_allgatherv, Ineighbor_allgatherv, NEIGHBOR_ALLGATHERV, (OUT, IN_BY_RANK), out, out_count,
	   out_type, in, in_counts, in_places, in_type)
COLLECTIVE(Neighbor_alltoall, Ineighbor_alltoall, NEIGHBOR_ALLTOALL, (OUT, IN), out, out_count, out_type, in,
	   in_count, in_type)
COLLECTIVE(Neighbor_alltoallv, Ineighbor_alltoallv, NEIGHBOR_ALLTOALLV, (OUT_BY_RANK, IN_BY_RANK), out,
	   out_counts, out_places, out_type, in, in_counts, in_places, in_type)
COLLECTIVE(Neighbor_alltoallw, Ineighbor_alltoallw, NEIGHBOR_ALLTOALLW, (ALL_BY_RANK(MPI_Aint)), out,
	   out_counts, out_places, out_types, in, in_counts, in_places, in_types)

REDUCTION(Reduce, Ireduce, REDUCE, (COUNTED(COUNT), int root), in, out, count, type, op, root)
REDUCTION(Scan, Iscan, SCAN, (COUNTED(COUNT)), in, out, count, type, op)
REDUCTION(Exscan, Iexscan, EXSCAN, (COUNTED(COUNT)), in, out, count, type, op)
REDUCTION(Reduce_scatter_block, Ireduce_scatter_block, REDUCE_SCATTER_BLOCK, (COUNTED(COUNT)), in, out, count,
	  type, op)
REDUCTION(Reduce_scatter, Ireduce_scatter, REDUCE_SCATTER,
	  (const void *in, void *out, const COUNT counts[], MPI_Datatype type, MPI_Op op), in, out, counts,
	  type, op)
