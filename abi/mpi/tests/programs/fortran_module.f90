! `use mpi`: windows, all synchronizations, attributes and error handlers with Fortran callbacks.
module callbacks
  use mpi
  implicit none
  integer :: deleted = 0, called = 0
contains
  subroutine on_delete(win, keyval, attribute, extra, ierror)
    integer :: win, keyval, ierror
    integer(MPI_ADDRESS_KIND) :: attribute, extra
    deleted = deleted + int(attribute + extra)
    ierror = MPI_SUCCESS
  end subroutine
  subroutine on_error(win, code)
    integer :: win, code, class, ierror
    call MPI_Error_class(code, class, ierror)
    if (class == MPI_ERR_RANK) called = called + 1
  end subroutine
end module

program fortran_module
  use mpi
  use callbacks
  implicit none
  integer, parameter :: n = 100
  integer :: rank, size, win, ierror, failures, all, i, right, left, keyval, handler, length
  integer :: world, before, after, request, code
  integer, asynchronous :: memory(n), origin(n), got(n)
  double precision, asynchronous :: total, mine
  integer(MPI_ADDRESS_KIND) :: bytes, value, place, extra
  logical :: flag
  character(len=MPI_MAX_OBJECT_NAME) :: name

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierror)
  right = mod(rank + 1, size)
  left = mod(rank + size - 1, size)
  failures = 0
  bytes = 4 * n
  call MPI_Win_create(memory, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierror)
  call check(win /= MPI_WIN_NULL, 1)
  origin = (/ (1000 * rank + i, i = 1, n) /)
  memory = -1
  place = 0
  call MPI_Win_fence(MPI_MODE_NOPRECEDE, win, ierror)
  call MPI_Put(origin, n, MPI_INTEGER, right, place, n, MPI_INTEGER, win, ierror)
  call MPI_Win_fence(MPI_MODE_NOSUCCEED, win, ierror)
  call check(all_equal(memory, left), 2)

  call MPI_Comm_group(MPI_COMM_WORLD, world, ierror)
  call MPI_Group_incl(world, 1, (/ left /), before, ierror)
  call MPI_Group_incl(world, 1, (/ right /), after, ierror)
  call MPI_Win_post(before, 0, win, ierror)
  call MPI_Win_start(after, 0, win, ierror)
  call MPI_Get(got, n, MPI_INTEGER, right, place, n, MPI_INTEGER, win, ierror)
  call MPI_Win_complete(win, ierror)
  call MPI_Win_wait(win, ierror)
  call check(all_equal(got, rank), 3)
  call MPI_Group_free(before, ierror)
  call MPI_Group_free(after, ierror)
  call MPI_Group_free(world, ierror)

  call MPI_Barrier(MPI_COMM_WORLD, ierror)
  call MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, win, ierror)
  call MPI_Rget(got, n, MPI_INTEGER, right, place, n, MPI_INTEGER, win, request, ierror)
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
  call check(all_equal(got, rank), 4)
  call MPI_Win_unlock(right, win, ierror)
  call MPI_Barrier(MPI_COMM_WORLD, ierror)

  call MPI_Win_set_name(win, 'fortran', ierror)
  call MPI_Win_get_name(win, name, length, ierror)
  call check(name == 'fortran' .and. length == 7, 5)
  call MPI_Win_get_attr(win, MPI_WIN_SIZE, value, flag, ierror)
  call check(flag .and. value == bytes, 6)
  call MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, value, flag, ierror)
  call check(flag .and. value == 4, 7)
  extra = 30
  call MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, on_delete, keyval, extra, ierror)
  value = 4
  call MPI_Win_set_attr(win, keyval, value, ierror)
  value = 0
  call MPI_Win_get_attr(win, keyval, value, flag, ierror)
  call check(flag .and. value == 4, 8)
  call MPI_Win_delete_attr(win, keyval, ierror)
  call check(deleted == 34, 9)
  call MPI_Win_get_attr(win, keyval, value, flag, ierror)
  call check(.not. flag, 10)
  call MPI_Win_free_keyval(keyval, ierror)
  call MPI_Win_create_errhandler(on_error, handler, ierror)
  call MPI_Win_set_errhandler(win, handler, ierror)
  call MPI_Errhandler_free(handler, ierror)
  call MPI_Win_lock(MPI_LOCK_SHARED, size + 3, 0, win, code)
  call check(code /= MPI_SUCCESS .and. called == 1, 11)
  call MPI_Win_free(win, ierror)
  call check(win == MPI_WIN_NULL, 12)

  ! a sum at rank 0, from everybody
  total = 0
  bytes = 8
  call MPI_Win_create(total, bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierror)
  mine = rank + 1
  call MPI_Win_fence(0, win, ierror)
  call MPI_Accumulate(mine, 1, MPI_DOUBLE_PRECISION, 0, place, 1, MPI_DOUBLE_PRECISION, MPI_SUM, win, ierror)
  call MPI_Win_fence(0, win, ierror)
  if (rank == 0) call check(nint(total) == size * (size + 1) / 2, 13)
  call MPI_Win_free(win, ierror)

  call MPI_Allreduce(failures, all, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
  if (rank == 0 .and. all == 0) print '(a)', 'ok fortran_module'
  call MPI_Finalize(ierror)
  if (all /= 0) stop 1
contains
  logical function all_equal(array, who)
    integer, intent(in) :: array(n), who
    integer :: j
    all_equal = .true.
    do j = 1, n
      if (array(j) /= 1000 * who + j) all_equal = .false.
    end do
  end function
  subroutine check(condition, number)
    logical, intent(in) :: condition
    integer, intent(in) :: number
    if (.not. condition) then
      print '(a,i0,a,i0)', 'rank ', rank, ': fortran_module check ', number
      failures = failures + 1
    end if
  end subroutine
end program
