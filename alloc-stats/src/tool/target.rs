//! The memory of another process: its map and its bytes.

use crate::error::Error;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// A process to read.
pub(crate) struct Target {
    pid: u32,
    mem: Option<File>,
}

/// The start of a mapped file.
pub(crate) struct Object {
    /// Where its first byte is mapped.
    pub(crate) start: u64,
    /// Its path.
    pub(crate) path: String,
}

impl Target {
    /// Nothing is opened yet.
    pub(crate) fn new(pid: u32) -> Self {
        Self { pid, mem: None }
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// All files whose beginning is mapped and readable, likely ones first.
    pub(crate) fn objects(&self) -> Result<Vec<Object>, Error> {
        let maps = fs::read(format!("/proc/{}/maps", self.pid)).map_err(|e| Error::of_call(self.pid, e))?;
        if maps.is_empty() {
            return Err(Error::NoMemory(self.pid));
        }
        let mut objects: Vec<Object> = String::from_utf8_lossy(&maps).lines().filter_map(object).collect();
        objects.sort_by_key(|object| !object.path.contains("stratalloc"));
        Ok(objects)
    }

    /// The process's id in the innermost pid namespace that it is in, as it sees itself.
    pub(crate) fn own_pid(&self) -> Result<u32, Error> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))
            .map_err(|e| Error::of_call(self.pid, e))?;
        let inner = status
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))
            .and_then(|ids| ids.split_whitespace().last())
            .and_then(|id| id.parse().ok());
        Ok(inner.unwrap_or(self.pid))
    }

    /// Fills `bytes` from `address`.
    pub(crate) fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Error> {
        if self.mem.is_none() {
            match self.read_directly(address, bytes) {
                Ok(count) if count == bytes.len() => return Ok(()),
                // Refused by a filter or compiled out: the file may still be allowed.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    let path = format!("/proc/{}/mem", self.pid);
                    self.mem = Some(File::open(path).map_err(|e| Error::of_call(self.pid, e))?);
                }
                Err(e) => return Err(Error::of_call(self.pid, e)),
                Ok(_) => return Err(Error::Io(io::Error::from_raw_os_error(libc::EFAULT))),
            }
        }
        match &self.mem {
            Some(file) => file.read_exact_at(bytes, address).map_err(|e| Error::of_call(self.pid, e)),
            None => Err(Error::NoPermission(self.pid)),
        }
    }

    fn read_directly(&self, address: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: address as *mut _, iov_len: bytes.len() };
        // SAFETY: the local vector is a live, exclusively borrowed buffer; the remote one is another process's
        // affair and checked by the kernel.
        let count = unsafe { libc::process_vm_readv(self.pid as libc::pid_t, &local, 1, &remote, 1, 0) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }
}

/// Reads a line of `maps`: `start-end permissions offset device inode path`.
fn object(line: &str) -> Option<Object> {
    let mut rest = line;
    let mut field = || {
        let trimmed = rest.trim_start();
        let (word, tail) = trimmed.split_at(trimmed.find(' ').unwrap_or(trimmed.len()));
        rest = tail;
        word
    };
    let (range, permissions, offset) = (field(), field(), field());
    let (_device, inode) = (field(), field());
    let path = rest.trim_start();
    let is_file = inode != "0" && u64::from_str_radix(offset, 16) == Ok(0) && permissions.starts_with('r');
    let start = u64::from_str_radix(range.split('-').next()?, 16).ok()?;
    is_file.then(|| Object { start, path: path.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_memory_map() {
        let file = object("7f0000000000-7f0000001000 r--p 00000000 fe:01 1234   /opt/my lib/a.so (deleted)")
            .unwrap();
        assert_eq!((file.start, file.path.as_str()), (0x7f00_0000_0000, "/opt/my lib/a.so (deleted)"));
        for other in [
            "7f0000000000-7f0000001000 r-xp 00001000 fe:01 1234 /opt/a.so",
            "7f0000000000-7f0000001000 rw-p 00000000 00:00 0",
            "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 [heap]",
            "7f0000000000-7f0000001000 ---p 00000000 fe:01 1234 /opt/a.so",
            "",
        ] {
            assert!(object(other).is_none(), "{other}");
        }
    }
}
