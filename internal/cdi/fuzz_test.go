//go:build linux

package cdi

import (
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
)

// Whatever a file says, it is refused or applied.
func FuzzSpecification(f *testing.F) {
	f.Add([]byte(`{"cdiVersion": "1.1.0", "kind": "v.com/c", "devices": [{"name": "a", "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}}]}`))
	f.Add([]byte("cdiVersion: 0.3.0\nkind: v.com/c\ndevices:\n- name: a\n  containerEdits: {env: [A=b], hooks: [{hookName: prestart, path: /x}]}\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parse(text)
		if err != nil {
			return
		}
		d := &devices{byName: map[string]*device{}}
		d.add("x.json", 0, s)
		for name := range d.byName {
			spec := &oci.Spec{Process: &oci.Process{}, Linux: &oci.Linux{}}
			_ = d.inject(spec, []string{name})
		}
	})
}
