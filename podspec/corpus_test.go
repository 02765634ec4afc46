package podspec

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite what the corpus compiles to")

// scene is a document of kind Scene: the settings with which a manifest of the corpus is
// compiled, in addition to the common node.
type scene struct {
	CgroupV1, SeccompDefault, NoClusterDNS bool

	PodIPs         []string
	Volumes        map[string]string
	ImageRefs      map[string]string
	Files          map[string]string // of volumes, by their paths on the node
	Swap           *Swap
	MemoryQoS      *MemoryQoS
	RuntimeHandler string
	Handler        HandlerFeatures
	UserNamespace  *IDRange
	VolumeGroups   []int64
	Attached       map[string]Attachment
	Image          ImageFacts
	RestartCount   int32
	Capacity       v1.ResourceList
}

// readScene reads a manifest with all that stands beside it.
func readScene(t *testing.T, file string) (Input, ContainerOptions) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in := Input{
		Pod: &v1.Pod{}, ConfigMaps: map[string]*v1.ConfigMap{}, Secrets: map[string]*v1.Secret{},
		Node: Node{
			Name: "node1", IPs: []string{"192.0.2.1", "2001:db8::1"}, CgroupV2: true,
			Capacity:      quantities("cpu", "8", "memory", "16Gi"),
			Allocatable:   quantities("cpu", "7500m", "memory", "15Gi", "ephemeral-storage", "90Gi"),
			ResolvConf:    "nameserver 192.0.2.53\nsearch corp.example\noptions rotate\n",
			HostsFile:     "127.0.0.1 localhost node1\n",
			ClusterDomain: "cluster.local", ClusterDNS: []string{"10.0.0.10"},
			PodLogsDir: "/var/log/pods", SeccompDir: "/var/lib/seccomp",
		},
		PodIPs: []string{"10.1.0.7"}, PodDir: "/pods/u1",
	}
	s := scene{Image: ImageFacts{Ref: "sha256:0d17"}}
	for doc := range strings.SplitSeq(string(raw), "\n---\n") {
		var kind struct {
			Kind     string
			Metadata struct{ Name string }
		}
		read := func(to any) {
			if err := yaml.UnmarshalStrict([]byte(doc), to); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		switch kind.Kind {
		case "Pod":
			read(in.Pod)
		case "ConfigMap":
			cm := &v1.ConfigMap{}
			read(cm)
			in.ConfigMaps[cm.Name] = cm
		case "Secret":
			sec := &v1.Secret{}
			read(sec)
			in.Secrets[sec.Name] = sec
		case "Service":
			svc := &v1.Service{}
			read(svc)
			in.Services = append(in.Services, svc)
		case "Scene":
			with := struct {
				Kind  string
				Scene *scene
			}{Scene: &s}
			asJSON, err := yaml.YAMLToJSONStrict([]byte(doc))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			dec := json.NewDecoder(bytes.NewReader(asJSON)) // names in any case
			dec.DisallowUnknownFields()
			if err := dec.Decode(&with); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		default:
			t.Fatalf("%s: a document of kind %q", file, kind.Kind)
		}
	}
	if in.Pod.Namespace == "" {
		in.Pod.Namespace = "prod"
	}
	in.Pod.UID = "u1"
	in.Node.CgroupV2, in.Node.SeccompDefault, in.Node.Swap, in.Node.MemoryQoS = !s.CgroupV1, s.SeccompDefault, s.Swap, s.MemoryQoS
	in.ReadFile, in.ImageRefs = filesOf(s.Files), s.ImageRefs
	in.Volumes, in.VolumeGroups, in.Attached = s.Volumes, s.VolumeGroups, s.Attached
	in.RuntimeHandler, in.Handler, in.UserNamespace = s.RuntimeHandler, s.Handler, s.UserNamespace
	if s.NoClusterDNS {
		in.Node.ClusterDNS = nil
	}
	if s.PodIPs != nil {
		in.PodIPs = s.PodIPs
	}
	if s.Capacity != nil {
		in.Node.Capacity = s.Capacity
	}
	return in, ContainerOptions{RestartCount: s.RestartCount, Image: s.Image}
}

// brief formats a message as YAML, without the parts that all have: the masked paths, and the
// labels with the pod's name.
func brief(t *testing.T, m proto.Message) string {
	t.Helper()
	m = proto.Clone(m)
	if c, ok := m.(*runtimeapi.ContainerConfig); ok {
		sc := c.Linux.SecurityContext
		if slices.Equal(sc.MaskedPaths, maskedPaths) && slices.Equal(sc.ReadonlyPaths, readonlyPaths) {
			sc.MaskedPaths, sc.ReadonlyPaths = []string{"as usual"}, []string{"as usual"}
		}
		c.Labels = nil
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	readable(v)
	out, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// readable turns the values of variables, which are bytes, into text.
func readable(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if list, ok := e.([]any); ok && k == "envs" {
				for i := range list {
					kv := list[i].(map[string]any)
					var b []byte
					if s, ok := kv["value"].(string); ok {
						_ = json.Unmarshal([]byte(`"`+s+`"`), &b)
					}
					list[i] = fmt.Sprintf("%s=%s", kv["key"], b)
				}
				continue
			}
			readable(e)
		}
	case []any:
		for _, e := range v {
			readable(e)
		}
	}
}

// compiled is all that comes of a manifest.
func compiled(t *testing.T, in Input, o ContainerOptions) string {
	t.Helper()
	var b strings.Builder
	section := func(title string, problems []Problem, err error) {
		fmt.Fprintf(&b, "# %s\n", title)
		for _, w := range problems {
			fmt.Fprintf(&b, "# warning %s: %v\n", w.Reason, w)
		}
		if err == nil {
			return
		}
		for _, p := range err.(Problems) { //nolint:errorlint // the compilers return this type
			fmt.Fprintf(&b, "# problem %s: %v\n", p.Reason, p)
		}
	}
	plan, err := Sandbox(in, 0)
	section("sandbox", plan.Warnings, err)
	b.WriteString(brief(t, plan.Config))
	for _, name := range names(in.Pod) {
		plan, err := Container(in, name, o)
		b.WriteString("---\n")
		section("container "+name, plan.Warnings, err)
		for _, d := range plan.Dirs {
			fmt.Fprintf(&b, "# directory %s %v\n", d.Path, d.Mode)
		}
		for _, s := range plan.SubPaths {
			fmt.Fprintf(&b, "# part of volume %s for mount %d (volumeMounts[%d]): %s of %s\n", s.Volume, s.Mount, s.Index, s.Path, s.VolumePath)
		}
		for _, f := range plan.Files {
			fmt.Fprintf(&b, "# file %s %v keep=%v %q\n", f.Path, f.Mode, f.Keep, f.Content)
		}
		b.WriteString(brief(t, plan.Config))
	}
	return b.String()
}

// What every manifest of the corpus compiles to stands beside it. A change of
// meaning shows as a change of these files; -update writes them.
func TestCorpus(t *testing.T) {
	files, err := filepath.Glob("testdata/corpus/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		if strings.HasSuffix(file, ".out.yaml") {
			continue
		}
		n++
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			in, o := readScene(t, file)
			before := in.Pod.DeepCopy()
			got := compiled(t, in, o)
			if !reflect.DeepEqual(in.Pod, before) {
				t.Error("the pod was changed")
			}
			if again := compiled(t, in, o); again != got {
				t.Error("compiled twice, it comes out different")
			}
			out := strings.TrimSuffix(file, ".yaml") + ".out.yaml"
			if *update {
				if err := os.WriteFile(out, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("not what %s says; if that is meant, go test ./podspec -run Corpus -update. Now it is:\n%s", out, got)
			}
		})
	}
	if n < 60 {
		t.Errorf("%d manifests, want 60 or more", n)
	}
}
