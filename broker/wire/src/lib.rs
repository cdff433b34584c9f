//! Ids, record batches, frames and errors of the Felix protocol.
