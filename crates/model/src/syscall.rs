//! System calls by number, as rows report them, the words of futexes, and the range of ids. Numbers are those of x86-64
//! (arch/x86/entry/syscalls/syscall_64.tbl): no other machine is recorded so far.

/// futex(2).
pub const FUTEX: u32 = 202;
/// futex_wait(2), since 6.7: the value is its second argument.
pub const FUTEX_WAIT: u32 = 455;
/// wait4(2).
pub const WAIT4: u32 = 61;
/// waitid(2).
pub const WAITID: u32 = 247;
/// nanosleep(2) and clock_nanosleep(2).
pub const SLEEPS: [u32; 2] = [35, 230];

/// Bit of a futex word that the kernel sets: there are waiters (include/uapi/linux/futex.h).
pub const FUTEX_WAITERS: u32 = 1 << 31;
/// Bits of such a word: the holder's thread id.
pub const FUTEX_TID_MASK: u32 = 0x3fff_ffff;
/// "Locked, with waiters" in the mutexes of glibc (lll_lock), Rust std, Go's runtime (mutex_sleeping) and most
/// others: the third state of Drepper's "Futexes are tricky".
pub const CONTENDED: u32 = 2;
/// Linux assigns process and thread ids below this (include/linux/threads.h).
pub const PID_MAX_LIMIT: u32 = 4 << 20;
