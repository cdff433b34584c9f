//! End-to-end tests of Felix on a real Kubernetes.
