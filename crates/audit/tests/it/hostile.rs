//! Arbitrary bytes in place of any file must give a finding, never a panic.

use std::fs;

use audit::{LogKey, SharedLog, VerifierKey};
use proptest::prelude::*;

use crate::support::{Sample, files, key};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn arbitrary_files_give_findings(bytes: Vec<u8>, at in 0.0..1.0_f64) {
        let sample = Sample::of(3);
        let mut all = files(&sample.log());
        all.extend(files(&sample.journals()));
        all.retain(|path| !path.ends_with("lock") && !path.ends_with("shipped"));
        for path in all {
            let original = fs::read(&path).unwrap();
            // Whole replacement, and a splice that keeps what stands before.
            let cut = (original.len() as f64 * at) as usize;
            for content in [bytes.clone(), [&original[..cut], &bytes].concat()] {
                prop_assume!(content != original);
                // A journal that ends early by itself is no defect while nothing was acknowledged.
                fs::write(&path, &content).unwrap();
                let journal = path.starts_with(sample.journals());
                prop_assert!(sample.verify_with_journals().is_err(), "{}", path.display());
                prop_assert_eq!(sample.verify().is_ok(), journal);
                // Opening may sweep, repair or refuse.
                let _ = SharedLog::open(sample.copy().path(), key());
                fs::write(&path, &original).unwrap();
            }
        }
        prop_assert!(sample.verify_with_journals().is_ok());
    }

    #[test]
    fn arbitrary_keys_are_refused(text in ".{0,100}") {
        prop_assert!(text.parse::<VerifierKey>().is_err());
        prop_assert!(LogKey::from_text(&text).is_err());
        let prefixed = format!("PRIVATE+KEY+{text}");
        prop_assert!(LogKey::from_text(&prefixed).is_err());
    }

    #[test]
    fn arbitrary_leaves_and_events_never_panic(bytes: Vec<u8>, text in "\\PC{0,200}") {
        prop_assert!(audit::Leaf::decode(&bytes).is_err());
        prop_assert!(audit::Event::from_canonical(text.as_bytes()).is_err());
    }
}
