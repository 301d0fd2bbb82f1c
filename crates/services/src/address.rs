//! Addresses that people's browsers are sent to.

use http::Uri;

/// Longest address in bytes: browsers and proxies take as much.
pub const MAX_ADDRESS: usize = 1024;

/// Tells whether `text` is an absolute `https` address with a host, and without user, fragment, backslash or spaces.
///
/// Browsers read `\` as `/` and drop tabs and line breaks, so that another host could be read than the one that was checked.
#[must_use]
pub fn is_https(text: &str) -> bool {
    let visible = text.bytes().all(|b| b.is_ascii_graphic());
    if text.len() > MAX_ADDRESS || !visible || text.contains(['\\', '#', '"', '<', '>']) {
        return false;
    }
    let Ok(uri) = text.parse::<Uri>() else {
        return false;
    };
    let Some(authority) = uri.authority() else {
        return false;
    };
    uri.scheme_str() == Some("https")
        && text.starts_with("https://")
        && !authority.host().is_empty()
        && !authority.as_str().contains('@')
}
