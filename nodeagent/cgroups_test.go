package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/internal/kernel"
)

// driven is a runtime with a cgroup driver.
type driven struct {
	driver runtimeapi.CgroupDriver
	err    error
}

func (d driven) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: d.driver}}, d.err
}

func TestCgroupConfig(t *testing.T) {
	for _, tc := range []struct {
		content string
		rt      driven
		driver  string
		none    bool
		err     string
	}{
		{content: "", rt: driven{driver: runtimeapi.CgroupDriver_CGROUPFS}, driver: "cgroupfs"},
		{content: "", rt: driven{driver: runtimeapi.CgroupDriver_SYSTEMD}, driver: "systemd"},
		{content: "cgroupDriver: systemd", rt: driven{err: errors.New("unknown method")}, driver: "systemd"},
		{content: "cgroupDriver: cgroupfs", rt: driven{err: errors.New("unknown method")}, driver: "cgroupfs"},
		{content: "cgroupsPerQOS: false", none: true},
		{content: "cgroupDriver: none", err: `cgroupDriver: "none": want one of cgroupfs, systemd`},
		{content: "cgroupRoot: /x/../y", err: `Config.Root is "/x/../y"; want an absolute path without . or ..`},
		{content: "enforceNodeAllocatable: [all]", err: `enforceNodeAllocatable[0]: "all": want one of pods`},
		{content: "enforceNodeAllocatable: [pods]\ncgroupsPerQOS: false", err: `enforceNodeAllocatable[0]: "pods": want none, or cgroupsPerQOS: true`},
		{content: "enforceNodeAllocatable: [system-reserved]", err: "requires Config.SystemReservedCgroup"},
		{content: "podPidsLimit: 0", err: "podPidsLimit: 0: want 1 or more, or -1"},
		{content: "qosReserved: {memory: 50%}", rt: driven{driver: runtimeapi.CgroupDriver_CGROUPFS}, driver: "cgroupfs"},
		{content: "qosReserved: {memory: half}", err: "half"},
	} {
		c, _, err := load(t, configHead+tc.content+"\n")
		var got agent.Cgroups
		if err == nil {
			b := &Builder{Config: c, Facts: newFacts(), Log: zap.NewNop(), Metrics: prometheus.NewRegistry()}
			got, err = b.podCgroups(t.Context(), tc.rt)
		}
		switch {
		case tc.err != "":
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q: error %v, want %q", tc.content, err, tc.err)
			}
		case err != nil || (got == nil) != tc.none:
			t.Errorf("%q: %v, %v", tc.content, got, err)
		case got != nil:
			parent := got.CgroupParent(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}})
			if strings.HasSuffix(parent, ".slice") != (tc.driver == "systemd") {
				t.Errorf("%q: pods are in %s, want those of %s", tc.content, parent, tc.driver)
			}
		}
	}
}

func TestProcessIDsOfTheMachine(t *testing.T) {
	for _, c := range []struct{ pidMax, threadsMax, want string }{
		{"4194304\n", "1000\n", "1000"}, {"32768\n", "192730\n", "32768"}, {"32768\n", "", "32768"}, {"x", "0", "0"}, {"", "", "0"},
	} {
		machine := kernel.At(fstest.MapFS{"proc/sys/kernel/pid_max": {Data: []byte(c.pidMax)}, "proc/sys/kernel/threads-max": {Data: []byte(c.threadsMax)}})
		given := v1.ResourceList{"cpu": resource.MustParse("2")}
		got := withPIDs(t.Context(), given, machine)
		if q := got["pid"]; fmt.Sprint(q.Value()) != c.want || len(given) != 1 {
			t.Errorf("%+v: %s of %v", c, q.String(), given)
		}
	}
}
