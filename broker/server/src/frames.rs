//! Reading frames from a QUIC stream: control frames whole, batches with one copy out of QUIC's buffers.

use bytes::{Buf, Bytes, BytesMut};
use felix_wire::{DecodeError, FRAME_HEAD_LEN, Frame, FrameHead, FrameKind, MAX_FRAME_BYTES};
use quinn::{ReadError, RecvStream};

/// Chunks of QUIC's that are taken at once, each at most one packet. Enough for a wake-up's worth, and little to hold
/// beside the budget.
const CHUNKS: usize = 16;

/// Frames of one stream, one after the other.
pub(crate) struct FrameReader {
    stream: RecvStream,
    chunks: [Bytes; CHUNKS],
    /// The chunks that hold unread bytes.
    unread: std::ops::Range<usize>,
}

/// Why there is no next frame.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The peer ended the stream where a frame begins.
    #[error("the stream has ended")]
    End,
    /// The peer ended the stream inside a frame.
    #[error("the stream has ended inside a frame")]
    Cut,
    /// The stream or the connection is gone.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The bytes are no frame.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl FrameReader {
    pub(crate) fn new(stream: RecvStream) -> Self {
        Self {
            stream,
            chunks: Default::default(),
            unread: 0..0,
        }
    }

    /// Reads the head of the next frame that is not to be skipped. Not to be dropped before it is done.
    pub(crate) async fn head(&mut self) -> Result<FrameHead, FrameError> {
        loop {
            let head = FrameHead::decode(self.head_bytes().await?, MAX_FRAME_BYTES)?;
            if !matches!(head.kind, FrameKind::Optional(_)) {
                return Ok(head);
            }
            self.skip(head.length as usize).await?;
        }
    }

    /// Reads the body of a frame into one buffer.
    pub(crate) async fn body(&mut self, length: usize) -> Result<BytesMut, FrameError> {
        let mut body = BytesMut::with_capacity(length);
        self.fill(&mut body, length).await?;
        Ok(body)
    }

    /// Reads the body of a frame, `length` bytes in all, to the end of what is there of it. May be dropped and begun again.
    pub(crate) async fn fill(&mut self, body: &mut BytesMut, length: usize) -> Result<(), FrameError> {
        while body.len() < length {
            let chunk = self.chunk().await?.ok_or(FrameError::Cut)?;
            let take = chunk.len().min(length - body.len());
            body.extend_from_slice(&chunk[..take]);
            chunk.advance(take);
        }
        Ok(())
    }

    /// Reads over bytes without keeping them.
    pub(crate) async fn skip(&mut self, mut length: usize) -> Result<(), FrameError> {
        while length > 0 {
            let chunk = self.chunk().await?.ok_or(FrameError::Cut)?;
            let take = chunk.len().min(length);
            chunk.advance(take);
            length -= take;
        }
        Ok(())
    }

    /// Reads a control frame with a body of at most `limit` bytes.
    pub(crate) async fn control(&mut self, limit: usize) -> Result<Frame, FrameError> {
        let head = self.head().await?;
        let bytes = head.length as usize;
        if bytes > limit {
            return Err(DecodeError::FrameTooLarge { bytes, limit }.into());
        }
        let body = self.body(bytes).await?;
        Ok(Frame::decode(head.kind, body.freeze())?)
    }

    /// The stream, to refuse what else comes on it.
    pub(crate) fn stream(&mut self) -> &mut RecvStream {
        &mut self.stream
    }

    async fn head_bytes(&mut self) -> Result<[u8; FRAME_HEAD_LEN], FrameError> {
        let mut head = [0; FRAME_HEAD_LEN];
        let mut filled = 0;
        while filled < FRAME_HEAD_LEN {
            let Some(chunk) = self.chunk().await? else {
                return Err(if filled == 0 {
                    FrameError::End
                } else {
                    FrameError::Cut
                });
            };
            let take = chunk.len().min(FRAME_HEAD_LEN - filled);
            head[filled..filled + take].copy_from_slice(&chunk[..take]);
            chunk.advance(take);
            filled += take;
        }
        Ok(head)
    }

    /// The next chunk with unread bytes; `None` at the end of the stream.
    async fn chunk(&mut self) -> Result<Option<&mut Bytes>, ReadError> {
        while self.unread.start < self.unread.end && self.chunks[self.unread.start].is_empty() {
            // Dropped here, not when it is overwritten: it may pin a large buffer of QUIC's.
            self.chunks[self.unread.start] = Bytes::new();
            self.unread.start += 1;
        }
        if self.unread.is_empty() {
            let Some(count) = self.stream.read_chunks(&mut self.chunks).await? else {
                return Ok(None);
            };
            self.unread = 0..count;
        }
        Ok(self.chunks.get_mut(self.unread.start))
    }
}
