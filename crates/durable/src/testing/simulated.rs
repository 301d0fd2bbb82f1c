use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Op;

/// Chances to try in a power cut: nothing that was not synced is there, all of it, and two mixtures.
pub const LUCK: [u64; 4] = [0, u64::MAX, 0xaaaa_aaaa_aaaa_aaaa, 0x9e37_79b9_7f4a_7c15];

/// What a path is, in a [`Tree`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    Folder,
    File { bytes: Arc<Vec<u8>>, mode: u32 },
}

/// A folder's content, with paths relative to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tree(pub BTreeMap<PathBuf, Item>);

impl Tree {
    /// The content of the folder `root`, as it is; symbolic links, sockets and the like are left out.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.add(root, Path::new(""))?;
        Ok(tree)
    }

    /// Does the same where a database was dropped just now: its threads close it, and its side files go, while the folder
    /// is read.
    ///
    /// # Errors
    /// Any other I/O error, and [`io::ErrorKind::NotFound`] when files still go after five seconds.
    pub fn read_settled(root: &Path) -> io::Result<Self> {
        for _ in 0..500 {
            match Self::read(root) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                read => return read,
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Self::read(root)
    }

    fn add(&mut self, root: &Path, inner: &Path) -> io::Result<()> {
        for entry in fs::read_dir(root.join(inner))? {
            let entry = entry?;
            let path = inner.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.0.insert(path.clone(), Item::Folder);
                self.add(root, &path)?;
            } else if kind.is_file() {
                let mode = entry.metadata()?.permissions().mode() & 0o7777;
                let bytes = Arc::new(fs::read(entry.path())?);
                self.0.insert(path, Item::File { bytes, mode });
            }
        }
        Ok(())
    }

    /// Puts the content into the folder `root`.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn write(&self, root: &Path) -> io::Result<()> {
        for (path, item) in &self.0 {
            let path = root.join(path);
            match item {
                Item::Folder => fs::create_dir_all(path)?,
                Item::File { bytes, mode } => {
                    let mut options = fs::OpenOptions::new();
                    options.write(true).create(true).truncate(true).mode(*mode);
                    let mut file = options.open(path)?;
                    io::Write::write_all(&mut file, bytes)?;
                }
            }
        }
        Ok(())
    }

    /// A short name of this content: equal trees have the same.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

type Inode = usize;
/// Name within a folder.
type Place = (Inode, OsString);
type Names = BTreeMap<Place, Inode>;

#[derive(Clone, Debug)]
enum Node {
    Folder,
    File {
        /// Content for running programs.
        seen: Arc<Vec<u8>>,
        /// Content that survives a power cut for certain.
        durable: Arc<Vec<u8>>,
        mode: u32,
    },
}

/// One change of names, which happens as a whole or not at all.
#[derive(Clone, Debug)]
struct Change {
    /// Folder whose sync makes it durable.
    folder: Inode,
    removed: Option<(Place, Inode)>,
    added: Option<(Place, Inode)>,
}

impl Change {
    fn apply(&self, names: &mut Names) {
        if let Some((place, inode)) = &self.removed
            && names.get(place) == Some(inode)
        {
            names.remove(place);
        }
        if let Some((place, inode)) = &self.added {
            names.insert(place.clone(), *inode);
        }
    }
}

/// A folder's content in a simulation.
///
/// After `kill -9` everything done is there. After a power cut, changes of names that were not followed by a sync of
/// their folder may be there or not, each by itself, and of bytes that were not synced nothing, some, zeros in their
/// place, or all.
#[derive(Clone, Debug)]
pub struct Simulated {
    root: PathBuf,
    nodes: Vec<Node>,
    seen: Names,
    durable: Names,
    /// Changes of names since, oldest first.
    pending: Vec<Change>,
    open: HashMap<u64, Inode>,
}

const ROOT: Inode = 0;

impl Simulated {
    /// Begins with the folder `root`, in which `there` is durable.
    #[must_use]
    pub fn new(root: &Path, there: &Tree) -> Self {
        let mut disk = Self {
            root: root.to_owned(),
            nodes: vec![Node::Folder],
            seen: Names::new(),
            durable: Names::new(),
            pending: Vec::new(),
            open: HashMap::new(),
        };
        for (path, item) in &there.0 {
            let node = match item {
                Item::Folder => Node::Folder,
                Item::File { bytes, mode } => Node::File {
                    seen: bytes.clone(),
                    durable: bytes.clone(),
                    mode: *mode,
                },
            };
            disk.add(&root.join(path), node);
        }
        disk.durable = disk.seen.clone();
        disk.pending.clear();
        disk
    }

    /// Folder and name of a path below the root, whatever is there.
    fn place(&self, path: &Path) -> Option<Place> {
        let inner = path.strip_prefix(&self.root).ok()?;
        let mut folder = ROOT;
        for part in inner.parent()?.iter() {
            folder = *self.seen.get(&(folder, part.to_owned()))?;
        }
        Some((folder, inner.file_name()?.to_owned()))
    }

    fn find(&self, path: &Path) -> Option<Inode> {
        if path == self.root {
            return Some(ROOT);
        }
        self.seen.get(&self.place(path)?).copied()
    }

    fn change(
        &mut self,
        folder: Inode,
        removed: Option<(Place, Inode)>,
        added: Option<(Place, Inode)>,
    ) {
        let change = Change {
            folder,
            removed,
            added,
        };
        change.apply(&mut self.seen);
        self.pending.push(change);
    }

    fn add_node(&mut self, node: Node) -> Inode {
        self.nodes.push(node);
        self.nodes.len().saturating_sub(1)
    }

    fn add(&mut self, path: &Path, node: Node) -> Option<Inode> {
        let place = self.place(path)?;
        let inode = self.add_node(node);
        self.change(place.0, None, Some((place, inode)));
        Some(inode)
    }

    fn content(&mut self, file: u64) -> Option<&mut Node> {
        let inode = *self.open.get(&file)?;
        self.nodes.get_mut(inode)
    }

    /// Does one operation; what lies outside of the root is passed over.
    pub fn apply(&mut self, op: &Op) {
        // A path outside of the root gives `None`.
        let _ = self.try_apply(op);
    }

    fn try_apply(&mut self, op: &Op) -> Option<()> {
        let empty = |mode: &u32| Node::File {
            seen: Arc::default(),
            durable: Arc::default(),
            mode: *mode,
        };
        match op {
            Op::Create { path, file, mode } => {
                let inode = self.add(path, empty(mode))?;
                self.open.insert(*file, inode);
            }
            Op::CreateUnnamed { file, mode } => {
                let inode = self.add_node(empty(mode));
                self.open.insert(*file, inode);
            }
            Op::Name { file, path } => {
                let (place, inode) = (self.place(path)?, *self.open.get(file)?);
                self.change(place.0, None, Some((place, inode)));
            }
            Op::OpenAppend { path, file } => {
                let inode = self.find(path)?;
                self.open.insert(*file, inode);
            }
            Op::Write { file, bytes } => {
                if let Node::File { seen, .. } = self.content(*file)? {
                    Arc::make_mut(seen).extend_from_slice(bytes);
                }
            }
            Op::SetLen { file, len } => {
                if let Node::File { seen, .. } = self.content(*file)? {
                    Arc::make_mut(seen).resize(usize::try_from(*len).ok()?, 0);
                }
            }
            Op::Sync { file } => {
                if let Node::File { seen, durable, .. } = self.content(*file)? {
                    *durable = seen.clone();
                }
            }
            Op::Link(from, to) => {
                let (inode, place) = (self.find(from)?, self.place(to)?);
                self.change(place.0, None, Some((place, inode)));
            }
            Op::Rename(from, to) => {
                let (inode, from, to) = (self.find(from)?, self.place(from)?, self.place(to)?);
                self.change(to.0, Some((from, inode)), Some((to, inode)));
            }
            Op::RemoveFile(path) | Op::RemoveDir(path) => {
                let (inode, place) = (self.find(path)?, self.place(path)?);
                self.change(place.0, Some((place, inode)), None);
            }
            Op::CreateDir(path) => {
                if self.find(path).is_none() {
                    self.add(path, Node::Folder)?;
                }
            }
            Op::SyncDir(path) => {
                let folder = self.find(path)?;
                let pending = std::mem::take(&mut self.pending).into_iter();
                let (now, later): (Vec<_>, _) = pending.partition(|c| c.folder == folder);
                self.pending = later;
                for change in now {
                    change.apply(&mut self.durable);
                }
            }
        }
        Some(())
    }

    /// The content after `kill -9`.
    #[must_use]
    pub fn after_kill(&self) -> Tree {
        self.tree(&self.seen, |_, seen, _| seen.clone())
    }

    /// The content after a power cut; bit `i` of `luck` says whether pending change `i` made it, and the rest of it
    /// what became of bytes that were not synced.
    #[must_use]
    pub fn after_power_cut(&self, luck: u64) -> Tree {
        let mut names = self.durable.clone();
        for (i, change) in self.pending.iter().enumerate() {
            if luck.rotate_right(u32::try_from(i % 64).unwrap_or(0)) & 1 == 1 {
                change.apply(&mut names);
            }
        }
        self.tree(&names, |inode, seen, durable| {
            if seen == durable {
                return seen.clone();
            }
            let synced = seen
                .iter()
                .zip(durable.iter())
                .take_while(|(a, b)| a == b)
                .count();
            let half = synced.midpoint(seen.len());
            let fate = match luck {
                0 => 0,
                u64::MAX => 1,
                _ => (luck >> (inode % 61)) & 3,
            };
            match fate {
                0 => durable.clone(),
                1 => seen.clone(),
                2 => Arc::new(seen.iter().take(half).copied().collect()),
                // The length is there, the bytes are not.
                _ => {
                    let mut bytes: Vec<u8> = seen.iter().take(synced).copied().collect();
                    bytes.resize(seen.len(), 0);
                    Arc::new(bytes)
                }
            }
        })
    }

    fn tree(
        &self,
        names: &Names,
        content: impl Fn(Inode, &Arc<Vec<u8>>, &Arc<Vec<u8>>) -> Arc<Vec<u8>>,
    ) -> Tree {
        let mut tree = Tree::default();
        let mut folders = vec![(ROOT, PathBuf::new())];
        // What lies in a folder that has no name is not there either.
        while let Some((folder, path)) = folders.pop() {
            let from = (folder, OsString::new());
            for ((_, name), inode) in names.range(from..).take_while(|((f, _), _)| *f == folder) {
                let path = path.join(name);
                match self.nodes.get(*inode) {
                    Some(Node::File {
                        seen,
                        durable,
                        mode,
                    }) => {
                        let (bytes, mode) = (content(*inode, seen, durable), *mode);
                        tree.0.insert(path, Item::File { bytes, mode });
                    }
                    Some(Node::Folder) => {
                        tree.0.insert(path.clone(), Item::Folder);
                        folders.push((*inode, path));
                    }
                    None => {}
                }
            }
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::RecordingDisk;
    use crate::{Disk, RealDisk};

    /// Contents of `name` that a crash at any step of `work` leaves; `None` where the file is not there.
    fn outcomes(
        before: &[u8],
        work: impl Fn(&dyn Disk, &Path),
    ) -> std::collections::BTreeSet<Option<Vec<u8>>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, before).unwrap();
        let there = Tree::read(folder.path()).unwrap();
        let disk = RecordingDisk::default();
        work(&disk, &path);
        let mut simulated = Simulated::new(folder.path(), &there);
        let mut found = std::collections::BTreeSet::new();
        let mut note = |tree: &Tree| {
            found.insert(tree.0.get(Path::new("file")).map(|item| match item {
                Item::File { bytes, .. } => bytes.to_vec(),
                Item::Folder => panic!("a folder"),
            }));
        };
        for op in disk.ops().iter() {
            for luck in LUCK {
                note(&simulated.after_power_cut(luck));
            }
            note(&simulated.after_kill());
            simulated.apply(op);
        }
        assert_eq!(simulated.after_kill(), Tree::read(folder.path()).unwrap());
        found
    }

    #[test]
    fn atomic_replacement_cut_anywhere_leaves_the_old_content_or_the_new() {
        let found = outcomes(b"old", |disk, path| {
            disk.write_atomic(path, b"new", 0o600).unwrap();
        });
        assert_eq!(found, [Some(b"old".to_vec()), Some(b"new".to_vec())].into());
    }

    #[test]
    fn replacement_without_a_sync_is_seen_to_lose_bytes() {
        let found = outcomes(b"old", |disk, path| {
            let temporary = path.with_extension("tmp");
            let file = disk.create(&temporary, 0o600).unwrap();
            disk.write_all(&file, b"new!").unwrap();
            disk.rename(&temporary, path).unwrap();
            disk.sync_parent(path).unwrap();
            disk.sync(&file).unwrap();
        });
        assert!(found.contains(&Some(Vec::new())), "{found:?}");
    }

    #[test]
    fn removal_is_certain_only_with_its_folder_synced() {
        let found = outcomes(b"old", |disk, path| disk.remove_file(path).unwrap());
        assert_eq!(found, [Some(b"old".to_vec())].into());
        let found = outcomes(b"old", |disk, path| {
            disk.remove_file(path).unwrap();
            disk.sync_parent(path).unwrap();
            disk.create(&path.with_extension("next"), 0o600).unwrap();
        });
        assert_eq!(found, [Some(b"old".to_vec()), None].into());
    }

    #[test]
    fn renamed_folder_keeps_what_is_in_it_and_unnamed_files_come_with_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let recording = RecordingDisk::default();
        let disk: &dyn Disk = &recording;
        let (partial, whole) = (folder.path().join("partial"), folder.path().join("whole"));
        disk.create_dir_all(&partial.join("inner")).unwrap();
        let file = disk.create_unnamed(&partial, 0o644).unwrap().unwrap();
        disk.append(&file, b"content").unwrap();
        disk.name(&file, &partial.join("inner/file")).unwrap();
        disk.link(&partial.join("inner/file"), &folder.path().join("second"))
            .unwrap();
        disk.rename(&partial, &whole).unwrap();
        disk.sync_parent(&whole).unwrap();
        let mut simulated = Simulated::new(folder.path(), &Tree::default());
        recording.ops().iter().for_each(|op| simulated.apply(op));
        assert_eq!(simulated.after_kill(), Tree::read(folder.path()).unwrap());
        // The folder `inner` was never synced after the file got its name.
        let cut = simulated.after_power_cut(0);
        assert!(cut.0.contains_key(Path::new("whole/inner")));
        assert!(!cut.0.contains_key(Path::new("whole/inner/file")));
        assert!(cut.0.contains_key(Path::new("second")));
        let copy = tempfile::tempdir().unwrap();
        cut.write(copy.path()).unwrap();
        assert_eq!(Tree::read(copy.path()).unwrap(), cut);
        (&RealDisk as &dyn Disk).remove_dir_all(&whole).unwrap();
    }
}
