package cpumgr

import (
	"strings"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

func TestEncodePod(t *testing.T) {
	s := NewState(list("0-7")).WithPod(PodCPUs{UID: "a", Containers: []ContainerCPUs{
		{Name: "web", CPUs: list("1,5")}, {Name: "init", Kind: numa.Init, CPUs: list("1-2,5-6")}}})
	data, err := s.EncodePod("a")
	want := `{"version":1,"uid":"a","pool":"","containers":[{"name":"init","kind":"init","cpus":"1-2,5-6"},{"name":"web","kind":"regular","cpus":"1,5"}]}`
	if err != nil || string(data) != want {
		t.Errorf("%s, %v; want %s", data, err, want)
	}
	if _, err := s.EncodePod("b"); err == nil {
		t.Error("a pod without CPUs was encoded")
	}
	if _, err := s.WithPod(PodCPUs{UID: "b", Containers: []ContainerCPUs{{Name: "x", Kind: 7}}}).EncodePod("b"); err == nil {
		t.Error("an unknown kind was encoded")
	}
}

func TestDecodePod(t *testing.T) {
	const good = `{"version":1,"uid":"a","pool":"1-2,5-6","containers":[{"name":"x","kind":"sidecar","cpus":"1,5"},{"name":"y","kind":"regular","cpus":"2,6","pooled":true}]}`
	if _, err := DecodePod([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ from, to, want string }{
		{`"version":1`, `"version":2`, "version is 2; want 1"},
		{`"version":1,`, ``, "version is 0; want 1"},
		{`"uid":"a"`, `"uid":""`, "missing"},
		{`"x"`, `""`, "name is empty"},
		{`"sidecar"`, `"boss"`, `kind is "boss"; want one of ["regular" "init" "sidecar"]`},
		{`"cpus":"1,5"`, `"cpus":""`, "cpus is empty"},
		{`"cpus":"1,5"`, `"cpus":"3"`, `cpus are "3"; want some of the pod's pool, "1-2,5-6"`},
		{`"cpus":"1,5"`, `"cpus":"5-1"`, "goes down"},
		{`"pool":"1-2,5-6"`, `"pool":""`, "pooled is true, but the pod has no pool"},
		{`"y"`, `"x"`, "want ascending names"},
		{`}]}`, `}]`, "unexpected EOF"},
		{`}]}`, `}]}{}`, "there is data after the JSON object"},
		{good, ``, "EOF"},
		{good, `{"version":1,"uid":"a","containers":[]}`, "missing"},
		{good, "\x00\x01", "invalid"},
	} {
		_, err := DecodePod([]byte(strings.Replace(good, tc.from, tc.to, 1)))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s -> %s: error %v, want %q", tc.from, tc.to, err, tc.want)
		}
	}
}

// What can be read can be written and read again, and a state can be made of it
// or not, but never a bad one.
func FuzzDecodePod(f *testing.F) {
	f.Add([]byte(`{"version":1,"uid":"a","pool":"1-2,5-6","containers":[{"name":"0","kind":"sidecar","cpus":"1,5"},{"name":"1","kind":"regular","cpus":"2,6","pooled":true}]}`))
	f.Add([]byte(`{"version":1,"uid":"a","containers":[{"name":"0","kind":"init","cpus":"1-2"},{"name":"1","kind":"regular","cpus":"1-2"}]}`))
	f.Add([]byte(`{"version":1,"uid":"a","containers":[{"name":"0","kind":"regular","cpus":"0-8191"}]}`))
	p, err := NewStatic(machineS(), Reservation{CPUs: numa.CPUs(0, 4)}, Options{PodLevel: true})
	if err != nil {
		f.Fatal(err)
	}
	other := guaranteed("b", 2)
	f.Fuzz(func(t *testing.T, data []byte) {
		pod, err := DecodePod(data)
		if err != nil {
			return
		}
		again, err := NewState(pod.held()).WithPod(pod).EncodePod(pod.UID)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodePod(again); err != nil || !back.Equal(pod) {
			t.Fatalf("%s became %s: %v", data, again, err)
		}
		for _, spec := range []numa.Pod{guaranteed(pod.UID, 2, 2), podOf(4, "r2 r0"), podOf(4, "i2 s1")} {
			spec.UID = pod.UID
			s, _ := Rebuild(p, []numa.Pod{other, spec}, map[string]map[string]numa.CPUSet{"b": {"0": numa.CPUs(3, 7)}, pod.UID: pod.ByContainer()})
			if problems := p.Validate(s); len(problems) > 0 {
				t.Fatalf("%s: %v", data, problems)
			}
		}
	})
}
