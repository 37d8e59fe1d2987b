//! Which route a request takes: pure, most specific first, and not a scan over all of them.
//!
//! In order of precedence:
//!
//! 1. a route for this very host before one for any host;
//! 2. segment by segment from the left: literal text before a `{parameter}` before the final
//!    `{*rest}`;
//! 3. a route that lists this method before one that lists none.
//!
//! A route that fits by host and path but not by method is passed over, and the search goes on
//! with the next less specific one. When nothing fits at all, GET, HEAD and OPTIONS take the most
//! specific route of any method: it will not guard them, and a browser's preflight for a guarded
//! POST must reach the API that answers it. Segments are compared byte for byte: case and a trailing
//! slash count, because the upstream may tell them apart. A parameter takes one segment that is
//! not empty. `{*rest}` takes what follows its slash, which may be nothing: `/files/{*rest}`
//! fits `/files/` and `/files/a/b`, but not `/files`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use crate::path;
use crate::policy::Route;

/// The deepest pattern. It bounds the search, which descends one level a segment.
pub const SEGMENTS_MAX: usize = 64;

/// A route and what its pattern captured.
#[derive(Debug)]
pub struct Matched<'a> {
    /// The route.
    pub route: &'a Arc<Route>,
    /// Names and values in the order of the pattern; values are as in the path, still encoded.
    pub params: Vec<(String, String)>,
}

/// Which requests a route takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteMatch {
    /// The host in lower case without a port; `None` takes any.
    pub host: Option<String>,
    /// Sorted, each once; empty takes any method.
    pub methods: Vec<String>,
    /// The pattern of the path.
    pub path: PathPattern,
}

/// Says why a route was taken: `POST api.example.com/v1/payments`.
impl fmt::Display for RouteMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods = match self.methods.is_empty() {
            true => Cow::Borrowed("ANY"),
            false => Cow::Owned(self.methods.join(",")),
        };
        write!(f, "{methods} {}{}", self.host.as_deref().unwrap_or(""), self.path)
    }
}

/// A pattern such as `/accounts/{account}/payments`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    segments: Vec<Segment>,
}

/// One piece of a pattern, between two slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Exactly this text, which is empty after a trailing slash.
    Literal(String),
    /// One segment that is not empty, captured under this name.
    Param(String),
    /// All that follows, captured under this name.
    Rest(String),
}

impl PathPattern {
    /// Reads a pattern; the error completes "must be …".
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix('/').ok_or("must begin with `/`")?;
        let segments: Vec<Segment> =
            rest.split('/').map(parse_segment).collect::<Result<_, _>>()?;
        if segments.len() > SEGMENTS_MAX {
            return Err(format!("must have at most {SEGMENTS_MAX} segments"));
        }
        let pattern = Self { text: text.to_owned(), segments };
        pattern.check_names()?;
        pattern.check_literals()?;
        Ok(pattern)
    }

    fn check_names(&self) -> Result<(), String> {
        let mut names = Vec::new();
        for (n, segment) in self.segments.iter().enumerate() {
            let name = match segment {
                Segment::Literal(_) => continue,
                Segment::Param(name) => name,
                Segment::Rest(name) if n + 1 == self.segments.len() => name,
                Segment::Rest(name) => {
                    return Err(format!("must have `{{*{name}}}` only as its last segment"));
                }
            };
            if names.contains(&name) {
                return Err(format!("must not use the name `{name}` twice"));
            }
            names.push(name);
        }
        Ok(())
    }

    /// Literal text must be written as the gateway sees it, or the route would never match.
    fn check_literals(&self) -> Result<(), String> {
        let literal = |segment: &Segment| match segment {
            Segment::Literal(text) => text.clone(),
            Segment::Param(_) | Segment::Rest(_) => "x".to_owned(),
        };
        let sample: Vec<String> = self.segments.iter().map(literal).collect();
        let sample = format!("/{}", sample.join("/"));
        match path::canonical(&sample) {
            Err(reason) => Err(format!("must be a path that the gateway accepts: {reason}")),
            Ok(canonical) if canonical != sample => Err(format!(
                "must be in canonical form, or it would never match: `{sample}` reaches a route as `{canonical}`"
            )),
            Ok(_) => Ok(()),
        }
    }

    /// The pieces.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What a matching path holds at the places of the names.
    pub(crate) fn params(&self, path: &str) -> Vec<(String, String)> {
        let mut params = Vec::new();
        let mut rest = path.strip_prefix('/').unwrap_or(path);
        for segment in &self.segments {
            let (head, tail) = rest.split_once('/').unwrap_or((rest, ""));
            match segment {
                Segment::Literal(_) => {}
                Segment::Param(name) => params.push((name.clone(), head.to_owned())),
                Segment::Rest(name) => params.push((name.clone(), rest.to_owned())),
            }
            rest = tail;
        }
        params
    }

    /// What two patterns must have in common to fit exactly the same paths with the same
    /// precedence: everything but the names.
    fn shape(&self) -> Vec<Option<&str>> {
        fn shape(segment: &Segment) -> Option<&str> {
            match segment {
                Segment::Literal(text) => Some(text),
                // Neither `{` nor `*` gets through the check of literals.
                Segment::Param(_) => None,
                Segment::Rest(_) => Some("{*}"),
            }
        }
        self.segments.iter().map(shape).collect()
    }
}

impl PathPattern {
    /// A path that both patterns fit, if there is one. What is free in both is `{}`, which no
    /// pattern has as its text.
    pub(crate) fn common(&self, other: &Self) -> Option<String> {
        const FREE: &str = "{}";
        let mut path = String::new();
        let (mut own, mut others) = (self.segments.as_slice(), other.segments.as_slice());
        while let (Some((a, own_tail)), Some((b, others_tail))) =
            (own.split_first(), others.split_first())
        {
            let text = match (a, b) {
                (Segment::Literal(a), Segment::Literal(b)) if a != b => return None,
                (Segment::Literal(text), Segment::Param(_))
                | (Segment::Param(_), Segment::Literal(text))
                    if text.is_empty() =>
                {
                    return None;
                }
                (Segment::Literal(text), _) | (_, Segment::Literal(text)) => text,
                _ => FREE,
            };
            path.push('/');
            path.push_str(text);
            // A rest stays, and takes what the other one still has.
            let rest = |segment: &Segment| matches!(segment, Segment::Rest(_));
            match (rest(a), rest(b)) {
                (true, true) => return Some(path),
                (true, false) if others_tail.is_empty() => return Some(path),
                (false, true) if own_tail.is_empty() => return Some(path),
                _ => {}
            }
            own = if rest(a) { own } else { own_tail };
            others = if rest(b) { others } else { others_tail };
        }
        (own.is_empty() && others.is_empty()).then_some(path)
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn parse_segment(text: &str) -> Result<Segment, String> {
    if !text.contains(['{', '}', '*']) {
        return Ok(Segment::Literal(text.to_owned()));
    }
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let (name, rest) = match inner {
        Some(inner) => match inner.strip_prefix('*') {
            Some(name) => (name, true),
            None => (inner, false),
        },
        None => ("", false),
    };
    let first = |b: &u8| b.is_ascii_alphabetic() || *b == b'_';
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if !name.as_bytes().first().is_some_and(first) || !name.bytes().all(word) {
        return Err(format!(
            "must have whole segments as `{{name}}` or, last, `{{*name}}`, with names of letters, digits and `_`, not {text:?}"
        ));
    }
    Ok(match rest {
        true => Segment::Rest(name.to_owned()),
        false => Segment::Param(name.to_owned()),
    })
}

/// Two routes between which a request could not decide.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Clash {
    pub(crate) first: usize,
    pub(crate) second: usize,
}

/// The routes as a tree for each host, one level a segment. Every node has one path from the
/// root, so a search visits no node twice, whatever it has to give up on the way.
#[derive(Debug, Default)]
pub(crate) struct Matcher {
    by_host: HashMap<String, Node>,
    any_host: Node,
}

#[derive(Debug, Default)]
struct Node {
    literals: HashMap<String, Node>,
    param: Option<Box<Node>>,
    /// Routes whose pattern ends here with `{*rest}`.
    rest: Leaf,
    /// Routes whose pattern ends here.
    here: Leaf,
}

/// Routes with one host and pattern: by method.
#[derive(Debug, Default)]
struct Leaf {
    by_method: BTreeMap<String, usize>,
    any_method: Option<usize>,
}

/// What a search looks for in a leaf.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    /// A route that takes this method.
    Method(&'a str),
    /// Any route.
    Whatever,
}

/// Methods that may take a route which does not list them. Not TRACE: no browser needs it.
const LET_THROUGH: &[&str] = &["GET", "HEAD", "OPTIONS"];

impl Leaf {
    fn find(&self, wanted: Wanted<'_>) -> Option<usize> {
        match wanted {
            Wanted::Method(method) => self.by_method.get(method).copied().or(self.any_method),
            Wanted::Whatever => self.any_method.or_else(|| self.by_method.values().min().copied()),
        }
    }
}

impl Matcher {
    /// Finds every pair of routes that clash. Pure text, so it runs before anything is built.
    pub(crate) fn clashes<'r>(routes: impl Iterator<Item = &'r RouteMatch>) -> Vec<Clash> {
        type Slot<'r> = (Option<&'r str>, Vec<Option<&'r str>>, Option<&'r str>);
        let mut taken: HashMap<Slot<'r>, usize> = HashMap::new();
        let mut clashes = Vec::new();
        for (second, route) in routes.enumerate() {
            let methods: Vec<Option<&str>> = match route.methods.is_empty() {
                true => vec![None],
                false => route.methods.iter().map(|method| Some(method.as_str())).collect(),
            };
            let slots = methods.into_iter().map(|m| (route.host.as_deref(), route.path.shape(), m));
            // Several methods in common are one clash.
            let mut found = None;
            for slot in slots {
                let first = *taken.entry(slot).or_insert(second);
                found = found.or((first != second).then_some(first));
            }
            clashes.extend(found.map(|first| Clash { first, second }));
        }
        clashes
    }

    /// Builds the tree; a route is known by its place in the list.
    pub(crate) fn new<'r>(routes: impl Iterator<Item = &'r RouteMatch>) -> Self {
        let mut matcher = Self::default();
        for (index, route) in routes.enumerate() {
            let root = match &route.host {
                Some(host) => matcher.by_host.entry(host.clone()).or_default(),
                None => &mut matcher.any_host,
            };
            let leaf = root.leaf(route.path.segments());
            if route.methods.is_empty() {
                leaf.any_method.get_or_insert(index);
            }
            for method in &route.methods {
                leaf.by_method.entry(method.clone()).or_insert(index);
            }
        }
        matcher
    }

    /// The place in the list of the most specific route.
    pub(crate) fn find(&self, host: &str, method: &str, path: &str) -> Option<usize> {
        let path = path.strip_prefix('/')?;
        let own = match self.by_host.is_empty() {
            true => None,
            false => self.by_host.get(normalise_host(host).as_ref()),
        };
        let find = |wanted| {
            own.and_then(|node| node.find(wanted, Some(path)))
                .or_else(|| self.any_host.find(wanted, Some(path)))
        };
        find(Wanted::Method(method)).or_else(|| match LET_THROUGH.contains(&method) {
            true => find(Wanted::Whatever),
            false => None,
        })
    }
}

impl Node {
    fn leaf(&mut self, segments: &[Segment]) -> &mut Leaf {
        match segments.split_first() {
            None => &mut self.here,
            Some((Segment::Rest(_), _)) => &mut self.rest,
            Some((Segment::Param(_), tail)) => self.param.get_or_insert_default().leaf(tail),
            Some((Segment::Literal(text), tail)) => {
                self.literals.entry(text.clone()).or_default().leaf(tail)
            }
        }
    }

    /// `path` is what is left after the last slash consumed, or `None` at the end.
    fn find(&self, wanted: Wanted<'_>, path: Option<&str>) -> Option<usize> {
        let Some(path) = path else { return self.here.find(wanted) };
        let (head, tail) = match path.split_once('/') {
            Some((head, tail)) => (head, Some(tail)),
            None => (path, None),
        };
        let literal = || self.literals.get(head)?.find(wanted, tail);
        let param = || self.param.as_ref().filter(|_| !head.is_empty())?.find(wanted, tail);
        literal().or_else(param).or_else(|| self.rest.find(wanted))
    }
}

/// Whether some upstream may take this method for another than the gateway does.
///
/// Methods are case-sensitive and compared byte for byte, so `post` is not the POST of a guarded
/// route and would take an unguarded one beside it. An upstream that ignores case runs it as POST
/// all the same. A route lists methods in capitals only: whoever forwards has to refuse a request
/// whose method has a lower-case ASCII letter (400) before it asks for a route.
pub fn method_is_ambiguous(method: &str) -> bool {
    method.bytes().any(|b| b.is_ascii_lowercase())
}

/// A host in the form of [`RouteMatch::host`]: lower case, no port, no final dot.
pub fn normalise_host(host: &str) -> Cow<'_, str> {
    let host = match host.rsplit_once(':') {
        // In `[::1]` the last colon belongs to the address.
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        Some(_) | None => host,
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    match host.bytes().any(|b| b.is_ascii_uppercase()) {
        true => Cow::Owned(host.to_ascii_lowercase()),
        false => Cow::Borrowed(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Instant;

    fn route(text: &str) -> RouteMatch {
        let (methods, place) = text.split_once(' ').expect("methods and place");
        let (host, path) = place.split_at(place.find('/').expect("a path"));
        RouteMatch {
            host: (!host.is_empty()).then(|| host.to_owned()),
            methods: match methods {
                "ANY" => Vec::new(),
                _ => methods.split(',').map(str::to_owned).collect(),
            },
            path: PathPattern::parse(path).expect("a pattern"),
        }
    }

    fn routes(texts: &[&str]) -> Vec<RouteMatch> {
        texts.iter().map(|text| route(text)).collect()
    }

    #[test]
    fn the_most_specific_route_wins() {
        let table = [
            "POST /v1/payments",
            "ANY /v1/payments",
            "POST /v1/{kind}",
            "ANY /{*rest}",
            "POST api.example.com/v1/{kind}",
            "GET /v1/payments/{id}",
            "POST /v1/payments/refunds",
            "ANY /v1/{kind}/{id}/notes",
            "POST /v1/payments/{*more}",
        ];
        let routes = routes(&table);
        let matcher = Matcher::new(routes.iter());
        let check = |request: &str, expected: Option<&str>| {
            let (method, place) = request.split_once(' ').expect("method and place");
            let (host, path) = place.split_at(place.find('/').expect("a path"));
            let found = matcher.find(host, method, path).map(|n| table[n]);
            assert_eq!(found, expected, "{request}");
        };
        check("POST /v1/payments", Some("POST /v1/payments"));
        check("PUT /v1/payments", Some("ANY /v1/payments"));
        check("POST /v1/orders", Some("POST /v1/{kind}"));
        check("PUT /v1/orders", Some("ANY /{*rest}"));
        // The host comes before the path.
        check("POST API.example.com:8443/v1/payments", Some("POST api.example.com/v1/{kind}"));
        check("PUT api.example.com/v1/payments", Some("ANY /v1/payments"));
        check("GET /v1/payments/7", Some("GET /v1/payments/{id}"));
        // No route for the method there: the search goes on.
        check("GET /v1/payments/refunds", Some("GET /v1/payments/{id}"));
        check("DELETE /v1/payments/7", Some("ANY /{*rest}"));
        // Back out of `payments` into `{kind}`.
        check("GET /v1/payments/7/notes", Some("ANY /v1/{kind}/{id}/notes"));
        check("POST /v1/payments/7/notes", Some("POST /v1/payments/{*more}"));
        // A trailing slash counts; a parameter is not empty.
        check("POST /v1/payments/", Some("POST /v1/payments/{*more}"));
        check("POST /v1/", Some("ANY /{*rest}"));
        check("GET /", Some("ANY /{*rest}"));
    }

    #[test]
    fn what_only_reads_takes_a_route_that_does_not_list_it() {
        let routes = routes(&["POST /pay", "POST h/pay", "PUT /pay/{id}"]);
        let matcher = Matcher::new(routes.iter());
        assert_eq!(matcher.find("", "OPTIONS", "/pay"), Some(0));
        assert_eq!(matcher.find("h", "GET", "/pay"), Some(1));
        assert_eq!(matcher.find("", "HEAD", "/pay/7"), Some(2));
        assert_eq!(matcher.find("", "TRACE", "/pay"), None);
        assert_eq!(matcher.find("", "DELETE", "/pay"), None);
        assert_eq!(matcher.find("", "GET", "/other"), None);
    }

    #[test]
    fn a_method_with_a_small_letter_is_ambiguous() {
        for (method, expected) in [
            ("POST", false),
            ("M-SEARCH", false),
            ("X1", false),
            ("", false),
            ("post", true),
            ("Post", true),
            ("POSt", true),
        ] {
            assert_eq!(method_is_ambiguous(method), expected, "{method}");
        }
    }

    #[test]
    fn rest_takes_what_follows_its_slash() {
        let routes = routes(&["ANY /files/{*rest}"]);
        let matcher = Matcher::new(routes.iter());
        let check = |path: &str, expected: Option<&str>| {
            let rest = matcher.find("", "GET", path).map(|_| routes[0].path.params(path));
            let expected = expected.map(|e| vec![("rest".to_owned(), e.to_owned())]);
            assert_eq!(rest, expected, "{path}");
        };
        check("/files/a", Some("a"));
        check("/files/a/b/", Some("a/b/"));
        check("/files/", Some(""));
        check("/files", None);
        check("/file/a", None);
        check("files/a", None);
        check("", None);
    }

    #[test]
    fn two_patterns_have_a_path_in_common() {
        for (a, b, expected) in [
            ("/a", "/a", Some("/a")),
            ("/a", "/b", None),
            ("/a", "/a/b", None),
            ("/a", "/{x}", Some("/a")),
            ("/", "/{x}", None),
            ("/", "/{*x}", Some("/")),
            ("/{x}", "/{y}", Some("/{}")),
            ("/a/{x}/c", "/{*r}", Some("/a/{}/c")),
            ("/a/{x}", "/{y}/b", Some("/a/b")),
            ("/a", "/a/{*r}", None),
            ("/a/", "/a/{*r}", Some("/a/")),
            ("/a/{*x}", "/{*r}", Some("/a/{}")),
            ("/a/{*x}", "/{y}/b/{z}", Some("/a/b/{}")),
        ] {
            let parse = |text| PathPattern::parse(text).expect("a pattern");
            assert_eq!(parse(a).common(&parse(b)).as_deref(), expected, "{a} {b}");
            assert_eq!(parse(b).common(&parse(a)).as_deref(), expected, "{b} {a}");
        }
    }

    #[test]
    fn parameters_are_captured_in_order() {
        let pattern = PathPattern::parse("/a/{x}/b/{y}/{*z}").expect("a pattern");
        let owned = |(a, b): (&str, &str)| (a.to_owned(), b.to_owned());
        assert_eq!(
            pattern.params("/a/1/b/%20/3/4"),
            [("x", "1"), ("y", "%20"), ("z", "3/4")].map(owned)
        );
    }

    #[test]
    fn a_pattern_is_written_as_the_gateway_sees_paths() {
        for good in ["/", "/a", "/a/", "/{a}", "/{*a}", "/a/{b_1}/{*c}", "/a%20b"] {
            assert!(PathPattern::parse(good).is_ok(), "{good}");
        }
        let deep = "/a".repeat(SEGMENTS_MAX + 1);
        for bad in [
            "", "a", "/a//b", "/../a", "/a?b", "/a;b", "/a%2fb", "/%61", "/a%e2", "/é", "/{}",
            "/{a", "/a}", "/x{a}", "/{a-b}", "/{1}", "/{*a}/b", "/{a}/{a}", "/*", "/{a*}", &deep,
        ] {
            assert!(PathPattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn two_routes_for_the_same_requests_clash() {
        let check = |texts: &[&str], expected: &[(usize, usize)]| {
            let clashes = Matcher::clashes(routes(texts).iter());
            let found: Vec<_> = clashes.iter().map(|c| (c.first, c.second)).collect();
            assert_eq!(found, expected, "{texts:?}");
        };
        check(&["POST /a", "POST /a"], &[(0, 1)]);
        check(&["PATCH,POST,PUT /a", "POST,PUT /a", "PUT /a"], &[(0, 1), (0, 2)]);
        check(&["ANY /a", "ANY /a"], &[(0, 1)]);
        check(&["POST /{a}", "POST /{b}"], &[(0, 1)]);
        check(&["POST /{*a}", "POST /{*b}"], &[(0, 1)]);
        check(&["POST /a", "PUT /a", "ANY /a", "POST h/a", "POST /{a}", "POST /{*a}"], &[]);
    }

    #[test]
    fn a_host_is_compared_without_port_case_and_final_dot() {
        for (host, expected) in [
            ("Api.Example.com:443", "api.example.com"),
            ("api.example.com.", "api.example.com"),
            ("[::1]:8080", "[::1]"),
            ("[::1]", "[::1]"),
            ("", ""),
            (":80", ":80"),
        ] {
            assert_eq!(normalise_host(host), expected, "{host}");
        }
    }

    #[test]
    fn ten_thousand_routes_are_not_scanned() {
        let texts: Vec<String> = (0..10_000).map(|n| format!("POST /v1/s{n}/{{id}}/run")).collect();
        let routes: Vec<RouteMatch> = texts.iter().map(|text| route(text)).collect();
        assert_eq!(Matcher::clashes(routes.iter()), []);
        let matcher = Matcher::new(routes.iter());
        let started = Instant::now();
        for n in 0..10_000 {
            assert_eq!(matcher.find("h", "POST", &format!("/v1/s{n}/7/run")), Some(n));
        }
        // A scan would make 10⁸ comparisons: minutes in this profile, not milliseconds.
        assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    }

    /// The rules of this file, said slowly: every route is asked, the best one wins.
    fn by_scan(routes: &[RouteMatch], host: &str, method: &str, path: &str) -> Option<usize> {
        let fits = |route: &RouteMatch| {
            let mut rest = Some(&path[1..]);
            for segment in route.path.segments() {
                let text = rest?;
                let (head, tail) = match text.split_once('/') {
                    Some((head, tail)) => (head, Some(tail)),
                    None => (text, None),
                };
                match segment {
                    Segment::Literal(text) if text == head => rest = tail,
                    Segment::Param(_) if !head.is_empty() => rest = tail,
                    Segment::Rest(_) => return Some(()),
                    Segment::Literal(_) | Segment::Param(_) => return None,
                }
            }
            rest.is_none().then_some(())
        };
        let rank = |route: &RouteMatch| {
            let segments = route.path.segments().iter().map(|segment| match segment {
                Segment::Literal(_) => 0,
                Segment::Param(_) => 1,
                Segment::Rest(_) => 2,
            });
            let segments: Vec<u8> = segments.collect();
            (route.host.is_none(), segments, route.methods.is_empty())
        };
        let host_fits = |r: &RouteMatch| r.host.as_deref().is_none_or(|own| own == host);
        let method_fits =
            |r: &RouteMatch| r.methods.is_empty() || r.methods.iter().any(|own| own == method);
        let best = |allowed: &dyn Fn(&RouteMatch) -> bool| {
            (0..routes.len())
                .filter(|n| host_fits(&routes[*n]) && allowed(&routes[*n]))
                .filter(|n| fits(&routes[*n]).is_some())
                .min_by_key(|n| rank(&routes[*n]))
        };
        best(&method_fits).or_else(|| best(&|_| LET_THROUGH.contains(&method)))
    }

    proptest! {
        #[test]
        fn the_tree_agrees_with_a_scan(
            texts in prop::collection::vec(
                "(ANY|POST|PUT|POST,PUT) (h|g|)(/([ab]|\\{x\\})){0,3}(/[ab]|/\\{\\*rest\\}|/)", 1..12),
            paths in prop::collection::vec("(/[ab]){0,4}/?", 1..8),
        ) {
            let mut routes: Vec<RouteMatch> = Vec::new();
            for text in &texts {
                // One name may not be used twice in a pattern.
                let mut text = text.clone();
                for n in 0.. {
                    if !text.contains("{x}") { break }
                    text = text.replacen("{x}", &format!("{{x{n}}}"), 1);
                }
                let mut candidate = routes.clone();
                candidate.push(route(&text));
                if Matcher::clashes(candidate.iter()).is_empty() {
                    routes = candidate;
                }
            }
            let matcher = Matcher::new(routes.iter());
            for path in paths.iter().filter(|path| path.starts_with('/')) {
                for host in ["h", "g", "other"] {
                    for method in ["POST", "PUT", "GET"] {
                        prop_assert_eq!(
                            matcher.find(host, method, path),
                            by_scan(&routes, host, method, path),
                            "{} {}{} in {:?}", method, host, path, routes
                        );
                    }
                }
            }
        }
    }
}
