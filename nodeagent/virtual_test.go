package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/dra"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// virtual are the options of a node with all parts that waits for nothing but time.
func virtual(t *testing.T, more string) Options {
	t.Helper()
	o := options(t, "volumeStatsAggPeriod: -1s\nimageGCHighThresholdPercent: 100\n"+more)
	o.Hardware, o.Parts = hardware("8", "16Gi"), Standard()
	o.Settings = Settings{LeaveHost: true, PollFiles: true, NoPluginSockets: true}
	o.Agent = func(c *agent.Config) { c.Volumes.Mounter = &plugintest.MountMemory{} }
	return o
}

// New starts nothing: a node that is closed and not run leaves no goroutine behind.
func TestNewStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, err := New(t.Context(), virtual(t, ""))
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A node with all parts lives in virtual time: nothing of it waits for the kernel. It sees
// manifests by looking at them, and its plugins are those of the program.
func TestNodeInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := virtual(t, "fileCheckFrequency: 30s\n")
		n, err := New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, n.Run)
		<-n.Ready()
		time.Sleep(time.Second)
		f := n.Builder().Facts
		if err := f.OfferDevices(t.Context(), "example.com/gpu", gpus{}); err != nil {
			t.Error(err)
		}
		if err := f.OfferDriver("gpu.example.com", "1", draDriver{}); err != nil || len(f.Drivers()) != 1 {
			t.Errorf("drivers %v, %v", f.Drivers(), err)
		}
		pod := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "web"}}
		pod.Spec.Containers = []v1.Container{{Name: "c", Image: "localhost/app:1", ImagePullPolicy: v1.PullNever}}
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(o.Config.StaticPodPath, "web.json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{1, 0} {
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := len(n.Pods()); got != want {
				t.Errorf("%d pods a minute after the change of the manifests, want %d", got, want)
			}
			_ = os.Remove(file)
		}
		for _, dir := range []string{devicePluginDir, podResourcesDir, pluginDir, driversDir} {
			if _, err := os.Stat(n.Builder().Path(dir)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("directory %s of sockets: %v", dir, err)
			}
		}
		stop()
	})
}

// gpus is a device plugin of this process.
type gpus struct{ devicemgr.Plugin }

func (gpus) Options(context.Context) (devicemgr.Options, error) { return devicemgr.Options{}, nil }
func (gpus) Close() error                                       { return nil }

func (gpus) Watch(ctx context.Context, list func([]devicemgr.Device)) error {
	list([]devicemgr.Device{{ID: "0", Healthy: true}})
	<-ctx.Done()
	return ctx.Err()
}

// draDriver is a DRA driver of this process, of which nobody asks anything.
type draDriver struct{}

func (draDriver) Prepare(context.Context, []dra.ClaimRef) (map[types.UID]dra.Prepared, error) {
	return nil, nil
}

func (draDriver) Unprepare(context.Context, []dra.ClaimRef) (map[types.UID]error, error) {
	return nil, nil
}

func (draDriver) Watch(context.Context, func([]dra.DeviceHealth)) error { return dra.ErrNoHealth }
func (draDriver) Close() error                                          { return nil }
