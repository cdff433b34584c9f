//! The custom resources of Felix: FelixCluster, FelixStream, FelixBenchmark.
