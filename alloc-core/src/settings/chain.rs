//! The backend's grammar: which pages, in which order, locked or not, up to which amount.
//!
//! ```text
//! chain = link { ">" link }
//! link  = pages [ "+locked" ] [ "=" size ]
//! pages = "4k" | "thp" | "huge" | "huge1g" | "locked"      ("locked" alone is "4k+locked")
//! ```
//! `huge=512MiB>4k` reads: huge pages up to 512 MiB, then small ones. What happens behind the end is the
//! `fallback` setting's word.

use super::keys::nearest;
use super::value::{self, ValueError};
use crate::message::Sink;

/// Most links of a chain.
pub const MAX_LINKS: usize = 6;

/// A kind of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pages {
    /// Pages of the system's ordinary size.
    Small,
    /// Ordinary pages that the kernel is asked to make huge.
    Thp,
    /// 2 MiB pages of the hugetlb pool.
    Huge2M,
    /// 1 GiB pages of the hugetlb pool.
    Huge1G,
}

impl Pages {
    const WORDS: [(&'static str, Self); 4] =
        [("4k", Self::Small), ("thp", Self::Thp), ("huge", Self::Huge2M), ("huge1g", Self::Huge1G)];

    /// The word for this kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Small => "4k",
            Self::Thp => "thp",
            Self::Huge2M => "huge",
            Self::Huge1G => "huge1g",
        }
    }
}

/// One source of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The kind of pages.
    pub pages: Pages,
    /// Whether they are locked into memory.
    pub locked: bool,
    /// Most bytes to take from here; 0 for no bound.
    pub cap: u64,
}

/// Sources of pages in order of preference; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    links: [Link; MAX_LINKS],
    len: u8,
}

const PLAIN: Link = Link { pages: Pages::Small, locked: false, cap: 0 };
const HINT: &str = "a chain of 4k, thp, huge, huge1g or locked, such as huge+locked=512MiB>4k";

impl Chain {
    /// Ordinary pages alone.
    pub const SMALL: Self = Self { links: [PLAIN; MAX_LINKS], len: 1 };

    /// The links, in order of preference.
    pub fn links(&self) -> &[Link] {
        self.links.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// Whether the last link takes any amount of ordinary unlocked pages, so that nothing lies behind it.
    pub fn ends_plain(&self) -> bool {
        self.links().last() == Some(&PLAIN)
    }

    /// The chain with `link` at its end, or `None` if it is full.
    pub fn with(mut self, link: Link) -> Option<Self> {
        *self.links.get_mut(usize::from(self.len))? = link;
        self.len += 1;
        Some(self)
    }

    /// Reads a chain.
    ///
    /// # Errors
    /// Names the link that is wrong.
    pub fn parse(value: &[u8]) -> Result<Self, ValueError> {
        let mut chain = Self { len: 0, ..Self::SMALL };
        let mut offset = 0;
        for text in value.split(|&b| b == b'>') {
            if chain.ends_plain() {
                let expected = "nothing behind 4k without a cap, which takes every request";
                return Err(ValueError { offset, expected, nearest: None });
            }
            let link = Link::parse(text).map_err(|e| ValueError { offset: offset + e.offset, ..e })?;
            chain = match chain.with(link) {
                Some(longer) => longer,
                None => return Err(ValueError { offset, expected: "at most 6 links", nearest: None }),
            };
            offset += text.len() + 1;
        }
        Ok(chain)
    }

    /// Writes the chain in the form that [`parse`](Self::parse) reads.
    pub fn write(&self, sink: &mut dyn Sink) {
        for (i, link) in self.links().iter().enumerate() {
            if i > 0 {
                sink.put(b">");
            }
            sink.put_str(link.pages.as_str());
            if link.locked {
                sink.put(b"+locked");
            }
            if link.cap != 0 {
                sink.put(b"=");
                sink.put_size(link.cap);
            }
        }
    }
}

impl Link {
    fn parse(text: &[u8]) -> Result<Self, ValueError> {
        let head_len = text.iter().position(|&b| b == b'=').unwrap_or(text.len());
        let (head, tail) = text.split_at_checked(head_len).unwrap_or((text, &[]));
        let cap = match tail.split_first() {
            None => 0,
            Some((_, amount)) => match value::size(amount) {
                Ok(0) => {
                    let expected = "a cap above 0";
                    return Err(ValueError { offset: head_len + 1, expected, nearest: None });
                }
                Ok(bytes) => bytes,
                Err(e) => return Err(ValueError { offset: head_len + 1 + e.offset, ..e }),
            },
        };
        let (name, locked) = match head.strip_suffix(b"+locked") {
            Some(name) => (name, true),
            None if head == b"locked" => return Ok(Self { pages: Pages::Small, locked: true, cap }),
            None => (head, false),
        };
        match Pages::WORDS.iter().find(|(word, _)| word.as_bytes() == name) {
            Some(&(_, pages)) => Ok(Self { pages, locked, cap }),
            None => {
                let words = Pages::WORDS.iter().map(|(word, _)| *word).chain(["locked"]);
                Err(ValueError { offset: 0, expected: HINT, nearest: nearest(name, words) })
            }
        }
    }
}
