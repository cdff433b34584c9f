{{/*
What the operator may do in a namespace that it watches. Written by hand from what it calls: no wildcard, no pods/exec,
no pods/log, no escalate, no bind. A Role that the operator makes (for brokers, for a benchmark's Job) can hold only
rights that stand here.
*/}}
{{- define "felix.rules" -}}
# Its own kinds: read and watched; patched for the finalizer alone, the spec belongs to the user.
- apiGroups: [felix.dev]
  resources: [felixclusters, felixstreams, felixbenchmarks]
  verbs: [get, list, watch, patch]
- apiGroups: [felix.dev]
  resources: [felixclusters/status, felixstreams/status, felixbenchmarks/status]
  verbs: [get, patch]
# Needed to set owner references where that permission is enforced.
- apiGroups: [felix.dev]
  resources: [felixclusters/finalizers, felixstreams/finalizers, felixbenchmarks/finalizers]
  verbs: [update]
# Children. Secrets hold a cluster's CA key, its certificate and its admin token.
- apiGroups: [""]
  resources: [configmaps, secrets, services, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch, delete]
# The StatefulSet makes the claims; the operator asks for larger volumes in them, and deletes them only when the FelixCluster
# says so.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, patch, delete]
# Pods are deleted one at a time to bring a new revision.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
# Its own namespace object, to see that it is being deleted.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# Why a claim has no volume, or a StatefulSet no pod.
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- end -}}
