//go:build linux

package localcri

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// someDevices notes which are asked for.
type someDevices struct {
	names []string
	edit  func(*specs.Spec) error
}

func (d *someDevices) Inject(_ context.Context, s *specs.Spec, names []string) error {
	d.names = names
	return d.edit(s)
}

func (*someDevices) Dirs() []string { return []string{"/etc/cdi"} }

func TestDevicesOfAContainer(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	config := containerConfig("c")
	config.CDIDevices = []*runtimeapi.CDIDevice{{Name: "v.com/c=b"}, {Name: "v.com/c=a"}, {Name: "v.com/c=b"}}
	config.Annotations = map[string]string{"cdi.k8s.io/z": "v.com/c=d,v.com/c=a", "cdi.k8s.io/a": "v.com/c=c", "other": "v.com/c=e"}
	create := func(want codes.Code, words ...string) string {
		t.Helper()
		id, err := b.rt.CreateContainer(t.Context(), sb, config, nil)
		wantCode(t, "CreateContainer", err, want)
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v; want %q in it", err, w)
			}
		}
		return id
	}
	create(codes.FailedPrecondition, "no CDI devices are configured", "v.com/c=b")

	d := &someDevices{edit: func(*specs.Spec) error { return errors.New(`device "v.com/c=b" of /etc/cdi/x.json: gone`) }}
	b.rt.cfg.CDI = d
	create(codes.FailedPrecondition, "v.com/c=b", "/etc/cdi/x.json")
	if want := []string{"v.com/c=b", "v.com/c=a", "v.com/c=c", "v.com/c=d"}; !slices.Equal(d.names, want) {
		t.Errorf("asked for %q, want %q", d.names, want)
	}
	// What the OCI runtime does not have would be left out in silence.
	d.edit = func(s *specs.Spec) error {
		s.Linux.NetDevices = map[string]specs.LinuxNetDevice{"eth7": {}}
		return nil
	}
	create(codes.FailedPrecondition, "moves no network devices")

	d.edit = func(s *specs.Spec) error {
		s.Process.Env = append(s.Process.Env, "GPU=1")
		return nil
	}
	id := create(codes.OK)
	raw, err := os.ReadFile(b.rt.containers[id].bundle(configFile))
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(raw, &spec); err != nil || !slices.Contains(spec.Process.Env, "GPU=1") {
		t.Errorf("%q, %v", spec.Process.Env, err)
	}
	// Commands in it have the device's variables as well.
	p, err := b.rt.containers[id].firstProcess()
	if err != nil || !slices.Contains(p.Env, "GPU=1") {
		t.Errorf("%+v, %v", p, err)
	}
	status, err := b.rt.Status(t.Context(), true)
	if err != nil || !strings.Contains(status.GetInfo()["config"], `"cdiSpecDirs":["/etc/cdi"]`) || !strings.Contains(status.GetInfo()["config"], `"enableCDI":true`) {
		t.Errorf("%v, %v", status.GetInfo(), err)
	}
}
