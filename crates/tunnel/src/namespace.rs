//! A network namespace that lives as long as its thread: for demonstrations on one machine. However the
//! program ends, the kernel takes it away, and with it the cables that lead into it.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd as _;
use std::sync::mpsc::{self, Sender};

use futures_util::TryStreamExt as _;
use nix::sched::{CloneFlags, unshare};
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};

use crate::config::Prefix;
use crate::link::{LinkError, index_of};

type Job = Box<dyn FnOnce() + Send>;

/// A namespace and the thread in it.
pub struct Namespace {
    jobs: Sender<Job>,
    file: File,
}

/// A cable between the namespace of the caller and this one.
#[derive(Clone, Copy, Debug)]
pub struct Cable<'a> {
    /// Interface and address on the caller's side.
    pub outside: (&'a str, Prefix),
    /// The same on this side.
    pub inside: (&'a str, Prefix),
}

impl Namespace {
    /// A new one with nothing in it.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_SYS_ADMIN`.
    pub fn create() -> io::Result<Self> {
        let (jobs, receiver) = mpsc::channel::<Job>();
        let (ready, made) = mpsc::sync_channel(1);
        let work = move || {
            let file = unshare(CloneFlags::CLONE_NEWNET)
                .map_err(io::Error::from)
                // Connections of a program that was killed keep the namespace until they give up.
                .and_then(|()| std::fs::write("/proc/sys/net/ipv4/tcp_orphan_retries", "1"))
                .and_then(|()| File::open("/proc/thread-self/ns/net"));
            // The caller waits for it.
            let failed = file.is_err();
            if ready.send(file).is_err() || failed {
                return;
            }
            while let Ok(job) = receiver.recv() {
                job();
            }
        };
        std::thread::Builder::new()
            .name("namespace".into())
            .spawn(work)?;
        let file = made.recv().map_err(io::Error::other)??;
        Ok(Self { jobs, file })
    }

    /// Does something in the namespace and waits for it. Threads that it starts are in it as well.
    ///
    /// # Errors
    /// The namespace's thread has died.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let job = Box::new(move || drop(sender.send(job())));
        self.jobs.send(job).map_err(|_| io::ErrorKind::BrokenPipe)?;
        receiver.recv().map_err(io::Error::other)
    }

    /// Lays a cable. Both ends go with the namespace.
    ///
    /// # Errors
    /// [`LinkError`], naming what was refused.
    pub async fn lay(&self, cable: &Cable<'_>) -> Result<(), LinkError> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let task = tokio::spawn(connection);
        let ends = (cable.outside.0, cable.inside.0);
        let laid = lay(&handle, ends, self.file.as_raw_fd()).await;
        let up = match laid {
            Ok(()) => end(&handle, ends.0, cable.outside.1).await,
            Err(error) => Err(error),
        };
        task.abort();
        up?;
        let (name, address) = (cable.inside.0.to_owned(), cable.inside.1);
        self.with_netlink(move |handle| async move { end(&handle, &name, address).await })
    }

    /// Sends everything without a better way to a neighbour.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn route_by(&self, neighbour: Ipv4Addr) -> Result<(), LinkError> {
        self.with_netlink(move |handle| async move {
            let route = RouteMessageBuilder::<Ipv4Addr>::new().gateway(neighbour);
            let added = handle.route().add(route.build()).execute().await;
            added.map_err(refused(format!("route by {neighbour}")))
        })
    }

    /// Takes an interface down.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn cut(&self, name: &str) -> Result<(), LinkError> {
        let name = name.to_owned();
        self.with_netlink(move |handle| async move {
            let index = index_of(&handle, &name).await?;
            let down = LinkUnspec::new_with_index(index).down().build();
            let set = handle.link().set(down).execute().await;
            set.map_err(refused(format!("interface {name} down")))
        })
    }

    fn with_netlink<F>(
        &self,
        work: impl FnOnce(Handle) -> F + Send + 'static,
    ) -> Result<(), LinkError>
    where
        F: Future<Output = Result<(), LinkError>>,
    {
        self.run(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let (connection, handle, _) = rtnetlink::new_connection()?;
                let task = tokio::spawn(connection);
                let result = work(handle).await;
                task.abort();
                result
            })
        })?
    }
}

/// Removes the cables of programs that were killed a moment ago, by the names of their ends out here.
///
/// # Errors
/// [`LinkError`].
pub async fn sweep(is_left: impl Fn(&str) -> bool) -> Result<(), LinkError> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    let task = tokio::spawn(connection);
    let result = sweep_by(&handle, is_left).await;
    task.abort();
    result
}

async fn sweep_by(handle: &Handle, is_left: impl Fn(&str) -> bool) -> Result<(), LinkError> {
    let mut links = handle.link().get().execute();
    let listing = || refused("interfaces".to_owned());
    while let Some(link) = links.try_next().await.map_err(|e| listing()(e))? {
        let name = link
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(name.as_str()),
                _ => None,
            });
        if name.is_some_and(&is_left) {
            let removed = handle.link().del(link.header.index).execute().await;
            removed.map_err(refused("removing an old cable".to_owned()))?;
        }
    }
    Ok(())
}

fn refused(what: String) -> impl FnOnce(rtnetlink::Error) -> LinkError {
    move |source| LinkError::Refused { what, source }
}

async fn lay(handle: &Handle, (outside, inside): (&str, &str), to: i32) -> Result<(), LinkError> {
    let pair = LinkVeth::new(outside, inside).build();
    let added = handle.link().add(pair).execute().await;
    added.map_err(refused(format!("cable {outside}")))?;
    let index = index_of(handle, inside).await?;
    // Moved before it is configured: addresses do not go along.
    let moved = LinkUnspec::new_with_index(index).setns_by_fd(to).build();
    let set = handle.link().set(moved).execute().await;
    set.map_err(refused(format!("moving {inside} into the namespace")))
}

async fn end(handle: &Handle, name: &str, address: Prefix) -> Result<(), LinkError> {
    let index = index_of(handle, name).await?;
    let IpAddr::V4(_) = address.address else {
        return Err(LinkError::NoInterface(name.to_owned()));
    };
    let added = handle.address().add(index, address.address, address.bits);
    let what = format!("address {} on {name}", address.address);
    added.execute().await.map_err(refused(what))?;
    let up = LinkUnspec::new_with_index(index).up().build();
    let set = handle.link().set(up).execute().await;
    set.map_err(refused(format!("interface {name} up")))
}
