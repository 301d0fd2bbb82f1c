//! A capture of inner packets in pcapng (draft-ietf-opsawg-pcapng), for looking at what a tunnel
//! carries.
//!
//! It holds everything in the clear that the tunnel is there to hide. So it has to be asked for, only
//! its owner may read it, it never replaces a file, and it ends at a size.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::config::DebugConfig;
use crate::error::StartError;

/// Link type of packets that begin with their IP header.
const LINKTYPE_RAW: u16 = 101;
const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
/// Tells the reader our byte order.
const MAGIC: u32 = 0x1A2B_3C4D;
/// Option with a packet's direction.
const FLAGS: u16 = 2;

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Came out of the tunnel.
    Inbound = 1,
    Outbound = 2,
}

#[derive(Debug)]
pub struct Capture {
    file: BufWriter<File>,
    /// Bytes that may still be written.
    left: u64,
    ended: bool,
}

impl Capture {
    /// The file for inner packets, if there is to be one.
    pub(crate) fn configured(debug: &DebugConfig) -> Result<Option<Self>, StartError> {
        let Some(path) = &debug.capture else {
            return Ok(None);
        };
        tracing::warn!(
            file = %path.display(),
            "everything the tunnel carries is written to a file IN THE CLEAR"
        );
        let capture = Self::create(path, debug.capture_limit);
        Ok(Some(capture.map_err(|source| StartError::Capture {
            path: path.clone(),
            source,
        })?))
    }

    /// Creates the file, with `limit` bytes at most.
    ///
    /// # Errors
    /// Those of creating a file; `AlreadyExists` if it is there.
    pub fn create(path: &Path, limit: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        let mut capture = Self {
            file: BufWriter::new(file),
            left: limit,
            ended: false,
        };
        let mut section = Vec::new();
        section.extend(MAGIC.to_le_bytes());
        // Version 1.0; the section's length is not known.
        section.extend([1, 0, 0, 0]);
        section.extend(u64::MAX.to_le_bytes());
        capture.block(SECTION_HEADER, &section)?;
        let mut interface = Vec::new();
        interface.extend(LINKTYPE_RAW.to_le_bytes());
        // Reserved; no limit to a packet's length.
        interface.extend([0; 6]);
        capture.block(INTERFACE_DESCRIPTION, &interface)?;
        Ok(capture)
    }

    /// Writes one packet. Once the file is full or broken, nothing more is written.
    pub fn packet(&mut self, bytes: &[u8], direction: Direction, now: SystemTime) {
        if self.ended {
            return;
        }
        match self.try_packet(bytes, direction, now) {
            Ok(true) => {}
            Ok(false) => self.end("the capture is full and ends"),
            Err(error) => self.end(&format!("the capture ends: {error}")),
        }
    }

    fn try_packet(
        &mut self,
        bytes: &[u8],
        direction: Direction,
        now: SystemTime,
    ) -> io::Result<bool> {
        let micros = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let micros = u64::try_from(micros.as_micros()).unwrap_or(u64::MAX);
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut body = Vec::with_capacity(bytes.len() + 40);
        // Interface 0, then the time's upper and lower half.
        body.extend([0; 4]);
        let [t0, t1, t2, t3, t4, t5, t6, t7] = micros.to_le_bytes();
        body.extend([t4, t5, t6, t7, t0, t1, t2, t3]);
        body.extend(len.to_le_bytes());
        body.extend(len.to_le_bytes());
        body.extend_from_slice(bytes);
        // Blocks are of whole words.
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(FLAGS.to_le_bytes());
        body.extend(4_u16.to_le_bytes());
        body.extend((direction as u32).to_le_bytes());
        // End of options.
        body.extend([0; 4]);
        self.block(ENHANCED_PACKET, &body)
    }

    /// Writes a block. False when there is no room for it.
    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<bool> {
        let total = u32::try_from(body.len() + 12).unwrap_or(u32::MAX);
        let Some(left) = self.left.checked_sub(u64::from(total)) else {
            return Ok(false);
        };
        self.left = left;
        self.file.write_all(&kind.to_le_bytes())?;
        self.file.write_all(&total.to_le_bytes())?;
        self.file.write_all(body)?;
        self.file.write_all(&total.to_le_bytes())?;
        Ok(true)
    }

    fn end(&mut self, why: &str) {
        tracing::warn!("{why}");
        self.flush();
        self.ended = true;
    }

    /// Writes out what is buffered.
    pub fn flush(&mut self) {
        if !self.ended
            && let Err(error) = self.file.flush()
        {
            self.ended = true;
            tracing::warn!(%error, "the capture ends");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const HEADERS: u64 = 28 + 20;

    fn packet_block(len: u64) -> u64 {
        12 + 20 + len.next_multiple_of(4) + 12
    }

    #[test]
    fn capture_blocks_have_their_length_and_end_at_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("inner.pcapng");
        let mut capture = Capture::create(&path, HEADERS + 2 * packet_block(21)).unwrap();
        for _ in 0..3 {
            capture.packet(&[0x45; 21], Direction::Inbound, SystemTime::now());
        }
        drop(capture);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, HEADERS + 2 * packet_block(21));
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (mut at, mut kinds) = (0, Vec::new());
        while at < bytes.len() {
            let total = usize::try_from(word(at + 4)).unwrap();
            assert_eq!(word(at + total - 4), word(at + 4));
            kinds.push(word(at));
            at += total;
        }
        assert_eq!(kinds, [SECTION_HEADER, 1, 6, 6]);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn capture_never_replaces_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("inner.pcapng");
        std::fs::write(&path, "mine").unwrap();
        let error = Capture::create(&path, 1000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }
}
