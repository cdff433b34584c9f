//! The identity of the brokers in Kubernetes: ServiceAccount, Role and RoleBinding. They may do nothing yet.

use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{Role, RoleBinding, RoleRef, Subject},
};

use super::metadata::owned;
use crate::cluster::validate::ValidatedCluster;

/// Its token is not mounted: the brokers do not talk to the API server yet.
pub(super) fn service_account(cluster: &ValidatedCluster) -> ServiceAccount {
    ServiceAccount {
        metadata: owned(cluster, cluster.names.broker()),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

/// Without rules. It is there so that rules can come later without a change of the pods.
pub(super) fn role(cluster: &ValidatedCluster) -> Role {
    Role {
        metadata: owned(cluster, cluster.names.broker()),
        rules: Some(Vec::new()),
    }
}

/// Gives the role to the account.
pub(super) fn role_binding(cluster: &ValidatedCluster) -> RoleBinding {
    RoleBinding {
        metadata: owned(cluster, cluster.names.broker()),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name: cluster.names.broker(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: cluster.names.broker(),
            namespace: Some(cluster.names.namespace().to_owned()),
            ..Subject::default()
        }]),
    }
}
