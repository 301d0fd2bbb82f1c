//! Numbers as people read them.

/// Three digits that count, or all digits of whole numbers.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let digits = match value.abs() {
        a if a >= 100.0 => 0,
        a if a >= 10.0 => 1,
        a if a >= 1.0 => 2,
        0.0 => return "0".to_owned(),
        a if a >= 0.1 => 3,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        grouped(&text)
    }
}

/// Thousands apart, from five digits on.
fn grouped(text: &str) -> String {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    if digits.len() < 5 {
        return text.to_owned();
    }
    let mut out = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index != 0 && (digits.len() - index).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = [
            0.0, 0.01234, 0.5, 1.0, 3.456, 45.67, 1234.5, 12_345.0, -65_000.0,
        ];
        let shown: Vec<_> = shown.iter().map(|value| number(*value)).collect();
        let wanted = [
            "0",
            "0.0123",
            "0.5",
            "1",
            "3.46",
            "45.7",
            "1234",
            "12\u{202f}345",
            "-65\u{202f}000",
        ];
        assert_eq!(shown, wanted);
        assert_eq!(number(f64::NAN), "–");
    }
}
