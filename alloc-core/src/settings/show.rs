//! From settings to text: single values, the canonical line, the list with origins, and lines about problems.

use super::{Delay, Key, PerCpu, Problem, ProblemKind, Settings};
use crate::message::{Message, Sink};

impl Settings {
    /// Writes the value of `key` in the form that the parser reads.
    #[cold]
    pub fn write_value(&self, key: Key, sink: &mut dyn Sink) {
        match key {
            Key::Backend => self.backend.write(sink),
            Key::Fallback => sink.put_str(self.fallback.as_str()),
            Key::Programs => sink.put(self.programs.as_bytes()),
            Key::Thp => sink.put_str(self.thp.as_str()),
            Key::Hugetlbfs => sink.put(self.hugetlbfs.as_bytes()),
            Key::Lock => sink.put_str(self.lock.as_str()),
            Key::LockTime => sink.put_str(self.lock_time.as_str()),
            Key::LockBudget => sink.put_size(self.lock_budget),
            Key::ReleaseDelay => match self.release_delay {
                Delay::Never => sink.put_str("never"),
                Delay::Millis(ms) => write_time(ms, sink),
            },
            Key::BackgroundThread => write_bool(self.background_thread, sink),
            Key::MaxTotalThreadCacheBytes => sink.put_size(self.max_total_thread_cache_bytes),
            Key::PercpuCache => sink.put_str(self.percpu_cache.as_str()),
            Key::SoftLimit => sink.put_size(self.soft_limit),
            Key::HardLimit => sink.put_size(self.hard_limit),
            Key::Check => sink.put_str(self.check.as_str()),
            Key::Foreign => sink.put_str(self.foreign.as_str()),
            Key::InvalidFree => sink.put_str(self.invalid_free.as_str()),
            Key::StatsAtExit => sink.put_str(self.stats_at_exit.as_str()),
            Key::StatsFile => sink.put(self.stats_file.as_bytes()),
            Key::StatsInterval => write_time(self.stats_interval, sink),
            Key::AbortConf => write_bool(self.abort_conf, sink),
            Key::ConfirmConf => write_bool(self.confirm_conf, sink),
        }
    }

    /// Writes all settings as one line, `key:value,key:value`, which parsed over [`Settings::DEFAULT`] gives the
    /// same values.
    pub fn write_line(&self, sink: &mut dyn Sink) {
        for (i, key) in Key::ALL.into_iter().enumerate() {
            if i > 0 {
                sink.put(b",");
            }
            sink.put_str(key.name());
            sink.put(b":");
            self.write_value(key, sink);
        }
    }

    /// Prints every value and where it came from to standard error, one line each.
    #[cold]
    pub fn confirm(&self) {
        for key in Key::ALL {
            let mut message = Message::new().str("conf ").str(key.name()).str(":");
            self.write_value(key, &mut message);
            message.put_str(" (");
            message.put_str(self.origin(key).name());
            message.put_str(")");
            message.put_str(self.remark(key));
            message.send();
        }
    }

    /// What has to be said about a value so that nobody takes it for more than it is.
    fn remark(&self, key: Key) -> &'static str {
        match key {
            Key::PercpuCache
                if self.percpu_cache == PerCpu::Always && !crate::global::has_per_cpu_caches() =>
            {
                "; where the kernel and libc have restartable sequences, per-thread caches elsewhere"
            }
            Key::Backend if self.excluded => "; plain 4k because `programs` does not name this executable",
            _ => "",
        }
    }
}

fn write_bool(value: bool, sink: &mut dyn Sink) {
    sink.put_str(if value { "true" } else { "false" });
}

/// A time in the largest unit that divides it.
fn write_time(ms: u32, sink: &mut dyn Sink) {
    let (count, unit) = match ms {
        0 => (0, ""),
        _ if !ms.is_multiple_of(1000) => (ms, "ms"),
        _ if !ms.is_multiple_of(60_000) => (ms / 1000, "s"),
        _ => (ms / 60_000, "m"),
    };
    sink.put_dec(u64::from(count));
    sink.put_str(unit);
}

impl Problem<'_> {
    /// The line about this problem.
    #[cold]
    pub fn message(&self) -> Message {
        let word = self.word;
        let mut m = match self.kind {
            ProblemKind::UnknownVariable => Message::new().str("environment: "),
            ProblemKind::Unreadable => {
                return Message::new().str(self.origin.name()).str(" cannot be read (ignored)");
            }
            ProblemKind::LongFile => {
                let m = Message::new().str(self.origin.name()).str(" is longer than ");
                return m.dec(super::file::FILE_LEN as u64).str(" bytes (the rest is ignored)");
            }
            _ if self.line > 0 => {
                let m = Message::new().str(self.origin.name()).str(": line ").dec(self.line as u64);
                m.str(", column ").dec(self.column as u64).str(": ")
            }
            _ => Message::new().str(self.origin.name()).str(": column ").dec(self.column as u64).str(": "),
        };
        let quoted = |m: Message| m.str("\"").bytes(word.get(..96).unwrap_or(word)).str("\"");
        m = match self.kind {
            ProblemKind::UnknownKey => quoted(m.str("unknown key ")),
            ProblemKind::UnknownVariable => quoted(m.str("unknown variable ")),
            ProblemKind::LongLine => m.str("longer than ").dec(super::file::LINE_LEN as u64).str(" bytes"),
            ProblemKind::BadSection => {
                return quoted(m.str("no program in ")).str(", expected [name|name] (section ignored)");
            }
            ProblemKind::Unreadable | ProblemKind::LongFile => m,
            ProblemKind::NoColon => quoted(m.str("no value for ")).str(", expected ").str(self.expected),
            ProblemKind::BadValue(key) => {
                quoted(m.str("bad value ")).str(" for ").str(key.name()).str(", expected ").str(self.expected)
            }
            ProblemKind::WithoutEffect => return quoted(m).str(" is accepted and has no effect here"),
        };
        if let Some(nearest) = self.nearest {
            m = m.str("; did you mean \"").str(nearest).str("\"?");
        }
        m.str(" (ignored)")
    }
}
