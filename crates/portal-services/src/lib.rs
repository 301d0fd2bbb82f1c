//! Foreign applications in the portal.
//!
//! [`Services`] is what the pages ask of the site; [`ForeignServices`] is the application. The home page shows a tile for each
//! service that the access rules open to the viewer, and `/services/ID` opens one. [`openid`] has the endpoints by which
//! applications log people in.
#![forbid(unsafe_code)]

pub mod openid;
mod page;

use std::sync::Arc;

use access::Principal;
use axum::Router;
use axum::routing::{get, post};
use portal::{Answer, App, Application, Link, PageError, Shell, TextFile, Tile, Viewer};
use services::Service;

use crate::openid::OpenId;

/// Texts of these pages.
pub const TEXTS: &[TextFile] = &[
    TextFile {
        code: "en",
        content: include_str!("../locales/en.ftl"),
    },
    TextFile {
        code: "pl",
        content: include_str!("../locales/pl.ftl"),
    },
];

/// The registry of services, as pages ask for it.
pub trait Services: Send + Sync + 'static {
    /// The services that the access rules open to `who` now, by name.
    fn open_to(
        &self,
        who: &Principal,
    ) -> impl Future<Output = Result<Vec<Service>, PageError>> + Send;

    /// Decides whether `who` may open the service `id`, and leaves an audit event either way.
    fn open(
        &self,
        who: &Principal,
        id: &str,
    ) -> impl Future<Output = Result<Service, PageError>> + Send;
}

/// The application with foreign applications.
pub struct ForeignServices<S>(pub Arc<S>);

impl<S: Services + OpenId> Application for ForeignServices<S> {
    fn tile(&self) -> Tile {
        Tile {
            path: page::PATH,
            title: "services-title",
            about: "services-about",
        }
    }

    fn is_offered_to(&self, _: &Viewer) -> bool {
        true
    }

    fn texts(&self) -> &'static [TextFile] {
        TEXTS
    }

    fn router(&self, shell: &Shell) -> Router {
        Router::new()
            .route(page::PATH, get(page::list::<S>))
            .route("/services/{id}", get(page::open::<S>))
            .route(openid::METADATA, get(openid::metadata::<S>))
            .route(openid::KEYS, get(openid::keys::<S>))
            .route(openid::AUTHORIZE, get(openid::authorize::<S>))
            .route(openid::TOKEN, post(openid::token::<S>))
            .route(
                openid::USERINFO,
                get(openid::userinfo::<S>).post(openid::userinfo::<S>),
            )
            .route(
                openid::LOGOUT,
                get(openid::ask_logout::<S>).post(openid::log_out::<S>),
            )
            .with_state(App {
                shell: shell.clone(),
                service: self.0.clone(),
            })
    }

    fn links<'a>(&'a self, viewer: &'a Viewer) -> Answer<'a, Option<Vec<Link>>> {
        Box::pin(async move {
            let open = self.0.open_to(viewer.principal()).await?;
            Ok(Some(open.into_iter().map(page::link).collect()))
        })
    }
}
