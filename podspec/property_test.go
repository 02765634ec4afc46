package podspec

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Fields that a random pod may have, each with its chance of a half.
var (
	podFields = []string{
		"hostNetwork: true", "hostPID: true", "hostIPC: true", "shareProcessNamespace: true", "hostUsers: false",
		"dnsPolicy: Default", "dnsConfig: {nameservers: [1.1.1.1, 2.2.2.2], searches: [a, b], options: [{name: ndots, value: '2'}]}",
		"hostname: h", "subdomain: s", "setHostnameAsFQDN: true", "hostAliases: [{ip: 1.2.3.4, hostnames: [x, z]}]",
		"enableServiceLinks: false", "terminationGracePeriodSeconds: 5", "priority: 2000001000", "overhead: {cpu: 1, memory: 1Mi}",
		"resources: {requests: {memory: 300Mi}, limits: {cpu: 2}}",
		"securityContext: {runAsUser: 1, runAsNonRoot: true, fsGroup: 2, supplementalGroups: [3, 4], sysctls: [{name: kernel/shm_rmid_forced, value: '1'}, {name: net.core.somaxconn, value: '2'}]}",
	}
	containerFields = []string{
		"command: [run, $(WHO)]", "args: [$(DB_SERVICE_HOST), $(NONE)]", "workingDir: /w", "tty: true", "terminationMessagePath: /dev/log",
		"ports: [{name: http, containerPort: 80}, {containerPort: 81, hostPort: 81}]",
		"envFrom: [{configMapRef: {name: conf}}, {prefix: s_, secretRef: {name: cred}}]",
		"env: [{name: WHO, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}, {name: C, valueFrom: {configMapKeyRef: {name: conf, key: none}}}]",
		"resources: {requests: {cpu: 1, memory: 10Mi}, limits: {memory: 20Mi, hugepages-2Mi: 2Mi, hugepages-1Gi: 1Gi}}",
		"volumeMounts: [{name: data, mountPath: /d, subPathExpr: $(WHO)}, {name: data, mountPath: /e}, {name: late, mountPath: /f}]",
		"securityContext: {privileged: true, capabilities: {add: [A, B], drop: [ALL]}, seLinuxOptions: {level: s0}, seccompProfile: {type: Localhost, localhostProfile: p}}",
		"lifecycle: {stopSignal: SIGINT, preStop: {exec: {command: [bye]}}}",
	}
)

// randomInput is the input of that number: the same for the same number, and
// sharing nothing with any other.
func randomInput(t *testing.T, seed uint64) Input {
	r := rand.New(rand.NewPCG(seed, 0))
	some := func(from []string) string {
		var out []string
		for _, f := range from {
			if r.IntN(2) == 0 {
				out = append(out, f)
			}
		}
		return strings.Join(out, ", ")
	}
	list := func(prefix, more string) string {
		var out []string
		for n := range r.IntN(3) {
			out = append(out, "{name: "+prefix+string(rune('a'+n))+more+", image: i, "+some(containerFields)+"}")
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	in := input(t, "{"+strings.Join([]string{
		"containers: " + list("main-", ""), "initContainers: " + list("side-", ", restartPolicy: Always"),
		"ephemeralContainers: " + list("debug-", ""), some(podFields),
	}, ", ")+"}")
	in = withData(in)
	in.Pod.Labels = map[string]string{"a": "1", "b": "2", "c": "3"}
	in.Pod.Annotations = map[string]string{"d": "4"}
	in.Volumes = map[string]string{"data": "/vol/data"}
	in.Services = []*v1.Service{
		service("prod", "db", "10.0.0.5", v1.ServicePort{Port: 1}), service("prod", "web", "10.0.0.6", v1.ServicePort{Port: 2}),
	}
	in.Node.CgroupV2 = true
	in.Node.Capacity[v1.ResourceName("hugepages-64Ki")] = in.Node.Capacity[v1.ResourceMemory]
	return in
}

func TestCompileChangesNothingAndIsDeterministic(t *testing.T) {
	snapshot := func(out Compiled, problems error) string {
		b, err := json.Marshal([]any{out, problems})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for seed := range uint64(40) {
		in := randomInput(t, seed)
		out, problems := Compile(in)
		first := snapshot(out, problems)
		if !reflect.DeepEqual(in, randomInput(t, seed)) {
			t.Fatalf("seed %d: compiling changed the input", seed)
		}
		// The caller may change every part of a result.
		scribble(reflect.ValueOf(&out))
		if !reflect.DeepEqual(in, randomInput(t, seed)) {
			t.Fatalf("seed %d: the result shares something with the input", seed)
		}
		if again := snapshot(Compile(in)); again != first {
			same := 0
			for same < min(len(first), len(again)) && first[same] == again[same] {
				same++
			}
			t.Fatalf("seed %d: compiled again it is\n%s, not\n%s", seed, again[same:], first[same:])
		}
	}
}

// scribble overwrites every number, string and list that v leads to.
func scribble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			scribble(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				scribble(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			scribble(v.Index(i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			v.SetMapIndex(k, reflect.Zero(v.Type().Elem()))
		}
	case reflect.String:
		v.SetString("scribbled")
	case reflect.Int32, reflect.Int64:
		v.SetInt(-1)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	}
}
