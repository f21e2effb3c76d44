{{/* Labels of an object; the argument is a list of the root and the name. */}}
{{- define "fallow.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/part-of: fallow
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels of a pod, which never change: selectors name the first. */}}
{{- define "fallow.podLabels" -}}
app.kubernetes.io/name: {{ . }}
app.kubernetes.io/part-of: fallow
{{- end }}

{{/* The image; the argument is a list of the root, the image's values and their name. */}}
{{- define "fallow.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $repository := required (printf "set %s.repository to the image that you pushed" (index . 2)) $image.repository -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $repository $image.digest }}
{{- else -}}
{{ printf "%s:%s" $repository ($image.tag | default $root.Chart.AppVersion) }}
{{- end -}}
{{- end }}

{{/* fallow.toml of a part; the argument is a list of the root and the part's settings. */}}
{{- define "fallow.toml" -}}
{{- $root := index . 0 -}}
{{- $path := required "set lake.path to an object store, such as s3://bucket/fallow" $root.Values.lake.path -}}
{{- $lake := dict "lake" (dict "path" $path) -}}
{{- $merged := mergeOverwrite (dict) $lake (deepCopy $root.Values.settings) (deepCopy (index . 1)) -}}
{{ range $section, $keys := $merged }}
[{{ $section }}]
{{- range $key, $value := $keys }}
{{ $key }} = {{ include "fallow.tomlValue" $value }}
{{- end }}
{{ end -}}
{{- end }}

{{/* A value in quotes, as every setting may be written; large numbers without an exponent. */}}
{{- define "fallow.tomlValue" -}}
{{- if kindIs "string" . }}{{ toRawJson . }}
{{- else if kindIs "bool" . }}{{ ternary "on" "off" . | quote }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . | toString | quote }}
{{- else }}{{ . | toString | quote }}
{{- end }}
{{- end }}

{{/* What the container of every part may do: nothing beyond reading its own image. */}}
{{- define "fallow.container" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The user of every pod but the agent's. */}}
{{- define "fallow.user" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* What every policy lets out: names, and the given ports of everybody but the node itself. The argument: root, ports. */}}
{{- define "fallow.egress" -}}
{{- $root := index . 0 -}}
# names: the cluster's DNS, and the node's own cache of it
- to:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: kube-system
    - ipBlock:
        cidr: 169.254.20.10/32
  ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
- ports:
    {{- range index . 1 }}
    - {protocol: TCP, port: {{ int . }}}
    {{- end }}
  to:
    - ipBlock: {cidr: 0.0.0.0/0, except: [169.254.0.0/16]}
    - ipBlock: {cidr: "::/0", except: ["fe80::/10"]}
{{- if $root.Values.networkPolicy.metadataService }}
- to: [{ipBlock: {cidr: 169.254.169.254/32}}, {ipBlock: {cidr: 169.254.170.23/32}}]
  ports: [{protocol: TCP, port: 80}]
{{- end }}
{{- end }}
