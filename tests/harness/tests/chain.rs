//! The chain experiment, and what it must show: attempts multiply at every hop, and one key that
//! travels with the intent stops that.

use std::time::Duration;

use oncegate_tests::chain::{self, Keys};

/// Far more than a replay takes, and far less than any attempt at the slow upstream would.
const AT_ONCE: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_per_intent_charges_once() {
    let report = chain::run().await.expect("the experiment runs");
    println!("{report}");
    assert_eq!(report.charges(), [4, 2, 1, 1]);

    let again: Vec<_> = report.scenarios.iter().map(|one| one.charges_by_later_retry).collect();
    assert_eq!(again, [1, 1, 0, 0], "who charges the later retry");

    for one in &report.scenarios {
        assert_eq!(one.later.status, 201, "{one:?}");
        assert!(one.later.after < AT_ONCE, "{one:?}");
        match one.keys {
            Keys::None | Keys::PerAttempt => {
                assert_eq!((one.first.status, one.first.attempt), (504, None), "{one:?}");
            }
            Keys::PerIntent | Keys::Fingerprint => {
                assert_eq!((one.first.status, one.first.attempt), (201, Some(2)), "{one:?}");
                assert_eq!(one.first.outcome.as_deref(), Some("replayed"), "{one:?}");
                assert_eq!(one.later.outcome.as_deref(), Some("replayed"), "{one:?}");
            }
        }
    }
}
