"""mpi4py.futures: a pool of processes that MPI_Comm_spawn starts."""
from mpi4py.futures import MPIPoolExecutor


def square(number):
    return number * number


if __name__ == "__main__":
    with MPIPoolExecutor(max_workers=2) as pool:
        results = list(pool.map(square, range(20)))
    if results == [number * number for number in range(20)]:
        print("ok python_pool", flush=True)
