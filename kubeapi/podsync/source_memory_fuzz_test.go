package podsync

import (
	"fmt"
	"io/fs"
	"testing"

	"go.uber.org/zap"
)

// one is a Memory of one value.
type one struct {
	key   string
	value []byte
}

func (o one) Keys() ([]string, error)  { return []string{o.key}, nil }
func (one) Write(string, []byte) error { return nil }
func (one) Delete(string) error        { return nil }
func (o one) Read(k string) ([]byte, error) {
	if k != o.key {
		return nil, fmt.Errorf("key %s: %w", k, fs.ErrNotExist)
	}
	return o.value, nil
}

// Whatever was kept, it is the object of its key, or it is asked for again.
func FuzzRecall(f *testing.F) {
	f.Add("pod-u", []byte(`{"metadata":{"name":"a","namespace":"b","uid":"u"},"spec":{"containers":[{"name":"c"}]}}`))
	f.Add("pod-u", []byte(`{"metadata":{"uid":"u"},"spec":{"overhead":{"cpu":"1e-2000000000"}}}`))
	f.Add("pod-", []byte("null"))
	f.Add("secret-x", []byte("{}"))
	f.Add("configmap-x", []byte("[]"))
	f.Add("claim-x", []byte(`{"spec":{"resources":{"requests":{"storage":"1e2000000000"}}}}`))
	f.Add("volume-x", []byte(""))
	f.Add("resourceclaim-x", []byte("{"))
	f.Add("other", []byte("{}"))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		cfg := SourceConfig{Memory: one{key, value}, Log: zap.NewNop()}
		k := newKeeper(cfg)
		pods, objects := k.recall()
		for _, p := range pods {
			if itemKey(kindPod, p) != key {
				t.Errorf("pod %s of key %s", p.UID, key)
			}
		}
		for _, o := range objects {
			if itemKey(kindOf(o), o) != key {
				t.Errorf("object %s of key %s", o.GetName(), key)
			}
		}
		if len(pods)+len(objects) > 0 && k.unknown[key] {
			t.Error("known and unknown at the same time")
		}
	})
}
