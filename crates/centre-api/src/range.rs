//! Parts of media over HTTP (RFC 9110, section 14): players seek in a film and fetch what they show.

/// Ranges of one request that are looked at. More are of no player, and the whole medium is the answer.
const MAX_RANGES: usize = 16;

/// The part that a request asks for: the values of its headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// `Range`.
    pub range: Option<String>,
    /// `If-Range`.
    pub if_range: Option<String>,
}

/// Bytes of a medium, the first and the last one, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub first: u64,
    pub last: u64,
}

/// The content of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Whole,
    Part(Part),
    /// No range has a byte of the medium (416).
    Unsatisfiable,
}

/// The part of a medium that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Bytes of the whole medium.
    pub size: u64,
    /// SHA-256 of the whole medium, hexadecimal: its strong validator.
    pub sha256: String,
    /// The part, if it is not the whole.
    pub part: Option<Part>,
}

impl Served {
    /// Bytes to come.
    #[must_use]
    pub const fn length(&self) -> u64 {
        match self.part {
            Some(part) => part.last.saturating_sub(part.first).saturating_add(1),
            None => self.size,
        }
    }

    /// The value of `ETag`.
    #[must_use]
    pub fn etag(&self) -> String {
        etag(&self.sha256)
    }

    /// The value of `Content-Range`, of a part.
    #[must_use]
    pub fn content_range(&self) -> Option<String> {
        let part = self.part?;
        Some(format!("bytes {}-{}/{}", part.first, part.last, self.size))
    }
}

fn etag(sha256: &str) -> String {
    format!("\"{sha256}\"")
}

impl Asked {
    /// Decides what of a medium is served.
    ///
    /// One range is served as it is. A header that cannot be read, of another unit, or with several ranges is ignored, as
    /// section 14.2 permits: the whole medium is a right answer to it, and takes less to read than parts in an envelope.
    #[must_use]
    pub fn wanted(&self, size: u64, sha256: &str) -> Wanted {
        let Some(range) = &self.range else {
            return Wanted::Whole;
        };
        // Parts of two versions do not make a medium (section 13.1.5).
        if self
            .if_range
            .as_ref()
            .is_some_and(|tag| tag.trim() != etag(sha256))
        {
            return Wanted::Whole;
        }
        let Some((unit, ranges)) = range.split_once('=') else {
            return Wanted::Whole;
        };
        let ranges: Vec<&str> = ranges.split(',').take(MAX_RANGES + 1).collect();
        if !unit.trim().eq_ignore_ascii_case("bytes") || ranges.len() > MAX_RANGES {
            return Wanted::Whole;
        }
        let parts = ranges.iter().map(|one| part(one.trim(), size));
        // One wrong range makes the whole header count for nothing.
        let Some(parts) = parts.collect::<Option<Vec<_>>>() else {
            return Wanted::Whole;
        };
        let mut satisfiable = parts.into_iter().flatten();
        match (satisfiable.next(), satisfiable.next()) {
            (None, _) => Wanted::Unsatisfiable,
            (Some(part), None) => Wanted::Part(part),
            (Some(_), Some(_)) => Wanted::Whole,
        }
    }
}

/// One range: `None` if it makes no sense, `Some(None)` if the medium has no byte of it.
fn part(range: &str, size: u64) -> Option<Option<Part>> {
    let (first, last) = range.split_once('-')?;
    let end = size.checked_sub(1);
    if first.is_empty() {
        let suffix = number(last)?;
        let first = size.saturating_sub(suffix);
        let part = end.map(|last| Part { first, last });
        return Some(part.filter(|_| suffix > 0));
    }
    let first = number(first)?;
    let last = match last {
        "" => u64::MAX,
        last => number(last)?,
    };
    if last < first {
        return None;
    }
    let part = end.map(|end| Part {
        first,
        last: last.min(end),
    });
    Some(part.filter(|part| part.first <= part.last))
}

/// A number of any length; one that is too large for a medium is the largest.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(range: &str, size: u64) -> Wanted {
        let asked = Asked {
            range: Some(range.into()),
            if_range: None,
        };
        asked.wanted(size, "00")
    }

    fn bytes(first: u64, last: u64) -> Wanted {
        Wanted::Part(Part { first, last })
    }

    #[test]
    fn one_range_is_served_within_the_medium() {
        for (range, expected) in [
            ("bytes=0-0", bytes(0, 0)),
            ("bytes=0-1", bytes(0, 1)),
            ("bytes=9-9", bytes(9, 9)),
            ("bytes=3-", bytes(3, 9)),
            ("bytes=3-99999999999999999999999", bytes(3, 9)),
            ("Bytes= 2-4 ", bytes(2, 4)),
            ("bytes=-3", bytes(7, 9)),
            ("bytes=-10", bytes(0, 9)),
            ("bytes=-11", bytes(0, 9)),
            ("bytes=40-50, 1-2", bytes(1, 2)),
        ] {
            assert_eq!(wanted(range, 10), expected, "{range}");
        }
    }

    #[test]
    fn range_without_a_byte_of_the_medium_is_unsatisfiable() {
        for range in [
            "bytes=10-",
            "bytes=10-12",
            "bytes=-0",
            "bytes=99-,-0",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(wanted(range, 10), Wanted::Unsatisfiable, "{range}");
        }
        for range in ["bytes=0-", "bytes=-1", "bytes=0-0"] {
            assert_eq!(wanted(range, 0), Wanted::Unsatisfiable, "{range}");
        }
    }

    #[test]
    fn header_that_makes_no_sense_or_has_several_ranges_is_ignored() {
        let many = format!("bytes={}", vec!["90-"; 17].join(","));
        for range in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=2-1",
            "bytes=a-b",
            "bytes=1",
            "bytes=+1-2",
            "bytes=0-1-2",
            "bytes=0-0,x",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=0x1-2",
            &many,
        ] {
            assert_eq!(wanted(range, 10), Wanted::Whole, "{range}");
        }
    }

    #[test]
    fn part_of_another_version_is_the_whole() {
        let asked = |tag: &str| Asked {
            range: Some("bytes=0-1".into()),
            if_range: Some(tag.into()),
        };
        assert_eq!(asked("\"00\"").wanted(10, "00"), bytes(0, 1));
        for tag in [
            "\"01\"",
            "W/\"00\"",
            "00",
            "",
            "Sat, 28 Nov 2026 08:00:00 GMT",
        ] {
            assert_eq!(asked(tag).wanted(10, "00"), Wanted::Whole, "{tag}");
        }
        assert_eq!(Asked::default().wanted(0, "00"), Wanted::Whole);
    }

    #[test]
    fn served_part_has_its_length_and_place() {
        let mut served = Served {
            size: 10,
            sha256: "00".into(),
            part: None,
        };
        assert_eq!((served.length(), served.content_range()), (10, None));
        served.part = Some(Part { first: 2, last: 4 });
        let place = Some("bytes 2-4/10".to_owned());
        assert_eq!((served.length(), served.content_range()), (3, place));
        assert_eq!(served.etag(), "\"00\"");
    }
}
