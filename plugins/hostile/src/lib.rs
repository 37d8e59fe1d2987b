//! A guest that misbehaves, for tests of the host and of the whole gateway.
//!
//! Its configuration names one behaviour and a header. A request that carries the header gets
//! the behaviour; every other request gets a well-behaved plugin that takes the key from
//! `Idempotency-Key`. Without `when_header` every request gets the behaviour, so that the
//! plugin does not even survive being loaded.
//!
//! One behaviour, one file. Also a plugin without the standard library, which keeps that way of
//! building one tested.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

mod bad_utf8;
mod empty_key;
mod fail;
mod flood;
mod huge_answer;
mod leak;
mod log_flood;
mod long_key;
mod many_parts;
mod memory;
mod no_parts;
mod peek;
mod recursion;
mod regex_bomb;
mod spin;
mod trap;
mod undeclared_body;
mod undeclared_part;
mod undeclared_principal;
mod wrong_status;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use oncegate_plugin_sdk::{
    Config, Decision, KeySource, Manifest, Plugin, Problem, export, manifest, request, track,
};

type Behaviour = fn() -> Result<Decision, String>;

struct Hostile {
    behaviour: Behaviour,
    when_header: Option<String>,
}

impl Plugin for Hostile {
    fn configure(config: &str) -> Result<(Self, Manifest), Vec<Problem>> {
        let mut config = Config::read(config)?;
        let name = config.text("behaviour").unwrap_or_default();
        let when_header = config.text("when_header");
        match name.as_str() {
            "trap-configure" => trap::trap(),
            "peek-configure" => peek::look_at_the_request(),
            _ => {}
        }
        let behaviour = behaviour(&name);
        if behaviour.is_none() {
            config.problem("/behaviour", &format!("unknown behaviour {name:?}"));
        }
        config.finish()?;
        let behaviour = behaviour.unwrap_or(fail::misbehave);
        Ok((Self { behaviour, when_header }, manifest("hostile", "1.0.0")))
    }

    fn derive(&self) -> Result<Decision, String> {
        let triggered =
            self.when_header.as_ref().is_none_or(|name| request::header(name).is_some());
        if triggered { (self.behaviour)() } else { Ok(behave()) }
    }
}

export!(Hostile);

fn behave() -> Decision {
    match request::header("idempotency-key") {
        Some(key) => track(KeySource::Client(key)),
        None => Decision::Pass,
    }
}

fn behaviour(name: &str) -> Option<Behaviour> {
    Some(match name {
        "bad-utf8" => bad_utf8::misbehave,
        "empty-key" => empty_key::misbehave,
        "fail" => fail::misbehave,
        "host-call-flood" => flood::misbehave,
        "huge-answer" => huge_answer::misbehave,
        "leak" => leak::misbehave,
        "log-flood" => log_flood::misbehave,
        "long-key" => long_key::misbehave,
        "loop" => spin::misbehave,
        "many-parts" => many_parts::misbehave,
        "memory" => memory::misbehave,
        "no-parts" => no_parts::misbehave,
        "recursion" => recursion::misbehave,
        "regex-bomb" => regex_bomb::misbehave,
        "trap" => trap::misbehave,
        "undeclared-body" => undeclared_body::misbehave,
        "undeclared-part" => undeclared_part::misbehave,
        "undeclared-principal" => undeclared_principal::misbehave,
        "wrong-status" => wrong_status::misbehave,
        _ => return None,
    })
}
