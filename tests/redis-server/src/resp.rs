//! As much of the Redis protocol as a test needs to ask one question.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

/// Sends one command on a connection of its own.
pub(crate) fn ask(port: u16, command: &[&[u8]]) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = format!("*{}\r\n", command.len()).into_bytes();
    for part in command {
        request.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        request.extend_from_slice(part);
        request.extend_from_slice(b"\r\n");
    }
    stream.write_all(&request)?;
    reply(&mut BufReader::new(stream))
}

/// Whether a server answers there. One that wants a password first has answered.
pub(crate) fn answers(port: u16) -> bool {
    ask(port, &[b"PING"]).is_ok_and(|text| text == "PONG" || text.contains("NOAUTH"))
}

fn reply(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.trim_end();
    let Some(kind) = line.chars().next() else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let rest = &line[1..];
    match kind {
        '+' | ':' => Ok(rest.to_owned()),
        '-' => Ok(format!("(error) {rest}")),
        '$' => bulk(from, length(rest)?),
        '*' => {
            let members = length(rest)?.unwrap_or(0);
            let texts: io::Result<Vec<String>> = (0..members).map(|_| reply(from)).collect();
            Ok(texts?.join("\n"))
        }
        other => Err(io::Error::other(format!("unexpected reply type {other:?}"))),
    }
}

/// `None` for nil.
fn length(text: &str) -> io::Result<Option<usize>> {
    let length: i64 = text.parse().map_err(io::Error::other)?;
    Ok(usize::try_from(length).ok())
}

fn bulk(from: &mut impl BufRead, length: Option<usize>) -> io::Result<String> {
    let Some(length) = length else { return Ok(String::new()) };
    let mut bytes = vec![0; length + 2];
    from.read_exact(&mut bytes)?;
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
