//! Figures and the latest violations, for the home page.

use askama::Template;
use centre_api::{Filter, Overview, Summary};
use portal::{PageError, Texts, Viewer, format};

use crate::Evidence;

/// Violations shown on the home page.
const RECENT: usize = 6;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPart {
    t: Texts,
    overview: Overview,
    recent: Vec<Summary>,
}

pub(crate) async fn summary(
    evidence: &impl Evidence,
    viewer: &Viewer,
) -> Result<String, PageError> {
    let overview = evidence.overview(viewer.principal()).await?;
    // An auditor may see figures without seeing evidence: the list is then empty.
    let all = Filter::default();
    let recent = evidence.violations(viewer.principal(), &all);
    let mut recent = recent.await.map(|page| page.rows).unwrap_or_default();
    recent.truncate(RECENT);
    let part = OverviewPart {
        t: viewer.texts().clone(),
        overview,
        recent,
    };
    part.render()
        .map_err(|error| PageError::Failed(error.to_string()))
}
