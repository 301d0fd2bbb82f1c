//! Bounded reading: every read is checked and every error knows its offset.

/// Mistake in a message, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at byte {offset}")]
pub struct DecodeError {
    /// Byte of the message, or of the opened Encrypted payload, at which decoding stopped.
    pub offset: usize,
    /// The mistake.
    pub reason: Reason,
}

/// Kinds of malformed messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// A field or structure ends behind the end of what holds it.
    #[error("truncated {0}")]
    Truncated(&'static str),
    /// Bytes are left over where a structure must end.
    #[error("{0} bytes too many")]
    Trailing(usize),
    /// A length field contradicts its surroundings.
    #[error("wrong length of {0}")]
    Length(&'static str),
    /// More elements than we accept.
    #[error("too many {0}")]
    TooMany(&'static str),
    /// A value that the standard does not allow here.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// The version is not 2.
    #[error("major version {0}")]
    MajorVersion(u8),
    /// A payload that we do not know and must not skip (RFC 7296 §2.5).
    #[error("unknown critical payload {0}")]
    UnknownCritical(u8),
}

/// A cursor over a part of a message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, which lie at `offset` of the message.
    pub const fn new(bytes: &'a [u8], offset: usize) -> Self {
        Self {
            rest: bytes,
            offset,
        }
    }

    /// Bytes not yet read.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Offset of the next byte in the message.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// An error here.
    pub const fn error(&self, reason: Reason) -> DecodeError {
        DecodeError {
            offset: self.offset,
            reason,
        }
    }

    /// The next `count` bytes; `what` names them in the error.
    pub fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let Some((head, tail)) = self.rest.split_at_checked(count) else {
            return Err(self.error(Reason::Truncated(what)));
        };
        self.rest = tail;
        self.offset = self.offset.saturating_add(count);
        Ok(head)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let Some((head, tail)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.error(Reason::Truncated(what)));
        };
        self.rest = tail;
        self.offset = self.offset.saturating_add(N);
        Ok(*head)
    }

    /// One byte.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        let [byte] = self.array(what)?;
        Ok(byte)
    }

    /// Two bytes, most significant first.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.array(what)?))
    }

    /// Four bytes, most significant first.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array(what)?))
    }

    /// Eight bytes, most significant first.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array(what)?))
    }

    /// A reader over the next `count` bytes.
    pub fn sub(&mut self, count: usize, what: &'static str) -> Result<Self, DecodeError> {
        let offset = self.offset;
        Ok(Self::new(self.take(count, what)?, offset))
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.rest;
        self.offset = self.offset.saturating_add(rest.len());
        self.rest = &[];
        rest
    }

    /// Succeeds if all was read.
    pub const fn finish(&self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(self.error(Reason::Trailing(count))),
        }
    }
}

/// Writes `body` behind a two-byte length that counts itself and `before` further bytes.
///
/// A body too long for the length field is cut short of it by the caller's bounds; should that fail,
/// the length saturates and the peer refuses the message.
pub(super) fn patch_len16(out: &mut [u8], start: usize, field: usize) {
    let len = out.len().saturating_sub(start);
    let len = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
    let end = field.saturating_add(2);
    if let Some(place) = out.get_mut(field..end) {
        place.copy_from_slice(&len);
    }
}
