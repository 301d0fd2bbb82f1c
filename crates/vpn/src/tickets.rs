//! The keys of session tickets (RFC 5723 §6.1): kept in a file, so that tickets outlive a crash, and replaced.
//!
//! Whoever gets a key can read resumed sessions that were recorded while it was in use. So a key seals for half a
//! day, is there for as long as the last of its tickets is good, and then is gone, from the disk too.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ikev2::{TicketKeys, Timestamp};
use zeroize::Zeroizing;

use super::secret;

/// Lifetime of a ticket.
const TICKET_LIFE: Duration = Duration::from_secs(3600);
/// Lifetime of a sealing key.
const KEY_LIFE: Duration = Duration::from_secs(12 * 3600);
/// The first line of the file: which form it has.
const FORM: &str = "session tickets 1";
/// Bytes of the file at most.
const MOST: u64 = 4096;
/// Keys at most: the one that seals, and those before it whose tickets may be in date.
const KEYS: usize = 2;

/// A key, and since when (seconds since 1970).
struct Key {
    since: u64,
    secret: Zeroizing<[u8; 32]>,
}

/// The keys as they are in the file, the newest first.
pub(super) struct TicketFile {
    path: PathBuf,
    keys: Vec<Key>,
}

/// Seconds since 1970.
pub(super) fn wall() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

fn read(path: &Path) -> Result<Vec<Key>, String> {
    let text = keyhost::secret_file::read(path, MOST)?;
    let shown = path.display();
    let wrong = || format!("{shown} has no keys of session tickets: remove it for new ones");
    let text = std::str::from_utf8(&text).map_err(|_| wrong())?;
    let mut lines = text.lines();
    if lines.next() != Some(FORM) {
        return Err(wrong());
    }
    let key = |line: &str| {
        let (since, digits) = line.split_once(' ')?;
        let mut secret = Zeroizing::new([0; 32]);
        hex::decode_to_slice(digits, &mut *secret).ok()?;
        let since = since.parse().ok()?;
        Some(Key { since, secret })
    };
    let keys: Option<Vec<Key>> = lines.map(key).collect();
    keys.filter(|keys| (1..=KEYS).contains(&keys.len()))
        .ok_or_else(wrong)
}

impl TicketFile {
    /// Reads the file, or makes it where there is none. A lost one costs whole handshakes and no more; one that
    /// cannot be read is an error.
    ///
    /// # Errors
    /// A text for the operator.
    pub(super) fn open(path: &Path, wall: u64) -> Result<Self, String> {
        let shown = path.display();
        let there = path.try_exists();
        let keys = match there.map_err(|error| format!("{shown}: {error}"))? {
            true => read(path)?,
            false => Vec::new(),
        };
        let mut file = Self {
            path: path.to_owned(),
            keys,
        };
        file.rotate(wall)?;
        Ok(file)
    }

    /// Puts a new key in front if the newest has had its time; whether it did. One of a time to come is of a
    /// clock that was ahead, and goes as well.
    ///
    /// # Errors
    /// A text for the operator; then all is as it was.
    pub(super) fn rotate(&mut self, wall: u64) -> Result<bool, String> {
        let age = |key: &Key| wall.checked_sub(key.since).map(Duration::from_secs);
        let newest = self.keys.first().and_then(age);
        let sealing = newest.is_some_and(|age| age < KEY_LIFE);
        // A ticket may have been sealed at the last moment of its key, and lives its whole time.
        let good = |key: &&Key| age(key).is_some_and(|age| age < KEY_LIFE + TICKET_LIFE);
        let kept: Vec<&Key> = self.keys.iter().filter(good).take(KEYS).collect();
        if sealing && kept.len() == self.keys.len() {
            return Ok(false);
        }
        let mut keys: Vec<Key> = Vec::new();
        if !sealing {
            let mut secret = Zeroizing::new([0; 32]);
            let filled = aws_lc_rs::rand::fill(&mut *secret);
            filled.map_err(|_| "no random numbers".to_owned())?;
            keys.push(Key {
                since: wall,
                secret,
            });
        }
        let old = kept.into_iter().map(|key| Key {
            since: key.since,
            secret: key.secret.clone(),
        });
        keys.extend(old);
        keys.truncate(KEYS);
        // All the room at once: a string that grows leaves copies of the keys behind.
        let mut text = Zeroizing::new(String::with_capacity(usize::try_from(MOST).unwrap_or(0)));
        text.push_str(FORM);
        for key in &keys {
            let digits = Zeroizing::new(hex::encode(*key.secret));
            text.push_str(&format!("\n{} ", key.since));
            text.push_str(&digits);
        }
        // On disk before it seals: tickets under a key that a restart forgets would be worth nothing.
        secret::write(&self.path, text.as_bytes())
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        self.keys = keys;
        Ok(true)
    }

    /// The keys for an endpoint whose time is `now`.
    pub(super) fn keys(&self, now: Timestamp) -> TicketKeys {
        // Tickets outlive the process, so their dates are of the wall clock.
        let epoch = wall().saturating_sub(now.since_start().as_secs());
        let keys: Vec<_> = self.keys.iter().map(|key| key.secret.clone()).collect();
        TicketKeys::new(&keys, TICKET_LIFE, epoch)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const DAY: u64 = 24 * 3600;

    fn secrets(file: &TicketFile) -> Vec<[u8; 32]> {
        file.keys.iter().map(|key| *key.secret).collect()
    }

    #[test]
    fn ticket_keys_survive_a_restart_and_rotate_twice_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tickets");
        let mut file = TicketFile::open(&path, DAY).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let first = secrets(&file);
        assert_eq!(secrets(&TicketFile::open(&path, DAY + 100).unwrap()), first);
        assert_eq!(file.rotate(DAY + KEY_LIFE.as_secs() - 1), Ok(false));
        // The old one opens the last of its tickets.
        let later = DAY + KEY_LIFE.as_secs();
        assert_eq!(file.rotate(later), Ok(true));
        let both = secrets(&file);
        assert_eq!(
            (both.len(), both[1], both[0] != first[0]),
            (2, first[0], true)
        );
        assert_eq!(secrets(&TicketFile::open(&path, later).unwrap()), both);
        // Then it is gone, and from the file too.
        let over = later + TICKET_LIFE.as_secs();
        assert_eq!(file.rotate(over), Ok(true));
        assert_eq!(secrets(&file), [both[0]]);
        assert_eq!(secrets(&TicketFile::open(&path, over).unwrap()), [both[0]]);
        assert!(
            !std::fs::read_to_string(&path)
                .unwrap()
                .contains(&hex::encode(first[0]))
        );
    }

    #[test]
    fn ticket_key_from_the_future_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tickets");
        let ahead = secrets(&TicketFile::open(&path, 40 * DAY).unwrap());
        let now = secrets(&TicketFile::open(&path, DAY).unwrap());
        assert!(now.len() == 1 && now != ahead);
    }

    #[test]
    fn ticket_file_of_another_form_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tickets");
        let good = format!("{FORM}\n100 {}", hex::encode([7; 32]));
        let many = format!("{good}\n{0}\n{0}", format!("90 {}", hex::encode([8; 32])));
        let bad = [
            "",
            FORM,
            "session tickets 2\n100 00",
            &good[..good.len() - 1],
            &many,
        ];
        for text in bad {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            let refused = TicketFile::open(&path, 100).err().unwrap();
            assert!(
                refused.contains("remove it for new ones"),
                "{text}: {refused}"
            );
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        std::fs::write(&path, &good).unwrap();
        assert!(TicketFile::open(&path, 100).is_ok());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(
            TicketFile::open(&path, 100)
                .err()
                .unwrap()
                .contains("others may read it")
        );
    }
}
