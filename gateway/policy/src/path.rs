//! The one spelling of a path that is matched, fingerprinted and forwarded.
//!
//! If two spellings reached one upstream operation under different keys, or one spelling slipped
//! past a guarded route to be read as guarded by the upstream, an operation could run twice. So
//! harmless variety (`%61` for `a`, `%2f` against `%2F` in hexadecimal case) is normalised, and
//! everything on which servers disagree is refused: encoded or doubled slashes, backslashes,
//! dot segments, path parameters (`;`), double encoding, control bytes.

use std::borrow::Cow;

/// Why a path is refused. Each has a sentence for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin with a slash.
    #[error("a path begins with `/`")]
    NotAbsolute,
    /// A byte that no path contains as such.
    #[error("a path holds only visible ASCII characters; others are percent-encoded")]
    ByteNotAllowed,
    /// `?`, `#`, `;` or `\`.
    #[error("`?`, `#`, `;` and `\\` are not accepted in a path")]
    DelimiterNotAllowed,
    /// A `%` without two hexadecimal digits.
    #[error("a `%` is followed by two hexadecimal digits")]
    BadEncoding,
    /// `%2f`, `%5c` or an encoded control byte.
    #[error("an encoded slash, backslash or control character is not accepted in a path")]
    EncodedDelimiter,
    /// `%25` before what would be read as another escape.
    #[error("a path is percent-encoded once")]
    EncodedTwice,
    /// `//`.
    #[error("a path has no empty segment, save a last one")]
    EmptySegment,
    /// `.` or `..`, encoded or not.
    #[error("a path has no `.` or `..` segment")]
    DotSegment,
}

/// The canonical form of a request path (without query), or why there is none. It borrows when
/// the path is canonical already, which is nearly always.
pub fn canonical(path: &str) -> Result<Cow<'_, str>, PathError> {
    if !path.starts_with('/') {
        return Err(PathError::NotAbsolute);
    }
    let decoded = match path.contains('%') {
        true => Cow::Owned(normalise_escapes(path)?),
        false => Cow::Borrowed(path),
    };
    check_bytes(&decoded)?;
    check_segments(&decoded)?;
    Ok(decoded)
}

fn check_bytes(path: &str) -> Result<(), PathError> {
    for byte in path.bytes() {
        match byte {
            b'?' | b'#' | b';' | b'\\' => return Err(PathError::DelimiterNotAllowed),
            0x21..=0x7e => {}
            _ => return Err(PathError::ByteNotAllowed),
        }
    }
    Ok(())
}

fn check_segments(path: &str) -> Result<(), PathError> {
    let mut segments = path[1..].split('/').peekable();
    while let Some(segment) = segments.next() {
        match segment {
            "" if segments.peek().is_some() => return Err(PathError::EmptySegment),
            "." | ".." => return Err(PathError::DotSegment),
            _ => {}
        }
    }
    Ok(())
}

/// Decodes escapes of unreserved characters, writes the others in capitals, refuses the rest.
fn normalise_escapes(path: &str) -> Result<String, PathError> {
    let bytes = path.as_bytes();
    let mut out = String::with_capacity(path.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte != b'%' {
            if !byte.is_ascii() {
                return Err(PathError::ByteNotAllowed);
            }
            out.push(char::from(byte));
            at += 1;
            continue;
        }
        let value = escape_at(bytes, at).ok_or(PathError::BadEncoding)?;
        match value {
            b'/' | b'\\' | 0x00..=0x1f | 0x7f => return Err(PathError::EncodedDelimiter),
            b'%' if looks_like_escape(&bytes[at + 3..]) => return Err(PathError::EncodedTwice),
            _ if is_unreserved(value) => out.push(char::from(value)),
            _ => out.push_str(&format!("%{value:02X}")),
        }
        at += 3;
    }
    Ok(out)
}

/// Whether a second round of decoding would find an escape here: two digits, in plain or encoded.
fn looks_like_escape(rest: &[u8]) -> bool {
    let digit = |rest: &[u8]| match escape_at(rest, 0) {
        Some(value) => value.is_ascii_hexdigit().then_some(3),
        None => rest.first().is_some_and(u8::is_ascii_hexdigit).then_some(1),
    };
    digit(rest).is_some_and(|length| digit(&rest[length..]).is_some())
}

/// The byte that the escape at this position stands for.
fn escape_at(bytes: &[u8], at: usize) -> Option<u8> {
    let escape = bytes.get(at..at + 3)?;
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    match escape {
        [b'%', high, low] => Some(digit(*high)? * 16 + digit(*low)?),
        _ => None,
    }
}

/// RFC 3986, section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_spellings_of_one_path_become_one() {
        for (path, expected) in [
            ("/v1/payments", "/v1/payments"),
            ("/v1/%70ayments", "/v1/payments"),
            ("/a%e2%82%ac", "/a%E2%82%AC"),
            ("/", "/"),
            ("/a/", "/a/"),
            ("/100%25", "/100%25"),
            ("/a%20b%3b", "/a%20b%3B"),
            ("/a:b@c,d=e", "/a:b@c,d=e"),
        ] {
            assert_eq!(canonical(path).as_deref(), Ok(expected), "{path}");
        }
    }

    #[test]
    fn what_servers_read_differently_is_refused() {
        for (path, expected) in [
            ("", PathError::NotAbsolute),
            ("*", PathError::NotAbsolute),
            ("a/b", PathError::NotAbsolute),
            ("/a//b", PathError::EmptySegment),
            ("//", PathError::EmptySegment),
            ("/a/../b", PathError::DotSegment),
            ("/a/.", PathError::DotSegment),
            ("/a/%2e%2E/b", PathError::DotSegment),
            ("/a;v=1/b", PathError::DelimiterNotAllowed),
            ("/a/..;/b", PathError::DelimiterNotAllowed),
            ("/a\\b", PathError::DelimiterNotAllowed),
            ("/a?b", PathError::DelimiterNotAllowed),
            ("/a%2fb", PathError::EncodedDelimiter),
            ("/a%5Cb", PathError::EncodedDelimiter),
            ("/a%00", PathError::EncodedDelimiter),
            ("/a%0d%0ab", PathError::EncodedDelimiter),
            ("/a%252fb", PathError::EncodedTwice),
            ("/a%25%32fb", PathError::EncodedTwice),
            ("/a%", PathError::BadEncoding),
            ("/a%2", PathError::BadEncoding),
            ("/a%zz", PathError::BadEncoding),
            ("/a b", PathError::ByteNotAllowed),
            ("/é", PathError::ByteNotAllowed),
            ("/%61é", PathError::ByteNotAllowed),
        ] {
            assert_eq!(canonical(path), Err(expected), "{path}");
        }
    }

    proptest! {
        #[test]
        fn canonical_is_final(path in "/[a-zA-Z0-9%/.;~é-]{0,20}|\\PC{0,20}") {
            if let Ok(once) = canonical(&path) {
                let twice = canonical(&once);
                prop_assert_eq!(twice.as_deref(), Ok(once.as_ref()));
            }
        }

        #[test]
        fn any_escape_of_a_plain_byte_gives_the_same_path(
            path in "/[a-z]{1,8}(/[a-z]{1,8}){0,3}", pick in 0usize..40, capitals: bool,
        ) {
            let at = 1 + pick % (path.len() - 1);
            prop_assume!(path.as_bytes()[at] != b'/');
            let byte = path.as_bytes()[at];
            let escape = if capitals { format!("%{byte:02X}") } else { format!("%{byte:02x}") };
            let spelled = format!("{}{escape}{}", &path[..at], &path[at + 1..]);
            let canonical = canonical(&spelled);
            prop_assert_eq!(canonical.as_deref(), Ok(path.as_str()));
        }
    }
}
