//! The CPU that this thread runs on, at the cost of one load.
//!
//! The kernel keeps the CPU's number up to date in a thread's restartable-sequence area. glibc (2.35 and
//! later) registers this area for every thread and publishes its offset from the thread pointer as
//! `__rseq_offset`. Without it, or on other architectures, `sched_getcpu` is called.
//!
//! Cost: ~1 ns (rseq), ~5-30 ns (getcpu). The result may be outdated by the time it is used: it is a hint,
//! never a proof. Reference: rseq(2), "Restartable sequences" in the glibc manual.

use std::sync::OnceLock;

/// The source of [`current_cpu`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuSource {
    /// The restartable-sequence area that the C library registered.
    Rseq,
    Getcpu,
}

/// Returns the CPU that this thread ran on a moment ago.
#[inline]
pub fn current_cpu() -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let Some(offset) = rseq_offset() {
        let cpu = rseq_cpu(offset);
        // A negative number means that this thread's area is not registered.
        if cpu.cast_signed() >= 0 {
            return cpu;
        }
    }
    getcpu()
}

pub fn source() -> CpuSource {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if rseq_offset().is_some_and(|offset| rseq_cpu(offset).cast_signed() >= 0) {
        return CpuSource::Rseq;
    }
    CpuSource::Getcpu
}

/// Returns the bytes of a thread's restartable-sequence area that the C library reports as used; 0: it
/// reports nothing.
pub fn area_in_use() -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return symbol::<u32>(c"__rseq_size").unwrap_or(0);
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    0
}

/// Unregisters the calling thread's restartable-sequence area. The kernel writes into the area, and so into a
/// page of this process, each time it schedules the thread. For threads that sleep between any two system
/// calls that costs 2 to 3 % of their time. The area cannot be registered again.
///
/// Returns whether there was an area; [`current_cpu`] calls `getcpu` from now on.
pub fn stop_noting() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let Some(offset) = rseq_offset() {
        let size = area_in_use().max(MIN_AREA);
        let thread: *mut u8;
        // SAFETY: the first word at the address in fs is its own address (System V ABI, x86-64, thread-local
        // storage).
        unsafe {
            core::arch::asm!("mov {thread}, qword ptr fs:[0]", thread = out(reg) thread,
                options(nostack, readonly, preserves_flags));
        }
        let area = thread.wrapping_offset(offset);
        // SAFETY: unregisters exactly the area that glibc registered, or fails; the kernel accesses the area
        // no more.
        let taken = unsafe { libc::syscall(libc::SYS_rseq, area, size, UNREGISTER, SIGNATURE) };
        return taken == 0;
    }
    false
}

/// The smallest area that glibc registers, even if less of it is in use.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const MIN_AREA: u32 = 32;
/// `RSEQ_FLAG_UNREGISTER` and glibc's `RSEQ_SIG` of this architecture.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const UNREGISTER: i32 = 1;
#[cfg(all(target_arch = "x86_64", not(miri)))]
const SIGNATURE: u32 = 0x5305_3053;

/// Returns the number of CPUs that this host is configured for: [`current_cpu`] returns a smaller number,
/// unless CPU numbers have gaps.
pub fn configured() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        // SAFETY: sysconf has no preconditions.
        let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        usize::try_from(count).map_or(1, |count| count.max(1))
    })
}

fn getcpu() -> u32 {
    // SAFETY: sched_getcpu has no preconditions.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).unwrap_or(0)
}

/// Reads `cpu_id`, the second 32-bit field of `struct rseq`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn rseq_cpu(offset: isize) -> u32 {
    let cpu: u32;
    // SAFETY: glibc reserves the area at this offset from every thread's pointer and never moves it; the
    // field is an aligned 32-bit word that only the kernel writes.
    unsafe {
        core::arch::asm!("mov {cpu:e}, dword ptr fs:[{offset} + 4]", cpu = out(reg) cpu,
            offset = in(reg) offset, options(nostack, readonly, preserves_flags));
    }
    cpu
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn rseq_offset() -> Option<isize> {
    static OFFSET: OnceLock<Option<isize>> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        let size = symbol::<u32>(c"__rseq_size")?;
        if size == 0 {
            return None;
        }
        symbol::<isize>(c"__rseq_offset")
    })
}

/// Returns the value of a constant that the C library may export.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn symbol<T: Copy>(name: &std::ffi::CStr) -> Option<T> {
    // SAFETY: the name is a C string; RTLD_DEFAULT searches the objects already loaded.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast::<T>();
    if address.is_null() {
        return None;
    }
    // SAFETY: a non-null address of these glibc symbols names an initialized constant of type T.
    Some(unsafe { address.read() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_whose_processor_is_no_longer_noted_finds_it_out_all_the_same() {
        std::thread::spawn(|| {
            let before = source();
            assert_eq!(stop_noting(), before == CpuSource::Rseq);
            assert!(!stop_noting(), "there is nothing left to take");
            assert_eq!(source(), CpuSource::Getcpu);
            assert!((current_cpu() as usize) < configured());
        })
        .join()
        .expect("thread");
    }

    #[test]
    fn a_pinned_thread_is_where_it_was_pinned() {
        std::thread::spawn(|| {
            // SAFETY: an all-zero cpu_set_t is the empty set.
            let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            let here = current_cpu();
            // SAFETY: the set is valid and `here` is below its capacity on hosts with < 1024 CPUs.
            unsafe { libc::CPU_SET(here as usize, &mut set) };
            // SAFETY: the set outlives the call and its size is its own.
            let pinned = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
            assert_eq!(pinned, 0);
            for _ in 0..100 {
                std::thread::yield_now();
                assert_eq!(current_cpu(), here);
                assert_eq!(getcpu(), here);
            }
        })
        .join()
        .expect("the pinned thread found itself");
    }

    #[test]
    fn the_source_is_one_of_the_two_and_does_not_change() {
        assert_eq!(source(), source());
    }
}
