//! The catalogue of cases: every id there is, and why some are not run yet.
//!
//! A case is a test whose name begins with its id. The runner (`src/bin/cases.rs`) holds this
//! list against what ran, so that a case can neither be forgotten nor be skipped in silence.

/// Every case.
pub const IDS: &[&str] = &[
    "K01", "K02", "K03", "K04", "K05", "K07", "K08", "K10", "K11", "K12", "K13", "K17", "K18",
    "K20", "K21", "M01", "M03", "S01", "S02", "S03", "S04", "S06", "S09", "S10", "S12", "F01",
    "F02", "F03", "F05", "F09", "F10", "F11", "F13", "F16", "F17", "F19", "F20", "F21", "F22",
    "I01", "I02", "I03", "I04", "I06", "I09", "C01", "C02", "C03", "C04", "C05", "C06", "C08",
    "C10", "C11", "C13", "C15", "C16", "C18", "C19", "R01", "R03", "R05", "R06", "R07", "R08",
    "R09", "H01", "H03", "H04", "H06", "H08", "H09", "B01", "B02", "B04", "D01", "D02", "D03",
    "D05", "D06", "D08", "D09", "D10", "D11", "D13", "X01", "X04", "N01", "N02", "N04", "N05",
    "W01", "W02", "O01", "O03", "O04",
];

/// The piece of work that will make a skipped case run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issue {
    /// Leases, unknown outcomes and failover.
    Leases,
    /// The edge: HTTP limits, TLS and identities.
    Edge,
    /// Operating: counters, capacity.
    Operate,
}

impl Issue {
    /// The letter it goes by.
    pub fn letter(self) -> char {
        match self {
            Self::Leases => 'B',
            Self::Edge => 'D',
            Self::Operate => 'E',
        }
    }
}

/// A case, or a part of one, that is not run yet.
#[derive(Clone, Copy, Debug)]
pub struct Skip {
    /// The case.
    pub id: &'static str,
    /// Which part of it, when the rest does run.
    pub part: Option<&'static str>,
    /// What it waits for.
    pub issue: Issue,
    /// Why, in a sentence.
    pub reason: &'static str,
}

const fn whole(id: &'static str, issue: Issue, reason: &'static str) -> Skip {
    Skip { id, part: None, issue, reason }
}

const fn part(id: &'static str, part: &'static str, issue: Issue, reason: &'static str) -> Skip {
    Skip { id, part: Some(part), issue, reason }
}

/// What is not run yet.
pub const SKIPPED: &[Skip] = &[
    whole("I06", Issue::Leases, "waiting callers are woken by the winner across gateways"),
    whole("C01", Issue::Leases, "needs two_phase and a crash point between reserve and dispatch"),
    part("S10", "subject claim", Issue::Edge, "needs the verified JWT scope"),
    part("F20", "counter", Issue::Operate, "same fingerprint under another key is not counted yet"),
    whole("D03", Issue::Leases, "needs a Redis Cluster"),
    whole("D05", Issue::Leases, "needs an eviction under way and the start-up check for it"),
    whole("D11", Issue::Operate, "100 000 keys on one instance are a capacity test"),
    whole("X01", Issue::Edge, "needs authentication before the replay"),
    whole("X04", Issue::Leases, "needs encryption of records"),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_id_stands_once() {
        let distinct: HashSet<_> = IDS.iter().collect();
        assert_eq!(distinct.len(), IDS.len());
    }

    #[test]
    fn only_known_cases_are_skipped() {
        for skip in SKIPPED {
            assert!(IDS.contains(&skip.id), "{} is no case", skip.id);
            assert!(skip.reason.len() > 20, "{} is skipped without a reason", skip.id);
        }
    }
}
