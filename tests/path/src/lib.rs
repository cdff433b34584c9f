//! A path between clients and a broker on this machine that does what networks do: it loses datagrams, lets others overtake
//! them, doubles them, and gives clients other addresses. [`Line`] decides, without IO; [`Path`] forwards.

mod line;
mod path;

pub use line::{Fate, Faults, Line, REACH, Step};
pub use path::{Counts, Path};
