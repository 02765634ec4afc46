package resources

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// kubeletAllocations is a file that a kubelet of 1.36 has written.
func kubeletAllocations(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", kubeletFile))
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.TrimSpace(string(b)))
}

func TestDecodeKubelet(t *testing.T) {
	theirs := kubeletAllocations(t)
	all, _, err := decodeKubelet(theirs)
	if err != nil {
		t.Fatal(err)
	}
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("64Mi")}
	a, b := all["uid-a"], all["uid-b"]
	if len(all) != 2 || a.Pod != nil || len(a.Containers) != 2 || !same(a.Containers["main"], v1.ResourceRequirements{Requests: list, Limits: list}) ||
		!same(b.Containers["main"], v1.ResourceRequirements{Requests: list}) || !samePodLevel(b.Pod, &v1.ResourceRequirements{Limits: list}) {
		t.Errorf("%+v, %+v", a, b)
	}
	if ours, _, err := encodeKubelet(all); err != nil || string(ours) != string(theirs) {
		t.Errorf("written again: %s, %v; want %s", ours, err, theirs)
	}
	for text, want := range map[string]string{
		"": "unexpected end",
		strings.Replace(string(theirs), "100m", "200m", 1): "checksum is 172325832; want ",
		sealed(`{"entries":1}`):                            "cannot unmarshal",
		sealed(`{"entries":{"u":{"ContainerResources":{"c":{"limits":{"cpu":"1e999999999"}}}}}}`):              `pod "u", container "c": cpu: `,
		sealed(`{"entries":{"u":{"ContainerResources":{"c":{}},"PodLevelResources":{"limits":{"cpu":"x"}}}}}`): `pod "u": cpu: `,
	} {
		if got, _, err := decodeKubelet([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q in the error", text, got, err, want)
		}
	}
	if got, _, err := decodeKubelet([]byte(sealed(`{"entries":{"u":{}}}`))); err != nil || len(got) != 0 {
		t.Errorf("a pod without containers: %v, %v", got, err)
	}
}

// sealed is a file with that data.
func sealed(data string) string {
	b, err := json.Marshal(sealKubelet(data))
	if err != nil {
		panic(err)
	}
	return string(b)
}

func FuzzDecodeKubelet(f *testing.F) {
	f.Add(`{"entries":{"u":{"ContainerResources":{"c":{"limits":{"cpu":"100m"}}},"PodLevelResources":{"requests":{"memory":"1Ki"}}}}}`)
	f.Add(`{"entries":{"u":{"ContainerResources":{"i":{"claims":[{"name":"x"}]}}}}}`)
	f.Fuzz(func(t *testing.T, data string) {
		all, _, err := decodeKubelet([]byte(sealed(data)))
		if err != nil {
			return
		}
		for _, a := range all {
			a.apply(fuzzed())
		}
		b, _, err := encodeKubelet(all)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := decodeKubelet(b); err != nil {
			t.Errorf("%q is %q again (%v)", data, b, err)
		}
	})
}
