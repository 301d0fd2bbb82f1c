//! Text of a notice: RFC 5322 in ASCII, without anything that the relay or a mailbox must not know.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// The meaning of a change for its recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Occasion {
    /// It waits for an approval that the recipient may give.
    Waits,
    /// An emergency was carried out, and waits for the second approval that the recipient may give.
    WaitsForSecond,
    /// It came back to its requester.
    Returned,
    Refused,
    /// It has all approvals and is to be carried out by its requester.
    Approved,
    /// It was carried out; told to requester and subject.
    CarriedOut,
    /// It was carried out, and is about the recipient.
    Concerns,
}

impl Occasion {
    const fn says(self) -> &'static str {
        match self {
            Self::Waits => "waits for approval, which you may give",
            Self::WaitsForSecond => {
                "was an emergency and waits for a second approval, which you may give; the time for it is short"
            }
            Self::Returned => "came back to you; the page says why",
            Self::Refused => "was refused for good; the page says why",
            Self::Approved => "is approved; carry it out on its page",
            Self::CarriedOut => "was carried out",
            Self::Concerns => {
                "was carried out and is about you; if you know nothing of it, ask your registrar at once"
            }
        }
    }
}

/// A line of a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Number of the request.
    pub(crate) request: String,
    pub(crate) occasion: Occasion,
    /// Number of the change.
    pub(crate) number: i64,
}

/// A notice for one recipient; without lines, a test. `portal` is the address of the portal.
pub(crate) struct Notice<'a> {
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    pub(crate) lines: &'a [Line],
    pub(crate) portal: &'a str,
    pub(crate) at: OffsetDateTime,
}

impl Notice<'_> {
    /// The message. Whose names and reasons are in a request stays in the portal: relays and mailboxes are others'.
    pub(crate) fn text(&self) -> String {
        let (from, to) = (self.from, self.to);
        let subject = match self.lines {
            [] => "Test of notices".to_owned(),
            [line] => format!("Request {}", line.request),
            lines => format!("{} requests", lines.len()),
        };
        let date = self.at.format(&Rfc2822).unwrap_or_default();
        // The same notice sent twice, after a crash, is one for programs that look at this field; two tests are two.
        let domain = from
            .rsplit_once('@')
            .map_or("localhost", |(_, domain)| domain);
        let mut name = to.to_owned();
        for line in self.lines {
            let _ = write!(name, ":{}", line.number);
        }
        if self.lines.is_empty() {
            let _ = write!(name, ":{}", self.at.unix_timestamp_nanos());
        }
        let id = evidence::digest::Sha256Digest::of(name.as_bytes()).to_string();
        let id = id.get(..32).unwrap_or_default();
        let mut text = format!(
            "From: Cordon <{from}>\r\nTo: <{to}>\r\nSubject: [Cordon] {subject}\r\nDate: {date}\r\n\
             Message-ID: <{id}@{domain}>\r\nAuto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n\
             Content-Type: text/plain; charset=us-ascii\r\nContent-Transfer-Encoding: 7bit\r\n\r\n"
        );
        for Line {
            request, occasion, ..
        } in self.lines
        {
            let (says, portal) = (occasion.says(), self.portal);
            let _ = write!(
                text,
                "Request {request} {says}.\r\n{portal}requests/{request}\r\n\r\n"
            );
        }
        text.push_str("Whom a request is about and why it was made is on its page only. Nobody reads answers to this mail.\r\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(lines: &[Line]) -> String {
        let notice = Notice {
            from: "cordon@example.org",
            to: "ana@example.org",
            lines,
            portal: "https://portal.example.org:8443/",
            at: OffsetDateTime::UNIX_EPOCH,
        };
        notice.text()
    }

    fn line(request: &str, occasion: Occasion) -> Line {
        let request = request.to_owned();
        let number = 7;
        Line {
            request,
            occasion,
            number,
        }
    }

    #[test]
    fn notice_has_a_line_and_an_address_for_each_request() {
        let one = notice(&[line("0123456789ab", Occasion::Returned)]);
        assert!(
            one.contains("Subject: [Cordon] Request 0123456789ab\r\n"),
            "{one}"
        );
        assert!(
            one.contains("Date: Thu, 01 Jan 1970 00:00:00 +0000\r\n"),
            "{one}"
        );
        let two = notice(&[line("a1", Occasion::Waits), line("b2", Occasion::Concerns)]);
        assert!(two.contains("Subject: [Cordon] 2 requests\r\n"), "{two}");
        for request in ["a1", "b2"] {
            let address = format!("\r\nhttps://portal.example.org:8443/requests/{request}\r\n");
            assert!(two.contains(&address), "{two}");
        }
        assert!(two.is_ascii() && two.lines().all(|line| line.len() < 998));
        assert_eq!(two.matches('\n').count(), two.matches("\r\n").count());
    }

    #[test]
    fn notice_sent_again_has_the_same_message_id() {
        let id = |text: &str| {
            text.split("Message-ID: ")
                .nth(1)
                .map(|rest| rest[..34].to_owned())
        };
        let (one, other) = (
            notice(&[line("a1", Occasion::Waits)]),
            notice(&[line("a1", Occasion::Waits)]),
        );
        assert!(id(&one).is_some());
        assert_eq!(id(&one), id(&other));
    }
}
