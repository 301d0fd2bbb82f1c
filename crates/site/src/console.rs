//! Who gives an order on the command line: the Unix user, as the kernel says.

use audit::Actor;

/// loginuid of a process that no login started (`AUDIT_UID_UNSET`).
const NO_LOGIN: u32 = u32::MAX;

/// The user of this process.
pub fn this_process() -> Actor {
    actor(
        rustix::process::getuid().as_raw(),
        login(std::process::id().cast_signed()),
    )
}

/// The user on the other side of a Unix socket.
pub fn peer(credentials: &tokio::net::unix::UCred) -> Actor {
    actor(credentials.uid(), credentials.pid().and_then(login))
}

/// Finds who logged in and started the process, which stays known through sudo and su. For the record
/// only: it needs no proof, because it decides nothing.
fn login(pid: i32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/loginuid")).ok()?;
    let uid = text.trim().parse().ok()?;
    (uid != NO_LOGIN).then_some(uid)
}

fn actor(uid: u32, login: Option<u32>) -> Actor {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    describe(uid, login, &passwd)
}

/// The name of the user `uid`, or the number of one without name.
pub fn shown(uid: u32) -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    user_name(uid, &passwd).unwrap_or_else(|| format!("user {uid}"))
}

fn describe(uid: u32, login: Option<u32>, passwd: &str) -> Actor {
    let name = |uid| user_name(uid, passwd).unwrap_or_else(|| format!("user {uid}"));
    let mut shown = name(uid);
    if let Some(login) = login.filter(|login| *login != uid) {
        shown = format!("{shown}, logged in as {} ({login})", name(login));
    }
    Actor::user(format!("unix:{uid}"), shown)
}

/// The name of `uid` in a file like `/etc/passwd`.
fn user_name(uid: u32, passwd: &str) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let number: u32 = fields.nth(1)?.parse().ok()?;
        (number == uid).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nbroken\nana:x:1000:1000::/home/ana:/bin/sh\n";

    #[test]
    fn actor_is_the_unix_user_with_the_login_behind_it() {
        let shown = |uid, login| {
            let actor = describe(uid, login, PASSWD);
            (actor.id, actor.name.unwrap())
        };
        let is = |id: &str, name: &str| (id.to_owned(), name.to_owned());
        assert_eq!(shown(1000, None), is("unix:1000", "ana"));
        assert_eq!(shown(1000, Some(1000)), is("unix:1000", "ana"));
        assert_eq!(
            shown(0, Some(1000)),
            is("unix:0", "root, logged in as ana (1000)")
        );
        assert_eq!(shown(7, None), is("unix:7", "user 7"));
    }

    #[tokio::test]
    async fn peer_of_a_socket_is_this_user() {
        let (one, _other) = tokio::net::UnixStream::pair().unwrap();
        let peer = peer(&one.peer_cred().unwrap());
        assert_eq!(peer, this_process());
    }
}
