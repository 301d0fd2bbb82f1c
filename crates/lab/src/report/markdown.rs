//! The page as Markdown.

use crate::report::part::{Part, Table};

pub(super) fn render(parts: &[Part]) -> String {
    let mut out = String::new();
    for part in parts {
        match part {
            Part::Heading(level, text, _) => {
                out += &format!("{} {}\n", "#".repeat(usize::from(*level)), escape(text));
            }
            Part::Text(text) => out += &format!("{}\n", escape(text)),
            Part::Warning(text) => out += &format!("> **{}**\n", escape(text)),
            Part::List(lines) => {
                for line in lines {
                    out += &format!("- {}\n", escape(line));
                }
            }
            Part::Facts(facts) => {
                for (name, value) in facts {
                    out += &format!("- {}: {}\n", escape(name), escape(value));
                }
            }
            Part::Table(table) => out += &rows(table),
            Part::Picture(_) => continue,
        }
        out.push('\n');
    }
    out
}

fn rows(table: &Table) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<_> = cells.iter().map(|cell| escape(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut out = line(&table.head);
    let numbers = if table.words { "---|" } else { "--:|" };
    out += &format!(
        "|---|{}\n",
        numbers.repeat(table.head.len().saturating_sub(1))
    );
    for row in &table.rows {
        out += &line(row);
    }
    out
}

/// Keeps names with signs from becoming markup.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        if matches!(letter, '|' | '*' | '_' | '<' | '[' | ']' | '`' | '\\') {
            out.push('\\');
        }
        out.push(if letter == '\n' { ' ' } else { letter });
    }
    out
}
