//! A multipart form apart from the boundary that its client made up.
//!
//! Most clients draw a new boundary for each attempt, so the bytes of a retry differ although
//! nothing else does. Here the body is only *cut* at its boundary; the parts stay bytes, headers
//! included. Whatever is not cut cleanly has no such form, and the caller falls back to the raw
//! bytes: a retry may then be taken for something new, but two different forms are never taken
//! for one.

use memchr::memmem;
use mime::Mime;

/// The parts of a multipart body, in order.
pub(crate) fn parts<'a>(content_type: &str, body: &'a [u8]) -> Option<Vec<&'a [u8]>> {
    let media: Mime = content_type.parse().ok()?;
    if media.type_() != mime::MULTIPART {
        return None;
    }
    let boundary = media.get_param(mime::BOUNDARY)?;
    let boundary = boundary.as_str();
    if boundary.is_empty() || boundary.len() > 70 {
        return None;
    }
    cut(body, boundary.as_bytes())
}

fn cut<'a>(body: &'a [u8], boundary: &[u8]) -> Option<Vec<&'a [u8]>> {
    let delimiter = [b"\r\n--", boundary].concat();
    // The first one has no line end before it.
    let mut rest = body.strip_prefix(&delimiter[2..])?;
    let mut parts = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix(b"--") {
            return matches!(after, b"" | b"\r\n").then_some(parts);
        }
        let part = rest.strip_prefix(b"\r\n")?;
        let end = memmem::find(part, &delimiter)?;
        parts.push(&part[..end]);
        rest = &part[end + delimiter.len()..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(boundary: &str, file: &str) -> String {
        format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n\
             --{boundary}\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\n{file}\r\n\
             --{boundary}--\r\n"
        )
    }

    fn cut_form(boundary: &str, file: &str) -> Option<Vec<Vec<u8>>> {
        let content_type = format!("multipart/form-data; boundary={boundary}");
        let body = form(boundary, file);
        let parts = parts(&content_type, body.as_bytes())?;
        Some(parts.into_iter().map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn the_boundary_does_not_matter_and_the_content_does() {
        let one = cut_form("aaa", "content").expect("a form");
        assert_eq!(one.len(), 2);
        assert_eq!(Some(&one), cut_form("Boundary123", "content").as_ref());
        assert_ne!(Some(&one), cut_form("aaa", "Content").as_ref());
    }

    #[test]
    fn what_is_not_cut_cleanly_has_no_parts() {
        let check = |content_type: &str, body: &str| {
            assert_eq!(parts(content_type, body.as_bytes()), None, "{content_type} {body:?}");
        };
        let kind = "multipart/form-data; boundary=b";
        check("multipart/form-data", "--b--");
        check("application/json; boundary=b", "--b--");
        check("nonsense", "--b--");
        for body in [
            "",
            "--b",
            "--b\r\n",
            "--b\r\nx",
            "--bx--",
            "preamble\r\n--b--",
            "--b--epilogue",
            "--b\r\nx\r\n--bc\r\ny\r\n--b--",
            "--b \r\nx\r\n--b--",
        ] {
            check(kind, body);
        }
        assert_eq!(parts(kind, b"--b--"), Some(vec![]));
        assert_eq!(parts("multipart/mixed; boundary=\"b\"", b"--b--\r\n"), Some(vec![]));
    }
}
