//! The custom resources of Felix: FelixCluster, FelixStream, FelixBenchmark.

#![allow(
    clippy::duplicated_attributes,
    reason = "each printer column has a type of its own"
)]
#![expect(
    unreachable_pub,
    reason = "the KubeSchema derive repeats each public struct inside a function"
)]

mod benchmark;
mod bounds;
mod cluster;
mod condition;
mod duration;
mod quantity;
mod reference;
mod schema;
mod shared;
mod stream;

pub use benchmark::{
    BenchmarkEnvironment, BenchmarkPhase, FelixBenchmark, FelixBenchmarkSpec, FelixBenchmarkStatus,
    LatencyPreset, LatencyResult, LatencyRow, LatencySpec, ResultReference, StreamReference,
};
pub use cluster::{
    AuthenticationKind, AuthenticationSpec, BrokerConfigSpec, BrokerStatus, BufferStatus, ClientServiceSpec,
    FelixCluster, FelixClusterSpec, FelixClusterStatus, ImageSpec, LogFormat, LogLevel, MAX_CLUSTER_NAME,
    ManagedTls, PullPolicy, SchedulingSpec, SecretReference, StorageSpec, TaintEffect, TlsSpec,
    TolerationOperator, TolerationSpec, UdpBufferSpec, UdpBufferStatus,
};
pub use condition::{Condition, ConditionStatus, Finding, MAX_MESSAGE_BYTES, merge};
pub use duration::{DurationError, DurationText};
pub use quantity::{ByteQuantity, CpuQuantity, QuantityError};
pub use schema::{check, check_update, definitions, generated_files};
pub use shared::{ClusterReference, DeletionPolicy, ResourceAmounts, ResourceSpec};
pub use stream::{
    FelixStream, FelixStreamSpec, FelixStreamStatus, OverloadPolicy, SlowPolicy, SlowSubscriberSpec,
    StreamClass,
};
