//! The huge page pools: their page sizes, and their state, read when a request has failed, to say why.

use crate::backend::Reason;
use crate::numbers;
use crate::sys::{Errno, MapFlags};
use core::ffi::CStr;

/// The page size of a huge page pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugeSize {
    /// 2 MiB.
    Size2M,
    /// 1 GiB.
    Size1G,
}

impl HugeSize {
    /// The size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Size2M => 2 << 20,
            Self::Size1G => 1 << 30,
        }
    }

    pub(crate) const fn flags(self) -> MapFlags {
        let size = match self {
            Self::Size2M => MapFlags::HUGE_2MB,
            Self::Size1G => MapFlags::HUGE_1GB,
        };
        MapFlags::ANONYMOUS.union(MapFlags::HUGETLB).union(size)
    }
}

/// What a pool has, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Pages of the pool, surplus pages included.
    pub total: u64,
    /// Pages that nobody uses, promised ones included.
    pub free: u64,
    /// Free pages that are promised to mappings.
    pub reserved: u64,
    /// Pages made on demand, which the kernel takes back when they are free.
    pub surplus: u64,
    /// Further pages that the kernel may make on demand.
    pub surplus_left: u64,
}

impl Pool {
    /// Reads the pool of a size; `None` if the kernel has no such pool or does not show it.
    #[cold]
    pub fn read(size: HugeSize) -> Option<Self> {
        let [total, free, reserved, surplus, surplus_max] = files(size);
        let surplus = numbers::read(surplus)?;
        Some(Self {
            total: numbers::read(total)?,
            free: numbers::read(free)?,
            reserved: numbers::read(reserved)?,
            surplus,
            surplus_left: numbers::read(surplus_max)?.saturating_sub(surplus),
        })
    }

    /// Pages that a new mapping can have: the free ones that are not promised.
    pub const fn available(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }
}

const fn files(size: HugeSize) -> [&'static CStr; 5] {
    match size {
        HugeSize::Size2M => [
            c"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
            c"/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
            c"/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages",
            c"/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages",
            c"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages",
        ],
        HugeSize::Size1G => [
            c"/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
            c"/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages",
            c"/sys/kernel/mm/hugepages/hugepages-1048576kB/resv_hugepages",
            c"/sys/kernel/mm/hugepages/hugepages-1048576kB/surplus_hugepages",
            c"/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_overcommit_hugepages",
        ],
    }
}

/// Why mapping `bytes` failed for want of memory.
///
/// A pool that has the pages leaves the limit on reservations of a control group (`hugetlb.*.rsvd.max`).
pub(crate) fn reserve_reason(size: HugeSize, bytes: usize) -> Reason {
    let pages = (bytes / size.bytes()) as u64;
    match Pool::read(size) {
        Some(pool) if pool.available() >= pages => Reason::CgroupLimit,
        // With or without a pool to look at, the kernel knew the page size and found no pages.
        _ => Reason::PoolEmpty,
    }
}

/// Why taking pages failed, while their reservation is still held.
///
/// Reserved pages are there for the taking, so a pool that still has free ones means that a control group
/// (`hugetlb.*.max`) forbids it.
pub(crate) fn populate_reason(size: HugeSize, errno: Errno) -> Reason {
    match errno {
        Errno::EFAULT | Errno::ENOMEM => match Pool::read(size) {
            Some(pool) if pool.free == 0 => Reason::PoolEmpty,
            _ => Reason::CgroupLimit,
        },
        Errno::EPERM | Errno::EACCES => Reason::Permission,
        Errno::EINVAL | Errno::ENOSYS | Errno::ENOENT => Reason::Unsupported,
        _ => Reason::NoMemory,
    }
}
