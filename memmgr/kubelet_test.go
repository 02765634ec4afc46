package memmgr_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

// kubeletState reads a file that the code of a kubelet of 1.37 has written on the
// machine of kubeletPolicy: see TestMemoryState in e2e/parity.
func kubeletState(t testing.TB, format string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "memory_manager_state."+format))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func kubeletPolicy(t testing.TB) *memmgr.Static {
	m, _ := machine(7, 8)
	for i := range m.Nodes {
		m.Nodes[i].HugePages = map[uint64]uint64{huge2M: 512, huge1G: 0}
	}
	return policy(t, memmgr.Config{Machine: m, Reserved: memmgr.Reserved{0: {memmgr.Memory: gi}}, PodLevel: true})
}

// kubeletGave is the state in those files; whole is false for that of the first format.
func kubeletGave(t testing.TB, p *memmgr.Static, whole bool) memmgr.State {
	t.Helper()
	s := must(t, p, memmgr.State{}, guaranteed("starts", initc("init", 2), withBytes("next", numa.Init, gi/2), app("main", 1)), numa.Hint{})
	s = must(t, p, s, guaranteed("pages", withHuge(withBytes("main", numa.Regular, gi/4), huge2M, 32*huge2M)), numa.Hint{})
	if !whole {
		return s
	}
	pod := guaranteed("divided", sharing(numa.Init, "init"), withBytes("own", numa.Regular, gi/2), sharing(numa.Regular, "shares"), sharing(numa.Regular, "too"))
	pod.Resources = &numa.Resources{MilliCPU: 2000, Memory: 2 * gi, Bound: true}
	return must(t, p, s, pod, numa.Hint{})
}

func withBytes(name string, kind numa.Kind, bytes uint64) numa.Container {
	c := container(kind, name, 0)
	c.Memory = bytes
	return c
}

// saidOf returns the content of a kubelet's file for a state.
func saidOf(s memmgr.State, policy string) memmgr.Assignments {
	a := memmgr.Assignments{Policy: policy, Pods: map[string]map[string][]memmgr.Block{}}
	for _, uid := range s.Pods() {
		has := s.Shares(uid)
		if whole := s.Whole(uid); whole != nil {
			for _, name := range s.Containers(uid) {
				has[name] = s.Blocks(uid, name)
			}
			has[""] = whole
		}
		a.Pods[uid] = has
	}
	return a
}

func TestKubeletState(t *testing.T) {
	p := kubeletPolicy(t)
	for format, whole := range map[string]bool{"v1": false, "v2": true, "v3": true} {
		s := kubeletGave(t, p, whole)
		got, err := memmgr.DecodeKubelet([]byte(kubeletState(t, format)))
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		if want := saidOf(s, "Static"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", format, got, want)
		}
		ours, err := s.EncodeKubelet(p)
		if err != nil || format == "v3" && string(ours) != kubeletState(t, format) {
			t.Errorf("%s is written as %s, %v; want %s", format, ours, err, kubeletState(t, format))
		}
	}
	// The third format has the first around it, with what that knew.
	ours, err := kubeletGave(t, p, false).EncodeKubelet(p)
	if err != nil {
		t.Fatal(err)
	}
	first, _, ok := strings.Cut(string(ours), `,"data":`)
	if want := kubeletState(t, "v1"); !ok || first+"}" != want {
		t.Errorf("the first format in the third is %s}; want %s", first, want)
	}
}

// Allocations of a kubelet are restored, with the policy's own accounts.
func TestKubeletStateIsRebuilt(t *testing.T) {
	p := kubeletPolicy(t)
	s := kubeletGave(t, p, true)
	theirs, err := memmgr.DecodeKubelet([]byte(kubeletState(t, "v3")))
	if err != nil {
		t.Fatal(err)
	}
	whole := guaranteed("divided", sharing(numa.Init, "init"), withBytes("own", numa.Regular, gi/2), sharing(numa.Regular, "shares"), sharing(numa.Regular, "too"))
	whole.Resources = &numa.Resources{MilliCPU: 2000, Memory: 2 * gi, Bound: true}
	pods := []numa.Pod{
		guaranteed("starts", initc("init", 2), withBytes("next", numa.Init, gi/2), app("main", 1)),
		guaranteed("pages", withHuge(withBytes("main", numa.Regular, gi/4), huge2M, 32*huge2M)), whole,
	}
	running := map[string]map[string]numa.NodeSet{}
	for _, pod := range pods {
		running[pod.UID] = theirs.Nodes(pod.UID)
	}
	again, problems := p.Rebuild(memmgr.State{}, pods, running)
	if len(problems) > 0 || !reflect.DeepEqual(saidOf(again, ""), saidOf(s, "")) || !reflect.DeepEqual(p.Stats(again), p.Stats(s)) {
		t.Errorf("%+v, %v; want %+v", saidOf(again, ""), problems, saidOf(s, ""))
	}

	// A pod whose containers were given theirs one by one, which its containers alone
	// do not tell from one that was given all as a whole.
	one := guaranteed("one", app("own", 1), sharing(numa.Regular, "shares"))
	one.Resources = &numa.Resources{MilliCPU: 2000, Memory: 2 * gi, Bound: true}
	for name, tc := range map[string]struct {
		has  map[string]numa.NodeSet
		want uint64
	}{
		"as a whole": {map[string]numa.NodeSet{"": nodes(1), "own": nodes(1)}, 2 * gi},
		"one by one": {map[string]numa.NodeSet{"": 0, "own": nodes(1), "shares": nodes(1)}, gi},
		"not told":   {map[string]numa.NodeSet{"own": nodes(1), "shares": nodes(1)}, 2 * gi},
	} {
		got, _ := p.Rebuild(memmgr.State{}, []numa.Pod{one}, map[string]map[string]numa.NodeSet{"one": tc.has})
		if used := used(p, got, memmgr.Memory); used != tc.want {
			t.Errorf("%s: %d bytes are used, want %d", name, used, tc.want)
		}
	}
	if got := (memmgr.Assignments{}).Nodes("none"); len(got) != 1 || got[""] != 0 {
		t.Errorf("a pod that is not in the file has %v", got)
	}
}

func TestKubeletStateOfOtherPolicies(t *testing.T) {
	for _, p := range []memmgr.Policy{memmgr.None{}, lastNode{}} {
		b, err := memmgr.State{}.EncodeKubelet(p)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := memmgr.DecodeKubelet(b); err != nil || got.Policy != p.Name() || len(got.Pods) > 0 || !strings.Contains(string(b), `"machineState":{}`) {
			t.Errorf("%s: %+v, %v", b, got, err)
		}
	}
}

func TestKubeletStateMistakes(t *testing.T) {
	v1, v2, v3 := kubeletState(t, "v1"), kubeletState(t, "v2"), kubeletState(t, "v3")
	block := func(s string) string { return `{"entries":{"a":{"c":[` + s + `]}},"checksum":0}` }
	nodes := make([]string, 65)
	for i := range nodes {
		nodes[i] = fmt.Sprintf(`"%d":null`, i)
	}
	for text, want := range map[string]string{
		"":       "unexpected end",
		"[]":     "cannot unmarshal",
		v1 + "x": "invalid character",
		strings.Replace(v1, "1073741824", "1", 1):                                                            "checksum is ",
		strings.Replace(v1, `"Static"`, `"None"`, 1):                                                         "checksum is ",
		strings.Replace(v2, `"memoryBlocks"`, `"x"`, 1):                                                      "checksum is ",
		strings.Replace(v2, `"podEntries"`, `"x"`, 1):                                                        "checksum is ",
		strings.ReplaceAll(v3, `:2147483648`, `:1`):                                                          "dataChecksum is ",
		strings.Replace(v3, `"dataChecksum"`, `"x"`, 1):                                                      "dataChecksum is 0; want ",
		strings.Replace(v3, `"data"`, `"x"`, 1):                                                              "dataChecksum is 2491975748; want ",
		`{"data":"[]","dataChecksum":` + textSum("[]") + `}`:                                                 "data: json: cannot unmarshal",
		`{"machineState":{` + strings.Join(nodes, ",") + `},"checksum":0}`:                                   "machineState has 65 nodes",
		`{"machineState":{"x":null},"checksum":0}`:                                                           "cannot unmarshal",
		`{"entries":{"a":{"":[]}},"checksum":0}`:                                                             "without a name",
		block(`{"numaAffinity":[],"type":"memory","size":1}`):                                                `pod "a", container "c": numaAffinity is empty`,
		block(`{"numaAffinity":[64],"type":"memory","size":1}`):                                              "numaAffinity is [64]",
		block(`{"numaAffinity":[-1],"type":"memory","size":1}`):                                              "numaAffinity is [-1]",
		block(`{"numaAffinity":[1,1],"type":"memory","size":1}`):                                             "numaAffinity is [1 1]",
		block(`{"numaAffinity":[1],"type":"cpu","size":1}`):                                                  `type is "cpu"`,
		block(`{"numaAffinity":[1],"type":"memory","size":-1}`):                                              "cannot unmarshal",
		block(`{"numaAffinity":[1],"type":"memory","size":1},{"numaAffinity":[0],"type":"memory","size":1}`): "for the second time",
		strings.Repeat("[", 1<<20):                                                                           "exceeded max depth",
		strings.Repeat(" ", memmgr.MaxKubeletFile) + v1:                                                      "file has 4195453 bytes; want 4194304 at most",
	} {
		if got, err := memmgr.DecodeKubelet([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s: %+v, %v; want %q in the error", text, got, err, want)
		}
	}
	// The first format may be without a checksum, and knows no pods as a whole.
	got, err := memmgr.DecodeKubelet([]byte(`{"policyName":"None","podEntries":{"a":{"memoryBlocks":[{"numaAffinity":[0],"type":"memory","size":1}]}},"checksum":0}`))
	if err != nil || got.Policy != "None" || len(got.Pods) > 0 {
		t.Errorf("without a checksum: %+v, %v", got, err)
	}
}

// textSum is the checksum of a text in the third format, as an error names it.
func textSum(text string) string {
	b, _ := json.Marshal(map[string]any{"data": text})
	_, err := memmgr.DecodeKubelet(b)
	_, sum, _ := strings.Cut(err.Error(), "want ")
	return sum
}

// Any state can be written to a kubelet's file, and the kubelet computes the same free memory
// from it.
func TestKubeletStateKeepsStates(t *testing.T) {
	for seed := range uint64(200) {
		walk(t, seed, 20, func(_ *rand.Rand, p *memmgr.Static, _ numa.Machine, _ map[string]numa.Pod, _, s memmgr.State) {
			b, err := s.EncodeKubelet(p)
			if err != nil {
				t.Fatal(err)
			}
			got, err := memmgr.DecodeKubelet(b)
			if want := saidOf(s, "Static"); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: %+v, %v; want %+v", seed, got, err, want)
			}
			if again, err := s.EncodeKubelet(p); err != nil || string(again) != string(b) {
				t.Fatalf("seed %d: %s was %s before", seed, again, b)
			}
			var file struct {
				MachineState map[int]struct {
					NumberOfAssignments int
					MemoryMap           map[memmgr.Resource]struct{ Total, SystemReserved, Allocatable, Reserved, Free uint64 }
					Cells               []int
				}
			}
			if err := json.Unmarshal(b, &file); err != nil {
				t.Fatal(err)
			}
			for _, n := range p.Stats(s) {
				k := file.MachineState[n.ID]
				if k.NumberOfAssignments != n.Assignments || !slices.Equal(k.Cells, n.Group.IDs()) {
					t.Fatalf("seed %d: node %d has %+v, want %+v", seed, n.ID, k, n)
				}
				for _, r := range n.Resources {
					if m, ok := k.MemoryMap[r.Resource]; ok && (m.Total != r.Total || m.SystemReserved != r.Reserved || m.Allocatable != r.Allocatable) {
						t.Fatalf("seed %d: node %d has %+v, want %+v", seed, n.ID, m, r)
					}
				}
			}
			for _, r := range []memmgr.Resource{memmgr.Memory, memmgr.HugePages(huge2M), memmgr.HugePages(huge1G)} {
				sum := uint64(0)
				for _, k := range file.MachineState {
					sum += k.MemoryMap[r].Reserved
				}
				if want := used(p, s, r); sum != want {
					t.Fatalf("seed %d: %d bytes of %s are used in the file, want %d: %s", seed, sum, r, want, b)
				}
			}
		})
	}
}

// An accepted file is within limits, and is written again unchanged.
func FuzzDecodeKubelet(f *testing.F) {
	for _, format := range []string{"v1", "v2", "v3"} {
		f.Add([]byte(kubeletState(f, format)))
	}
	f.Add([]byte(`{"policyName":"None","machineState":null,"entries":{"a":{"c":[{"numaAffinity":[63,0],"type":"hugepages-1Gi","size":0}]}},"checksum":0}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := memmgr.DecodeKubelet(b)
		if err != nil {
			if got.Pods != nil {
				t.Errorf("%+v came with %v", got, err)
			}
			return
		}
		for uid, has := range got.Pods {
			nodes := got.Nodes(uid)
			for name, blocks := range has {
				if len(blocks) == 0 || nodes[name] == 0 && slices.ContainsFunc(blocks, func(b memmgr.Block) bool { return b.Bytes > 0 }) {
					t.Errorf("pod %q, container %q: %v, on %v", uid, name, blocks, nodes)
				}
			}
		}
	})
}
