//! The addresses of the portal.

use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use axum::{Router, middleware};

use crate::shell::Shell;
use crate::{assets, form, headers, home, language_choice, login};

impl Shell {
    /// The portal: the shell's pages and those of its applications.
    ///
    /// Requests carry [`pki::tls::PeerCertificates`] and `ConnectInfo<SocketAddr>` as extensions where the listener knows
    /// them.
    pub fn router(&self) -> Router {
        let own = Router::new()
            .route("/", get(home::home))
            .route("/login", get(login::form).post(login::login))
            .route("/logout", post(login::logout))
            .route("/language", post(language_choice::choose))
            .route("/assets/style.css", get(assets::style))
            .route("/assets/icon.svg", get(assets::icon))
            .fallback(home::missing)
            .with_state(self.clone());
        let pages = self.applications().iter();
        let all = pages.fold(own, |router, one| router.merge(one.router(self)));
        let chosen = middleware::from_fn_with_state(self.clone(), language_choice::of_request);
        // Strangers may post here too. Applications whose forms carry more say so in their routers.
        all.method_not_allowed_fallback(form::wrong_method)
            .layer(DefaultBodyLimit::max(form::MAX_FIELDS))
            .layer(middleware::from_fn(form::only_own))
            .layer(chosen)
            .layer(middleware::map_response(headers::add))
    }
}
