//! A minimal client of the server's protocol over its Unix socket: logging in without a password, and text queries.
//!
//! Ten thousand sessions of it cost the bench two buffers each, and none of a client library's threads.
//! Source: "Client/Server Protocol" in the MariaDB and MySQL manuals.

use anyhow::{Context, Result, bail, ensure};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

const LONG_PASSWORD: u32 = 1;
const CONNECT_WITH_DB: u32 = 1 << 3;
const PROTOCOL_41: u32 = 1 << 9;
const TRANSACTIONS: u32 = 1 << 13;
const SECURE_CONNECTION: u32 = 1 << 15;
const PLUGIN_AUTH: u32 = 1 << 19;

/// utf8mb4_general_ci, the default of the command-line client.
const CHARACTER_SET: u8 = 45;
const LARGEST_PACKET: u32 = 1 << 24;
const COM_QUIT: u8 = 1;
const COM_QUERY: u8 = 3;

/// An open session.
#[derive(Debug)]
pub(super) struct Session {
    stream: UnixStream,
    packet: Vec<u8>,
}

/// What a query ended with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Rows, or none for a statement that gives none.
    Rows(Vec<Row>),
    /// The server's own error number and message, such as 1213 for a deadlock.
    Error(u16, String),
}

/// The columns of a row as text; `None` for NULL.
pub(super) type Row = Vec<Option<String>>;

impl Session {
    /// Connects and logs in as root, who has no password, and tries again for `patience` while the server's queue of
    /// connections is full or it has not started yet. Returns the session and the number of refused attempts.
    ///
    /// # Errors
    /// When the server refuses the session or does not answer for a minute.
    pub(super) fn open(socket: &Path, database: &str, patience: Duration) -> Result<(Self, u32)> {
        let start = Instant::now();
        let mut refused = 0;
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EAGAIN | libc::ECONNREFUSED | libc::ENOENT)
                    ) && start.elapsed() < patience =>
                {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error).context("cannot connect to the server"),
            }
        };
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_write_timeout(Some(Duration::from_secs(60)))?;
        let mut session = Self { stream, packet: Vec::new() };
        session.log_in(database)?;
        Ok((session, refused))
    }

    /// Runs one statement and reads its whole answer.
    ///
    /// # Errors
    /// When the connection is lost. An error of the server's is an answer.
    pub(super) fn query(&mut self, text: &str) -> Result<Answer> {
        let mut body = Vec::with_capacity(text.len() + 1);
        body.push(COM_QUERY);
        body.extend_from_slice(text.as_bytes());
        self.send(0, &body)?;
        self.receive()?;
        match self.packet.first() {
            Some(0x00) => return Ok(Answer::Rows(Vec::new())),
            Some(0xff) => return self.error(),
            _ => {}
        }
        let columns = number(&mut &self.packet[..])?.context("a count of columns")?;
        for _ in 0..=columns {
            // The descriptions of the columns and the mark of their end.
            self.receive()?;
        }
        let mut rows = Vec::new();
        loop {
            self.receive()?;
            match self.packet.first() {
                Some(0xfe) if self.packet.len() < 9 => return Ok(Answer::Rows(rows)),
                Some(0xff) => return self.error(),
                _ => {}
            }
            let mut rest = &self.packet[..];
            let mut row = Row::new();
            for _ in 0..columns {
                row.push(text_of(&mut rest)?);
            }
            rows.push(row);
        }
    }

    /// Runs a statement that must succeed.
    ///
    /// # Errors
    /// With the server's message.
    pub(super) fn rows(&mut self, text: &str) -> Result<Vec<Row>> {
        match self.query(text)? {
            Answer::Rows(rows) => Ok(rows),
            Answer::Error(code, message) => bail!("`{text}`: error {code}: {message}"),
        }
    }

    /// Says good-bye and waits until the server has closed the connection, which it does when the session's memory is
    /// given back to its heap.
    pub(super) fn close(mut self) {
        if self.send(0, &[COM_QUIT]).is_ok() {
            // Nothing comes but the end; what else it may be does not matter any more.
            let _ = self.stream.read(&mut [0; 64]);
        }
    }

    fn log_in(&mut self, database: &str) -> Result<()> {
        self.receive()?;
        if self.packet.first() == Some(&0xff) {
            let Answer::Error(code, message) = self.error()? else { bail!("an error without a number") };
            bail!("the server refuses the session: error {code}: {message}");
        }
        ensure!(self.packet.first() == Some(&10), "the server speaks another protocol than version 10");
        let mut flags = LONG_PASSWORD | PROTOCOL_41 | TRANSACTIONS | SECURE_CONNECTION | PLUGIN_AUTH;
        if !database.is_empty() {
            flags |= CONNECT_WITH_DB;
        }
        let mut body = Vec::new();
        body.extend_from_slice(&flags.to_le_bytes());
        body.extend_from_slice(&LARGEST_PACKET.to_le_bytes());
        body.push(CHARACTER_SET);
        body.extend_from_slice(&[0; 23]);
        // The name, and the length of the password's digest.
        body.extend_from_slice(b"root\0\0");
        if !database.is_empty() {
            body.extend_from_slice(database.as_bytes());
            body.push(0);
        }
        body.extend_from_slice(b"mysql_native_password\0");
        self.send(1, &body)?;
        self.receive()?;
        if self.packet.first() == Some(&0xfe) {
            // It asks for the digest once more, under the rules of another plugin: no password, no bytes.
            self.send(3, &[])?;
            self.receive()?;
        }
        match self.packet.first() {
            Some(0x00) => Ok(()),
            Some(0xff) => match self.error()? {
                Answer::Error(code, message) => bail!("cannot log in: error {code}: {message}"),
                Answer::Rows(_) => bail!("cannot log in"),
            },
            other => bail!("cannot log in: an answer of kind {other:?}"),
        }
    }

    fn error(&self) -> Result<Answer> {
        let [_, low, high, rest @ ..] = &self.packet[..] else { bail!("an error without a number") };
        // A mark and five characters of the SQL state stand before the message, once logged in.
        let text = if rest.first() == Some(&b'#') { rest.get(6..).unwrap_or_default() } else { rest };
        Ok(Answer::Error(u16::from_le_bytes([*low, *high]), String::from_utf8_lossy(text).into_owned()))
    }

    fn send(&mut self, sequence: u8, body: &[u8]) -> Result<()> {
        let length = u32::try_from(body.len())?.to_le_bytes();
        let mut packet = vec![length[0], length[1], length[2], sequence];
        packet.extend_from_slice(body);
        self.stream.write_all(&packet).context("cannot write to the server")
    }

    /// Reads the next packet into the buffer.
    fn receive(&mut self) -> Result<()> {
        let mut head = [0; 4];
        self.read(&mut head)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
        let mut packet = std::mem::take(&mut self.packet);
        packet.resize(length, 0);
        let done = self.read(&mut packet);
        self.packet = packet;
        done
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.stream.read_exact(buffer).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => anyhow::anyhow!("the server closed the connection"),
            _ => anyhow::Error::new(error).context("no answer from the server"),
        })
    }
}

/// A length-encoded number at the front of `bytes`; `None` stands for NULL.
fn number(bytes: &mut &[u8]) -> Result<Option<u64>> {
    let (&first, rest) = bytes.split_first().context("a packet is too short")?;
    *bytes = rest;
    let width = match first {
        0xfb => return Ok(None),
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        small => return Ok(Some(small.into())),
    };
    let (digits, rest) = bytes.split_at_checked(width).context("a packet is too short")?;
    *bytes = rest;
    Ok(Some(digits.iter().rev().fold(0, |value, digit| value << 8 | u64::from(*digit))))
}

fn text_of(bytes: &mut &[u8]) -> Result<Option<String>> {
    let Some(length) = number(bytes)? else { return Ok(None) };
    let (text, rest) = bytes.split_at_checked(length as usize).context("a packet is too short")?;
    *bytes = rest;
    Ok(Some(String::from_utf8_lossy(text).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_widths() {
        for (bytes, expected) in [
            (&[7][..], Some(7)),
            (&[0xfb], None),
            (&[0xfc, 1, 2], Some(0x0201)),
            (&[0xfd, 1, 2, 3], Some(0x03_0201)),
            (&[0xfe, 1, 0, 0, 0, 0, 0, 0, 1], Some(0x0100_0000_0000_0001)),
        ] {
            let mut rest = bytes;
            assert_eq!(number(&mut rest).unwrap(), expected);
            assert!(rest.is_empty());
        }
        assert!(number(&mut &[0xfc, 1][..]).is_err());
        assert!(number(&mut &[][..]).is_err());
    }

    #[test]
    fn texts_and_nulls() {
        let mut rest = &[2, b'a', b'b', 0xfb, 0][..];
        assert_eq!(text_of(&mut rest).unwrap().as_deref(), Some("ab"));
        assert_eq!(text_of(&mut rest).unwrap(), None);
        assert_eq!(text_of(&mut rest).unwrap().as_deref(), Some(""));
        assert!(text_of(&mut &[3, b'a'][..]).is_err());
    }
}
