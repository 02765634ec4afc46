package csi

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestLabelsOfFiles(t *testing.T) {
	machine := t.TempDir()
	for name, content := range map[string]string{
		"sys/fs/selinux/enforce":                     "1",
		"etc/selinux/config":                         "# comment\nSELINUX=enforcing\nSELINUXTYPE=targeted\n",
		"etc/selinux/targeted/contexts/lxc_contexts": "process = \"system_u:system_r:container_t:s0\"\nfile = \"system_u:object_r:container_file_t:s0\"\n",
	} {
		path := filepath.Join(machine, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if l, ok := labels(machine)(&v1.SELinuxOptions{Level: "s0:c1,c2", Type: "spc_t"}); !ok || l != "system_u:object_r:container_file_t:s0:c1,c2" {
		t.Errorf("label %q, %t", l, ok)
	}
	if err := os.RemoveAll(filepath.Join(machine, "sys")); err != nil {
		t.Fatal(err)
	}
	if l, ok := labels(machine)(&v1.SELinuxOptions{Level: "s0"}); ok || l != "" {
		t.Errorf("without SELinux: %q", l)
	}
}
