//! What `cordon vpn up` gets by plain HTTP because it is signed: revocation lists, answers of OCSP responders.
//!
//! Only addresses of the configuration are asked, never those in a peer's certificate: whoever could name
//! them could have us ask anybody (CVE-2022-40617). Redirects are not followed, for the same reason.

use anyhow::Context as _;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use crate::failure::{Failure, Outcome};

/// Host and port that are asked, and the address as it was written.
fn target(url: &str) -> anyhow::Result<(String, Uri)> {
    let uri: Uri = url.parse()?;
    anyhow::ensure!(uri.scheme_str() == Some("http"), "it is no http:// address");
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

/// Gets what is at `url`, `most` bytes at most.
///
/// # Errors
/// Those of the way there and back, and any status but 200.
pub(super) async fn get(url: &str, most: usize) -> anyhow::Result<Vec<u8>> {
    exchange(url, Request::get("/"), Bytes::new(), most).await
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
) -> anyhow::Result<Vec<u8>> {
    let request = Request::post("/").header(header::CONTENT_TYPE, content_type);
    exchange(url, request, body.into(), most).await
}

async fn exchange(
    url: &str,
    request: http::request::Builder,
    body: Bytes,
    most: usize,
) -> anyhow::Result<Vec<u8>> {
    let (host, uri) = target(url)?;
    let stream = TcpStream::connect(&host).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with this function, also when nobody waits for that any more.
    let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = request
        .uri(path)
        .header(header::HOST, &host)
        .body(Full::new(body))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    anyhow::ensure!(status == StatusCode::OK, "the server says {status}");
    let body = Limited::new(response.into_body(), most).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!(error))?;
    Ok(body.to_bytes().to_vec())
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
            post(&url, "application/ocsp-request", b"question".to_vec(), most).await
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
        assert_eq!(get(&url, 100).await.unwrap(), b"list");
        let asked = served.await.unwrap();
        assert!(asked.starts_with("GET /ocsp?a=b HTTP/1.1\r\n"), "{asked}");
        assert!(!asked.contains("content-length"), "{asked}");
    }
}
