package resources

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/agent/part"
)

// fuzzed is a pod with resources of its own and of its containers.
func fuzzed() *v1.Pod {
	r := v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}
	return &v1.Pod{Spec: v1.PodSpec{
		Resources: r.DeepCopy(), InitContainers: []v1.Container{{Name: "i", Resources: r}}, Containers: []v1.Container{{Name: "c", Resources: r}},
	}}
}

// Whatever a record says, it is read and applied, or an error.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"containers":{"c":{"limits":{"memory":"1Gi"},"requests":{"memory":"1Gi"}}}}`))
	f.Add([]byte(`{"pod":{"requests":{"cpu":"1e9"}},"containers":{"i":{}}}`))
	f.Add([]byte(`{"containers":{"c":{"requests":{"memory":"-1e-30"}}}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, value []byte) {
		a, err := decodeResize(value)
		if err != nil {
			return
		}
		pod := fuzzed()
		if a.differs(a.apply(pod)) {
			t.Errorf("%q differs from itself", value)
		}
		b, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodeResize(b); err != nil || again.differs(a.apply(pod)) {
			t.Errorf("%q is %q again (%v)", value, b, err)
		}
	})
}

// A record that says nothing counts as missing, and is kept for a person to look at.
func TestEmptyRecordsAreSetAside(t *testing.T) {
	dir := t.TempDir()
	store := part.OpenStore(dir, nil)
	p, err := NewResize(ResizeConfig{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	for key, text := range map[string]string{"a": "null", "b": "{}", "c": `{"containers":{}}`, "d": "garbage"} {
		if err := store.Write(key, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if a, err := p.load(key); a != nil || err == nil {
			t.Errorf("%s: %+v, %v", text, a, err)
		}
		b, err := os.ReadFile(filepath.Join(dir, key+".corrupt-1"))
		if err != nil || !bytes.HasSuffix(b, []byte(text)) {
			t.Errorf("%s: kept %q, %v", text, b, err)
		}
		if a, err := p.load(key); a != nil || err != nil {
			t.Errorf("%s: again %+v, %v", text, a, err)
		}
	}
}
