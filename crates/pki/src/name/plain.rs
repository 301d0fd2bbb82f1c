//! Which names are given to people, devices and units: those that look like what they are wherever they are shown,
//! written into a mail or passed to a command.

use untrusted_text::{is_hidden, is_invisible};

/// Longest mail address, in bytes. Our choice: two of them fit into a line of a mail's header.
const MAX_MAILBOX: usize = 128;
/// Longest name of a host (RFC 1035, section 2.3.4, without the bytes that only the wire has).
const MAX_HOST: usize = 253;

/// Tells whether `text` is read as it is: it has line breaks and tabs, and no other characters that are not seen or move others.
#[must_use]
pub fn is_readable(text: &str) -> bool {
    let breaks = |c: char| matches!(c, '\n' | '\r' | '\t');
    !text.chars().any(|c| is_hidden(c) && !breaks(c))
}

/// Whether `text` has no control or format characters, and begins like no option and no hidden file.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    !text.starts_with(['-', '.']) && !text.chars().any(is_invisible)
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
