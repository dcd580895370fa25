//! What can go wrong, in one line each, with its exit code.

use std::{fmt, io};

/// Why there are no numbers.
#[derive(Debug)]
pub(crate) enum Error {
    /// Something unexpected.
    Io(io::Error),
    /// The process does not exist, or ended meanwhile.
    NoProcess(u32),
    /// The process has no memory map.
    NoMemory(u32),
    /// The process may not be read by this user.
    NoPermission(u32),
    /// No object in the process carries the note.
    NotOnStratalloc(u32),
    /// The allocator is there, but nothing was published yet.
    NothingPublished(u32),
    /// The process is the child of a fork and has only its parent's numbers.
    OnlyParents { pid: u32, parent: u32 },
    /// The page has another layout.
    OtherLayout { pid: u32, theirs: u32, ours: u32 },
    /// A writer was at work at each attempt.
    Busy(u32),
}

impl Error {
    /// The exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Io(_) => 1,
            Self::NoProcess(_) | Self::NoMemory(_) => 3,
            Self::NoPermission(_) => 4,
            Self::NotOnStratalloc(_) => 5,
            Self::NothingPublished(_)
            | Self::OnlyParents { .. }
            | Self::OtherLayout { .. }
            | Self::Busy(_) => 6,
        }
    }

    /// Whether this error about one object of a process says more than `other` about another.
    pub(crate) fn knows_more_than(&self, other: &Self) -> bool {
        let rank = |error: &Self| match error {
            Self::NotOnStratalloc(_) => 0,
            Self::OtherLayout { .. } => 1,
            Self::NothingPublished(_) => 2,
            _ => 3,
        };
        rank(self) > rank(other)
    }

    /// The meaning of a failed system call on a process.
    pub(crate) fn of_call(pid: u32, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Self::NoProcess(pid),
            Some(libc::EACCES | libc::EPERM) => Self::NoPermission(pid),
            _ => Self::Io(error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::NoProcess(pid) => write!(f, "no process {pid}"),
            Self::NoMemory(pid) => {
                write!(f, "process {pid} has no memory to read: it has ended, or is a kernel thread")
            }
            Self::NoPermission(pid) => write!(
                f,
                "no permission to read process {pid}: run as root or with CAP_SYS_PTRACE (or read its stats_file)"
            ),
            Self::NotOnStratalloc(pid) => write!(
                f,
                "process {pid} does not run on stratalloc: nothing in its memory map carries the stratalloc note"
            ),
            Self::NothingPublished(pid) => write!(
                f,
                "process {pid} has stratalloc, but has published no numbers yet (it does after some milliseconds of allocating)"
            ),
            Self::OnlyParents { pid, parent } => write!(
                f,
                "process {pid} has stratalloc, but has published no numbers since it was forked from {parent}"
            ),
            Self::OtherLayout { pid, theirs, ours } => write!(
                f,
                "process {pid} publishes numbers in layout {theirs}, this tool reads layout {ours}: use the tool \
                 of its version"
            ),
            Self::Busy(pid) => {
                write!(f, "process {pid} was publishing at each attempt to read it: try again")
            }
        }
    }
}
