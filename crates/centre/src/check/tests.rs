use store::{Migration, Sql};

use super::*;

/// A generator of numbers that repeats itself from its seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

async fn open(folder: &tempfile::TempDir, migrations: &[Migration]) -> Sql {
    let file = folder.path().join("centre.sqlite");
    Sql::open(&file, migrations).await.unwrap()
}

async fn execute(sql: &Sql, statements: String) {
    let mut tx = sql.write().await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(statements))
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

async fn differences(sql: &Sql) -> Vec<&'static str> {
    let all = compare(sql).await.unwrap();
    all.into_iter().map(|difference| difference.what).collect()
}

#[tokio::test]
async fn counters_after_random_statements_fit_the_rows() {
    for seed in 1..=8 {
        let folder = tempfile::tempdir().unwrap();
        let sql = open(&folder, schema::MIGRATIONS).await;
        execute(
            &sql,
            "INSERT INTO audiences VALUES (1, 'a', 1), (2, 'b', 2);
             INSERT INTO violation_groups (id, audience, state) VALUES (1, 1, 'open'), (2, 2, 'open')"
                .to_owned(),
        )
        .await;
        let mut numbers = Numbers(seed);
        let mut violations = 0_u64;
        for n in 0..120 {
            let device = numbers.below(3);
            let sequence = numbers.below(40);
            let statement = match numbers.below(6) {
                0 => format!(
                    "INSERT INTO blocks VALUES ('q{n}', 'd{device}', 1, {n}, 'quarantined', 'x', NULL,
                        NULL, NULL, NULL, NULL)"
                ),
                1 => format!("DELETE FROM blocks WHERE block_sha256 = 'q{}'", numbers.below(n + 1)),
                2 => format!(
                    "INSERT INTO dropped (device, sequence, manifest_sha256, reason)
                        VALUES ('d{device}', {sequence}, 'x', 'age')
                        ON CONFLICT DO NOTHING"
                ),
                3 if violations > 0 => format!(
                    "INSERT INTO reviews VALUES ('v{}', {}, 'u', 'U', '{}', 'x')",
                    numbers.below(violations),
                    numbers.below(50),
                    ["accepted", "rejected"][usize::from(numbers.below(2) == 0)]
                ),
                _ => {
                    violations += 1;
                    let v = violations - 1;
                    format!(
                        "INSERT INTO blocks VALUES ('b{n}', 'd{device}', 1, {n}00000, 'accepted', '',
                            {sequence}, NULL, NULL, NULL, NULL);
                         INSERT INTO chain VALUES ('d{device}', {sequence}, 'x', 'y', 'b{n}')
                            ON CONFLICT DO NOTHING;
                         INSERT INTO violations VALUES ({n} * 32768, 'v{v}', 'b{n}', 'd{device}',
                            {}, {sequence}, {n}, 'speeding', 'p', 0, 0, NULL, NULL, NULL, NULL, '')",
                        numbers.below(2) + 1
                    )
                }
            };
            execute(&sql, statement).await;
            assert_eq!(
                differences(&sql).await,
                Vec::<&str>::new(),
                "seed {seed}, statement {n}"
            );
        }
    }
}

#[tokio::test]
async fn difference_from_the_rows_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let sql = open(&folder, schema::MIGRATIONS).await;
    execute(
        &sql,
        "INSERT INTO audiences VALUES (1, 'a', 1);
         INSERT INTO violation_groups (id, audience, state) VALUES (1, 1, 'open');
         INSERT INTO blocks VALUES ('b', 'd', 1, 0, 'accepted', '', 3, NULL, NULL, NULL, NULL);
         INSERT INTO chain VALUES ('d', 3, 'x', 'y', 'b');
         INSERT INTO violations VALUES (0, 'v', 'b', 'd', 1, 3, 0, 'k', 'place', 0, 0, NULL, NULL,
            'plate', NULL, '')"
            .to_owned(),
    )
    .await;
    let search = "search entry of a violation";
    assert_eq!(differences(&sql).await, [search]);
    search::build(&sql).await.unwrap();
    assert_eq!(differences(&sql).await, Vec::<&str>::new());
    execute(
        &sql,
        "UPDATE violation_groups SET count = 7; UPDATE arrivals SET count = 2;
         UPDATE cameras SET accepted = 5, known = 9; DELETE FROM gaps;"
            .to_owned(),
    )
    .await;
    assert_eq!(
        differences(&sql).await,
        [
            "violations by unit, classification and state",
            "violations received in ten minutes",
            "blocks of a camera",
            "numbers of a camera",
            "missing numbers of a camera"
        ]
    );
}

/// An index as the version before wrote it gets counters that fit, and keeps every row.
#[tokio::test]
async fn migration_of_an_earlier_index_counts_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let earlier: Vec<Migration> = schema::MIGRATIONS
        .iter()
        .filter(|migration| migration.version <= 2)
        .copied()
        .collect();
    let sql = open(&folder, &earlier).await;
    let mut statements = String::new();
    for n in 0..200 {
        let device = n % 3;
        // Three of each time, from before 1970 on, and every tenth number missing.
        let (captured, sequence) = (n / 3 * 1000 - 20_000, n / 3 + n / 30 + 1);
        statements += &format!(
            "INSERT INTO blocks VALUES ('b{n}', 'd{device}', 1, {n}00000, 'accepted', '', {sequence},
                NULL, NULL, NULL);
             INSERT INTO chain VALUES ('d{device}', {sequence}, 'x', 'y', 'b{n}');
             INSERT INTO violations VALUES ('v{n}', 'b{n}', 'd{device}', 'u{}', {sequence}, {},
                {captured}, 'speeding', 'Place {n}', 0, 0, NULL, NULL, 'KR {n}', NULL, '');",
            n % 2,
            n % 5
        );
    }
    statements += "INSERT INTO reviews VALUES ('v1', 5, 'u', 'U', 'accepted', 'x'),
            ('v1', 4, 'u', 'U', 'rejected', 'x'), ('v2', 4, 'u', 'U', 'rejected', 'x');
         INSERT INTO dropped (device, sequence, manifest_sha256, reason)
            VALUES ('d0', 8, 'x', 'age'), ('d9', 4, 'x', 'age');
         INSERT INTO blocks VALUES ('q', 'd7', 1, 9, 'quarantined', 'x', NULL, NULL, NULL, NULL);";
    execute(&sql, statements).await;
    sql.close().await;
    let sql = open(&folder, schema::MIGRATIONS).await;
    search::build(&sql).await.unwrap();
    assert_eq!(differences(&sql).await, Vec::<&str>::new());
    let counts: Vec<(String, i64)> = sqlx::query_as(
        "SELECT state, sum(count) FROM violation_groups GROUP BY state ORDER BY state",
    )
    .fetch_all(sql.read())
    .await
    .unwrap();
    let expected = [("accepted", 1), ("open", 198), ("rejected", 1)];
    assert_eq!(counts, expected.map(|(state, n)| (state.to_owned(), n)));
    // Nothing points at a row that is gone.
    let dangling = sqlx::query("PRAGMA foreign_key_check")
        .fetch_all(sql.read())
        .await
        .unwrap();
    assert!(dangling.is_empty());
    let reviews: i64 = sqlx::query_scalar("SELECT count(*) FROM reviews")
        .fetch_one(sql.read())
        .await
        .unwrap();
    assert_eq!(reviews, 3);
}
