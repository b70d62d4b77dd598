{{- define "grid.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "grid.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "grid.name" .) .Release.Name -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name (include "grid.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "grid.selector" -}}
app.kubernetes.io/name: {{ include "grid.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "grid.labels" -}}
{{ include "grid.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .Values.role }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "grid.account" -}}
{{- default (include "grid.fullname" .) .Values.serviceAccount.name -}}
{{- end }}

{{/* The ConfigMap with the serving config: the operator's, or the one of this release. */}}
{{- define "grid.servingMap" -}}
{{- if not .Values.gridServing.enabled -}}
{{ include "grid.fullname" . }}-serving
{{- else if .Values.gridServing.configMap -}}
{{ .Values.gridServing.configMap }}
{{- else -}}
{{- $network := required "gridServing.network is needed to name the operator's ConfigMap (or give gridServing.configMap)" .Values.gridServing.network -}}
{{- $name := printf "grid-serving-%s-%s" $network (default (include "grid.fullname" .) .Values.gridServing.gatewayRef) -}}
{{- if gt (len $name) 63 -}}
{{- fail (printf "the derived name %s has more than 63 characters: give gridServing.configMap" $name) -}}
{{- end -}}
{{ $name }}
{{- end -}}
{{- end }}

{{/* What only several values together make wrong; each is refused by the gateway too. */}}
{{- define "grid.refuse" -}}
{{- $affinity := .Values.gridServing.siteRoute.prefixAffinity -}}
{{- if and .Values.tagKeys.secretName (hasKey $affinity "tag_key_path") -}}
{{- fail "tagKeys.secretName and gridServing.siteRoute.prefixAffinity.tag_key_path: give one of the two" -}}
{{- end -}}
{{- if and .Values.tls.clientCaSecretName (not .Values.tls.secretName) -}}
{{- fail "tls.clientCaSecretName needs tls.secretName" -}}
{{- end -}}
{{- if eq .Values.role "provider" -}}
{{- if not (and .Values.tls.secretName .Values.tls.clientCaSecretName) -}}
{{- fail "role provider needs mutual TLS: tls.secretName and tls.clientCaSecretName" -}}
{{- end -}}
{{- if not (hasKey .Values.gateway "peers_allowed") -}}
{{- fail "role provider needs gateway.peers_allowed: the names in the certificates of its peers" -}}
{{- end -}}
{{- if or $affinity .Values.gridServing.siteRoute.modelHeader .Values.tagKeys.secretName -}}
{{- fail "role provider routes nothing: no gridServing.siteRoute and no tagKeys" -}}
{{- end -}}
{{- range .Values.serving.candidates -}}
{{- if or (ne .site $.Values.serving.local_site) (ne .cluster (index $.Values.serving.candidates 0).cluster) -}}
{{- fail "role provider forwards to one cluster of its own site: serving.candidates name another" -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- range $field := list "peers_allowed" "allowed_paths" -}}
{{- if hasKey $.Values.gateway $field -}}
{{- fail (printf "gateway.%s: only of role provider" $field) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not .Values.gridServing.enabled -}}
{{- $known := list -}}
{{- range .Values.serving.clusters -}}
{{- if has .name $known -}}{{- fail (printf "serving.clusters: %s is there twice" .name) -}}{{- end -}}
{{- $known = append $known .name -}}
{{- end -}}
{{- range .Values.serving.candidates -}}
{{- if not (has .cluster $known) -}}{{- fail (printf "serving.candidates: cluster %s is not in serving.clusters" .cluster) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* gateway.yaml, as a mapping in YAML. */}}
{{- define "grid.gateway" -}}
{{- include "grid.refuse" . -}}
{{- $out := deepCopy .Values.gateway -}}
{{- $_ := set $out "listen" "0.0.0.0:8080" -}}
{{- $_ := set $out "admin" "127.0.0.1:9901" -}}
{{- $_ := set $out "ops" "0.0.0.0:9902" -}}
{{- $_ := set $out "role" .Values.role -}}
{{- $_ := set $out "serving_config_path" (printf "%s/%s" .Values.gridServing.mountPath .Values.gridServing.key) -}}
{{- if .Values.tls.secretName -}}
{{- $tls := dict "cert_path" "/etc/grid-gateway/tls/tls.crt" "key_path" "/etc/grid-gateway/tls/tls.key" -}}
{{- if .Values.tls.clientCaSecretName -}}{{- $_ := set $tls "client_ca_path" "/etc/grid-gateway/client-ca/ca.crt" -}}{{- end -}}
{{- $_ := set $out "tls" $tls -}}
{{- end -}}
{{- if eq .Values.role "consumer" -}}
{{- $affinity := deepCopy .Values.gridServing.siteRoute.prefixAffinity -}}
{{- if .Values.tagKeys.secretName -}}
{{- $paths := list -}}
{{- range .Values.tagKeys.keys -}}{{- $paths = append $paths (printf "/etc/grid-gateway/keys/%s" .) -}}{{- end -}}
{{- $_ := set $affinity "tag_key_path" $paths -}}
{{- end -}}
{{- $route := dict "prefix_affinity" $affinity -}}
{{- with .Values.gridServing.siteRoute.modelHeader -}}{{- $_ := set $route "model_header" . -}}{{- end -}}
{{- $_ := set $out "grid_site_route" $route -}}
{{- end -}}
{{ toYaml $out }}
{{- end }}

{{/* The part of it that a running gateway does not follow: only a change of this rolls the pods. */}}
{{- define "grid.cold" -}}
{{- $all := fromYaml (include "grid.gateway" .) -}}
{{- $cold := omit $all "grid_site_route" "timeouts" "peers_allowed" "allowed_paths" -}}
{{- with $all.timeouts -}}{{- $_ := set $cold "timeouts" (omit . "connect_ms") -}}{{- end -}}
{{ toJson $cold }}
{{- end }}
