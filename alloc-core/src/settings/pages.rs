//! From the settings' chain to the links of the page backend.

use super::{Fallback, LockMode, LockTime, Pages, Settings, Thp, chain};
use page_backend::system::MAX_LINKS;
use page_backend::{
    FallbackPolicy, HugeSize, HugeSource, LinkConfig, LinkKind, MountPath, SystemConfig, ThpPolicy,
};

const _: () =
    assert!(chain::MAX_LINKS < MAX_LINKS, "the ordinary pages behind the chain have a link of their own");

impl Settings {
    /// Hands the page backend's configuration to `with`: the chain, and ordinary pages behind it unless `fallback` says never.
    pub(crate) fn with_system_config<T>(&self, with: impl FnOnce(&SystemConfig<'_>) -> T) -> T {
        let mut links = [LinkConfig::PLAIN; MAX_LINKS];
        let mut count = 0;
        for (slot, link) in links.iter_mut().zip(self.backend.links()) {
            *slot = self.link(link);
            count += 1;
        }
        if self.fallback != Fallback::Never
            && !self.backend.ends_plain()
            && let Some(last) = links.get_mut(count)
        {
            *last = self.ordinary();
            count += 1;
        }
        let fallback = match self.fallback {
            Fallback::Warn => FallbackPolicy::Warn,
            Fallback::Silent => FallbackPolicy::Silent,
            // A chain's own links are no fallback: they are what was asked for.
            Fallback::Never if count > 1 => FallbackPolicy::Warn,
            Fallback::Never => FallbackPolicy::Never,
        };
        let links = links.get(..count).unwrap_or(&[]);
        with(&SystemConfig { links, fallback, excluded: self.excluded })
    }

    /// Whether the backend is what it is before any settings are read.
    pub(crate) fn has_plain_backend(&self) -> bool {
        self.backend.ends_plain() && self.backend.links().len() == 1 && self.thp == Thp::Default
    }

    /// Small pages under the setting for transparent huge pages.
    fn ordinary(&self) -> LinkConfig {
        LinkConfig::new(LinkKind::Mmap(match self.thp {
            Thp::Default => ThpPolicy::Default,
            Thp::Never => ThpPolicy::Never,
            Thp::Madvise => ThpPolicy::Madvise,
            Thp::Collapse => ThpPolicy::Collapse,
        }))
    }

    #[cold]
    fn link(&self, link: &chain::Link) -> LinkConfig {
        let mut config = match link.pages {
            Pages::Small => self.ordinary(),
            Pages::Thp => LinkConfig::new(LinkKind::Mmap(ThpPolicy::Madvise)),
            Pages::Huge2M => LinkConfig::new(LinkKind::Hugetlb(HugeSize::Size2M, self.huge_source())),
            Pages::Huge1G => LinkConfig::new(LinkKind::Hugetlb(HugeSize::Size1G, self.huge_source())),
        };
        if link.cap != 0 {
            config.cap = usize::try_from(link.cap).unwrap_or(usize::MAX);
        }
        if link.locked {
            config.lock = match self.lock {
                LockMode::Fallback => page_backend::LockMode::Fallback,
                LockMode::Strict => page_backend::LockMode::Strict,
            };
            config.lock_time = match self.lock_time {
                LockTime::Touch => page_backend::LockTime::OnTouch,
                LockTime::Map => page_backend::LockTime::AtMap,
            };
            if self.lock_budget != 0 {
                config.lock_budget = usize::try_from(self.lock_budget).unwrap_or(usize::MAX);
            }
        }
        config
    }

    #[cold]
    fn huge_source(&self) -> HugeSource {
        match MountPath::new(self.hugetlbfs.as_bytes()) {
            Some(path) if !self.hugetlbfs.is_empty() => HugeSource::Mount(path),
            _ => HugeSource::Anonymous,
        }
    }
}
