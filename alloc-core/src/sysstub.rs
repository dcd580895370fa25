//! stub
use page_backend::*;
pub(crate) struct System;
impl System {
    pub(crate) const fn new() -> Self {
        System
    }
}
unsafe impl PageBackend for System {
    fn granule(&self) -> usize {
        4096
    }
    fn map(&self, _s: usize, _a: usize) -> Result<Mapping, MapError> {
        todo!()
    }
    unsafe fn purge(&self, _p: core::ptr::NonNull<u8>, _s: usize, _t: Tier) -> Result<(), MapError> {
        todo!()
    }
    unsafe fn unmap(&self, _p: core::ptr::NonNull<u8>, _s: usize, _t: Tier) -> Result<(), MapError> {
        todo!()
    }
    fn capabilities(&self, _t: Tier) -> Capabilities {
        todo!()
    }
    fn name(&self, _t: Tier) -> &'static str {
        ""
    }
    fn usage(&self, _t: Tier) -> Usage {
        todo!()
    }
}
