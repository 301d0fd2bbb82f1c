//! Both ends of FTP (RFC 959, RFC 2428) for measurements: a server that throws away what it gets, and a
//! client.
//!
//! Other servers wait between two replies for a delayed acknowledgement, 40 ms for each file, and curl
//! sometimes sleeps for a second before it connects; then that is what is measured. These two wait for
//! nothing. The server is for the lab's own namespaces: it asks for no password.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use crate::LabError;

/// No command is longer, in bytes.
const MAX_LINE: u64 = 4096;
/// Bytes taken at a time.
const CHUNK: usize = 256 * 1024;
const LIMIT: Duration = Duration::from_secs(600);

/// Serves for ever; says `listening` once it does, and `received BYTES` after each file.
///
/// # Errors
/// The address cannot be used.
pub fn serve(address: IpAddr) -> Result<(), LabError> {
    let listener =
        TcpListener::bind(SocketAddr::new(address, 21)).map_err(LabError::io("port 21"))?;
    say("listening")?;
    for stream in listener.incoming() {
        let stream = stream.map_err(LabError::io("a connection"))?;
        std::thread::spawn(move || {
            // The client tells what went wrong; here it is the end of one connection.
            let _ = session(&stream);
        });
    }
    Ok(())
}

fn say(text: &str) -> Result<(), LabError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(LabError::io("a line"))
}

fn session(stream: &TcpStream) -> Result<(), LabError> {
    let failed = || LabError::io("a session");
    stream.set_nodelay(true).map_err(failed())?;
    stream.set_read_timeout(Some(LIMIT)).map_err(failed())?;
    let mut reader = BufReader::new(stream);
    let mut data: Option<TcpListener> = None;
    let reply = |text: &str| {
        let mut stream = stream;
        stream
            .write_all(format!("{text}\r\n").as_bytes())
            .map_err(failed())
    };
    reply("220 laboratory")?;
    loop {
        let mut line = String::new();
        if (&mut reader)
            .take(MAX_LINE)
            .read_line(&mut line)
            .map_err(failed())?
            == 0
        {
            return Ok(());
        }
        let word = line
            .split_whitespace()
            .next()
            .unwrap_or_default()
            .to_ascii_uppercase();
        match word.as_str() {
            "USER" | "PASS" => reply("230 everybody")?,
            "PWD" => reply("257 \"/\"")?,
            "TYPE" => reply("200 bytes")?,
            "EPSV" => {
                let address = stream.local_addr().map_err(failed())?.ip();
                let listener = TcpListener::bind((address, 0)).map_err(failed())?;
                let port = listener.local_addr().map_err(failed())?.port();
                data = Some(listener);
                reply(&format!("229 here (|||{port}|)"))?;
            }
            "STOR" => match data.take() {
                Some(listener) => {
                    reply("150 send")?;
                    let bytes = take(&listener)?;
                    say(&format!("received {bytes}"))?;
                    reply("226 taken")?;
                }
                None => reply("425 EPSV first")?,
            },
            "QUIT" => return reply("221 farewell"),
            _ => reply("502 not here")?,
        }
    }
}

/// Reads a data connection to its end.
fn take(listener: &TcpListener) -> Result<u64, LabError> {
    let failed = || LabError::io("a file");
    let (mut stream, _) = listener.accept().map_err(failed())?;
    stream.set_read_timeout(Some(LIMIT)).map_err(failed())?;
    let mut buffer = vec![0; CHUNK];
    let mut bytes = 0;
    loop {
        match stream.read(&mut buffer).map_err(failed())? {
            0 => return Ok(bytes),
            count => bytes += count as u64,
        }
    }
}

/// Sends files in one session, one after the other.
///
/// # Errors
/// The server cannot be reached or refuses.
pub fn send(server: SocketAddr, files: &[PathBuf]) -> Result<(), LabError> {
    let failed = || LabError::io("sending files");
    let stream = TcpStream::connect(server).map_err(failed())?;
    stream.set_nodelay(true).map_err(failed())?;
    stream.set_read_timeout(Some(LIMIT)).map_err(failed())?;
    let mut reader = BufReader::new(&stream);
    let mut ask = |words: &str, wanted: &str| -> Result<String, LabError> {
        if !words.is_empty() {
            (&stream)
                .write_all(format!("{words}\r\n").as_bytes())
                .map_err(failed())?;
        }
        let mut line = String::new();
        (&mut reader)
            .take(MAX_LINE)
            .read_line(&mut line)
            .map_err(failed())?;
        if line.starts_with(wanted) {
            return Ok(line);
        }
        let said = line.trim().to_owned();
        Err(LabError::Unexpected(format!(
            "{words:?} was answered with {said:?}"
        )))
    };
    ask("", "220")?;
    ask("USER laboratory", "230")?;
    ask("TYPE I", "200")?;
    for (number, path) in files.iter().enumerate() {
        let passive = ask("EPSV", "229")?;
        let port = passive
            .split('|')
            .nth(3)
            .and_then(|port| port.parse::<u16>().ok());
        let port = port.ok_or_else(|| LabError::Unexpected("a reply without a port".to_owned()))?;
        let mut file = File::open(path).map_err(failed())?;
        let mut data = TcpStream::connect((server.ip(), port)).map_err(failed())?;
        ask(&format!("STOR {number}"), "150")?;
        std::io::copy(&mut file, &mut data).map_err(failed())?;
        drop(data);
        ask("", "226")?;
    }
    ask("QUIT", "221")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server for one session.
    fn server() -> (SocketAddr, std::thread::JoinHandle<Result<(), LabError>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (
            address,
            std::thread::spawn(move || session(&listener.accept().unwrap().0)),
        )
    }

    #[test]
    fn files_are_sent_and_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 1_000_000]).unwrap();
        let (address, session) = server();
        send(address, &[path.clone(), path]).unwrap();
        session.join().unwrap().unwrap();
    }

    #[test]
    fn nothing_else_is_served() {
        let (address, session) = server();
        let stream = TcpStream::connect(address).unwrap();
        let mut reader = BufReader::new(&stream);
        let mut ask = |words: &str| {
            (&stream).write_all(words.as_bytes()).unwrap();
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            line
        };
        assert!(ask("").starts_with("220"));
        assert!(ask("STOR early\r\n").starts_with("425"));
        assert!(ask("RETR secret\r\n").starts_with("502"));
        assert!(ask("QUIT\r\n").starts_with("221"));
        session.join().unwrap().unwrap();
    }
}
