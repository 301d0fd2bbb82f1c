//! The tables of characters that a reader does not see, or that change how a line reads.
//!
//! Three sets, each within the next: [`moves_text`] ⊂ [`is_invisible`] ⊂ [`is_hidden`].

/// Characters of the general categories Cf, Zl and Zp of Unicode 16.0: invisible, and able to reorder or break a line.
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

/// Characters that are drawn as nothing although they are letters or marks: Default_Ignorable_Code_Point of Unicode 16.0
/// without those of [`INVISIBLE`]. Names of people may have some, as variants of a Chinese character.
const IGNORABLE: [(char, char); 10] = [
    ('\u{34f}', '\u{34f}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180d}'),
    ('\u{180f}', '\u{180f}'),
    ('\u{2065}', '\u{2065}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fff8}'),
];

/// The plane of tags and variation selectors, all of which are ignorable.
const TAGS: std::ops::RangeInclusive<char> = '\u{e0000}'..='\u{e0fff}';

fn is_in(table: &[(char, char)], c: char) -> bool {
    table.iter().any(|(from, to)| (*from..=*to).contains(&c))
}

/// Tells control characters and those that reorder or break a line: the set that version 1 of the manifest format
/// forbids. It is frozen, because sealed manifests are checked by it for as long as they are kept.
#[must_use]
pub fn moves_text(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Tells control and format characters: nothing is drawn for them, and they can move what is drawn.
#[must_use]
pub fn is_invisible(c: char) -> bool {
    c.is_control() || is_in(&INVISIBLE, c)
}

/// Tells [`is_invisible`] characters, and letters and marks that are drawn as nothing.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    is_invisible(c) || is_in(&IGNORABLE, c) || TAGS.contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_disjoint() {
        for table in [INVISIBLE.as_slice(), &IGNORABLE] {
            let sorted = table.windows(2).all(|pair| pair[0].1 < pair[1].0);
            assert!(sorted && table.iter().all(|(from, to)| from <= to));
        }
        for c in '\0'..=char::MAX {
            assert!(!(is_in(&INVISIBLE, c) && is_in(&IGNORABLE, c)), "{c:?}");
        }
    }

    #[test]
    fn each_set_is_within_the_next() {
        for c in '\0'..=char::MAX {
            assert!(!moves_text(c) || is_invisible(c), "{c:?}");
            assert!(!is_invisible(c) || is_hidden(c), "{c:?}");
        }
    }

    #[test]
    fn line_breaks_and_directions_are_invisible_and_letters_are_not() {
        for c in
            "\n\r\t\0\u{1b}\u{7f}\u{85}\u{9b}\u{ad}\u{200b}\u{2028}\u{2029}\u{202e}\u{2066}\u{feff}"
                .chars()
        {
            assert!(is_invisible(c), "{c:?}");
        }
        for c in "aZ0 ~\\č警é\u{301}\u{a0}".chars() {
            assert!(!is_hidden(c), "{c:?}");
        }
        for c in "\u{3164}\u{fe0f}\u{e0100}".chars() {
            assert!(is_hidden(c) && !is_invisible(c), "{c:?}");
        }
    }
}
