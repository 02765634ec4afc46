package podspec

import (
	"testing"
)

// A pod of three containers, with the kinds of fields that most pods have.
func BenchmarkCompile(b *testing.B) {
	in := input(b, `{volumes: [{name: data, emptyDir: {}}], securityContext: {runAsUser: 1000, fsGroup: 1000}, containers: [
		{name: app, image: a, command: [/app], args: ['--name=$(NAME)'], ports: [{containerPort: 80}],
			env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: URL, value: 'http://$(NAME)/'}],
			resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 128Mi}}, volumeMounts: [{name: data, mountPath: /data}]},
		{name: proxy, image: b, resources: {requests: {cpu: 10m, memory: 32Mi}}},
		{name: logs, image: c, volumeMounts: [{name: data, mountPath: /data, readOnly: true}]}]}`)
	in.Volumes = map[string]string{"data": "/vol/data"}
	in.PodIPs = []string{"10.1.0.7"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(in); err != nil {
			b.Fatal(err)
		}
	}
}
