//! Framing of IKE and ESP in a TCP stream (RFC 9329), without sockets.
//!
//! ```text
//! "IKETCP"                                  once, from whoever opened the connection (§4)
//! length (16 bits, itself included) | 0 0 0 0 | IKE message    (§3.1)
//! length                            | ESP packet               (§3.2)
//! ```

/// The first bytes of whoever opened the connection (RFC 9329 §4).
pub const PREFIX: [u8; 6] = *b"IKETCP";
/// Bytes of the length field.
const LENGTH: usize = 2;
/// The first bytes of an IKE message; an SPI is never zero (RFC 9329 §3.2).
const NON_ESP_MARKER: [u8; 4] = [0; 4];
/// Content that keeps address translation alive over UDP. Nobody need send it over TCP; whoever does is not wrong
/// (RFC 9329 §6.6).
const KEEPALIVE: [u8; 1] = [0xFF];
/// Capacity up to which the buffer of an incomplete message is kept (our choice): what packets of a path take.
const KEPT: usize = 4096;

/// Content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// An IKE message, with its non-ESP marker.
    Ike(&'a [u8]),
    /// An ESP packet, from its SPI on.
    Esp(&'a [u8]),
}

/// Why a stream cannot be read on. The connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    #[error("it does not begin with IKETCP")]
    Prefix,
    /// Neither IKE nor ESP is as short.
    #[error("a message of length {0}")]
    Length(u16),
}

/// Takes a stream apart. It holds at most one incomplete message, of up to 65535 bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Bytes of the prefix that are still to come.
    prefix: usize,
    /// An incomplete frame, with its length.
    partial: Vec<u8>,
}

impl Decoder {
    /// For the stream of whoever opened the connection.
    pub const fn of_opener() -> Self {
        Self {
            prefix: PREFIX.len(),
            partial: Vec::new(),
        }
    }

    /// For the stream of the other side, which sends no prefix.
    pub const fn of_acceptor() -> Self {
        Self {
            prefix: 0,
            partial: Vec::new(),
        }
    }

    /// Takes received bytes, and gives each frame that is complete to `each`.
    ///
    /// # Errors
    /// [`StreamError`], after the frames in front of it; the rest is dropped.
    pub fn push(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(Frame<'_>),
    ) -> Result<(), StreamError> {
        let mut rest = self.skip_prefix(bytes)?;
        while !rest.is_empty() {
            if self.partial.is_empty() {
                match split(rest)? {
                    Some((content, behind)) => {
                        deliver(content, each)?;
                        rest = behind;
                    }
                    None => {
                        self.partial.extend_from_slice(rest);
                        return Ok(());
                    }
                }
                continue;
            }
            // No more than this frame lacks is copied, so that the buffer never has two.
            let wanted = match total(&self.partial)? {
                Some(total) => total,
                None => LENGTH,
            };
            let missing = wanted.saturating_sub(self.partial.len()).min(rest.len());
            let (now, behind) = rest.split_at(missing);
            self.partial.extend_from_slice(now);
            rest = behind;
            if let Some((content, _)) = split(&self.partial)? {
                let delivered = deliver(content, each);
                self.partial.clear();
                self.partial.shrink_to(KEPT);
                delivered?;
            }
        }
        Ok(())
    }

    /// Bytes that are held back.
    pub const fn held(&self) -> usize {
        self.partial.len()
    }

    fn skip_prefix<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], StreamError> {
        let mut rest = bytes;
        while let Some(expected) = PREFIX.get(PREFIX.len().saturating_sub(self.prefix)) {
            let Some((first, behind)) = rest.split_first() else {
                break;
            };
            if first != expected {
                return Err(StreamError::Prefix);
            }
            self.prefix = self.prefix.saturating_sub(1);
            rest = behind;
        }
        Ok(rest)
    }
}

/// Length of the frame that begins here; none before it is known.
fn total(bytes: &[u8]) -> Result<Option<usize>, StreamError> {
    let Some(length) = bytes.first_chunk::<LENGTH>() else {
        return Ok(None);
    };
    let length = u16::from_be_bytes(*length);
    match usize::from(length) {
        total if total >= LENGTH => Ok(Some(total)),
        _ => Err(StreamError::Length(length)),
    }
}

/// Content of a frame, and what is behind it.
type Parts<'a> = (&'a [u8], &'a [u8]);

/// Splits the first frame off, if it is complete.
fn split(bytes: &[u8]) -> Result<Option<Parts<'_>>, StreamError> {
    let Some(total) = total(bytes)? else {
        return Ok(None);
    };
    let parts = bytes.split_at_checked(total);
    Ok(parts.map(|(frame, behind)| (frame.get(LENGTH..).unwrap_or_default(), behind)))
}

fn deliver(content: &[u8], each: &mut dyn FnMut(Frame<'_>)) -> Result<(), StreamError> {
    match content {
        // Empty ones are ignored (RFC 9329 §3).
        [] => {}
        _ if content == KEEPALIVE => {}
        _ if content.len() < NON_ESP_MARKER.len() => {
            let length = content.len().saturating_add(LENGTH);
            return Err(StreamError::Length(u16::try_from(length).unwrap_or(0)));
        }
        _ if content.starts_with(&NON_ESP_MARKER) => each(Frame::Ike(content)),
        _ => each(Frame::Esp(content)),
    }
    Ok(())
}

/// Frames on their way out. Only whole ones are taken.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    sent: usize,
}

impl Encoder {
    /// Begins the stream of whoever opens a connection, with what waits already behind the prefix.
    pub fn begin(&mut self) {
        let waiting = self.pending().to_vec();
        self.clear();
        self.bytes.extend_from_slice(&PREFIX);
        self.bytes.extend_from_slice(&waiting);
    }

    /// Takes a message as a frame; false if it is too long for one, or more than `most` bytes would wait.
    pub fn push(&mut self, content: &[u8], most: usize) -> bool {
        let total = content.len().saturating_add(LENGTH);
        let Ok(length) = u16::try_from(total) else {
            return false;
        };
        if self.waiting().saturating_add(total) > most {
            return false;
        }
        if self.sent > 0 && self.sent >= self.bytes.len().div_euclid(2) {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        self.bytes.extend_from_slice(&length.to_be_bytes());
        self.bytes.extend_from_slice(content);
        true
    }

    /// Bytes to be sent.
    pub fn pending(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// How many these are.
    pub const fn waiting(&self) -> usize {
        self.bytes.len().saturating_sub(self.sent)
    }

    /// Notes that so many of them were sent.
    pub fn advance(&mut self, count: usize) {
        self.sent = self.sent.saturating_add(count).min(self.bytes.len());
        if self.sent == self.bytes.len() {
            self.clear();
        }
    }

    /// Drops all of them: a frame that was cut off has no end on another connection.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(content: &[u8]) -> Vec<u8> {
        let mut encoder = Encoder::default();
        assert!(encoder.push(content, usize::MAX));
        encoder.pending().to_vec()
    }

    /// What a decoder makes of pieces of a stream, "ike" and "esp" in front of the contents.
    fn decoded(mut decoder: Decoder, pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Result<(), StreamError>) {
        let mut out = Vec::new();
        for piece in pieces {
            let done = decoder.push(piece, &mut |frame| {
                out.push(match frame {
                    Frame::Ike(content) => [b"ike", content].concat(),
                    Frame::Esp(content) => [b"esp", content].concat(),
                });
            });
            assert!(decoder.held() <= usize::from(u16::MAX));
            if done.is_err() {
                return (out, done);
            }
        }
        (out, Ok(()))
    }

    const IKE: [u8; 6] = [0, 0, 0, 0, 7, 8];
    const ESP: [u8; 8] = [1, 2, 3, 4, 0, 0, 0, 1];

    #[test]
    fn frames_are_the_same_in_whatever_pieces_they_come() {
        let stream = [PREFIX.to_vec(), frame(&IKE), frame(&ESP), frame(&IKE)].concat();
        assert_eq!(stream[..10], *b"IKETCP\x00\x08\x00\x00");
        let expected = [
            [b"ike", &IKE[..]].concat(),
            [b"esp", &ESP[..]].concat(),
            [b"ike", &IKE[..]].concat(),
        ];
        for size in 1..=stream.len() {
            let pieces: Vec<&[u8]> = stream.chunks(size).collect();
            let (out, done) = decoded(Decoder::of_opener(), &pieces);
            assert_eq!((out.as_slice(), done), (&expected[..], Ok(())), "{size}");
        }
    }

    #[test]
    fn stream_without_its_prefix_is_refused_at_the_first_wrong_byte() {
        for (stream, wrong) in [
            (&b"GET / HTTP/1.1\r\n"[..], true),
            (b"IKETCQ", true),
            (b"\x00\x08\x00\x00\x00\x00", true),
            (b"IKETC", false),
            (b"", false),
        ] {
            let expected = if wrong {
                Err(StreamError::Prefix)
            } else {
                Ok(())
            };
            assert_eq!(decoded(Decoder::of_opener(), &[stream]), (vec![], expected));
            let bytes: Vec<&[u8]> = stream.chunks(1).collect();
            assert_eq!(decoded(Decoder::of_opener(), &bytes), (vec![], expected));
        }
        // The other side sends none: there it is a frame of 0x494b bytes.
        let (out, done) = decoded(Decoder::of_acceptor(), &[&PREFIX]);
        assert_eq!((out, done), (vec![], Ok(())));
    }

    #[test]
    fn lengths_that_neither_ike_nor_esp_has_end_the_stream() {
        for length in [0, 1, 4, 5] {
            let bad = [
                &[0, length][..],
                &[9; 3][..usize::from(length).saturating_sub(2)],
            ]
            .concat();
            let stream = [frame(&IKE), bad, frame(&IKE)].concat();
            let (out, done) = decoded(Decoder::of_acceptor(), &[&stream]);
            assert_eq!(out.len(), 1, "{length}: what came before counts");
            assert_eq!(done, Err(StreamError::Length(u16::from(length))));
            let bytes: Vec<&[u8]> = stream.chunks(1).collect();
            assert_eq!(decoded(Decoder::of_acceptor(), &bytes), (out, done));
        }
        // An empty message (length 2) and a keepalive of UDP (length 3) are no errors, and say nothing.
        let stream = [frame(&[]), frame(&KEEPALIVE), frame(&[]), frame(&ESP)].concat();
        for size in 1..=stream.len() {
            let pieces: Vec<&[u8]> = stream.chunks(size).collect();
            let (out, done) = decoded(Decoder::of_acceptor(), &pieces);
            assert_eq!((out.len(), done), (1, Ok(())), "{size}");
        }
    }

    #[test]
    fn longest_frame_passes_and_a_longer_one_is_not_sent() {
        let longest = vec![5; usize::from(u16::MAX) - LENGTH];
        let stream = frame(&longest);
        assert_eq!(stream.len(), usize::from(u16::MAX));
        let pieces: Vec<&[u8]> = stream.chunks(1000).collect();
        let mut decoder = Decoder::of_acceptor();
        let mut count = 0;
        for piece in pieces {
            decoder.push(piece, &mut |_| count += 1).unwrap();
        }
        assert_eq!((count, decoder.held()), (1, 0));
        assert!(decoder.partial.capacity() <= KEPT, "memory is given back");
        let mut encoder = Encoder::default();
        assert!(!encoder.push(&vec![5; longest.len() + 1], usize::MAX));
        assert_eq!(encoder.waiting(), 0);
    }

    #[test]
    fn frames_that_wait_are_bounded_and_whole() {
        let mut encoder = Encoder::default();
        assert!(encoder.push(&ESP, 20));
        assert!(encoder.push(&ESP, 20));
        assert!(!encoder.push(&IKE, 20), "20 bytes wait");
        encoder.advance(3);
        assert!(!encoder.push(&IKE, 24));
        assert!(encoder.push(&IKE, 25));
        let expected = [frame(&ESP), frame(&ESP), frame(&IKE)].concat();
        assert_eq!(encoder.pending(), &expected[3..]);
        encoder.advance(usize::MAX);
        assert_eq!(encoder.waiting(), 0);
        // What waits for a connection follows the prefix.
        assert!(encoder.push(&IKE, 100));
        encoder.begin();
        assert_eq!(encoder.pending(), [&PREFIX[..], &frame(&IKE)].concat());
    }

    proptest! {
        #[test]
        fn whatever_comes_is_a_frame_or_an_error(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
        ) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let whole = pieces.concat();
            prop_assert_eq!(
                decoded(Decoder::of_acceptor(), &pieces),
                decoded(Decoder::of_acceptor(), &[&whole])
            );
        }
    }
}
