package plugins

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// What an API server would have merged is merged.
func TestOfSecret(t *testing.T) {
	s := &v1.Secret{Data: map[string][]byte{"a": []byte("1"), "b": []byte("2")}, StringData: map[string]string{"b": "3", "c": "4"}}
	o := ObjectOfSecret(s)
	if string(o.Data["a"])+string(o.Data["b"])+string(o.Data["c"]) != "134" || len(s.Data) != 2 {
		t.Errorf("data %q of %q", o.Data, s.Data)
	}
	if merged := ObjectOfSecret(&v1.Secret{Data: o.Data}); merged.Version != o.Version {
		t.Error("the same content has another version")
	}
}
