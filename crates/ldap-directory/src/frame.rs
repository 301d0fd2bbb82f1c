//! The envelope of a message (RFC 4511, section 4.1.1): its length, id, operation, and the criticality of its controls.
//!
//! `ldap3_proto` decodes the rest. The envelope is read here for four reasons: a message that is too long is known by its
//! first octets, so that nothing of it is kept; a request that cannot be decoded still has an id to answer; the library does
//! not say of each control whether it is critical; and it prints operations that it does not know.

/// Octets of a message at most, its header included. Our choice: the longest filter of a known client has 2 KB.
pub const MAX_MESSAGE: usize = 32 * 1024;
/// Controls of a message. Our choice: clients send three at most.
const MAX_CONTROLS: usize = 16;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
/// `controls [0]` of a message.
const CONTROLS: u8 = 0xa0;

/// What the first octets of a buffer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// More octets are needed.
    Incomplete,
    /// A message of so many octets.
    Complete(usize),
    /// No LDAP message, or one longer than [`MAX_MESSAGE`].
    Refused,
}

/// Looks at the beginning of `buffer` for a message.
#[must_use]
pub fn frame_length(buffer: &[u8]) -> Framing {
    let Some((&tag, _)) = buffer.split_first() else {
        return Framing::Incomplete;
    };
    if tag != SEQUENCE {
        return Framing::Refused;
    }
    match header(buffer) {
        Header::Incomplete => Framing::Incomplete,
        Header::Malformed => Framing::Refused,
        Header::Of { header, content } => match header.checked_add(content) {
            Some(total) if total > MAX_MESSAGE => Framing::Refused,
            Some(total) if total <= buffer.len() => Framing::Complete(total),
            Some(_) => Framing::Incomplete,
            None => Framing::Refused,
        },
    }
}

/// Operations that a client may request, by their tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Bind,
    Unbind,
    Search,
    Modify,
    Add,
    Delete,
    ModifyName,
    Compare,
    Abandon,
    Extended,
}

impl Operation {
    const fn of(tag: u8) -> Option<Self> {
        Some(match tag {
            0x60 => Self::Bind,
            0x42 => Self::Unbind,
            0x63 => Self::Search,
            0x66 => Self::Modify,
            0x68 => Self::Add,
            0x4a => Self::Delete,
            0x6c => Self::ModifyName,
            0x6e => Self::Compare,
            0x50 => Self::Abandon,
            0x77 => Self::Extended,
            _ => return None,
        })
    }
}

/// The envelope of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) id: i32,
    pub(crate) operation: Operation,
    /// Object identifiers of the critical controls.
    pub(crate) critical: Vec<String>,
}

/// Reads the envelope of a whole message. `None`: it has none, and the connection cannot continue.
pub(crate) fn envelope(message: &[u8]) -> Option<Envelope> {
    let (tag, content, rest) = element(message)?;
    if tag != SEQUENCE || !rest.is_empty() {
        return None;
    }
    let (tag, id, content) = element(content)?;
    let id = (tag == INTEGER).then(|| message_id(id)).flatten()?;
    let (tag, _, content) = element(content)?;
    let operation = Operation::of(tag)?;
    let critical = match content {
        [] => Vec::new(),
        controls => {
            let (tag, controls, rest) = element(controls)?;
            if tag != CONTROLS || !rest.is_empty() {
                return None;
            }
            critical_controls(controls)?
        }
    };
    Some(Envelope {
        id,
        operation,
        critical,
    })
}

/// `MessageID ::= INTEGER (0 .. maxInt)`.
fn message_id(content: &[u8]) -> Option<i32> {
    if content.is_empty() || content.len() > 4 {
        return None;
    }
    let value = content.iter().try_fold(0_u32, |value, octet| {
        Some(value.checked_mul(256)? | u32::from(*octet))
    })?;
    i32::try_from(value).ok()
}

fn critical_controls(mut controls: &[u8]) -> Option<Vec<String>> {
    let mut critical = Vec::new();
    let mut count = 0;
    while !controls.is_empty() {
        let (tag, control, rest) = element(controls)?;
        controls = rest;
        count += 1;
        if tag != SEQUENCE || count > MAX_CONTROLS {
            return None;
        }
        let (tag, oid, rest) = element(control)?;
        let oid = String::from_utf8(oid.to_vec()).ok()?;
        if tag != OCTET_STRING {
            return None;
        }
        let is_critical = match element(rest) {
            Some((BOOLEAN, value, _)) => value.iter().any(|octet| *octet != 0),
            _ => false,
        };
        if is_critical {
            critical.push(oid);
        }
    }
    Some(critical)
}

/// Splits one element off: tag, content, and what follows.
fn element(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let tag = *input.first()?;
    let Header::Of { header, content } = header(input) else {
        return None;
    };
    let end = header.checked_add(content)?;
    Some((tag, input.get(header..end)?, input.get(end..)?))
}

enum Header {
    Incomplete,
    Malformed,
    /// Octets of the header and of the content.
    Of {
        header: usize,
        content: usize,
    },
}

/// Reads tag and length. LDAP allows the definite form of lengths only (RFC 4511, section 5.1); its tags have one octet.
fn header(input: &[u8]) -> Header {
    let Some(&first) = input.get(1) else {
        return Header::Incomplete;
    };
    if first < 0x80 {
        return Header::Of {
            header: 2,
            content: usize::from(first),
        };
    }
    let count = usize::from(first & 0x7f);
    // Four octets hold more than any message may have.
    if count == 0 || count > 4 {
        return Header::Malformed;
    }
    let Some(octets) = input.get(2..2 + count) else {
        return Header::Incomplete;
    };
    let content = octets
        .iter()
        .fold(0_usize, |length, octet| (length << 8) | usize::from(*octet));
    Header::Of {
        header: 2 + count,
        content,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An unbind request with id 5.
    const UNBIND: &[u8] = &[0x30, 5, 2, 1, 5, 0x42, 0];

    #[test]
    fn message_is_complete_with_its_last_octet() {
        for length in 0..UNBIND.len() {
            assert_eq!(frame_length(&UNBIND[..length]), Framing::Incomplete);
        }
        assert_eq!(frame_length(UNBIND), Framing::Complete(7));
        let two = [UNBIND, UNBIND].concat();
        assert_eq!(frame_length(&two), Framing::Complete(7));
    }

    #[test]
    fn long_message_is_refused_by_its_header() {
        let header = |content: usize| {
            let [.., a, b] = content.to_be_bytes();
            [0x30, 0x82, a, b]
        };
        assert_eq!(frame_length(&header(MAX_MESSAGE - 4)), Framing::Incomplete);
        assert_eq!(frame_length(&header(MAX_MESSAGE - 3)), Framing::Refused);
        assert_eq!(
            frame_length(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]),
            Framing::Refused
        );
    }

    #[test]
    fn other_protocols_and_indefinite_lengths_are_refused() {
        for bytes in [&b"GET / HTTP/1.1"[..], &[0x30, 0x80], &[0x30, 0x85, 1]] {
            assert_eq!(frame_length(bytes), Framing::Refused, "{bytes:02x?}");
        }
    }

    #[test]
    fn envelope_gives_id_operation_and_critical_controls() {
        let known = envelope(UNBIND).unwrap();
        assert_eq!((known.id, known.operation), (5, Operation::Unbind));
        // Two controls: one critical, one not.
        let controls = [
            0xa0, 14, 0x30, 6, 4, 1, b'1', 1, 1, 0xff, 0x30, 4, 4, 1, b'2', 4,
        ];
        let mut controls = controls.to_vec();
        controls[1] = 15;
        controls[11] = 5;
        controls.push(0);
        let message = [&[0x30, 22, 2, 1, 7, 0x42, 0][..], &controls].concat();
        let known = envelope(&message).unwrap();
        assert_eq!(known.critical, ["1"]);
    }

    #[test]
    fn envelope_without_request_is_refused() {
        let cases: [&[u8]; 6] = [
            // A response.
            &[0x30, 5, 2, 1, 5, 0x61, 0],
            // A negative id, and one of five octets.
            &[0x30, 8, 2, 4, 0xff, 0, 0, 0, 0x42, 0],
            &[0x30, 9, 2, 5, 0, 0, 0, 0, 1, 0x42, 0],
            // Octets after the message's end, a length beyond it, and nothing.
            &[0x30, 5, 2, 1, 5, 0x42, 0, 0],
            &[0x30, 5, 2, 1, 5, 0x42, 1],
            &[0x30, 0],
        ];
        for message in cases {
            assert_eq!(envelope(message), None, "{message:02x?}");
        }
    }

    #[test]
    fn seventeen_controls_are_refused() {
        let message = |count: usize| {
            let control = [0x30, 3, 4, 1, b'1'];
            let controls = control.repeat(count);
            let length = |n: usize| u8::try_from(n).unwrap();
            let mut content = vec![2, 1, 5, 0x42, 0, 0xa0, length(controls.len())];
            content.extend(controls);
            let mut message = vec![0x30, length(content.len())];
            message.extend(content);
            message
        };
        assert!(envelope(&message(MAX_CONTROLS)).is_some());
        assert_eq!(envelope(&message(MAX_CONTROLS + 1)), None);
    }
}
