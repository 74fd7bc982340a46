! `use mpi_f08`: typed handles, optional error arguments, allocated windows through C pointers.
program fortran_2008
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
  integer, parameter :: n = 50
  integer :: rank, size, right, left, failures, all, i, unit, code
  type(MPI_Win) :: win
  type(MPI_Group) :: world, before, after
  type(MPI_Request) :: request
  type(MPI_Datatype) :: every_second
  type(MPI_Comm) :: host
  type(c_ptr) :: base
  integer(c_int), pointer, asynchronous :: memory(:)
  integer(c_int), asynchronous :: origin(n), got(n), fetched(1), one(1), compare(1)
  integer(MPI_ADDRESS_KIND) :: bytes, place, value
  logical :: flag

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  right = mod(rank + 1, size)
  left = mod(rank + size - 1, size)
  failures = 0
  bytes = 4 * n
  place = 0
  call MPI_Win_allocate(bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, base, win)
  call c_f_pointer(base, memory, [n])
  memory = 0
  origin = [(1000 * rank + i, i = 1, n)]
  call MPI_Win_fence(MPI_MODE_NOPRECEDE, win)
  call MPI_Put(origin, n, MPI_INTEGER, right, place, n, MPI_INTEGER, win)
  call MPI_Win_fence(0, win)
  call check(memory(1) == 1000 * left + 1 .and. memory(n) == 1000 * left + n, 1)

  ! a strided target
  call MPI_Type_vector(n / 2, 1, 2, MPI_INTEGER, every_second)
  call MPI_Type_commit(every_second)
  origin = -5
  call MPI_Win_fence(0, win)
  call MPI_Put(origin, n / 2, MPI_INTEGER, right, place, 1, every_second, win)
  call MPI_Win_fence(MPI_MODE_NOSUCCEED, win)
  call check(memory(1) == -5 .and. memory(2) == 1000 * left + 2 .and. memory(3) == -5, 2)
  call MPI_Type_free(every_second)

  call MPI_Comm_group(MPI_COMM_WORLD, world)
  call MPI_Group_incl(world, 1, [left], before)
  call MPI_Group_incl(world, 1, [right], after)
  memory(1) = rank
  call MPI_Win_post(before, 0, win)
  call MPI_Win_start(after, 0, win)
  call MPI_Get(got, 1, MPI_INTEGER, right, place, 1, MPI_INTEGER, win)
  call MPI_Win_complete(win)
  call MPI_Win_wait(win)
  call check(got(1) == right, 3)
  call MPI_Group_free(before)
  call MPI_Group_free(after)
  call MPI_Group_free(world)

  memory(1) = 0
  memory(2) = 0
  call MPI_Barrier(MPI_COMM_WORLD)
  call MPI_Win_lock_all(0, win)
  one = 1
  call MPI_Fetch_and_op(one, fetched, MPI_INTEGER, 0, place, MPI_SUM, win)
  call MPI_Win_flush(0, win)
  call check(fetched(1) >= 0 .and. fetched(1) < size, 4)
  compare = 0
  place = 1
  call MPI_Compare_and_swap(one, compare, fetched, MPI_INTEGER, right, place, win)
  call MPI_Win_flush_all(win)
  call check(fetched(1) == 0, 5)
  call MPI_Rget(got, 1, MPI_INTEGER, right, place, 1, MPI_INTEGER, win, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call check(got(1) == 1, 6)
  call MPI_Win_unlock_all(win)

  call MPI_Win_get_attr(win, MPI_WIN_SIZE, value, flag)
  call check(flag .and. value == bytes, 7)
  call MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN)
  call MPI_Win_unlock(right, win, code)
  call check(code /= MPI_SUCCESS, 8)
  call MPI_Win_free(win)
  call check(win == MPI_WIN_NULL, 9)

  call MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, host)
  call MPI_Win_allocate_shared(bytes, 4, MPI_INFO_NULL, host, base, win)
  call MPI_Win_shared_query(win, 0, value, unit, base)
  call check(value == bytes .and. unit == 4, 10)
  call MPI_Win_free(win)
  call MPI_Comm_free(host)

  call MPI_Allreduce(failures, all, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (rank == 0 .and. all == 0) print '(a)', 'ok fortran_2008'
  call MPI_Finalize()
  if (all /= 0) stop 1
contains
  subroutine check(condition, number)
    logical, intent(in) :: condition
    integer, intent(in) :: number
    if (.not. condition) then
      print '(a,i0,a,i0)', 'rank ', rank, ': fortran_2008 check ', number
      failures = failures + 1
    end if
  end subroutine
end program
