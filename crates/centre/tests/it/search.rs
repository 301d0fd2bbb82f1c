//! What a search finds.

use centre::Filter;
use pki::clearance::Clearance;

use crate::review::{deliver, list};
use crate::site::Site;
use crate::world::CAMERA;

#[tokio::test]
async fn similar_plates_are_marked_and_come_after_exact_ones() {
    let site = Site::new().await;
    let plates_of = ["AB 1O3", "АВ 103", "AB 103", "ab-103 x", "AC 103"];
    deliver(&site, &site.world.camera(CAMERA), 5, |n, shot| {
        shot.media.clear();
        shot.plate = plates_of[n].into();
        shot.place = ["Łódź", "Lodz"][n % 2].into();
    })
    .await;
    let who = site.world.reviewer(Clearance::Secret);
    let search = async |plate: &str, place: &str| {
        let filter = Filter {
            plate: plate.into(),
            place: place.into(),
            ..Filter::default()
        };
        let rows = list(&site, &who, filter).await.rows;
        let rows = rows.into_iter();
        rows.map(|row| (row.plate.unwrap(), row.similar))
            .collect::<Vec<_>>()
    };
    let row = |plate: &str, similar| (plate.to_owned(), similar);
    let (exact, other) = (row("AB 103", false), row("ab-103 x", false));
    let similar = [row("АВ 103", true), row("AB 1O3", true)];
    let all = [&[other, exact.clone()], &similar[..]].concat();
    for term in ["AB 103", "ab103", "A B-1\u{a0}03", "b103"] {
        assert_eq!(search(term, "").await, all, "{term}");
    }
    assert_eq!(search("AC103", "łódź").await, [row("AC 103", false)]);
    assert_eq!(search("AC103", "lodz").await, [row("AC 103", true)]);
    assert_eq!(search("AB103", "Łódź").await[..1], [exact]);
    assert_eq!(search("AD103", "").await, []);
    assert_eq!(search("AB103", "Lublin").await, []);
}
