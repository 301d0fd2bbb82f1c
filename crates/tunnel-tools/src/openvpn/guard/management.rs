//! What OpenVPN says on its management socket, line by line (its `management-notes.txt`).
//!
//! Beside our commands' answers there are notices, which begin with `>`. One about a device has several lines:
//!
//! ```text
//! >CLIENT:CONNECT,7,1             device 7 connects, with key 1; REAUTH: it has a new key
//! >CLIENT:ENV,tls_serial_hex_0=5f:55:90
//! >CLIENT:ENV,common_name=camera-17
//! >CLIENT:ENV,END
//! ```

/// Characters of a line at most (our choice); OpenVPN's own have some hundred.
pub(super) const MAX_LINE: usize = 16 * 1024;
/// Lines about one device at most; OpenVPN gives some sixty.
const MAX_LINES: usize = 512;

/// A session, as OpenVPN numbers them.
pub(super) type Client = u64;

/// What a device has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    /// Serial number of its certificate, as [`pki::cert::serial_hex`] has it.
    pub(super) serial: String,
    /// The name in it.
    pub(super) name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// OpenVPN waits for permission to begin.
    Hold,
    /// A device connects, or has a new key. Without a peer the device is not known.
    Admission {
        client: Client,
        key: u64,
        peer: Option<Peer>,
    },
    Ended(Client),
    /// A command was refused.
    Refused(String),
}

/// A notice of which not all lines have come.
struct Begun {
    client: Client,
    /// None at the end of a session.
    key: Option<u64>,
    serial: Option<String>,
    name: Option<String>,
    lines: usize,
    damaged: bool,
}

/// Makes notices of lines.
#[derive(Default)]
pub(super) struct Reader {
    begun: Option<Begun>,
}

impl Reader {
    /// Takes a line without its end.
    pub(super) fn line(&mut self, line: &str) -> Option<Notice> {
        if let Some(said) = line.strip_prefix("ERROR:") {
            return Some(Notice::Refused(said.trim().to_owned()));
        }
        if line.starts_with(">HOLD:") {
            return Some(Notice::Hold);
        }
        let said = line.strip_prefix(">CLIENT:")?;
        if let Some(variable) = said.strip_prefix("ENV,") {
            return self.variable(variable);
        }
        let mut parts = said.split(',');
        let what = parts.next().unwrap_or_default();
        let mut number = || parts.next().and_then(|text| text.parse::<u64>().ok());
        let (client, key) = (number(), number());
        self.begun = None;
        match (what, client, key) {
            ("CONNECT" | "REAUTH", Some(client), Some(key)) => self.begin(client, Some(key)),
            ("DISCONNECT", Some(client), _) => self.begin(client, None),
            _ => {}
        }
        None
    }

    fn begin(&mut self, client: Client, key: Option<u64>) {
        self.begun = Some(Begun {
            client,
            key,
            serial: None,
            name: None,
            lines: 0,
            damaged: false,
        });
    }

    fn variable(&mut self, variable: &str) -> Option<Notice> {
        if variable == "END" {
            return self.begun.take().map(Begun::notice);
        }
        let begun = self.begun.as_mut()?;
        begun.lines = begun.lines.saturating_add(1);
        begun.damaged |= begun.lines > MAX_LINES;
        let (name, value) = variable.split_once('=')?;
        let (slot, value) = match name {
            "tls_serial_hex_0" => (&mut begun.serial, serial(value)?),
            "common_name" => (&mut begun.name, value.to_owned()),
            _ => return None,
        };
        // Two different values of one variable are an error.
        begun.damaged |= slot.as_ref().is_some_and(|known| *known != value);
        *slot = Some(value);
        None
    }
}

impl Begun {
    fn notice(self) -> Notice {
        let client = self.client;
        let Some(key) = self.key else {
            return Notice::Ended(client);
        };
        let peer = self.serial.zip(self.name);
        let peer = peer.filter(|(_, name)| !self.damaged && is_name(name));
        Notice::Admission {
            client,
            key,
            peer: peer.map(|(serial, name)| Peer { serial, name }),
        }
    }
}

/// Checks that it is a device's name. The name is part of commands, too.
fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !name.is_empty() && name.len() <= 64 && !name.starts_with('-') && name.bytes().all(plain)
}

/// A serial number in the form of the registry; none if it is not a number.
fn serial(colons: &str) -> Option<String> {
    let bytes = hex::decode(colons.replace(':', "")).ok()?;
    (!bytes.is_empty() && bytes.len() <= 32).then(|| pki::cert::serial_to_hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notices(lines: &str) -> Vec<Notice> {
        let mut reader = Reader::default();
        lines.lines().filter_map(|line| reader.line(line)).collect()
    }

    fn admission(peer: Option<(&str, &str)>) -> Notice {
        let peer = peer.map(|(serial, name)| Peer {
            serial: serial.to_owned(),
            name: name.to_owned(),
        });
        Notice::Admission {
            client: 7,
            key: 1,
            peer,
        }
    }

    #[test]
    fn lines_of_openvpn_become_notices() {
        let lines = ">INFO:OpenVPN Management Interface Version 5 -- type 'help' for more info
>HOLD:Waiting for hold release:0
SUCCESS: hold release succeeded
>CLIENT:CONNECT,7,1
>CLIENT:ENV,n_clients=0
>CLIENT:ENV,common_name=camera-17
>CLIENT:ENV,tls_serial_hex_0=00:5f:0a
>CLIENT:ENV,tls_serial_hex_1=59:ce
>CLIENT:ENV,END
>CLIENT:ADDRESS,7,10.8.0.2,1
>CLIENT:ESTABLISHED,7
>CLIENT:ENV,common_name=camera-17
>CLIENT:ENV,END
ERROR: client-kill command failed
>CLIENT:DISCONNECT,7
>CLIENT:ENV,bytes_sent=1
>CLIENT:ENV,END";
        let expected = [
            Notice::Hold,
            admission(Some(("5f0a", "camera-17"))),
            Notice::Refused("client-kill command failed".to_owned()),
            Notice::Ended(7),
        ];
        assert_eq!(notices(lines), expected);
    }

    #[test]
    fn device_that_cannot_be_told_is_nobody() {
        let ask =
            |variables: &str| notices(&format!(">CLIENT:REAUTH,7,1\n{variables}\n>CLIENT:ENV,END"));
        let name = ">CLIENT:ENV,common_name=a";
        let good = format!("{name}\n>CLIENT:ENV,tls_serial_hex_0=01");
        assert_eq!(ask(&good), [admission(Some(("01", "a")))]);
        for bad in [
            String::new(),
            name.to_owned(),
            format!("{name}\n>CLIENT:ENV,tls_serial_hex_0=zz"),
            format!("{name}\n>CLIENT:ENV,tls_serial_hex_0="),
            format!("{good}\n>CLIENT:ENV,tls_serial_hex_0=02"),
            format!("{good}\n>CLIENT:ENV,common_name=b"),
            good.replace("=a", "=a\" b"),
            good.replace("=a", "=-a"),
            good.replace("=a", "="),
            format!("{good}{}", "\n>CLIENT:ENV,x=y".repeat(MAX_LINES)),
        ] {
            assert_eq!(ask(&bad), [admission(None)], "{bad}");
        }
    }

    #[test]
    fn lines_that_are_no_notices_are_left_alone() {
        for line in [
            "",
            ">",
            ">CLIENT:",
            ">CLIENT:CONNECT",
            ">CLIENT:CONNECT,x,1",
            ">CLIENT:CONNECT,1",
            ">CLIENT:ENV,END",
            ">CLIENT:ENV",
            ">LOG:1,2,3",
        ] {
            assert!(notices(line).is_empty(), "{line}");
        }
        // A block that another one interrupts is none.
        let cut = ">CLIENT:CONNECT,1,1\n>CLIENT:ESTABLISHED,7\n>CLIENT:ENV,END";
        assert!(notices(cut).is_empty());
    }
}
