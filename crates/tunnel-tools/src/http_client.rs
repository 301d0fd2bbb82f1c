//! What `cordon vpn up` gets by plain HTTP because it is signed: revocation lists, answers of OCSP responders.
//!
//! Only addresses of the configuration are requested, never those in a peer's certificate: an attacker with such a
//! certificate could send our requests to any host (CVE-2022-40617). Redirects are not followed, for the same reason.

use anyhow::Context as _;
use commandline::{Failure, Outcome};
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

/// Host and port that are asked, and the address as it was written.
fn target(url: &str) -> anyhow::Result<(String, Uri)> {
    let uri: Uri = url.parse()?;
    anyhow::ensure!(uri.scheme_str() == Some("http"), "URL scheme must be http");
    let authority = uri.authority().context("it names no host")?;
    let port = authority.port_u16().unwrap_or(80);
    let host = authority.host();
    Ok((format!("{host}:{port}"), uri))
}

/// Refuses addresses that cannot be asked. `setting` is where they stand, `example` a good one.
pub(super) fn check(urls: &[String], setting: &str, example: &str) -> Outcome {
    for url in urls {
        target(url).map_err(|error| {
            let error = error.context(format!("`{setting}` of [trust]: {url}"));
            let hint = format!("what comes is signed: name addresses like {example}");
            Failure::new(error, hint)
        })?;
    }
    Ok(())
}

/// Bytes of an entity tag at most; a longer one is as none.
const MAX_TAG: usize = 256;

/// A server's answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fetched {
    /// None if the entity tag of the question still matches.
    pub(super) body: Option<Vec<u8>>,
    /// The entity tag (RFC 9110, section 8.8.3), by which a later question is answered without a body.
    pub(super) tag: Option<String>,
}

/// Gets what is at `url`, `most` bytes at most, unless the entity tag `known` still matches.
///
/// # Errors
/// Those of the way there and back, and any status but 200, and 304 where a tag was given.
pub(super) async fn get(url: &str, most: usize, known: Option<&str>) -> anyhow::Result<Fetched> {
    let request = match known {
        Some(tag) => Request::get("/").header(header::IF_NONE_MATCH, tag),
        None => Request::get("/"),
    };
    exchange(url, request, Bytes::new(), most).await
}

/// Posts something of a content type, and gets the answer.
///
/// # Errors
/// As [`get`].
pub(super) async fn post(
    url: &str,
    content_type: &str,
    body: Vec<u8>,
    most: usize,
) -> anyhow::Result<Fetched> {
    let request = Request::post("/").header(header::CONTENT_TYPE, content_type);
    exchange(url, request, body.into(), most).await
}

async fn exchange(
    url: &str,
    request: http::request::Builder,
    body: Bytes,
    most: usize,
) -> anyhow::Result<Fetched> {
    let (host, uri) = target(url)?;
    let stream = TcpStream::connect(&host).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The driver ends with this function, also when the caller is cancelled.
    let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
    let is_conditional = request
        .headers_ref()
        .is_some_and(|headers| headers.contains_key(header::IF_NONE_MATCH));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = request
        .uri(path)
        .header(header::HOST, &host)
        .body(Full::new(body))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let tag = response.headers().get(header::ETAG);
    let tag = tag.and_then(|tag| tag.to_str().ok());
    let tag = tag.filter(|tag| tag.len() <= MAX_TAG).map(str::to_owned);
    if status == StatusCode::NOT_MODIFIED && is_conditional {
        return Ok(Fetched { body: None, tag });
    }
    anyhow::ensure!(status == StatusCode::OK, "the server says {status}");
    let body = Limited::new(response.into_body(), most).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!(error))?;
    let body = Some(body.to_bytes().to_vec());
    Ok(Fetched { body, tag })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn addresses_are_checked() {
        let (host, uri) = target("http://crl.example.org/a.crl?x").unwrap();
        assert_eq!(host, "crl.example.org:80");
        assert_eq!(uri.path_and_query().unwrap().as_str(), "/a.crl?x");
        assert_eq!(target("http://[::1]:8080/a").unwrap().0, "[::1]:8080");
        for bad in [
            "https://crl.example.org/",
            "/a.crl",
            "ftp://x/",
            "http://",
            "crl.example.org",
        ] {
            let failure =
                check(&[bad.to_owned()], "crl_urls", "http://a.example.org/").unwrap_err();
            let said = failure.message();
            assert!(
                said.contains("`crl_urls` of [trust]") && said.contains(bad),
                "{said}"
            );
        }
    }

    /// Gives one answer, and what it was asked.
    async fn serve(answer: Vec<u8>) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/ocsp?a=b", listener.local_addr().unwrap());
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            // The body comes last, and ends with this word.
            while !asked.ends_with(b"question") && !asked.starts_with(b"GET") {
                let mut part = [0; 1024];
                let count = stream.read(&mut part).await.unwrap();
                asked.extend_from_slice(&part[..count]);
            }
            stream.write_all(&answer).await.unwrap();
            String::from_utf8(asked).unwrap()
        });
        (url, served)
    }

    fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n");
        [head.as_bytes(), body].concat()
    }

    #[tokio::test]
    async fn a_question_is_posted_and_the_answer_has_a_bound() {
        let ask = |url: String, most| async move {
            let body = b"question".to_vec();
            let answer = post(&url, "application/ocsp-request", body, most).await;
            answer.map(|fetched| fetched.body.unwrap())
        };
        let (url, served) = serve(answer("200 OK", "", b"answer")).await;
        assert_eq!(ask(url, 6).await.unwrap(), b"answer");
        let asked = served.await.unwrap();
        assert!(asked.starts_with("POST /ocsp?a=b HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("content-type: application/ocsp-request\r\n"));
        assert!(asked.contains("content-length: 8\r\n"));
        let (url, _) = serve(answer("200 OK", "", b"answer")).await;
        assert!(ask(url, 5).await.is_err());
        let elsewhere = "location: http://127.0.0.1:1/\r\n";
        let (url, _) = serve(answer("302 Found", elsewhere, b"")).await;
        let refused = ask(url, 6).await.unwrap_err();
        assert_eq!(refused.to_string(), "the server says 302 Found");
    }

    #[tokio::test]
    async fn a_list_is_got() {
        let (url, served) = serve(answer("200 OK", "", b"list")).await;
        let fetched = get(&url, 100, None).await.unwrap();
        assert_eq!(fetched.body.unwrap(), b"list");
        assert_eq!(fetched.tag, None);
        let asked = served.await.unwrap();
        assert!(asked.starts_with("GET /ocsp?a=b HTTP/1.1\r\n"), "{asked}");
        assert!(!asked.contains("content-length"), "{asked}");
        assert!(!asked.contains("if-none-match"), "{asked}");
    }

    #[tokio::test]
    async fn what_is_known_by_its_entity_tag_is_not_sent_again() {
        let (url, _) = serve(answer("200 OK", "etag: \"7\"\r\n", b"list")).await;
        let fetched = get(&url, 100, None).await.unwrap();
        assert_eq!(fetched.tag.as_deref(), Some("\"7\""));
        let (url, served) =
            serve(b"HTTP/1.1 304 Not Modified\r\netag: \"7\"\r\n\r\n".to_vec()).await;
        let again = get(&url, 100, Some("\"7\"")).await.unwrap();
        assert_eq!(again.body, None);
        let asked = served.await.unwrap();
        assert!(asked.contains("if-none-match: \"7\"\r\n"), "{asked}");
        // Without a tag in the request, this answer is an error.
        let (url, _) = serve(b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec()).await;
        let refused = get(&url, 100, None).await.unwrap_err();
        assert_eq!(refused.to_string(), "the server says 304 Not Modified");
        let long = format!("etag: \"{}\"\r\n", "7".repeat(MAX_TAG));
        let (url, _) = serve(answer("200 OK", &long, b"list")).await;
        assert_eq!(get(&url, 100, None).await.unwrap().tag, None);
    }
}
