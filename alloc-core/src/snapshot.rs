//! What a heap holds at one moment, as plain data.
//!
//! The core fills a [`Snapshot`], the stats layer renders it, and the stats page carries one across the
//! process boundary: therefore the layout is `repr(C)`, made of `u64` alone, of fixed size, and full of
//! zeros when empty. Every byte that a backend maps for user memory is in exactly one account of its
//! tier, and [`Snapshot::balance`] checks that the accounts add up.

use page_backend::Reason;

/// Most tiers of a composed backend that a snapshot can name.
pub const MAX_TIERS: usize = 16;

/// Most size classes, counting class 0 ("no class").
pub const MAX_CLASSES: usize = 128;

/// Names of the fallback reasons, in the order of [`Reason`].
pub const REASON_NAMES: [&str; Reason::COUNT] = [
    "pool_empty",
    "cgroup_limit",
    "rlimit",
    "permission",
    "unsupported",
    "cap_reached",
    "forked",
    "excluded",
    "no_memory",
    "bad_request",
];

/// A short name held by value, so that it can be read from another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Name {
    /// ASCII, padded with zeros.
    pub bytes: [u8; 24],
}

impl Name {
    /// Keeps the first 24 bytes of `text`; anything but printable ASCII becomes `_`.
    pub fn new(text: &str) -> Self {
        let mut name = Self::default();
        for (to, from) in name.bytes.iter_mut().zip(text.bytes()) {
            *to = if from.is_ascii_graphic() { from } else { b'_' };
        }
        name
    }

    /// The name; empty if the bytes are not printable ASCII.
    #[cold]
    pub fn as_str(&self) -> &str {
        let len = self.bytes.iter().position(|&b| b == 0).unwrap_or(self.bytes.len());
        let text = self.bytes.get(..len).unwrap_or(&[]);
        if text.iter().all(u8::is_ascii_graphic) { core::str::from_utf8(text).unwrap_or("") } else { "" }
    }
}

/// The user memory of one tier of the backend. `mapped = in_use + free + purged`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TierAccount {
    /// The backend's name for the tier, for example `hugetlb-2M`.
    pub name: Name,
    /// Bytes of address space mapped for user memory.
    pub mapped: u64,
    /// Bytes of pages that belong to spans and large runs.
    pub in_use: u64,
    /// Bytes of free pages in the page heap that still have their physical memory.
    pub free: u64,
    /// Bytes of free pages in the page heap whose physical memory went back to the system.
    pub purged: u64,
    /// Bytes of `mapped` on huge pages of a pool.
    pub huge: u64,
    /// Bytes of `mapped` that mlock holds in memory.
    pub locked: u64,
    /// Bytes of `mapped` that cannot be swapped by nature, counted apart from `locked`.
    pub pinned: u64,
    /// Requests that this tier refused and another had to serve, by [`Reason`].
    pub fallbacks: [u64; Reason::COUNT],
}

/// One size class. `span_bytes = size * (live + in_thread_caches + in_transfer_cache + free_in_spans) + waste`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ClassAccount {
    /// Bytes of one object.
    pub size: u64,
    /// Objects that the program holds.
    pub live: u64,
    /// Objects in thread caches.
    pub in_thread_caches: u64,
    /// Objects in the transfer cache.
    pub in_transfer_cache: u64,
    /// Objects free in their spans.
    pub free_in_spans: u64,
    /// Spans of this class.
    pub spans: u64,
    /// Bytes of pages in those spans.
    pub span_bytes: u64,
    /// Bytes behind the last object of each span.
    pub waste: u64,
}

impl ClassAccount {
    /// Bytes that the program holds.
    pub const fn live_bytes(&self) -> u64 {
        self.live.saturating_mul(self.size)
    }

    /// Objects that span pages are set aside for: live, cached or free.
    pub const fn objects(&self) -> u64 {
        self.live
            .saturating_add(self.in_thread_caches)
            .saturating_add(self.in_transfer_cache)
            .saturating_add(self.free_in_spans)
    }
}

/// Blocks with pages of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LargeAccount {
    /// Blocks that the program holds.
    pub count: u64,
    /// Bytes of their pages.
    pub bytes: u64,
}

/// The caches of threads or CPUs as a whole; what they hold is in the class accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadCacheAccount {
    /// Caches that belong to a thread, or were left by one for the next.
    pub count: u64,
    /// Bytes that all caches together may hold.
    pub budget: u64,
    /// Bytes of the budget handed out to caches as capacity.
    pub claimed: u64,
    /// Caches that belong to a CPU; 0 when caches are per thread.
    pub per_cpu: u64,
}

/// The allocator's own memory, outside all tiers' accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MetadataAccount {
    /// Bytes of address space mapped.
    pub mapped: u64,
    /// Bytes handed out to spans, page map, caches and the like.
    pub used: u64,
}

/// What has happened since the start; every value only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// Times that free purged pages were taken into use again, or new pages were mapped.
    pub commit_count: u64,
    /// Bytes of those.
    pub commit_bytes: u64,
    /// Times that pages' physical memory was given back.
    pub decommit_count: u64,
    /// Bytes of those.
    pub decommit_bytes: u64,
    /// Times that address space was mapped.
    pub reserve_count: u64,
    /// Bytes of those.
    pub reserve_bytes: u64,
    /// Rounds of release, by time or by request.
    pub scavenge_count: u64,
    /// Times that the soft limit made the heap release memory.
    pub soft_limit_hits: u64,
    /// Times that the hard limit refused a request.
    pub hard_limit_hits: u64,
    /// Requests that failed for want of memory, for whatever reason.
    pub failed_allocations: u64,
    /// Backend calls that failed on a way back (purge, unmap); no memory is lost by them.
    pub failed_releases: u64,
}

/// Mistakes of the program that the heap noticed, and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ErrorCounters {
    /// Frees of pointers that are not ours.
    pub foreign_frees: u64,
    /// Frees of objects that were free already.
    pub double_frees: u64,
    /// Frees of pointers into a block rather than to its start.
    pub invalid_frees: u64,
    /// Sized frees whose size was wrong (noticed under `check:full` alone).
    pub wrong_sizes: u64,
    /// Objects given up for good, for example in a fork's child where another thread held them.
    pub lost_objects: u64,
}

/// All accounts and counters of one heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Snapshot {
    /// How many of `tiers` are filled.
    pub tier_count: u64,
    /// How many of `classes` are filled, counting class 0, which stays empty.
    pub class_count: u64,
    /// User memory by tier.
    pub tiers: [TierAccount; MAX_TIERS],
    /// Small blocks by size class; the index is the class id.
    pub classes: [ClassAccount; MAX_CLASSES],
    /// Large blocks.
    pub large: LargeAccount,
    /// The threads' caches.
    pub thread_caches: ThreadCacheAccount,
    /// The allocator's own memory.
    pub metadata: MetadataAccount,
    /// Events.
    pub counters: Counters,
    /// Mistakes noticed.
    pub errors: ErrorCounters,
    /// The soft limit in bytes; 0 for none.
    pub soft_limit: u64,
    /// The hard limit in bytes; 0 for none.
    pub hard_limit: u64,
}

/// The account that does not add up, with what it says and what its parts say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// Which account.
    pub account: Account,
    /// The total that the account states.
    pub stated: u64,
    /// The sum of its parts.
    pub summed: u64,
}

/// Names an account in an [`Imbalance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// `mapped` of a tier against `in_use + free + purged`.
    Tier(usize),
    /// A part of a tier (`huge`, `locked`, `pinned`) larger than `mapped`.
    TierPart(usize),
    /// `span_bytes` of a class against its objects and waste.
    Class(usize),
    /// All tiers' `in_use` against all spans and large runs.
    InUse,
    /// Metadata used against metadata mapped.
    Metadata,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Snapshot {
    /// All zero.
    pub const EMPTY: Self = Self {
        tier_count: 0,
        class_count: 0,
        tiers: [TierAccount {
            name: Name { bytes: [0; 24] },
            mapped: 0,
            in_use: 0,
            free: 0,
            purged: 0,
            huge: 0,
            locked: 0,
            pinned: 0,
            fallbacks: [0; Reason::COUNT],
        }; MAX_TIERS],
        classes: [ClassAccount {
            size: 0,
            live: 0,
            in_thread_caches: 0,
            in_transfer_cache: 0,
            free_in_spans: 0,
            spans: 0,
            span_bytes: 0,
            waste: 0,
        }; MAX_CLASSES],
        large: LargeAccount { count: 0, bytes: 0 },
        thread_caches: ThreadCacheAccount { count: 0, budget: 0, claimed: 0, per_cpu: 0 },
        metadata: MetadataAccount { mapped: 0, used: 0 },
        counters: Counters {
            commit_count: 0,
            commit_bytes: 0,
            decommit_count: 0,
            decommit_bytes: 0,
            reserve_count: 0,
            reserve_bytes: 0,
            scavenge_count: 0,
            soft_limit_hits: 0,
            hard_limit_hits: 0,
            failed_allocations: 0,
            failed_releases: 0,
        },
        errors: ErrorCounters {
            foreign_frees: 0,
            double_frees: 0,
            invalid_frees: 0,
            wrong_sizes: 0,
            lost_objects: 0,
        },
        soft_limit: 0,
        hard_limit: 0,
    };

    /// Empties the snapshot in place (it is too large for small stacks to hold a second one).
    pub fn clear(&mut self) {
        // SAFETY: every field is made of u64 and u8, for which all-zero bytes are a value.
        unsafe { core::ptr::write_bytes(self, 0, 1) };
    }

    /// The filled tiers.
    pub fn tiers(&self) -> &[TierAccount] {
        self.tiers.get(..self.tier_count as usize).unwrap_or(&self.tiers)
    }

    /// The filled classes with their ids, without class 0.
    pub fn classes(&self) -> impl Iterator<Item = (usize, &ClassAccount)> {
        self.classes.iter().enumerate().take(self.class_count as usize).skip(1)
    }

    fn sum_tiers(&self, part: impl Fn(&TierAccount) -> u64) -> u64 {
        self.tiers().iter().fold(0, |sum, tier| sum.saturating_add(part(tier)))
    }

    fn sum_classes(&self, part: impl Fn(&ClassAccount) -> u64) -> u64 {
        self.classes().fold(0, |sum, (_, class)| sum.saturating_add(part(class)))
    }

    /// Bytes that the program holds: objects at their class size, large blocks in whole pages.
    pub fn allocated_bytes(&self) -> u64 {
        self.sum_classes(ClassAccount::live_bytes).saturating_add(self.large.bytes)
    }

    /// Bytes of address space mapped for user memory (gperftools' `heap_size`; metadata is apart).
    pub fn heap_bytes(&self) -> u64 {
        self.sum_tiers(|t| t.mapped)
    }

    /// Bytes of pages in spans and large runs.
    pub fn in_use_bytes(&self) -> u64 {
        self.sum_tiers(|t| t.in_use)
    }

    /// Bytes of free pages with physical memory behind them.
    pub fn free_page_bytes(&self) -> u64 {
        self.sum_tiers(|t| t.free)
    }

    /// Bytes of free pages whose physical memory went back.
    pub fn purged_page_bytes(&self) -> u64 {
        self.sum_tiers(|t| t.purged)
    }

    /// Bytes of user memory and metadata that can have physical memory behind them.
    #[cold]
    pub fn physical_bytes(&self) -> u64 {
        self.heap_bytes().saturating_add(self.metadata.mapped).saturating_sub(self.purged_page_bytes())
    }

    /// Bytes of user memory that are not given back.
    pub fn committed_bytes(&self) -> u64 {
        self.heap_bytes().saturating_sub(self.purged_page_bytes())
    }

    /// Bytes of objects in thread caches.
    pub fn thread_cache_bytes(&self) -> u64 {
        self.sum_classes(|c| c.in_thread_caches.saturating_mul(c.size))
    }

    /// Bytes of objects in transfer caches.
    pub fn transfer_cache_bytes(&self) -> u64 {
        self.sum_classes(|c| c.in_transfer_cache.saturating_mul(c.size))
    }

    /// Bytes of objects free in their spans, and the waste behind the spans' last objects.
    pub fn central_free_bytes(&self) -> u64 {
        self.sum_classes(|c| c.free_in_spans.saturating_mul(c.size).saturating_add(c.waste))
    }

    /// Requests that some tier refused and another served, for all reasons.
    pub fn fallback_count(&self) -> u64 {
        self.sum_tiers(|t| t.fallbacks.iter().fold(0, |sum, &n| sum.saturating_add(n)))
    }

    /// Checks that the accounts add up.
    ///
    /// Exact when nothing ran while the snapshot was taken; threads that allocate meanwhile can
    /// shift objects between the parts of a class.
    ///
    /// # Errors
    /// The first account that does not.
    pub fn balance(&self) -> Result<(), Imbalance> {
        let same = |account, stated, summed| {
            if stated == summed { Ok(()) } else { Err(Imbalance { account, stated, summed }) }
        };
        for (i, t) in self.tiers().iter().enumerate() {
            let parts = t.in_use.saturating_add(t.free).saturating_add(t.purged);
            same(Account::Tier(i), t.mapped, parts)?;
            for part in [t.huge, t.locked, t.pinned] {
                same(Account::TierPart(i), t.mapped.max(part), t.mapped)?;
            }
        }
        for (id, c) in self.classes() {
            let parts = c.objects().saturating_mul(c.size).saturating_add(c.waste);
            same(Account::Class(id), c.span_bytes, parts)?;
        }
        let users = self.sum_classes(|c| c.span_bytes).saturating_add(self.large.bytes);
        same(Account::InUse, self.in_use_bytes(), users)?;
        same(Account::Metadata, self.metadata.mapped.max(self.metadata.used), self.metadata.mapped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_names_are_in_the_order_of_the_reasons() {
        assert_eq!(REASON_NAMES[Reason::PoolEmpty as usize], "pool_empty");
        assert_eq!(REASON_NAMES[Reason::CgroupLimit as usize], "cgroup_limit");
        assert_eq!(REASON_NAMES[Reason::Rlimit as usize], "rlimit");
        assert_eq!(REASON_NAMES[Reason::Permission as usize], "permission");
        assert_eq!(REASON_NAMES[Reason::Unsupported as usize], "unsupported");
        assert_eq!(REASON_NAMES[Reason::CapReached as usize], "cap_reached");
        assert_eq!(REASON_NAMES[Reason::Forked as usize], "forked");
        assert_eq!(REASON_NAMES[Reason::Excluded as usize], "excluded");
        assert_eq!(REASON_NAMES[Reason::NoMemory as usize], "no_memory");
        assert_eq!(REASON_NAMES[Reason::BadRequest as usize], "bad_request");
    }

    fn balanced() -> Snapshot {
        let mut s = Snapshot { tier_count: 1, class_count: 2, ..Snapshot::EMPTY };
        s.tiers[0] = TierAccount {
            name: Name::new("mmap"),
            mapped: 4 << 20,
            in_use: 8192 + 65536,
            free: (2 << 20) - 8192,
            purged: (2 << 20) - 65536,
            ..Default::default()
        };
        s.classes[1] = ClassAccount {
            size: 48,
            live: 100,
            in_thread_caches: 20,
            in_transfer_cache: 10,
            free_in_spans: 40,
            spans: 1,
            span_bytes: 8192,
            waste: 32,
        };
        s.large = LargeAccount { count: 1, bytes: 65536 };
        s.metadata = MetadataAccount { mapped: 1 << 20, used: 1000 };
        s
    }

    #[test]
    fn accounts_add_up_as_gperftools_defines_them() {
        let s = balanced();
        assert_eq!(s.balance(), Ok(()));
        assert_eq!(s.allocated_bytes(), 4800 + 65536);
        let parts = s.allocated_bytes()
            + s.thread_cache_bytes()
            + s.transfer_cache_bytes()
            + s.central_free_bytes()
            + s.free_page_bytes()
            + s.purged_page_bytes();
        assert_eq!(s.heap_bytes(), parts);
    }

    #[test]
    fn each_kind_of_imbalance_is_named() {
        let broken = |change: fn(&mut Snapshot)| {
            let mut s = balanced();
            change(&mut s);
            s.balance().unwrap_err().account
        };
        assert_eq!(broken(|s| s.tiers[0].free -= 1), Account::Tier(0));
        assert_eq!(broken(|s| s.tiers[0].locked = 5 << 20), Account::TierPart(0));
        assert_eq!(broken(|s| s.classes[1].live += 1), Account::Class(1));
        assert_eq!(broken(|s| s.large.bytes += 8192), Account::InUse);
        assert_eq!(broken(|s| s.metadata.used = 2 << 20), Account::Metadata);
    }

    #[test]
    fn clear_leaves_the_empty_snapshot_and_names_survive_odd_text() {
        let mut s = balanced();
        s.clear();
        assert_eq!(s, Snapshot::EMPTY);
        assert_eq!(Name::new("a b\u{e9}").as_str(), "a_b__");
        assert_eq!(Name::new("abcdefghijklmnopqrstuvwxyz").as_str(), "abcdefghijklmnopqrstuvwx");
        assert_eq!(Name { bytes: [0xff; 24] }.as_str(), "");
    }
}
