//! What a `no_std` library must bring along. Compiled for the preload library alone.

use alloc_core::message::Message;
use core::ffi::{c_char, c_int};

/// Unreachable unless an assertion of ours or of a library in the heap is wrong; says where, and ends the process.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    if let Some(place) = info.location() {
        let message = Message::new().str("internal error at ").str(place.file()).str(":");
        message.dec(place.line().into()).str(": aborting").send();
    }
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}

/// For what the heap's own libraries allocate.
#[global_allocator]
static METADATA: alloc_core::MetadataAlloc = alloc_core::MetadataAlloc;

type Constructor = unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char);

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: Constructor = crate::start::load;

#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = crate::start::unload;

// In place of the one in the C start files, which the library is linked without: it is never unloaded, and its handlers stay.
#[cfg(not(archive))]
core::arch::global_asm!(
    ".pushsection .data.rel.ro.__dso_handle, \"aw\"",
    ".balign 8",
    ".hidden __dso_handle",
    ".globl __dso_handle",
    "__dso_handle: .quad 0",
    ".popsection",
);

// Before glibc 2.34 these were in libpthread, under the version that is named here; later glibcs still have that version.
// Weak: a program without threads need not have loaded libpthread, and then nobody calls them.
#[cfg(not(archive))]
macro_rules! from_first_glibc {
    ($version:literal: $($name:literal)*) => {
        core::arch::global_asm!($(
            concat!(".symver ", $name, ", ", $name, "@", $version),
            concat!(".weak ", $name),
        )*);
    };
}

#[cfg(all(not(archive), target_arch = "x86_64"))]
from_first_glibc!("GLIBC_2.2.5": "pthread_key_create" "pthread_setspecific" "pthread_sigmask" "pthread_attr_setstacksize");
#[cfg(all(not(archive), target_arch = "aarch64"))]
from_first_glibc!("GLIBC_2.17": "pthread_key_create" "pthread_setspecific" "pthread_sigmask" "pthread_attr_setstacksize");
