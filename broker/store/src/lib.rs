//! The catalogue of a Felix cluster: one versioned document behind compare-and-swap.
