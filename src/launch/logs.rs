//! Forwards what a worker prints to the standard error of the starter, line by line.
//!
//! Knows byte streams and lines; must not know processes or nodes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::thread::{self, JoinHandle};

/// Longest line kept in memory, in bytes. A longer one is forwarded in pieces of about this size.
const MAX_LINE: usize = 8 * 1024;

/// Starts a thread that copies every line of `from` to our standard error, with `[name] ` before
/// it, until `from` ends.
///
/// # Errors
/// The thread could not be started.
pub(super) fn forward(name: &str, from: impl Read + Send + 'static) -> io::Result<JoinHandle<()>> {
    let prefix = format!("[{name}] ");
    thread::Builder::new().name(format!("rref-log-{name}")).spawn(move || {
        copy_lines(&prefix, from, |line| {
            // If our own standard error is gone there is nowhere to say so. Reading goes on, since
            // a full pipe would block the worker.
            let _ = io::stderr().lock().write_all(line);
        });
    })
}

/// Calls `emit` once for each line, prefix and line end included, so that one write is one line.
fn copy_lines(prefix: &str, from: impl Read, mut emit: impl FnMut(&[u8])) {
    let mut emit = |line: &[u8]| {
        let text = String::from_utf8_lossy(line);
        emit(format!("{prefix}{text}\n").as_bytes());
    };
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    // The bytes before `line` were already forwarded as a piece of the same line.
    let mut continued = false;
    loop {
        // Never zero: a full line is emptied below, but for at most three bytes.
        let room = (MAX_LINE - line.len()) as u64;
        match reader.by_ref().take(room).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            // The end of a line that just filled its last piece is not an empty line.
            if !line.is_empty() || !continued {
                emit(&line);
            }
            line.clear();
            continued = false;
        } else if line.len() >= MAX_LINE {
            let tail = line.split_off(line.len() - cut_char(&line));
            emit(&line);
            line = tail;
            continued = true;
        }
    }
    if !line.is_empty() {
        emit(&line);
    }
}

/// How many bytes at the end of `line` begin a UTF-8 character that is not complete yet (0 to 3).
fn cut_char(line: &[u8]) -> usize {
    for (back, byte) in line.iter().rev().take(3).enumerate() {
        let have = back + 1;
        let need = match byte {
            0x80..=0xbf => continue,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            _ => 1,
        };
        return if need > have { have } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8]) -> Vec<String> {
        let mut out = Vec::new();
        copy_lines("[w] ", input, |line| out.push(String::from_utf8(line.to_vec()).expect("lossy text")));
        out
    }

    #[test]
    fn each_line_gets_the_prefix_and_an_end() {
        assert_eq!(lines(b"a\n\nb\r\nlast"), ["[w] a\n", "[w] \n", "[w] b\n", "[w] last\n"]);
        assert!(lines(b"").is_empty());
    }

    #[test]
    fn bytes_that_are_not_text_are_replaced() {
        assert_eq!(lines(b"x\xffy\n"), ["[w] x\u{fffd}y\n"]);
    }

    #[test]
    fn a_long_line_comes_in_bounded_pieces() {
        let mut input = vec![b'a'; 2 * MAX_LINE];
        input.extend_from_slice(b"\nnext\n");
        let got = lines(&input);
        assert_eq!(got.len(), 3);
        assert_eq!(got[0].len(), "[w] \n".len() + MAX_LINE);
        assert_eq!(got[0], got[1]);
        assert_eq!(got[2], "[w] next\n");
    }

    #[test]
    fn a_piece_never_ends_inside_a_character() {
        for (shift, char) in [(1, "é"), (1, "€"), (2, "€"), (1, "🦀"), (2, "🦀"), (3, "🦀")] {
            let input = format!("{}{char}tail\n", "a".repeat(MAX_LINE - shift));
            let got = lines(input.as_bytes());
            assert_eq!(got.len(), 2);
            assert_eq!(got[1], format!("[w] {char}tail\n"));
        }
    }
}
