package cpumgr_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/numa"
)

// kubeletStates are files that kubelets have written, with the expected states. A kubelet of 1.36
// writes the first two, and the last with PodLevelResourceManagers.
func kubeletStates(t testing.TB) map[string]cpumgr.State {
	t.Helper()
	empty := cpumgr.NewState(numa.CPUs(0, 1, 2, 3, 4, 5, 6, 7))
	own := empty.WithPod(cpumgr.PodCPUs{UID: "uid-b", Containers: []cpumgr.ContainerCPUs{{Name: "main", CPUs: numa.CPUs(1, 5)}}}).
		WithPod(cpumgr.PodCPUs{UID: "uid-a", Containers: []cpumgr.ContainerCPUs{{Name: "side", CPUs: numa.CPUs(3)}, {Name: "main", CPUs: numa.CPUs(2)}}})
	pools := own.WithPod(cpumgr.PodCPUs{UID: "uid-c", Pool: numa.CPUs(4, 6), Containers: []cpumgr.ContainerCPUs{{Name: "pooled", CPUs: numa.CPUs(4, 6), Pooled: true}}})
	return map[string]cpumgr.State{"empty": empty, "own": own, "pools": pools}
}

func kubeletState(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "cpu_manager_state."+name))
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.TrimSpace(string(b)))
}

func TestKubeletState(t *testing.T) {
	for name, state := range kubeletStates(t) {
		theirs := kubeletState(t, name)
		got, err := cpumgr.DecodeKubelet(theirs)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if name == "own" { // the file is of CPUs that uid-c took as well
			state = state.WithPod(cpumgr.PodCPUs{UID: "uid-c", Containers: []cpumgr.ContainerCPUs{{Name: "x", CPUs: numa.CPUs(4, 6)}}})
			got.Pods["uid-c"] = map[string]numa.CPUSet{"": {}, "x": numa.CPUs(4, 6)}
		}
		want := cpumgr.Assignments{Policy: "static", Shared: state.Shared(), Pods: map[string]map[string]numa.CPUSet{}}
		for _, uid := range state.Pods() {
			pod, _ := state.Pod(uid)
			want.Pods[uid] = pod.ByContainer()
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		ours, err := state.EncodeKubelet("static")
		if err != nil || name != "own" && string(ours) != string(theirs) {
			t.Errorf("%s is written as %s, %v; want %s", name, ours, err, theirs)
		}
	}
}

func TestKubeletStateMistakes(t *testing.T) {
	own := string(kubeletState(t, "own"))
	for text, want := range map[string]string{
		"":                                    "unexpected end",
		"[]":                                  "cannot unmarshal",
		`{"entries":{"a":"b"},"checksum":0}`:  "cannot unmarshal", // the first version, by container
		strings.Replace(own, `"2"`, `"4"`, 1): "checksum is 1486961208; want ",
		`{"policyName":"static","defaultCpuSet":"0","podEntries":{"a":{"cpuSet":"1"}},"checksum":0}`: "checksum is 0",
		`{"policyName":"static","defaultCpuSet":"x","checksum":0}`:                                   "defaultCpuSet: ",
		`{"entries":{"a":{"c":"3-1"}},"checksum":0}`:                                                 `pod "a", container "c": `,
		`{"entries":{"a":{"c":"0-99999999999"}},"checksum":0}`:                                       `pod "a", container "c": `,
		`{"entries":{"a":{"":"1"}},"checksum":0}`:                                                    "without a name",
	} {
		if got, err := cpumgr.DecodeKubelet([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q in the error", text, got, err, want)
		}
	}
	if _, err := cpumgr.DecodeKubelet([]byte(`{"policyName":"none","defaultCpuSet":"","checksum":0}`)); err != nil {
		t.Errorf("without a checksum: %v", err)
	}
}

func FuzzDecodeKubelet(f *testing.F) {
	for name := range kubeletStates(f) {
		f.Add(kubeletState(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := cpumgr.DecodeKubelet(b)
		if err != nil {
			return
		}
		for uid, has := range got.Pods {
			for name, cpus := range has {
				if name != "" && cpus.Len() > numa.MaxCPUs {
					t.Errorf("pod %q, container %q: %d CPUs", uid, name, cpus.Len())
				}
			}
		}
	})
}
