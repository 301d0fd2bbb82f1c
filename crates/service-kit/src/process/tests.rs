use std::time::Duration;

use super::*;
use crate::testing::{Journal, Recorded, Work};

fn until_stopped() -> Work {
    Box::new(|stop| {
        Box::pin(async move {
            stop.cancelled().await;
            Ok(())
        })
    })
}

/// Runs roles with this work in the last one; gives the outcome and what happened.
async fn outcome(work: Work) -> (Outcome, Vec<String>) {
    let journal = Journal::default();
    let first = Recorded {
        work: Some(until_stopped()),
        ..Recorded::in_journal("first", &journal)
    };
    let second = Recorded {
        work: Some(work),
        ..Recorded::in_journal("second", &journal)
    };
    let process = Process::start(vec![Arc::new(first), Arc::new(second)])
        .await
        .unwrap();
    let stop = process.stop_token();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        stop.cancel();
    });
    let outcome = process.until_stopped().await;
    let happened = journal.lock().unwrap().clone();
    (outcome, happened)
}

const ORDER: [&str; 4] = ["open first", "open second", "close second", "close first"];

#[tokio::test]
async fn stop_ends_all_tasks_and_closes_roles_backwards() {
    let (outcome, happened) = outcome(until_stopped()).await;
    outcome.unwrap();
    assert_eq!(happened, ORDER);
}

#[tokio::test]
async fn task_that_ends_by_itself_ends_the_process_with_its_reason() {
    let failing: Work = Box::new(|_| {
        let failed = Err(Failure::new(anyhow::anyhow!("disk is gone"), "see to it"));
        Box::pin(std::future::ready(failed))
    });
    let silent: Work = Box::new(|_| Box::pin(std::future::ready(Ok(()))));
    let panicking: Work = Box::new(|_| Box::pin(async { panic!("a test panics") }));
    for (work, reason) in [
        (failing, "disk is gone"),
        (silent, "the task second ended by itself"),
        (panicking, "a task died"),
    ] {
        let (outcome, happened) = outcome(work).await;
        let message = outcome.unwrap_err().message();
        assert!(message.contains(reason), "{message}");
        assert_eq!(happened, ORDER);
    }
}

#[tokio::test]
async fn role_that_cannot_be_opened_closes_those_before_it() {
    let journal = Journal::default();
    let damaged = Recorded {
        opens: false,
        ..Recorded::in_journal("damaged", &journal)
    };
    let never = Recorded::in_journal("never", &journal);
    let first = Recorded::in_journal("first", &journal);
    let roles: Vec<Arc<dyn Role>> = vec![Arc::new(first), Arc::new(damaged), Arc::new(never)];
    let failure = Process::start(roles).await.err().unwrap();
    assert_eq!(failure.message(), "damaged is damaged");
    let happened = journal.lock().unwrap().clone();
    assert_eq!(happened, ["open first", "open damaged", "close first"]);
}
