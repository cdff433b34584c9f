//! Scenarios that change something that all nodes share, and so run one after another.
