//! What a `no_std` library must bring along. Compiled for the preload library alone.

/// Unreachable unless an assertion of ours is wrong; ends the process where it is.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = crate::start::load;
