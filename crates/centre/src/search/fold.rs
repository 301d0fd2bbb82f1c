//! Texts as a search compares them, in two steps. [`Text::plain`] drops what people write in different ways and nobody
//! means: case, blanks, dashes, and the two encodings of a letter with a mark. [`Text::similar`] goes further and makes
//! those equal that are taken for each other: O and 0, letters of Cyrillic and Greek that look like Latin ones, letters
//! with and without marks. The index has the second form, so that it finds both.

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    /// A number plate: letters and digits count.
    Plate,
    /// The name of a place: words count.
    Place,
}

impl Text {
    /// The text without differences that mean nothing.
    pub(crate) fn plain(self, text: &str) -> String {
        self.letters(text.nfkc().flat_map(char::to_lowercase))
    }

    /// The text with one letter for all that look alike.
    pub(crate) fn similar(self, text: &str) -> String {
        let bare = text.nfkd().filter(|c| !is_combining_mark(*c));
        let lower = bare.flat_map(char::to_lowercase).map(unmarked);
        match self {
            Self::Plate => self.letters(lower.map(look_alike)),
            Self::Place => self.letters(lower),
        }
    }

    fn letters(self, text: impl Iterator<Item = char>) -> String {
        match self {
            Self::Plate => text.filter(|c| c.is_alphanumeric()).collect(),
            Self::Place => {
                let text: String = text.map(dash).collect();
                let words: Vec<&str> = text.split_whitespace().collect();
                words.join(" ")
            }
        }
    }
}

/// A letter for one with a stroke, which has no decomposition in Unicode.
fn unmarked(c: char) -> char {
    match c {
        'ł' => 'l',
        'ø' => 'o',
        'đ' | 'ð' => 'd',
        'ħ' => 'h',
        'ŧ' => 't',
        'ı' => 'i',
        other => other,
    }
}

/// Any dash as the one on keyboards.
fn dash(c: char) -> char {
    match c {
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}' => '-',
        other => other,
    }
}

/// The Latin letter or the digit that a letter in lower case looks like on a plate, where all letters are capitals.
fn look_alike(c: char) -> char {
    match c {
        'o' | 'о' | 'ο' => '0',
        'а' | 'α' => 'a',
        'в' | 'β' => 'b',
        'с' => 'c',
        'е' | 'ε' => 'e',
        'н' | 'η' => 'h',
        'і' | 'ι' => 'i',
        'ј' => 'j',
        'к' | 'κ' => 'k',
        'м' | 'μ' => 'm',
        'ν' => 'n',
        'р' | 'ρ' => 'p',
        'ѕ' => 's',
        'т' | 'τ' => 't',
        'у' | 'υ' => 'y',
        'х' | 'χ' => 'x',
        'ζ' => 'z',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plates_that_differ_in_writing_only_are_the_same() {
        let plain = |text| Text::Plate.plain(text);
        for same in [
            "AB123C",
            "ab-123c",
            "AB 123C ",
            "AB\u{a0}123C",
            "AB\u{2009}123\u{2013}C",
            "ＡＢ 123C",
            "A.B:1/2·3 C",
        ] {
            assert_eq!(plain(same), plain("AB 123C"), "{same}");
        }
        assert_eq!(plain("GÖ 1"), plain("GO\u{308} 1"));
        for other in [
            "AB 123",
            "AB 123CD",
            "A8 123C",
            "AB 12 4C",
            "АВ 123C",
            "ÄB 123C",
            "AB 123Ć",
        ] {
            assert_ne!(plain(other), plain("AB 123C"), "{other}");
        }
        assert_ne!(plain("AB 0"), plain("AB O"));
    }

    #[test]
    fn plates_that_are_taken_for_each_other_are_similar() {
        let similar = |text| Text::Plate.similar(text);
        for (one, other) in [
            ("AB 123O", "AB 1230"),
            ("ABCEHIJKMOPSTXY", "АВСЕНІЈКМОРЅТХУ"),
            ("ABEZHIKMNOPTYX", "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ"),
            ("GÖ 12", "go12"),
            ("ŁD 5", "LD 5"),
            ("Å 1", "A\u{30a} 1"),
        ] {
            assert_eq!(similar(one), similar(other), "{one} {other}");
        }
        for (one, other) in [
            ("AB 1", "AB 7"),
            ("Б 1", "B 1"),
            ("Ж 1", "K 1"),
            ("I 1", "L 1"),
            ("AB", "BA"),
        ] {
            assert_ne!(similar(one), similar(other), "{one} {other}");
        }
    }

    #[test]
    fn places_are_found_without_marks_and_keep_their_words() {
        let (plain, similar) = (
            |text| Text::Place.plain(text),
            |text| Text::Place.similar(text),
        );
        assert_eq!(plain("  Łódź\u{a0}Centrum "), "łódź centrum");
        assert_eq!(plain("A4 \u{2013} Kraków"), plain("A4 - Krako\u{301}w"));
        assert_eq!(similar("Łódź, Żeromskiego 5"), "lodz, zeromskiego 5");
        assert_eq!(similar("Malmö"), similar("malmo"));
        assert_ne!(similar("Nowa Wola"), similar("Nowawola"));
        assert_ne!(similar("Most 0"), similar("Most O"));
    }

    #[test]
    fn folded_text_is_folded_already() {
        for text in ["AB 123O", "ŁD-5", "Größe ﬁn", "İ1", "\u{3a3}ς", "\u{1e9e}"] {
            for kind in [Text::Plate, Text::Place] {
                let (plain, similar) = (kind.plain(text), kind.similar(text));
                assert_eq!(kind.plain(&plain), plain, "{text}");
                assert_eq!(kind.similar(&similar), similar, "{text}");
                // Nothing is lost between the steps: what is the same is similar.
                assert_eq!(kind.similar(&plain), similar, "{text}");
            }
        }
    }
}
