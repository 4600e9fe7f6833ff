{{- define "deed.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "deed.fullname" -}}
{{- $name := include "deed.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "deed.selector" -}}
app.kubernetes.io/name: {{ include "deed.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "deed.labels" -}}
{{ include "deed.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "deed.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "deed.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{- define "deed.image" -}}
{{- $repository := required "image.repository: the project publishes no image yet; build packaging/docker/Dockerfile and name yours" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ printf "%s@%s" $repository .Values.image.digest }}
{{- else -}}
{{ printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end -}}
{{- end }}

{{- define "deed.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "deed.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* What would only fail in the cluster fails here. */ -}}
{{- define "deed.check" -}}
{{- $config := .Values.config | default dict -}}
{{- if not (or $config.topics $config.channels $config.sources $config.campaigns $config.public (hasKey $config "runs")) -}}
{{- fail "config: name what to relay: topics, channels, sources, runs or campaigns; see the chart's README" -}}
{{- end -}}
{{- if hasKey .Values.config "listen" -}}
{{- fail "config.listen: set listen.address and listen.port instead, so that the probes know them" -}}
{{- end -}}
{{- if hasKey (get .Values.config "public" | default dict) "listen" -}}
{{- fail "config.public.listen: set public.enabled, public.address and public.port instead, so that the Service knows them" -}}
{{- end -}}
{{- if and (get .Values.config "public") (not .Values.public.enabled) -}}
{{- fail "config.public: set public.enabled, too, for the port that it is about" -}}
{{- end -}}
{{- if and .Values.public.enabled (eq (int .Values.public.port) (int .Values.listen.port)) -}}
{{- fail "public.port: it is listen.port, where health and metrics are; give another" -}}
{{- end -}}
{{- with .Values.config.database_url -}}
{{- if not (or (hasPrefix "env:" .) (hasPrefix "file:" .)) -}}
{{- fail "config.database_url: want env:NAME or file:PATH; a ConfigMap is no place for a password" -}}
{{- end -}}
{{- end -}}
{{- if and (not .Values.existingSecret) (not .Values.existingSecretFiles) (not .Values.env) -}}
{{- fail "existingSecret: name the Secret that holds DEED_DATABASE_URL" -}}
{{- end -}}
{{- if le (int .Values.terminationGracePeriodSeconds) 20 -}}
{{- fail "terminationGracePeriodSeconds: deliveries may take 20 seconds to finish; give more" -}}
{{- end -}}
{{- end }}
