package devicemgr_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/devicemgr"
)

// ofKubelet is the checkpoint of a kubelet v1.36.3 whose pods k1 and gone have a
// device each.
const ofKubelet = `{"Data":{"PodDeviceEntries":[` +
	`{"PodUID":"k1","ContainerName":"main","ResourceName":"example.com/gpu","DeviceIDs":{"-1":["a"]},"AllocResp":"CgYKAUESATE="},` +
	`{"PodUID":"gone","ContainerName":"main","ResourceName":"example.com/gpu","DeviceIDs":{"-1":["b"]},"AllocResp":""}],` +
	`"RegisteredDevices":{"example.com/gpu":["a","b"]}},"Checksum":3660409172}`

// Pods that a kubelet gave devices keep them, others do not get these, and the
// kubelet's checkpoint says what this manager gives.
func TestKubeletsDevices(t *testing.T) {
	dir, store := t.TempDir(), &checkpointtest.Disk{}
	file := filepath.Join(dir, "kubelet_internal_checkpoint")
	if err := os.WriteFile(file, []byte(ofKubelet), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := devicemgr.Config{SocketDir: dir, Store: store}
	l := start(t, cfg, map[types.UID][]string{"k1": {"main"}})
	if got := l.has("k1", "main"); got != "a" {
		t.Fatalf("k1 has %q, want a", got)
	}
	if a, err := l.Attachment(pod("k1", "main=1"), "main"); err != nil || len(a.Env) != 1 || a.Env[0].Name != "A" || a.Env[0].Value != "1" {
		t.Errorf("its container gets %+v, %v", a, err)
	}
	if got := l.has("gone", "main"); got != "" {
		t.Errorf("a pod that does not run has %q", got)
	}
	l.offer(t, newPlugin(healthyDevices("a", "b")...))
	if err := l.Admit(t.Context(), pod("n1", "main=1")); err != nil || l.has("n1", "main") != "b" {
		t.Fatalf("a new pod got %q, %v; want b", l.has("n1", "main"), err)
	}
	l.stop()
	b, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(b), `"PodUID":"n1"`) || strings.Contains(string(b), `"gone"`) {
		t.Errorf("the kubelet is told %s, %v", b, err)
	}

	// What this agent wrote does not count against its own records.
	l = start(t, cfg, map[types.UID][]string{"k1": {"main"}})
	l.Release("k1")
	l.stop()
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	l = start(t, cfg, map[types.UID][]string{"k1": {"main"}, "n1": {"main"}})
	if got := l.has("k1", "main") + l.has("n1", "main"); got != "ab" {
		t.Errorf("of a kubelet's newer checkpoint, pods have %q, want ab", got)
	}
}

// offer offers a plugin's devices as soon as the manager runs, and returns when they
// are known.
func (l *life) offer(t *testing.T, p *plugin) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		err := l.Offer(t.Context(), gpu, p)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(time.Minute); l.Capacity()[gpu].Allocatable == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no devices are listed")
		}
	}
}

// Without a kubelet there is no such file, and a damaged one takes nothing away.
func TestNoKubeletsDevices(t *testing.T) {
	dir, store := t.TempDir(), &checkpointtest.Disk{}
	file := filepath.Join(dir, "kubelet_internal_checkpoint")
	l := start(t, devicemgr.Config{SocketDir: dir, Store: store}, nil)
	l.offer(t, newPlugin(healthyDevices("a")...))
	if err := l.Admit(t.Context(), pod("p", "main=1")); err != nil {
		t.Fatal(err)
	}
	l.stop()
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("%v, want no file", err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	l = start(t, devicemgr.Config{SocketDir: dir, Store: store}, map[types.UID][]string{"p": {"main"}})
	if got := l.has("p", "main"); got != "a" {
		t.Errorf("p has %q, want a", got)
	}
}
