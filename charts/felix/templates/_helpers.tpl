{{/* Names, labels, images and rules that several templates share. */}}

{{/* Prefix of object names: the release's name, with the chart's added unless it is in there. Short enough for suffixes. */}}
{{- define "felix.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The prefix with "-operator", unless the release is named so. */}}
{{- define "felix.operatorName" -}}
{{- printf "%s-operator" (include "felix.fullname" . | trimSuffix "-operator") -}}
{{- end -}}

{{/* Name of cluster-scoped objects: the release's namespace is part of it, so that two releases never meet. */}}
{{- define "felix.clusterScopedName" -}}
{{- printf "felix:%s:%s" .Release.Namespace (include "felix.operatorName" .) -}}
{{- end -}}

{{- define "felix.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "felix.operatorName" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name must name an existing account when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "felix.selectorLabels" -}}
app.kubernetes.io/name: felix-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "felix.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
app.kubernetes.io/part-of: felix
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "felix.labels" -}}
{{ include "felix.selectorLabels" . }}
{{ include "felix.commonLabels" . }}
{{- end -}}

{{- define "felix.tunerSelectorLabels" -}}
app.kubernetes.io/name: felix-node-tuner
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: node-tuner
{{- end -}}

{{- define "felix.tunerLabels" -}}
{{ include "felix.tunerSelectorLabels" . }}
{{ include "felix.commonLabels" . }}
{{- end -}}

{{/* The node tuner's namespace. A long one is cut and kept apart from its like by a hash. */}}
{{- define "felix.tunerNamespace" -}}
{{- $made := printf "%s-%s-node-tuner" .Release.Namespace (include "felix.fullname" .) -}}
{{- if gt (len $made) 63 -}}
{{- $made = printf "%s-%s" ($made | trunc 54 | trimSuffix "-") ($made | sha256sum | trunc 8) -}}
{{- end -}}
{{- default $made .Values.nodeTuner.namespace -}}
{{- end -}}

{{/* Reference of one image: call with (list . "operator"). */}}
{{- define "felix.image" -}}
{{- $root := index . 0 -}}
{{- $image := index $root.Values.images (index . 1) -}}
{{- $registry := ternary "" (printf "%s/" (trimSuffix "/" $root.Values.imageRegistry)) (empty $root.Values.imageRegistry) -}}
{{- if $image.digest -}}
{{- printf "%s%s@%s" $registry $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s%s:%s" $registry $image.repository (default $root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* "true" when every namespace is watched. */}}
{{- define "felix.watchesAll" -}}
{{- if kindIs "string" .Values.watchNamespaces -}}true{{- end -}}
{{- end -}}

{{/* The watched namespaces, one a line; nothing when all are. */}}
{{- define "felix.watchedNamespaces" -}}
{{- if not (include "felix.watchesAll" .) -}}
{{- join "\n" (default (list .Release.Namespace) .Values.watchNamespaces | uniq | sortAlpha) -}}
{{- end -}}
{{- end -}}

{{/* Where the operator keeps the largest UDP buffers that are asked for: with the node tuner, which mounts them. */}}
{{- define "felix.buffersNamespace" -}}
{{- ternary (include "felix.tunerNamespace" .) .Release.Namespace .Values.nodeTuner.enabled -}}
{{- end -}}

{{/* "true" where the operator needs a Role of its own for that, because no other one covers the namespace. */}}
{{- define "felix.buffersRole" -}}
{{- $watched := has (include "felix.buffersNamespace" .) (splitList "\n" (include "felix.watchedNamespaces" .)) -}}
{{- if not (or (include "felix.watchesAll" .) $watched) -}}true{{- end -}}
{{- end -}}

{{/* "true" where several replicas elect the one that works. */}}
{{- define "felix.elects" -}}
{{- if gt (.Values.operator.replicas | int64) 1 -}}true{{- end -}}
{{- end -}}
