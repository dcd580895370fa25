//! Restartable sequences: operations on the current CPU's bins that the kernel restarts when the thread is preempted, moved to
//! another CPU or interrupted by a signal in their middle (rseq(2), Linux 4.18).
//!
//! glibc registers an area for each thread (2.35 and later), and this module works on that one: registering a second would fail.
//! Nothing of it is written but `rseq_cs`, which the ABI leaves to the user. Where libc has none, an area of our own
//! takes its place ([`own`]). Each operation ends with one committing store; before it nothing that others see has changed.
//!
//! A table gives the bins of each CPU. It begins with two entries for the "CPUs" -2 and -1, which the area of a thread without
//! registration names: their bins always miss, so no operation asks whether it may run.

mod own;

use super::bins::{Bins, Slot};
use core::arch::asm;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Restarts of sequences by the kernel so far.
pub static RESTARTS: AtomicU64 = AtomicU64::new(0);

/// How often the kernel has restarted a sequence.
pub(crate) fn restarts() -> u64 {
    RESTARTS.load(Ordering::Relaxed)
}

/// A table of bins, by CPU number from -2 on.
pub(super) type Table = *const AtomicPtr<Bins>;

/// Offset from the thread pointer of the area that libc has registered, or of ours where it has none.
pub(super) fn area() -> isize {
    area_of_libc().unwrap_or_else(own::area)
}

fn area_of_libc() -> Option<isize> {
    let (offset, size): (*const isize, *const u32);
    // SAFETY: reads two addresses that the linker resolves, to null where libc does not define them.
    unsafe {
        asm!(
            ".weak __rseq_offset",
            ".weak __rseq_size",
            "mov {0}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {1}, qword ptr [rip + __rseq_size@GOTPCREL]",
            out(reg) offset,
            out(reg) size,
            options(nostack, pure, readonly)
        );
    }
    // SAFETY: libc's constants, set before the program's first instruction. A size of 0 means: not registered, as under valgrind.
    unsafe {
        if offset.is_null() || size.is_null() || *size == 0 || *offset == 0 { None } else { Some(*offset) }
    }
}

/// Makes sure that this thread's area is registered; `false` where that is not possible.
#[cold]
pub(super) fn register(area: isize) -> bool {
    cpu(area) >= 0 || (area == own::area() && own::register())
}

/// This thread ends: an area of ours goes with it. The thread is inside the slow path, or another area would be registered by a
/// signal handler that allocates.
pub(super) fn end_thread() {
    if cpu(own::area()) >= 0 {
        own::unregister();
    }
}

/// The CPU of this moment; negative for a thread without registration.
pub(super) fn cpu(area: isize) -> i32 {
    let cpu: i32;
    // SAFETY: the thread's own area, which lives as long as the thread.
    unsafe {
        asm!("mov {0:e}, dword ptr fs:[{1} + 4]", out(reg) cpu, in(reg) area, options(nostack, readonly, preserves_flags));
    }
    cpu
}

/// The tail that every section shares: its descriptor (label 77), the signature before the abort address, the restart. The section
/// is from label 3 to label 4; label 2 begins anew. With `$name` the descriptor has a symbol: see [`Descriptor`].
#[doc(hidden)]
#[macro_export]
macro_rules! sequence_tail {
    ($($name:ident)?) => {
        concat!(
            "4:\n",
            ".pushsection __rseq_cs, \"aw\"\n",
            ".balign 32\n",
            "77:\n",
            $(
                ".weak stratalloc_sequence_", stringify!($name), "\n",
                ".hidden stratalloc_sequence_", stringify!($name), "\n",
                // Not a label of its own: compilers before 1.89 allow none here.
                ".set stratalloc_sequence_", stringify!($name), ", 77b\n",
            )?
            ".long 0, 0\n",
            ".quad 3b, 4b - 3b, 78f\n",
            ".popsection\n",
            ".pushsection .text.stratalloc_rseq_abort, \"ax\"\n",
            // An undefined instruction that holds the signature, so that no jump can land before the abort address.
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "78:\n",
            "lock inc qword ptr [rip + {restarts}]\n",
            "jmp 2b\n",
            ".popsection\n",
        )
    };
}

/// A section in registers of the compiler's choice; `$arm` tells the kernel of it.
macro_rules! section {
    ($arm:ident, $($body:literal),+ $(,)?) => {
        concat!(
            "2:\n",
            "lea {scratch}, [rip + 77f]\n",
            arm!($arm), "\n",
            "3:\n",
            $($body, "\n",)+
            $crate::sequence_tail!(),
        )
    };
}

/// What makes a section restartable: its descriptor in the thread's area. The tests try what happens without.
macro_rules! arm {
    (armed) => {
        "mov qword ptr fs:[{area} + 8], {scratch}"
    };
    (unarmed) => {
        ""
    };
}

/// A section in registers of its own, for naked functions: the class is in `r9`, the area's offset in `r10`, the address of the
/// section's own descriptor in `r8`; in the page map `{descriptor}` is where that is, and `{bins}` the table. What follows finds the
/// bins in `r11` and the class's cursor in `rax`, may use these two, and leaves all else as it is.
#[doc(hidden)]
#[macro_export]
macro_rules! straight_sequence {
    ($name:ident, $($body:expr),+ $(,)?) => {
        concat!(
            "2:\n",
            "mov qword ptr fs:[r10 + 8], r8\n",
            "3:\n",
            "movsxd r11, dword ptr fs:[r10 + 4]\n",
            "mov r11, qword ptr [r8 + r11*8 + {bins} - {descriptor} + 16]\n",
            "mov rax, qword ptr [r11 + r9*8]\n",
            $($body, "\n",)+
            $crate::sequence_tail!($name),
        )
    };
}

/// A descriptor, as the kernel reads it (`struct rseq_cs`): version and flags, first address, length, abort address.
///
/// The sections of naked functions use copies beside the tables that they read, since one register then has the addresses of all;
/// a copy is made of what stands at the section's symbol.
pub(crate) type Descriptor = [u64; 4];

/// The address of the descriptor of a section by its name; null where the program has no such section.
macro_rules! descriptor {
    ($name:ident) => {{
        let address: *const Descriptor;
        // SAFETY: reads an address that the linker resolves, to null where nothing defines it.
        unsafe {
            asm!(
                concat!(".weak stratalloc_sequence_", stringify!($name)),
                concat!(".hidden stratalloc_sequence_", stringify!($name)),
                concat!("mov {0}, qword ptr [rip + stratalloc_sequence_", stringify!($name), "@GOTPCREL]"),
                out(reg) address,
                options(nostack, pure, readonly)
            );
        }
        // SAFETY: where there is such a section its descriptor is constant.
        unsafe { address.as_ref() }
    }};
}

/// The sections of naked functions, by their numbers.
pub(super) fn descriptors() -> [Option<&'static Descriptor>; STRAIGHT] {
    [
        descriptor!(malloc),
        descriptor!(free),
        descriptor!(new),
        descriptor!(delete),
        descriptor!(alloc),
        descriptor!(dealloc),
    ]
}

/// Sections of naked functions.
pub(super) const STRAIGHT: usize = 6;

/// The number of a section of a naked function.
#[doc(hidden)]
#[macro_export]
macro_rules! sequence_number {
    (malloc) => {
        0
    };
    (free) => {
        1
    };
    (new) => {
        2
    };
    (delete) => {
        3
    };
    (alloc) => {
        4
    };
    (dealloc) => {
        5
    };
}

macro_rules! pop {
    ($arm:ident, $area:ident, $table:ident, $class:ident) => {{
        let object: *mut u8;
        asm!(
            section!(
                $arm,
                "movsxd {scratch}, dword ptr fs:[{area} + 4]",
                "mov {scratch}, qword ptr [{table} + {scratch}*8 + 16]",
                "mov {cursor}, qword ptr [{scratch} + {class}*8]",
                "mov {object}, qword ptr [{cursor}]",
                "test {object}, {object}",
                "jz 4f",
                "sub qword ptr [{scratch} + {class}*8], 8",
            ),
            area = in(reg) $area,
            table = in(reg) $table,
            class = in(reg) $class,
            restarts = sym RESTARTS,
            scratch = out(reg) _,
            cursor = out(reg) _,
            object = out(reg) object,
            options(nostack)
        );
        object
    }};
}

macro_rules! push {
    ($arm:ident, $area:ident, $table:ident, $class:ident, $object:ident) => {{
        let cursor: *mut Slot;
        asm!(
            section!(
                $arm,
                "movsxd {scratch}, dword ptr fs:[{area} + 4]",
                "mov {scratch}, qword ptr [{table} + {scratch}*8 + 16]",
                "mov {cursor}, qword ptr [{scratch} + {class}*8]",
                "cmp qword ptr [{cursor}], {object}",
                "je 79f",
                "cmp qword ptr [{cursor} + 8], 1",
                "je 79f",
                "mov qword ptr [{cursor} + 8], {object}",
                "add qword ptr [{scratch} + {class}*8], 8",
            ),
            ".pushsection .text.stratalloc_rseq_abort, \"ax\"",
            "79:",
            "xor {cursor:e}, {cursor:e}",
            "jmp 4b",
            ".popsection",
            area = in(reg) $area,
            table = in(reg) $table,
            class = in(reg) $class,
            object = in(reg) $object,
            restarts = sym RESTARTS,
            scratch = out(reg) _,
            cursor = out(reg) cursor,
            options(nostack)
        );
        !cursor.is_null()
    }};
}

/// Takes an object out of a bin of the current CPU; null when it misses.
///
/// # Safety
/// `table` is as the module's page says, with an entry for every CPU; `class` is below the number of bins.
#[inline(always)]
pub(super) unsafe fn pop(area: isize, table: Table, class: usize) -> *mut u8 {
    // SAFETY: a restartable sequence on this CPU's bins: a cursor points to a slot or to the lower guard, which is null.
    unsafe { pop!(armed, area, table, class) }
}

/// Puts an object into a bin of the current CPU; `false` when the bin has no room, or has the object on top already.
///
/// # Safety
/// As for [`pop`].
#[inline(always)]
pub(super) unsafe fn push(area: isize, table: Table, class: usize, object: *mut u8) -> bool {
    // SAFETY: as in `pop`; above the cursor is a slot or the upper guard. The slot above is written before the commit: until
    // then it is nobody's.
    unsafe { push!(armed, area, table, class, object) }
}

/// Takes a bin of the current CPU out of use: puts `taken` in the place of its cursor. Gives the bins and the cursor that was
/// there. Bins between `low` and `high` are left as they are.
///
/// # Safety
/// As for [`pop`]; `taken` is a cursor that always misses.
#[inline(never)]
pub(super) unsafe fn take(
    area: isize,
    table: Table,
    class: usize,
    taken: *mut Slot,
    (low, high): (*mut Bins, *mut Bins),
) -> (*mut Bins, *mut Slot) {
    let bins: *mut Bins;
    let cursor: *mut Slot;
    // SAFETY: as in `pop`.
    unsafe {
        asm!(
            section!(
                armed,
                "movsxd {bins}, dword ptr fs:[{area} + 4]",
                "mov {bins}, qword ptr [{table} + {bins}*8 + 16]",
                "mov {cursor}, qword ptr [{bins} + {class}*8]",
                "cmp {bins}, {low}",
                "jb 5f",
                "cmp {bins}, {high}",
                "jbe 4f",
                "5:",
                "mov qword ptr [{bins} + {class}*8], {taken}",
            ),
            area = in(reg) area,
            table = in(reg) table,
            class = in(reg) class,
            taken = in(reg) taken,
            restarts = sym RESTARTS,
            low = in(reg) low,
            high = in(reg) high,
            scratch = out(reg) _,
            bins = out(reg) bins,
            cursor = out(reg) cursor,
            options(nostack)
        );
    }
    (bins, cursor)
}

#[cfg(test)]
mod tests;
