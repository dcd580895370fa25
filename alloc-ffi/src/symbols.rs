//! Finds functions and variables of other loaded libraries without the dynamic linker's own lookup.
//!
//! `dlsym` may allocate, and before glibc 2.34 it is in a library of its own that a program need not have loaded.
//! `dl_iterate_phdr` has always been in libc; the rest is reading hash tables that the loader maintains.
//! Objects are visited in the loader's order, those opened with `RTLD_LOCAL` among them.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

const PT_DYNAMIC: u32 = 2;
const PT_LOAD: u32 = 1;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_VERSYM: i64 = 0x6fff_fff0;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
/// Marks a symbol version that only programs linked long ago ask for.
const VERSYM_HIDDEN: u16 = 0x8000;

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: u64,
}

/// Which objects to look in.
#[derive(Clone, Copy)]
pub(crate) enum Scope {
    /// Those that the loader lists behind this library: what `RTLD_NEXT` would search.
    Next,
    /// Those whose soname begins so, wherever they stand.
    Sonames(&'static [&'static [u8]]),
}

struct Search<'a> {
    name: &'a CStr,
    kind: u8,
    scope: Scope,
    passed_self: bool,
    found: *const c_void,
}

/// The address of a function with default visibility in the first object in scope that defines it, or null.
pub(crate) fn find(name: &CStr, scope: Scope) -> *const c_void {
    find_kind(name, STT_FUNC, scope)
}

/// As [`find`] for a variable.
pub(crate) fn find_variable(name: &CStr, scope: Scope) -> *const c_void {
    find_kind(name, STT_OBJECT, scope)
}

fn find_kind(name: &CStr, kind: u8, scope: Scope) -> *const c_void {
    let mut search = Search { name, kind, scope, passed_self: false, found: ptr::null() };
    // SAFETY: the callback runs during this call alone and gets the pointer to `search` as its data.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: `find` passes its `Search`; the loader describes a mapped object that stays during the callback.
    unsafe {
        let search = &mut *data.cast::<Search<'_>>();
        let object = Object::new(&*info);
        if object.is_self {
            search.passed_self = true;
            return 0;
        }
        let in_scope = match search.scope {
            Scope::Next => search.passed_self,
            Scope::Sonames(names) => {
                let soname = object.soname().to_bytes();
                names.iter().any(|name| soname.starts_with(name))
            }
        };
        if in_scope {
            search.found = object.symbol(search.name, search.kind);
        }
        c_int::from(!search.found.is_null())
    }
}

/// A loaded object's tables; null where it has none.
struct Object {
    base: usize,
    is_self: bool,
    symbols: *const Symbol,
    strings: *const c_char,
    gnu_hash: *const u32,
    versions: *const u16,
    soname: Option<usize>,
}

impl Object {
    /// # Safety
    /// `info` describes an object that is and stays mapped.
    unsafe fn new(info: &libc::dl_phdr_info) -> Self {
        let base = info.dlpi_addr as usize;
        let mut object = Self {
            base,
            is_self: false,
            symbols: ptr::null(),
            strings: ptr::null(),
            gnu_hash: ptr::null(),
            versions: ptr::null(),
            soname: None,
        };
        // Some loaders relocate these addresses in place, others (and read-only objects) do not.
        let address = |value: usize| if value < base { base + value } else { value };
        let here = visit as *const () as usize;
        for i in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: the object has `dlpi_phnum` program headers; its dynamic section ends with DT_NULL.
            unsafe {
                let header = &*info.dlpi_phdr.add(i);
                let start = base.wrapping_add(header.p_vaddr as usize);
                if header.p_type == PT_LOAD && here.wrapping_sub(start) < header.p_memsz as usize {
                    object.is_self = true;
                }
                if header.p_type != PT_DYNAMIC {
                    continue;
                }
                let mut entry = start as *const Dynamic;
                while (*entry).tag != 0 {
                    let value = (*entry).value;
                    match (*entry).tag {
                        DT_STRTAB => object.strings = address(value) as *const c_char,
                        DT_SYMTAB => object.symbols = address(value) as *const Symbol,
                        DT_GNU_HASH => object.gnu_hash = address(value) as *const u32,
                        DT_VERSYM => object.versions = address(value) as *const u16,
                        DT_SONAME => object.soname = Some(value),
                        _ => {}
                    }
                    entry = entry.add(1);
                }
            }
        }
        object
    }

    /// # Safety
    /// The object is mapped.
    unsafe fn soname(&self) -> &CStr {
        match self.soname {
            // SAFETY: DT_SONAME is an offset in the string table, whose strings end with a zero.
            Some(offset) if !self.strings.is_null() => unsafe { CStr::from_ptr(self.strings.add(offset)) },
            _ => c"",
        }
    }

    /// Looks a function or a variable up in the GNU hash table, which every toolchain of this century writes.
    ///
    /// # Safety
    /// The object is mapped.
    unsafe fn symbol(&self, name: &CStr, kind: u8) -> *const c_void {
        if self.gnu_hash.is_null() || self.symbols.is_null() || self.strings.is_null() {
            return ptr::null();
        }
        let hash = name.to_bytes().iter().fold(5381u32, |h, &b| h.wrapping_mul(33).wrapping_add(b.into()));
        // SAFETY: the layout of the table is fixed: four words, the Bloom filter of 64-bit words, the buckets,
        // then one word a symbol from the first hashed one on; a chain ends with a word whose lowest bit is set.
        unsafe {
            let table = self.gnu_hash;
            let (buckets, first, bloom_words) = (*table, *table.add(1), *table.add(2));
            if buckets == 0 {
                return ptr::null();
            }
            let bucket_words = table.add(4 + 2 * bloom_words as usize);
            let chain_words = bucket_words.add(buckets as usize);
            let mut index = *bucket_words.add((hash % buckets) as usize);
            if index < first {
                return ptr::null();
            }
            loop {
                let word = *chain_words.add((index - first) as usize);
                if word | 1 == hash | 1 {
                    let symbol = &*self.symbols.add(index as usize);
                    if self.defines(symbol, index, name, kind) {
                        return self.base.wrapping_add(symbol.value) as *const c_void;
                    }
                }
                if word & 1 != 0 {
                    return ptr::null();
                }
                index += 1;
            }
        }
    }

    /// # Safety
    /// `symbol` is entry `index` of this object's symbol table.
    unsafe fn defines(&self, symbol: &Symbol, index: u32, name: &CStr, kind: u8) -> bool {
        // SAFETY: names are offsets in the string table; the version table is as long as the symbol table.
        unsafe {
            let hidden = !self.versions.is_null() && *self.versions.add(index as usize) & VERSYM_HIDDEN != 0;
            symbol.section != 0
                && symbol.info & 15 == kind
                && !hidden
                && CStr::from_ptr(self.strings.add(symbol.name as usize)) == name
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_dlsym_finds() {
        for name in [c"malloc", c"pthread_create", c"getenv", c"free"] {
            // SAFETY: the name is a C string.
            let expected = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
            assert_eq!(find(name, Scope::Next), expected.cast_const(), "{name:?}");
            assert_eq!(find(name, Scope::Sonames(&[b"libc.so."])), expected.cast_const(), "{name:?}");
        }
    }

    #[test]
    fn finds_variables_by_themselves() {
        for name in [c"environ", c"stdout"] {
            // SAFETY: the name is a C string.
            let expected = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
            assert_eq!(find_variable(name, Scope::Next), expected.cast_const(), "{name:?}");
        }
        assert!(find_variable(c"malloc", Scope::Next).is_null());
    }

    #[test]
    fn finds_nothing_where_there_is_nothing() {
        assert!(find(c"no_such_function_anywhere", Scope::Next).is_null());
        assert!(find(c"malloc", Scope::Sonames(&[b"libno_such_library.so"])).is_null());
        // A variable is not a function.
        assert!(find(c"environ", Scope::Next).is_null());
    }
}
