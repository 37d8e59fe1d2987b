//! The words in which the configuration names parts.

use oncegate_plugin_sdk::Part;

/// What the words are, for messages.
const WORDS: &str = "method, path, query, route, principal, media-type, body, body-json, \
    body-multipart, header:NAME, query:NAME, path-param:NAME, json:/POINTER";

/// One word of the list `parts`.
pub(crate) fn parse(word: &str) -> Result<Part, String> {
    let part = match word {
        "method" => Part::Method,
        "path" => Part::Path,
        "query" => Part::Query,
        "route" => Part::Route,
        "principal" => Part::Principal,
        "media-type" => Part::MediaType,
        "body" => Part::BodyBytes,
        "body-json" => Part::BodyJson,
        "body-multipart" => Part::BodyMultipart,
        _ => return parse_named(word),
    };
    Ok(part)
}

fn parse_named(word: &str) -> Result<Part, String> {
    match word.split_once(':') {
        Some((_, "")) => Err(format!("nothing after the colon of {word:?}")),
        Some(("header", name)) => Ok(Part::Header(name.to_ascii_lowercase())),
        Some(("query", name)) => Ok(Part::QueryParam(name.into())),
        Some(("path-param", name)) => Ok(Part::PathParam(name.into())),
        Some(("json", pointer)) if is_pointer(pointer) => Ok(Part::JsonPointer(pointer.into())),
        Some(("json", _)) => Err(NOT_A_POINTER.into()),
        _ => Err(format!("unknown part {word:?}; known: {WORDS}")),
    }
}

pub(crate) const NOT_A_POINTER: &str =
    "is not a JSON pointer: it begins with / and writes ~ as ~0 and / in a name as ~1";

/// A pointer of RFC 6901 to something inside the document. The whole document has a part of
/// its own.
pub(crate) fn is_pointer(text: &str) -> bool {
    let escaped = |rest: &str| rest.starts_with(['0', '1']);
    text.starts_with('/') && text.split('~').skip(1).all(escaped)
}

pub(crate) fn reads_principal(part: &Part) -> bool {
    matches!(part, Part::Principal)
}

pub(crate) fn reads_body(part: &Part) -> bool {
    matches!(
        part,
        Part::BodyBytes
            | Part::BodyJson
            | Part::BodyMultipart
            | Part::JsonPointer(_)
            | Part::JsonWithout(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_names_one_part() {
        let check = |word: &str, part: Part| assert_eq!(parse(word), Ok(part), "{word}");
        check("method", Part::Method);
        check("route", Part::Route);
        check("body", Part::BodyBytes);
        check("header:X-Request-Id", Part::Header("x-request-id".into()));
        check("query:a:b", Part::QueryParam("a:b".into()));
        check("path-param:id", Part::PathParam("id".into()));
        check("json:/a/b~1c", Part::JsonPointer("/a/b~1c".into()));
    }

    #[test]
    fn anything_else_is_an_error() {
        for word in ["", "Method", "header", "header:", "json:a", "json:", "json:/~2", "body:x"] {
            assert!(parse(word).is_err(), "{word:?}");
        }
    }
}
