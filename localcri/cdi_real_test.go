//go:build linux

package localcri_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What a CDI device brings is there in a container of runc.
func TestDevicesOnRealContainers(t *testing.T) {
	n := newShellNode(t)
	hook, seen, lib := filepath.Join(n.dir, "hook"), filepath.Join(n.dir, "seen"), filepath.Join(n.dir, "lib")
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "nwtcdi0"}, PeerName: "nwtcdi1"}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: "nwtcdi1"}}) })
	for path, text := range map[string]string{
		hook:                            "#!/bin/sh\ncat >" + seen + "\n",
		filepath.Join(lib, "driver.so"): "of the host\n",
		filepath.Join(n.cdi(), "x.yaml"): fmt.Sprintf(`
cdiVersion: 1.1.0
kind: vendor.test/thing
containerEdits: {env: [ALL=1]}
devices:
- name: one
  containerEdits:
    env: [ONE=1]
    deviceNodes: [{path: /dev/thing, hostPath: /dev/zero, permissions: r}]
    mounts: [{hostPath: %s, containerPath: /usr/lib/thing, options: [ro, rbind, nosuid]}]
    hooks: [{hookName: createRuntime, path: %s}]
    additionalGids: [4711]
    netDevices: [{hostInterfaceName: nwtcdi0, name: thing0}]
`, lib, hook),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := n.run(t, n.pod(t, "p"), script("c", "echo $ALL$ONE; head -c 3 /dev/thing | tr '\\0' z; echo; cat /usr/lib/thing/driver.so; echo x 2>/dev/null >/usr/lib/thing/x || echo read-only; id; cat /proc/net/dev; echo done",
		func(c *runtimeapi.ContainerConfig) {
			c.CDIDevices = []*runtimeapi.CDIDevice{{Name: "vendor.test/thing=one"}}
		}))
	n.untilLog(t, c, "done")
	log := n.readLog(t, c)
	for _, want := range []string{" 11\n", " zzz\n", " of the host\n", " read-only\n", "4711", "thing0:"} {
		if !strings.Contains(log, want) {
			t.Errorf("log has no %q:\n%s", want, log)
		}
	}
	if b, err := os.ReadFile(seen); err != nil || !strings.Contains(string(b), c) {
		t.Errorf("the hook was told %.200q, %v; want the state of %s", b, err, c)
	}
}
