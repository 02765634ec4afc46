package podmgr

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestDecode(t *testing.T) {
	const podJSON = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	for _, tc := range []struct {
		name, in string
		pods     []string
		problems []string // parts of each
	}{
		{"YAML", podYAML("a", ""), []string{"a-n1"}, nil},
		{"JSON", podJSON, []string{"a-n1"}, nil},
		{"documents", podYAML("a", "") + podYAML("b", ""), []string{"a-n1", "b-n1"}, nil},
		{"List", `{"apiVersion":"v1","kind":"List","items":[` + podJSON + `]}`, []string{"a-n1"}, nil},
		{"PodList", "apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}]", []string{"a-n1"}, nil},
		{"nothing", "# a comment\n---\n\n---\nnull\n", nil, nil},
		{"one bad of two", podYAML("a", ", bogus: 1") + podYAML("b", ""), []string{"b-n1"}, []string{":4 (default/a): metadata.bogus: unknown field"}},
		{"no YAML", "{ bad", nil, []string{":1: a { is not closed"}},
		{"array", "[]", nil, []string{"document 1: is an array; want an object"}},
		{"scalar", "text", nil, []string{"is a string; want an object"}},
		{"number", "12", nil, []string{"is a number; want an object"}},
		{"null item", "apiVersion: v1\nkind: List\nitems: [null]", nil, []string{"is null; want an object"}},
		{"no version", "kind: Pod\nmetadata: {name: a}", nil, []string{`apiVersion: "" is not supported`}},
		{"unknown version", "apiVersion: v2\nkind: Pod", nil, []string{`"v2" is not supported`}},
		{"no kind", "apiVersion: v1", nil, []string{"kind: is missing"}},
		{"other kind", "apiVersion: v1\nkind: Service", nil, []string{"/m/a.yaml:2: kind: a single node has no Service controller; "}},
		{"wrong type", specYAML("{containers: 1}"), nil, []string{"spec.containers: 1 is not a list"}},
		{"duplicate key", "apiVersion: v1\napiVersion: v1\nmetadata: {name: a, name: b}", nil, []string{"apiVersion: is set twice", "metadata.name: is set twice"}},
		{"duplicate key behind a merge", "x: &a {image: i}\nz: [{<<: *a, name: b, image: j, name: c}]", nil, []string{"z[0].name: is set twice"}},
		{"merge with an override", specYAML("{containers: [&c {name: a, image: i}, {<<: *c, name: b}]}"), []string{"a-n1"}, nil},
		{"no name", "apiVersion: v1\nkind: ConfigMap", nil, []string{"metadata.name: is missing"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := decodeString(tc.in)
			var names []string
			for _, p := range got.pods {
				names = append(names, p.Name)
			}
			if !slices.Equal(names, tc.pods) {
				t.Errorf("pods = %q, want %q", names, tc.pods)
			}
			if len(got.problems) != len(tc.problems) {
				t.Fatalf("problems = %v, want %q", got.problems, tc.problems)
			}
			for i, want := range tc.problems {
				if text := got.problems[i].Error(); !strings.Contains(text, want) {
					t.Errorf("problem = %q, want %q in it", text, want)
				}
			}
		})
	}
}

func TestUID(t *testing.T) {
	at := origin{nodeName: "N1", file: "/m/a.yaml"}
	of := func(manifest string, o origin) string {
		t.Helper()
		d := decode([]byte(manifest), o)
		if len(d.pods) != 1 {
			t.Fatalf("%d pods, problems %v", len(d.pods), d.problems)
		}
		return string(d.pods[0].UID)
	}
	base := of(podYAML("a", ""), at)
	if len(base) != 32 {
		t.Errorf("UID %q is not 128 bits in hex", base)
	}
	if got := of("# order and comments mean nothing\nkind: Pod\nspec: {containers: [{image: 'i:1', name: c}]}\nmetadata: {name: a}\napiVersion: v1\n", at); got != base {
		t.Errorf("UID depends on how the document is written: %s and %s", got, base)
	}
	for what, got := range map[string]string{
		"content":        of(podYAML("a", ", labels: {x: z}"), at),
		"path":           of(podYAML("a", ""), origin{nodeName: "N1", file: "/m/b.yaml"}),
		"node":           of(podYAML("a", ""), origin{nodeName: "N2", file: "/m/a.yaml"}),
		"kind of source": of(podYAML("a", ""), origin{nodeName: "N1", file: "/m/a.yaml", url: true}),
	} {
		if got == base {
			t.Errorf("UID stays the same when the %s changes", what)
		}
	}
	if got := of(podYAML("a", ", uid: mine"), at); got != "mine" {
		t.Errorf("UID = %s, want the one that is given", got)
	}
}

func TestDefaults(t *testing.T) {
	d := decodeString(specYAML(`{volumes: [
 {name: a, secret: {secretName: s}}, {name: b, configMap: {name: c}}, {name: d, projected: {sources: []}},
 {name: e, downwardAPI: {}}, {name: f}], containers: [{name: c, image: i, ports: [{containerPort: 80}],
 readinessProbe: {httpGet: {port: 80}}, resources: {limits: {cpu: 1}}}]}`))
	if len(d.pods) != 1 {
		t.Fatal(d.problems)
	}
	p := d.pods[0]
	c, vols := p.Spec.Containers[0], p.Spec.Volumes
	cpu := c.Resources.Requests[v1.ResourceCPU]
	for what, pair := range map[string][2]any{
		"namespace":             {p.Namespace, "default"},
		"node":                  {p.Spec.NodeName, "N1"},
		"phase":                 {p.Status.Phase, v1.PodPending},
		"restartPolicy":         {p.Spec.RestartPolicy, v1.RestartPolicyAlways},
		"dnsPolicy":             {p.Spec.DNSPolicy, v1.DNSClusterFirst},
		"grace":                 {*p.Spec.TerminationGracePeriodSeconds, int64(30)},
		"toleration":            {p.Spec.Tolerations[0].Effect, v1.TaintEffectNoExecute},
		"imagePullPolicy":       {c.ImagePullPolicy, v1.PullAlways},
		"protocol":              {c.Ports[0].Protocol, v1.ProtocolTCP},
		"probe period":          {c.ReadinessProbe.PeriodSeconds, int32(10)},
		"probe path":            {c.ReadinessProbe.HTTPGet.Path, "/"},
		"cpu request":           {cpu.String(), "1"},
		"secret mode":           {*vols[0].Secret.DefaultMode, int32(0o644)},
		"configMap mode":        {*vols[1].ConfigMap.DefaultMode, int32(0o644)},
		"projected mode":        {*vols[2].Projected.DefaultMode, int32(0o644)},
		"downwardAPI mode":      {*vols[3].DownwardAPI.DefaultMode, int32(0o644)},
		"volume with no source": {vols[4].EmptyDir != nil, true},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s = %v, want %v", what, pair[0], pair[1])
		}
	}
}

func TestPullPolicy(t *testing.T) {
	for image, want := range map[string]v1.PullPolicy{
		"i": v1.PullAlways, "i:latest": v1.PullAlways, "i:1": v1.PullIfNotPresent, "host:5000/i": v1.PullAlways,
		"host:5000/i:1": v1.PullIfNotPresent, "i@sha256:00": v1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	const c = "containers: [{name: c, image: i}]"
	vol := func(s string) string { return "{" + c + ", volumes: [{name: v, " + s + "}]}" }
	con := func(s string) string { return "{containers: [{name: c, image: i, " + s + "}]}" }
	for _, tc := range []struct{ spec, field string }{
		{"{containers: []}", "spec.containers"},
		{"{containers: [{image: i}]}", "spec.containers[0].name"},
		{"{containers: [{name: A, image: i}]}", "spec.containers[0].name"},
		{"{containers: [{name: c}]}", "spec.containers[0].image"},
		{"{containers: [{name: c, image: i}, {name: c, image: i}]}", "spec.containers[1].name"},
		{"{" + c + ", volumes: [{name: _}]}", "spec.volumes[0].name"},
		{"{" + c + ", volumes: [{name: v}, {name: v}]}", "spec.volumes[1].name"},
		{"{" + c + ", restartPolicy: Sometimes}", "spec.restartPolicy"},
		{"{" + c + ", overhead: {cpu: '-1'}}", "spec.overhead[cpu]"},
		{"{" + c + ", serviceAccount: x}", "spec.serviceAccount"},
		{"{" + c + ", serviceAccountName: x}", "spec.serviceAccountName"},
		{"{" + c + ", resourceClaims: [{name: x}]}", "spec.resourceClaims[0].resourceClaimName"},
		{"{" + c + ", resourceClaims: [{name: x, resourceClaimTemplateName: t}]}", "spec.resourceClaims[0].resourceClaimTemplateName"},
		{"{" + c + ", resourceClaims: [{name: x, resourceClaimName: a}, {name: x, resourceClaimName: b}]}", "spec.resourceClaims[1].name"},
		{vol("secret: {}"), "spec.volumes[0].secret.secretName"},
		{vol("configMap: {}"), "spec.volumes[0].configMap.name"},
		{vol("emptyDir: {}, hostPath: {path: /x}"), "spec.volumes[0]"},
		{vol("hostPath: {path: /x/../y}"), "spec.volumes[0].hostPath.path"},
		{vol("persistentVolumeClaim: {claimName: ''}"), "spec.volumes[0].persistentVolumeClaim.claimName"},
		{vol("ephemeral: {}"), "spec.volumes[0].ephemeral.volumeClaimTemplate"},
		{vol("projected: {sources: [{clusterTrustBundle: {path: x}}]}"), "spec.volumes[0].projected.sources[0].clusterTrustBundle"},
		{vol("projected: {sources: [{serviceAccountToken: {path: x}}]}"), "spec.volumes[0].projected.sources[0].serviceAccountToken"},
		{con("resources: {claims: [{name: x}]}"), "spec.containers[0].resources.claims[0].name"},
		{con("resources: {requests: {cpu: 2}, limits: {cpu: 1}}"), "spec.containers[0].resources.requests[cpu]"},
		{con("volumeMounts: [{name: x, mountPath: /x}]"), "spec.containers[0].volumeMounts[0].name"},
		{con("lifecycle: {preStop: {}}"), "spec.containers[0].lifecycle.preStop"},
		{con("livenessProbe: {}"), "spec.containers[0].livenessProbe"},
		{con("ports: [{containerPort: 0}]"), "spec.containers[0].ports[0].containerPort"},
	} {
		d := decodeString(specYAML(tc.spec))
		if len(d.pods) != 0 || !slices.ContainsFunc(d.problems, func(p Problem) bool { return p.Field == tc.field && p.Pod == "default/a" }) {
			t.Errorf("%s: %d pods, problems %v; want one of %s", tc.spec, len(d.pods), d.problems, tc.field)
		}
	}
}

func TestProblemsHaveAnOrder(t *testing.T) {
	manifest := specYAML("{overhead: {cpu: '-1', memory: '-1'}, containers: [{name: c, livenessProbe: {}, readinessProbe: {}, startupProbe: {}, " +
		"lifecycle: {preStop: {}, postStart: {}}, resources: {limits: {cpu: '-1', memory: '-1'}, requests: {cpu: '-2', memory: '-2'}}}]}")
	first := fmt.Sprint(decodeString(manifest).problems)
	for range 20 {
		if got := fmt.Sprint(decodeString(manifest).problems); got != first {
			t.Fatalf("problems differ:\n%s\n%s", got, first)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(podYAML("a", "") + configMapYAML("c", "1")))
	f.Add([]byte(`{"kind":"List","apiVersion":"v1","items":[null,{}]}`))
	f.Add([]byte("apiVersion: v1\nkind: PodList\nitems: [null, {metadata: {name: a}}]"))
	f.Add([]byte("--- \n[]\n---\n1"))
	f.Add([]byte("x: &x {a: [b, b]}\ny: [*x, *x, *x]"))
	f.Add([]byte(specYAML("{containers: [{name: c, image: i, resources: {limits: {cpu: '1e-2000000000', memory: 0.1e20000}}}]}")))
	f.Add([]byte(podYAML("a", ", uid: ../../x, namespace: '..'")))
	f.Add([]byte(strings.Repeat("a\n---\n", 100)))
	f.Fuzz(func(t *testing.T, b []byte) {
		began := time.Now()
		d := decode(b, origin{nodeName: "n", file: "/f"})
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%d bytes take %v", len(b), took)
		}
		if len(d.problems) > maxProblems+1 {
			t.Errorf("%d problems", len(d.problems))
		}
		for _, p := range d.problems {
			if text := p.Error(); len(text) > 4*maxText || strings.ContainsAny(text, "\n\r\x00") || p.File != "/f" {
				t.Errorf("problem %q", text)
			}
		}
		for _, p := range d.pods {
			if notInPath(string(p.UID))+notInPath(p.Name)+notInPath(p.Namespace) != "" || p.Name == "" || p.UID == "" || len(p.Spec.Containers) == 0 {
				t.Errorf("a pod without name, UID or containers: %v", p)
			}
		}
	})
}

// Claims and volumes come from manifests as other objects do.
func TestClaimsAndVolumes(t *testing.T) {
	d := decodeString(`apiVersion: v1
kind: PersistentVolume
metadata: {name: disk, namespace: nonsense}
spec: {local: {path: /mnt/disk}, claimRef: {namespace: default, name: data}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {volumeName: disk}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: none}
spec: {}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: two}
spec: {local: {path: /a}, nfs: {server: s, path: /}}
---
apiVersion: v1
kind: PersistentVolume
spec: {local: {path: /a}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: typo}
spec: {volumename: disk}
`)
	if len(d.volumes) != 1 || d.volumes[0].Name != "disk" || d.volumes[0].Namespace != "" {
		t.Errorf("volumes %+v", d.volumes)
	}
	if len(d.claims) != 1 || d.claims[0].Namespace != "default" || d.claims[0].Spec.VolumeName != "disk" {
		t.Errorf("claims %+v", d.claims)
	}
	var got []string
	for _, p := range d.problems {
		p.File = "m"
		got = append(got, p.Error())
	}
	want := []string{
		"m:14 (none): spec: has 0 sources; want one, such as local or nfs",
		"m:19 (two): spec: has 2 sources; want one, such as local or nfs",
		"m document 5: metadata.name: is missing",
		"m:28 (default/typo): spec.volumename: unknown field; did you mean volumeName?",
	}
	if !slices.Equal(got, want) {
		t.Errorf("problems %q, want %q", got, want)
	}
}

// Decode gives pods as their writer means them: nothing of a node, but the API's
// defaults.
func TestDecodeOfPlainManifests(t *testing.T) {
	snap := Decode("web.yaml", []byte(`
kind: ConfigMap
apiVersion: v1
metadata: {name: c}
---
kind: Pod
apiVersion: v1
metadata: {name: web}
spec: {containers: [{name: a, image: i}]}
---
kind: Pod
apiVersion: v1
metadata: {name: "No"}
spec: {containers: [{name: a, image: i}]}
---
kind: Job
apiVersion: batch/v1
metadata: {name: j}
`))
	problems := snap.Problems
	if len(snap.Pods) != 1 || len(snap.ConfigMaps) != 1 {
		t.Fatalf("%d pods and %d ConfigMaps, want 1 of each", len(snap.Pods), len(snap.ConfigMaps))
	}
	p := snap.Pods[0]
	if p.Namespace != "default" || p.Name != "web" || p.UID != "" || p.Annotations != nil || p.Spec.NodeName != "" || p.Spec.Tolerations != nil || p.Spec.RestartPolicy != v1.RestartPolicyAlways {
		t.Errorf("got %+v", p)
	}
	if len(problems) != 2 || problems[0].Document != 3 || problems[0].Field != "metadata.name" || problems[1].Document != 4 || problems[1].File != "web.yaml" {
		t.Errorf("problems %+v", problems)
	}
}

// A source of its own gives pods the names and UIDs of files. Files share the limits of a
// directory, no document sets a UID, and no two have one pod.
func TestDecodeStatic(t *testing.T) {
	of := func(name, node, more string) *v1.Pod {
		t.Helper()
		s := DecodeStatic([]ManifestFile{{name, []byte(podYAML("a", more))}}, node)
		if len(s.Problems) > 0 || len(s.Pods) != 1 {
			t.Fatalf("%d pods, problems %v", len(s.Pods), s.Problems)
		}
		return s.Pods[0]
	}
	p := of("web.yaml", "N1", "")
	if file := decode([]byte(podYAML("a", "")), origin{nodeName: "N1", file: "web.yaml"}).pods[0]; p.UID != file.UID || p.Name != "a-n1" {
		t.Errorf("pod %s %s, want that of a file, %s %s", p.Name, p.UID, file.Name, file.UID)
	}
	for what, other := range map[string]*v1.Pod{"file": of("b.yaml", "N1", ""), "node": of("web.yaml", "N2", ""), "content": of("web.yaml", "N1", ", labels: {x: z}")} {
		if other.UID == p.UID {
			t.Errorf("UID stays the same when the %s changes", what)
		}
	}
	// Little text, and 23 MB of empty containers.
	large := fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "l"}, "spec": {"containers": [{}%s]}}`, strings.Repeat(",{}", 56_000))
	for name, tc := range map[string]struct {
		files []ManifestFile
		want  string
	}{
		"UID":         {[]ManifestFile{{"a.yaml", []byte(podYAML("a", ", uid: mine"))}}, "metadata.uid: is set"},
		"same pod":    {[]ManifestFile{{"a.yaml", []byte(podYAML("a", ""))}, {"b.yaml", []byte(podYAML("a", ", labels: {x: z}"))}}, "already used by a pod in a.yaml"},
		"no pod":      {[]ManifestFile{{"a.yaml", []byte("kind: Deployment")}}, "a.yaml"},
		"all of them": {[]ManifestFile{{"a.json", large}, {"b.json", large}, {"c.json", large}}, "c.json: with this file, all manifests take more than"},
	} {
		s := DecodeStatic(tc.files, "n")
		if !slices.ContainsFunc(s.Problems, func(p Problem) bool { return strings.Contains(p.Error(), tc.want) && p.Source == "" }) {
			t.Errorf("%s: %d problems, want one with %q", name, len(s.Problems), tc.want)
		}
	}
}
