//! Whether the data folder lies on an encrypted file system, as far as the kernel says.
//!
//! The index has plates and places in the clear, so the manual asks operators to encrypt the disk; this
//! looks whether they did. From the folder's mount the way leads to the block device, and from there down: a
//! mapping whose uuid begins with `CRYPT-` is dm-crypt (LUKS), a logical volume or an array is encrypted if
//! all below of it is, a partition if its disk is, a loop device if the file behind it is. A folder with an
//! fscrypt policy is encrypted by itself. Encryption in the disk's own hardware shows nowhere.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::{AtRest, Config};
use crate::failure::{Failure, Outcome};

/// Devices below devices that are followed.
const MAX_DEPTH: u32 = 8;
/// What the kernel calls a folder whose files fscrypt encrypts (`STATX_ATTR_ENCRYPTED`).
const ENCRYPTED: u64 = 0x0800;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// By the named means.
    Encrypted(String),
    /// Not, as far as the kernel knows.
    Plain(String),
    /// Nothing, for the named reason.
    Unknown(String),
}

impl Encryption {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Encrypted(_) => "encrypted",
            Self::Plain(_) => "plain",
            Self::Unknown(_) => "unknown",
        }
    }

    pub fn detail(&self) -> &str {
        match self {
            Self::Encrypted(detail) | Self::Plain(detail) | Self::Unknown(detail) => detail,
        }
    }
}

impl fmt::Display for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.detail())
    }
}

/// What `data` lies on.
pub fn examine(data: &Path) -> Encryption {
    let by_policy = rustix::fs::statx(
        rustix::fs::CWD,
        data,
        rustix::fs::AtFlags::empty(),
        rustix::fs::StatxFlags::empty(),
    );
    if by_policy.is_ok_and(|data| data.stx_attributes.bits() & ENCRYPTED != 0) {
        return Encryption::Encrypted("an fscrypt policy of the folder".to_owned());
    }
    let system = System {
        sys: PathBuf::from("/sys"),
        mounts: fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(),
    };
    let found = data
        .canonicalize()
        .and_then(|data| system.below_folder(&data, 0));
    found.unwrap_or_else(|error| Encryption::Unknown(format!("cannot look: {error}")))
}

/// Does what the settings demand: refuses, warns, or leaves it to the operator.
pub fn demand(config: &Config, data: &Path) -> Outcome {
    const HINT: &str = "put the data folder on an encrypted file system; `at_rest = \"asserted\"` in [storage] \
                        says that you answer for it otherwise";
    let found = examine(data);
    match (config.storage.at_rest, &found) {
        (AtRest::Asserted, _) | (_, Encryption::Encrypted(_)) => Ok(()),
        (AtRest::Required, _) => Err(Failure::new(
            anyhow::anyhow!(
                "{} must lie on an encrypted file system, and that is {found}",
                data.display()
            ),
            HINT,
        )),
        (AtRest::Warn, _) => {
            tracing::warn!(folder = %data.display(), "encryption of the data folder's file system: {found}");
            Ok(())
        }
    }
}

/// Where the kernel says what lies on what.
struct System {
    sys: PathBuf,
    /// The text of `/proc/self/mountinfo`.
    mounts: String,
}

struct Mount<'a> {
    device: &'a str,
    kind: &'a str,
    source: &'a str,
}

impl System {
    fn below_folder(&self, folder: &Path, depth: u32) -> io::Result<Encryption> {
        let Some(mount) = self.mount_of(folder) else {
            return Ok(Encryption::Unknown(
                "the folder's mount is not listed".to_owned(),
            ));
        };
        match mount.kind {
            "ecryptfs" | "fuse.gocryptfs" | "fuse.cryfs" | "fuse.encfs" => {
                return Ok(Encryption::Encrypted(mount.kind.to_owned()));
            }
            "tmpfs" | "ramfs" | "overlay" => {
                return Ok(Encryption::Unknown(format!(
                    "it is of the type {}",
                    mount.kind
                )));
            }
            _ => {}
        }
        let at = self.sys.join("dev/block").join(mount.device);
        if at.try_exists()? {
            return self.below_device(&at, depth);
        }
        // File systems over several devices, Btrfs for one, have a number of their own.
        match self.device_named(mount.source)? {
            Some(at) => self.below_device(&at, depth),
            None => Ok(Encryption::Unknown(format!(
                "it is of the type {} on {}",
                mount.kind, mount.source
            ))),
        }
    }

    /// The mount that `folder` lies on: of the longest mount point, the last, which covers those before.
    fn mount_of(&self, folder: &Path) -> Option<Mount<'_>> {
        let mounts = self.mounts.lines().filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut fields = before.split(' ').skip(2);
            let device = fields.next()?;
            let point = unescaped(fields.nth(1)?);
            let mut after = after.split(' ');
            let mount = Mount {
                device,
                kind: after.next()?,
                source: after.next()?,
            };
            folder.starts_with(&point).then_some((point.len(), mount))
        });
        mounts
            .max_by_key(|(length, _)| *length)
            .map(|(_, mount)| mount)
    }

    /// The device with a name like `/dev/mapper/data` or `/dev/sda1`.
    fn device_named(&self, source: &str) -> io::Result<Option<PathBuf>> {
        let Some(name) = source.strip_prefix("/dev/") else {
            return Ok(None);
        };
        let name = name.strip_prefix("mapper/").unwrap_or(name);
        for item in fs::read_dir(self.sys.join("dev/block"))? {
            let at = item?.path();
            let is = |file: &str, wanted: &str| {
                fs::read_to_string(at.join(file))
                    .is_ok_and(|text| text.lines().any(|l| l == wanted))
            };
            if is("dm/name", name) || is("uevent", &format!("DEVNAME={name}")) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn below_device(&self, at: &Path, depth: u32) -> io::Result<Encryption> {
        let at = at.canonicalize()?;
        let name = at
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if depth >= MAX_DEPTH {
            return Ok(Encryption::Unknown(format!(
                "too many devices below {name}"
            )));
        }
        let below = depth.saturating_add(1);
        if let Some(uuid) = read(&at.join("dm/uuid"))?
            && uuid.starts_with("CRYPT-")
        {
            return Ok(Encryption::Encrypted(format!("dm-crypt on {name}")));
        }
        if let Some(file) = read(&at.join("loop/backing_file"))? {
            return self.below_folder(Path::new(file.trim_end()), below);
        }
        if at.join("partition").try_exists()? {
            return match at.parent() {
                Some(disk) => self.below_device(disk, below),
                None => Ok(Encryption::Plain(name)),
            };
        }
        let mut encrypted = None;
        let slaves = match fs::read_dir(at.join("slaves")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            other => Some(other?),
        };
        for item in slaves.into_iter().flatten() {
            match self.below_device(&item?.path(), below)? {
                found @ Encryption::Encrypted(_) => encrypted = Some(found),
                // One that is not gives it away.
                other => return Ok(other),
            }
        }
        Ok(encrypted.unwrap_or_else(|| Encryption::Plain(format!("no encryption above {name}"))))
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A path of mountinfo, in which blanks and backslashes are octal numbers.
fn unescaped(text: &str) -> String {
    let text = text.replace("\\040", " ").replace("\\011", "\t");
    text.replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `/sys` with devices: number, place below `devices`, files in it, devices below.
    struct Fake(tempfile::TempDir);

    impl Fake {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir_all(folder.path().join("dev/block")).unwrap();
            Self(folder)
        }

        fn device(
            &self,
            number: &str,
            place: &str,
            files: &[(&str, &str)],
            below: &[&str],
        ) -> &Self {
            let at = self.0.path().join("devices").join(place);
            fs::create_dir_all(at.join("slaves")).unwrap();
            for (name, text) in files {
                fs::create_dir_all(at.join(name).parent().unwrap()).unwrap();
                fs::write(at.join(name), text).unwrap();
            }
            for place in below {
                let target = self.0.path().join("devices").join(place);
                let name = target.file_name().unwrap().to_owned();
                std::os::unix::fs::symlink(target, at.join("slaves").join(name)).unwrap();
            }
            std::os::unix::fs::symlink(&at, self.0.path().join("dev/block").join(number)).unwrap();
            self
        }

        fn examine(&self, mounts: &str, folder: &str) -> Encryption {
            let system = System {
                sys: self.0.path().to_owned(),
                mounts: mounts.to_owned(),
            };
            system.below_folder(Path::new(folder), 0).unwrap()
        }
    }

    fn mount(number: &str, point: &str, kind: &str, source: &str) -> String {
        format!("1 2 {number} / {point} rw,relatime shared:1 - {kind} {source} rw\n")
    }

    #[test]
    fn device_below_decides_and_one_that_is_plain_gives_it_away() {
        let fake = Fake::new();
        fake.device("8:0", "sda", &[], &[])
            .device("8:1", "sda/sda1", &[("partition", "1")], &[])
            .device(
                "252:0",
                "dm-0",
                &[("dm/uuid", "CRYPT-LUKS2-00-data"), ("dm/name", "data")],
                &["sda/sda1"],
            )
            .device("252:1", "dm-1", &[("dm/uuid", "LVM-x")], &["dm-0"])
            .device(
                "252:2",
                "dm-2",
                &[("dm/uuid", "LVM-y")],
                &["dm-0", "sda/sda1"],
            )
            .device(
                "7:0",
                "loop0",
                &[("loop/backing_file", "/secret/image\n")],
                &[],
            );
        let mounts = mount("8:1", "/", "ext4", "/dev/sda1")
            + &mount("252:0", "/secret", "ext4", "/dev/mapper/data")
            + &mount("252:1", "/on\\040lvm", "xfs", "/dev/mapper/lvm")
            + &mount("252:2", "/mixed", "xfs", "/dev/mapper/mixed")
            + &mount("7:0", "/loop", "ext4", "/dev/loop0")
            + &mount("0:44", "/btrfs", "btrfs", "/dev/mapper/data")
            + &mount("0:45", "/net", "nfs4", "server:/x")
            + &mount("0:46", "/ram", "tmpfs", "tmpfs")
            + &mount("0:47", "/layers", "overlay", "overlay");
        let name = |folder: &str| fake.examine(&mounts, folder).name();
        assert_eq!(name("/var/lib/cordon"), "plain");
        assert_eq!(name("/secrets"), "plain");
        for folder in [
            "/secret",
            "/secret/cordon",
            "/on lvm/x",
            "/loop",
            "/btrfs/sub",
        ] {
            assert_eq!(name(folder), "encrypted", "{folder}");
        }
        assert_eq!(name("/mixed"), "plain");
        for folder in ["/net", "/ram/x", "/layers"] {
            assert_eq!(name(folder), "unknown", "{folder}");
        }
        assert_eq!(fake.examine("", "/x").name(), "unknown");
    }

    #[test]
    fn later_mount_covers_the_one_below_and_loops_end() {
        let fake = Fake::new();
        fake.device("8:0", "sda", &[], &[])
            .device("252:0", "dm-0", &[("dm/uuid", "CRYPT-PLAIN-x")], &[])
            .device("7:0", "loop0", &[("loop/backing_file", "/own/image")], &[]);
        let mounts = mount("252:0", "/data", "ext4", "a") + &mount("8:0", "/data", "ext4", "b");
        assert_eq!(fake.examine(&mounts, "/data").name(), "plain");
        let own = mount("7:0", "/own", "ext4", "/dev/loop0");
        assert_eq!(fake.examine(&own, "/own").name(), "unknown");
    }

    #[test]
    fn settings_refuse_warn_or_leave_it() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let with = |at_rest| {
            let mut config = Config::default();
            config.storage.at_rest = at_rest;
            demand(&config, folder.path())
        };
        // A file system in memory is not known to be encrypted.
        assert_eq!(examine(folder.path()).name(), "unknown");
        assert!(with(AtRest::Warn).is_ok());
        assert!(with(AtRest::Asserted).is_ok());
        let refused = with(AtRest::Required).unwrap_err();
        assert!(refused.message().contains("must lie on an encrypted"));
    }
}
