// A C++ program: windows in objects, lambdas, vectors of types; exclusive updates of a shared histogram.
#include "check.h"
#include <numeric>
#include <vector>

namespace {
class Window {
public:
	Window(MPI_Aint bytes, int unit, MPI_Comm comm)
	{
		MPI_Win_allocate(bytes, unit, MPI_INFO_NULL, comm, &memory_, &window_);
	}
	Window(const Window &) = delete;
	Window &operator=(const Window &) = delete;
	~Window() { MPI_Win_free(&window_); }

	template <class Work> void locked(int kind, int target, Work work)
	{
		MPI_Win_lock(kind, target, 0, window_);
		work();
		MPI_Win_unlock(target, window_);
	}
	operator MPI_Win() const { return window_; }
	template <class T> T *as() const { return static_cast<T *>(memory_); }

private:
	void *memory_ = nullptr;
	MPI_Win window_ = MPI_WIN_NULL;
};
} // namespace

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	{
		const int bins = 16;
		Window histogram(bins * sizeof(long), sizeof(long), MPI_COMM_WORLD);
		std::fill_n(histogram.as<long>(), bins, 0L);
		MPI_Barrier(MPI_COMM_WORLD);
		std::vector<long> mine(bins);
		std::iota(mine.begin(), mine.end(), long(rank));
		for (int target = 0; target < size; target++)
			histogram.locked(MPI_LOCK_SHARED, target, [&] {
				MPI_Accumulate(mine.data(), bins, MPI_LONG, target, 0, bins, MPI_LONG, MPI_SUM,
					       histogram);
			});
		MPI_Barrier(MPI_COMM_WORLD);
		histogram.locked(MPI_LOCK_SHARED, rank, [&] {
			for (int bin = 0; bin < bins; bin++)
				CHECK_EQUAL(histogram.as<long>()[bin], size * (size - 1) / 2 + size * bin);
		});
	}
	{
		Window flags(sizeof(bool), 1, MPI_COMM_WORLD);
		*flags.as<bool>() = false;
		MPI_Win_fence(0, flags);
		bool yes = true;
		MPI_Accumulate(&yes, 1, MPI_CXX_BOOL, right(), 0, 1, MPI_CXX_BOOL, MPI_LOR, flags);
		MPI_Win_fence(0, flags);
		CHECK(*flags.as<bool>());
	}
	return end("cxx");
}
