//! The page as HTML.

use crate::record::Results;
use crate::report::page::{Part, Table};

const STYLE: &str = include_str!("style.css");

pub(super) fn render(parts: &[Part], results: &Results) -> String {
    let mut body = String::new();
    let mut names = Vec::new();
    for part in parts {
        match part {
            Part::Heading(level, text, name) => {
                let id = name
                    .as_ref()
                    .map_or_else(String::new, |name| format!(" id=\"{}\"", escape(name)));
                body += &format!("<h{level}{id}>{}</h{level}>\n", escape(text));
                if let (1, _) = (level, ()) {
                    body += "<!--contents-->\n";
                }
                if let (2, Some(name)) = (level, name) {
                    names.push((name, text));
                }
            }
            Part::Text(text) => body += &format!("<p>{}</p>\n", escape(text)),
            Part::Warning(text) => body += &format!("<p class=\"warning\">{}</p>\n", escape(text)),
            Part::List(lines) => {
                let lines: String = lines
                    .iter()
                    .map(|l| format!("<li>{}</li>\n", escape(l)))
                    .collect();
                body += &format!("<ul>\n{lines}</ul>\n");
            }
            Part::Facts(facts) => {
                let one = |(name, value): &(String, String)| {
                    format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value))
                };
                body += &format!("<dl>\n{}</dl>\n", facts.iter().map(one).collect::<String>());
            }
            Part::Table(table) => body += &rows(table),
            Part::Picture(svg) => body += &format!("<figure tabindex=\"0\">{svg}</figure>\n"),
        }
    }
    let link = |(name, text): &(&String, &String)| {
        format!(
            "<li><a href=\"#{}\">{}</a></li>",
            escape(name),
            escape(text)
        )
    };
    let contents: String = names.iter().map(link).collect();
    let contents = format!("<nav aria-label=\"Contents\"><ul>{contents}</ul></nav>");
    let body = body.replacen("<!--contents-->", &contents, 1);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>Cordon lab, {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         <script type=\"application/json\" id=\"results\">\n{}\n</script>\n</body>\n</html>\n",
        escape(&results.started),
        embedded(results),
    )
}

/// The results, without anything that could end the element that they stand in.
fn embedded(results: &Results) -> String {
    // JSON allows any character of a text as a number; `<` stands in texts only.
    results
        .to_json()
        .unwrap_or_default()
        .replace('<', "\\u003c")
}

fn rows(table: &Table) -> String {
    let class = if table.words { " class=\"words\"" } else { "" };
    let head: String = table
        .head
        .iter()
        .map(|cell| format!("<th scope=\"col\">{}</th>", escape(cell)))
        .collect();
    let mut body = String::new();
    for row in &table.rows {
        body += "<tr>";
        for (index, cell) in row.iter().enumerate() {
            let cell = escape(cell);
            body += &match index {
                0 => format!("<th scope=\"row\">{cell}</th>"),
                _ => format!("<td>{cell}</td>"),
            };
        }
        body += "</tr>\n";
    }
    format!(
        "<div class=\"wide\" tabindex=\"0\"><table{class}>\n<thead><tr>{head}</tr></thead>\n\
         <tbody>\n{body}</tbody></table></div>\n"
    )
}

/// Text between tags and in attributes.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}
