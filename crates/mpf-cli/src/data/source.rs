//! Where data come from: files, pipes and standard input, gzipped or not.

use crate::failure::Failure;
use flate2::read::MultiGzDecoder;
use mpf_core::Cancel;
use std::fs::{self, File};
use std::io::{self, Cursor, ErrorKind, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// The first bytes of everything gzipped.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// How many bytes are looked at to tell formats apart: HDF5 may begin after 512 others.
const START: u64 = 520;
/// How often a read that waits looks for an interruption.
const PATIENCE: Duration = Duration::from_millis(100);

/// Returns whether `path` stands for standard input or output.
pub(crate) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Data whose first bytes are known.
pub(crate) struct Source<'a> {
    /// The first bytes, at most 520, of what is unpacked.
    pub(crate) start: Vec<u8>,
    /// All bytes, unpacked.
    pub(crate) bytes: Box<dyn Read + 'a>,
    /// The number of bytes, if it is known.
    pub(crate) length: Option<u64>,
}

impl<'a> Source<'a> {
    /// Opens a file, or standard input for `-`.
    pub(crate) fn open(path: &Path, cancel: &'a Cancel) -> Result<Self, Failure> {
        let unreadable = |e: io::Error| Failure::unreadable(path, &e);
        let (bytes, length): (Box<dyn Read + Send>, _) = if is_standard(path) {
            (Box::new(Pipe::new(|| Ok(io::stdin()))), None)
        } else {
            let metadata = fs::metadata(path).map_err(unreadable)?;
            if metadata.is_dir() {
                return Err(unreadable(ErrorKind::IsADirectory.into()));
            }
            if metadata.is_file() {
                let file = File::open(path).map_err(unreadable)?;
                (Box::new(file), Some(metadata.len()))
            } else {
                let path = path.to_owned();
                (Box::new(Pipe::new(move || File::open(path))), None)
            }
        };
        Self::new(path, Cancellable(bytes, cancel), length)
    }

    /// Looks at the first bytes of `bytes`, of which there are `length` if that is known.
    pub(crate) fn new(
        path: &Path,
        mut bytes: impl Read + 'a,
        length: Option<u64>,
    ) -> Result<Self, Failure> {
        let unreadable = |e: io::Error| Failure::unreadable(path, &e);
        let start = peek(&mut bytes).map_err(unreadable)?;
        let bytes = Cursor::new(start.clone()).chain(bytes);
        if !start.starts_with(GZIP) {
            return Ok(Self {
                start,
                bytes: Box::new(bytes),
                length,
            });
        }
        let mut bytes = MultiGzDecoder::new(bytes);
        let start = peek(&mut bytes).map_err(unreadable)?;
        Ok(Self {
            bytes: Box::new(Cursor::new(start.clone()).chain(bytes)),
            start,
            length: None,
        })
    }
}

fn peek(bytes: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    bytes.take(START).read_to_end(&mut start)?;
    Ok(start)
}

/// Bytes that end with an error when the program is interrupted.
struct Cancellable<'a>(Box<dyn Read + Send>, &'a Cancel);

impl Read for Cancellable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.1.is_cancelled() {
                return Err(io::Error::other("interrupted"));
            }
            match self.0.read(buffer) {
                // A signal may interrupt a read; not every reader tries again.
                Err(error)
                    if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
                outcome => return outcome,
            }
        }
    }
}

/// Bytes that another thread waits for: reads here time out.
struct Pipe {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Cursor<Vec<u8>>,
}

impl Pipe {
    fn new<R: Read>(open: impl FnOnce() -> io::Result<R> + Send + 'static) -> Self {
        let (sender, chunks) = sync_channel(4);
        // The thread ends with the bytes, when the receiver is gone, or with the program.
        std::thread::spawn(move || {
            let mut bytes = match open() {
                Ok(bytes) => bytes,
                Err(error) => return drop(sender.send(Err(error))),
            };
            loop {
                let mut chunk = vec![0; 1 << 16];
                let read = bytes.read(&mut chunk);
                let is_last = matches!(read, Ok(0));
                let read = read.map(|n| {
                    chunk.truncate(n);
                    chunk
                });
                let is_over =
                    is_last || matches!(&read, Err(e) if e.kind() != ErrorKind::Interrupted);
                if sender.send(read).is_err() || is_over {
                    return;
                }
            }
        });
        Self {
            chunks,
            chunk: Cursor::new(Vec::new()),
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.chunk.read(buffer)?;
        if n > 0 || buffer.is_empty() {
            return Ok(n);
        }
        match self.chunks.recv_timeout(PATIENCE) {
            Ok(chunk) => {
                self.chunk = Cursor::new(chunk?);
                self.chunk.read(buffer)
            }
            Err(RecvTimeoutError::Timeout) => Err(ErrorKind::TimedOut.into()),
            Err(RecvTimeoutError::Disconnected) => Ok(0),
        }
    }
}
