//! Telling of memory that came from elsewhere than asked: one line for the first refusal of each tier and reason.

use super::HEAP;
use crate::message::Message;
use crate::snapshot::{MAX_TIERS, REASON_NAMES};
use core::sync::atomic::{AtomicU16, Ordering};
use page_backend::{MapError, PageBackend, Reason, Step, Tier};

/// The reasons that have been told, a bit each, by tier.
static TOLD: [AtomicU16; MAX_TIERS] = [const { AtomicU16::new(0) }; MAX_TIERS];
const _: () = assert!(Reason::COUNT <= 16);

/// Writes a line for each fallback since the last call that is the first of its tier and reason. The thread is inside, and
/// holds no lock.
pub(super) fn tell() {
    // Bounded, in case other threads fall back faster than this one looks.
    for _ in 0..MAX_TIERS {
        let Some((tier, error)) = HEAP.pages.backend().take_new_fallback() else { return };
        let Some(told) = TOLD.get(tier.0 as usize) else { continue };
        let bit = 1 << error.reason as u16;
        if told.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            tell_of(tier, error);
        }
    }
}

#[cold]
#[inline(never)]
fn tell_of(tier: Tier, error: MapError) {
    let backend = HEAP.pages.backend();
    let step = match error.step {
        Step::Check => "before asking the kernel",
        Step::Map => "when mapping",
        Step::Populate => "when taking pages",
        Step::Lock => "when locking",
        Step::Purge | Step::Unmap => "when giving back",
        Step::Remap => "when growing",
    };
    let reason = REASON_NAMES.get(error.reason as usize).copied().unwrap_or("unknown");
    let mut line = Message::new()
        .str("no memory from ")
        .str(backend.name(tier))
        .str(": ")
        .str(reason)
        .str(" ")
        .str(step);
    if let Some(errno) = error.errno {
        line = line.str(" (errno ").dec(errno.0.unsigned_abs().into()).str(")");
    }
    let mount = &super::start::settings().hugetlbfs;
    if error.step == Step::Map && !mount.is_empty() && backend.name(tier).starts_with("hugetlb") {
        line = line.str(" from the mount ").bytes(mount.as_bytes());
    }
    line.str(what_helps(error.reason, backend.name(tier)))
        .str("; going on with the next kind of pages")
        .send();
}

/// The first thing to look at.
fn what_helps(reason: Reason, tier: &str) -> &'static str {
    match reason {
        // The sysctl is for the pool of the default size alone.
        Reason::PoolEmpty if tier.ends_with("1G") => {
            "; raise /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
        }
        Reason::PoolEmpty => "; raise vm.nr_hugepages",
        Reason::CgroupLimit => "; raise the control group's hugetlb limit",
        Reason::Rlimit => "; raise RLIMIT_MEMLOCK (LimitMEMLOCK= in a unit)",
        Reason::Permission => "; a capability is missing (CAP_IPC_LOCK)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::{Reason, what_helps};

    #[test]
    fn an_empty_pool_is_named_by_its_size() {
        assert!(what_helps(Reason::PoolEmpty, "hugetlb-2M").ends_with("vm.nr_hugepages"));
        assert!(what_helps(Reason::PoolEmpty, "locked-hugetlb-1G").contains("hugepages-1048576kB/"));
    }
}
