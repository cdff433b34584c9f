//! The Felix benchmark: the latency matrix, on loopback or in a Job.
