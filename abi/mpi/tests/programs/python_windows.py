"""mpi4py: windows of every flavour through the bindings that its wheel brings (the _c forms where there are any)."""
import sys
from array import array
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
left, right = (rank - 1) % size, (rank + 1) % size
failures = 0


def check(condition, what):
    global failures
    if not condition:
        print(f"rank {rank}: {what}", flush=True)
        failures += 1


def ints(window):
    return memoryview(window.tomemory()).cast("B").cast("i")


window = MPI.Win.Allocate(16 * 4, 4, comm=world)
memory = ints(window)
for i in range(16):
    memory[i] = 0
window.Fence(MPI.MODE_NOPRECEDE)
ranks = array("i", [rank] * 16)  # origins live until their operations are complete
window.Put([ranks, MPI.INT], right)
window.Fence(MPI.MODE_NOSUCCEED)
check(list(memory) == [left] * 16, "put under fence")
check(window.flavor == MPI.WIN_FLAVOR_ALLOCATE, "flavour")
check(window.attrs[1] == 64 if hasattr(window, "attrs") else True, "size")
window.Set_name("python")
check(window.Get_name() == "python", "name")
key = MPI.Win.Create_keyval()
window.Set_attr(key, {"rank": rank})
check(window.Get_attr(key) == {"rank": rank}, "attribute")
window.Delete_attr(key)
check(window.Get_attr(key) is None, "deleted attribute")
MPI.Win.Free_keyval(key)

world.Barrier()
window.Lock_all()
got = array("i", [-1])
one = array("i", [1])
window.Fetch_and_op([one, MPI.INT], [got, MPI.INT], 0, 1, MPI.SUM)
window.Flush(0)
check(got[0] >= 0, "fetch and op")
result = array("i", [-1] * 4)
window.Rget([result, MPI.INT], right, (8, 4, MPI.INT)).Wait()
check(list(result) == [rank] * 4, "rget")
window.Unlock_all()
world.Barrier()

everyone = world.Get_group()
before, after = everyone.Incl([left]), everyone.Incl([right])
window.Post(before)
window.Start(after)
five = array("i", [5])
window.Accumulate([five, MPI.INT], right, 15, MPI.SUM)
window.Complete()
window.Wait()
check(memory[15] == left + 5, "accumulate under post-start-complete-wait")

window.Set_errhandler(MPI.ERRORS_RETURN)
try:
    window.Unlock(right)
    check(False, "unlock without a lock raised nothing")
except MPI.Exception as error:
    check(error.Get_error_class() == MPI.ERR_RMA_SYNC, "class of the error")
memory.release()
window.Free()

own = bytearray(8)
window = MPI.Win.Create(own, 1, comm=world)
window.Fence()
origin = bytes([rank] * 8)
window.Put([origin, MPI.BYTE], right)
window.Fence()
check(bytes(own) == bytes([left] * 8), "created window")
window.Free()

host = world.Split_type(MPI.COMM_TYPE_SHARED)
window = MPI.Win.Allocate_shared(4, 4, comm=host)
memory = ints(window)
window.Lock_all()
memory[0] = 100 + host.rank
window.Sync()
host.Barrier()
theirs, unit = window.Shared_query((host.rank + 1) % host.size)
check(memoryview(theirs).cast("B").cast("i")[0] == 100 + (host.rank + 1) % host.size, "shared query")
window.Unlock_all()
window.Free()

window = MPI.Win.Create_dynamic(comm=world)
attached = array("i", [-1])
window.Attach(attached)
addresses = world.allgather(MPI.Get_address(attached))
window.Lock(right)
mine = array("i", [rank])
window.Put([mine, MPI.INT], right, addresses[right])
window.Unlock(right)
world.Barrier()
check(attached[0] == left, "dynamic window")
window.Detach(attached)
window.Free()

alone = MPI.Win.Allocate(8, 1, comm=MPI.COMM_SELF)
alone.Fence()
alone.Fence()
alone.Free()

total = world.allreduce(failures)
if rank == 0 and total == 0:
    print("ok python_windows", flush=True)
sys.exit(total != 0)
