//! Scenarios that run side by side on one Kubernetes, each in a namespace of its own.
