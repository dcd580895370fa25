//! Short texts held by value.

/// At most `N` bytes of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// No text.
    pub const EMPTY: Self = Self { bytes: [0; N], len: 0 };

    /// The bytes, or `None` if there are more than `N`.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut text = Self::EMPTY;
        text.append(bytes).then_some(text)
    }

    /// Appends bytes; false, and no change, if they do not fit.
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        let end = self.len.saturating_add(bytes.len());
        match self.bytes.get_mut(self.len..end) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.len = end;
                true
            }
            None => false,
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}
