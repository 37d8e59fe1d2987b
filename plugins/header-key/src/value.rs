//! How a key may be written in a header.
//!
//! A value that begins with a quote is a String of Structured Fields (RFC 9651): that is what
//! the header's specification asks for. Parameters behind it are checked and ignored. The
//! crate `sfv` reads it; a reader of our own would have to be proved equal to it.
//!
//! Most clients send a bare key, so by default that is the same key as the quoted one. A bare
//! key is visible ASCII without `"`, `\`, `,` and `;`. That covers UUIDs, ULIDs, base64 and
//! slugs, and leaves out what could mean something else: `a, b` may be two lines that some hop
//! joined, and `a;b` an item with a parameter, where ignoring the parameter would make one key
//! of `a;b` and `a;c`. Who needs these characters, or spaces, quotes the key.

use std::borrow::Cow;
use std::fmt;

use sfv::visitor::{Ignored, ItemVisitor, ParameterVisitor, parameter_visitor_with};
use sfv::{BareItemFromInput, Parser, StringRef};

/// Which ways of writing are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// Quoted or bare.
    Lenient,
    /// Quoted only.
    Strict,
}

/// Why a value is not a key. The sentences never repeat the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    Empty,
    TooLong { max_bytes: usize },
    NotQuoted,
    NotAString,
    NotBare,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the key is empty"),
            Self::TooLong { max_bytes } => {
                write!(f, "the key is longer than {max_bytes} bytes")
            }
            Self::NotQuoted => f.write_str("the key must be written in double quotes"),
            Self::NotAString => f.write_str(
                "not one quoted string of printable ASCII, in which only \\\" and \\\\ are escapes",
            ),
            Self::NotBare => f.write_str(
                "an unquoted key is visible ASCII without spaces, quotes, backslashes, commas and semicolons",
            ),
        }
    }
}

/// The key in one header line. `max_bytes` counts the bytes of the key, not of its quotes and
/// escapes.
pub(crate) fn parse(line: &[u8], syntax: Syntax, max_bytes: usize) -> Result<String, Invalid> {
    let line = trim(line);
    let key = match line.first() {
        None => return Err(Invalid::Empty),
        Some(b'"') => quoted(line)?,
        Some(_) if syntax == Syntax::Strict => return Err(Invalid::NotQuoted),
        Some(_) => bare(line)?.into(),
    };
    if key.is_empty() {
        return Err(Invalid::Empty);
    }
    if key.len() > max_bytes {
        return Err(Invalid::TooLong { max_bytes });
    }
    Ok(key.into_owned())
}

/// Without the optional white space that HTTP allows around a field value.
fn trim(mut line: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = line {
        line = rest;
    }
    line
}

fn quoted(line: &[u8]) -> Result<Cow<'_, str>, Invalid> {
    Parser::new(line).parse_item_with_visitor(QuotedKey).map_err(|_| Invalid::NotAString)
}

fn bare(line: &[u8]) -> Result<&str, Invalid> {
    let allowed = |byte: &u8| byte.is_ascii_graphic() && !b"\"\\,;".contains(byte);
    if !line.iter().all(allowed) {
        return Err(Invalid::NotBare);
    }
    std::str::from_utf8(line).map_err(|_| Invalid::NotBare)
}

/// Takes the String out of an Item and ignores its parameters.
struct QuotedKey;

impl<'de> ItemVisitor<'de> for QuotedKey {
    type Out = Cow<'de, str>;
    type Error = NotAString;

    fn bare_item(
        self,
        item: BareItemFromInput<'de>,
    ) -> Result<impl ParameterVisitor<'de, Out = Self::Out>, Self::Error> {
        let BareItemFromInput::String(text) = item else { return Err(NotAString) };
        let text = match text {
            Cow::Borrowed(text) => Cow::Borrowed(StringRef::as_str(text)),
            Cow::Owned(text) => Cow::Owned(text.into()),
        };
        Ok(parameter_visitor_with(Ignored, move |_| Ok(text)))
    }
}

#[derive(Debug)]
struct NotAString;

impl fmt::Display for NotAString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a string")
    }
}

impl std::error::Error for NotAString {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(line: impl AsRef<[u8]>, syntax: Syntax, expected: Result<&str, Invalid>) {
        let line = line.as_ref();
        let found = parse(line, syntax, 255);
        assert_eq!(found.as_deref(), expected.as_ref().copied(), "{}", line.escape_ascii());
    }

    /// Both syntaxes agree.
    fn both(line: impl AsRef<[u8]>, expected: Result<&str, Invalid>) {
        check(line.as_ref(), Syntax::Lenient, expected);
        check(line, Syntax::Strict, expected);
    }

    #[test]
    fn a_quoted_string_is_the_text_between_its_quotes() {
        both(
            r#""8e03978e-40d5-43dd-bc93-6894a57f9324""#,
            Ok("8e03978e-40d5-43dd-bc93-6894a57f9324"),
        );
        both(r#""a \"b\" \\ c""#, Ok(r#"a "b" \ c"#));
        both(r#""a, b; c""#, Ok("a, b; c"));
        both(r#"" abc ""#, Ok(" abc "));
    }

    #[test]
    fn white_space_around_the_value_is_not_part_of_it() {
        for line in [" \"abc\"", "\"abc\"  ", "\t\"abc\"\t", " \t \"abc\" \t "] {
            both(line, Ok("abc"));
        }
        check(" abc\t", Syntax::Lenient, Ok("abc"));
    }

    #[test]
    fn parameters_are_checked_and_ignored() {
        for line in [r#""k";a=1"#, r#""k";a"#, r#""k"; a=1;b="x";c=tok;d=?1;e=:aGk=:;f=1.5"#] {
            both(line, Ok("k"));
        }
        for line in [r#""k";"#, r#""k";A=1"#, r#""k";a="#, r#""k" ;a"#, r#""k";a=(1)"#] {
            both(line, Err(Invalid::NotAString));
        }
    }

    #[test]
    fn what_is_not_one_string_is_refused() {
        for line in [
            r#""abc"#,
            r#"""#,
            r#""a", "b""#,
            r#""a""b""#,
            r#""a"b"#,
            r#""a\n""#,
            r#""a\"#,
            "\"a\tb\"",
            "\"a\nb\"",
            "\"a\0\"",
            "\"a\x7f\"",
            "\"ключ\"",
        ] {
            both(line, Err(Invalid::NotAString));
        }
        both(b"\"a\xff\"", Err(Invalid::NotAString));
    }

    #[test]
    fn a_bare_key_equals_the_quoted_one() {
        for key in [
            "8e03978e-40d5-43dd-bc93-6894a57f9324",
            "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "aGVsbG8+/w==",
            "order:2024/17_a.b~c",
        ] {
            check(key, Syntax::Lenient, Ok(key));
            check(format!("\"{key}\""), Syntax::Lenient, Ok(key));
            check(key, Syntax::Strict, Err(Invalid::NotQuoted));
        }
    }

    #[test]
    fn a_bare_key_is_visible_ascii_that_means_nothing_else() {
        for line in [
            "a b",
            "a, b",
            "a,b",
            "a;b=1",
            "abc\"",
            "a\\b",
            "ключ-1",
            "a\tb",
            "a\nb",
            "a\0b",
            "\x7f",
        ] {
            check(line, Syntax::Lenient, Err(Invalid::NotBare));
        }
        check(b"a\xff", Syntax::Lenient, Err(Invalid::NotBare));
        check("'abc'", Syntax::Lenient, Ok("'abc'"));
        check("'abc'", Syntax::Strict, Err(Invalid::NotQuoted));
    }

    #[test]
    fn empty_is_not_a_key() {
        for line in ["", " ", " \t ", r#""""#, r#"  ""  "#, r#""";a=1"#] {
            both(line, Err(Invalid::Empty));
        }
    }

    #[test]
    fn the_limit_counts_bytes_of_the_key() {
        let too_long = Err(Invalid::TooLong { max_bytes: 255 });
        both(format!("\"{}\"", "k".repeat(255)), Ok(&"k".repeat(255)));
        both(format!("\"{}\"", "k".repeat(256)), too_long);
        check("k".repeat(255), Syntax::Lenient, Ok(&"k".repeat(255)));
        check("k".repeat(256), Syntax::Lenient, too_long);
        check("k".repeat(8000), Syntax::Lenient, too_long);
        // Escapes and parameters do not count.
        both(
            format!("\"{}\";a=\"{}\"", "\\\\".repeat(255), "x".repeat(300)),
            Ok(&"\\".repeat(255)),
        );
        check("k", Syntax::Lenient, Ok("k"));
        assert_eq!(parse(b"ab", Syntax::Lenient, 1), Err(Invalid::TooLong { max_bytes: 1 }));
    }

    proptest! {
        #[test]
        fn every_printable_text_survives_quoting(key in "[ -~]{1,255}") {
            let line = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
            prop_assert_eq!(parse(line.as_bytes(), Syntax::Strict, 255), Ok(key));
        }

        #[test]
        fn whatever_is_accepted_is_a_key(line in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(key) = parse(&line, Syntax::Lenient, 255) {
                prop_assert!(!key.is_empty() && key.len() <= 255);
                prop_assert!(key.bytes().all(|byte| (0x20..=0x7e).contains(&byte)));
            }
        }

        #[test]
        fn what_strict_accepts_lenient_reads_alike(line in "[ab\"\\\\;=, ]{0,12}") {
            if let Ok(key) = parse(line.as_bytes(), Syntax::Strict, 255) {
                prop_assert_eq!(parse(line.as_bytes(), Syntax::Lenient, 255), Ok(key));
            }
        }
    }
}
