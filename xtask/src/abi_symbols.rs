//! The names that the library exports: all of them, and nothing else.

/// glibc's `stdlib.h` and `malloc.h`, C23, and the old names that programs still import.
const C: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "free",
    "reallocarray",
    "aligned_alloc",
    "posix_memalign",
    "memalign",
    "valloc",
    "pvalloc",
    "cfree",
    "malloc_usable_size",
    "free_sized",
    "free_aligned_sized",
    "malloc_trim",
    "mallinfo",
    "mallinfo2",
    "mallopt",
    "malloc_info",
    "malloc_stats",
];

/// glibc's second names for the same functions.
const GLIBC: &[&str] = &[
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_reallocarray",
    "__libc_free",
    "__libc_memalign",
    "__libc_valloc",
    "__libc_pvalloc",
    "__libc_mallinfo",
    "__libc_mallopt",
];

/// C++: operator new and delete, in the Itanium ABI's spelling.
const CXX: &[&str] = &[
    "_Znwm",
    "_Znam",
    "_ZnwmRKSt9nothrow_t",
    "_ZnamRKSt9nothrow_t",
    "_ZnwmSt11align_val_t",
    "_ZnamSt11align_val_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t",
    "_ZnamSt11align_val_tRKSt9nothrow_t",
    "_ZdlPv",
    "_ZdaPv",
    "_ZdlPvm",
    "_ZdaPvm",
    "_ZdlPvRKSt9nothrow_t",
    "_ZdaPvRKSt9nothrow_t",
    "_ZdlPvSt11align_val_t",
    "_ZdaPvSt11align_val_t",
    "_ZdlPvmSt11align_val_t",
    "_ZdaPvmSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
];

/// What other programs look for to name or ask their allocator, and the hook on new threads.
const OTHERS: &[&str] = &["tc_version", "mallctl", "pthread_create"];

/// Families of which any member may be exported: our own header, and gperftools' C interface.
const PREFIXES: &[&str] = &["stratalloc_", "MallocExtension_"];

/// Every name that must be there.
pub(crate) fn required() -> impl Iterator<Item = &'static str> {
    [C, GLIBC, CXX, OTHERS].into_iter().flatten().copied()
}

/// Whether a name may be exported.
pub(crate) fn allowed(name: &str) -> bool {
    required().any(|other| other == name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
