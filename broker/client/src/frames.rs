//! Reads frames from a QUIC stream: one buffer, filled by the stream, from which frames are cut without copying.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use felix_wire::{DecodeError, ErrorCode, FRAME_HEAD_LEN, Frame, FrameHead, FrameKind, take_frame};
use quinn::{ReadError, RecvStream, VarInt};
use tokio_util::io::poll_read_buf;

/// Room for reading at first, in bytes: a few control frames.
const FIRST_ROOM: usize = 4 << 10;

/// Room for reading of a busy stream, in bytes: many batches for one look into QUIC, and little to copy when a frame
/// straddles two buffers.
const MOST_ROOM: usize = 256 << 10;

/// Why there are no more frames.
#[derive(Debug)]
pub(crate) enum ReadEnd {
    /// The peer finished the stream.
    Finished,
    /// The peer reset the stream with a code of the table.
    Reset(ErrorCode),
    /// The connection is gone.
    Lost(String),
    /// The bytes are no frame.
    Broken(DecodeError),
}

/// A stream and what was read of it.
pub(crate) struct FrameReader {
    stream: RecvStream,
    buffer: BytesMut,
    room: usize,
    limit: usize,
}

impl FrameReader {
    /// Frames with bodies of more than `limit` bytes are refused.
    pub(crate) fn new(stream: RecvStream, limit: usize) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            room: FIRST_ROOM,
            limit,
        }
    }

    /// The next frame's kind and body. Nothing is lost when the caller stops waiting.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(FrameKind, Bytes), ReadEnd>> {
        loop {
            if let Some(frame) = self.take_buffered()? {
                return Poll::Ready(Ok(frame));
            }
            ready!(self.poll_fill(cx))?;
        }
    }

    /// The next frame that is here already.
    pub(crate) fn take_buffered(&mut self) -> Result<Option<(FrameKind, Bytes)>, ReadEnd> {
        take_frame(&mut self.buffer, self.limit).map_err(ReadEnd::Broken)
    }

    /// The next frame, decoded.
    pub(crate) async fn next(&mut self) -> Result<Frame, ReadEnd> {
        let (kind, body) = std::future::poll_fn(|cx| self.poll(cx)).await?;
        Frame::decode(kind, body).map_err(ReadEnd::Broken)
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ReadEnd>> {
        self.make_room();
        let room = self.buffer.capacity() - self.buffer.len();
        match ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.buffer)) {
            Ok(0) => Poll::Ready(Err(ReadEnd::Finished)),
            Ok(read) => {
                if read == room {
                    self.room = (self.room * 2).min(MOST_ROOM);
                }
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(read_end(error))),
        }
    }

    /// Room for the rest of a frame that has begun, and otherwise for a good read.
    fn make_room(&mut self) {
        let begun = self.buffer.first_chunk::<FRAME_HEAD_LEN>();
        // A head that cannot be decoded was refused when frames were taken.
        let head = begun.and_then(|head| FrameHead::decode(*head, self.limit).ok());
        let missing = head.map_or(0, |head| {
            (FRAME_HEAD_LEN + head.length as usize).saturating_sub(self.buffer.len())
        });
        if self.buffer.capacity() - self.buffer.len() < missing.max(self.room / 4) {
            self.buffer.reserve(missing.max(self.room));
        }
    }
}

/// Unpacks what quinn puts into an IO error.
fn read_end(error: std::io::Error) -> ReadEnd {
    let text = error.to_string();
    let inner = error
        .into_inner()
        .and_then(|inner| inner.downcast::<ReadError>().ok());
    match inner.map(|inner| *inner) {
        Some(ReadError::Reset(code)) => ReadEnd::Reset(code_of(code)),
        Some(ReadError::ConnectionLost(lost)) => ReadEnd::Lost(lost.to_string()),
        Some(ReadError::ClosedStream | ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected) | None => {
            ReadEnd::Lost(text)
        }
    }
}

/// The code of the error table in a QUIC close or reset; numbers beyond it are unlisted.
pub(crate) fn code_of(code: VarInt) -> ErrorCode {
    ErrorCode::from_wire(u16::try_from(code.into_inner()).unwrap_or(u16::MAX))
}
