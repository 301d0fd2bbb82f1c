//! Search for parts of plates and places.
//!
//! A text is indexed by its trigrams (three characters in a row), each under the number of the
//! violation's audience: a search reads the entries of those audiences that the asker may see, and
//! no others, so that neither its answer nor its duration depends on what is hidden. SQLite's own
//! trigram tokenizer knows no audiences; these are words of letters and digits, which its plainest
//! tokenizer keeps as they are.

mod fold;

use std::fmt::Write as _;

use store::sqlx;
use store::{Sql, StoreError};

pub(crate) use fold::Text;

/// Version of [`parts`]; raise it when they change, and the next start makes them anew.
const VERSION: i64 = 2;
/// Characters of a part.
const GRAM: usize = 3;
/// Parts of one term that a search asks for; the rows found are compared with the whole term.
const MAX_PARTS: usize = 32;
/// Rows indexed between two lines of the log.
const BATCH: i64 = 10_000;

/// How a text has a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hit {
    Exact,
    /// With other characters that are taken for those of the term.
    Similar,
}

/// Whether `text` has `term`, and how.
pub(crate) fn hit(kind: Text, text: &str, term: &str) -> Option<Hit> {
    let plain = kind.plain(term);
    if plain.is_empty() {
        // Nothing but blanks is no term; nothing but signs is one, and no part of another.
        return text.contains(term.trim()).then_some(Hit::Exact);
    }
    if kind.plain(text).contains(&plain) {
        return Some(Hit::Exact);
    }
    // A term of marks alone is like nothing.
    let similar = kind.similar(term);
    let has = !similar.is_empty() && kind.similar(text).contains(&similar);
    has.then_some(Hit::Similar)
}

/// The parts of a violation's texts, as one text of the index.
pub(crate) fn parts(audience: i64, plate: Option<&str>, place: &str) -> String {
    let mut all = String::new();
    let plate = Text::Plate.similar(plate.unwrap_or_default());
    for (field, text) in [('p', plate), ('l', Text::Place.similar(place))] {
        for part in grams(&text) {
            push_part(&mut all, field, audience, &part);
            all.push(' ');
        }
    }
    all
}

/// The question for violations of `audiences` that may contain the terms; `None` if no term is long
/// enough to have a part.
pub(crate) fn question(audiences: &[i64], plate: &str, place: &str) -> Option<String> {
    let (plate, place) = (Text::Plate.similar(plate), Text::Place.similar(place));
    let terms = [('p', grams(&plate)), ('l', grams(&place))];
    if terms.iter().all(|(_, parts)| parts.is_empty()) {
        return None;
    }
    let mut question = String::new();
    for audience in audiences {
        if !question.is_empty() {
            question.push_str(" OR ");
        }
        question.push('(');
        let mut first = true;
        for (field, parts) in &terms {
            for part in parts.iter().take(MAX_PARTS) {
                if !first {
                    question.push_str(" AND ");
                }
                first = false;
                push_part(&mut question, *field, *audience, part);
            }
        }
        question.push(')');
    }
    Some(question)
}

fn grams(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars
        .windows(GRAM)
        .map(|gram| gram.iter().collect())
        .collect()
}

/// A part as a word. The separator is no hexadecimal digit: no two parts make the same word.
fn push_part(words: &mut String, field: char, audience: i64, part: &str) {
    // Writing to a string cannot fail.
    let _ = write!(words, "{field}{audience}x{}", hex::encode(part));
}

/// Position, audience, plate and place of a violation.
type TextRow = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// Indexes every violation, unless that is done: the first start with this version of the index.
pub(crate) async fn build(sql: &Sql) -> Result<(), StoreError> {
    let mut tx = sql.write().await?;
    let version: Option<i64> = sqlx::query_scalar("SELECT version FROM violation_text_version")
        .fetch_optional(&mut *tx)
        .await?;
    if version == Some(VERSION) {
        return Ok(());
    }
    sqlx::query("INSERT INTO violation_text (violation_text) VALUES ('delete-all')")
        .execute(&mut *tx)
        .await?;
    let mut last = i64::MIN;
    loop {
        // A text that is no UTF-8 is repaired later, and does not keep the site from starting.
        let rows: Vec<TextRow> = sqlx::query_as(
            "SELECT v.position, g.audience, CAST(v.plate AS BLOB), CAST(v.place AS BLOB)
             FROM violations v JOIN violation_groups g ON g.id = v.violation_group
             WHERE v.position > ? ORDER BY v.position LIMIT ?",
        )
        .bind(last)
        .bind(BATCH)
        .fetch_all(&mut *tx)
        .await?;
        let Some((end, ..)) = rows.last() else {
            break;
        };
        last = *end;
        tracing::info!(
            rows = rows.len(),
            "preparing the search of plates and places"
        );
        for (position, audience, plate, place) in rows {
            let text = |bytes: Option<Vec<u8>>| {
                String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
            };
            let (plate, place) = (plate.map(|plate| text(Some(plate))), text(place));
            let parts = parts(audience, plate.as_deref(), &place);
            insert(&mut tx, position, &parts).await?;
        }
    }
    sqlx::query("DELETE FROM violation_text_version")
        .execute(&mut *tx)
        .await?;
    sqlx::query("INSERT INTO violation_text_version VALUES (?)")
        .bind(VERSION)
        .execute(&mut *tx)
        .await?;
    Ok(tx.commit().await?)
}

/// Indexes the violation at `position`.
pub(crate) async fn insert(
    tx: &mut sqlx::Transaction<'static, sqlx::Sqlite>,
    position: i64,
    parts: &str,
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO violation_text (rowid, parts) VALUES (?, ?)")
        .bind(position)
        .bind(parts)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_for_short_terms_is_none() {
        assert_eq!(question(&[1], "kr", "a4"), None);
        assert_eq!(question(&[1], "", ""), None);
    }

    #[test]
    fn question_names_each_audience_with_all_parts() {
        assert_eq!(
            question(&[1, 20], "KR 12", "").unwrap(),
            "(p1x6b7231 AND p1x723132) OR (p20x6b7231 AND p20x723132)"
        );
    }

    #[test]
    fn parts_hold_what_a_question_asks_for() {
        let all = parts(7, Some("Łódź 1"), "A4");
        for term in ["ŁÓD", "łód", "lod", "L0 D"] {
            let asked = question(&[7], term, "").unwrap();
            assert!(
                all.split(' ').any(|part| format!("({part})") == asked),
                "{all} {asked}"
            );
        }
        // Too short to have parts.
        assert!(!all.contains('l'), "{all}");
    }

    #[test]
    fn exact_hits_are_told_from_similar_ones() {
        for (kind, text, term, expected) in [
            (Text::Plate, "AB 123C", "ab-123c", Some(Hit::Exact)),
            (Text::Plate, "AB 123C", "B\u{a0}12", Some(Hit::Exact)),
            (Text::Plate, "AB 1O3", "AB 103", Some(Hit::Similar)),
            (Text::Plate, "АВ 103", "AB 103", Some(Hit::Similar)),
            (Text::Plate, "AB 123C", "AC 123", None),
            (Text::Place, "Łódź", "łódź", Some(Hit::Exact)),
            (Text::Place, "Łódź", "lodz", Some(Hit::Similar)),
            (Text::Place, "Łódź", "\u{301}", None),
            (Text::Place, "Lodz", "łódź", Some(Hit::Similar)),
            (Text::Place, "Łódź", "łudź", None),
            (Text::Plate, "AB 123C", "%", None),
            (Text::Plate, "AB-123C", " - ", Some(Hit::Exact)),
            (Text::Plate, "AB 123C", " ", Some(Hit::Exact)),
        ] {
            assert_eq!(hit(kind, text, term), expected, "{text} {term}");
        }
    }

    #[test]
    fn operators_in_a_term_are_text() {
        let asked = question(&[1], "\" OR * NOT", "\" OR *").unwrap();
        assert!(
            asked
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b" ()".contains(&b))
        );
    }
}
