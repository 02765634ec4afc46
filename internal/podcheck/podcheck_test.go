package podcheck

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// podOf is the pod prod/web with the container app and the volume data; spec
// and annotations are YAML.
func podOf(t testing.TB, spec, annotations string) *v1.Pod {
	t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "prod", UID: "u1"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	if err := yaml.UnmarshalStrict([]byte(annotations), &p.Annotations); err != nil {
		t.Fatalf("%s: %v", annotations, err)
	}
	return p
}

func TestUID(t *testing.T) {
	for uid, want := range map[string]bool{
		"a": true, "0a1b-2c": true, "4f1c7c4e-50a1-4c5b-9f4e-93e9b1f3a111": true, "a.b_c-D": true, "...": true, strings.Repeat("x", 128): true,
		"": false, ".": false, "..": false, "../../escaped": false, "a/b": false, "/": false, "a\x00b": false, "a b": false, "a\n": false,
		"ü": false, "a\\b": false, "a:b": false, strings.Repeat("x", 129): false, strings.Repeat("x", 1<<20): false,
	} {
		err := UID(types.UID(uid))
		if (err == nil) != want {
			t.Errorf("%.40q: %v", uid, err)
		}
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("%.40q: an error of %d bytes", uid, len(err.Error()))
		}
	}
}

// What becomes a path stays one name of a directory.
func TestNamesThatBecomePaths(t *testing.T) {
	for _, bad := range []string{"", ".", "..", "../../escaped", "a/b", "a\x00", "A", "-a", strings.Repeat("x", 1<<20)} {
		for at, set := range map[string]func(*v1.Pod){
			"metadata.name":                       func(p *v1.Pod) { p.Name = bad },
			"metadata.namespace":                  func(p *v1.Pod) { p.Namespace = bad },
			"spec.containers[0].name":             func(p *v1.Pod) { p.Spec.Containers[0].Name = bad },
			"spec.initContainers[1].name":         func(p *v1.Pod) { p.Spec.InitContainers[1].Name = bad },
			"spec.ephemeralContainers[0].name":    func(p *v1.Pod) { p.Spec.EphemeralContainers[0].Name = bad },
			"spec.volumes[0].name":                func(p *v1.Pod) { p.Spec.Volumes[0].Name = bad },
			"metadata.uid":                        func(p *v1.Pod) { p.UID = types.UID(bad + "/") },
			"spec.initContainers[0].name (twice)": func(p *v1.Pod) { p.Spec.InitContainers[0].Name = "app" },
		} {
			p := podOf(t, "{containers: [{name: app}], initContainers: [{name: i}, {name: j}], ephemeralContainers: [{name: e}], volumes: [{name: data}]}", "{}")
			if errs := Pod(p); len(errs) > 0 {
				t.Fatal(errs)
			}
			set(p)
			twice := strings.HasSuffix(at, "(twice)")
			for _, errs := range []string{Names(p).ToAggregate().Error(), Pod(p).ToAggregate().Error()} {
				if !twice && !strings.HasPrefix(errs, at+": ") || twice && !strings.HasPrefix(errs, "spec.containers[0].name: Duplicate") || len(errs) > 1000 {
					t.Errorf("%s %.40q: %.300s", at, bad, errs)
				}
			}
		}
	}
}

func TestPod(t *testing.T) {
	const (
		unmasked = "{securityContext: {procMount: Unmasked}, name: app}"
		annotate = "container.apparmor.security.beta.kubernetes.io/"
	)
	shown := func(path string) string {
		return "{containers: [{name: app, env: [{name: A, valueFrom: {fieldRef: {fieldPath: \"" + path + "\"}}}]}]}"
	}
	file := func(ref string) string {
		return "{containers: [{name: app}], volumes: [{name: data, downwardAPI: {items: [{path: p, " + ref + "}]}}, " +
			"{name: more, projected: {sources: [{downwardAPI: {items: [{path: p, " + ref + "}]}}]}}]}"
	}
	mount := func(m string) string {
		return "{containers: [{name: app, volumeMounts: [{name: data, mountPath: /d, recursiveReadOnly: " + m + "}]}]}"
	}
	secured := func(pod, container string) string {
		return "{securityContext: " + pod + ", containers: [{name: app, securityContext: " + container + "}]}"
	}
	for _, tc := range []struct {
		name, spec, annotations string
		want                    string // the errors' fields
	}{
		{"nothing", "{containers: [{name: app}]}", "{}", ""},
		{"without defaults", "{containers: [{name: app, ports: [{containerPort: 1}], livenessProbe: {httpGet: {port: 1}}}]}", "{}", ""},

		{"misspelt seccomp", secured("{seccompProfile: {type: runtime/default}}", "null"), "{}", "spec.securityContext.seccompProfile.type"},
		{"seccomp without a type", secured("null", "{seccompProfile: {}}"), "{}", "spec.containers[0].securityContext.seccompProfile.type"},
		{"seccomp of a file", secured("null", "{seccompProfile: {type: Localhost, localhostProfile: a/b.json}}"), "{}", ""},
		{"seccomp of no file", secured("null", "{seccompProfile: {type: Localhost}}"), "{}", "spec.containers[0].securityContext.seccompProfile.localhostProfile"},
		{"seccomp of a file outside", secured("{seccompProfile: {type: Localhost, localhostProfile: ../a}}", "null"), "{}", "spec.securityContext.seccompProfile.localhostProfile"},
		{"seccomp of a file without saying so", secured("{seccompProfile: {type: RuntimeDefault, localhostProfile: a}}", "null"), "{}", "spec.securityContext.seccompProfile.localhostProfile"},
		{"AppArmor", secured("null", "{appArmorProfile: {type: Localhost, localhostProfile: tight}}"), "{}", ""},
		{"AppArmor of no name", secured("{appArmorProfile: {type: Localhost}}", "null"), "{}", "spec.securityContext.appArmorProfile.localhostProfile"},
		{"AppArmor of a blank name", secured("{appArmorProfile: {type: Localhost, localhostProfile: ' '}}", "null"), "{}", "spec.securityContext.appArmorProfile.localhostProfile"},
		{"AppArmor of a name with a blank", secured("{appArmorProfile: {type: Localhost, localhostProfile: 'a '}}", "null"), "{}", "spec.securityContext.appArmorProfile.localhostProfile"},
		{"AppArmor of a long name", secured("{appArmorProfile: {type: Localhost, localhostProfile: "+strings.Repeat("x", 4096)+"}}", "null"), "{}", "spec.securityContext.appArmorProfile.localhostProfile"},
		{"groups", secured("{supplementalGroupsPolicy: strict}", "null"), "{}", "spec.securityContext.supplementalGroupsPolicy"},
		{"unmasked with the node's users", "{containers: [" + unmasked + "]}", "{}", "spec.containers[0].securityContext.procMount"},
		{"unmasked with the node's users by name", "{hostUsers: true, containers: [" + unmasked + "]}", "{}", "spec.containers[0].securityContext.procMount"},
		{"unmasked with users of its own", "{hostUsers: false, containers: [" + unmasked + "]}", "{}", ""},
		{"IDs", secured("{runAsUser: 2147483647, runAsGroup: 0, fsGroup: 0, supplementalGroups: [0, 2147483647]}", "{runAsUser: 0}"), "{}", ""},
		{"IDs too large", secured("{runAsUser: 2147483648, runAsGroup: 4294967296, fsGroup: -1, supplementalGroups: [0, 4294967296]}", "{runAsUser: -1, runAsGroup: -1}"), "{}",
			"spec.securityContext.runAsUser spec.securityContext.runAsGroup spec.securityContext.fsGroup spec.securityContext.supplementalGroups[1] " +
				"spec.containers[0].securityContext.runAsUser spec.containers[0].securityContext.runAsGroup"},
		{"operating system", "{os: {name: plan9}, containers: [{name: app}]}", "{}", "spec.os.name"},
		{"signal", "{containers: [{name: app, lifecycle: {stopSignal: SIGRTMIN+15}}, {name: b, lifecycle: {stopSignal: SIGRTMIN+16}}]}", "{}", "spec.containers[1].lifecycle.stopSignal"},

		{"annotation without a field", "{containers: [{name: app}]}", annotate + "app: runtime/default", "metadata.annotations[" + annotate + "app]"},
		{"annotation of the field", secured("null", "{appArmorProfile: {type: RuntimeDefault}}"), annotate + "app: runtime/default", ""},
		{"annotation of the pod's field", secured("{appArmorProfile: {type: Localhost, localhostProfile: tight}}", "null"), annotate + "app: localhost/tight", ""},
		{"annotation of another field", secured("{appArmorProfile: {type: RuntimeDefault}}", "{appArmorProfile: {type: Unconfined}}"), annotate + "app: runtime/default", "metadata.annotations[" + annotate + "app]"},
		{"annotation of no container", "{containers: [{name: app}]}", annotate + "other: unconfined", "metadata.annotations[" + annotate + "other]"},
		{"annotations as large as may be", "{containers: [{name: app}]}", "a: " + strings.Repeat("x", 262143), ""},
		{"annotations too large", "{containers: [{name: app}]}", "a: " + strings.Repeat("x", 262144), "metadata.annotations"},

		{"a field", shown("metadata.labels['example.com/a']"), "{}", ""},
		{"a field of the node", shown("status.hostIPs"), "{}", ""},
		{"an annotation with capitals", shown("metadata.annotations['Example.com/A']"), "{}", ""},
		{"a bad key", shown("metadata.labels['a b']"), "{}", "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"},
		{"an empty key", shown("metadata.labels['']"), "{}", "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"},
		{"an open key", shown("metadata.labels['a"), "{}", "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"},
		{"no such field", shown("spec.hostname"), "{}", "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"},
		{"a file", file("fieldRef: {fieldPath: metadata.labels}"), "{}", ""},
		{"a file of another version", file("fieldRef: {apiVersion: v2, fieldPath: metadata.labels}"), "{}",
			"spec.volumes[0].downwardAPI.items[0].fieldRef.apiVersion spec.volumes[1].projected.sources[0].downwardAPI.items[0].fieldRef.apiVersion"},
		{"a file of what variables show", file("fieldRef: {fieldPath: status.podIP}"), "{}",
			"spec.volumes[0].downwardAPI.items[0].fieldRef.fieldPath spec.volumes[1].projected.sources[0].downwardAPI.items[0].fieldRef.fieldPath"},
		{"a file of a bad key", file("fieldRef: {fieldPath: \"metadata.annotations['a/b/c']\"}"), "{}",
			"spec.volumes[0].downwardAPI.items[0].fieldRef.fieldPath spec.volumes[1].projected.sources[0].downwardAPI.items[0].fieldRef.fieldPath"},
		{"a file of a limit", file("resourceFieldRef: {containerName: app, resource: limits.cpu}"), "{}", ""},
		{"a file of something else", file("resourceFieldRef: {containerName: app, resource: limits.example.com/gpu}"), "{}",
			"spec.volumes[0].downwardAPI.items[0].resourceFieldRef.resource spec.volumes[1].projected.sources[0].downwardAPI.items[0].resourceFieldRef.resource"},
		{"a negative divisor", file("resourceFieldRef: {containerName: app, resource: limits.cpu, divisor: -1}"), "{}",
			"spec.volumes[0].downwardAPI.items[0].resourceFieldRef.divisor spec.volumes[1].projected.sources[0].downwardAPI.items[0].resourceFieldRef.divisor"},
		{"a key of no type", "{containers: [{name: app}], volumes: [{name: data, projected: {sources: [{podCertificate: {keyType: RSA1024}}]}}]}", "{}",
			"spec.volumes[0].projected.sources[0].podCertificate.keyType"},

		{"read-only below", mount("Enabled, readOnly: true, mountPropagation: None"), "{}", ""},
		{"read-only below, perhaps", mount("IfPossible, readOnly: true"), "{}", ""},
		{"not read-only below", mount("Disabled, mountPropagation: HostToContainer"), "{}", ""},
		{"read-only below what is not", mount("Enabled"), "{}", "spec.containers[0].volumeMounts[0].recursiveReadOnly"},
		{"read-only below what is not, perhaps", mount("IfPossible"), "{}", "spec.containers[0].volumeMounts[0].recursiveReadOnly"},
		{"read-only below what propagates", mount("Enabled, readOnly: true, mountPropagation: HostToContainer"), "{}", "spec.containers[0].volumeMounts[0].recursiveReadOnly"},
		{"no such mode", mount("enabled, readOnly: true"), "{}", "spec.containers[0].volumeMounts[0].recursiveReadOnly"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			errs := Pod(podOf(t, tc.spec, tc.annotations))
			for _, e := range errs {
				got = append(got, e.Field)
				if len(e.Error()) > 1000 {
					t.Errorf("an error of %d bytes", len(e.Error()))
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%v, want errors of %s", errs, tc.want)
			}
		})
	}
}

// A large pod takes no longer than its size, and ten thousand mistakes are few.
func TestLargePod(t *testing.T) {
	p := podOf(t, "{containers: [{name: app}]}", "{}")
	for i := range 20000 {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Ports: []v1.ContainerPort{{Protocol: "TCP"}}})
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", i)})
	}
	if errs := Pod(p); len(errs) > 0 {
		t.Error(errs[0])
	}
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].Ports = []v1.ContainerPort{{Protocol: "tcp"}}
	}
	if errs := Pod(p); len(errs) != maxErrors {
		t.Errorf("%d errors", len(errs))
	}
}

// Whatever a pod is, errors are few and short, its names are safe if there are
// none, and it is not changed.
func FuzzPod(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"metadata":{"name":"a","namespace":"b","uid":"c"},"spec":{"containers":[{"name":"c"}],"volumes":[{"name":"v"}]}}`,
		`{"metadata":{"name":"a","namespace":"b","uid":"../x"},"spec":{"containers":[{"name":"c","securityContext":{"seccompProfile":{"type":"x"}}}]}}`,
		`{"metadata":{"name":"a","namespace":"b","uid":"c","annotations":{"container.apparmor.security.beta.kubernetes.io/c":"x"}},"spec":{"containers":[{"name":"c","env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['x']"}}}]}]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &v1.Pod{}
		if json.Unmarshal(data, p) != nil {
			return
		}
		before := p.DeepCopy()
		errs := Pod(p)
		if !reflect.DeepEqual(p, before) {
			t.Error("the pod was changed")
		}
		if len(errs) > maxErrors {
			t.Errorf("%d errors", len(errs))
		}
		for _, e := range errs {
			if len(e.Error()) > 4000 {
				t.Errorf("an error of %d bytes: %.200s", len(e.Error()), e)
			}
		}
		if len(errs) > 0 {
			return
		}
		names := []string{p.Name, p.Namespace, string(p.UID)}
		for _, c := range p.Spec.Containers {
			names = append(names, c.Name)
		}
		for _, v := range p.Spec.Volumes {
			names = append(names, v.Name)
		}
		for _, n := range names {
			if n == "." || filepath.Base(n) != n || !filepath.IsLocal(n) {
				t.Errorf("%q was taken for a name", n)
			}
		}
	})
}
