//! What a Redis must be before reservations are entrusted to it.
//!
//! Asked of `INFO`, which needs no right to read the configuration, when connecting and every
//! few seconds afterwards: a failover or an operator may change the answer.

use std::collections::HashMap;

/// The first version that knows script flags (`#!lua flags=…`).
pub const REDIS_VERSION_MIN: (u32, u32) = (7, 0);

/// What the operator should know, or what keeps us from using it.
pub(super) fn check(info: &str, allow_eviction: bool) -> Result<Vec<String>, String> {
    let info = Info::parse(info);
    version(&info)?;
    standalone(&info)?;
    primary(&info)?;
    let mut warnings = Vec::new();
    warnings.extend(eviction(&info, allow_eviction)?);
    warnings.extend(persistence(&info));
    Ok(warnings)
}

struct Info<'a>(HashMap<&'a str, &'a str>);

impl<'a> Info<'a> {
    fn parse(text: &'a str) -> Self {
        Self(text.lines().filter_map(|line| line.trim_end().split_once(':')).collect())
    }

    fn get(&self, name: &str) -> &'a str {
        self.0.get(name).copied().unwrap_or("")
    }
}

fn version(info: &Info<'_>) -> Result<(), String> {
    let text = info.get("redis_version");
    let mut numbers = text.split('.').map(|number| number.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= REDIS_VERSION_MIN {
        return Ok(());
    }
    let (major, minor) = REDIS_VERSION_MIN;
    Err(format!("Redis has version {text:?}; {major}.{minor} or later is needed"))
}

fn standalone(info: &Info<'_>) -> Result<(), String> {
    match info.get("redis_mode") {
        "standalone" => Ok(()),
        mode => Err(format!("Redis runs in mode {mode:?}; only a standalone Redis is supported")),
    }
}

fn primary(info: &Info<'_>) -> Result<(), String> {
    match info.get("role") {
        "master" => Ok(()),
        role => Err(format!(
            "Redis has the role {role:?}; reservations go to the primary, so point the URL there"
        )),
    }
}

fn eviction(info: &Info<'_>, allowed: bool) -> Result<Option<String>, String> {
    let policy = info.get("maxmemory_policy");
    if policy == "noeviction" {
        return Ok(None);
    }
    let danger = format!(
        "Redis has the eviction policy {policy:?}: when memory runs short it drops reservations, \
         and their operations can run twice"
    );
    if allowed {
        Ok(Some(danger))
    } else {
        Err(format!("{danger}; set maxmemory-policy noeviction"))
    }
}

fn persistence(info: &Info<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    if info.get("aof_enabled") != "1" {
        warnings.push(
            "Redis keeps no append-only file: when it restarts it has forgotten recent \
             reservations, and their operations can run twice; set appendonly yes"
                .to_owned(),
        );
    }
    if info.get("aof_last_write_status") == "err" {
        warnings.push("Redis fails to write its append-only file".to_owned());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(changes: &[(&str, &str)]) -> String {
        let mut fields = HashMap::from([
            ("redis_version", "7.0.15"),
            ("redis_mode", "standalone"),
            ("role", "master"),
            ("maxmemory_policy", "noeviction"),
            ("aof_enabled", "1"),
            ("aof_last_write_status", "ok"),
        ]);
        fields.extend(changes.iter().copied());
        fields.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect()
    }

    #[test]
    fn a_good_redis_has_nothing_to_say() {
        assert_eq!(check(&info(&[]), false), Ok(Vec::new()));
        assert_eq!(check(&info(&[("redis_version", "8.2.3")]), false), Ok(Vec::new()));
    }

    #[test]
    fn each_unfit_redis_is_refused_in_words() {
        for (name, value, word) in [
            ("redis_version", "6.2.5", "version"),
            ("redis_version", "", "version"),
            ("redis_mode", "cluster", "standalone"),
            ("role", "slave", "primary"),
            ("maxmemory_policy", "allkeys-lru", "noeviction"),
            ("maxmemory_policy", "volatile-ttl", "noeviction"),
        ] {
            let problem = check(&info(&[(name, value)]), false).expect_err(value);
            assert!(problem.contains(word), "{problem}");
        }
    }

    #[test]
    fn dangers_that_were_accepted_are_still_said() {
        let evicting = check(&info(&[("maxmemory_policy", "allkeys-lru")]), true);
        assert!(evicting.expect("allowed")[0].contains("run twice"));
        let forgetful = check(&info(&[("aof_enabled", "0")]), false);
        assert!(forgetful.expect("only a warning")[0].contains("appendonly yes"));
    }
}
