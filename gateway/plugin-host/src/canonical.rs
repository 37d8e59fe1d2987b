//! JSON in one form per value: RFC 8785, with two differences that matter for keys.
//!
//! - **Numbers are never merged through a double.** Where the ECMAScript text of the nearest
//!   double is exactly the number in the document, that text is written, as the RFC says.
//!   Otherwise (`9007199254740993`, `0.1000000000000000055`, `1e400`) the number itself is
//!   written, normalised. So `1`, `1.0` and `1e0` are one value, and two different decimal
//!   values never become one.
//! - **What the RFC leaves open is an error**: the same member twice, half a surrogate pair,
//!   anything after the value, nesting over 128. The caller then falls back to the raw bytes.
//!
//! Reading is left to `struson`, which hands out the text of a number as it stands.

use std::fmt::Write as _;

use struson::reader::{JsonReader, JsonStreamReader, ReaderError, ReaderSettings, ValueType};

/// The deepest nesting of arrays and objects that is read.
const DEPTH_MAX: u32 = 128;

/// A JSON value, with members sorted and numbers already in their final text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(Box<str>),
    String(Box<str>),
    Array(Vec<Json>),
    Object(Vec<(Box<str>, Json)>),
}

/// Why some bytes have no canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JsonError {
    #[error("not JSON")]
    NotJson,
    #[error("a member appears twice in one object")]
    DuplicateName,
    #[error("nested deeper than {DEPTH_MAX}")]
    TooDeep,
}

impl Json {
    /// Reads one value and nothing else.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, JsonError> {
        let settings = ReaderSettings {
            max_nesting_depth: Some(DEPTH_MAX),
            track_path: false,
            // Any number that JSON can write is a value to us.
            restrict_number_values: false,
            ..ReaderSettings::default()
        };
        let mut reader = JsonStreamReader::new_custom(bytes, settings);
        let value = read(&mut reader)?;
        reader.consume_trailing_whitespace()?;
        Ok(value)
    }

    /// The canonical text.
    pub(crate) fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// The value at a pointer.
    pub(crate) fn at(&self, pointer: &Pointer) -> Option<&Self> {
        pointer.0.iter().try_fold(self, |value, step| match value {
            Self::Object(members) => {
                members.iter().find(|(name, _)| **name == **step).map(|(_, member)| member)
            }
            Self::Array(items) => items.get(array_index(step)?),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) => None,
        })
    }

    /// This value without what is at these pointers. All of them speak about the value as it
    /// was: taking out the first item of an array does not make the second one first.
    pub(crate) fn without(&self, pointers: &[Pointer]) -> Self {
        let paths: Vec<&[Box<str>]> = pointers.iter().map(|pointer| &*pointer.0).collect();
        self.pruned(&paths)
    }

    fn pruned(&self, paths: &[&[Box<str>]]) -> Self {
        if paths.is_empty() {
            return self.clone();
        }
        match self {
            Self::Object(members) => Self::Object(
                members
                    .iter()
                    .filter_map(|(name, member)| {
                        Some((name.clone(), pruned_child(member, paths, |step| step == &**name)?))
                    })
                    .collect(),
            ),
            Self::Array(items) => Self::Array(
                items
                    .iter()
                    .enumerate()
                    .filter_map(|(index, item)| {
                        pruned_child(item, paths, |step| array_index(step) == Some(index))
                    })
                    .collect(),
            ),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) => self.clone(),
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Number(text) => out.push_str(text),
            Self::String(text) => write_string(text, out),
            Self::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (index, (name, member)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_string(name, out);
                    out.push(':');
                    member.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// A child without what the paths that lead into it name; `None` when one of them ends at it.
fn pruned_child(
    child: &Json,
    paths: &[&[Box<str>]],
    leads_here: impl Fn(&str) -> bool,
) -> Option<Json> {
    let mut deeper = Vec::new();
    for path in paths {
        match path.split_first() {
            Some((step, [])) if leads_here(step) => return None,
            Some((step, rest)) if leads_here(step) => deeper.push(rest),
            _ => {}
        }
    }
    Some(child.pruned(&deeper))
}

fn read(reader: &mut JsonStreamReader<&[u8]>) -> Result<Json, JsonError> {
    Ok(match reader.peek()? {
        ValueType::Null => {
            reader.next_null()?;
            Json::Null
        }
        ValueType::Boolean => Json::Bool(reader.next_bool()?),
        ValueType::Number => Json::Number(number(reader.next_number_as_str()?)?.into()),
        ValueType::String => Json::String(reader.next_string()?.into()),
        ValueType::Array => {
            let mut items = Vec::new();
            reader.begin_array()?;
            while reader.has_next()? {
                items.push(read(reader)?);
            }
            reader.end_array()?;
            Json::Array(items)
        }
        ValueType::Object => {
            let mut members = Vec::new();
            reader.begin_object()?;
            while reader.has_next()? {
                let name = reader.next_name_owned()?.into_boxed_str();
                members.push((name, read(reader)?));
            }
            reader.end_object()?;
            Json::Object(sorted(members)?)
        }
    })
}

/// Sorted by UTF-16 code units, as ECMAScript compares strings.
fn sorted(mut members: Vec<(Box<str>, Json)>) -> Result<Vec<(Box<str>, Json)>, JsonError> {
    members.sort_by(|(left, _), (right, _)| left.encode_utf16().cmp(right.encode_utf16()));
    if members.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(JsonError::DuplicateName);
    }
    Ok(members)
}

impl From<ReaderError> for JsonError {
    fn from(error: ReaderError) -> Self {
        let too_deep = matches!(error, ReaderError::MaxNestingDepthExceeded { .. });
        if too_deep { Self::TooDeep } else { Self::NotJson }
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            control @ '\0'..'\u{20}' => {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// The final text of a number token.
fn number(token: &str) -> Result<String, JsonError> {
    let exact = Decimal::parse(token).ok_or(JsonError::NotJson)?;
    if exact.digits.is_empty() {
        return Ok("0".into());
    }
    let double: f64 = token.parse().map_err(|_| JsonError::NotJson)?;
    if double.is_finite() {
        let mut buffer = ryu_js::Buffer::new();
        let text = buffer.format_finite(double);
        if Decimal::parse(text).as_ref() == Some(&exact) {
            return Ok(text.into());
        }
    }
    Ok(exact.to_text())
}

/// A decimal number in exactly one form: `digits` (no zero at either end) times ten to the
/// power of `exponent`. Zero has no digits and no sign.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Reads a JSON number. `None` for anything else and for exponents that do not fit: such a
    /// document counts as raw bytes.
    fn parse(token: &str) -> Option<Self> {
        let (mantissa, exponent) = match token.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (token, 0),
        };
        let (negative, mantissa) = match mantissa.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, mantissa),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = [whole, fraction].concat();
        if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let significant = all.trim_end_matches('0');
        let dropped = all.len() - significant.len();
        let exponent = exponent
            .checked_sub(i64::try_from(fraction.len()).ok()?)?
            .checked_add(i64::try_from(dropped).ok()?)?;
        let digits = significant.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Some(Self { negative: false, digits, exponent: 0 });
        }
        Some(Self { negative, digits, exponent })
    }

    /// A JSON number again. Two different values never have the same text, here or against the
    /// text of a double, because a text has only one value.
    fn to_text(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        match self.exponent {
            0 => format!("{sign}{}", self.digits),
            exponent => format!("{sign}{}e{exponent}", self.digits),
        }
    }
}

/// A JSON pointer (RFC 6901): where in a document. The empty one is the whole document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer(Vec<Box<str>>);

impl Pointer {
    /// `None` when the text is not a pointer.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self(Vec::new()));
        }
        text.strip_prefix('/')?.split('/').map(unescape).collect::<Option<_>>().map(Self)
    }

    /// Whether it names the whole document.
    pub(crate) fn is_whole(&self) -> bool {
        self.0.is_empty()
    }
}

fn unescape(step: &str) -> Option<Box<str>> {
    let valid = step.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    valid.then(|| step.replace("~1", "/").replace("~0", "~").into())
}

/// Digits without a leading zero; `01` and `-` are not indices.
fn array_index(step: &str) -> Option<usize> {
    let canonical = step == "0" || !step.starts_with(['0', '+']);
    canonical.then(|| step.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(text: &str) -> Result<String, JsonError> {
        Json::parse(text.as_bytes()).map(|json| json.to_text())
    }

    fn check(text: &str, expected: &str) {
        assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
    }

    #[test]
    fn order_white_space_and_escapes_do_not_matter() {
        check("{ \"b\" : 2,\n\"a\": [ ] }", r#"{"a":[],"b":2}"#);
        check(r#"{"\u0061":"\u0062\/"}"#, r#"{"a":"b/"}"#);
        check(r#"[1,2]"#, "[1,2]");
        check(r#"[2,1]"#, "[2,1]");
        check("  null ", "null");
    }

    #[test]
    fn strings_are_written_as_rfc_8785_says() {
        check(
            r#""\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/""#,
            "\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"",
        );
        check(r#""\b\t\f\r\u007f\ud83d\ude02""#, "\"\\b\\t\\f\\r\u{7f}😂\"");
    }

    #[test]
    fn members_are_sorted_by_utf_16() {
        check(
            r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#,
            "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}",
        );
    }

    #[test]
    fn numbers_that_a_double_holds_exactly_as_written_use_its_text() {
        for (token, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.0e5", "0"),
            ("1.0", "1"),
            ("1e0", "1"),
            ("10E-1", "1"),
            ("4.50", "4.5"),
            ("2e-3", "0.002"),
            ("1E30", "1e+30"),
            ("-12", "-12"),
            ("333333333.3333333", "333333333.3333333"),
            ("1e23", "1e+23"),
            ("5e-324", "5e-324"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("9007199254740992", "9007199254740992"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ] {
            check(token, expected);
        }
    }

    #[test]
    fn other_numbers_keep_their_own_digits() {
        for (token, expected) in [
            ("9007199254740993", "9007199254740993"),
            ("90071992547409930", "9007199254740993e1"),
            ("0.1000000000000000055511151231257827", "1000000000000000055511151231257827e-34"),
            ("333333333.33333329", "33333333333333329e-8"),
            ("1e400", "1e400"),
            ("10e399", "1e400"),
            ("-1e-400", "-1e-400"),
        ] {
            check(token, expected);
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_an_error() {
        let check = |text: &str, expected: JsonError| {
            assert_eq!(canonical(text), Err(expected), "{text}");
        };
        check(r#"{"a":1,"a":1}"#, JsonError::DuplicateName);
        check(r#"{"a":1,"\u0061":2}"#, JsonError::DuplicateName);
        for text in [
            "",
            " ",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "01",
            "+1",
            "1.",
            ".5",
            "NaN",
            "1 2",
            "null x",
            r#""\ud800""#,
            r#""\udc00\ud800""#,
            "\"\n\"",
            "'a'",
            "// c\n1",
            "\u{feff}1",
            "1e99999999999999999999",
        ] {
            check(text, JsonError::NotJson);
        }
        assert_eq!(Json::parse(b"\"\xff\""), Err(JsonError::NotJson));
    }

    #[test]
    fn nesting_ends_at_128() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        check(&nested(128), &nested(128));
        assert_eq!(canonical(&nested(129)), Err(JsonError::TooDeep));
        assert_eq!(canonical(&"[".repeat(100_000)), Err(JsonError::TooDeep));
    }

    #[test]
    fn pointers_find_values() {
        let json = Json::parse(br#"{"a":{"b/c":[10,20]},"":{"~":1},"n":null}"#).expect("json");
        let at =
            |pointer: &str| json.at(&Pointer::parse(pointer).expect("pointer")).map(Json::to_text);
        assert_eq!(at("/a/b~1c/1").as_deref(), Some("20"));
        assert_eq!(at("//~0").as_deref(), Some("1"));
        assert_eq!(at("/n").as_deref(), Some("null"));
        for nothing in ["/x", "/a/b~1c/2", "/a/b~1c/01", "/a/b~1c/-", "/n/x", "/a/b~1c/+1"] {
            assert_eq!(at(nothing), None, "{nothing}");
        }
        assert_eq!(at("").map(|text| text.len()), Some(json.to_text().len()));
    }

    #[test]
    fn not_every_text_is_a_pointer() {
        for text in ["a", "a/b", "/~", "/~2", "/a~"] {
            assert_eq!(Pointer::parse(text), None, "{text}");
        }
    }

    #[test]
    fn values_can_be_left_out() {
        let check = |text: &str, pointers: &[&str], expected: &str| {
            let pointers: Vec<Pointer> =
                pointers.iter().map(|text| Pointer::parse(text).expect("pointer")).collect();
            let json = Json::parse(text.as_bytes()).expect("json");
            assert_eq!(json.without(&pointers).to_text(), expected, "{text}");
        };
        check(r#"{"a":1,"b":{"c":2,"d":3}}"#, &["/a", "/b/c"], r#"{"b":{"d":3}}"#);
        check(r#"{"a":1}"#, &["/x", "/a/b", "/a/0"], r#"{"a":1}"#);
        check("[1,2,3]", &["/0", "/2"], "[2]");
        check(r#"{"l":[{"t":1,"v":2},{"t":3}]}"#, &["/l/0/t", "/l/1/t"], r#"{"l":[{"v":2},{}]}"#);
        check("7", &["/a"], "7");
    }

    /// A document, and the same one with every object's members in reverse.
    fn documents() -> impl Strategy<Value = serde_json::Value> {
        use serde_json::Value;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e300..1e300).prop_map(|number: f64| Value::from(number)),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map(".{0,4}", inner, 0..6)
                    .prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    fn reversed(value: &serde_json::Value) -> String {
        use serde_json::Value;
        match value {
            Value::Array(items) => {
                format!("[{}]", items.iter().map(reversed).collect::<Vec<_>>().join(" , "))
            }
            Value::Object(members) => {
                let members: Vec<String> = members
                    .iter()
                    .rev()
                    .map(|(name, member)| {
                        format!("{} : {}", Value::from(name.clone()), reversed(member))
                    })
                    .collect();
                format!("{{{}}}", members.join(","))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        }
    }

    fn tokens() -> impl Strategy<Value = String> {
        let digits = prop_oneof!["[1-9][0-9]{0,24}", Just("0".to_owned())];
        let fraction = proptest::option::of("[0-9]{1,24}");
        let exponent = proptest::option::of(-340i32..340);
        (any::<bool>(), digits, fraction, exponent).prop_map(
            |(negative, whole, fraction, exponent)| {
                let sign = if negative { "-" } else { "" };
                let fraction = fraction.map(|digits| format!(".{digits}")).unwrap_or_default();
                let exponent = exponent.map(|power| format!("e{power}")).unwrap_or_default();
                format!("{sign}{whole}{fraction}{exponent}")
            },
        )
    }

    proptest! {
        #[test]
        fn the_canonical_form_of_a_canonical_form_is_itself(value in documents()) {
            let once = canonical(&value.to_string()).expect("json");
            prop_assert_eq!(canonical(&once), Ok(once.clone()));
        }

        #[test]
        fn member_order_is_irrelevant(value in documents()) {
            prop_assert_eq!(canonical(&value.to_string()), canonical(&reversed(&value)));
        }

        #[test]
        fn values_are_kept(value in documents()) {
            let text = canonical(&value.to_string()).expect("json");
            prop_assert_eq!(Json::parse(text.as_bytes()), Json::parse(value.to_string().as_bytes()));
        }

        #[test]
        fn numbers_are_equal_exactly_when_their_decimal_values_are(left in tokens(), right in tokens()) {
            let same = Decimal::parse(&left) == Decimal::parse(&right);
            prop_assert_eq!(same, canonical(&left) == canonical(&right));
            let text = canonical(&left).expect("a number");
            prop_assert_eq!(Decimal::parse(&text), Decimal::parse(&left));
            prop_assert_eq!(canonical(&text), Ok(text.clone()));
        }

        #[test]
        fn neighbouring_integers_stay_apart(value in any::<u64>()) {
            let next = u128::from(value) + 1;
            prop_assert_ne!(canonical(&value.to_string()), canonical(&next.to_string()));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Json::parse(&bytes);
        }
    }
}
