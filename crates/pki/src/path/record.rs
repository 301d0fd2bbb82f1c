//! Records of accepted paths as bytes, for whoever has to ask again after a restart.

use std::collections::BTreeSet;

use time::OffsetDateTime;

use super::revocation::{Link, PathRecord};
use crate::crl::Points;
use crate::issuer_id::{AnchorId, IssuerId};

const VERSION: u8 = 1;

/// Writes fields behind their lengths; what is too long for its length makes the whole thing void.
#[derive(Default)]
struct Writer {
    out: Vec<u8>,
    void: bool,
}

impl Writer {
    fn count(&mut self, count: usize) {
        let count = u8::try_from(count);
        self.void |= count.is_err();
        self.out.push(count.unwrap_or(0));
    }

    fn field(&mut self, bytes: &[u8]) {
        let len = u16::try_from(bytes.len());
        self.void |= len.is_err();
        self.out.extend(len.unwrap_or(0).to_be_bytes());
        self.out.extend(bytes);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn field(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(u16::from_be_bytes(self.array()?));
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.field()?.to_vec()).ok()
    }

    fn time(&mut self) -> Option<OffsetDateTime> {
        let seconds = i64::from_be_bytes(self.array()?);
        OffsetDateTime::from_unix_timestamp(seconds).ok()
    }
}

impl PathRecord {
    /// The record as bytes; none if a name in it is beyond all measure. Whoever keeps them elsewhere must see that
    /// nobody changes them.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut writer = Writer::default();
        writer.out.push(VERSION);
        writer.out.extend(self.anchor.0);
        for time in [self.not_before, self.not_after] {
            writer.out.extend(time.unix_timestamp().to_be_bytes());
        }
        writer.field(self.subject.as_bytes());
        writer.count(self.links.len());
        for link in &self.links {
            writer.out.extend(link.issuer.to_bytes());
            writer.field(link.subject.as_bytes());
            writer.field(link.issuer_name.as_bytes());
            writer.field(&link.serial);
            writer.out.push(link.points.is_authority.into());
            writer.count(link.points.names.len());
            for name in &link.points.names {
                writer.field(name);
            }
        }
        (!writer.void).then_some(writer.out)
    }

    /// Reads what [`Self::to_bytes`] gave; none if it is anything else.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if reader.array()? != [VERSION] {
            return None;
        }
        let anchor = AnchorId(reader.array()?);
        let (not_before, not_after) = (reader.time()?, reader.time()?);
        let subject = reader.text()?;
        let [count] = reader.array()?;
        let mut links = Vec::new();
        for _ in 0..count {
            let issuer = IssuerId::from_bytes(reader.array()?);
            let (subject, issuer_name) = (reader.text()?, reader.text()?);
            let serial = reader.field()?.to_vec();
            let [is_authority, names] = reader.array()?;
            let name = |_| reader.field().map(<[u8]>::to_vec);
            let names: Option<BTreeSet<_>> = (0..names).map(name).collect();
            links.push(Link {
                subject,
                issuer,
                issuer_name,
                serial,
                points: Points {
                    is_authority: is_authority != 0,
                    names: names?,
                },
            });
        }
        // A path without any certificate below its anchor would have nothing that can be revoked.
        let whole = reader.0.is_empty() && !links.is_empty();
        whole.then_some(Self {
            subject,
            links,
            anchor,
            not_before,
            not_after,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> PathRecord {
        let link = |serial: u8| Link {
            subject: format!("CN=camera-{serial}"),
            issuer: IssuerId::from_bytes([serial; 32]),
            issuer_name: "CN=devices".into(),
            serial: vec![serial; 20],
            points: Points {
                is_authority: serial == 2,
                names: BTreeSet::from([vec![1; 40], vec![2; 30]]),
            },
        };
        PathRecord {
            subject: "CN=camera-1".into(),
            links: vec![link(1), link(2)],
            anchor: AnchorId([7; 32]),
            not_before: OffsetDateTime::from_unix_timestamp(1_000_000).unwrap(),
            not_after: OffsetDateTime::from_unix_timestamp(2_000_000).unwrap(),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is() {
        let bytes = record().to_bytes().unwrap();
        let read = PathRecord::from_bytes(&bytes).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", record()));
        for len in 0..bytes.len() {
            assert!(PathRecord::from_bytes(&bytes[..len]).is_none(), "{len}");
        }
        assert!(PathRecord::from_bytes(&[&bytes[..], &[0]].concat()).is_none());
        let mut other = bytes;
        other[0] += 1;
        assert!(PathRecord::from_bytes(&other).is_none(), "version");
    }

    #[test]
    fn a_path_of_nothing_is_none() {
        let empty = PathRecord {
            links: vec![],
            ..record()
        };
        assert!(PathRecord::from_bytes(&empty.to_bytes().unwrap()).is_none());
        let long = PathRecord {
            subject: "x".repeat(70_000),
            ..record()
        };
        assert!(long.to_bytes().is_none());
    }
}
