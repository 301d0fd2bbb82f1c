//! Which names are given to people, devices and units: those that look like what they are wherever they are shown,
//! written into a mail or passed to a command.

/// Longest mail address, in bytes. Our choice: two of them fit into a line of a mail's header.
const MAX_MAILBOX: usize = 128;
/// Longest name of a host (RFC 1035, section 2.3.4, without the bytes that only the wire has).
const MAX_HOST: usize = 253;

/// Characters of the general categories Cf, Zl and Zp of Unicode 16.0: they are not seen, and change the order or the
/// place of what is.
const INVISIBLE: [(char, char); 22] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{2029}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

/// Characters that are drawn as nothing though they are letters or marks: Default_Ignorable_Code_Point of Unicode 16.0
/// without those of [`INVISIBLE`]. Names of people may have some, as variants of a Chinese character; texts that are read
/// before they are signed need none.
const IGNORABLE: [(char, char); 9] = [
    ('\u{34f}', '\u{34f}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{2065}', '\u{2065}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fff8}'),
];
/// The plane of tags and selectors of variants, all of which are ignorable.
const TAGS: std::ops::RangeInclusive<char> = '\u{e0000}'..='\u{e0fff}';

fn is_in(table: &[(char, char)], c: char) -> bool {
    table.iter().any(|(from, to)| (*from..=*to).contains(&c))
}

/// Whether nothing is drawn for `c`, or what is around it is drawn elsewhere: control and format characters, and others
/// that are ignored where they are shown.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control() || is_in(&INVISIBLE, c) || is_in(&IGNORABLE, c) || TAGS.contains(&c)
}

/// Tells whether `text` is read as it is: it has line breaks and tabs, and no other characters that are not seen or move others.
#[must_use]
pub fn is_readable(text: &str) -> bool {
    let breaks = |c: char| matches!(c, '\n' | '\r' | '\t');
    !text.chars().any(|c| is_hidden(c) && !breaks(c))
}

/// Whether `text` has no control or format characters, and begins like no option and no hidden file.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    let hidden = |c: char| c.is_control() || is_in(&INVISIBLE, c);
    !text.starts_with(['-', '.']) && !text.chars().any(hidden)
}

/// Whether `text` is a user id: 1 to 64 ASCII letters, digits, `-`, `.` and `_`, plain.
#[must_use]
pub fn is_user_id(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    !text.is_empty() && text.len() <= 64 && text.bytes().all(letter) && is_plain(text)
}

/// Whether `text` is a mail address without quotes, comments and address literals: a dot-atom (RFC 5322, section 3.2.3)
/// and a host name of two labels at least.
#[must_use]
pub fn is_mailbox(text: &str) -> bool {
    let atom = |part: &str| {
        let letter = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&b);
        !part.is_empty() && part.bytes().all(letter)
    };
    let Some((local, domain)) = text.split_once('@') else {
        return false;
    };
    text.len() <= MAX_MAILBOX
        && local.len() <= 64
        && is_plain(local)
        && local.split('.').all(atom)
        && domain.contains('.')
        && domain.split('.').all(is_label)
}

/// Whether `text` is the name of one host in lower case: labels of letters, digits and hyphens (RFC 1123, section 2.1), no
/// pattern, no address, no dot at the end.
#[must_use]
pub fn is_host_name(text: &str) -> bool {
    // The last label of an address in dots is a number, of a name it never is (RFC 3696, section 2).
    let number = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
    text.len() <= MAX_HOST
        && !text.bytes().any(|b| b.is_ascii_uppercase())
        && text.split('.').all(is_label)
        && !text.rsplit('.').next().is_none_or(number)
}

fn is_label(part: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let edge = |at: Option<u8>| at.is_some_and(|b| b != b'-');
    part.len() <= 63
        && part.bytes().all(letter)
        && edge(part.bytes().next())
        && edge(part.bytes().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_control_or_format_characters_or_like_options_are_not_plain() {
        for good in ["Ana Kovač", "O'Neil-Smith", "Dr. A. B.", "警察", "a.b", ""] {
            assert!(is_plain(good), "{good:?}");
        }
        for bad in [
            "Ana\u{202e}Kovač",
            "a\nb",
            "a\u{0}",
            "\u{feff}a",
            "a\u{ad}b",
            "a\u{2066}b",
            "a\u{e0041}",
            "a\u{2028}b",
            "-x",
            "--",
            ".",
            "..",
        ] {
            assert!(!is_plain(bad), "{bad:?}");
        }
        for table in [INVISIBLE.as_slice(), &IGNORABLE] {
            let sorted = table.windows(2).all(|pair| pair[0].1 < pair[1].0);
            assert!(sorted && table.iter().all(|(from, to)| from <= to));
        }
    }

    #[test]
    fn host_names_are_of_one_host_each() {
        let longest = format!("{}.example", "x".repeat(63));
        for good in ["db", "web-1.police.example", "1a.2b", "9.example", &longest] {
            assert!(is_host_name(good), "{good:?}");
        }
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "*.example",
            "Web.example",
            "a_b.example",
            "-a.example",
            "a-.example",
            "192.0.2.1",
            "a.1",
            "::1",
            "a b",
            "a\0.example",
            "č.example",
            &format!("{}.example", "x".repeat(64)),
            &["x".repeat(63).as_str(); 4].join("."),
        ] {
            assert!(!is_host_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn user_ids_are_words() {
        for good in ["officer-9", "a", "a.b_c-d", &"x".repeat(64)] {
            assert!(is_user_id(good), "{good:?}");
        }
        for bad in ["", "..", "-x", ".a", "a b", "a/b", "č", &"x".repeat(65)] {
            assert!(!is_user_id(bad), "{bad:?}");
        }
    }

    #[test]
    fn mail_addresses_are_one_mailbox_each() {
        for good in ["a@b.c", "ana.k+x@police.example.org", "o'neil@x-y.si"] {
            assert!(is_mailbox(good), "{good:?}");
        }
        for bad in [
            "",
            "a",
            "a@b",
            "@b.c",
            "a@b.c>,<evil@x.y",
            "a,b@c.d",
            "\"a b\"@c.d",
            "a@b.c\r\nBcc: x@y.z",
            "a..b@c.d",
            ".a@c.d",
            "a.@c.d",
            "-f@c.d",
            "a@-b.c",
            "a@b-.c",
            "a@b..c",
            "a@.c",
            "a@b.c.",
            "a@[192.0.2.1]",
            "a b@c.d",
            "a@b@c.d",
            "č@b.c",
            &format!("{}@b.c", "x".repeat(65)),
            &format!("a@{}.c", "x".repeat(64)),
        ] {
            assert!(!is_mailbox(bad), "{bad:?}");
        }
    }
}
