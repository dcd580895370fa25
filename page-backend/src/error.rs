//! From the kernel's error numbers to reasons.

use crate::backend::{MapError, Reason, Step};
use crate::sys::{self, Errno, Limit};

impl MapError {
    /// An error that the backend itself decided on, without the kernel.
    pub const fn refused(reason: Reason, step: Step) -> Self {
        Self { reason, step, errno: None }
    }

    /// An error number with the reason that is usual for it.
    pub const fn kernel(errno: Errno, step: Step) -> Self {
        let reason = match errno {
            Errno::EPERM | Errno::EACCES => Reason::Permission,
            Errno::ENOSYS | Errno::EINVAL | Errno::ENODEV | Errno::EOPNOTSUPP | Errno::ENOENT => {
                Reason::Unsupported
            }
            // mmap and mremap say this when mlockall(MCL_FUTURE) is in force and RLIMIT_MEMLOCK is reached.
            Errno::EAGAIN => Reason::Rlimit,
            _ => Reason::NoMemory,
        };
        Self { reason, step, errno: Some(errno) }
    }

    /// An error of a mapping call that asked for `size` bytes: tells a resource limit from a lack of memory.
    pub(crate) fn mapping(errno: Errno, step: Step, size: usize) -> Self {
        let mut error = Self::kernel(errno, step);
        if errno == Errno::ENOMEM && over_address_limit(size) {
            error.reason = Reason::Rlimit;
        }
        error
    }

    /// Packs the error into one non-zero word, so that it can be kept in an atomic.
    pub(crate) const fn to_bits(self) -> u64 {
        let errno = match self.errno {
            Some(errno) => errno.0 as u32,
            None => 0,
        };
        1 | (self.reason as u64) << 8 | (self.step as u64) << 16 | (errno as u64) << 32
    }

    /// The inverse of [`to_bits`](Self::to_bits); `None` for 0.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        const REASONS: [Reason; Reason::COUNT] = [
            Reason::PoolEmpty,
            Reason::CgroupLimit,
            Reason::Rlimit,
            Reason::Permission,
            Reason::Unsupported,
            Reason::CapReached,
            Reason::Forked,
            Reason::Excluded,
            Reason::NoMemory,
            Reason::BadRequest,
        ];
        const STEPS: [Step; 7] =
            [Step::Check, Step::Map, Step::Populate, Step::Lock, Step::Purge, Step::Unmap, Step::Remap];
        if bits == 0 {
            return None;
        }
        let errno = (bits >> 32) as i32;
        Some(Self {
            reason: *REASONS.get((bits >> 8) as usize & 0xff)?,
            step: *STEPS.get((bits >> 16) as usize & 0xff)?,
            errno: (errno != 0).then_some(Errno(errno)),
        })
    }
}

/// Whether `size` more bytes would exceed RLIMIT_AS or RLIMIT_DATA.
///
/// The data limit counts less than the whole address space, so this errs towards naming the limit, and
/// only when one is set.
fn over_address_limit(size: usize) -> bool {
    let limit = |which| sys::getrlimit(which).unwrap_or(u64::MAX);
    let limit = limit(Limit::AddressSpace).min(limit(Limit::Data));
    if limit == u64::MAX {
        return false;
    }
    let used = crate::numbers::read(c"/proc/self/statm").unwrap_or(0).saturating_mul(sys::page_size() as u64);
    used.saturating_add(size as u64) > limit
}

/// Rounds up to a power of two; `None` on overflow. Unlike `next_multiple_of` it has no division by zero to
/// panic about.
pub(crate) const fn align_up(value: usize, align: usize) -> Option<usize> {
    debug_assert!(align.is_power_of_two());
    match value.checked_add(align.wrapping_sub(1)) {
        Some(sum) => Some(sum & align.wrapping_neg()),
        None => None,
    }
}

/// Checks what every `map` demands of its arguments.
pub(crate) const fn check_request(size: usize, align: usize, granule: usize) -> Result<(), MapError> {
    let aligned = align.is_power_of_two() && align >= granule && size & (granule - 1) == 0;
    if aligned && size != 0 && size <= isize::MAX as usize && align <= isize::MAX as usize {
        Ok(())
    } else {
        Err(MapError::refused(Reason::BadRequest, Step::Check))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_keeps_the_error() {
        for errno in [None, Some(Errno::ENOMEM), Some(Errno(133))] {
            for reason in [Reason::PoolEmpty, Reason::Rlimit, Reason::Forked, Reason::BadRequest] {
                for step in [Step::Check, Step::Populate, Step::Remap] {
                    let error = MapError { reason, step, errno };
                    assert_eq!(MapError::from_bits(error.to_bits()), Some(error));
                }
            }
        }
        assert_eq!(MapError::from_bits(0), None);
    }

    #[test]
    fn rounding_up() {
        assert_eq!(
            [0, 1, 4095, 4096, 4097].map(|n| align_up(n, 4096)),
            [0, 4096, 4096, 4096, 8192].map(Some)
        );
        assert_eq!(align_up(usize::MAX, 4096), None);
        assert_eq!(align_up(usize::MAX, 1), Some(usize::MAX));
    }

    #[test]
    fn odd_requests_are_refused() {
        for (size, align) in
            [(0, 4096), (4096, 0), (4096, 12288), (4096, 2048), (4097, 4096), (1 << 63, 4096)]
        {
            assert!(check_request(size, align, 4096).is_err(), "{size} {align}");
        }
        assert_eq!(check_request(8192, 1 << 21, 4096), Ok(()));
    }
}
